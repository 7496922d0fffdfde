"""Conversions between PyG's `HeteroData` and one typed graph."""

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from ..checks import check_index, reject_if
from ..graph import MASKS, Graph, pyg
from ..graph.fields import taken
from ..sparse import SparseMatrix
from .copies import node_fingerprints
from .splits.reverses import turned_relations, warn_of_copies
from .typed import Relation, typed_graph

NODE_KEYS = ("x", "y", "num_nodes", *MASKS, *pyg.ALL_IDS)
EDGE_KEYS = ("edge_index", "edge_attr", "edge_time", *pyg.PAIR_KEYS)


def from_hetero(
    data: Any,
    *,
    both: bool = False,
    split: int | None = None,
    targets: Collection[str] | None = None,
    ignore: Collection[str] = (),
) -> Graph:
    """Convert PyG's `HeteroData` to one typed graph, as described in `typed_graph`.

    Args:
        data: the `HeteroData`. A node type may have `x`, `y` and masks. Ids such as ``train_idx``
            may replace the masks. An edge type has `edge_index` or ``adj_t``, and may have
            `edge_attr` and `edge_time`. One edge type may have ``edge_label``, as after
            `RandomLinkSplit`. In that case the examples are the pairs in ``edge_label_index`` of
            this edge type. Without ``edge_label_index``, the examples are all edges of this edge
            type. In both cases, the masks of this edge type have one entry per example.
        both: whether to add a reverse of each relation.
        split: column to read if masks have the shape ``[n, splits]``; the first column is 0.
        targets: node types whose `y` and masks are read, if several types have `y`. The class
            numbers must have the same meaning in all of these types. By default all types are read.
        ignore: names of fields that are not read.

    Returns:
        The graph. Types and relations are numbered by their positions in ``data.node_types`` and
        ``data.edge_types``.

    Raises:
        TypeError: if `data` has no types. For data without types, use `fgl.Graph.from_pyg`.
        ValueError: if a field has no equivalent in a typed graph, or if `typed_graph` raises a
            ValueError. A ValueError is also raised if several node types have classes and `targets`
            is None, if several relations have ``edge_label``, or if both nodes and pairs have
            labels.

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
    nodes = _nodes(data, fields["x"])
    _read_adj(fields)
    _read_masks(data, fields, split)
    pairs = _pairs(data, fields) if fields["edge_label"] else {}
    labels = _of_targets(fields, targets)
    edges = {of: fields["edge_index"][of] for of in data.edge_types}
    attr = {of: pyg.narrowed(pyg.in_columns(own)) for of, own in fields["edge_attr"].items()}
    of_edges: dict[str, Any] = {"edge_attr": attr or None, "edge_time": fields["edge_time"] or None}
    if not pairs:
        return typed_graph(nodes, edges, both=both, **of_edges, **labels)
    of_nodes = [name for name, own in labels.items() if own]
    ways = f"ignore={of_nodes} learns edge_label, and ignore={[*pyg.PAIR_KEYS]} learns y"
    reject_if(of_nodes, "labels of nodes or of pairs", f"edge_label and {of_nodes}: {ways}")
    return typed_graph(nodes, edges, both=both, **of_edges).replace(**pairs)


Fields = dict[str, dict[Any, Any]]  # field name -> type of nodes or edges -> value


def _fields(data: Any, ignore: Collection[str]) -> Fields:
    """For each field, a dict from node types or edge types to the values of the field.

    Raises:
        ValueError: if a field has no equivalent in a typed graph and is not ignored.
    """
    fields: Fields = {n: {} for n in (*NODE_KEYS, *EDGE_KEYS, "adj_t")}
    for of, values in data.to_dict().items():
        keys = _keys(data, of, values)
        read = {k: value for k, value in values.items() if value is not None and k not in ignore}
        unread = [key for key in read if key not in keys]
        where = "data itself" if of == "_global_store" else f"data[{of!r}]"
        hint = pyg.hint(unread, of_nodes=of in data.node_types)
        got = f"{unread} besides: {hint}leave them out by ignore={unread}"
        reject_if(unread, f"{where} to have {list(keys)}", got)
        for key, value in read.items():
            fields[key][of] = value
    return fields


def _keys(data: Any, of: Any, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the fields that a type of nodes or edges may have."""
    if of in data.node_types:
        return NODE_KEYS
    if of not in data.edge_types:
        return ()
    masks = MASKS if values.get("edge_label") is not None else ()
    adj = () if values.get("edge_index") is not None else ("adj_t",)
    return (*EDGE_KEYS, *masks, *adj)


