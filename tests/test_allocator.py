"""Memory that stays with the process during a run: freed memory goes back at its end."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import ctypes, torch
from fgl.federation.process import memory_kept

class Counts(ctypes.Structure):  # glibc's `struct mallinfo2`
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

counts = ctypes.CDLL(None).mallinfo2
counts.restype = Counts

def from_system():
    found = counts()
    return found.arena + found.hblkhd

def pages():
    return int(open("/proc/self/statm").read().split()[1])

def given_back():
    total = 0
    for _ in range(50):
        kept = [torch.ones(2 ** 20) for _ in range(4)]
        held = from_system()
        del kept
        total += held - from_system()
    return total

given_back()
before = given_back()
with memory_kept():
    given_back()
    with memory_kept():
        pass
    inside = given_back()
size = pages()
with memory_kept():
    big = [torch.ones(2 ** 20) for _ in range(20)]
    del big
print(before, inside, (pages() - size) * 4096)
"""


def counted(**environment: str) -> tuple[int, int, int]:
    """Bytes that the heap gives back before and inside, and what a context leaves behind."""
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("only glibc since 2.33 says what its heap holds")
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    before, inside, stayed = map(int, done.stdout.split())
    return before, inside, stayed


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is glibc's allocator")
def test_the_heap_keeps_what_is_freed_and_gives_it_back_at_the_end() -> None:
    found = [counted() for _ in range(3)]
    # A block on top of the heap may hold it without the context.
    assert max(before for before, _, _ in found) > 50 * 2**24 / 2  # of 16 MB in each turn
    assert all(inside == 0 and stayed < 2**24 for _, inside, stayed in found)  # of 80 MB


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is glibc's allocator")
def test_who_has_set_the_allocator_keeps_it() -> None:
    _, inside, _ = counted(MALLOC_TRIM_THRESHOLD_="131072")
    assert inside > 50 * 2**24 / 2
