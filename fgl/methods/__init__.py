"""Methods made of a task's FedAvg: ``name(fedavg, ...)`` gives a method, whatever the task."""

from .fedopt import fedopt
from .fedper import fedper
from .fedprox import adaptive_fedprox, fedprox
from .fedstar import fedstar
from .gcfl import gcfl, gcfl_plus
from .local import local
from .mix_updates import mix_updates, uniform
from .moon import moon
from .own_models import own_models
from .ring import ring

__all__ = [
    "adaptive_fedprox",
    "fedopt",
    "fedper",
    "fedprox",
    "fedstar",
    "gcfl",
    "gcfl_plus",
    "local",
    "mix_updates",
    "moon",
    "own_models",
    "ring",
    "uniform",
]