def _nodes(data: Any, x: Mapping[str, Any]) -> dict[str, Any]:
    """For each node type, the features, or the number of nodes if the type has no features."""
    nodes = {of: pyg.narrowed(x.get(of, data[of].num_nodes)) for of in data.node_types}
    for of, own in nodes.items():
        expected = f"data[{of!r}] to have x or num_nodes"
        reject_if(own is None, expected, f"neither: data[{of!r}].num_nodes = ...")
    return nodes


def _read_adj(fields: Fields) -> None:
    """Add the edges of each relation with ``adj_t``, and the weights or features of these edges."""
    for of, adj in fields["adj_t"].items():
        for name, value in pyg.edges_of(adj).items():
            fields["edge_attr" if name == "edge_weight" else name][of] = value


def _read_masks(data: Any, fields: Fields, split: int | None) -> None:
    """Select one split of each mask; for types with ids instead of masks, build the masks."""
    for name in MASKS:
        fields[name] = {of: pyg.one_split(name, mask, split) for of, mask in fields[name].items()}
    for of in data.node_types:
        masks, ids = ({n: fields[n].get(of) for n in names} for names in (MASKS, pyg.ALL_IDS))
        for name, mask in pyg.masks_of_ids(masks, ids, data[of].num_nodes).items():
            fields[name][of] = mask


def _of_targets(fields: Fields, targets: Collection[str] | None) -> dict[str, Any]:
    """Labels and masks of the target node types, for `typed_graph`."""
    y: dict[str, Any] = {of: pyg.flat(own) for of, own in fields["y"].items()}
    chosen = list(y) if targets is None else targets
    if isinstance(chosen, str) or not all(name in y for name in chosen):
        raise ValueError(f"Expected targets to be a list of {list(y)}, but got {targets!r}")
    classes = [of for of, own in y.items() if not own.is_floating_point()]
    wrong = targets is None and len(classes) > 1
    expected = "y of one type of nodes, since the classes of two types are not one"
    reject_if(wrong, expected, f"y of {classes}: targets={classes[:1]} reads the first alone")
    read = {of: y[of] for of in chosen}
    labels: dict[str, Any] = {"y": read or None}
    for name in MASKS:
        labels[name] = _of_types(name, fields[name], read, targets is None) if y else fields[name]
    if len({*classes} & {*read}) > 1:
        labels["num_classes"] = 1 + max(int(own.max()) for own in read.values())
    return labels


def _of_types(name: str, masks: dict[Any, Any], types: Collection[str], all_: bool) -> Any:
    """The mask with this name for nodes of these types; None if no type has the mask."""
    others = [of for of in masks if of not in types]
    expected = f"{name} to be of types with y"
    reject_if(others and all_, expected, f"it of {others}: targets={list(types)} leaves it out")
    return {of: mask for of, mask in masks.items() if of in types} or None


def _pairs(data: Any, fields: Fields) -> dict[str, Any]:
    """A relation's pairs as node ids of the whole graph, the pairs' labels, and the pairs' masks.

    The masks of relations are removed from `fields`.
    """
    copies = {(end, f"rev_{name}", start) for start, name, end in fields["edge_label"]}
    relations = [of for of in fields["edge_label"] if of not in copies]  # ToUndirected copies them
    way = f"del data[{relations[-1]}].edge_label, and its edge_label_index, leaves one out"
    reject_if(len(relations) > 1, "edge_label of one relation", f"it of {relations}: {way}")
    of = relations[0]
    labels, edges = fields["edge_label"][of], fields["edge_index"][of]
    pairs = pyg.pairs_of(labels, fields["edge_label_index"].get(of), edges)
    sizes = [data[name].num_nodes for name in data.node_types]
    start = dict(zip(data.node_types, [0, *accumulate(sizes)], strict=False))
    shift = pairs.new_tensor([[start[of[0]]], [start[of[2]]]])
    for row, name in zip(pairs, (of[0], of[2]), strict=True):
        check_index(f"edge_label_index of {of}", row, (None,), data[name].num_nodes)
    kind = torch.full_like(pairs[0], data.edge_types.index(of))
    masks = {name: fields[name][of] for name in MASKS if of in fields[name]}
    for name in MASKS:
        fields[name] = {end: own for end, own in fields[name].items() if isinstance(end, str)}
    answers = {"edge_label_type": kind, "y": pyg.flat(labels), **masks}
    return {"edge_label_index": pairs + shift, **answers}


