"""Fields of a `Graph`: dtype, shape, and owner of the rows (nodes, edges or examples).

All functions that cut, join or stack graphs use the names in this file, so no field is lost.
"""

import copy
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..checks import check_index, check_length, check_mask, reject_if
from ..warn import warn
from .checks import MASKS, check_constant

AnyGraph = TypeVar("AnyGraph")
FLOATS = (
    "several answers are y.float() with target=fgl.targets.ANSWERS, and several numbers y.float() "
    "with fgl.targets.REGRESSION"
)


class Field(NamedTuple):
    """Description of a field: owner of its rows, dtype, shape, and default for missing rows.

    `numbers` is ``"float"``, ``"int64"``, ``"bool"`` or, for times, ``"float or int64"``. If graphs
    are joined, a field without a default must be in all of the graphs or in none of them.
    """

    owner: str
    numbers: str = "int64"
    shape: tuple[None, ...] = ()
    default: float | None = None


# All fields except x, edge_index, batch and edge_label_index; `y` has a separate check.
FIELDS = {
    "node_id": Field("node"),
    "node_type": Field("node"),
    "edge_weight": Field("edge", "float", default=1.0),
    "edge_attr": Field("edge", "float", (None,)),
    "edge_type": Field("edge"),
    "edge_time": Field("edge", "float or int64"),
    "edge_label_type": Field("pair"),
    "z": Field("node"),
    "pos": Field("node", "float", (None,)),
    "u": Field("example", "float", (None,)),
    "scale": Field("node", "float", (None,)),
    "window_index": Field("time", "int64", (None,)),
    "horizon_index": Field("time", "int64", (None,)),
    **{name: Field("example", "bool", default=0.0) for name in MASKS},
}
NODE_FIELDS, EDGE_FIELDS, TIME_FIELDS = (
    tuple(name for name, field in FIELDS.items() if field.owner == owner)
    for owner in ("node", "edge", "time")
)
TENSORS = ("x", "edge_index", *FIELDS, "edge_label_index", "batch", "y")
EXAMPLE_FIELDS = ("y", "u", "edge_label_type", *MASKS)
UNFILLED = tuple(  # fields that new nodes and edges must have
    name for name in (*EDGE_FIELDS, *NODE_FIELDS) if name not in ("edge_weight", "node_id")
)
# Cached values that are invalid after a change of edges.
DERIVED = ("adj", "pool", "ptr", "edges_of", "in_order", "entry_order", "reading", "masked")


