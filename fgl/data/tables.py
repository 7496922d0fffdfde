"""Graphs from tables of nodes and edges: data frames, dicts of columns, or CSV files."""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checks import reject_if
from ..graph import Graph
from ..graph.tables import Table, is_unknown, targets_of
from .readers.parsing import read_csv
from .typed import Relation, check_names, typed_graph


def from_tables(
    edges: Any,
    nodes: Any,
    *,
    source: str = "source",
    target: str = "target",
    id: str = "id",
    x: Sequence[str] = (),
    y: str | None = None,
    classes: Sequence[Hashable] | None = None,
    edge_weight: str | None = None,
    edge_attr: Sequence[str] = (),
    edge_type: str | None = None,
    relations: Sequence[Hashable] | None = None,
    edge_time: str | None = None,
    train_mask: str | None = None,
    val_mask: str | None = None,
    test_mask: str | None = None,
    is_undirected: bool = False,
    ignore: Collection[str] = (),
) -> Graph:
    """Build a graph from a table of edges and a table of nodes.

    A table is an object from which ``table[name]`` returns a column, such as a pandas or polars
    ``DataFrame`` or a dict of lists. The path of a CSV file with a header is also a table. Row i of
    `nodes` is node i of the graph, so ``zip(nodes["id"], predictions)`` gives each node's name with
    its prediction.

    Args:
        edges: table with a row for each edge.
        nodes: table with a row for each node.
        source, target: the columns of `edges` that contain the names of source nodes and of target
            nodes.
        id: the column of `nodes` that contains the names of the nodes.
        x: numeric columns of `nodes`, which become the features. If no columns are given, the
            features are a column of ones.
        y: column of `nodes` with labels or floats. Labels are integers, or strings if `classes` is
            given. An empty field in a column of floats means an unknown target.
        classes: all values that `y` can have; the first value gets label 0, the second value label
            1, and so on.
        edge_weight, edge_attr, edge_time: numeric columns of `edges`.
        edge_type: column of `edges` with the relation of each edge. Relations are integers, or
            strings if `relations` is given.
        relations: all values that `edge_type` can have; the first value gets number 0, the second
            value number 1, and so on.
        train_mask, val_mask, test_mask: columns of `nodes`; a node is in a mask if its value in the
            mask's column is true or 1.
        is_undirected: whether each row of `edges` stands for an edge in both directions.
        ignore: columns that may stay unread. A warning names all unread columns that are not in
            this list.

    Raises:
        ValueError: if a column or a value is missing, if a node's name occurs twice, if an edge has
            an unknown node, if a numeric column contains text, if the features include the labels,
            or if an undirected edge is listed twice.
        OSError: if a file cannot be read.

    Example:
        >>> people = {"id": ["Ann", "Bob"], "age": [31, 27], "team": ["red", "blue"]}
        >>> calls = {"source": ["Ann"], "target": ["Bob"], "minutes": [4.5]}
        >>> graph = from_tables(
        ...     calls, people, x=["age"], y="team", classes=["blue", "red"], edge_weight="minutes"
        ... )
        >>> graph.x.tolist(), graph.y.tolist(), graph.edge_weight.tolist()
        ([[31.0], [27.0]], [1, 0], [4.5])
    """
    table = nodes_table("node", nodes, id)
    of_nodes = {"train_mask": train_mask, "val_mask": val_mask, "test_mask": test_mask}
    table.warn_unread([id, *x, *filter(None, [y, *of_nodes.values()])], ignore)
    fields: dict[str, Any] = {"x": table.features(x), **targets_of(table, y, classes, x)}
    fields |= {name: _mask(table, key) for name, key in of_nodes.items() if key is not None}
    links, ends = _ends(edges, source, target, table, table)
    read = [source, target, *edge_attr, *filter(None, [edge_type, edge_weight, edge_time])]
    links.warn_unread(read, ignore)
    of_edges: dict[str, Any] = links.edge_fields(edge_weight, edge_attr, edge_time)
    reject_if(relations is not None and edge_type is None, "edge_type beside relations", "none")
    if edge_type is not None:
        of_edges["edge_type"] = links.labels(edge_type, relations, "relations")
    if is_undirected:
        _check_once(links, ends)
        other = (ends[0] != ends[1]).nonzero().squeeze(1)  # a self-loop is its own reverse
        ends = torch.cat([ends, ends[:, other].flip(0)], dim=1)
        of_edges = {name: torch.cat([v, v[other]]) for name, v in of_edges.items()}
    return Graph(edge_index=ends, **fields, **of_edges)


