"""Series on a graph: windows, their minibatches, and forecasts in all executors."""

import json
from functools import partial
from typing import Any

import pytest
import torch
from federations import data_folder, script
from torch import Tensor, nn

import fgl
from fgl.data.splits import windows
from fgl.federation import window_minibatches
from fgl.targets import FORECAST
from fgl.tasks.forecast import Forecaster

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


def test_minibatches_share_the_series_and_its_edges() -> None:
    graph = cut(series())
    seen = [own for own, _ in window_minibatches(graph, {}, batch_size=7)]
    assert all(own.x is graph.x and own.y is graph.y and own.adj is graph.adj for own in seen)
    rows = torch.cat([own.window_index for own in seen])
    assert sorted(rows.tolist()) == graph.window_index[graph.train_mask].tolist()
    assert all(own.train_mask.all() for own in seen)


def test_the_future_changes_neither_outputs_nor_training() -> None:
    graph = cut(series(), scaled=True)
    end = int(graph.horizon_index[graph.train_mask].max()) + 1
    future = torch.arange(graph.x.shape[1]) >= end
    wild = 1e3 * torch.rand(graph.x.shape, dtype=torch.float64)
    raw = series()
    changed = raw.replace(
        x=torch.where(future[:, None], wild, raw.x), y=torch.where(future, wild[..., 0], raw.y)
    )
    other = cut(changed, scaled=True)
    assert torch.equal(graph.scale, other.scale)
    ends = []
    for own in (graph, other):
        method = fgl.fedavg(seeded(), train=training(epochs=2), target=FORECAST)
        ends.append(states_of(fgl.run(method, [own], num_rounds=2, seed=0)))
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    rows = graph.train_mask.nonzero().squeeze(1)
    one, two = (fgl.predict(seeded(), ends[0], own.select(rows)) for own in (graph, other))
    assert torch.equal(one, two)
    other.y[:, end:].fill_(torch.nan)
    assert torch.equal(fgl.predict(seeded(), ends[0], other.select(rows)), one)


def test_a_scaler_is_of_training_times_and_is_undone() -> None:
    raw = series()
    graph = cut(raw, scaled=True)
    end = round(0.7 * raw.x.shape[1])
    x, y = raw.x[:, :end, 0], raw.y[:, :end]
    known = y[~y.isnan()]
    want = torch.stack([x.mean(), known.mean(), x.std(unbiased=False), known.std(unbiased=False)])
    assert torch.allclose(graph.scale, want.expand(9, 4), rtol=1e-12)

    class Last(nn.Module):
        """The last value that is read."""

        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x[:, -1].expand(*x.shape[:1], *x.shape[2:3], len(AHEAD)) * self.one

    seen = fgl.predict(Last(), Last().state_dict(), graph)
    last = graph.x[:, graph.window_index[:, -1], 0].T[:, :, None]
    want = (last - x.mean()) / x.std(unbiased=False) * known.std(unbiased=False) + known.mean()
    assert torch.allclose(seen, want.expand_as(seen), rtol=1e-12)
    constant = raw.replace(x=torch.ones_like(raw.x), y=torch.ones_like(raw.y))
    assert fgl.predict(Last(), Last().state_dict(), cut(constant, scaled=True)).isfinite().all()


def test_white_noise_cannot_be_forecast() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 900, 1, generator=generator, dtype=torch.float64)
    edges = torch.randint(12, (2, 40), generator=generator)
    graph = cut(fgl.Graph(x, edges, y=x[:, :, 0]), scaled=True)
    target = fgl.targets.REGRESSION
    task = fgl.tasks.node_task(None, [graph], seeded(), training(200, epochs=20), target=target)
    scores = fgl.run(task.fedavg, task, num_rounds=5, seed=0).history[-1].metrics
    assert max(scores["test_r2"], *(scores[f"test_r2@{ahead}"] for ahead in AHEAD)) < 0.01
    assert scores["test_rmse"] > 0.97


def test_a_whole_series_is_scored_and_told_of_times_that_train() -> None:
    whole = cut(series())
    clients = fgl.data.partitions.partition_graph(whole, [torch.arange(4), torch.arange(4, 9)])
    task = fgl.tasks.node_task(whole, clients, seeded(), training(), target=FORECAST)
    result = fgl.run(task.fedavg, task, num_rounds=1)
    model, rows = seeded(), whole.test_mask
    model.load_state_dict(states_of(result))
    seen = whole.x.transpose(0, 1)[whole.window_index[rows]]
    with torch.no_grad():
        out = model(seen, whole.edge_index, whole.edge_weight)
    errors = (out - whole.y.T[whole.horizon_index[rows]].transpose(1, 2)).abs().nanmean((0, 1))
    for ahead, error in zip(AHEAD, errors.tolist(), strict=True):
        assert result.history[0].metrics[f"test_mae@{ahead}"] == pytest.approx(error, rel=1e-9)
    last = clients[0].train_mask.nonzero()[-1]
    asked = clients[0].horizon_index.index_fill(0, last, 59)  # a target time of a test window
    with pytest.warns(UserWarning, match="got 1 in the test_mask of the whole graph"):
        leaking = [clients[0].replace(horizon_index=asked, val_mask=None, test_mask=None)]
        fgl.tasks.node_task(whole, leaking, seeded(), training(), target=FORECAST)


