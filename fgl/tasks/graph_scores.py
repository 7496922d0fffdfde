"""Scores of clients' models on graphs: by client, and pooled over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from .. import federation as fed
from ..federation import Cohort, Evaluate, Inbox, Method, Outbox, Params, State
from ..graph import Graph
from ..kinds import typed
from ..metrics import hit_rows
from ..metrics.classes import hit_counts
from ..metrics.host import on_host
from ..sparse.batched_pattern import Member
from ..targets import CLASSES, Target, checked_y, scored_alone, undefined_metrics, warn_undefined


@typed
def evaluate_graphs(
    method: Method, tests: Sequence[Graph], clients: Sequence[Graph], *, target: Target = CLASSES
) -> Evaluate:
    """Score each client's model on its own test graphs.

    Class labels are scored by accuracy, beside a control that always answers with the most frequent
    class of a client's training graphs, the smallest one if classes tie. Another target is scored
    by the mean over the clients that have the metric, and by the pooled metric: over all clients'
    test graphs together, each with its own client's output (or the only client's, in a centralized
    run).

    Args:
        method: the method; its model is called as ``model(*graph.inputs)`` and returns logits, or
            the output that the target needs.
        tests: one collection with labels per client; with a test mask only the graphs in it are
            scored, and without masks all.
        clients: the clients' graphs, what they train on; with a validation mask, which only another
            target reads, what they are validated on.
        target: meaning of the values of ``graph.y``; default class labels.

    Returns:
        ``(outbox, states) -> {"test_accuracy", "majority_accuracy"}``, means over clients; the
        second, the control's, is constant. With `fgl.targets.ANSWERS` ``{"val_auc", "test_auc",
        "test_ap", "pooled_test_auc", "pooled_test_ap"}``, without what nothing can be scored by.

    Raises:
        TypeError: for numbers in ``y`` without a target that describes them.
        ValueError: if a collection lacks labels or a `batch`, or a test mask beside its others, a
            mask is empty, or `clients` and `tests` differ in number (a target allows one client);
            and, when called, if a model is not whole.

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
    for graph in (*tests, *clients):
        checked_y(target, graph.y)
    for client, graph in enumerate(tests):
        others = [name for name in ("train_mask", "val_mask") if getattr(graph, name) is not None]
        if others and graph.test_mask is None:
            raise ValueError(
                f"Expected client {client}'s tests to have test_mask beside {others[0]}, but got "
                "none: without it graphs that train would be tested; without masks all are tested"
            )
    how = _evaluate_classes if target.metrics == CLASSES.metrics else _evaluate_answers
    central = len(clients) == 1 and how is _evaluate_answers
    if len(clients) != len(tests) and not central:
        raise ValueError(f"Expected clients to be {len(tests)} as tests, but got {len(clients)}")
    return how(method, tests, clients, target)


def _evaluate_answers(
    method: Method, tests: Sequence[Graph], clients: Sequence[Graph], target: Target
) -> Evaluate:
    """By client, and pooled over the clients; see `evaluate_graphs`."""
    model, models = method.model, fed.deployed(method, clients)
    tests = [_masked(graph, "test_mask", k) for k, graph in enumerate(tests)]
    validated = {
        k: _masked(own, "val_mask", k) for k, own in enumerate(clients) if has_validation(own)
    }
    questions: list[Any] = [(graph.y, graph.example_mask) for graph in tests]
    instead = "; pooled_test_... are of all clients' answers together"
    if undefined_metrics(target, *(torch.cat(part) for part in zip(*questions, strict=True))):
        instead = ", nor is there one of all clients' answers together"
    warn_undefined(target, questions, "test_", instead=instead)
    warn_undefined(target, [(own.y, own.val_mask) for own in clients], "val_")
    answers: list[Any] = [graph.y for graph in tests]
    held_out: dict[int, Any] = {k: graph.y for k, graph in validated.items()}
    first = target.metrics[target.first]

    def output_of(params: Params, graph: Graph, client: Graph) -> Any:
        with method.at(client):
            return fed.predict(model, params, graph)

    @torch.no_grad()
    def evaluate(outbox: Outbox, states: Mapping[int, State]) -> dict[str, float]:
        used: Any = models(outbox, states)
        with fed.in_mode(model, False):
            whose = [k if k in used else 0 for k in range(len(tests))]
            calls = [(used[k], graph, clients[k]) for k, graph in zip(whose, tests, strict=True)]
            outputs = [output_of(*each) for each in calls]
            val = {k: output_of(used[k], graph, clients[k]) for k, graph in validated.items()}
        scores = [{f"val_{target.first}": first(val[k], held_out[k], None)} for k in val]
        scores += [target.measure("test_", *pair) for pair in zip(outputs, answers, strict=True)]
        pooled = target.measure("pooled_test_", torch.cat(outputs), torch.cat(answers))
        *each, pooled = map(scored_alone, on_host(*scores, pooled))
        return {**fed.means(each), **pooled}

    return evaluate


