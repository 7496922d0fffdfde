"""Scoring what the server would send next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from .. import pseudo
from ..graph import Graph
from ..losses import cross_entropy
from ..metrics import accuracy, hit_rows
from ..sparse import Member
from .cohort import Cohort
from .message import Inbox, Message, check_model
from .method import State

Evaluate = Callable[[Mapping[int, Message], Mapping[int, State]], dict[str, float]]


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """The model in training or evaluation mode; each of its modules gets its own back."""
    modes = [(module, module.training) for module in model.modules()]
    if any(mode != training for _, mode in modes):
        model.train(training)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def evaluate_on(model: nn.Module, graph: Graph) -> Evaluate:
    """Score the clients' models (one shared model, or each its own) on one whole graph.

    Args:
        model: the architecture, called as ``model(graph.x, graph.adj)``.
        graph: with labels, a validation and a test mask; usually the graph the clients were cut
            from, with all of its edges.

    Returns:
        ``(outbox, states) -> {"val_accuracy", "val_loss", "test_accuracy"}``; a mean over clients
        where they have models of their own.

    Raises:
        ValueError: if the graph lacks labels or a mask, or a mask is empty; and, when called, if a
            model is not whole.

    Example:
        >>> graph = fgl.data.split(fgl.data.load("synthetic"), "random")
        >>> model = fgl.nn.GCN(graph.num_features, 8, graph.num_classes)
        >>> outbox = fgl.federation.Broadcast({"model": model.state_dict()}, num_clients=3)
        >>> sorted(evaluate_on(model, graph)(outbox, {}))
        ['test_accuracy', 'val_accuracy', 'val_loss']
    """
    y, val_mask, test_mask = graph.y, graph.val_mask, graph.test_mask
    if y is None or val_mask is None or test_mask is None:
        missing = [n for n in ("y", "val_mask", "test_mask") if getattr(graph, n) is None]
        raise ValueError(f"Expected graph to have y, val_mask and test_mask, but got no {missing}")
    for name, mask in (("val_mask", val_mask), ("test_mask", test_mask)):
        if not mask.any():
            raise ValueError(f"Expected {name} to have a node, but got none")
    template = {name: tensor.detach() for name, tensor in model.state_dict().items()}

    @torch.no_grad()
    def score(params: Any) -> dict[str, float]:
        check_model(params, template)
        logits = functional_call(model, params, graph.inputs)
        return {
            "val_accuracy": accuracy(logits, y, val_mask),
            "val_loss": float(cross_entropy(logits, y, val_mask)),
            "test_accuracy": accuracy(logits, y, test_mask),
        }

    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        distinct = {id(message["model"]): message["model"] for message in outbox.values()}
        with in_mode(model, False):
            scores = {key: score(params) for key, params in distinct.items()}
        each = [scores[id(message["model"])] for message in outbox.values()]
        return {name: sum(s[name] for s in each) / len(each) for name in each[0]}

    return evaluate


def evaluate_clients(model: nn.Module, clients: Sequence[Graph]) -> Evaluate:
    """Score each client's next model on its own graph and test nodes: the local goal.

    Args:
        model: the architecture, called as ``model(graph.x, graph.adj)``.
        clients: the clients' graphs, with labels and a test mask; one without a test node is left
            out. Where the outbox has fewer clients (a centralized run), the first one's model.

    Returns:
        ``(outbox, states) -> {"local_accuracy"}``, the mean over clients.

    Raises:
        ValueError: if no client has a test node, or a graph lacks labels.

    Example:
        >>> graph = fgl.data.split(fgl.data.load("synthetic"), "random")
        >>> model = fgl.nn.GCN(graph.num_features, 8, graph.num_classes)
        >>> outbox = fgl.federation.Broadcast({"model": model.state_dict()}, num_clients=1)
        >>> list(evaluate_clients(model, [graph])(outbox, {}))
        ['local_accuracy']
    """
    tested = [k for k, graph in enumerate(clients) if graph.test_mask is not None]
    tested = [k for k in tested if clients[k].test_mask.any()]  # type: ignore[union-attr]
    if not tested or any(clients[k].y is None for k in tested):
        raise ValueError("Expected clients to have labels and test nodes, but got none")

    @torch.no_grad()
    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        found = []
        with in_mode(model, False):
            for k in tested:
                params: Any = outbox[k if k in outbox else 0]["model"]
                graph: Any = clients[k]
                logits = functional_call(model, params, graph.inputs)
                found.append(accuracy(logits, graph.y, graph.test_mask))
        return {"local_accuracy": sum(found) / len(found)}

    return evaluate


def evaluate_graphs(
    model: nn.Module, tests: Sequence[Graph], train: Sequence[Graph] = ()
) -> Evaluate:
    """Score each client's next model on its own test graphs, all clients at once.

    Args:
        model: the architecture, called as ``model(*graph.inputs)``, returns logits.
        tests: a collection with labels per client; with a test mask only the graphs in it.
        train: what the clients train on, for a control: the class that most of a client's training
            graphs have (of equals the smallest), as the answer to everything.

    Returns:
        ``(outbox, states) -> {"test_accuracy"}``, the mean over clients, and with `train` the
        control's constant ``"majority_accuracy"``.

    Raises:
        ValueError: if a collection lacks labels or a `batch`, a mask is empty or `train` is of
            other clients; and, when called, if a model is not whole.

    Example:
        >>> none = torch.zeros(2, 0, dtype=torch.int64)
        >>> y = torch.tensor([0, 0, 1])
        >>> graph = fgl.Graph(torch.ones(3, 4), none, y=y, batch=torch.arange(3))
        >>> model = fgl.nn.GIN(4, 8, 2)
        >>> outbox = fgl.federation.Broadcast({"model": model.state_dict()}, num_clients=1)
        >>> evaluate_graphs(model, [graph], [graph])(outbox, {})
        {'test_accuracy': 0..., 'majority_accuracy': 0.6...}
    """
    if any(graph.y is None for graph in (*tests, *train)):
        raise ValueError("Expected tests and train to have labels, but got none")
    if any(graph.batch is None for graph in (*tests, *train)):
        raise ValueError("Expected tests and train to be collections, but got no batch")
    if train and len(train) != len(tests):
        raise ValueError(f"Expected train to be of {len(tests)} clients, but got {len(train)}")
    tests = [_masked(graph, "test_mask", k) for k, graph in enumerate(tests)]
    train = [_masked(graph, "train_mask", k) for k, graph in enumerate(train)]
    cohort = Cohort(tests)
    template = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    constant = {}
    if train:
        pairs: Any = zip(train, tests, strict=True)
        hits = [(test.y == own.y.bincount().argmax()).double().mean() for own, test in pairs]
        constant["majority_accuracy"] = float(torch.stack(hits).mean())

    def share(index: Tensor, params: Any) -> Tensor:
        graph = cohort.graph(Member(index))
        logits = functional_call(model, params, graph.inputs)
        hit = hit_rows(logits, graph.y) & graph.example_mask
        correct: Tensor = hit.sum().double() / graph.num_graphs
        return correct

    @torch.no_grad()
    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        models = [outbox[k]["model"] for k in range(len(tests))]
        for params in {id(params): params for params in models}.values():
            check_model(params, template)
        with in_mode(model, False):
            stack: Any = Inbox({k: {"model": m} for k, m in enumerate(models)}, len(models))
            shares = vmap(share)(cohort.index, stack.stack("model"))
        return {"test_accuracy": float(shares.double().mean()), **constant}

    return evaluate


def _masked(graph: Graph, name: str, client: int) -> Graph:
    """The graphs of a collection that are in its mask, or all where it has none."""
    mask: Tensor | None = getattr(graph, name)
    if mask is not None:
        if not mask.any():
            raise ValueError(f"Expected client {client}'s {name} to have a graph, but got none")
        graph = graph.select(mask.nonzero().squeeze(1))
    return graph.replace(train_mask=None, val_mask=None, test_mask=None)


def evaluate_pseudo(clients: Sequence[Graph]) -> Evaluate:
    """How right the pseudo labels and pseudo edges are that the server sends next (FedGL).

    Args:
        clients: the clients' graphs, with labels and `node_id`.

    Returns:
        ``(outbox, states) ->`` what `fgl.pseudo.describe` says of the messages' ``"labels"`` and
        ``"row"``, ``"col"``, ``"weight"`` (the pseudo edges); empty where there are none.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> client = graph.subgraph(torch.tensor([0, 1]))
        >>> evaluate_pseudo([client])({0: {"labels": torch.tensor([0, -1])}}, {})
        {'pseudo_label_share': 0.5, 'pseudo_label_accuracy': 1.0}
    """
    ids: list[Any] = [client.node_id for client in clients]
    y: Any = torch.zeros(1 + max(int(own.max()) for own in ids), dtype=torch.int64)
    y = y.to(clients[0].device)
    for own, client in zip(ids, clients, strict=True):
        y[own] = client.y

    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        sent: list[tuple[int, Any]] = [(k, m) for k, m in outbox.items() if k < len(clients)]
        labelled = [k for k, message in sent if "labels" in message]
        joined = [k for k, message in sent if "weight" in message]
        found = dict(sent)
        edges = [tuple(found[k][name] for name in ("row", "col", "weight")) for k in joined]
        return pseudo.describe(
            [found[k]["labels"] for k in labelled],
            edges,
            [ids[k] for k in (labelled or joined)],
            y,
        )

    return evaluate


def together(*evaluates: Evaluate) -> Evaluate:
    """Several scores as one.

    Example:
        >>> together(lambda outbox, states: {"a": 1.0}, lambda outbox, states: {"b": 2.0})({}, {})
        {'a': 1.0, 'b': 2.0}
    """

    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        return {k: v for each in evaluates for k, v in each(outbox, states).items()}

    return evaluate
