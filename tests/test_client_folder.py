"""A client's folder: what is written is read, and what is damaged or hostile is refused."""

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import graph, refuses

import fgl
from fgl.data import open_client, save_client


def all_fields() -> fgl.Graph:
    made = fgl.data.ratings(30, 200)
    edges = made.num_edges
    return made.replace(
        y=torch.rand(30, 2).masked_fill(torch.rand(30, 2) < 0.3, torch.nan),
        train_mask=torch.arange(30) < 10,
        node_id=torch.arange(30) + 5,
        node_type=torch.arange(30) % 3,
        edge_weight=torch.rand(edges),
        edge_type=torch.arange(edges) % 4,
    )


def sparse() -> fgl.Graph:
    return fgl.data.csbm(num_nodes=50, num_features=20, words_per_set=3, seed=1)


def pairs() -> fgl.Graph:
    return fgl.data.splits.split_by_time(fgl.data.ratings(30, 300))


def collection() -> fgl.Graph:
    return fgl.Graph.join(*fgl.data.small_graphs(5))


GRAPHS = {
    "dense": lambda: graph(20),
    "sparse": sparse,
    "fields": all_fields,
    "pairs": pairs,
    "many": collection,
}


def same(one: fgl.Graph, other: fgl.Graph) -> None:
    for name in one.__dataclass_fields__:
        a, b = getattr(one, name), getattr(other, name)
        if isinstance(a, fgl.SparseMatrix):
            a, b = a.to_dense(), b.to_dense()
        if isinstance(a, torch.Tensor):
            assert a.dtype == b.dtype and torch.equal(a.nan_to_num(7), b.nan_to_num(7)), name
        else:
            assert a == b, name


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("mapped", [False, True])
def test_what_is_written_is_read(name: str, mapped: bool, tmp_path: Path) -> None:
    made = GRAPHS[name]()
    same(made, open_client(save_client(made, tmp_path / "a"), mapped=mapped))


def test_a_mapped_file_stays_as_it_is(tmp_path: Path) -> None:
    made = fgl.Graph(torch.ones(3, 2), torch.tensor([[0], [1]]))
    save_client(made, tmp_path)
    opened = open_client(tmp_path, mapped=True)
    assert isinstance(opened.x, torch.Tensor)
    opened.x.add_(1)
    same(made, open_client(tmp_path))


def test_a_site_writes_it_without_fgl(tmp_path: Path) -> None:
    """numpy, json and hashlib suffice, as the page says."""
    arrays = {
        "x": np.arange(6, dtype=np.float32).reshape(3, 2),
        "edge_index": np.array([[0, 1], [1, 2]]),
        "y": np.array([0, 1, 1]),
    }
    listed = {}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        content = (tmp_path / f"{name}.npy").read_bytes()
        listed[name] = {
            "file": f"{name}.npy",
            "dtype": array.dtype.name,
            "shape": list(array.shape),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
    about = {"format": "fgl client", "version": 1, "num_classes": 2, "arrays": listed}
    (tmp_path / "client.json").write_text(json.dumps(about))
    made = open_client(tmp_path)
    assert made.y is not None and made.y.tolist() == [0, 1, 1] and made.num_classes == 2


def listed(folder: Path, change: Any) -> None:
    path = folder / "client.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps(change(about) or about))


def damage_bytes(folder: Path) -> None:
    path = folder / "y.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")


def replaced(folder: Path, name: str, content: bytes, **about: Any) -> None:
    """Another file, with the checksum of what is in it."""
    (folder / f"{name}.npy").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    listed(folder, lambda a: a["arrays"][name].update(sha256=digest, **about))


def told(**about: Any) -> Any:
    """A change of what the list says of the labels."""
    return lambda folder: listed(folder, lambda a: a["arrays"]["y"].update(about))


def without(name: str) -> Any:
    return lambda folder: listed(folder, lambda a: a["arrays"].pop(name) and None)


def columns(*places: float, dtype: str = "int64") -> Any:
    """Other columns of the entries of x, as a file says them."""
    content = npy(np.array(places, dtype))
    return lambda folder: replaced(folder, "x_indices", content, dtype=dtype)


def npy(array: Any, save: Any = np.save) -> bytes:
    file = io.BytesIO()
    save(file, array)
    return file.getvalue()


def linked(folder: Path) -> None:
    other = (folder / "y.npy").rename(folder.parent / f"{folder.name}-outside.npy")
    (folder / "y.npy").symlink_to(other)


