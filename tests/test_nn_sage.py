"""SAGE: PyG's numbers under PyG's keys, trees against loops, Theorem 4.1, vmap."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from federations import close, graph
from torch.func import functional_call
from torch_geometric.nn import GraphSAGE
from torch_geometric.nn import SAGEConv as PyGSAGEConv

import fgl
from fgl.ego import EgoSampler, levels, mash
from fgl.federation.executors.batch.cohort import Cohort
from fgl.nn import SAGE, EgoSAGE, SAGEConv
from fgl.nn.sage import child_mean
from fgl.sparse.batched_pattern import Member


def lonely() -> fgl.Graph:
    """A graph with two nodes that have no neighbour."""
    data = graph(20)
    return fgl.Graph(torch.cat([data.x, torch.ones(2, 6)]), data.edge_index)


def test_convolution_is_that_of_pyg() -> None:
    data, mine, theirs = lonely(), SAGEConv(6, 4), PyGSAGEConv(6, 4)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    mine.load_state_dict(theirs.state_dict())
    want = theirs(data.x, data.edge_index)
    close(mine(data.x, data.edge_index), want)
    close(mine(data.x, data.adj), want)
    close(mine(fgl.SparseMatrix.from_dense(data.x), data.adj), want)
    grads = [torch.autograd.grad(out.square().sum(), list(net.parameters())) for out, net in
             ((mine(data.x, data.adj), mine), (want, theirs))]  # fmt: skip
    close(list(grads[0]), list(grads[1]), atol=1e-4)


def test_stack_is_that_of_pyg() -> None:
    data, mine = lonely(), SAGE(6, 8, 3, num_layers=3, dropout=0.0)
    theirs = GraphSAGE(6, 8, 3, out_channels=3)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    mine.load_state_dict(theirs.state_dict())
    close(mine(data.x, data.adj), theirs(data.x, data.edge_index))


def test_convolution_by_hand() -> None:
    data, conv = lonely(), SAGEConv(6, 4)
    got = conv(data.x, data.adj)
    edges = data.edge_index.t().tolist()
    for node in range(data.num_nodes):
        near = [data.x[source] for source, target in edges if target == node]
        mean = sum(near) / len(near) if near else torch.zeros(6)
        close(got[node], conv.lin_r.weight @ data.x[node] + conv.lin_l(mean), atol=1e-5)


def test_mean_norm_counts_present_entries() -> None:
    A = fgl.SparseMatrix.from_dense(torch.tensor([[2.0, 3.0], [0.0, 0.0]]))
    close(A.mean_norm.to_dense(), torch.tensor([[0.5, 0.5], [0.0, 0.0]]))
    close(A.with_value(torch.tensor([0.0, 3.0])).mean_norm.to_dense()[0], torch.tensor([0.0, 1.0]))
    assert not A.with_value(torch.zeros(2)).mean_norm.to_dense().any()  # nor is it 0 / 0
    assert A.mean_norm is A.mean_norm


def test_order_of_nodes() -> None:
    data, conv = lonely(), SAGEConv(6, 4)
    order = torch.randperm(22)
    moved = conv(data.x[order], order.argsort()[data.edge_index])
    close(moved, conv(data.x, data.adj)[order], atol=1e-5)


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
    with pytest.raises(ValueError, match=r"x to have shape \[\*, "):
        child_mean(x[:, 1:], fanouts)


def naive(net: EgoSAGE, x: torch.Tensor, fanouts: tuple[int, ...]) -> torch.Tensor:
    """One tree, node by node, straight from the formula."""
    bounds, depth = levels(fanouts), len(fanouts)

    def level(position: int) -> int:
        return next(i for i in range(depth + 1) if position < bounds[i + 1])

    def at(position: int, layer: int) -> torch.Tensor:
        if layer == 0:
            return x[position]
        where = level(position)
        first = bounds[where + 1] + (position - bounds[where]) * fanouts[where]
        kids = [at(child, layer - 1) for child in range(first, first + fanouts[where])]
        conv: Any = net.convs[layer - 1]
        out = conv.lin_r.weight @ at(position, layer - 1)
        out = out + conv.lin_l.weight @ (sum(kids) / len(kids)) + conv.lin_l.bias
        return out if net.linear and layer < depth else out.relu()

    return net.head.weight @ at(0, depth)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("fanouts", [(3, 3), (2, 3), (2,), (2, 1, 2)])
def test_trees_by_hand(fanouts: tuple[int, ...], linear: bool) -> None:
    net = EgoSAGE(6, 4, 3, fanouts=fanouts, linear=linear).eval()
    x = torch.randn(2, levels(fanouts)[-1], 4)
    want = torch.stack([naive(net, tree, fanouts) for tree in x])
    close(net(x), want, atol=1e-5)


@pytest.mark.parametrize("linear", [False, True])
def test_trees_of_all_neighbours_are_the_graph(linear: bool) -> None:
    """On a ring, trees whose children are exactly the two neighbours give the graph's output."""
    n = 7
    ring = torch.arange(n)
    edges = torch.stack([ring, (ring + 1) % n])
    data = fgl.Graph(torch.randn(n, 6), torch.cat([edges, edges.flip(0)], 1))
    one = torch.stack([ring, (ring - 1) % n, (ring + 1) % n], 1)
    trees = torch.cat([one, one[one[:, 1]][:, 1:], one[one[:, 2]][:, 1:]], 1)
    net = EgoSAGE(6, 4, 3, fanouts=(2, 2), linear=linear).eval()
    close(net(data.x, trees=trees), net(data.x, data.adj), atol=1e-5)


