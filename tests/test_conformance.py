"""The conformance table: every method is a row and keeps every promise of the house."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import (
    METHODS,
    SGD,
    VIEWS,
    by_hand,
    close,
    end,
    graphs,
    model,
    same,
    without_training_nodes,
)

import fgl
from fgl.federation import Inbox, Method, fold_in, num_bytes, train

Build = Callable[..., Method]
rows = pytest.mark.parametrize("build", METHODS.values(), ids=METHODS)


def contents(data: fgl.Graph) -> list[Any]:
    return [data.x, data.edge_index, data.y, data.train_mask, data.adj.to_dense()]


@rows
def test_pure(build: Build) -> None:
    """The same call twice gives the same; inputs, states, messages, model and graph stay."""
    net, data = model(), graphs()[2]
    method = build(net)
    message: Any = {"model": {k: v + 0.1 for k, v in method.initial().items()}}
    state: Any = {"kept": torch.ones(2)}
    params, context = method.receive(message, state, data)
    trained = {name: value + 0.01 for name, value in params.items()}
    sent = [{"model": trained, "num_examples": torch.tensor(n)} for n in (3, 5)]
    # A server state of this method: what it keeps after a round.
    server = method.aggregate(Inbox(dict(enumerate(sent)), 3), copy.deepcopy(message))[1]
    inbox = Inbox(dict(enumerate(sent)), 3)

    def loss() -> Any:
        torch.manual_seed(5)
        leaves = {name: p.clone().requires_grad_() for name, p in trained.items()}
        value = method.loss(leaves, data, context)
        return value.detach(), torch.autograd.grad(value, list(leaves.values()))

    def aggregate() -> Any:
        outbox, kept = method.aggregate(inbox, server)
        return dict(outbox), kept

    calls = [
        lambda: method.receive(message, state, data),
        loss,
        lambda: train(method, params, data, context, seed=3),
        lambda: method.send(trained, context, state, data),
        aggregate,
    ]
    given = (message, state, params, context, trained, sent, server)
    inputs = (*given, contents(data), dict(net.state_dict()))
    before = copy.deepcopy(inputs)
    for call in calls:
        result = call()
        first = copy.deepcopy(result)
        assert same(call(), first)
        assert same(result, first)
        assert same((*given, contents(data), dict(net.state_dict())), before)
    assert all(p.grad is None for p in net.parameters())


@rows
def test_order_in_which_clients_are_served(build: Build) -> None:
    """Any order gives the run, bit for bit: with dropout, augmentation and absent clients."""
    clients = graphs()

    def absent(index: int, client: int) -> bool:
        return (index, client) in ((0, 1), (2, 3))

    result = fgl.run(build(model()), clients, num_rounds=3, seed=4, dropouts=absent)
    for order in ([3, 1, 0, 2], [2, 0, 3, 1]):
        want = by_hand(build(model()), clients, num_rounds=3, seed=4, order=order, absent=absent)
        assert same(dict(result.outbox), want.outbox)
        assert same(dict(result.server_state), dict(want.server_state))
        states = dict(sorted(want.client_states.items()))
        assert same(dict(sorted(result.client_states.items())), states)


@rows
def test_names_of_the_clients(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without randomness, who is called client 0 does not matter."""
    for view in VIEWS:
        monkeypatch.setitem(VIEWS, view, lambda x, adj: (x, adj))
    clients, order = graphs(), [2, 0, 3, 1]
    first = fgl.run(build(model(dropout=0.0)), clients, num_rounds=2)
    renamed = [clients[client] for client in order]
    second = fgl.run(build(model(dropout=0.0)), renamed, num_rounds=2)
    for new, old in enumerate(order):
        close(second.outbox[new], first.outbox[old], atol=2e-5)


@rows
def test_resume_is_no_interruption(build: Build, tmp_path: Path) -> None:
    clients = graphs()
    options: Any = {"seed": 2, "participation": 0.75, "dropouts": 0.2}
    method = build(model())
    options["evaluate"] = fgl.evaluate_on(method, clients[2], clients)
    want = end(fgl.run(method, clients, num_rounds=4, **options))
    assert any(record["dropped"] for record in want["history"])
    for last in (1, 3):
        fgl.run(build(model()), clients, num_rounds=last, checkpoint=tmp_path, **options)
    torch.manual_seed(last)
    got = fgl.run(build(model()), clients, num_rounds=4, checkpoint=tmp_path, **options)
    assert same(end(got), want)


@rows
def test_bytes_are_counted(build: Build) -> None:
    clients = graphs()
    method = build(model())
    size = sum(4 * tensor.numel() for tensor in method.model.state_dict().values())
    assert size == num_bytes(method.initial())
    dropouts = {(0, 1), (1, 0), (1, 2)}
    result = fgl.run(
        method, clients, num_rounds=3, dropouts=lambda index, client: (index, client) in dropouts
    )
    for index, record in enumerate(result.history):
        arrived = 4 - sum(drop[0] == index for drop in dropouts)
        assert record.bytes_down == 4 * size
        assert record.bytes_up == arrived * (size + 8)
    few = fgl.run(build(model()), clients, num_rounds=2, participation=0.5)
    assert [(r.bytes_down, r.bytes_up) for r in few.history] == [(2 * size, 2 * (size + 8))] * 2


@rows
def test_dropped_out_client_is_as_good_as_absent(build: Build) -> None:
    clients = graphs()

    def gone(index: int, client: int) -> bool:
        return client == 1 or (index, client) == (1, 3)

    result = fgl.run(build(model()), clients, num_rounds=3, dropouts=gone)
    want = by_hand(build(model()), clients, num_rounds=3, absent=gone)
    assert same(dict(result.outbox), want.outbox)
    assert 1 not in result.client_states
    assert [sorted(r.dropped) for r in result.history] == [[1], [1, 3], [1]]
    assert sum(r.bytes_down for r in result.history) == want.history[0].bytes_down
    assert sum(r.bytes_up for r in result.history) == want.history[0].bytes_up


