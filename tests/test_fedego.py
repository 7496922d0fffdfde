"""FedEgo, end to end: every promise of a method, the server that trains, bytes, bad uploads."""

from __future__ import annotations

import copy
import math
import re
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from federations import by_hand, close, end, same, script
from fgl.federation.schedule import training_examples
from torch.func import functional_call

import fgl
from fgl.federation import (
    Inbox,
    Method,
    Training,
    fold_in,
    num_bytes,
    personal,
    recipe,
    train,
    trees,
)
from fgl.nn import EgoSAGE
from fgl.personalize import label_distribution, mixing_coefficient, split_layers

SMALL = fgl.data.csbm(num_nodes=260, num_features=20, words_per_set=5, seed=1)
DEFAULTS: dict[str, Any] = {
    "baseline": None,
    "mixup": True,
    "ego": True,
    "rl": True,
    "pl": True,
    "gamma": 0.5,
    "fixed_lambda": None,
    "own_labels": "train",
    "global_labels": "all",
    "eval_after_average": False,
    "noise": 0.0,
    "batch_size": 8,
    "steps": 2,
}
ADAM = Training(partial(torch.optim.Adam, lr=0.01), num_steps=2)
VARIANTS: dict[str, dict[str, Any]] = {
    "fedego": {},
    "noise, centres, all labels": {"noise": 0.1, "global_labels": "centres", "own_labels": "all"},
    "no mixup": {"mixup": False},
    "no ego": {"ego": False},
    "no rl": {"rl": False},
    "no pl": {"pl": False},
    "lambda 0.5": {"fixed_lambda": 0.5},
    "local": {"baseline": "local"},
    "fedavg": {"baseline": "fedavg"},
    "fedprox": {"baseline": "fedprox"},
    "dfedgnn": {"baseline": "dfedgnn"},
}
rows = pytest.mark.parametrize("name", VARIANTS)
some = pytest.mark.parametrize("name", ["fedego", "no ego", "fedprox", "dfedgnn", "local"])


def federation(num_clients: int = 4) -> tuple[fgl.Graph, list[fgl.Graph]]:
    return fgl.data.major_label_partition(SMALL, num_clients, share=0.4, num_test=15)


TEST, CLIENTS = federation()
FEATURES, CLASSES = SMALL.num_features, int(SMALL.num_classes or 0)


def build(
    name: str = "fedego",
    *,
    dropout: float = 0.0,
    dtype: torch.dtype = torch.float32,
    linear: bool = False,
    **options: Any,
) -> tuple[Method, Any]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = EgoSAGE(FEATURES, 8, CLASSES, fanouts=(3, 3), dropout=dropout, linear=linear)
    args = Namespace(**{**DEFAULTS, **VARIANTS[name], **options})
    return script("examples/fedego.py").fedego(net.to(dtype), ADAM, args)


def method(name: str = "fedego", **options: Any) -> Method:
    return build(name, **options)[0]


def double(graphs: list[fgl.Graph]) -> list[fgl.Graph]:
    return [g.replace(x=g.x.astype(torch.double)) for g in graphs]


@rows
def test_batch_is_the_loop(name: str) -> None:
    made = partial(method, name, dtype=torch.double)
    options: Any = {"num_rounds": 2, "seed": 1}
    one = fgl.run(made(), double(CLIENTS), **options)
    all_ = fgl.run(made(), double(CLIENTS), clients_at_once="all", **options)
    for client in range(4):
        close(all_.client_states[client]["model"], one.client_states[client]["model"], atol=1e-7)
        close(all_.outbox[client], one.outbox[client], atol=1e-7)


@some
def test_resume_is_no_interruption(name: str, tmp_path: Any) -> None:
    made, scored = build(name, dropout=0.5)
    options: Any = {"seed": 3, "participation": 0.75, "dropouts": 0.2}
    options["evaluate"] = personal.evaluate_personal(made.model, CLIENTS, TEST, scored)
    want = end(fgl.run(made, CLIENTS, num_rounds=4, **options))
    assert any(record["dropped"] for record in want["history"])
    fgl.run(method(name, dropout=0.5), CLIENTS, num_rounds=2, checkpoint=tmp_path, **options)
    torch.manual_seed(8)
    made = method(name, dropout=0.5)
    got = end(fgl.run(made, CLIENTS, num_rounds=4, checkpoint=tmp_path, **options))
    assert same(got, want)


@some
def test_seeds_decide_and_inputs_stay(name: str) -> None:
    made = method(name, dropout=0.5)
    before = copy.deepcopy((made.initial(), [g.x.to_dense() for g in CLIENTS]))
    first = end(fgl.run(made, CLIENTS, num_rounds=2, seed=1))
    assert same(end(fgl.run(made, CLIENTS, num_rounds=2, seed=1)), first)
    assert not same(end(fgl.run(made, CLIENTS, num_rounds=2, seed=2))["clients"], first["clients"])
    assert same((made.initial(), [g.x.to_dense() for g in CLIENTS]), before)
    assert all(p.grad is None for p in made.model.parameters())


