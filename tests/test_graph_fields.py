"""Every field of a graph is carried by whatever cuts, joins, orders or stacks graphs."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from federations import refuses
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.transforms import RandomLinkSplit, ToSparseTensor

import fgl
from fgl import Graph
from fgl.graph import EDGE_FIELDS, EXAMPLE_FIELDS, NODE_FIELDS, TIME_FIELDS

EDGES = torch.tensor([[3, 0, 1, 1, 2, 0, 3], [0, 1, 0, 2, 1, 1, 3]])
NAN = float("nan")


def edge_fields(count: int = 7) -> dict[str, Tensor]:
    """Fields whose entries tell the edges apart."""
    number = torch.arange(count)
    return {
        "edge_weight": 1.0 + number,
        "edge_attr": torch.stack([number + 0.5, -1.0 * number], 1),
        "edge_type": number % 3,
        "edge_time": 100 + number,
    }


def whole(**given: Any) -> Graph:
    fields: dict[str, Any] = {
        **edge_fields(),
        "node_id": torch.tensor([40, 41, 42, 43]),
        "node_type": torch.tensor([0, 1, 1, 2]),
        "z": torch.tensor([6, 1, 8, 1]),
        "pos": torch.arange(12.0).reshape(4, 3),
        "scale": torch.arange(40.0).reshape(4, 10),
        "y": torch.tensor([[0.0, NAN], [1.0, 2.0], [NAN, NAN], [3.0, 4.0]]),
        "train_mask": torch.tensor([True, False, True, False]),
        "val_mask": torch.tensor([False, True, False, False]),
        "test_mask": torch.tensor([False, False, False, True]),
    }
    return Graph(torch.eye(4), EDGES, **{**fields, **given})


def pairs() -> Graph:
    return whole(
        edge_label_index=torch.tensor([[0, 1, 3], [1, 2, 0]]),
        y=torch.tensor([0, 1, 1]),
        train_mask=torch.tensor([True, True, False]),
        val_mask=None,
        test_mask=torch.tensor([False, False, True]),
    )


def edges_of(graph: Graph) -> dict[tuple[int, int], list[Any]]:
    """Every edge by the ids of its ends, with what its fields say, by hand."""
    ids: Any = graph.node_id
    found: dict[tuple[int, int], list[Any]] = {}
    for e in range(graph.num_edges):
        ends = tuple(int(ids[int(graph.edge_index[side, e])]) for side in (0, 1))
        said = [getattr(graph, name)[e].tolist() for name in EDGE_FIELDS]
        found.setdefault(ends, []).append(said)  # type: ignore[arg-type]
    return {ends: sorted(said) for ends, said in found.items()}


def test_the_names_are_the_fields_of_the_class() -> None:
    listed = {*NODE_FIELDS, *EDGE_FIELDS, *EXAMPLE_FIELDS, *TIME_FIELDS}
    rest = {"x", "edge_index", "num_classes", "batch", "backend", "edge_label_index"}
    assert set(Graph.__dataclass_fields__) == listed | rest


def test_entries_belong_to_the_graphs_own_edges() -> None:
    graph = whole()
    value = torch.zeros(7)
    dropped = graph.with_adj(graph.adj.with_value(value)).with_adj(graph.adj.with_value(value))
    assert torch.equal(dropped.entries("edge_type"), graph.entries("edge_type"))
    other = graph.with_adj(graph.adj.gcn_norm)
    with pytest.raises(ValueError, match="adj to have the graph's own edges, whose edge_type is k"):
        other.entries("edge_type")
    bare = Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
    for name in ("edge_type", "y"):
        with pytest.raises(ValueError, match=f"the graph to have {name} of edges, but got none"):
            bare.entries(name)


def test_joined_and_selected_graphs_carry_every_field() -> None:
    graph = whole()
    parts = [graph.subgraph(torch.tensor(nodes)) for nodes in ([0, 1], [2], [1, 3, 0], [3, 2])]
    y = torch.tensor([[0.0, NAN], [1.0, 1.0], [2.0, NAN], [3.0, 0.0]])
    ids = torch.cat([part.node_id for part in parts])  # type: ignore[misc]
    joined = Graph.join(parts, y, u=torch.rand(4, 2)).replace(node_id=ids)
    assert joined.num_outputs == 2
    for which in ([0, 1, 2, 3], [2, 0], [3], [1]):
        chosen = joined.select(torch.tensor(which))
        want: dict[Any, Any] = {}
        for number in which:
            for ends, said in edges_of(parts[number]).items():
                want[ends] = sorted([*want.get(ends, []), *said])
        assert edges_of(chosen) == want
        assert chosen.node_type is not None and chosen.y is not None
        types = torch.cat([parts[number].node_type for number in which])  # type: ignore[misc]
        assert torch.equal(chosen.node_type, types)
        for name in ("z", "pos"):
            want = torch.cat([getattr(parts[number], name) for number in which])
            assert torch.equal(getattr(chosen, name), want), name
        assert torch.equal(chosen.u, joined.u[which])  # type: ignore[arg-type, index]
        assert torch.equal(chosen.y.nan_to_num(9), y[which].nan_to_num(9))
        for name in EDGE_FIELDS:
            assert torch.equal(chosen.entries(name), getattr(chosen, name)), name


def test_all_graphs_or_none_have_a_field_when_they_are_joined() -> None:
    graph = whole()
    bare = graph.replace(edge_attr=None)
    refuses("edge_attr .*got none in graphs .1", lambda: Graph.join([graph, bare]))


def test_new_nodes_come_with_every_field() -> None:
    graph, edges = whole(), torch.tensor([[4, 0], [0, 4]])
    more = {name: value for name, value in edge_fields(2).items() if name != "edge_weight"}
    more |= {"node_type": torch.tensor([5]), "z": torch.tensor([7])}
    more |= {"pos": torch.ones(1, 3), "scale": torch.ones(1, 10)}
    grown = graph.append(torch.ones(1, 4), edges, **more)
    assert grown.y is not None and grown.y[4].isnan().all()
    for name in EDGE_FIELDS[1:]:
        got = getattr(grown, name)
        assert torch.equal(got, torch.cat([getattr(graph, name), more[name]])), name
    assert grown.node_type is not None and grown.node_type.tolist() == [0, 1, 1, 2, 5]
    assert grown.num_train == graph.num_train
    refuses(r"to come with .*got \[\]", lambda: graph.append(torch.ones(1, 4), edges))
    bare = Graph(torch.eye(4), EDGES)
    with pytest.raises(ValueError, match=r"to come with \[\], but got \['edge_type'\]"):
        bare.append(torch.ones(1, 4), edges, edge_type=torch.tensor([0, 0]))


def test_there_and_back_to_pyg() -> None:
    for graph in (whole(), pairs(), Graph.join([whole()], torch.tensor([[1.0, NAN]]))):
        back = Graph.from_pyg(graph.to_pyg(Data))
        for name in Graph.__dataclass_fields__:
            one, two = getattr(graph, name), getattr(back, name)
            if isinstance(one, Tensor):
                assert torch.equal(one.nan_to_num(9), two.nan_to_num(9)), name
            else:
                assert one == two, name


def test_what_pyg_writes_in_other_shapes() -> None:
    one = Data(torch.eye(2), torch.tensor([[0], [1]]), torch.tensor([2.0]), y=torch.ones(1, 1))
    both = Graph.from_pyg(Batch.from_data_list([one, one]))
    assert both.y is not None and both.y.tolist() == [1.0, 1.0]
    assert both.edge_attr is not None and both.edge_attr.tolist() == [[2.0], [2.0]]
    answers = Data(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([[1.0, NAN]]))
    assert Graph.from_pyg(Batch.from_data_list([answers, answers])).num_outputs == 2
    linked = Data(torch.eye(2), torch.tensor([[0], [1]]))
    linked.edge_label_index, linked.edge_label = torch.tensor([[1], [0]]), torch.tensor([1.0])
    graph = Graph.from_pyg(linked)
    assert graph.y is not None and graph.y.tolist() == [1.0]
    assert (graph.num_examples, graph.num_outputs) == (1, 1)
    masks = Data(torch.eye(2), torch.tensor([[0], [1]]))
    masks.train_mask = torch.tensor([[True, False], [False, True]])
    split = Graph.from_pyg(masks, split=1).train_mask
    assert split is not None and split.tolist() == [False, True]


def data(**given: Any) -> Data:
    made = Data(x=torch.eye(2), edge_index=torch.tensor([[0], [1]]))
    for name, value in given.items():
        setattr(made, name, value)
    return made


REFUSED: list[tuple[Any, str]] = [
    (data(smiles="C", face=torch.ones(2, 3)), r"but got \['face', 'smiles'\] besides"),
    (data(adj_t=torch.eye(2)), r"but got \['adj_t'\] besides"),
    (data(time=torch.ones(2)), "besides: a Graph has times of edges alone"),
    (data(**dict.fromkeys(("src", "dst", "t", "msg"), torch.ones(2))),
        r"give them as Data\(x=..., edge_index=torch.stack\(\[data.src, data.dst\]\), edge_time",),
    (HeteroData(), "one type, but got HeteroData: see fgl.data.from_hetero"),
    (data(x=None), r"data.x = torch.ones\(data.num_nodes, 1\)"),
    (data(x=torch.eye(2).long()), "floating point, but got torch.int64"),
    (data(train_mask=torch.ones(2, 10).bool()), "one of the 10 that data.train_mask"),
    (data(y=torch.ones(2, 1), edge_label=torch.ones(1)), r"y .*got both edge_label"),
    (data(edge_label=torch.ones(2)), "edge_label_index .*got 1 edges"),
    ([data(), data()], r"got a list: Graph.from_pyg\(Batch.from_data_list\(data\)\)"),
    (Batch.from_data_list([data(y=torch.ones(2)), data(y=torch.ones(2))]), r"y .*got \[4\], one"),
    (data(y=torch.ones(2, 2).long()), r"y to have shape \[2\], but got \[2, 2\]"),
    (data(y=torch.tensor(1)), r"y to have shape \[2\], but got \[\]"),
    (data(train_mask=torch.tensor(True)), r"train_mask .*got \[\]"),
    (data(edge_label=torch.tensor(1)), r"edge_label_index beside edge_label"),
    (data(edge_attr=torch.ones(1, 1).long()), r"edge_attr to be a float .* \.float\(\)"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_pyg_has_and_a_graph_has_not_is_refused(given: Any, message: str) -> None:
    refuses(message, lambda: Graph.from_pyg(given), (TypeError, ValueError))


def test_something_else_than_pyg_is_named() -> None:
    for other in ({"x": torch.eye(2)}, "cora", None, torch.eye(2)):
        with pytest.raises(TypeError, match=f"a Data or a Batch, but got {type(other).__name__}"):
            Graph.from_pyg(other)
    with pytest.raises(TypeError, match=r"got InMemoryDataset: dataset\[0\]"):
        Graph.from_pyg(InMemoryDataset())
    with pytest.raises(TypeError, match=r"types .*, but got Data: fgl.Graph.from_pyg\(data\)"):
        fgl.data.from_hetero(data())
    hetero = HeteroData()
    hetero["u"].x, hetero["u", "to", "m"].edge_index = torch.eye(2), torch.tensor([[0], [1]])
    hetero["m"].foo = None
    with (
        pytest.warns(UserWarning, match="infer 'num_nodes'"),
        pytest.raises(ValueError, match=r"data\['m'\] to have x or num_nodes"),
    ):
        fgl.data.from_hetero(hetero)


def test_a_field_on_another_device_is_named() -> None:
    graph = whole()
    for name in ("edge_weight", "node_type", "edge_attr"):
        with pytest.raises(ValueError, match=rf"Expected {name} to be on cpu .*on meta"):
            graph.replace(**{name: torch.empty(0, device="meta")})


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
def test_adjacencies_of_pyg_are_edges() -> None:
    """Against a dense matrix: row is target, as in PyG's ``adj_t``."""
    edges = torch.tensor([[0, 0, 2, 1], [1, 2, 0, 1]])
    for weight in (None, torch.tensor([1.0, 2.0, 3.0, 4.0])):
        pyg = Data(x=torch.eye(3), edge_index=edges, edge_weight=weight, num_nodes=3)
        for layout in (torch.sparse_csr, torch.sparse_coo, None):
            if layout is None and find_spec("torch_sparse") is None:
                continue
            made = ToSparseTensor(attr="edge_weight", layout=layout)(pyg.clone())
            graph = Graph.from_pyg(made)
            want = torch.zeros(3, 3)
            want[edges[1], edges[0]] = torch.ones(4) if weight is None else weight
            assert torch.equal(graph.adj.to_dense(), want), layout
            assert (graph.edge_weight is None) == (weight is None)
    with pytest.raises(TypeError, match=r"data.adj_t to be a sparse tensor, but got Tensor"):
        Graph.from_pyg(Data(x=torch.eye(2), adj_t=torch.eye(2)))