def header(shape: tuple[int, ...]) -> bytes:
    """The file of an array with no number, whose header says otherwise."""
    file = io.BytesIO()
    about = {"descr": "<i8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, about)
    return file.getvalue()


def piped(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)


DAMAGES = {
    "pipe": (lambda f: piped(f, "y.npy"), "y.npy to be a regular file"),
    "list a pipe": (lambda f: piped(f, "client.json"), "client.json to be a regular file"),
    "long header": (lambda f: replaced(f, "y", header((10**16,))), "y.npy to be an array"),
    "longer header": (lambda f: replaced(f, "y", header((10**16, 10**16))), "y.npy to be an array"),
    "one too many": (lambda f: replaced(f, "y", npy(np.zeros(3)) + b"0"), "y.npy to be an array"),
    "wide": (lambda f: listed(f, lambda a: a.update(num_features=10**16)), "x to have at most"),
    "no dimension": (lambda f: replaced(f, "y", npy(np.array(1)), shape=[]), "y to have shape"),
    "link": (linked, "y to lie in"), "parent": (told(file=".."), "y to lie in"),
    "deep list": (lambda f: (f / "client.json").write_text("[" * 100_000), "JSON"),
    "empty": (lambda f: replaced(f, "y", b""), "y.npy to be an array"),
    "header": (lambda f: replaced(f, "y", b"\x93NUMPY\x01\x00\x76\x00" + b"(" * 0x76), "y.npy"),
    "archive": (lambda f: replaced(f, "y", npy(np.zeros(3), np.savez)), "y.npy to be an array"),
    "text": (lambda f: replaced(f, "y", npy(np.array(["a"] * 3)), dtype="str32"), "hold numbers"),
    "starts": (
        lambda f: replaced(f, "x_indptr", npy(np.array([0.0, 1, 3, 3])), dtype="float64"),
        "x_indptr to be int64",
    ),
    "narrow": (columns(0, 1, 2, dtype="int32"), "x_indices to be int64"),
    "bytes": (damage_bytes, "SHA-256"),
    "cut": (lambda f: (f / "y.npy").write_bytes(b""), "SHA-256"),
    "pickle": (lambda f: replaced(f, "y", npy(np.array([{}], object))), "array of numpy"),
    "version": (lambda f: listed(f, lambda a: a.update(version=2)), "version 1, but got 2"),
    "format": (lambda f: listed(f, lambda a: a.update(format="x")), "fgl client"),
    "no list": (lambda f: (f / "client.json").write_text("["), "JSON"),
    "other list": (lambda f: (f / "client.json").write_text("[]"), "fgl client"),
    "no entry": (lambda f: listed(f, lambda a: a["arrays"].update(y=["y.npy"])), "y of .* to have"),
    **{
        f"no {key}": (
            lambda f, key=key: listed(f, lambda a: a["arrays"]["y"].pop(key) and None),
            "y of .* to have",
        )
        for key in ("file", "dtype", "shape", "sha256")
    },
    "unknown": (lambda f: listed(f, lambda a: a["arrays"].update(q={})), "got \\['q'\\]"),
    "outside": (told(file="../y.npy"), "to lie in"),
    "dtype": (told(dtype="float32"), "to hold float32"),
    "shape": (told(shape=[1]), r"to hold int64 \[1\]"),
    "no edges": (without("edge_index"), "to list edge_index"),
    "no x": (without("x_indptr"), "to list"), "half": (without("x_values"), "x_values"),
    "column": (columns(10**6, 1, 1), "(indices|indexes|column|ind)"),
    "negative": (columns(-1, 1, 1), "(indices|indexes|column|ind)"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_damaged_is_refused(name: str, tmp_path: Path) -> None:
    damage, message = DAMAGES[name]
    x = fgl.SparseMatrix.from_edge_index(torch.tensor([[0, 1, 2], [0, 1, 1]]), 3)
    made = fgl.Graph(x, torch.tensor([[0], [1]]), y=torch.tensor([0, 1, 1]))
    save_client(made, tmp_path)
    open_client(tmp_path)
    damage(tmp_path)
    refuses(message, lambda: open_client(tmp_path))


def test_halves_that_numpy_has_not_are_refused_before_a_file_is_written(tmp_path: Path) -> None:
    made = graph(5)
    with pytest.raises(ValueError, match="Expected x to be of a dtype that NumPy has.*bfloat16"):
        save_client(made.replace(x=made.x.bfloat16()), tmp_path / "own")
    assert not (tmp_path / "own").exists()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"Expected folder to be one .*client\.json"):
        open_client(tmp_path)
    save_client(graph(5), tmp_path)
    (tmp_path / "y.npy").unlink()
    refuses(r"y\.npy", lambda: open_client(tmp_path), FileNotFoundError)


def test_dense_features_have_no_sparse_parts_beside_them(tmp_path: Path) -> None:
    save_client(graph(5), tmp_path)
    listed(tmp_path, lambda a: a["arrays"].update(x_indices=a["arrays"]["edge_index"]))
    refuses("to list edge_index", lambda: open_client(tmp_path))
