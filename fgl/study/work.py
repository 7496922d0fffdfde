"""Workers: processes that execute a study's unfinished runs until no run is left."""

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

PAUSE = 0.2  # seconds between checks of a worker that waits for other workers
SPARE = 1.2  # a run starts only if the free memory is at least this multiple of its peak memory


def missing(plan: Plan, store: Store) -> list[Job]:
    """The known runs that have not finished."""
    store.refresh()
    return [job for job in plan.jobs(store) if job.id not in store]


def work(
    folder: str | os.PathLike[str],
    *,
    index: int | None = None,
    plan: Plan | None = None,
    advance: Callable[[Store], object] = lambda store: None,
) -> None:
    """Execute a study's runs until all runs are finished.

    Other processes can work on the same study at the same time. A run that another process has
    locked is skipped.

    Args:
        folder: the study's folder.
        index: the worker's number, if one process started several workers. If there is too little
            memory, all workers except the first wait. None (the default) is for a process that
            joins a running study.
        plan: the plan; by default the plan in the folder.
        advance: function; it is called with the finished runs whenever the folder has been read.
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
    """Execute a run, or skip the run if another process has locked it or if memory is too small."""
    free = available_memory() if index else None
    peaks = [r.get("peak", 0) for r in store.read() if r["setting"] == job.setting]
    if free is not None and free < SPARE * max(peaks, default=0):
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
    """A record's process, time and environment, and the command that repeats the record's run."""
    command = f"python -m fgl.study {shlex.quote(str(folder))} --again {job.id}"
    process = f"{platform.node()} {os.getpid()}"
    about = {"environment": where, "process": process, "ended": time.time()}
    return {**about, "command": command}


def available_memory() -> float | None:
    """Bytes of memory that processes can still allocate on Linux; None on other systems.

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
    """A context in which torch uses one thread, as workers do.

    With one thread, the order of additions is fixed.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
