"""Readers of plain text and GML: equal to loops over the lines, and what they say of bad files."""

import lzma
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from federations import data_folder, pairs, refuses

from fgl import Graph, SparseMatrix
from fgl.data import load
from fgl.data.readers.gml import read_gml
from fgl.data.readers.parsing import floats, integers
from fgl.data.readers.plaintext import read_acm, read_wiki

pytestmark = pytest.mark.filterwarnings("ignore:.* which are not read")

Files = dict[str, str | bytes]
ACM: Files = {
    "tiny.feature": "1 0 1 \n0 0 0 \n0 1 0.5 \n1 1 1 \n",
    "tiny.label": "0\n2\n2\n5\n",
    "tiny_PAP.edge": "0 1\n1 0\n1 2\n2 2\n0 1\n",
}
WIKI: Files = {
    "graph.txt": "0\t1\n1\t1\n2\t0\n0\t2\n",
    "group.txt": "0\t9\n2\t1\n1\t4\n3\t9\n",
    "tfidf.txt": "0\t1\t0.5\n2\t4\t1e-2\n3\t0\t3\n2\t3\t0\n",
}
GML: Files = {
    "tiny.gml": """# blogs
Creator "A # [ day"
graph [
  directed 1
  node [ id 7 label "a b]" value 4 graphics [ x 1 id 9 ] ]
  node [
    id 3
    value 1
  ]
  node [ value 4 id 5 ]
  edge [ source 7 target 3 ]
  edge [ source 3 target 7 value 2 ]
  edge [ source 5 target 5 ]
  edge [ source 3 target 5 ]
]
"""
}


def write(folder: Path, files: Files) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def public(name: str) -> tuple[Graph, Path]:
    folder = data_folder(name)
    return load(name), folder


def both_ways(lines: list[list[str]]) -> list[tuple[int, int]]:
    edges = {(int(a), int(b)) for a, b in lines if int(a) != int(b)}
    return sorted(edges | {(b, a) for a, b in edges}, key=lambda pair: pair[::-1])


def lines(path: Path) -> list[list[str]]:
    if path.suffix == ".xz":
        return [line.split() for line in lzma.open(path, "rt")]
    return [line.split() for line in path.read_text().splitlines()]


def check_acm(graph: Graph, folder: Path, name: str) -> None:
    rows = [[float(word) for word in line] for line in lines(folder / f"{name}.feature")]
    labels = [int(word) for (word,) in lines(folder / f"{name}.label")]
    assert isinstance(graph.x, SparseMatrix)
    assert torch.equal(graph.x.to_dense(), torch.tensor(rows))
    assert graph.x.nnz == sum(value != 0 for row in rows for value in row)
    assert graph.y is not None
    assert graph.y.tolist() == [sorted({*labels}).index(label) for label in labels]
    assert pairs(graph) == both_ways(lines(folder / f"{name}_PAP.edge"))
    assert graph.train_mask is graph.val_mask is graph.test_mask is None


def check_wiki(graph: Graph, folder: Path, words: str) -> None:
    labels = {int(node): int(label) for node, label in lines(folder / "group.txt")}
    assert isinstance(graph.x, SparseMatrix)
    dense = np.zeros(graph.x.shape, np.float32)
    for row, col, value in lines(folder / words):
        dense[int(row), int(col)] = float(value)
    np.testing.assert_array_equal(graph.x.to_dense().numpy(), dense)
    used = sorted({*labels.values()})
    assert graph.y is not None
    assert graph.y.tolist() == [used.index(labels[node]) for node in range(len(labels))]
    assert pairs(graph) == both_ways(lines(folder / "graph.txt"))
    assert graph.train_mask is graph.val_mask is graph.test_mask is None


def test_tiny_equals_loops(tmp_path: Path) -> None:
    acm = read_acm(write(tmp_path / "acm", ACM), "tiny")
    check_acm(acm, tmp_path / "acm", "tiny")
    assert (acm.num_classes, acm.num_edges) == (3, 4)
    wiki = read_wiki(write(tmp_path / "wiki", WIKI), "tiny")
    check_wiki(wiki, tmp_path / "wiki", "tfidf.txt")
    assert (wiki.num_classes, wiki.num_features, wiki.num_edges) == (3, 5, 4)
    packed: Files = {k: v for k, v in WIKI.items() if k != "tfidf.txt"}
    packed["tfidf.txt.xz"] = lzma.compress(str(WIKI["tfidf.txt"]).encode())
    again = read_wiki(write(tmp_path / "packed", packed), "tiny")
    assert torch.equal(again.x.to_dense(), wiki.x.to_dense())


