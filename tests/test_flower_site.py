"""A site of Flower's: what it answers once, what it keeps, what it refuses, and its ledger."""

import copy
import json
import math
import os
import re
import stat
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from conformance import known
from federations import end, same
from test_flower import flower, rate, stateful
from test_secure_sum import lines, tiny

import fgl
from fgl.transforms import clients_summed, privacy_spent, secure_sum, summed_gaussian

pytest.importorskip("flwr")

import flower_grid
from flower_grid import Grid, spoiled
from flwr.app import Error, Message

from fgl.federation import Loop
from fgl.federation.executors.remote.client import Note, answer
from fgl.federation.executors.remote.ledger import Ledger
from fgl.federation.executors.remote.shelf import StateFolder
from fgl.federation.executors.remote.wire import pack, unpack


class Post(Grid):
    """A grid that keeps the questions, so that a server can ask again and otherwise."""

    def __init__(self, *given: Any, **node: Any) -> None:
        super().__init__(*given, **node)
        self.questions: list[Any] = []

    def push_messages(self, messages: Any) -> list[str]:
        messages = list(messages)
        self.questions += [copy.deepcopy(message) for message in messages]
        return super().push_messages(messages)

    def of(self, index: int, node: int, kind: str = "train") -> Any:
        """The question of a round to a node."""
        for each in self.questions:
            told = each.metadata
            mine = (told.message_type, told.dst_node_id) == (kind, node)
            if mine and each.content["note"]["round"] == str(index):
                return each
        raise LookupError(index)

    def ask(self, question: Any, change: Any = None, **note: int) -> Any:
        """What a node answers to a question, with another message or another note."""
        content = copy.deepcopy(question.content)
        for name, value in note.items():
            content["note"][name] = str(value)
        if change is not None:
            array = content["message"]["packed"]
            message = unpack(array.data)
            change(message)
            array.data = pack(message)
        told = question.metadata
        (number,) = Grid.push_messages(
            self, [Message(content, told.dst_node_id, told.message_type)]
        )
        (reply,) = self.pull_messages([number])
        return reply


def sent(reply: Any) -> bytes:
    """The bits of an answer."""
    assert not refused(reply), reply
    data: bytes = reply.content["message"]["packed"].data
    return data


def refused(reply: Any) -> bool:
    return reply.has_error() or "error" in reply.content["note"]


def why(reply: Any) -> str:
    assert refused(reply)
    return str(reply.content["note"]["text"])


apps = partial(flower_grid.apps, full_errors=True)


def noisy(noise_multiplier: float = 2.0) -> tuple[fgl.Method, list[fgl.Graph]]:
    made = known("nodes", 0.0, torch.float32)
    method = fgl.transforms.local_gaussian(
        made.fedavg, length=1.0, noise_multiplier=noise_multiplier
    )
    return method, list(made.clients)


def at_sites(grid: Any, root: Any, **node: Any) -> Any:
    """Each client has a folder of its own, and the same node config otherwise."""
    for client, context in enumerate(grid.contexts.values()):
        context.node_config.update({"state": str(root / str(client)), **node})
    return grid


def ledger(root: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(root, "ledger.jsonl").read_text().splitlines()]


# One answer


@pytest.mark.parametrize("folder", [True, False])
def test_a_round_has_one_answer_and_one_noise(folder: bool, tmp_path: Any, reached: Any) -> None:
    """An answer with other bits, or one to another question, would be worth another epsilon."""
    method, clients = noisy()
    grid = Post(apps(method, clients), **({"state": str(tmp_path)} if folder else {}))
    result = fgl.run(method, flower(grid), num_rounds=2)

    def moved(message: Any) -> None:
        message["model"] = {name: value + 1 for name, value in message["model"].items()}

    for index in (0, 1):
        question = grid.of(index, 100)
        bits = {sent(grid.ask(question)) for _ in range(5)}
        reached("answers with other bits", len(bits) - 1, 5)
        assert len(bits) == 1
        reply = grid.ask(question, moved)
        reached("other questions answered", not refused(reply), 1)
        assert f"it answers one question in round {index}" in why(reply)
    assert sent(grid.ask(grid.of(0, 100))) != sent(grid.ask(grid.of(1, 100)))
    assert result.server_state["privacy"]["rounds"].tolist() == [2] * len(clients)  # type: ignore[index]


