"""Whatever a node answers costs that client its round at most: every field of every reply."""

import copy
import json
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import SGD, fedavg, graphs, model

import fgl
from fgl.federation import Limits

pytest.importorskip("flwr")

from flower_grid import Grid, apps, spoiled
from flwr.app import Array, ConfigRecord, Error
from test_flower import flower, rate

from fgl.federation import client_app
from fgl.federation.executors.remote.replies import logged

LIAR = 102
GONE = object()
# What may stand in a field, whatever belongs there.
HOSTILE: list[Any] = [
    GONE, "", "-1", "0", "1", "9" * 19, "9" * 5000, "nan", "one", "[" * 100_000, "[1, 2]", "null",
    '{"rate": NaN}', '{"rate": [5, 0]}', '{"rate": [1, -1]}', '{"rate": 1e999}', '{"rate": true}',
    '{"rate": [1]}', '{"rate": [[1, 2], 3]}', '{"\\ud800": 1}', '{"val_loss": 0.5}', "{}",
    '{"rate": "1"}', '[["model", ["w", "w"]]]', "[[7, null]]", '[["model"]]', b"bytes", b"", True,
    False, 0, -1, 7, 0.5, float("nan"), float("inf"), 1e300, [], [1.0], [float("nan")], ["a"],
    [True], [1, 2], "x" * 2**21,
]  # fmt: skip
QUERY = ["client", "agreement", "scores"]
BOTH = ["run", "seed", "round", "client", "base"]
TRAIN = [*BOTH, "names", "keeps", "losses", "num_examples"]
EVALUATE = [*BOTH, "metrics"]


def with_field(reply: Any, name: str, value: Any) -> Any:
    note = reply.content["note"]
    if value is GONE:
        del note[name]
    else:
        note[name] = value
    return reply


def without_a_note(reply: Any) -> Any:
    del reply.content["note"]
    return reply


def array(dtype: str, data: bytes) -> Callable[[Any], Any]:
    def change(reply: Any) -> Any:
        reply.content["message"]["packed"] = Array(dtype, (len(data),), "numpy.ndarray", data)
        return reply

    return change


def without_an_array(reply: Any) -> Any:
    del reply.content["message"]["packed"]
    return reply


def one_more_record(reply: Any) -> Any:
    reply.content["more"] = ConfigRecord({"x": "y" * 2**21})
    return reply


def changes(kind: str) -> list[tuple[str, Callable[[Any], Any]]]:
    """Every change of a reply of this kind, with its name."""
    fields = {"query": QUERY, "train": TRAIN, "evaluate": EVALUATE}[kind]
    made: list[tuple[str, Callable[[Any], Any]]] = [
        (f"{name} = {str(value)[:20]}", lambda reply, n=name, v=value: with_field(reply, n, v))
        for name in fields
        for value in HOSTILE
    ]
    made += [("no note", without_a_note), ("one more record", one_more_record)]
    if kind == "train":
        made += [
            ("no array", without_an_array),
            ("huge header", array("uint8", b"\xff" * 8 + b"{}")),
            ("array of objects", array("object", b"\x93NUMPY")),
        ]
    return made


def asked(per_tensor: bool) -> tuple[Any, dict[str, Any]]:
    """An executor that has met its nodes, and honest replies of client 2."""
    replies: dict[str, Any] = {}

    def keep(kind: str, node: int, times: int, reply: Any) -> Any:
        if node == LIAR:
            replies[kind] = reply
        return reply

    method = fedavg(model(), SGD)
    on = flower(Grid(apps(method, graphs(), score=rate), keep), per_tensor=per_tensor)
    executor = on(method, seed=0, states={}, config={})
    outbox = {client: {"model": method.initial()} for client in range(4)}
    dict(executor.train(0, outbox, range(4)))
    executor.score(0, outbox)
    return executor, replies


def answered(executor: Any, kind: str, reply: Any) -> Any:
    """What the executor makes of a reply of client 2."""
    executor._ask = lambda *_: {2: executor._too_large(reply.content) or reply.content}
    if kind == "evaluate":
        return executor.score(0, {client: {} for client in range(4)})
    return dict(executor.train(0, {2: {}}, [2]))[2]


