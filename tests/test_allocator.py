"""Memory that stays with the process during a run: pages are asked for once."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, torch
from contextlib import nullcontext
from fgl.federation.process import memory_kept
def faults():
    start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        for _ in range(3):  # none of them is the last on the heap when the others are freed
            torch.ones(2 ** 19)
        kept = [torch.ones(2 ** 20) for _ in range(4)]
        del kept
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start
faults()
before = faults()
with memory_kept():
    faults()
    with memory_kept():
        pass
    inside = faults()
size = int(open("/proc/self/statm").read().split()[1])
with memory_kept():
    big = [torch.ones(2 ** 20) for _ in range(20)]
    del big
after = int(open("/proc/self/statm").read().split()[1])
print(before, inside, (after - size) * 4096)
"""


def counted(**environment: str) -> tuple[int, int, int]:
    pytest.importorskip("resource")
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    before, inside, stayed = map(int, done.stdout.split())
    return before, inside, stayed


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is glibc's allocator")
def test_pages_are_asked_for_once_and_go_back_at_the_end() -> None:
    found = [counted() for _ in range(3)]
    # A block on top of the heap may hold it without that, and pages may be asked for by others.
    assert min(inside for _, inside, _ in found) < 100 < max(before for before, _, _ in found)
    assert all(stayed < 2**24 for _, _, stayed in found)  # of 80 MB


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is glibc's allocator")
def test_who_has_set_the_allocator_keeps_it() -> None:
    _, inside, _ = counted(MALLOC_TRIM_THRESHOLD_="131072")
    assert inside > 100
