"""Graphs from networkx and from tables: every row at its place, or an error that names it."""

import csv
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from federations import refuses

import fgl
from fgl.data import from_tables, typed_tables

PEOPLE = {
    "id": ["Ann", "Bob", "Eve"], "age": [31, 27, 45], "tall": [1.8, 1.7, 1.6],
    "team": ["red", "blue", "red"], "pay": [2.5, None, 3.5], "old": [False, False, True],
}  # fmt: skip
CALLS = {
    "source": ["Ann", "Eve", "Bob"],
    "target": ["Bob", "Ann", "Bob"],
    "minutes": [4.5, 1, 2],
    "kind": ["work", "home", "work"],
}
REST = {"ignore": ["age", "tall", "team", "pay", "old", "minutes", "kind"]}


def test_each_column_is_read_at_its_place() -> None:
    graph = from_tables(
        CALLS,
        PEOPLE,
        x=["age", "tall"],
        y="team",
        classes=["blue", "red", "green"],
        edge_weight="minutes",
        edge_type="kind",
        relations=["home", "work"],
        test_mask="old",
        ignore=["pay"],
    )
    torch.testing.assert_close(graph.x, torch.tensor([[31, 1.8], [27, 1.7], [45, 1.6]]))
    assert graph.edge_index.tolist() == [[0, 2, 1], [1, 0, 1]]
    assert graph.y is not None and graph.y.tolist() == [1, 0, 1] and graph.num_classes == 3
    assert graph.edge_weight is not None and graph.edge_weight.tolist() == [4.5, 1, 2]
    assert graph.edge_type is not None and graph.edge_type.tolist() == [1, 0, 1]
    assert graph.test_mask is not None and graph.test_mask.tolist() == [False, False, True]


def test_undirected_rows_are_edges_in_both_directions() -> None:
    graph = from_tables(CALLS, PEOPLE, edge_weight="minutes", is_undirected=True, **REST)
    edges = sorted(zip(*graph.edge_index.tolist(), graph.edge_weight.tolist(), strict=True))  # type: ignore[union-attr]
    assert edges == [(0, 1, 4.5), (0, 2, 1), (1, 0, 4.5), (1, 1, 2), (2, 0, 1)]  # the loop once
    twice = {"source": ["Ann", "Bob"], "target": ["Bob", "Ann"]}
    refuses("both of edge", lambda: from_tables(twice, PEOPLE, is_undirected=True, **REST))
    assert from_tables(twice, PEOPLE, **REST).num_edges == 2


def test_numbers_may_be_unknown_and_features_may_not() -> None:
    graph = from_tables(CALLS, PEOPLE, y="pay", **REST)
    assert graph.y is not None and graph.y.isnan().tolist() == [False, True, False]
    with pytest.raises(ValueError, match="every node to have 'pay', but got none of node 'Bob'"):
        from_tables(CALLS, PEOPLE, x=["pay"], **REST)


class Unknown:
    """A value like ``pandas.NA``: it equals nothing, and its truth cannot be asked."""

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    def __repr__(self) -> str:
        return "<NA>"


def test_the_unknown_value_of_pandas_is_a_gap() -> None:
    people = {**PEOPLE, "pay": [2.5, Unknown(), 3.5], "team": [1, Unknown(), 0]}
    graph = from_tables(CALLS, people, y="pay", **REST)
    assert graph.y is not None and graph.y.isnan().tolist() == [False, True, False]
    for how in ({"x": ["pay"]}, {"y": "team"}, {"y": "team", "classes": [0, 1]}, {"id": "pay"}):
        with pytest.raises(ValueError, match="but got none of (node 'Bob'|node 1)"):
            from_tables(CALLS, people, **{**REST, **how})


def test_labels_with_a_gap_that_became_floats_are_told() -> None:
    people = {**PEOPLE, "team": [0.0, float("nan"), 1.0]}  # as pandas reads 0, nothing, 1
    with pytest.warns(UserWarning, match="'team' has whole numbers and gaps"):
        from_tables(CALLS, people, y="team", **REST)
    with pytest.raises(ValueError, match="'team', but got none of node 'Bob'"):
        from_tables(CALLS, people, y="team", classes=[0, 1], **REST)


