"""Links of a dataset: held-out edges have no say in who holds which node, and train nothing."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from federations import refuses
from torch import Tensor

import fgl
from fgl import data
from fgl.federation import fold_in
from fgl.tasks import Links, link_task


def pairs(edges: Tensor) -> set[tuple[int, int]]:
    return {(min(u, v), max(u, v)) for u, v in edges.t().tolist() if u != v}


def both(edges: set[tuple[int, int]]) -> Tensor:
    one = torch.tensor(sorted(edges)).t()
    return torch.cat([one, one.flip(0)], 1)


def held_out(whole: fgl.Graph, seed: int = 0) -> data.splits.EdgeSplit:
    return data.splits.edge_split(whole, seed=fold_in(seed, "split"))


@pytest.mark.parametrize("partition", ["louvain", "random"])
def test_messages_follow_training_edges_and_every_edge_is_somewhere(partition: Any) -> None:
    setting = Links(partition=partition)
    graph, whole = data.load("synthetic"), setting.graphs()[0]
    kept, splits = held_out(graph), setting.splits(whole, 0)
    ids = [own.graph.node_id for own in splits]
    assert sorted(torch.cat(ids).tolist()) == list(range(graph.num_nodes))
    for kind in ("train", "val", "test"):
        there = pairs(getattr(kept, f"{kind}_edges"))
        mine = [pairs(ids[k][getattr(own, f"{kind}_edges")]) for k, own in enumerate(splits)]
        assert set().union(*mine) <= there
        client = {v: k for k, nodes in enumerate(ids) for v in nodes.tolist()}
        lost = sum(client[u] != client[v] for u, v in there)
        assert sum(map(len, mine)) + lost == len(there)
    never = pairs(torch.cat([kept.val_edges, kept.test_edges], 1))
    clients = setting.load().clients
    assert [own.node_id.tolist() for own in clients] == [nodes.tolist() for nodes in ids]
    for own in clients:
        seen = pairs(own.node_id[own.edge_index])
        assert seen and seen <= pairs(kept.train_edges) and not seen & never


def test_where_all_are_joined_there_is_no_negative_and_where_one_pair_is_free_it_is_drawn() -> None:
    for lacking in (0, 1):
        every = torch.combinations(torch.arange(4)).T[:, lacking:]  # pair 0 - 1 is the first
        none = torch.zeros(2, 0, dtype=torch.int64)
        own = fgl.Graph(torch.eye(4), both({tuple(pair) for pair in every.T.tolist()}))
        other = data.splits.edge_split(
            data.csbm(num_nodes=40, num_features=4, words_per_set=2, seed=0)
        )
        other = replace(other, graph=other.graph.replace(x=torch.rand(40, 4)))
        held = dict.fromkeys(("val_edges", "val_negatives", "test_edges", "test_negatives"), none)
        split = data.splits.EdgeSplit(own, every, **held)
        with pytest.warns(UserWarning, match="too few in"):
            made = link_task([split, other], fgl.nn.VGAE(4, 3, 2), fgl.Training())
        assert made.fedavg.train.batches is not None
        (_, context), *_ = made.fedavg.train.batches(own, {})
        drawn = {tuple(sorted(pair)) for pair in context["negatives"].values.tolist()}
        assert drawn == ({(0, 1)} if lacking else set())


def test_an_edge_that_trains_at_another_client_is_told() -> None:
    """Two clients that share nodes, each of which splits its own edges."""
    whole = fgl.data.load("synthetic")
    nodes = torch.arange(0, whole.num_nodes, 2)
    model, train = fgl.nn.VGAE(whole.num_features, 4, 2), fgl.Training()
    own = [whole.subgraph(nodes), whole.subgraph(nodes[: len(nodes) // 2])]
    splits = [fgl.data.splits.edge_split(one, seed=k) for k, one in enumerate(own)]
    with pytest.warns(UserWarning, match="client 0 to be no edges of other clients, but got"):
        fgl.tasks.link_task(splits, model, train)
    first = fgl.data.splits.edge_split(whole)
    parts = [fgl.data.splits.subgraph_split(first, each) for each in nodes.tensor_split(2)]
    fgl.tasks.link_task(parts, model, train)  # warnings are errors here
    one_way = replace(first, graph=whole.replace(edge_index=first.train_edges))
    few = replace(first, train_edges=first.train_edges[:, 3:])
    same = replace(first, val_edges=first.test_edges, val_negatives=first.test_negatives)
    again = replace(first, test_negatives=first.test_negatives[:, :1].expand(2, 528))
    wrong = {"both directions": one_way, "got 3,": few, "got 528": same, "got 527,": again}
    for words, split in wrong.items():
        with pytest.warns(UserWarning, match=words):
            fgl.tasks.link_task([split], model, train)


def test_negatives_that_train_join_what_edges_join() -> None:
    whole = both({(u, 6 + v) for u in range(6) for v in range(6) if (u + v) % 3})
    kinds = torch.arange(12) // 6
    graph = fgl.Graph(torch.eye(12), whole, node_type=kinds)
    split = data.splits.edge_split(graph, val=0.1, test=0.1)
    batches: Any = link_task([split], fgl.nn.VGAE(12, 3, 2), fgl.Training()).fedavg.train.batches
    narrow = link_task([split], fgl.nn.VGAE(5, 3, 2), fgl.Training())
    refuses("VGAE to take 12 features", lambda: fgl.run(narrow.fedavg, narrow, num_rounds=1))
    (_, context), *_ = batches(split.graph, {})
    ends = kinds[context["negatives"].values]
    assert len(ends) and (ends[:, 0] != ends[:, 1]).all()
