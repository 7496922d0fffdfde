"""Partitions: the capacity rule in loops, properties, and the same parts in every process."""

import warnings
from typing import Any

import networkx.algorithms.community as community
import pytest
import torch
from federations import refuses

import fgl
from fgl import Graph
from fgl.data import csbm
from fgl.data.partitions import louvain_partition, partition_graph, random_partition

SMALL = csbm(num_nodes=300, num_features=20, words_per_set=5, seed=1)


def bare(num_nodes: int, edges: Any = ((), ())) -> Graph:
    return Graph(torch.ones(num_nodes, 1), torch.tensor(edges, dtype=torch.int64).view(2, -1))


def test_a_delta_that_cuts_small_clients_into_pieces_is_warned_of() -> None:
    ring = torch.arange(34)
    edges = torch.stack([ring, ring.roll(-1)])
    with pytest.warns(
        UserWarning, match="less than half of the 11 nodes of a client, but got 20.*2"
    ):
        single = louvain_partition(bare(34, edges.tolist()), 3)
    whole = louvain_partition(bare(34, edges.tolist()), 3, delta=2)
    four = torch.arange(160).view(4, 40)  # a clique a client, which a delta of 20 halves
    cliques = torch.cat([torch.combinations(own) for own in four]).T.tolist()
    with pytest.warns(UserWarning, match="less than half of the 40 nodes of a client, but got 20"):
        louvain_partition(bare(160, cliques), 4)

    def kept(parts: list[torch.Tensor]) -> int:
        client = torch.cat([torch.full_like(part, k) for k, part in enumerate(parts)])
        client = client[torch.cat(parts).argsort()]
        return int((client[edges[0]] == client[edges[1]]).sum())

    assert kept(single) < 5 and kept(whole) > 20


def test_what_fits_nowhere_goes_to_the_smallest_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(community, "louvain_communities", lambda *_, **__: [{*range(10)}])
    parts = louvain_partition(bare(10), 3, delta=0)
    assert [part.tolist() for part in parts] == [[0, 1, 2, 9], [3, 4, 5], [6, 7, 8]]
    parts = louvain_partition(bare(11), 3, delta=0)  # the communities do not cover node 10
    assert sum(part.numel() for part in parts) == 10


def test_delta_is_checked() -> None:
    with pytest.raises(ValueError, match="Expected delta to be an integer >= 0, but got -1"):
        louvain_partition(bare(5), 2, delta=-1)


def test_what_a_cut_loses_is_counted_and_told() -> None:
    """Against loops: parts that overlap or not, nodes of no client, pairs besides edges."""
    edges, pairs = torch.randint(20, (2, 80)), torch.randint(20, (2, 50))
    for asked in (None, pairs, pairs[:, :0]):
        whole = Graph(torch.eye(20), edges, edge_label_index=asked)
        nodes = torch.randperm(20)
        for parts in ([nodes[:9], nodes[9:15]], [nodes[:15], nodes[9:]], [nodes], [nodes[:1]], []):
            owners = [{*part.tolist()} for part in parts]
            anybody = set().union(*owners)
            want = []
            for ends in (edges, pairs[:, :0] if asked is None else asked):
                inside = [(u, v) for u, v in ends.t().tolist() if {u, v} <= anybody]
                kept = [pair for pair in inside if any({*pair} <= own for own in owners)]
                want += [len(inside), len(inside) - len(kept)]
            assert list(fgl.data.partitions.cut_loss(whole, parts)) == want
            text = [("edges", "pairs")[i // 2] for i in (0, 2) if 2 * want[i + 1] > want[i]]
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                partition_graph(whole, parts)
            assert len(warned) == bool(text)
            assert all(each in str(warned[0].message) for each in text)
    with pytest.raises(ValueError, match="Expected a graph without batch"):
        fgl.data.partitions.cut_loss(Graph.join([whole]), [])


def test_partition_graph_refuses_a_bad_part() -> None:
    refuses("without repeats", lambda: partition_graph(SMALL, [torch.tensor([0, 0])]))
    with pytest.raises(ValueError, match=r"Expected nodes to be in \[0, 300\), but got 300"):
        partition_graph(SMALL, [torch.tensor([300])])


@pytest.mark.parametrize("seed", [0, 7])
def test_clients_of_a_split_graph_train_whatever_the_seed(seed: int) -> None:
    """Of one permutation some clients would train on all nodes, others on none."""
    whole = fgl.data.splits.random_split(
        fgl.data.large_graph(200, 1000, num_features=16), seed=seed
    )
    for own in partition_graph(whole, random_partition(whole, 10, seed=seed)):
        assert 0.25 < own.num_train / own.num_nodes < 0.95
    graphs = fgl.Graph.join([bare(2) for _ in range(200)], torch.arange(200) % 2)
    graphs = fgl.data.splits.random_split(graphs, seed=seed)
    for own in partition_graph(graphs, random_partition(graphs, 10, seed=seed)):
        assert 0.25 < own.num_train / own.num_graphs < 0.95
