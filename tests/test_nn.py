"""GCN and GAT: what they promise about graphs; PyG's numbers are in `truth/`."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import fgl.nn
from fgl import SparseMatrix
from fgl.augment import drop_edges
from fgl.nn import GAT, GCN, GATConv
from fgl.nn.layers import dropout, shifted

N, F, C = 12, 7, 3


def random_edges(num_nodes: int = N, num_edges: int = 40) -> Tensor:
    g = torch.Generator().manual_seed(5)
    source, target = torch.randint(num_nodes, (2, num_edges), generator=g)
    return torch.stack([source, target])[:, source != target].unique(dim=1)


DIRECTED = random_edges()
LOOPS = torch.tensor([[1, 3, 8], [1, 3, 8]])
GRAPHS = {
    "directed": DIRECTED,
    "undirected": torch.cat([DIRECTED, DIRECTED.flip(0)], dim=1).unique(dim=1),
    "self-loops": torch.cat([LOOPS[:, :1], DIRECTED, LOOPS[:, 1:]], dim=1),
    "repeated edges": DIRECTED[:, torch.arange(50) % 20],
    "repeated self-loops": torch.cat([LOOPS, DIRECTED, LOOPS], dim=1),
    "isolated nodes": random_edges(num_nodes=8),
    "one edge": torch.tensor([[4], [2]]),
    "no edges": torch.zeros(2, 0, dtype=torch.int64),
}
graphs = pytest.mark.parametrize("edges", GRAPHS.values(), ids=GRAPHS)

MODELS: dict[str, tuple[type[nn.Module], type[nn.Module], dict[str, Any]]] = {
    "gcn-1": (GCN, pyg.GCN, {"num_layers": 1}),
    "gcn-2": (GCN, pyg.GCN, {"num_layers": 2}),
    "gcn-4": (GCN, pyg.GCN, {"num_layers": 4}),
    "gcn-head": (GCN, pyg.GCN, {"num_layers": 2}),  # its twin has jk="last"
    "gat-1": (GAT, pyg.GAT, {"num_layers": 1}),
    "gat-1-3heads": (GAT, pyg.GAT, {"num_layers": 1, "heads": 3}),
    "gat-2": (GAT, pyg.GAT, {"num_layers": 2}),
    "gat-2-4heads": (GAT, pyg.GAT, {"num_layers": 2, "heads": 4}),
    "gat-3-2heads": (GAT, pyg.GAT, {"num_layers": 3, "heads": 2}),
}
models = pytest.mark.parametrize("name", MODELS)
both = pytest.mark.parametrize("name", ["gcn-2", "gat-2", "gat-3-2heads"])


def twins(name: str, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, nn.Module]:
    """Our model and PyG's with the same parameters, none of them zero."""
    ours, theirs, kwargs = MODELS[name]
    hidden = 9 if kwargs.get("heads") == 3 else 8
    more = ({"head": True}, {"jk": "last"}) if name == "gcn-head" else ({}, {})
    ours = ours(F, hidden, C, **kwargs, **more[0], dropout=0.0).to(dtype)
    theirs = theirs(F, hidden, out_channels=C, **kwargs, **more[1]).to(dtype)
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.5)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def features(dtype: torch.dtype = torch.float64) -> Tensor:
    x = torch.randn(N, F, dtype=dtype)
    x[:, 2] = 0
    x[4] = 0  # a node without features
    return x * (torch.rand(N, F) < 0.6)


@models
@graphs
def test_sparse_features_equal_dense_ones(name: str, edges: Tensor) -> None:
    ours, _ = twins(name)
    x = features()
    results = []
    for given in (x, SparseMatrix.from_dense(x)):
        out = ours(given, edges)
        slopes = torch.autograd.grad(out.square().sum(), list(ours.parameters()))
        results.append([out.detach(), *slopes])
    torch.testing.assert_close(results[1], results[0], rtol=1e-10, atol=1e-11)


@both
@graphs
def test_a_dropped_edge_is_as_good_as_absent(name: str, edges: Tensor) -> None:
    ours, theirs = twins(name)
    x = features()
    matrix = SparseMatrix.from_edge_index(edges, N)
    for p in (0.0, 0.3, 0.8, 1.0):
        view = drop_edges(matrix, p=p)
        left = view.value != 0
        kept = torch.stack([view.pattern.col[left], view.pattern.row[left]])
        got, want = ours(x, view), ours(x, kept)
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(got, theirs(x, kept), rtol=1e-11, atol=1e-12)
        parameters = list(ours.parameters())
        slopes = [torch.autograd.grad(out.square().sum(), parameters) for out in (got, want)]
        torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-10, atol=1e-11)


def test_averaged_heads() -> None:
    averaged = GATConv(F, 4, heads=3, concat=False)
    joined = GATConv(F, 4, heads=3)
    with torch.no_grad():
        for key in ("att_src", "att_dst"):
            getattr(joined, key).copy_(getattr(averaged, key))
        joined.lin.weight.copy_(averaged.lin.weight)
        averaged.bias.normal_()
    x = torch.randn(N, F)
    want = joined(x, DIRECTED).view(N, 3, 4).mean(1) + averaged.bias
    torch.testing.assert_close(averaged(x, DIRECTED), want)


def test_attention_stays_finite_for_large_scores() -> None:
    conv = GATConv(F, 4)
    out = conv(1e4 * torch.randn(N, F), DIRECTED)
    out.sum().backward()
    assert out.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in conv.parameters())


