"""Readers of time series on graphs: chickenpox in Hungary, and Covid-19 in England."""

from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...graph import Graph
from .matrices import checked_array, checked_ids, dense_features
from .parsing import read_keys


def read_chickenpox(folder: Path, name: str) -> Graph:
    """Read weekly numbers of cases in 20 counties, standardised; edges join neighbouring counties.

    ``chickenpox.json`` holds the numbers of cases as ``FX [521, 20]`` and the edges as
    ``edges [102, 2]``. The file stores both directions of each edge. Self-loops in the file are
    kept.

    Raises:
        ValueError: if a file is missing or malformed.

    Source: Rozemberczki et al. 2021, https://arxiv.org/abs/2102.08100
    """
    path, data = read_keys(folder, "chickenpox.json", ["FX", "edges"])
    y = _series(path, "FX", data)
    edges = checked_ids(f"edges in {path}", data["edges"], (None, 2), len(y))
    return Graph(y[:, :, None].clone(), edges, y=y)


def read_england_covid(folder: Path, name: str) -> Graph:
    """Read new cases in 129 regions, and movements between regions, for each of 61 days.

    `edge_time` is the day of a movement as an index into the series, and `edge_weight` is the
    number of people who moved. ``england_covid.json`` holds the numbers of cases as
    ``y [61, 129]``. The dict ``edge_mapping`` in this file holds the movements of each day in
    ``edge_index`` and ``edge_weight``.

    Raises:
        ValueError: if a file is missing or malformed.

    Source: Panagopoulos et al. 2021, https://arxiv.org/abs/2009.08388
    """
    path, data = read_keys(folder, "england_covid.json", ["y", "edge_mapping"])
    y, moves = _series(path, "y", data), data["edge_mapping"]
    days = list(map(str, range(y.shape[1])))
    try:
        pairs, people = ([moves[key][day] for day in days] for key in ("edge_index", "edge_weight"))
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"Expected {path} to have moves of each day, but got none of {error}"
        ) from None
    counts = torch.tensor([len(each) for each in pairs])
    weights = checked_array(
        f"edge_weight in {path}", [*chain(*people)], "biuf", (int(counts.sum()),)
    )
    return Graph(
        y[:, :, None].clone(),
        checked_ids(f"edges in {path}", [*chain(*pairs)], (None, 2), len(y)),
        y=y,
        edge_weight=torch.from_numpy(weights).float(),
        edge_time=torch.arange(len(days)).repeat_interleave(counts),
    )


def _series(path: Path, key: str, data: Any) -> Tensor:
    """Convert a file's ``[num_times, num_nodes]`` to float32 ``[num_nodes, num_times]``."""
    array = checked_array(f"{key} in {path}", data[key], "biuf", (None, None))
    return dense_features(path, array.T)