def test_tiny_gml(tmp_path: Path) -> None:
    graph = read_gml(write(tmp_path, GML), "tiny")
    assert graph.y is not None
    assert graph.y.tolist() == [1, 0, 1]
    assert graph.num_classes == 2
    assert pairs(graph) == [(1, 0), (0, 1), (2, 1), (1, 2)]
    want = torch.zeros(3, 64)
    want[[0, 1, 2], [1, 2, 1]] = 1
    assert torch.equal(graph.x.to_dense(), want)


def test_public_polblogs() -> None:
    graph, folder = public("polblogs")
    text = (folder / "polblogs.gml").read_text()
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (1490, 2 * 16715, 2)
    assert graph.y is not None
    assert graph.y.tolist() == [int(value) for value in re.findall(r"value (\d+)", text)]
    assert graph.y.bincount().tolist() == [758, 732]
    found = re.findall(r"source (\d+)\s+target (\d+)", text)
    assert len(found) == 19090
    assert pairs(graph) == both_ways([[str(int(a) - 1), str(int(b) - 1)] for a, b in found])
    degree = graph.edge_index[0].bincount(minlength=1490)
    assert int((degree == 0).sum()) == 266
    assert torch.equal(graph.x.to_dense().argmax(1), degree.clamp(max=63))
    assert torch.equal(graph.x.to_dense().sum(1), torch.ones(1490))


WRONG_ACM = [
    ("tiny.feature", "1 0\n1 x\n", r"tiny\.feature, line 2, to be 2 finite numbers, but got '1 x'"),
    ("tiny.feature", "1 0\n\n1\n", r"tiny\.feature, line 3, to be 2 finite numbers, but got '1'"),
    ("tiny.feature", "1\nnan\n", r"tiny\.feature, line 2, to be one finite number, but got 'nan'"),
    ("tiny.feature", "1e999\n", r"line 1, to be one finite number, but got '1e999'"),
    ("tiny.feature", "1e300\n" * 4, r"features in .*tiny\.feature to be finite as float32, .* 4 "),
    ("tiny.label", "0\n1\n", r"tiny\.label to have 4 lines, one per line of tiny\.feature, .* 2"),
    ("tiny.label", "0\n1\n2\n1.5\n", r"tiny\.label, line 4, to be one integer, but got '1\.5'"),
    ("tiny.label", "0\n1\n2\n1e2\n", r"tiny\.label, line 4, to be one integer, but got '1e2'"),
    ("tiny.label", "0\n1\n2\n" + "9" * 30, r"tiny\.label, line 4, to be one integer"),
    ("tiny.label", b"0\n1\n2\n\xff\n", r"tiny\.label, line 4, to be one integer"),
    ("tiny.label", "0 1\n" * 4, r"tiny\.label, line 1, to be one integer, but got '0 1'"),
    ("tiny_PAP.edge", "0 1\n\n0 4\n", r"edge, line 3, to be in \[0, 4\), but got 4"),
    ("tiny_PAP.edge", "0 1\n-1 2\n", r"edge, line 2, to be in \[0, 4\), but got -1"),
    ("tiny_PAP.edge", "0 1\n0\n", r"edge, line 2, to be 2 integers, but got '0'"),
    ("tiny_PAP.edge", "0 1 2\n", r"edge, line 1, to be 2 integers, but got '0 1 2'"),
]


