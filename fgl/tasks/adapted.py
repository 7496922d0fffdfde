"""AdaFGL: train a federated model; in a second task, clients adapt this model to their graphs."""

import copy
from functools import partial
from typing import Any

from ..checks import Natural
from ..federation import Result, Round, best_round, fedavg, run
from ..methods.adafgl import adafgl
from ..nn import AdaFGL
from ..seeds import drawing_from
from .scores import evaluate_own, node_scores, validation
from .task import Task, bounded


def adapted(
    task: Task,
    seed: int = 0,
    *,
    first_rounds: Natural = 100,
    threshold: float = 0.9,
    own_hidden: int = 64,
    own_hops: int = 3,
    own_alpha: float = 0.05,
    own_beta: float = 0.2,
    own_dropout: float = 0.5,
) -> Task:
    """AdaFGL: after some rounds of FedAvg, every client trains networks of its own.

    The first step is FedAvg and returns the model of the round with the best validation score. In
    the first step of the public code, a client's weight is its number of nodes. Here the first step
    uses the weights of the task. The second step is `fgl.methods.adafgl`, with the task's settings
    of local training. Each client is scored on its own test nodes.

    Args:
        task: a task of nodes; every client has a training mask, and masks of the nodes to score.
        seed: seed of both steps.
        first_rounds: number of rounds of FedAvg in the first step.
        threshold: a client treats neighbours as similar if the accuracy of propagated labels is at
            least this number.
        own_hidden: width of the clients' own networks.
        own_hops: number of propagation steps of features.
        own_alpha: weight of a client's own edges when features are propagated, between 0 and 1.
            Added edges between similar nodes have the weight ``1 - own_alpha``.
        own_beta: weight of the first step's predictions when the signs of messages are computed,
            between 0 and 1.
        own_dropout: dropout of the clients' own networks.

    Raises:
        ValueError: if a number is out of range, or if clients have no class labels.

    Example:
        >>> task = fgl.tasks.Nodes(clients=3, hidden=8, model="gcn").load(seed=0)
        >>> made = adapted(task, first_rounds=1, own_hidden=4)
        >>> made.fedavg
        adafgl(fedavg(AdaFGL(...), train=Training(SGD(lr=0.25, ...), num_steps=4)), threshold=0.9)

    Source: Li et al. 2024, https://arxiv.org/abs/2401.11750; https://github.com/xkLi-Allen/AdaFGL
    """
    own = task.clients[0]
    _ = own.labels  # raises if labels are numbers
    best: list[Any] = [task.fedavg.initial()]

    def keep_best(record: Round, result: Result) -> None:
        if best_round(result.history, task.select) is record:
            best[:] = [result.server_state["model"]]

    first = run(task.fedavg, task, num_rounds=first_rounds, seed=seed, callbacks=[keep_best])
    extractor = copy.deepcopy(task.fedavg.model)
    extractor.load_state_dict(best[0])
    sizes = own.num_features, own_hidden, int(own.num_classes or 1)
    with drawing_from(seed):
        how: Any = {"hops": own_hops, "alpha": own_alpha, "beta": own_beta, "dropout": own_dropout}
        model = AdaFGL(extractor, *sizes, **how)
    model = model.to(own.device, own.x.dtype)
    method = adafgl(fedavg(model, train=task.fedavg.train), threshold=threshold)
    scores = partial(evaluate_own, node_scores(model))
    validate = validation(node_scores(model, test=False), "val_accuracy")
    sent = sum(record.bytes_up + record.bytes_down for record in first.history)
    return Task(task.clients, bounded(method, task.clients), scores, "val_accuracy", validate,
                bytes_before=task.bytes_before + sent)  # fmt: skip
