"""Tables of nodes and edges with named columns, and conversion of tables to a `Graph`'s fields."""

import decimal
import numbers
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..checks import reject_if
from ..warn import warn

UNKNOWN = {"", "na", "n/a", "nan", "-nan", "nat", "null", "none", "<na>", "#n/a", "#na", "?"}


class Table(NamedTuple):
    """Columns by name; each row also has a name, for error messages.

    Args:
        of: kind of the rows, ``"node"`` or ``"edge"``.
        rows: a name for each row.
        columns: dict from name to values, one value for each row.

    Example:
        >>> Table("node", ["Ann", "Bob"], {"age": [31, 27]}).column("age")
        [31, 27]
    """

    of: str
    rows: Sequence[Hashable]
    columns: Mapping[str, Sequence[Any]]

    def column(self, name: str) -> list[Any]:
        """The values of a column; raise an error if a row has no value."""
        values = self.column_with_gaps(name)
        self._reject(_is_missing, values, f"every {self.of} to have {name!r}")
        return values

    def _reject(self, wrong: Callable[[Any], bool], values: Sequence[Any], expected: str) -> None:
        """Raise an error that names the first row with a wrong value."""
        for row, value in zip(self.rows, values, strict=True):
            if wrong(value):
                got = "none" if _is_missing(value) else repr(value)
                raise ValueError(f"Expected {expected}, but got {got} of {self.of} {row!r}")

    def places(self, name: str, among: Sequence[Hashable], expected: str) -> Tensor:
        """For each value of a column, its index in `among`, int64 ``[n]``."""
        values, place = self.column(name), {each: i for i, each in enumerate(among)}
        self._reject(lambda value: value not in place, values, expected)
        return torch.tensor([place[value] for value in values], dtype=torch.int64)

    def column_with_gaps(self, name: str) -> list[Any]:
        """The values of a column, with None for each missing value."""
        names = sorted(map(str, self.columns))
        reject_if(name not in self.columns, f"the {self.of}s to have {name!r}", names)
        return list(self.columns[name])

    def numbers(self, name: str, *, gaps: bool = False) -> Tensor:
        """A column as float ``[n]``; if each value is a row of d numbers, as float ``[n, d]``."""
        read = self._read(name, gaps)
        widths = {len(v) if isinstance(v, list) else 0 for v in read}
        reject_if(len(widths) > 1, f"{name!r} to have one width in all {self.of}s", sorted(widths))
        return torch.tensor(read, dtype=torch.get_default_dtype())

    def _read(self, name: str, gaps: bool) -> list[Any]:
        """The numbers of a column; without `gaps`, a missing number raises an error."""
        values = self.column_with_gaps(name)
        read = [_number(self, name, row, v) for row, v in zip(self.rows, values, strict=True)]
        for row, value, number in zip(self.rows, values, read, strict=True):
            if number != number and not gaps:
                got = "none" if _is_missing(value) else repr(value)
                raise ValueError(
                    f"Expected every {self.of} to have {name!r}, but got {got} of {self.of} "
                    f"{row!r}: write a number, such as the mean, and a column that marks it"
                )
        return read

    def times(self, name: str) -> Tensor:
        """A column as int64 ``[n]`` if all values are integers, otherwise as float64 ``[n]``."""
        values = self.column(name)
        if all(_is_whole(value) for value in values):
            return torch.tensor([int(value) for value in values], dtype=torch.int64)
        return torch.tensor(self._read(name, False), dtype=torch.float64)

    def matrix(self, names: Sequence[str]) -> Tensor:
        """Join columns side by side into a float matrix ``[n, d]``."""
        _check_order("columns", names)
        parts = [self.numbers(name) for name in names]
        return torch.cat([part if part.dim() == 2 else part[:, None] for part in parts], dim=1)

    def features(self, x: Sequence[str]) -> Tensor:
        """Join columns side by side; without columns, return a column of ones."""
        return self.matrix(x) if x else torch.ones(len(self.rows), 1)

    def edge_fields(
        self, edge_weight: str | None, edge_attr: Sequence[str], edge_time: str | None
    ) -> dict[str, Tensor]:
        """The edge fields for which the caller names columns."""
        fields: dict[str, Tensor] = {}
        if edge_weight is not None:
            fields["edge_weight"] = self.numbers(edge_weight)
        if edge_attr:
            fields["edge_attr"] = self.matrix(edge_attr)
        if edge_time is not None:
            fields["edge_time"] = self.times(edge_time)
        return fields

    def labels(self, name: str, classes: Sequence[Hashable] | None, argument: str) -> Tensor:
        """Convert a column to int64 ``[n]``: indices into `classes`, or the integers themselves."""
        if classes is not None:
            _check_order(argument, classes)
            repeated = len(set(classes)) < len(classes)
            reject_if(repeated, f"{argument} to be distinct", list(classes))
            return self.places(name, classes, f"{name!r} to be in {argument}={list(classes)}")
        values = self.column(name)
        strings = [*dict.fromkeys(v for v in values if isinstance(v, str) and not is_unknown(v))]
        expected = f"{argument} to name the values of {name!r}, since they are strings"
        reject_if(strings, expected, f"none: {argument}={strings}")
        self._reject(lambda value: not _is_whole(value), values, f"{name!r} to be integers")
        return torch.tensor([int(value) for value in values], dtype=torch.int64)

    def targets(self, name: str, classes: Sequence[Hashable] | None) -> Tensor:
        """Convert a column to labels, int64 ``[n]``, or to float targets (NaN if missing)."""
        values = self.column_with_gaps(name)
        present = [value for value in values if not _is_missing(value)]
        if classes is None and any(_is_fraction(value) for value in present):
            numbers = self.numbers(name, gaps=True)
            if numbers.isnan().any() and torch.equal(
                numbers.nan_to_num(), numbers.nan_to_num().round()
            ):
                warn(
                    f"{name!r} has whole numbers and gaps, and is read as numbers to predict: "
                    "classes=[0, 1, ...] reads labels, which may have no gap"
                )
            return numbers
        return self.labels(name, classes, "classes")

    def warn_unread(self, read: Collection[str], ignore: Collection[str]) -> None:
        """Warn about columns that are neither read nor ignored."""
        left = [name for name in self.columns if name not in read and name not in ignore]
        if left:
            warn(
                f"The {self.of}s have {left}, which are not read: name them in the argument that "
                f"reads them, or leave them out by ignore={left}"
            )


