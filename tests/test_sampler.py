"""Sampled neighbourhoods: against loops, exact with all neighbours, unbiased, and bad input."""

from typing import Any

import pytest
import torch
from federations import close, graph, refuses, seeded

import fgl
from fgl.sampler import NeighbourSampler

F64 = torch.float64


def odd(num_nodes: int = 30, *, weights: bool = True, loops: bool = True) -> fgl.Graph:
    """A graph with an isolated node, self-loops, repeated edges, weights, and some of them 0."""
    data = graph(num_nodes)
    edges = data.edge_index[:, (data.edge_index != 4).all(0)]
    if loops:
        edges = torch.cat([edges, torch.tensor([[1, 7, 7], [1, 7, 7]])], 1)
    edges = torch.cat([edges, edges[:, :3]], 1)
    weight = 0.5 + torch.rand(edges.shape[1], generator=seeded(), dtype=F64)
    weight[5:9] = 0
    return data.replace(
        x=data.x.double(), edge_index=edges, edge_weight=weight if weights else None
    )


def edges_of(data: fgl.Graph) -> list[list[int]]:
    """The sources of each node's edges that count."""
    found: list[list[int]] = [[] for _ in range(data.num_nodes)]
    for edge, (source, target) in enumerate(data.edge_index.t().tolist()):
        if data.edge_weight is None or data.edge_weight[edge]:
            found[target].append(source)
    return found


@pytest.mark.parametrize("fanouts", [(2,), (3, 2), (1, 2, 3), (-1, 2), (2, -1)])
def test_a_batch_is_what_a_loop_would_draw(fanouts: tuple[int, ...]) -> None:
    data = odd()
    near, seeds = edges_of(data), torch.tensor([4, 0, 12, 7])
    batch = NeighbourSampler(data, fanouts)(seeds, generator=seeded())
    ids: Any = batch.node_id
    assert ids[:4].tolist() == seeds.tolist()
    assert batch.train_mask.tolist() == [node < 4 for node in range(len(ids))]  # type: ignore[union-attr]
    assert len(ids.unique()) == len(ids)
    close(batch.x, data.x[ids])
    assert torch.equal(batch.y, data.y[ids])  # type: ignore[index, arg-type]
    source, target = batch.edge_index
    own: list[list[int]] = [source[target == node].tolist() for node in range(len(ids))]
    seen, frontier = 4, range(4)
    for fanout in fanouts:  # hop by hop: new nodes come in the order in which they are drawn
        for node in frontier:
            there = near[ids[node]]
            want = len(there) if fanout < 0 else min(len(there), fanout)
            drawn_here = [int(ids[each]) for each in own[node]]
            assert len(drawn_here) == want
            left = list(there)
            for each in drawn_here:
                left.remove(each)  # no more often than it is there
            for each in own[node]:
                assert each <= seen
                seen = max(seen, each + 1)
        frontier = range(frontier.stop, seen)
    assert seen == len(ids)
    assert not any(own[node] for node in frontier)  # the last hop is not expanded
    batch = batch.replace()  # its own fields are valid, and make the same adjacency
    again = fgl.SparseMatrix.from_edge_index(batch.edge_index, len(ids), batch.edge_weight)
    close(batch.adj.to_dense(), again.to_dense())


def test_gcn_reads_the_degrees_of_the_whole_graph() -> None:
    """Against loops: each drawn entry of the whole operator counts ``degree / drawn`` times."""
    for data in (odd(), odd(weights=False), odd(loops=False), odd(weights=False, loops=False)):
        batch = NeighbourSampler(data, (2, 1))(torch.tensor([4, 0, 12, 7]), generator=seeded())
        near, weights = edges_of(data), data.edge_weight
        plain = data.adj.astype(F64).with_self_loops.to_dense()
        root = plain.sum(1).rsqrt()
        want = torch.zeros(batch.num_nodes, batch.num_nodes, dtype=F64)
        ids: Any = batch.node_id
        for node, name in enumerate(ids.tolist()):
            want[node, node] = plain[name, name] * root[name] ** 2
        count = batch.edge_index[1].bincount(minlength=batch.num_nodes)
        for edge, (source, target) in enumerate(batch.edge_index.t().tolist()):
            if source == target:
                continue
            weight = 1.0 if weights is None else batch.edge_weight[edge]  # type: ignore[index]
            i, j = ids[target], ids[source]
            times = len(near[i]) / count[target]
            want[target, source] += weight * root[i] * root[j] * times
        close(batch.adj.gcn_norm.to_dense(), want)


def test_one_seed_one_batch_whatever_was_drawn_before() -> None:
    sampler, seeds = NeighbourSampler(odd(), (2, 2)), torch.tensor([3, 8])
    first = sampler(seeds, generator=seeded(1))
    refuses("without repeats", lambda: sampler(torch.tensor([3, 8, 3])))
    sampler(torch.arange(30))
    second = sampler(seeds, generator=seeded(1))
    assert torch.equal(first.edge_index, second.edge_index)
    assert torch.equal(first.node_id, second.node_id)  # type: ignore[arg-type]
    other = sampler(seeds, generator=seeded(2))
    assert first.edge_index.tolist() != other.edge_index.tolist()


@pytest.mark.parametrize(("fanouts", "error", "text"), [
    ((), ValueError, "at least one"),
    ((0,), ValueError, "or -1 for all"),
    ((-2, 3), ValueError, "or -1 for all"),
    ((2.0,), TypeError, "integers"),
    (5, ValueError, "sequence"),
])  # fmt: skip
def test_fanouts_are_checked(fanouts: Any, error: type[Exception], text: str) -> None:
    refuses(text, lambda: NeighbourSampler(odd(), fanouts), error)


def test_seeds_and_graphs_are_checked() -> None:
    sampler = NeighbourSampler(odd(), (2,))
    for seeds, error in ((torch.ones(2), TypeError), (torch.tensor([30]), ValueError)):
        with pytest.raises(error, match="seeds"):
            sampler(seeds)
    refuses("collection", lambda: NeighbourSampler(fgl.Graph.join([odd(weights=False)]), (2,)))


def test_drawn_edges_keep_their_fields() -> None:
    """Also where a batch's nodes are not in the order of their ids."""
    ends = torch.tensor([[9, 5, 1, 3], [0, 0, 0, 5]])
    said = ends[0].float()[:, None]
    data = fgl.Graph(torch.arange(10.0)[:, None], ends, edge_attr=said, edge_type=ends[0])
    for fanouts in ((-1,), (2, 1)):
        drawn = fgl.sampler.NeighbourSampler(data, fanouts)(torch.tensor([0, 9, 5]))
        sources = drawn.x[drawn.adj.pattern.col]  # type: ignore[index]
        assert torch.equal(sources, drawn.entries("edge_attr"))
        assert torch.equal(sources[:, 0].long(), drawn.entries("edge_type"))
