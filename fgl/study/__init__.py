"""Studies: methods, settings, hyper-parameters and seeds, on all cores, as one table."""

from .results import Study, Tested
from .space import LogUniform as LogUniform
from .space import Tuned as Tuned
from .space import Uniform as Uniform
from .statistics import Difference, difference, holm, improvement, least_effect, seeds_needed
from .study import Chosen
from .study import study as study
from .study import tune as tune

__all__ = [
    "Chosen",
    "Difference",
    "Study",
    "Tested",
    "difference",
    "holm",
    "improvement",
    "least_effect",
    "seeds_needed",
]
