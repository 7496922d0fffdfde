"""Inference in blocks: the logits of a whole graph, layer by layer, some nodes at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .checks import check_count
from .graph import Graph
from .nn.layers import Stack
from .predict import predict
from .progress import shown
from .sampler import NeighbourSampler
from .sparse import rows_of


@torch.no_grad()
def logits_in_blocks(
    model: nn.Module, params: Mapping[str, Tensor], graph: Graph, *, block_size: int = 65536
) -> Tensor:
    """What a stack of convolutions says of all nodes, in eval mode, in bounded memory.

    A layer is computed for one block of nodes after the other, from the rows of the layer before of
    these nodes and of all their neighbours: equal to the forward on the whole graph, up to
    rounding. Besides the graph, memory holds two layers' outputs ``[num_nodes, width]`` and what
    one block needs. A neighbour's linear map is computed again for each block that it is seen from,
    so larger blocks are faster.

    Args:
        model: `GCN`, `SAGE` or `GAT`.
        params: its parameters and buffers, by name.
        graph: one graph.
        block_size: nodes per block; a graph that has no more is computed as a whole.

    Returns:
        float ``[num_nodes, out_channels]``.

    Raises:
        TypeError: if the graph has more nodes, and the model is no stack of convolutions.
        ValueError: if `block_size` is below 1.

    Example:
        >>> graph = fgl.Graph(torch.eye(5), torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> model = fgl.nn.SAGE(5, 8, 2)
        >>> logits_in_blocks(model, dict(model.named_parameters()), graph, block_size=2).shape
        torch.Size([5, 2])
    """
    check_count(block_size=block_size)
    if graph.num_nodes <= block_size:
        near = graph if graph.x.device == graph.device else graph.to(graph.device)
        whole: Tensor = predict(model, params, near)
        return whole
    if not isinstance(model, Stack):
        raise TypeError(
            f"Expected model to be a stack of convolutions (GCN, SAGE or GAT), "
            f"but got {type(model).__name__}"
        )
    sampler = NeighbourSampler(graph, (-1,))
    starts = range(0, graph.num_nodes, block_size)
    nodes = torch.arange(graph.num_nodes, device=graph.device)
    h: Any = graph.x
    with shown("inference", len(starts) * len(model.convs), unit="blocks") as advance:
        for depth, conv in enumerate(model.convs):
            prefix = f"convs.{depth}."
            own = {k.removeprefix(prefix): v for k, v in params.items() if k.startswith(prefix)}
            last = depth == len(model.convs) - 1 and model.lin is None
            out: Any = None
            for start in starts:
                block = nodes[start : start + block_size]
                drawn = sampler.draw(block)
                seen = rows_of(h, drawn[0].long()), sampler.matrix(*drawn)
                rows = functional_call(conv, own, seen)[: len(block)]
                out = rows.new_empty(graph.num_nodes, rows.shape[1]) if out is None else out
                out[start : start + block_size] = rows if last else rows.relu()
                advance(1)
            h = out
    if model.lin is None:
        return torch.as_tensor(h)
    head = {k.removeprefix("lin."): v for k, v in params.items() if k.startswith("lin.")}
    logits: Tensor = functional_call(model.lin, head, (h,))
    return logits
