"""Batches that train only touched rows: the bits of whole stacks, and who must train these."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import conformance
import pytest
import torch
from federations import CLASSES, METHODS, end, graph, minibatches, same, threads
from pretended_device import PretendedDevice
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW

import fgl
from fgl import SparseMatrix, Training, tasks
from fgl.federation.executors import loop
from fgl.federation.executors.batch import rows, traced, train_cohort

FEATURES, HIDDEN = 60, 16
ADAM = Training(partial(Adam, lr=0.05), num_steps=2)


def sparse(own: fgl.Graph, seed: int = 0, share: float = 0.04) -> fgl.Graph:
    """The graph with a few of many features; client 0 has an empty row, and one entry is 0."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.rand(own.num_nodes, FEATURES, generator=draw)
    x = x * (torch.rand(x.shape, generator=draw) < share)
    x[0] *= seed > 0
    matrix = SparseMatrix.from_dense(x)
    assert matrix.value is not None
    matrix.value[3] = 0.0
    return own.replace(x=matrix)


CLIENTS = [sparse(graph(n, seed=n), n) for n in (9, 12, 20)]


def gcn(hidden: int = HIDDEN, dropout: float = 0.5) -> nn.Module:
    torch.manual_seed(0)
    return fgl.nn.GCN(FEATURES, hidden, CLASSES, dropout=dropout)


