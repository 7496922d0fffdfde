"""FedEgo, end to end: every promise of a method, the server that trains, bytes, bad uploads."""

from __future__ import annotations

import copy
import math
import re
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from federations import close, receive_as_a_run, same, script
from torch.func import functional_call

import fgl
from fgl import Method, Ragged, Training
from fgl.federation import Inbox, fold_in, train
from fgl.federation.training.minibatches import training_examples
from fgl.losses import distance_per_entry, soft_cross_entropy
from fgl.methods import adaptive_fedprox, local, ring
from fgl.methods.fedprox import adapted
from fgl.nn import EgoSAGE
from fgl.personalize import label_distribution, mixing_coefficient, rest
from fgl.tasks import EgoNodes, Task, ego_node_task
from fgl.tasks.ego_nodes import ego_steps

SMALL = fgl.data.csbm(num_nodes=260, num_features=20, words_per_set=5, seed=1)
EXAMPLE = script("examples/fedego.py")
ADAM = Training(partial(torch.optim.Adam, lr=0.01), num_steps=2)


def first_of_batch(values: torch.Tensor, trees: torch.Tensor, *, batch_size: int) -> torch.Tensor:
    return values[trees[::batch_size]]


VARIANTS: dict[str, dict[str, Any]] = {
    "fedego": {},
    "no mixup": {"mash": first_of_batch},
    "no pl": {"weight": lambda own, everybody: 1.0},
    "lambda 0.5": {"weight": lambda own, everybody: 0.5},
    "local": {},
    "fedavg": {},
    "fedprox": {},
    "dfedgnn": {},
}
BASELINES = ("local", "fedavg", "fedprox", "dfedgnn")
rows = pytest.mark.parametrize("name", VARIANTS)


def federation(num_clients: int = 4) -> tuple[fgl.Graph, list[fgl.Graph]]:
    return fgl.data.partitions.major_label_partition(SMALL, num_clients, share=0.4, num_test=15)


TEST, CLIENTS = federation()
FEATURES, CLASSES = SMALL.num_features, int(SMALL.num_classes or 0)


def task_of(
    *,
    dropout: float = 0.0,
    dtype: torch.dtype = torch.float32,
    linear: bool = False,
    batch_size: int = 8,
) -> Task:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = EgoSAGE(FEATURES, 8, CLASSES, fanouts=(3, 3), dropout=dropout, linear=linear)
    steps = {"epochs": 2, "batch_size": batch_size}
    return ego_node_task(CLIENTS, TEST, net.to(dtype), ADAM.optimizer, **steps)


def build(name: str = "fedego", **options: Any) -> tuple[Method, Task]:
    how = {k: options.pop(k) for k in ("dropout", "dtype", "linear") if k in options}
    made = task_of(**how)
    fedavg = made.fedavg
    if name in BASELINES:
        model = fedavg.model

        def fit(params: Any, graph: fgl.Graph) -> torch.Tensor:
            logits = functional_call(model, params, (graph.x, graph.adj))
            return soft_cross_entropy(logits, torch.eye(CLASSES)[graph.y], graph.train_mask)

        prox = partial(adaptive_fedprox, fit=fit, distance=distance_per_entry)
        kinds: Any = {"local": local, "fedavg": lambda m: m, "fedprox": prox, "dfedgnn": ring}
        return kinds[name](fedavg), made
    how = {"epochs": 2, "batch_size": 8, **VARIANTS[name], **options}
    return EXAMPLE.fedego(fedavg, **how), made


def method(name: str = "fedego", **options: Any) -> Method:
    return build(name, **options)[0]


def double(graphs: list[fgl.Graph]) -> list[fgl.Graph]:
    return [g.replace(x=g.x.astype(torch.double)) for g in graphs]