@pytest.mark.parametrize("per_tensor", [False, True])
def test_no_field_of_an_answer_raises_at_the_server(per_tensor: bool) -> None:
    executor, replies = asked(per_tensor)
    packed = "array"
    some = [each for each in changes("train") if not (per_tensor and packed in each[0])]
    taken = set()
    for name, change in some:
        answer = answered(executor, "train", change(copy.deepcopy(replies["train"])))
        if answer.message is None:
            assert 0 < len(answer.problem) <= 300, name
            assert answer.problem.isprintable(), name
        else:
            taken.add(name)
            assert 0 <= answer.num_examples < 10**20
            assert all(isinstance(loss, float) for loss in answer.losses)
    harmless = {"names", "keeps", "losses", "num_examples", *(() if per_tensor else ["more"])}
    assert {name.split(" = ")[0] for name in taken} <= harmless | set(BOTH), taken
    numbers = {name for name in taken if name.startswith(tuple(BOTH))}
    assert numbers <= {"seed = 0", "round = 0", "base = -1"}  # as they are


@pytest.mark.filterwarnings("ignore:Round")
def test_no_field_of_a_score_raises_at_the_server() -> None:
    executor, replies = asked(per_tensor=False)
    taken = {}
    for name, change in changes("evaluate"):
        found = answered(executor, "evaluate", change(copy.deepcopy(replies["evaluate"])))
        taken |= {name: found[2]} if 2 in found else {}
    assert {name for name, score in taken.items() if "rate" not in score} == {
        'metrics = {"val_loss": 0.5}', "metrics = {}"
    }  # fmt: skip
    assert {name for name, score in taken.items() if "nodes" in score} == {
        "seed = 0", "round = 0", "base = -1"
    }  # fmt: skip


def scored(rows: list[tuple[str, Callable[[Any], Any]]], **how: Any) -> tuple[Any, list[str]]:
    """A run in which one client's score is changed, in each round in another way."""

    def change(kind: str, node: int, times: int, reply: Any) -> Any:
        changed = kind == "evaluate" and node == LIAR and times <= len(rows)
        return rows[times - 1][1](reply) if changed else reply

    method = fedavg(model(), SGD)
    grid = Grid(apps(method, graphs(), score=rate), change)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        on = flower(grid, poll=0.0)
        result = fgl.run(method, on, num_rounds=len(rows), watch=lambda _: {"val_loss": 1}, **how)
    texts = [str(each.message) for each in caught]
    return result, [text for text in texts if text.startswith("Round")]  # torch has its own


@pytest.mark.few
@pytest.mark.parametrize("value", [[5, 0], [0, -1], [float("nan"), 1], float("nan"), [1e999, 1]])
def test_a_metric_that_counts_nothing_does_not_move_the_mean(value: Any) -> None:
    result, caught = scored([said({"rate": value, "nodes": 31.0}), said({"rate": [0, 0]})])
    assert result.history[0].metrics["nodes"] == pytest.approx(49 / 3)  # of 12, 20 and 17
    for record in result.history:
        assert record.metrics["rate"] * 49 % 1 == pytest.approx(0, abs=1e-9)
    assert len(caught) == 1
    assert "Round 0, client 2, score: Expected rate to " in caught[0]


def test_a_metric_named_like_the_servers_is_refused_by_name() -> None:
    change = [("", lambda reply: with_field(reply, "metrics", '{"val_loss": 0.5, "rate": 1}'))]
    result, caught = scored(change)
    assert caught == [
        "Round 0, client 2, score: Expected metrics that nothing else has, but got 'val_loss' again"
    ]
    assert result.history[0].metrics["val_loss"] == 1.0


def said(metrics: dict[str, Any]) -> tuple[str, Callable[[Any], Any]]:
    return "", lambda reply: with_field(reply, "metrics", json.dumps(metrics))


