"""Downloads, and datasets by name: where files are looked for, and that they are checked."""

import hashlib
import http.client
import importlib
import io
import os
import re
import sys
import warnings
import zipfile
from email.message import Message
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from federations import refuses
from test_data_npz import LABELS, X, csr, npz, saint, wiki_cs
from test_data_ogb import write as write_ogb
from test_data_planetoid import write
from test_data_tu import write as write_tu

import fgl
from fgl import SparseMatrix
from fgl.data import catalogue, download, load
from fgl.data.readers.npz import ROLES
from fgl.data.readers.planetoid import PARTS, read_planetoid

GRAPHS, COLLECTIONS = catalogue.GRAPHS, catalogue.COLLECTIONS


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(os.urandom(200_000))
    return path


@pytest.mark.parametrize("tqdm", [True, False])
def test_loads(tmp_path: Path, source: Path, tqdm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not tqdm:
        monkeypatch.setitem(sys.modules, "tqdm", None)
    target = tmp_path / "a" / "b" / "copy"
    assert download(source.as_uri(), target, checksum(source.read_bytes())) == target
    assert target.read_bytes() == source.read_bytes()
    assert [p.name for p in target.parent.iterdir()] == ["copy"]
    mask = os.umask(0)
    os.umask(mask)
    assert target.stat().st_mode & 0o777 == 0o666 & ~mask  # as readable as any new file


def test_download_of_what_is_not_there(tmp_path: Path) -> None:
    target = tmp_path / "a" / "copy"
    url = (tmp_path / "missing").as_uri()
    refuses(rf"{url} did not answer: .*{target}", lambda: download(url, target, "0" * 64), OSError)
    assert not target.parent.exists()


class Broken(io.BytesIO):
    """A connection that breaks after the first block."""

    headers = Message()

    def __init__(self, content: bytes, error: BaseException | None) -> None:
        super().__init__(content)
        self.error = error

    def read(self, size: int | None = -1) -> bytes:
        if self.tell() and self.error:
            raise self.error
        return super().read(size)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ConnectionResetError("reset"), None])
