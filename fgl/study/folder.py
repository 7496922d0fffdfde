"""A study's folder: the plan, the records of finished runs, their environments, and locks."""

import functools
import hashlib
import json
import math
import os
import pickle
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ..checks import check_disk, reject_if
from .plan import Plan

FOLDERS = ("runs", "locks", "environments", "logs")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
ENDINGS = 3  # after so many deaths of its process, a run is not started again


class Store:
    """Finished runs by id.

    Each run has its own file, which is written completely under another name and then renamed.

    Args:
        folder: the study's folder.

    Example:
        >>> import tempfile
        >>> store = Store(tempfile.mkdtemp())
        >>> store.put("a", {"status": "finished"})
        >>> "a" in store, store["a"]
        (True, {'status': 'finished'})
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()
        self._names: set[str] = set()
        self._read: dict[str, dict[str, Any]] = {}
        with check_disk(f"folder to be a folder that can be written, which {folder} is not"):
            for name in FOLDERS:
                (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.refresh()

    def path(self, name: str) -> Path:
        """The file that holds a record."""
        return self.folder / "runs" / f"{name}.json"

    def refresh(self) -> None:
        """List the folder once, to find the runs that have finished."""
        with os.scandir(self.folder / "runs") as files:
            names = {f.name[:-5] for f in files if f.name.endswith(".json") and f.name[0] != "."}
        for name in self._names - names:  # a run whose record was deleted is repeated
            self._read.pop(name, None)
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> dict[str, Any]:
        """A record without its report; the report is only on disk."""
        if name not in self._read:
            self.full(name)
        return self._read[name]

    def full(self, name: str) -> dict[str, Any]:
        """A complete record, with its report."""
        record: dict[str, Any] = json.loads(self.path(name).read_text(encoding="utf-8"))
        self._read[name] = {key: value for key, value in record.items() if key != "report"}
        return record

    def read(self) -> list[dict[str, Any]]:
        """The records that have been read so far, without their reports."""
        return list(self._read.values())

    def put(self, name: str, record: Mapping[str, Any]) -> None:
        """Write a record; a crash leaves either a complete file or none."""
        write(self.path(name), json.dumps(plain(record)).encode())
        self._names.add(name)

    def locked(self, name: str) -> FileLock:
        """A run's lock, which the operating system releases if the process dies."""
        return FileLock(self.folder / "locks" / name, timeout=0)


def write(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, then rename it."""
    new = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}")
    with check_disk(f"the study to be written to {path.parent}"), new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def plain(value: Any) -> Any:
    """Convert a value to JSON types.

    Numbers that are not finite become None, and values of unknown types become text.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | bool | int) else described(value)


def described(value: Any) -> str:
    """A chosen value as text; for a function, its name."""
    return str(getattr(value, "__name__", None) or repr(value))


def save_plan(folder: Path, plan: Plan, *, tries: int) -> Plan:
    """Write a plan to a folder.

    Raise an error if the plan contradicts the study that was started in this folder.

    Args:
        folder: the study's folder.
        plan: the plan. The call replaces the plan's stages by the stages in the folder that are
            below `tries`, followed by `tries`.
        tries: the requested total number of trials.

    Returns:
        The plan.

    Raises:
        ValueError: if a method, setting, space or patience has changed under the same name.
        TypeError: for a method or setting that cannot be pickled.
    """
    import cloudpickle

    with FileLock(folder / "plan.lock"):
        before = saved_plan(folder)
        earlier = before.get("fingerprints", {})
        now = {"Python": PYTHON, **plan.fingerprints()}
        check_same(earlier, now, folder)
        stages = [count for count in before.get("stages", []) if count < tries]
        plan.stages = [*stages, tries]
        all_stages = sorted({*before.get("stages", []), tries})
        text = {"fingerprints": {**earlier, **now}, "stages": all_stages, "path": plan.path}
        try:
            code = cloudpickle.dumps(plan)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            raise TypeError(
                "Expected methods and settings to be such that cloudpickle can send them to other "
                f"processes, but got {error}: make such an object inside of the function that "
                "needs it, or in a module"
            ) from error
        write(folder / "plan.pkl", code)
        write(folder / "plan.json", json.dumps(text, indent=1).encode())
    return plan


def saved_plan(folder: Path) -> dict[str, Any]:
    """Read a plan's fingerprints, stages and path from a folder; {} if there is no plan."""
    path = folder / "plan.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def check_same(known: Mapping[str, str], now: Mapping[str, str], folder: Path) -> None:
    """Raise an error if a method, setting or other value has changed but kept its name."""
    other = [name for name, text in now.items() if known.get(name, text) != text]
    reject_if(
        other,
        f"{', '.join(other)} to be as when the study in {folder} was begun",
        "another: give a changed method or setting another name, or the study another folder",
    )


def load_plan(folder: str | os.PathLike[str]) -> Plan:
    """Load the plan in a folder. A plan contains pickled code: load only plans that you trust.

    Raises:
        ValueError: if there is no plan, or if the plan's modules have changed since it was written.
    """
    import cloudpickle

    folder = Path(folder).absolute()
    saved = saved_plan(folder)
    reject_if(not saved, "folder to hold a study, plan.json", folder)
    check_same(saved["fingerprints"], {"Python": PYTHON}, folder)  # other versions cannot read it
    sys.path += [place for place in saved["path"] if place not in sys.path]
    plan: Plan = cloudpickle.loads((folder / "plan.pkl").read_bytes())
    check_same(saved["fingerprints"], plan.fingerprints(), folder)
    return plan


@contextmanager
def begun(store: Store, name: str) -> Iterator[int | None]:
    """A context that locks a run; it yields the number of processes that have died in this run.

    The context yields None if the run is locked by another process or is finished. While a process
    works on the run, there is a mark file next to the lock. If the process dies, the mark remains.
    """
    lock, mark = store.locked(name), store.folder / "locks" / f"{name}.begun"
    try:
        lock.acquire()
    except Timeout:
        yield None
        return
    try:
        if store.path(name).exists():
            yield None
            return
        before = mark.read_text() if mark.exists() else ""
        mark.write_text(f"{before}{platform.node()} {os.getpid()} {time.time():.0f}\n")
        try:
            yield before.count("\n")
        finally:  # also after an interrupt, which does not count as a death of the process
            if before and not store.path(name).exists():
                mark.write_text(before)
            else:
                mark.unlink(missing_ok=True)
    finally:
        lock.release()


@functools.cache
def environment(folder: Path) -> str:
    """Write this process's environment to a file whose name is a hash of the content."""
    import torch

    here = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        commit = subprocess.run(here, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        commit = ""
    packages = {f"{d.metadata['Name']}=={d.version}" for d in distributions()}
    about = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "cores": os.cpu_count(),
        "commit of fgl": commit,
        "torch": torch.__config__.show(),
        "packages": sorted(packages),
    }
    text = json.dumps(about, indent=1)
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = folder / "environments" / f"{name}.json"
    if not path.exists():
        write(path, text.encode())
    return name
