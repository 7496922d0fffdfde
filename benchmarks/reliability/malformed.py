"""Malformed and hostile uploads: at least 8,000 mutations of one client's message.

    python benchmarks/reliability/malformed.py --json benchmarks/results/malformed.json
    python benchmarks/reliability/malformed.py --only fedgl --kinds "fewer rows" --verbose

Every method of the conformance table trains for a round or two. Then one client's upload is
changed on its way to the server, and the round is played with it, once for each kind of change. In
the loop that is done in round 1, in a batch in round 0, when the server has seen no upload yet.
What can come of it:

    refused     the client loses its round; all is bit-equal to the round without it
    harmless    not noticed, and all is bit-equal to the round with the honest upload
    changed     not noticed, and the result is another one: listed by kind
    diverged    changed, and in one of the four rounds after it the training of honest clients fails
                from what the server made: what they send is refused as too far or not finite
    blamed      another client is dropped, in this round or in one of the four after it
    ended       an error ends the federation, in this round or in one of the four after it
    unequal     the client is refused, but something else is not as it was

With --together, clients that lie at once, after them: one of four, and two of eight, tell each
of the lies of `tests/test_hostile.py`, scaled entries first, in each of the first rounds of each
method. What can come of it is "ended", "blamed", or no harm to others.
"""

import argparse
import copy
import math
import re
import sys
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import torch
from conformance import ROWS, case, row
from harness.flags import arguments, flag, some
from harness.machine import machine, write
from reliability.small_federation import equal
from test_hostile import CELLS, LIARS, tell

from fgl import Result
from fgl.federation import Answer, Batch, Broadcast, Loop, checked, fold_in
from fgl.federation.method.message import leaves
from fgl.federation.round import Plan, join, play

LIAR = 2
AHEAD = 4  # honest rounds after one that was changed
# What training that fails sends.
SPOILED = re.compile("this client's fault|is not finite|changed by .* over [0-9.e+]+ times")
Message = dict[str, Any]


class Mutated:
    """An executor that trains once, and then gives the same answers, one of them changed."""

    def __init__(self, inner: Loop) -> None:
        self.inner, self.num_clients = inner, inner.num_clients
        self.padding, self.one_by_one, self.elsewhere = 0.0, "", True
        self.answers: dict[int, Answer] = {}
        self.upload: Any = None
        self.states: dict[int, Any] = {}

    def join(self) -> Any:
        return self.inner.join()

    def train(self, index: int, outbox: Any, who: Sequence[int]) -> dict[int, Answer]:
        gone = Answer(None, problem="gone")
        lie = gone if self.upload is GONE else replace(self.answers[LIAR], message=self.upload)
        return {**self.answers, LIAR: lie}

    def keep(self, index: int, accepted: Sequence[int]) -> None:
        self.states |= {client: self.inner._new[client] for client in accepted}

    def score(self, index: int, outbox: Any) -> dict[int, Any]:
        return {}


GONE = object()


# Changes of a message. Each gets a copy and a generator; it raises Unfit where it has no place.


class Unfit(Exception):
    """The message has nothing that could be changed so."""


def places(message: Message, fits: Callable[[torch.Tensor], bool]) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for key, value in message.items():
        inner = value if isinstance(value, dict) else {None: value}
        found += [(key, name) for name, tensor in inner.items() if fits(tensor)]
    return found


def pick(some: Sequence[Any], rng: torch.Generator) -> Any:
    if not some:
        raise Unfit
    return some[int(torch.randint(len(some), (), generator=rng))]


def leaf(
    make: Callable[[torch.Tensor], Any], fits: Callable[[torch.Tensor], bool] = lambda t: True
) -> Any:
    """A change of one tensor, wherever it fits."""

    def change(message: Message, rng: torch.Generator) -> Any:
        key, name = pick(places(message, fits), rng)
        if name is None:
            message[key] = make(message[key])
        else:
            message[key][name] = make(message[key][name])
        return message

    return change


