"""Variants of FedGL: labels without other clients, edges without embeddings, earlier uploads."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fgl import Graph, Method, layer, pseudo
from fgl.federation import Evaluate, Inbox


@layer
def with_own_labels(fedavg: Method, fedgl: Method, *, threshold: float = 0.5) -> Method:
    """FedGL's loss where each client labels its nodes by its own predictions: no fusion.

    Its labels are of the same moment as the fused ones: of its model after a round's training, for
    the next round. It sends and gets what it does in FedAvg.

    Args:
        fedavg: the task's.
        fedgl: FedGL on it, without a pseudo graph.
        threshold: a client's score above it is a label.
    """

    def receive(message: Any, state: Any, graph: Graph) -> Any:
        own = {"labels": state["labels"]} if "labels" in state else {}
        return fedgl.receive({**message, **own}, state, graph)

    def send(params: Any, context: Any, state: Any, graph: Graph) -> Any:
        message, state = fedavg.send(params, context, state, graph)
        predictions: Any = fedgl.send(params, context, state, graph)[0]["predictions"]
        labels = pseudo.pseudo_labels(predictions, threshold=threshold)
        return message, {**state, "labels": labels}

    return replace(fedavg, receive=receive, loss=fedgl.loss, send=send)


@layer
def with_early_uploads(fedgl: Method) -> Method:
    """FedGL whose predictions and embeddings are the received model's, as Algorithm 1 prints it."""

    def send(params: Any, context: Any, state: Any, graph: Graph) -> Any:
        message, state = fedgl.send(params, context, state, graph)
        early = fedgl.send(context["model"], context, state, graph)[0]
        return {**message, **{key: early[key] for key in ("embeddings", "predictions")}}, state

    return replace(fedgl, send=send)


def quality_of_own(clients: Sequence[Graph]) -> Evaluate:
    """How good the labels are that clients made themselves."""
    quality = pseudo.quality_of(clients)

    def own(outbox: Mapping[int, Any], states: Mapping[int, Any]) -> dict[str, float]:
        made = {k: {"labels": s["labels"]} for k, s in states.items() if "labels" in s}
        return quality(made, states)

    return own


@layer
def with_random_graph(fedgl: Method, columns: Sequence[Tensor]) -> Method:
    """FedGL whose clients get as many pseudo edges with the same weights, at random nodes.

    Args:
        fedgl: FedGL.
        columns: of each client, see `random_columns`.
    """

    def aggregate(inbox: Inbox, state: Any) -> Any:
        outbox, state = fedgl.aggregate(inbox, state)
        return {k: scattered(message, columns[k]) for k, message in outbox.items()}, state

    return replace(fedgl, aggregate=aggregate)


def random_columns(clients: Sequence[Graph], neighbours: int, seed: int) -> list[Tensor]:
    """For every node of each client, `neighbours` different nodes at random, int64 ``[n, s]``."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [client.num_nodes for client in clients]
    return [torch.rand(n, n, generator=generator).topk(min(neighbours, n)).indices for n in sizes]


def scattered(message: Mapping[str, Any], columns: Tensor) -> dict[str, Any]:
    """A message whose pseudo edges lead to the first of a row's `columns`; weights stay in rows."""
    if "row" not in message:
        return dict(message)
    row = message["row"]  # in order
    place = torch.arange(row.numel()) - torch.searchsorted(row, row)
    return {**message, "col": columns.to(row.device)[row, place.to(row.device)]}
