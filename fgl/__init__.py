"""Composable federated-graph-learning primitives, in pure PyTorch."""

from . import (
    aggregate,
    augment,
    client_network,
    data,
    ego,
    federation,
    losses,
    metrics,
    nn,
    personalize,
    properties,
    pseudo,
    sparse,
)
from .federation import Message, Method, Result, Training, evaluate_on, run
from .graph import Graph
from .sparse import SparseMatrix

__version__ = "0.1.0"

__all__ = [
    "Graph",
    "Message",
    "Method",
    "Result",
    "SparseMatrix",
    "Training",
    "aggregate",
    "augment",
    "client_network",
    "data",
    "ego",
    "evaluate_on",
    "federation",
    "losses",
    "metrics",
    "nn",
    "personalize",
    "properties",
    "pseudo",
    "run",
    "sparse",
]
