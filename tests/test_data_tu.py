"""The TU reader: equal to loops over the lines and to PyG's, and what it says of bad files."""

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from federations import data_folder, pairs, refuses
from torch_geometric.io import read_tu_data

from fgl import Graph
from fgl.data import load_graphs
from fgl.tasks import Graphs

pytestmark = pytest.mark.filterwarnings("ignore:.* which are not read")

TINY = {
    "A": "1,2\n2, 1\n2,3\n\n5,5\n4,6\n4,6\n",
    "graph_indicator": "1\n1\n1\n2\n2\n2\n3\n",
    "graph_labels": "5\n-1\n5\n",
    "node_labels": "3\n1\n3\n3\n6\n1\n1\n",
    "node_attributes": "0.5, 1\n 2,3\n4,5\n6,7\n8,9\n10,11\n12,-1e-3\n",
    "edge_labels": "1, 3\n1,4\n-2,3\n7,3\n-2,4\n1,4\n",
}
PUBLIC = {  # graphs, nodes, edges both ways, features, classes
    "NCI1": (4110, 122747, 265506, 37, [2053, 2057]),
    "PROTEINS": (1113, 43471, 162088, 4, [663, 450]),
}


def write(root: Path, *without: str, **changes: str) -> Path:
    folder = root / "tiny"
    folder.mkdir(parents=True, exist_ok=True)
    for part, text in (TINY | changes).items():
        if part not in without:
            (folder / f"tiny_{part}.txt").write_text(text)
    return root


def naive(
    folder: Path, name: str
) -> tuple[list[tuple[list[list[float]], list[tuple[int, int]]]], list[int]]:
    """Features and edges of every graph, and the labels, by loops over the lines."""

    def lines(part: str) -> list[list[str]]:
        path = folder / f"{name}_{part}.txt"
        text = path.read_text() if path.exists() else ""
        return [line.split(",") for line in text.splitlines() if line.strip()]

    graph_of = [int(word) for (word,) in lines("graph_indicator")]
    raw = [int(word) for (word,) in lines("graph_labels")]
    kinds = sorted({int(word) for (word,) in lines("node_labels")})
    rows: list[list[float]] = [[] for _ in graph_of]
    for row, words in zip(rows, lines("node_attributes"), strict=False):
        row.extend(float(word) for word in words)
    for row, (word,) in zip(rows, lines("node_labels"), strict=False):
        row.extend(float(int(word) == kind) for kind in kinds)
    edges: list[set[tuple[int, int]]] = [set() for _ in raw]
    first = [*{graph: i for i, graph in reversed([*enumerate(graph_of)])}.values()][::-1]
    for one, two in lines("A"):
        graph = graph_of[int(one) - 1] - 1
        a, b = int(one) - 1 - first[graph], int(two) - 1 - first[graph]
        if a != b:
            edges[graph] |= {(a, b), (b, a)}
    features = [rows[a:b] for a, b in zip(first, [*first[1:], None], strict=True)]
    found = [
        (x, sorted(some, key=lambda pair: pair[::-1]))
        for x, some in zip(features, edges, strict=True)
    ]
    return found, [sorted({*raw}).index(label) for label in raw]


def check(graphs: list[Graph], labels: torch.Tensor, folder: Path, name: str) -> None:
    want, classes = naive(folder, name)
    assert labels.dtype == torch.int64
    assert labels.tolist() == classes
    assert len(graphs) == len(want)
    for graph, (x, edges) in zip(graphs, want, strict=True):
        assert isinstance(graph.x, torch.Tensor)
        assert torch.equal(graph.x, torch.tensor(x))
        assert pairs(graph) == edges
        assert graph.y is None


def test_edge_labels_are_counted_at_both_ends(tmp_path: Path) -> None:
    root = write(tmp_path)
    plain, _ = load_graphs("tiny", root)
    graphs, _ = load_graphs("tiny", root, edge_labels=True)
    edges = [(0, 1), (1, 0), (1, 2), (4, 4), (3, 5), (3, 5)]  # the lines of tiny_A.txt
    table = [(1, 3), (1, 4), (-2, 3), (7, 3), (-2, 4), (1, 4)]
    counts = torch.zeros(7, 5)
    for column, kinds in enumerate(([-2, 1, 7], [3, 4])):
        for node in range(7):
            for at, kind in enumerate(kinds):
                ends = {
                    pair
                    for (a, b), labels in zip(edges, table, strict=True)
                    if labels[column] == kind and a != b
                    for pair in ((a, b), (b, a))
                }
                counts[node, 3 * column + at] = sum(a == node for a, _ in ends)
    for one, other, want in zip(graphs, plain, counts.split((3, 3, 1)), strict=True):
        assert torch.equal(one.x, torch.cat([other.x, want], 1))
        assert torch.equal(one.edge_index, other.edge_index)


