"""PyG's `Data` and `Batch`: the fields that a `Graph` reads and the ones that it refuses."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import Tensor

from ..sparse import SparseMatrix
from .checks import MASKS
from .fields import EDGE_FIELDS, NODE_FIELDS

PAIR_FIELDS = ("edge_label_index", "edge_label_type")
READ = ("x", "edge_index", *EDGE_FIELDS, *NODE_FIELDS, *PAIR_FIELDS, "batch", "y", *MASKS)
DERIVED = ("ptr", "num_nodes", "num_classes", "edge_label")


def fields_of(data: Any, split: int | None, ignore: Collection[str]) -> dict[str, Any]:
    """The fields of a `Graph` that PyG's data, or anything with the same attributes, has."""
    if isinstance(getattr(data, "edge_types", None), (list, tuple)):
        raise TypeError(
            f"Expected data to have nodes and edges of one type, but got {type(data).__name__}: "
            "see fgl.data.from_hetero"
        )
    if isinstance(data, (list, tuple)):
        raise TypeError(
            f"Expected data to be a Data or a Batch, but got a {type(data).__name__}: "
            "Graph.from_pyg(Batch.from_data_list(data)) makes a collection of graphs"
        )
    _check_all_read(data, ignore)
    given = {name: getattr(data, name, None) for name in READ if name not in ignore}
    if given["x"] is None:
        raise ValueError(
            "Expected data.x to be the features of nodes, but got None: give every node a 1, "
            "data.x = torch.ones(data.num_nodes, 1), and count neighbours by "
            "fgl.data.degree_features if you like"
        )
    given["y"] = _answers(data, given)
    for name in MASKS:
        given[name] = one_split(name, given[name], split)
    attr = given.get("edge_attr")
    if attr is not None and attr.dim() == 1:
        given["edge_attr"] = attr[:, None]
    owners, y = given.get("batch"), given["y"]
    if owners is not None and y is not None and len(owners) == len(y) > 1 + owners[-1:].sum():
        if y.is_floating_point():
            raise ValueError(
                f"Expected y to have a row for each graph, but got {list(y.shape)}, one for each "
                "node: numbers of a graph are y [1, t] in each Data; for numbers of nodes set "
                "batch to None"
            )
        given["batch"] = None  # a batch of graphs with labels for nodes: as one graph
    numbers = y is not None and y.is_floating_point()
    return {**given, "num_classes": None if numbers else getattr(data, "num_classes", None)}


def _check_all_read(data: Any, ignore: Collection[str]) -> None:
    """Raise if something would be lost."""
    keys = getattr(data, "keys", None)
    stored = [str(key) for key in keys()] if callable(keys) else []
    readable = {*READ, *DERIVED, *ignore}
    unread = [
        key
        for key in sorted(stored)
        if key not in readable and getattr(data, key, None) is not None
    ]
    if {"src", "dst", "t"} <= set(unread):
        raise ValueError(
            "Expected data to be a Data or a Batch, but got times of events: give them as "
            "Data(x=..., edge_index=torch.stack([data.src, data.dst]), edge_time=data.t, "
            "edge_attr=data.msg)"
        )
    if unread:
        times = "times of edges are called edge_time; " if {"time", "t"} & set(unread) else ""
        raise ValueError(
            f"Expected data to have fields that a Graph has, but got {unread} besides: {times}see "
            f"fgl.Graph for their names, or leave them out by ignore={unread}"
        )


def _answers(data: Any, given: dict[str, Any]) -> Tensor | None:
    """Labels ``[n]`` or numbers; labels of pairs of nodes are called ``edge_label`` in PyG."""
    y: Tensor | None = given.get("y")
    of_pairs = getattr(data, "edge_label", None)
    if of_pairs is not None and y is not None:
        raise ValueError(
            "Expected data to have y or edge_label, but got both: delete data.y, the nodes' "
            "labels, to learn edge_label, or edge_label and edge_label_index to learn y"
        )
    if of_pairs is not None and given.get("edge_label_index") is None:
        raise ValueError("Expected edge_label_index beside edge_label, but got none")
    y = of_pairs if y is None else y
    return y.squeeze(1) if y is not None and y.dim() == 2 and y.shape[1] == 1 else y


def one_split(name: str, mask: Tensor | None, split: int | None) -> Tensor | None:
    """One of the masks ``[n, splits]``, which many datasets have."""
    if mask is None or mask.dim() != 2:
        return mask
    if split is None or not 0 <= split < mask.shape[1]:
        raise ValueError(
            f"Expected split to be one of the {mask.shape[1]} that data.{name} has, from 0, "
            f"but got {split}"
        )
    return mask[:, split]


def pyg_fields(graph: Any) -> dict[str, Any]:
    """The attributes of PyG's data that says the same; features become dense."""
    given = {name: value for name in READ if (value := getattr(graph, name)) is not None}
    if isinstance(graph.x, SparseMatrix):
        given["x"] = graph.x.to_dense()
    if graph.num_classes is not None:
        given["num_classes"] = graph.num_classes
    if graph.edge_label_index is not None and graph.y is not None:
        given["edge_label"] = given.pop("y")
    if graph.batch is not None:
        given["ptr"] = graph.ptr
    return given
