"""PyG's `HeteroData` as one typed graph, and the way back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from ..graph import MASKS, Graph
from ..graph.checks import check_index
from ..graph.pyg import (
    ALL_IDS,
    edges_of,
    flat,
    hint,
    masks_of_ids,
    narrowed,
    one_split,
    pairs_of,
)
from ..kinds import typed
from ..sparse import SparseMatrix
from .typed import Relation, typed_graph

NODE_KEYS = ("x", "y", "num_nodes", *MASKS, *ALL_IDS)
PAIR_KEYS = ("edge_label", "edge_label_index")
EDGE_KEYS = ("edge_index", "edge_attr", "edge_time", *PAIR_KEYS)


@typed
def from_hetero(
    data: Any,
    *,
    both: bool = False,
    split: int | None = None,
    targets: Collection[str] | None = None,
    ignore: Collection[str] = (),
) -> Graph:
    """PyG's `HeteroData` as one graph, see `typed_graph`.

    Args:
        data: its node types may have `x`, `y` and masks, or ids such as ``train_idx`` for these;
            its edge types `edge_index` or ``adj_t``, `edge_attr` and `edge_time`. One of them may
            have ``edge_label``, as `RandomLinkSplit` leaves it: the examples are then the pairs of
            its ``edge_label_index``, or else its edges.
        both: whether each relation gets a reverse.
        split: which one of masks ``[n, splits]``, from 0.
        targets: types of nodes whose `y` and masks are read, where several have `y`; if more than
            one is named, all count the same classes. Default all.
        ignore: names of fields that are left out.

    Returns:
        The graph; types and relations have the numbers of their places in ``data.node_types`` and
        ``data.edge_types``.

    Raises:
        TypeError: if `data` has no types: see `fgl.Graph.from_pyg`.
        ValueError: for a field that a typed graph has not, labels of several types or relations,
            labels of nodes and of pairs, and as `typed_graph`.

    Example:
        >>> from torch_geometric.data import HeteroData  # doctest: +SKIP
        >>> data = HeteroData()  # doctest: +SKIP
        >>> data["paper"].x, data["author"].num_nodes = torch.rand(3, 5), 2  # doctest: +SKIP
        >>> data["paper", "by", "author"].edge_index = torch.tensor([[0], [1]])  # doctest: +SKIP
        >>> from_hetero(data).num_features  # doctest: +SKIP
        6
    """
    _check_types("data", data)
    fields = _fields(data, ignore)
    for of, adj in fields["adj_t"].items():
        own = edges_of(adj)
        fields["edge_index"][of] = own["edge_index"]
        if len(own) > 1:
            fields["edge_attr"][of] = own.get("edge_weight", own.get("edge_attr"))
    nodes = {of: narrowed(fields["x"].get(of, data[of].num_nodes)) for of in data.node_types}
    unknown = [of for of, own in nodes.items() if own is None]
    if unknown:
        raise ValueError(
            f"Expected data[{unknown[0]!r}] to have x or num_nodes, but got neither: "
            f"data[{unknown[0]!r}].num_nodes = ..."
        )
    for name in MASKS:
        fields[name] = {of: one_split(name, mask, split) for of, mask in fields[name].items()}
    for of in data.node_types:
        masks, ids = ({n: fields[n].get(of) for n in names} for names in (MASKS, ALL_IDS))
        for name, mask in masks_of_ids(masks, ids, data[of].num_nodes).items():
            fields[name][of] = mask
    labels = _of_targets(fields, targets)
    attr = {of: a[:, None] if a.dim() == 1 else a for of, a in fields["edge_attr"].items()}
    attr = {of: narrowed(a) for of, a in attr.items()}
    edges = {of: fields["edge_index"][of] for of in data.edge_types}
    times = fields["edge_time"] or None
    if not fields["edge_label"]:
        return typed_graph(
            nodes, edges, both=both, edge_attr=attr or None, edge_time=times, **labels
        )
    if any(labels.values()):
        of_nodes = [name for name, own in labels.items() if own]
        raise ValueError(
            f"Expected labels of nodes or of pairs, but got edge_label and {of_nodes}: "
            f"ignore={of_nodes} learns edge_label, and ignore={[*PAIR_KEYS]} learns y"
        )
    graph = typed_graph(nodes, edges, both=both, edge_attr=attr or None, edge_time=times)
    return graph.replace(**_pairs(data, fields))


def _fields(data: Any, ignore: Collection[str]) -> dict[str, dict[Any, Any]]:
    """Each field by the types of nodes or edges that have it.

    Raises:
        ValueError: for one that has no place in a typed graph and is not ignored.
    """
    fields: dict[str, dict[Any, Any]] = {n: {} for n in (*NODE_KEYS, *EDGE_KEYS, "adj_t")}
    for of, values in data.to_dict().items():
        keys = NODE_KEYS if of in data.node_types else EDGE_KEYS if of in data.edge_types else ()
        if keys is EDGE_KEYS and values.get("edge_index") is None:
            keys = (*keys, "adj_t")
        left = [key for key, value in values.items() if value is not None and key not in keys]
        unread = [key for key in left if key not in ignore]
        if unread:
            where = "data itself" if of == "_global_store" else f"data[{of!r}]"
            raise ValueError(
                f"Expected {where} to have {list(keys)}, but got {unread} besides: "
                f"{hint(unread, of_nodes=of in data.node_types)}"
                f"leave them out by ignore={unread}"
            )
        for key in keys:
            if values.get(key) is not None and key not in ignore:
                fields[key][of] = values[key]
    return fields


def _of_targets(
    fields: dict[str, dict[Any, Any]], targets: Collection[str] | None
) -> dict[str, Any]:
    """Labels and masks of the types of nodes that are learned, for `typed_graph`."""
    y = {of: flat(own) for of, own in fields["y"].items()}
    wrong = [name for name in targets or () if name not in y]
    if isinstance(targets, str) or wrong:
        raise ValueError(f"Expected targets to be a list of {list(y)}, but got {targets!r}")
    several = [of for of, own in y.items() if own is not None and not own.is_floating_point()]
    if targets is None and len(several) > 1:
        raise ValueError(
            "Expected y of one type of nodes, since the classes of two types are not one, but got "
            f"y of {several}: targets={several[:1]} reads the first alone"
        )
    read = y if targets is None else {of: y[of] for of in targets}
    labels: dict[str, Any] = {"y": read or None}
    for name in MASKS:
        others = [of for of in fields[name] if y and of not in read]
        if others and targets is None:
            raise ValueError(
                f"Expected {name} to be of types with y, but got it of {others}: "
                f"targets={list(read)} leaves it out"
            )
        labels[name] = {of: m for of, m in fields[name].items() if of not in others} or None
    if len([of for of in read if of in several]) > 1:
        labels["num_classes"] = 1 + max(int(own.max()) for own in read.values() if own is not None)
    return labels


def _pairs(data: Any, fields: dict[str, dict[Any, Any]]) -> dict[str, Any]:
    """The pairs that one relation asks about, in the numbers of all nodes, and their answers."""
    copies = {(end, f"rev_{name}", start) for start, name, end in fields["edge_label"]}
    relations = [of for of in fields["edge_label"] if of not in copies]  # ToUndirected copies them
    if len(relations) > 1:
        raise ValueError(
            f"Expected edge_label of one relation, but got it of {relations}: "
            f"del data[{relations[1]}].edge_label, and its edge_label_index, leaves one out"
        )
    of = relations[0]
    labels, edges = fields["edge_label"][of], fields["edge_index"][of]
    pairs = pairs_of(labels, fields["edge_label_index"].get(of), edges)
    sizes = [data[name].num_nodes for name in data.node_types]
    start = dict(zip(data.node_types, [0, *accumulate(sizes)], strict=False))
    shift = pairs.new_tensor([[start[of[0]]], [start[of[2]]]])
    for row, name in zip(pairs, (of[0], of[2]), strict=True):
        check_index(f"edge_label_index of {of}", row, (None,), data[name].num_nodes)
    return {"edge_label_index": pairs + shift, "y": flat(labels)}


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
        hint = ": fgl.Graph.from_pyg(data) reads one type" if hasattr(data, "edge_index") else ""
        raise TypeError(f"Expected {name} to have types of nodes and edges, but got {got}{hint}")


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
    """Names of relations, then the names of reverses if the graph has any."""
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
    """Refuse edges whose ends have other types than their relation."""
    expected = [node_types.index(name) for name in (relation[0], relation[2])]
    if (types != types.new_tensor(expected)[:, None]).any():
        raise ValueError(f"Expected edges of {relation} to join these types, but got others")