def typed_tables(
    edges: Mapping[Relation, Any],
    nodes: Mapping[str, Any],
    *,
    source: str = "source",
    target: str = "target",
    id: str = "id",
    x: Mapping[str, Sequence[str]] | None = None,
    y: Mapping[str, str] | None = None,
    classes: Sequence[Hashable] | None = None,
    edge_attr: Mapping[Relation, Sequence[str]] | None = None,
    edge_time: Mapping[Relation, str] | None = None,
    both: bool = False,
    ignore: Collection[str] = (),
) -> Graph:
    """Build a typed graph from one table per node type and one table per relation.

    Tables and columns have the format of `from_tables`. Types are numbered as in `typed_graph`.

    Args:
        edges: dict from ``(source type, name, target type)`` to the table of the relation.
        nodes: dict from node type to the table of this type; row i is node i of the type.
        source, target: the columns of each relation's table that contain the names of source nodes
            and of target nodes.
        id: the column of each type's table that contains the names of the nodes.
        x: dict from type to numeric columns. A type that is not in the dict gets a column of ones.
        y: dict from type to the column with labels or floats.
        classes: all values that `y` can have; the first value gets label 0, the second value label
            1, and so on.
        edge_attr: dict from relation to numeric columns.
        edge_time: dict from relation to the column with times. Either all relations have times, or
            no relation has times.
        both: whether to add the reverse of each relation as a separate relation.
        ignore: columns that may stay unread without a warning.

    Raises:
        ValueError: if `from_tables` or `typed_graph` raises a ValueError.

    Example:
        >>> nodes = {"user": {"id": ["u", "v"], "age": [31, 27]}, "item": {"id": ["a"]}}
        >>> edges = {("user", "buys", "item"): {"source": ["v"], "target": ["a"]}}
        >>> graph = typed_tables(edges, nodes, x={"user": ["age"]})
        >>> graph.edge_index.tolist(), graph.node_type.tolist()
        ([[1], [2]], [0, 0, 1])
    """
    x, y, edge_attr, edge_time = x or {}, y or {}, edge_attr or {}, edge_time or {}
    for name, own, types in (
        *(("x", x, nodes), ("y", y, nodes)),
        *(("edge_attr", edge_attr, edges), ("edge_time", edge_time, edges)),
    ):
        check_names(name, own, types)
    reject_if(classes is not None and not y, "y beside classes", "none")
    tables = {kind: nodes_table(kind, own, id) for kind, own in nodes.items()}
    for kind, table in tables.items():
        table.warn_unread([id, *x.get(kind, ()), *filter(None, [y.get(kind)])], ignore)
    ends, of_edges = {}, {}
    for relation, own in edges.items():
        of_types = f"{relation} to be (source type, name, target type) of {list(tables)}"
        others = len(relation) != 3 or not {*relation[::2]} <= tables.keys()
        reject_if(others, of_types, "another type")
        links, ends[relation] = _ends(own, source, target, *(tables[of] for of in relation[::2]))
        columns, time = edge_attr.get(relation, ()), edge_time.get(relation)
        links.warn_unread([source, target, *columns, *filter(None, [time])], ignore)
        of_edges[relation] = links.edge_fields(None, columns, time)
    fields: dict[str, Any] = {
        name: {of: own[name] for of, own in of_edges.items() if name in own} or None
        for name in ("edge_attr", "edge_time")
    }
    if y:
        of_x = {kind: x.get(kind, ()) for kind in y}
        read = {k: targets_of(tables[k], name, classes, of_x[k]) for k, name in y.items()}
        fields["y"] = {kind: own["y"] for kind, own in read.items()}
    features = {kind: table.features(x.get(kind, ())) for kind, table in tables.items()}
    classified = None if classes is None else len(classes)
    return typed_graph(features, ends, both=both, num_classes=classified, **fields)


