"""Conversion of PyG's `Data` or `Batch` to a `Graph` and back.

The conversion raises an error if a `Graph` cannot store a field of PyG's data.
"""

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ..checks import check_index, reject_if
from ..sparse import SparseMatrix
from .checks import MASKS
from .fields import TENSORS as READ
from .fields import mask_of

DERIVED = ("ptr", "num_nodes", "num_classes", "edge_label")
PAIR_KEYS = ("edge_label", "edge_label_index")
IDS = {  # names of fields with ids of examples, which become masks
    "train_mask": ("train_idx", "train_index"),
    "val_mask": ("val_idx", "valid_idx", "val_index", "valid_index"),
    "test_mask": ("test_idx", "test_index"),
}
ALL_IDS = tuple(name for names in IDS.values() for name in names)


def fields_of(data: Any, split: int | None, ignore: Collection[str]) -> dict[str, Any]:
    """Convert PyG's data, or an object with the attributes of such data, to a `Graph`'s fields."""
    _check_kind(data)
    _check_all_read(data, ignore)
    fields = {name: None if name in ignore else getattr(data, name, None) for name in READ}
    if fields["edge_index"] is None and getattr(data, "adj_t", None) is not None:
        fields |= edges_of(data.adj_t)
    if fields["x"] is None and fields["pos"] is not None and "x" not in ignore:
        fields["x"] = fields["pos"].new_zeros(len(fields["pos"]), 0)
        if fields["edge_index"] is None:
            fields["edge_index"] = torch.zeros(2, 0, dtype=torch.int64, device=fields["pos"].device)
    way = "give every node a 1, data.x = torch.ones(data.num_nodes, 1)"
    got = f"None: {way}, and count neighbours by fgl.data.degree_features if you like"
    reject_if(fields["x"] is None, "data.x to be the features of nodes", got)
    fields |= _answers(data, fields, ignore)
    fields |= {name: one_split(name, fields[name], split) for name in MASKS}
    fields |= {name: narrowed(fields[name]) for name in ("x", "edge_attr", "edge_weight", "pos")}
    ids = {name: getattr(data, name, None) for name in ALL_IDS if name not in ignore}
    fields |= masks_of_ids(fields, ids, _num_examples(fields))
    fields["edge_attr"] = in_columns(fields["edge_attr"])
    y = fields["y"]
    if y is not None and _are_of_nodes(y, fields["batch"]):
        fields["batch"] = None  # a batch of graphs whose nodes have labels becomes one graph
    numbers = y is not None and y.is_floating_point()
    return {**fields, "num_classes": None if numbers else getattr(data, "num_classes", None)}


def _check_kind(data: Any) -> None:
    kind = type(data).__name__
    types = isinstance(getattr(data, "edge_types", None), (list, tuple))
    got = f"{kind}: see fgl.data.from_hetero"
    reject_if(types, "data to have nodes and edges of one type", got, TypeError)
    if isinstance(data, (list, tuple)):
        kind = f"a {kind}"
        way = "Graph.from_pyg(Batch.from_data_list(data)) makes a collection of graphs"
    elif isinstance(data, Dataset):
        way = "dataset[0] is one, and Batch.from_data_list(list(dataset)) all of them"
    elif isinstance(data, Tensor | Mapping) or not hasattr(data, "x"):
        way = "Graph.from_pyg(Data(x=..., edge_index=...))"
    else:
        return
    raise TypeError(f"Expected data to be a Data or a Batch, but got {kind}: {way}")


def _are_of_nodes(y: Tensor, owners: Tensor | None) -> bool:
    """Return whether the labels `y` are labels of nodes. `owners` contains each node's graph.

    Raises:
        ValueError: if `y` has one float per node. Such floats are ambiguous: they could be one
            label per node, or several labels per graph.
    """
    if owners is None or not len(owners) == len(y) > 1 + owners[-1:].sum():
        return False
    ways = "numbers of a graph are y [1, t] in each Data; for numbers of nodes set batch to None"
    got = f"{list(y.shape)}, one for each node: {ways}"
    reject_if(y.is_floating_point(), "y to have a row for each graph", got)
    return True


