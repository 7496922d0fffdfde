"""Windows of a time series, split in the order of time."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from ...checks import Count, reject_if
from ...graph import MASKS, Graph
from ...sparse.matrix import dense
from ...warn import warn


def windows(
    graph: Graph,
    steps: Count = 12,
    *,
    horizons: Sequence[int] = (3, 6, 12),
    shares: Sequence[float] = (0.7, 0.1, 0.2),
    stride: Count = 1,
    scaled: bool = False,
) -> Graph:
    """Split a time series into windows with input times, target times and masks.

    A window that ends at time t reads the times ``t - steps + 1`` to t. The window's target times
    are ``t + h`` for each horizon h. Times are divided in order into training, validation and test
    times. A window belongs to the part (training, validation or test) that contains all target
    times of the window. A window is left out if its target times lie in different parts. A test
    window may read training times, since these times are earlier.

    A model with ``forward(x, edge_index, edge_weight)`` reads
    ``x [windows, steps, num_nodes, num_features]`` and returns ``[windows, num_nodes, horizons]``.

    Args:
        graph: a graph with ``x [num_nodes, num_times, num_features]`` and ``y [num_nodes,
            num_times]``.
        steps: number of input times per window.
        horizons: distances h, at least 1, between a window's last input time t and its target times
            ``t + h``.
        shares: fractions of the training, validation and test times, with sum 1.
        stride: distance between the last times of two consecutive windows.
        scaled: whether models read standardised features and their outputs are converted back to
            the units of `y`. The mean and the standard deviation of each feature and of the targets
            are computed over the training times of this graph; unknown targets are skipped. If the
            graph is a client's graph, the statistics are those of this client. If the graph is
            partitioned later, all clients use the statistics of the whole graph.

    Returns:
        The graph with `window_index`, `horizon_index`, three masks of the windows, and `scale`.

    Raises:
        ValueError: if the graph is not a series, if a number is out of range, or if a part with a
            positive fraction has no window. A ValueError is also raised if an entry of `edge_time`
            is not an integer from 0 to ``num_times - 1``, or if `scaled` is True and all training
            targets are unknown.

    Warns:
        UserWarning: if the first dimension of `x` seems to be the times.

    Example:
        >>> series = fgl.Graph(torch.rand(3, 20, 1), torch.tensor([[0], [1]]), y=torch.rand(3, 20))
        >>> cut = windows(series, 4, horizons=(1, 3), shares=(0.5, 0.2, 0.3))
        >>> cut.num_examples, int(cut.train_mask.sum()), cut.horizon_index[0]
        (10, 4, tensor([4, 6]))

    Source: the layout of Li et al. 2018, DCRNN, https://arxiv.org/abs/1707.01926
    """
    reject_if(
        len(graph.x.shape) != 3 or graph.y is None or graph.y.dim() != 2,
        "graph to be a series, x [num_nodes, num_times, num_features] and y [num_nodes, num_times]",
        f"{graph!r}",
    )
    reject_if(min(horizons, default=0) < 1, "horizons to be at least 1", tuple(horizons))
    reject_if(len(set(horizons)) < len(horizons), "horizons to be distinct", tuple(horizons))
    good = len(shares) == 3 and min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-6
    reject_if(not good, "shares to be three numbers of sum 1", tuple(shares))
    times = int(graph.x.shape[1])
    if graph.edge_time is not None:
        outside = graph.edge_time[~torch.isin(graph.edge_time, torch.arange(times))]
        expected = f"edge_time to be the positions of times, integers in [0, {times})"
        reject_if(len(outside), expected, outside[:1].tolist())
    if graph.num_edges and int(graph.edge_index.max()) < times < graph.num_nodes:
        warn(
            f"Expected x to be [num_nodes, num_times, num_features], but got {list(graph.x.shape)} "
            f"without edges of nodes from {times} on: if times are first, x.transpose(0, 1)"
        )
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
    """Means and standard deviations of features and of known targets, over times before `end`."""
    y = graph.y[:, :end, None].to(graph.x.dtype)  # type: ignore[index]
    columns = torch.cat([dense(graph.x)[:, :end], y], 2).flatten(0, 1)
    expected = "y to be known at a training time, whose mean scales outputs"
    reject_if(columns.isnan().all(0).any(), expected, "NaN alone: scaled=False")
    mean = columns.nanmean(0)
    deviation = (columns - mean).square().nanmean(0).sqrt()
    both = torch.cat([mean, deviation]).nan_to_num()
    return both.repeat(graph.num_nodes, 1)
