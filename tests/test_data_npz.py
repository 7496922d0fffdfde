"""Readers of arrays and JSON: equal to loops, and what they say of malformed files."""

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from federations import data_folder, pairs, refuses
from torch_geometric.io import read_npz as pyg_read_npz

import fgl
from fgl import Graph, SparseMatrix
from fgl.data import catalogue, load
from fgl.data.readers.npz import read_npz, read_saint
from fgl.data.readers.wiki_cs import read_wiki_cs

pytestmark = pytest.mark.filterwarnings("ignore:.* which are not read")

ADJ = scipy.sparse.csr_matrix(
    ([1.0, 2.0, 1.0, 0.0, 5.0], ([0, 1, 2, 3, 3], [1, 0, 3, 0, 3])), (4, 4)
)
PAIRS = [(1, 0), (0, 1), (3, 2), (2, 3)]  # without the explicit zero and the self-loop
X = np.array([[0, 0.5], [1, 0], [0, 0], [2, 3]], np.float32)
LABELS = np.array([1, 0, 2, 1], np.int32)


def csr(prefix: str, matrix: Any) -> dict[str, Any]:
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    return {f"{prefix}{k}": v for k, v in (parts | {"shape": np.array(matrix.shape)}).items()}


def npz(**changes: Any) -> dict[str, Any]:
    arrays = csr("adj_", ADJ) | csr("attr_", scipy.sparse.csr_matrix(X)) | {"labels": LABELS}
    return {key: value for key, value in (arrays | changes).items() if value is not None}


def write(folder: Path, arrays: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "tiny.npz", **arrays)
    return folder


WITHOUT = dict.fromkeys(csr("attr_", ADJ))


def test_npz_with_sparse_dense_and_no_features(tmp_path: Path) -> None:
    sparse = read_npz(write(tmp_path / "a", npz()), "tiny")
    assert isinstance(sparse.x, SparseMatrix)
    assert torch.equal(sparse.x.to_dense(), torch.tensor(X))
    assert sparse.x.nnz == (X != 0).sum()
    assert sparse.y is not None
    assert (sparse.y.tolist(), sparse.num_classes) == (LABELS.tolist(), 3)
    assert pairs(sparse) == PAIRS
    assert sparse.train_mask is sparse.val_mask is sparse.test_mask is None
    dense = read_npz(write(tmp_path / "b", npz(**WITHOUT, attr_matrix=X.astype(float))), "tiny")
    assert isinstance(dense.x, torch.Tensor)
    assert torch.equal(dense.x, torch.tensor(X))
    none = read_npz(write(tmp_path / "c", npz(**WITHOUT)), "tiny")
    assert none.x.shape == (4, 64)
    assert none.x.to_dense().nonzero()[:, 1].tolist() == [1, 1, 1, 1]
    assert pairs(dense) == pairs(none) == PAIRS


def test_what_needs_pickle_is_read_neither_here_nor_there(tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(marker),)

    evil = np.array([Evil()], dtype=object)
    graph = read_npz(write(tmp_path / "a", npz(idx_to_class=evil)), "tiny")
    assert graph.num_nodes == 4
    for key in npz():
        with pytest.raises(ValueError, match=r"tiny\.npz to hold arrays that need no pickle"):
            read_npz(write(tmp_path / "b", npz(**{key: evil})), "tiny")
    folder = saint(tmp_path / "c")
    np.save(folder / "feats.npy", evil)
    refuses(r"feats\.npy to hold arrays that need no pickle", lambda: read_saint(folder, "tiny"))
    assert not marker.exists()


