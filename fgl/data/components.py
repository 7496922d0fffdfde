"""The largest component of a graph, in which every node can be reached from every other."""

from __future__ import annotations

import torch

from ..graph import Graph
from ..kinds import typed


@typed
def largest_component(graph: Graph) -> Graph:
    """The part of a graph that is connected and has the most nodes.

    Args:
        graph: its edges count in both directions.

    Returns:
        The induced subgraph with `node_id`, its nodes in their order; the graph itself where it is
        connected. Of components of one size it is the one with the smallest node.

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
    if not n:
        raise ValueError("Expected graph to have a node, but got none")
    source, target = graph.edge_index.cpu().numpy()
    matrix = sp.coo_matrix(([True] * len(source), (source, target)), shape=(n, n))
    count, component = csgraph.connected_components(matrix, directed=False)
    if count == 1:
        return graph
    label = torch.from_numpy(component).long()
    nodes = (label == label.bincount().argmax()).nonzero().squeeze(1)
    part: Graph = graph.subgraph(nodes.to(graph.device))
    return part
