"""Typed graphs: nodes and edges of several types in one `Graph`, and paths along relations."""

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from ..checks import check_index, check_kind, reject_if
from ..graph import Graph
from ..graph.checks import check_features
from ..graph.fields import mask_of
from ..sparse import SparseMatrix

Relation = tuple[str, str, str]  # type of the source, name, type of the target
OfNodes = Mapping[str, Tensor] | None  # type of nodes -> their values
OfEdges = Mapping[Relation, Tensor] | None
Sizes = Mapping[str, int]


def typed_graph(
    nodes: Mapping[str, Tensor | SparseMatrix | int],
    relations: Mapping[Relation, Tensor],
    *,
    both: bool = False,
    y: Mapping[str, Tensor] | None = None,
    num_classes: int | None = None,
    train_mask: Mapping[str, Tensor] | None = None,
    val_mask: Mapping[str, Tensor] | None = None,
    test_mask: Mapping[str, Tensor] | None = None,
    edge_attr: Mapping[Relation, Tensor] | None = None,
    edge_time: Mapping[Relation, Tensor] | None = None,
) -> Graph:
    """Join nodes and edges of several types into one graph with `node_type` and `edge_type`.

    Types and relations are numbered in the order of the dicts. Nodes are sorted by type. The
    features are one sparse matrix with separate columns for each type. One linear map of this
    matrix is therefore equivalent to a separate linear map for each type. The edge features also
    have separate columns for each relation.

    Args:
        nodes: dict from type to features ``[n_t, d_t]``, or to a number of nodes. In the second
            case, each node of the type gets a single feature with value 1.
        relations: dict from ``(source type, name, target type)`` to ``edge_index [2, E_r]``.
            Indices of nodes start at 0 within each type.
        both: whether to add the reverse of each relation as a separate relation. A reverse edge
            gets the features and the time of the original edge. The given relations get the first
            numbers. The reverse relations get the next numbers, in the same order.
        y: dict from type to the labels or floats of the type's nodes. All entries have the same
            dtype. Nodes of a type that is not in the dict get label 0, or NaN if `y` holds floats.
        num_classes: number of classes. The default is the largest label plus one. This argument is
            required if several types have labels. Giving the number confirms that all of these
            types have the same classes, so equal labels mean the same class.
        train_mask, val_mask, test_mask: dict from type to bool ``[n_t]``. If `y` is given, only
            types in `y` may have masks. Nodes of types without a mask are in no mask. If
            `train_mask` is None, the training nodes are all nodes of the types in `y`, except
            validation and test nodes.
        edge_attr: dict from relation to features ``[E_r, d_r]``. Edges of a relation that is not in
            the dict get zeros.
        edge_time: dict from relation to times ``[E_r]``. Either all relations have times, or no
            relation has times.

    Returns:
        The graph; its x is a `SparseMatrix`.

    Raises:
        ValueError: if a type or a relation is unknown, if a value has the wrong shape, or if
            several types have labels and `num_classes` is None.
        TypeError: if a value has the wrong Python type or the wrong dtype.

    Example:
        >>> graph = typed_graph(
        ...     {"paper": torch.rand(3, 5), "author": 2},
        ...     {("paper", "by", "author"): torch.tensor([[0, 1, 2], [0, 0, 1]])},
        ...     both=True,
        ...     y={"author": torch.tensor([1, 0])},
        ... )
        >>> graph.num_nodes, graph.num_features, graph.edge_type
        (5, 6, tensor([0, 0, 0, 1, 1, 1]))

    Source: Schlichtkrull et al. 2018, https://arxiv.org/abs/1703.06103
    """
    reject_if(not nodes, "nodes to have a type", "none")
    blocks = {name: _features(name, x) for name, x in nodes.items()}
    sizes = {name: x.shape[0] for name, x in blocks.items()}
    start = dict(zip(blocks, [0, *accumulate(sizes.values())], strict=False))
    ends = [_ends(each, edges, sizes, start) for each, edges in relations.items()]
    edge_index = torch.cat([torch.zeros(2, 0, dtype=torch.int64), *ends], 1)
    fields: dict[str, Any] = {
        "edge_type": _numbers([edges.shape[1] for edges in ends]),
        "edge_attr": _side_by_side(relations, edge_attr),
        "edge_time": _one_by_one(relations, edge_time),
    }
    if both:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], 1)
        twice = {k: torch.cat([v, v]) for k, v in fields.items() if v is not None}
        twice["edge_type"][len(fields["edge_type"]) :] += len(ends)
        fields = twice
    masks = {"train_mask": train_mask, "val_mask": val_mask, "test_mask": test_mask}
    return Graph(
        _block_diagonal(list(blocks.values())),
        edge_index,
        num_classes=num_classes,
        node_type=_numbers(list(sizes.values())),
        **_answers(y, masks, num_classes, sizes),
        **fields,
    )


