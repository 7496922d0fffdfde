"""Tasks: the clients' graphs, FedAvg for these clients, and the scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

import torch
from torch import Tensor

from .. import federation as fed
from ..checks import Count, Natural, Weight, check_choice, check_number, reject_if
from ..federation import Evaluate, Message, Method, Params, State, Training
from ..graph import Graph
from ..graph.facts import check_graphs
from .apart import trained_nodes

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


@dataclass(frozen=True)
class Task:
    """A federation's learning problem: the clients, FedAvg for these clients, and the scores.

    Python's pickle cannot pickle a task, since a task contains local functions. Use cloudpickle
    instead, as loky and Ray do.

    Args:
        clients: the clients' graphs.
        fedavg: FedAvg with the task's model, loss and local training; every method is built from
            this FedAvg.
        scores: ``(method, clients) -> evaluate``, see `evaluate`. If the task has scores of single
            clients, the function has a keyword argument `each`.
        select: the metric that selects the best round. The round with the largest value is best, or
            the round with the smallest value if the name begins with a minus, as in
            ``"-val_rmse"``. ``"worst_val_accuracy"`` is a metric of the worst client. "" means that
            the protocol has no validation.
        validate: ``(params, graph) -> score``, the score of a model on a client's validation
            examples. A larger score is better. Without validation examples, the score is NaN.
        whole: the graph for centralized training; by default there is none.
        bytes_before: number of bytes that all clients sent and received before the first round.
        new_nodes: number of generated nodes at all clients together; None without a generator.
        by_mask: whether a client trains only on the examples in `train_mask`; False if the loss
            uses all nodes or edges.
        first_rounds: number of rounds in which clients train on the graphs of `first`.
        first: function that maps the clients' graphs to the graphs for the first rounds, see
            `earlier`.

    Example:
        >>> task = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=0)
        >>> len(task.clients), task.select
        (3, 'val_accuracy')
    """

    clients: Sequence[Graph]
    fedavg: Method
    scores: Callable[..., Evaluate]
    select: str
    validate: Callable[[Params, Graph], float]
    whole: Graph | None = None
    bytes_before: int = 0
    new_nodes: int | None = None
    by_mask: bool = True
    first_rounds: int = 0
    first: Callable[[Sequence[Graph]], Sequence[Graph]] | None = None

    def evaluate(self, method: Method, *, each: bool = False) -> Evaluate:
        """A method's score function: ``(outbox, client_states) -> metrics``.

        With `each`, the metrics of single clients and of the worst client are included. These
        metrics are also included if `select` is a metric of the worst client (see
        `fgl.evaluate_on`).
        """
        if not (each or self.select.removeprefix("-").startswith("worst_")):
            return self.scores(method, self.clients)
        return self.scores(method, self.clients, each=True)


def centralized(task: Task) -> Task:
    """The task for centralized training: all data of the given task are at a single client.

    The scores are computed as in the given, federated task.

    Raises:
        ValueError: if the task does not contain the union of the clients' data.

    Example:
        >>> task = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=0)
        >>> [graph.num_nodes for graph in centralized(task).clients]
        [2708]
    """
    if task.whole is None:
        raise ValueError(
            "Expected a task with a whole graph to train on centrally, but got none: give it the "
            "union of the clients' data, dataclasses.replace(task, whole=graph)"
        )
    most = max(task.whole.num_nodes, task.whole.num_answers, task.fedavg.rules.max_examples)
    return replace(task, clients=[task.whole], fedavg=_bounded(task.fedavg, most))


def earlier(
    task: Task,
    *,
    clients: Sequence[int] = (),
    classes: Sequence[int] = (),
    rounds: Count | None = None,
) -> Task:
    """The given task at an earlier time, at which some clients and classes are still missing.

    Examples of clients and classes that come later are not used for training yet. Scores are
    computed on the same validation and test examples as in the given task. With `rounds`, one run
    is enough: the missing clients and classes appear after this number of rounds. Without `rounds`,
    two runs are needed: a run of the returned task, and then a run of the whole task with
    ``start=result``, where `result` is the result of the first run.

    Args:
        task: the task with all clients and classes.
        clients: the indices of the clients that join later.
        classes: the labels that appear later; the training masks of the earlier task contain no
            examples with these labels.
        rounds: number of first rounds in which these clients and classes are missing; by default,
            they are missing in all rounds.

    Raises:
        ValueError: if the task lacks a given client or class, if no training example is left, or if
            the loss does not use the training mask, as in `link_task`. With `rounds`, a ValueError
            is also raised if clients or classes are already missing in the first rounds of `task`.
        TypeError: if `classes` is given, but the labels of the task are numbers.

    Example:
        >>> task = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=0)
        >>> [own.num_train > 0 for own in earlier(task, clients=[1]).clients]
        [True, False, True]
        >>> task = earlier(task, clients=[1], rounds=1)
        >>> result = fgl.run(task.fedavg, task, num_rounds=2)
        >>> [record.zero_weight for record in result.history]
        [[1], []]

    Source: Kim et al. 2025, FedLoG, https://arxiv.org/abs/2503.03995, where clients, nodes and
    classes appear later
    """
    reject_if(
        not task.by_mask,
        "a task whose clients train on examples of their train_mask alone",
        "one whose loss reads all nodes or edges: fgl.run(..., dropouts=lambda round, client: ...) "
        "leaves clients out",
    )
    first = partial(_without, late=clients, classes=classes)
    own = first(task.clients)
    if rounds is not None:
        got = f"one with {task.first_rounds} such rounds"
        reject_if(bool(task.first_rounds), "a task without first rounds of its own", got)
        return replace(task, first_rounds=rounds, first=first)
    whole = _whole_without(task.whole, own, clients, classes)
    return replace(task, clients=own, whole=whole)


def _whole_without(
    whole: Graph | None, own: Sequence[Graph], late: Sequence[int], classes: Sequence[int]
) -> Graph | None:
    """Remove all examples of some clients and classes from the whole graph's training mask.

    To remove a client's examples, the function needs the `node_id` of all clients. Without these
    ids, or without a whole graph, the result is None.
    """
    if whole is None:
        return None
    (whole,) = _without([whole], late=(), classes=classes)
    if not late:
        return whole
    of_nodes = whole.batch is None and whole.window_index is None
    if not of_nodes or any(graph.node_id is None for graph in own):
        return None
    return whole.replace(train_mask=whole.training_mask & trained_nodes(whole, own))


def _without(
    graphs: Sequence[Graph], *, late: Sequence[int], classes: Sequence[int]
) -> list[Graph]:
    """Remove examples of late clients and of some classes from the clients' training masks."""
    for client in late:
        check_number("clients", client, at_least=0, below=len(graphs), integer=True)
    if classes:
        labels = sorted({label for own in graphs for label in own.labels.unique().tolist()})
        for label in classes:
            check_choice("classes", label, labels)
    own = []
    for number, graph in enumerate(graphs):
        mask = graph.training_mask & (number not in late)
        if classes:
            mask = mask & ~torch.isin(graph.labels, torch.tensor(classes, device=graph.device))
        own.append(graph.replace(train_mask=mask))
    expected = "clients and classes to leave an example that trains"
    reject_if(not any(graph.num_train for graph in own), expected, f"{late} and {classes}")
    return own


