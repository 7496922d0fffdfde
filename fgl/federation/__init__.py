"""The machine that runs a method: messages, methods, local training, rounds."""

from . import personal, trees
from .batch import train_cohort
from .cohort import Cohort
from .evaluate import evaluate_clients, evaluate_graphs, evaluate_on, evaluate_pseudo, together
from .message import Broadcast, Inbox, Message, check_message, num_bytes
from .method import (
    Method,
    Training,
    adopt_model,
    average,
    fold_in,
    keep_own,
    send_model,
    supervised,
)
from .own import (
    evaluate_own,
    link_scores,
    node_scores,
    own_clients,
    own_scores,
    trigger_rate,
)
from .ragged import Ragged
from .result import Result, Round
from .run import run
from .schedule import graph_minibatches
from .train import Trained, train

__all__ = [
    "Broadcast",
    "Cohort",
    "Inbox",
    "Message",
    "Method",
    "Ragged",
    "Result",
    "Round",
    "Trained",
    "Training",
    "adopt_model",
    "average",
    "check_message",
    "evaluate_clients",
    "evaluate_graphs",
    "evaluate_on",
    "evaluate_own",
    "evaluate_pseudo",
    "fold_in",
    "graph_minibatches",
    "keep_own",
    "link_scores",
    "node_scores",
    "num_bytes",
    "own_clients",
    "own_scores",
    "personal",
    "run",
    "send_model",
    "supervised",
    "together",
    "train",
    "train_cohort",
    "trees",
    "trigger_rate",
]
