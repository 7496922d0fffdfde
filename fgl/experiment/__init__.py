"""Experiments: from a command line to a report."""

from ..federation import best_round
from .calibrate import calibrate, flower_line
from .callbacks import early_stop, progress
from .cli import cli, takes_options_of
from .comparison import Comparison, compare
from .cost import Cost, Rates, cost
from .loggers import CSV, MLflow, TensorBoard, WandB
from .memory import Estimate, estimate
from .plots import plot
from .report import report
from .run import Run
from .words import choose_names

__all__ = [
    "CSV",
    "Comparison",
    "Cost",
    "Estimate",
    "MLflow",
    "Rates",
    "Run",
    "TensorBoard",
    "WandB",
    "best_round",
    "calibrate",
    "choose_names",
    "cli",
    "compare",
    "cost",
    "early_stop",
    "estimate",
    "flower_line",
    "plot",
    "progress",
    "report",
    "takes_options_of",
]
