"""Processes that work on a study: on this computer, or on a Ray cluster."""

import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ..checks import imported, install
from ..progress import shown
from .execute import about, execute
from .folder import Store, begun, write
from .plan import Job, Plan
from .play import compared
from .work import missing, one_torch_thread, origin, work

LOOK = 0.2  # seconds between two checks of the folder
LONG = 5  # checks of the folder without a new run, after which plan and workers are checked
PATIENCE = 5.0  # seconds after which a worker that does not stop is killed
STILLBORN = 3  # largest number of deaths of a worker before it has started a run
Count = Callable[[Store], None]  # moves the bar over all runs
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def default_workers() -> int:
    """The number of CPU cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


def finish(folder: Path, plan: Plan, workers: int | str) -> None:
    """Execute all missing runs; a progress bar counts all runs, finished runs included."""
    store = Store(folder)
    if not plan.count() or (len(store) and not missing(plan, store)):
        return
    with counted(plan) as count:
        if workers == "ray":
            on_ray(folder, plan, store, count)
        elif workers == 0:
            work(folder, index=0, plan=plan, advance=count)
        else:
            jobs = plan.jobs(store) if len(store) else ()  # workers start before trials are drawn
            left = plan.count() - sum(job.id in store for job in jobs)
            with _written(folder, plan):
                _watch(folder, plan, store, max(1, min(int(workers), left)), count)


def _own_plan(folder: Path) -> Path:
    """The plan file for this process's workers.

    Another process may replace ``plan.pkl`` at any time, so the workers read a file of their own.
    """
    return folder / "logs" / f"plan-{platform.node()}-{os.getpid()}.pkl"


@contextmanager
def _written(folder: Path, plan: Plan) -> Iterator[None]:
    """Context manager that writes a plan file for this process's workers, then deletes it."""
    import cloudpickle

    write(_own_plan(folder), cloudpickle.dumps(plan))
    try:
        yield
    finally:
        _own_plan(folder).unlink(missing_ok=True)


@contextmanager
def counted(plan: Plan) -> Iterator[Count]:
    """Context manager that shows a progress bar over all runs.

    The context manager yields a function that updates the bar. After a setting's first run, the
    function raises an error if the setting does not have the plan's metric.
    """
    unchecked = set(plan.settings if plan.metric else ())
    with shown("study", plan.count(), unit="runs", bar_after=0.0, left=True) as advance:
        before = 0

        def count(store: Store) -> None:
            nonlocal before
            finished = [job for job in plan.jobs(store) if job.id in store]
            for job in finished:
                if job.setting in unchecked and store[job.id]["status"] == "finished":
                    unchecked.discard(job.setting)
                    compared(store.full(job.id), plan.metric)
            advance(len(finished) - before)
            before = len(finished)

        yield count


def _watch(folder: Path, plan: Plan, store: Store, workers: int, count: Count) -> None:
    """Start workers, restart dead workers, and return when all runs are finished."""
    with ExitStack() as stack:
        crew = {}
        for index in range(workers):
            crew[index] = Worker(folder, plan, index)
            stack.callback(crew[index].wait)
        for worker in crew.values():
            stack.callback(worker.end)  # all workers are told to exit before waiting for the first
        while missing(plan, store):
            count(store)
            finished, start = len(store), time.monotonic()
            idle = all(worker.process.poll() == 0 for worker in crew.values())
            for worker in crew.values():
                if idle or worker.process.poll():  # idle: a record was deleted meanwhile
                    worker.start_again()
            while len(store) == finished and time.monotonic() - start < LONG * LOOK:
                time.sleep(LOOK)  # looking at the plan of a large study takes a tenth of a second
                store.refresh()
        count(store)


