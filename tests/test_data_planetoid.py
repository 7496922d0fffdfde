"""The Planetoid reader: equal to PyG's and to loops, and what it says of malformed files."""

import os
import pickle
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from federations import data_folder, refuses
from torch_geometric.io import read_planetoid_data

from fgl import Graph, SparseMatrix
from fgl.data.readers.planetoid import PARTS, read_planetoid

NAME = "tiny"
PUBLIC = {  # edges, public masks, missing test ids
    "cora": (10556, [140, 500, 1000], 0),
    "citeseer": (9104, [120, 500, 1000], 15),
    "pubmed": (88648, [60, 500, 1000], 0),
}


def parts(*, gap: bool = False) -> dict[str, Any]:
    """Twelve nodes, of which 8..11 are the test's; with `gap` a 13th and no row for node 9."""
    rng = np.random.default_rng(0)
    n = 13 if gap else 12
    test = [11, 8, 12, 10] if gap else [11, 8, 9, 10]
    features = rng.integers(0, 3, (12, 5)).astype(np.float32)
    onehot = np.eye(3, dtype=np.int32)[rng.integers(0, 3, 12)]
    graph = defaultdict(list, {i: [(i + 1) % n, (i * 5) % n, i] for i in range(n)})
    graph[3].append(4)  # a second time
    sparse = scipy.sparse.csr_matrix
    return {
        "x": sparse(features[:3]),
        "allx": sparse(features[:8]),
        "tx": sparse(features[8:]),
        "y": onehot[:3],
        "ally": onehot[:8],
        "ty": onehot[8:],
        "graph": graph,
        "test.index": "".join(f"{i}\n" for i in test).encode(),
    }