@pytest.mark.parametrize(("file", "content", "message"), WRONG_ACM)
def test_malformed_acm(tmp_path: Path, file: str, content: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^Expected .*{message}"):
        read_acm(write(tmp_path, {**ACM, file: content}), "tiny")


def test_letters_are_no_digits_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a Turkish locale numpy reads U+FFFD as the number 65485."""
    monkeypatch.setattr("numpy.loadtxt", lambda *args, **kwargs: np.zeros((4, 1), np.int64))
    with pytest.raises(ValueError, match="line 4, to be one integer"):
        read_acm(write(tmp_path, {**ACM, "tiny.label": b"0\n1\n2\n\xff\n"}), "tiny")


WRONG_WIKI = [
    ("group.txt", "0\t1\n0\t1\n", r"group\.txt, line 2, to be a node that has no label yet, .* 0"),
    ("group.txt", "0\t1\n2\t1\n", r"group\.txt, line 2, to be in \[0, 2\), but got 2"),
    ("group.txt", "", r"group\.txt to hold labels, but got none"),
    ("graph.txt", "0\t9\n", r"graph\.txt, line 1, to be in \[0, 4\), but got 9"),
    ("tfidf.txt", "0\t1\t1\n4\t1\t1\n", r"tfidf\.txt, line 2, to be in \[0, 4\), but got 4"),
    ("tfidf.txt", "0\t-1\t1\n", r"tfidf\.txt, line 1, to be in \[0, 2147483648\), but got -1"),
    ("tfidf.txt", "0\t.5\t1\n", r"tfidf\.txt, line 1, to be two integers and a number"),
    ("tfidf.txt", "0\t1\n", r"tfidf\.txt, line 1, to be 3 finite numbers, but got '0\\t1'"),
]


@pytest.mark.parametrize(("file", "content", "message"), WRONG_WIKI)
def test_malformed_wiki(tmp_path: Path, file: str, content: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^Expected .*{message}"):
        read_wiki(write(tmp_path, {**WIKI, file: content}), "tiny")


def test_malformed_xz(tmp_path: Path) -> None:
    packed: Files = {k: v for k, v in WIKI.items() if k != "tfidf.txt"}
    for content in (b"", b"abc", lzma.compress(b"0 1 1\n" * 99)[:-20]):
        folder = write(tmp_path, {**packed, "tfidf.txt.xz": content})
        with pytest.raises(ValueError, match=r"tfidf\.txt\.xz to be an xz file, but got"):
            read_wiki(folder, "tiny")


NODE = "graph [\nnode [ id 1 value 0 ]\nnode [ id 2 value 1 ]\n"
WRONG_GML = [
    (NODE + "edge [ source 1 target 3 ] ]", "edge #0 has undefined target 3"),
    (NODE + "edge [ source 1 ] ]", "edge #0 has no 'target'"),
    (NODE + "edge [ source 1 target a ] ]", "edge #0 has undefined target 'a'"),
    (NODE + "node [ id 2 value 0 ] ]", "node id 2 is duplicated"),
    (NODE + "node [ id 3 club 1 ] ]", "integer 'value' in each node, .*'club': 1.* 3: targets="),
    (NODE + "node [ id 3 value 1.5 ] ]", "integer 'value' in each node, but got"),
    (NODE + "node [ value 3 ] ]", "node #2 has no 'id'"),
    (NODE + "node [ id 3 value 0", r"expected '\]', found EOF at \(5, 1\)"),
    (NODE + "]\n]", r"expected EOF, found '\]' at \(5, 1\)"),
    (NODE + '"a" 1\n]', r"at \(4, 1\)"),
    ("graph [ ]", "to hold labels, but got none"),
    ("", "input contains no graph"),
]


@pytest.mark.parametrize(("content", "message"), WRONG_GML)
def test_malformed_gml(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^Expected .*tiny\.gml .*{message}"):
        read_gml(write(tmp_path, {"tiny.gml": content}), "tiny")


@pytest.mark.parametrize(("read", "files"), [(read_acm, ACM), (read_wiki, WIKI), (read_gml, GML)])
def test_random_damage_raises_value_error_or_nothing(
    tmp_path: Path, read: Callable[[Path, str], Graph], files: Files
) -> None:
    write(tmp_path, files)
    rng = np.random.default_rng(0)
    for name, content in files.items():
        for _ in range(100):
            damaged = bytearray(str(content).encode())
            for place in rng.integers(0, len(damaged), 2):
                damaged[place] = rng.choice([*b'09 .-e[]\n"#\xff'])
            write(tmp_path, {name: bytes(damaged[: rng.integers(1, 2 * len(damaged))])})
            try:
                read(tmp_path, "tiny")
            except ValueError as error:
                assert str(error).startswith("Expected")
        write(tmp_path, {name: content})


def test_missing_files(tmp_path: Path) -> None:
    for read, files in ((read_acm, ACM), (read_wiki, WIKI), (read_gml, GML)):
        for file in files:
            folder = write(tmp_path / read.__name__ / file, files)
            (folder / file).unlink()
            with pytest.raises(ValueError, match=rf"got none named \['{file}'"):
                read(folder, "tiny")


def test_tables(tmp_path: Path) -> None:
    path = tmp_path / "table.txt"
    path.write_bytes(b" 1, 2 \r\n\r\n+3,-4\r\n \r\n")
    assert integers(path, 2, ",").tolist() == [[1, 2], [3, -4]]
    path.write_bytes(b"")
    assert integers(path, 2).shape == (0, 2)
    assert floats(path, 3).shape == (0, 3)
    path.write_bytes(b"1.5 -.5e1 2")  # no newline at the end
    assert floats(path, None).tolist() == [[1.5, -5.0, 2.0]]
    for content in (b"1_0\n", b"0x1\n", b"1 # 2\n", b"\xd9\xa1\n"):
        path.write_bytes(content)
        refuses("line 1, to be one integer", lambda: integers(path, 1))


def test_folder_with_gml(tmp_path: Path) -> None:
    write(tmp_path / "tiny" / "raw", GML)
    assert load("tiny", tmp_path).x.shape == (3, 64)
