"""FedGL, end to end: what it adds to FedAvg, term by term, and what the server refuses."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from by_loops import adjacency, gcn, normalised
from federations import CLASSES, FEATURES, close, graph, script
from torch import Tensor

import fgl
from fgl import Method, Training, pseudo
from fgl.methods import fedprox
from fgl.tasks import Task, overlapping_node_task

N = 40
DEFAULTS: dict[str, Any] = {"threshold": 0.4, "neighbours": 5}
L2 = 5e-4
ADAM = Training(partial(torch.optim.Adam, lr=0.05), num_steps=3)
fedgl = script("examples/fedgl.py").fedgl


def clients(dtype: torch.dtype = torch.float32) -> list[fgl.Graph]:
    whole = graph(N)
    whole = whole.replace(x=whole.x.to(dtype))
    parts = fgl.data.partitions.overlapping_partition(whole, [0.4, 0.5, 0.7], seed=2)
    return fgl.data.partitions.partition_graph(whole, parts)


def task(dtype: torch.dtype = torch.float32, l2: float = L2) -> Task:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = fgl.nn.GCN(FEATURES, 8, CLASSES, dropout=0.0, drop_input=True).to(dtype)
    whole = graph(N)
    return overlapping_node_task(whole, clients(), model, ADAM, l2=l2)


def method(
    dtype: torch.dtype = torch.float32, l2: float = L2, mu: float = 0.0, **options: Any
) -> Method:
    made = fedgl(task(dtype, l2).fedavg, N, **{**DEFAULTS, **options})
    return fedprox(made, mu=mu) if mu else made


def printed_graph(h: Tensor, s: int) -> Tensor:
    """Each node's s most similar ones, its row with sum 1."""
    similar, out = (h @ h.T).clamp(min=0), torch.zeros(len(h), len(h))
    for i, row in enumerate(similar):
        best = row.argsort(descending=True)[:s]
        out[i, best] = row[best] / row[best].sum() if row[best].sum() > 0 else 0
    return out


def augmented(operator: Tensor, block: Tensor, beta: float, symmetric: bool) -> Tensor:
    block = (block + block.T) / 2 if symmetric else block
    root = [float(d) ** -0.5 if d > 0 else 0.0 for d in block.sum(1)]
    scale = torch.tensor(root)
    return operator + beta * scale[:, None] * block * scale


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("symmetric", [True, False], ids=["default", "as printed"])
def test_it_is_the_plain_loop(symmetric: bool) -> None:
    """Three rounds of local training and fusion with nothing of the library but its clients."""
    alpha, beta, l2, mu, threshold, s = 0.3, 0.7, 0.01, 0.2, 0.4 if symmetric else 0.3, 5
    data = clients(dtype=torch.float64)
    options: Any = {"alpha": alpha, "beta": beta, "l2": l2, "threshold": threshold, "mu": mu}
    made = method(dtype=torch.float64, symmetric=symmetric, neighbours=s, **options)
    server, labels, graph_ = made.initial(), torch.full((N,), -1), None
    for _ in range(3):
        sent = []
        for own in data:
            operator = normalised(adjacency(own))
            if graph_ is not None:
                block = graph_[own.node_id][:, own.node_id]
                operator = augmented(operator, block, beta, symmetric)
            p = {k: v.clone().requires_grad_() for k, v in server.items()}
            step = torch.optim.Adam(p.values(), lr=0.05)

            def logits(p: Any = p, operator: Tensor = operator, x: Any = own.x) -> Tensor:
                return gcn(p, x, operator)[0]

            train = own.train_mask.nonzero().flatten().tolist()
            guess = labels[own.node_id]
            guessed = [v for v in range(own.num_nodes) if v not in train and guess[v] >= 0]
            for _ in range(3):
                log_p = logits().log_softmax(1)
                loss = -sum(log_p[v, own.y[v]] for v in train) / len(train)
                if guessed:
                    loss = loss - alpha * sum(log_p[v, guess[v]] for v in guessed) / len(guessed)
                loss = loss + l2 / 2 * p["convs.0.lin.weight"].square().sum()
                loss = loss + mu / 2 * sum((p[k] - server[k]).square().sum() for k in p)
                step.zero_grad()
                loss.backward()
                step.step()
            with torch.no_grad():
                sent.append((own, p, logits(), logits().softmax(1)))
        total = sum(own.num_nodes for own, *_ in sent)
        server = {
            k: sum(own.num_nodes / total * p[k].detach() for own, p, *_ in sent) for k in server
        }
        h, scores = (torch.zeros(N, CLASSES) for _ in range(2))
        for v in range(N):
            holders = [(own, z, q, own.node_id.tolist()) for own, _, z, q in sent]
            holders = [each for each in holders if v in each[3]]
            count = sum(own.num_nodes for own, *_ in holders)
            for own, z, q, ids in holders:
                h[v] += own.num_nodes / count * z[ids.index(v)]
                scores[v] += own.num_nodes / count * q[ids.index(v)]
        labels = torch.where(scores.amax(1) > threshold, scores.argmax(1), -1)
        graph_ = printed_graph(h, s)
    assert 0 < int((labels >= 0).sum()) < N
    for client, message in fgl.run(made, data, num_rounds=3).outbox.items():
        close(message["model"], server, atol=1e-12)
        assert torch.equal(message["labels"], labels[data[client].node_id])


