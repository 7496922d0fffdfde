"""The conformance table on the pretended device: its tasks, its methods, which of them are fast."""

from functools import cache
from typing import Any

import conformance
import pytest
import torch
from conformance import CASES, ROWS, TASKS

from fgl import Method
from fgl.tasks import Task

FAST = {
    ("fedavg", "nodes"),
    ("fgssl", "nodes"),
    ("gpfl", "graphs"),
}  # `make nightly` runs the others


@cache
def task_there(name: str) -> Task:
    """A task of the conformance table, its graphs and its model on the device."""
    return TASKS[name](0.5, torch.float32)


def case_there(name: str, task: str, monkeypatch: Any) -> tuple[Method, Task]:
    cast, first, parts = conformance.cast, conformance.first, conformance.parts_of_nodes
    monkeypatch.setattr(conformance, "cast", lambda own, dtype: cast(own, dtype).to("cuda"))
    monkeypatch.setattr(conformance, "first", lambda make, dtype: first(make, dtype).to("cuda"))
    monkeypatch.setattr(conformance, "parts_of_nodes", lambda: [p.cuda() for p in parts()])
    made = task_there(task)
    return ROWS[name].build(made), made


def together(name: str, task: str, at_once: Any = "all") -> Any:
    """How many clients train at once: one where no batch can train them."""
    return 1 if task in ROWS[name].alone else at_once


def cases(fast: Any = FAST, of: Any = CASES) -> Any:
    chosen = [
        pytest.param(*pair, id=" | ".join(pair), marks=() if pair in fast else pytest.mark.slow)
        for pair in of
    ]
    return pytest.mark.parametrize(("name", "task"), chosen)
