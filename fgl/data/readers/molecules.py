"""Reader of molecules: a table of SMILES strings and their targets."""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...checks import install
from ...graph import Graph
from ...progress import shown
from .parsing import FLOAT
from .paths import need

MANY = 2000  # molecules; rdkit reads as many in about a second
Parse = Callable[[str], Any]


class Molecules(NamedTuple):
    """Molecules as graphs, what was measured of each, and the strings that they were read from.

    Example:
        >>> graph = fgl.Graph(torch.ones(1, 9), torch.empty(2, 0, dtype=torch.int64))
        >>> Molecules([graph], torch.tensor([0.5]), ["C"]).smiles
        ['C']
    """

    graphs: list[Graph]
    y: Tensor
    smiles: list[str]


def read_molecules(folder: Path, name: str, *, parse: Parse | None = None) -> Molecules:
    """``NAME.csv``: a header, a column ``smiles``, and a column of numbers for each target.

    A field of a target is empty where nobody knows it. A molecule that cannot be read is left out,
    and a warning says how many were.

    Args:
        folder: where the file is.
        name: of the file.
        parse: makes of a string what has PyG's `x`, `edge_index` and `edge_attr`; what has no atom
            could not be read. Default ``torch_geometric.utils.from_smiles``.

    Returns:
        The molecules; y float32 ``[num_graphs]``, or ``[num_graphs, t]`` where there are t > 1
        targets, NaN where unknown.

    Raises:
        ValueError: for a missing or malformed file, or one without a molecule that can be read.
        ImportError: by default, where rdkit or PyG is not installed.

    Source: Wu et al. 2018, MoleculeNet, https://arxiv.org/abs/1703.00564
    """
    (path,) = need(folder, [f"{name}.csv"])
    lines, smiles, targets = _table(path)
    parse = _from_smiles() if parse is None else parse
    with shown(f"reading {name}", long=len(smiles) > MANY):
        graphs = [_graph(text, parse) for text in smiles]
    readable = [row for row, graph in enumerate(graphs) if graph is not None]
    if len(readable) < len(graphs):
        first = next(row for row, graph in enumerate(graphs) if graph is None)
        said = f"line {lines[first]}: {smiles[first][:60]!r}"
        if not readable:
            raise ValueError(f"Expected {path} to hold molecules, but got none to read, {said}")
        warnings.warn(
            f"{len(graphs) - len(readable)} of {len(graphs)} molecules in {path} cannot be read "
            f"and are left out, the first in {said}",
            stacklevel=2,
        )
    y = torch.tensor([targets[row] for row in readable], dtype=torch.float32)
    return Molecules(
        [graph for graph in graphs if graph is not None],
        y.squeeze(1) if y.shape[1] == 1 else y,
        [smiles[row] for row in readable],
    )


def _graph(text: str, parse: Parse) -> Graph | None:
    """A molecule; None if the string does not describe one."""
    try:
        data = parse(text)
    except ValueError:  # an atom or a bond that PyG has no number for
        return None
    if not len(data.x):
        return None
    return Graph(data.x.float(), data.edge_index, edge_attr=data.edge_attr.float())


def _from_smiles() -> Parse:
    try:
        import rdkit  # noqa: F401  # PyG asks for it when it is called
        from torch_geometric.utils import from_smiles
    except ImportError as error:
        raise ImportError(
            "Expected rdkit and torch_geometric to be installed to read molecules, but got none: "
            f"{install('molecules')}"
        ) from error
    parse: Parse = from_smiles
    return parse


def _table(path: Path) -> tuple[list[int], list[str], list[list[float]]]:
    """Of every molecule its line, its string and its targets."""
    lines, smiles, targets = [], [], []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file, strict=True)
            header = next(rows, [])
            if header.count("smiles") != 1 or len(header) < 2:
                got = ", ".join(header)[:60] or "nothing"
                raise ValueError(
                    f"Expected {path} to have a column smiles and one or more targets, "
                    f"but got {got!r}"
                )
            at = header.index("smiles")
            for row in filter(None, rows):
                where = f"{path}, line {rows.line_num}"
                if len(row) != len(header):
                    raise ValueError(
                        f"Expected {where}, to have {len(header)} fields, but got {len(row)}"
                    )
                lines.append(rows.line_num)
                smiles.append(row[at].strip())
                targets.append([_number(where, field) for field in row[:at] + row[at + 1 :]])
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"Expected {path} to be a table with commas, but got {error}") from error
    if not smiles:
        raise ValueError(f"Expected {path} to hold molecules, but got none")
    return lines, smiles, targets


def _number(where: str, field: str) -> float:
    text = field.strip()
    value = float(text) if FLOAT.fullmatch(text) else math.nan
    if math.isinf(value) or (text and math.isnan(value) and text.lower() != "nan"):
        raise ValueError(
            f"Expected {where}, to have numbers beside smiles, or nothing where a target is "
            f"unknown, but got {field[:60]!r}"
        )
    return value