@some
def test_pure_parts(name: str) -> None:
    """Every part twice on the same input gives the same, and leaves it as it was."""
    made = method(name, dropout=0.5)
    result = fgl.run(made, CLIENTS, num_rounds=2)
    message, state = result.outbox[2], result.client_states[2]
    graph = CLIENTS[2]
    params, context = made.receive(message, state, graph)
    sent = {}
    for client in range(3):
        torch.manual_seed(client)
        sent[client] = made.send(params, context, state, graph)[0]
    inbox, server = Inbox(sent, 4), result.server_state
    calls: list[Callable[[], Any]] = [
        lambda: made.receive(message, state, graph),
        lambda: made.send(params, context, state, graph),
        lambda: train(made, params, graph, context, seed=3, optimizer=state["optimizer"]),  # type: ignore[arg-type]
        lambda: [dict(part) for part in made.aggregate(inbox, server)],
    ]
    given = (message, state, params, context, sent, dict(server))
    before = copy.deepcopy(given)
    for call in calls:
        torch.manual_seed(5)
        first = copy.deepcopy(call())
        torch.manual_seed(5)
        assert same(call(), first)
        assert same(given, before)


@some
def test_absent_clients_and_their_order(name: str) -> None:
    made = method(name, noise=0.0)
    gone = {(1, 0), (2, 3)}

    def absent(index: int, client: int) -> bool:
        return (index, client) in gone

    result = fgl.run(made, CLIENTS, num_rounds=3, dropouts=absent)
    assert [sorted(r.dropped) for r in result.history] == [[], [0], [3]]
    assert all(math.isfinite(r.loss) for r in result.history)
    order = [2, 0, 3, 1]  # the server does not mind in which order messages arrive
    sent = {k: made.send(*made.receive(result.outbox[k], s, CLIENTS[k]), s, CLIENTS[k])[0]
            for k, s in result.client_states.items()}  # fmt: skip
    torch.manual_seed(1)
    first = made.aggregate(Inbox(sent, 4), result.server_state)
    torch.manual_seed(1)
    second = made.aggregate(Inbox({k: sent[k] for k in order}, 4), result.server_state)
    assert same([dict(part) for part in first], [dict(part) for part in second])


def test_a_round_by_hand_uses_the_documented_seeds() -> None:
    made, seen = method(dropout=0.5), {}

    def aggregate(inbox: Inbox, state: Any) -> Any:
        seen.update(copy.deepcopy(dict(inbox)))
        return made.aggregate(inbox, state)

    fgl.run(replace(made, aggregate=aggregate), CLIENTS, num_rounds=1, seed=8)
    torch.manual_seed(fold_in(8, 0, 3, "receive"))
    params, context = made.receive({"model": made.initial()}, {}, CLIENTS[3])
    trained = train(made, params, CLIENTS[3], context, seed=fold_in(8, 0, 3))
    torch.manual_seed(fold_in(8, 0, 3, "send"))
    message, _ = made.send(trained.params, context, {}, CLIENTS[3])
    assert same(message, seen[3])


def test_clients_start_apart_and_share_only_the_reduction() -> None:
    made = method()
    starts = []

    def receive(message: Any, state: Any, graph: fgl.Graph) -> Any:
        params, context = made.receive(message, state, graph)
        starts.append(params)
        return params, context

    result = fgl.run(replace(made, receive=receive), CLIENTS, num_rounds=2)
    names = list(starts[0])
    assert not any(same(starts[0][k], starts[1][k]) for k in names)
    assert not same(starts[0], made.initial())
    first, second = starts[4:6]
    for key in names:
        assert same(first[key], second[key]) == key.startswith("reduction")
    assert [k for k in result.outbox[0]["model"]] == ["reduction.weight", "reduction.bias"]


def test_mixing_follows_the_label_distributions() -> None:
    made, scored = build(gamma=0.7)
    result = fgl.run(made, CLIENTS, num_rounds=2)
    for client, graph in enumerate(CLIENTS):
        message: Any = result.outbox[client]
        own: Any = result.client_states[client]["model"]
        p = label_distribution(graph.y, CLASSES, graph.train_mask)
        weight = float(mixing_coefficient(p, message["distribution"], gamma=0.7))
        assert 0 < weight < 1
        got = made.receive(message, result.client_states[client], graph)[0]
        for key, value in own.items():
            if key.startswith("reduction"):
                assert same(got[key], message["model"][key])
                assert same(scored(own, message, graph)[key], value)  # not yet averaged
            else:
                want = weight * message["head"][key] + (1 - weight) * value
                close(got[key], want)
                close(scored(own, message, graph)[key], want)


@pytest.mark.parametrize(("options", "weight"), [
    ({"fixed_lambda": 0.0}, 0.0), ({"fixed_lambda": 1.0}, 1.0), ({"pl": False}, 1.0),
])  # fmt: skip
def test_fixed_mixing(options: Any, weight: float) -> None:
    made = method(**options)
    result = fgl.run(made, CLIENTS, num_rounds=1)
    message: Any = result.outbox[1]
    got = made.receive(message, result.client_states[1], CLIENTS[1])[0]
    for key, value in split_layers(got, ["reduction"])[1].items():
        source: Any = message["head"] if weight else result.client_states[1]["model"]
        assert same(value, source[key])


