"""Features in a file that is mapped into memory: they need no room until they are read."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from ..graph import Graph
from ..kinds import typed
from .download import replacing

ROWS = 2**16  # that are copied at a time


@typed
def map_features(graph: Graph, path: str | os.PathLike[str]) -> Graph:
    """The graph with its features in a file, of which the system keeps in memory what is used.

    The values are the same, so are all results. The file holds the rows as they are, nothing else;
    it must stay while the graph is used; a file of that name that is mapped already stays with who
    uses it. Changes of `x` do not reach the file.

    Args:
        graph: with dense features on the CPU.
        path: the file, which is made or replaced; missing folders are made.

    Returns:
        The same graph, its `x` mapped.

    Raises:
        TypeError: for sparse features, or ones on another device.
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
        for rows in x.detach().split(ROWS):
            file.write(rows.contiguous().view(torch.uint8).numpy().data)
    if not x.numel():
        return graph
    mapped = torch.from_file(str(path), shared=False, size=x.numel(), dtype=x.dtype)
    return graph.replace(x=mapped.view(x.shape))
