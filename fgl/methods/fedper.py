"""FedPer: a part of the model travels, the rest stays with each client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..federation import Message, Method, Params, State, layer
from ..graph import Graph
from ..personalize import part
from .own_models import own_models


@layer
def fedper(fedavg: Method, *, shared: Sequence[str]) -> Method:
    """FedAvg of some layers: what is under `shared` travels, the rest is each client's own.

    Args:
        fedavg: what clients train, and how they are weighted.
        shared: names of modules, e.g. ``("convs.0",)``.

    Raises:
        ValueError: if nothing is under one of these names, or none is given.

    Example:
        >>> method = fedper(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), shared=("convs.0",))
        >>> graph = fgl.Graph(torch.eye(4), torch.tensor([[0], [1]]))
        >>> params, context = method.receive({"model": method.initial()}, {}, graph)
        >>> list(method.send(params, context, {}, graph)[0]["model"])
        ['convs.0.bias', 'convs.0.lin.weight']

    Source: Arivazhagan et al. 2019, https://arxiv.org/abs/1912.00818
    """
    if isinstance(shared, str):
        raise TypeError(f"Expected shared to be several names, but got the string {shared!r}")
    if not shared:
        raise ValueError("Expected shared to name a layer, but got none")
    part(fedavg.initial(), *shared)  # raises where there is no such layer
    base = own_models(fedavg)

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, state = base.send(params, context, state, graph)
        model = message["model"]
        return {**message, "model": part(model, *shared)}, state

    return replace(base, send=send)
