"""Progress: silence for short work, lines in a pipe, a bar in a terminal, the work's own errors."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
import torch

import fgl
from fgl import progress
from fgl.progress import shown

Output = pytest.CaptureFixture[str]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def work(clock: Clock, steps: int, each: float, **options: Any) -> None:
    with shown("work", steps, **options) as advance:
        for _ in range(steps):
            clock.now += each
            advance(1)


def test_short_work_is_silent(clock: Clock, capsys: Output) -> None:
    work(clock, 9, 1.0)
    assert capsys.readouterr() == ("", "")


def test_lines_say_the_time_that_is_left(clock: Clock, capsys: Output) -> None:
    """Work that was done before counts, but says nothing of the speed."""
    with shown("study", 100, unit="runs", left=True) as advance:
        advance(40)
        for _ in range(20):
            clock.now += 2.0
            advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "fgl: study: 45 of 100 runs, 10 s, 110 s left",
        "fgl: study: 50 of 100 runs, 20 s, 100 s left",
        "fgl: study: 60 of 100 runs, 40 s, 80 s left",
    ]


def test_one_long_call_is_announced(clock: Clock, capsys: Output) -> None:
    with shown("Leiden", long=True):
        clock.now += 200
    assert capsys.readouterr().err == "fgl: Leiden ...\nfgl: Leiden: done, 200 s\n"
    with pytest.raises(KeyError), shown("Leiden", long=True):
        raise KeyError
    assert "done" not in capsys.readouterr().err


@pytest.mark.parametrize("bar_after", [0.0, 10.0])
def test_a_terminal_gets_a_bar(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: Output, bar_after: float
) -> None:
    tqdm = pytest.importorskip("tqdm")
    bars: list[Any] = []

    class Bar:
        def __init__(self, **options: Any) -> None:
            self.options, self.count, self.closed = options, options["initial"], False
            bars.append(self)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: Any) -> None:
            self.closed = True

        def update(self, count: int) -> None:
            self.count += count

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    work(clock, 5, 1.0, bar_after=bar_after)
    assert len(bars) == (1 if bar_after == 0 else 0)
    work(clock, 30, 1.0, bar_after=bar_after)
    assert (bars[-1].count, bars[-1].closed, bars[-1].options["total"]) == (30, True, 30)
    assert capsys.readouterr().err == ""
    monkeypatch.setitem(sys.modules, "tqdm", None)
    work(clock, 12, 1.0, bar_after=bar_after)
    assert capsys.readouterr().err == "fgl: work: 10 of 12 steps, 10 s\n"


def test_a_long_round_is_heard_of(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    graph = fgl.Graph(torch.eye(4), torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([0, 1, 0, 1]))
    method = fgl.fedavg(fgl.nn.GCN(4, 2, 2), train=fgl.Training())
    fgl.run(method, [graph, graph], num_rounds=1)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "FIRST", 0.0)
    fgl.run(method, [graph, graph], num_rounds=1, clients_at_once=1)
    assert "fgl: round 0: 1 of 2 clients" in capsys.readouterr().err
