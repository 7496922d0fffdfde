"""PyG's models as they are: alone equal to a plain loop, in a batch equal to that."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from federations import close, refuses
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.functional import cross_entropy
from torch_geometric import nn as pyg
from torch_geometric.data import Batch, Data

import fgl
from fgl import Method
from fgl.federation import choose
from fgl.federation.executors.batch.sink import SunkReading
from fgl.predict import check_reads, predict, reads

# `vmap` maps a few of PyG's operations one by one, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:.*There is a performance drop:UserWarning")
SIZES = ((7, 15), (10, 40), (4, 3), (12, 30))
SGD = partial(torch.optim.SGD, lr=0.05)


def client(nodes: int, edges: int, seed: int, **given: Any) -> fgl.Graph:
    generator = torch.Generator().manual_seed(seed)
    fields: dict[str, Any] = {
        "y": torch.randint(0, 3, (nodes,), generator=generator),
        "train_mask": torch.rand(nodes, generator=generator) < 0.7,
        "edge_attr": torch.rand(edges, 3, generator=generator),
        "edge_weight": torch.rand(edges, generator=generator) + 0.1,
    }
    x = torch.randn(nodes, 5, generator=generator)
    ends = torch.randint(0, nodes, (2, edges), generator=generator)
    return fgl.Graph(x, ends, num_classes=3, **{**fields, **given})


def clients(*fields: str, sizes: Any = SIZES) -> list[fgl.Graph]:
    """Clients with these fields of their edges."""
    left_out = {name: None for name in ("edge_attr", "edge_weight") if name not in fields}
    return [client(nodes, edges, k, **left_out) for k, (nodes, edges) in enumerate(sizes)]


class Plain(torch_nn.Module):
    """Two layers, as PyG's users write them."""

    def __init__(self, make: Callable[[int, int], Any]) -> None:
        super().__init__()
        self.one, self.two = make(5, 6), make(6, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.two(self.one(x, edge_index).relu(), edge_index)
        return out


class WithFeatures(Plain):
    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:  # type: ignore[override]
        hidden = self.one(x, edge_index, edge_attr).relu()
        out: Tensor = self.two(hidden, edge_index, edge_attr)
        return out


class WithWeights(Plain):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:  # type: ignore[override]
        hidden = self.one(x, edge_index, edge_weight).relu()
        out: Tensor = self.two(hidden, edge_index, edge_weight)
        return out


def mlp(width: int, out: int) -> torch_nn.Module:
    layers = torch_nn.Linear(width, 8), torch_nn.ReLU(), torch_nn.Linear(8, out)
    return torch_nn.Sequential(*layers)


def stack(layer: Any, *widths: int) -> Any:
    """A linear layer to the convolution's width, the convolution, a linear layer to the classes."""
    steps = [
        (torch_nn.Linear(5, widths[0]), "x -> x"),
        (layer, "x, edge_index -> x"),
        (torch_nn.Linear(widths[-1], 3), "x -> x"),
    ]
    return pyg.Sequential("x, edge_index", steps)


PNA = {
    "aggregators": ["mean", "max", "std"],
    "scalers": ["identity", "amplification"],
    "deg": torch.tensor([1, 3, 4, 2, 1]),
}
LAYERS: dict[str, Callable[[], Any]] = {
    "GCN": lambda: Plain(pyg.GCNConv),
    "GCN without loops": lambda: Plain(partial(pyg.GCNConv, add_self_loops=False)),
    "GAT": lambda: Plain(pyg.GATConv),
    "GAT, 2 heads": lambda: Plain(partial(pyg.GATConv, heads=2, concat=False)),
    "GATv2": lambda: Plain(pyg.GATv2Conv), "SAGE": lambda: Plain(pyg.SAGEConv),
    "SAGE max": lambda: Plain(partial(pyg.SAGEConv, aggr="max")),
    "SAGE softmax": lambda: Plain(partial(pyg.SAGEConv, aggr="softmax")),
    "GIN": lambda: Plain(lambda width, out: pyg.GINConv(mlp(width, out))),
    "Graph": lambda: Plain(pyg.GraphConv), "Transformer": lambda: Plain(pyg.TransformerConv),
    "Edge": lambda: Plain(lambda width, out: pyg.EdgeConv(mlp(2 * width, out))),
    "SGC": lambda: Plain(partial(pyg.SGConv, K=2)), "TAG": lambda: Plain(pyg.TAGConv),
    "ARMA": lambda: Plain(pyg.ARMAConv), "APPNP": lambda: stack(pyg.APPNP(3, 0.1), 3, 3),
    "PNA": lambda: Plain(partial(pyg.PNAConv, **PNA)), "LE": lambda: Plain(pyg.LEConv),
    "FeaSt": lambda: Plain(pyg.FeaStConv), "FiLM": lambda: Plain(pyg.FiLMConv),
    "EG": lambda: Plain(partial(pyg.EGConv, num_heads=1)),
    "ResGated": lambda: Plain(pyg.ResGatedGraphConv), "General": lambda: Plain(pyg.GeneralConv),
    "GatedGraph": lambda: stack(pyg.GatedGraphConv(6, 2), 6, 6),
    "AGNN": lambda: stack(pyg.AGNNConv(), 4, 4),
    "SSG": lambda: stack(pyg.SSGConv(4, 4, 0.1, K=2), 4, 4),
    "models.GCN": lambda: pyg.GCN(5, 6, 2, 3), "models.GAT": lambda: pyg.GAT(5, 6, 2, 3, heads=2),
    "models.GIN": lambda: pyg.GIN(5, 6, 2, 3),
    "models.GraphSAGE, jk": lambda: pyg.GraphSAGE(5, 6, 3, 3, jk="cat"),
    "models.EdgeCNN": lambda: pyg.EdgeCNN(5, 6, 2, 3),
    "models.GCN, LayerNorm of nodes": lambda: pyg.GCN(
        5, 6, 2, 3, norm="LayerNorm", norm_kwargs={"mode": "node"}
    ),
}  # fmt: skip
FEATURES: dict[str, Callable[[], Any]] = {
    "GINE": lambda: WithFeatures(lambda width, out: pyg.GINEConv(mlp(width, out), edge_dim=3)),
    "GAT of edges": lambda: WithFeatures(partial(pyg.GATConv, edge_dim=3)),
    "GATv2 of edges": lambda: WithFeatures(partial(pyg.GATv2Conv, edge_dim=3)),
    "Transformer of edges": lambda: WithFeatures(partial(pyg.TransformerConv, edge_dim=3)),
    "NN": lambda: WithFeatures(
        lambda width, out: pyg.NNConv(width, out, torch_nn.Linear(3, width * out))
    ),
    "GMM": lambda: WithFeatures(partial(pyg.GMMConv, dim=3, kernel_size=2)),
    "models.GAT of edges": lambda: pyg.GAT(5, 6, 2, 3, v2=True, edge_dim=3),
}
WEIGHTS: dict[str, Callable[[], Any]] = {
    "GCN, weights": lambda: WithWeights(pyg.GCNConv),
    "Graph, weights": lambda: WithWeights(pyg.GraphConv),
    "models.GCN, weights": lambda: pyg.GCN(5, 6, 2, 3),
}
ALONE: dict[str, Callable[[], Any]] = {
    "Cheb": lambda: Plain(partial(pyg.ChebConv, K=2)),
    "SuperGAT": lambda: Plain(pyg.SuperGATConv),
    "ClusterGCN": lambda: Plain(pyg.ClusterGCNConv),
    "MF": lambda: Plain(pyg.MFConv),
    "GEN": lambda: Plain(pyg.GENConv),
    "SAGE lstm": lambda: Plain(partial(pyg.SAGEConv, aggr="lstm")),
    "BatchNorm": lambda: pyg.GCN(5, 6, 2, 3, norm="BatchNorm"),
    "LayerNorm of graphs": lambda: pyg.GCN(5, 6, 2, 3, norm="LayerNorm"),
    "GraphNorm": lambda: pyg.GCN(5, 6, 2, 3, norm="GraphNorm"),
    "PairNorm": lambda: pyg.GCN(5, 6, 2, 3, norm="PairNorm"),
}
BATCHED = {
    **{name: (make, ()) for name, make in LAYERS.items()},
    **{name: (make, ("edge_attr",)) for name, make in FEATURES.items()},
    **{name: (make, ("edge_weight",)) for name, make in WEIGHTS.items()},
}


def seeded(make: Callable[[], Any]) -> Any:
    torch.manual_seed(1)
    model = make()
    for module in model.modules():  # a lazy layer has no parameters yet
        assert not isinstance(module, torch_nn.modules.lazy.LazyModuleMixin)
    return model


def trained(method: Method, graphs: list[fgl.Graph], at_once: Any, **how: Any) -> Any:
    return fgl.run(method, graphs, num_rounds=2, seed=0, clients_at_once=at_once, **how)


def plain_rounds(model: Any, graphs: list[fgl.Graph], names: tuple[str, ...]) -> dict[str, Tensor]:
    """FedAvg as a user of PyG writes it: nothing of the library but the clients' tensors."""
    server = copy.deepcopy(model.state_dict())
    for _ in range(2):
        locals_, counts = [], []
        for graph in graphs:
            own = copy.deepcopy(model)
            own.load_state_dict(server)
            own.train()
            optimizer, mask = SGD(own.parameters()), graph.train_mask
            for _ in range(3):
                optimizer.zero_grad()
                given = {name: getattr(graph, name) for name in names}
                out = own(graph.x, graph.edge_index, **given)
                cross_entropy(out[mask], graph.y[mask]).backward()  # type: ignore[index]
                optimizer.step()
            locals_.append(own.state_dict())
            counts.append(int(mask.sum()))  # type: ignore[union-attr]
        total = sum(counts)
        server = {
            name: sum(own[name] * (n / total) for own, n in zip(locals_, counts, strict=True))  # type: ignore[misc]
            if value.is_floating_point()
            else value
            for name, value in server.items()
        }
    return server


@pytest.mark.few
@pytest.mark.parametrize("name", BATCHED)
def test_a_layer_of_pyg_trains_alone_and_in_a_batch(name: str) -> None:
    make, fields = BATCHED[name]
    graphs, model = clients(*fields), seeded(make)
    method = fgl.fedavg(model, train=fgl.Training(SGD, num_steps=3))
    alone, batch = trained(method, graphs, 1), trained(method, graphs, 4)
    assert not any(each.one_by_one for each in batch.history)
    mine, want = alone.outbox[0]["model"], plain_rounds(model, graphs, fields)
    for key, value in want.items():
        close(mine[key], value, atol=2e-6)
        close(batch.outbox[0]["model"][key], value, atol=2e-6)
    assert any((want[key] - value).abs().max() > 1e-4 for key, value in model.state_dict().items())


@pytest.mark.few
@pytest.mark.parametrize("name", ALONE)
def test_a_layer_that_no_batch_can_train_trains_alone_and_says_so(name: str) -> None:
    graphs, model = clients(), seeded(ALONE[name])
    method = fgl.fedavg(model, train=fgl.Training(SGD, num_steps=3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = trained(method, graphs, "auto")
        same = trained(method, graphs, 1)
    for key, value in same.outbox[0]["model"].items():
        assert torch.equal(result.outbox[0]["model"][key], value)
    with pytest.raises((RuntimeError, ValueError)):
        trained(method, graphs, 4)


class OnGraphs(torch_nn.Module):
    """A network for molecules, as PyG's tutorial has it."""

    def __init__(self, pool: Any = pyg.global_mean_pool) -> None:
        super().__init__()
        self.one = pyg.GINEConv(mlp(5, 6), edge_dim=3)
        self.two = pyg.GATv2Conv(6, 6, edge_dim=3)
        self.out, self.pool = torch_nn.Linear(6, 3), pool

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        x = self.one(x, edge_index, edge_attr).relu()
        x = self.two(x, edge_index, edge_attr).relu()
        out: Tensor = self.out(self.pool(x, batch))
        return out


def collection(count: int, seed: int) -> fgl.Graph:
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for k in range(count):
        nodes = int(torch.randint(1, 6, (), generator=generator))
        edges = int(torch.randint(0, 9, (), generator=generator))
        one = client(nodes, edges, 10 * seed + k, edge_weight=None, y=None, train_mask=None)
        y = torch.randint(0, 3, (1,), generator=generator)
        graphs.append(Data(one.x, one.edge_index, one.edge_attr, y=y))
    batch = Batch.from_data_list(graphs)
    batch.num_classes = 3
    return fgl.Graph.from_pyg(batch)


class Strange(torch_nn.Linear):
    def forward(self, x: Tensor, edge_index: Tensor, face: Tensor) -> Tensor:  # type: ignore[override]
        return x


class FirstByPlace(torch_nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(5, 3)

    def forward(self, features: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv(features, edge_index)
        return out


def test_the_sink_is_a_node_of_a_graph_of_its_own() -> None:
    many = collection(3, 1)
    graph = many.replace(u=torch.ones(3, 2), y=None)
    for graphs, read in ((3, {"batch_size": 4, "num_graphs": 4}), (None, {"batch_size": None})):
        reading = SunkReading(graph, graph.edge_index, many.num_nodes, graphs, torch.tensor(0))
        assert {name: reading.value(name) for name in read} == read
        assert reading.value("num_nodes") == many.num_nodes + 1
        assert reading.value("u").tolist() == [[1, 1]] * 3 + [[0, 0]]
        assert not reading.value("x")[-1].any()
        own = many.batch.tolist()  # type: ignore[union-attr]
        assert reading.value("batch").tolist() == own + [3] * (graphs is not None)
        assert reading.value("edge_weight") is None and reading.value("y") is None
        rows = {many.num_nodes, 3 if graphs else many.num_nodes}
        for size in range(2, many.num_nodes + 3):
            out = reading._cut(torch_nn.Identity(), (), (torch.ones(size), 3, torch.tensor(1.0)))
            assert (len(out[0]), *out[1:]) == (size - (size - 1 in rows), 3, torch.tensor(1.0))


def test_what_a_forward_names_is_what_it_gets() -> None:
    graph, model = clients()[0], seeded(FirstByPlace)
    close(predict(model, model.state_dict(), graph), model(graph.x, graph.edge_index))
    assert reads(seeded(LAYERS["models.GCN"])).names[:2] == ("x", "edge_index")
    assert reads(stack(pyg.APPNP(1, 0.1), 3, 3)).names == ("x", "edge_index")
    assert reads(fgl.nn.Embedded(pyg.GCN(5, 6, 2, 3), "convs.1")).edge_index


REFUSED: list[tuple[Any, Callable[[], Any], type[Exception], str]] = [
    ((), FEATURES["GINE"], ValueError, r"have \['edge_attr'\], which WithFeatures's forward reads"),
    ((), OnGraphs, ValueError, r"have \['edge_attr', 'batch'\], which OnGraphs's forward reads"),
    (
        (),
        partial(Strange, 5, 3),
        TypeError,
        r"Strange's forward to read fields of a graph, .* but got \['face'\]",
    ),
    ((), WEIGHTS["GCN, weights"], ValueError, r"have \['edge_weight'\], which WithWeights's"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_a_graph_has_not_is_named(number: int) -> None:
    fields, make, error, message = REFUSED[number]
    model, graphs = seeded(make), clients(*fields)
    for at_once in (1, 4):
        with pytest.raises(error, match=message):
            trained(fgl.fedavg(model), graphs, at_once)


class Edges(torch_nn.Module):
    """A layer of PyG in a forward that calls the edges otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(5, 3)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        out: Tensor = self.conv(x, edges)
        return out


class Unnamed(Edges):
    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        out: Tensor = self.conv(*args, **kwargs)
        return out


@pytest.mark.parametrize("at_once", [1, 4])
@pytest.mark.parametrize("make", [Edges, Unnamed])
def test_edges_of_another_name_are_told_of(make: Callable[[], Any], at_once: int) -> None:
    with pytest.raises(TypeError, match=r"name the edges edge_index, .* but got \[.*\], which"):
        trained(fgl.fedavg(make()), clients(), at_once)


def test_sparse_features_are_refused() -> None:
    graph = clients()[0]
    graph = graph.replace(x=fgl.SparseMatrix.from_dense(graph.x))  # type: ignore[arg-type]
    model = seeded(LAYERS["GCN"])
    with pytest.raises(TypeError, match=r"graph.replace\(x=graph.x.to_dense\(\)\)"):
        predict(model, model.state_dict(), graph)


def test_the_choice_counts_messages() -> None:
    def many(count: int, nodes: int, model: Any) -> int:
        each = client(nodes, 6 * nodes, 0, edge_attr=None, edge_weight=None)
        return choose(fgl.fedavg(model), [each] * count).clients_at_once

    for model in (pyg.GCN(5, 64, 2, 3), pyg.GAT(5, 64, 2, 3)):
        assert many(100, 30, model) > 1
        assert many(5, 3000, model) == 1
    assert many(5, 3000, fgl.nn.GCN(5, 64, 3)) > 1


class Deaf(torch_nn.Module):
    """A model that chooses nodes by a mask, which no batch can follow."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GCNConv(5, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv(x, edge_index)
        return out - out[x[:, 0] > 0].mean(0)


def test_a_model_that_filters_nodes_is_refused_and_not_wrong() -> None:
    method = fgl.fedavg(seeded(Deaf), train=fgl.Training(SGD, num_steps=1))
    with pytest.raises((ValueError, RuntimeError), match="padding|vmap|size of tensor"):
        trained(method, clients(), 4)


def test_probes_without_features_of_edges_are_refused() -> None:
    probes = fgl.methods.proxy_graph(clients()[0])
    with pytest.raises(ValueError, match=r"fedpub's probes to have .* but got no \['edge_attr'\]"):
        fgl.methods.fedpub(fgl.fedavg(seeded(FEATURES["GINE"])), probes)
    fgl.methods.fedpub(fgl.fedavg(seeded(LAYERS["GCN"])), probes)


def test_probes_with_what_the_model_reads_are_taken() -> None:
    probes = clients("edge_attr")[0]
    check_reads(seeded(FEATURES["GINE"]), probes, "fedpub")
    with pytest.raises(ValueError, match=r"but got no \['edge_attr'\]"):
        check_reads(seeded(FEATURES["GINE"]), probes.replace(edge_attr=None), "fedpub")


class AllNodes(Plain):
    """A model whose answer depends on the mean of all nodes, which padding changes."""

    def __init__(self) -> None:
        super().__init__(pyg.GCNConv)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x - x.mean(0), edge_index)


def test_the_smallest_client_need_not_show_what_padding_does() -> None:
    """It has no training node here, or no edge, so its loss is the same."""
    graphs = clients(sizes=((4, 3), (10, 40), (12, 30)))
    graphs[0] = graphs[0].replace(train_mask=torch.zeros(4, dtype=torch.bool))
    method = fgl.fedavg(seeded(AllNodes), train=fgl.Training(SGD, num_steps=2))
    refuses("the model and the loss to leave padding out", lambda: trained(method, graphs, 3))
    auto, alone = trained(method, graphs, "auto"), trained(method, graphs, 1)
    for key, value in alone.outbox[0]["model"].items():
        assert torch.equal(auto.outbox[0]["model"][key], value)


class Counting(Plain):
    """It answers with the number of edges, which padding changes."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return 0 * super().forward(x, edge_index) + edge_index.shape[1]


def test_a_term_of_the_edges_that_begins_late_is_compared() -> None:
    """Clients of one size, of which one has fewer edges: no node is padded."""
    model, counting = seeded(LAYERS["GCN"]), Counting(pyg.GCNConv)
    graphs = clients(sizes=((10, 9), (10, 30)))
    base = fgl.fedavg(model, train=fgl.Training(SGD, num_steps=1))

    def aggregate(inbox: Any, state: Any) -> Any:
        outbox, new = base.aggregate(inbox, state)
        return {k: {**m, "late": torch.tensor(1.0)} for k, m in outbox.items()}, new

    def receive(message: Any, state: Any, graph: fgl.Graph) -> Any:
        params, context = base.receive({"model": message["model"]}, state, graph)
        return params, {**context, "late": message.get("late", torch.tensor(0.0))}

    def loss(params: Any, graph: fgl.Graph, context: Any) -> Tensor:
        counts = predict(counting, params, graph)[:, 0] * graph.training_mask
        return base.loss(params, graph, context) + context["late"] * counts.mean()

    late = replace(base, aggregate=aggregate, receive=receive, loss=loss)
    with pytest.raises(ValueError, match="Round 1, .*leave padding out"):
        fgl.run(late, graphs, num_rounds=2, clients_at_once=2)


class Normed(torch_nn.Module):
    """A batch norm between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = pyg.SAGEConv(5, 6), pyg.BatchNorm(6), pyg.SAGEConv(6, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.two(self.norm(self.one(x, edge_index)).relu(), edge_index)
        return out


def test_the_sink_is_no_example_of_a_batch_norm() -> None:
    """Clients of one size have no padding, but the sink is there."""
    graphs = clients(sizes=((8, 20), (8, 20), (8, 12), (8, 30)))
    method = fgl.fedavg(seeded(Normed), train=fgl.Training(SGD, num_steps=2))
    assert "BatchNorm1d would mix" in fgl.federation.choose(method, graphs).why
    refuses("one more node, but got BatchNorm1d", lambda: trained(method, graphs, 2))
    auto, alone = trained(method, graphs, "auto"), trained(method, graphs, 1)
    for key, value in alone.outbox[0]["model"].items():
        assert torch.equal(auto.outbox[0]["model"][key], value)


class Divided(OnGraphs):
    """A mean over a graph's nodes by hand: a padded graph has none."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        x = self.one(x, edge_index, edge_attr).relu()
        total = pyg.global_add_pool(x, batch)
        count = pyg.global_add_pool(torch.ones_like(x[:, :1]), batch)
        out: Tensor = self.out(total / count)
        return out[:, :1]


def test_a_gradient_that_only_the_batch_makes_infinite_is_refused() -> None:
    graphs = [collection(count, seed) for seed, count in enumerate((2, 6, 6))]
    graphs = [graph.replace(y=graph.labels.float()) for graph in graphs]
    train, target = fgl.Training(SGD, num_steps=2), fgl.targets.REGRESSION
    method = fgl.fedavg(seeded(Divided), train=train, target=target)
    refuses("gradient to be finite in a batch as it is alone", lambda: trained(method, graphs, 3))
    result = trained(method, graphs, "auto")
    assert not any(each.dropped for each in result.history)


def test_a_cached_layer_and_a_forward_that_writes_are_refused() -> None:
    cached = fgl.fedavg(seeded(lambda: Plain(partial(pyg.GCNConv, cached=True))))
    refuses("layers without cached=True, .* but got GCNConv", lambda: trained(cached, clients(), 1))

    class Writes(FirstByPlace):
        def forward(self, features: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(features.mul_(2), edge_index)

    with pytest.raises(ValueError, match="forward to leave x as it is, but it writes into it"):
        trained(fgl.fedavg(seeded(Writes)), clients(), 1)


def test_an_edge_of_weight_zero_is_an_edge() -> None:
    ends = torch.tensor([[0, 1], [2, 2]])
    graph = fgl.Graph(torch.randn(3, 5), ends, edge_weight=torch.tensor([1.0, 0.0]))
    model = seeded(LAYERS["SAGE"])
    close(predict(model, model.state_dict(), graph), model(graph.x, ends))


def test_a_forward_of_one_argument_is_told_what_to_name() -> None:
    class OfData(torch_nn.Linear):
        def forward(self, data: Any) -> Tensor:
            return super().forward(data.x)

    with pytest.raises(TypeError, match=r"such as \(x, edge_index\) or .* but got 'data' alone"):
        trained(fgl.fedavg(OfData(5, 3)), clients(), 1)


class OfTypes(torch_nn.Module):
    """It embeds types that it masks, and asks for the latest time."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = torch_nn.Embedding(3, 5)
        self.conv = pyg.GraphConv(5, 3)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_type: Tensor, edge_time: Tensor
    ) -> Tensor:
        mask = edge_index[0] != edge_index[1]
        own = self.kinds(edge_type[mask]).sum(1)
        age = (edge_time.max() - edge_time[mask]).exp().reciprocal()
        out: Tensor = self.conv(x, edge_index[:, mask], own * age)
        return out


def test_fields_of_edges_are_no_indices() -> None:
    graphs = []
    for graph in clients():
        kinds = torch.arange(graph.num_edges) % 3
        graphs.append(graph.replace(edge_type=kinds, edge_time=kinds + 7))
    method = fgl.fedavg(seeded(OfTypes), train=fgl.Training(SGD, num_steps=3))
    alone, batch = trained(method, graphs, 1), trained(method, graphs, 4)
    for key, value in alone.outbox[0]["model"].items():
        close(batch.outbox[0]["model"][key], value, atol=2e-6)