def seeded(kind: Callable[..., nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind(FEATURES, HIDDEN, CLASSES)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """For each cohort in each round, whether only touched rows were trained."""
    made: list[bool] = []
    original = train_cohort._on_rows

    def noted(*args: Any) -> Any:
        trained = original(*args)
        made.append(trained is not None)
        return trained

    monkeypatch.setattr(train_cohort, "_on_rows", noted)
    yield made


def run(method: Any, clients: Any = CLIENTS, *, after: int = 1, **options: Any) -> Any:
    tracers: list[traced.Tracer] = []

    def tracer() -> traced.Tracer:
        tracers.append(traced.Tracer())
        return tracers[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traced, "AFTER", after)
        patch.setattr(loop, "Tracer", tracer)
        options = {"num_rounds": 6, "clients_at_once": "all", "seed": 1, **options}
        result = fgl.run(method, clients, **options)
    assert not any("numbers" in each.why for each in tracers)
    return result


def ends(result: Any) -> Any:
    """What a run leaves behind, without the reason of a step that is not traced."""
    left = end(result)
    for record in left["history"]:
        record["untraced"] = None
    return left, repr([record.loss for record in result.history])


def equal(one: Any, other: Any) -> bool:
    (some, losses), (others, other_losses) = ends(one), ends(other)
    return same(some, others) and losses == other_losses


def fedavg(train: Training = ADAM, model: nn.Module | None = None) -> Any:
    return fgl.fedavg(gcn() if model is None else model, train=train)


class Twice(nn.Module):
    """A model that multiplies the features by one weight in two places."""

    def __init__(self, elsewhere: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(FEATURES, HIDDEN))
        self.out = nn.Linear(HIDDEN, CLASSES)
        self.elsewhere = elsewhere

    def forward(self, x: Any, adj: Any) -> Any:
        hidden = (x @ self.weight).relu() + adj @ (x @ self.weight)
        if self.elsewhere:
            hidden = hidden + self.weight[0]
        return self.out(hidden)


class Tied(nn.Module):
    """A model whose first layer's weight, transposed, is also that of its last."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Parameter(torch.randn(FEATURES, HIDDEN))
        self.last = nn.Linear(HIDDEN, FEATURES)
        self.last.weight = nn.Parameter(torch.randn(FEATURES, HIDDEN))
        self.inner = self.last.weight

    def forward(self, x: Any, adj: Any) -> Any:
        return self.last((adj @ (x @ self.inner)).relu())[:, :CLASSES]


def with_loss(term: Callable[[Tensor, Any, Any], Any]) -> Any:
    """FedAvg whose loss also reads the first layer's weight ``[HIDDEN, FEATURES]``."""
    method = fedavg()
    plain, name = method.loss, "convs.0.lin.weight"
    loss = lambda p, graph, context: plain(p, graph, context) + term(p[name], graph, context)  # noqa: E731
    return replace(method, loss=loss)


TAKEN: dict[str, Callable[[], Any]] = {
    "adam": fedavg,
    "sgd": lambda: fedavg(Training(partial(SGD, lr=0.1, momentum=0.9, nesterov=True), num_steps=3)),
    "adamw without decay": lambda: fedavg(
        Training(partial(AdamW, weight_decay=0, amsgrad=True), num_steps=2)
    ),
    "minibatches of unequal number": lambda: fedavg(minibatches(ADAM, 3)),
    "own models": lambda: METHODS["local"](gcn(), ADAM),
    "fgssl": lambda: METHODS["fgssl"](gcn(), ADAM),
    "two products": lambda: fedavg(model=Twice()),
    "a term that is not of the weight": lambda: with_loss(lambda w, g, c: g.x.values.sum() * 1e-3),
    "a weight that is read without a gradient": lambda: fedavg(model=seeded(fgl.nn.SAGE)),
}


@pytest.mark.parametrize("name", TAKEN)
def test_touched_rows_have_the_bits_of_whole_stacks(name: str, used: list[bool]) -> None:
    found, want = (run(TAKEN[name](), after=after) for after in (1, 10**9))
    assert equal(found, want)
    assert all(used[2:6]) and not any(used[6:])


EXCLUDED: dict[str, Callable[[], Any]] = {
    "decay": lambda: fedavg(Training(partial(SGD, lr=0.1, weight_decay=1e-2), num_steps=2)),
    "adamw": lambda: fedavg(Training(partial(AdamW, lr=0.01), num_steps=2)),
    "another optimiser": lambda: fedavg(Training(torch.optim.Adadelta, num_steps=2)),
    "maximize": lambda: fedavg(Training(partial(SGD, lr=0.01, maximize=True), num_steps=2)),
    "not fused": lambda: fedavg(Training(partial(Adam, foreach=True), num_steps=2)),
    "moments that are carried over": lambda: fedavg(replace(ADAM, keep_optimizer=True)),
    "clipping": lambda: fedavg(replace(ADAM, max_grad_norm=0.1)),
    "adjust": lambda: fedavg(
        replace(ADAM, adjust=lambda g, p, c: {n: v + 1 for n, v in g.items()})
    ),
    "settle": lambda: fedavg(
        replace(ADAM, settle=lambda p, o, c: {n: v * 2 for n, v in p.items()})
    ),
    "prox": lambda: METHODS["fedprox"](gcn(), ADAM),
    "norm": lambda: with_loss(lambda w, g, c: w.norm()),
    "a weight without a gradient": lambda: with_loss(lambda w, g, c: w.detach().norm()),
    "one column": lambda: with_loss(lambda w, g, c: w[:, 0].sum()),
    "a product from the other side": lambda: with_loss(lambda w, g, c: (w.T @ w).sum() * 1e-3),
    "its own loss": lambda: with_loss(lambda w, g, c: (w * c["start"]["convs.0.lin.weight"]).sum()),
    "a product that the loss scales": lambda: with_loss(lambda w, g, c: (g.x @ (2 * w.T)).sum()),
    "a weight that is read elsewhere": lambda: fedavg(model=Twice(elsewhere=True)),
    "a weight tied to the last layer's": lambda: fedavg(model=Tied()),
    "narrow rows": lambda: fedavg(model=gcn(hidden=8)),
}


@pytest.mark.parametrize("name", EXCLUDED)
def test_what_moves_other_rows_trains_whole_stacks(name: str, used: list[bool]) -> None:
    found, want = (run(EXCLUDED[name](), after=after, num_rounds=4) for after in (1, 10**9))
    assert equal(found, want)
    assert not any(used)


def test_dense_features_many_features_and_double_train_whole_stacks(used: list[bool]) -> None:
    dense = [own.replace(x=own.x.to_dense()) for own in CLIENTS]  # type: ignore[union-attr]
    many = [sparse(own, 1, share=0.9) for own in CLIENTS]
    for clients in (dense, many):
        assert equal(*(run(fedavg(), clients, after=after) for after in (1, 10**9)))
    double = [own.replace(x=own.x.astype(torch.float64)) for own in CLIENTS]  # type: ignore[union-attr]
    assert equal(*(run(fedavg(model=gcn().double()), double, after=n) for n in (1, 10**9)))
    assert not any(used)


def test_only_touched_rows_are_trained_and_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: the rows of features that a client has, and the received bits of all others."""
    sizes = []
    original = rows.Rows.taken

    def noted(self: Any, tensors: Any) -> Tensor:
        sizes.append(len(self.touched))
        return original(self, tensors)

    monkeypatch.setattr(rows.Rows, "taken", noted)
    method = METHODS["local"](gcn(), ADAM)
    start = method.initial()["convs.0.lin.weight"].T.clone()
    result = run(method)
    have = [own.x.pattern.col.unique().tolist() for own in CLIENTS]  # type: ignore[union-attr]
    assert sizes and set(sizes) == {sum(map(len, have))}
    for client, features in enumerate(have):
        model: Any = result.outbox[client]["model"]
        moved = (start != model["convs.0.lin.weight"].T).any(1)
        assert set(moved.nonzero().flatten().tolist()) <= set(features)
        assert moved.sum() >= len(features) - 1  # the column of the entry that is 0


def test_a_weight_that_a_loss_begins_to_read_is_noticed(used: list[bool]) -> None:
    """A flag of Python, a new entry of contexts: the step is recorded anew."""
    for kind in ("flag", "context"):
        used.clear()
        found = []
        for after in (1, 10**9):
            flags = {"on": False}
            method = fedavg()
            plain = method.loss

            def loss(
                params: Any, graph: Any, context: Any, plain: Any = plain, on: Any = flags
            ) -> Any:
                total = plain(params, graph, context)
                read = on["on"] or "pull" in context
                return total + params["convs.0.lin.weight"].norm() if read else total

            def receive(message: Any, state: Any, graph: Any, on: Any = flags) -> Any:
                context = {"pull": torch.ones(())} if on.get("pull") else {}
                return dict(message["model"]), context

            def change(record: Any, result: Any, on: Any = flags, kind: str = kind) -> None:
                if record.round == 2:
                    on["on" if kind == "flag" else "pull"] = True

            method = replace(method, loss=loss, receive=receive)
            found.append(run(method, after=after, num_rounds=7, callbacks=[change]))
        assert equal(*found)
        assert used[:7] == [False, False, True, *[False] * 4]


def test_rows_that_are_put_elsewhere_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = rows.Rows.put

    def elsewhere(self: Any, stack: Tensor, compact: Tensor) -> Tensor:
        return original(self, stack, compact.roll(1, 0))

    want = run(fedavg(), after=10**9)
    monkeypatch.setattr(rows.Rows, "put", elsewhere)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traced, "AFTER", 1)
        result = fgl.run(fedavg(), CLIENTS, num_rounds=6, clients_at_once="all", seed=1)
    assert equal(result, want)
    assert sum("numbers" in record.untraced for record in result.history) == 1


def test_some_clients_several_cohorts_and_a_resume(used: list[bool], tmp_path: Path) -> None:
    few = {"participation": 0.7, "num_rounds": 12}
    for options in (few, {"clients_at_once": 2}):
        found, want = (run(fedavg(), after=after, **options) for after in (1, 10**9))
        assert equal(found, want)
        assert any(used)
    want = run(fedavg(), after=10**9)
    run(fedavg(), num_rounds=3, checkpoint=tmp_path)
    assert equal(run(fedavg(), checkpoint=tmp_path), want)


def test_a_step_of_other_graphs_trains_whole_stacks(used: list[bool]) -> None:
    """In each fourth round the second step has all edges but the first ones."""
    found = []
    for after in (1, 10**9):
        drawn = iter(range(10**6))

        def batches(own: Any, context: Any, drawn: Any = drawn) -> Any:
            few = own.with_edges(torch.arange(4, own.num_edges))
            other = few if next(drawn) // len(CLIENTS) % 4 == 3 else own
            return [(own, context), (other, context)]

        found.append(run(fedavg(replace(ADAM, num_steps=None, batches=batches)), after=after))
    assert equal(*found)
    assert used[:6] == [False, False, True, False, False, False]


def test_batches_and_optimisers_are_made_once_a_round() -> None:
    """A factory that counts gives the learning rates of a run on whole stacks."""
    found = []
    for after in (1, 10**9):
        count = iter(range(1, 10**6))
        train = Training(lambda p, count=count: Adam(p, lr=0.1 / next(count)), num_steps=2)
        found.append(run(fedavg(train), after=after))
    assert equal(*found)


@pytest.mark.slow
def test_two_threads_give_the_same_bits() -> None:
    with threads(2):
        found = run(fedavg())
    assert equal(found, run(fedavg(), after=10**9))


def test_on_a_gpu_the_same_is_replayed_as_a_graph(used: list[bool]) -> None:
    with PretendedDevice() as gpu:
        clients = [own.to("cuda") for own in CLIENTS]
        found, want = (
            run(fedavg(model=gcn().cuda()), clients, after=after) for after in (1, 10**9)
        )
        assert equal(found, want)
    assert used[2] and not gpu.mixed


def of_nodes() -> Any:
    whole = sparse(graph(60), 1)
    parts = torch.randperm(60, generator=torch.Generator().manual_seed(3)).split([12, 18, 20, 10])
    clients = fgl.data.partitions.partition_graph(whole, parts)
    return tasks.node_task(whole, clients, gcn(), ADAM)


ROWS = [name for name, row in conformance.ROWS.items() if "nodes" in row.tasks]
QUICK = ("fedavg", "fgssl", "fedprox", "scaffold", "fedper", "fedproto", "moon", "sparsified")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in ROWS]
)
def test_a_row_of_the_table_has_the_same_bits(name: str) -> None:
    task = of_nodes()
    rounds = 5 * conformance.ROWS[name].build(task).rules.exchange
    try:
        want = run(conformance.ROWS[name].build(task), task.clients, after=10**9, num_rounds=rounds)
    except Exception as error:
        pytest.skip(f"no batch trains it: {error}")
    found = run(conformance.ROWS[name].build(task), task.clients, num_rounds=rounds)
    assert equal(found, want)
