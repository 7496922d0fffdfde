"""Mistakes of somebody's first hour: each is told in a sentence that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from federations import fedavg, graph, graphs, model

import fgl

PLAIN = fedavg(model())
TASK = fgl.tasks.node_task(graph(), graphs(), model(), fgl.Training(num_steps=1))
METHODS = {"FedAvg": lambda task: task.fedavg}

MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "the task in the method's place": (
        lambda: fgl.run(TASK, TASK, num_rounds=1),  # type: ignore[arg-type]
        "Expected method to be a Method, .*but got Task: fgl.run.task.fedavg, task",
    ),
    "node ids in the clients' place": (
        lambda: fgl.run(PLAIN, fgl.data.random_partition(graph(), 2), num_rounds=1),  # type: ignore[arg-type]
        "Expected client 0 to be a Graph, but got Tensor: fgl.data.partition_graph",
    ),
    "a setting by position": (
        lambda: fgl.methods.fedprox(PLAIN, 0.1),  # type: ignore[misc]
        "fedprox: too many positional arguments; its settings have names: fedprox.fedavg, mu=...",
    ),
    "a setting left out": (
        lambda: fgl.methods.fedprox(PLAIN),  # type: ignore[call-arg]
        "fedprox: missing a required (keyword-only )?argument: 'mu'; its settings have names",
    ),
    "fgl.fedavg as a method to compare": (
        lambda: fgl.compare({"FedAvg": fgl.fedavg}, lambda seed: TASK, num_rounds=1),
        "Expected model to be a torch.nn.Module, but got Method",
    ),
    "a number of seeds": (
        lambda: fgl.compare(METHODS, lambda seed: TASK, num_rounds=1, seeds=3),  # type: ignore[arg-type]
        r"Expected seeds to be several numbers, but got 3: range\(3\)",
    ),
    "a graph for its labels": (
        lambda: fgl.data.dirichlet_partition(graph(), 3, alpha=1.0),  # type: ignore[arg-type]
        "Expected y to be an int64 tensor, but got Graph: graph.y",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_of_the_first_hour_is_told_with_what_to_do(name: str) -> None:
    mistake, sentence = MISTAKES[name]
    with pytest.raises(TypeError, match=sentence):
        mistake()


def test_clients_with_graphs_of_their_own_need_no_whole_graph() -> None:
    clients = [own.replace(val_mask=~own.train_mask, test_mask=~own.train_mask) for own in graphs()]
    task = fgl.tasks.node_task(None, clients, model(), fgl.Training(num_steps=1))
    for build in (lambda plain: plain, fgl.methods.local):
        method = build(task.fedavg)
        result = fgl.run(method, task, num_rounds=2)
        states = result.client_states
        each = []
        for client, own in enumerate(clients):
            used = method.deploy(result.outbox[client], states.get(client, {}), own)
            right = fgl.predict(method.model.eval(), used, own).argmax(1) == own.y
            each.append(right[own.test_mask].float().mean().item())
        metrics = result.history[-1].metrics
        assert metrics["test_accuracy"] == pytest.approx(sum(each) / len(each))
        assert result.best().metrics["val_accuracy"] >= metrics["val_accuracy"]
    with pytest.raises(ValueError, match="whole graph to train on centrally.*whole=graph"):
        fgl.tasks.centralized(task)
