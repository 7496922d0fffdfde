"""Composable federated-graph-learning primitives, in pure PyTorch."""

from . import (
    aggregate,
    augment,
    blocks,
    client_network,
    data,
    ego,
    federation,
    losses,
    methods,
    metrics,
    nn,
    personalize,
    privacy,
    properties,
    pseudo,
    sampler,
    sparse,
    tasks,
    transforms,
)
from .federation import Message, Method, Ragged, Result, Training, evaluate_on, fedavg, run
from .graph import Graph
from .sparse import SparseMatrix

__version__ = "0.1.0"

__all__ = [
    "Graph",
    "Message",
    "Method",
    "Ragged",
    "Result",
    "SparseMatrix",
    "Training",
    "aggregate",
    "augment",
    "blocks",
    "client_network",
    "data",
    "ego",
    "evaluate_on",
    "fedavg",
    "federation",
    "losses",
    "methods",
    "metrics",
    "nn",
    "personalize",
    "privacy",
    "properties",
    "pseudo",
    "run",
    "sampler",
    "sparse",
    "tasks",
    "transforms",
]