def in_columns(attr: Tensor | None) -> Tensor | None:
    """Turn edge features ``[E]`` into one column, ``[E, 1]``."""
    return attr[:, None] if attr is not None and attr.dim() == 1 else attr


def _num_examples(fields: Mapping[str, Any]) -> int:
    if fields.get("edge_label_index") is not None:
        return int(fields["edge_label_index"].shape[-1])
    y = fields["y"]
    return int(fields["x"].shape[0] if y is None or not y.dim() else y.shape[0])


def _check_all_read(data: Any, ignore: Collection[str]) -> None:
    """Raise an error if a field would be lost in the conversion."""
    keys = getattr(data, "keys", None)
    stored = {str(key) for key in keys()} if callable(keys) else set()
    readable = {*READ, *DERIVED, *ALL_IDS, *ignore}
    readable |= {"adj_t"} if getattr(data, "edge_index", None) is None else set()
    unread = sorted(key for key in stored - readable if getattr(data, key, None) is not None)
    events = {"src", "dst", "t"} <= set(unread)
    fields = "edge_index=torch.stack([data.src, data.dst]), edge_time=data.t, edge_attr=data.msg"
    got = f"times of events: give them as Data(x=..., {fields})"
    reject_if(events, "data to be a Data or a Batch", got)
    of_nodes = _times_nodes(*(getattr(data, n, None) for n in ("time", "x", "edge_index")))
    ways = f"see fgl.Graph for their names, or leave them out by ignore={unread}"
    got = f"{unread} besides: {hint(unread, of_nodes=of_nodes)}{ways}"
    reject_if(unread, "data to have fields that a Graph has", got)


def _times_nodes(time: Any, x: Any, edge_index: Any) -> bool:
    """Whether `time` has a value for each node instead of each edge."""
    if not all(isinstance(each, Tensor) for each in (time, x, edge_index)):
        return False
    return bool(len(time) == len(x) != edge_index.shape[-1])


def hint(unread: Collection[str], *, of_nodes: bool = False) -> str:
    """A hint for an unread field: how a `Graph` stores such data of nodes or edges."""
    if of_nodes and {"time", "t"} & {*unread}:
        return "a Graph has times of edges alone, and a column of x holds those of nodes; "
    if {"time", "t"} & {*unread}:
        return "times of edges are called edge_time; "
    if {"pos_edge_label_index", "pos_edge_label"} & {*unread}:
        return "RandomLinkSplit(split_labels=False) makes edge_label of both; "
    if {"src_index", "dst_pos_index"} & {*unread}:
        return "RandomLinkSplit(neg_sampling='binary') makes edge_label of triplets; "
    return ""


def _answers(data: Any, fields: dict[str, Any], ignore: Collection[str]) -> dict[str, Any]:
    """Labels ``[n]`` or float targets; for pairs, PyG's ``edge_label``."""
    labels = None if "edge_label" in ignore else getattr(data, "edge_label", None)
    if labels is None:
        return {"y": flat(fields.get("y"))}
    pairs = pairs_of(labels, fields.get("edge_label_index"), fields.get("edge_index"))
    of_nodes = ["y"] if fields.get("y") is not None else []
    of_nodes += [
        n for n in MASKS if fields.get(n) is not None and fields[n].shape[:1] != labels.shape[:1]
    ]
    ways = f"ignore={of_nodes} learns edge_label, and ignore={[*PAIR_KEYS]} learns y"
    got = f"both edge_label and {of_nodes}, the nodes': {ways}"
    reject_if(of_nodes, "data to have y or edge_label", got)
    return {"y": flat(labels), "edge_label_index": pairs}


