"""A synthetic traffic series: speeds at sensors along roads, with jams that move upstream."""

import math

import torch

from ..checks import Count
from ..graph import Graph
from ..kinds import typed

TRAFFIC = "metr-la-like"  # name of the dataset
DAY = 288  # times of five minutes
LIMIT = 65.0  # miles an hour of free traffic


@typed
def traffic(num_sensors: Count = 207, num_times: Count = 34_272, *, seed: int = 0) -> Graph:
    """Generate speeds at road sensors every five minutes; the default sizes are METR-LA's.

    Sensors lie at random in a square. Each sensor has edges from its nearest sensors, with weights
    ``exp(-d^2 / s^2)`` as in METR-LA. Jams begin at random times, mostly during weekday rush hours.
    A jam moves against the direction of the edges and disappears within an hour. Normal noise with
    a standard deviation of 2 miles per hour is added to all speeds. One target in twelve is
    unknown. In that case `y` is NaN, and `x` repeats the last known speed.

    Args:
        num_sensors: number of nodes.
        num_times: length of the series.
        seed: random seed.

    Returns:
        A graph with ``x [num_sensors, num_times, 2]`` (speed, and time of day from 0 to less than
        1) and the speed as ``y``.

    Example:
        >>> graph = traffic(num_sensors=10, num_times=600)
        >>> graph.x.shape, graph.y.isnan().double().mean() > 0.05
        (torch.Size([10, 600, 2]), tensor(True))

    Source: the sizes and weights of Li et al. 2018, DCRNN, https://arxiv.org/abs/1707.01926
    """
    generator = torch.Generator().manual_seed(seed)
    place = torch.rand(num_sensors, 2, generator=generator)
    distance = torch.cdist(place, place)
    sources = distance.argsort(1)[:, 1:8]  # the sources of each target
    target = torch.arange(num_sensors)[:, None].expand_as(sources)
    length = distance.gather(1, sources)
    weight = (-((length / length.std().clamp(min=1e-6)) ** 2)).exp()
    share = torch.zeros(num_sensors, num_sensors).scatter_(1, sources, weight)
    share = share / share.sum(1, keepdim=True).clamp(min=1e-6)

    time = torch.arange(num_times)
    hour = time % DAY / DAY * 24
    weekday = (time // DAY % 7 < 5).float()
    rush = sum((-((hour - peak) ** 2) / 3).exp() for peak in (8.0, 17.5)) * weekday
    start = torch.rand(num_times, num_sensors, generator=generator) < (0.002 + 0.02 * rush)[:, None]
    depth = start * (10 + 30 * torch.rand(num_times, num_sensors, generator=generator))
    jam, jams = torch.zeros(num_sensors), torch.empty(num_times, num_sensors)
    for step, new in enumerate(depth):
        jam = 0.8 * jam + 0.15 * (share @ jam) + new
        jams[step] = jam
    noise = 2 * torch.randn(num_times, num_sensors, generator=generator)
    speed = (LIMIT - 8 * rush[:, None] - jams + noise).clamp(min=1.0)

    lost = torch.rand(num_times, num_sensors, generator=generator) < 1 / 12
    lost[0] = False
    last = torch.where(lost, 0, time[:, None]).cummax(0).values
    carried = speed.gather(0, last).T
    x = torch.stack([carried, (hour / 24).expand(num_sensors, -1)], 2)
    y = torch.where(lost, math.nan, speed).T.contiguous()
    return Graph(x, torch.stack([sources, target]).flatten(1), y=y, edge_weight=weight.flatten())
