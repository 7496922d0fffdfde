"""Weights of clients in a mean: what stands as ``num_examples`` in a message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..federation import Message, Method, Params, State
from ..graph import Graph


def own_nodes(graph: Graph, context: Any) -> Tensor:
    """Which nodes are a client's own, bool ``[num_nodes]``: all but generated ones and padding.

    Where nodes were generated (`fgl.tasks.mended`) the context says so, in ``"own_nodes"``.
    """
    return context["own_nodes"].values if "own_nodes" in context else graph.node_mask


def send_by_nodes(
    params: Params, context: Any, state: State, graph: Graph
) -> tuple[Message, State]:
    """FedAvg's send, where a client weighs as much as it has nodes."""
    return {"model": params, "num_examples": torch.tensor(graph.num_nodes)}, state


def send_equally(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
    """FedAvg's send, where all clients weigh the same."""
    return {"model": params, "num_examples": torch.tensor(1)}, state


def bounded(fedavg: Method, clients: Sequence[Graph]) -> Method:
    """The method, in which nobody can say more examples than the largest client has.

    An example is a node, or a graph where clients hold collections.
    """
    sizes = [own.num_nodes if own.batch is None else own.num_graphs for own in clients]
    return replace(fedavg, max_examples=max(sizes, default=0))
