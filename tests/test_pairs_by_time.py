"""Pairs and time: splits, negatives of a window, tasks whose examples are pairs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from federations import refuses
from torch import Tensor

import fgl
from fgl import tasks
from fgl.data.splits import pair_split, split_by_time, with_negatives

ADAM = fgl.Training(lambda tensors: torch.optim.Adam(tensors, lr=0.01), num_steps=3)


def temporal(num_edges: int = 60, n: int = 12, seed: int = 0) -> fgl.Graph:
    """Directed edges with times that repeat, features, weights and types; some edges twice."""
    rng = torch.Generator().manual_seed(seed)
    edges = torch.randint(n, (2, num_edges), generator=rng)
    return fgl.Graph(
        torch.rand(n, 3, generator=rng),
        edges,
        edge_weight=torch.rand(num_edges, generator=rng),
        edge_attr=torch.arange(float(num_edges))[:, None],
        edge_type=torch.arange(num_edges) % 3,
        edge_time=torch.randint(num_edges // 2, (num_edges,), generator=rng),
    )


def rows(edges: Tensor) -> list[tuple[int, int]]:
    return [(int(u), int(v)) for u, v in edges.T]


def test_before_keeps_the_fields_of_earlier_edges_and_the_pairs() -> None:
    graph = temporal().replace(edge_label_index=torch.tensor([[0, 1], [1, 2]]))
    early = graph.before(12)
    kept = [e for e in range(60) if graph.edge_time[e] < 12]
    assert early.edge_attr.flatten().tolist() == kept
    assert rows(early.edge_index) == [rows(graph.edge_index)[e] for e in kept]
    assert torch.equal(early.edge_weight, graph.edge_weight[kept])
    assert torch.equal(early.edge_type, graph.edge_type[kept])
    assert torch.equal(early.edge_label_index, graph.edge_label_index)
    assert early.num_nodes == 12 and graph.before(0).num_edges == 0
    with pytest.raises(ValueError, match="Expected the graph to have edge_time, but got none"):
        fgl.Graph(torch.eye(2), torch.tensor([[0], [1]])).before(3)


def test_splits_refuse_what_they_cannot_split() -> None:
    graph = temporal()
    bare = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]))
    pairs = graph.replace(edge_label_index=torch.zeros(2, 1, dtype=torch.int64))
    batch = graph.replace(batch=torch.zeros(12, dtype=torch.int64))
    wrong: list[tuple[Any, str]] = [
        (lambda: split_by_time(bare), "to have edge_time, but got none"),
        (lambda: split_by_time(pairs), "whose examples are nodes, but got edge_label_index"),
        (lambda: split_by_time(batch), "whose examples are nodes, but got batch"),
        (lambda: pair_split(graph, shares=(0.5, 0.6, -0.1, 0.0)), "four numbers of sum 1"),
        (lambda: pair_split(graph, torch.ones(3)), "y"),
        (lambda: with_negatives(graph), "Expected a graph with pairs"),
        (lambda: pair_split(graph, edge_type=7), r"edge_type to be one of .*\[0, 1, 2\].* 7"),
        (lambda: pair_split(graph, rev_edge_type=1), "Expected edge_type beside rev_edge_type"),
        (lambda: pair_split(graph, edge_type=1, rev_edge_type=1), "but got 1 twice"),
        (lambda: pair_split(graph, edge_type=0, rev_edge_type=1), "turned round, but got 1"),
    ]
    for call, text in wrong:
        with pytest.raises(ValueError, match=text):
            call()


def test_times_that_do_not_tell_the_windows_apart_are_refused() -> None:
    graph = temporal()
    y = torch.arange(60.0)
    same = graph.replace(edge_time=torch.zeros_like(graph.edge_time))
    with pytest.raises(ValueError, match="leave 30 of 60 edges to messages, but got 0, .* 1 times"):
        split_by_time(same, y)
    two = graph.replace(edge_time=(torch.arange(60) >= 45).long())
    with pytest.raises(ValueError, match="leave 30 of 60 edges to messages, but got 0, .* 2 times"):
        split_by_time(two, y)
    with pytest.raises(ValueError, match="leave 6 of 60 edges to val_mask, but got 0"):
        split_by_time(two, y, shares=(0.0, 0.75, 0.1, 0.15))
    split = split_by_time(two, y, shares=(0.75, 0.0, 0.0, 0.25))
    assert (split.num_edges, int(split.test_mask.sum())) == (45, 15)


def test_classes_of_pairs_stay_classes() -> None:
    graph = temporal()
    split = split_by_time(graph, graph.edge_type)
    assert split.y.dtype == torch.int64 and split.num_classes == 3


def test_ratings_of_a_task_are_tenths() -> None:
    ratings = fgl.data.ratings()
    whole = tasks.Pairs().whole(0)
    assert ratings.edge_attr.abs().max() == 10  # type: ignore[union-attr]
    assert whole.edge_attr.abs().max() == 1  # type: ignore[union-attr]
    sent = (10 * whole.edge_attr).round().long()  # type: ignore[operator]
    assert set(sent.unique().tolist()) <= set(ratings.edge_attr.long().unique().tolist())  # type: ignore[union-attr]


def test_an_undirected_split_of_fields_is_refused_and_says_how() -> None:
    with pytest.raises(ValueError, match="but got .*edge_attr.*: directed=True keeps them"):
        fgl.data.splits.edge_split(temporal())


def naive(net: fgl.nn.PairNet, graph: fgl.Graph) -> Tensor:
    """The network in loops."""
    h = graph.x @ net.embed.weight.T
    edges, attr = rows(graph.edge_index), graph.edge_attr
    for conv in net.convs:
        parts = [h]
        for end in (1, 0):  # edges into a node, edges out of it
            for scale in (None, 1, -1):
                mean = torch.zeros_like(h)
                for v in range(len(h)):
                    own = [e for e, pair in enumerate(edges) if pair[end] == v]
                    for e in own:
                        factor = 1 if scale is None else (scale * attr[e, 0]).clamp(min=0)
                        mean[v] += factor * h[edges[e][1 - end]] / len(own)
                parts.append(mean)
        h = conv(torch.cat(parts, 1)).relu()
    out = [torch.cat([h[u], h[v]]) for u, v in rows(graph.edge_label_index)]
    return net.out(net.hidden(torch.stack(out)).relu())


def asked(seed: int = 0) -> fgl.Graph:
    graph = temporal(seed=seed)
    signs = (torch.rand(60, generator=torch.Generator().manual_seed(seed)) > 0.5).double()
    graph = graph.replace(edge_attr=graph.edge_attr.double() / 30 - 1, edge_weight=None)
    return split_by_time(graph.replace(x=graph.x.double()), signs)


def test_the_network_is_its_formula_and_knows_directions() -> None:
    graph = asked()
    net = fgl.nn.PairNet(3, 4, 2, edge_dim=1).double()
    options = {"edge_label_index": graph.edge_label_index, "edge_attr": graph.entries("edge_attr")}
    out = net(graph.x, graph.adj, **options)
    assert torch.allclose(out, naive(net, graph), atol=1e-12)
    options["edge_label_index"] = graph.edge_label_index.flip(0)
    assert not torch.allclose(out, net(graph.x, graph.adj, **options))
    with pytest.raises(ValueError, match="Expected edge_attr to have 1 columns, but got 0"):
        net(graph.x, graph.adj, edge_label_index=graph.edge_label_index)


def test_the_loss_of_links_is_that_of_the_pairs_and_of_the_drawn_ones() -> None:
    split = asked().replace(y=torch.ones(30, dtype=torch.float64))
    net = fgl.nn.PairNet(3, 4, 1, edge_dim=1).double()
    task = tasks.pair_task([split], net, ADAM, negatives=True)
    own = task.clients[0]
    graph, context = next(iter(task.fedavg.train.batches(own, {})))
    drawn = context["negatives"].values
    assert graph is own and drawn.shape == (own.num_train, 2)
    params = dict(net.named_parameters())
    loss = task.fedavg.loss(params, own, context)
    pairs = torch.cat([own.edge_label_index[:, own.train_mask], drawn.T], 1)
    logits = net(own.x, own.adj, edge_label_index=pairs, edge_attr=own.entries("edge_attr"))
    y = torch.cat([torch.ones(own.num_train), torch.zeros(len(drawn))]).double()
    want = torch.nn.functional.binary_cross_entropy_with_logits(logits[:, 0], y)
    assert torch.allclose(loss, want)


def test_a_pair_task_without_test_pairs_of_both_answers_warns_once() -> None:
    net = fgl.nn.PairNet(3, 4, 1, edge_dim=1).double()
    none = torch.zeros(30, dtype=torch.bool)
    task = tasks.pair_task([own.replace(y=own.y * 0) for own in (asked(), asked(1))], net, ADAM)
    with pytest.warns(UserWarning) as warned:
        result = fgl.run(task.fedavg, task, num_rounds=1)
    texts = [str(each.message) for each in warned]
    assert [text.split("have no ")[1].split(":")[0] for text in texts] == [
        "val_auc",
        "test_auc, test_ap",
    ]
    assert all("client 0's" in text and "known answers are all 0" in text for text in texts)
    assert "nor is there one of all clients' answers together" in texts[1]
    assert result.history[0].metrics == {}
    refuses("rounds with val_auc, but got none that has metrics", result.best)
    with pytest.warns(UserWarning, match="to have test pairs, but got none"):
        tasks.pair_task([asked().replace(test_mask=none)], net, ADAM, target=fgl.targets.REGRESSION)
    tasks.pair_task([asked().replace(test_mask=none), asked(1)], net, ADAM)  # one is enough
    with pytest.warns(UserWarning, match=r"labels 0 and 1, .* negatives=True"):
        tasks.pair_task([asked().replace(y=torch.ones(30).double())], net, ADAM)


@pytest.mark.slow
def test_a_pair_task_refuses_what_it_cannot_ask() -> None:
    net = fgl.nn.PairNet(3, 4, 1, edge_dim=1)
    with pytest.raises(ValueError, match=r"to have edge_label_index and y, but got none in \[0\]"):
        tasks.pair_task([temporal()], net, ADAM)
    with pytest.raises(ValueError, match="Expected target ANSWERS and plain training"):
        tasks.pair_task([asked()], net, ADAM, negatives=True, target=fgl.targets.REGRESSION)
    with pytest.raises(ValueError, match="to have ratings and times, but got 'arxiv-like'"):
        tasks.Pairs(dataset="arxiv-like").load()


@pytest.mark.parametrize("order", ["time", "random"])
@pytest.mark.parametrize("what", ["sign", "links"])
def test_the_setting_loads_and_runs(order: Any, what: Any) -> None:
    setting = tasks.Pairs(clients=2, partition="random", hidden=4, order=order, asked=what)
    task = setting.load(seed=1)
    result = fgl.run(task.fedavg, task, num_rounds=1)
    assert task.select == "val_auc" in result.history[0].metrics
    for own in task.clients:  # features speak of the messages alone
        degree = own.edge_index[1].bincount(minlength=own.num_nodes).clamp(max=63)
        assert torch.equal(own.x.to_dense().argmax(1), degree)


HEAD = "source,target,weight,time\n"


def test_ratings_are_read_from_their_table(tmp_path: Path) -> None:
    path = tmp_path / "soc-sign-bitcoinotc.csv"
    path.write_text(HEAD + "6,2,4,10.5\n9,6,-3,9.25\n")
    graph = fgl.data.catalogue.read_bitcoin(tmp_path, "bitcoin_otc")
    assert rows(graph.edge_index) == [(2, 1), (1, 0)]
    assert graph.edge_attr.tolist() == [[-3.0], [4.0]] and graph.edge_time.tolist() == [9.25, 10.5]
    for text, said in (
        ("6,2,4,10.5\n", "line 1, to be 'source,target,weight,time'"),
        (HEAD + "6,2,4,10.5\n9,6,-3\n", "line 3, to be 4 finite numbers"),
        (HEAD + "6.5,2,4,10.5\n", "whole ids of nodes, but got 6.5"),
    ):
        path.write_text(text)
        refuses(said, lambda: fgl.data.catalogue.read_bitcoin(tmp_path, "bitcoin_otc"))


def test_public_bitcoin_otc() -> None:
    try:
        graph = fgl.data.load("bitcoin_otc")
    except FileNotFoundError:
        pytest.skip("bitcoin_otc is not there")
    assert (graph.num_nodes, graph.num_edges) == (5881, 35592)
    values = set(graph.edge_attr.flatten().tolist())
    assert values == set(range(-10, 11)) - {0}
    assert (graph.edge_time.diff() >= 0).all() and graph.edge_time.dtype == torch.float64


class OfRelation(torch.nn.Module):
    """An answer for a pair of embedded nodes and the relation that is asked about."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.node = torch.nn.Linear(nodes, 4, dtype=torch.float64)
        self.relation = torch.nn.Parameter(torch.rand(3, 4, dtype=torch.float64))

    def forward(self, x: Any, adj: Any, *, edge_label_index: Any, edge_label_type: Any) -> Tensor:
        h = self.node(x)
        own = self.relation[edge_label_type]
        return (h[edge_label_index[0]] * own * h[edge_label_index[1]]).sum(1, keepdim=True)


