"""Scores of all clients' test examples together, where single clients' answers define no metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from .. import federation as fed
from ..federation import Evaluate, Method, Outbox, State
from ..graph import Graph
from ..kinds import typed
from ..metrics.host import on_host
from ..targets import CLASSES, Target, checked_y, scored_alone, undefined_metrics, warn_undefined


@typed
def evaluate_pooled(
    method: Method,
    clients: Sequence[Graph],
    *,
    tests: Sequence[Graph] | None = None,
    target: Target = CLASSES,
) -> Evaluate:
    """Score all clients' test examples together, each by the model that its client deploys.

    A metric that single clients' answers do not define, such as the AUC where a client has answers
    of one kind alone, may be defined for all of them together.

    Args:
        method: the method with `deploy`; its model is called as ``model(*graph.inputs)``.
        clients: the clients' graphs.
        tests: one graph with labels per client; those with a test mask are scored, by the first
            client's model if there are fewer clients. Default `clients`.
        target: meaning of the values of ``graph.y``; default class labels.

    Returns:
        ``(outbox, states) -> metrics``, every metric of the target with ``pooled_test_`` before its
        name, without those that are not defined.

    Raises:
        ValueError: if no client has a test example; and, when called, if a model is not whole.

    Example:
        >>> graph = fgl.data.splits.split(fgl.data.load("synthetic"), "random")
        >>> model = fgl.nn.GCN(graph.num_features, 8, graph.num_classes)
        >>> evaluate = evaluate_pooled(fgl.fedavg(model), [graph])
        >>> list(evaluate({0: {"model": model.state_dict()}}, {}))
        ['pooled_test_accuracy', 'pooled_test_macro_f1']
    """
    model, models = method.model, fed.deployed(method, clients)
    masks = [own.test_mask for own in (clients if tests is None else tests)]
    tested = {
        client: (own, mask)
        for client, (own, mask) in enumerate(zip(tests or clients, masks, strict=True))
        if mask is not None and bool(mask.any())
    }
    if not tested:
        raise ValueError("Expected a client to have test examples, but got none")
    answers = torch.cat([checked_y(target, own.y)[mask] for own, mask in tested.values()])

    @torch.no_grad()
    def evaluate(outbox: Outbox, states: Mapping[int, State]) -> dict[str, float]:
        used = models(outbox, states)
        outputs = []
        with fed.in_mode(model, False):
            for client, (own, mask) in tested.items():
                trained = client if client in used else 0
                with method.at(clients[trained]):
                    outputs.append(fed.predict(model, used[trained], own)[mask])
        return scored_alone(on_host(target.measure("pooled_test_", torch.cat(outputs), answers))[0])

    return evaluate


def with_pooled(
    evaluate: Evaluate,
    method: Method,
    clients: Sequence[Graph],
    tests: Sequence[Graph],
    target: Target,
) -> Evaluate:
    """The score, with `evaluate_pooled` beside it where a client's answers define no metric.

    A warning names these clients.
    """
    warn_undefined(target, [(own.y, own.val_mask) for own in tests], "val_")
    questions = [(own.y, own.test_mask) for own in tests]
    answered = [(y, mask) for y, mask in questions if y is not None and mask is not None]
    if not answered:
        return evaluate
    pooled = [torch.cat(part) for part in zip(*answered, strict=True)]
    lost = undefined_metrics(target, pooled[0], pooled[1])
    instead = "; pooled_test_... are of all clients' answers together"
    if lost:
        instead = ", nor is there one of all clients' answers together"
    if not warn_undefined(target, questions, "test_", instead=instead) or lost:
        return evaluate
    return fed.together(evaluate, evaluate_pooled(method, clients, tests=tests, target=target))
