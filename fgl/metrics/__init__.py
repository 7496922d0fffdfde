"""Metrics for classes, for rankings, for regression, and for several binary tasks."""

from .answers import mean_auc, mean_average_precision
from .classes import accuracy, hit_rows, macro_f1
from .numbers import mae, mape, r2, rmse
from .ranking import auc, average_precision, hit_rate

__all__ = [
    "accuracy",
    "auc",
    "average_precision",
    "hit_rate",
    "hit_rows",
    "macro_f1",
    "mae",
    "mape",
    "mean_auc",
    "mean_average_precision",
    "r2",
    "rmse",
]
