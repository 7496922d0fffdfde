"""The model of cost: what a run counts, and its time, without a clock."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from speed.predict.calibrate import _process, calibrate, flower_line
from speed.predict.cost import Rates, cost
from speed.predict.memory import estimate

import fgl
from fgl.federation import Training, num_bytes

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