def from_link_split(train: Any, val: Any, test: Any, **options: Any) -> Graph:
    """Convert the three parts of PyG's `RandomLinkSplit` to one graph with pairs and masks.

    The message edges are the edges of `train`. A validation or test pair must not be a message
    edge. If most edges of a relation have a reverse, the reverse of such a pair must not be a
    message edge either.

    Args:
        train, val, test: the parts. Each part is a ``Data``, or a ``HeteroData`` in which one
            relation has ``edge_label``.
        options: arguments that are passed to `from_hetero` if the parts are ``HeteroData``, and to
            `Graph.from_pyg` if the parts are ``Data``.

    Returns:
        The graph of `train`. The `edge_label_index` of this graph holds the pairs of all three
        parts, `y` holds the pairs' labels, and the masks show to which part each pair belongs.

    Raises:
        ValueError: if a part has no ``edge_label``; if the nodes or the relations of the parts
            differ; if a pair is in two parts; or if a validation or test pair is an edge of
            `train`, or the reverse of an edge.

    Example:
        >>> from torch_geometric.data import Data  # doctest: +SKIP
        >>> from torch_geometric.transforms import RandomLinkSplit  # doctest: +SKIP
        >>> data = Data(x=torch.eye(9), edge_index=torch.randint(9, (2, 30)))  # doctest: +SKIP
        >>> graph = from_link_split(*RandomLinkSplit()(data))  # doctest: +SKIP
    """
    parts = {"train": train, "val": val, "test": test}
    read = from_hetero if hasattr(train, "node_types") else Graph.from_pyg
    graphs = {name: read(data, **options) for name, data in parts.items()}
    first = graphs["train"]
    for name, graph in graphs.items():
        nodes = f"{first.num_nodes} nodes"
        got = f"{graph.num_nodes} nodes" if graph.has("edge_label_index") else "none"
        expected = f"{name} to have edge_label of train's {nodes}, as RandomLinkSplit leaves it"
        reject_if(got != nodes, expected, got)
        same = torch.equal(node_fingerprints(graph, 0), node_fingerprints(first, 0))
        reject_if(not same, f"x of {name} to be x of train", "other features")
        if graph.edge_label_type is not None:
            of = [each.edge_label_type.unique().tolist() for each in (first, graph)]  # type: ignore[union-attr]
            reject_if(of[0] != of[1], f"edge_label of {name} to be of train's relation", of[1])
    _check_apart(graphs)
    pairs, names = list(graphs.values()), OF_PAIRS[: 1 + (first.edge_label_type is not None)]
    sizes = torch.tensor([graph.num_examples for graph in pairs])
    part = torch.arange(3).repeat_interleave(sizes)
    joined = {name: torch.cat([getattr(graph, name) for graph in pairs], -1) for name in names}
    masks = {name: part == number for number, name in enumerate(MASKS)}
    y = torch.cat([graph.y for graph in pairs])  # type: ignore[misc]  # checked
    return first.replace(**joined, **masks, y=y, num_classes=None)