def diverging(method: Method, *bad: fgl.Graph, from_call: int = 0) -> Method:
    """The method with a loss that is NaN on some graphs, from some call on."""
    calls = dict.fromkeys(map(id, bad), 0)

    def loss(params: Any, data: fgl.Graph, context: Any) -> torch.Tensor:
        value = method.loss(params, data, context)
        if id(data) not in calls:
            return value
        calls[id(data)] += 1
        return value * float("nan") if calls[id(data)] > from_call else value

    return replace(method, loss=loss)


@rows
def test_diverging_client_is_dropped_counted_and_warned_of(build: Build) -> None:
    clients = graphs()
    method = diverging(build(model()), clients[2], from_call=SGD.num_steps)  # from round 1 on
    with pytest.warns(UserWarning, match="Round 1, client 2: model/.* is not finite"):
        result = fgl.run(method, clients, num_rounds=2)
    assert result.history[0].dropped == {}
    assert list(result.history[1].dropped) == [2]
    assert re.fullmatch(r"model/\S+ is not finite", result.history[1].dropped[2])
    want = by_hand(
        build(model()),
        clients,
        num_rounds=2,
        absent=lambda index, client: (index, client) == (1, 2),
    )
    assert same(dict(result.outbox), want.outbox)
    assert same(dict(result.server_state), dict(want.server_state))
    assert torch.isfinite(torch.tensor(result.history[1].loss))
    up, down = result.history[1].bytes_up, result.history[1].bytes_down
    assert up - down == 4 * 8  # it did cross the wire


@rows
def test_all_diverging_keeps_the_old_model(build: Build) -> None:
    clients = graphs()
    method = diverging(build(model()), *clients, from_call=SGD.num_steps)
    with pytest.warns(UserWarning, match="is not finite"):
        result = fgl.run(method, clients, num_rounds=3)
    want = by_hand(build(model()), clients, num_rounds=1)
    assert same(dict(result.outbox), want.outbox)
    assert same(dict(result.server_state), dict(want.server_state))
    assert [sorted(record.dropped) for record in result.history] == [[], [0, 1, 2, 3], [0, 1, 2, 3]]


@rows
def test_client_without_a_training_node_counts_for_nothing(build: Build) -> None:
    clients = graphs()
    result = fgl.run(build(model()), [*clients, without_training_nodes()], num_rounds=2)
    want = fgl.run(build(model()), clients, num_rounds=2)
    assert [record.zero_weight for record in result.history] == [[4]] * 2
    assert all(record.participants == [0, 1, 2, 3, 4] for record in result.history)
    assert all(record.dropped == {} for record in result.history)
    assert [r.loss for r in result.history] == [r.loss for r in want.history]
    for client in range(4):
        close(result.outbox[client], want.outbox[client])


@rows
def test_seeds_and_participation(build: Build) -> None:
    def go(seed: int) -> dict[str, Any]:
        return end(fgl.run(build(model()), graphs(), num_rounds=2, seed=seed, participation=0.5))

    first = go(1)
    assert same(go(1), first)
    assert not same(go(2)["outbox"], first["outbox"])
    assert all(len(record["participants"]) == 2 for record in first["history"])


@rows
@pytest.mark.parametrize("kind", [fgl.nn.GCN, fgl.nn.GAT], ids=["gcn", "gat"])
def test_loss_runs_under_vmap(build: Build, kind: Any) -> None:
    """K models at once on one graph: losses and gradients are those of the loop."""
    method = build(model(kind, dropout=0.0))
    net, data = method.model, graphs()[2]
    _, context = method.receive({"model": method.initial()}, {}, data)
    torch.manual_seed(1)
    several = [{k: v + 0.1 * torch.randn_like(v) for k, v in method.initial().items()}] * 2
    several.append(method.initial())
    stack = {k: torch.stack([p[k] for p in several]).requires_grad_() for k in several[0]}

    def loss(params: Any) -> torch.Tensor:
        return method.loss(params, data, context)

    net.train()
    torch.manual_seed(9)  # all of them draw the same augmentation, as each of the loop does
    batch = torch.func.vmap(loss, randomness="same")(stack)
    gradients = torch.autograd.grad(batch.sum(), list(stack.values()))
    for index, params in enumerate(several):
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        torch.manual_seed(9)
        one = loss(leaves)
        close(batch[index], one, atol=1e-5)
        wanted = torch.autograd.grad(one, list(leaves.values()))
        for got, want in zip(gradients, wanted, strict=True):
            close(got[index], want, atol=1e-4)


@rows
def test_a_round_by_hand_uses_the_documented_seeds(build: Build) -> None:
    """``fold_in(seed, round, client)``: another process can compute a client's part alone."""
    clients = graphs()
    method = build(model())
    seen = {}

    def aggregate(inbox: Inbox, state: Any) -> Any:
        seen.update(copy.deepcopy(dict(inbox)))
        return method.aggregate(inbox, state)

    fgl.run(replace(method, aggregate=aggregate), clients, num_rounds=1, seed=8)
    first: Any = {"model": method.initial()}
    params, context = method.receive(first, {}, clients[3])
    params, *_ = train(method, params, clients[3], context, seed=fold_in(8, 0, 3))
    message, _ = method.send(params, context, {}, clients[3])
    assert same(message, seen[3])