class Worker:
    """A worker process.

    A worker that dies is restarted. All workers end when this process ends.

    A pipe from this process is the worker's standard input. When the pipe is closed, the worker
    exits.
    """

    def __init__(self, folder: Path, plan: Plan, index: int) -> None:
        own = ["--plan", str(_own_plan(folder)), "--index", str(index)]
        self.command = [sys.executable, "-m", "fgl.study", str(folder), *own]
        self.path = plan.path
        self.log = folder / "logs" / f"worker-{os.getpid()}-{index}.txt"
        self.marks, self.stillborn = folder / "locks", 0
        self.start()

    def start(self) -> None:
        """Start the process in a new session, so that Ctrl-C interrupts only the parent process."""
        place = os.pathsep.join(self.path)
        env = os.environ | dict.fromkeys(THREADS, "1") | {"PYTHONPATH": place}
        with self.log.open("ab") as log:
            pipes: Any = {"stdin": subprocess.PIPE, "stdout": log, "stderr": subprocess.STDOUT}
            self.process = subprocess.Popen(self.command, env=env, start_new_session=True, **pipes)

    def start_again(self) -> None:
        """Restart the process after it has ended.

        Raises:
            RuntimeError: if the process has died repeatedly without starting a run.
        """
        code = self.process.poll()
        self.end()
        worked = any(str(self.process.pid) in marks.split() for marks in self._marks())
        self.stillborn = 0 if worked else self.stillborn + 1
        if self.stillborn >= STILLBORN:
            lines = self.log.read_text(errors="replace").strip().splitlines() or ["no message"]
            raise RuntimeError(
                f"A worker of the study ended with {code} outside of a run, {STILLBORN} times; its "
                f"last line, of {self.log}: {lines[-1]}"
            )
        self.start()

    def _marks(self) -> Iterator[str]:
        """The texts of the mark files; a process writes such a file when it starts a run.

        Other workers may delete mark files at any time.
        """
        for mark in self.marks.glob("*.begun"):
            with suppress(FileNotFoundError):
                yield mark.read_text()

    def end(self) -> None:
        """Tell the process to exit."""
        if self.process.stdin is not None:
            self.process.stdin.close()

    def wait(self) -> None:
        """Wait for the end of the process; after `PATIENCE` seconds, kill the process."""
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.log.exists() and not self.log.stat().st_size:
            self.log.unlink()


def on_ray(folder: Path, plan: Plan, store: Store, count: Count) -> None:
    """Send runs to a Ray cluster; only this process reads and writes the folder."""
    ray = imported("ray", 'for workers="ray"', install("ray"))
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    remote = ray.remote(num_cpus=1, max_retries=0)(_remote)
    code = ray.put((folder / "plan.pkl").read_bytes())
    running: dict[Any, tuple[Job, ExitStack]] = {}
    deaths: Counter[str] = Counter()
    try:
        while (jobs := missing(plan, store)) or running:
            count(store)
            room = max(1, int(ray.cluster_resources().get("CPU", 1))) - len(running)
            taken = {job.id for job, _ in running.values()}
            for job in [job for job in jobs if job.id not in taken][: max(0, room)]:
                stack = ExitStack()
                if stack.enter_context(begun(store, job.id)) is None:
                    stack.close()
                    continue
                running[remote.remote(code, plan.path, job)] = job, stack
            ready, _ = ray.wait(list(running), timeout=LOOK) if running else ([], [])
            for reference in ready:
                job, stack = running.pop(reference)
                with stack:
                    _receive(ray, reference, job, store, deaths)
        count(store)
    finally:
        for reference, (_, stack) in running.items():
            ray.cancel(reference, force=True)
            stack.close()


def _receive(ray: Any, reference: Any, job: Job, store: Store, deaths: Counter[str]) -> None:
    """Write the record of a run after a Ray worker has finished the run."""
    try:
        record, where = ray.get(reference)
    except ray.exceptions.RayError as error:
        deaths[job.id] += 1
        if deaths[job.id] < 3:
            return
        text = f"its process died 3 times: {str(error).splitlines()[0]}"
        record, where = {**about(job), "status": "failed", "error": text, "validation": None}, ""
    store.put(job.id, {**record, **origin(job, store.folder, where)})


def _remote(code: bytes, path: list[str], job: Job) -> tuple[dict[str, Any], str]:
    """Execute a run in a Ray process."""
    import cloudpickle

    sys.path += [place for place in path if place not in sys.path]
    with one_torch_thread():
        return execute(cloudpickle.loads(code), job), platform.node()
