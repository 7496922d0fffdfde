"""Workers: processes that take the next free run of a study until nothing is missing."""

from __future__ import annotations

import os
import platform
import random
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from .execute import about, execute
from .folder import ENDINGS, Store, begun, environment, load_plan
from .plan import Job, Plan

PAUSE = 0.2  # seconds until a worker that waits for others looks again
SPARE = 1.2  # a run is begun if so many times its peak memory is free


def missing(plan: Plan, store: Store) -> list[Job]:
    """The runs that are known and not finished."""
    store.refresh()
    return [job for job in plan.jobs(store) if job.id not in store]


def work(
    folder: str | os.PathLike[str],
    *,
    index: int | None = None,
    plan: Plan | None = None,
    advance: Callable[[Store], object] = lambda store: None,
) -> None:
    """Run what is free until nothing is missing. Several processes share the work.

    Args:
        folder: the study's folder.
        index: the number of this worker among those that one process started; all but the first
            wait while memory is short. Default none: a process that joins.
        plan: the plan; default the one in the folder.
        advance: called with the finished runs after each look at the folder.
    """
    plan = plan or load_plan(folder)
    store = Store(folder)
    where = environment(store.folder)
    with one_torch_thread():
        while jobs := missing(plan, store):
            advance(store)
            first = random.randrange(len(jobs)) if index is None else index % len(jobs)
            if not any(_try(plan, job, store, where, index) for job in jobs[first:] + jobs[:first]):
                time.sleep(PAUSE)
        advance(store)


def _try(plan: Plan, job: Job, store: Store, where: str, index: int | None) -> bool:
    """Make a run, unless it is taken or memory is short."""
    free = available_memory() if index else None
    if free is not None and free < SPARE * _needs(job, store):
        return False
    with begun(store, job.id) as deaths:
        if deaths is None:
            return False
        if deaths >= ENDINGS:
            error = f"its process died {deaths} times"
            record = {**about(job), "status": "failed", "error": error, "validation": None}
        else:
            record = execute(plan, job, store.folder)
        store.put(job.id, {**record, **origin(job, store.folder, where)})
    return True


def origin(job: Job, folder: Path, where: str) -> dict[str, Any]:
    """The process, time and environment of a record, and the command that makes it again."""
    command = f"python -m fgl.study {shlex.quote(str(folder))} --again {job.id}"
    process = f"{platform.node()} {os.getpid()}"
    about = {"environment": where, "process": process, "ended": time.time()}
    return {**about, "command": command}


def _needs(job: Job, store: Store) -> float:
    """The peak memory of a run of the same setting that this process has read."""
    return max((r.get("peak", 0) for r in store.read() if r["setting"] == job.setting), default=0)


def available_memory() -> float | None:
    """Bytes of memory that processes can still get, on Linux; None elsewhere.

    Example:
        >>> found = available_memory()
        >>> found is None or found > 0
        True
    """
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = next((line.split()[1] for line in lines if line.startswith("MemAvailable")), None)
    return None if kilobytes is None else 1024.0 * int(kilobytes)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """A context in which torch has one thread, as in every worker: sums then have one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
