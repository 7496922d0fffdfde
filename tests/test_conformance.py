"""The promises of the house, kept by every method of the table on every task that it claims."""

import copy
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conformance import CASES, WITH_PRIVATE, K, case, known, row
from federations import by_hand, close, end, receive_as_a_run, refuses, same, script

import fgl
from fgl import Method
from fgl.federation import Inbox, deployed, train, trainable
from fgl.federation.method.compose import unsealed
from fgl.federation.method.message import leaves
from fgl.tasks import Task
from fgl.transforms import clients_summed

F32, F64 = torch.float32, torch.float64
SLOW = pytest.mark.slow

one_by_one = partial(fgl.run, clients_at_once=1)  # but where a test says otherwise


def rows(
    keep: Callable[[str, str], bool] = lambda name, task: True, *, composed: bool = True
) -> Any:
    """A test of every row on every task, or of those that are kept.

    `make test` has FedAvg on all tasks, the other rows on their first one, compositions only where
    `composed`; `make nightly` has the others.
    """
    chosen = [
        pytest.param(*pair, id=" | ".join(pair), marks=marks(*pair, composed=composed))
        for pair in (*CASES, *WITH_PRIVATE)
        if keep(*pair)
    ]
    return pytest.mark.parametrize(("name", "task"), chosen)


def marks(name: str, task: str, *, composed: bool = True) -> Any:
    """Whether a case is left to ``make nightly``."""
    own = row(name)
    first = name == "fedavg" or task == (own.first or own.tasks)[0]
    composed = composed and own.exchange == 1  # a sum takes four times the rounds
    return () if first and (composed or " of " not in name) else SLOW


@pytest.fixture(autouse=True)
def global_generator_stays() -> Iterator[None]:
    with torch.random.fork_rng():
        yield


def tensors(value: Any) -> Any:
    """A context or a graph as plain dicts of tensors, to compare."""
    if isinstance(value, dict):
        return {key: tensors(part) for key, part in value.items()}
    if isinstance(value, fgl.Ragged):
        return [tensors(value.values), value.mask]
    if isinstance(value, fgl.SparseMatrix):
        return value.to_dense()
    return value


def contents(data: fgl.Graph) -> list[Any]:
    return [tensors(data.x), data.edge_index, data.y, data.train_mask, data.adj.to_dense()]


@pytest.mark.filterwarnings("ignore:Secure sum")  # of one client alone
@rows()
def test_pure(name: str, task: str) -> None:
    """The same call twice gives the same; inputs, states, messages, model and graph stay."""
    method, made = case(name, task)
    k, own = 2, made.clients[2]
    ends = [lambda record, _: record.round + 1 == 2 * row(name).exchange]
    num_rounds = 2 * method.rules.exchange
    result = one_by_one(method, made.clients, num_rounds=num_rounds, seed=1, callbacks=ends)
    server = result.server_state
    message, state = result.outbox[k], result.client_states[k]
    params, context = receive_as_a_run(method, message, state, own)
    step = next(iter(method.train.batches(own, context)), None) if method.train.batches else None
    seen, given = step or (own, context)
    names = trainable(method, own)  # a count of batches is no number that trains
    trained = {name: value + (0.01 if name in names else 0) for name, value in params.items()}
    told = {**context, "trained": {"num_steps": torch.tensor(2), "losses": torch.zeros(2)}}
    torch.manual_seed(0)
    uploads = {k: method.send(trained, told, state, own)[0]}
    uploads[0] = method.send(trained, told, state, own)[0]
    inbox = Inbox(uploads, K, result.outbox)

    def loss() -> Any:
        starts = {name: p.clone().requires_grad_(name in names) for name, p in trained.items()}
        wanted = [start for start in starts.values() if start.requires_grad]
        value = method.loss(starts, seen, given)
        found = torch.autograd.grad(value, wanted, allow_unused=True)
        return value.detach(), found

    def aggregate() -> Any:
        outbox, kept = method.aggregate(inbox, server)
        return dict(outbox), kept

    how = {"optimizer": state["optimizer"]} if method.train.keep_optimizer else {}
    calls: list[Callable[[], Any]] = [
        lambda: [tensors(each) for each in method.receive(message, state, own)],
        *([loss] if step or row(name).exchange == 1 else []),  # before a sum nobody trains
        lambda: train(method, params, own, context, seed=3, **how),  # type: ignore[arg-type]
        lambda: method.send(trained, told, state, own),
        aggregate,
        lambda: method.deploy(message, state, own),
    ]
    model = dict(method.model.state_dict())

    def inputs() -> Any:
        plain = (message, state, params, tensors(told), trained, uploads, dict(server), model)
        return copy.deepcopy((*plain, contents(own)))

    before = inputs()
    for call in calls:
        torch.manual_seed(5)
        made_ = call()
        kept = copy.deepcopy(made_)
        torch.manual_seed(5)
        assert same(call(), kept)
        assert same(made_, kept)
        assert same(inputs(), before)
    assert all(p.grad is None for p in method.model.parameters())


