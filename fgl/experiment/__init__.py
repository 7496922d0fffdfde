"""Experiments: from a command line to a report."""

from ..federation import best_round
from .callbacks import early_stop, progress
from .cli import cli, takes_options_of
from .comparison import Comparison, compare
from .loggers import CSV, MLflow, TensorBoard, WandB
from .plots import plot
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
    "best_round",
    "choose_names",
    "cli",
    "compare",
    "early_stop",
    "plot",
    "progress",
    "report",
    "takes_options_of",
]
