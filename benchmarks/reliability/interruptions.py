"""Interruptions (Ctrl-C) of a run at every call of every stage and of every save: it goes on.

    python benchmarks/reliability/interruptions.py --json benchmarks/results/interruptions.json

A run of three clients and four rounds is ended before and after each call of receive, loss, send,
aggregate and evaluate, of a callback, and of the system's fsync and rename. It is started again,
and its end must be that of a run that nobody disturbed, bit for bit.
"""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import machine, write
from reliability.small_federation import ending, equal, federation

import fgl

ROUNDS = 4
STAGES = ("receive", "loss", "send", "aggregate")


class Moment:
    """Counts calls, and interrupts before or after one of them."""

    def __init__(self, name: str = "", number: int = 0, after: bool = False) -> None:
        self.name, self.number, self.after = name, number, after
        self.calls: Counter[str] = Counter()

    def watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            now = name == self.name and self.calls[name] == self.number
            if now and not self.after:
                raise KeyboardInterrupt
            made = function(*args, **options)
            if now:
                raise KeyboardInterrupt
            return made

        return call


def go(folder: Path | None, moment: Moment) -> fgl.Result:
    method, clients = federation()
    stages: Any = {name: moment.watched(name, getattr(method, name)) for name in STAGES}
    with (
        mock.patch.object(os, "fsync", moment.watched("fsync", os.fsync)),
        mock.patch.object(os, "replace", moment.watched("rename", os.replace)),
    ):
        return fgl.run(
            replace(method, **stages),
            clients,
            num_rounds=ROUNDS,
            evaluate=moment.watched("evaluate", lambda outbox, states: {"score": len(outbox)}),
            callbacks=[moment.watched("callback", lambda record, result: None)],
            checkpoint=folder,
        )


def survives(moment: Moment, want: Any) -> bool:
    """Whether a run that is interrupted then, and started again, ends as it should."""
    with tempfile.TemporaryDirectory() as place:
        try:
            go(Path(place), moment)
        except KeyboardInterrupt:
            return equal(ending(go(Path(place), Moment())), want)
    raise RuntimeError(f"Expected {moment.name} to be called {moment.number} times, but it was not")


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    torch.set_num_threads(1)
    want = ending(go(None, Moment()))
    with tempfile.TemporaryDirectory() as place:
        counted = Moment()
        go(Path(place), counted)
    tried, same = Counter[str](), Counter[str]()
    for name, calls in counted.calls.items():
        for number in range(1, calls + 1):
            for after in (False, True):
                tried[name] += 1
                same[name] += survives(Moment(name, number, after), want)
        print(f"{name}: {same[name]} of {tried[name]}", flush=True)
    print(f"{same.total()} of {tried.total()}")
    report = {"benchmark": "interruptions", "tried": tried, "bit_equal": same}
    write({**report, "machine": machine()}, args.json)
    return int(same != tried)


if __name__ == "__main__":
    sys.exit(main())
