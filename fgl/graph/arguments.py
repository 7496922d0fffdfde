"""Checks that an argument is a `Graph`; an error names the call that makes one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from .facts import Facts

FROM = {
    "Data": ": fgl.Graph.from_pyg(data)",
    "Batch": ": fgl.Graph.from_pyg(batch)",
    "DataBatch": ": fgl.Graph.from_pyg(batch)",
    "HeteroData": ": fgl.data.from_hetero(data)",
}


def kind_of(value: object) -> str:
    """Name of a value's type, and the call that turns such a value into a graph.

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
            hint = (
                ": fgl.data.partitions.partition_graph(graph, parts) makes the clients"
                if cut
                else ""
            )
            raise TypeError(
                f"Expected client {client} to be a Graph, but got {kind_of(graph)}{hint}"
            )
