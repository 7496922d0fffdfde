"""OGB's raw layout, in files that the tests write."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
import torch

from fgl.data import load

EDGES = [(0, 1), (1, 2), (3, 2), (2, 3), (4, 4), (0, 1)]
TEXTS = {
    "raw/num-node-list": "5\n",
    "raw/num-edge-list": "6\n",
    "raw/edge": "".join(f"{s},{t}\n" for s, t in EDGES),
    "raw/node-feat": "0.5,-1.25\n1e-3,2\n0,0\n3.0,4.0\n-0.0,7\n",
    "raw/node-label": "0\n2\n1\n2\n0\n",
    "raw/node_year": "2011\n2012\n2013\n2014\n2015\n",  # not read
    "split/time/train": "0\n1\n",
    "split/time/valid": "2\n",
    "split/time/test": "4\n3\n",
}


def write(folder: Path, **changed: str | None) -> Path:
    for name, text in (TEXTS | changed).items():
        if text is None:
            continue
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))
    return folder


@pytest.mark.parametrize("name", ["ogbn-arxiv", "ogbn_arxiv", "mine"])
def test_it_reads_the_layout(tmp_path: Path, name: str) -> None:
    write(tmp_path / name)
    asked = "ogbn-arxiv" if name.startswith("ogbn") else name
    graph = load(asked, tmp_path)
    assert torch.equal(graph.x, torch.tensor([[0.5, -1.25], [1e-3, 2], [0, 0], [3, 4], [0, 7]]))
    wanted = {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}  # undirected, once, without the loop
    assert {*zip(*graph.edge_index.tolist(), strict=True)} == wanted
    assert graph.num_edges == 6
    assert graph.y.tolist() == [0, 2, 1, 2, 0]  # type: ignore[union-attr]
    masks = [graph.train_mask, graph.val_mask, graph.test_mask]
    found = [mask.nonzero().flatten().tolist() for mask in masks if mask is not None]
    assert found == [[0, 1], [2], [3, 4]]


def test_products_split_is_of_another_name_and_none_leaves_no_masks(tmp_path: Path) -> None:
    old, new = "split/time", "split/sales_ranking"
    split = {f"{new}/{role}": TEXTS[f"{old}/{role}"] for role in ("train", "test")}
    none = {f"{old}/{role}": None for role in ("train", "valid", "test")}
    write(tmp_path / "ogbn-products", **none, **split, **{f"{new}/valid": "2\n"})
    assert load("ogbn-products", tmp_path).num_train == 2
    write(tmp_path / "bare", **none)
    assert load("bare", tmp_path).train_mask is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"raw/num-node-list": "5\n6\n"}, "num-node-list.* size of one graph, but got .5, 6."),
        ({"raw/num-node-list": "4\n"}, r"edge\.csv\.gz to be in \[0, 4\), but got 4"),
        ({"raw/num-edge-list": "7\n"}, r"edge\.csv\.gz to have 7 edges, but got 6"),
        ({"raw/edge": "0,1\n1,x\n"}, r"edge\.csv\.gz to be rows of int64, but got .*row 1"),
        ({"raw/edge": "0\n" * 6}, r"edge\.csv\.gz to have 2 columns, but got 1"),
        ({"raw/edge": ""}, r"edge\.csv\.gz to be rows of int64, but got"),
        ({"raw/node-feat": "1,2\n3\n"}, r"node-feat\.csv\.gz to be rows of float32"),
        ({"raw/node-feat": "1,2\n"}, r"node-feat\.csv\.gz to have 5 rows, but got 1"),
        ({"raw/node-feat": "nan,2\n" * 5}, "to be finite as float32, but got 5"),
        ({"raw/node-label": "0\n2.5\n1\n2\n0\n"}, r"node-label\.csv\.gz to be rows of int64"),
        ({"raw/node-label": "0,1\n" * 5}, r"node-label\.csv\.gz to have 1 columns, but got 2"),
        ({"raw/node-label": "0\n2\n-1\n2\n0\n"}, "to be at least 0, but got -1"),
        ({"raw/node-label": None}, r"none named \['node-label\.csv\.gz'\]"),
        ({"split/time/test": "5\n"}, r"test\.csv\.gz to be in \[0, 5\), but got 5"),
        ({"split/time/test": "0\n"}, "to give a node one role, but got several for 0"),
        ({"split/time/valid": None}, r"none named \['valid\.csv\.gz'\]"),
        ({"split/year/train": "0\n"}, "to hold one split, but got time, year"),
    ],
)
def test_it_names_the_file_that_is_wrong(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    write(tmp_path / "mine", **changed)
    with pytest.raises(ValueError, match=message):
        load("mine", tmp_path)


def test_a_file_that_is_not_packed_or_cut(tmp_path: Path) -> None:
    path = write(tmp_path / "mine") / "raw" / "node-feat.csv.gz"
    whole = path.read_bytes()
    for content in (b"1,2\n", whole[:-9]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"node-feat\.csv\.gz to be rows of float32"):
            load("mine", tmp_path)


def test_without_the_files_the_error_says_where_they_belong(tmp_path: Path) -> None:
    message = f"not downloaded.* put the folders raw and split .* a folder ogbn-arxiv in {tmp_path}"
    with pytest.raises(ValueError, match=message):
        load("ogbn-arxiv", tmp_path)
