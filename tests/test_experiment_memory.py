"""The memory that a run is said to need, beside what torch's profiler counts in it."""

from __future__ import annotations

import dataclasses
import gc
import importlib
from functools import partial
from typing import Any

import pytest
import torch
from speed.predict.live_bytes import LiveBytes
from speed.predict.memory import estimate
from torch.profiler import ProfilerActivity, profile

import fgl
from fgl.federation import Training, node_minibatches

pytestmark = pytest.mark.slow

ADAM = Training(partial(torch.optim.Adam, lr=0.01), num_steps=3)


def random_graph(num_nodes: int, seed: int) -> fgl.Graph:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(num_nodes, (2, 4 * num_nodes), generator=generator)
    x = torch.randn(num_nodes, 50, generator=generator)
    return fgl.Graph(x, edges, y=torch.randint(4, (num_nodes,), generator=generator), num_classes=4)


def clients(count: int, num_nodes: int = 2000) -> list[fgl.Graph]:
    return [random_graph(num_nodes, seed) for seed in range(count)]


def collection(num_graphs: int, seed: int) -> fgl.Graph:
    each = [random_graph(20, seed * num_graphs + k) for k in range(num_graphs)]
    return fgl.Graph.join(each, torch.arange(num_graphs) % 2, num_classes=2)


def links() -> fgl.Method:
    model = fgl.nn.VGAE(50, 16, 8)

    def loss(params: Any, graph: Any, context: Any) -> torch.Tensor:
        z = torch.func.functional_call(model, params, (graph.x, graph.adj))
        pairs = torch.randint(graph.num_nodes, graph.edge_index.shape)
        return fgl.losses.sampled_reconstruction(z, graph.edge_index, pairs)

    return fgl.fedavg(model, loss=loss, train=ADAM)


def measured(run: Any) -> int:
    """The most bytes that torch's allocator held of what the run made."""
    gc.collect()  # what goes while it looks would count as given back
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    now = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


GCN = fgl.fedavg(fgl.nn.GCN(50, 32, 4, dropout=0.5), train=ADAM)
GRAPHS = fgl.fedavg(fgl.nn.GIN(50, 16, 2, dropout=0.5), train=ADAM)
LARGE = fgl.fedavg(fgl.nn.GCN(50, 3000, 4, dropout=0.5), train=ADAM)


@pytest.mark.parametrize(
    ("method", "made", "at_once"),
    [
        (GCN, clients(6), 1),
        (GCN, clients(6), "all"),
        (GCN, clients(8), 4),
        (fgl.methods.feddc(GCN), clients(6), "all"),
        (LARGE, clients(6, 20), 1),
        (LARGE, clients(6, 20), 3),
        (links(), clients(5), 1),
        (GRAPHS, [collection(60, seed) for seed in range(5)], 1),
        (GRAPHS, [collection(60, seed) for seed in range(5)], "all"),
    ],
)
def test_an_estimate_is_within_a_fifth_of_the_peak(method: Any, made: Any, at_once: Any) -> None:
    promised = estimate(method, made, clients_at_once=at_once).round
    again = [graph.replace() for graph in made]
    peak = measured(partial(fgl.run, method, again, num_rounds=2, clients_at_once=at_once))
    assert 0.8 * peak < promised < 1.2 * peak


def test_a_large_client_is_tried_on_nodes_from_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its training nodes may be the last ones, and its first part would train on none."""
    monkeypatch.setattr(importlib.import_module("speed.predict.memory"), "ENTRIES", 1000)
    batches = partial(node_minibatches, batch_size=256)
    method = fgl.fedavg(
        fgl.nn.GCN(50, 32, 4, dropout=0.5), train=Training(ADAM.optimizer, batches=batches)
    )
    last, order = torch.arange(2000) >= 1200, torch.randperm(2000)
    graphs = [random_graph(2000, 0).replace(train_mask=mask) for mask in (last, last[order])]
    late, spread = (estimate(method, [each] * 3, clients_at_once=1).step for each in graphs)
    assert late == pytest.approx(spread, rel=0.2)


def test_a_task_is_estimated_with_its_scores() -> None:
    """Links too, whose batches look at the graph that they are given: the estimate tries copies."""
    task = fgl.tasks.Links(clients=3, partition="random", hidden=8).load(seed=0)
    made = estimate(task.fedavg, task)
    assert made.clients == 3
    assert made.evaluate > 0
    alone = estimate(task.fedavg, task.clients)
    assert made == dataclasses.replace(alone, evaluate=made.evaluate)


def test_a_validation_inside_a_method_knows_a_copy() -> None:
    """FedVGAE asks in `receive` for a client's own validation, which is not in its graph."""
    task = fgl.tasks.Links(clients=3, partition="random", hidden=8).load(seed=0)
    graph, params = task.clients[1], task.fedavg.initial()
    assert task.validate(params, graph.replace()) == task.validate(params, graph)
    with pytest.raises(ValueError, match="Expected graph to be the graph of a split"):
        task.validate(params, graph.replace(edge_index=graph.edge_index[:, 1:]))


def test_a_loss_that_no_batch_takes_is_tried_alone() -> None:
    def loss(params: Any, graph: Any, context: Any) -> torch.Tensor:
        total: torch.Tensor = GCN.loss(params, graph, context)
        return total if total.detach() > 0 else -total  # a branch that vmap refuses

    method, made = dataclasses.replace(GCN, loss=loss), clients(4, 20)
    assert fgl.federation.choose(method, made).clients_at_once == 4
    assert estimate(method, made) == estimate(method, made, clients_at_once=1)
    with pytest.raises(RuntimeError, match=r"Expected the loss to run under torch\.func\.vmap"):
        estimate(method, made, clients_at_once=4)


def test_a_large_client_is_tried_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    made = clients(4)
    whole = estimate(GCN, made, clients_at_once=1)
    monkeypatch.setattr(importlib.import_module("speed.predict.memory"), "ENTRIES", 1000)
    part = estimate(GCN, made, clients_at_once=1)
    assert part.round != whole.round
    assert part.round == pytest.approx(whole.round, rel=0.1)


def test_an_estimate_leaves_graphs_and_randomness_as_they_are() -> None:
    made = [fgl.data.split(each, "random") for each in clients(3, 20)]
    before = torch.get_rng_state()
    estimate(GCN, made)
    assert not any("adj" in each.__dict__ for each in made)
    estimate(GCN, made, evaluate=fgl.evaluate_on(GCN, made[0], made))
    assert torch.equal(torch.get_rng_state(), before)


def test_live_bytes_count_memory_once_and_until_it_is_freed() -> None:
    with LiveBytes() as count:
        first = torch.zeros(100)
        view = first[:50]
        del first
        assert count.now == 400
        other = torch.ones(10, requires_grad=True) * 2
        other.sum().backward()
        del view
    assert count.now < 400 <= count.peak


def test_what_cannot_be_estimated_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected clients to be at least one graph, but got none"):
        estimate(GCN, [])
    with pytest.raises(TypeError, match="a sequence of graphs or a task, but got a Graph"):
        estimate(GCN, clients(1)[0])  # type: ignore[arg-type]
    for wrong in (0, 1.5, "half", True):
        with pytest.raises(ValueError, match="Expected clients_at_once to be 'all' or at least 1"):
            estimate(GCN, clients(2), clients_at_once=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rounds are alike, but got one with an exchange of 4"):
        estimate(dataclasses.replace(GCN, exchange=4), clients(2))
