"""Datasets by name: downloaded once, checked, read."""

from __future__ import annotations

import os
from pathlib import Path

from ..graph import Graph
from ..sparse import SparseMatrix
from .files import download, verify
from .planetoid import read_planetoid
from .synthetic import csbm

COMMIT = "af6abf468a772cc055bec88c52e4d6f51b7c37e3"
URL = f"https://raw.githubusercontent.com/kimiyoung/planetoid/{COMMIT}/data"
SHA256 = {
    "cora": {
        "x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
        "tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
        "ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
        "ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    },
    "citeseer": {
        "x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
        "tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
        "ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    },
    "pubmed": {
        "x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
        "tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
        "y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
        "ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    },
}


def load(name: str, root: str | os.PathLike[str] | None = None, *, dense: bool = False) -> Graph:
    """A dataset by name.

    ``"synthetic"`` is `csbm` with its defaults. ``"cora"``, ``"citeseer"`` and ``"pubmed"`` are
    taken from `root`, or downloaded to it. Any other name is that of a folder in `root` with the
    eight Planetoid files ``ind.NAME.*``, in the folder or in ``raw`` below it.

    Edges are undirected, without self-loops and repeats. Features are raw, not row-normalised.
    Masks are the public split: 20 training nodes per class, 500 for validation, 1000 for test.
    CiteSeer's 15 ids without a row get zero features and class 0, as in PyG, and are in no mask.

    Args:
        name: the dataset.
        root: a folder of datasets. By default the folder ``$FGL_DATA``, which is only read, and
            then the cache ``$XDG_CACHE_HOME/fgl`` (``~/.cache/fgl``), to which downloads go.
        dense: whether `x` is a Tensor instead of a `SparseMatrix`.

    Returns:
        The graph, x float32.

    Raises:
        ValueError: for an unknown name, a malformed file, or one with another checksum.
        OSError: if a file is neither there nor can be downloaded.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> graph.num_nodes, graph.num_features, graph.num_classes
        (2708, 1433, 7)

    Source: https://github.com/kimiyoung/planetoid; Yang et al., https://arxiv.org/abs/1603.08861
    """
    if name == "synthetic":
        graph = csbm()
    else:
        graph = read_planetoid(_folder(name, _places(root)), name)
    if dense and isinstance(graph.x, SparseMatrix):
        graph = graph.replace(x=graph.x.to_dense())
    return graph


def _places(root: str | os.PathLike[str] | None) -> list[Path]:
    """Folders of datasets, in order; the last is that for downloads."""
    if root is not None:
        return [Path(root).expanduser()]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fgl"
    given = os.environ.get("FGL_DATA")
    if not given:
        return [cache]
    if not Path(given).is_dir():
        raise ValueError(f"Expected FGL_DATA to be a folder, but got {given!r}")
    return [Path(given), cache]


def _folder(name: str, places: list[Path]) -> Path:
    """The folder with a dataset's files, downloaded if need be."""
    if name in SHA256:
        return _public(name, places)
    found = _found(places)
    if name not in found:
        known = ", ".join([*SHA256, "synthetic"])
        where = " or ".join(str(place) for place in places)
        raise ValueError(
            f"Expected name to be one of {known}, or a folder with Planetoid files in {where} "
            f"(found: {', '.join(found) or 'none'}), but got {name!r}"
        )
    return found[name]


def _public(name: str, places: list[Path]) -> Path:
    files = {f"ind.{name}.{part}": sha256 for part, sha256 in SHA256[name].items()}
    folders = [folder for place in places for folder in (place / name / "raw", place / name)]
    for folder in folders:
        if all((folder / file).is_file() for file in files):
            break
    else:
        folder = places[-1] / name / "raw"
    for file, sha256 in files.items():
        if (folder / file).is_file():
            verify(folder / file, sha256)
        else:
            download(f"{URL}/{file}", folder / file, sha256)
    return folder


def _found(places: list[Path]) -> dict[str, Path]:
    """Folders that hold at least one Planetoid file of their name."""
    found: dict[str, Path] = {}
    for place in filter(Path.is_dir, places):
        for child in sorted(filter(Path.is_dir, place.iterdir())):
            for folder in filter(Path.is_dir, (child / "raw", child)):
                if any(file.name.startswith(f"ind.{child.name}.") for file in folder.iterdir()):
                    found.setdefault(child.name, folder)
    return found
