"""PyG's `HeteroData` as one typed graph, and the way back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from ..graph import MASKS, Graph
from ..graph.pyg import one_split
from ..kinds import typed
from ..sparse import SparseMatrix
from .typed import Relation, typed_graph

NODE_KEYS = ("x", "y", "num_nodes", *MASKS)
EDGE_KEYS = ("edge_index", "edge_attr", "edge_time")


@typed
def from_hetero(
    data: Any, *, both: bool = False, split: int | None = None, ignore: Collection[str] = ()
) -> Graph:
    """PyG's `HeteroData` as one graph, see `typed_graph`.

    Args:
        data: its node types may have `x`, `y` and masks, its edge types `edge_index`, `edge_attr`
            and `edge_time`.
        both: whether each relation gets a reverse.
        split: which one of masks ``[n, splits]``, from 0.
        ignore: names of other fields, which are left out.

    Returns:
        The graph; types and relations have the numbers of their places in ``data.node_types`` and
        ``data.edge_types``.

    Raises:
        TypeError: if `data` has no types: see `fgl.Graph.from_pyg`.
        ValueError: for a field that a typed graph has not, and as `typed_graph`.

    Example:
        >>> from torch_geometric.data import HeteroData  # doctest: +SKIP
        >>> data = HeteroData()  # doctest: +SKIP
        >>> data["paper"].x, data["author"].num_nodes = torch.rand(3, 5), 2  # doctest: +SKIP
        >>> data["paper", "by", "author"].edge_index = torch.tensor([[0], [1]])  # doctest: +SKIP
        >>> from_hetero(data).num_features  # doctest: +SKIP
        6
    """
    _check_types("data", data)
    stored = data.to_dict()
    given: dict[str, dict[Any, Any]] = {name: {} for name in (*NODE_KEYS, *EDGE_KEYS)}
    for of, values in stored.items():
        keys = NODE_KEYS if of in data.node_types else EDGE_KEYS if of in data.edge_types else ()
        left = [key for key, value in values.items() if value is not None and key not in keys]
        unread = [key for key in left if key not in ignore]
        if unread:
            where = "data itself" if of == "_global_store" else f"data[{of!r}]"
            times = "times of edges are called edge_time; " if "time" in unread else ""
            raise ValueError(
                f"Expected {where} to have {list(keys)}, but got {unread} besides: {times}leave "
                f"them out by ignore={unread}"
            )
        for key in keys:
            if values.get(key) is not None and key not in ignore:
                given[key][of] = values[key]
    for name in MASKS:
        given[name] = {of: one_split(name, mask, split) for of, mask in given[name].items()}
    given["y"] = {of: _flat(y) for of, y in given["y"].items()}
    attr = {of: a[:, None] if a.dim() == 1 else a for of, a in given["edge_attr"].items()}
    nodes = {of: given["x"].get(of, data[of].num_nodes) for of in data.node_types}
    edges = {of: given["edge_index"][of] for of in data.edge_types}
    others: Any = {name: given[name] or None for name in ("y", *MASKS, "edge_time")}
    return typed_graph(nodes, edges, both=both, edge_attr=attr or None, **others)


@typed
def to_hetero(graph: Graph, like: Any) -> Any:
    """A typed graph as PyG's `HeteroData` again: the whole one, or a client's.

    Args:
        graph: what `from_hetero` made of `like`, or a part of that.
        like: the `HeteroData` that names the types and relations, and says which of them have
            features, labels, masks, and features and times of edges. Its numbers are not read.

    Returns:
        A new object of ``like``'s class. Nodes of a type are in the graph's order, features dense.
        Reverses (``both=True``) are named as by PyG's `ToUndirected`: ``(b, "rev_r", a)``.
        `node_id` is PyG's ``n_id``. Masks that the graph got later belong to the types with labels.
        Reverses without an edge in this graph are left out.

    Raises:
        TypeError: if `like` has no types.
        ValueError: if the graph has no types, or others than `like`, or its examples are pairs; if
            a reverse has the name of a relation of `like`.

    Example:
        >>> from torch_geometric.data import HeteroData  # doctest: +SKIP
        >>> data = HeteroData()  # doctest: +SKIP
        >>> data["paper"].x, data["author"].num_nodes = torch.rand(3, 5), 2  # doctest: +SKIP
        >>> data["paper", "by", "author"].edge_index = torch.tensor([[0], [1]])  # doctest: +SKIP
        >>> part = from_hetero(data).subgraph(torch.tensor([0, 2]))  # doctest: +SKIP
        >>> to_hetero(part, data)["paper"].x.shape  # doctest: +SKIP
        torch.Size([2, 5])
    """
    _check_types("like", like)
    if graph.node_type is None or graph.edge_type is None:
        raise ValueError("Expected the graph to have node_type and edge_type, but got none")
    if graph.edge_label_index is not None:
        raise ValueError("Expected the graph's examples to be nodes, but got pairs")
    if graph.num_nodes and int(graph.node_type.max()) >= len(like.node_types):
        got = int(graph.node_type.max()) + 1
        raise ValueError(f"Expected {len(like.node_types)} types of nodes, but got {got}")
    data, place = type(like)(), torch.zeros_like(graph.node_type)
    blocks = _blocks("x", graph.num_features, [_width(like[of], "x", 1) for of in like.node_types])
    for number, (of, block) in enumerate(zip(like.node_types, blocks, strict=True)):
        own = (graph.node_type == number).nonzero().squeeze(1)
        place[own] = torch.arange(len(own), device=graph.device)
        data[of].num_nodes = len(own)
        if "x" in like[of]:
            data[of].x = _cut(graph.x, own, block)
        if graph.node_id is not None:
            data[of].n_id = graph.node_id[own]
        for name in ("y", *MASKS):
            value = getattr(graph, name)
            if value is not None and (name in like[of] or "y" in like[of]):
                data[of][name] = value[own]
    attr = graph.edge_attr
    width = 0 if attr is None else attr.shape[1]
    widths = [0 if attr is None else _width(like[of], "edge_attr", 0) for of in like.edge_types]
    blocks = _blocks("edge_attr", width, widths)
    for number, of in enumerate(_relations(graph.edge_type, like.edge_types)):
        own = (graph.edge_type == number).nonzero().squeeze(1)
        _check_ends(of, graph.node_type[graph.edge_index[:, own]], like.node_types)
        data[of].edge_index = place[graph.edge_index[:, own]]
        block = blocks[number % len(blocks)]
        if attr is not None and len(block):
            data[of].edge_attr = attr[own][:, block.start : block.stop]
        for name in ("edge_time", "edge_weight"):
            if (value := getattr(graph, name)) is not None:
                data[of][name] = value[own]
    return data


def _check_types(name: str, data: Any) -> None:
    if not isinstance(getattr(data, "edge_types", None), list | tuple):
        got = type(data).__name__
        raise TypeError(f"Expected {name} to have types of nodes and edges, but got {got}")


def _width(stored: Any, name: str, otherwise: int) -> int:
    """Columns of a field of one type."""
    if name not in stored:
        return otherwise
    return 1 if stored[name].dim() == 1 else int(stored[name].shape[1])


def _blocks(name: str, width: int, widths: Sequence[int]) -> list[range]:
    """Columns of each type, side by side."""
    if sum(widths) != width:
        raise ValueError(f"Expected {name} to have {sum(widths)} columns, but got {width}")
    return [range(*ends) for ends in pairwise([0, *accumulate(widths)])]


def _cut(x: Tensor | SparseMatrix, rows: Tensor, columns: range) -> Tensor:
    if isinstance(x, Tensor):
        return x[rows, columns.start : columns.stop]
    chosen = torch.arange(columns.start, columns.stop, device=rows.device)
    return x.rows(rows).T.rows(chosen).T.to_dense()


def _relations(edge_type: Tensor, named: Sequence[Relation]) -> list[Relation]:
    """Names of relations, those of reverses behind them if the graph has any."""
    reverses = [(target, f"rev_{name}", source) for source, name, target in named]
    count = int(edge_type.max()) + 1 if len(edge_type) else 0
    if count > 2 * len(named):
        raise ValueError(f"Expected {len(named)} relations, or twice as many, but got {count}")
    if count <= len(named):
        return list(named)
    twice = [each for each in reverses if each in named]
    if twice:
        raise ValueError(f"Expected reverses to have names of their own, but got {twice[0]} twice")
    return [*named, *reverses]


def _check_ends(relation: Relation, types: Tensor, node_types: Sequence[str]) -> None:
    """Refuse edges whose ends are of other types than their relation says."""
    wanted = [node_types.index(name) for name in (relation[0], relation[2])]
    if (types != types.new_tensor(wanted)[:, None]).any():
        raise ValueError(f"Expected edges of {relation} to join these types, but got others")


def _flat(y: Tensor) -> Tensor:
    return y.squeeze(1) if y.dim() == 2 and y.shape[1] == 1 else y
