"""Experiments: from a command line to a report."""

from .callbacks import early_stop, progress
from .cli import cli, takes_options_of
from .memory import Estimate, estimate
from .report import best_round, report
from .run import Run
from .words import choose_names

__all__ = [
    "Estimate",
    "Run",
    "best_round",
    "choose_names",
    "cli",
    "early_stop",
    "estimate",
    "progress",
    "report",
    "takes_options_of",
]