def spoil(made: Method, change: Any) -> Method:
    def send(params: Any, context: Any, state: Any, data: fgl.Graph) -> Any:
        message, state = made.send(params, context, state, data)
        return (change(message) if data.num_nodes == 16 else message), state

    return replace(made, send=send)


@pytest.mark.few
@pytest.mark.parametrize(("change", "message"), [
    (lambda m: m | {"node_id": m["node_id"] * 0}, "predictions to have each node id once"),
    (lambda m: m | {"node_id": m["node_id"] + N}, r"node ids in \[0, 40\)"),
    (lambda m: m | {"predictions": m["predictions"] * 2}, "to be probabilities, but got row 0"),
    (lambda m: m | {"predictions": m["predictions"][:-1]}, r"predictions to have shape \[16, 3"),
    (lambda m: m | {"embeddings": m["embeddings"][:-1]}, r"embeddings to have shape \[16, 3\]"),
    (lambda m: m | {"node_id": m["node_id"].float()}, "node_id to be int64"),
    (lambda m: m | {"node_id": m["node_id"][:-1]}, r"node_id to be int64 and have shape \[16"),
])  # fmt: skip
def test_a_bad_upload_is_refused_and_the_round_goes_on(change: Any, message: str) -> None:
    data = clients()
    with pytest.warns(UserWarning, match="Round 0, client 0: Expected"):
        result = fgl.run(spoil(method(), change), data, num_rounds=1)
    assert list(result.history[0].dropped) == [0]
    assert re.search(message, result.history[0].dropped[0])
    assert "labels" in result.outbox[1] and "labels" not in result.outbox[0]


@pytest.mark.parametrize("name", ["y", "node_id"])
def test_quality_asks_for_labels_and_ids(name: str) -> None:
    known = graph(node_id=torch.arange(20))
    lacking: Any = known.replace(**{name: None})
    with pytest.raises(ValueError, match=rf"Expected client 1 to have \['{name}'.*, but got None"):
        pseudo.quality_of([known, lacking])


def test_what_was_sent_is_described() -> None:
    data = clients()
    result = fgl.run(method(threshold=0.0), data, num_rounds=2)
    found = pseudo.quality_of(data)(result.outbox, {})
    assert found["pseudo_label_share"] == 1.0
    assert 0 < found["pseudo_label_accuracy"] <= 1
    assert 0 <= found["pseudo_homophily"] <= 1
    assert found["pseudo_column_sum"] > 0
    assert pseudo.quality.describe([], [], [], torch.zeros(1)) == {}
