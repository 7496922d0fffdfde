"""Fields of a `Graph`: which belong to its nodes, edges and examples, and what they may hold.

Whatever cuts, joins or stacks graphs goes through these names, so that no field is lost.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..checks import check_length
from ..warn import warn
from .checks import MASKS, check_constant, check_index

FLOATS = (
    "several answers are y.float() with target=fgl.targets.ANSWERS, and several numbers y.float() "
    "with fgl.targets.REGRESSION"
)
NODE_FIELDS = ("node_id", "node_type")  # beside the features
EDGE_FIELDS = ("edge_weight", "edge_attr", "edge_type", "edge_time")
EXAMPLE_FIELDS = ("y", "edge_label_type", *MASKS)
DERIVED = ("pool", "ptr", "edges_of", "in_order", "entry_order", "reading")  # kept, of other edges


def present(graph: Any, names: Sequence[str]) -> dict[str, Tensor]:
    """The fields of these names that a graph has.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), edge_type=torch.tensor([3]))
        >>> present(graph, EDGE_FIELDS)
        {'edge_type': tensor([3])}
    """
    values = {name: getattr(graph, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def taken(graph: Any, names: Sequence[str], index: Tensor) -> dict[str, Tensor]:
    """The rows `index` (int64 ``[m]``) of the fields that a graph has.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> taken(graph, EXAMPLE_FIELDS, torch.tensor([1]))
        {'y': tensor([1])}
    """
    return {name: value[index] for name, value in present(graph, names).items()}


def inside(pairs: Tensor, position: Tensor) -> Tensor:
    """Columns of ``[2, *]`` whose two ends have a position, one that is at least 0."""
    has = position >= 0
    return (has[pairs[0]] & has[pairs[1]]).nonzero().squeeze(1)


def learned(graph: Any, **values: Tensor) -> Any:
    """The graph with features or weights that a gradient is taken to, which no client's graph has.

    Args:
        graph: made of the same values without a gradient, which checks them.
        values: the fields.

    Example:
        >>> x = torch.eye(2, requires_grad=True)
        >>> learned(fgl.Graph(x.detach(), torch.tensor([[0], [1]])), x=x).x.requires_grad
        True
    """
    other = copy.copy(graph)
    for name in ("adj", *DERIVED):
        other.__dict__.pop(name, None)
    other.__dict__.update(values)
    return other


def check_edge_field(name: str, value: Any, num_edges: int) -> None:
    """Raise unless a field of the edges has one finite number, type or row for each of them."""
    if name == "edge_type":
        check_index(name, value, (num_edges,), None)
        return
    if not isinstance(value, Tensor):
        raise TypeError(f"Expected {name} to be a float tensor, but got {type(value).__name__}")
    whole_times = name == "edge_time" and value.dtype == torch.int64
    if not value.is_floating_point() and not whole_times:
        hint = ": call .float(), and .long() where a model embeds it" if name == "edge_attr" else ""
        raise TypeError(f"Expected {name} to be a float tensor, but got {value.dtype}{hint}")
    if name != "edge_attr":
        check_length(num_edges, **{name: value})
    elif value.dim() != 2 or value.shape[0] != num_edges:
        got = list(value.shape)
        raise ValueError(f"Expected edge_attr to have shape [{num_edges}, *], but got {got}")
    check_constant(name, value)
    if not torch.isfinite(value).all():
        raise ValueError(f"Expected {name} to be finite, but got NaN or infinite values")


def check_pair_type(value: Any, pairs: Tensor | None) -> None:
    """Raise unless each pair has one relation."""
    if pairs is None:
        raise ValueError("Expected edge_label_index beside edge_label_type, but got none")
    check_index("edge_label_type", value, (pairs.shape[1],), None)


def check_y(y: Any, num_examples: int, num_classes: int | None) -> None:
    """Raise unless `y` is labels, int64 ``[n]``, or numbers, float ``[n]`` or ``[n, t]``.

    A number may be NaN: it is unknown.
    """
    if not isinstance(y, Tensor) or not y.is_floating_point():
        if isinstance(y, Tensor) and y.dim() == 2 and not y.is_complex():
            one = "y.squeeze(1)" if y.shape[1] == 1 else FLOATS
            raise ValueError(
                f"Expected y to have shape [{num_examples}], but got {list(y.shape)} of {y.dtype}: "
                f"{one}"
            )
        if isinstance(y, Tensor) and y.dtype != torch.int64:
            raise TypeError(
                f"Expected y to be an int64 tensor, but got {y.dtype}: call .long() for classes, "
                "or .float() for numbers and for answers (target=fgl.targets.ANSWERS)"
            )
        hint = ": give who has no label any, and keep it out of the masks"
        check_index("y", y, (num_examples,), num_classes, hint)
        return
    if y.dim() not in (1, 2) or y.shape[0] != num_examples:
        raise ValueError(
            f"Expected y to have shape [{num_examples}] or [{num_examples}, *], "
            f"but got {list(y.shape)}"
        )
    check_constant("y", y)
    if y.isinf().any():
        raise ValueError("Expected y to be finite, or NaN where it is unknown, but got infinity")
    if num_classes is not None:
        raise ValueError(
            f"Expected num_classes to be left out beside y of {y.dtype}, but got {num_classes}"
        )


def counted_classes(y: Tensor) -> int:
    """The largest label plus one; a warning says how many of the labels below it do not occur.

    One label alone, as of a small graph of a collection, has no gaps.

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
            "y.unique(return_inverse=True)[1] numbers those that occur from 0",
        )
    return count