@rows(composed=False)
def test_any_order_absent_clients_and_bytes(name: str, task: str) -> None:
    """A run is what its parts make by hand, in any order of the clients, bit for bit."""
    method, made = case(name, task)
    size = []

    def send(*given: Any) -> Any:
        message, state = method.send(*given)
        size.append(sum(t.numel() * t.element_size() for _, t in leaves(message)))
        return message, state

    watched, own = replace(unsealed(method), send=send), row(name)
    absent = [each for each in own.absent for _ in range(own.exchange)]
    num_rounds = len(absent)
    result = one_by_one(watched, made.clients, num_rounds=num_rounds, seed=4, dropouts=own.gone)
    assert [tuple(sorted(r.dropped)) for r in result.history] == absent
    assert not set.intersection(*map(set, absent)) & set(result.client_states)
    want = by_hand(method, made.clients, num_rounds, seed=4, order=[2, 0, 3, 1], absent=own.gone)
    assert same(dict(result.outbox), want.outbox)
    assert same(dict(result.server_state), want.server_state)
    assert same(dict(sorted(result.client_states.items())), want.client_states)
    assert [(r.bytes_down, r.bytes_up) for r in result.history] == [
        (r.bytes_down, r.bytes_up) for r in want.history
    ]
    sent = iter(size)
    for record, away in zip(result.history, absent, strict=True):
        joined = (
            8 * K if method.rules.joining and not record.round else 0
        )  # a number of each client
        assert record.bytes_up - joined == sum(next(sent) for _ in range(K - len(away)))
    assert own.exchange == 1 or clients_summed(result.server_state)["clients_summed"] == 3


def draws_nothing(name: str, task: str) -> bool:
    """Whether neither the method nor its task draws, and all clients are alike to it."""
    own = row(name)
    still = not (own.by_place or own.draws or "drawn" in name)
    return still and task in ("nodes", "overlapping")


@rows(draws_nothing, composed=False)
def test_names_of_the_clients(name: str, task: str) -> None:
    """Without randomness, who is called client 0 does not matter."""
    method, made = case(name, task, dropout=0.0, dtype=F64)
    order = [2, 0, 3, 1]
    num_rounds = 2 * row(name).exchange
    one = one_by_one(method, made.clients, num_rounds=num_rounds)
    two = one_by_one(method, [made.clients[client] for client in order], num_rounds=num_rounds)
    for new, old in enumerate(order):
        close(two.outbox[new], one.outbox[old], atol=1e-5)
        close(two.client_states[new], one.client_states[old], atol=1e-5)


def resumes() -> Iterator[Any]:
    """Every row; in batches those that are no compositions, of which `make test` has FedAvg."""
    for name, task in (*CASES, *WITH_PRIVATE):
        each, slow = f"{name} | {task}", marks(name, task, composed=False)
        yield pytest.param(name, task, 1, id=f"{each} | loop", marks=slow)
        if " of " not in name and task not in row(name).alone:
            slow = slow if name == "fedavg" else SLOW
            yield pytest.param(name, task, "all", id=f"{each} | batch", marks=slow)


def lost_on_the_way(index: int, client: int) -> bool:
    return (index, client) == (6, 1)


