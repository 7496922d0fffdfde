"""The machine that runs a method: messages, methods, local training, rounds, executors."""

from typing import TYPE_CHECKING, Any

from ..checks import install
from ..predict import predict, stand_in, standing_in
from ..seeds import fold_in
from .best import best_round
from .callbacks import Callback
from .evaluate import deployed, evaluate_on, scored, together
from .executors import Answer, Executor
from .executors.batch.batch import Batch
from .executors.batch.choice import choose
from .executors.batch.cohort import Cohort, batch_norms
from .executors.batch.train_cohort import train_cohort
from .executors.here import Here, Place
from .executors.loop import Loop, Score
from .gate.guard import check_whole, checked, pair
from .gate.limits import Limits
from .gate.uploads import Absent
from .history import Result, Round
from .method.checks import check_keys, check_model, first_not_finite
from .method.compose import (
    check_averages,
    check_model_alone,
    check_no_joining,
    check_one_architecture,
    layer,
    refuse,
    unsealed,
)
from .method.fedavg import (
    accept_all,
    accept_equally,
    adopt_model,
    average,
    deploy_received,
    fedavg,
    send_model,
    supervised,
)
from .method.inbox import Broadcast, Inbox, changed_messages, one_for_all
from .method.message import Message, Outbox, Params, State, combine, drop, leaves, num_bytes, pick
from .method.method import Evaluate, Loss, Method, OptimizerFactory, Training, Watch
from .method.models import Models
from .method.ragged import Ragged
from .method.rules import Joining, Own, Privacy, Rules
from .method.sums import Means, OfMeans, OfSums, after
from .participants import num_participants
from .run import run
from .scores import means
from .seeds import stage
from .training.minibatches import (
    Steps,
    graph_minibatches,
    local_steps,
    node_minibatches,
    num_steps,
    training_examples,
    with_train_mask,
)
from .training.train import Trained, gradient, in_mode, minimise, train, trainable

if TYPE_CHECKING:
    from .executors.remote.flower import Flower as Flower
    from .executors.remote.flower import client_app as client_app


def __getattr__(name: str) -> Any:
    """Import `Flower` and `client_app` at their first use, since they need flwr."""
    if name not in ("Flower", "client_app"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from .executors.remote import flower
    except ModuleNotFoundError as error:
        raise ImportError(
            f"Expected flwr and safetensors to be installed, but got: {error}: {install('flower')}"
        ) from error
    return getattr(flower, name)


__all__ = [
    "Absent",
    "Answer",
    "Batch",
    "Broadcast",
    "Callback",
    "Cohort",
    "Evaluate",
    "Executor",
    "Here",
    "Inbox",
    "Joining",
    "Limits",
    "Loop",
    "Loss",
    "Means",
    "Message",
    "Method",
    "Models",
    "OfMeans",
    "OfSums",
    "OptimizerFactory",
    "Outbox",
    "Own",
    "Params",
    "Place",
    "Privacy",
    "Ragged",
    "Result",
    "Round",
    "Rules",
    "Score",
    "State",
    "Steps",
    "Trained",
    "Training",
    "Watch",
    "accept_all",
    "accept_equally",
    "adopt_model",
    "after",
    "average",
    "batch_norms",
    "best_round",
    "changed_messages",
    "check_averages",
    "check_keys",
    "check_model",
    "check_model_alone",
    "check_no_joining",
    "check_one_architecture",
    "check_whole",
    "checked",
    "choose",
    "combine",
    "deploy_received",
    "deployed",
    "drop",
    "evaluate_on",
    "fedavg",
    "first_not_finite",
    "fold_in",
    "gradient",
    "graph_minibatches",
    "in_mode",
    "layer",
    "leaves",
    "local_steps",
    "means",
    "minimise",
    "node_minibatches",
    "num_bytes",
    "num_participants",
    "num_steps",
    "one_for_all",
    "pair",
    "pick",
    "predict",
    "refuse",
    "run",
    "scored",
    "send_model",
    "stage",
    "stand_in",
    "standing_in",
    "supervised",
    "together",
    "train",
    "train_cohort",
    "trainable",
    "training_examples",
    "unsealed",
    "with_train_mask",
]