@both
def test_the_embedding_is_before_the_activation(name: str) -> None:
    ours, _ = twins(name)
    x = features()
    out, embedding = ours(x, DIRECTED, return_embedding=True)
    torch.testing.assert_close(out, ours(x, DIRECTED))
    assert embedding.shape == (N, 8) and (embedding < 0).any()
    torch.testing.assert_close(ours.convs[-1](embedding.relu(), DIRECTED), out)
    h = x
    for conv in ours.convs[:-1]:
        want = conv(h, DIRECTED)
        h = want.relu()
    torch.testing.assert_close(embedding, want)
    embedding.sum().backward()
    assert ours.convs[-1].bias.grad is None


@both
def test_the_embedding_in_training_is_before_the_last_dropout(name: str) -> None:
    ours, _ = twins(name)
    ours.train()
    ours.dropout = 1.0  # everything after it is gone
    out, embedding = ours(features(), DIRECTED, return_embedding=True)
    assert (embedding != 0).any()
    torch.testing.assert_close(out, ours.convs[-1].bias.expand_as(out))


@both
def test_dropout_only_in_training(name: str) -> None:
    ours, _ = twins(name)
    x = features()
    plain = ours(x, DIRECTED)
    ours.dropout = 0.5
    assert not torch.equal(ours.train()(x, DIRECTED), plain)
    assert not torch.equal(ours(x, DIRECTED), ours(x, DIRECTED))
    assert torch.equal(ours.eval()(x, DIRECTED), plain)


def test_no_dropout_on_the_input() -> None:
    for model in (GCN(F, 8, C, num_layers=1, dropout=0.9), GAT(F, 8, C, num_layers=1, dropout=0.9)):
        x = features(torch.float32)
        assert torch.equal(model.train()(x, DIRECTED), model(x, DIRECTED))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("GCN", "GCN"), ("GAT", "GAT"), ("GIN", "GIN"), ("SAGE", "GraphSAGE"), ("MLP", "MLP")],
)
def test_dropout_is_by_default_what_pyg_takes(ours: str, theirs: str) -> None:
    usual = inspect.signature(getattr(pyg, theirs)).parameters["dropout"].default
    assert inspect.signature(getattr(fgl.nn, ours)).parameters["dropout"].default == usual
    assert getattr(fgl.nn, ours)(F, 8, C).dropout == usual


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint8])
def test_random_bits_are_the_same_where_torch_has_no_view_under_vmap(dtype: torch.dtype) -> None:
    """As in torch 2.10, the oldest that is supported."""
    words = torch.randint(-(2**63), 2**63 - 1, (3, 9))
    assert torch.equal(shifted(words[0], dtype), words[0].view(dtype))
    assert torch.equal(vmap(lambda row: shifted(row, dtype))(words), words.view(dtype))


@both
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_vmap_over_clients_equals_the_loop(name: str, sparse: bool) -> None:
    clients = 3
    model, _ = twins(name)
    x = features()
    matrix = SparseMatrix.from_edge_index(DIRECTED, N)
    given = SparseMatrix.from_dense(x) if sparse else x
    stack = {
        key: torch.randn(clients, *value.shape, dtype=torch.float64).requires_grad_()
        for key, value in model.named_parameters()
    }

    def loss(params: dict[str, Tensor]) -> Tensor:
        return functional_call(model, params, (given, matrix)).square().mean()

    got = vmap(loss)(stack)
    each = [{key: value[k] for key, value in stack.items()} for k in range(clients)]
    want = torch.stack([loss(params) for params in each])
    torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)
    leaves = list(stack.values())
    slopes = torch.autograd.grad(want.sum(), leaves)
    torch.testing.assert_close(
        torch.autograd.grad(got.sum(), leaves), slopes, rtol=1e-9, atol=1e-10
    )
    mapped = vmap(grad(loss))(stack)
    torch.testing.assert_close(tuple(mapped.values()), slopes, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: GCN(F, 8, C, num_layers=0),
            "Expected num_layers to be an integer >= 1, but got 0",
        ),
        (
            lambda: GAT(F, 8, C, num_layers=0),
            "Expected num_layers to be an integer >= 1, but got 0",
        ),
        (lambda: GAT(F, 8, C, heads=3), "hidden_channels to be a multiple of heads=3, but got 8"),
    ],
)
def test_bad_sizes(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("p", [0.5, 0.1, 0.3, 0.99999])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropout_scales_by_the_share_that_it_keeps(p: float, dtype: torch.dtype) -> None:
    kept = dropout(torch.ones(10**6, dtype=dtype), p)
    share = 1 - round(p * 2**16) / 2**16
    scales = kept.unique().tolist()
    assert scales[0] == 0
    assert scales[1:] == pytest.approx([1 / share], rel=1e-6 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("name", ["GCN", "GAT", "SAGE", "MLP", "VGAE", "EgoSAGE", "GIN"])
@pytest.mark.parametrize("dropout", [1.5, -1.0, "0.5"])
def test_dropout_is_a_share(name: str, dropout: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^Expected dropout to be a number >= 0 and"):
        getattr(fgl.nn, name)(4, 8, 2, dropout=dropout)


@pytest.mark.parametrize("name", ["GCN", "GAT", "SAGE", "MLP"])
def test_widths_are_counts(name: str) -> None:
    with pytest.raises(TypeError, match=r"^Expected hidden_channels to be an integer >= 1, but"):
        getattr(fgl.nn, name)(4, "8", 2)