def test_a_round_by_hand_uses_the_documented_seeds() -> None:
    made, seen = method(dropout=0.5), {}

    def aggregate(inbox: Inbox, state: Any) -> Any:
        seen.update(copy.deepcopy(dict(inbox)))
        return made.aggregate(inbox, state)

    fgl.run(replace(made, aggregate=aggregate), CLIENTS, num_rounds=1, seed=8, clients_at_once=1)
    torch.manual_seed(fold_in(8, 0, 3, "receive"))
    params, context = receive_as_a_run(made, {"model": made.initial()}, {}, CLIENTS[3])
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
    made, _ = build(gamma=0.7)
    result = fgl.run(made, CLIENTS, num_rounds=2)
    for client, graph in enumerate(CLIENTS):
        message: Any = result.outbox[client]
        own: Any = result.client_states[client]["model"]
        p = label_distribution(graph.y, CLASSES, graph.train_mask)
        weight = float(mixing_coefficient(p, message["distribution"], gamma=0.7))
        assert 0 < weight < 1
        got = made.receive(message, result.client_states[client], graph)[0]
        scored = made.deploy(message, result.client_states[client], graph)
        for key, value in own.items():
            if key.startswith("reduction"):
                assert same(got[key], message["model"][key])
                assert same(scored[key], value)  # not yet averaged
            else:
                want = weight * message["head"][key] + (1 - weight) * value
                close(got[key], want)
                close(scored[key], want)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_fixed_mixing(share: float) -> None:
    made = method(weight=lambda own, everybody: share)
    result = fgl.run(made, CLIENTS, num_rounds=1)
    message: Any = result.outbox[1]
    got = made.receive(message, result.client_states[1], CLIENTS[1])[0]
    for key, value in rest(got, "reduction").items():
        source: Any = message["head"] if share else result.client_states[1]["model"]
        assert same(value, source[key])


def test_lambda_0_is_training_with_a_shared_reduction_alone() -> None:
    """With lambda 0 what the server trains reaches nobody."""
    first = fgl.run(method(weight=lambda own, everybody: 0.0), CLIENTS, num_rounds=3)
    made = fgl.methods.fedper(task_of().fedavg, shared=["reduction"])
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
        count = graph.num_train // 8  # a short last batch joins the one before
        assert seen[-1][client]["embeddings"].shape == (count, 13, 8)
        assert seen[-1][client]["labels"].shape == (count, 13, CLASSES)
        centres = seen[-1][client]["labels"][:, 0]
        sizes = [8] * (count - 1) + [8 + graph.num_train % 8]
        total = sum(size * row for size, row in zip(sizes, centres, strict=True))
        close(total, graph.y[graph.train_mask].bincount(minlength=CLASSES).float(), atol=1e-4)


def test_uploads_are_shuffled_and_labels_can_be_blurred() -> None:
    seen = []

    def blur(labels: torch.Tensor) -> torch.Tensor:
        seen.append(labels)
        return fgl.privacy.noisy_shares(labels, sigma=0.3)

    made, plain = method(blur=blur), method(shuffle=False)
    params, context = made.receive({"model": made.initial()}, {}, CLIENTS[0])
    uploads: list[Any] = []
    for one in (made, made, plain, plain):
        torch.manual_seed(len(uploads))
        uploads.append(one.send(params, context, {}, CLIENTS[0])[0])
    assert not seen[0][:, 0].equal(seen[1][:, 0])  # the centres of a batch are others
    close(uploads[2]["labels"][:, 0], uploads[3]["labels"][:, 0])
    assert not uploads[0]["labels"].equal(seen[0])
    made.accept(uploads[0], 0, {})  # still distributions
    count = CLIENTS[0].y[CLIENTS[0].train_mask].bincount(minlength=CLASSES)
    sizes = torch.full((len(seen[0]),), 8.0)
    sizes[-1] += CLIENTS[0].num_train % 8
    close(sizes @ seen[0][:, 0], count.float(), atol=1e-4)  # what a server reads without noise
    assert float((sizes @ uploads[0]["labels"][:, 0] - count).abs().max()) > 0.5


def test_without_mixup_the_first_ego_graph_of_a_batch_goes_out() -> None:
    made = method("no mixup", shuffle=False)
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
    first = rest(made.initial(), "reduction")
    for key, value in first.items():  # from its own initial model, a little further every round
        assert (
            0
            < float((state["head"][key] - value).norm())
            < float((more["head"][key] - value).norm())
        )


