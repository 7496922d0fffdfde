"""The memory that a run is said to need, beside what torch's profiler counts in it."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import weakref
from functools import partial
from typing import Any

import pytest
import torch
from conformance import TASKS
from federations import ruled
from speed.predict.live_bytes import LiveBytes
from speed.predict.memory import estimate
from torch.profiler import ProfilerActivity, profile

import fgl
from fgl.aggregate.robust import TooManyBad, krum
from fgl.federation import Training, node_minibatches
from fgl.transforms import robust

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


def test_a_share_of_the_clients_is_within_a_fifth_of_the_peak() -> None:
    members = clients(30, 20)
    promised = estimate(LARGE, members, clients_at_once=1, participation=0.1).round
    peak = measured(
        lambda: fgl.run(LARGE, members, num_rounds=2, clients_at_once=1, participation=0.1)
    )
    assert 0.8 * peak <= promised <= 1.2 * peak
    assert estimate(LARGE, members, clients_at_once=1).round > 2 * promised


@pytest.mark.parametrize("at_once", [1, 4])
def test_clients_of_unequal_size_are_within_a_fifth_of_the_peak(at_once: int) -> None:
    """The nodes of a batch are padded to its largest."""
    members = [*clients(10, 200), *clients(1, 30_000)]
    promised = estimate(GCN, members, clients_at_once=at_once).round
    peak = measured(lambda: fgl.run(GCN, members, num_rounds=2, clients_at_once=at_once))
    assert 0.8 * peak <= promised <= 1.2 * peak


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


def test_those_who_have_not_taken_part_are_scored_all_the_same() -> None:
    made = TASKS["ego"](0.5, torch.float32)
    assert estimate(made.fedavg, made).evaluate > 0


def test_links_take_their_edges_from_the_graph() -> None:
    task = fgl.tasks.Links(clients=3, partition="random", hidden=8).load(seed=0)
    graph = task.clients[0]
    batches: Any = task.fedavg.train.batches
    (_, context), *_ = batches(graph.replace(), {})
    split = fgl.data.edge_split(fgl.data.load("synthetic"))
    assert torch.equal(fgl.data.splits.edges.each_once(split.graph.edge_index), split.train_edges)
    assert torch.equal(
        context["edges"].values, graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]].t()
    )


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


def test_a_rule_for_all_clients_is_tried_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four bad ones of ten are none that eight clients withstand."""
    monkeypatch.setattr(importlib.import_module("speed.predict.memory"), "UPLOADS", 8)
    method = robust(GCN, partial(krum, bad=4))
    assert estimate(method, clients(10, 20)).aggregate > 0
    with pytest.raises(TooManyBad, match="half of the 8 clients, but got 4"):
        estimate(method, clients(8, 20))


@pytest.mark.parametrize("task", ["sampled", "ego"])
def test_copies_do_not_stay_with_a_task(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was drawn from them is let go of when the clients themselves are drawn from."""
    module, copies = importlib.import_module("speed.predict.memory"), []
    fresh = module.fresh

    def noted(graph: fgl.Graph) -> fgl.Graph:
        made: fgl.Graph = fresh(graph)
        copies.append(weakref.ref(made))
        return made

    monkeypatch.setattr(module, "fresh", noted)
    made = TASKS[task](0.5, torch.float32)
    estimate(made.fedavg, made)
    for own in made.clients:
        next(iter(made.fedavg.train.batches(own, {})))  # type: ignore[misc]
    gc.collect()
    assert copies
    assert not any(each() for each in copies)


def test_scoring_may_be_what_needs_most() -> None:
    made, whole = clients(3, 20), fgl.data.split(random_graph(20_000, 9), "random")
    scored = estimate(GCN, made, evaluate=fgl.evaluate_on(GCN, whole, [whole] * 3))
    assert scored.evaluate > 20_000 * 32 * 4
    assert scored.round > 10 * estimate(GCN, made).round


def test_fewer_at_once_fit() -> None:
    made = estimate(GCN, clients(8), clients_at_once="all")
    assert made.fitting(10 * made.round) == 8
    assert made.fitting(made.at(4).round) == 4
    assert made.fitting(1) is None


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
        estimate(ruled(GCN, exchange=4), clients(2))
