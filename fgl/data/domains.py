"""Clients of several domains: one dataset each, in one space of features and classes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch

from ..graph import Graph
from ..kinds import typed
from ..sparse import SparseMatrix
from ..sparse.pattern import Pattern


@typed
def one_space(graphs: Sequence[Graph]) -> list[Graph]:
    """Graphs of several datasets, so that one network can read and classify all of them.

    Features end with zeros, up to the largest width. Classes are numbered on: the second
    dataset's begin where the first's end, since one number means another thing in each.

    Args:
        graphs: with labels, each of a dataset.

    Returns:
        As many graphs, with the same `num_features` and `num_classes`.

    Raises:
        ValueError: for no graph, or one without classes.

    Example:
        >>> edges, y = torch.zeros(2, 0).long(), torch.tensor([0, 1])
        >>> made = one_space([fgl.Graph(torch.ones(2, k), edges, y=y) for k in (1, 3)])
        >>> [(own.x.shape, own.y.tolist(), own.num_classes) for own in made]
        [(torch.Size([2, 3]), [0, 1], 4), (torch.Size([2, 3]), [2, 3], 4)]

    Source: "cross_domain" of OpenFGL, https://arxiv.org/abs/2408.16288, whose clients differ in
    their networks' first and last layers instead (here: `fgl.methods.fedper` with `models`)
    """
    if not graphs or any(own.y is None or not own.num_classes for own in graphs):
        raise ValueError("Expected graphs to have classes, each of them, but got none")
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