def of_relation(seed: int = 0) -> fgl.Graph:
    rng = torch.Generator().manual_seed(seed)
    edges = torch.randint(14, (2, 120), generator=rng)
    kinds = torch.arange(120) % 3
    graph = fgl.Graph(torch.eye(14).double(), edges, edge_type=kinds)
    return pair_split(graph, edge_type=1, shares=(0.3, 0.3, 0.2, 0.2), is_undirected=False)


def test_the_relation_of_a_pair_is_kept_by_whatever_cuts_and_stores(tmp_path: Path) -> None:
    split = with_negatives(of_relation())
    assert split.edge_label_type.tolist() == [1] * split.num_examples
    part = split.subgraph(torch.arange(9))
    assert len(part.edge_label_type) == part.num_examples < split.num_examples
    data = fgl.Graph.from_pyg(split.to_pyg(SimpleNamespace))
    assert torch.equal(data.edge_label_type, split.edge_label_type)
    stored = fgl.data.open_client(fgl.data.save_client(split, tmp_path / "own"))
    assert torch.equal(stored.edge_label_type, split.edge_label_type)
    with pytest.raises(ValueError, match="edge_label_index beside edge_label_type"):
        fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), edge_label_type=torch.tensor([0]))
    with pytest.raises(ValueError, match="Expected edge_type beside edge_label_type"):
        with_negatives(of_relation().replace(edge_type=None))


@pytest.mark.parametrize("clients_at_once", [1, 2])
def test_a_model_reads_the_relation_of_a_pair_and_of_a_drawn_one(clients_at_once: int) -> None:
    graphs = [of_relation(seed).subgraph(torch.arange(14 - seed)) for seed in range(2)]
    graphs = [own.replace(x=own.x[:, :13]) for own in graphs]
    torch.manual_seed(0)
    task = tasks.pair_task(graphs, OfRelation(13), ADAM, negatives=True)
    result = fgl.run(task.fedavg, task, num_rounds=2, clients_at_once=clients_at_once)
    before = dict(task.fedavg.model.named_parameters())["relation"]
    moved = (result.outbox[0]["model"]["relation"] - before).abs().sum(1) > 0
    assert moved.tolist() == [False, True, False]
    assert not any(each.one_by_one for each in result.history)