def test_lambda_0_is_training_with_a_shared_reduction_alone() -> None:
    """With lambda 0 what the server trains reaches nobody."""
    first = fgl.run(method(fixed_lambda=0.0), CLIENTS, num_rounds=3)
    made = method(fixed_lambda=0.0, ego=False)
    second = fgl.run(made, CLIENTS, num_rounds=3)
    close(first.outbox[0]["model"], second.outbox[0]["model"], atol=1e-6)


def test_the_server_averages_the_reduction_and_the_labels() -> None:
    made, seen = method(), []

    def aggregate(inbox: Inbox, state: Any) -> Any:
        seen.append(copy.deepcopy(dict(inbox)))
        return made.aggregate(inbox, state)

    result = fgl.run(replace(made, aggregate=aggregate), CLIENTS, num_rounds=2)
    message: Any = result.outbox[0]
    for key, value in message["model"].items():
        close(value, sum(m["model"][key] for m in seen[-1].values()) / 4)  # unweighted
    labels = torch.cat([m["labels"] for m in seen[-1].values()])
    close(message["distribution"], labels.flatten(0, 1).mean(0))
    for client, graph in enumerate(CLIENTS):
        count = -(-graph.num_train // 8)
        assert seen[-1][client]["embeddings"].shape == (count, 13, 8)
        assert seen[-1][client]["labels"].shape == (count, 13, CLASSES)
        centres = seen[-1][client]["labels"][:, 0]
        sizes = [8] * (graph.num_train // 8) + [graph.num_train % 8] * (
            count > graph.num_train // 8
        )
        total = sum(size * row for size, row in zip(sizes, centres, strict=True))
        close(total, graph.y[graph.train_mask].bincount(minlength=CLASSES).float(), atol=1e-4)


def test_options_of_the_label_distributions_and_of_scoring() -> None:
    made, scored = build(global_labels="centres", own_labels="all", eval_after_average=True)
    seen: dict[int, Any] = {}

    def aggregate(inbox: Inbox, state: Any) -> Any:
        seen.update(dict(inbox))
        return made.aggregate(inbox, state)

    result = fgl.run(replace(made, aggregate=aggregate), CLIENTS, num_rounds=1)
    message: Any = result.outbox[1]
    centres = torch.cat([m["labels"][:, 0] for m in seen.values()])
    close(message["distribution"], centres.mean(0))
    own: Any = result.client_states[1]["model"]
    got = scored(own, message, CLIENTS[1])
    assert same(got, made.receive(message, result.client_states[1], CLIENTS[1])[0])
    assert same(got["reduction.bias"], message["model"]["reduction.bias"])
    p = label_distribution(CLIENTS[1].y, CLASSES)
    weight = float(mixing_coefficient(p, message["distribution"]))
    key = "head.weight"
    close(got[key], weight * message["head"][key] + (1 - weight) * own[key])


def test_without_mixup_the_first_ego_graph_of_a_batch_goes_out() -> None:
    made = method("no mixup")
    params, context = made.receive({"model": made.initial()}, {}, CLIENTS[0])
    message: Any = made.send(params, context, {}, CLIENTS[0])[0]
    r = functional_call(made.model, params, (CLIENTS[0].x,), {"reduce": True})
    centres = training_examples(CLIENTS[0])[::8]
    close(message["embeddings"][:, 0], r[centres].detach())
    assert message["labels"].sum(2).eq(1).all() and set(message["labels"].unique().tolist()) == {
        0,
        1,
    }


def test_the_server_keeps_its_head_and_its_adam() -> None:
    made = method()
    result = fgl.run(made, CLIENTS, num_rounds=1)
    state: Any = result.server_state
    assert same(dict(result.outbox[0]["head"]), state["head"])
    assert int(state["optimizer"]["step/head.weight"]) == 2  # an epoch has one batch of G // 5
    more: Any = fgl.run(made, CLIENTS, num_rounds=3).server_state
    assert int(more["optimizer"]["step/head.weight"]) == 6
    first = split_layers(made.initial(), ["reduction"])[1]
    for key, value in first.items():  # from its own initial model, a little further every round
        assert (
            0
            < float((state["head"][key] - value).norm())
            < float((more["head"][key] - value).norm())
        )


def test_the_servers_training_is_adam_on_the_centres_by_hand() -> None:
    net = EgoSAGE(4, 8, 3, fanouts=(2, 2), dropout=0.0)
    params = split_layers(net.state_dict(), ["reduction"])[1]
    params = {key: value.clone() for key, value in params.items()}
    x, y = torch.randn(4, 7, 8), torch.rand(4, 3).softmax(1)
    before = copy.deepcopy(params)
    torch.manual_seed(3)
    state: Any = {}
    got = params
    for _ in range(2):
        got, state = trees.train_on_trees(
            net, got, x, y, optimizer=partial(torch.optim.Adam, lr=0.1), state=state, epochs=2
        )
    assert same(params, before)
    torch.manual_seed(3)
    leaves = {key: value.clone().requires_grad_() for key, value in params.items()}
    adam = torch.optim.Adam(list(leaves.values()), lr=0.1)
    for _ in range(4):
        chosen = torch.randperm(4)[:1]
        seen = fgl.ego.resample(x[chosen], fanouts=(2, 2))
        adam.zero_grad()
        p = functional_call(net.eval(), leaves, (seen,)).softmax(1)
        (-(y[chosen] * (p + 1e-7).log()).sum(1).mean()).backward()
        adam.step()
    close(got, {key: leaf.detach() for key, leaf in leaves.items()}, atol=1e-5)


def test_the_server_drops_units_while_it_trains() -> None:
    net = EgoSAGE(4, 8, 3, fanouts=(2,), dropout=1.0).eval()
    params = split_layers(net.state_dict(), ["reduction"])[1]
    x, y = torch.randn(5, 3, 8), torch.rand(5, 3).softmax(1)
    got, _ = trees.train_on_trees(net, params, x, y, optimizer=torch.optim.Adam, state={})
    assert same(got, params)  # nothing is left after the SAGE layers, so nothing is learnt
    assert not net.training


def test_the_server_learns_the_labels_of_the_centres(monkeypatch: pytest.MonkeyPatch) -> None:
    made, seen, given = method(), {}, {}
    train_on_trees = trees.train_on_trees

    def watch(model: Any, params: Any, x: Any, labels: Any, **how: Any) -> Any:
        given.update(how, x=x, labels=labels, params=params)
        return train_on_trees(model, params, x, labels, **how)

    def aggregate(inbox: Inbox, state: Any) -> Any:
        seen.update(dict(inbox))
        return made.aggregate(inbox, state)

    monkeypatch.setattr(trees, "train_on_trees", watch)
    fgl.run(replace(made, aggregate=aggregate), CLIENTS, num_rounds=1)
    assert same(given["x"], torch.cat([m["embeddings"] for m in seen.values()]))
    assert same(given["labels"], torch.cat([m["labels"][:, 0] for m in seen.values()]))
    assert same(given["params"], split_layers(made.initial(), ["reduction"])[1])
    assert given["epochs"] == 2 and given["batch_size"] == 8


def test_without_egos_heads_and_label_distributions_are_averaged() -> None:
    made, seen = method("no ego"), {}

    def aggregate(inbox: Inbox, state: Any) -> Any:
        seen.update(dict(inbox))
        return made.aggregate(inbox, state)

    result = fgl.run(replace(made, aggregate=aggregate), CLIENTS, num_rounds=1)
    message: Any = result.outbox[0]
    shares = [label_distribution(g.y, CLASSES, g.train_mask) for g in CLIENTS]
    close(message["distribution"], sum(shares) / 4)
    for key, value in message["head"].items():
        close(value, sum(m["head"][key] for m in seen.values()) / 4)


def test_noise_is_on_the_embeddings_alone() -> None:
    graph = CLIENTS[0]
    sampler, r = fgl.ego.EgoSampler(graph, (3, 3)), torch.randn(graph.num_nodes, 200)
    made = []
    for noise in (0.0, 0.3):
        torch.manual_seed(0)
        made.append(trees.upload_trees(sampler, graph, r, batch_size=8, noise=noise))
    moved: Any = made[1]["embeddings"] - made[0]["embeddings"]  # type: ignore[operator]
    assert abs(float(moved.std()) - 0.3) < 0.01 and abs(float(moved.mean())) < 0.01
    assert same(made[0]["labels"], made[1]["labels"])


def gradient(made: Method, params: Any, context: Any) -> dict[str, torch.Tensor]:
    leaves = {k: v.clone().requires_grad_() for k, v in params.items()}
    loss = made.loss(leaves, CLIENTS[0], context)
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def test_fedprox_has_a_real_gradient() -> None:
    """Switching mu on adds mu times the gradient of the distance, and nothing else."""
    made, plain = method("fedprox"), method("fedavg")
    params = {key: value + 0.1 for key, value in made.initial().items()}
    torch.manual_seed(0)
    step = next(iter(trees.ego_steps(fgl.ego.EgoSampler(CLIENTS[0], (3, 3)), CLIENTS[0], epochs=1,
                                     batch_size=8)))[1]  # fmt: skip
    context = {"received": made.initial(), **step}
    base = gradient(plain, params, context)
    for mu in (0.0, 5.0, 20.0):
        got = gradient(made, params, {**context, "mu": torch.tensor(mu)})
        for key, value in params.items():
            moved = value - context["received"][key]
            term = mu * moved / moved.norm() / moved.numel()
            close(got[key] - base[key], term, atol=1e-6)
    at_start = gradient(made, made.initial(), {**context, "mu": torch.tensor(1.0)})
    close(at_start, gradient(plain, made.initial(), context))


def test_fedprox_adapts_its_weight() -> None:
    table = {  # mu, loss, penalty -> the next mu
        (1.0, 6.0, 1.0): 10.0,
        (10.0, 60.0, 1.0): 10.0,
        (1.0, 4.0, 1.0): 1.0,
        (1.0, 0.4, 1.0): 0.1,
        (1e-5, 0.0, 1.0): 1e-5,
    }
    for given, want in table.items():
        assert float(personal.adapted(*map(torch.tensor, given))) == pytest.approx(want)
    for step, loss in ((0.1, 0.0), (10.0, 1e9)):  # from one end of the range to the other
        mu, seen = torch.tensor(1e-5 if step > 1 else 1.0), []
        for _ in range(9):
            mu = personal.adapted(mu, torch.tensor(loss), torch.tensor(1.0))
            seen.append(float(mu))
        ends = [0.1, 0.01, 1e-3, 1e-4] + 5 * [1e-5]
        want = ends if step < 1 else [1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 10.0, 10.0, 10.0]
        assert seen == pytest.approx(want)
    result = fgl.run(method("fedprox"), CLIENTS, num_rounds=3)
    assert all(0 < float(state["mu"]) <= 10 for state in result.client_states.values())  # type: ignore[arg-type]


def test_fedproxs_weight_follows_the_training_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    made, given, graph = method("fedprox"), [], CLIENTS[0]
    monkeypatch.setattr(personal, "adapted", lambda mu, *of: given.append(of) or mu)
    start = made.initial()
    params = {key: value + 0.1 for key, value in start.items()}
    made.send(params, {"received": start, "mu": torch.tensor(1.0)}, {}, graph)
    ((loss, penalty),) = given
    p = functional_call(made.model, params, (graph.x, graph.adj)).softmax(1)
    p = p[graph.train_mask, graph.y[graph.train_mask]]
    close(loss, -(p + 1e-7).log().mean().detach())
    close(penalty, sum((0.1 * torch.ones(v.shape)).norm() / v.numel() for v in start.values()))


def test_the_loss_leaves_padded_centres_out() -> None:
    made = method()
    params = made.initial()
    step = next(iter(trees.ego_steps(fgl.ego.EgoSampler(CLIENTS[0], (3, 3)), CLIENTS[0], epochs=1,
                                     batch_size=8)))[1]  # fmt: skip
    padded = {
        **step,
        "trees": torch.cat([step["trees"], torch.zeros(3, 13, dtype=torch.int64)]),  # type: ignore[list-item]
        "labels": torch.cat([step["labels"], torch.zeros(3, CLASSES)]),  # type: ignore[list-item]
    }
    close(made.loss(params, CLIENTS[0], padded), made.loss(params, CLIENTS[0], step))


def test_local_steps_are_those_of_the_paper() -> None:
    graph = CLIENTS[0]
    sampler = fgl.ego.EgoSampler(graph, (3, 3))
    steps = [context for _, context in trees.ego_steps(sampler, graph, epochs=5, batch_size=8)]
    per_epoch = min(graph.num_nodes // 5, graph.num_train)
    assert len(steps) == 5 * -(-per_epoch // 8)
    x = graph.x.to_dense()
    training = set(training_examples(graph).tolist())
    found = []
    for context in steps:
        rows: Any = context["x"]
        features = rows.to_dense()[context["trees"][:, 0]]  # type: ignore[index]
        labels = context["labels"].argmax(1)  # type: ignore[union-attr]
        for row, label in zip(features, labels, strict=True):
            same_row = (x == row).all(1) & (graph.y == label)
            candidates = set(same_row.nonzero().flatten().tolist())
            assert candidates & training
            found.append(frozenset(candidates))
        assert rows.shape[0] == len(set(context["trees"].flatten().tolist()))  # type: ignore[union-attr]
    assert len(found) == 5 * per_epoch
    assert len(set(found[:per_epoch])) > 0.9 * per_epoch  # without replacement within an epoch
    assert len(set(found)) > 1.5 * per_epoch  # and another fifth in the next one


@pytest.mark.parametrize(("features", "classes", "reduction", "whole"), [
    (1433, 7, 2801, 6819), (3703, 6, 7234, None),
])  # fmt: skip
def test_parameter_traffic_is_that_of_the_paper(
    features: int, classes: int, reduction: int, whole: int | None
) -> None:
    """The paper's Table 7, in MB: five clients, 200 rounds, one way."""
    params = EgoSAGE(features, 512, classes).state_dict()
    shared = split_layers(params, ["reduction"])[0]
    sent = num_bytes({"model": shared}) * 5 * 200 / 2**20
    assert abs(sent / reduction - 1) < 0.01
    if whole:
        assert abs(num_bytes({"model": params}) * 5 * 200 / 2**20 / whole - 1) < 0.01


@rows
def test_bytes_are_counted(name: str) -> None:
    made = method(name)
    result = fgl.run(made, CLIENTS, num_rounds=2)
    initial = made.initial()
    reduction, head = (num_bytes({"model": part}) for part in split_layers(initial, ["reduction"]))
    batches = sum(-(-g.num_train // 8) for g in CLIENTS)
    egos = batches * 13 * (8 + CLASSES) * 4
    up = {
        "no rl": egos,
        "no ego": 4 * (reduction + head + 4 * CLASSES),
        "local": 0,
        **dict.fromkeys(("fedavg", "fedprox", "dfedgnn"), 4 * (reduction + head)),
    }.get(name, 4 * reduction + egos)
    down = {
        "local": reduction + head,
        "no rl": 8 + head + 4 * CLASSES,
        **dict.fromkeys(("fedavg", "fedprox", "dfedgnn"), 8 + reduction + head),
    }.get(name, 8 + reduction + head + 4 * CLASSES)
    assert [r.bytes_up for r in result.history] == [up, up]
    assert [r.bytes_down for r in result.history] == [4 * (reduction + head), 4 * down]


def test_baselines_are_what_they_say() -> None:
    result = {name: fgl.run(method(name), CLIENTS, num_rounds=2) for name in
              ("local", "fedavg", "dfedgnn")}  # fmt: skip
    states: Any = result["fedavg"].client_states
    for key, value in result["fedavg"].outbox[0]["model"].items():
        close(value, sum(states[k]["model"][key] for k in range(4)) / 4)
    ring: Any = result["dfedgnn"]
    for client in range(4):
        for key, value in ring.outbox[client]["model"].items():
            near = [(client - 1) % 4, client, (client + 1) % 4]
            close(value, sum(ring.client_states[k]["model"][key] for k in near) / 3)
    alone = fgl.run(method("local"), CLIENTS[:1], num_rounds=2)
    assert same(alone.client_states[0]["model"], result["local"].client_states[0]["model"])
    by_itself = by_hand(method("fedavg"), CLIENTS, num_rounds=1)
    assert set(by_itself.client_states) == {0, 1, 2, 3}


def test_scores_are_of_every_clients_own_model() -> None:
    made, scored = build(dropout=0.5)
    evaluate = personal.evaluate_personal(made.model, CLIENTS, TEST, scored)
    result = fgl.run(made, CLIENTS, num_rounds=2, evaluate=evaluate)
    metrics = result.history[-1].metrics
    made.model.eval()
    chosen, losses = [], []
    for client, graph in enumerate(CLIENTS):
        own = scored(result.client_states[client]["model"], result.outbox[client], graph)
        with torch.no_grad():
            logits = functional_call(made.model, own, (graph.x, graph.adj))
            here = logits.argmax(1) == graph.y
            there = functional_call(made.model, own, (TEST.x, TEST.adj)).argmax(1) == TEST.y
        assert metrics[f"local_f1/{client}"] == float(here[graph.test_mask].double().mean())
        assert metrics[f"global_f1/{client}"] == float(there.double().mean())
        chosen.append(float(here[graph.val_mask].double().mean()))
        p = logits.softmax(1)[graph.val_mask, graph.y[graph.val_mask]]
        losses.append(float(-(p + 1e-7).log().mean()))
    assert metrics["val_f1"] == pytest.approx(sum(chosen) / 4)  # never by the test nodes
    assert metrics["val_loss"] == pytest.approx(sum(losses) / 4, rel=1e-5)
    for name in ("local_f1", "global_f1"):
        mean = sum(metrics[f"{name}/{k}"] for k in range(4)) / 4
        assert metrics[name] == pytest.approx(mean)
    assert evaluate(result.outbox, {1: result.client_states[1]})["local_f1"] == pytest.approx(
        metrics["local_f1/1"]
    )
    assert evaluate(result.outbox, {}) == {}


def test_evaluation_needs_labels_and_masks() -> None:
    net = method().model
    bare = CLIENTS[0].replace(val_mask=None)
    with pytest.raises(ValueError, match="client 1 to have val_mask, but got none"):
        personal.evaluate_personal(net, [CLIENTS[0], bare], TEST, lambda p, m, g: p)
    with pytest.raises(ValueError, match="test graph to have nodes with labels"):
        personal.evaluate_personal(net, CLIENTS, TEST.replace(y=None), lambda p, m, g: p)


def spoil(made: Method, change: Any) -> Method:
    def send(params: Any, context: Any, state: Any, data: fgl.Graph) -> Any:
        message, state = made.send(params, context, state, data)
        return (change(message) if data is CLIENTS[2] else message), state

    return replace(made, send=send)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m | {"embeddings": m["embeddings"][:, :-1]}, "embeddings to have shape .*13, 8"),
        (lambda m: m | {"embeddings": m["embeddings"][..., :-1]}, "embeddings to have shape"),
        (lambda m: m | {"labels": m["labels"][:-1]}, r"labels to have shape \[\d+, 13, 7\]"),
        (lambda m: m | {"labels": m["labels"].argmax(2)}, "labels to be a float tensor"),
        (lambda m: m | {"labels": m["labels"] * 1.1}, "labels to have rows that sum to 1"),
        (lambda m: m | {"labels": m["labels"][..., :1]}, "labels to have shape"),
        (lambda m: m | {"embeddings": m["embeddings"] * math.nan}, "embeddings is not finite"),
        (lambda m: m | {"embeddings": m["embeddings"].double()}, "embeddings to be torch.float32"),
        (lambda m: m | {"labels": m["labels"].half()}, "labels to be torch.float32"),
        (lambda m: m | {"embeddings": m["embeddings"] + 3e38}, "to be of finite length"),
    ],
)
def test_a_bad_upload_is_refused_and_the_round_goes_on(change: Any, message: str) -> None:
    refused(method(), change, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda m: m | {"head": {k: v.double() for k, v in m["head"].items()}},
            r"head\[.*\] to be torch.float32, but got torch.float64",
        ),
        (lambda m: m | {"distribution": m["distribution"] * 5}, r"distribution to be 7 shares"),
        (lambda m: m | {"distribution": -m["distribution"]}, "shares that sum to 1"),
        (lambda m: m | {"distribution": m["distribution"][:3]}, "7 shares that sum to 1"),
        (
            lambda m: m | {"head": {k: v[:1] for k, v in m["head"].items()}},
            r"Expected head\['convs.0.lin_l.weight'\] to have shape \[8, 8\], but got \[1, 8\]",
        ),
    ],
)
def test_a_bad_head_or_distribution_is_refused(change: Any, message: str) -> None:
    refused(method("no ego"), change, message)


