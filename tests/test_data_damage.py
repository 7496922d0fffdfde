"""Damage, skew and domains of clients: exact shares, by counting and naive twins."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from federations import refuses

import fgl
from fgl import Graph, SparseMatrix, data, tasks
from fgl.data import Damage
from fgl.data import damage as functions
from fgl.data.partitions import Skew

SMALL = data.splits.split(
    data.csbm(num_nodes=200, num_features=20, words_per_set=5, seed=1), "random"
)
MANY = Graph.join(*data.small_graphs(12))
DENSE = SMALL.replace(x=SMALL.x.to_dense())
GRAPHS = {"sparse": SMALL, "dense": DENSE, "collection": MANY}
graphs = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
shares = pytest.mark.parametrize("share", [0.0, 0.29, 0.5, 1.0])


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def joined(graph: Graph) -> set[frozenset[int]]:
    """The pairs of nodes with an edge; every edge is there in both directions, once."""
    listed = Counter(map(tuple, graph.edge_index.t().tolist()))
    assert all(count == 1 and listed[b, a] == 1 for (a, b), count in listed.items())
    return {frozenset(pair) for pair in listed}


def dense(graph: Graph) -> torch.Tensor:
    x: Any = graph.x
    return x.to_dense() if isinstance(x, SparseMatrix) else x


@graphs
@pytest.mark.parametrize("share", [0.0, 0.29, 0.5])
def test_a_share_of_edges_moves_to_pairs_that_had_none(graph: Graph, share: float) -> None:
    before = joined(graph)
    moved = data.move_edges(graph, share, generator=draws())
    after = joined(moved)
    assert len(before - after) == round(share * len(before))
    assert len(after - before) == len(before - after) and all(len(pair) == 2 for pair in after)
    if graph.batch is not None:  # new edges stay in their graph, each of which has as many
        owner = graph.batch
        assert bool((owner[moved.edge_index[0]] == owner[moved.edge_index[1]]).all())
        counts = [owner[own.edge_index[0]].bincount() for own in (graph, moved)]
        assert torch.equal(*counts)


def test_a_complete_graph_gets_fewer_edges_and_relations_are_not_moved() -> None:
    complete = Graph(torch.eye(3), (1 - torch.eye(3)).nonzero().T)
    assert data.move_edges(complete, 1.0).num_edges == 0
    valued = complete.replace(edge_weight=torch.ones(6))
    assert data.move_edges(valued, 1.0).edge_weight.numel() == 0  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="edges to be without relations, but got edge_type"):
        data.move_edges(complete.replace(edge_type=torch.zeros(6).long()), 0.5)
    assert data.lose_edges(valued, 1 / 3).edge_weight.numel() == 4  # type: ignore[union-attr]


one_hot = pytest.mark.filterwarnings("ignore:Expected the share of missing features to be at least")


@one_hot
@graphs
@shares
def test_every_node_loses_a_share_of_its_features(graph: Graph, share: float) -> None:
    before, after = dense(graph), dense(data.lose_features(graph, share, generator=draws()))
    assert bool(((after == before) | (after == 0)).all())
    for one, two in zip(before, after, strict=True):
        k = int((one != 0).sum())
        assert k - int((two != 0).sum()) == int(share * k + 1e-9)


def test_one_hot_features_of_which_none_can_be_lost_are_warned_of() -> None:
    graph = Graph(torch.eye(5), torch.zeros(2, 0).long())
    with pytest.warns(UserWarning, match="to be at least 1 for .* more than 1 .* but got 0.9"):
        assert torch.equal(data.lose_features(graph, 0.9).x, graph.x)
    assert not data.lose_features(graph, 1.0).x.any()
    assert data.lose_features(graph.subgraph(torch.zeros(0).long()), 0.9).num_nodes == 0


def test_a_share_of_features_is_not_rounded_down_by_a_last_bit() -> None:
    graph = Graph(torch.ones(1, 100), torch.zeros(2, 0).long())  # 0.29 * 100 is 28.999...
    assert int((data.lose_features(graph, 0.29).x == 0).sum()) == 29


@shares
def test_a_share_of_training_labels_is_wrong_and_no_other(share: float) -> None:
    made = data.wrong_labels(SMALL, share, generator=draws())
    wrong = made.labels != SMALL.labels
    assert int(wrong.sum()) == round(share * SMALL.num_train)
    assert not bool(wrong[~SMALL.training_mask].any())  # validation and test stay as they are
    assert made.num_classes == SMALL.num_classes and int(made.labels.max()) < SMALL.num_classes  # type: ignore[operator]


def test_labels_that_are_scored_stay_where_no_mask_says_who_trains() -> None:
    scored = SMALL.replace(train_mask=None)
    wrong = data.wrong_labels(scored, 1.0, generator=draws()).labels != SMALL.labels
    assert torch.equal(wrong, SMALL.train_mask)  # type: ignore[arg-type]


def test_unknown_answers_are_no_labels_that_can_be_lost() -> None:
    y = torch.arange(60.0).where(torch.arange(60) % 2 == 0, torch.nan)
    graph = Graph(torch.ones(60, 1), torch.zeros(2, 0).long(), y=y)
    for seed in range(3):
        assert data.lose_labels(graph, 0.5, generator=draws(seed)).num_train == 15


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("shape", [(40,), (40, 3)])
def test_a_share_of_known_training_answers_is_turned(shape: tuple[int, ...], share: float) -> None:
    y = torch.randint(0, 2, shape, generator=draws(1)).float()
    y[::3] = torch.nan
    train = torch.arange(40) < 30
    graph = Graph(torch.ones(40, 1), torch.zeros(2, 0).long(), y=y, train_mask=train)
    wrong = data.wrong_labels(graph, share, generator=draws()).y
    assert torch.equal(wrong.isnan(), y.isnan()) and torch.equal(wrong[30:].nan_to_num(7), y[30:].nan_to_num(7))  # fmt: skip  # noqa: E501
    turned = (wrong != y) & ~y.isnan()
    assert int(turned.sum()) == round(share * int((~y[:30].isnan()).sum()))
    assert torch.equal(wrong[turned], 1 - y[turned])


@pytest.mark.parametrize("y", [torch.ones(3) / 2, torch.zeros(3, dtype=torch.int64)])
def test_labels_that_cannot_be_wrong(y: torch.Tensor) -> None:
    with pytest.raises((TypeError, ValueError), match="can be left out|two classes, but got 1"):
        data.wrong_labels(Graph(torch.ones(3, 1), torch.zeros(2, 0).long(), y=y), 0.5)


EVERY = Damage(0.1, 0.2, 0.3, 0.1, 0.2, 0.3)


def test_damage_is_its_functions_one_after_the_other_of_one_seed() -> None:
    made, again = (data.damaged([DENSE, DENSE], EVERY, seed=4) for _ in range(2))
    generator, one = draws(4), DENSE
    one = functions.move_edges(functions.lose_edges(one, 0.1, generator=generator), 0.2, generator=generator)  # fmt: skip  # noqa: E501
    one = functions.noisy_features(functions.lose_features(one, 0.3, generator=generator), 0.1, generator=generator)  # fmt: skip  # noqa: E501
    one = functions.lose_labels(functions.wrong_labels(one, 0.3, generator=generator), 0.2, generator=generator)  # fmt: skip  # noqa: E501
    for other in (made[0], again[0]):
        assert torch.equal(one.x, other.x) and torch.equal(one.edge_index, other.edge_index)
        assert torch.equal(one.labels, other.labels) and torch.equal(
            one.train_mask, other.train_mask
        )  # type: ignore[arg-type]
    assert not torch.equal(made[0].x, made[1].x)  # every client's own draws
    assert data.damaged([SMALL], Damage())[0] is SMALL


def test_damaged_says_what_it_takes() -> None:
    for wrong in (SMALL, [[1]]):
        with pytest.raises(TypeError, match="Expected graphs"):
            data.damaged(wrong, EVERY)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Expected how to be a Damage, but got 0.3"):
        data.damaged([SMALL], 0.3)  # type: ignore[arg-type]


@pytest.mark.parametrize("by", ["features", "degrees"])
@pytest.mark.parametrize("graph", [SMALL, DENSE, MANY], ids=["sparse", "dense", "collection"])
def test_sorted_clients_are_those_of_a_sort(graph: Graph, by: str) -> None:
    if graph.batch is not None:  # one-hot features have one mean
        graph = graph.replace(x=torch.rand(graph.num_nodes, 3, generator=draws()))
    nodes = torch.arange(graph.num_nodes) if graph.batch is None else graph.batch
    degree = [0] * graph.num_nodes
    for _, target in graph.edge_index.t().tolist():
        degree[target] += 1
    values: list[list[float]] = [[] for _ in range(graph.num_examples)]
    for node, example in enumerate(nodes.tolist()):
        own = float(dense(graph)[node].double().mean()) if by == "features" else degree[node]
        values[example].append(own)
    order = sorted(range(len(values)), key=lambda i: sum(values[i]) / len(values[i]))
    parts = data.partitions.sorted_partition(graph, 3, by=by)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    if by == "degrees":  # sums of float features differ in their last bits
        first = 0
        for part in parts:
            assert part.tolist() == sorted(order[first : first + len(part)])
            first += len(part)
    else:
        means = [[sum(values[i]) / len(values[i]) for i in part.tolist()] for part in parts]
        for low, high in pairwise(means):
            assert max(low) <= min(high) + 1e-7


def test_feature_skew_refuses_rows_that_all_have_the_same_mean() -> None:
    for graph in (SMALL, DENSE, MANY):
        scaled = data.normalize_features(graph)
        with pytest.raises(ValueError, match="means differ .* cut before features are normalized"):
            data.partitions.sorted_partition(scaled, 2, by="features")


def test_label_skew_is_dirichlets() -> None:
    for equal in (True, False):
        own = Skew(skew_by="labels", skew_alpha=0.1, equal_sizes=equal).parts(SMALL, 4, seed=3)
        how: Any = {"alpha": 0.1, "equal_sizes": equal, "seed": 3}
        other = data.partitions.dirichlet_partition(SMALL.labels, 4, **how)
        assert all(map(torch.equal, own, other))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fgl.data, "load", lambda name, *_, **__: SMALL if name != "b" else MANY)
    monkeypatch.setattr(fgl.data, "load_graphs", lambda *_, **__: data.small_graphs(40))


SETTINGS: list[tuple[Any, dict[str, Any]]] = [
    (tasks.Nodes, {"clients": 2, "model": "gcn"}),
    (tasks.SubgraphNodes, {"clients": 2}),
    (tasks.SubgraphNodes, {"clients": 6, "overlap": 3}),
    (tasks.OwnNodes, {"clients": 2, "latent": 2}),
    (tasks.SampledNodes, {"clients": 2}),
    (tasks.OverlappingNodes, {}),
    (tasks.EgoNodes, {"clients": 2, "num_test": 10}),
    (tasks.Graphs, {"clients": 2}),
]


@one_hot
@pytest.mark.parametrize(("kind", "more"), SETTINGS, ids=[k.__name__ for k, _ in SETTINGS])
def test_every_task_damages_its_clients_and_nothing_that_is_scored(
    kind: Any, more: dict[str, Any], small: None
) -> None:
    how = Damage(missing_edges=0.3, missing_features=0.5, label_noise=0.5, missing_labels=0.2)
    plain, worse = (kind(hidden=4, damage=d, **more).load(seed=1) for d in (Damage(), how))
    trained, changed = [], []
    for number, (one, two) in enumerate(zip(plain.clients, worse.clients, strict=True)):
        assert len(joined(one)) - len(joined(two)) == round(0.3 * len(joined(one)))
        assert one.num_train - two.num_train == round(0.2 * one.num_train)
        wrong = one.labels != two.labels
        assert not bool(wrong[~one.training_mask].any())
        if kind not in (tasks.OverlappingNodes, tasks.EgoNodes) and not more.get("overlap"):
            assert int(wrong.sum()) == round(0.5 * one.num_train)
        ids = torch.arange(one.num_examples) if one.node_id is None else one.node_id
        ids = ids + 1000 * number if one.batch is not None else ids
        trained += ids[one.training_mask].tolist()
        changed += ids[wrong].tolist()
        assert all(changed.count(node) == trained.count(node) for node in changed)
    if len(trained) > len({*trained}):  # clients share nodes: the share is one of all of them
        assert len({*changed}) == round(0.5 * len({*trained}))
    if plain.whole is not None and kind is not tasks.Graphs:
        assert torch.equal(plain.whole.edge_index, worse.whole.edge_index)
        assert torch.equal(plain.whole.labels, worse.whole.labels)


def test_graphs_that_are_scored_keep_their_labels(small: None) -> None:
    how: Any = {"damage": Damage(label_noise=1.0), "local": tasks.Local(lr=0.0)}
    setting = tasks.Graphs(clients=2, hidden=4, **how)
    made = setting.load(seed=1), setting.of(*setting.folds_of(1), seed=1)
    one, two = (fgl.run(task.fedavg, task, num_rounds=1).history[0].metrics for task in made)
    assert one["test_accuracy"] == two["test_accuracy"]


def test_links_lose_edges_and_have_no_labels(small: None) -> None:
    def load(**how: float) -> Any:
        return tasks.Links(clients=2, hidden=4, latent=2, damage=Damage(**how)).load(seed=1)

    one, two = load(), load(missing_edges=0.3)
    for a, b in zip(one.clients, two.clients, strict=True):
        assert len(joined(a)) - len(joined(b)) == round(0.3 * len(joined(a)))
    assert fgl.run(two.fedavg, two, num_rounds=1).history[0].metrics["test_auc"] > 0
    refuses("Expected links to have no labels", lambda: load(label_noise=0.1))


def test_edges_that_a_client_lost_are_no_negatives_of_its_score() -> None:
    def load(**how: float) -> list[Graph]:
        setting = tasks.Pairs(clients=2, hidden=4, asked="links", damage=Damage(**how))
        return list(setting.load(seed=1).clients)

    for one, two in zip(load(), load(missing_edges=0.9), strict=True):
        assert one.num_edges > two.num_edges
        assert torch.equal(one.edge_label_index, two.edge_label_index)  # type: ignore[arg-type]
        assert torch.equal(one.y, two.y)  # type: ignore[arg-type]


def test_tasks_are_cut_by_their_skew(small: None) -> None:
    for kind, more in [(tasks.Nodes, {"model": "gcn"}), (tasks.SubgraphNodes, {})]:
        made = kind(clients=3, hidden=4, skew=Skew(skew_by="degrees"), **more).load(seed=0)
        means = [own.num_edges / own.num_nodes for own in made.clients]
        assert means[0] < means[-1]
    graphs = tasks.Graphs(clients=2, hidden=4, skew=Skew(skew_by="degrees")).load(seed=0)
    assert len(graphs.clients) == 2


def test_edges_of_sums_are_not_damaged(small: None) -> None:
    setting = tasks.Nodes(clients=2, hidden=4, model="gcn", hops=1, damage=Damage(edge_noise=0.1))
    refuses("Expected edges and features to be whole beside hops", lambda: setting.load(seed=0))


@pytest.mark.parametrize("method", ["fedavg", "local", "fedper"])
def test_unseen_clients_never_train_and_are_scored_like_others(method: str, small: None) -> None:
    setting = tasks.SubgraphNodes(clients=4, hidden=4, dropout=0.0, skew=Skew(unseen=1))
    made, all_of_them = (kind.load(seed=0) for kind in (setting, tasks.SubgraphNodes(clients=4, hidden=4)))  # fmt: skip  # noqa: E501
    assert len(made.clients) == 3 and all(
        torch.equal(one.y, two.y)
        for one, two in zip(made.clients, all_of_them.clients, strict=False)  # type: ignore[arg-type]
    )
    build = {
        "fedavg": lambda task: task.fedavg,
        "local": lambda task: fgl.methods.local(task.fedavg),
        "fedper": lambda task: fgl.methods.fedper(task.fedavg, shared=("convs",)),
    }[method]
    result = fgl.run(build(made), made, num_rounds=2)
    found = result.history[-1].metrics
    assert ("unseen_accuracy" in found) == (method != "local")
    if method == "fedavg":  # one model for all
        graph, model = all_of_them.clients[3], made.fedavg.model.eval()
        logits = torch.func.functional_call(model, result.outbox[0]["model"], (graph.x, graph.adj))
        hit = (logits.argmax(1) == graph.y)[graph.test_mask].float().mean()
        assert found["unseen_accuracy"] == pytest.approx(float(hit))


def test_centralized_training_has_no_node_of_an_unseen_client(small: None) -> None:
    setting = tasks.Nodes(clients=4, model="gcn", hidden=4, skew=Skew(unseen=1))
    made = setting.load(seed=0)
    (together,) = tasks.centralized(made).clients
    ids = torch.cat([own.node_id for own in made.clients])  # type: ignore[misc]
    assert torch.equal(together.node_id, ids.sort().values)  # type: ignore[arg-type]
    assert together.num_train == sum(own.num_train for own in made.clients)
    alone = tasks.centralized(made)
    assert "unseen_accuracy" in fgl.run(alone.fedavg, alone, num_rounds=1).history[0].metrics
    clients = [own.replace(node_id=None) for own in made.clients]
    plain = tasks.node_task(SMALL, clients, made.fedavg.model, fgl.Training())
    assert tasks.with_unseen(plain, 1).whole is None


def test_unseen_clients_have_nodes_with_classes_to_be_tested_on() -> None:
    clients = data.partitions.partition_graph(SMALL, data.partitions.random_partition(SMALL, 3))
    task = tasks.node_task(SMALL, clients, fgl.nn.GCN(20, 4, 7), fgl.Training())
    last = clients[-1]
    for bad in (last.replace(test_mask=None), MANY):
        with pytest.raises(ValueError, match="unseen clients to have nodes with a test_mask"):
            tasks.with_unseen(replace(task, clients=[*clients[:2], bad]), 1)
    numbers = last.replace(y=torch.ones(last.num_nodes))
    with pytest.raises(TypeError, match="to be class labels"):
        tasks.with_unseen(replace(task, clients=[*clients[:2], numbers]), 1)
    with pytest.raises(TypeError, match="Expected count to be an integer"):
        tasks.with_unseen(task, 1.5)  # type: ignore[arg-type]


def test_a_skew_says_what_does_not_fit() -> None:
    refuses("skew_by to be 'labels' beside skew_alpha, 0.1, but got", lambda: Skew(skew_alpha=0.1))
    refuses("skew_by to be 'labels' beside equal_sizes", lambda: Skew(equal_sizes=False))
    pairs = data.splits.pair_split(DENSE, is_undirected=True)
    with pytest.raises(ValueError, match="'features' or 'degrees' where pairs have the labels"):
        Skew(skew_by="labels").parts(pairs, 2)
    with pytest.raises(ValueError, match=r"num_clients to be in \[1, 200\], but got 201"):
        data.partitions.sorted_partition(
            pairs, 201, by="degrees"
        )  # there are more pairs than nodes


def test_somebody_must_train(small: None) -> None:
    with pytest.raises(ValueError, match="Expected unseen to leave a client of 2, but got 2"):
        tasks.Nodes(clients=2, skew=Skew(unseen=2))
    for kind in (tasks.Links, tasks.Graphs):
        with pytest.raises(ValueError, match="Expected unseen to be 0"):
            kind(clients=3, hidden=4, skew=Skew(unseen=1)).load(seed=0)


def test_domains_have_one_network_and_own_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = data.csbm(num_nodes=100, num_features=35, words_per_set=5, seed=2)
    monkeypatch.setattr(fgl.data, "load", lambda name, *_, **__: wide if name == "b" else SMALL)
    made = tasks.SubgraphNodes(dataset="a+b", clients=2, hidden=4).load(seed=0)
    one, two = made.clients
    assert one.num_features == two.num_features == 35 and one.num_classes == two.num_classes == 14
    assert int(one.labels.max()) < 7 <= int(two.labels.min())
    assert bool((dense(one)[:, 20:] == 0).all()) and bool((dense(two)[:, 20:] != 0).any())
    assert fgl.run(made.fedavg, made, num_rounds=1).history[0].metrics["test_accuracy"] > 0
    with pytest.raises(ValueError, match="Expected clients to be 2, one per dataset"):
        tasks.SubgraphNodes(dataset="a+b", clients=3, hidden=4).load(seed=0)
    refuses("Expected graphs to have classes", lambda: data.one_space([]))


def test_an_edge_of_one_direction_is_not_moved() -> None:
    made = fgl.Graph(torch.eye(4), torch.tensor([[3, 2, 1], [0, 1, 0]]))
    refuses("both directions", lambda: functions.move_edges(made, 0.5))
