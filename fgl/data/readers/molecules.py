"""Reader of molecules: a table of SMILES strings and their targets."""

import math
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...checks import imported, install, reject_if
from ...graph import Graph
from ...graph.tables import is_unknown
from ...progress import shown
from ...warn import warn
from .parsing import FLOAT, need, read_csv, warn_unread

MANY = 2000  # rdkit reads this number of molecules in about a second
TRUTH = {"true": 1.0, "false": 0.0}
UNNAMED = re.compile(r"(unnamed: *[0-9.]+)?", re.IGNORECASE)  # names that pandas gives its index
NAMES = re.compile(
    r"(?i:(^|[^a-z])(index|idx|[cps]?id|level_[0-9]+|#))$|[a-z](Index|Idx|Id|ID)$"  # PubChem's too
)
COUNTS = re.compile(r"(row|rows|nr|no|num|number|rank)\.?", re.IGNORECASE)
WHOLE = re.compile(r"[0-9]{1,15}(\.0*)?")
COUNTED = 10  # rows; fewer numbers may be consecutive by chance
Parse = Callable[[str], Any]


class Molecules(NamedTuple):
    """Molecules as graphs, together with measured targets and SMILES strings.

    Example:
        >>> graph = fgl.Graph(torch.ones(1, 9), torch.empty(2, 0, dtype=torch.int64))
        >>> Molecules([graph], torch.tensor([0.5]), ["C"]).smiles
        ['C']
    """

    graphs: list[Graph]
    y: Tensor
    smiles: list[str]


def read_molecules(
    folder: Path,
    name: str,
    *,
    targets: Sequence[str] | None = None,
    smiles: str = "smiles",
    ignore: Collection[str] = (),
    parse: Parse | None = None,
) -> Molecules:
    """Read ``NAME.csv``: a header, a column ``smiles``, and a column of numbers for each target.

    An unknown target is written as an empty field, NA or NaN. True is read as 1, and false as 0. If
    a molecule cannot be read, it is left out. A warning gives the number of such molecules. A
    column that only counts the rows (pandas writes such columns) is a target only if `targets`
    contains its name. A warning names such columns if `targets` is not given.

    Args:
        folder: folder of the file.
        name: name of the file without its suffix.
        targets: names of the target columns. By default all columns are targets, except the
            `smiles` column, the columns in `ignore`, and columns that only count the rows.
        smiles: name of the column of SMILES strings, in upper or lower case.
        ignore: names of columns that are left out without a warning.
        parse: function from a string to an object with PyG's `x`, `edge_index` and `edge_attr`. If
            the object has no atoms, the string could not be read. The default is
            ``torch_geometric.utils.from_smiles``.

    Returns:
        The molecules. The targets y are float32 ``[num_graphs]``, or ``[num_graphs, t]`` for t > 1
        targets; unknown values are NaN.

    Raises:
        ValueError: if the file is missing or malformed, if a column is missing, or if no molecule
            in the file can be read.
        ImportError: if `parse` is None, and rdkit or PyG is missing.

    Source: Wu et al. 2018, MoleculeNet, https://arxiv.org/abs/1703.00564
    """
    (path,) = need(folder, [f"{name}.csv"])
    lines, strings, values = _table(path, targets, smiles, ignore)
    parse = _from_smiles() if parse is None else parse
    with shown(f"reading {name}", long=len(strings) > MANY):
        graphs = [_graph(text, parse) for text in strings]
    readable = [row for row, graph in enumerate(graphs) if graph is not None]
    wrong = [row for row, graph in enumerate(graphs) if graph is None]
    if wrong:
        _warn_unreadable(path, len(graphs), wrong, lines, strings)
    y = torch.tensor([values[row] for row in readable], dtype=torch.float32)
    return Molecules(
        [graph for graph in graphs if graph is not None],
        y.squeeze(1) if y.shape[1] == 1 else y,
        [strings[row] for row in readable],
    )


def _warn_unreadable(
    path: Path, total: int, wrong: list[int], lines: list[int], strings: list[str]
) -> None:
    """Warn about rows that are not molecules; raise an error if no row is a molecule."""
    example = f"line {lines[wrong[0]]}: {strings[wrong[0]][:60]!r}"
    reject_if(len(wrong) == total, f"{path} to hold molecules", f"none to read, {example}")
    warn(
        f"{len(wrong)} of {total} molecules in {path} cannot be read and are left out, the first "
        f"in {example}"
    )


