"""FedGL, end to end: what it adds to FedAvg, term by term, and what the server refuses."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from federations import CLASSES, FEATURES, close, graph, receive_as_a_run, same, script
from torch import Tensor

import fgl
from fgl import Method, Training, pseudo
from fgl.federation import Inbox
from fgl.methods import fedprox
from fgl.tasks import Task, overlapping_node_task

N = 40
DEFAULTS: dict[str, Any] = {"threshold": 0.4, "neighbours": 5}
L2 = 5e-4
ADAM = Training(partial(torch.optim.Adam, lr=0.05), num_steps=3)
fedgl = script("examples/fedgl.py").fedgl


def clients(sparse: bool = False, dtype: torch.dtype = torch.float32) -> list[fgl.Graph]:
    whole = graph(N)
    whole = whole.replace(x=whole.x.to(dtype))
    if sparse:
        whole = whole.replace(x=fgl.SparseMatrix.from_dense(whole.x * (whole.x > 0)))
    parts = fgl.data.partitions.overlapping_partition(whole, [0.4, 0.5, 0.7], seed=2)
    return fgl.data.partitions.partition_graph(whole, parts)


def task(dropout: float = 0.0, dtype: torch.dtype = torch.float32, l2: float = L2) -> Task:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = fgl.nn.GCN(FEATURES, 8, CLASSES, dropout=dropout, drop_input=True).to(dtype)
    whole = graph(N)
    return overlapping_node_task(whole, clients(), model, ADAM, l2=l2)


def method(
    dropout: float = 0.0,
    dtype: torch.dtype = torch.float32,
    l2: float = L2,
    mu: float = 0.0,
    **options: Any,
) -> Method:
    made = fedgl(task(dropout, dtype, l2).fedavg, N, **{**DEFAULTS, **options})
    return fedprox(made, mu=mu) if mu else made


def dense(data: fgl.Graph) -> Tensor:
    """The GCN operator, from the edges one by one."""
    matrix = torch.eye(data.num_nodes)
    for source, target in data.edge_index.T.tolist():
        matrix[target, source] = 1
    degree = matrix.sum(1)
    return matrix / (degree[:, None] * degree).sqrt()


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
            operator = dense(own)
            if graph_ is not None:
                block = graph_[own.node_id][:, own.node_id]
                operator = augmented(operator, block, beta, symmetric)
            p = {k: v.clone().requires_grad_() for k, v in server.items()}
            step = torch.optim.Adam(p.values(), lr=0.05)

            def logits(p: Any = p, operator: Tensor = operator, x: Any = own.x) -> Tensor:
                h = (operator @ x @ p["convs.0.lin.weight"].T + p["convs.0.bias"]).relu()
                return operator @ h @ p["convs.1.lin.weight"].T + p["convs.1.bias"]

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


def gradient(made: Method, data: fgl.Graph, labels: Tensor) -> dict[str, torch.Tensor]:
    """At the initial model plus 0.1, where the initial one was received, on given labels."""
    start: Any = made.initial()
    _, context = receive_as_a_run(made, {"model": start, "labels": labels}, {}, data)
    params = {k: (v + 0.1).requires_grad_() for k, v in start.items()}
    loss = made.loss(params, data, context)
    return dict(zip(params, torch.autograd.grad(loss, list(params.values())), strict=True))


def test_pseudo_labels_of_training_nodes_do_not_count() -> None:
    data = clients()[2]
    made = method(alpha=1.0)
    nowhere = torch.full((data.num_nodes,), -1)
    on_train = torch.where(data.train_mask, 0, -1)
    assert same(gradient(made, data, on_train), gradient(made, data, nowhere))


def test_a_client_that_was_not_there_gets_what_was_last_made_for_it() -> None:
    made, seen = method(), []

    def receive(message: Any, state: Any, data: fgl.Graph) -> Any:
        seen.append((data.num_nodes, message.get("labels"), message.get("weight")))
        return made.receive(message, state, data)

    data = clients()
    gone = {(1, 0), (2, 0)}
    watched = replace(made, receive=receive)
    first = fgl.run(watched, data, num_rounds=1)
    want: Any = first.outbox[0]
    seen.clear()
    fgl.run(watched, data, num_rounds=4, dropouts=lambda index, client: (index, client) in gone)
    mine = [(y, w) for nodes, y, w in seen if nodes == data[0].num_nodes]
    assert len(mine) == 2 and mine[0][0] is None
    assert same(mine[1], (want["labels"], want["weight"]))


def spoil(made: Method, change: Any) -> Method:
    def send(params: Any, context: Any, state: Any, data: fgl.Graph) -> Any:
        message, state = made.send(params, context, state, data)
        return (change(message) if data.num_nodes == 16 else message), state

    return replace(made, send=send)


@pytest.mark.few
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m | {"node_id": m["node_id"] * 0}, "predictions to have each node id once"),
        (lambda m: m | {"node_id": m["node_id"] + N}, r"node ids in \[0, 40\)"),
        (lambda m: m | {"predictions": m["predictions"] * 2}, "to be probabilities, but got row 0"),
        (
            lambda m: m | {"predictions": m["predictions"][:-1]},
            r"predictions to have shape \[16, 3\]",
        ),
        (lambda m: m | {"embeddings": m["embeddings"][:-1]}, r"embeddings to have shape \[16, 3\]"),
        (lambda m: m | {"node_id": m["node_id"].float()}, "node_id to be int64"),
        (
            lambda m: m | {"node_id": m["node_id"][:-1]},
            r"node_id to be int64 and have shape \[16\]",
        ),
    ],
)
def test_a_bad_upload_is_refused_and_the_round_goes_on(change: Any, message: str) -> None:
    data = clients()
    with pytest.warns(UserWarning, match="Round 0, client 0: Expected"):
        result = fgl.run(spoil(method(), change), data, num_rounds=1)
    assert list(result.history[0].dropped) == [0]
    assert re.search(message, result.history[0].dropped[0])
    assert "labels" in result.outbox[1] and "labels" not in result.outbox[0]


def test_what_was_sent_is_described() -> None:
    data = clients()
    result = fgl.run(method(threshold=0.0), data, num_rounds=2)
    found = pseudo.quality_of(data)(result.outbox, {})
    assert found["pseudo_label_share"] == 1.0
    assert 0 < found["pseudo_label_accuracy"] <= 1
    assert 0 <= found["pseudo_homophily"] <= 1
    assert found["pseudo_column_sum"] > 0
    assert pseudo.quality.describe([], [], [], torch.zeros(1)) == {}


def test_the_threshold_is_of_fused_scores() -> None:
    """Two clients of one size say .6 and .3 of class 0: fused .45, so nobody is sure."""
    params = method().initial()
    inbox = Inbox(
        {
            k: {
                "model": params,
                "num_examples": torch.tensor(1),
                "node_id": torch.tensor([0]),
                "embeddings": torch.zeros(1, CLASSES),
                "predictions": torch.tensor([[p, 0.45 * (1 - p), 0.55 * (1 - p)]]),
            }
            for k, p in enumerate((0.6, 0.3))
        },
        num_clients=2,
        sent={0: {"model": params}, 1: {"model": params}},
    )
    for threshold, label in ((0.5, -1), (0.44, 0)):
        outbox, _ = method(threshold=threshold, neighbours=0).aggregate(inbox, {})
        assert outbox[0]["labels"].tolist() == [label]


def test_the_absent_ones_part_is_what_they_were_sent() -> None:
    """The server keeps nothing of a client but its nodes; the inbox knows the rest."""
    made, data = method(), clients()
    done = fgl.run(
        made, data, num_rounds=2, dropouts=lambda index, client: (index, client) == (1, 2)
    )
    first = fgl.run(made, data, num_rounds=1)
    for key in ("labels", "row", "col", "weight"):
        assert same(done.outbox[2][key], first.outbox[2][key])
    assert not same(done.outbox[2]["model"], first.outbox[2]["model"])
    assert list(done.server_state) == ["model", "nodes"]


def test_published_setting_and_the_score_is_of_the_union() -> None:
    example = script("examples/fedgl.py")
    defaults = {n: p.default for n, p in inspect.signature(example.main).parameters.items()}
    setting, run = defaults["task"], defaults["run"]
    assert (run.rounds, run.patience) == (300, 30)
    assert (setting.hidden, setting.dropout, setting.l2) == (16, 0.5, 5e-4)
    assert setting.proportions == ("table2",)
    assert setting.shares == [0.3, 0.4, 0.5, 0.5, 0.6, 0.7]
    assert setting.local == fgl.tasks.Local("adam", 0.01, weight_decay=0.0, steps=10)
    wanted = {"alpha": 0.2, "beta": 0.1, "threshold": 0.5, "neighbours": 100, "symmetric": True}
    options = inspect.signature(fedgl).parameters
    assert {name: options[name].default for name in wanted} == wanted
    loaded = setting.load()
    assert loaded.fedavg.model.drop_input
    made = fedgl(loaded.fedavg, 2708)
    params = {name: value + 0.05 for name, value in made.initial().items()}
    union: Any = loaded.whole
    with torch.no_grad():
        logits = torch.func.functional_call(made.model.eval(), params, union.inputs)
    hit = logits.argmax(1) == union.y
    found = loaded.evaluate(made)({k: {"model": params} for k in range(6)}, {})
    assert found["test_accuracy"] == pytest.approx(float(hit[union.test_mask].double().mean()))
    assert found["val_accuracy"] == pytest.approx(float(hit[union.val_mask].double().mean()))


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("alpha", -1),
        ("beta", math.nan),
        ("threshold", 1.5),
        ("neighbours", -1),
        ("neighbours", 2.5),
    ],
)
def test_numbers_out_of_range_are_refused(name: str, bad: float) -> None:
    with pytest.raises(
        (ValueError, TypeError), match=f"Expected {name} to be an? .* but got {bad}"
    ):
        method(**{name: bad})


@pytest.mark.parametrize("name", ["y", "node_id"])
def test_quality_asks_for_labels_and_ids(name: str) -> None:
    known = graph(node_id=torch.arange(20))
    lacking: Any = known.replace(**{name: None})
    with pytest.raises(ValueError, match=f"Expected client 1 to have {name}, but got None"):
        pseudo.quality_of([known, lacking])
