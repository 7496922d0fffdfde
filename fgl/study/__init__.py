"""Studies: methods are tuned on settings and compared over seeds, in one table."""

from .compare import compare as compare
from .results import Study
from .space import LogUniform as LogUniform
from .space import Tuned as Tuned
from .space import Uniform as Uniform
from .statistics import difference
from .study import study as study
from .study import tune as tune

__all__ = ["Study", "difference"]