def test_a_head_that_is_a_tensor() -> None:
    upload = {"model": {}, "head": torch.ones(7), "distribution": torch.full((7,), 1 / 7)}
    with pytest.raises(TypeError, match="Expected head to be a dict of tensors, but got Tensor"):
        method("no ego").accept(upload)


def test_a_first_client_without_ego_graphs_is_told_so() -> None:
    made = method()
    with pytest.raises(ValueError, match=r"message to have 'labels', but got keys \['model'"):
        upload = {"model": {}, "embeddings": torch.zeros(1, 13, 8)}
        made.accept(upload)


def refused(made: Method, change: Any, message: str) -> None:
    with pytest.warns(UserWarning, match="Round 0, client 2: "):
        result = fgl.run(spoil(made, change), CLIENTS, num_rounds=1)
    assert list(result.history[0].dropped) == [2]
    assert re.search(message, result.history[0].dropped[2])
    assert int(result.outbox[0]["num_clients"]) == 3


def test_a_client_of_fewer_than_five_nodes_trains() -> None:
    tiny = CLIENTS[0].subgraph(torch.arange(3))
    steps = [c for _, c in trees.ego_steps(fgl.ego.EgoSampler(tiny), tiny, epochs=2, batch_size=1)]
    assert [len(c["labels"]) for c in steps] == [1, 1]


