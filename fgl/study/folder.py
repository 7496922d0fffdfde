"""A study's folder: the plan, records and environments of finished runs, and locks."""

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
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from ..checks import check_disk, reject_if
from .plan import Plan

FOLDERS = ("runs", "locks", "environments", "logs")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
RENAME = "give a changed method or setting another name, or the study another folder"
MODULES = "a module has changed since, or a script has set a value in it, which workers do not see"
MARKS: dict[Path, str] = {}  # mark files of this process's runs, with their earlier texts
ENDINGS = 3  # after so many deaths of its process, a run is not started again


class Store:
    """Finished runs by id.

    Every run has one file. The file is first written under a temporary name and then renamed.

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
        if os.access(self.folder, os.W_OK) or not (self.folder / "runs").is_dir():
            with writing(self.folder):
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
        """A record without its report; only the record's file contains the report."""
        if name not in self._read:
            self.full(name)
        return self._read[name]

    def full(self, name: str) -> dict[str, Any]:
        """A complete record, which includes the report.

        Raises:
            ValueError: for a damaged file.
        """
        path = self.path(name)
        try:
            record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            record["status"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"Expected {path} to hold the record of a run, but got {type(error).__name__}: "
                f"{error}. Delete this file, and the run is repeated"
            ) from error
        self._read[name] = {key: value for key, value in record.items() if key != "report"}
        return record

    def read(self) -> list[dict[str, Any]]:
        """The records that have been read so far, without the reports."""
        return list(self._read.values())

    def put(self, name: str, record: Mapping[str, Any]) -> None:
        """Write a record so that a crash leaves either a complete file or no file."""
        write(self.path(name), json.dumps(plain(record)).encode())
        self._names.add(name)


def write(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, then rename it."""
    new = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}")
    try:
        with writing(path.parent), new.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    finally:
        with suppress(OSError):  # of an interrupted write, as on a full disk
            new.unlink()


def writing(folder: Path) -> AbstractContextManager[None]:
    """A context in which the text of an OSError names the study's folder."""
    return check_disk(f"folder to be a folder that can be written, which {folder} is not")


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
    if isinstance(value, np.generic):
        return plain(value.item())
    return value if value is None or isinstance(value, str | bool | int) else described(value)


def described(value: Any) -> str:
    """A chosen value as text; for a function, the name of the function."""
    value = value.item() if isinstance(value, np.generic) else value
    return str(getattr(value, "__name__", None) or repr(value))


def save_plan(folder: Path, plan: Plan, *, tries: int) -> Plan:
    """Write a plan to a folder.

    Raise an error if the folder already contains a study that contradicts the plan.

    Args:
        folder: the study's folder.
        plan: the plan. The function sets ``plan.stages``, a list of total numbers of trials. The
            last number of the list is `tries`. The numbers before it are the smaller totals that
            earlier calls requested for this folder.
        tries: the requested total number of trials.

    Returns:
        The plan.

    Raises:
        ValueError: if a method or setting in the folder has the same name but other contents, or if
            the search space, the patience or the further arguments have changed.
        TypeError: for a method or setting that cannot be pickled.
    """
    import cloudpickle

    with writing(folder), FileLock(folder / "plan.lock"):
        before = saved_plan(folder)
        earlier = before.get("fingerprints", {})
        now = {"Python": PYTHON, **plan.fingerprints()}
        check_same(earlier, now, folder)
        warn_equal(now)
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


def check_same(
    known: Mapping[str, str], now: Mapping[str, str], folder: Path, advice: str = RENAME
) -> None:
    """Raise an error if a method, setting or other value has changed but kept its name."""
    other = [name for name, text in now.items() if known.get(name, text) != text]
    want = f"{', '.join(other)} to be as when the study in {folder} was begun"
    reject_if(other, want, f"another: {advice}")


def load_plan(folder: str | os.PathLike[str], name: str = "plan.pkl") -> Plan:
    """Load a plan in a folder. A plan contains pickled code: load only plans that you trust.

    Raises:
        ValueError: if there is no plan, or if the plan's modules are missing or have changed since
            the plan was written.
    """
    import cloudpickle

    folder = Path(folder).absolute()
    saved = saved_plan(folder)
    reject_if(not saved, "folder to hold a study, plan.json", folder)
    check_same(saved["fingerprints"], {"Python": PYTHON}, folder)  # other versions cannot read it
    sys.path += [place for place in saved["path"] if place not in sys.path]
    try:
        plan: Plan = cloudpickle.loads((folder / name).read_bytes())
    except ImportError as error:
        raise ValueError(
            f"Expected the modules of the study in {folder} to be importable, but got {error}: add "
            "their folder to PYTHONPATH"
        ) from error
    check_same(saved["fingerprints"], plan.fingerprints(), folder, MODULES)
    return plan


def warn_equal(fingerprints: Mapping[str, str]) -> None:
    """Warn if two methods are equal, for example because lambdas see only a loop's last value."""
    first: dict[str, str] = {}
    for name, text in fingerprints.items():
        if name.startswith("method ") and first.setdefault(text, name) != name:
            warnings.warn(
                f"{first[text]} and {name} have the same code and values: in a loop, bind the "
                "value, as in lambda task, mu=mu: fgl.methods.fedprox(task.fedavg, mu=mu)",
                stacklevel=2,
            )


@contextmanager
def begun(store: Store, name: str) -> Iterator[int | None]:
    """Context manager that locks a run and yields the number of processes that died in the run.

    The context manager yields None if another process has locked the run, or if the run is
    finished. A process that begins the run adds a line to a mark file next to the lock. At the end,
    or after an interrupt, the process removes its line. If the process dies, the line remains.
    """
    locks = store.folder / "locks"
    lock, mark = FileLock(locks / name, timeout=0), locks / f"{name}.begun"
    try:
        with writing(store.folder):
            lock.acquire()
    except Timeout:
        yield None
        return
    try:
        if store.path(name).exists():
            yield None
            return
        before = mark.read_text() if mark.exists() else ""
        with writing(store.folder):
            mark.write_text(f"{before}{platform.node()} {os.getpid()} {time.time():.0f}\n")
        MARKS[mark] = before
        try:
            yield before.count("\n")
        finally:  # also after an interrupt, which does not count as a death of the process
            if store.path(name).exists():
                MARKS[mark] = ""
            take_back(mark)
    finally:
        lock.release()


def take_back(mark: Path) -> None:
    """Remove this process's line from a run's mark file (see `begun`).

    If no line of an earlier process remains, the mark file is deleted.
    """
    if before := MARKS.pop(mark, ""):
        mark.write_text(before)
    else:
        mark.unlink(missing_ok=True)


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
