"""Experiments: command lines, runs, comparisons, plots and reports."""

from .callbacks import early_stop, progress
from .cli import cli, takes_options_of
from .clients import spread
from .comparison import Comparison
from .loggers import CSV, MLflow, TensorBoard, WandB
from .report import report
from .run import Run
from .words import choose_names

__all__ = [
    "CSV",
    "Comparison",
    "MLflow",
    "Run",
    "TensorBoard",
    "WandB",
    "choose_names",
    "cli",
    "early_stop",
    "progress",
    "report",
    "spread",
    "takes_options_of",
]