def test_ids_of_examples_are_masks() -> None:
    ids = torch.tensor([1])
    for names in (("train_idx", "valid_idx", "test_idx"), ("train_index", "val_idx", "test_index")):
        given = {name: torch.tensor([k]) for k, name in enumerate(names)}
        graph = Graph.from_pyg(Data(x=torch.eye(4), edge_index=ids.new_zeros(2, 0), **given))
        roles = torch.stack([graph.train_mask, graph.val_mask, graph.test_mask])
        assert torch.equal(roles, torch.eye(4, dtype=torch.bool)[:3])
    graph = Graph.from_pyg(data(train_idx=torch.tensor([True, False])))
    assert graph.train_mask is not None and graph.train_mask.tolist() == [True, False]
    both = data(train_idx=ids, train_mask=torch.tensor([True, False]))
    refuses(r"train_mask or train_idx, .* ignore=\['train_idx'\]", lambda: Graph.from_pyg(both))
    kept = Graph.from_pyg(both, ignore=["train_idx"]).train_mask
    assert kept is not None and kept.tolist() == [True, False]
    with pytest.raises(ValueError, match=r"test_idx to be in \[0, 2\), but got 2"):
        Graph.from_pyg(data(test_idx=ids + 1))


@pytest.mark.parametrize("answers", [torch.ones(2, 3).bool(), torch.ones(2, 3).long()])
def test_several_answers_have_a_remedy_that_works(answers: Tensor) -> None:
    refuses(r"y.float\(\) with target=fgl.targets.ANSWERS", lambda: Graph.from_pyg(data(y=answers)))
    graph = Graph.from_pyg(data(y=answers.float()))
    method = fgl.fedavg(fgl.nn.GCN(2, 4, 3), target=fgl.targets.ANSWERS)
    fgl.run(method, [graph], num_rounds=1)
    with pytest.raises(TypeError, match=r"call .long\(\) for classes, or .float\(\)"):
        Graph.from_pyg(data(y=answers[:, 0].bool()))
    assert Graph.from_pyg(data(y=answers[:, 0].long() * torch.arange(2))).num_classes == 2