def test_only_times_travel_a_step_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    stacked: list[tuple[str, int]] = []
    own = fgl.federation.Cohort._stacked

    def counted(self: Any, name: str, values: Any, *, pad: bool) -> Any:
        stacked.append((name, sum(value.numel() for value in values if isinstance(value, Tensor))))
        return own(self, name, values, pad=pad)

    monkeypatch.setattr(fgl.federation.Cohort, "_stacked", counted)
    task = fgl.tasks.node_task(None, districts(), seeded(), training(epochs=3), target=FORECAST)
    fgl.run(task.fedavg, task, num_rounds=2, seed=0, clients_at_once=4)
    names = [name for name, _ in stacked]
    for name in ("x", "y", "scale", "node_mask"):
        assert names.count(name) <= 1, name
    assert names.count("window_index") > 10
    most = 4 * 7 * max(STEPS, len(AHEAD))
    assert max(size for name, size in stacked[names.index("node_mask") + 1 :]) <= most


def test_times_before_nodes_are_told_of() -> None:
    """Arrays of DCRNN's kind are [times, nodes, features]; as nodes, times would be forecast."""
    graph = series(nodes=20)
    edges = {"edge_index": graph.edge_index, "edge_weight": graph.edge_weight}
    turned = fgl.Graph(graph.x.transpose(0, 1), y=graph.y.T, **edges)
    with pytest.warns(UserWarning, match=r"got \[60, 20, 1\] without edges"):
        windows(turned, 2, horizons=[1])
    cut(series(nodes=70))  # more nodes than times, and edges of all


def test_tgcn_is_its_equations_node_by_node() -> None:
    model, graph = seeded(script("examples/tgcn.py").TGCN, 1, 5, 2), cut(series(nodes=4))
    x, w = graph.x[:, :STEPS], dict(model.named_parameters())
    edges = list(zip(*graph.edge_index.tolist(), graph.edge_weight.tolist(), strict=True))
    out = model(x.transpose(0, 1)[None], graph.edge_index, graph.edge_weight)[0]

    def linear(name: str, *parts: Tensor) -> Tensor:
        return w[f"{name}.weight"] @ torch.cat(parts) + w[f"{name}.bias"]

    for node in range(4):
        own, h = [(u, weight) for u, v, weight in edges if v == node], torch.zeros(5).double()
        for t in range(STEPS):
            total = x[node, t] + sum(weight * x[u, t] for u, weight in own)
            mean = total / (1 + sum(weight for _, weight in own))
            seen = linear("conv", x[node, t], mean).relu()
            u, r = linear("gates", seen, h).sigmoid().split(5)
            h = u * h + (1 - u) * linear("new", seen, r * h).tanh()
        torch.testing.assert_close(out[node], linear("out", h))


