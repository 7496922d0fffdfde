"""Reader of the Graph Modelling Language (Himsolt 1997)."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...checks import reject_if
from ...graph import Graph
from ..features import one_hot_degree
from ..undirected import undirected
from .parsing import INTEGER, contiguous, need, readable, warn_unread

GRAPH = re.compile(r"^\s*graph\s*\[", re.MULTILINE)


def read_gml(
    folder: Path, name: str, *, targets: str = "value", ignore: Collection[str] = ()
) -> Graph:
    """Read a graph from a file ``NAME.gml`` in the Graph Modelling Language.

    The format has no features, so one-hot degrees with 64 columns are used as features. The last of
    these columns means a degree of 63 or more. The graph is undirected, without self-loops and
    repeats, even if the edges in the file are directed. Classes are renumbered from 0 in ascending
    order. A warning names the attributes of nodes and edges that are not read. If the edges in the
    file are directed, the warning also names ``directed``.

    Args:
        folder: folder of the file.
        name: name of the file without its suffix.
        targets: the node attribute that holds the class of a node as an integer. In the dataset of
            political blogs, this attribute is ``"value"``.
        ignore: names that the warning should not mention: names of attributes, such as ``"label"``,
            and the word ``"directed"``.

    Raises:
        ValueError: if the file is missing or malformed.

    Source: Adamic and Glance 2005, https://doi.org/10.1145/1134271.1134277
    """
    (path,) = need(folder, [f"{name}.gml"])
    network = _parsed(path, path.read_bytes().decode("utf-8-sig", errors="replace"))
    nodes, edges = list(network.nodes(data=True)), list(network.edges(data=True))
    for node, fields in nodes:
        whole = INTEGER.fullmatch(str(fields.get(targets)))
        got = f"{fields} in node {node}: targets=... names the attribute with the classes"
        reject_if(not whole, f"{path} to have an integer {targets!r} in each node", got)
    y, num_classes = contiguous(path, np.array([int(own[targets]) for _, own in nodes], np.int64))
    position = {node: number for number, (node, _) in enumerate(nodes)}
    ends = [[position[edge[side]] for edge in edges] for side in (0, 1)]
    edge_index = undirected(torch.tensor(ends, dtype=torch.int64), len(nodes))
    x = one_hot_degree(edge_index, len(nodes))
    unread = [key for _, fields in nodes for key in fields if key != targets]
    unread += [key for *_, fields in edges for key in fields]
    unread += ["directed"] if network.is_directed() else []
    warn_unread(path, unread, ignore, "targets=... names the attribute with the classes")
    return Graph(x, edge_index, y=y, num_classes=num_classes)


def _parsed(path: Path, text: str) -> Any:
    """The network in a file; edges may repeat, even in a file that does not declare repeats."""
    from networkx.readwrite.gml import parse_gml

    lines = GRAPH.sub(r"\g<0> multigraph 1", text, count=1)
    with readable(f"{path} to be a graph in GML"):
        return parse_gml(lines, label=None)  # type: ignore[call-overload]  # None is allowed
