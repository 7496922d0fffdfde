"""Reader of OGB's raw folders for node classification, such as ogbn-arxiv and ogbn-products."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graph import Graph
from ...progress import shown
from ..undirected import undirected
from .matrices import check_size, checked_edges, checked_labels, dense_features, masks_of
from .parsing import need, warn_unread

FILES = ("num-node-list", "num-edge-list", "edge", "node-feat", "node-label")
ROLES = ("train", "valid", "test")


def read_ogb(folder: Path, _: str = "", *, ignore: Collection[str] = ()) -> Graph:
    """Read OGB's folder ``raw``, and ``split`` next to it: comma-separated text, gzipped.

    ``num-node-list.csv.gz`` and ``num-edge-list.csv.gz`` hold one number each. Each line of
    ``edge.csv.gz`` holds a source and a target. For each node, ``node-feat.csv.gz`` has a line of
    features and ``node-label.csv.gz`` has a line with the class.
    ``split/NAME/{train,valid,test}.csv.gz`` hold node ids, which become the masks. NAME is ``time``
    for ogbn-arxiv and ``sales_ranking`` for ogbn-products. The graph is undirected, without
    self-loops and repeats. Rows are read one after the other, so reading needs little more memory
    than the graph itself. A warning names unread tables in the folder, except for ``node_year``,
    which defines the split of ogbn-arxiv.

    Args:
        folder: the folder ``raw``.
        ignore: names of tables that the warning should not mention, such as ``"edge-feat"``.

    Raises:
        ValueError: for a missing or malformed file, more than one graph, or several splits.

    Source: https://ogb.stanford.edu/docs/nodeprop/
    """
    paths = need(folder, [f"{name}.csv.gz" for name in FILES])
    nodes, edges, ends, features, labels = paths
    tables = (file.name.removesuffix(".csv.gz") for file in sorted(folder.glob("*.csv.gz")))
    warn_unread(folder, (name for name in tables if name not in (*FILES, "node_year")), ignore)
    num_nodes, num_edges = _one(nodes), _one(edges)
    pairs = _table(ends, np.int64, 2)
    check_size(ends, len(pairs), num_edges, "edges")
    edge_index = undirected(
        checked_edges(str(ends), np.ascontiguousarray(pairs.T), num_nodes), num_nodes
    )
    del pairs
    y = _table(labels, np.int64, 1)[:, 0]
    check_size(labels, len(y), num_nodes, "labels")
    x = _table(features, np.float32, None)
    check_size(features, len(x), num_nodes, "rows")
    return Graph(
        dense_features(features, x),
        edge_index,
        y=checked_labels(str(labels), y, num_nodes),
        **_masks((folder.parent if folder.name == "raw" else folder) / "split", num_nodes),
    )


def _masks(folder: Path, num_nodes: int) -> dict[str, Any]:
    """The masks of the only split in a folder; an empty dict if the folder has no split."""
    splits = sorted(path.parent for path in folder.glob("*/train.csv.gz"))
    if not splits:
        return {}
    if len(splits) > 1:
        names = ", ".join(path.name for path in splits)
        raise ValueError(f"Expected {folder} to hold one split, but got {names}")
    paths = need(splits[0], [f"{role}.csv.gz" for role in ROLES])
    parts = [checked_edges(str(p), _table(p, np.int64, 1)[:, 0], num_nodes) for p in paths]
    return masks_of(splits[0], parts, num_nodes)


def _one(path: Path) -> int:
    """The single number in a file."""
    table = _table(path, np.int64, 1)
    if len(table) != 1 or table[0, 0] < 0:
        got = table[:, 0].tolist()[:3]
        raise ValueError(f"Expected {path} to hold the size of one graph, but got {got}")
    return int(table[0, 0])


def _table(path: Path, dtype: type[Any], columns: int | None) -> NDArray[Any]:
    """Read rows of numbers from a file that NumPy decompresses while reading."""
    long = path.stat().st_size > 50_000_000
    with warnings.catch_warnings(), shown(f"reading {path.name}", long=long):
        warnings.simplefilter("error")  # for an empty file, or a float among integers
        try:
            table = np.loadtxt(path, dtype, None, ",", ndmin=2)
        except (ValueError, Warning, OSError, EOFError) as error:
            raise ValueError(
                f"Expected {path} to be rows of {np.dtype(dtype).name}, but got {error}"
            ) from error
    if columns not in (None, table.shape[1]):
        raise ValueError(f"Expected {path} to have {columns} columns, but got {table.shape[1]}")
    return table
