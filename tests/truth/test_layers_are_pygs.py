"""Layers and networks against PyTorch Geometric's, for every name of `fgl.nn`.

A name without a row in `ROWS` or a reason in `NO_ROW` fails.

Mutants that this file finds (each was tried):
- `GCNConv` with its bias before the mean over neighbours too.
- `GATConv` with the slope .1.
- `SAGEConv` with the sum over neighbours.
- `GINConv` without a node's own row.
- `GINEConv` without the activation of messages.
- `RGCNConv` with the sum over the neighbours of a relation.

Faults that the suite let pass at 820a2c65, before this file stood (their texts, and the tests that
ran, in `benchmarks/results/truth_mutants.json`; `mutants.py --seeded` puts them in):
- the mean of a graph without nodes is 0 / 0 (`pooled_rows`): tried, 1,243 tests.
- so is that of a node whose edges all weigh 0 (`mean_norm`): tried, 2,312 tests.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from federations import close
from torch import Tensor, nn

import fgl
from fgl import Graph, SparseMatrix
from fgl.nn import GIN, GINE, MLP, RGCN, SAGE, VGAE, GATConv, GCNConv, GINEConv, RGCNConv, SAGEConv
from fgl.nn.gin import pooled_rows

pyg = pytest.importorskip("torch_geometric.nn")
from test_graph_batch import collection  # noqa: E402
from test_nn import DIRECTED, GRAPHS, N, features, graphs, models, twins  # noqa: E402
from test_nn_edges import graph as with_fields  # noqa: E402
from test_nn_edges import ready  # noqa: E402
from test_nn_sage import lonely  # noqa: E402

ROWS = {
    "GCN": "outputs_and_gradients", "GCNConv": "outputs_and_gradients",
    "GAT": "outputs_and_gradients", "GATConv": "outputs_and_gradients",
    "SAGE": "stack_is_that_of_pyg", "SAGEConv": "convolution_is_that_of_pyg",
    "GIN": "equals_pyg_with_pygs_keys", "GINConv": "equals_pyg_with_pygs_keys",
    "GINE": "networks_of_edges", "GINEConv": "convolutions_of_edges",
    "RGCN": "networks_of_edges", "RGCNConv": "convolutions_of_edges",
    "VGAE": "encoder", "MLP": "encoder",
}  # fmt: skip
NO_ROW = {
    **dict.fromkeys(
        ("SPA", "SSP", "AdaFGL", "AuxSAGE", "DeepNeighbours",
         "NeighbourGenerator", "Star", "EgoSAGE"),
        "of a paper, which PyG does not have: its formula, in the test of its method",
    ),
    **dict.fromkeys(("Embedded", "Hetero", "to_pyg"), "run PyG's own layers"),
    **dict.fromkeys(("PairNet",), "a network of pairs around a GCN"),
    **dict.fromkeys(("observed",), "look into a network"),
}  # fmt: skip


def test_every_layer_has_a_row() -> None:
    assert {*fgl.nn.__all__} == ROWS.keys() | NO_ROW.keys()
    tests = [name for name in globals() if name.startswith("test_")]
    assert all(any(row in name for name in tests) for row in ROWS.values())


@models
def test_state_dict_keys_and_shapes_equal_pyg(name: str) -> None:
    ours, theirs = twins(name)
    shapes = [
        {key: tuple(value.shape) for key, value in model.state_dict().items()}
        for model in (ours, theirs)
    ]
    assert shapes[0] == shapes[1]
    ours.load_state_dict(theirs.state_dict())  # and back


@models
@graphs
@pytest.mark.parametrize("sparse_edges", [False, True], ids=["edge_index", "matrix"])
def test_outputs_and_gradients_equal_pyg(name: str, edges: Tensor, sparse_edges: bool) -> None:
    ours, theirs = twins(name)
    x = features().requires_grad_()
    mine = SparseMatrix.from_edge_index(edges, N) if sparse_edges else edges
    got, want = ours(x, mine), theirs(x, edges)
    torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)
    upstream = torch.randn_like(got)
    names = [key for key, _ in ours.named_parameters()]
    got_grad = torch.autograd.grad(got, [*ours.parameters(), x], upstream)
    by_name = dict(theirs.named_parameters())
    want_grad = torch.autograd.grad(want, [*(by_name[key] for key in names), x], upstream)
    for key, a, b in zip([*names, "x"], got_grad, want_grad, strict=True):
        torch.testing.assert_close(
            a, b, rtol=1e-10, atol=1e-11, msg=lambda m, key=key: f"{key}: {m}"
        )


@models
def test_float32_equals_pyg(name: str) -> None:
    ours, theirs = twins(name, torch.float32)
    x = features(torch.float32)
    got, want = ours(x, DIRECTED), theirs(x, DIRECTED)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    got.square().sum().backward()
    want.square().sum().backward()
    by_name = dict(theirs.named_parameters())
    for key, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, by_name[key].grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("edges", [DIRECTED, GRAPHS["self-loops"]], ids=["plain", "self-loops"])
def test_gcn_with_edge_weights_equals_pyg(edges: Tensor) -> None:
    ours, theirs = twins("gcn-2")
    x = features()
    weight = torch.rand(edges.shape[1], dtype=torch.float64) + 0.1
    matrix = SparseMatrix.from_edge_index(edges, N, weight)
    torch.testing.assert_close(ours(x, matrix), theirs(x, edges, weight), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("ours", "theirs"), [
    (lambda: GCNConv(300, 200), lambda: pyg.GCNConv(300, 200)),
    (lambda: GATConv(300, 40, heads=5), lambda: pyg.GATConv(300, 40, heads=5)),
    (lambda: GATConv(300, 400, heads=2), lambda: pyg.GATConv(300, 400, heads=2)),
])  # fmt: skip
def test_initial_parameters_are_distributed_as_pygs(ours: Any, theirs: Any) -> None:
    samples: list[dict[str, Tensor]] = []
    for make in (ours, theirs):
        draws = [dict(make().named_parameters()) for _ in range(5)]
        samples.append({key: torch.stack([d[key].detach() for d in draws]) for key in draws[0]})
    for key, value in samples[0].items():
        want = samples[1][key]
        if key == "bias":
            assert (value == 0).all() and (want == 0).all()
            continue
        assert value.abs().max().item() == pytest.approx(want.abs().max().item(), rel=0.02)
        bound = math.sqrt(6 / sum(value.shape[-2:]))  # Glorot
        assert value.abs().max() <= bound
        assert value.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
        assert abs(value.mean().item()) < 5 * bound / math.sqrt(3 * value.numel())
        assert not torch.equal(value[0], value[1])


def test_convolution_is_that_of_pyg() -> None:
    data, mine, theirs = lonely(), SAGEConv(6, 4), pyg.SAGEConv(6, 4)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    mine.load_state_dict(theirs.state_dict())
    want = theirs(data.x, data.edge_index)
    close(mine(data.x, data.edge_index), want)
    close(mine(data.x, data.adj), want)
    close(mine(fgl.SparseMatrix.from_dense(data.x), data.adj), want)
    for kept in (data.edge_index[1] > 2, torch.arange(data.num_edges) % 2 == 0):  # others weigh 0
        adj = SparseMatrix.from_edge_index(data.edge_index, data.num_nodes, kept.float())
        close(mine(data.x, adj), theirs(data.x, data.edge_index[:, kept]))
    grads = [torch.autograd.grad(out.square().sum(), list(net.parameters())) for out, net in
             ((mine(data.x, data.adj), mine), (want, theirs))]  # fmt: skip
    close(list(grads[0]), list(grads[1]), atol=1e-4)


def test_stack_is_that_of_pyg() -> None:
    data, mine = lonely(), SAGE(6, 8, 3, num_layers=3, dropout=0.0)
    theirs = pyg.GraphSAGE(6, 8, 3, out_channels=3)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    mine.load_state_dict(theirs.state_dict())
    close(mine(data.x, data.adj), theirs(data.x, data.edge_index))


class Twin(nn.Module):
    """The same network out of PyG's parts."""

    def __init__(self, pooling: str) -> None:
        super().__init__()
        mlps = [nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)) for _ in range(3)]
        self.pre = nn.Linear(3, 8)
        self.convs = nn.ModuleList(pyg.GINConv(mlp) for mlp in mlps)
        self.post = nn.Linear(8, 8)
        self.readout = nn.Linear(8, 2)
        self.pool = {"sum": pyg.global_add_pool, "mean": pyg.global_mean_pool}[pooling]

    def forward(self, graph: Graph) -> torch.Tensor:
        h = self.pre(graph.x)
        for conv in self.convs:
            h = conv(h, graph.edge_index).relu()
        return self.readout(self.post(self.pool(h, graph.batch)).relu())