def test_labels_of_pairs_are_read_as_random_link_split_leaves_them() -> None:
    edges = torch.stack([torch.arange(9), torch.arange(9).roll(1)])
    whole = Data(x=torch.eye(9), edge_index=edges, y=torch.arange(9) % 2)
    whole.train_mask = torch.arange(9) < 3
    for part in RandomLinkSplit(num_val=0.2, num_test=0.2)(whole):
        with pytest.raises(ValueError, match=r"ignore=\['y', 'train_mask'\] learns edge_label"):
            Graph.from_pyg(part)
        graph = Graph.from_pyg(part, ignore=["y", "train_mask"])
        assert torch.equal(graph.edge_label_index, part.edge_label_index)
        assert torch.equal(graph.y, part.edge_label)
        nodes = Graph.from_pyg(part, ignore=["edge_label", "edge_label_index"])
        assert torch.equal(nodes.y, whole.y) and nodes.edge_label_index is None
    rated = Data(x=torch.eye(9), edge_index=edges, edge_label=torch.arange(9))
    assert torch.equal(Graph.from_pyg(rated).edge_label_index, edges)
    split = RandomLinkSplit(split_labels=True)(Data(x=torch.eye(9), edge_index=edges))[0]
    refuses(r"RandomLinkSplit\(split_labels=False\)", lambda: Graph.from_pyg(split))


