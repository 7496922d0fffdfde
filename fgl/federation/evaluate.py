"""Scores of the models that clients deploy: on one graph, on their own graphs or collections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ..graph import Graph
from ..losses import cross_entropy
from ..metrics import class_counts, f1_of, hit_counts, hit_rows, share
from ..sparse import Member
from ..transfer import to_host
from .executors.batch.cohort import Cohort
from .method.checks import check_model
from .method.inbox import Inbox
from .method.message import Message, Params
from .method.method import Evaluate, Method, State
from .training.train import in_mode

Predict = Callable[[nn.Module, Params, Graph], Any]
Deployed = Callable[[Mapping[int, Message], Mapping[int, State]], dict[int, Params]]


def deployed(method: Method, clients: Sequence[Graph]) -> Deployed:
    """The models that clients use now.

    Args:
        method: its `deploy` is asked.
        clients: the clients' graphs.

    Returns:
        ``(outbox, states) -> client to params``, of each client that the outbox names.

    Raises:
        ValueError: when called, if a model is not whole.

    Example:
        >>> model = torch.nn.Linear(1, 1)
        >>> outbox = {0: {"model": dict(model.state_dict())}}
        >>> deployed(fgl.fedavg(model), [None])(outbox, {})[0] is outbox[0]["model"]
        True
    """
    template = {name: tensor.detach() for name, tensor in method.model.state_dict().items()}

    def models(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[int, Params]:
        found: dict[int, Params] = {}
        whole: set[int] = set()
        for client, message in outbox.items():
            params = method.deploy(message, states.get(client, {}), clients[client])
            if id(params) not in whole:
                check_model(params, template, f"client {client}'s model")
                whole.add(id(params))
            found[client] = params
        return found

    return models


def predict(model: nn.Module, params: Params, graph: Graph) -> Any:
    """What a model says of a graph, with these parameters.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]))
        >>> model = fgl.nn.GCN(2, 8, 3)
        >>> predict(model, dict(model.named_parameters()), graph).shape
        torch.Size([2, 3])
    """
    return functional_call(model, params, graph.inputs)


def evaluate_on(
    method: Method, graph: Graph, clients: Sequence[Graph], *, logits_of: Predict = predict
) -> Evaluate:
    """Score the models that clients deploy (one shared model, or each its own) on one whole graph.

    Args:
        method: its model is called as ``model(graph.x, graph.adj)``.
        graph: with labels, a validation and a test mask; usually the graph the clients were cut
            from, with all of its edges.
        clients: the clients' graphs.
        logits_of: ``(model, params, graph) -> logits``; default the model's forward on all of it.

    Returns:
        ``(outbox, states) -> {"val_accuracy", "val_loss", "test_accuracy", "test_macro_f1"}``; a
        mean over clients where they have models of their own.

    Raises:
        ValueError: if the graph lacks labels or a mask, or a mask is empty; and, when called, if a
            model is not whole.

    Example:
        >>> graph = fgl.data.split(fgl.data.load("synthetic"), "random")
        >>> model = fgl.nn.GCN(graph.num_features, 8, graph.num_classes)
        >>> outbox = fgl.federation.Broadcast({"model": model.state_dict()}, num_clients=3)
        >>> sorted(evaluate_on(fgl.fedavg(model), graph, [graph] * 3)(outbox, {}))
        ['test_accuracy', 'test_macro_f1', 'val_accuracy', 'val_loss']
    """
    y, val_mask, test_mask = graph.y, graph.val_mask, graph.test_mask
    if y is None or val_mask is None or test_mask is None:
        missing = [n for n in ("y", "val_mask", "test_mask") if getattr(graph, n) is None]
        raise ValueError(f"Expected graph to have y, val_mask and test_mask, but got no {missing}")
    for name, mask in (("val_mask", val_mask), ("test_mask", test_mask)):
        if not mask.any():
            raise ValueError(f"Expected {name} to have a node, but got none")
    model, models = method.model, deployed(method, clients)

    @torch.no_grad()
    def counts(params: Params) -> tuple[Tensor, ...]:
        logits = logits_of(model, params, graph)
        val, test = (hit_counts(logits, y, mask) for mask in (val_mask, test_mask))
        return val, cross_entropy(logits, y, val_mask), test, class_counts(logits, y, test_mask)

    def score(val: Tensor, loss: Tensor, test: Tensor, classes: Tensor) -> dict[str, float]:
        return {
            "val_accuracy": share(val),
            "val_loss": float(loss),
            "test_accuracy": share(test),
            "test_macro_f1": f1_of(classes),
        }

    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        used = models(outbox, states)
        distinct = {id(params): params for params in used.values()}
        with in_mode(model, False):
            parts = [counts(params) for params in distinct.values()]
        moved = iter(to_host(*(part for own in parts for part in own)))
        scores = {key: score(*(next(moved) for _ in range(4))) for key in distinct}
        each = [scores[id(params)] for params in used.values()]
        return {name: sum(s[name] for s in each) / len(each) for name in each[0]}

    return evaluate


def evaluate_clients(
    method: Method, tests: Sequence[Graph], clients: Sequence[Graph] | None = None
) -> Evaluate:
    """Score each client's model on its own graph and test nodes: the local goal.

    Args:
        method: its model is called as ``model(graph.x, graph.adj)``.
        tests: graphs with labels and a test mask, one per client; one without a test node is left
            out. Where there are fewer clients (a centralized run), the first one's model.
        clients: the clients' graphs; default `tests`.

    Returns:
        ``(outbox, states) -> {"local_accuracy"}``, the mean over clients.

    Raises:
        ValueError: if no client has a test node, or a graph lacks labels.

    Example:
        >>> graph = fgl.data.split(fgl.data.load("synthetic"), "random")
        >>> model = fgl.nn.GCN(graph.num_features, 8, graph.num_classes)
        >>> outbox = fgl.federation.Broadcast({"model": model.state_dict()}, num_clients=1)
        >>> list(evaluate_clients(fgl.fedavg(model), [graph])(outbox, {}))
        ['local_accuracy']
    """
    tested = [k for k, graph in enumerate(tests) if graph.test_mask is not None]
    tested = [k for k in tested if tests[k].test_mask.any()]  # type: ignore[union-attr]
    if not tested or any(tests[k].y is None for k in tested):
        raise ValueError("Expected clients to have labels and test nodes, but got none")
    model, models = method.model, deployed(method, tests if clients is None else clients)

    @torch.no_grad()
    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        found, used = [], models(outbox, states)
        with in_mode(model, False):
            for k in tested:
                graph: Any = tests[k]
                logits = functional_call(model, used[k if k in used else 0], graph.inputs)
                found.append(hit_counts(logits, graph.y, graph.test_mask))
        return {"local_accuracy": sum(map(share, to_host(*found))) / len(found)}

    return evaluate


def evaluate_graphs(method: Method, tests: Sequence[Graph], clients: Sequence[Graph]) -> Evaluate:
    """Score each client's model on its own test graphs, all clients at once.

    The control answers everything with the class that most of a client's training graphs have, of
    equals the smallest.

    Args:
        method: its model is called as ``model(*graph.inputs)`` and returns logits.
        tests: a collection with labels per client; with a test mask only the graphs in it.
        clients: the clients' graphs, what they train on.

    Returns:
        ``(outbox, states) -> {"test_accuracy", "majority_accuracy"}``, means over clients; the
        second, the control's, is constant.

    Raises:
        ValueError: if a collection lacks labels or a `batch`, a mask is empty or `clients` are
            not as many as `tests`; and, when called, if a model is not whole.

    Example:
        >>> none = torch.zeros(2, 0, dtype=torch.int64)
        >>> y = torch.tensor([0, 0, 1])
        >>> graph = fgl.Graph(torch.ones(3, 4), none, y=y, batch=torch.arange(3))
        >>> model = fgl.nn.GIN(4, 8, 2)
        >>> outbox = fgl.federation.Broadcast({"model": model.state_dict()}, num_clients=1)
        >>> evaluate_graphs(fgl.fedavg(model), [graph], [graph])(outbox, {})
        {'test_accuracy': 0..., 'majority_accuracy': 0.6...}
    """
    if any(graph.y is None for graph in (*tests, *clients)):
        raise ValueError("Expected tests and clients to have labels, but got none")
    if any(graph.batch is None for graph in (*tests, *clients)):
        raise ValueError("Expected tests and clients to be collections, but got no batch")
    if len(clients) != len(tests):
        raise ValueError(f"Expected clients to be {len(tests)} as tests, but got {len(clients)}")
    model, models = method.model, deployed(method, clients)
    tests = [_masked(graph, "test_mask", k) for k, graph in enumerate(tests)]
    train = [_masked(graph, "train_mask", k) for k, graph in enumerate(clients)]
    cohort = Cohort(tests)
    pairs: Any = zip(train, tests, strict=True)
    hits = [(test.y == own.y.bincount().argmax()).double().mean() for own, test in pairs]
    majority = float(torch.stack(hits).mean())

    def share(index: Tensor, params: Any) -> Tensor:
        graph = cohort.graph(Member(index))
        logits = functional_call(model, params, graph.inputs)
        y: Any = graph.y
        hit = hit_rows(logits, y) & graph.example_mask
        correct: Tensor = hit.sum().double() / graph.num_graphs
        return correct

    @torch.no_grad()
    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        used: Any = models(outbox, states)
        with in_mode(model, False):
            stack = Inbox({k: {"model": used[k]} for k in range(len(tests))}, len(tests))
            shares = vmap(share)(cohort.index, stack.stack("model"))
        return {"test_accuracy": float(shares.double().mean()), "majority_accuracy": majority}

    return evaluate


def _masked(graph: Graph, name: str, client: int) -> Graph:
    """The graphs of a collection that are in its mask, or all where it has none."""
    mask: Tensor | None = getattr(graph, name)
    if mask is not None:
        if not mask.any():
            raise ValueError(f"Expected client {client}'s {name} to have a graph, but got none")
        graph = graph.select(mask.nonzero().squeeze(1))
    return graph.replace(train_mask=None, val_mask=None, test_mask=None)


def together(*evaluates: Evaluate) -> Evaluate:
    """Several scores as one.

    Example:
        >>> together(lambda outbox, states: {"a": 1.0}, lambda outbox, states: {"b": 2.0})({}, {})
        {'a': 1.0, 'b': 2.0}
    """

    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        return {k: v for each in evaluates for k, v in each(outbox, states).items()}

    return evaluate