def test_an_interrupted_download_leaves_nothing(
    tmp_path: Path, error: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"x" * 100_000
    broken = Broken(content if error else content[:70_000], error)
    module = importlib.import_module("fgl.data.download")  # the function hides it
    monkeypatch.setattr(module, "urlopen", lambda url, timeout: broken)
    kind: Any = ValueError
    if error is not None:
        kind = OSError if isinstance(error, OSError) else type(error)
    with pytest.raises(kind):
        download("https://example.org/x", tmp_path / "a" / "x", checksum(content))
    assert not [*(tmp_path / "a").iterdir()]


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A public home on disk, with one known dataset; nothing cached, no FGL_DATA."""
    home = write(tmp_path / "home", "known")
    sums = {file.name: checksum(file.read_bytes()) for file in home.iterdir()}
    row = catalogue.Entry(read_planetoid, sums, home.as_uri())
    monkeypatch.setattr(catalogue, "GRAPHS", {"known": row})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FGL_DATA", raising=False)
    return home


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


RAW = sorted(f"known/raw/ind.known.{part}" for part in PARTS)


def test_corrupt_file_is_named(offline: Path, tmp_path: Path) -> None:
    load("known")
    path = tmp_path / "cache" / "fgl" / RAW[0]
    expected, content = checksum(path.read_bytes()), path.read_bytes()[:-1]
    path.write_bytes(content)
    message = rf"Expected {path} to have sha256 {expected}, but got {checksum(content)}"
    refuses(message, lambda: load("known"))


@pytest.mark.parametrize("below", ["raw", "."])
def test_fgl_data_comes_first_and_is_only_read(
    offline: Path, tmp_path: Path, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    write(mine / "known" / below, "known")
    monkeypatch.setenv("FGL_DATA", str(mine))
    before = names(mine)
    load("known")
    assert names(mine) == before
    assert not (tmp_path / "cache").exists()
    (mine / "known" / below / "ind.known.tx").unlink()  # incomplete: as if it were not there
    load("known")
    assert len(names(mine)) == len(before) - 1
    assert names(tmp_path / "cache" / "fgl") == RAW


def test_fgl_data_must_be_a_folder(offline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FGL_DATA", str(offline / "missing"))
    refuses("Expected FGL_DATA to be a folder, but got '.*missing'", lambda: load("known"))
    monkeypatch.setenv("FGL_DATA", "")  # the same as unset
    assert load("known").num_nodes == 12


def test_a_name_of_the_other_function(offline: Path) -> None:
    refuses(r"\(found: .*got 'NCI1', which load_graphs reads", lambda: load("NCI1"))
    refuses(r"NCI1, .*got 'known', which load reads", lambda: fgl.data.load_graphs("known"))


def zipped(path: Path, members: dict[str, bytes]) -> str:
    with zipfile.ZipFile(path, "w") as packed:
        for member, content in members.items():
            packed.writestr(member, content)
    return path.as_uri()


def test_members_of_a_zip(offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {"a.txt": b"0 1\n", "b.txt": b"1 2\n"}
    members = {"x/a.txt": b"0 1\n", "x/deep/b.txt": b"1 2\n", "../c.txt": b"", "x/README": b"!"}
    url = zipped(tmp_path / "x.zip", members)
    sums = {k: checksum(v) for k, v in contents.items()}
    row = catalogue.Entry(lambda folder, _: str(folder), sums)
    monkeypatch.setattr(catalogue, "COLLECTIONS", {"packed": row._replace(url=url)})
    folder = tmp_path / "root" / "packed" / "raw"
    folder.mkdir(parents=True)
    (folder / "a.txt").write_bytes(contents["a.txt"])
    before = (folder / "a.txt").stat().st_mtime_ns
    assert fgl.data.load_graphs("packed", tmp_path / "root") == str(folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == contents
    assert (folder / "a.txt").stat().st_mtime_ns == before  # what was there stays
    assert not [*tmp_path.glob("**/c.txt")]
    for bad, message in (
        ({"x/a.txt": b"0 1\n"}, r"x\.zip to hold b\.txt, but got a\.txt"),
        (members | {"x/deep/b.txt": b"1 3\n"}, r"b\.txt in file:.*x\.zip to have sha256"),
    ):
        (folder / "b.txt").unlink(missing_ok=True)
        zipped(tmp_path / "x.zip", bad)
        refuses(message, lambda: fgl.data.load_graphs("packed", tmp_path / "root"))
        assert names(folder) == ["a.txt"]
    (tmp_path / "x.zip").write_bytes(b"<html>")
    with pytest.raises(ValueError, match=r"Expected file:.*x\.zip to be a zip file"):
        fgl.data.load_graphs("packed", tmp_path / "root")
    (tmp_path / "x.zip").unlink()
    with pytest.raises(OSError, match=rf"x\.zip did not answer: .* a copy at {folder} would do"):
        fgl.data.load_graphs("packed", tmp_path / "root")
    assert names(folder) == ["a.txt"]


def test_files_elsewhere(offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = write(tmp_path / "mine" / "known" / "raw", "known").parents[1]
    row = catalogue.GRAPHS["known"]._replace(url="", how="unpack them from a.zip")
    monkeypatch.setattr(catalogue, "GRAPHS", {"known": row})
    monkeypatch.setenv("FGL_DATA", str(mine))
    assert load("known").num_nodes == 12
    (mine / RAW[3]).unlink()
    where = rf"{mine}/known/raw or .*cache/fgl/known/raw"
    file = re.escape(Path(RAW[3]).name)
    message = rf"Expected {where} to hold ind\..*, but got no {file}: unpack them from a"
    refuses(message, lambda: load("known"), FileNotFoundError)
    write(mine / "known" / "raw", "known", **{"test.index": b"0\n"})
    refuses("test.index to have sha256", lambda: load("known"))


def test_synthetic(offline: Path) -> None:
    sparse = load("synthetic")
    assert isinstance(sparse.x, SparseMatrix)
    assert torch.equal(sparse.edge_index, fgl.data.csbm().edge_index)


def serve(monkeypatch: pytest.MonkeyPatch, source: Any, **headers: str) -> None:
    """An address that answers this."""
    source.headers = Message()
    for key, value in headers.items():
        source.headers[key.replace("_", "-")] = value
    module = importlib.import_module("fgl.data.download")
    monkeypatch.setattr(module, "urlopen", lambda url, timeout: source)


class Endless(io.BytesIO):
    """It sends on and on, and counts."""

    sent = 0

    def read(self, size: int | None = -1) -> bytes:
        self.sent += size or 0
        return bytes(size or 0)


def test_a_download_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Endless()
    serve(monkeypatch, source)
    text = "Expected https://example.org/x to have at most 300000 bytes, but got 327680"
    with pytest.raises(ValueError, match=text):
        download("https://example.org/x", tmp_path / "a" / "x", "0" * 64, max_bytes=300_000)
    assert source.sent == 327_680
    source = Endless()
    serve(monkeypatch, source, Content_Length=str(2**30))
    with pytest.raises(ValueError, match=rf"at most {2**28} bytes, but got {2**30}"):
        download("https://example.org/x", tmp_path / "a" / "x", "0" * 64)
    assert source.sent == 0
    assert not names(tmp_path)


def test_a_bomb_in_a_zip_file_is_not_unpacked(
    offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("fgl.data.download")
    content = bytes(10**6)
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.txt", content)
    assert (tmp_path / "x.zip").stat().st_size < 2000
    folder, url = tmp_path / "root", (tmp_path / "x.zip").as_uri()
    written = []
    monkeypatch.setattr(Path, "open", opened_and_noted(written))
    with pytest.raises(ValueError, match=r"a\.txt in file:.* at most 9000 bytes, but got 1000000"):
        module.download_members(url, folder, {"a.txt": checksum(content)}, max_bytes=9000)
    assert not any("a.txt" in name for name in written)
    module.download_members(url, folder, {"a.txt": checksum(content)}, max_bytes=10**6)
    assert names(folder) == ["a.txt"]


def opened_and_noted(written: list[str]) -> Any:
    """`Path.open`, which notes what is written."""
    real = Path.open

    def opened(path: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        if "x" in mode or "w" in mode:
            written.append(path.name)
        return real(path, mode, *args, **options)

    return opened


@pytest.mark.parametrize("how", ["cut", "changed", "encrypted"])
def test_a_damaged_zip_file_is_a_plain_error(how: str, tmp_path: Path) -> None:
    module = importlib.import_module("fgl.data.download")
    path, content = tmp_path / "x.zip", os.urandom(5000)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.txt", content)
    data = bytearray(path.read_bytes())
    if how == "cut":
        del data[100:200]
    elif how == "changed":
        data[2000] ^= 1
    else:  # the flag of a password, in both places that have it
        data[6] |= 1
        data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match=r"Expected file:.*x\.zip to be a whole zip file, but got"):
        module.download_members(path.as_uri(), tmp_path / "root", {"a.txt": checksum(content)})
    assert not names(tmp_path / "root")


def test_a_cut_connection_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, io.BytesIO(b"x" * 70_000), Content_Length="100000")
    with pytest.raises(OSError, match="sent 70000 of 100000 bytes: the connection was cut"):
        download("https://example.org/x", tmp_path / "a" / "x", "0" * 64)
    for error in (ConnectionResetError("reset"), http.client.IncompleteRead(b"x")):
        serve(monkeypatch, Broken(b"x" * 100_000, error))
        with pytest.raises(OSError, match="The connection to .*x broke: .*; try again"):
            download("https://example.org/x", tmp_path / "a" / "x", "0" * 64)
    assert not names(tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    module = importlib.import_module("fgl.data.download")
    with pytest.raises(OSError, match=rf"Expected {tmp_path} to be a file one can read, but got"):
        module.verify(tmp_path, "0" * 64)


GML = """graph [ {} node [ id 0 value 1 club "a" graphics [ x 1 ] ] node [ id 1 value 0 club 2 ]
edge [ source 0 target 1 {} ] ]"""
ONES = csr("adj_", scipy.sparse.csr_matrix(np.ones((4, 4)) - np.eye(4)))


def archive(folder: Path, arrays: dict[str, Any]) -> None:
    np.savez(folder / "tiny.npz", **arrays)


def gml(folder: Path, *text: str) -> None:
    (folder / "tiny.gml").write_text(GML.format(*text), encoding="utf-8-sig")


UNREAD: dict[str, tuple[Any, list[str]]] = {  # what makes the files, and what is not read
    "gml": (lambda f: gml(f, "directed 1", "weight 2"), ["club", "graphics", "weight", "directed"]),
    "gml without more": (lambda f: gml(f, "directed 0", ""), ["club", "graphics"]),
    "weights": (lambda f: archive(f, npz()), ["adj_data"]),
    "arrays": (lambda f: archive(f, npz(**ONES, year=LABELS, node_names=LABELS)), ["year"]),
    "heterophilous": (
        lambda f: archive(
            f,
            {"node_features": X, "node_labels": LABELS, "edges": np.array([[0, 1]]), "year": LABELS}
            | dict(zip(ROLES, np.eye(4, dtype=bool)[:3, None], strict=True)),
        ),
        ["year"],
    ),
    "saint": (lambda f: saint(f), ["data"]),
    "wiki_cs": (lambda f: wiki_cs(f, year=[1, 2, 3]), ["year"]),
    "ogb": (lambda f: write_ogb(f, **{"raw/edge-feat": "1", "raw/node_year": "1"}), ["edge-feat"]),
}


def test_what_is_not_read_is_named_once_with_what_leaves_it_out(tmp_path: Path) -> None:
    for what, (make, names) in UNREAD.items():
        (tmp_path / what / "tiny").mkdir(parents=True)
        make(tmp_path / what / "tiny")
        with pytest.warns(UserWarning) as warned:
            load("tiny", tmp_path / what)
        texts = [str(each.message) for each in warned if "not read" in str(each.message)]
        assert len(texts) == 1 and f"ignore={names}" in texts[0], (what, texts)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            load("tiny", tmp_path / what, ignore=names)
    write_tu(tmp_path, edge_attributes="1\n" * 6)
    with pytest.warns(UserWarning, match=r"edge_labels=True .* ignore=\['edge_attributes'"):
        fgl.data.load_graphs("tiny", tmp_path)
    fgl.data.load_graphs("tiny", tmp_path, edge_labels=True, ignore=["edge_attributes"])
    (tmp_path / "a").mkdir()
    (tmp_path / "a/a.gml").write_text("graph [ node [ id 0 club 3 value 2 ] node [ id 1 club 2 ] ]")
    graph = load("a", tmp_path, targets="club", ignore=["value"])
    assert graph.y is not None and graph.y.tolist() == [1, 0]
