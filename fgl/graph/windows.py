"""Windows of a series: the times that a model reads of all nodes, and the ones it is asked about.

The examples of a graph with `window_index` are windows; each of them asks about every node.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .checks import MASKS, check_index
from .fields import TIME_FIELDS, taken

CELLS = 2**20  # times of nodes that a model reads at once where it is scored


def check_windows(graph: Any) -> None:
    """Raise unless windows are times of a series, and ask about later times than they read.

    Raises:
        ValueError: naming the field.
    """
    given = [name for name in TIME_FIELDS if getattr(graph, name) is not None]
    if not given:
        return
    if len(given) < len(TIME_FIELDS):
        raise ValueError(f"Expected {' and '.join(TIME_FIELDS)} together, but got {given[0]} alone")
    for name in ("batch", "edge_label_index"):
        if getattr(graph, name) is not None:
            raise ValueError(f"Expected window_index or {name}, but got both")
    if len(graph.x.shape) != 3:
        raise ValueError(
            "Expected x to be a series [num_nodes, num_times, num_features] beside window_index, "
            f"but got {list(graph.x.shape)}"
        )
    series = list(graph.x.shape[:2])
    y, reads, asks = graph.y, graph.window_index, graph.horizon_index
    if y is not None and (list(y.shape) != series or not y.is_floating_point()):
        raise ValueError(
            f"Expected y to be float {series}, a number for each node and time, beside "
            f"window_index, but got {y.dtype} {list(y.shape)}"
        )
    for name, times in (("window_index", reads), ("horizon_index", asks)):
        check_index(name, times, (None, None), series[1])
        if not times.shape[1]:
            raise ValueError(f"Expected {name} to have a time for each window, but got none")
    late = (asks.amin(1) <= reads.amax(1)).nonzero()
    if len(late):
        first = int(late[0])
        raise ValueError(
            "Expected horizon_index to be later than the times that a window reads, but got "
            f"{int(asks[first].min())} for window {first}, which reads {int(reads[first].max())}"
        )
    width = 2 * (graph.num_features + 1)
    if graph.scale is not None and graph.scale.shape[1] != width:
        raise ValueError(
            f"Expected scale to have {width} columns, means and deviations of {width // 2 - 1} "
            f"features and of y, but got {graph.scale.shape[1]}"
        )


def check_no_series(graph: Any, what: str) -> None:
    """Raise if a graph is a series, of which `what` would lose times.

    Raises:
        ValueError: naming `what`.
    """
    if len(graph.x.shape) == 3:
        raise ValueError(
            f"Expected a graph whose x is [num_nodes, num_features] for {what}, but got a series "
            f"{list(graph.x.shape)}"
        )


def read(graph: Any) -> Any:
    """Features as a model reads them: of windows scaled ``[w, steps, num_nodes, num_features]``."""
    if not graph.has("window_index"):
        return graph.x
    seen = graph.x.transpose(0, 1)[graph.window_index].contiguous()
    if not graph.has("scale"):
        return seen
    mean, deviation = _scale(graph)
    return (seen - mean[:, :-1]) / deviation[:, :-1]


def unscaled(graph: Any, output: Any) -> Any:
    """A model's output for windows, in the units of `y`; nothing else changes."""
    if not (graph.has("window_index") and graph.has("scale") and isinstance(output, Tensor)):
        return output
    mean, deviation = _scale(graph)
    return output * deviation[:, -1:] + mean[:, -1:]


def _scale(graph: Any) -> tuple[Tensor, Tensor]:
    """Means and deviations of features and `y`; a deviation of 0 is of what never changes."""
    mean, deviation = graph.scale.chunk(2, -1)
    return mean, torch.where(deviation > 0, deviation, 1.0)


def by_answer(graph: Any, mask: Tensor | None, output: Any = None) -> tuple[Any, Any, Any]:
    """A model's output, `y` and a mask of examples, each with a row for every answer.

    An example that is a window has an answer for each node: rows are ``[w * num_nodes, horizons]``
    of an output ``[w, num_nodes, horizons]``.

    Raises:
        ValueError: for an output of windows that has another shape.
    """
    if not graph.has("window_index"):
        return output, graph.y, mask
    mask = graph.example_mask if mask is None else mask
    each = (mask[:, None] * graph.node_mask.to(mask.dtype)).flatten()
    if not graph.has("y"):
        return output, None, each
    y = graph.y.transpose(0, 1)[graph.horizon_index].transpose(1, 2)
    if output is not None and output.shape != y.shape:
        raise ValueError(
            f"Expected the model to give {list(y.shape)}, windows by nodes by horizons, but got "
            f"{list(output.shape)}"
        )
    return None if output is None else output.flatten(0, 1), y.flatten(0, 1), each


def asked(graph: Any, output_of: Callable[[Any], Any]) -> Callable[[Tensor], tuple[Any, Any, Any]]:
    """A function of a mask that gives a model's output, `y` and a mask, a row for every answer.

    Args:
        graph: the model is asked once about all of it, or about some of its windows at a time: only
            about those in the mask, which then have no mask any more.
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
    """The same series with some of its windows, int64 ``[m]``; unchecked.

    The series, the edges and what was made of them are shared, not copied.
    """
    graph.adj  # noqa: B018  # made once, for all of them
    other = copy.copy(graph)
    for name in ("reading", "masked"):
        other.__dict__.pop(name, None)
    other.__dict__.update(taken(graph, (*TIME_FIELDS, *MASKS), rows))
    return other


def horizons(graph: Any) -> list[int]:
    """How far ahead windows are asked, if all are asked the same; else none."""
    if not graph.has("window_index") or not graph.num_examples:
        return []
    ahead = graph.horizon_index - graph.window_index.amax(1, keepdim=True)
    return [] if (ahead != ahead[0]).any() else ahead[0].tolist()