def test_names_of_metrics_are_few_and_short(reached: Any) -> None:
    many = {f"spam {k}": 1.0 for k in range(101)}
    few = {f"spam {k}": 1.0 for k in range(100)}
    result, caught = scored([said(many), said({"x" * 101: 1.0}), said({"a\n": 1.0}), said(few)])
    texts = [
        "a score to have at most 100 metrics, but got 101",
        "the names of metrics to have at most 100 letters, but got 101",
        "the names of metrics to be printable, but got 'a\\n'",
        "100 metrics of all clients, but got more",
    ]
    assert len(caught) == 4
    assert all(f"Expected {text}" in warning for text, warning in zip(texts, caught, strict=True))
    last = result.history[-1].metrics
    reached("names of metrics kept", len(last) - 1, 100)
    assert len(last) == 101  # and the server's one
    assert last["rate"] * 49 % 1 == pytest.approx(0, abs=1e-9)  # those that most have stay
    result, _ = scored([said({"a": 1.0})], limits=Limits(metrics=2))
    assert set(result.history[0].metrics) == {"rate", "nodes", "val_loss"}


@pytest.mark.filterwarnings("ignore")
def test_no_field_of_a_handshake_ends_a_run(tmp_path: Path) -> None:
    """A node for each change says that it is client 2, who is not there."""
    some = changes("query")

    def met(kind: str, node: int, times: int, reply: Any) -> Any:
        return some[node - 900][1](reply) if node >= 900 else reply

    method = fedavg(model(), SGD)
    grid = Grid(apps(method, graphs(), score=rate), met=met)
    for number in range(len(some)):
        grid.add(900 + number, like=LIAR)
    grid.gone.add(LIAR)
    result = fgl.run(method, flower(grid, num_clients=4, timeout=1.0), num_rounds=3)
    for record in result.history:
        assert set(record.dropped) <= {2}
        assert set(record.metrics) == {"rate", "nodes"}


@pytest.mark.filterwarnings("ignore:Round 0, client 2")
def test_a_large_upload_is_not_read(monkeypatch: pytest.MonkeyPatch, reached: Any) -> None:
    method, read = fedavg(model(), SGD), []

    def more(message: Any) -> None:
        message["spam"] = torch.zeros(50_000)

    grid = Grid(
        apps(method, graphs()),
        lambda kind, node, times, reply: spoiled(reply, more) if node == LIAR else reply,
    )
    on = flower(grid)
    whole = type(on).message
    monkeypatch.setattr(type(on), "message", lambda *given: read.append(1) or whole(*given))
    result = fgl.run(method, on, num_rounds=1, limits=Limits(upload_bytes=100_000))
    reached("large uploads read", len(read) - 3, 1)
    assert len(read) == 3
    assert (
        "Expected the upload to have at most 100000 bytes, but got 20"
        in (result.history[0].dropped[2])
    )
    result = fgl.run(method, on, num_rounds=1)  # it is refused for its form then
    assert len(read) == 7


# What an operator is told.


def test_a_clients_log_has_the_words(caplog: pytest.LogCaptureFixture) -> None:
    logged(OSError("/data/patients.pt is not there"), "train")
    assert "train failed" in caplog.text and "OSError: /data/patients.pt" in caplog.text


def failing(who: int, until: int = 10**6) -> list[Any]:
    """Apps, of which one cannot be built, as often as that."""
    method, clients, times = fedavg(model(), SGD), graphs(), [0]

    def app(client: int) -> Any:
        def build(context: Any) -> Any:
            times[0] += client == who
            if client == who and times[0] <= until:
                raise OSError("/data/patients.pt is not there")
            return method, clients[client], client

        return client_app(build)

    return [app(client) for client in range(4)]


@pytest.mark.filterwarnings("ignore:.*clinic 102 is refused")
@pytest.mark.parametrize("named", [False, True])
def test_an_app_that_cannot_be_built_says_so_in_every_round(named: bool, reached: Any) -> None:
    method, grid = fedavg(model(), SGD), Grid(failing(2))
    names = {"names": [f"clinic {100 + k}" for k in range(4)]} if named else {}
    result = fgl.run(method, flower(grid, timeout=0.3, **names), num_rounds=3)
    why = "its node is refused: " if named else "no node says that it is this client; refused are "
    reasons = [reason for record in result.history for reason in record.dropped.values()]
    reached("reasons with the error's words", sum("pati" in each for each in reasons), len(reasons))
    for record in result.history:
        assert record.dropped == {2: f"{why}build at clinic 102: OSError (its log has the words)"}


