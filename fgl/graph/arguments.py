"""The graph that a function is given: a `Graph`, or an error that says how one is made."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from torch import Tensor

from .facts import Facts

P = ParamSpec("P")
R = TypeVar("R")
FROM = {
    "Data": ": fgl.Graph.from_pyg(data)",
    "Batch": ": fgl.Graph.from_pyg(batch)",
    "DataBatch": ": fgl.Graph.from_pyg(batch)",
    "HeteroData": ": fgl.data.from_hetero(data)",
}


def kind_of(value: object) -> str:
    """What is given in a graph's place, and how it becomes one.

    Example:
        >>> kind_of([1, 2])
        'list'
    """
    kind = type(value).__name__
    return f"{kind}{FROM.get(kind, '')}"


def check_graph(name: str, graph: Any) -> None:
    """Raise a TypeError unless this is a graph.

    Example:
        >>> check_graph("whole", [1, 2])
        Traceback (most recent call last):
        TypeError: Expected whole to be a fgl.Graph, but got list
    """
    if not isinstance(graph, Facts):
        raise TypeError(f"Expected {name} to be a fgl.Graph, but got {kind_of(graph)}")


def check_graphs(clients: Iterable[Any]) -> None:
    """Raise a TypeError unless every client is a graph.

    Example:
        >>> check_graphs([[1, 2]])
        Traceback (most recent call last):
        TypeError: Expected client 0 to be a Graph, but got list
    """
    if isinstance(clients, Facts):
        raise TypeError("Expected clients to be a sequence of graphs, but got a Graph: [graph]")
    for client, graph in enumerate(clients):
        if not isinstance(graph, Facts):
            cut = isinstance(graph, Tensor)  # the node ids of a partition
            hint = ": fgl.data.partition_graph(graph, parts) makes the clients" if cut else ""
            raise TypeError(
                f"Expected client {client} to be a Graph, but got {kind_of(graph)}{hint}"
            )


def takes_graph(function: Callable[P, R]) -> Callable[P, R]:
    """A function whose first argument is a graph, and says how PyG's data become one.

    Raises:
        TypeError: for anything else.

    Example:
        >>> @takes_graph
        ... def size(graph):
        ...     return graph.num_nodes
        >>> size([1, 2])
        Traceback (most recent call last):
        TypeError: Expected graph to be a fgl.Graph, but got list
    """
    name = next(iter(inspect.signature(function).parameters))

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        graph = args[0] if args else kwargs.get(name)
        if args or name in kwargs:
            check_graph(name, graph)
        return function(*args, **kwargs)

    return checked
