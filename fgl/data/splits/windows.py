"""Windows of a series, split in the order of time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from ...checks import check_count, reject_if
from ...graph import MASKS, Graph
from ...kinds import typed
from ...sparse.matrix import dense


@typed
def windows(
    graph: Graph,
    steps: int = 12,
    *,
    horizons: Sequence[int] = (3, 6, 12),
    shares: Sequence[float] = (0.7, 0.1, 0.2),
    stride: int = 1,
    scaled: bool = False,
) -> Graph:
    """Windows over a series of all nodes: what a model reads, what it is asked, and which train.

    A window that ends at time t reads ``t - steps + 1`` to t, and asks about ``t + h`` for each
    horizon h. Times are divided in their order into those of training, validation and test; a
    window belongs to the part that has all times it asks about, and a window whose horizons lie in
    two parts is left out. A test window may read times that train, which are known by then.

    A model with ``forward(x, edge_index, edge_weight)`` reads ``x [windows, steps, num_nodes,
    num_features]`` and gives ``[windows, num_nodes, horizons]``.

    Args:
        graph: ``x [num_nodes, num_times, num_features]`` and ``y [num_nodes, num_times]``.
        steps: number of times that a window reads.
        horizons: times ahead of a window's last one, at least 1.
        shares: of the times that train, validate and test, of sum 1.
        stride: times from a window to the next one.
        scaled: whether models read standardised features, and their output is turned back into the
            units of `y`. Means and deviations are those of this graph's training times, one for
            each feature; unknown answers do not count. Of a client's graph they are its own, of a
            graph that is divided later they are everybody's.

    Returns:
        The graph with `window_index`, `horizon_index`, three masks of the windows, and `scale`.

    Raises:
        ValueError: for a graph that is no series, for a number out of range, and if a share above 0
            has no window.

    Example:
        >>> series = fgl.Graph(torch.rand(3, 20, 1), torch.tensor([[0], [1]]), y=torch.rand(3, 20))
        >>> cut = windows(series, 4, horizons=(1, 3), shares=(0.5, 0.2, 0.3))
        >>> cut.num_examples, int(cut.train_mask.sum()), cut.horizon_index[0]
        (10, 4, tensor([4, 6]))

    Source: the layout of Li et al. 2018, DCRNN, https://arxiv.org/abs/1707.01926
    """
    check_count(steps=steps, stride=stride)
    if len(graph.x.shape) != 3 or graph.y is None or graph.y.dim() != 2:
        raise ValueError(
            "Expected graph to be a series, x [num_nodes, num_times, num_features] and y "
            f"[num_nodes, num_times], but got {graph!r}"
        )
    reject_if(min(horizons, default=0) < 1, "horizons to be at least 1", tuple(horizons))
    wrong = len(shares) != 3 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6
    reject_if(wrong, "shares to be three numbers of sum 1", tuple(shares))
    times = int(graph.x.shape[1])
    last = torch.arange(steps - 1, max(times - max(horizons), steps - 1), stride)
    asks = last[:, None] + torch.tensor(list(horizons))
    bounds = [0, *(round(share * times) for share in accumulate(shares))]
    masks = {
        name: (asks.amin(1) >= begin) & (asks.amax(1) < end)
        for name, (begin, end) in zip(MASKS, pairwise(bounds), strict=True)
    }
    for share, (name, mask) in zip(shares, masks.items(), strict=True):
        expected = f"{name} to have a window of {steps} times and {max(horizons)} ahead"
        got = f"none of {times} times and a share of {share}"
        reject_if(share and not mask.any(), expected, got)
    inside = torch.stack([*masks.values()]).any(0)
    fields = {"window_index": last[:, None] + torch.arange(1 - steps, 1), "horizon_index": asks}
    cut = {name: value[inside].to(graph.device) for name, value in {**fields, **masks}.items()}
    return graph.replace(**cut, scale=_scale(graph, bounds[1]) if scaled else None)


def _scale(graph: Graph, end: int) -> Tensor:
    """Means and deviations of features and of known answers before a time, a row for each node."""
    y = graph.y[:, :end, None].to(graph.x.dtype)  # type: ignore[index]
    columns = torch.cat([dense(graph.x)[:, :end], y], 2).flatten(0, 1)
    mean = columns.nanmean(0)
    deviation = (columns - mean).square().nanmean(0).sqrt()
    both = torch.cat([mean, deviation]).nan_to_num()
    return both.repeat(graph.num_nodes, 1)
