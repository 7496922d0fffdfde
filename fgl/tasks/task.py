"""Tasks: clients together with their FedAvg, scores and weights."""

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
from ..kinds import typed
from .apart import trained_nodes

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


@typed
@dataclass(frozen=True)
class Task:
    """A federation's learning problem: the clients, their FedAvg and their scores.

    A task contains functions that were defined in functions. So cloudpickle can pickle a task, as
    loky and Ray do, but Python's pickle cannot.

    Args:
        clients: the clients' graphs.
        fedavg: FedAvg with the task's model, loss and local training; methods are built from it.
        scores: ``(method, clients) -> evaluate``, see `evaluate`. The function has a keyword
            argument `each` if the task has scores of each client.
        select: the metric that selects the best round by its largest value, or by its smallest
            value if the name begins with a minus, such as ``"-val_rmse"``; "" if the protocol has
            no validation. ``"worst_val_accuracy"`` is the worst client's metric.
        validate: ``(params, graph) -> score``, a client's own validation of a model. Larger values
            are better; NaN without validation examples.
        whole: the graph for centralized training; default none.
        bytes_before: number of bytes that all clients sent and received before the first round.
        new_nodes: number of nodes that were generated for all clients; None without a generator.
        by_mask: whether only the examples in a client's `train_mask` are training examples; False
            if the loss uses all nodes or edges.
        first_rounds: number of rounds in which clients train on the graphs of `first`.
        first: function from the clients' graphs to their graphs in the first rounds, see `earlier`.

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

        With `each`, the metrics include each client's own metrics and the worst client's metrics.
        If `select` is a metric of the worst client, the metrics of individual clients are included
        too (see `fgl.evaluate_on`).
        """
        if not (each or self.select.removeprefix("-").startswith("worst_")):
            return self.scores(method, self.clients)
        return self.scores(method, self.clients, each=True)


@typed
def centralized(task: Task) -> Task:
    """The same task with all data at a single client (centralized training).

    The scores are computed as for the federated task.

    Raises:
        ValueError: if the task does not define the union of the data.

    Example:
        >>> task = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=0)
        >>> [graph.num_nodes for graph in centralized(task).clients]
        [2708]
    """
    if task.whole is None:
        raise ValueError(
            "Expected a task with a whole graph to train on centrally, but got none: make the task "
            "with whole=graph (fgl.tasks.graph_task takes it)"
        )
    most = max(task.whole.num_nodes, task.whole.num_answers, task.fedavg.rules.max_examples)
    return replace(task, clients=[task.whole], fedavg=_bounded(task.fedavg, most))


@typed
def earlier(
    task: Task,
    *,
    clients: Sequence[int] = (),
    classes: Sequence[int] = (),
    rounds: Count | None = None,
) -> Task:
    """The same task at an earlier time, when some clients and some classes were still missing.

    Examples of later clients and classes are not used for training yet. Scored examples are
    unchanged. With `rounds`, the clients join and the classes appear after this number of rounds of
    a run. Without `rounds`, a run of the whole task with ``start=result`` continues from this
    earlier task's result.

    Args:
        task: the whole task.
        clients: the indices of the clients that join later.
        classes: the labels that appear later; this task has none of their examples in training
            masks.
        rounds: number of rounds without these clients and classes; default all.

    Raises:
        ValueError: for a client or a class that the task lacks, if no training example is left, if
            `task` already has first rounds, or if the clients' losses use more than the training
            examples, as in `link_task`.
        TypeError: for `classes` of a task whose labels are numbers.

    Example:
        >>> task = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=0)
        >>> [own.num_train > 0 for own in earlier(task, clients=[1]).clients]
        [True, False, True]
        >>> task = earlier(task, clients=[1], rounds=1)
        >>> result = fgl.run(task.fedavg, task, num_rounds=2)
        >>> [record.zero_weight for record in result.history]
        [[1], []]

    Source: clients, nodes and classes that appear later as in Kim et al. 2025, FedLoG,
    https://arxiv.org/abs/2503.03995
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
    """The whole graph without later training examples; None if these examples are unknown."""
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
    """The clients' graphs; the late clients and some classes have no training examples in them."""
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
    reject_if(
        not any(graph.num_train for graph in own),
        "clients and classes to leave an example that trains",
        f"{late} and {classes}",
    )
    return own


def own_node_mask(graph: Graph, context: Any) -> Tensor:
    """Mask of a client's own nodes, without generated nodes and padding, bool ``[num_nodes]``.

    If nodes were generated (`fgl.tasks.mended`), the mask is in the context as ``"own_nodes"``.
    """
    return context["own_nodes"].values if "own_nodes" in context else graph.node_mask


@fed.layer
def weighed_by_nodes(fedavg: Method, *, by_mask: bool = False) -> Method:
    """The method in which a client's weight is its number of nodes.

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
    """The method in which all clients that have a training example have equal weights."""
    return replace(fedavg, send=_send_one, accept=fed.accept_equally)


def _send_one(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
    return {"model": params, "num_examples": torch.tensor(int(graph.num_train > 0))}, state


def bounded(fedavg: Method, clients: Sequence[Graph]) -> Method:
    """Make the server reject an upload that reports more examples than any client has.

    Examples can be nodes, graphs (in collections), pairs (if pairs have labels), or windows of a
    series. For a series, a window counts as one example per node.
    """
    check_graphs(clients)
    return _bounded(fedavg, max((own.num_answers for own in clients), default=0))


def _bounded(fedavg: Method, most: float) -> Method:
    return replace(fedavg, rules=replace(fedavg.rules, max_examples=most))


@typed
@dataclass(frozen=True)
class Local:
    """Local training: a client's optimizer, and the client's steps per round.

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
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(
                f"Expected momentum to be left out beside {self.optimizer}, but got {self.momentum}"
            )

    def optimizer_factory(self) -> partial[Any]:
        """The function that makes an optimizer for a list of tensors."""
        options = {"lr": self.lr, "weight_decay": self.weight_decay}
        if self.optimizer == "sgd":
            options["momentum"] = self.momentum
        return partial(OPTIMIZERS[self.optimizer], **options)

    def training(self) -> Training:
        """The `Training` in which each step uses a client's whole graph."""
        return Training(self.optimizer_factory(), num_steps=self.steps)

    def minibatches(self, batch_size: int) -> Training:
        """The `Training` in which each step uses a minibatch of graphs.

        A client keeps the state of its optimizer.
        """
        draw = partial(fed.graph_minibatches, batch_size=batch_size, num_epochs=self.steps)
        rule = self.optimizer_factory()
        return Training(rule, batches=draw, epochs=self.steps, keep_optimizer=True)


class Once:
    """A function of a graph; its latest results are cached.

    Pickles do not contain the cache.

    Args:
        function: ``graph -> result``.
        most: number of results that are kept; older results, such as those of copied graphs, are
            dropped.

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
