"""Methods for any task: ``name(fedavg, ...)`` turns a task's FedAvg into another method."""

from .adafgl import adafgl
from .ditto import ditto
from .fedamp import fedamp, heurfedamp
from .fedaux import fedaux
from .feddc import feddc
from .feddep import feddep
from .feddyn import feddyn
from .fedgm import fedgm
from .fedgta import fedgta
from .fedhgn import fedhgn
from .fedopt import fedopt
from .fedper import fedper
from .fedproto import fedproto
from .fedprox import adaptive_fedprox, fedprox
from .fedpub import fedpub, proxy_graph
from .fedsage_plus import fedsage_plus, random_neighbours
from .fedselect import fedselect
from .fedspa import fedspa
from .fedssp import fedssp
from .fedstar import fedstar
from .fedtad import fedtad, node_generator
from .fedtgp import fedtgp
from .fggp import fggp
from .gcfl import gcfl, gcfl_plus
from .graphfl import graphfl
from .local import local
from .mix_updates import mix_updates, uniform
from .moon import moon
from .opfgl import opfgl
from .own_models import own_models
from .pfedgraph import pfedgraph
from .ring import ring
from .s2fgl import s2fgl
from .scaffold import scaffold
from .unlearning import retrained, unlearned

__all__ = [
    "adafgl",
    "adaptive_fedprox",
    "ditto",
    "fedamp",
    "fedaux",
    "feddc",
    "feddep",
    "feddyn",
    "fedgm",
    "fedgta",
    "fedhgn",
    "fedopt",
    "fedper",
    "fedproto",
    "fedprox",
    "fedpub",
    "fedsage_plus",
    "fedselect",
    "fedspa",
    "fedssp",
    "fedstar",
    "fedtad",
    "fedtgp",
    "fggp",
    "gcfl",
    "gcfl_plus",
    "graphfl",
    "heurfedamp",
    "local",
    "mix_updates",
    "moon",
    "node_generator",
    "opfgl",
    "own_models",
    "pfedgraph",
    "proxy_graph",
    "random_neighbours",
    "retrained",
    "ring",
    "s2fgl",
    "scaffold",
    "uniform",
    "unlearned",
]
