"""Neither loss holds what its formula suggests: all similarities, or a row per edge."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "speed" / "memory.py"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/clear_refs").exists(), reason="memory is measured on Linux only"
    ),
]
MB = 1e6


@pytest.fixture(scope="module")
def memory() -> ModuleType:
    spec = importlib.util.spec_from_file_location("memory_benchmark", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_the_measure_sees_a_dense_matrix(memory: ModuleType) -> None:
    # A measure that misses what is certainly there would pass every guard below.
    case = memory.Case("node_contrast", 3_000, 16, by="dense")
    assert memory.measure(case)["extra_mb"] > 3 * 4 * case.nodes**2 / MB


def test_node_contrast_holds_a_block_of_rows(memory: ModuleType) -> None:
    nodes, width, block = 6_000, 32, 2**18
    case = memory.Case("node_contrast", nodes, width, option="symmetric", block=block)
    vectors = 4 * nodes * width / MB
    allowed = 12 * vectors + 8 * 4 * block / MB  # the matrix of all similarities: 144 MB
    assert memory.measure(case)["extra_mb"] < allowed < 0.15 * 4 * nodes**2 / MB


def test_node_contrast_by_default_holds_less_than_one_matrix(memory: ModuleType) -> None:
    case = memory.Case("node_contrast", 7_000, 32)
    assert memory.measure(case)["extra_mb"] < 4 * case.nodes**2 / MB


def test_structure_distillation_holds_numbers_per_edge(memory: ModuleType) -> None:
    nodes, edges, width = 20_000, 200_000, 128
    case = memory.Case("structure_distillation", nodes, width, edges)
    extra = memory.measure(case)["extra_mb"]
    per_node, per_edge = 4 * nodes * width / MB, 4 * edges / MB
    assert extra < 5 * per_node + 30 * per_edge  # pointers and columns are int64
    assert extra < 4 * edges * width / MB  # a single tensor with a row per edge