@pytest.mark.parametrize(("labels", "message"), [
    ("1\n" * 5, "tiny_edge_labels.txt to have 6 lines, one per edge, but got 5"),
    ("1\n1\none\n1\n1\n1\n", "tiny_edge_labels.txt, line 3"),
    (None, "tiny_edge_labels.txt"),
])  # fmt: skip
def test_bad_edge_labels(tmp_path: Path, labels: str | None, message: str) -> None:
    root = write(tmp_path, edge_labels=labels) if labels else write(tmp_path, "edge_labels")
    load_graphs("tiny", root)  # nobody asks for them
    refuses(message, lambda: load_graphs("tiny", root, edge_labels=True), (ValueError, OSError))


def test_the_synthetic_collection_has_no_edge_labels() -> None:
    refuses("Expected edge_labels to be False", lambda: load_graphs("synthetic", edge_labels=True))


def test_edge_labels_of_no_edge(tmp_path: Path) -> None:
    graphs, _ = load_graphs("tiny", write(tmp_path, A="", edge_labels=""), edge_labels=True)
    assert [graph.num_features for graph in graphs] == [5, 5, 5]


def test_degree_where_there_are_no_features(tmp_path: Path) -> None:
    star = "".join(f"1,{i}\n" for i in range(2, 101)) + "101,102\n101,101\n102,101\n"
    root = write(
        tmp_path,
        "node_labels",
        "node_attributes",
        A=star,
        graph_indicator="1\n" * 100 + "2\n2\n2\n",
        graph_labels="0\n1\n",
    )
    (one, two), _ = load_graphs("tiny", root)
    assert isinstance(one.x, torch.Tensor)
    assert isinstance(two.x, torch.Tensor)
    assert one.x.argmax(1).tolist() == [63, *[1] * 99]
    assert two.x.argmax(1).tolist() == [1, 1, 0]
    assert torch.equal(one.x.sum(1), torch.ones(100))
    assert two.x.shape == (3, 64)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLIC)
def test_public_collections(name: str) -> None:
    folder = data_folder(name)
    begin = time.perf_counter()
    graphs, labels = load_graphs(name)
    assert time.perf_counter() - begin < 10  # measured: 0.6 s
    num_graphs, num_nodes, num_edges, num_features, sizes = PUBLIC[name]
    assert len(graphs) == num_graphs
    assert sum(graph.num_nodes for graph in graphs) == num_nodes
    assert sum(graph.num_edges for graph in graphs) == num_edges
    assert {graph.num_features for graph in graphs} == {num_features}
    assert labels.bincount().tolist() == sizes
    check(graphs, labels, folder, name)
    data, slices, _ = read_tu_data(str(folder), name)
    assert torch.equal(torch.cat([graph.x for graph in graphs]), data.x)
    assert torch.equal(labels, data.y)
    first = slices["x"]
    for i in (0, 7, num_graphs - 1):
        one = data.edge_index[:, slices["edge_index"][i] : slices["edge_index"][i + 1]]
        assert graphs[i].num_nodes == int(first[i + 1] - first[i])
        assert {*pairs(graphs[i])} == {*zip(*one.tolist(), strict=True)}


WRONG = [
    ("A", "1,2\n\n3,4\n", r"A\.txt, line 3, to be an edge inside a graph, .* from graph 1 to"),
    ("A", "1,2\n8,1\n", r"A\.txt, line 2, to be in \[1, 8\), but got 8"),
    ("A", "1,2\n1,0\n", r"A\.txt, line 2, to be in \[1, 8\), but got 0"),
    ("A", "1,2\n1,-1\n", r"A\.txt, line 2, to be in \[1, 8\), but got -1"),
    ("A", "1,2\n1 2\n", r"A\.txt, line 2, to be 2 integers separated by ',', but got '1 2'"),
    ("A", "1,2\n1,\n", r"A\.txt, line 2, to be 2 integers separated by ',', but got '1,'"),
    ("A", "1,2,1\n", r"A\.txt, line 1, to be 2 integers separated by ',', but got '1,2,1'"),
    ("A", "1,a\n", r"A\.txt, line 1, to be 2 integers separated by ',', but got '1,a'"),
    ("A", "1,1.0\n", r"A\.txt, line 1, to be 2 integers separated by ',', but got '1,1\.0'"),
    ("graph_indicator", "1\n1\n3\n3\n", r"indicator\.txt, line 3, .*graph 1 or 2, .*got 3"),
    ("graph_indicator", "1\n2\n1\n3\n", r"indicator\.txt, line 3, .*got 1"),
    ("graph_indicator", "0\n1\n2\n3\n", r"indicator\.txt, line 1, to be graph 1, .* but got 0"),
    ("graph_indicator", "2\n2\n3\n", r"indicator\.txt, line 1, to be graph 1, .* but got 2"),
    ("graph_indicator", "1\n1\n2\n2\n2\n2\n2\n", r"to have nodes of all 3 graphs .* none of graph"),
    ("graph_indicator", "", r"to have nodes of all 3 graphs in .*, but got none of graph 1"),
    ("graph_indicator", "1\nx\n", r"indicator\.txt, line 2, to be one integer, but got 'x'"),
    ("graph_labels", "0\n1\n", r"labels\.txt to have 3 lines, one per graph in .*, but got 2"),
    ("graph_labels", "0\n1\n1\n1\n", "got none of graph 4"),
    ("graph_labels", "", r"graph_labels\.txt to hold labels, but got none"),
    ("graph_labels", "0\n1\n0.5\n", r"labels\.txt, line 3, to be one integer, but got '0\.5'"),
    ("node_labels", "1\n", r"node_labels\.txt to have 7 lines, one per node, but got 1"),
    ("node_labels", "1\n" * 8, r"node_labels\.txt to have 7 lines, one per node, but got 8"),
    ("node_labels", "1\n2,3\n", r"node_labels\.txt, line 2, to be one integer, but got '2,3'"),
    ("node_attributes", "1\n", r"attributes\.txt to have 7 lines, one per node, but got 1"),
    ("node_attributes", "1,2\n1,nan\n", r"line 2, to be 2 finite numbers .* but got '1,nan'"),
    ("node_attributes", "1,2\n1\n", r"attributes\.txt, line 2, to be 2 finite numbers"),
    ("node_attributes", "1e99\n" * 7, r"features in .*attributes\.txt to be finite as float32"),
]


