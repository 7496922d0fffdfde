"""FedGTA: the authors' round in loops, its moments and confidence, and who averages with whom."""

import math
from typing import Any

import pytest
import torch
from by_loops import (
    apart,
    clients,
    forward,
    label,
    mean,
    operator,
    plain,
    sgd,
    supervised,
    train_nodes,
)
from federations import CLASSES, refuses
from torch import Tensor

import fgl
from fgl.federation import Inbox
from fgl.methods import fedgta
from fgl.methods.fedgta import confidence, with_labels

HOPS, ALPHA, TEMPERATURE, ORDER, THRESHOLD = 3, 0.4, 5.0, 4, 0.9


def says(params: Any, own: fgl.Graph, kind: str) -> tuple[list[float], float]:
    """What a client sends besides: moments, and confidence."""
    logits, _ = forward(params, own)
    n, matrix, train = own.num_nodes, operator(own), set(train_nodes(own))
    y = logits.softmax(1).detach()
    for v in train:
        y[v] = torch.eye(CLASSES)[label(own, v)]
    f = y
    for _ in range(HOPS):
        new = torch.zeros_like(f)
        for v in range(n):
            new[v] = ALPHA * sum((matrix[v, u] * f[u] for u in range(n)), torch.zeros(CLASSES))
            new[v] += (1 - ALPHA) * y[v] + (y[v] if v in train else 0)
        f = new
    sharp, flat = f.softmax(1), (f / TEMPERATURE).softmax(1)
    for v in train:
        sharp[v], flat[v] = y[v], y[v]
    found: list[float] = []
    for centred in {"origin": [False], "mean": [True], "hybrid": [False, True]}[kind]:
        for p in range(1, ORDER + 1):
            for c in range(CLASSES):
                column = [float(sharp[v, c]) for v in range(n)]
                middle = sum(column) / n if centred else 0.0
                found.append(sum((each - middle) ** p for each in column) / n)
    total, edges = 0.0, own.edge_index[1].tolist()
    for v in range(n):
        entropy = sum(
            float(flat[v, c]) * math.log(float(flat[v, c]) + 1e-8) for c in range(CLASSES)
        )
        total += edges.count(v) * (CLASSES / math.e + entropy)
    return found, total


def cosine(one: list[float], other: list[float]) -> float:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    return product / math.sqrt(sum(a * a for a in one) * sum(b * b for b in other))


@pytest.mark.parametrize("kind", ["hybrid", "origin", "mean"])
def test_rounds_are_the_authors(kind: Any) -> None:
    own = clients()
    models, groups = [plain().initial() for _ in own], set()
    for _ in range(2):
        sent = [sgd(lambda p, g=g: supervised(p, g), m) for m, g in zip(models, own, strict=True)]  # type: ignore[misc]
        told = [says(m, g, kind) for m, g in zip(sent, own, strict=True)]
        models = []
        for moments, _ in told:
            near = [k for k, each in enumerate(told) if cosine(moments, each[0]) > THRESHOLD]
            groups.add(len(near))
            models.append(mean([sent[k] for k in near], [told[k][1] for k in near]))
    assert len(groups) > 1  # somebody is left out
    how: Any = {
        "propagations": HOPS,
        "neighbour_share": ALPHA,
        "temperature": TEMPERATURE,
        "num_moments": ORDER,
    }
    method = fedgta(plain(), moments=kind, threshold=THRESHOLD, **how)
    result = fgl.run(method, own, num_rounds=2, clients_at_once=1)
    for k, model in enumerate(models):
        assert apart(result.outbox[k]["model"], model) < 1e-12


def told(moments: list[float], sure: float, value: float) -> Any:
    return {
        "model": {"w": torch.tensor(value)},
        "moments": torch.tensor(moments),
        "confidence": torch.tensor(sure),
    }


def test_a_client_that_is_like_nobody_keeps_its_model() -> None:
    method = fedgta(plain())
    came = {
        0: told([1.0, 0.0], 3.0, 1.0),
        1: told([1.0, 0.1], 1.0, 5.0),
        2: told([0.0, 1.0], 9.0, 7.0),
    }
    outbox, _ = method.aggregate(Inbox(came, 3), {})
    assert [float(outbox[k]["model"]["w"]) for k in range(3)] == pytest.approx([2.0, 2.0, 7.0])


def test_without_edges_all_weigh_the_same() -> None:
    method = fedgta(plain())
    came = {0: told([1.0, 0.0], 0.0, 1.0), 1: told([1.0, 0.1], 0.0, 5.0)}
    outbox, _ = method.aggregate(Inbox(came, 2), {})
    assert float(outbox[0]["model"]["w"]) == pytest.approx(3.0)


def test_confidence_is_never_negative() -> None:
    """It is a weight: neither the rounding at -p log p = 1 / e nor a negative edge may turn it."""
    ends = torch.tensor([[0, 1], [1, 0]])
    own = fgl.Graph(torch.eye(2), ends)
    least = [confidence(torch.full((2, c), 1 / math.e), own) for c in range(1, 40)]
    assert all(0 <= float(each) < 1e-4 for each in least)
    against = own.replace(edge_weight=torch.tensor([-1.0, -2.0]))
    assert float(confidence(torch.eye(2), against)) == 0


def test_collections_of_graphs_are_refused() -> None:
    joined = fgl.Graph.join(*fgl.data.small_graphs(4))
    rows: Tensor = torch.zeros(4, 2)
    refuses("Expected examples to be nodes", lambda: with_labels(rows, joined))