@pytest.mark.parametrize("batch_size", [0, 1000])
def test_a_batch_larger_than_the_client(batch_size: int) -> None:
    most = CLIENTS[0].num_train
    text = rf"Round 0, client 0, receive: Expected batch_size to be in \[1, {most}\].*{batch_size}"
    with pytest.raises(ValueError, match=text):
        fgl.run(method(batch_size=batch_size), CLIENTS, num_rounds=1)


SMALL_FLAGS = [
    *("--rounds", "2", "--hidden", "8", "--clients", "2", "--fanouts", "2", "2", "--steps", "1"),
]


@pytest.mark.parametrize(
    "flags",
    [[], ["--baseline", "fedprox"], ["--linear", "--no-mixup"], ["--fixed-lambda", "0.5"]],
    ids=" ".join,
)
def test_recipe(flags: list[str]) -> None:
    report, result = script("examples/fedego.py").main([*SMALL_FLAGS, *flags])
    for name in ("local_f1", "global_f1"):
        values = report["metrics"][name]
        assert list(values) == ["last", "best_val", "best_test"]
        each = [max(r.metrics[f"{name}/{k}"] for r in result.history) for k in range(2)]
        assert values["best_test"] == pytest.approx(sum(each) / 2)
        assert values["last"] == result.history[-1].metrics[name]
    best = max(result.history, key=lambda r: (r.metrics["val_f1"], -r.metrics["val_loss"]))
    assert report["metrics"]["local_f1"]["best_val"] == best.metrics["local_f1"]


