"""Checks of a `Graph`'s fields."""

from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from ..checks import check_index, reject_if
from ..sparse import SparseMatrix

MASKS = ("train_mask", "val_mask", "test_mask")
ROWS = 2**16  # rows that are checked at a time: mapped features may be larger than memory


def check_features(x: Any) -> None:
    wrong = not isinstance(x, (Tensor, SparseMatrix))
    reject_if(wrong, "x to be a Tensor or SparseMatrix", type(x).__name__, TypeError)
    layout = x.layout if isinstance(x, Tensor) else torch.strided
    got = f"a {layout} tensor: x.to_dense()"
    reject_if(layout != torch.strided, "x to be dense or a SparseMatrix", got, TypeError)
    series = len(x.shape) == 3 and isinstance(x, Tensor)
    shapes = "[num_nodes, num_features], or [num_nodes, num_times, num_features] for a series"
    reject_if(len(x.shape) != 2 and not series, f"x to have shape {shapes}", list(x.shape))
    values = x.value if isinstance(x, SparseMatrix) else x
    if values is not None:
        _check_values(values)


def _check_values(values: Tensor) -> None:
    how = "call .float(), and .long() where a model embeds it"
    if values.is_complex():
        how = "torch.view_as_real(x).flatten(1) has the real and imaginary parts as columns"
    got = f"{values.dtype}: {how}"
    reject_if(not values.is_floating_point(), "x to be floating point", got, TypeError)
    check_constant("x", values)
    bad = sum(int((~torch.isfinite(part)).sum()) for part in values.split(ROWS))
    marked = ": torch.cat([x.nan_to_num(), x.isnan().to(x)], -1) marks unknown values"
    reject_if(bad, "x to be finite", f"{bad} NaN or infinite values{marked}")


def check_constant(name: str, value: Tensor) -> None:
    """Raise an error if a value requires a gradient, since only models are trained."""
    expected = f"{name} to require no gradient, since only models are trained"
    reject_if(value.requires_grad, expected, f"one that does: {name}.detach()")


def check_devices(fields: dict[str, Any], device: torch.device) -> None:
    """Raise an error if a field is not on the device of the edges, except features on the CPU."""
    for name, value in fields.items():
        own = value.device if isinstance(value, (Tensor, SparseMatrix)) else device
        elsewhere = own != device and not (name == "x" and own.type == "cpu")
        got = f"it on {own}: {name}.to({str(device)!r})"
        reject_if(elsewhere, f"{name} to be on {device} as edge_index", got)


def check_roles(masks: dict[str, Tensor]) -> None:
    """Raise an error if an example is in two masks, such as the training mask and the test mask."""
    pairs = list(combinations(masks.items(), 2))
    counts = [(one & two).sum() for (_, one), (_, two) in pairs]
    shared = torch.stack(counts).tolist() if counts else []
    for ((one, _), (two, _)), count in zip(pairs, shared, strict=True):
        got = f"{count} in both {one} and {two}: {two} & ~{one} has the others"
        reject_if(count, "an example to be in one mask", got)


def check_pairs(pairs: Tensor | None, pair_type: Any, batch: Any, num_nodes: int) -> None:
    """Raise an error if a graph has both pairs and a `batch`, or has pair types but no pairs."""
    if pairs is not None:
        check_index("edge_label_index", pairs, (2, None), num_nodes)
        reject_if(batch is not None, "edge_label_index or batch", "both")
    elif pair_type is not None:
        raise ValueError("Expected edge_label_index beside edge_label_type, but got none")


def check_batch(batch: Any, edge_index: Tensor, num_nodes: int) -> None:
    """Raise an error unless `batch` is sorted from 0 without gaps and no edge joins two graphs."""
    check_index("batch", batch, (num_nodes,), None)
    reject_if(num_nodes == 0, "batch to name a graph", "no nodes")
    reject_if(batch[0] != 0, "batch to begin with 0", int(batch[0]))
    step = batch.diff()
    wrong = (step != 0) & (step != 1)
    if wrong.any():
        node = int(wrong.nonzero()[0]) + 1
        one, two = int(batch[node - 1]), int(batch[node])
        raise ValueError(
            f"Expected batch to be sorted and every graph to have nodes, "
            f"but got {one}, then {two} at node {node}"
        )
    source, target = batch[edge_index]
    if not torch.equal(source, target):
        edge = int((source != target).nonzero()[0])
        raise ValueError(
            f"Expected edges to stay inside a graph, but got edge {edge} "
            f"from graph {int(source[edge])} to graph {int(target[edge])}"
        )
