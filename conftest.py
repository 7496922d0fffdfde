"""Every test and docstring example starts from the same seed, and sees `torch` and `fgl`."""

import importlib.util
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from selection import drawn_tests, mark_further_copies, processor_seconds, write_costs

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
    flags = {
        "--note-passed": "write down which tests passed",
        "--but-passed": "leave out the tests that passed when that was written down",
    }
    for name, text in flags.items():
        parser.addoption(name, action="store_true", help=text)
    parser.addoption("--drawn", metavar="COMMIT", help="a tenth of the tests, drawn by this word")
    parser.addoption("--costs", metavar="FILE", help="write processor seconds of each test file")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.user_properties.append(("before", processor_seconds()))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "teardown":
        spent = processor_seconds() - dict(item.user_properties)["before"]
        report.user_properties = [("processor_seconds", spent)]
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    reports = [each for group in terminalreporter.stats.values() for each in group]
    if config.option.costs:
        write_costs(Path(config.option.costs), reports)
    if config.option.note_passed:
        passed = [report.nodeid for report in terminalreporter.stats.get("passed", [])]
        config.cache.set(PASSED, sorted(passed))  # type: ignore[union-attr]


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark further copies of dear tests as slow, and drop the tests that the options leave out."""
    mark_further_copies(items)
    if config.option.but_passed:
        # A test that passed without an extra or a dataset need not pass again: skipped ones run.
        passed = set(config.cache.get(PASSED, []))  # type: ignore[union-attr]
        keep_only(config, items, lambda item: item.nodeid not in passed)
    if config.option.drawn:
        drawn = drawn_tests([item.nodeid for item in items], config.option.drawn)
        keep_only(config, items, lambda item: item.nodeid in drawn)


def keep_only(
    config: pytest.Config, items: list[pytest.Item], keep: Callable[[pytest.Item], bool]
) -> None:
    config.hook.pytest_deselected(items=[item for item in items if not keep(item)])
    items[:] = [item for item in items if keep(item)]


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