def test_recipe_selects_on_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    how: dict[str, Any] = {}
    monkeypatch.setattr(recipe, "run_recipe", lambda *args, **options: how.update(options))
    script("examples/fedego.py").main(SMALL_FLAGS)
    assert how["select"] == "val_f1"


def test_recipe_where_some_clients_start_late() -> None:
    flags = [*SMALL_FLAGS, "--rounds", "6", "--clients", "3", "--participation", "0.4"]
    report, result = script("examples/fedego.py").main(flags)
    seen = [[r.metrics.get(f"local_f1/{k}") for r in result.history] for k in range(3)]
    assert any(scores[0] is None and scores[-1] is not None for scores in seen)
    best = [max(s for s in scores if s is not None) for scores in seen if any(scores)]
    assert report["metrics"]["local_f1"]["best_test"] == pytest.approx(sum(best) / len(best))


def test_defaults_are_the_papers() -> None:
    config = script("examples/fedego.py").main(["--rounds", "0"])[0]["config"]
    assert (
        config
        | {
            **{"hidden": 512, "optimizer": "adam", "lr": 3e-4, "weight_decay": 0.0, "steps": 5},
            **{"dropout": 0.5, "gamma": 0.5, "fanouts": [6, 6], "batch_size": 32, "noise": 0.0},
            **{"share": 0.5, "major_rate": 0.8, "num_test": 200, "linear": False, "mixup": True},
            **{"own_labels": "train", "global_labels": "all", "eval_after_average": False},
        }
        == config
    )


