"""Composable federated-graph-learning primitives, in pure PyTorch."""

from . import (
    aggregate,
    augment,
    blocks,
    client_network,
    compress,
    data,
    ego,
    experiment,
    federation,
    kinds,
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
    targets,
    tasks,
    transforms,
)
from .experiment.plots import plot
from .federation import Message, Method, Ragged, Result, Training, evaluate_on, fedavg, layer, run
from .graph import Graph
from .predict import predict
from .sparse import SparseMatrix
from .study import LogUniform, Tuned, Uniform, compare, study, tune

__version__ = "0.2.0"

__all__ = [
    "Graph",
    "LogUniform",
    "Message",
    "Method",
    "Ragged",
    "Result",
    "SparseMatrix",
    "Training",
    "Tuned",
    "Uniform",
    "aggregate",
    "augment",
    "blocks",
    "client_network",
    "compare",
    "compress",
    "data",
    "ego",
    "evaluate_on",
    "experiment",
    "fedavg",
    "federation",
    "layer",
    "losses",
    "methods",
    "metrics",
    "nn",
    "personalize",
    "plot",
    "predict",
    "privacy",
    "properties",
    "pseudo",
    "run",
    "sampler",
    "sparse",
    "study",
    "targets",
    "tasks",
    "transforms",
    "tune",
]

kinds.explain_public(__name__)
