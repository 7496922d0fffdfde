"""OGB's raw layout, in files that the tests write."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from federations import refuses

from fgl.data import load, load_graphs

EDGES = [(0, 1), (1, 2), (3, 2), (2, 3), (4, 4), (0, 1)]
TEXTS = {
    "raw/num-node-list": "5\n",
    "raw/num-edge-list": "6\n",
    "raw/edge": "".join(f"{s},{t}\n" for s, t in EDGES),
    "raw/node-feat": "0.5,-1.25\n1e-3,2\n0,0\n3.0,4.0\n-0.0,7\n",
    "raw/node-label": "0\n2\n1\n2\n0\n",
    "raw/node_year": "2011\n2012\n2013\n2014\n2015\n",  # not read
    "mapping/nodeidx2paperid": "node idx,paper id\n0,9\n",  # beside raw and split: not read
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


@pytest.mark.parametrize(("changed", "message"), [
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
    ({"split/time/test": "0\n"}, "to be in one mask, but got 1 in both"),
    ({"split/time/valid": None}, r"none named \['valid\.csv\.gz'\]"),
    ({"split/year/train": "0\n"}, "to hold one split, but got time, year"),
])  # fmt: skip
def test_it_names_the_wrong_file(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    write(tmp_path / "mine", **changed)
    refuses(message, lambda: load("mine", tmp_path))


def test_a_file_that_is_not_packed_or_cut(tmp_path: Path) -> None:
    path = write(tmp_path / "mine") / "raw" / "node-feat.csv.gz"
    whole = path.read_bytes()
    for content in (b"1,2\n", whole[:-9]):
        path.write_bytes(content)
        refuses(r"node-feat\.csv\.gz to be rows of float32", lambda: load("mine", tmp_path))


def test_without_the_files_the_error_says_where_they_belong(tmp_path: Path) -> None:
    message = f"not downloaded.* put the folders raw and split .* a folder ogbn-arxiv in {tmp_path}"
    refuses(message, lambda: load("ogbn-arxiv", tmp_path))


GRAPHS = {  # a path of three nodes, one node, and an edge with a feature of its own
    "raw/num-node-list": "3\n1\n2\n",
    "raw/num-edge-list": "2\n0\n1\n",
    "raw/edge": "0,1\n1,2\n0,1\n",
    "raw/node-feat": "5,0\n6,1\n7,0\n8,1\n6,0\n5,1\n",
    "raw/edge-feat": "0,1\n1,0\n2,1\n",
    "raw/graph-label": "1.0,\n,0.0\n0.0,1.0\n",
}
OF_NODES = {name: None for name in TEXTS if name not in GRAPHS}


def write_graphs(folder: Path, **changed: str | None) -> Path:
    return write(folder, **(OF_NODES | GRAPHS | changed))


def test_a_folder_of_graphs_is_a_collection(tmp_path: Path) -> None:
    split = {f"split/scaffold/{role}": f"{row}\n" for row, role in enumerate(("train", "valid"))}
    write_graphs(tmp_path / "ogbg_tiny", **split, **{"split/scaffold/test": "2\n"})
    graphs = load("ogbg-tiny", tmp_path)
    sizes, edges = [3, 1, 2], [{(0, 1): [0, 1], (1, 2): [1, 0]}, {}, {(0, 1): [2, 1]}]
    assert graphs.batch.tolist() == [0, 0, 0, 1, 2, 2]  # type: ignore[union-attr]
    for row, (size, own) in enumerate(zip(sizes, edges, strict=True)):
        one = graphs.select(torch.tensor([row]))
        both = {ends: attr for (a, b), attr in own.items() for ends in ((a, b), (b, a))}
        pairs = zip(*one.edge_index.tolist(), strict=True)
        assert one.num_nodes == size
        assert one.num_edges == len(both)
        assert dict(zip(pairs, one.edge_attr.tolist(), strict=True)) == both  # type: ignore[union-attr]
    assert graphs.x[:, 0].tolist() == [5, 6, 7, 8, 6, 5]
    unknown = torch.tensor([[1, torch.nan], [torch.nan, 0], [0, 1]])
    torch.testing.assert_close(graphs.y, unknown, equal_nan=True)
    masks = [graphs.train_mask, graphs.val_mask, graphs.test_mask]
    assert torch.stack(masks).equal(torch.eye(3, dtype=torch.bool))  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "wanted"), [
    ("2\n0\n1\n", torch.tensor([2, 0, 1])),
    ("2\n-1\n1\n", torch.tensor([2.0, -1.0, 1.0])),
    ("2.5\n0\n1\n", torch.tensor([2.5, 0.0, 1.0])),
    ('2\n""\n1\n', torch.tensor([2.0, torch.nan, 1.0])),
    ("2,1\n0,1\n1,0\n", torch.tensor([[2.0, 1.0], [0.0, 1.0], [1.0, 0.0]])),
])  # fmt: skip
def test_labels_of_graphs(tmp_path: Path, text: str, wanted: torch.Tensor) -> None:
    write_graphs(tmp_path / "mine", **{"raw/graph-label": text})
    torch.testing.assert_close(load("mine", tmp_path).y, wanted, equal_nan=True)


def test_edges_of_graphs_that_are_stored_both_ways_are_not_doubled(tmp_path: Path) -> None:
    both = {"raw/edge": "0,1\n1,0\n0,1\n1,0\n", "raw/num-edge-list": "2\n0\n2\n"}
    write_graphs(tmp_path / "mine", **both, **{"raw/edge-feat": None, "raw/node-feat": None})
    graphs = load("mine", tmp_path)
    assert graphs.num_edges == 4
    degrees = graphs.x.to_dense().argmax(1)  # the features of nodes that have none
    assert degrees.tolist() == [1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize(("changed", "message"), [
    ({"raw/edge": "0,1\n1,2\n0,2\n"}, r"edge\.csv\.gz to be in \[0, 2\), but got 2"),
    ({"raw/num-edge-list": "2\n1\n"}, "num-edge-list.* 3 rows, but got 2"),
    ({"raw/num-edge-list": "2\n-1\n2\n"}, "num-edge-list.*-1"),
    ({"raw/graph-label": "1\n0\n"}, "graph-label.* 3 labels, but got 2"),
    ({"raw/graph-label": "a\n0\n1\n"}, "graph-label.*rows of float32"),
    ({"raw/edge-feat": "1\n"}, "edge-feat.* 3 rows, but got 1"),
])  # fmt: skip
def test_it_names_the_file_of_graphs(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    write_graphs(tmp_path / "mine", **changed)
    refuses(message, lambda: load("mine", tmp_path))
    refuses("which load reads", lambda: load_graphs("ogbg-molhiv", tmp_path))


def write_pairs(folder: Path, parts: dict[str, dict[str, Any]], **changed: str | None) -> Path:
    years = {"raw/edge_year": "1\n2\n3\n4\n5\n6\n", "raw/edge_weight": "1\n2\n1\n1\n1\n1\n"}
    labels = {name: None for name in TEXTS if "split" in name or name == "raw/node-label"}
    write(folder, **(labels | {"raw/node_year": None} | years | changed))
    where = folder / "split" / "time"
    where.mkdir(parents=True)
    for role, content in parts.items():
        torch.save(content, where / f"{role}.pt")
    return where


COLLAB = {
    "train": {"edge": torch.tensor(EDGES)},
    "valid": {"edge": torch.tensor([[0, 2]]), "edge_neg": torch.tensor([[0, 3], [4, 4]])},
    "test": {"edge": torch.tensor([[1, 3]]), "edge_neg": torch.tensor([[1, 4]])},
}
CITATION = {
    "train": {"source_node": torch.tensor([0, 3]), "target_node": torch.tensor([1, 2])},
    **{
        role: {
            "source_node": torch.tensor([a, 4]),
            "target_node": torch.tensor([b, 0]),
            "target_node_neg": torch.tensor([[2, 3], [1, 2]]),
        }
        for role, a, b in (("valid", 0, 4), ("test", 1, 3))
    },
}


def test_a_folder_of_undirected_pairs(tmp_path: Path) -> None:
    write_pairs(tmp_path / "ogbl_tiny", COLLAB)
    graph = load("ogbl-tiny", tmp_path)
    assert graph.edge_label_index.T.tolist() == [  # type: ignore[union-attr]
        *([*pair] for pair in EDGES), [0, 2], [0, 3], [4, 4], [1, 3], [1, 4]
    ]  # fmt: skip
    assert graph.y.tolist() == [1] * 7 + [0, 0, 1, 0]  # type: ignore[union-attr]
    assert graph.val_mask.nonzero()[:, 0].tolist() == [6, 7, 8]  # type: ignore[union-attr]
    assert graph.test_mask.nonzero()[:, 0].tolist() == [9, 10]  # type: ignore[union-attr]
    fields = zip(*graph.edge_index.tolist(), graph.edge_weight, graph.edge_time, strict=True)
    rows = [
        (a, b, w, t) for (a, b), w, t in zip(EDGES, (1, 2, 1, 1, 1, 1), range(1, 7), strict=True)
    ]
    wanted = sorted([*rows, *((b, a, w, t) for a, b, w, t in rows)])
    assert sorted((a, b, float(w), float(t)) for a, b, w, t in fields) == wanted
    bare = load("ogbl-tiny", tmp_path, ignore=["edge_neg"])
    assert bare.y.tolist() == [1] * 8  # type: ignore[union-attr]


def test_large_times_are_whole_numbers(tmp_path: Path) -> None:
    times = [1_700_000_000 + k for k in range(6)]
    write_pairs(tmp_path / "mine", COLLAB, **{"raw/edge_year": "".join(f"{t}\n" for t in times)})
    assert sorted(set(load("mine", tmp_path).edge_time.tolist())) == times  # type: ignore[union-attr]


def test_a_folder_of_directed_pairs(tmp_path: Path) -> None:
    write_pairs(tmp_path / "mine", CITATION, **{"raw/edge_year": None, "raw/edge_weight": None})
    graph = load("mine", tmp_path)
    assert graph.edge_index.T.tolist() == [[*pair] for pair in EDGES]
    own = graph.val_mask.nonzero()[:, 0]  # type: ignore[union-attr]
    assert graph.edge_label_index[:, own].T.tolist() == [  # type: ignore[index]
        [0, 4], [4, 0], [0, 2], [0, 3], [4, 1], [4, 2]
    ]  # fmt: skip
    assert graph.y[own].tolist() == [1, 1, 0, 0, 0, 0]  # type: ignore[index]


class Runs:
    def __reduce__(self) -> Any:
        return print, ("a pickle ran",)


def test_pickles_of_arrays_are_read_and_others_are_not_run(tmp_path: Path, capsys: Any) -> None:
    arrays = {role: {k: v.numpy() for k, v in part.items()} for role, part in COLLAB.items()}
    arrays["valid"]["edge"] = arrays["valid"]["edge"].astype(">i4")
    where = write_pairs(tmp_path / "mine", arrays)
    for path in where.iterdir():  # as torch wrote in 2020
        torch.save(arrays[path.stem], path, _use_new_zipfile_serialization=path.stem == "test")
    write_pairs(tmp_path / "tensors", COLLAB)
    one, two = load("mine", tmp_path), load("tensors", tmp_path)
    assert torch.equal(one.edge_label_index, two.edge_label_index) and torch.equal(one.y, two.y)  # type: ignore[arg-type]
    hostile = [(Runs(), 2), ({"edge": Runs()}, 2), ({"edge": np.array([Runs()])}, 2)]
    for content, protocol in (*hostile, ([1], 2), ({"edge": "text"}, 2), (COLLAB["valid"], 4)):
        torch.save(content, where / "valid.pt", pickle_protocol=protocol)
        with pytest.raises(ValueError, match=r"valid\.pt to hold only tensors"):
            load("mine", tmp_path)
    assert not capsys.readouterr().out


def test_a_pickled_split_of_ids_is_read(tmp_path: Path) -> None:
    """What OGB's DatasetSaver writes for nodes and graphs."""
    ids = {"train": np.array([3, 0]), "valid": np.array([], np.int64), "test": np.array([4, 2])}
    where = write(tmp_path / "mine", **{f"split/time/{role}": None for role in ids}) / "split/own"
    where.mkdir(parents=True)
    for kind in (np.asarray, torch.as_tensor):
        for protocol in (2, 4) if kind is np.asarray else (2,):
            content = {role: kind(own) for role, own in ids.items()}
            torch.save(content, where / "split_dict.pt", pickle_protocol=protocol)
            masks = [getattr(load("mine", tmp_path), f"{n}_mask") for n in ("train", "val", "test")]
            assert [mask.nonzero()[:, 0].tolist() for mask in masks] == [[0, 3], [], [2, 4]]
    assert load("mine", tmp_path, ignore=["split_dict.pt"]).train_mask is None
    torch.save({"train": ids["train"]}, where / "split_dict.pt")
    refuses(r"split_dict\.pt to hold .*'valid'", lambda: load("mine", tmp_path))


