"""Reader of ratings among traders of bitcoins (Kumar et al. 2016): one table, with times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ...graph import Graph
from .parsing import floats
from .paths import need

HEADER = "source,target,weight,time"


def read_bitcoin(folder: Path, name: str) -> Graph:
    """Read ratings between users, with their times: ``soc-sign-bitcoinotc.csv``.

    The graph is directed. Nodes are renumbered from 0 in the order of their ids, and their features
    are ones. `edge_attr` is the rating, from -10 to 10 without 0, and `edge_time` the seconds since
    1970, in float64; edges are in order of time.

    Raises:
        ValueError: for a missing or malformed file.

    Source: Kumar et al., Edge Weight Prediction in Weighted Signed Networks, ICDM 2016;
    https://snap.stanford.edu/data/soc-sign-bitcoin-otc.html
    """
    (path,) = need(folder, ["soc-sign-bitcoinotc.csv"])
    table = floats(path, 4, ",", header=HEADER)
    bad = table[:, :2] != table[:, :2].astype(np.int64)
    if bad.any():
        raise ValueError(
            f"Expected {path} to have whole ids of nodes, but got {table[:, :2][bad][0]:g}"
        )
    table = table[table[:, 3].argsort(kind="stable")]
    ids, edges = np.unique(table[:, :2].T.astype(np.int64), return_inverse=True)
    return Graph(
        torch.ones(len(ids), 1),
        torch.from_numpy(edges.reshape(2, -1).astype(np.int64)),
        edge_attr=torch.from_numpy(table[:, 2:3].astype(np.float32)),
        edge_time=torch.from_numpy(table[:, 3].copy()),
    )