def _check_apart(graphs: Mapping[str, Graph]) -> None:
    """Raise an error if a pair is in two parts, or if a pair or its reverse is a message edge."""
    first, n = graphs["train"], graphs["train"].num_nodes
    relation = None if first.edge_label_type is None else int(first.edge_label_type[0])
    every = torch.ones_like(first.edge_index[0], dtype=torch.bool)
    own: Any = every if relation is None else first.edge_type == relation
    edges: dict[str, Any] = {"train's edges": first.edge_index[:, own]}
    edges |= {f"{name}'s pairs": graph.edge_label_index for name, graph in graphs.items()}
    keys = {name: source * n + target for name, (source, target) in edges.items()}
    earlier = ["train's edges", "train's pairs"]
    for name in ("val's pairs", "test's pairs"):
        for other in earlier:
            both = int(torch.isin(keys[name], keys[other]).sum())
            way = "data.coalesce() before RandomLinkSplit leaves one of equal edges"
            reject_if(both, f"no pair of {name} among {other}", f"{both}: {way}")
        earlier.append(name)
    labelled = torch.cat([graph.edge_label_index for graph in graphs.values()], 1)  # type: ignore[misc]
    is_edge = torch.cat([graph.y for graph in graphs.values()]) != 0  # type: ignore[misc]
    labelled = labelled[:, is_edge]
    whole, kinds = torch.cat([first.edge_index, labelled], 1), None
    if relation is not None:
        kinds = torch.cat([first.edge_type, torch.full_like(labelled[0], relation)])  # type: ignore[list-item]
        warn_of_copies(whole, kinds, relation, n)
    tested = torch.cat([keys["val's pairs"], keys["test's pairs"]])
    source, target = first.edge_index
    for _, turned in turned_relations(whole, kinds, n, only=relation):
        of: Any = every if relation is None else first.edge_type == turned
        reverses = int(torch.isin(tested, (target * n + source)[of]).sum())
        expected = "no edge of train to be the reverse of a pair of val or test"
        ways = "RandomLinkSplit's is_undirected=True, or the rev_edge_types of a typed graph"
        got = f"{reverses}, which tell labels: {ways}, keeps both out"
        reject_if(reverses, expected, got)


OF_PAIRS = ("edge_label_index", "edge_label_type")


def to_hetero(graph: Graph, like: Any) -> Any:
    """Convert a typed graph, or a client's part of a typed graph, back to PyG's `HeteroData`.

    Args:
        graph: the result of ``from_hetero(like)``, or a subgraph of this result.
        like: the original `HeteroData`. The function reads its types, its relations, and the names
            and widths of their fields. The values of the fields are not read.

    Returns:
        A new object of the class of `like`. Within a type, nodes have the order of the graph.
        Features are dense. Reverse relations (``both=True``) are named ``(b, "rev_r", a)``, as in
        PyG's `ToUndirected`. `node_id` becomes PyG's ``n_id``. Each type with labels gets all masks
        of the graph, even masks that the original `HeteroData` does not have. A reverse relation is
        left out if the graph has no edge of this relation. Pairs become the ``edge_label_index`` of
        their relation, and the labels and masks of the pairs become the ``edge_label`` and the
        masks of this relation.

    Raises:
        TypeError: if `like` has no types.
        ValueError: if the graph has no types, if the types of the graph and of `like` differ, if
            the graph has pairs without `edge_label_type`, or if a reverse relation would get the
            name of a relation in `like`.

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
    reject_if(
        graph.edge_label_index is not None and graph.edge_label_type is None,
        "the graph's pairs to have edge_label_type",
        "none: graph.replace(edge_label_type=torch.full_like(graph.edge_label_index[0], relation))",
    )
    types = int(graph.node_type.max()) + 1 if graph.num_nodes else 0
    reject_if(types > len(like.node_types), f"{len(like.node_types)} types of nodes", types)
    data, place = type(like)(), torch.zeros_like(graph.node_type)
    blocks = _blocks("x", graph.num_features, [_width(like[of], "x", 1) for of in like.node_types])
    for number, (of, block) in enumerate(zip(like.node_types, blocks, strict=True)):
        own = (graph.node_type == number).nonzero().squeeze(1)
        place[own] = torch.arange(len(own), device=graph.device)
        _write_nodes(data[of], like[of], graph, own, block)
    _write_edges(data, like, graph, place)
    return data


def _write_nodes(stored: Any, like: Any, graph: Graph, own: Tensor, columns: range) -> None:
    """Write the fields of the nodes of one type."""
    stored.num_nodes = len(own)
    if "x" in like:
        stored.x = _cut(graph.x, own, columns)
    of_nodes = graph.edge_label_index is None
    named = [name for name in ("y", *MASKS) if of_nodes and (name in like or "y" in like)]
    for name, value in taken(graph, ["node_id", *named], own).items():
        stored["n_id" if name == "node_id" else name] = value


def _write_edges(data: Any, like: Any, graph: Any, place: Tensor) -> None:
    """Write each relation and its pairs; `place` contains each node's index within its type."""
    attr, types = graph.edge_attr, graph.edge_type
    widths = [0 if attr is None else _width(like[of], "edge_attr", 0) for of in like.edge_types]
    blocks = _blocks("edge_attr", 0 if attr is None else attr.shape[1], widths)
    for number, of in enumerate(_relations(types, like.edge_types)):
        own = (types == number).nonzero().squeeze(1)
        ends = graph.edge_index[:, own]
        _check_ends(of, graph.node_type[ends], like.node_types)
        data[of].edge_index = place[ends]
        columns = blocks[number % len(blocks)]
        if attr is not None and len(columns):
            data[of].edge_attr = _cut(attr, own, columns)
        for name, value in taken(graph, ("edge_time", "edge_weight"), own).items():
            data[of][name] = value
        if graph.edge_label_index is not None:
            labelled = of in like.edge_types and "edge_label" in like[of]
            _write_pairs(data[of], labelled, graph, number, place)