@pytest.mark.parametrize(("part", "text", "message"), WRONG)
def test_malformed(tmp_path: Path, part: str, text: str, message: str) -> None:
    refuses(rf"^Expected .*{message}", lambda: load_graphs("tiny", write(tmp_path, **{part: text})))


@pytest.mark.slow
def test_random_damage_raises_value_error_or_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for part, text in TINY.items():
        for _ in range(100):
            damaged = [*text]
            for place in rng.integers(0, len(text), 2):
                damaged[place] = str(rng.choice([*"0129 .,-e\n"]))
            write(tmp_path, **{part: "".join(damaged[: rng.integers(1, 2 * len(text))])})
            try:
                load_graphs("tiny", tmp_path)
            except ValueError as error:
                assert str(error).startswith("Expected")


@pytest.mark.parametrize(("text", "width"), [("0.5\n-1e2\n3\n", 1), ("1,2\n3, 4.5\n5,-6\n", 2)])
def test_numbers_of_graphs_that_have_no_classes(tmp_path: Path, text: str, width: int) -> None:
    flat = TINY["A"].replace("\n\n", "\n")  # as PyG reads it
    root = write(tmp_path, "graph_labels", graph_attributes=text, A=flat)
    graphs, y = load_graphs("tiny", root)
    want = [[float(word) for word in line.split(",")] for line in text.splitlines()]
    assert y.tolist() == (want if width > 1 else [row[0] for row in want])
    data, _, _ = read_tu_data(str(root / "tiny"), "tiny")
    assert torch.equal(y, data.y)
    assert Graph.join(graphs, y).num_outputs == width
    classes = load_graphs("tiny", write(tmp_path))[1]  # beside both files
    assert classes.tolist() == [1, 0, 1]
    for bad in ("1\n2\n", "1\n2\nx\n", "1\n2\n3,4\n"):
        with pytest.raises(ValueError, match=r"tiny_graph_attributes\.txt"):
            load_graphs("tiny", write(tmp_path / "bad", "graph_labels", graph_attributes=bad))


def test_tasks_of_classes_take_no_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "graph_labels", graph_attributes="1\n2\n3\n")
    monkeypatch.setenv("FGL_DATA", str(tmp_path))
    with pytest.raises(TypeError, match="a class for each graph.*: fgl.tasks.graph_task takes"):
        Graphs(dataset="tiny", clients=2).load()


def test_any_collection_in_its_folder_is_read_by_its_name(tmp_path: Path) -> None:
    """MUTAG's layout: classes 1 and -1, labels of nodes and edges, a README; no attributes."""
    files = {
        "A": "2, 1\n1, 2\n3, 2\n2, 3\n5, 4\n4, 5\n",
        "edge_labels": "0\n0\n1\n1\n3\n3\n",
        "graph_indicator": "1\n1\n1\n2\n2\n",
        "graph_labels": "1\n-1\n",
        "node_labels": "0\n0\n1\n2\n0\n",
    }
    for folder in (tmp_path / "a" / "MUTAG", tmp_path / "b" / "MUTAG" / "raw"):
        folder.mkdir(parents=True)
        for part, text in files.items():
            (folder / f"MUTAG_{part}.txt").write_text(text)
        (folder / "README.txt").write_text("README for dataset MUTAG")
        (folder / "MUTAG_label_readme.txt").write_text("0  C")
    for place in "ab":
        graphs, y = load_graphs("MUTAG", tmp_path / place, edge_labels=True)
        assert y.tolist() == [1, 0]
        assert [(own.num_nodes, own.num_edges, own.num_features) for own in graphs] == [
            (3, 4, 6),
            (2, 2, 6),
        ]
