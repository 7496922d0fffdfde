"""Reader of the Graph Modelling Language (Himsolt 1997)."""

import re
from collections.abc import Collection
from pathlib import Path

import numpy as np
import torch

from ...graph import Graph
from ..features import one_hot_degree
from ..undirected import undirected
from .parsing import INTEGER, contiguous, need, warn_unread

TOKEN = re.compile(
    r'\s*(?:#[^\n]*|(?P<open>\[)|(?P<close>\])|"(?P<quoted>[^"]*)"|(?P<word>[^\s"#\[\]]+))'
)
CLASSES = ": targets=... names the attribute with the classes"
Record = tuple[int, dict[str, str]]  # its start in the text, and its keys and values
Entry = tuple[int, str, "str | list[Entry]"]


def read_gml(
    folder: Path, name: str, *, targets: str = "value", ignore: Collection[str] = ()
) -> Graph:
    """Read ``NAME.gml``, such as the political blogs; ``value`` holds the class of a node.

    The format has no features, so one-hot degrees with 64 columns are used. The last column means a
    degree of 63 or more. The graph is undirected, without self-loops and repeats, even if the
    file's edges are directed. Classes are renumbered from 0 in ascending order. A warning names the
    unread attributes of nodes and edges. The warning also names ``directed`` if the file's edges
    are directed.

    Args:
        folder: folder of the file.
        name: name of the file without its suffix.
        targets: the node attribute with the class, an integer.
        ignore: attributes that the warning should not mention, such as ``"label"``, or
            ``"directed"`` for the edges' directions.

    Raises:
        ValueError: for a missing or malformed file.

    Source: Adamic & Glance, The Political Blogosphere and the 2004 U.S. Election, LinkKDD 2005
    """
    (path,) = need(folder, [f"{name}.gml"])
    text = path.read_bytes().decode("utf-8-sig", errors="replace")
    nodes, ends, others = _records(path, text)
    position: dict[int, int] = {}
    for place, fields in nodes:
        node = _integer(path, text, place, fields, "id")
        if node in position:
            raise _bad(path, text, place, "a node with an id of its own", f"{node} again")
        position[node] = len(position)
    value = [_integer(path, text, place, fields, targets, CLASSES) for place, fields in nodes]
    edges = [
        [_end(path, text, *record, key, position) for record in ends]
        for key in ("source", "target")
    ]
    y, num_classes = contiguous(path, np.array(value, np.int64))
    edge_index = undirected(torch.tensor(edges, dtype=torch.int64), len(nodes))
    x = one_hot_degree(edge_index, len(nodes))
    unread = [key for _, fields in nodes for key in fields if key not in ("id", targets)]
    unread += [key for _, fields in ends for key in fields if key not in ("source", "target")]
    unread += ["directed"] if others.get("directed", "0") != "0" else []
    warn_unread(path, unread, ignore, "targets=... names the attribute with the classes")
    return Graph(x, edge_index, y=y, num_classes=num_classes)


def _end(
    path: Path, text: str, place: int, fields: dict[str, str], key: str, position: dict[int, int]
) -> int:
    """The index of an edge's first or second node."""
    node = _integer(path, text, place, fields, key)
    if node not in position:
        raise _bad(path, text, place, f"an edge whose {key} is a node", node)
    return position[node]


def _records(path: Path, text: str) -> tuple[list[Record], list[Record], dict[str, str]]:
    """The nodes, the edges and the attributes of the graph."""
    graphs = [entries for _, key, entries in _entries(path, text) if key == "graph"]
    entries = [entry for graph in graphs if isinstance(graph, list) for entry in graph]
    nodes, edges = (
        [
            (place, {name: "[" if isinstance(v, list) else v for _, name, v in inner})
            for place, key, inner in entries
            if key == kind and isinstance(inner, list)
        ]
        for kind in ("node", "edge")
    )
    return nodes, edges, {key: value for _, key, value in entries if isinstance(value, str)}


def _entries(path: Path, text: str) -> list[Entry]:
    """The keys and values of the whole file; a value in brackets is a list of keys and values."""
    levels: list[list[Entry]] = [[]]  # one list per open bracket, the file first
    keys: list[str] = []  # of the open brackets, and the key before its value
    end = 0
    for match in TOKEN.finditer(text):
        if match.start() != end:
            break  # at a character that cannot begin a token
        end, kind = match.end(), match.lastgroup
        if kind is None:  # a comment
            continue
        place, waits = match.start(kind), len(keys) == len(levels)
        if kind == "word" and not waits:
            keys.append(match[kind])
        elif kind == "close" and not waits and keys:
            levels.pop()
            keys.pop()
        elif kind == "open" and waits:
            levels[-1].append((place, keys[-1], []))
            levels.append(levels[-1][-1][2])  # type: ignore[arg-type]  # the list of this line
        elif kind in ("quoted", "word") and waits:
            levels[-1].append((place, keys.pop(), match[kind]))
        else:
            raise _bad(path, text, place, "a key and its value", repr(match[0].strip()))
    rest = text[end:].lstrip()
    if rest:
        raise _bad(path, text, len(text) - len(rest), "a key and its value", repr(rest[:20]))
    if keys:
        raise _bad(path, text, len(text), f"the end of {keys[-1]!r}", "the end of the file")
    return levels[0]


def _integer(
    path: Path, text: str, place: int, fields: dict[str, str], key: str, hint: str = ""
) -> int:
    value = fields.get(key)
    if value is None or not INTEGER.fullmatch(value):
        got = f"none among {[*fields]}" if value is None else repr(value)
        raise _bad(path, text, place, f"the begin of a record with an integer {key!r}", got + hint)
    return int(value)


def _bad(path: Path, text: str, place: int, be: str, got: object) -> ValueError:
    line = text.count("\n", 0, place) + 1
    return ValueError(f"Expected {path}, line {line}, to be {be}, but got {got}")