def _write_pairs(stored: Any, labelled: bool, graph: Any, number: int, place: Tensor) -> None:
    """Write the pairs of one relation.

    If the graph has no pairs, a relation with labels gets empty fields.
    """
    kinds = graph.edge_label_type
    own = (kinds == number).nonzero().squeeze(1)
    if len(own) or (labelled and not len(kinds)):
        stored.edge_label_index = place[graph.edge_label_index[:, own]]
        for name, value in taken(graph, ("y", *MASKS), own).items():
            stored["edge_label" if name == "y" else name] = value


def _check_types(name: str, data: Any) -> None:
    has_types = isinstance(getattr(data, "edge_types", None), list | tuple)
    hint = ": fgl.Graph.from_pyg(data) reads one type" if hasattr(data, "edge_index") else ""
    got = f"{type(data).__name__}{hint}"
    reject_if(not has_types, f"{name} to have types of nodes and edges", got, TypeError)


def _width(stored: Any, name: str, otherwise: int) -> int:
    """Number of columns of a field for one type."""
    if name not in stored:
        return otherwise
    return 1 if stored[name].dim() == 1 else int(stored[name].shape[1])


def _blocks(name: str, width: int, widths: Sequence[int]) -> list[range]:
    """Range of columns of each type; the ranges follow one another."""
    reject_if(sum(widths) != width, f"{name} to have {sum(widths)} columns", width)
    return [range(*ends) for ends in pairwise([0, *accumulate(widths)])]


def _cut(x: Tensor | SparseMatrix, rows: Tensor, columns: range) -> Tensor:
    if isinstance(x, Tensor):
        return x[rows, columns.start : columns.stop]
    chosen = torch.arange(columns.start, columns.stop, device=rows.device)
    return x.rows(rows).T.rows(chosen).T.to_dense()


def _relations(edge_type: Tensor, named: Sequence[Relation]) -> list[Relation]:
    """Names of all relations: first the given relations, and then the reverse relations, if any."""
    reverses = [(target, f"rev_{name}", source) for source, name, target in named]
    count = int(edge_type.max()) + 1 if len(edge_type) else 0
    reject_if(count > 2 * len(named), f"{len(named)} relations, or twice as many", count)
    if count <= len(named):
        return list(named)
    twice = [each for each in reverses if each in named]
    reject_if(twice, "reverses to have names of their own", f"{twice} twice")
    return [*named, *reverses]


def _check_ends(relation: Relation, types: Tensor, node_types: Sequence[str]) -> None:
    """Raise an error if an edge of the relation has an end of the wrong type."""
    expected = [node_types.index(name) for name in (relation[0], relation[2])]
    others = (types != types.new_tensor(expected)[:, None]).any()
    reject_if(others, f"edges of {relation} to join these types", "others")