def entry(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """One number of a tensor is another."""

    def make(tensor: torch.Tensor) -> torch.Tensor:
        made = tensor.clone()
        made.view(-1)[made.numel() // 2] = value
        return made

    return make


def floating(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0


def whole(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() and tensor.numel() > 0 and tensor.dtype != torch.bool


def rows(tensor: torch.Tensor) -> bool:
    return tensor.dim() > 0 and len(tensor) > 1


def matrix(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 2 and tensor.numel() > 1


def square(tensor: torch.Tensor) -> bool:
    return matrix(tensor) and tensor.shape[0] == tensor.shape[1]


def counted(make: Callable[[torch.Tensor], Any]) -> Any:
    def change(message: Message, rng: torch.Generator) -> Any:
        if "num_examples" not in message:
            raise Unfit
        return {**message, "num_examples": make(message["num_examples"])}

    return change


def dropped_key(message: Message, rng: torch.Generator) -> Any:
    del message[pick(list(message), rng)]
    return message


def dicts(message: Message) -> list[str]:
    return [key for key, value in message.items() if isinstance(value, dict) and value]


def dropped_name(message: Message, rng: torch.Generator) -> Any:
    inner = message[pick(dicts(message), rng)]
    del inner[pick(list(inner), rng)]
    return message


def extra_name(message: Message, rng: torch.Generator) -> Any:
    message[pick(dicts(message), rng)]["gossip"] = torch.zeros(1)
    return message


def flat(message: Message, rng: torch.Generator) -> Any:
    message[pick(dicts(message), rng)] = torch.zeros(3)
    return message


def nested(message: Message, rng: torch.Generator) -> Any:
    tensors = [key for key, value in message.items() if not isinstance(value, dict)]
    key = pick(tensors, rng)
    message[key] = {"value": message[key]}
    return message


def reversed_order(message: Message, rng: torch.Generator) -> Any:
    if not message:
        raise Unfit
    return {
        key: dict(reversed(value.items())) if isinstance(value, dict) else value
        for key, value in reversed(message.items())
    }


def fewer(message: Message, rng: torch.Generator) -> Any:
    """A consistent lie: one row less in every tensor that has as many as another one."""
    counts = Counter(len(t) for _, t in leaves(message) if rows(t))
    size = next((n for n, many in counts.most_common() if many > 1 and n > 2), None)
    if size is None or "model" not in message or not places(message, rows):
        raise Unfit
    made = {
        key: value[:-1]
        if not isinstance(value, dict) and rows(value) and len(value) == size
        else value
        for key, value in message.items()
    }
    if all(made[key] is message[key] for key in message):
        raise Unfit
    if "num_examples" in made and int(made["num_examples"]) == size:
        made["num_examples"] = made["num_examples"] - 1
    return made


def more(message: Message, rng: torch.Generator) -> Any:
    """A hundred times the rows, the same again and again, in every tensor outside the model."""
    keys = [k for k, v in message.items() if not isinstance(v, dict) and rows(v)]
    if not keys:
        raise Unfit
    return {**message, **{k: message[k].repeat(100, *[1] * (message[k].dim() - 1)) for k in keys}}


def of_model(make: Callable[[torch.Tensor, torch.Generator], torch.Tensor]) -> Any:
    """A change of all of the model's numbers."""

    def change(message: Message, rng: torch.Generator) -> Any:
        if "model" not in message:
            raise Unfit
        model = {k: make(v, rng) if floating(v) else v for k, v in message["model"].items()}
        return {**message, "model": model}

    return change


def scaled(factor: float) -> Any:
    return of_model(lambda t, rng: t * factor)


def noisy(size: float) -> Any:
    return of_model(lambda t, rng: t + size * torch.randn(t.shape, generator=rng, dtype=t.dtype))


class Other(torch.Tensor):
    """A tensor of a class of its own."""


def path_as_key(message: Message, rng: torch.Generator) -> Any:
    """A key that reads like the path to a tensor of another."""
    key, name = pick([place for place in places(message, floating) if place[1]], rng)
    return {**message, f"{key}/{name}": torch.zeros(1)}


def constant(make: Callable[[], Any]) -> Any:
    return lambda message, rng: make()


def doubled(t: torch.Tensor) -> torch.Tensor:
    return torch.cat([t[:1], t[:1], t[2:]])


def one_more(t: torch.Tensor) -> torch.Tensor:
    return entry(float(t.reshape(-1)[t.numel() // 2]) + 1)(t)


def nest(t: torch.Tensor) -> Any:
    return torch.nested.nested_tensor([t.reshape(-1), t.reshape(-1)])


KINDS: dict[str, Any] = {
    "key missing": dropped_key,
    "name missing": dropped_name,
    "key extra": lambda m, rng: {**m, "gossip": torch.zeros(1)},
    "name extra": extra_name,
    "key of 10,000 letters": lambda m, rng: {**m, "x" * 10_000: torch.zeros(1)},
    "key like a path": path_as_key,
    "key no string": lambda m, rng: {**m, 7: torch.zeros(1)},
    "dict is a tensor": flat,
    "tensor is a dict": nested,
    "two deep": leaf(lambda t: {"value": {"value": t}}),
    "order reversed": reversed_order,
    "nothing": constant(lambda: None),
    "empty": constant(dict),
    "a list": constant(list),
    "a number": leaf(lambda t: 0.5),
    "a string": leaf(lambda t: "0"),
    "none": leaf(lambda t: None),
    "one dimension more": leaf(lambda t: t[None]),
    "no dimension": leaf(lambda t: t.reshape(-1)[0], rows),
    "one row less": leaf(lambda t: t[:-1], rows),
    "one row more": leaf(lambda t: torch.cat([t, t[:1]]), rows),
    "no row": leaf(lambda t: t[:0], rows),
    "flattened": leaf(torch.flatten, matrix),
    "transposed": leaf(lambda t: t.mT, lambda t: matrix(t) and not square(t)),
    "fewer rows": fewer,
    "a hundred times the rows": more,
    "float64": leaf(lambda t: t.double()),
    "float16": leaf(lambda t: t.half()),
    "int64": leaf(lambda t: t.long(), floating),
    "bool": leaf(lambda t: t.bool()),
    "complex": leaf(lambda t: t.to(torch.complex64)),
    "quantized": leaf(lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8), floating),
    "meta": leaf(lambda t: t.to("meta")),
    "mkldnn": leaf(lambda t: t.to_mkldnn(), lambda t: floating(t) and t.dim() > 0),
    "sparse": leaf(torch.Tensor.to_sparse, rows),
    "sparse rows": leaf(torch.Tensor.to_sparse_csr, matrix),
    "expanded to 2^40": leaf(lambda t: t.reshape(-1)[:1].expand(2**40), rows),
    "rows expanded to 2^40": leaf(lambda t: t[:1].expand(2**40, *t.shape[1:]), rows),
    "nested tensor": leaf(nest, floating),
    "tensor of another class": leaf(lambda t: t.as_subclass(Other)),
    "requires a gradient": leaf(lambda t: t.clone().requires_grad_(), floating),
    "other memory": leaf(lambda t: t.mT.contiguous().mT, matrix),
    "one NaN": leaf(entry(math.nan), floating),
    "one infinity": leaf(entry(math.inf), floating),
    "one -infinity": leaf(entry(-math.inf), floating),
    "one 1e38": leaf(entry(1e38), floating),
    "one 1e30": leaf(entry(1e30), floating),
    "one 1e20": leaf(entry(1e20), floating),
    "one 1e10": leaf(entry(1e10), floating),
    "all 1e30": leaf(lambda t: torch.full_like(t, 1e30), floating),
    "all 1e19": leaf(lambda t: torch.full_like(t, 1e19), floating),
    "model times 1e15": scaled(1e15),
    "model and noise of 3": noisy(3.0),
    "model and noise of 1": noisy(1.0),
    "integer negative": leaf(entry(-1), whole),
    "integer huge": leaf(entry(2**62), whole),
    "integer doubled": leaf(doubled, lambda t: whole(t) and rows(t)),
    "num_examples -1": counted(lambda t: t - t - 1),
    "num_examples 1e9": counted(lambda t: torch.full_like(t, 10**9)),
    "num_examples 2^62": counted(lambda t: torch.full_like(t, 2**62)),
    "num_examples float": counted(lambda t: t.float()),
    "num_examples a vector": counted(lambda t: t.repeat(2)),
    "num_examples 0": counted(torch.zeros_like),
    "one number 1 more": leaf(one_more, floating),
    "all zero": leaf(torch.zeros_like, floating),
    "other sign": leaf(torch.neg, floating),
    "square matrix transposed": leaf(lambda t: t.mT.contiguous(), square),
    "rows turned around": leaf(lambda t: t.flip(0), rows),
    "model times -10": scaled(-10.0),
}  # fmt: skip


# A cell: a method on a task in an executor.


class Cell:
    """A federation just before the server looks at the uploads of a round."""

    def __init__(self, name: str, task: str, batch: bool) -> None:
        method, made = case(name, task)
        self.method, self.clients = checked(method), made.clients
        self.batch, self.rounds = batch, 0 if batch else 1
        self.plan = Plan(1, 1.0, 0.0, None)
        first: Any = {"model": method.common()}
        self.before = Result(Broadcast(first, len(self.clients)), dict(first), {}, [])
        if self.method.rules.joining is not None:
            join(self.method, self.executor(self.before), self.before, self.plan)
        for _ in range(self.rounds):
            self.before = self.step(self.before)
        executor = self.executor(self.before)
        if self.method.rules.joining is not None and not self.rounds:
            join(self.method, executor, self.before, self.plan)
        who = range(len(self.clients))
        self.mutated = Mutated(executor)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.mutated.answers = dict(executor.train(self.rounds, self.before.outbox, who))
        self.message = self.mutated.answers[LIAR].message
        self.honest, self.absent = (self.played(m)[0] for m in (self.message, GONE))

    def executor(self, result: Result) -> Loop:
        how: Any = {"seed": 1, "states": result.client_states}
        if self.batch:
            return Batch(self.method, self.clients, len(self.clients), or_alone=True, **how)
        return Loop(self.method, self.clients, **how)

    def step(self, result: Result) -> Result:
        """One more round with everybody, on copies."""
        result = copy.copy(result)
        result.history = list(result.history)
        executor = self.executor(result)
        self.method.model.eval()
        result.history.append(play(self.method, executor, result, self.plan))
        result.client_states = executor.states
        return result

    def played(self, upload: Any) -> tuple[Result, Any]:
        """The round with another upload of the liar."""
        result = copy.copy(self.before)
        self.mutated.upload, self.mutated.states = upload, dict(self.before.client_states)
        record = play(self.method, self.mutated, result, self.plan)
        result.client_states = self.mutated.states
        result.history = [*self.before.history, record]
        return result, record

    def outcome(self, upload: Any) -> tuple[str, str]:
        """What comes of an upload, and why."""
        try:
            result, record = self.played(upload)
        except Exception:
            return "ended", traceback.format_exc(limit=-4)
        blamed = {client: why for client, why in record.dropped.items() if client != LIAR}
        if blamed:
            return "blamed", str(blamed)
        if LIAR in record.dropped:
            same = Ending(result) == Ending(self.absent)
            return ("refused" if same else "unequal"), record.dropped[LIAR]
        if Ending(result) == Ending(self.honest):
            return "harmless", ""
        for _ in range(AHEAD):
            try:
                result = self.step(result)
            except Exception:
                return "ended", "a later round: " + traceback.format_exc(limit=-4)
            why = {k: v for k, v in result.history[-1].dropped.items() if k != LIAR}
            if why:
                far = all(SPOILED.search(each) for each in why.values())
                return "diverged" if far else "blamed", f"a later round: {why}"
        return "changed", ""


class Ending:
    """What a round leaves behind, bit for bit; who was dropped, and why, is not of it."""

    def __init__(self, result: Result) -> None:
        outbox = [result.outbox[0]] if isinstance(result.outbox, Broadcast) else [
            dict(result.outbox[client]) for client in result.outbox
        ]  # fmt: skip
        states = {client: dict(state) for client, state in sorted(result.client_states.items())}
        self.all = outbox, dict(result.server_state), states, result.form, result.history[-1].loss

    def __eq__(self, other: Any) -> bool:
        one, two = self.all, other.all
        return equal(one[:4], two[:4]) and (one[4] == two[4] or math.isnan(one[4] + two[4]))


def cells(args: argparse.Namespace) -> list[tuple[str, str, bool]]:
    """Methods, tasks, and whether in a batch: each on its first task, compositions in one way."""
    found = []
    for number, (name, line) in enumerate(ROWS.items()):
        for task in line.tasks if args.all else line.tasks[:1]:
            both = args.all or " of " not in name
            which = (False, True) if both else (bool(number % 2),)
            found += [(name, task, batch) for batch in which]
    return [each for each in found if args.only in each[0]]


def lied_together(only: str) -> dict[str, dict[str, int]]:
    """What comes of the lies of one of four clients, and of two of eight."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for name, num_clients in CELLS:
        if only in name:
            rounds = max(2, row(name).exchange)
            for _, _, harm in tell(name, row(name).tasks[0], num_clients, rounds):
                kind = "ended" if harm.startswith("ended") else "blamed" if harm else "no harm"
                counts[f"{len(LIARS[num_clients])} of {num_clients}"][kind] += 1
    return {which: dict(found) for which, found in counts.items()}


def report(outcomes: Sequence[Mapping[str, Any]], bad: Sequence[Any]) -> dict[str, Any]:
    """Counts by kind and by method, and what should not be."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    methods: dict[str, Counter[str]] = defaultdict(Counter)
    for each in outcomes:
        for kind, found in each["found"].items():
            kinds[kind][found] += 1
            methods[each["method"]][found] += 1
    together: Counter[str] = sum(kinds.values(), Counter())
    return {
        "mutations": sum(together.values()),
        "found": dict(together.most_common()),
        "kinds": {kind: dict(kinds[kind]) for kind in KINDS if kind in kinds},
        "methods": {name: dict(each) for name, each in sorted(methods.items())},
        "bad": list(bad),
        "cells": list(outcomes),
        "machine": machine(),
    }


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All mutations of the cells; what is there is written after each cell."""
    outcomes: list[dict[str, Any]] = []
    bad: list[dict[str, Any]] = []
    for name, task, batch in cells(args):
        cell, found = Cell(name, task, batch), {}
        for kind in args.kinds or KINDS:
            rng = torch.Generator().manual_seed(fold_in(0, name, task, kind))
            copied = {k: dict(v) if isinstance(v, dict) else v for k, v in cell.message.items()}
            try:
                upload = KINDS[kind](copied, rng)
            except (Unfit, RuntimeError, NotImplementedError, TypeError, ValueError):
                continue  # no place for it, or torch cannot make such a tensor
            found[kind], why = cell.outcome(upload)
            if found[kind] in ("ended", "blamed", "unequal") or args.verbose:
                where = {"method": name, "task": task, "kind": kind, "batch": batch}
                bad.append({**where, "found": found[kind], "why": why[-600:]})
                print(*bad[-1].values(), sep=" | ", flush=True)
        outcomes.append({"method": name, "task": task, "batch": batch, "found": found})
        write(report(outcomes, bad), args.json)
        count = sum(len(each["found"]) for each in outcomes)
        print(name, task, batch, count, file=sys.stderr, flush=True)
    return report(outcomes, bad)


def main(argv: Sequence[str] | None = None) -> Mapping[str, Any]:
    args = arguments(
        argv,
        only=flag("", "methods whose name has this in it"),
        kinds=some(KINDS, None, metavar="KIND"),
        all=flag(False, "all tasks of a method, and compositions in both"),
        together=flag(False, "liars that lie together, too"),
        verbose=flag(False, "print every outcome"),
    )
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = measure(args)
    if args.together:
        found["together"] = lied_together(args.only)
    print({key: found[key] for key in ("mutations", "found")})
    write(found, args.json)
    return found


if __name__ == "__main__":
    main()
