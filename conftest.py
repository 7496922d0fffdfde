"""Every test and docstring example starts from the same seed, and sees `torch` and `fgl`."""

import importlib.util
import os
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


def pytest_collectstart(collector: pytest.Collector) -> None:
    """What a file draws when it is imported is the same with other files and without."""
    if isinstance(collector, pytest.Module):
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _seed(doctest_namespace: dict[str, Any]) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)  # a recipe sets it
    doctest_namespace.update(torch=torch, fgl=fgl)