def with_shared(graph: Graph, parts: Sequence[Tensor], types: Collection[int]) -> list[Tensor]:
    """Add nodes of shared types to each part if an edge joins them to a node of the part.

    For example, every client gets the conferences of all papers that the client has. Without this
    function, each conference would belong to only one client.

    Args:
        graph: a graph with `node_type`.
        parts: int64 node ids, one tensor per client.
        types: the node types that clients share.

    Returns:
        One tensor per client: the given part, followed by the added nodes. The new parts may
        overlap.

    Raises:
        ValueError: if nodes have no types.

    Example:
        >>> graph = typed_graph({"paper": 3, "venue": 1}, {("paper", "at", "venue"):
        ...     torch.tensor([[0, 1, 2], [0, 0, 0]])})
        >>> with_shared(graph, [torch.tensor([0, 1]), torch.tensor([2, 3])], types=[1])
        [tensor([0, 1, 3]), tensor([2, 3])]
    """
    if graph.node_type is None:
        raise ValueError("Expected the graph to have node_type, but got none")
    shared = torch.isin(graph.node_type, torch.tensor(list(types), device=graph.device))
    source, target = graph.edge_index
    joined = []
    for part in parts:
        check_index("nodes", part, (None,), graph.num_nodes)
        own = mask_of(part, graph.num_nodes)
        ends = torch.cat([target[own[source]], source[own[target]]])
        touched = mask_of(ends, graph.num_nodes)
        joined.append(torch.cat([part, (touched & shared & ~own).nonzero().squeeze(1)]))
    return joined


def _features(name: str, x: Tensor | SparseMatrix | int) -> SparseMatrix:
    if isinstance(x, int):
        x = torch.ones(x, 1)
    check_features(x)
    return x if isinstance(x, SparseMatrix) else SparseMatrix.from_dense(x)


def _block_diagonal(blocks: Sequence[SparseMatrix]) -> SparseMatrix:
    """The matrix with these blocks on its diagonal."""
    rows = [0, *accumulate(block.shape[0] for block in blocks)]
    cols = [0, *accumulate(block.shape[1] for block in blocks)]
    row = torch.cat([b.pattern.row + r for b, r in zip(blocks, rows, strict=False)])
    col = torch.cat([b.pattern.col + c for b, c in zip(blocks, cols, strict=False)])
    values = torch.cat([block.values for block in blocks])
    return SparseMatrix.from_entries(row, col, (rows[-1], cols[-1]), values)


def _answers(
    y: OfNodes, masks: dict[str, OfNodes], num_classes: int | None, sizes: Sizes
) -> dict[str, Any]:
    """Labels and masks of all nodes, from each type's labels and masks."""
    if y is not None and masks["train_mask"] is None:
        masks = {**masks, "train_mask": {name: _others(name, y, masks) for name in y}}
    check_names("y", y, sizes)
    for name, value in masks.items():
        check_names(name, value, sizes if y is None else y)
    labelled = [name for name, own in (y or {}).items() if not own.is_floating_point()]
    expected = "y to be of one type of nodes, since the classes of two types are not one"
    got = f"{labelled}: leave out the others, or give num_classes if all count the same"
    reject_if(len(labelled) > 1 and num_classes is None, expected, got)
    return {name: _of_nodes(name, value, sizes) for name, value in {"y": y, **masks}.items()}


def _others(name: str, y: Mapping[str, Tensor], masks: Mapping[str, OfNodes]) -> Tensor:
    """Nodes of one type that are outside all masks of this type."""
    others = torch.ones(len(y[name]), dtype=torch.bool)
    for mask in masks.values():
        own = (mask or {}).get(name)
        if own is not None and own.dtype == torch.bool and own.shape == others.shape:
            others &= ~own
    return others


def _ends(relation: Relation, edges: Tensor, sizes: Sizes, start: Sizes) -> Tensor:
    """Edges of a relation, as node indices of the whole graph."""
    source, _, target = relation
    unknown = [name for name in (source, target) if name not in sizes]
    reject_if(unknown, f"{relation} to join {list(sizes)}", unknown)
    check_index(f"edge_index of {relation}", edges, (2, None), None)
    for row, name in zip(edges, (source, target), strict=True):
        check_index(f"edge_index of {relation}", row, (None,), sizes[name])
    return edges + torch.tensor([[start[source]], [start[target]]])


def _numbers(counts: Sequence[int]) -> Tensor:
    """Repeat each index i ``counts[i]`` times, starting with index 0."""
    return torch.arange(len(counts)).repeat_interleave(torch.tensor(counts, dtype=torch.int64))


def check_names(name: str, value: Mapping[Any, Any] | None, allowed: Mapping[Any, Any]) -> None:
    """Raise a ValueError if a mapping has keys that are not allowed."""
    unknown = [key for key in value or {} if key not in allowed]
    reject_if(unknown, f"{name} to be of {list(allowed)}", unknown)