@pytest.mark.filterwarnings("ignore:Round 7, client 1")
@pytest.mark.parametrize(("name", "task", "at_once"), list(resumes()))
def test_resume_is_no_interruption(name: str, task: str, at_once: Any, tmp_path: Path) -> None:
    """Saved, stopped and gone on with, a run ends as it would have."""
    made, exchange = known(task, 0.5, F32), row(name).exchange
    options: Any = {"seed": 2, "participation": 0.75, "dropouts": 0.2, "clients_at_once": at_once}
    if exchange > 1:  # one client is lost on the way, and the sum is made without it
        options |= {"participation": 1.0, "dropouts": lost_on_the_way}

    def go(num_rounds: int, **more: Any) -> dict[str, Any]:
        return end(one_by_one(case(name, task)[0], made, num_rounds=num_rounds, **options, **more))

    want = go(3 * exchange)
    assert any(record["dropped"] for record in want["history"])
    count = round(K * options["participation"])
    assert all(len(record["participants"]) == count for record in want["history"])
    go(exchange + exchange // 2, checkpoint=tmp_path)  # in the midst of an exchange
    torch.manual_seed(7)
    assert same(go(3 * exchange, checkpoint=tmp_path), want)


def test_another_seed_is_another_run() -> None:
    method, made = case("fedavg", "nodes")
    one, two, again = (
        end(one_by_one(method, made, num_rounds=2, seed=seed, participation=0.5))
        for seed in (1, 2, 1)
    )
    assert same(one, again)
    assert not same(one["outbox"], two["outbox"])
    assert all(len(record["participants"]) == 2 for record in one["history"])


def diverging(method: Method, bad: list[fgl.Graph], from_round: int) -> Method:
    """The method, some of whose clients end their training with NaN, from some round on."""
    rounds = dict.fromkeys(map(id, bad), 0)

    def send(params: Any, context: Any, state: Any, own: fgl.Graph) -> Any:
        if id(own) in rounds:
            rounds[id(own)] += 1
            if rounds[id(own)] > from_round:
                params = {name: value * math.nan for name, value in params.items()}
        return method.send(params, context, state, own)

    return replace(unsealed(method), send=send)


@rows(lambda name, task: row(name).sends, composed=False)
def test_a_diverging_client_is_dropped_counted_and_warned_of(name: str, task: str) -> None:
    method, made = case(name, task)
    bad = diverging(method, [made.clients[2]], from_round=1)
    with pytest.warns(UserWarning, match="Round 1, client 2: .* is not finite"):
        result = one_by_one(bad, made.clients, num_rounds=2)
    assert result.history[0].dropped == {}
    assert list(result.history[1].dropped) == [2]
    assert re.fullmatch(r"\S+ is not finite", result.history[1].dropped[2])
    assert math.isfinite(result.history[1].loss)
    want = by_hand(method, made.clients, 2, absent=lambda index, client: (index, client) == (1, 2))
    assert same(dict(result.outbox), want.outbox)
    assert same(dict(result.server_state), want.server_state)
    assert same(result.client_states[2], want.client_states[2])
    assert result.history[1].bytes_up > want.history[1].bytes_up  # it did cross the wire


@rows(lambda name, task: row(name).sends, composed=False)
def test_all_diverging_keeps_the_old_model(name: str, task: str) -> None:
    method, made = case(name, task)
    bad = diverging(method, list(made.clients), from_round=1)
    with pytest.warns(UserWarning, match="is not finite"):
        result = one_by_one(bad, made, num_rounds=2)
    want = by_hand(method, made.clients, 1)
    assert same(dict(result.outbox), want.outbox)
    assert same(dict(result.server_state), want.server_state)
    assert [sorted(r.dropped) for r in result.history] == [[], [0, 1, 2, 3]]
    first, *later = [r.metrics for r in result.history]
    assert all(each == first for each in later)


def near_in(task: str) -> float:
    """How near metrics must be: of pairs many have one score, whose order rounding decides."""
    return 0.02 if task in ("signs of pairs", "next edges") else 1e-5


@pytest.mark.filterwarnings("ignore:Secure sum")  # a sum of one round fails
@rows(lambda name, task: not row(name).draws and task not in row(name).alone, composed=False)
def test_batch_is_the_loop(name: str, task: str) -> None:
    """In double: a threshold and the largest so many turn rounding into other labels and edges."""
    own = row(name)
    options: Any = {"seed": 1, "participation": 0.75}
    ends = []
    for at_once in (1, "all"):
        method, made = case(name, task, dropout=0.0, dtype=F64)
        options |= {"dropouts": lambda index, client: (index // own.exchange, client) == (1, 0)}
        options["num_rounds"] = 2 * method.rules.exchange
        bad = diverging(method, [made.clients[3]] * own.sends, from_round=1)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Round .* client 3: ")
            ends.append(one_by_one(bad, made, clients_at_once=at_once, **options))
    one, all_ = ends
    for client in range(K):
        close(all_.outbox[client], one.outbox[client], atol=own.near)
        for key, value in one.client_states.get(client, {}).items():
            torch.testing.assert_close(
                all_.client_states[client][key],
                value,
                rtol=0,
                atol=max(own.near, 1e-5),
                equal_nan=True,
            )
    assert sorted(all_.client_states) == sorted(one.client_states)
    for ours, theirs in zip(all_.history, one.history, strict=True):
        assert ours.dropped == theirs.dropped
        assert (ours.bytes_up, ours.bytes_down) == (theirs.bytes_up, theirs.bytes_down)
        assert ours.loss == pytest.approx(theirs.loss, abs=1e-5, nan_ok=True)
        assert ours.metrics == pytest.approx(theirs.metrics, abs=near_in(task), nan_ok=True)


def no_training_node(task: Task) -> fgl.Graph:
    own = task.clients[2]
    rows = own.train_mask if own.batch is None else own.y
    assert rows is not None
    return own.replace(train_mask=torch.zeros_like(rows, dtype=torch.bool))


@rows(lambda name, task: row(name).by_examples and task in ("nodes", "gat"), composed=False)
def test_a_client_without_a_training_example_counts_for_nothing(name: str, task: str) -> None:
    method, made = case(name, task)
    clients = [*made.clients, no_training_node(made)]
    result = one_by_one(method, clients, num_rounds=2)
    want = one_by_one(method, made.clients, num_rounds=2)
    assert [record.zero_weight for record in result.history] == [[K]] * 2
    assert all(record.participants == list(range(K + 1)) for record in result.history)
    assert all(record.dropped == {} for record in result.history)
    assert [r.loss for r in result.history] == [r.loss for r in want.history]
    for client in range(K):
        ours = {k: v for k, v in result.outbox[client].items() if k != "num_clients"}
        close(ours, {k: v for k, v in want.outbox[client].items() if k != "num_clients"})


@rows(composed=False)
def test_what_is_deployed_is_whole_and_is_what_is_scored(name: str, task: str) -> None:
    method, made = case(name, task)
    start, absent = one_by_one(method, made, num_rounds=0), {"dropouts": lambda _, k: k == 1}
    result = one_by_one(method, made, num_rounds=2 * method.rules.exchange, **absent)
    asked: list[Any] = []

    def deploy(message: Any, state: Any, own: fgl.Graph) -> Any:
        asked.append(own)
        return method.deploy(message, state, own)

    def score(scored: Method, each: Any) -> dict[str, float]:
        torch.manual_seed(5)  # a client that has no model yet may draw one
        return made.evaluate(scored)(each.outbox, each.client_states)

    for each in (start, result):
        asked.clear()
        metrics = score(replace(method, deploy=deploy), each)
        have_models = each.client_states if task == "ego" else range(K)
        assert {id(own) for own in asked} == {id(made.clients[k]) for k in have_models}
        assert metrics == pytest.approx(score(method, each), nan_ok=True)
        selects = made.select.removeprefix("-")
        assert not selects or not have_models or math.isfinite(metrics[selects])
        models = deployed(method, made.clients)(each.outbox, each.client_states)
        for client, params in models.items():
            whole = method.model_of(made.clients[client]).state_dict()
            fgl.federation.check_model(params, whole, f"client {client}'s")
            assert all(value.isfinite().all() for value in params.values())
            found = made.validate(params, made.clients[client])
            inside = found <= 0 if made.select.startswith("-") else 0 <= found <= 1
            assert math.isnan(found) or inside
    half = replace(method, deploy=lambda *given: dict(list(method.deploy(*given).items())[1:]))
    refuses("missing", lambda: score(half, result))

    def other(message: Any, state: Any, own: fgl.Graph) -> Any:
        whole = method.model_of(own).state_dict()
        return {name: torch.zeros_like(value) for name, value in whole.items()}

    zero, plain = (replace(each, deploy=other) for each in (method, made.fedavg))
    assert score(zero, result) == pytest.approx(score(plain, result), nan_ok=True)


def test_every_method_of_the_library_is_in_the_table() -> None:
    """Each of `fgl.methods` and of `examples` has a line."""
    built = " ".join(name for name, _ in CASES)
    helpers = {"node_generator", "proxy_graph", "random_neighbours", "uniform"}
    for method in set(fgl.methods.__all__) - helpers:
        assert method.replace("_", " ") in built, method
    for paper in ("fgssl", "fedgl", "fedego", "fedvgae", "gpfl", "your own"):
        assert paper in built


@pytest.mark.slow
def test_every_method_runs_where_the_page_says() -> None:
    """Tasks as settings make them; `docs/methods.md` has the table."""
    runs_on = script("docs/tables/runs_on.py")
    stored = json.loads(runs_on.FILE.read_text(encoding="utf-8"))
    assert runs_on.table(list(runs_on.CALLS)) == stored
