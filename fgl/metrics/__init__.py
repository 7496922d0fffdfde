"""Metrics: of classes, of rankings, of numbers, and of answers to several questions."""

from .answers import mean_auc, mean_average_precision
from .classes import accuracy, class_counts, hit_counts, hit_rows, macro_f1, share
from .host import on_host
from .numbers import mae, r2, rmse
from .ranking import auc, auc_and_average_precision, average_precision, hit_rate

__all__ = [
    "accuracy",
    "auc",
    "auc_and_average_precision",
    "average_precision",
    "class_counts",
    "hit_counts",
    "hit_rate",
    "hit_rows",
    "macro_f1",
    "mae",
    "mean_auc",
    "mean_average_precision",
    "on_host",
    "r2",
    "rmse",
    "share",
]
