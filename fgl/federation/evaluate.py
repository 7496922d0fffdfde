"""Scoring what the server would send next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from ..graph import Graph
from ..losses import cross_entropy
from ..metrics import accuracy
from .message import Message, check_model
from .method import State

Evaluate = Callable[[Mapping[int, Message], Mapping[int, State]], dict[str, float]]


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
        logits = functional_call(model, params, (graph.x, graph.adj))
        return {
            "val_accuracy": accuracy(logits, y, val_mask),
            "val_loss": float(cross_entropy(logits, y, val_mask)),
            "test_accuracy": accuracy(logits, y, test_mask),
        }

    def evaluate(outbox: Mapping[int, Message], states: Mapping[int, State]) -> dict[str, float]:
        was_training = model.training
        model.eval()
        distinct = {id(message["model"]): message["model"] for message in outbox.values()}
        try:
            scores = {key: score(params) for key, params in distinct.items()}
        finally:
            model.train(was_training)
        each = [scores[id(message["model"])] for message in outbox.values()]
        return {name: sum(s[name] for s in each) / len(each) for name in each[0]}

    return evaluate
