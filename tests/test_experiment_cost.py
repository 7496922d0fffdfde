"""The model of cost: what a run counts, and its time, without a clock."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from speed.predict.calibrate import COUNTS, _process, calibrate, flower_line, line
from speed.predict.cost import Cost, Rates, cost
from speed.predict.memory import estimate

import fgl
from fgl import Training
from fgl.federation import num_bytes

pytestmark = pytest.mark.slow

ADAM = Training(partial(torch.optim.Adam, lr=0.01), num_steps=3)
GCN = fgl.fedavg(fgl.nn.GCN(20, 8, 4), train=ADAM)
STILL = partial(calibrate, modules=(), clock=lambda: 0.0)
RATES = Rates(
    clients_at_once=1,
    start=0.5,
    train=(1.0, 0.01, 0.001),
    down=100,
    up=120,
    data=(0.0, 80.0, 16.0),
    step=(1000.0, 200.0, 8.0),
    step_more=(0.0, 0.0, 0.0),
    kept=(0.0, 8.0, 12.0),
    message=120,
    state=0,
    sent=(100.0, 0.0),
    aggregate=(50.0, 120.0),
    process=10_000,
    flower=(4.0, 0.1),
)
SIZES: dict[str, Any] = {"clients": 10, "nodes": 1000, "edges": 10_000}


def graph(num_nodes: int, degree: int = 4, seed: int = 0) -> fgl.Graph:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(num_nodes, (2, degree * num_nodes), generator=generator)
    x = torch.randn(num_nodes, 20, generator=generator)
    return fgl.Graph(x, edges, y=torch.randint(4, (num_nodes,), generator=generator), num_classes=4)


def sizes(clients: list[fgl.Graph]) -> dict[str, int]:
    nodes, edges = (sum(getattr(g, name) for g in clients) for name in ("num_nodes", "num_edges"))
    return {"clients": len(clients), "nodes": nodes, "edges": edges}


@pytest.mark.parametrize(
    ("method", "participation"),
    [(GCN, 1.0), (GCN, 0.4), (fgl.methods.scaffold(GCN, server_lr=1.0), 1.0)],
    ids=["fedavg", "a share", "scaffold"],
)
def test_bytes_are_those_that_a_run_counts(method: fgl.Method, participation: float) -> None:
    clients = [graph(30 + 10 * seed, seed=seed) for seed in range(7)]
    last = fgl.run(method, clients, num_rounds=2, participation=participation).history[-1]
    made = cost(STILL(method, clients[0]), **sizes(clients), participation=participation)
    assert (made.bytes_down, made.bytes_up) == (last.bytes_down, last.bytes_up)
    assert made.bytes == last.bytes_down + last.bytes_up


def test_time_is_measured_by_clients_nodes_and_edges() -> None:
    """A clock that goes on by 1 + n / 2 + m / 4 for each local step, and by nothing else."""
    now = [0.0]

    def loss(params: Any, graph: fgl.Graph, context: Any) -> torch.Tensor:
        now[0] += 1 + graph.num_nodes / 2 + graph.num_edges / 4
        return GCN.loss(params, graph, context)

    method = replace(GCN, loss=loss)
    rates = calibrate(method, graph(40), modules=(), clock=lambda: now[0])
    assert rates.train == pytest.approx((3, 1.5, 0.75))  # of three steps
    assert rates.start == pytest.approx(0, abs=1e-9)
    clients = [graph(100, degree=6, seed=seed) for seed in range(5)]
    fgl.run(method, clients, num_rounds=1, clients_at_once=1)
    stamp = now[0]
    fgl.run(method, clients, num_rounds=1, clients_at_once=1)
    assert cost(rates, **sizes(clients)).seconds == pytest.approx(now[0] - stamp)


def test_the_parts_of_the_time() -> None:
    """A client trains 1 + 100 / 100 + 1,000 / 1,000 = 3 seconds, and Flower takes 4 + 22."""
    here = cost(RATES, **SIZES, cores=4)
    assert (here.training, here.flower, here.sending) == pytest.approx((30.5, 0, 0))
    simulated = cost(RATES, **SIZES, place="simulated", cores=4, bandwidth=1.0)
    assert (simulated.training, simulated.flower) == pytest.approx((9.5, 78))  # three waves
    assert simulated.sending == 0
    deployed = cost(RATES, **SIZES, place="deployed", cores=100, bandwidth=1100.0)
    assert (deployed.training, deployed.flower) == pytest.approx((3.5, 26))
    assert deployed.sending == pytest.approx(2)  # 10 clients of 220 bytes
    assert deployed.seconds == pytest.approx(31.5)
    half = cost(RATES, **SIZES, participation=0.5)
    assert half.training == pytest.approx(15.5)


def test_the_parts_of_the_memory() -> None:
    """A graph has 24,000 bytes, its operators 12,800; a step takes 29,000 and a message 120."""
    own = 10_000 + 24_000 + 12_800 + 29_000 + 120
    server = 10_000 + 100 + 2 * 10 * 120 + 1250
    deployed = cost(RATES, **SIZES, place="deployed", cores=100)
    assert (deployed.memory, deployed.client_memory) == (server, own)
    simulated = cost(RATES, **SIZES, place="simulated", cores=4)
    assert (simulated.memory, simulated.client_memory) == (server + 4 * own, own)
    here = cost(RATES, **SIZES)
    training = 100 + 9 * 120 + 29_000 + 120
    assert here.memory == 10_000 + 10 * (24_000 + 12_800) + training


@pytest.mark.parametrize("at_once", [1, 3])
def test_memory_is_that_of_an_estimate(at_once: int) -> None:
    """Of clients that are larger than the one that it was calibrated on."""
    clients = [graph(3000, degree=7, seed=seed) for seed in range(6)]
    rates = STILL(GCN, graph(1000), clients_at_once=at_once)
    made = cost(rates, **sizes(clients))
    held = 6 * (3000 * (20 * 4 + 8) + 21_000 * 16)
    known = estimate(GCN, clients, clients_at_once=at_once).round
    assert made.memory - held == pytest.approx(known, rel=0.05)


def test_collections_of_graphs_have_rates_too() -> None:
    method = fgl.fedavg(fgl.nn.GIN(20, 8, 2), train=ADAM)
    some = fgl.Graph.join([graph(10, seed=k) for k in range(12)], torch.arange(12) % 2)
    rates = replace(STILL(method, some), data=(0.0, 0.0, 0.0))
    assert rates.down == num_bytes({"model": method.common()})
    known = estimate(method, [some] * 4, clients_at_once=1).round
    assert cost(rates, **sizes([some] * 4)).memory == pytest.approx(known, rel=0.1)


def test_a_process_has_a_size_and_a_client_is_not_changed() -> None:
    client = graph(20)
    before = dict(vars(client))
    state = torch.get_rng_state()
    rates = calibrate(GCN, client, modules=("json",), clock=lambda: 0.0)
    assert 10**6 < rates.process < 10**9
    assert vars(client).keys() == before.keys()
    assert torch.equal(state, torch.get_rng_state())


def test_lines_have_no_negative_part() -> None:
    assert line([(1, 1), (1, 2)], [3, 2])[1] == 0
    assert line([(1, 1), (1, 2)], [0, 0]) == (0, 0)
    assert flower_line([(4, 1000, 20.0)]) == (5, 0)
    rounds = [(k, size, k * (0.1 + 2e-8 * size)) for k in (5, 50) for size in (10**6, 10**8)]
    assert flower_line(rounds) == pytest.approx((0.1, 2e-8))


def test_the_client_itself_counts_most() -> None:
    """It does not fit a cache: a quarter of it takes a tenth of the time, and no line says so."""
    rows = [(1, 100), (1, 50), (1, 25), (3, 75)]
    values = [10.0, 5.0, 1.0, 3.0]
    lines = [line(rows, values, counts) for counts in ((1.0,), COUNTS)]
    apart = [abs(start + 100 * more - 10) / 10 for start, more in lines]
    assert apart[0] > 0.3
    assert apart[1] < 0.01


def test_it_prints() -> None:
    text = str(cost(RATES, **SIZES, place="deployed", cores=10, bandwidth=1100.0))
    assert text.startswith("deployed: 31.5 s a round (training 3.5, Flower 26, sending 2), 2.2 kB")
    assert text.endswith("13.8 kB for the server, 75.9 kB for a client")
    assert isinstance(cost(RATES, **SIZES), Cost)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"clients": 0}, "clients"),
        ({"nodes": -1}, "nodes"),
        ({"cores": 0}, "cores"),
        ({"bandwidth": 0.0}, "bandwidth"),
        ({"place": "elsewhere"}, "place"),
        ({"participation": 1.5}, "participation"),
    ],
)
def test_what_is_out_of_range_is_named(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"Expected {words} to be"):
        cost(RATES, **{**SIZES, **more})


def test_simulated_clients_come_in_waves_and_deployed_ones_share_the_cores() -> None:
    """On four cores ten clients of 3 + 26 seconds need three waves, and eight need two."""
    for clients, waves in ((10, 3), (8, 2), (4, 1), (3, 1)):
        counts = {"clients": clients, "nodes": 100 * clients, "edges": 1000 * clients, "cores": 4}
        simulated = cost(RATES, **counts, place="simulated")
        assert simulated.seconds == pytest.approx(0.5 + waves * 29)
        deployed = cost(RATES, **counts, place="deployed")
        assert deployed.seconds == pytest.approx(0.5 + max(clients / 4, 1) * 29)


@pytest.mark.parametrize("modules", ["fgl", (1,)])
def test_modules_are_names(modules: Any) -> None:
    with pytest.raises(TypeError, match="Expected modules to be a sequence of names, but got"):
        calibrate(GCN, graph(20), modules=modules)


def test_a_process_imports_nothing_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    (tmp_path / "only_here.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert _process(("json",)) > 10**6
    with pytest.raises(RuntimeError, match="No module named 'only_here'"):
        _process(("only_here",))


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        ([], "rounds to be at least one"),
        ([(0, 0, 1.0)], "participants to be an integer >= 1"),
        ([(4, 0, 1.0), (0, 0, 1.0)], "participants to be an integer >= 1"),
        ([(4, -1, 1.0)], "bytes to be a number >= 0"),
        ([(4, 10, -1.0)], "seconds to be a number >= 0"),
        ([(4, 10, float("nan"))], "seconds to be a number >= 0"),
    ],
)
def test_rounds_of_flower_that_cannot_be_are_refused(rounds: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"Expected {words}, but got"):
        flower_line(rounds)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"clients_at_once": 0}, "clients_at_once to be an integer >= 1"),
        ({"start": -0.5}, "start to be a number >= 0"),
        ({"up": float("nan")}, "up to be a number >= 0"),
        ({"train": (1.0, float("nan"), 0.0)}, "train to be a number >= 0"),
        ({"data": (0.0, 1.0)}, "data to be 3 numbers"),
        ({"sent": (0.0, 1.0, 2.0)}, "sent to be 2 numbers"),
        ({"flower": (4.0, -0.1)}, "flower to be a number >= 0"),
    ],
)
def test_rates_that_cannot_be_are_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"Expected {words}, but got"):
        replace(RATES, **more)


def test_a_client_that_shows_no_line_is_said() -> None:
    """A clock that stands still, and one node, of which no part is smaller."""
    with pytest.warns(UserWarning, match="a client of 40 nodes and 160 edges is too small"):
        rates = STILL(GCN, graph(40))
    assert rates.train[1:] == (0, 0)
    with pytest.warns(UserWarning, match="a client of 1 nodes and 4 edges is too small"):
        calibrate(GCN, graph(1), modules=())
