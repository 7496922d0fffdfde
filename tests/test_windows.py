"""Series on a graph: windows, their minibatches, and forecasts in all executors."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fgl
from fgl.data.splits import windows
from fgl.federation import window_minibatches
from fgl.targets import FORECAST

STEPS, AHEAD = 4, (1, 3)


class Net(nn.Module):
    """A model of one's own: a mean over neighbours, and a linear layer over the steps."""

    def __init__(self, features: int = 1, hidden: int = 6) -> None:
        super().__init__()
        self.inner = nn.Linear(2 * features, hidden)
        self.outer = nn.Linear(STEPS * hidden, len(AHEAD))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        source, target = edge_index
        messages = x.index_select(2, source)
        if edge_weight is not None:
            messages = messages * edge_weight[:, None]
        summed = torch.zeros_like(x).index_add(2, target, messages)
        h = self.inner(torch.cat([x, summed], 3)).tanh()
        out: Tensor = self.outer(h.transpose(1, 2).flatten(2))
        return out


class Conv(nn.Module):
    """A model of PyG's layers."""

    def __init__(self) -> None:
        super().__init__()
        layers = pytest.importorskip("torch_geometric.nn")
        self.conv, self.out = layers.GCNConv(1, 5), nn.Linear(STEPS * 5, len(AHEAD))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = self.conv(x, edge_index, edge_weight).relu()
        out: Tensor = self.out(h.transpose(1, 2).flatten(2))
        return out


def series(nodes: int = 9, times: int = 60, seed: int = 0, holes: bool = True) -> fgl.Graph:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, times, 1, generator=generator, dtype=torch.float64).cumsum(1) / 3 + 7
    edges = torch.randint(nodes, (2, 4 * nodes), generator=generator).unique(dim=1)
    y = x[:, :, 0].clone()
    if holes:
        y[torch.rand(y.shape, generator=generator) < 0.2] = torch.nan
    weight = torch.rand(edges.shape[1], generator=generator, dtype=torch.float64)
    return fgl.Graph(x, edges, y=y, edge_weight=weight)


def cut(graph: fgl.Graph, **options: Any) -> fgl.Graph:
    return windows(graph, STEPS, horizons=AHEAD, **options)


def training(size: int = 7, epochs: int = 1) -> fgl.Training:
    draw = partial(window_minibatches, batch_size=size, num_epochs=epochs)
    return fgl.Training(partial(torch.optim.Adam, lr=0.01), batches=draw)


def districts(scaled: bool = True) -> list[fgl.Graph]:
    """Unequal in nodes and in windows, the last one without a window that trains."""
    graphs = [cut(series(n, seed=n), scaled=scaled) for n in (3, 9, 6, 5)]
    rows = torch.arange(graphs[1].num_examples)
    graphs[1] = graphs[1].select(rows[5:])
    graphs[3] = graphs[3].replace(train_mask=torch.zeros_like(graphs[3].train_mask))
    return graphs


def seeded(kind: Any = Net, *args: Any) -> nn.Module:
    torch.manual_seed(0)
    return kind(*args).double()  # type: ignore[no-any-return]


def states_of(result: Any) -> dict[str, Tensor]:
    return dict(result.server_state["model"])


def test_windows_are_cut_as_a_loop_over_times_cuts_them() -> None:
    graph = cut(series(times=50), shares=(0.5, 0.2, 0.3), stride=2)
    expected: dict[str, list[tuple[list[int], list[int]]]] = {"train": [], "val": [], "test": []}
    ends = {"train": range(0, 25), "val": range(25, 35), "test": range(35, 50)}
    for last in range(STEPS - 1, 50 - max(AHEAD), 2):
        asks = [last + ahead for ahead in AHEAD]
        for name, part in ends.items():
            if all(time in part for time in asks):
                expected[name].append((list(range(last - STEPS + 1, last + 1)), asks))
    for name, rows in expected.items():
        mask = getattr(graph, f"{name}_mask")
        reads, asks = graph.window_index[mask].tolist(), graph.horizon_index[mask].tolist()
        assert list(zip(reads, asks, strict=True)) == rows


def test_one_client_is_a_plain_loop() -> None:
    graph = cut(series())
    model = seeded()
    task = fgl.tasks.node_task(None, [graph], model, training(10_000, epochs=3), target=FORECAST)
    result = fgl.run(task.fedavg, task, num_rounds=2, seed=0)

    mine = seeded()
    x, y = graph.x, graph.y
    reads, asks = graph.window_index[graph.train_mask], graph.horizon_index[graph.train_mask]
    seen = torch.stack([x[:, row].transpose(0, 1) for row in reads])
    answers = torch.stack([y[:, row] for row in asks])
    known = ~answers.isnan()
    for _ in range(2):
        optimizer = torch.optim.Adam(mine.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            error = mine(seen, graph.edge_index, graph.edge_weight)[known] - answers[known]
            error.abs().mean().backward()
            optimizer.step()
    for name, value in mine.state_dict().items():
        assert torch.allclose(states_of(result)[name], value, rtol=0, atol=1e-6), name

    reads, asks = graph.window_index[graph.test_mask], graph.horizon_index[graph.test_mask]
    with torch.no_grad():
        out = mine(
            torch.stack([x[:, row].transpose(0, 1) for row in reads]),
            graph.edge_index,
            graph.edge_weight,
        )
    answers = torch.stack([y[:, row] for row in asks])
    scores = result.history[-1].metrics
    for column, ahead in enumerate(AHEAD):
        own = ~answers[:, :, column].isnan()
        error = (out[:, :, column] - answers[:, :, column])[own]
        share = (error / answers[:, :, column][own]).abs().mean()
        assert scores[f"test_mae@{ahead}"] == pytest.approx(float(error.abs().mean()), rel=1e-6)
        assert scores[f"test_rmse@{ahead}"] == pytest.approx(float((error**2).mean().sqrt()), 1e-6)
        assert scores[f"test_mape@{ahead}"] == pytest.approx(float(share), rel=1e-6)
    mean = sum(scores[f"test_mae@{ahead}"] for ahead in AHEAD) / len(AHEAD)
    assert scores["test_mae"] == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("kind", [Net, Conv])
def test_a_batch_of_unequal_districts_is_the_loop(kind: Any) -> None:
    results = []
    for at_once in (1, 4):
        clients = districts()
        train = training(epochs=2)
        task = fgl.tasks.node_task(None, clients, seeded(kind), train, target=FORECAST)
        results.append(fgl.run(task.fedavg, task, num_rounds=3, seed=0, clients_at_once=at_once))
        assert not results[-1].history[-1].one_by_one
    one, other = map(states_of, results)
    assert all(torch.allclose(one[name], other[name], rtol=0, atol=1e-10) for name in one)
    for name, value in results[0].history[-1].metrics.items():
        assert results[1].history[-1].metrics[name] == pytest.approx(value, abs=1e-9), name


def test_minibatches_share_the_series_and_its_edges() -> None:
    graph = cut(series())
    seen = [own for own, _ in window_minibatches(graph, {}, batch_size=7)]
    assert all(own.x is graph.x and own.y is graph.y and own.adj is graph.adj for own in seen)
    rows = torch.cat([own.window_index for own in seen])
    assert sorted(rows.tolist()) == graph.window_index[graph.train_mask].tolist()
    assert all(own.train_mask.all() for own in seen)