def pairs_of(labels: Tensor, pairs: Tensor | None, edge_index: Tensor | None) -> Tensor:
    """The labelled node pairs: `edge_label_index` or, if it is missing, all edges."""
    pairs = edge_index if pairs is None else pairs
    if pairs is None or pairs.shape[1:] != labels.shape[:1]:
        got = "none" if pairs is None else f"{pairs.shape[1]} edges"
        raise ValueError(
            "Expected edge_label_index beside edge_label, or an edge for each of the "
            f"{list(labels.shape)} labels, but got {got}"
        )
    return pairs


def flat(y: Tensor | None) -> Tensor | None:
    """Convert labels ``[n, 1]`` to ``[n]``."""
    return y.squeeze(1) if y is not None and y.dim() == 2 and y.shape[1] == 1 else y


def narrowed(value: Any) -> Any:
    """Convert float64, NumPy's default, to torch's default dtype, which models use."""
    if isinstance(value, Tensor) and value.dtype == torch.float64:
        return value.to(torch.get_default_dtype())
    return value


def edges_of(adj_t: Any) -> dict[str, Tensor]:
    """Edges of PyG's field ``adj_t``, a sparse matrix with targets as rows and sources as columns.

    PyG's transform `ToSparseTensor` writes this field. The values of ``adj_t`` become
    `edge_weight`. If each edge has several values, they become `edge_attr`. The values are dropped
    if all of them are 1.

    Raises:
        TypeError: if ``adj_t`` is not a sparse tensor of torch or of torch-sparse.
    """
    if isinstance(adj_t, Tensor) and adj_t.layout != torch.strided:
        coo = adj_t.to_sparse_coo().coalesce()
        (target, source), value = coo.indices(), coo.values()
    elif callable(getattr(adj_t, "coo", None)):
        target, source, value = adj_t.coo()
    else:
        raise TypeError(
            f"Expected data.adj_t to be a sparse tensor, but got {type(adj_t).__name__}: "
            "data.edge_index = adj_t.t().nonzero().t()"
        )
    edges = {"edge_index": torch.stack([source, target])}
    if value is None or (value == 1).all():
        return edges
    return {**edges, "edge_weight" if value.dim() == 1 else "edge_attr": value}


def masks_of_ids(
    masks: Mapping[str, Any], ids: Mapping[str, Any], num_examples: int
) -> dict[str, Tensor]:
    """Convert the ids of training, validation and test examples to masks.

    Raises:
        ValueError: if there are both a mask and ids for the same examples, or if an id is outside
            ``[0, num_examples)``.
    """
    new = {}
    for mask, names in IDS.items():
        for name in names:
            own = ids.get(name)
            if own is None:
                continue
            both = masks.get(mask) is not None or mask in new
            reject_if(both, f"{mask} or {name}", f"both: ignore=[{name!r}] reads {mask}")
            if isinstance(own, Tensor) and own.dtype == torch.bool:
                new[mask] = own
                continue
            check_index(name, own, (None,), num_examples)
            new[mask] = mask_of(own, num_examples)
    return new


def one_split(name: str, mask: Tensor | None, split: int | None) -> Tensor | None:
    """Select one column of a mask ``[n, splits]``."""
    if mask is None or mask.dim() != 2:
        return mask
    count = mask.shape[1]
    expected = f"split to be one of the {count} that data.{name} has, from 0"
    reject_if(split is None or not 0 <= split < count, expected, split)
    return mask[:, split]


def pyg_fields(graph: Any) -> dict[str, Any]:
    """The content of a graph as attributes of a PyG object, with dense features."""
    fields = {name: value for name in READ if (value := getattr(graph, name)) is not None}
    if isinstance(graph.x, SparseMatrix):
        fields["x"] = graph.x.to_dense()
    if graph.num_classes is not None:
        fields["num_classes"] = graph.num_classes
    if graph.edge_label_index is not None and graph.y is not None:
        fields["edge_label"] = fields.pop("y")
    if graph.batch is not None:
        fields["ptr"] = graph.ptr
    return fields
