"""The page that says which method runs where: made by running, and of every method."""

import inspect
import json

from federations import script

import fgl

RUNS_ON = script("docs/tables/runs_on.py")
ROWS = json.loads(RUNS_ON.FILE.read_text(encoding="utf-8"))


def test_every_method_is_in_the_table() -> None:
    assert set(ROWS) == set(RUNS_ON.CALLS)
    calls = " ".join(call for calls, _ in RUNS_ON.CALLS.values() for call in calls)
    builders = [
        name
        for name in fgl.methods.__all__
        if inspect.signature(getattr(fgl.methods, name)).return_annotation in ("Method", fgl.Method)
    ]
    lacking = [name for name in builders if f"fgl.methods.{name}(" not in calls]
    assert lacking == ["adafgl", "adaptive_fedprox", "fedsage_plus"]  # of a task of their own
