"""Methods made of a task's FedAvg: ``name(fedavg, ...)`` gives a method, whatever the task."""

from .fedopt import fedopt
from .fedper import fedper
from .fedprox import adaptive_fedprox, fedprox
from .fedselect import fedselect
from .graphfl import graphfl
from .local import local
from .mix_updates import mix_updates, uniform
from .moon import moon
from .own_models import own_models
from .ring import ring
from .scaffold import scaffold

__all__ = [
    "adaptive_fedprox",
    "fedopt",
    "fedper",
    "fedprox",
    "fedselect",
    "graphfl",
    "local",
    "mix_updates",
    "moon",
    "own_models",
    "ring",
    "scaffold",
    "uniform",
]