def test_csv_and_data_frames_say_the_same(tmp_path: Path) -> None:
    how: Any = {"x": ["age"], "y": "pay", "edge_weight": "minutes", **REST}
    paths = []
    for name, table in (("edges", CALLS), ("nodes", PEOPLE)):
        paths.append(tmp_path / f"{name}.csv")
        with open(paths[-1], "w", newline="", encoding="utf-8-sig") as file:  # as Excel writes it
            writer = csv.writer(file)
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))  # type: ignore[call-overload]
    expected = from_tables(CALLS, PEOPLE, **how)
    made = [from_tables(*paths, **how)]
    pandas = pytest.importorskip("pandas")
    made.append(from_tables(pandas.DataFrame(CALLS), pandas.DataFrame(PEOPLE), **how))
    for graph in made:
        for name in ("x", "edge_index", "y", "edge_weight"):
            torch.testing.assert_close(
                getattr(graph, name), getattr(expected, name), equal_nan=True
            )


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = {
    "a name twice": ({}, {"id": ["Ann", "Bob", "Ann"]}, {}, r"\['Ann'\] twice"),
    "an unknown end": ({"target": ["Bob", "Zoe", "Bob"]}, {}, {}, "'target' .*'Zoe' of edge 1"),
    "words": ({}, {}, {"x": ["team"]}, "'team' to be numbers, but got 'red' of node 'Ann'"),
    "strings without classes": ({}, {}, {"y": "team"}, r"classes=\['red', 'blue'\]"),
    "labels and NA": ({}, {"team": [1, 0, "NA"]}, {"y": "team"}, "integers.*'NA' of node 'Eve'"),
    "labels in bytes": ({}, {"team": [b"a", b"b", b"a"]}, {"y": "team"}, "integers.*b'a' of node"),
    "features in sets": ({}, {"age": [{1}, {2}, {3}]}, {"x": ["age"]}, "numbers, but got .1. of"),
    "another class": ({}, {}, {"y": "team", "classes": ["red"]}, "'blue' of node 'Bob'"),
    "no such column": ({}, {}, {"x": ["size"]}, "the nodes to have 'size'"),
    "columns of other lengths": ({}, {"age": [1]}, {}, "equally long"),
    "labels as features": ({}, {}, {"x": ["tall", "age"], "y": "age"}, "labels.*'age'"),
    "a class twice": ({}, {}, {"y": "team", "classes": ["red", "red", "blue"]}, "distinct.*'red'"),
    "classes of nothing": ({}, {}, {"classes": [0, 1]}, "y beside classes"),
    "relations of nothing": ({}, {}, {"relations": [0, 1]}, "edge_type beside relations"),
    "dates of NumPy": ({}, {"age": np.arange(3).astype("M8[ns]")}, {"x": ["age"]},
        "datetime64.*of",),
    "a mask of numbers": ({}, {}, {"train_mask": "age"}, "'age' to be true or false"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    edges, nodes, how, text = WRONG[name]
    refuses(text, lambda: from_tables({**CALLS, **edges}, {**PEOPLE, **nodes}, **{**REST, **how}))


def test_columns_of_one_name_and_labels_as_features_of_a_type_are_refused(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("id,age,age\nAnn,3,4\n")
    nothing: dict[str, list[str]] = {"source": [], "target": []}
    with pytest.raises(ValueError, match="different names.*'age'"):
        from_tables(nothing, tmp_path / "people.csv", x=["age"])
    nodes = {"user": {"id": ["a", "b"], "kind": [0, 1]}}
    with pytest.raises(ValueError, match="labels.*'kind'"):
        typed_tables({}, nodes, x={"user": ["kind"]}, y={"user": "kind"})


def test_columns_that_are_not_read_are_named() -> None:
    with (
        pytest.warns(UserWarning, match=r"nodes have \['age', .*'old'\].* ignore="),
        pytest.warns(UserWarning, match=r"edges have \['minutes', 'kind'\]"),
    ):
        from_tables(CALLS, PEOPLE)
    with pytest.raises(TypeError, match="the path of a CSV file, but got int"):
        from_tables(3, PEOPLE, **REST)
    for how in ({"y": "team", "classes": {"red", "blue"}}, {"x": {"age", "tall"}}):
        with pytest.raises(TypeError, match="to be a list, since a set has no order"):
            from_tables(CALLS, PEOPLE, **how, **REST)  # type: ignore[arg-type]


def test_tables_of_types_are_a_typed_graph() -> None:
    nodes = {"user": {"id": [7, 8], "age": [31, 27]}, "item": {"id": [7], "price": [2.5]}}
    edges = {("user", "buys", "item"): {"source": [8], "target": [7], "when": [3], "stars": [5]}}
    how: Any = {"edge_time": {("user", "buys", "item"): "when"}}
    how["edge_attr"] = {("user", "buys", "item"): ["stars"]}
    graph = typed_tables(edges, nodes, x={"user": ["age"]}, y={"item": "price"}, both=True, **how)
    other = fgl.data.typed_graph(
        {"user": torch.tensor([[31.0], [27]]), "item": 1},
        {("user", "buys", "item"): torch.tensor([[1], [0]])},
        both=True,
        y={"item": torch.tensor([2.5])},
        edge_attr={("user", "buys", "item"): torch.tensor([[5.0]])},
        edge_time={("user", "buys", "item"): torch.tensor([3.0])},
    )
    assert torch.equal(graph.x.to_dense(), other.x.to_dense())
    for name in ("edge_index", "node_type", "edge_type", "edge_attr", "edge_time"):
        assert torch.equal(getattr(graph, name), getattr(other, name)), name
    with pytest.raises(ValueError, match="another type"):
        typed_tables({("user", "sees", "film"): edges}, nodes, ignore=["age", "price"])


def friends(kind: Any = networkx.Graph) -> Any:
    graph = kind()
    graph.add_node("Ann", age=31, vector=[1, 2], team="red")
    graph.add_node("Bob", age=27, vector=[3, 4], team="blue")
    graph.add_edge("Ann", "Bob", years=2.5, met=2010)
    graph.add_edge("Bob", "Bob", years=1.0, met=2012)
    return graph


@pytest.mark.parametrize("kind", [networkx.Graph, networkx.DiGraph, networkx.MultiDiGraph])
def test_a_networkx_graph_keeps_its_attributes(kind: Any) -> None:
    how: Any = {"edge_weight": "years", "edge_time": "met", "classes": ["blue", "red"]}
    graph = fgl.Graph.from_networkx(friends(kind), x=["age", "vector"], y="team", **how)
    assert graph.x.tolist() == [[31, 1, 2], [27, 3, 4]]  # type: ignore[union-attr]
    assert graph.y is not None and graph.y.tolist() == [1, 0]
    back = {(0, 1): 2.5, (1, 1): 1.0} | ({(1, 0): 2.5} if kind is networkx.Graph else {})
    pairs = list(zip(*graph.edge_index.tolist(), strict=True))
    assert dict(zip(pairs, graph.edge_weight.tolist(), strict=True)) == back  # type: ignore[union-attr]
    assert len(pairs) == len(back)


def test_names_come_back_with_the_predictions_of_a_client() -> None:
    class Age(torch.nn.Linear):
        def forward(self, x: Any, edge_index: Any) -> Any:
            return super().forward(x)

    people = networkx.relabel_nodes(networkx.path_graph(6), dict(enumerate("FADCBE")))
    ages = {name: 20.0 + place for place, name in enumerate("ABCDEF")}
    networkx.set_node_attributes(people, ages, "age")
    networkx.set_node_attributes(people, 30.0, "pay")
    whole = fgl.Graph.from_networkx(people, x=["age"], y="pay")
    parts = [torch.tensor([1, 0]), torch.tensor([5, 3, 2, 4])]
    clients = fgl.data.partitions.partition_graph(whole, parts)
    method = fgl.fedavg(Age(1, 1), target=fgl.targets.REGRESSION)
    result = fgl.run(method, clients, num_rounds=1)
    weight, bias = result.model.weight.item(), result.model.bias.item()
    for own in clients:
        names = [list(people)[row] for row in own.node_id]
        outputs = dict(zip(names, result.predict(own)[:, 0].tolist(), strict=True))
        assert outputs == pytest.approx({name: weight * ages[name] + bias for name in names})


def test_files_of_graphml_and_gexf_keep_a_graph(tmp_path: Path) -> None:
    people = friends(networkx.DiGraph)
    how: Any = {"x": ["age"], "y": "team", "classes": ["blue", "red"], "edge_weight": "years"}
    for own in people.nodes.values():
        del own["vector"]
    expected = fgl.Graph.from_networkx(people, **how, edge_time="met")
    for kind in ("graphml", "gexf"):
        getattr(networkx, f"write_{kind}")(people, tmp_path / "people")
        read = getattr(networkx, f"read_{kind}")(tmp_path / "people")
        graph = fgl.Graph.from_networkx(read, **how, edge_time="met", ignore=["label", "id"])
        for name in ("x", "edge_index", "y", "edge_weight", "edge_time"):
            assert torch.equal(getattr(graph, name), getattr(expected, name)), (kind, name)


def test_networkx_nodes_that_lack_an_attribute_are_named() -> None:
    graph = friends()
    graph.add_node("Eve", team="red")
    rest = {"ignore": ["vector", "team", "years", "met"]}
    with pytest.raises(ValueError, match="'age', but got none of node 'Eve'"):
        fgl.Graph.from_networkx(graph, x=["age"], **rest)
    with pytest.warns(UserWarning, match="nodes have .*'vector'"):
        fgl.Graph.from_networkx(friends(), x=["age", "team"][:1], ignore=["team", "years", "met"])


def test_a_networkx_graph_without_edges_has_the_fields_of_others() -> None:
    """Such as one client's among others; attributes of edges have no name there."""
    how: Any = {"edge_weight": "w", "edge_attr": ["a", "b"], "edge_time": "t"}
    graph = fgl.Graph.from_networkx(networkx.empty_graph(3), **how)
    assert (graph.num_nodes, graph.num_edges) == (3, 0)
    assert graph.edge_attr is not None and graph.edge_attr.shape == (0, 2)
    assert graph.edge_weight is not None and graph.edge_time is not None
    links = networkx.path_graph(2)
    refuses("to have 't'", lambda: fgl.Graph.from_networkx(links, edge_time="t"))
    links.edges[0, 1]["t"] = datetime(2020, 1, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match=r"datetime.*of edge \(0, 1\).*timestamp"):
        fgl.Graph.from_networkx(links, edge_time="t")


def test_whole_numbers_stay_whole(tmp_path: Path) -> None:
    """A float of 32 bits has no place for Unix times or long ids."""
    nodes: Any = {"id": ["a", "b", "c"], "y": [2**24 + 1, 0, 1]}
    edges: Any = {"source": ["a", "b"], "target": ["b", "c"], "t": [1700000001, 1700000050]}
    graph = from_tables(edges, nodes, edge_time="t", ignore=["y"])
    assert graph.edge_time is not None and graph.edge_time.tolist() == edges["t"]
    links = networkx.DiGraph()
    links.add_edge("a", "b", t=1700000001)
    again = fgl.Graph.from_networkx(links, edge_time="t")
    assert again.edge_time is not None and again.edge_time.tolist() == [1700000001]
    with pytest.raises(ValueError, match="'t' to be integers, but got 0.7 of edge 0"):
        from_tables({**edges, "t": [0.7, 1.2]}, nodes, edge_type="t", ignore=["y"])
    prices = {"id": [0, 1], "price": [Decimal("1.5"), Decimal("2.7")]}
    ends: Any = {"source": torch.tensor([0]), "target": [1]}
    graph = from_tables(ends, prices, y="price")
    torch.testing.assert_close(graph.y, torch.tensor([1.5, 2.7]))


def test_a_csv_file_names_nodes_as_it_is_written(tmp_path: Path) -> None:
    nodes, edges = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    nodes.write_text("id,age,train\n1,31,True\n02,27,false\n\nA3,45,True\n")
    edges.write_text("source,target\n1,02\n02,A3\n")
    graph = from_tables(edges, nodes, x=["age"], train_mask="train")
    assert graph.edge_index.tolist() == [[0, 1], [1, 2]]
    assert graph.train_mask is not None and graph.train_mask.tolist() == [True, False, True]


def test_keys_of_no_type_are_named() -> None:
    nodes: Any = {"user": {"id": [0], "age": [3]}}
    edges: Any = {("user", "sees", "user"): {"source": [0], "target": [0]}}
    for how in ({"x": {"usr": ["age"]}}, {"y": {"usr": "age"}}):
        with pytest.raises(ValueError, match=r"\['user'\], but got \['usr'\]"):
            typed_tables(edges, nodes, ignore=["age"], **how)
    refuses("y beside classes", lambda: typed_tables(edges, nodes, ignore=["age"], classes=[0]))
    with pytest.raises(ValueError, match="another type"):
        typed_tables({("user", "user"): edges[next(iter(edges))]}, nodes, ignore=["age"])  # type: ignore[dict-item]
