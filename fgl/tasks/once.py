"""Functions of a client's graph that are called once for each graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..graph import Graph


class Once:
    """A function of a graph that remembers its latest results. A pickle leaves the results out.

    Args:
        function: ``graph -> result``.
        most: number of results that are kept: copies of graphs, as an estimate makes them, go.

    Example:
        >>> Once(lambda graph: graph.num_nodes, 1)(fgl.data.load("synthetic"))
        2708
    """

    def __init__(self, function: Callable[[Graph], Any], most: int) -> None:
        self.function, self.most = function, most
        self._known = lru_cache(most)(function)

    def __call__(self, graph: Graph) -> Any:
        return self._known(graph)

    def __reduce__(self) -> tuple[type[Once], tuple[Callable[[Graph], Any], int]]:
        return Once, (self.function, self.most)
