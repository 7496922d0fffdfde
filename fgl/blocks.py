"""Inference in blocks: compute a graph's logits for one block of nodes at a time."""

import copy
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
from .sparse.matrix import rows_of

PROBED = 8  # number of nodes, spread over the graph, that are also computed with one more hop
NEAR = 1e-4  # largest rounding error, as a fraction of the largest logit


@torch.no_grad()
def logits_in_blocks(
    model: nn.Module,
    params: Mapping[str, Tensor],
    graph: Graph,
    *,
    block_size: int = 65536,
    hops: int | None = None,
) -> Tensor:
    """Compute a model's outputs at all nodes in evaluation mode, with bounded memory.

    Each layer of `GCN`, `SAGE` or `GAT` is computed for one block of nodes at a time. The input of
    a block is the previous layer's output at the block's nodes and at all their neighbours. Up to
    rounding, the result equals a forward pass on the whole graph. Memory holds the graph, the
    outputs ``[num_nodes, width]`` of two layers, and the data of one block. The linear map of a
    node is computed again for each block that contains a neighbour of the node. So large blocks are
    faster than small blocks.

    Any other model is called once per block: on the block and all nodes at most `hops` edges away
    from it. The call includes an edge if its target is fewer than `hops` hops from the block. The
    result equals a forward pass on the whole graph if no output depends on nodes more than `hops`
    edges away. At any time, memory holds the model's data for one block and for the nodes at most
    `hops` edges away from this block. A node near several blocks is computed several times. To
    check `hops`, the function computes some nodes again, with one additional hop.

    Args:
        model: a `GCN`, `SAGE` or `GAT`, or another model that returns one row per node, such as
            PyG's models.
        params: the model's parameters and buffers, by name.
        graph: one graph.
        block_size: nodes per block; a graph with at most this many nodes is computed as a whole.
        hops: largest number of hops over which a node affects another node's output. This is the
            model's number of layers, plus 1 if a layer reads the degrees of neighbours, as PyG's
            GCNConv does. A stack of convolutions does not need this argument.

    Returns:
        float ``[num_nodes, out_channels]``.

    Raises:
        TypeError: if `hops` is missing although the graph has more than `block_size` nodes and the
            model is not a stack of convolutions.
        ValueError: if `block_size` or `hops` is below 1, if the model does not return one row per
            node, or if outputs depend on nodes farther away than `hops`. For example, a layer may
            normalise over the whole graph.

    Example:
        >>> graph = fgl.Graph(torch.eye(5), torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> model = fgl.nn.SAGE(5, 8, 2)
        >>> logits_in_blocks(model, dict(model.named_parameters()), graph, block_size=2).shape
        torch.Size([5, 2])
    """
    check_count(block_size=block_size)
    if graph.num_nodes <= block_size:
        local = graph if graph.x.device == graph.device else graph.to(graph.device)
        whole: Tensor = predict(model, params, local)
        return whole
    if isinstance(model, Stack):
        return _by_layer(model, params, graph, block_size)
    if hops is None:
        raise TypeError(
            "Expected model to be a stack of convolutions (GCN, SAGE or GAT), or hops to say how "
            f"far a node looks, but got {type(model).__name__}"
        )
    check_count(hops=hops)
    return _by_hops(model, params, graph, block_size, hops)


def _by_hops(
    model: nn.Module, params: Mapping[str, Tensor], graph: Graph, block_size: int, hops: int
) -> Tensor:
    """Compute each block together with its whole neighbourhood."""

    def rows(sampler: NeighbourSampler, block: Tensor) -> Tensor:
        part = sampler.unchecked(block)
        output = predict(model, params, part)
        if not isinstance(output, Tensor) or len(output) != part.num_nodes:
            got = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise ValueError(
                f"Expected the model to return a row for each of {part.num_nodes} nodes, but got "
                f"{got}"
            )
        return output[: len(block)]

    narrow = NeighbourSampler(graph, (-1,) * hops)
    farther = copy.copy(narrow)
    farther.fanouts = (*narrow.fanouts, -1)
    nodes = torch.arange(graph.num_nodes, device=graph.device)
    some = nodes[:: -(-len(nodes) // PROBED)]
    expected = rows(farther, some)
    change = float((rows(narrow, some) - expected).abs().max())
    if change > NEAR * max(1.0, float(expected.abs().max())):
        raise ValueError(
            f"Expected no node to look farther than hops, but got {hops}: with one more, logits "
            f"change by {change:.2g}. Take more hops, unless the model looks at the whole graph"
        )
    blocks = nodes.split(block_size)
    with shown("inference", len(blocks), unit="blocks") as advance:
        outputs = []
        for block in blocks:
            outputs.append(rows(narrow, block))
            advance(1)
    return torch.cat(outputs)


def _by_layer(model: Stack, params: Mapping[str, Tensor], graph: Graph, block_size: int) -> Tensor:
    """Compute one layer after another, and each layer block by block."""
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
                inputs = rows_of(h, drawn[0].long()), sampler.matrix(*drawn)
                rows = functional_call(conv, own, inputs)[: len(block)]
                out = rows.new_empty(graph.num_nodes, rows.shape[1]) if out is None else out
                out[start : start + block_size] = rows if last else rows.relu()
                advance(1)
            h = out
    if model.lin is None:
        return torch.as_tensor(h)
    head = {k.removeprefix("lin."): v for k, v in params.items() if k.startswith("lin.")}
    logits: Tensor = functional_call(model.lin, head, (h,))
    return logits