def _of_nodes(name: str, values: OfNodes, sizes: Sizes) -> Tensor | None:
    """Join a field of all types into one field; types without the field get False, 0 or NaN."""
    if not values:
        return None
    first = next(iter(values.values()))
    unknown = torch.nan if first.is_floating_point() else 0
    parts = []
    for of, size in sizes.items():
        shape = (size, *first.shape[1:])
        own = values[of] if of in values else first.new_full(shape, unknown)
        check_kind(f"{name} of {of!r}", own, first.dtype, shape)
        parts.append(own)
    return torch.cat(parts)


def _side_by_side(relations: Mapping[Relation, Tensor], values: OfEdges) -> Tensor | None:
    """Features of edges, with separate columns for each relation."""
    check_names("edge_attr", values, relations)
    if not values:
        return None
    for of, own in values.items():
        size = relations[of].shape[1]
        wrong = own.dim() != 2 or own.shape[0] != size
        reject_if(wrong, f"edge_attr of {of} to have shape [{size}, *]", list(own.shape))
    bounds = pairwise([0, *accumulate(own.shape[1] for own in values.values())])
    width = sum(own.shape[1] for own in values.values())
    like = next(iter(values.values()))
    rows = {of: like.new_zeros(edges.shape[1], width) for of, edges in relations.items()}
    for (of, own), (first, end) in zip(values.items(), bounds, strict=True):
        rows[of][:, first:end] = own
    return torch.cat([*rows.values()])


def _one_by_one(relations: Mapping[Relation, Tensor], values: OfEdges) -> Tensor | None:
    check_names("edge_time", values, relations)
    if not values:
        return None
    lacking = [of for of in relations if of not in values]
    reject_if(lacking, "edge_time of all relations", f"none of {lacking}")
    return torch.cat([values[of] for of in relations])


def metapaths(graph: Graph, paths: Sequence[Sequence[int]]) -> Graph:
    """Build a graph whose relations are meta-paths: sequences of a typed graph's relations.

    Relation k has an edge from u to v if there is a path from u to v whose edges have the types
    ``paths[k]``, in this order. These edges are the nonzero entries of ``A_{r_m} ... A_{r_1}``.
    Several paths from u to v give only one edge. A path from u to u gives a self-loop.

    Args:
        graph: a graph with `edge_type`.
        paths: one sequence of edge types per meta-path. Each sequence has at least one edge type.

    Returns:
        The graph with the new edges. The `edge_type` of an edge is the index of the edge's
        meta-path. All fields of edges except `edge_type` are dropped.

    Raises:
        ValueError: if edges have no types, or if a path is empty.

    Example:
        >>> by = {("paper", "by", "author"): torch.tensor([[0, 1], [0, 0]])}
        >>> graph = fgl.data.typed_graph({"paper": 2, "author": 1}, by, both=True)
        >>> graph = graph.replace(edge_weight=torch.ones(4))
        >>> metapaths(graph, [[0, 1]]).edge_index
        tensor([[0, 1, 0, 1],
                [0, 0, 1, 1]])
        >>> metapaths(graph, [[0, 1]]).has("edge_weight")
        False

    Source: Wang et al. 2019, Heterogeneous Graph Attention Network,
    https://arxiv.org/abs/1903.07293
    """
    got = "a path without" if graph.has("edge_type") else "none"
    typed_paths = graph.has("edge_type") and all(map(len, paths))
    reject_if(not typed_paths, "edges with types and paths of them", got)
    joined = [_composed(graph, path) for path in paths]
    counts = torch.tensor([edges.shape[1] for edges in joined], dtype=torch.int64)
    empty = torch.zeros(2, 0, dtype=torch.int64)
    return graph.replace(
        edge_index=torch.cat([empty, *joined], 1).to(graph.device),
        edge_type=torch.arange(len(joined)).repeat_interleave(counts).to(graph.device),
        edge_weight=None,
        edge_attr=None,
        edge_time=None,
    )


def _composed(graph: Graph, path: Sequence[int]) -> Tensor:
    """The edges ``[2, *]`` of a path, sorted by target."""
    from scipy.sparse import csr_matrix, identity

    edge_index, edge_type = graph.edge_index.cpu(), graph.edge_type.cpu()  # type: ignore[union-attr]
    n = graph.num_nodes
    product = identity(n, dtype=bool, format="csr")
    for relation in path:
        source, target = edge_index[:, edge_type == relation].numpy()
        ones = torch.ones(len(source), dtype=torch.bool).numpy()
        product = csr_matrix((ones, (target, source)), shape=(n, n), dtype=bool) @ product
    product.sum_duplicates()
    entries = product.tocoo()
    return torch.stack([torch.from_numpy(entries.col).long(), torch.from_numpy(entries.row).long()])
