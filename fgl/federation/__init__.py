"""The machine that runs a method: messages, methods, local training, rounds, executors."""

from typing import TYPE_CHECKING, Any

from .checks import check_message, check_model
from .estimate import Estimate, estimate
from .evaluate import deployed, evaluate_clients, evaluate_graphs, evaluate_on, together
from .executors import Answer, Executor
from .executors.batch import Batch
from .executors.choice import Choice, choose
from .executors.cohort import Cohort
from .executors.loop import Loop
from .executors.train_cohort import train_cohort
from .guard import checked
from .history import Result, Round
from .inbox import Broadcast, Inbox
from .message import Message, Params, num_bytes
from .method import (
    Method,
    Training,
    adopt_model,
    average,
    deploy_received,
    fedavg,
    send_model,
    supervised,
)
from .minibatches import Steps, graph_minibatches, node_minibatches
from .modes import in_mode
from .ragged import Ragged
from .round import Evaluate, Watch
from .run import run
from .seeds import fold_in
from .train import Trained, minimise, train

if TYPE_CHECKING:
    from .executors.flower import Flower as Flower
    from .executors.flower import client_app as client_app


def __getattr__(name: str) -> Any:
    """`Flower` and `client_app` are loaded when they are asked for; they need flwr."""
    if name not in ("Flower", "client_app"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from .executors import flower
    except ModuleNotFoundError as error:
        raise ImportError(
            f"Expected flwr and safetensors to be installed, but got: {error}: "
            "pip install 'torch-fgl[flower]'"
        ) from error
    return getattr(flower, name)


__all__ = [
    "Answer",
    "Batch",
    "Broadcast",
    "Choice",
    "Cohort",
    "Estimate",
    "Evaluate",
    "Executor",
    "Inbox",
    "Loop",
    "Message",
    "Method",
    "Params",
    "Ragged",
    "Result",
    "Round",
    "Steps",
    "Trained",
    "Training",
    "Watch",
    "adopt_model",
    "average",
    "check_message",
    "check_model",
    "checked",
    "choose",
    "deploy_received",
    "deployed",
    "estimate",
    "evaluate_clients",
    "evaluate_graphs",
    "evaluate_on",
    "fedavg",
    "fold_in",
    "graph_minibatches",
    "in_mode",
    "minimise",
    "node_minibatches",
    "num_bytes",
    "run",
    "send_model",
    "supervised",
    "together",
    "train",
    "train_cohort",
]