@pytest.mark.parametrize(("part", "message"), [
    ({"edge": torch.tensor([[0, 5]])}, r"edge in .*valid\.pt to be in \[0, 5\), but got 5"),
    ({"edge": torch.tensor([[0, 1, 2]])}, r"edge in .*valid\.pt to have shape"),
    ({"head": torch.tensor([0])}, "source_node and target_node, but got .'head'.*load_triples"),
    ({"source_node": torch.tensor([0]), "target_node": torch.tensor([0, 1])}, "target_node"),
    ({"source_node": torch.tensor([0])}, r"but got \['source_node'\]"),
    ({"source_node": torch.tensor([0]), "target_node": torch.tensor([5])}, "target_node in"),
    (
        CITATION["valid"] | {"target_node_neg": torch.tensor([[2, 3]])},
        "to have 2 rows of target_node_neg, but got 1",
    ),
])  # fmt: skip
def test_it_names_the_wrong_pairs(tmp_path: Path, part: dict[str, Any], message: str) -> None:
    where = write_pairs(tmp_path / "mine", COLLAB | {"valid": part})
    refuses(message, lambda: load("mine", tmp_path))
    (where / "train.pt").write_bytes(b"no file of torch")
    refuses(r"train\.pt", lambda: load("mine", tmp_path))