def test_public_dblp() -> None:
    folder = data_folder("dblp")
    graph = load("dblp")
    assert (graph.num_nodes, graph.num_edges) == (17716, 105734)
    assert (graph.num_features, graph.num_classes) == (1639, 4)
    raw = {key: array.tolist() for key, array in np.load(folder / "dblp.npz").items()}
    assert isinstance(graph.x, SparseMatrix)
    assert graph.x.pattern.crow.tolist() == raw["attr_indptr"]
    assert graph.x.pattern.col.tolist() == raw["attr_indices"]
    assert graph.x.value is not None
    assert graph.x.value.tolist() == raw["attr_data"]
    pyg = pyg_read_npz(str(folder / "dblp.npz"), to_undirected=True)
    assert graph.y is not None
    assert torch.equal(graph.y, pyg.y)
    assert isinstance(graph.x, SparseMatrix)
    assert torch.equal((graph.x.to_dense() != 0).float(), pyg.x)  # PyG makes features 0 or 1
    assert {*pairs(graph)} == {*zip(*pyg.edge_index.tolist(), strict=True)}


def bad_csr(**fields: Any) -> dict[str, Any]:
    return {f"adj_{key}": value for key, value in fields.items()}


WRONG: list[tuple[dict[str, Any], str]] = [
    (bad_csr(indices=np.array([9] * 5)), "tiny.npz to hold a csr_matrix, but got"),
    (bad_csr(indices=np.array([-1] * 5)), "tiny.npz to hold a csr_matrix, but got"),
    (bad_csr(indices=np.array([0.5] * 5)), r"adj_indices in .* to be integers .*, but got float64"),
    (bad_csr(indptr=np.array([0, 9, 1, 2, 5])), "tiny.npz to hold a csr_matrix, but got"),
    (bad_csr(indptr=np.array([0, 5])), "tiny.npz to hold a csr_matrix, but got"),
    (bad_csr(data=np.ones(1)), "tiny.npz to hold a csr_matrix, but got"),
    (bad_csr(data=np.ones((5, 1))), r"adj_data in .* to be numbers .*, but got float64 \[5, 1"),
    (bad_csr(data=np.array(["a"] * 5)), "adj_data in .* to be numbers"),
    (bad_csr(shape=np.array([4, 5])), r"tiny.npz to hold a square matrix, but got \(4, 5\)"),
    (bad_csr(shape=np.array([4, 10**16])), "tiny.npz to have at most .* columns, but got 1000"),
    (bad_csr(shape=np.array([4])), "tiny.npz to hold a csr_matrix, but got"),
    (bad_csr(shape=np.array([-4, 4])), "tiny.npz to hold a csr_matrix, but got"),
    (bad_csr(shape=None), "tiny.npz to hold adj_shape, but got adj_data, "),
    ({"attr_data": None}, "tiny.npz to hold attr_data, but got "),
    ({"attr_data": np.full(4, np.nan)}, "features in .*tiny.npz to be finite .* but got 4 that"),
    ({"attr_data": np.full(4, 1e300)}, "features in .*tiny.npz to be finite .* but got 4 that"),
    (csr("attr_", scipy.sparse.csr_matrix(X[:3])), "to have 4 rows of features, but got 3"),
    (WITHOUT | {"attr_matrix": X[:3]}, r"attr_matrix in .* to be numbers \[4, '\*'\], .* \[3, 2\]"),
    (WITHOUT | {"attr_matrix": np.full_like(X, np.inf)}, "features in .*tiny.npz to be finite"),
    ({"labels": None}, "tiny.npz to hold labels, but got adj_data"),
    ({"labels": LABELS[:3]}, r"labels in .* to be integers \[4\], but got int32 \[3\]"),
    ({"labels": LABELS[:, None]}, r"labels in .* to be integers \[4\], but got int32 \[4, 1\]"),
    ({"labels": LABELS * 1.0}, r"labels in .* to be integers \[4\], but got float64 \[4\]"),
    ({"labels": LABELS - 1}, "y to be at least 0, but got -1"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_malformed_npz(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    refuses(rf"^Expected .*{message}", lambda: read_npz(write(tmp_path, npz(**changes)), "tiny"))


def test_an_npz_of_other_names_is_told_what_it_holds(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=X, edge_index=np.array(PAIRS).T)
    with pytest.raises(ValueError, match="to hold adj_data.* or node_features .*'edge_index'"):
        read_npz(tmp_path, "mine")


def test_damaged_npz(tmp_path: Path) -> None:
    folder = write(tmp_path, npz())
    path = folder / "tiny.npz"
    content = path.read_bytes()
    array = io.BytesIO()
    np.save(array, X)
    for damaged in (b"", b"abc", b"PK\3\4", content[:-30], content[:200], array.getvalue()):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"Expected .*tiny\.npz to hold arrays that need no"):
            read_npz(folder, "tiny")
    rng = np.random.default_rng(0)
    for _ in range(200):
        some = bytearray(content)
        for place in rng.integers(0, len(content), 3):
            some[place] = rng.integers(0, 256)
        path.write_bytes(some)
        try:
            read_npz(folder, "tiny")
        except ValueError as error:
            assert str(error).startswith("Expected")
    path.unlink()
    refuses(r"to hold 1 file, but got none named \['tiny\.npz'\]", lambda: read_npz(folder, "tiny"))


ROLE = {"tr": [0, 3], "va": [1], "te": []}
CLASSES = {"0": 1, "2": 2, "1": 0, "3": 1}


def saint(folder: Path, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    scipy.sparse.save_npz(folder / "adj_full.npz", changes.get("adj", ADJ))
    np.save(folder / "feats.npy", changes.get("feats", X.astype(np.float64)))
    for key, file, value in (("classes", "class_map", CLASSES), ("role", "role", ROLE)):
        content = changes.get(key, value)
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{file}.json").write_text(text)
    return folder


def test_saint(tmp_path: Path) -> None:
    saint(tmp_path / "tiny" / "raw")
    graph = load("tiny", tmp_path)
    assert isinstance(graph.x, torch.Tensor)
    assert torch.equal(graph.x, torch.tensor(X))
    assert graph.y is not None
    assert graph.y.tolist() == [1, 0, 2, 1]
    assert pairs(graph) == PAIRS
    masks = [m.nonzero().flatten().tolist() for m in (graph.train_mask, graph.val_mask)]
    assert masks == [[0, 3], [1]]
    assert graph.test_mask is not None
    assert not graph.test_mask.any()


WRONG_SAINT: list[tuple[str, Any, str]] = [
    ("adj", ADJ[:3], r"adj_full\.npz to hold a square matrix, but got \(3, 4\)"),
    ("feats", X[:3], r"feats\.npy to be numbers \[4, '\*'\], but got float32 \[3, 2\]"),
    ("feats", X[:, 0], r"feats\.npy to be numbers \[4, '\*'\], but got float32 \[4\]"),
    ("feats", X * np.nan, r"features in .*feats\.npy to be finite as float32, but got 8 that"),
    ("classes", {"0": 1}, r"class_map\.json to map the nodes 0 to 3, but got other keys"),
    ("classes", [1, 2, 3, 4], r"class_map\.json to map the nodes 0 to 3, but got other keys"),
    ("classes", CLASSES | {"0": [0, 1]}, r"class_map\.json to be an array, but got"),
    ("classes", {key: [0, 1] for key in CLASSES}, r"class_map\.json to be integers \[4\], but"),
    ("classes", CLASSES | {"0": 0.5}, r"class_map\.json to be integers \[4\], but got float64"),
    ("classes", CLASSES | {"0": 10**30}, r"class_map\.json to be integers \[4\], but got object"),
    ("classes", CLASSES | {"0": -1}, "y to be at least 0, but got -1"),
    ("classes", "{\n\n'0'", r"class_map\.json to be JSON, but got Expecting .* line 3"),
    ("role", {"tr": [], "va": []}, r"role\.json to have 'tr', 'va' and 'te', but got no 'te'"),
    ("role", [], r"role\.json to have 'tr', 'va' and 'te', but got no 'tr'"),
    ("role", ROLE | {"te": [4]}, r"'te' in .*role\.json to be in \[0, 4\), but got 4"),
    ("role", ROLE | {"te": [-1]}, r"'te' in .*role\.json to be in \[0, 4\), but got -1"),
    ("role", ROLE | {"te": ["a"]}, r"'te' in .*role\.json to be integers \['\*'\], but got"),
    ("role", ROLE | {"te": 1}, r"'te' in .*role\.json to be integers \['\*'\], but got"),
    ("role", ROLE | {"te": [3]}, "example to be in one mask, but got 1 in both"),
]


@pytest.mark.parametrize(("key", "value", "message"), WRONG_SAINT)
def test_malformed_saint(tmp_path: Path, key: str, value: Any, message: str) -> None:
    refuses(rf"^Expected .*{message}", lambda: read_saint(saint(tmp_path, **{key: value}), "tiny"))


def test_cora_full_has_ones_as_in_pyg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "cora_full" / "raw", npz()).joinpath("tiny.npz")
    path = path.rename(path.with_name("cora.npz"))
    row = catalogue.GRAPHS["cora_full"]
    refuses(r"cora\.npz to have sha256 62e054f9", lambda: load("cora_full", tmp_path))
    sums = {"cora.npz": hashlib.sha256(path.read_bytes()).hexdigest()}
    monkeypatch.setitem(catalogue.GRAPHS, "cora_full", row._replace(sha256=sums))
    graph = load("cora_full", tmp_path)
    assert isinstance(graph.x, SparseMatrix)
    assert torch.equal(graph.x.to_dense(), torch.from_numpy(X > 0).float())
    assert torch.equal(graph.x.to_dense(), pyg_read_npz(str(path)).x)
    assert pairs(graph) == PAIRS


EDGES = np.array([[0, 1], [1, 0], [3, 2], [2, 2], [3, 2]])
SPLIT_MASKS = np.eye(4, dtype=bool)


def heterophilous(**changes: Any) -> dict[str, Any]:
    arrays = {"node_features": X, "node_labels": LABELS, "edges": EDGES}
    arrays |= {
        f"{r}_masks": SPLIT_MASKS[[i, i + 1]] for i, r in enumerate(("train", "val", "test"))
    }
    return {key: value for key, value in (arrays | changes).items() if value is not None}


def test_heterophilous_graphs_have_several_splits(tmp_path: Path) -> None:
    folder = write(tmp_path / "tiny" / "raw", heterophilous())
    for split, roles in ((None, [[0], [1], [2]]), (0, [[0], [1], [2]]), (1, [[1], [2], [3]])):
        graph: Any = load("tiny", tmp_path, split=split)
        masks = graph.train_mask, graph.val_mask, graph.test_mask
        assert [mask.nonzero().flatten().tolist() for mask in masks] == roles
    assert torch.equal(graph.x, torch.tensor(X)) and graph.y.tolist() == LABELS.tolist()
    assert pairs(graph) == PAIRS  # both directions, no self-loop, no repeat
    (folder / "tiny.npz").rename(folder / "tiny_directed.npz")
    assert pairs(read_npz(folder, "tiny_directed")) == [(1, 0), (0, 1), (3, 2)]


def test_a_split_of_files_that_hold_none(tmp_path: Path) -> None:
    write(tmp_path / "tiny", npz())
    with pytest.raises(ValueError, match=r"split to be left out for .*tiny\.npz, .* but got 1"):
        load("tiny", tmp_path, split=1)
    for name in ("synthetic", "arxiv-like"):
        with pytest.raises(ValueError, match=f"split to be left out for {name}, .* but got 0"):
            load(name, split=0)


@pytest.mark.parametrize(("changes", "message"), [
    ({"node_features": X[0]}, r"node_features in .* to be numbers \['\*', '\*'\], but got"),
    ({"node_features": X * np.nan}, r"features in .* to be finite as float32, but got 8 that"),
    ({"node_labels": LABELS[:3]}, r"node_labels in .* to be integers \[4\], but got"),
    ({"node_labels": LABELS - 1}, "y to be at least 0, but got -1"),
    ({"node_labels": None}, r"to hold node_labels, but got"),
    ({"edges": EDGES.T}, r"edges in .* to be integers \['\*', 2\], but got int64 \[2, 5\]"),
    ({"edges": EDGES + 1}, r"edges in .* to be in \[0, 4\), but got 4"),
    ({"edges": EDGES * 0.5}, r"edges in .* to be integers .* but got float64"),
    ({"val_masks": None}, r"to hold val_masks, but got"),
    ({"val_masks": SPLIT_MASKS[:1]}, r"val_masks in .* to be bool or 0/1 \[2, 4\], but got"),
    ({"test_masks": SPLIT_MASKS[:2] * 0.5}, r"test_masks in .* to be bool or 0/1 .* float64"),
    ({"val_masks": SPLIT_MASKS[:2]}, "example to be in one mask, but got"),
    ({"train_masks": np.array(True)}, r"train_masks in .* to be bool .* but got bool \[\]"),
    ({"val_masks": np.array(True)}, r"val_masks in .* to be bool .* but got bool \[\]"),
    ({"test_masks": np.array(True)}, r"test_masks in .* to be bool .* but got bool \[\]"),
], ids=range(15))  # fmt: skip
def test_malformed_heterophilous(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^Expected .*{message}"):
        read_npz(write(tmp_path, heterophilous(**changes)), "tiny")


@pytest.mark.parametrize("split", [-1, 2])
def test_a_split_that_is_not_there(split: int, tmp_path: Path) -> None:
    text = rf"split to be in \[0, 2\) for .*tiny\.npz, but got {split}"
    refuses(text, lambda: read_npz(write(tmp_path, heterophilous()), "tiny", split=split))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("minesweeper", (10000, 2 * 39402, 7, 2)),
        ("tolokers", (11758, 2 * 519000, 10, 2)),
        ("squirrel_filtered", (2223, 2 * 46998, 2089, 5)),
        ("squirrel_filtered_directed", (2223, 65718 - 140, 2089, 5)),  # without self-loops
    ],
)
def test_public_heterophilous_graphs(name: str, sizes: tuple[int, ...]) -> None:
    folder = data_folder(name)
    first: Any = load(name)
    last: Any = load(name, split=9)
    assert (first.num_nodes, first.num_edges, first.num_features, first.num_classes) == sizes
    roles = first.train_mask.int() + first.val_mask.int() + first.test_mask.int()
    assert bool((roles == 1).all())
    with np.load(folder / f"{name}.npz") as arrays:
        assert torch.equal(last.train_mask, torch.from_numpy(arrays["train_masks"][9]))
        assert torch.equal(last.test_mask, torch.from_numpy(arrays["test_masks"][9]))
    assert not torch.equal(first.train_mask, last.train_mask)


SPLITS = [[True, False, False], [False, True, False]]
WIKI_CS: dict[str, Any] = {
    "features": [[0.5, 1], [2, 3], [0, -1]],
    "labels": [0, 2, 1],
    "links": [[1, 1, 0], [], [1]],
    "train_masks": SPLITS,
    "val_masks": SPLITS[::-1],
    "stopping_masks": SPLITS,
    "test_mask": [False, False, True],
}


MASKS = ("train_masks", "val_masks", "test_mask")


def masks_of(graph: Graph) -> list[Any]:
    return [graph.train_mask, graph.val_mask, graph.test_mask]


def wiki_cs(folder: Path, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    content = {key: value for key, value in (WIKI_CS | changes).items() if value is not None}
    (folder / "data.json").write_text(json.dumps(content))
    return folder


def test_wiki_cs(tmp_path: Path) -> None:
    folder = wiki_cs(tmp_path / "mine" / "raw")
    graph = load("mine", tmp_path)
    assert isinstance(graph.x, torch.Tensor)
    assert graph.x.tolist() == WIKI_CS["features"]
    assert graph.y is not None
    assert graph.y.tolist() == WIKI_CS["labels"]
    assert pairs(graph) == [(1, 0), (0, 1), (2, 1), (1, 2)]
    for split, got in ((0, graph), (1, read_wiki_cs(folder, split=1))):
        for key, mask in (("train_masks", got.train_mask), ("val_masks", got.val_mask)):
            assert mask is not None
            assert mask.tolist() == WIKI_CS[key][split]
        assert got.test_mask is not None
        assert got.test_mask.tolist() == WIKI_CS["test_mask"]
    masks = {key: np.array(WIKI_CS[key]).astype(int).tolist() for key in MASKS}
    numbers = read_wiki_cs(wiki_cs(tmp_path / "a", **masks))
    for ours, theirs in zip(masks_of(numbers), masks_of(graph), strict=True):
        assert torch.equal(ours, theirs)
    without = read_wiki_cs(wiki_cs(tmp_path / "b", stopping_masks=None, links=[[], [], []]))
    assert without.num_edges == 0


WRONG_WIKI_CS: list[tuple[str, Any, str]] = [
    *((key, None, rf"data.json to have features, .*, but got no \['{key}'") for key in ("links",)),
    ("features", None, r"data.json to have features, .*, but got no \['features'"),
    ("features", [[1], [2, 3], [4]], "features in .*data.json to be an array, but got"),
    ("features", [["a"], ["b"], ["c"]], "features in .*data.json to be numbers"),
    ("features", [[1], [2], [float("nan")]], "features in .*data.json to be finite .* but got 1 "),
    ("labels", [0, 1], r"labels in .*data.json to be integers \[3\], but got int64 \[2\]"),
    ("labels", [0, 1, -1], "y to be at least 0, but got -1"),
    ("links", [[1], [0]], "links in .*data.json to be 3 lists, but got something else"),
    ("links", [[1], [0], 2], "links in .*data.json to be 3 lists, but got something else"),
    ("links", [[1], [0], [3]], r"links in .*data.json to be in \[0, 3\), but got 3"),
    ("links", [[1], [0], [-1]], r"links in .*data.json to be in \[0, 3\), but got -1"),
    ("links", [[1], [0], [0.5]], "links in .*data.json to be integers"),
    ("train_masks", [[True]], r"train_masks in .*data.json .*got bool"),
    ("val_masks", SPLITS[:1], r"val_masks in .*data.json .*got bool \[1, 3"),
    ("test_mask", [0, 1, 2], r"test_mask in .*data.json to be 0 or 1, but got .2"),
    ("test_mask", [0, 0.5, 1], r"test_mask in .*data.json .*got float64 \[3\]"),
    ("train_masks", [[0, 1, -1]] * 2, r"train_masks in .*data.json to be 0 or 1, but got .-1"),
]


@pytest.mark.parametrize(("key", "value", "message"), WRONG_WIKI_CS)
def test_malformed_wiki_cs(tmp_path: Path, key: str, value: Any, message: str) -> None:
    refuses(rf"^Expected .*{message}", lambda: read_wiki_cs(wiki_cs(tmp_path, **{key: value})))


def test_wiki_cs_that_is_no_json_or_has_no_such_split(tmp_path: Path) -> None:
    for split in (-1, 2):
        with pytest.raises(ValueError, match=rf"split to be in \[0, 2\), but got {split}"):
            fgl.data.readers.wiki_cs.read_wiki_cs(wiki_cs(tmp_path), split=split)
    path = tmp_path / "data.json"
    for content, message in (
        (b"", "data.json to be JSON, .* line 1"),
        (b"[" * 100_000, "data.json to be JSON"),
        (b'"\xff"', "data.json to be JSON"),
        (b"[]", r"data.json to have features, .*, but got no \['features'"),
    ):
        path.write_bytes(content)
        refuses(message, lambda: read_wiki_cs(tmp_path))
    path.unlink()
    refuses(r"to hold 1 file, but got none named \['data\.json'\]", lambda: read_wiki_cs(tmp_path))