def nodes_table(of: str, nodes: Any, id: str) -> Table:
    """Read a table of nodes; each row must have a unique name.

    Example:
        >>> nodes_table("node", {"id": ["Ann", "Bob"]}, "id").rows
        ['Ann', 'Bob']
    """
    columns = columns_of(of, nodes, [id])
    numbered = Table(of, range(_length(columns)), columns)
    names = numbered.column(id)
    repeated = [name for name, count in Counter(names).items() if count > 1]
    twice = f"{repeated[:1]} twice"
    reject_if(repeated, f"each {of} to have {id!r} of its own", twice)
    return Table(of, names, columns)


def columns_of(of: str, table: Any, names_of: Collection[str]) -> dict[str, list[Any]]:
    """The columns of a data frame, a dict or a CSV file.

    In a CSV file, numbers become int or float, and true and false become bool. All other values
    remain strings. The argument `names_of` lists the columns with node names. Node names always
    remain strings.

    Example:
        >>> columns_of("node", {"id": [0, 1]}, ["id"])
        {'id': [0, 1]}
    """
    if isinstance(table, str | Path):
        read = _csv_columns(table)
        return {n: values if n in names_of else _numeric(values) for n, values in read.items()}
    names: Any = table if isinstance(table, Mapping) else getattr(table, "columns", None)
    kinds = "such as a DataFrame, a dict of lists or the path of a CSV file"
    expected = f"the {of}s to be a table with named columns, {kinds}"
    reject_if(names is None, expected, type(table).__name__, TypeError)
    columns = {str(name): table[name] for name in names}
    columns = {n: v.tolist() if isinstance(v, Tensor) else list(v) for n, v in columns.items()}
    lengths = {name: len(values) for name, values in columns.items()}
    reject_if(len(set(lengths.values())) > 1, f"the {of}s' columns to be equally long", lengths)
    return columns


def _csv_columns(path: str | Path) -> dict[str, list[str]]:
    header, _, rows = read_csv(Path(path))
    twice = [name for name in dict.fromkeys(header) if header.count(name) > 1]
    reject_if(twice, f"{path} to have columns of different names", twice)
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def _length(columns: Mapping[str, list[Any]]) -> int:
    return len(next(iter(columns.values()), ()))


def _numeric(values: Sequence[str]) -> list[Any]:
    """Convert strings to integers, floats or bools; a type is used if all known values allow it."""
    for kind in (int, float, _boolean):
        try:
            return [None if is_unknown(value) else kind(value) for value in values]
        except (ValueError, KeyError):
            continue
    return list(values)


def _boolean(value: str) -> bool:
    return {"true": True, "false": False}[value.lower()]


def _mask(table: Table, name: str) -> Tensor:
    numbers = table.numbers(name)
    others = (numbers != 0) & (numbers != 1)
    reject_if(others.any(), f"{name!r} to be true or false, 1 or 0", "other numbers")
    return numbers.bool()


def _ends(edges: Any, source: str, target: str, above: Table, below: Table) -> tuple[Table, Tensor]:
    """The table of edges, and the edges as indices of nodes, int64 ``[2, E]``."""
    columns = columns_of("edge", edges, [source, target])
    table = Table("edge", range(_length(columns)), columns)
    sides = ((source, above), (target, below))
    ends = [table.places(n, nodes.rows, f"{n!r} to name a {nodes.of}") for n, nodes in sides]
    return table, torch.stack(ends)


def _check_once(table: Table, ends: Tensor) -> None:
    """Raise an error if an undirected edge is listed in both directions, that is, twice."""
    pairs = {(s, t) for s, t in ends.t().tolist() if s != t}
    double = next(((s, t) for s, t in pairs if (t, s) in pairs), None)
    if double is not None:
        place = ends.t().tolist().index(list(double))
        raise ValueError(
            "Expected undirected edges to be listed in one direction, but got both of edge "
            f"{table.rows[place]!r}: is_undirected=False reads them as they are"
        )
