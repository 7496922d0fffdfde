"""A site's ledger: a line per answer or refusal, and the site's privacy budget.

The file ``ledger.jsonl`` is in a site's state folder. When the file reaches one megabyte, it is
renamed to ``ledger-000001.jsonl``. Later files get the next numbers. The newest ten of these files
are kept. Each new file begins with the total privacy cost so far.
"""

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from ....checks import Chance, Positive, reject_if
from ....kinds import typed
from ....privacy.accountant import composed_epsilon
from ...saved import disk
from .replies import Refusal

SIZE, FILES = 1_000_000, 10  # bytes of one file, and how many old ones stay
LONGEST = 2000  # characters of a reason
Uses = Counter[tuple[float, float]]  # (noise multiplier, sample rate): how often


@typed
class Ledger:
    """A site's ledger for one request: it checks the budget and records answers and refusals.

    Args:
        folder: folder of the ledger; None for no ledger and no budget.
        about: JSON values that are written on each line of this request, such as run, round and
            method.
        epsilon: budget for all answers of this site in all runs together; by default there is none.
        delta: the delta for which epsilon is computed.

    Raises:
        ValueError: if a number is out of range, or if a budget is given without a folder.

    Example:
        >>> import tempfile
        >>> ledger = Ledger(tempfile.mkdtemp(), {"round": 0})
        >>> ledger.charge({"noise_multiplier": 4.0}, num_bytes=120)
        >>> 0 < ledger.afford({}) < 2
        True
        >>> ledger.afford({"noise_multiplier": 0.0})
        inf
    """

    def __init__(
        self,
        folder: str | Path | None,
        about: Mapping[str, Any],
        *,
        epsilon: Positive | None = None,
        delta: Chance = 1e-5,
    ) -> None:
        budget = f"a budget of epsilon {epsilon or 0:g}, since it must survive a restart"
        lacks = folder is None and epsilon is not None
        reject_if(lacks, f"a state folder beside {budget}", "none")
        self.folder = None if folder is None else Path(folder)
        self.about, self.epsilon, self.delta = dict(about), epsilon, float(delta)

    def check(self, costs: Mapping[str, float]) -> None:
        """Raise a ValueError if an answer with the given cost would exceed the budget."""
        if self.epsilon is not None:
            self.afford(costs)

    def charge(self, costs: Mapping[str, float], *, num_bytes: int, question: str = "") -> None:
        """Record an answer's cost before the answer is sent.

        Args:
            costs: the answer's privacy cost, see `Method.privacy.costs`.
            num_bytes: size of the answer.
            question: digest of the request; `paid` counts the answers to this request.

        Raises:
            ValueError: if the answer would exceed the budget.
        """
        if self.folder is None:
            return
        with self._locked():
            spent = self.afford(costs)
            kinds = [[*kind, times] for kind, times in _uses(costs).items()]
            about = {"question": question} if question else {}
            self._write({"bytes": num_bytes, "noise": kinds, **about, **self._spent(spent)})

    def paid(self, question: str) -> int:
        """For one request, the number of answers whose cost was recorded.

        The number is 2 if an answer was recorded twice. For example, a process may be killed after
        it recorded an answer but before it stored the answer. The next process then computes and
        records the answer again.

        The number is 0 if there is no folder, since nothing is recorded then. Only the newest file
        of the ledger is read. So the number is also 0 if the answers to the request were recorded
        in older files.
        """
        lines = (json.loads(line) for line in self._lines().splitlines())
        return sum(line.get("question") == question for line in lines)

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """A context that records every error that prevents an answer."""
        try:
            yield
        except Exception as error:
            with suppress(Exception):  # the first error is the one to record
                self.note(refused=f"{type(error).__name__}: {error}"[:LONGEST])
            raise

    def note(self, **what: Any) -> None:
        """Write a line."""
        if self.folder is not None:
            with self._locked():
                self._write(what)

    def afford(self, costs: Mapping[str, float]) -> float:
        """Epsilon after one more answer.

        Raise an error if this epsilon exceeds the budget.
        """
        before = self._uses()
        spent = self._epsilon(before + _uses(costs))
        if self.epsilon is not None and _uses(costs) and spent > self.epsilon:
            exact = [kind for kind in before if not kind[0]]
            hint = ": answers without noise were given before" if exact else ""
            raise Refusal(
                f"Expected epsilon of all answers of this site to stay at most {self.epsilon:g} at "
                f"delta {self.delta:g}, but got {spent:.4g} with this one{hint}"
            )
        return spent

    def _epsilon(self, uses: Uses) -> float:
        try:
            return composed_epsilon(uses, delta=self.delta)
        except ImportError:
            if self.epsilon is not None:
                raise
            return math.nan  # without the extra `private` a ledger has no epsilon

    def _spent(self, epsilon: float) -> dict[str, Any]:
        """The epsilon spent so far as a JSON value; an infinite epsilon becomes None."""
        return {"epsilon": epsilon if math.isfinite(epsilon) else None, "delta": self.delta}

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """A context during which only this run can write to the site's ledger."""
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(self.folder / "ledger.lock", mode=0o600):
            yield

    @property
    def _path(self) -> Path:
        return Path(self.folder or ".", "ledger.jsonl")

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"ledger-{number:06d}.jsonl")

    def _lines(self) -> bytes:
        """All complete lines.

        If the process is killed, the last line may be incomplete. An incomplete line is left out,
        since its answer was not sent.
        """
        data = self._path.read_bytes() if self.folder and self._path.exists() else b""
        return data[: data.rfind(b"\n") + 1]

    def _uses(self) -> Uses:
        uses: Uses = Counter()
        for number, line in enumerate(self._lines().splitlines(), 1):
            try:
                kinds = json.loads(line).get("noise", [])
                uses.update({(float(noise), float(rate)): int(n) for noise, rate, n in kinds})
            except (AttributeError, TypeError, ValueError) as error:
                raise ValueError(
                    f"Expected line {number} of {self._path} to be one of a ledger, but got "
                    f"{line[:40]!r}: put its copy back, or move the file away to begin anew"
                ) from error
        return uses

    def _write(self, what: Mapping[str, Any]) -> None:
        """Append a line, and return when the line is on the disk."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = json.dumps({"time": now, **self.about, **what}).encode() + b"\n"
        before = self._lines()
        if before and len(before) + len(line) > SIZE:
            before = self._rotate(before)
        if not before:
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))
        disk.write_at(self._path, len(before), line)

    def _rotate(self, before: bytes) -> bytes:
        """Copy the full file, then begin a new file with the total privacy cost so far."""
        kinds = [[*kind, times] for kind, times in self._uses().items()]
        carried = json.dumps({"carried": True, "noise": kinds}).encode() + b"\n"
        names = (path.name for path in self._path.parent.glob("ledger-*.jsonl"))
        matches = (re.fullmatch(r"ledger-(\d{6,})\.jsonl", name) for name in names)
        old = sorted(int(each[1]) for each in matches if each)
        number = old[-1] + 1 if old else 1
        disk.write_whole(self._numbered(number), before, private=True)
        for each in [*old, number][:-FILES]:
            self._numbered(each).unlink(missing_ok=True)
        disk.write_whole(self._path, carried, private=True)
        return carried


def _uses(costs: Mapping[str, float]) -> Uses:
    """The privacy mechanisms that an answer uses; empty if no data affect the answer."""
    if not costs:
        return Counter()
    kind = float(costs["noise_multiplier"]), float(costs.get("sample_rate", 1.0))
    return Counter({kind: int(costs.get("steps", 1))})
