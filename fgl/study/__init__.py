"""Studies: methods, settings, hyper-parameters and seeds, on all cores, as one table."""

from .results import Study, Tested
from .space import LogUniform, Tuned, Uniform
from .statistics import Difference, difference, holm, improvement, least_effect, seeds_needed
from .study import Chosen, study, tune

__all__ = [
    "Chosen",
    "Difference",
    "LogUniform",
    "Study",
    "Tested",
    "Tuned",
    "Uniform",
    "difference",
    "holm",
    "improvement",
    "least_effect",
    "seeds_needed",
    "study",
    "tune",
]