def test_what_is_ignored_is_left_out() -> None:
    graph = Graph.from_pyg(
        data(smiles="C", edge_attr=torch.ones(1, 1)), ignore=("smiles", "edge_attr")
    )
    assert graph.edge_attr is None


ONE = torch.ones(7)
BAD: list[tuple[dict[str, Any], str]] = [
    ({"edge_attr": ONE}, r"edge_attr to have shape \[7, \*\], but got \[7\]"),
    ({"edge_attr": torch.ones(6, 2)}, r"to have shape \[7, \*\], but got \[6, 2\]"),
    ({"edge_attr": torch.full((7, 1), NAN)}, "edge_attr to be finite, but got NaN"),
    ({"edge_attr": [1.0]}, "edge_attr to be a float tensor, but got list"),
    ({"edge_type": ONE}, "edge_type to be an int64 tensor, but got torch.float32"),
    ({"edge_type": ONE.long() - 2}, "edge_type to be at least 0, but got -1"),
    ({"edge_time": ONE[:3]}, r"edge_time to have shape \[7\], but got \[3\]"),
    ({"edge_time": ONE.int()}, "edge_time to be a float tensor, but got torch.int32"),
    ({"edge_weight": ONE.long()}, "edge_weight to be a float tensor, but got torch.int64"),
    ({"node_type": torch.tensor([0, 1, 2])}, r"node_type to have shape \[4\]"),
    ({"y": torch.tensor([1.0, 2.0, 3.0])}, r"y to have shape \[4\] or \[4, \*\], but"),
    ({"y": torch.tensor([1.0, 2.0, 3.0, float("inf")])}, "but got infinity"),
    ({"y": torch.ones(4), "num_classes": 2}, "num_classes to be left out beside y"),
    ({"edge_label_index": torch.tensor([[0], [4]])}, r"edge_label_index to be in \[0, 4"),
    ({"edge_label_index": torch.zeros(2, 4).long(), "batch": torch.zeros(4).long()},
        "Expected edge_label_index or batch, but got both",),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), BAD, ids=range(len(BAD)))
def test_a_field_that_does_not_fit_is_refused(given: dict[str, Any], message: str) -> None:
    refuses(message, lambda: whole(**given), (TypeError, ValueError))


def test_labels_are_classes() -> None:
    with pytest.raises(TypeError, match="class labels, .*got torch.float32"):
        _ = whole().labels
    with pytest.raises(ValueError, match="a tensor of labels, but got None"):
        _ = whole(y=None).labels
    with pytest.raises(ValueError, match="to say what a model learns, but got None"):
        _ = whole(y=None).num_outputs
    graph = Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
    assert graph.labels is graph.y
    assert graph.num_outputs == 2
    numbers = graph.replace(y=torch.tensor([0.5, NAN]))
    assert (numbers.num_classes, numbers.num_outputs) == (None, 1)
