"""Readers of two datasets that are plain text: ACM and Wiki."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ...graph import Graph
from ..undirected import undirected
from .matrices import check_size, sparse_features
from .parsing import bad_row, check_range, contiguous, floats, integers
from .paths import need


def read_acm(folder: Path, name: str) -> Graph:
    """Papers that share an author: ``NAME.feature``, ``NAME.label``, ``NAME_PAP.edge``.

    A line of features and of labels per node, a pair of nodes per edge. The graph is undirected,
    without self-loops and repeats; features are as in the file.

    Raises:
        ValueError: for a missing or malformed file.

    Source: https://github.com/zhumeiqiBUPT/AM-GCN
    """
    from scipy.sparse import csr_matrix

    parts = ("feature", "label")
    features, labels, pairs = need(folder, [*(f"{name}.{p}" for p in parts), f"{name}_PAP.edge"])
    x, y = floats(features, None), integers(labels, 1)[:, 0]
    check_size(labels, len(y), len(x), f"lines, one per line of {features.name}")
    edges = integers(pairs, 2)
    check_range(pairs, edges, 0, len(y))
    label, num_classes = contiguous(labels, y)
    return Graph(
        sparse_features(features, csr_matrix(x)),
        undirected(torch.from_numpy(edges.T), len(y)),
        y=label,
        num_classes=num_classes,
    )


def read_wiki(folder: Path, name: str) -> Graph:
    """Linked pages with TF-IDF features: ``graph.txt``, ``group.txt``, ``tfidf.txt`` (or ``.xz``).

    Lines are a pair of nodes, a node and its label, and a node, a word and its weight. The graph is
    undirected, without self-loops and repeats. Labels are renumbered from 0 in their order: of
    1 to 19 two are not used, so there are 17 classes.

    Raises:
        ValueError: for a missing or malformed file.

    Source: https://github.com/thunlp/TADW
    """
    from scipy.sparse import coo_matrix

    pairs, groups, words = need(folder, ["graph.txt", "group.txt", "tfidf.txt"])
    node, y = integers(groups, 2).T
    n = len(node)
    check_range(groups, node, 0, n)
    order = node.argsort(kind="stable")
    again = np.flatnonzero(np.diff(node[order]) == 0)
    if again.size:
        row = int(order[again + 1].min())
        raise bad_row(groups, row, "a node that has no label yet", node[row])
    label, num_classes = contiguous(groups, y[order])
    edges = integers(pairs, 2)
    check_range(pairs, edges, 0, n)
    entries = floats(words, 3)
    row, col, weight = entries.T
    check_range(words, row, 0, n)
    check_range(words, col, 0, 2**31)
    part = (entries[:, :2] % 1).any(1)
    if part.any():
        i = int(part.argmax())
        raise bad_row(words, i, "two integers and a number", entries[i].tolist())
    ids = entries[:, :2].T.astype(np.int64)
    shape = (n, int(ids[1].max()) + 1 if len(entries) else 0)
    return Graph(
        sparse_features(words, coo_matrix((weight, ids), shape=shape)),
        undirected(torch.from_numpy(edges.T), n),
        y=label,
        num_classes=num_classes,
    )
