"""SAGE: trees against loops, Theorem 4.1, vmap."""

import pytest
import torch
from federations import close, graph, refuses

import fgl
from fgl.ego import EgoSampler
from fgl.ego.trees import levels
from fgl.nn import EgoSAGE
from fgl.nn.sage import child_mean


def lonely() -> fgl.Graph:
    """A graph with two nodes that have no neighbour."""
    data = graph(20)
    return fgl.Graph(torch.cat([data.x, torch.ones(2, 6)]), data.edge_index)


@pytest.mark.parametrize("fanouts", [(6, 6), (2, 3), (3,), (2, 2, 3)])
def test_child_mean_is_the_mean_of_the_children(fanouts: tuple[int, ...]) -> None:
    x = torch.randn(4, levels(fanouts)[-1], 5)
    got = child_mean(x, fanouts)
    inner = levels(fanouts)[-2]
    assert got.shape == (4, inner, 5)
    child = 1
    level = {p: depth for depth in range(len(fanouts)) for p in range(*levels(fanouts)[depth:][:2])}
    for parent in range(inner):
        width = fanouts[level[parent]]
        close(got[:, parent], x[:, child : child + width].mean(1), atol=1e-6)
        child += width
    refuses(r"x to have shape \[\*, ", lambda: child_mean(x[:, 1:], fanouts))


def test_three_ways_to_read_trees_agree() -> None:
    data, net = graph(20), EgoSAGE(6, 8, 3).eval()
    trees = EgoSampler(data)(torch.arange(5))
    want = net(data.x, trees=trees)
    close(net(net(data.x, reduce=True)[trees]), want, atol=1e-5)
    sparse = fgl.SparseMatrix.from_dense(data.x)
    close(net(sparse, trees=trees), want, atol=1e-5)
    refuses("edges or trees to be given", lambda: net(data.x))


def test_dropout_is_after_the_reduction_and_after_the_convolutions() -> None:
    data = graph(20)
    trees = EgoSampler(data)(torch.arange(5))
    net = EgoSAGE(6, 8, 3, dropout=1.0).train()
    assert not net(data.x, trees=trees).any() and not net(data.x, data.adj).any()
    seen: list[torch.Tensor] = []
    net.convs[0].register_forward_pre_hook(lambda conv, given: seen.append(given[0]))
    net(data.x, data.adj)
    assert not seen[0].any()  # the first one
    net = EgoSAGE(6, 64, 3, dropout=0.5).train()
    r = net(data.x, reduce=True)
    close(net(data.x, reduce=True), r)  # embeddings are never dropped
    seen.clear()
    for p in (0.5, 0.0):
        net.dropout = p
        seen.append(net(r[trees]))
    assert not torch.allclose(*seen)