@pytest.mark.parametrize("pooling", ["sum", "mean"])
@pytest.mark.parametrize("dense", [True, False])
def test_equals_pyg_with_pygs_keys(pooling: Any, dense: bool) -> None:
    twin = Twin(pooling)
    model = GIN(3, 8, 2, pooling=pooling).eval()
    ours = {k: v for k, v in twin.state_dict().items() if not k.endswith("eps")}
    model.load_state_dict(ours)  # strict: every other key is there
    graph, _ = collection()
    given = graph if dense else graph.replace(x=SparseMatrix.from_dense(graph.x))
    out, want = model(*given.inputs), twin(graph)
    close(out, want, atol=1e-5)
    close(model(given.x, graph.edge_index, graph.pool), want, atol=1e-5)
    out.square().sum().backward()
    want.square().sum().backward()
    for name, parameter in model.named_parameters():
        grad = twin.get_parameter(name).grad
        torch.testing.assert_close(parameter.grad, grad, rtol=1e-4, atol=1e-4)


def test_a_graph_without_nodes_is_pooled_to_zeros_as_by_pyg() -> None:
    h, batch = torch.rand(3, 2), torch.tensor([0, 0, 2])
    pools = {"sum": pyg.global_add_pool, "mean": pyg.global_mean_pool}
    for how, pool in pools.items():
        close(pooled_rows(h, batch, how), pool(h, batch))  # type: ignore[arg-type]


