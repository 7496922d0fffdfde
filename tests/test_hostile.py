"""Hostile clients elsewhere: one of four, or two of eight, cost nobody else a round."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from conformance import PRIVATE, ROWS, case, row
from federations import Elsewhere
from torch import Tensor

import fgl
from fgl import Result
from fgl.federation import Answer, Broadcast, Loop, checked
from fgl.federation.round import Plan, join, play

Message = dict[str, Any]
Change = Callable[[Message], Any]
LIARS = {4: [2], 8: [2, 5]}
# Methods whose uploads have entries of which nothing was sent, or that a server keeps.
SOME = [("s2fgl", 4, 2), ("s2fgl", 8, 1), ("fedssp", 8, 1), ("fggp", 8, 1), ("scaffold", 4, 1),
        ("gcfl plus gradients", 8, 1), ("fedproto", 4, 2), ("secure sum", 4, 1)]  # fmt: skip


# A secure sum of the table has a threshold for four clients.
CELLS = [(name, count) for name in (*ROWS, *PRIVATE) for count in LIARS
         if count == 4 or row(name).exchange == 1]  # fmt: skip


class Replayed:
    """An executor that has trained once, and gives the same answers, those of the liars changed."""

    padding, one_by_one, untraced, elsewhere = 0.0, "", "", True

    def __init__(self, loop: Loop, answers: dict[int, Answer], change: Change) -> None:
        self.num_clients, self.join = len(answers), loop.join
        self.states: dict[int, Any] = {}
        self.answers = {
            client: replace(answer, message=change(copied(answer.message)))
            if client in LIARS[len(answers)]
            else answer
            for client, answer in answers.items()
        }

    def train(self, index: int, outbox: Any, who: Sequence[int]) -> dict[int, Answer]:
        return {client: self.answers[client] for client in who}

    def keep(self, index: int, accepted: Sequence[int]) -> None: ...


def copied(message: Any) -> Message:
    return {
        key: dict(value) if isinstance(value, dict) else value for key, value in message.items()
    }


def each(change: Callable[[Tensor], Any], fits: Callable[[Tensor], bool]) -> Callable[[Any], Any]:
    """The change of every tensor of an entry that it fits."""

    def entry(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: change(tensor) if fits(tensor) else tensor for name, tensor in value.items()
            }
        return change(value) if fits(value) else value

    return entry


def floating(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0


def whole(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and tensor.numel() > 0 and tensor.dtype != torch.bool


def rows(tensor: Tensor) -> bool:
    return tensor.dim() > 0 and len(tensor) > 1


def one_nan(tensor: Tensor) -> Tensor:
    tensor = tensor.clone(memory_format=torch.contiguous_format)
    tensor.view(-1)[tensor.numel() // 2] = math.nan
    return tensor


def largest(tensor: Tensor) -> Tensor:
    return torch.full_like(tensor, torch.iinfo(tensor.dtype).max)


ENTRIES: dict[str, Callable[[Any], Any]] = {
    "times 1e4": each(lambda tensor: tensor * 1e4, floating),
    "times 1e6": each(lambda tensor: tensor * 1e6, floating),
    "times -200": each(lambda tensor: tensor * -200, floating),
    "zero": each(torch.zeros_like, floating),
    "one NaN": each(one_nan, floating),
    "all NaN": each(lambda tensor: torch.full_like(tensor, math.nan), floating),
    "largest whole numbers": each(largest, whole),
    "negative": each(torch.neg, whole),
    "a row less": each(lambda tensor: tensor[:-1], rows),
    "no row": each(lambda tensor: tensor[:0], rows),
    "a row twice": each(lambda tensor: torch.cat([tensor, tensor[:1]]), rows),
    "in double": each(Tensor.double, floating),
}


def lies(message: Message) -> Iterator[tuple[str, Change]]:
    """Changes of each entry of a message, and of all of it."""
    for key in message:
        for name, entry in ENTRIES.items():
            if same(message[key], entry(message[key])):
                continue  # it has nothing of that kind
            yield f"{key} {name}", lambda m, key=key, entry=entry: {**m, key: entry(m[key])}
        yield f"no {key}", lambda m, key=key: {k: v for k, v in m.items() if k != key}
    yield "another entry", lambda m: {**m, "gossip": torch.zeros(3)}
    yield "nothing", lambda m: None
    yield "empty", lambda m: {}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(one[name] is other[name] for name in one)
    return one is other


def tell(name: str, task: str, num_clients: int, num_rounds: int) -> Iterator[tuple[int, str, str]]:
    """Round, lie, and the wrong that it does ("" if none), for each lie in the first rounds."""
    method, made = case(name, task)
    method = checked(method)
    clients = list(made.clients)[:4] * (num_clients // 4)
    first: Any = {"model": method.common()}
    result = Result(Broadcast(first, num_clients), dict(first), {}, [])
    honest = [client for client in range(num_clients) if client not in LIARS[num_clients]]
    plan = Plan(1, 1.0, 0.0, None)
    for index in range(num_rounds):
        loop = Loop(method, clients, seed=1, states=result.client_states)
        method.model.eval()
        sent = copy.copy(result)
        if method.rules.joining is not None and not index:
            join(method, loop, sent, plan)
        answers = dict(loop.train(index, sent.outbox, range(num_clients)))
        for lie, change in lies(answers[LIARS[num_clients][0]].message):
            lied = copy.copy(result)
            lied.history = list(result.history)
            try:
                record = play(method, Replayed(loop, answers, change), lied, plan)
            except Exception as error:
                yield index, lie, f"ended by {error!r}"[:300]
                continue
            blamed = {k: why for k, why in record.dropped.items() if k in honest}
            yield index, lie, str(blamed)[:300] if blamed else ""
        loop = Loop(method, clients, seed=1, states=result.client_states)
        result.history.append(play(method, loop, result, plan))
        result.client_states = loop.states


def wrong(*given: Any, **how: Any) -> list[tuple[int, str, str]]:
    """The lies that do what they should not."""
    return [each for each in tell(*given, **how) if each[2]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "num_clients", "num_rounds"), SOME)
def test_a_lie_costs_nobody_else_the_round(name: str, num_clients: int, num_rounds: int) -> None:
    assert wrong(name, row(name).tasks[0], num_clients, num_rounds) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "num_clients"), CELLS)
def test_no_lie_costs_another_client_its_round(name: str, num_clients: int) -> None:
    task = row(name).tasks[0]
    assert wrong(name, task, num_clients, num_rounds=max(2, row(name).exchange)) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("num_clients", LIARS)
@pytest.mark.parametrize("factor", [1e4, 1e6])
@pytest.mark.parametrize("name", ["fedssp", "s2fgl", "fggp", "gcfl plus gradients", "fedproto"])
def test_one_lie_in_every_round_stops_no_run(name: str, factor: float, num_clients: int) -> None:
    """Each entry in turn; what the liars sent in a round does not spoil the next ones either."""
    method, made = case(name, row(name).tasks[0])
    clients = list(made.clients)[:4] * (num_clients // 4)
    scale = each(lambda tensor: tensor * factor, floating)
    changed: list[str] = []
    for number in range(4):  # entries of an upload, as far as there are

        class Lying(Elsewhere):
            def __call__(self, *given: Any, number: int = number, **how: Any) -> Any:
                executor: Any = super().__call__(*given, **how)
                train = executor.train

                def lied(index: int, outbox: Any, who: Any) -> list[Any]:
                    answers = dict(train(index, outbox, who))
                    for client in LIARS[num_clients]:
                        message = answers[client].message
                        key = list(message)[number % len(message)]
                        lie = {**message, key: scale(message[key])}
                        answers[client] = replace(answers[client], message=lie)
                    changed.append(key)
                    return list(answers.items())

                executor.train = lied
                return executor

        got = fgl.run(method, Lying(clients, 1), num_rounds=5)
        dropped = {client for record in got.history for client in record.dropped}
        assert dropped <= set(LIARS[num_clients]), (changed[-1], got.history)