def test_the_servers_training_is_adam_on_the_centres_by_hand() -> None:
    made, seen = method(), {}
    how = {"lr": 0.01}

    def aggregate(inbox: Inbox, state: Any) -> Any:
        seen.update(copy.deepcopy(dict(inbox)))
        return made.aggregate(inbox, state)

    result = fgl.run(replace(made, aggregate=aggregate), CLIENTS, num_rounds=1, seed=5)
    x = torch.cat([m["embeddings"] for m in seen.values()])
    y = torch.cat([m["labels"][:, 0] for m in seen.values()])
    params = rest(made.initial(), "reduction")
    torch.manual_seed(fold_in(5, 0, "server", "aggregate"))
    leaves = {key: value.clone().requires_grad_() for key, value in params.items()}
    adam = torch.optim.Adam(list(leaves.values()), **how)
    for _ in range(2):
        chosen = torch.randperm(len(x))[: len(x) // 5]
        assert 0 < len(chosen) <= 8
        trees = fgl.ego.resample(x[chosen], fanouts=(3, 3))
        adam.zero_grad()
        p = functional_call(made.model, leaves, (trees,)).softmax(1)
        (-(y[chosen] * (p + 1e-7).log()).sum(1).mean()).backward()
        adam.step()
    close(result.outbox[0]["head"], {k: v.detach() for k, v in leaves.items()}, atol=1e-5)


def test_the_server_drops_units_while_it_trains() -> None:
    made = method(dropout=1.0)
    result = fgl.run(made, CLIENTS, num_rounds=1)
    head = rest(made.initial(), "reduction")
    assert same(dict(result.outbox[0]["head"]), head)  # nothing is left, so nothing is learnt


def test_fedprox_adapts_its_weight() -> None:
    table = {  # mu, loss, penalty -> the next mu
        (1.0, 6.0, 1.0): 10.0,
        (10.0, 60.0, 1.0): 10.0,
        (1.0, 4.0, 1.0): 1.0,
        (1.0, 0.4, 1.0): 0.1,
        (1e-5, 0.0, 1.0): 1e-5,
    }
    for given, want in table.items():
        assert float(adapted(*map(torch.tensor, given))) == pytest.approx(want)
    for step, loss in ((0.1, 0.0), (10.0, 1e9)):  # from one end of the range to the other
        mu, seen = torch.tensor(1e-5 if step > 1 else 1.0), []
        for _ in range(9):
            mu = adapted(mu, torch.tensor(loss), torch.tensor(1.0))
            seen.append(float(mu))
        ends = [0.1, 0.01, 1e-3, 1e-4] + 5 * [1e-5]
        want = ends if step < 1 else [1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 10.0, 10.0, 10.0]
        assert seen == pytest.approx(want)
    result = fgl.run(method("fedprox"), CLIENTS, num_rounds=3)
    assert all(0 < float(state["mu"]) <= 10 for state in result.client_states.values())  # type: ignore[arg-type]


def test_fedproxs_weight_follows_the_training_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    made, given, graph = method("fedprox", dtype=torch.double), [], double(CLIENTS[:1])[0]
    room = sys.modules["fgl.methods.fedprox"]
    monkeypatch.setattr(room, "adapted", lambda mu, *of: given.append(of) or mu)
    start = made.initial()
    params = {key: value + 0.1 for key, value in start.items()}
    made.send(params, {"start": start, "mu": torch.tensor(1.0)}, {}, graph)
    ((loss, penalty),) = given
    p = functional_call(made.model, params, (graph.x, graph.adj)).softmax(1)
    p = p[graph.train_mask, graph.y[graph.train_mask]]
    close(loss, -(p + 1e-7).log().mean().detach())
    moved = (torch.full_like(v, 0.1) for v in start.values())
    close(penalty, sum(v.norm() / v.numel() for v in moved))


def test_the_loss_leaves_padded_centres_out() -> None:
    made = method()
    params = made.initial()
    sampler = fgl.ego.EgoSampler(CLIENTS[0], (3, 3))
    step = next(iter(ego_steps(sampler, CLIENTS[0], epochs=1, batch_size=8)))
    there = torch.arange(11) < 8
    more = {
        "trees": torch.cat([step["trees"].values, torch.zeros(3, 13, dtype=torch.int64)]),
        "labels": torch.cat([step["labels"].values, torch.zeros(3, CLASSES)]),
    }
    padded = {**step, **{key: Ragged(value, there) for key, value in more.items()}}
    close(made.loss(params, CLIENTS[0], padded), made.loss(params, CLIENTS[0], step))


def test_scores_are_of_every_clients_own_model() -> None:
    made, task = build(dropout=0.5)
    evaluate = task.evaluate(made)
    result = fgl.run(made, CLIENTS, num_rounds=2, evaluate=evaluate)
    metrics = result.history[-1].metrics
    made.model.eval()
    chosen, losses = [], []
    for client, graph in enumerate(CLIENTS):
        own = made.deploy(result.outbox[client], result.client_states[client], graph)
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
    assert task.select == "val_f1"


def test_a_task_needs_labels_and_masks() -> None:
    net = method().model
    bare = CLIENTS[0].replace(val_mask=None)
    with pytest.raises(ValueError, match="client 1 to have val_mask, but got none"):
        ego_node_task([CLIENTS[0], bare], TEST, net, ADAM.optimizer, batch_size=8)
    for wrong in (TEST.replace(y=None), TEST.subgraph(torch.zeros(0, dtype=torch.int64))):
        with pytest.raises(ValueError, match="test graph to have nodes with labels"):
            ego_node_task(CLIENTS, wrong, net, ADAM.optimizer, batch_size=8)


def spoil(made: Method, change: Any) -> Method:
    def send(params: Any, context: Any, state: Any, data: fgl.Graph) -> Any:
        message, state = made.send(params, context, state, data)
        return (change(message) if data is CLIENTS[2] else message), state

    return replace(made, send=send)


@pytest.mark.few
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


def test_a_first_client_without_ego_graphs_is_told_so() -> None:
    made = method()
    with pytest.raises(ValueError, match=r"message to have 'labels', but got \['model'"):
        upload = {"model": {}, "embeddings": torch.zeros(1, 13, 8)}
        made.accept(upload, 0, {})


def refused(made: Method, change: Any, message: str) -> None:
    with pytest.warns(UserWarning, match="Round 0, client 2: "):
        result = fgl.run(spoil(made, change), CLIENTS, num_rounds=1)
    assert list(result.history[0].dropped) == [2]
    assert re.search(message, result.history[0].dropped[2])
    assert int(result.outbox[0]["num_clients"]) == 3


def test_a_client_of_fewer_than_five_nodes_trains() -> None:
    tiny = CLIENTS[0].subgraph(torch.arange(3))
    steps = list(ego_steps(fgl.ego.EgoSampler(tiny), tiny, epochs=2, batch_size=1))
    assert [len(step["labels"]) for step in steps] == [1, 1]


@pytest.mark.parametrize("batch_size", [0, 1000])
def test_a_batch_larger_than_the_client(batch_size: int) -> None:
    most = CLIENTS[0].num_train
    text = rf"Expected batch_size to be in \[1, {most}\].*{batch_size}"
    with pytest.raises(ValueError, match=text):
        task_of(batch_size=batch_size)


def test_the_best_round_is_one_where_most_clients_have_a_model() -> None:
    made, task = build()
    result = fgl.run(made, task, num_rounds=6, participation=0.25)
    counts = [record.metrics["scored_clients"] for record in result.history]
    joined = [{k for r in result.history[: i + 1] for k in r.participants} for i in range(6)]
    assert counts == [len(who) for who in joined] and counts[0] == 1 < counts[-1]


@pytest.mark.parametrize("fanouts", [(6, 0), (-1,)])
def test_settings_refuse_fanouts(fanouts: Any) -> None:
    with pytest.raises(ValueError, match="fanouts to be at least 1"):
        EgoNodes(clients=2, hidden=8, fanouts=fanouts).load()


@pytest.mark.parametrize(("name", "bad"), [("gamma", 0), ("batch_size", 0), ("epochs", -1)])
def test_builder_refuses(name: str, bad: float) -> None:
    with pytest.raises(ValueError, match=f"Expected {name} to be an? .* but got {bad}"):
        method(**{name: bad})


def test_the_server_sees_a_fifth_of_the_trees_an_epoch() -> None:
    for count, steps in ((40, 1), (44, 1), (45, 2), (4, 1)):
        x, y = torch.arange(count)[:, None], torch.arange(count)
        seen = list(fgl.ego.tree_minibatches(x, y, num_epochs=3, batch_size=8))
        assert len(seen) == 3 * steps
        for chosen, labels in seen:
            assert torch.equal(chosen[:, 0], labels)
        assert len({int(v) for _, labels in seen[:steps] for v in labels}) == max(count // 5, 1)
    for count, rows_ in ((10, 25), (10, 9), (0, 0)):
        with pytest.raises(ValueError, match=rf"as many, .*but got {count} and {rows_}"):
            next(fgl.ego.tree_minibatches(torch.zeros(count, 3), torch.zeros(rows_)))
