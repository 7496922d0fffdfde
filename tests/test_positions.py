"""Positions, atoms and features of graphs; models that have a parameter under two names."""

import copy
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fgl
from fgl.targets import REGRESSION

CUTOFF = 2.0


def radius_edges(pos: Tensor, batch: Tensor) -> Tensor:
    """Pairs of one molecule that are nearer than the cutoff, from a dense matrix of distances."""
    near = (pos[:, None] - pos[None]).square().sum(2) < CUTOFF**2
    same = batch[:, None] == batch[None]
    return (near & same & ~torch.eye(len(pos), dtype=torch.bool)).nonzero().T


class DenseGraph(nn.Module):
    """What PyG's SchNet asks for its edges, where torch-cluster is not installed."""

    def forward(self, pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        edges = radius_edges(pos, batch)
        return edges, (pos[edges[0]] - pos[edges[1]]).norm(dim=1)


def molecules(count: int = 8, seed: int = 0, dtype: torch.dtype = torch.float64) -> fgl.Graph:
    """Points at random; the answer of a molecule is a sum over pairs of its atoms."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(2, 6, (count,), generator=generator)
    batch = torch.arange(count).repeat_interleave(sizes)
    pos = 1.5 * torch.rand(len(batch), 3, generator=generator, dtype=dtype)
    z = torch.randint(1, 9, (len(batch),), generator=generator)
    pairs = radius_edges(pos, batch)
    energy = (pos[pairs[0]] - pos[pairs[1]]).norm(dim=1).neg().exp()
    y = torch.zeros(count, dtype=dtype).index_add(0, batch[pairs[0]], energy)
    none = torch.zeros(2, 0, dtype=torch.int64)
    x = torch.zeros(len(batch), 0, dtype=dtype)
    return fgl.Graph(x, none, y=y, batch=batch, z=z, pos=pos)


def schnet() -> nn.Module:
    models = pytest.importorskip("torch_geometric.nn.models")
    torch.manual_seed(0)
    sizes = {"hidden_channels": 8, "num_filters": 8, "num_interactions": 2, "num_gaussians": 5}
    return models.SchNet(**sizes, interaction_graph=DenseGraph()).double()  # type: ignore[no-any-return]


def adam() -> fgl.Training:
    return fgl.Training(partial(torch.optim.Adam, lr=0.01), num_steps=3)


def trained_plainly(model: nn.Module, graph: fgl.Graph, rounds: int) -> dict[str, Tensor]:
    for _ in range(rounds):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            out = model(graph.z, graph.pos, graph.batch)
            (out[:, 0] - graph.y).square().mean().backward()
            optimizer.step()
    return model.state_dict()


def test_a_model_of_positions_runs_as_it_is() -> None:
    graph = molecules()
    result = fgl.run(fgl.fedavg(schnet(), train=adam(), target=REGRESSION), [graph], num_rounds=2)
    want = trained_plainly(schnet(), graph, 2)
    got = result.server_state["model"]
    assert all(torch.allclose(got[name], want[name], rtol=0, atol=1e-6) for name in want)
    model = schnet()
    model.load_state_dict(dict(got))  # both names of a parameter have its value
    out = result.predict(graph).detach()
    assert torch.allclose(out, model(graph.z, graph.pos, graph.batch), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "sizes"), [
    ("DimeNet", {"num_bilinear": 2}),
    ("DimeNetPlusPlus", {"int_emb_size": 4, "basis_emb_size": 2, "out_emb_channels": 4}),
])  # fmt: skip
def test_dimenet_runs_as_it_is(name: str, sizes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch_sparse")  # DimeNet's triplets
    dimenet = pytest.importorskip("torch_geometric.nn.models.dimenet")

    def radius_graph(pos: Tensor, *, batch: Tensor, **_: Any) -> Tensor:
        return radius_edges(pos, batch)

    monkeypatch.setattr(dimenet, "radius_graph", radius_graph)
    sizes = {"hidden_channels": 4, "out_channels": 1, "num_blocks": 1} | sizes
    torch.manual_seed(0)
    model = getattr(dimenet, name)(**sizes, num_spherical=2, num_radial=2).double()
    graph, start = molecules(), copy.deepcopy(model)
    result = fgl.run(fgl.fedavg(model, train=adam(), target=REGRESSION), [graph], num_rounds=2)
    want = trained_plainly(start, graph, 2)
    got = result.server_state["model"]
    assert all(torch.allclose(got[name], want[name], rtol=0, atol=1e-6) for name in want)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.head = nn.Linear(3, 3), nn.Linear(3, 2)
        self.two = self.one

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.head(self.two(self.one(x).tanh()))
        return out


def of_nodes(nodes: int, seed: int) -> fgl.Graph:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, 3, generator=generator, dtype=torch.float64)
    return fgl.Graph(x, torch.tensor([[0], [1]]), y=(x[:, 0] > 0).long(), num_classes=2)


def test_a_parameter_with_two_names_is_one_in_the_loop_and_in_a_batch() -> None:
    clients = [of_nodes(7, 0), of_nodes(11, 1), of_nodes(4, 2)]
    ends = []
    for at_once in (1, 3):
        torch.manual_seed(0)
        method = fgl.fedavg(Tied().double(), train=adam())
        result = fgl.run(method, clients, num_rounds=2, clients_at_once=at_once)
        assert not result.history[-1].one_by_one
        ends.append(result.server_state["model"])
        assert torch.equal(ends[-1]["one.weight"], ends[-1]["two.weight"])
    assert all(torch.allclose(ends[0][n], ends[1][n], rtol=0, atol=1e-10) for n in ends[0])
    torch.manual_seed(0)
    alone = Tied().double()
    optimizer = torch.optim.Adam(alone.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(alone(clients[0].x, None), clients[0].y).backward()  # type: ignore[arg-type]
        optimizer.step()
    torch.manual_seed(0)
    once = fgl.run(fgl.fedavg(Tied().double(), train=adam()), clients[:1], num_rounds=1)
    for name, value in alone.state_dict().items():
        assert torch.allclose(once.server_state["model"][name], value, rtol=0, atol=1e-9), name


class Energy(nn.Module):
    """Energies of molecules, and forces as their gradients by positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.pair = nn.Embedding(9, 4), nn.Linear(9, 8)
        self.out = nn.Linear(8, 1, bias=False)

    def forward(self, z: Tensor, pos: Tensor, batch: Tensor, num_graphs: int) -> Any:
        with torch.enable_grad():
            pos = pos.requires_grad_()
            edges = radius_edges(pos.detach(), batch)
            distance = (pos[edges[0]] - pos[edges[1]]).norm(dim=1, keepdim=True)
            both = torch.cat([self.embed(z[edges[0]]), self.embed(z[edges[1]]), distance], 1)
            each = self.out(self.pair(both).tanh())
            energy = each.new_zeros(num_graphs, 1).index_add(0, batch[edges[0]], each)[:, 0]
            (force,) = torch.autograd.grad(-energy.sum(), pos, create_graph=True)
        return energy, force


class Twice(nn.Module):
    """One block under two names, with parameters and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.BatchNorm1d(3)
        self.two, self.head = self.one, nn.Linear(3, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.head(self.two(self.one(x)))
        return out


@pytest.mark.parametrize("kind", [Tied, Twice])
def test_runs_scores_and_predictions_leave_a_model_as_it_was(kind: Any) -> None:
    torch.manual_seed(0)
    model = kind().double()
    clients = [fgl.data.splits.random_split(of_nodes(nodes, nodes)) for nodes in (7, 11)]
    start = {name: value.clone() for name, value in model.state_dict().items()}
    task = fgl.tasks.node_task(None, clients, model, adam())
    runs = [fgl.run(task.fedavg, task, num_rounds=2, clients_at_once=1) for _ in range(2)]
    assert all(torch.equal(start[name], value) for name, value in model.state_dict().items())
    assert runs[0].history[-1].metrics == runs[1].history[-1].metrics
    runs[0].predict(clients[0])
    assert all(torch.equal(start[name], value) for name, value in model.state_dict().items())


def test_forces_are_gradients_by_positions() -> None:
    graph = molecules(6)
    forces = torch.randn(graph.pos.shape, dtype=torch.float64)  # type: ignore[union-attr]
    graph = graph.replace(x=forces)  # what is known of the atoms: the model does not read it
    torch.manual_seed(0)
    model = Energy().double()
    start = {name: value.clone() for name, value in model.state_dict().items()}

    def loss(params: Any, own: fgl.Graph, context: Any) -> Tensor:
        energy, force = fgl.predict(model, params, own)
        return (energy - own.y).square().mean() + (force - own.x).square().mean()

    result = fgl.run(fgl.fedavg(model, loss=loss, train=adam()), [graph], num_rounds=2)
    plain = Energy().double()
    plain.load_state_dict(start)
    for _ in range(2):
        optimizer = torch.optim.Adam(plain.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            pos = graph.pos.clone()  # type: ignore[union-attr]
            energy, force = plain(graph.z, pos, graph.batch, graph.num_graphs)
            error = (energy - graph.y).square().mean() + (force - graph.x).square().mean()
            error.backward()
            optimizer.step()
    for name, value in plain.state_dict().items():
        assert torch.allclose(result.server_state["model"][name], value, rtol=0, atol=1e-9), name
    assert graph.pos is not None and not graph.pos.requires_grad


def test_features_of_graphs_reach_a_model() -> None:
    class Global(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(3, 1)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, u: Tensor) -> Tensor:
            own = x.new_zeros(len(u), 1).index_add(0, batch, x)
            out: Tensor = self.out(torch.cat([own, u], 1))
            return out

    graph = molecules(5)
    graph = graph.replace(x=graph.pos[:, :1], u=torch.randn(5, 2).double())  # type: ignore[index]
    model = Global().double()
    want = model(graph.x, graph.edge_index, graph.batch, graph.u)
    assert torch.equal(fgl.predict(model, model.state_dict(), graph), want)


def test_the_guides_conformer_has_the_bonds_of_ethanol() -> None:
    pytest.importorskip("rdkit")
    data = pytest.importorskip("torch_geometric.data")
    page = Path(__file__).parents[1] / "docs/guides/positions.md"
    (code,) = re.findall(r"^```py\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    names: Any = {"torch": torch, "data": data}
    exec(code, names)
    graph: Any = fgl.Graph.from_pyg(data.Batch.from_data_list([names["ethanol"]] * 2))
    assert graph.z.tolist() == 2 * [6, 6, 8, *[1] * 6] and graph.y.shape == (2,)
    length = torch.cdist(graph.pos[:9], graph.pos[:9])
    for a, b, known in ((0, 1, 1.51), (1, 2, 1.43), (2, 8, 0.97), (0, 3, 1.09)):  # as measured
        assert length[a, b].item() == pytest.approx(known, abs=0.04)


NAMES = ("mu", "eta", "step", "mu_product", "exp_avg", "momentum_buffer", "count")


def test_names_of_an_optimisers_state_are_names_of_parameters_too() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in NAMES:
                setattr(self, name, nn.Parameter(torch.randn(3, 2)))
            self.register_buffer("sum", torch.zeros(2))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x @ sum(getattr(self, name) for name in NAMES) + self.sum  # type: ignore[no-any-return]

    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mu = nn.ParameterDict({"step": nn.Parameter(torch.randn(3, 2))})

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x @ self.mu["step"]

    clients = [of_nodes(7, 0), of_nodes(11, 1), of_nodes(4, 2)]
    for optimizer in (torch.optim.Adam, torch.optim.NAdam, torch.optim.ASGD):
        for kind in (Named, Nested):
            ends = []
            for at_once in (1, 3):
                torch.manual_seed(0)
                train = fgl.Training(partial(optimizer, lr=0.1), num_steps=2, keep_optimizer=True)
                method = fgl.fedavg(kind().double(), train=train)
                result = fgl.run(method, clients, num_rounds=3, clients_at_once=at_once)
                assert not result.history[-1].one_by_one
                ends.append(result.server_state["model"])
            for name in ends[0]:
                assert torch.allclose(ends[0][name], ends[1][name], rtol=0, atol=1e-10), name
