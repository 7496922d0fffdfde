"""Methods made of a task's FedAvg: ``name(fedavg, ...)`` gives a method, whatever the task."""

from .fedopt import fedopt
from .fedper import fedper
from .fedprox import adaptive_fedprox, fedprox
from .fedsage_plus import fedsage_plus, random_neighbours
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
    "fedsage_plus",
    "local",
    "mix_updates",
    "moon",
    "own_models",
    "random_neighbours",
    "ring",
    "uniform",
]