def test_three_ways_to_read_trees_agree() -> None:
    data, net = graph(20), EgoSAGE(6, 8, 3).eval()
    trees = EgoSampler(data)(torch.arange(5))
    want = net(data.x, trees=trees)
    close(net(net(data.x, reduce=True)[trees]), want, atol=1e-5)
    sparse = fgl.SparseMatrix.from_dense(data.x)
    close(net(sparse, trees=trees), want, atol=1e-5)
    with pytest.raises(ValueError, match="edges or trees to be given"):
        net(data.x)


def shuffled(trees: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The same ego-graphs, every node's children (with their subtrees) in another order."""
    out = trees.clone()
    for tree in out:
        order = torch.randperm(6, generator=generator)
        tree[1:7] = tree[1:7][order]
        tree[7:] = tree[7:].view(6, 6)[order].flatten()
        for child in range(6):
            block = tree[7 + 6 * child : 13 + 6 * child]
            block.copy_(block[torch.randperm(6, generator=generator)])
    return out


def test_theorem_4_1() -> None:
    """Linear: any alignment of children gives the same centre; not so with ReLU between."""
    generator = torch.Generator().manual_seed(0)
    data = graph(40)
    r = torch.randn(40, 8, dtype=torch.double, generator=generator)
    trees = EgoSampler(data)(torch.arange(16), generator=generator)
    for linear in (True, False):
        net = EgoSAGE(6, 8, 3, linear=linear).double().eval()
        first = net(mash(r, trees))
        others = [net(mash(r, shuffled(trees, generator))) for _ in range(5)]
        assert all(torch.allclose(first, other, atol=1e-10) for other in others) == linear


def test_linear_layers_mash_to_the_mean_of_the_ego_graphs() -> None:
    """Before the last ReLU the mashed centre is the mean of the centres (Theorem 4.1's reason)."""
    data = graph(40)
    r = torch.randn(40, 8, dtype=torch.double)
    trees = EgoSampler(data)(torch.arange(16))
    net = EgoSAGE(6, 8, 3, linear=True).double().eval()

    def before(x: torch.Tensor) -> torch.Tensor:
        first = net.convs[0].on_trees(x, (6, 6))
        return net.convs[1].on_trees(first, (6,)).squeeze(1)

    close(before(mash(r, trees))[0], before(r[trees]).mean(0), atol=1e-10)


def test_parameters_are_those_of_the_paper() -> None:
    def count(net: Any, features: int) -> int:
        model = net(features, 512, 7 if features == 1433 else 6)
        return sum(p.numel() for p in model.parameters())

    assert count(EgoSAGE, 1433) == 1433 * 512 + 512 + 2 * (2 * 512**2 + 512) + 7 * 512 == 1_787_392
    net = EgoSAGE(1433, 512, 7)
    fan_in = 1433
    assert abs(float(net.reduction.weight.detach().std()) - (2 / fan_in) ** 0.5) < 1e-3
    assert float(net.reduction.bias.detach().abs().max()) <= fan_in**-0.5
    assert net.head.bias is None and net.convs[0].lin_r.bias is None


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


def test_gradcheck() -> None:
    net = EgoSAGE(3, 4, 2, fanouts=(2, 2)).double().eval()
    x = torch.randn(5, 3, dtype=torch.double, requires_grad=True)
    trees = torch.randint(5, (3, 7))
    assert torch.autograd.gradcheck(lambda x: net(x, trees=trees), (x,))
    edges = torch.tensor([[0, 1, 2, 2], [1, 0, 3, 1]])
    assert torch.autograd.gradcheck(lambda x: net(x, edges), (x,))


@pytest.mark.parametrize("sparse", [False, True])
def test_under_vmap_over_clients(sparse: bool) -> None:
    clients = [graph(size) for size in (12, 20)]
    if sparse:
        clients = [g.replace(x=fgl.SparseMatrix.from_dense(g.x)) for g in clients]
    nets = [EgoSAGE(6, 8, 3).eval() for _ in clients]
    cohort = Cohort(clients)
    stack = {k: torch.stack([n.state_dict()[k] for n in nets]) for k in nets[0].state_dict()}
    trees = [EgoSampler(g)(torch.arange(4)) for g in clients]
    tree_of = cohort.stack("trees", trees)

    def both(index: Any, params: Any) -> Any:
        client = Member(index)
        member = cohort.graph(client)
        on_trees = functional_call(nets[0], params, (member.x,), {"trees": tree_of(client)})
        return on_trees, functional_call(nets[0], params, (member.x, member.adj))

    on_trees, on_graph = torch.func.vmap(both)(cohort.index, stack)
    for k, (net, data) in enumerate(zip(nets, clients, strict=True)):
        close(on_trees[k], net(data.x, trees=trees[k]), atol=1e-5)
        close(on_graph[k, : data.num_nodes], net(data.x, data.adj), atol=1e-5)


@pytest.mark.parametrize("fanouts", [(), (6, 0), (-1,)])
def test_bad_fanouts(fanouts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="fanouts to be"):
        EgoSAGE(6, 8, 3, fanouts=fanouts)


@pytest.mark.parametrize("fanouts", [(2.5,), (True, 6)])
def test_fanouts_that_are_no_integers(fanouts: Any) -> None:
    with pytest.raises(TypeError, match="fanouts to be integers"):
        EgoSAGE(6, 8, 3, fanouts=fanouts)


def test_weights_start_normal() -> None:
    torch.manual_seed(0)
    model = EgoSAGE(100, 400, 7)
    for weight in (model.reduction.weight, model.convs[0].lin_l.weight, model.head.weight):
        deviation, weight = math.sqrt(2 / weight.shape[1]), weight.detach()
        assert float(weight.std()) == pytest.approx(deviation, rel=0.05)
        assert float(weight.abs().max()) > 2.5 * deviation  # a uniform one ends at 1.73
    assert EgoSAGE(4, 8, 2, fanouts=iter((3, 2))).fanouts == (3, 2)