def _graph(text: str, parse: Parse) -> Graph | None:
    """Parse a molecule; return None if the string is not a molecule."""
    try:
        data = parse(text)
    except ValueError:  # PyG has no number for an atom or a bond
        return None
    if not len(data.x):
        return None
    return Graph(data.x.float(), data.edge_index, edge_attr=data.edge_attr.float())


def _from_smiles() -> Parse:
    how = "to read molecules", install("molecules")
    imported("rdkit", *how)  # PyG imports it only when it is called
    parse: Parse = imported("torch_geometric.utils", *how).from_smiles
    return parse


def _table(
    path: Path, targets: Sequence[str] | None, smiles: str, ignore: Collection[str]
) -> tuple[list[int], list[str], list[list[float]]]:
    """Line numbers, SMILES strings and targets of all molecules."""
    header, lines, rows = read_csv(path)
    reject_if(not rows and len(header) > 1, f"{path} to hold molecules", "none")
    at = _place_of_smiles(path, header, smiles)
    _check_columns(path, header, "targets", targets or ())
    _check_columns(path, header, "ignore", ignore)
    read = [place for place, column in enumerate(header) if place != at and column not in ignore]
    if targets is None:
        numbers = [place for place in read if _numbers_rows(header[place], rows, place)]
        read = [place for place in read if place not in numbers]
        names = [header[place] for place in numbers]
        warn_unread(path, names, (), f"they number the rows; load_molecules(..., targets={names})")
    else:
        read = [header.index(column) for column in targets]
    expected = f"{path} to have a column {smiles} and one or more targets"
    reject_if(not read, expected, f"{', '.join(header)[:60]!r}: targets=[...] names them")
    values = [
        [_number(f"{path}, line {line}", header[place], row[place]) for place in read]
        for line, row in zip(lines, rows, strict=True)
    ]
    return lines, [row[at].strip() for row in rows], values


def _place_of_smiles(path: Path, header: list[str], smiles: str) -> int:
    exactly = [place for place, column in enumerate(header) if column == smiles]
    matches = [place for place, column in enumerate(header) if column.lower() == smiles.lower()]
    places = exactly or matches
    mixed = len(header) == 1 and re.search(r"[;\t|]", header[0])
    way = "columns are separated by commas" if mixed else "smiles=... names the column of strings"
    got = f"{', '.join(header)[:60] or 'nothing'!r}: {way}"
    expected = f"{path} to have a column {smiles} and one or more targets"
    reject_if(len(places) != 1, expected, got)
    return places[0]


def _check_columns(path: Path, header: list[str], name: str, columns: Collection[str]) -> None:
    reject_if(isinstance(columns, str), f"{name} to be a list of columns", repr(columns), TypeError)
    wrong = [column for column in columns if header.count(column) != 1]
    reject_if(wrong, f"{name} to be among the columns {header}", wrong)


def _numbers_rows(column: str, rows: list[list[str]], place: int) -> bool:
    """Whether a column holds indices of the rows instead of a target.

    There are three such cases. First, the column has a name that pandas gives to an index, such as
    ``Unnamed: 0``. Second, the column's name ends with a word such as ``id``, and the column's
    numbers are distinct integers. Third, the column's numbers are consecutive integers that begin
    with 0 or 1, in any order. If there are few rows, the name must also be a word such as ``row``.
    """
    if UNNAMED.fullmatch(column):
        return True
    fields = [row[place].strip() for row in rows]
    if not all(map(WHOLE.fullmatch, fields)):
        return False
    numbers = sorted(int(float(field)) for field in fields)
    if NAMES.search(column):
        return len({*numbers}) == len(numbers)
    counts = numbers == [*range(numbers[0], numbers[0] + len(numbers))] and numbers[0] < 2
    return counts and (len(numbers) >= COUNTED or COUNTS.fullmatch(column) is not None)


def _number(where: str, column: str, field: str) -> float:
    if is_unknown(field):
        return math.nan
    text = field.strip().lower()
    value = TRUTH.get(text, float(text) if FLOAT.fullmatch(text) else math.inf)
    expected = f"{where}, to have numbers beside smiles, or nothing where a target is unknown"
    ways = f"targets=[...] names the columns of numbers, or leave it out by ignore=[{column!r}]"
    reject_if(math.isinf(value), expected, f"{field[:60]!r} of column {column!r}: {ways}")
    return value