def write(folder: Path, name: str = NAME, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part, value in {**parts(gap=changes.pop("gap", False)), **changes}.items():
        content = value if isinstance(value, bytes) else pickle.dumps(value, protocol=4)
        (folder / f"ind.{name}.{part}").write_bytes(content)
    return folder


def masks(graph: Graph) -> list[list[int]]:
    found = (graph.train_mask, graph.val_mask, graph.test_mask)
    return [mask.nonzero().flatten().tolist() for mask in found if mask is not None]


@pytest.mark.parametrize("gap", [False, True])
def test_equals_loops(tmp_path: Path, gap: bool) -> None:
    raw = parts(gap=gap)
    graph = read_planetoid(write(tmp_path, gap=gap), NAME)
    n = 13 if gap else 12
    test = [int(i) for i in raw["test.index"].split()]
    x, y = np.zeros((n, 5), np.float32), [0] * n
    for rows, labels, nodes in (("allx", "ally", range(8)), ("tx", "ty", test)):
        for row, node in enumerate(nodes):
            x[node] = raw[rows].toarray()[row]
            y[node] = int(raw[labels][row].argmax())
    edges = set()
    for node, targets in raw["graph"].items():
        for target in targets:
            if node != target:
                edges |= {(node, target), (target, node)}
    assert isinstance(graph.x, SparseMatrix)
    np.testing.assert_array_equal(graph.x.to_dense().numpy(), x)
    assert graph.x.dtype == torch.float32
    assert graph.x.nnz == (x != 0).sum()
    assert graph.y.tolist() == y
    pairs = [*zip(*graph.edge_index.tolist(), strict=True)]
    assert pairs == sorted(edges, key=lambda pair: pair[::-1])
    assert graph.num_classes == 3
    assert masks(graph) == [[0, 1, 2], [3, 4, 5, 6, 7], sorted(test)]


@pytest.mark.parametrize("name", PUBLIC)
def test_equals_pyg_on_public_data(name: str) -> None:
    folder = data_folder(name)
    graph = read_planetoid(folder, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pyg = read_planetoid_data(str(folder), name)
    assert torch.equal(graph.x.to_dense(), pyg.x)
    assert torch.equal(graph.edge_index, pyg.edge_index)
    for field in ("y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(getattr(graph, field), getattr(pyg, field))
    num_edges, sizes, missing = PUBLIC[name]
    assert graph.num_edges == num_edges
    assert [len(mask) for mask in masks(graph)] == sizes
    test = torch.tensor(masks(graph)[2])
    absent = sorted({*range(int(test.min()), graph.num_nodes)} - {*test.tolist()})
    assert len(absent) == missing
    assert not graph.y[absent].any()
    assert not graph.x.to_dense()[absent].any()


class Evil:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        function, *arguments = self.call
        return function, tuple(arguments)


@pytest.mark.parametrize("part", [part for part in PARTS if part != "test.index"])
def test_malicious_pickle_is_refused(tmp_path: Path, part: str) -> None:
    marker = tmp_path / "marker"
    folder = write(tmp_path / "data", **{part: Evil(os.mkdir, str(marker))})
    refuses(rf"ind\.tiny\.{part}.*, .*got the global", lambda: read_planetoid(folder, NAME))
    assert not marker.exists()


@pytest.mark.parametrize(
    "evil",
    [
        Evil(eval, "1"),
        Evil(getattr, [], "append"),
        Evil(np.load, "file.npy"),
        Evil(scipy.sparse.load_npz, "file.npz"),
        [Evil(os.getcwd)],
        np.array([Evil(os.getcwd)], dtype=object),
        np.array([{}], dtype=object),
    ],
    ids=["eval", "getattr", "numpy", "scipy", "in a list", "in an array", "array of objects"],
)
def test_nothing_else_is_made(tmp_path: Path, evil: Any) -> None:
    with pytest.raises(ValueError, match=r"Expected .*ind\.tiny\.ally to be a pickle of arrays"):
        read_planetoid(write(tmp_path, ally=evil), NAME)


def test_random_damage_raises_value_error_or_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path)
    rng = np.random.default_rng(0)
    for part in PARTS:
        path = folder / f"ind.{NAME}.{part}"
        content = path.read_bytes()
        for _ in range(20):
            damaged = bytearray(content)
            for place in rng.integers(0, len(content), 2):
                damaged[place] = rng.integers(0, 256)
            path.write_bytes(damaged[: rng.integers(0, 2 * len(content))])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    read_planetoid(folder, NAME)
                except ValueError as error:
                    assert "Expected" in str(error)
        path.write_bytes(content)


def csr(**fields: Any) -> Any:
    """A csr_matrix whose pickle says something wrong."""
    matrix = parts()["tx"]
    vars(matrix).update(fields)
    return matrix


def index(*ids: object) -> bytes:
    return "\n".join(map(str, ids)).encode()


NONE = np.zeros(0, np.float32)
WRONG: list[tuple[str, Any, str]] = [
    ("tx", csr(indices=np.full(parts()["tx"].nnz, 99, np.int32)), "tx to hold a csr_matrix"),
    ("tx", csr(indices=np.full(parts()["tx"].nnz, -1, np.int32)), "tx to hold a csr_matrix"),
    ("tx", csr(indptr=np.array([0, 10**6, 0, 3, 2], np.int32)), "tx to hold a csr_matrix"),
    ("tx", csr(indptr=np.array([0, 1], np.int32)), "tx to hold a csr_matrix"),
    ("tx", csr(_shape=(4, -5)), "tx to hold a csr_matrix"),
    ("tx", csr(_shape="ab"), "tx to hold a csr_matrix"),
    ("tx", csr(data=NONE), "tx to hold a csr_matrix"),
    ("tx", csr(data=[1.0]), "tx to hold arrays of 1 dimensions, but got <class 'list'>"),
    ("tx", [1, 2], "tx to hold arrays of 2 dimensions, but got <class 'list'>"),
    ("tx", csr(data=np.full(parts()["tx"].nnz, np.nan)), "Expected x to be finite"),
    ("tx", parts()["x"], r"ty and its features to have \(rows, features, classes\) \(3, 5, 3\)"),
    ("tx", parts()["tx"][:, :4], r"ty and its features .* but got \(4, 4, 3\)"),
    ("ty", parts()["ty"][:, :2], r"ty and its features .* but got \(4, 5, 2\)"),
    ("ty", parts()["ty"][0], r"ty to hold arrays of 2 dimensions, but got int32 \(3,\)"),
    ("ty", parts()["ty"][None], r"ty to hold arrays of 2 dimensions, but got int32 \(1, \d+, 3\)"),
    ("ty", {1: [2]}, "ty to hold arrays of 2 dimensions, but got <class 'dict'>"),
    ("graph", [1], "graph to map nodes to lists"),
    ("graph", {0: 1}, "graph to map nodes to lists"),
    ("graph", {0: ["a"]}, "graph to name nodes by integers"),
    ("graph", {0: [1.5]}, "graph to name nodes by integers"),
    ("graph", {0: [True]}, "graph to name nodes by integers"),
    ("graph", {0: [10**30]}, "graph to name nodes by integers"),
    ("graph", {0: [12]}, r"graph to be in \[0, 12\), but got 12"),
    ("graph", {0: [-1]}, r"graph to be in \[0, 12\), but got -1"),
    ("test.index", index(8, 9, 10), "test.index to hold 4 different ids, but got 3 in 3 lines"),
    ("test.index", index(8, 9, 10, 10), "test.index to hold 4 different ids, but got 3 in 4 lines"),
    ("test.index", index(8, 9, 10, 12), r"test.index to be in \[8, 12\), but got 12"),
    ("test.index", index(8, 9, 10, 7), r"test.index to be in \[8, 12\), but got 7"),
    ("test.index", index(8, 9, 10, -11), "test.index to hold one node id a line"),
    ("test.index", index(8, 9, 10, 11.5), "test.index to hold one node id a line"),
    ("test.index", index(8, 9, 10, 10**20), "test.index to hold one node id a line"),
    ("test.index", b"\xff\xfe", "test.index to hold one node id a line"),
]


@pytest.mark.parametrize(("part", "value", "message"), WRONG)
def test_malformed_content(tmp_path: Path, part: str, value: Any, message: str) -> None:
    refuses(message, lambda: read_planetoid(write(tmp_path, **{part: value}), NAME))


def test_more_training_nodes_than_known_ones(tmp_path: Path) -> None:
    raw = parts()
    many = {"x": scipy.sparse.vstack([raw["allx"], raw["tx"]]).tocsr(), "y": np.eye(3)[[0] * 12]}
    with pytest.raises(ValueError, match="to have at most 8 rows, as ally, but got 12"):
        read_planetoid(write(tmp_path, **many), NAME)


def test_what_would_end_python_is_refused(tmp_path: Path) -> None:
    """Tuples in tuples, an index of the memo beyond memory, one list for all nodes."""
    end = b"."
    deep = b"\x80\x02)" + b"\x85" * 30_000
    wide = b"\x80\x02K\x00" + b"".join(b"(" + b"q\x00" + b"h\x00" * 9 + b"t" for _ in range(40))
    bags = {
        "a value": deep + end,
        "a key": b"\x80\x02}" + deep[2:] + b"K\x01s" + end,
        "a key of copies": b"\x80\x02}" + wide[2:] + b"K\x01s" + end,
        "a dtype": b"\x80\x02cnumpy\ndtype\n" + deep[2:] + b"\x85R" + end,
        "a memo": b"\x80\x02K\x01r\xff\xff\xff\xff" + end,
        "bytes": b"\x80\x04\x8e" + (10**16).to_bytes(8, "little") + end,
        "bytes that grow": b"\x80\x05\x96" + (10**16).to_bytes(8, "little") + end,
    }
    for what, content in bags.items():
        part = "ally" if what == "a dtype" else "graph"
        with pytest.raises(ValueError, match=rf"ind\.tiny\.{part}"):
            read_planetoid(write(tmp_path / what, **{part: content}), NAME)
    shared: list[int] = [1] * 5000
    with pytest.raises(ValueError, match=r"ind\.tiny\.graph to list each edge once"):
        read_planetoid(write(tmp_path, graph=dict.fromkeys(range(5000), shared)), NAME)


@pytest.mark.parametrize("shape", [(10**16,), (10**16, 10**16), (-1,), 3, (1.0,), ((1,),)])
def test_an_array_of_another_size_than_its_bytes_is_refused(shape: Any, tmp_path: Path) -> None:
    array = np.ones((2, 3), np.int32)
    make, arguments, state = array.__reduce__()
    content = pickle.dumps(_Reduced(make, arguments, (state[0], shape, *state[2:])), protocol=2)
    with pytest.raises(ValueError, match=r"ind\.tiny\.ally to be a pickle"):
        read_planetoid(write(tmp_path, ally=content), NAME)


class _Reduced:
    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced
