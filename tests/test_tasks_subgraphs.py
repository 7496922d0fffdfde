"""FED-PUB's protocol: its clients counted by a naive twin, splits, scores, settings."""

import networkx as nx
import pytest
import torch
from federations import refuses

import fgl
from fgl import data, tasks

SMALL = data.csbm(num_nodes=300, num_features=12, words_per_set=3, seed=3)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every dataset is this one."""
    monkeypatch.setattr(fgl.data, "load", lambda *_, **__: SMALL)


@pytest.fixture(scope="module")
def whole() -> fgl.Graph:
    """Several components, of which the first nodes are not the largest."""
    return SMALL.with_edges((SMALL.edge_index < 40).sum(0) != 1)


def twin(graph: fgl.Graph) -> nx.Graph:
    made = nx.Graph()
    made.add_nodes_from(range(graph.num_nodes))
    made.add_edges_from(graph.edge_index.t().tolist())
    return made


def test_the_largest_component_is_networkxs(whole: fgl.Graph) -> None:
    nodes = sorted(max(nx.connected_components(twin(whole)), key=len))
    part = data.largest_component(whole)
    assert part.node_id is not None and part.node_id.tolist() == nodes
    assert part.num_edges == 2 * twin(whole).subgraph(nodes).number_of_edges()
    assert part.y is not None and whole.y is not None and torch.equal(part.y, whole.y[nodes])
    assert data.largest_component(part) is part


def test_of_components_of_one_size_the_first_is_taken() -> None:
    graph = fgl.Graph(torch.eye(4), torch.tensor([[0, 3], [2, 1]]))
    assert data.largest_component(graph).node_id.tolist() == [0, 2]  # type: ignore[union-attr]
    empty = fgl.Graph(torch.ones(0, 1), torch.empty(2, 0, dtype=torch.int64))
    refuses("Expected graph to have a node", lambda: data.largest_component(empty))


@pytest.mark.parametrize(("clients", "overlap"), [(5, 1), (10, 5)])
def test_clients_are_those_of_a_naive_count(clients: int, overlap: int) -> None:
    """Nodes, edges inside a client and lost edges, counted by networkx in the whole graph."""
    setting = tasks.SubgraphNodes(clients=clients, overlap=overlap, hidden=4)
    made = setting.load(seed=2)
    full = data.largest_component(data.load("synthetic"))
    graph, parts = twin(full), [part.tolist() for part in setting.parts(full, seed=2)]
    assert [own.num_nodes for own in made.clients] == [len(part) for part in parts]
    inside = [2 * graph.subgraph(part).number_of_edges() for part in parts]
    assert [own.num_edges for own in made.clients] == inside
    if overlap == 1:
        owner = {node: client for client, part in enumerate(parts) for node in part}
        crossing = sum(owner[a] != owner[b] for a, b in graph.edges)
        assert crossing == graph.number_of_edges() - sum(inside) // 2 > 0
        assert sorted(owner) == sorted(graph)


def test_skewed_clients_do_not_overlap() -> None:
    skew = data.partitions.Skew(skew_by="labels", skew_alpha=0.5)
    with pytest.raises(ValueError, match="overlap to be 1 beside skew_by, .* but got 5"):
        tasks.SubgraphNodes(clients=10, overlap=5, skew=skew)


def test_a_fifth_trains_and_the_rest_halves() -> None:
    made = tasks.SubgraphNodes(clients=3, partition="random", hidden=4).load(seed=5)
    masks = [torch.stack([own.train_mask, own.val_mask, own.test_mask]) for own in made.clients]  # type: ignore[list-item]
    all_nodes = torch.cat(masks, 1)
    assert bool((all_nodes.sum(0) == 1).all())
    n = all_nodes.shape[1]
    train, val, test = all_nodes.sum(1).tolist()
    assert train == round(0.2 * n) and train + val + test == n and abs(val - test) <= 1


def test_rows_of_features_sum_to_1_where_none_is_negative(monkeypatch: pytest.MonkeyPatch) -> None:
    x = SMALL.x.to_dense()
    for sign in (1, -1):
        graph = SMALL.replace(x=x * sign)
        monkeypatch.setattr(fgl.data, "load", lambda *_, made=graph, **__: made)
        (own, *_) = tasks.SubgraphNodes(clients=2, partition="random", hidden=4).load().clients
        total = own.x.sum(1)
        assert bool(torch.isclose(total[total != 0], torch.ones(1)).all()) == (sign > 0)
        assert bool((own.x <= 0).all()) == (sign < 0)


@pytest.mark.parametrize(("name", "bad"), [("overlap", 0), ("overlap", 3), ("train", 1.5)])
def test_bounds(name: str, bad: float) -> None:
    refuses("Expected (overlap|clients|train) to be ", lambda: tasks.SubgraphNodes(**{name: bad}))


@pytest.mark.parametrize("method", ["fedgcn", "fedsage", "fedstar"])
def test_presets_have_their_network(method: str) -> None:
    setting = tasks.preset(method, tasks.SubgraphNodes, clients=2, hidden=4, partition="random")
    made = setting.load(seed=0)
    assert fgl.run(made.fedavg, made, num_rounds=1).history[0].metrics["test_accuracy"] > 0
    assert (made.bytes_before > 0) == (method == "fedgcn")