def _evaluate_classes(
    method: Method, tests: Sequence[Graph], clients: Sequence[Graph], target: Target
) -> Evaluate:
    """By accuracy, beside the control; see `evaluate_graphs`."""
    model, models = method.model, fed.deployed(method, clients)
    tests = [_masked(graph, "test_mask", k) for k, graph in enumerate(tests)]
    train = [_masked(graph, "train_mask", k) for k, graph in enumerate(clients)]
    pairs: Any = zip(train, tests, strict=True)
    hits = [(test.y == own.y.bincount().argmax()).double().mean() for own, test in pairs]
    majority = float(torch.stack(hits).mean())
    if method.own.models is not None or fed.batch_norms(model):  # nor do they train in a batch
        return _one_by_one(method, tests, clients, {"majority_accuracy": majority})
    cohort = Cohort(tests)

    def hit_share(index: Tensor, params: Any) -> Tensor:
        graph = cohort.graph(Member(index))
        logits = fed.predict(model, params, graph)
        y: Any = graph.y
        hit = hit_rows(logits, y) & graph.example_mask
        correct: Tensor = hit.sum().double() / graph.num_graphs
        return correct

    @torch.no_grad()
    def evaluate(outbox: Outbox, states: Mapping[int, State]) -> dict[str, float]:
        used: Any = models(outbox, states)
        with fed.in_mode(model, False):
            stack = Inbox({k: {"model": used[k]} for k in range(len(tests))}, len(tests))
            shares = vmap(hit_share)(cohort.index, stack.stack("model"))
        return {"test_accuracy": float(shares.double().mean()), "majority_accuracy": majority}

    return evaluate


def _one_by_one(
    method: Method, tests: Sequence[Graph], clients: Sequence[Graph], control: dict[str, float]
) -> Evaluate:
    """Clients one after the other, such as those whose models differ."""
    models = fed.deployed(method, clients)

    def score(params: Params, graph: Graph) -> dict[str, Any]:
        y: Any = graph.y
        return {"test_accuracy": hit_counts(fed.predict(method.model, params, graph), y)}

    def evaluate(outbox: Outbox, states: Mapping[int, State]) -> dict[str, float]:
        used = models(outbox, states)
        pairs = {k: (used[k], test) for k, test in enumerate(tests)}
        trained = {k: method.model_of(graph) for k, graph in enumerate(clients)}
        return {**fed.means(fed.scored(method.model, score, pairs, trained).values()), **control}

    return evaluate


def has_validation(graph: Graph) -> bool:
    """Whether a client has examples to validate on."""
    return graph.val_mask is not None and bool(graph.val_mask.any())


def _masked(graph: Graph, name: str, client: int) -> Graph:
    """The graphs of a collection that are in its mask, or all where it has none."""
    mask: Tensor | None = getattr(graph, name)
    if mask is not None:
        if not mask.any():
            raise ValueError(f"Expected client {client}'s {name} to have a graph, but got none")
        graph = graph.select(mask.nonzero().squeeze(1))
    return graph.replace(train_mask=None, val_mask=None, test_mask=None)