def test_lost_answers_cost_one_answer(tmp_path: Any) -> None:
    """The answers of client 1 to the first round are lost five times, on their way."""
    method, clients = noisy()
    came: list[bytes] = []

    def lose(kind: str, node: int, times: int, reply: Any) -> Any:
        if node == 101 and times <= 6:
            came.append(sent(reply))
        return Error(4, "lost") if node == 101 and times <= 5 else reply

    grid = at_sites(Grid(apps(method, clients), lose), tmp_path)
    result = fgl.run(method, flower(grid), num_rounds=2, watch=privacy_spent)
    assert len(came) == 6 and len(set(came)) == 1
    lines = ledger(tmp_path / "1")
    assert [line.get("again", False) for line in lines] == [False, *[True] * 5, False]
    assert result.history[-1].metrics["epsilon"] == lines[-1]["epsilon"]


@pytest.mark.filterwarnings("ignore:Round")
def test_the_server_counts_answers_that_never_came(tmp_path: Any) -> None:
    """All answers of a round are lost, and those of one client in the next."""
    method, clients = noisy()

    def lose(kind: str, node: int, times: int, reply: Any) -> Any:
        lost = times == 2 or (times == 3 and node == 101)
        return Error(2, "lost") if lost else reply

    grid = Grid(apps(method, clients), lose, state=str(tmp_path))
    result = fgl.run(method, flower(grid), num_rounds=3, watch=privacy_spent)
    assert [len(record.dropped) for record in result.history] == [0, len(clients), 1]
    assert result.server_state["privacy"]["rounds"].tolist() == [3] * len(clients)  # type: ignore[index]


def test_a_run_that_is_resumed_gets_the_answers_that_it_had(tmp_path: Any) -> None:
    """The server's newest checkpoint is lost: it asks for a round that was answered before."""
    method, clients = noisy()
    grid = Post(apps(method, clients), state=str(tmp_path / "states"))
    how: Any = {"clients": flower(grid), "checkpoint": tmp_path / "run"}
    want = fgl.run(method, num_rounds=3, **how)
    (tmp_path / "run" / "round-000003.ckpt").unlink()
    again = fgl.run(method, num_rounds=3, **how)
    assert same(end(again)["outbox"], end(want)["outbox"])
    spent = [line for line in ledger(tmp_path / "states") if line.get("noise")]
    assert len(spent) == 3 * len(clients)


# A secure sum's secrets


OVER = re.compile("tells each thing once|to have the exchange's first message, but got none")


def summed(root: Any, num_rounds: int = 4) -> tuple[fgl.Method, Post, fgl.Result]:
    method = secure_sum(tiny(), threshold=3)
    grid = Post(apps(method, lines(4)), state=str(root))
    on = flower(grid)
    ends = [lambda record, _: record.round + 1 == num_rounds]  # also within an exchange
    return method, grid, fgl.run(method, on, num_rounds=4, callbacks=ends)


@pytest.mark.parametrize("later", [0, 1, 40])
def test_a_server_that_goes_back_gets_one_secret(later: int, tmp_path: Any, reached: Any) -> None:
    """It has shares of everybody's own mask, and asks for those of client 0's common masks."""
    _, grid, _ = summed(tmp_path)

    def without_the_first(message: Any) -> None:
        message["secure"]["sent"][0] = False

    for node in (101, 102, 103):
        question = grid.of(3, node)
        told = unpack(sent(grid.ask(question)))["secure"]
        assert told["shares"][0, 0] == 1  # type: ignore[index]
        reply = grid.ask(question, without_the_first, round=3 + later)
        reached("second secrets told", not refused(reply), 1)
        assert OVER.search(why(reply))