def test_baselines_train_without_dropout_unless_told() -> None:
    found: dict[Any, Any] = {}
    for flags in (("--baseline", "fedavg"), ()):
        for rate in ((), ("--dropout", "0"), ("--dropout", "0.5")):
            report, result = script("examples/fedego.py").main([*SMALL_FLAGS, *flags, *rate])
            found[flags, rate] = result.client_states[0]["model"]
            said = float(rate[1]) if rate else 0.0 if flags else 0.5
            assert report["config"]["dropout"] == said  # what was trained with, not what was asked
        same_as = ("--dropout", "0" if flags else "0.5")
        assert same(found[flags, ()], found[flags, same_as])
        assert not same(found[flags, ("--dropout", "0")], found[flags, ("--dropout", "0.5")])


def test_the_best_round_is_one_where_most_clients_have_a_model() -> None:
    flags = ["--clients", "5", "--num-test", "50", "--participation", "0.2", "--share", "0.3"]
    report, result = script("examples/fedego.py").main([*SMALL_FLAGS, *flags, "--rounds", "6"])
    counts = [record.metrics["scored_clients"] for record in result.history]
    joined = [{k for r in result.history[: i + 1] for k in r.participants} for i in range(6)]
    assert counts == [len(who) for who in joined] and counts[0] == 1 < counts[-1]
    most = [r.metrics for r in result.history if r.metrics["scored_clients"] == counts[-1]]
    best = max(most, key=lambda metrics: metrics["val_f1"])
    assert report["metrics"]["val_f1"]["best_val"] == best["val_f1"]
    assert report["metrics"]["global_f1"]["best_val"] == best["global_f1"]
    assert report["metrics"]["scored_clients"]["last"] == counts[-1]


