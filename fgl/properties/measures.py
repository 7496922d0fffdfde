"""Six properties of a graph (GPFL), computed only from its edges."""

import numpy as np
import torch
from torch import Tensor

from ..graph import Graph
from .simple import Simple, simple


def average_degree(graphs: Simple) -> Tensor:
    """Mean degree of every graph: ``1/N sum_v d_v = 2m / N``.

    GPFL's public code computes means over degrees differently. It leaves out all nodes whose index
    is larger than the index of the last node with an edge.
    """
    return _ratio(graphs.double_edges, graphs.sizes)


def density(graphs: Simple) -> Tensor:
    """Fraction of the pairs of nodes that are joined by an edge: ``2m / (N (N - 1))``."""
    return _ratio(graphs.double_edges, graphs.sizes * (graphs.sizes - 1))


def degree_variance(graphs: Simple) -> Tensor:
    """Variance of the degrees: ``1/N sum_v d_v^2 - (1/N sum_v d_v)^2``."""
    # Integers up to the division, so that equal degrees give variance 0 without rounding errors.
    count = graphs.sizes
    square = graphs.total(graphs.degree.square())
    return _ratio(count * square - graphs.double_edges.square(), count.square())


def network_entropy(graphs: Simple) -> Tensor:
    """Entropy of a random walk: ``1/(2m) sum_v d_v log d_v``.

    GPFL's paper prints the factor ``1/m``, which gives twice the entropy. Like this function, the
    public code divides by ``2m``; but it takes a mean over nodes instead of a sum.
    """
    degree = graphs.degree.double()
    return _ratio(graphs.total(torch.xlogy(degree, degree)), graphs.double_edges)


def negative_scale_free_exponent(graphs: Simple) -> Tensor:
    """Negative of an estimated power-law exponent of the degrees: ``-(1 / mean(d) + 2)``."""
    count, ends = graphs.sizes, graphs.double_edges
    return torch.where(ends > 0, -(_ratio(count, ends) + 2), 0.0)


def closeness(graphs: Simple) -> Tensor:
    """Closeness centrality of Wasserman and Faust, averaged over the nodes.

    ``c_v = (r_v - 1)/(N - 1) (r_v - 1)/sum_u d(u, v)``, where u runs over the ``r_v`` nodes that v
    can reach, including v. A node without edges has closeness 0.

    Source: Wasserman and Faust 1994; ``networkx.closeness_centrality``
    """
    from scipy.sparse.csgraph import shortest_path

    links = graphs.adjacency(np.ones(len(graphs.col)))
    reached, total = np.zeros((2, len(graphs.batch)))
    for nodes, rows in graphs.blocks():
        sources = np.arange(nodes.start, nodes.stop) - rows.start
        distance = shortest_path(links[rows, rows], "D", unweighted=True, indices=sources)
        reached[nodes] = np.isfinite(distance).sum(1)
        total[nodes] = distance.sum(1, where=np.isfinite(distance))
    others = torch.from_numpy(reached) - 1
    mean = graphs.total(_ratio(others.square(), torch.from_numpy(total)))
    return _ratio(mean, graphs.sizes * (graphs.sizes - 1))


MEASURES = (
    *(average_degree, density, degree_variance),
    *(network_entropy, negative_scale_free_exponent, closeness),
)
PROPERTIES = tuple(measure.__name__ for measure in MEASURES)


def graph_properties(edge_index: Tensor, nodes: int | Tensor) -> Tensor:
    """Six properties of every graph, in the order of `PROPERTIES`.

    Graphs are treated as undirected: edge directions, repeated edges and self-loops are ignored.

    Args:
        edge_index: int64 ``[2, num_edges]``.
        nodes: for one graph, the number of nodes. For several graphs, the index of each node's
            graph, int64 ``[num_nodes]``, sorted (PyG's ``batch``).

    Returns:
        float ``[num_graphs, 6]``, of torch's default dtype; 0 without edges.

    Raises:
        TypeError, ValueError: if a dtype or a shape is invalid, if an index is out of range, if
            nodes are not sorted by graph, or if an edge joins two graphs.

    Example:
        >>> graph_properties(torch.tensor([[0, 1], [1, 2]]), 3)
        tensor([[ 1.3333,  0.6667,  0.2222,  0.3466, -2.7500,  0.7778]])
        >>> fgl.properties.measures.PROPERTIES[5]
        'closeness'

    Source: GPFL, TMLR 2025
    """
    graphs = simple(edge_index, nodes)
    columns = torch.stack([measure(graphs) for measure in MEASURES], dim=1)
    return columns.to(edge_index.device, torch.get_default_dtype())


def mean_properties(graph: Graph) -> Tensor:
    """The mean of `graph_properties` over the training graphs of a collection.

    Args:
        graph: a collection of graphs. Without a training mask, all graphs of the collection are
            training graphs. A single graph is treated as a collection of one graph.

    Returns:
        float ``[6]``.

    Example:
        >>> one = fgl.Graph(torch.ones(3, 1), torch.tensor([[0, 1], [1, 2]]))
        >>> mean_properties(fgl.Graph.join([one, one], torch.tensor([0, 1])))
        tensor([ 1.3333,  0.6667,  0.2222,  0.3466, -2.7500,  0.7778])

    Source: GPFL, TMLR 2025
    """
    if graph.batch is None:
        return graph_properties(graph.edge_index, graph.num_nodes)[0]
    each = graph_properties(graph.edge_index, graph.batch)
    return (each if graph.train_mask is None else each[graph.train_mask]).mean(0)


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    """Quotient; 0 if the divisor is 0."""
    return torch.where(below > 0, above / below.clamp(min=1), 0.0)
