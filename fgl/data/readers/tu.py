"""Reader of the TU format: many small graphs in a few text files."""

import glob
from collections.abc import Collection
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...checks import reject_if
from ...graph import Graph
from ..features import one_hot_degree
from ..undirected import undirected
from .matrices import check_size, dense_features
from .parsing import bad_row, check_range, contiguous, floats, integers, need, there, warn_unread

READ = ("A", "graph_indicator", "graph_labels", "node_attributes", "node_labels")
ROWS = "lines, one per node"
UNREAD = "edge_labels=True counts the labels of edges"


def read_tu(
    folder: Path,
    name: str,
    *,
    attributes: bool = True,
    edge_labels: bool = False,
    ignore: Collection[str] = (),
) -> tuple[list[Graph], Tensor]:
    """Read graphs and targets from ``folder/NAME_*.txt``; `load_graphs` explains the options.

    Raises:
        ValueError: if a file is missing or malformed.

    Source: https://chrsmrrs.github.io/datasets/docs/format
    """
    numbers = there(folder, f"{name}_graph_labels.txt") is None and bool(
        there(folder, f"{name}_graph_attributes.txt")
    )
    last = "graph_attributes" if numbers else "graph_labels"
    files = [f"{name}_{part}.txt" for part in ("A", "graph_indicator", last)]
    pairs, indicator, labels = need(folder, files)
    graph_of = integers(indicator, 1)[:, 0]
    y = _numbers(labels) if numbers else contiguous(labels, integers(labels, 1)[:, 0])[0]
    _check_indicator(indicator, graph_of, labels, len(y))
    n = len(graph_of)
    edges = integers(pairs, 2, ",")
    check_range(pairs, edges, 1, n + 1)
    ends = graph_of[edges - 1]
    crossing = ends[:, 0] != ends[:, 1]
    if crossing.any():
        row = int(crossing.argmax())
        one, two = ends[row]
        raise bad_row(pairs, row, "an edge inside a graph", f"one from graph {one} to graph {two}")
    listed = torch.from_numpy(edges.T - 1)
    edge_index = undirected(listed, n)
    x = _features(folder, name, edge_index, n, attributes)
    if edge_labels:
        x = torch.cat([x, _edge_label_counts(folder, name, listed, n)], dim=1)

    sizes = torch.from_numpy(np.bincount(graph_of - 1))
    first = sizes.cumsum(0) - sizes
    owner = torch.from_numpy(graph_of - 1)[edge_index[1]]  # sorted, since targets are sorted
    inner = edge_index - first[owner]
    counts = owner.bincount(minlength=len(y)).tolist()
    graphs = [
        # Copies, since a view would keep all graphs in memory.
        Graph(features.clone(), part.clone(memory_format=torch.contiguous_format))
        for features, part in zip(x.split(sizes.tolist()), inner.split(counts, 1), strict=True)
    ]
    unread = _unread(folder, name, edge_labels)
    warn_unread(folder, unread, ignore, UNREAD if "edge_labels" in unread else "")
    return graphs, y


def _unread(folder: Path, name: str, edge_labels: bool) -> list[str]:
    """Names of unread parts: ``PART`` for a file ``NAME_PART.txt`` that is not read."""
    read = [*READ, "edge_labels"] if edge_labels else READ
    files = {file.name.removesuffix(".xz") for file in folder.glob(f"{glob.escape(name)}_*.txt*")}
    parts = {file.removeprefix(f"{name}_").removesuffix(".txt") for file in files}
    parts -= {"graph_attributes"} if "graph_labels" not in parts else set()
    return sorted(part for part in parts.difference(read) if "readme" not in part.lower())


def _numbers(path: Path) -> Tensor:
    """Float targets of the graphs: float32 ``[n]``, or ``[n, t]`` if there are several columns."""
    values = dense_features(path, floats(path, None, ","))
    return values.squeeze(1) if values.shape[1] == 1 else values


def _check_indicator(path: Path, graph_of: NDArray[np.int64], labels: Path, size: int) -> None:
    """Raise a ValueError if nodes are not sorted by graph, or if labels and graphs do not match."""
    step = np.diff(graph_of, prepend=0)
    wrong = (step < 0) | (step > 1)
    wrong[:1] = graph_of[:1] != 1
    if wrong.any():
        row = int(wrong.argmax())
        before = graph_of[row - 1] if row else 0
        be = f"graph {before} or {before + 1}" if row else "graph 1"
        raise bad_row(path, row, f"{be}, as every graph has nodes", graph_of[row])
    last = int(graph_of[-1]) if len(graph_of) else 0
    expected = f"{path} to have nodes of all {size} graphs in {labels.name}"
    reject_if(last < size, expected, f"none of graph {last + 1}")
    check_size(labels, size, last, f"lines, one per graph in {path.name}")


def _features(
    folder: Path, name: str, edge_index: Tensor, num_nodes: int, with_attributes: bool
) -> Tensor:
    """Node features: attributes, then one-hot labels; without both, the one-hot degrees."""
    parts = []
    attributes = there(folder, f"{name}_node_attributes.txt")
    if attributes is not None and with_attributes:
        values = floats(attributes, None, ",")
        check_size(attributes, len(values), num_nodes, ROWS)
        parts.append(dense_features(attributes, values))
    labels = there(folder, f"{name}_node_labels.txt")
    if labels is not None:
        table = integers(labels, None, ",")
        check_size(labels, len(table), num_nodes, ROWS)
        for column in table.T:
            label, size = contiguous(labels, column)
            parts.append(torch.eye(size)[label])
    if not parts:
        return one_hot_degree(edge_index, num_nodes).to_dense()
    return torch.cat(parts, dim=1)


def _edge_label_counts(folder: Path, name: str, edges: Tensor, num_nodes: int) -> Tensor:
    """Count each node's edges by edge label, as floats: a row per node, a column per label."""
    (path,) = need(folder, [f"{name}_edge_labels.txt"])
    table = integers(path, None, ",")
    check_size(path, len(table), edges.shape[1], "lines, one per edge")
    if not len(table):
        return torch.zeros(num_nodes, 0)
    counts = []
    for column in table.T:
        label, size = contiguous(path, column)
        for kind in range(size):
            ends = undirected(edges[:, label == kind], num_nodes)[1]
            counts.append(ends.bincount(minlength=num_nodes))
    return torch.stack(counts, dim=1).float()