def test_a_node_that_was_refused_is_asked_again_and_comes_back() -> None:
    method, grid = fedavg(model(), SGD), Grid(failing(2, until=2))
    with pytest.warns(UserWarning, match="^clinic 102 is refused: build at clinic 102") as caught:
        result = fgl.run(method, flower(grid, timeout=0.3), num_rounds=5)
    assert len(caught) == 1
    dropped = [list(record.dropped) for record in result.history]
    assert dropped[:2] == [[2], [2]]
    assert dropped[-2:] == [[], []]


# A run in which nobody takes part.


@pytest.mark.filterwarnings("ignore:.*clinic 10. is refused")
def test_where_nobody_is_asked_the_first_round_raises_and_saves_nothing(tmp_path: Path) -> None:
    method, clients = fedavg(model(), SGD), graphs()

    def met(kind: str, node: int, times: int, reply: Any) -> Any:
        return Error(1, "module 'fgl' has no attribute 'nn'")

    how: Any = {"num_rounds": 5, "checkpoint": tmp_path}
    start = time.monotonic()
    text = "Round 0: no client can be asked: clients 0-3: .*no attribute"
    with pytest.raises(RuntimeError, match=text):
        fgl.run(method, flower(Grid(apps(method, clients), met=met), timeout=60.0), **how)
    assert time.monotonic() - start < 50  # as many nodes as clients: nobody is waited for
    assert not list(tmp_path.glob("*.ckpt"))
    result = fgl.run(method, flower(Grid(apps(method, clients))), **how)
    assert [len(record.dropped) for record in result.history] == [0] * 5


def test_where_nobody_answers_for_three_rounds_the_run_raises_and_says_why(tmp_path: Path) -> None:
    method, clients = fedavg(model(), SGD), graphs()

    def mute(kind: str, node: int, times: int, reply: Any) -> Any:
        return None if times > 2 else reply

    how: Any = {"num_rounds": 6, "checkpoint": tmp_path}
    text = "Round 4: no upload counted in 3 rounds in a row: "
    with pytest.raises(RuntimeError, match=text + r"clients 0-3: no answer in 0\.2 s$"):
        fgl.run(method, flower(Grid(apps(method, clients), mute), timeout=0.2), **how)
    assert max(path.name for path in tmp_path.glob("*.ckpt")) == "round-000002.ckpt"
    result = fgl.run(method, flower(Grid(apps(method, clients))), **how)
    assert [len(record.dropped) for record in result.history] == [0] * 6


LOSSES = {
    "not a number": [math.nan],
    "infinite": [0.5, math.inf],
    "huge": [1e300],
    "huge and finite in parts": [1e308, -1e308, 1e300],
    "many": [0.0] * 50_000,
    "negative": [-1e12],
}


@pytest.mark.few
@pytest.mark.parametrize("name", list(LOSSES))
def test_one_client_does_not_decide_the_loss_of_a_history(name: str, reached: Any) -> None:
    """It says what it likes beside a good upload, which counts all the same."""

    def change(kind: str, node: int, times: int, reply: Any) -> Any:
        if node == LIAR and kind == "train":
            reply.content["note"]["losses"] = LOSSES[name]
        return reply

    method = fedavg(model(), SGD)
    honest = fgl.run(method, flower(Grid(apps(method, graphs()))), num_rounds=2)
    result = fgl.run(method, flower(Grid(apps(method, graphs()), change)), num_rounds=2)
    for record, want in zip(result.history, honest.history, strict=True):
        near = 0.5 * want.loss < record.loss < 2 * want.loss
        reached("losses moved more than twofold", not near, 1)
        assert not record.dropped and near