class Recurrent(Net):
    """Torch's own GRU, which has no rule of vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(1, 3, batch_first=True)
        self.last = nn.Linear(3, len(AHEAD))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        rows = x.transpose(1, 2).flatten(0, 1)
        out: Tensor = self.last(self.gru(rows)[0][:, -1]).unflatten(0, (len(x), -1))
        return out + super().forward(x, edge_index, edge_weight)


def test_torchs_gru_trains_one_client_after_another_and_says_so() -> None:
    few = [own.select(own.train_mask.nonzero()[:4, 0]) for own in districts()[:3]]
    method = fgl.fedavg(seeded(Recurrent), train=training(), target=FORECAST)
    one = fgl.run(method, few, num_rounds=1, clients_at_once=1)
    with pytest.warns(UserWarning, match="gru"):
        two = fgl.run(method, few, num_rounds=1)
    assert "gru" in two.history[0].one_by_one
    assert all(torch.equal(states_of(one)[n], own) for n, own in states_of(two).items())
    with pytest.raises(RuntimeError, match=r"gru.*clients_at_once=1"):
        fgl.run(method, few, num_rounds=1, clients_at_once=3)


def test_clients_weigh_by_their_known_answers() -> None:
    for graph in districts():
        count = 0
        for row in graph.train_mask.nonzero().flatten().tolist():
            asks = graph.y[:, graph.horizon_index[row]]
            count += int((~asks.isnan()).any(1).sum())
        assert graph.num_train == count
        assert graph.replace(y=None).num_train == int(graph.train_mask.sum()) * graph.num_nodes
    task = fgl.tasks.node_task(None, districts(), seeded(), training(), target=FORECAST)
    assert task.fedavg.rules.max_examples == max(
        graph.num_examples * graph.num_nodes for graph in districts()
    )


def forecast_of(*clients: fgl.Graph) -> Any:
    return fgl.tasks.node_task(None, clients, seeded(), training(), target=FORECAST)


NONE = dict.fromkeys(("window_index", "horizon_index", "train_mask", "val_mask", "test_mask"))
REFUSALS: list[tuple[Any, str]] = [
    (lambda g: fgl.Graph.join([g, g]), "join"),
    (lambda g: g.append(torch.ones(1, 60, 1), g.edge_index[:, :0]), "append"),
    (lambda g: windows(g.replace(x=torch.ones(9, 2), y=None, **NONE), 4), "graph to be a series"),
    (lambda g: fgl.sampler.NeighbourSampler(g, [2]), "NeighbourSampler"),
    (lambda g: next(fgl.federation.node_minibatches(g, {})), "node_minibatches"),
    (lambda g: fgl.data.splits.random_split(g), "windows"),
    (lambda g: fgl.data.normalize_features(g), "normalize_features"),
    (lambda g: fgl.data.lose_features(g, 0.5), "lose_features"),
    (lambda g: fgl.data.lose_labels(g, 0.5), "lose_labels"),
    (lambda g: fgl.data.neighbour_sums(g, [torch.arange(4)], hops=1), "neighbour_sums"),
    (lambda g: fgl.data.splits.fold_clients(g, [torch.arange(9)], fold=0), "fold_clients"),
    (lambda g: fgl.data.splits.pair_split(g), "window_index or edge_label_index"),
    (lambda g: next(window_minibatches(series(), {})), "to have windows"),
    (lambda g: g.replace(horizon_index=None), "window_index and horizon_index together"),
    (lambda g: g.replace(horizon_index=g.window_index), "horizon_index to be later"),
    (lambda g: g.replace(horizon_index=g.horizon_index + 60), r"horizon_index to be in \[0, 60\)"),
    (lambda g: g.replace(window_index=g.window_index[:, :0]), "window_index to have a time"),
    (lambda g: g.replace(y=g.y[:, :9]), r"y to be float \[9, 60\]"),
    (lambda g: g.replace(x=g.x[:, :, 0]), "x to be a series"),
    (lambda g: g.replace(batch=torch.zeros(9).long()), "window_index or batch"),
    (lambda g: g.replace(scale=torch.ones(9, 3)), "scale to have 4 columns"),
    (lambda g: g.replace(train_mask=torch.ones(9).bool()), "train_mask"),
    (lambda g: g.train_labels, "examples to be nodes"), (lambda g: windows(g, 0), "steps"),
    (lambda g: windows(g, 4, stride=0), "stride"),
    (lambda g: windows(g, 4, horizons=()), "horizons"),
    (lambda g: windows(g, 4, horizons=(0,)), r"horizons .* \(0,\)"),
    (lambda g: windows(g, 4, shares=(0.5, 0.5)), "shares"),
    (lambda g: windows(g, 4, shares=(0.5, 0.2, 0.2)), "shares"),
    (lambda g: windows(g, 4, shares=(float("nan"), 0.5, 0.5)), "shares"),
    (lambda g: windows(g, 4, horizons=(3, 3)), "horizons to be distinct"),
    (lambda g: windows(g.replace(edge_time=g.edge_index[0] + 59)), "edge_time .*60"),
    (lambda g: cut(g.replace(y=g.y * torch.nan), scaled=True), "y to be known"),
    (lambda g: forecast_of(g, windows(g, STEPS, horizons=(1, 2))), r"horizons .*\(1, 2\)"),
    (lambda g: forecast_of(g, cut(g, scaled=True)), "scaled"),
    (lambda g: windows(g, 50), "train_mask to have a window"),
    (lambda g: windows(g.replace(y=None, scale=None), 4), "graph to be a series"),
    (lambda g: fgl.predict(fgl.nn.GCN(1, 4, 2), fgl.nn.GCN(1, 4, 2).state_dict(), g), "GCN"),
]  # fmt: skip


def test_what_would_lose_or_reveal_times_is_refused() -> None:
    graph = cut(series())
    for refused, message in REFUSALS:
        with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
            refused(graph)
    with pytest.raises(ValueError, match="whole to have windows"):
        fgl.tasks.node_task(series(), [graph], seeded(), training(), target=FORECAST)
    flat = seeded()
    flat.forward = lambda x, edge_index: x[:, 0]  # type: ignore[method-assign, assignment]
    method = fgl.fedavg(flat, train=training(), target=FORECAST)
    with pytest.raises(ValueError, match=r"model to give \[7, 9, 2\], .* but got \[7, 9, 1\]"):
        fgl.run(method, [graph], num_rounds=1)


def test_fgls_own_networks_are_refused_on_windows() -> None:
    graph = cut(series())
    graph = graph.replace(x=graph.x.float(), y=graph.y.float(), edge_weight=None)
    for kind in ("GCN", "GAT", "SAGE", "GIN"):
        model = getattr(fgl.nn, kind)(1, 4, 2)
        method = fgl.fedavg(model, train=training(), target=FORECAST)
        with pytest.raises((ValueError, TypeError, RuntimeError), match=kind):
            fgl.run(method, [graph], num_rounds=1)


def test_edges_of_later_times_are_for_models_that_know_time() -> None:
    graph = cut(series()).replace(edge_weight=None)
    timed = graph.replace(edge_time=torch.arange(graph.num_edges) % 60)
    with pytest.raises(ValueError, match="Net's forward to read edge_time"):
        fgl.predict(seeded(), seeded().state_dict(), timed)


def test_datasets_are_what_their_files_say() -> None:
    raw = json.loads((data_folder("chickenpox") / "chickenpox.json").read_text())
    graph = fgl.data.load("chickenpox")
    assert graph.x.shape == (20, 521, 1) and graph.num_edges == 102
    assert graph.y is not None and torch.equal(graph.x[:, :, 0], graph.y)
    assert torch.allclose(graph.y.T, torch.tensor(raw["FX"]))
    assert graph.edge_index.T.tolist() == raw["edges"]

    raw = json.loads((data_folder("england_covid") / "england_covid.json").read_text())
    graph, moves = fgl.data.load("england_covid"), raw["edge_mapping"]
    assert graph.y is not None and graph.y.T.tolist() == raw["y"]
    assert graph.num_edges == 82_529
    for day in (0, 17, 60):
        own = graph.edge_time == day
        assert graph.edge_index[:, own].T.tolist() == moves["edge_index"][str(day)]
        assert graph.edge_weight is not None
        assert graph.edge_weight[own].tolist() == moves["edge_weight"][str(day)]


@pytest.mark.slow
def test_the_generated_traffic_has_the_sizes_of_metr_la() -> None:
    roads: Any = fgl.data.load("metr-la-like")
    assert roads.x.shape == (207, 34_272, 2) and roads.y.shape == (207, 34_272)
    known = ~roads.y.isnan()
    assert known.double().mean() == pytest.approx(11 / 12, abs=0.01)
    assert torch.equal(roads.x[..., 0][known], roads.y[known])
    assert roads.y[known].min() >= 1 and roads.y[known].mean() == pytest.approx(54, abs=10)
    cut_ = windows(roads, 12)
    assert len(cut_.window_index) == 34_272 - 23 - 2 * 9  # windows across a bound are left out


def test_the_forecast_reads_the_edges_of_each_time() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 30, 1, generator=generator)
    edges, times = torch.randint(4, (2, 50), generator=generator), torch.arange(50) % 30
    graph = fgl.Graph(x, edges, y=x[:, :, 0], edge_time=times)
    graph = windows(graph, 3, horizons=(1,))
    torch.manual_seed(0)
    model = Forecaster(1, 5, steps=3, num_horizons=1)
    means = torch.zeros(graph.num_examples, 3, 4)
    for w, row in enumerate(graph.window_index.tolist()):
        for step, time in enumerate(row):
            for node in range(4):
                sources = edges[0, (edges[1] == node) & (times == time)]
                if len(sources):
                    means[w, step, node] = x[sources, time, 0].mean()
    own = x[:, graph.window_index, 0].permute(1, 2, 0)
    both = torch.stack([own, means], 3).transpose(1, 2).flatten(2)
    want = model.outer(model.inner(both).relu())
    got = fgl.predict(model, model.state_dict(), graph)
    assert torch.allclose(got, want, atol=1e-6)
    later = graph.replace(edge_time=torch.where(times > 20, 29 - times % 2, times))
    seen = (graph.window_index.amax(1) <= 20).nonzero().squeeze(1)
    one, two = (fgl.predict(model, model.state_dict(), g.select(seen)) for g in (graph, later))
    assert torch.equal(one, two)


def test_settings_of_the_forecast_are_checked() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"skew": fgl.data.partitions.Skew(unseen=1)}, "unseen"),
        ({"damage": fgl.data.Damage(missing_labels=0.5)}, "damage"),
        ({"dropout": 0.5}, "dropout"),
        ({"horizons": (0,)}, "horizons"),
    ]
    for options, name in wrong:
        with pytest.raises(ValueError, match=name):
            fgl.tasks.Forecast(**options).load(seed=0)