def test_a_server_that_goes_back_gets_one_upload_with_a_mask(tmp_path: Any, reached: Any) -> None:
    _, grid, _ = summed(tmp_path, num_rounds=3)
    question = grid.of(2, 101)

    def without_the_last(message: Any) -> None:
        message["secure"]["here"][3] = False

    for later in (0, 1):
        for change in (without_the_last, None) if later else (without_the_last,):
            reply = grid.ask(question, change, round=2 + later)
            reached("second uploads with one mask", not refused(reply), 1)
            assert OVER.search(why(reply))
    assert len({sent(grid.ask(question)) for _ in range(3)}) == 1


@pytest.mark.parametrize("broken", ["state", "onward", "reply"])
def test_a_kill_at_any_moment_does_not_reveal_both(
    broken: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client is killed while it writes down that it told its shares."""
    _, grid, result = summed(tmp_path, num_rounds=3)
    write, base = StateFolder.write, int(result.client_states[1]["round"])  # type: ignore[arg-type]

    def killed(self: Any, index: int, payload: bytes, kind: str = "state") -> None:
        if kind == broken:
            raise OSError("killed")
        write(self, index, payload, kind)

    def shares(index: int, without: int) -> Any:
        """Who is asked in a round for what is left of a client, or is not."""
        here = torch.arange(4) != without

        def change(message: Any) -> None:
            message |= {"phase": torch.tensor(3), "secure": {"sent": here}}

        return grid.ask(grid.of(2, 101), change, round=index, base=base)

    with monkeypatch.context() as patch:
        patch.setattr(StateFolder, "write", killed)
        first = shares(3, 9)
    assert refused(first) == (broken != "state")  # it keeps no state after its shares
    told = [each for each in (first, shares(3, 9), shares(4, 0)) if not refused(each)]
    kinds = [int(unpack(sent(each))["secure"]["shares"][0, 0]) for each in told]  # type: ignore[index]
    assert kinds == {"state": [1, 1], "onward": [1], "reply": []}[broken]


@pytest.mark.parametrize("alike", [True, False])
def test_two_questions_get_one(alike: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server asks in two of Flower's runs, which a SuperNode plays side by side."""
    _, grid, result = summed(tmp_path, num_rounds=3)
    inner: list[Any] = []
    base = int(result.client_states[1]["round"])  # type: ignore[arg-type]

    def shares(without: int) -> Any:
        def change(message: Any) -> None:
            here = torch.arange(4) != without
            message |= {"phase": torch.tensor(3), "secure": {"sent": here}}

        return grid.ask(grid.of(2, 101), change, round=3, base=base)

    class Slow(Loop):
        def train(self, *given: Any) -> Any:
            found = super().train(*given)
            if not inner:
                inner.append(None)
                inner[0] = shares(9 if alike else 0)
            return found

    monkeypatch.setattr("fgl.federation.executors.remote.client.Loop", Slow)
    outer = shares(9)
    first = sent(inner[0])
    assert sent(outer) == first if alike else "was asked two questions at a time" in why(outer)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("after", ["reply", "marks"])
def test_a_process_that_is_quicker_at_any_moment_gives_the_only_answer(
    after: str, again: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second process answers the same question whole, right after the first read the folder.

    With `again` the folder has a reply to another question of that round, which costs nothing.
    """
    method, clients = noisy()
    if again:
        method = known("nodes", 0.0, torch.float32).fedavg
    note = Note(7, 0, 0, 1, -1)
    message: Any = {"model": method.initial()}
    shelf, book = StateFolder(tmp_path, 7, 1), Ledger(tmp_path, {})
    if again:
        other = {"model": {name: value + 1 for name, value in message["model"].items()}}
        answer(method, clients[1], note, other, shelf, book)
    inner: list[Any] = []
    read, rounds = StateFolder.read, StateFolder.rounds

    def quicker() -> None:
        if not inner:
            inner.append(None)
            inner[0] = answer(method, clients[1], note, message, shelf, book)[0]

    def read_then(self: Any, index: int, kind: str = "state") -> Any:
        content = read(self, index, kind)
        if after == "reply" and kind == "reply":
            quicker()
        return content

    def rounds_then(self: Any, kind: str = "state") -> Any:
        content = rounds(self, kind)
        if after == "marks" and kind == "reply":
            quicker()
        return content

    monkeypatch.setattr(StateFolder, "read", read_then)
    monkeypatch.setattr(StateFolder, "rounds", rounds_then)
    outer = answer(method, clients[1], note, message, shelf, book)[0]
    assert same(outer.message, inner[0].message)
    charged = [line for line in ledger(tmp_path) if line.get("noise")]
    assert len(charged) == 1 + again and outer.paid == 1


@pytest.mark.filterwarnings("ignore:Round")
def test_the_server_counts_what_a_site_paid(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill after the charge, answers lost where there is no folder, and a site that lies."""
    method, clients = noisy()

    def counts(grid: Any, **how: Any) -> list[int]:
        result = fgl.run(method, flower(grid), num_rounds=2, **how)
        paid: list[int] = result.server_state["privacy"]["rounds"].flatten().tolist()  # type: ignore[index]
        return paid

    write, killed = StateFolder.write, []

    def dies(self: Any, index: int, payload: bytes, kind: str = "state") -> None:
        if kind == "reply" and self.folder.name == "client-1" and not killed:
            killed.append(index)
            raise OSError("killed")
        write(self, index, payload, kind)

    def as_a_dead_app(kind: str, node: int, times: int, reply: Any) -> Any:
        return Error(4, "died") if "error" in reply.content.get("note", {}) else reply

    monkeypatch.setattr(StateFolder, "write", dies)
    grid = at_sites(Grid(apps(method, clients), as_a_dead_app), tmp_path)
    want = [2] * len(clients)
    want[1] = 3
    assert counts(grid) == want and killed == [0]
    assert sum(bool(line.get("noise")) for line in ledger(tmp_path / "1")) == 3

    def lose(kind: str, node: int, times: int, reply: Any) -> Any:
        return Error(4, "lost") if node == 101 and times <= 2 else reply

    want[1] = 4  # three answers to the first question, each with other bits for all that is known
    assert counts(Grid(apps(method, clients), lose)) == want

    def spoil(kind: str, node: int, times: int, reply: Any) -> Any:
        if node == 101 and times == 3:
            del reply.content["note"]
        return lose(kind, node, times, reply)

    assert counts(Grid(apps(method, clients), spoil)) == want

    def lies(kind: str, node: int, times: int, reply: Any) -> Any:
        if node == 101 and kind == "train":
            reply.content["note"]["paid"] = str(10**15)
        return reply

    assert counts(Grid(apps(method, clients), lies)) == [2] * len(clients)


def test_secrets_are_gone_when_an_exchange_ends(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, reached: Any
) -> None:
    drawn: list[bytes] = []

    def draw(count: int) -> bytes:
        drawn.append(os.urandom(count))
        return drawn[-1]

    monkeypatch.setattr("secrets.token_bytes", draw)

    def kept() -> int:
        files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        return sum(each in files for each in drawn if len(each) == 32)

    summed(tmp_path / "whole")
    assert len([each for each in drawn if len(each) == 32]) == 3 * 4
    reached("secrets found", kept(), 3 * 4)
    assert kept() == 0
    summed(tmp_path / "half", num_rounds=3)
    assert kept() == 3 * 4


def test_states_are_for_their_owner_alone(tmp_path: Any) -> None:
    method, clients = stateful()
    before = os.umask(0)
    try:
        grid = at_sites(Grid(apps(method, clients)), tmp_path / "sites")
        fgl.run(method, flower(grid), num_rounds=2, checkpoint=tmp_path / "run")
    finally:
        os.umask(before)
    found = [tmp_path / "sites" / "0", *(tmp_path / "sites" / "0").rglob("*")]
    assert len(found) > 6
    for path in found:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    for path in (tmp_path / "run").glob("*.ckpt"):  # of a simulation, it has the clients' states
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


# The ledger and its budget


def test_a_line_for_each_answer(tmp_path: Any) -> None:
    method, clients = noisy()
    grid = at_sites(Grid(apps(method, clients)), tmp_path)
    fgl.run(method, flower(grid), num_rounds=2)
    lines = ledger(tmp_path / "2")
    assert [line["round"] for line in lines] == [0, 1]
    assert [line["noise"] for line in lines] == [[[2.0, 1.0, 1]]] * 2
    for number, line in enumerate(lines, 1):
        want = fgl.privacy.epsilon(noise_multiplier=2.0, rounds=number, delta=1e-5)
        assert line["epsilon"] == want
        assert line["bytes"] > 500
        assert line["method"].startswith("local_gaussian(fedavg(GCN(...)")
        assert (line["kind"], line["client"], line["flower run"]) == ("train", 2, 1)
        assert (tmp_path / "2" / f"run-{line['run']}").is_dir()


def test_a_budget_refuses_beyond_it_after_a_restart_too(tmp_path: Any, reached: Any) -> None:
    method, clients = noisy()
    two, three = (fgl.privacy.epsilon(noise_multiplier=2.0, rounds=n, delta=1e-5) for n in (2, 3))
    grid = at_sites(Post(apps(method, clients)), tmp_path, epsilon=(two + three) / 2)
    fgl.run(method, flower(grid), num_rounds=2)
    kept = sent(grid.ask(grid.of(1, 101)))
    new = Post(apps(method, clients))
    at_sites(new, tmp_path, epsilon=(two + three) / 2)
    assert sent(new.ask(grid.of(1, 101))) == kept  # the same bits cost nothing
    for run in (None, 8):  # neither in this run nor in another
        told = {} if run is None else {"run": run}
        reply = new.ask(grid.of(1, 101), round=2, **told)
        reached("answers beyond a budget", not refused(reply), 1)
        said = why(reply)
        assert "Expected epsilon of all answers of this site to stay at most" in said
        assert f"but got {three:.4g} with this one" in said
    last = ledger(tmp_path / "1")[-1]
    assert "Expected epsilon of all answers" in last["refused"]
    assert (last["run"], last["round"]) == ("0000000000000008", 2)
    assert not (tmp_path / "1" / "run-0000000000000008").exists()


def test_a_budget_affords_nothing_without_noise(tmp_path: Any) -> None:
    method, clients = stateful()
    grid = at_sites(Post(apps(method, clients, score=rate)), tmp_path)
    fgl.run(method, flower(grid), num_rounds=1)
    assert [line["epsilon"] for line in ledger(tmp_path / "1")] == [None, None]
    new = at_sites(Post(apps(method, clients, score=rate)), tmp_path / "new", epsilon=1e6)
    for kind in ("train", "evaluate"):
        assert "but got inf with this one" in why(new.ask(grid.of(0, 101, kind), round=1))
    at_sites(new, tmp_path, epsilon=1e6)
    assert "inf with this one: answers without noise were given before" in why(
        new.ask(grid.of(0, 101), round=1)
    )
    noise, _ = noisy()
    with_scores = at_sites(Grid(apps(noise, clients, score=rate)), tmp_path / "n", epsilon=99.0)
    result = fgl.run(noise, flower(with_scores), num_rounds=1)
    assert not result.history[0].metrics and not result.history[0].dropped


@pytest.mark.parametrize("inside", [False, True])
def test_an_exchange_costs_one_answer_wherever_the_noise_is(inside: bool, tmp_path: Any) -> None:
    made = known("nodes", 0.0, torch.float32)
    if inside:
        method = summed_gaussian(made.fedavg, threshold=3, length=1.0, noise_multiplier=2.0)
    else:
        method = secure_sum(noisy(2.0)[0], threshold=3)
    grid = at_sites(Grid(apps(method, made.clients)), tmp_path, epsilon=99.0)
    result = fgl.run(method, flower(grid), num_rounds=8)
    assert not any(record.dropped for record in result.history)
    lines = ledger(tmp_path / "0")
    assert [bool(line["noise"]) for line in lines] == [False, False, True, False] * 2
    want = fgl.privacy.epsilon(noise_multiplier=2.0, rounds=2, delta=1e-5)
    assert lines[-1]["epsilon"] == want


@pytest.mark.filterwarnings("ignore:Round")
@pytest.mark.parametrize("told", [torch.tensor(0), torch.tensor(2.5), torch.tensor([2])])
def test_a_budget_is_not_deceived_by_questions(told: Any, tmp_path: Any, reached: Any) -> None:
    """The server asks for a masked upload, and says beside it that it asks for something free."""
    method = secure_sum(tiny(), threshold=2)
    grid = at_sites(Post(apps(method, lines(3))), tmp_path, epsilon=1.0)
    fgl.run(method, flower(grid), num_rounds=4, callbacks=[lambda record, _: record.round == 2])
    question = grid.of(2, 100)
    assert "but got inf" in why(grid.ask(question))

    def disguise(message: Any) -> None:
        message["secure"]["phase"] = message["phase"]
        message["phase"] = told

    reply = grid.ask(question, disguise)
    harmless = refused(reply) or set(unpack(sent(reply))["secure"]) == {"keys"}
    reached("answers beyond a budget", not harmless, 1)
    assert harmless
    assert all(not line.get("noise") for line in ledger(tmp_path / "0"))


def test_a_budget_and_approved_plans_need_a_folder() -> None:
    """Without one, two questions at the same moment get two answers; and no ledger tells a plan."""
    method, clients = noisy()
    grid = Grid(apps(method, clients))
    grid.contexts[100].node_config["epsilon"] = 2.0
    grid.contexts[101].node_config["approved"] = "approved"
    dropped = fgl.run(method, flower(grid), num_rounds=1).history[0].dropped
    assert "a state folder beside a budget of epsilon 2" in dropped[0]
    assert "Expected a state folder" in dropped[1]


def test_a_rotated_ledger_forgets_nothing(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fgl.federation.executors.remote.ledger.SIZE", 500)
    monkeypatch.setattr("fgl.federation.executors.remote.ledger.FILES", 3)
    spent = "fgl.federation.executors.remote.ledger.composed_epsilon"
    monkeypatch.setattr(
        spent, lambda uses, delta: sum(n / kind[0] ** 2 for kind, n in uses.items())
    )
    book = Ledger(tmp_path, {"round": 0})
    costs = [{"noise_multiplier": 5.0}, {"noise_multiplier": 3.0, "sample_rate": 0.1, "steps": 2}]
    for number in range(20):
        book.charge(costs[number % 2], num_bytes=9)
    assert book.afford({}) == 10 / 5**2 + 20 / 3**2
    *old, new = sorted(tmp_path.glob("ledger*.jsonl"))
    last = int(old[-1].stem[-6:])
    assert [path.name for path in old] == [f"ledger-{last - k:06d}.jsonl" for k in (2, 1, 0)]
    assert last > 4 and {len(path.read_text().splitlines()) for path in old} == {4}
    assert all(path.stat().st_size <= 500 for path in tmp_path.glob("*.jsonl"))
    for path in (*old, new):
        carried = json.loads(path.read_text().splitlines()[0])
        assert carried["carried"] is True and path.stat().st_mode & 0o77 == 0


def test_half_a_line_is_cut_off_and_a_damaged_one_refuses(tmp_path: Any) -> None:
    book = Ledger(tmp_path, {"round": 0}, epsilon=9.0)
    book.charge({"noise_multiplier": 2.0}, num_bytes=9)
    path = tmp_path / "ledger.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:50])  # killed in the middle: the answer had not left
    book.charge({"noise_multiplier": 2.0}, num_bytes=9)
    want = fgl.privacy.epsilon(noise_multiplier=2.0, rounds=2, delta=1e-5)
    assert book.afford({}) == want
    path.write_bytes(b"garbage\n" + whole)
    with pytest.raises(ValueError, match="Expected line 1 of .* to be one of a ledger"):
        book.charge({"noise_multiplier": 2.0}, num_bytes=9)


# What a site allows


def test_without_an_accountant_a_ledger_has_no_epsilon_and_a_budget_raises(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = Mock(side_effect=ImportError)
    monkeypatch.setattr("fgl.federation.executors.remote.ledger.composed_epsilon", missing)
    assert math.isnan(Ledger(tmp_path, {}).afford({}))
    with pytest.raises(ImportError):
        Ledger(tmp_path, {}, epsilon=9.0).afford({})


def test_a_site_approves_one_run_and_refuses_another(tmp_path: Any, reached: Any) -> None:
    """The operator reads the plan in the ledger, and approves it while the SuperNode goes on."""
    approved = tmp_path / "approved"
    approved.write_text("# plans that this clinic answers\n\n")
    method, clients = noisy(2.0)
    grid = at_sites(Grid(apps(method, clients)), tmp_path)
    grid.contexts[101].node_config["approved"] = str(approved)

    def approve(record: Any, result: Any) -> None:
        if record.round == 1:
            line = ledger(tmp_path / "1")[-1]
            assert "noise_multiplier=2.0" in line["method"]
            with approved.open("a") as file:
                file.write(f"{line['plan']} {line['method']}, asked for by the board\n")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fgl.run(method, flower(grid), num_rounds=4, callbacks=[approve])
        less = noisy(0.5)[0]
        new = at_sites(Grid(apps(less, clients)), tmp_path)
        new.contexts[101].node_config["approved"] = str(approved)
        other = fgl.run(less, flower(new), num_rounds=1)
    before = [*result.history[:2], *other.history]
    reached("rounds answered before approval", sum(1 not in r.dropped for r in before), len(before))
    assert [list(record.dropped) for record in result.history] == [[1], [1], [], []]
    assert "Expected the plan of the run to be approved by the site" in result.history[0].dropped[1]
    assert list(other.history[0].dropped) == [1]
    line = ledger(tmp_path / "1")[-1]
    assert line["plan"] in line["refused"] and "noise_multiplier=0.5" in line["method"]
    said = other.history[0].dropped[1]  # a code crosses the wire, what it means stays at home
    assert line["plan"] in said and "gaussian" not in said


def closure(factor: float) -> Any:
    def send(params: Any, context: Any, state: Any, graph: fgl.Graph) -> Any:
        model = {name: factor * value for name, value in params.items()}
        return {"model": model, "num_examples": torch.tensor(graph.num_train)}, state

    return send


@pytest.mark.parametrize("within", [False, True])
def test_a_site_that_approves_plans_refuses_what_no_plan_sees(within: bool, tmp_path: Any) -> None:
    """Two closures of one name have one plan: one that was approved would let the other pass."""
    made, clients = stateful()
    plans, reasons = [], []
    for factor in (1.0, 3.0):
        method = replace(made, send=closure(factor))
        method = fgl.methods.fedprox(method, mu=0.1) if within else method
        root = tmp_path / str(factor)
        grid = at_sites(Grid(apps(method, clients)), root, approved=str(tmp_path / "approved"))
        (tmp_path / "approved").write_text("\n".join(plans))
        with warnings.catch_warnings(), pytest.raises(RuntimeError) as error:
            warnings.simplefilter("ignore")
            limits = fgl.federation.Limits(empty_rounds=1)
            fgl.run(method, flower(grid), num_rounds=1, limits=limits)
        reasons.append(str(error.value))
        plans.append(ledger(root / "1")[-1]["plan"])
    assert plans[0] == plans[1]  # that is why
    for said in reasons:
        assert "to know all settings of a run, since this site approves plans" in said
        assert "but got send of a builder without fgl.layer" in said


@pytest.mark.parametrize("folder", [True, False])
def test_runs_have_a_bounded_number_of_places(folder: bool, tmp_path: Any) -> None:
    method, clients = stateful()
    grid = Post(apps(method, clients), runs=2)
    if folder:
        at_sites(grid, tmp_path)
    fgl.run(method, flower(grid), num_rounds=1)
    for run in (7, 8, 9):  # a server makes as many runs as it likes
        assert sent(grid.ask(grid.of(0, 101), run=run))
    if folder:
        found = [path.name for path in sorted((tmp_path / "1").glob("run-*"))]
        assert found == [f"run-{run:016x}" for run in (8, 9)]
        removed = [line["removed"] for line in ledger(tmp_path / "1") if "removed" in line]
        assert removed[1:] == ["run-0000000000000007"] and len(removed) == 2
    else:
        runs = {key.split("-")[1] for key in grid.contexts[101].state}
        assert runs == {"8", "9"}


@pytest.mark.parametrize("note", [{"run": 2**70}, {"run": -1}, {"round": -2}, {"base": -7}])
def test_numbers_that_no_run_has_leave_no_folder(note: Any, tmp_path: Any) -> None:
    """Folders and files are named by them, and found again by these names when room is made."""
    method, clients = stateful()
    grid = at_sites(Post(apps(method, clients)), tmp_path, runs=3)
    fgl.run(method, flower(grid), num_rounds=1)
    before = sorted(tmp_path.rglob("round-*"))
    (name,) = note
    assert f"Expected {name} to be an integer >= " in why(grid.ask(grid.of(0, 100), **note))
    assert sorted(tmp_path.rglob("round-*")) == before


# What is lost with a round of a secure sum


def beside(message: Any) -> None:
    message["more"] = torch.zeros(3)


def of_others(message: Any) -> None:
    message["secure"] = {"keys": torch.zeros(64, dtype=torch.uint8)}


@pytest.mark.few
@pytest.mark.filterwarnings("ignore:Round", "ignore:Secure sum")
@pytest.mark.parametrize("what", [beside, of_others, None])
@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_two_of_three_cost_a_secure_sum_one_exchange(first: int, what: Any, reached: Any) -> None:
    """In one round of the first exchange two clients lie alike, or all answers are lost."""

    def fault(kind: str, node: int, times: int, reply: Any) -> Any:
        if kind != "train" or times != first + 1:
            return reply
        if what is None:
            return Error(2, "lost")
        return spoiled(reply, what) if node in (101, 102) else reply

    method = secure_sum(tiny(), threshold=2)
    grid = Grid(apps(method, lines(3)), fault)
    watch = clients_summed
    result = fgl.run(method, flower(grid), num_rounds=8, watch=watch)
    summed = [record.metrics["clients_summed"] for record in result.history]
    reached("exchanges lost", sum(not each for each in summed[3::4]), 2)
    assert summed == [0] * 7 + [3]  # the first exchange is lost, and the second is not
    if what is not None:  # who is honest is not refused by what the others agree on
        assert all(0 not in record.dropped for record in result.history)


@pytest.mark.filterwarnings("ignore:Round", "ignore:Secure sum")
def test_two_of_three_that_always_lie_cost_every_sum_and_not_the_run() -> None:
    def fault(kind: str, node: int, times: int, reply: Any) -> Any:
        return spoiled(reply, beside) if kind == "train" and node in (101, 102) else reply

    method = secure_sum(tiny(), threshold=2)
    grid = Grid(apps(method, lines(3)), fault)
    result = fgl.run(method, flower(grid), num_rounds=12, watch=clients_summed)
    assert {record.metrics["clients_summed"] for record in result.history} == {0.0}
    assert [sorted(record.dropped) for record in result.history] == [[1, 2]] * 12
