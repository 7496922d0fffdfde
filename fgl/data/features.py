"""Node features: normalised rows, degrees, features on disk, and one width for all datasets."""

import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checks import reject_if
from ..graph import Graph
from ..graph.windows import check_no_series
from ..sparse import SparseMatrix, row_sum
from ..sparse.pattern import Pattern
from .download import replacing

DEGREES = 64


def normalize_features(graph: Graph) -> Graph:
    """Divide each row of a graph's features by the row's sum, as in Kipf & Welling's GCN.

    Args:
        graph: a graph with non-negative features. A row of zeros is left unchanged.

    Returns:
        The graph with float features. The sum of each row is 1, or 0 for a row of zeros.

    Example:
        >>> graph = fgl.Graph(torch.tensor([[1.0, 3.0], [0.0, 0.0]]), torch.tensor([[0], [1]]))
        >>> normalize_features(graph).x
        tensor([[0.2500, 0.7500],
                [0.0000, 0.0000]])

    Source: https://arxiv.org/abs/1609.02907
    """
    check_no_series(graph, "normalize_features")
    if isinstance(graph.x, SparseMatrix):
        pattern = graph.x.pattern
        value = graph.x.values
        total = row_sum(pattern, value)
        scale = torch.where(total == 0, 1, total).reciprocal()
        return graph.replace(x=graph.x.with_value(value * scale.index_select(0, pattern.row)))
    total = graph.x.sum(1, keepdim=True)
    return graph.replace(x=graph.x / torch.where(total == 0, 1, total))


def degree_features(graph: Graph) -> Graph:
    """The graph with one-hot degrees as features, for nodes that have no features.

    A degree counts only the edges of the given graph. To keep held-out edges secret, pass a graph
    that has only the training edges: degrees in the whole graph would reveal the held-out edges.

    Args:
        graph: a graph with both directions of every edge.

    Returns:
        The graph with features `SparseMatrix` ``[num_nodes, 64]``. The last column means a degree
        of 63 or more.

    Example:
        >>> edges = torch.tensor([[0, 1], [1, 0]])
        >>> degree_features(fgl.Graph(torch.ones(3, 1), edges)).x.to_dense()[:, :3]
        tensor([[0., 1., 0.],
                [0., 1., 0.],
                [1., 0., 0.]])

    Source: FedVGAE, IEEE Transactions on Big Data 2024, for PolBlogs
    """
    x = one_hot_degree(graph.edge_index.cpu(), graph.num_nodes).to(graph.device)
    return graph.replace(x=x.using(str(graph.backend)))


def one_hot_degree(edge_index: Tensor, num_nodes: int) -> SparseMatrix:
    """Degrees as one-hot features of nodes; the last column means a degree of 63 or more."""
    degree = edge_index[1].bincount(minlength=num_nodes).clamp(max=DEGREES - 1)
    pattern = Pattern(torch.arange(num_nodes + 1), degree, (num_nodes, DEGREES))
    return SparseMatrix(pattern, torch.ones(num_nodes))


ROWS = 2**16  # rows that are copied at a time


def map_features(graph: Graph, path: str | os.PathLike[str]) -> Graph:
    """Move a graph's features to a memory-mapped file; memory then holds only the parts in use.

    The values of the features do not change, so all results stay the same. The file contains the
    rows of features and nothing else. The file must exist while the graph is used. If an
    earlier call mapped another graph to the same file, the file is replaced, but the other graph
    keeps its features. Changes to `x` are not written to the file.

    Args:
        graph: a graph with dense features on the CPU.
        path: the file. The file is created or replaced. Missing folders are created.

    Returns:
        The graph; its `x` is mapped to the file.

    Raises:
        TypeError: if features are sparse or not on the CPU.
        OSError: if the file cannot be written.

    Example:
        >>> import tempfile
        >>> graph = fgl.Graph(torch.eye(3), torch.tensor([[0], [1]]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     mapped = fgl.data.map_features(graph, f"{folder}/x")
        ...     torch.equal(mapped.x, graph.x)
        True
    """
    x = graph.x
    if not isinstance(x, Tensor) or x.device.type != "cpu":
        got = f"features on {x.device}" if isinstance(x, Tensor) else "a SparseMatrix"
        raise TypeError(f"Expected graph to have dense features on the CPU, but got {got}")
    path = Path(path)
    with replacing(path) as file:
        for rows in x.split(ROWS):
            file.write(rows.contiguous().view(torch.uint8).numpy().data)
    if not x.numel():
        return graph
    mapped = torch.from_file(str(path), shared=False, size=x.numel(), dtype=x.dtype)
    return graph.replace(x=mapped.view(x.shape))


def one_space(graphs: Sequence[Graph]) -> list[Graph]:
    """Pad features and renumber classes, so that one network fits the graphs of several datasets.

    Features are padded with zeros to the largest width. Classes are numbered through all datasets:
    the number of a dataset's first class is one more than the number of the previous dataset's last
    class.

    Args:
        graphs: one labelled graph per dataset.

    Returns:
        The new graphs, all with equal `num_features` and equal `num_classes`.

    Raises:
        ValueError: if `graphs` is empty, or if a graph has no classes.

    Example:
        >>> edges, y = torch.zeros(2, 0).long(), torch.tensor([0, 1])
        >>> made = one_space([fgl.Graph(torch.ones(2, k), edges, y=y) for k in (1, 3)])
        >>> [(own.x.shape, own.y.tolist(), own.num_classes) for own in made]
        [(torch.Size([2, 3]), [0, 1], 4), (torch.Size([2, 3]), [2, 3], 4)]

    OpenFGL does not change the data. Instead, each client's network has its own first and last
    layer. In this library, `fgl.methods.fedper` with `models` builds such networks.

    Source: "cross_domain" of OpenFGL, https://arxiv.org/abs/2408.16288
    """
    wrong = not graphs or any(own.y is None or not own.num_classes for own in graphs)
    reject_if(wrong, "graphs to have classes, each of them", "none")
    width = max(own.num_features for own in graphs)
    *first, classes = accumulate((int(own.num_classes or 0) for own in graphs), initial=0)
    return [
        own.replace(x=_widened(own.x, width), y=own.labels + start, num_classes=classes)
        for own, start in zip(graphs, first, strict=True)
    ]


def _widened(x: Any, width: int) -> Any:
    if isinstance(x, SparseMatrix):
        pattern = x.pattern
        wide = Pattern(pattern.crow, pattern.col, (x.shape[0], width), pattern.backend)
        return SparseMatrix(wide, x.value)
    return torch.cat([x, x.new_zeros(len(x), width - x.shape[1])], 1)
