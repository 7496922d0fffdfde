"""Edge lists without self-loops or repeats, and the largest component of a graph."""

import torch
from torch import Tensor

from ..checks import reject_if
from ..graph import Graph


def undirected(edges: Tensor, num_nodes: int) -> Tensor:
    """Both directions of each distinct edge, without self-loops, sorted by target, then source."""
    one, two = _without_loops(edges)
    pair = one.new_empty(2 * one.numel())
    torch.add(one, two, alpha=num_nodes, out=pair[: one.numel()])
    torch.add(two, one, alpha=num_nodes, out=pair[one.numel() :])
    pair = pair.unique()
    both: Tensor = pair.new_empty(2, pair.numel())
    _split(pair, num_nodes, both[1], both[0])
    return both


def directed(edges: Tensor, num_nodes: int) -> Tensor:
    """Every distinct directed edge without self-loops, sorted by target, then source."""
    source, target = _without_loops(edges)
    pair = target.mul(num_nodes).add_(source).unique()
    ends: Tensor = pair.new_empty(2, pair.numel())
    _split(pair, num_nodes, ends[1], ends[0])
    return ends


def pairs(edges: Tensor, num_nodes: int) -> Tensor:
    """Distinct undirected edges without self-loops, int64 ``[*, 2]``; each row is ascending."""
    one, two = _without_loops(edges)
    pair = torch.minimum(one, two).mul_(num_nodes).add_(torch.maximum(one, two)).unique()
    ends: Tensor = pair.new_empty(pair.numel(), 2)
    _split(pair, num_nodes, ends[:, 0], ends[:, 1])
    return ends


def _without_loops(edges: Tensor) -> Tensor:
    joins_two = edges[0] != edges[1]
    return edges if bool(joins_two.all()) else edges[:, joins_two]


def _split(pair: Tensor, num_nodes: int, one: Tensor, two: Tensor) -> None:
    """Decode each number ``one * num_nodes + two`` to the pair `one`, `two`."""
    torch.div(pair, num_nodes, rounding_mode="floor", out=one)
    torch.remainder(pair, num_nodes, out=two)


def largest_component(graph: Graph) -> Graph:
    """The largest connected component of a graph.

    Args:
        graph: a graph. Directed edges are treated as undirected edges.

    Returns:
        The component, as a subgraph with `node_id`. The component's nodes keep the order that they
        have in the graph. If the graph is connected, the graph itself is returned. If several
        components have the largest size, the component that contains the smallest node id is
        returned.

    Raises:
        ValueError: if the graph has no node.

    Example:
        >>> graph = fgl.Graph(torch.eye(4), torch.tensor([[0, 2], [3, 3]]))
        >>> largest_component(graph).node_id
        tensor([0, 2, 3])

    Source: the generators of https://github.com/JinheonBaek/FED-PUB
    """
    import scipy.sparse as sp  # slow to import
    from scipy.sparse import csgraph

    n = graph.num_nodes
    reject_if(not n, "graph to have a node", "none")
    source, target = graph.edge_index.cpu().numpy()
    matrix = sp.coo_matrix(([True] * len(source), (source, target)), shape=(n, n))
    count, component = csgraph.connected_components(matrix, directed=False)
    if count == 1:
        return graph
    label = torch.from_numpy(component).long()
    nodes = (label == label.bincount().argmax()).nonzero().squeeze(1)
    return graph.subgraph(nodes.to(graph.device))
