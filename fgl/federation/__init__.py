"""The engine that runs a method: messages, methods, local training, rounds and executors."""

from typing import TYPE_CHECKING, Any

from ..checks import install
from ..predict import predict as predict
from ..predict import stand_in as stand_in
from ..predict import standing_in as standing_in
from ..seeds import fold_in, stage
from .evaluate import deployed, together
from .evaluate import evaluate_on as evaluate_on
from .evaluate import means as means
from .evaluate import merging as merging
from .evaluate import scored as scored
from .executors import Answer as Answer
from .executors import Executor
from .executors.batch.batch import Batch
from .executors.batch.choice import choose
from .executors.batch.cohort import Cohort
from .executors.batch.cohort import batch_norms as batch_norms
from .executors.here import Here
from .executors.loop import Loop
from .executors.loop import Score as Score
from .gate.guard import check_whole as check_whole
from .gate.guard import checked as checked
from .gate.guard import pair as pair
from .gate.uploads import Absent as Absent
from .gate.uploads import Limits
from .history import Result as Result
from .history import Round, best_round
from .method.compose import check_averages as check_averages
from .method.compose import check_model_alone as check_model_alone
from .method.compose import check_no_joining as check_no_joining
from .method.compose import check_one_architecture as check_one_architecture
from .method.compose import layer as layer
from .method.compose import refuse
from .method.fedavg import (
    Means,
    OfMeans,
    OfSums,
    adopt_model,
    after,
    average,
    deploy_received,
    send_model,
    supervised,
)
from .method.fedavg import accept_all as accept_all
from .method.fedavg import accept_equally as accept_equally
from .method.fedavg import fedavg as fedavg
from .method.message import Broadcast, Inbox, Params, State, changed_messages, num_bytes
from .method.message import Message as Message
from .method.message import Outbox as Outbox
from .method.message import check_keys as check_keys
from .method.message import check_model as check_model
from .method.message import combine as combine
from .method.message import drop as drop
from .method.message import first_not_finite as first_not_finite
from .method.message import leaves as leaves
from .method.message import one_for_all as one_for_all
from .method.message import pick as pick
from .method.message import same as same
from .method.method import Evaluate
from .method.method import Loss as Loss
from .method.method import Method as Method
from .method.method import OptimizerFactory as OptimizerFactory
from .method.method import Training as Training
from .method.rules import Joining as Joining
from .method.rules import Models as Models
from .method.rules import Own, Privacy, Rules
from .method.rules import Ragged as Ragged
from .run import Callback
from .run import run as run
from .training.minibatches import Steps, graph_minibatches, node_minibatches, window_minibatches
from .training.minibatches import local_steps as local_steps
from .training.minibatches import num_steps as num_steps
from .training.minibatches import training_examples as training_examples
from .training.minibatches import with_train_mask as with_train_mask
from .training.train import Trained as Trained
from .training.train import gradient, in_mode, minimise, train, trainable

if TYPE_CHECKING:
    from .executors.remote.flower import Flower as Flower
    from .executors.remote.flower import client_app as client_app


def __getattr__(name: str) -> Any:
    """Import `Flower` or `client_app` when it is first used, since the import requires flwr."""
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
    "Batch",
    "Broadcast",
    "Callback",
    "Cohort",
    "Evaluate",
    "Executor",
    "Here",
    "Inbox",
    "Limits",
    "Loop",
    "Means",
    "OfMeans",
    "OfSums",
    "Own",
    "Params",
    "Privacy",
    "Round",
    "Rules",
    "State",
    "Steps",
    "adopt_model",
    "after",
    "average",
    "best_round",
    "changed_messages",
    "choose",
    "deploy_received",
    "deployed",
    "fold_in",
    "gradient",
    "graph_minibatches",
    "in_mode",
    "minimise",
    "node_minibatches",
    "num_bytes",
    "refuse",
    "send_model",
    "stage",
    "supervised",
    "together",
    "train",
    "trainable",
    "window_minibatches",
]
