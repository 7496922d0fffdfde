"""Molecules: read from SMILES strings, split and dealt out by scaffold."""

import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from federations import data_folder, refuses

import fgl
from fgl.data import load_graphs, load_molecules, murcko_scaffolds
from fgl.data.readers import molecules as reader
from fgl.data.readers.molecules import read_molecules

ATOMS = {"C": 6, "N": 7, "O": 8}


def chain(text: str) -> Any:
    """A reader of SMILES that knows atoms in a row; anything else it cannot read."""
    if text == "odd":
        raise ValueError("an atom without a number")
    atoms = [ATOMS[letter] for letter in text] if set(text) <= set(ATOMS) else []
    x = torch.zeros(len(atoms), 9, dtype=torch.int64)
    x[:, 0] = torch.tensor(atoms, dtype=torch.int64)
    ends = torch.stack([torch.arange(len(atoms))[:-1], torch.arange(len(atoms))[1:]])
    edge_index = torch.cat([ends, ends.flip(0)], dim=1)
    edge_attr = torch.ones(edge_index.shape[1], 3, dtype=torch.int64)
    return SimpleNamespace(x=x, edge_index=edge_index, edge_attr=edge_attr)


def write(folder: Path, text: str | bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    content = text.encode() if isinstance(text, str) else text
    (folder / "tiny.csv").write_bytes(content)
    return folder


def test_one_target_is_one_number_a_molecule(tmp_path: Path) -> None:
    _, y, _ = read_molecules(write(tmp_path, "smiles,a\nC,1\nN,\n"), "tiny", parse=chain)
    assert y.shape == (2,) and y[0] == 1 and y[1].isnan()


def test_what_cannot_be_read_is_left_out_and_counted(tmp_path: Path) -> None:
    folder = write(tmp_path, "smiles,a\nC,1\n?,2\nodd,3\nNN,4\n")
    text = r"2 of 4 molecules in .*tiny\.csv cannot .* left out, the first in line 3: '\?'"
    with pytest.warns(UserWarning, match=text):
        graphs, y, smiles = read_molecules(folder, "tiny", parse=chain)
    assert (len(graphs), y.tolist(), smiles) == (2, [1, 4], ["C", "NN"])
    with pytest.raises(ValueError, match=r"to hold molecules, but got none to read, line 2: '\?'"):
        read_molecules(write(tmp_path, "smiles,a\n?,1\n"), "tiny", parse=chain)


ROWS = ["CNO", "CC", "CO", "N", "NN", "NO", "NC", "OO", "ON", "OC", "C"]
INDICES: dict[str, Any] = {  # names of a column and its fields
    "as pandas writes it": ("", range(3)),
    "as pandas reads it again": ("Unnamed: 0", range(3)),
    "twice": ("Unnamed: 0.1", [0.5, 0.5, 0.5]),
    "index": ("index", range(3)),
    "with a prefix": ("mol_ID", [17, 4, 11]),
    "of PubChem": ("cid", [702, 281, 6324]),
    "in two words": ("CompoundId", [17, 4, 11]),
    "of rows": ("RowID", [1, 2, 3]),
    "from one": (" No. ", [1, 2, 3]),
    "as floats": ("idx", ["0.0", "1.0", "2.0"]),
    "shuffled, under any name": ("key", [3, 1, 0, 2, 4, 5, 6, 7, 8, 10, 9]),
}
NO_INDICES: dict[str, Any] = {
    "a word that ends alike": ("solid", [17, 4, 11]),
    "answers": ("index", [0, 1, 1]),
    "few, under any name": ("key", [0, 1, 2]),
    "not from the start": ("key", range(20, 31)),
    "no whole numbers": ("id", [0.5, 1, 2]),
    "unknown": ("row", [0, 1, "NA"]),
}


def table(column: str, fields: Any) -> str:
    rows = [
        f"{field},{row},{n}.5" for n, (field, row) in enumerate(zip(fields, ROWS, strict=False))
    ]
    return "\n".join([f"{column},smiles,a", *rows])


def test_columns_that_number_the_rows_are_no_targets(tmp_path: Path) -> None:
    for what, (column, fields) in INDICES.items():
        folder, name = write(tmp_path / what, table(column, fields)), column.strip()
        with pytest.warns(UserWarning, match=rf"\[{name!r}\].*targets=\[{name!r}\]"):
            molecules = read_molecules(folder, "tiny", parse=chain)
        assert molecules.y.tolist() == [n + 0.5 for n in range(len(fields))], what
        both = read_molecules(folder, "tiny", parse=chain, targets=[name, "a"]).y
        assert both[:, 0].tolist() == [float(field) for field in fields], what
        alone = read_molecules(folder, "tiny", parse=chain, ignore=[name]).y
        assert torch.equal(alone, molecules.y), what
    for what, (column, fields) in NO_INDICES.items():
        molecules = read_molecules(
            write(tmp_path / what, table(column, fields)), "tiny", parse=chain
        )
        assert molecules.y.shape == (len(fields), 2), what


def test_marks_of_order_names_and_unknown_answers(tmp_path: Path) -> None:
    for encoding in ("utf-8", "utf-8-sig"):
        content = " SMILES , a \nC,1\nN,2\n".encode(encoding)
        molecules = read_molecules(write(tmp_path, content), "tiny", parse=chain)
        assert (molecules.smiles, molecules.y.tolist()) == (["C", "N"], [1, 2]), encoding
    content = "a,mol\n1,C\n2,N\n".encode("utf-8-sig")
    assert read_molecules(write(tmp_path, content), "tiny", parse=chain, smiles="mol").smiles == [
        "C",
        "N",
    ]
    for field in ("", " ", "NA", "N/A", "nan", "NaN", "null", "None", "<NA>", "#N/A"):
        y = read_molecules(write(tmp_path, f"smiles,a\nC,1\nN,{field}\n"), "tiny", parse=chain).y
        assert y.isnan().tolist() == [False, True], field
    y = read_molecules(write(tmp_path, "smiles,a\nC,True\nN,FALSE\n"), "tiny", parse=chain).y
    assert y.tolist() == [1, 0]


def test_a_column_of_text_is_named_with_what_leaves_it_out(tmp_path: Path) -> None:
    folder = write(tmp_path / "tiny", "mol_id,smiles,a,b\nTOX1,C,1,2\nTOX2,N,3,4\n")
    with pytest.raises(ValueError, match=r"'TOX1' of column 'mol_id': targets="):
        read_molecules(folder, "tiny", parse=chain)
    read = {"ignore": [[1, 2], [3, 4]], "targets": [[2, 1], [4, 3]]}
    given: dict[str, Any] = {"ignore": ["mol_id"], "targets": ["b", "a"]}
    for name, y in read.items():
        assert read_molecules(folder, "tiny", parse=chain, **{name: given[name]}).y.tolist() == y
    for name in ("ignore", "targets"):
        with pytest.raises(ValueError, match=rf"Expected {name} to be among .* but got \['c'\]"):
            read_molecules(folder, "tiny", parse=chain, **{name: ["c"]})
        with pytest.raises(TypeError, match=f"Expected {name} to be a list"):
            read_molecules(folder, "tiny", parse=chain, **{name: "a"})
    with pytest.raises(ValueError, match=r"one or more targets, but got 'mol_id, .*targets="):
        read_molecules(folder, "tiny", parse=chain, ignore=["mol_id", "a", "b"])


@pytest.mark.parametrize(("text", "message"), [
    ("", r"a column smiles and one or more targets, but got 'nothing'"),
    ("smile,a\nC,1\n", r"a column smiles and one or more targets, but got 'smile, a'"),
    ("smiles\nC\n", r"a column smiles and one or more targets, but got 'smiles'"),
    ("smiles,smiles\nC,C\n", r"a column smiles and one or more targets, but got"),
    ("smiles;a\nC;1\n", r"but got 'smiles;a': columns are separated by commas"),
    ("smiles,a\n", r"tiny\.csv to hold molecules, but got none"),
    ("smiles,a\nC,1\nC\n", r"line 3, to have 2 fields, but got 1"),
    ("smiles,a\nC,1,2\n", r"line 2, to have 2 fields, but got 3"),
    ("smiles,a\nC,yes\n", r"line 2, to have numbers beside smiles, .* but got 'yes'"),
    ("smiles,a\n\nC,1e999\n", r"line 3, to have numbers beside smiles, .* but got '1e999'"),
    ("smiles,a\nC,inf\n", r"line 2, to have numbers beside smiles, .* but got 'inf'"),
    (b"smiles,a\n\xff,1\n", r"tiny\.csv to be a table with commas, but got .*utf-8"),
    ('smiles,a\n"C,1\n', r"tiny\.csv to be a table with commas, but got unexpected end"),
], ids=range(13))  # fmt: skip
def test_malformed_tables(text: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^Expected .*{message}"):
        read_molecules(write(tmp_path, text), "tiny", parse=chain)


def test_a_missing_table(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"to hold 1 file, but got none named \['tiny.csv'\]"):
        read_molecules(tmp_path, "tiny", parse=chain)


def test_a_folder_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "tiny" / "raw", "smiles,a\nCO,1\n")
    monkeypatch.setattr(reader, "_from_smiles", lambda: chain)
    assert load_molecules("tiny", tmp_path).smiles == ["CO"]
    graphs, y = load_graphs("tiny", tmp_path)
    assert (len(graphs), y.tolist()) == (1, [1])
    with pytest.raises(ValueError, match="attributes to be left out for tiny, .* but got False"):
        load_graphs("tiny", tmp_path, attributes=False)
    with pytest.raises(ValueError, match="edge_labels to be left out for tiny, .* but got True"):
        load_graphs("tiny", tmp_path, edge_labels=True)
    molecules = load_molecules("tiny", tmp_path, targets=["a"], smiles="SMILES", ignore=())
    assert molecules.y.tolist() == [1]
    refuses("but got 'NCI1', which load_graphs reads", lambda: load_molecules("NCI1", tmp_path))


@pytest.mark.parametrize("missing", ["rdkit", "torch_geometric.utils"])
def test_missing_packages(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    folder = write(tmp_path, "smiles,a\nC,1\n")
    text = r"Expected (rdkit|torch_geometric) .* but got none: pip install -e '\.\[molecules\]'"
    refuses(text, lambda: read_molecules(folder, "tiny"), ImportError)
    if missing == "rdkit":
        with pytest.raises(ImportError, match=r"Expected rdkit .* pip install -e '\.\[molecules"):
            murcko_scaffolds(["C"])


# With rdkit.


def test_scaffolds_are_rings_and_what_links_them() -> None:
    pytest.importorskip("rdkit")
    smiles = ["CCO", "Oc1ccccc1", "CC1=CC=CC=C1", "C1CC1CCc1ccccc1", "N[C@H]1CCCC[C@@H]1C"]
    found = murcko_scaffolds(smiles)
    assert found == ["", "c1ccccc1", "c1ccccc1", "c1ccc(CCC2CC2)cc1", "C1CCCCC1"]
    with pytest.raises(ValueError, match=r"smiles\[1\] to be a molecule, but got 'C\(', which"):
        murcko_scaffolds(["C", "C("])


COUNTS = {  # molecules in the file, those that rdkit reads, columns
    "esol": (1128, 1128, None),
    "freesolv": (642, 642, None),
    "clintox": (1478, 1478, 2),
}


@pytest.mark.parametrize(
    "name", ["esol", "freesolv", pytest.param("clintox", marks=pytest.mark.slow)]
)
def test_public_molecules(name: str) -> None:
    pytest.importorskip("rdkit")
    data_folder(name)
    graphs, y, smiles = load_molecules(name)
    assert len(graphs) == len(y) == COUNTS[name][1]
    assert {graph.num_features for graph in graphs} == {9}
    assert any(graph.num_edges == 0 for graph in graphs)
    split = fgl.data.splits.scaffold_split(fgl.Graph.join(graphs, y), murcko_scaffolds(smiles))
    sizes = {"esol": (902, 113, 113), "freesolv": (513, 64, 65), "clintox": (1182, 148, 148)}
    masks: Any = split.train_mask, split.val_mask, split.test_mask
    assert tuple(int(mask.sum()) for mask in masks) == sizes[name]


# Scaffolds, whoever found them.


def collection(n: int) -> fgl.Graph:
    return fgl.Graph(torch.ones(n, 1), torch.zeros(2, 0).long(), batch=torch.arange(n))


def draw(n: int, kinds: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(n, generator=generator).square() * kinds).long().tolist()


def twin_split(scaffolds: list[Any], train: float, val: float) -> list[set[int]]:
    """Sets in loops: of the groups that are left, always the largest, then the latest."""
    left = defaultdict(list)
    for molecule, scaffold in enumerate(scaffolds):
        left[scaffold].append(molecule)
    roles: list[set[int]] = [set(), set(), set()]
    while left:
        best = max(left, key=lambda scaffold: (len(left[scaffold]), left[scaffold][0]))
        group = left.pop(best)
        if len(roles[0]) + len(group) <= train * len(scaffolds):
            roles[0] |= set(group)
        elif len(roles[0]) + len(roles[1]) + len(group) <= (train + val) * len(scaffolds):
            roles[1] |= set(group)
        else:
            roles[2] |= set(group)
    return roles


@pytest.mark.filterwarnings("ignore:Expected the shares to leave")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n", "kinds"), [(1, 1), (30, 5), (100, 60), (57, 57)])
def test_scaffold_split_is_its_twin(n: int, kinds: int, seed: int) -> None:
    scaffolds = draw(n, kinds, seed)
    for train, val in ((0.8, 0.1), (0.5, 0.25), (1.0, 0.0), (0.0, 0.0)):
        split = fgl.data.splits.scaffold_split(collection(n), scaffolds, train=train, val=val)
        masks: Any = split.train_mask, split.val_mask, split.test_mask
        found = [set(mask.nonzero().flatten().tolist()) for mask in masks]
        assert found == twin_split(scaffolds, train, val)
        assert sum(map(len, found)) == n
        owners = [{scaffolds[i] for i in each} for each in found]
        assert not (owners[0] & owners[1] or owners[0] & owners[2] or owners[1] & owners[2])


def test_bounds_of_scaffolds() -> None:
    for wrong in (3, 0, 1.5):
        with pytest.raises((TypeError, ValueError), match="num_clients"):
            fgl.data.partitions.scaffold_partition(["a", "b", "a"], wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="scaffolds to be 3, one a molecule, but got 2"):
        fgl.data.splits.scaffold_split(collection(3), ["a", "b"])
    with pytest.raises(ValueError, match="at least 0 and their sum at most 1, but got 0.8 and 0.3"):
        fgl.data.splits.scaffold_split(collection(2), ["a", "b"], val=0.3)
