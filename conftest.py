"""Every test and docstring example starts from the same seed, and sees `torch` and `fgl`."""

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
import torch

import fgl

# One thread, here and in the processes that tests start: the tensors are small, and on a busy
# machine two threads that wait for each other take eight times the work of one.
THREADS = int(os.environ.get("FGL_TEST_THREADS", "1"))
torch.set_num_threads(THREADS)
os.environ["OMP_NUM_THREADS"] = str(THREADS)
PASSED = "fgl/passed"  # in pytest's cache
ROOM = "fgl/federation/executors/remote"
NEEDS = {  # whose examples, or whose import, need an extra
    "safetensors": [f"{ROOM}/{name}.py" for name in ("wire", "client", "executor")],
    "flwr": [f"{ROOM}/flower.py", "tests/flower_grid.py"],
}
collect_ignore = [
    file
    for module, files in NEEDS.items()
    if importlib.util.find_spec(module) is None
    for file in files
]
hypothesis.settings.register_profile("fgl", derandomize=True, deadline=None, max_examples=50)
hypothesis.settings.load_profile("fgl")


def pytest_addoption(parser: pytest.Parser) -> None:
    about = {
        "--note-passed": "write down which tests passed",
        "--but-passed": "leave out those that passed when that was written down",
    }
    for name, text in about.items():
        parser.addoption(name, action="store_true", help=text)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.option.note_passed:
        passed = [report.nodeid for report in terminalreporter.stats.get("passed", [])]
        config.cache.set(PASSED, sorted(passed))  # type: ignore[union-attr]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What passed without an extra or a dataset need not pass again with them: skips are run."""
    if not config.option.but_passed:
        return
    passed = set(config.cache.get(PASSED, []))  # type: ignore[union-attr]
    gone = [item for item in items if item.nodeid in passed]
    config.hook.pytest_deselected(items=gone)
    items[:] = [item for item in items if item.nodeid not in passed]


@pytest.fixture
def reached(record_property: Callable[[str, object], None]) -> Callable[[str, float, float], None]:
    """Notes what an attack reached, of how much: `benchmarks/reliability/attacks.py` reads it."""

    def note(what: str, got: float, of: float) -> None:
        record_property(what, f"{got:g} of {of:g}")

    return note


def pytest_collectstart(collector: pytest.Collector) -> None:
    """What a file draws when it is imported is the same with other files and without."""
    if isinstance(collector, pytest.Module):
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _seed(doctest_namespace: dict[str, Any]) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)  # a recipe sets it
    doctest_namespace.update(torch=torch, fgl=fgl)