def present(graph: Any, names: Iterable[str]) -> dict[str, Tensor]:
    """Dict of the graph's fields whose names are in `names`; missing fields are left out.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), edge_type=torch.tensor([3]))
        >>> present(graph, EDGE_FIELDS)
        {'edge_type': tensor([3])}
    """
    values = {name: getattr(graph, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def taken(graph: Any, names: Iterable[str], index: Tensor) -> dict[str, Tensor]:
    """Select rows of the graph's fields whose names are in `names`; missing fields are left out.

    The tensor `index` (int64 ``[m]``) contains the numbers of the rows.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> taken(graph, EXAMPLE_FIELDS, torch.tensor([1]))
        {'y': tensor([1])}
    """
    return {name: value[index] for name, value in present(graph, names).items()}


def mask_of(ids: Tensor, size: int) -> Tensor:
    """A bool mask ``[size]`` that is True at some ids.

    Example:
        >>> mask_of(torch.tensor([2, 0]), 3)
        tensor([ True, False,  True])
    """
    mask = torch.zeros(size, dtype=torch.bool, device=ids.device)
    mask[ids] = True
    return mask


def masks_of(ids: Iterable[Tensor], size: int) -> dict[str, Tensor]:
    """The masks of training, validation and test examples, from the ids of each.

    Example:
        >>> masks_of([torch.tensor([0]), torch.tensor([1]), torch.tensor([1])], 2)["val_mask"]
        tensor([False,  True])
    """
    return {name: mask_of(own, size) for name, own in zip(MASKS, ids, strict=True)}


def inside(pairs: Tensor, position: Tensor) -> Tensor:
    """Indices of the columns of ``[2, *]`` in which both entries are at least 0."""
    has = position >= 0
    return (has[pairs[0]] & has[pairs[1]]).nonzero().squeeze(1)


def learned(graph: AnyGraph, **values: Tensor) -> AnyGraph:
    """A copy of a graph with new values of some fields; the new values may require gradients.

    Args:
        graph: a graph that already has the new values, as tensors without gradients. The graph's
            constructor has checked these values, so the new tensors are not checked again.
        values: the new values by name of the field.

    Example:
        >>> x = torch.eye(2, requires_grad=True)
        >>> learned(fgl.Graph(x.detach(), torch.tensor([[0], [1]])), x=x).x.requires_grad
        True
    """
    return changed_copy(graph, **values)


def changed_copy(graph: AnyGraph, **values: Any) -> AnyGraph:
    """A copy with changed values, without checks and without the results cached for the old values.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]))
        >>> changed_copy(graph, edge_index=graph.edge_index.flip(0)).adj.to_dense()
        tensor([[0., 1.],
                [0., 0.]])
    """
    other = copy.copy(graph)
    for name in DERIVED:
        other.__dict__.pop(name, None)
    other.__dict__.update(values)
    return other


def check_field(name: str, value: Any, size: int) -> None:
    """Raise an error unless a field is finite, needs no gradient, and has the shape in `FIELDS`."""
    field = FIELDS[name]
    if field.numbers == "int64":
        return check_index(name, value, (size, *field.shape), None)
    if field.numbers == "bool":
        return check_mask(name, value, size)
    wrong = not isinstance(value, Tensor)
    reject_if(wrong, f"{name} to be a float tensor", type(value).__name__, TypeError)
    whole = value.dtype == torch.int64 and field.numbers == "float or int64"
    if not (value.is_floating_point() or whole):
        hint = ": call .float(), and .long() where a model embeds it" if field.shape else ""
        raise TypeError(f"Expected {name} to be a float tensor, but got {value.dtype}{hint}")
    if not field.shape:
        check_length(size, **{name: value})
    elif value.dim() != 2 or value.shape[0] != size:
        got = list(value.shape)
        raise ValueError(f"Expected {name} to have shape [{size}, *], but got {got}")
    check_constant(name, value)
    reject_if(not torch.isfinite(value).all(), f"{name} to be finite", "NaN or infinite values")


def check_y(y: Any, num_examples: int, num_classes: int | None) -> None:
    """Raise an error unless `y` holds class labels or float targets.

    Class labels are int64 ``[n]``. Float targets are ``[n]`` or ``[n, t]``.

    NaN means an unknown target.
    """
    if not isinstance(y, Tensor) or not y.is_floating_point():
        return _check_classes(y, num_examples, num_classes)
    expected = f"y to have shape [{num_examples}] or [{num_examples}, *]"
    reject_if(y.dim() not in (1, 2) or y.shape[0] != num_examples, expected, list(y.shape))
    check_constant("y", y)
    reject_if(y.isinf().any(), "y to be finite, or NaN where it is unknown", "infinity")
    expected = f"num_classes to be left out beside y of {y.dtype}"
    reject_if(num_classes is not None, expected, num_classes)


def _check_classes(y: Any, num_examples: int, num_classes: int | None) -> None:
    if isinstance(y, Tensor):
        one = "y.squeeze(1)" if y.shape[-1:] == (1,) else FLOATS
        got = f"{list(y.shape)} of {y.dtype}: {one}"
        reject_if(y.dim() == 2 and not y.is_complex(), f"y to have shape [{num_examples}]", got)
        others = "or .float() for numbers and for answers (target=fgl.targets.ANSWERS)"
        got = f"{y.dtype}: call .long() for classes, {others}"
        reject_if(y.dtype != torch.int64, "y to be an int64 tensor", got, TypeError)
    hint = ": replace negative labels by 0, and leave these examples out of the masks"
    check_index("y", y, (num_examples,), num_classes, hint)


def counted_classes(y: Tensor) -> int:
    """The largest label plus one; if fewer different labels occur, a warning gives both numbers.

    A single label, as in a small graph of a collection, causes no warning.

    Example:
        >>> counted_classes(torch.tensor([0, 2, 1]))
        3
    """
    used = y.unique()
    count = int(used[-1]) + 1
    if count > used.numel() > 1:
        warn(
            f"Labels are 0 to {count - 1}, but only {used.numel()} of these {count} occur: "
            f"num_classes={count} says that all are classes, and "
            "y.unique(return_inverse=True)[1] numbers those that occur from 0; if label "
            f"{count - 1} of example {int(y.argmax())} is a mistake, correct it"
        )
    return count
