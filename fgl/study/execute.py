"""A run of a study; the record of the run is written even if the run fails."""

import math
import random
import shutil
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..experiment.callbacks import early_stop, peak_memory
from ..federation import Result, Round
from ..targets import selected
from ..tasks import Task
from .folder import plain
from .plan import Job, Plan
from .play import built, chosen_metric, loaded, play

LONGEST = 300  # letters of a warning
MOST = 10  # warnings of a record


def execute(plan: Plan, job: Job, folder: Path | None = None) -> dict[str, Any]:
    """Execute a job and return a record, even if the run raises an error or diverges.

    Args:
        plan: the plan.
        job: the run to execute.
        folder: the study's folder, for checkpoints.

    Returns:
        The record. The record contains the values that describe the job. ``status`` is "finished",
        "failed" or "diverged". ``validation`` is the score for model selection; larger is better.
        ``metric`` is the metric to compare, and ``at`` is the round of the compared value. The
        record also has the ``report``, the ``warnings``, the ``seconds``, ``processor`` (CPU
        seconds) and ``peak`` (bytes of memory).
    """
    start, spent = time.perf_counter(), time.process_time()
    record = {**about(job), "status": "failed", "validation": None}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        try:
            with seeded(job.seed):
                record |= _run(plan, job, folder)
        except (Exception, SystemExit) as error:  # failed runs are recorded too
            record |= {"kind": type(error).__name__, "error": f"{type(error).__name__}: {error}"}
            record["traceback"] = traceback.format_exc()
    texts = sorted({str(each.message)[:LONGEST] for each in caught})
    record |= {"warnings": texts[:MOST], "peak": peak_memory(torch.device("cpu")) or 0}
    record |= {"seconds": time.perf_counter() - start}
    return record | {"processor": time.process_time() - spent}


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """A context in which the global generators of Python, numpy and torch start from a seed.

    So earlier runs in the same process do not affect the random numbers that a setting draws from
    these generators.
    """
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


def about(job: Job) -> dict[str, Any]:
    """The values that describe a job, in the form in which a record stores these values."""
    values = {"id": job.id, "setting": job.setting, "method": job.method, "seed": job.seed}
    values |= {"rounds": job.rounds, "local": dict(job.point.local), "own": dict(job.point.own)}
    return values


def _run(plan: Plan, job: Job, folder: Path | None) -> dict[str, Any]:
    task = loaded(plan, job)
    method, own = built(plan, job, task)
    if plan.tunes(job.method) and not own.select:
        raise TypeError(
            f"Expected setting {job.setting} to have a validation score, by which trials are "
            "compared, but got a task without one"
        )
    place = None if folder is None or not plan.checkpoint else folder / "checkpoints" / job.id
    stops = _stops(plan.patience, job.rounds, own)
    report = play(plan, job, method, own, callbacks=stops, checkpoint=place)
    metric, at = chosen_metric(report, own.select, None, None)
    name = own.select.removeprefix("-")
    best = report["metrics"].get(name, {}).get("best_val", math.nan)
    validation = selected({name: best}, own.select)
    ends = [report["metrics"][metric][at], *([validation] if own.select else [])]
    if place is not None:
        shutil.rmtree(place, ignore_errors=True)
    record: dict[str, Any] = {"metric": metric, "at": at, "report": report, "select": own.select}
    record |= {"alone": len(own.clients) < len(task.clients)}
    if not all(map(math.isfinite, ends)):
        return {**record, "status": "diverged", "error": f"{metric} is not finite"}
    return {**record, "status": "finished", "validation": validation if own.select else None}


def _stops(patience: int | None, rounds: int, task: Task) -> list[Callable[[Round, Result], bool]]:
    """A rule that stops a run early, but only in the second half of the run.

    In the first half of a run, scores often stay equal for a while and then improve.
    """
    if patience is None or not task.select:
        return []
    enough = early_stop(patience, task.select)
    return [lambda record, result: record.round >= rounds // 2 and enough(record, result)]


def same_again(plan: Plan, job: Job, record: Mapping[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Repeat a job, and compare the new record with the old record.

    Return two values: whether the numbers in both records are equal, and the new record.
    """
    again = plain(execute(plan, job))
    names = "status", "validation", "error"
    same = all(again.get(name) == record.get(name) for name in names)
    curves = [(each.get("report") or {}).get("curves") for each in (again, dict(record))]
    return same and curves[0] == curves[1], again