def _check_order(name: str, values: Collection[Hashable]) -> None:
    got = values if isinstance(values, set | frozenset) else None
    reject_if(got is not None, f"{name} to be a list, since a set has no order", got, TypeError)


def _is_missing(value: Any) -> bool:
    """Whether a value is missing: an empty string, or a value such as None or NaN.

    A node or a class may have the name "NA".
    """
    return value == "" if isinstance(value, str) else is_unknown(value)


def is_unknown(value: Any) -> bool:
    """Whether a value, such as None, NaN or "n/a", stands for an unknown number.

    Example:
        >>> is_unknown(float("nan")), is_unknown(" N/A"), is_unknown("0")
        (True, True, False)
    """
    return _is_scalar(value) and str(value).strip().lower() in UNKNOWN


def _is_scalar(value: Any) -> bool:
    """Whether a value is single (for example a number, text, bytes or a set) and not a row."""
    return isinstance(value, str | bytes | Set | Mapping) or not hasattr(value, "__len__")


def _is_fraction(value: Any) -> bool:
    """Whether a value is a row of numbers, or a single number that is not of an integer type."""
    kinds = numbers.Number | decimal.Decimal
    fraction = isinstance(value, kinds) and not isinstance(value, numbers.Integral)
    return fraction or not _is_scalar(value)


def _is_whole(value: Any) -> bool:
    """Whether a value is an integer, whatever its type."""
    number = isinstance(value, numbers.Real | decimal.Decimal)
    return number and int(value) == value


def _number(table: Table, name: str, row: Hashable, value: Any) -> Any:
    """A value as a float or as a list of floats; NaN for a missing value."""
    if not _is_scalar(value):
        return [_number(table, name, row, each) for each in value]
    if is_unknown(value):
        return float("nan")
    try:
        if isinstance(value, np.datetime64 | np.timedelta64):
            raise TypeError
        return float(value)
    except (TypeError, ValueError) as error:
        ways = "write words as a column of 0 and 1 for each, and dates as value.timestamp()"
        got = f"{value!r} of {table.of} {row!r}: {ways}"
        raise ValueError(f"Expected {name!r} to be numbers, but got {got}") from error


def of_networkx(
    graph: Any,
    x: Sequence[str],
    y: str | None,
    classes: Sequence[Hashable] | None,
    edge_weight: str | None,
    edge_attr: Sequence[str],
    edge_time: str | None,
    ignore: Collection[str],
) -> dict[str, Any]:
    """Convert a networkx graph to fields of a `Graph`, see `Graph.from_networkx`."""
    text = isinstance(x, str) or isinstance(edge_attr, str)
    reject_if(text, "x and edge_attr to be lists of names", f"{x!r}, {edge_attr!r}", TypeError)
    other = not hasattr(graph, "is_directed")
    reject_if(other, "a networkx graph", type(graph).__name__, TypeError)
    names = list(graph)
    place = {name: i for i, name in enumerate(names)}
    ends = [(source, target, own) for source, target, own in graph.edges(data=True)]
    if not graph.is_directed():
        ends += [(target, source, own) for source, target, own in ends if source != target]
    nodes = Table("node", names, _columns([graph.nodes[name] for name in names]))
    of_edges = [*edge_attr, *filter(None, (edge_weight, edge_time))]
    values = _columns([own for *_, own in ends]) if ends else {key: [] for key in of_edges}
    edges = Table("edge", [each[:2] for each in ends], values)
    index = [[place[source] for source, _, _ in ends], [place[target] for _, target, _ in ends]]
    nodes.warn_unread([*x, *([y] if y else [])], ignore)
    edges.warn_unread(of_edges, ignore)
    fields: dict[str, Any] = edges.edge_fields(edge_weight, edge_attr, edge_time)
    fields |= {"x": nodes.features(x), **targets_of(nodes, y, classes, x)}
    return {**fields, "edge_index": torch.tensor(index, dtype=torch.int64)}


def targets_of(
    table: Table, y: str | None, classes: Sequence[Hashable] | None, x: Sequence[str] = ()
) -> dict[str, Any]:
    """Build the field `y` of a graph, and the field `num_classes` if `classes` is given.

    The result is empty if `y` is None. Raise an error if the feature columns `x` also contain `y`.

    Example:
        >>> targets_of(Table("node", [0, 1], {"kind": ["b", "a"]}), "kind", ["a", "b"])
        {'y': tensor([1, 0]), 'num_classes': 2}
    """
    if y is None:
        reject_if(classes is not None, "y beside classes", "none")
        return {}
    reject_if(y in x, "x to leave out the labels, which tell the answer", f"{y!r} in both")
    fields: dict[str, Any] = {"y": table.targets(y, classes)}
    return fields if classes is None else {**fields, "num_classes": len(classes)}


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Convert dicts of attributes to columns; a missing attribute becomes None."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