def test_the_encoder_is_that_of_pyg() -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = pyg.GCNConv(5, 8)
            self.conv_mu = pyg.GCNConv(8, 4)
            self.conv_logstd = pyg.GCNConv(8, 4)

        def forward(self, x: Any, edges: Any) -> Any:
            x = self.conv1(x, edges).relu()
            return self.conv_mu(x, edges), self.conv_logstd(x, edges)

    mine, theirs, x = VGAE(5, 8, 4).double(), Encoder().double(), features()[:, :5]
    theirs.load_state_dict(mine.state_dict())
    torch.testing.assert_close(mine.encode(x, DIRECTED), theirs(x, DIRECTED))
    mlp, own = pyg.MLP([5, 8, 2], norm=None).double(), MLP(5, 8, 2).double()
    own.load_state_dict(mlp.state_dict())
    torch.testing.assert_close(own(x), mlp(x))


SHAPES = ((7, 20), (5, 0), (1, 2))  # nodes and edges, of which some stand twice or are loops


def test_convolutions_of_edges_are_those_of_pyg() -> None:
    for shape in SHAPES:
        own = with_fields(*shape)
        edges = {"edge_attr": own.edge_attr, "edge_type": own.edge_type}
        for bases in (None, 2):
            mine, theirs = RGCNConv(4, 5, num_relations=3, num_bases=bases), pyg.RGCNConv
            theirs = ready(theirs(4, 5, 3, num_bases=bases))
            ready(mine).load_state_dict(theirs.state_dict())
            want = theirs(own.x, own.edge_index, own.edge_type)
            close(mine(own.x, own.adj, own.entries("edge_type")), want)
            close(mine(own.x, own.edge_index, edges["edge_type"]), want)
        gine = ready(GINEConv(4, 6, edge_dim=3))
        twin = ready(pyg.GINEConv(GINEConv(4, 6, edge_dim=3).nn, edge_dim=3))
        twin.load_state_dict({**gine.state_dict(), "eps": torch.zeros(1)}, strict=False)
        want = twin(own.x, own.edge_index, own.edge_attr)
        close(gine(own.x, own.adj, own.entries("edge_attr")), want)
        close(gine(own.x, own.edge_index, edges["edge_attr"]), want)


def test_networks_of_edges_are_those_of_pygs_parts() -> None:
    """Each convolution of the network is PyG's, and so is the pooling."""
    own = with_fields(9, 25)
    rgcn = ready(RGCN(4, 6, 2, num_relations=3, num_bases=2))
    h: Any = own.x
    for number, conv in enumerate(rgcn.convs):
        theirs = ready(pyg.RGCNConv(conv.root.shape[0], conv.root.shape[1], 3, num_bases=2))
        theirs.load_state_dict(conv.state_dict())
        h = theirs(h.relu() if number else h, own.edge_index, own.edge_type)
    close(rgcn(own.x, own.edge_index, edge_type=own.edge_type), h)
    batch = torch.arange(9) // 5
    for pooling, pool in (("sum", pyg.global_add_pool), ("mean", pyg.global_mean_pool)):
        gine = ready(GINE(4, 6, 2, edge_dim=3, pooling=pooling))
        h = gine.pre(own.x)
        for conv in gine.convs:
            twin = ready(pyg.GINEConv(conv.nn, edge_dim=3))
            twin.load_state_dict({**conv.state_dict(), "eps": torch.zeros(1)}, strict=False)
            h = twin(h, own.edge_index, own.edge_attr).relu()
        want = gine.readout(gine.post(pool(h, batch)).relu())
        close(gine(own.x, own.edge_index, batch, edge_attr=own.edge_attr), want)