@pytest.mark.parametrize("mixup", [True, False])
@pytest.mark.parametrize("extra", [-1, 1])
def test_embeddings_of_another_graph_are_refused(mixup: bool, extra: int) -> None:
    graph, sampler = CLIENTS[0], fgl.ego.EgoSampler(CLIENTS[0], (3, 3))
    r = torch.zeros(graph.num_nodes + extra, 8)
    text = f"embeddings to have {graph.num_nodes} rows, one per node, but got {len(r)}"
    with pytest.raises(ValueError, match=text):
        trees.upload_trees(sampler, graph, r, batch_size=8, mixup=mixup)


def test_methods_share_their_split() -> None:
    seen = []
    for flags in ([], ["--baseline", "fedavg"]):
        report, _ = script("examples/fedego.py").main(
            [*SMALL_FLAGS, *flags, "--rounds", "1", "--seed", "3"]
        )
        seen.append(report)
    first, second = (
        fgl.data.major_label_partition(fgl.data.load("synthetic"), 2, seed=3) for _ in range(2)
    )
    assert same(first[0].node_id, second[0].node_id)
    assert seen[0]["config"]["baseline"] is None and seen[1]["config"]["baseline"] == "fedavg"


@pytest.mark.parametrize("flags", [["--fanouts", "6", "0"], ["--fanouts", "-1"]])
def test_recipe_refuses_fanouts(flags: list[str]) -> None:
    with pytest.raises(ValueError, match="fanouts to be at least 1"):
        script("examples/fedego.py").main([*SMALL_FLAGS, *flags])


def test_the_parts_of_a_round_refuse() -> None:
    data, sampler = CLIENTS[0], fgl.ego.EgoSampler(CLIENTS[0], (2,))
    r = torch.rand(data.num_nodes, 8)
    for size in (0, -1, 10_000):
        message = rf"batch_size to be in \[1, {data.num_train}\].* but got {size}"
        with pytest.raises(ValueError, match=message):
            list(trees.ego_steps(sampler, data, epochs=1, batch_size=size))
        for mixup in (True, False):
            with pytest.raises(ValueError, match=message):
                trees.upload_trees(sampler, data, r, batch_size=size, mixup=mixup)
    for noise in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="noise to be at least 0, but got"):
            trees.upload_trees(sampler, data, r, batch_size=8, noise=noise)
    model = EgoSAGE(4, 8, 2, fanouts=(2,))
    head = split_layers(model.state_dict(), ["reduction"])[1]
    how: Any = {"optimizer": torch.optim.Adam, "state": {}}
    for count, rows in ((10, 25), (10, 9), (0, 0)):
        with pytest.raises(ValueError, match=rf"as many graphs, .*but got {count} and {rows}"):
            trees.train_on_trees(model, head, torch.zeros(count, 3, 8), torch.ones(rows, 2), **how)
    with pytest.raises(ValueError, match="test graph to have nodes with labels"):
        empty = TEST.subgraph(torch.zeros(0, dtype=torch.int64))
        personal.evaluate_personal(model, CLIENTS, empty, lambda p, m, g: p)


def test_the_server_sees_a_fifth_of_the_trees_an_epoch() -> None:
    model = EgoSAGE(4, 8, 2, fanouts=(2,))
    head = split_layers(model.state_dict(), ["reduction"])[1]
    for count, steps in ((40, 1), (44, 1), (45, 2), (4, 1)):
        given = torch.randn(count, 3, 8), torch.full((count, 2), 0.5)
        how: Any = {"optimizer": torch.optim.Adam, "state": {}, "epochs": 3, "batch_size": 8}
        adam = trees.train_on_trees(model, head, *given, **how)[1]
        assert int(adam["step/head.weight"]) == 3 * steps
