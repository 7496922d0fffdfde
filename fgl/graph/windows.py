"""Windows of a time series: each window has input times and target times for all nodes.

The examples of a graph with `window_index` are windows. Each window has targets for every node.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ..checks import check_index, reject_if
from .checks import MASKS
from .fields import TIME_FIELDS, taken

CELLS = 2**20  # nodes x times that a model reads at once during evaluation


def check_windows(graph: Any) -> None:
    """Raise an error if a window's times are outside the series or its targets precede its inputs.

    Raises:
        ValueError: if a window is invalid; the error names the field.
    """
    present = [name for name in TIME_FIELDS if getattr(graph, name) is not None]
    if not present:
        return
    both = " and ".join(TIME_FIELDS)
    reject_if(len(present) < len(TIME_FIELDS), f"{both} together", f"{present[0]} alone")
    for name in ("batch", "edge_label_index"):
        reject_if(getattr(graph, name) is not None, f"window_index or {name}", "both")
    shape, y = list(graph.x.shape), graph.y
    series = "a series [num_nodes, num_times, num_features]"
    reject_if(len(shape) != 3, f"x to be {series} beside window_index", shape)
    if y is not None:
        reject_if(
            list(y.shape) != shape[:2] or not y.is_floating_point(),
            f"y to be float {shape[:2]}, a number for each node and time, beside window_index",
            f"{y.dtype} {list(y.shape)}",
        )
    reads, asks = graph.window_index, graph.horizon_index
    for name, times in (("window_index", reads), ("horizon_index", asks)):
        check_index(name, times, (None, None), shape[1])
        reject_if(not times.shape[1], f"{name} to have a time for each window", "none")
    late = (asks.amin(1) <= reads.amax(1)).nonzero().flatten()
    if len(late):
        row = int(late[0])
        raise ValueError(
            "Expected horizon_index to be later than the times that a window reads, but got "
            f"{int(asks[row].min())} for window {row}, which reads {int(reads[row].max())}"
        )
    width = 2 * (shape[2] + 1)
    if graph.scale is not None:
        columns = f"{width} columns, means and deviations of {shape[2]} features and of y"
        reject_if(graph.scale.shape[1] != width, f"scale to have {columns}", graph.scale.shape[1])


def check_no_series(graph: Any, what: str) -> None:
    """Raise an error if a graph is a time series.

    Functions that would lose the times of a time series call this function first.

    Raises:
        ValueError: if the graph is a time series. The error contains `what`, the name of the
            calling function.
    """
    shape = list(graph.x.shape)
    expected = f"a graph whose x is [num_nodes, num_features] for {what}"
    reject_if(len(shape) == 3, expected, f"a series {shape}")


def read(graph: Any) -> Any:
    """A model's input: `x`; for a time series, windows ``[w, steps, num_nodes, num_features]``.

    Windows are scaled.
    """
    if not graph.has("window_index"):
        return graph.x
    inputs = graph.x.transpose(0, 1)[graph.window_index].contiguous()
    if not graph.has("scale"):
        return inputs
    mean, deviation = _scale(graph)
    return (inputs - mean[:, :-1]) / deviation[:, :-1]


def unscaled(graph: Any, output: Any) -> Any:
    """Convert a model's output for windows to the units of `y`; return any other output unchanged.

    Raises:
        ValueError: if the output for windows has the wrong shape.
    """
    if not (graph.has("window_index") and isinstance(output, Tensor)):
        return output
    shape = [len(graph.window_index), graph.x.shape[0], graph.horizon_index.shape[1]]
    expected = f"the model to give {shape}, windows by nodes by horizons"
    reject_if(list(output.shape) != shape, expected, list(output.shape))
    if not graph.has("scale"):
        return output
    mean, deviation = _scale(graph)
    return output * deviation[:, -1:] + mean[:, -1:]


def _scale(graph: Any) -> tuple[Tensor, Tensor]:
    """Means and deviations of the features and of `y`; 1 replaces a deviation of 0."""
    mean, deviation = graph.scale.chunk(2, -1)
    return mean, torch.where(deviation > 0, deviation, 1.0)


def by_answer(graph: Any, mask: Tensor | None, output: Any = None) -> tuple[Any, Any, Any]:
    """Reshape `y`, a mask and a model's output: each then has one row per window and node.

    An output ``[w, num_nodes, horizons]`` for w windows becomes ``[w * num_nodes, horizons]``. If
    the graph is not a time series, nothing is reshaped.

    Raises:
        ValueError: if the output for windows has the wrong shape.
    """
    if not graph.has("window_index"):
        return output, graph.y, mask
    mask = graph.example_mask if mask is None else mask
    each = (mask[:, None] * graph.node_mask.to(mask.dtype)).flatten()
    if not graph.has("y"):
        return output, None, each
    y = graph.y.transpose(0, 1)[graph.horizon_index].transpose(1, 2)
    return None if output is None else output.flatten(0, 1), y.flatten(0, 1), each


def asked(graph: Any, output_of: Callable[[Any], Any]) -> Callable[[Tensor], tuple[Any, Any, Any]]:
    """Return a function that maps a mask to three tensors of equal length: output, `y` and mask.

    Args:
        graph: the graph. The model is called once for the whole graph. For a time series, the
            windows that the mask selects are split into batches. The model is called once per
            batch, and None is returned in place of the mask.
        output_of: ``graph -> output``.
    """
    if not graph.has("window_index"):
        output = output_of(graph)
        return lambda mask: (output, graph.y, mask)
    size = max(CELLS // max(graph.window_index.shape[1] * graph.num_nodes, 1), 1)

    def of_windows(mask: Tensor) -> tuple[Any, Any, Any]:
        parts = [graph.select(rows) for rows in mask.nonzero().squeeze(1).split(size)]
        answers = [by_answer(part, None, output_of(part))[:2] for part in parts if part.num_answers]
        if not answers:
            none = graph.y.new_zeros(0, graph.num_outputs)
            return none, none, None
        output, y = (torch.cat(each) for each in zip(*answers, strict=True))
        return output, y, None

    return of_windows


def select_windows(graph: Any, rows: Tensor) -> Any:
    """Return the series with only the windows of these ids (int64 ``[m]``); nothing is checked.

    The result shares the series, the edges, and the adjacency matrix with the given graph.
    """
    graph.adj  # noqa: B018  # computed once for all parts
    other = copy.copy(graph)
    for name in ("reading", "masked"):
        other.__dict__.pop(name, None)
    other.__dict__.update(taken(graph, (*TIME_FIELDS, *MASKS), rows))
    return other


def check_same_windows(graphs: Iterable[Any]) -> None:
    """Raise an error unless all series have equal horizons, and all or none of them are scaled.

    Otherwise the outputs of one model would have different meanings for different series.

    Example:
        >>> check_same_windows([fgl.data.load("synthetic")])
    """
    series = [own for own in graphs if own.has("window_index") and own.num_examples]
    ahead = sorted({tuple(each) for each in map(horizons, series) if each})
    reject_if(len(ahead) > 1, "horizons to be the same in all series", ahead)
    scaled = {own.has("scale") for own in series}
    reject_if(len(scaled) > 1, "scaled to be the same in all series", "True and False")


def horizons(graph: Any) -> list[int]:
    """Distances of target times from a window's end, if all windows have the same distances."""
    if not graph.has("window_index") or not graph.num_examples:
        return []
    ahead = graph.horizon_index - graph.window_index.amax(1, keepdim=True)
    return [] if (ahead != ahead[0]).any() else ahead[0].tolist()
