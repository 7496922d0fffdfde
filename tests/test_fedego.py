"""FedEgo, end to end: every promise of a method, the server that trains, bytes, bad uploads."""

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from federations import close, refuses, same, script
from torch.func import functional_call

import fgl
from fgl import Method, Training
from fgl.federation import Inbox, fold_in
from fgl.nn import EgoSAGE
from fgl.personalize import rest
from fgl.tasks import Task, ego_node_task

SMALL = fgl.data.csbm(num_nodes=260, num_features=20, words_per_set=5, seed=1)
EXAMPLE = script("examples/fedego.py")
ADAM = Training(partial(torch.optim.Adam, lr=0.01), num_steps=2)


TEST, CLIENTS = fgl.data.partitions.major_label_partition(SMALL, 4, share=0.4, num_test=15)
FEATURES, CLASSES = SMALL.num_features, int(SMALL.num_classes or 0)


def task_of(*, dropout: float = 0.0, batch_size: int = 8) -> Task:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = EgoSAGE(FEATURES, 8, CLASSES, fanouts=(3, 3), dropout=dropout)
    steps = {"epochs": 2, "batch_size": batch_size}
    return ego_node_task(CLIENTS, TEST, net, ADAM.optimizer, **steps)


def method(**options: Any) -> Method:
    return EXAMPLE.fedego(task_of().fedavg, **{"epochs": 2, "batch_size": 8, **options})


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


def test_the_server_keeps_its_head_and_its_adam() -> None:
    made = method()
    result = fgl.run(made, CLIENTS, num_rounds=1)
    state: Any = result.server_state
    assert same(dict(result.outbox[0]["head"]), state["head"])
    assert int(state["optimizer"]["step/head.weight"]) == 2  # an epoch has one batch of G // 5
    more: Any = fgl.run(made, CLIENTS, num_rounds=2).server_state
    assert int(more["optimizer"]["step/head.weight"]) == 4
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


def test_scores_are_of_every_clients_own_model() -> None:
    task = task_of(dropout=0.5)
    made = EXAMPLE.fedego(task.fedavg, epochs=2, batch_size=8)
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


def test_a_first_client_without_ego_graphs_is_told_so() -> None:
    made = method()
    with pytest.raises(ValueError, match=r"message to have \['labels'\], but got \['model'"):
        upload = {"model": {}, "embeddings": torch.zeros(1, 13, 8)}
        made.accept(upload, 0, {})


@pytest.mark.parametrize("batch_size", [0, 1000])
def test_a_batch_larger_than_the_client(batch_size: int) -> None:
    most = CLIENTS[0].num_train
    text = rf"Expected batch_size to be in \[1, {most}\].*{batch_size}"
    refuses(text, lambda: task_of(batch_size=batch_size))


@pytest.mark.parametrize(("name", "bad"), [("gamma", 0), ("batch_size", 0), ("epochs", -1)])
def test_builder_refuses(name: str, bad: float) -> None:
    refuses(f"Expected {name} to be an? .* but got {bad}", lambda: method(**{name: bad}))


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
    refuses("batch_size .*but got 0", lambda: next(fgl.ego.tree_minibatches(x, y, batch_size=0)))