def own_node_mask(graph: Graph, context: Any) -> Tensor:
    """Mask of a client's own nodes, without generated nodes and padding, bool ``[num_nodes]``.

    If nodes were generated (`fgl.tasks.mended`), the context contains the mask under
    ``"own_nodes"``.
    """
    return context["own_nodes"].values if "own_nodes" in context else graph.node_mask


@fed.layer
def weighed_by_nodes(fedavg: Method, *, by_mask: bool = False) -> Method:
    """Change a method such that the weight of every client is the client's number of nodes.

    With `by_mask`, a client without a training example has weight 0.
    """
    return replace(fedavg, send=_send_size_if_trained if by_mask else _send_size)


def _send_size(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
    return {"model": params, "num_examples": torch.tensor(graph.num_nodes)}, state


def _send_size_if_trained(
    params: Params, context: Any, state: State, graph: Graph
) -> tuple[Message, State]:
    count = graph.num_nodes if graph.num_train else 0
    return {"model": params, "num_examples": torch.tensor(count)}, state


@fed.layer
def weighed_equally(fedavg: Method) -> Method:
    """The method with equal weights for all clients that have a training example."""
    return replace(fedavg, send=_send_one, accept=fed.accept_equally)


def _send_one(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
    return {"model": params, "num_examples": torch.tensor(int(graph.num_train > 0))}, state


def bounded(fedavg: Method, clients: Sequence[Graph]) -> Method:
    """Make the server reject an upload that reports more examples than any client has.

    The examples are nodes, graphs (of a collection), pairs (with labels) or windows (of a series).
    A window counts as one example per node.
    """
    check_graphs(clients)
    return _bounded(fedavg, max(own.num_answers for own in clients))


def _bounded(fedavg: Method, most: float) -> Method:
    return replace(fedavg, rules=replace(fedavg.rules, max_examples=most))


@dataclass(frozen=True)
class Local:
    """Local training: the optimizer of a client, and the number of steps per round.

    Raises:
        ValueError: if a number is out of range, or if momentum is given for adam.

    Example:
        >>> Local("adam", lr=0.01).optimizer_factory().keywords
        {'lr': 0.01, 'weight_decay': 0.0005}
    """

    optimizer: Literal["sgd", "adam"] = "sgd"
    """The optimizer of the clients."""
    lr: Weight = 0.25
    """Learning rate of the optimizer."""
    momentum: Weight = 0.0
    """Momentum of sgd."""
    weight_decay: Weight = 5e-4
    """Weight decay of the optimizer."""
    steps: Natural = 4
    """Local steps in a round; epochs if the task samples minibatches."""

    def __post_init__(self) -> None:
        idle = self.momentum and self.optimizer != "sgd"
        reject_if(idle, f"momentum to be left out beside {self.optimizer}", self.momentum)

    def optimizer_factory(self) -> partial[Any]:
        """The function that returns an optimizer for a list of tensors."""
        options = {"lr": self.lr, "weight_decay": self.weight_decay}
        if self.optimizer == "sgd":
            options["momentum"] = self.momentum
        return partial(OPTIMIZERS[self.optimizer], **options)

    def training(self) -> Training:
        """The `Training` in which every step uses the client's whole graph."""
        return Training(self.optimizer_factory(), num_steps=self.steps)

    def minibatches(self, batch_size: int) -> Training:
        """The `Training` in which every step uses a minibatch of graphs.

        A client keeps the state of its optimizer.
        """
        draw = partial(fed.graph_minibatches, batch_size=batch_size, num_epochs=self.steps)
        rule = self.optimizer_factory()
        return Training(rule, batches=draw, epochs=self.steps, keep_optimizer=True)


class Once:
    """A function of a graph that caches the latest results.

    Pickles do not contain the cache.

    Args:
        function: ``graph -> result``.
        most: number of results to keep. Older results are deleted, such as the results for graphs
            that are no longer used.

    Example:
        >>> Once(lambda graph: graph.num_nodes, 1)(fgl.data.load("synthetic"))
        2708
    """

    def __init__(self, function: Callable[[Graph], Any], most: int) -> None:
        self.function, self.most = function, most
        self._known = lru_cache(most)(function)

    def __call__(self, graph: Graph) -> Any:
        return self._known(graph)

    def __reduce__(self) -> tuple[type[Once], tuple[Callable[[Graph], Any], int]]:
        return Once, (self.function, self.most)
