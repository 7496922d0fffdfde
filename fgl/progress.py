"""Progress of long work on stderr: a bar in a terminal, or else a line from time to time."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

FIRST = 10.0  # seconds of work before the first line


@contextmanager
def shown(
    what: str,
    total: int | None = None,
    *,
    unit: str = "steps",
    long: bool = False,
    bar_after: float = FIRST,
    left: bool = False,
) -> Iterator[Callable[[int], object]]:
    """Show the progress of some work if it takes more than ten seconds.

    In a terminal with tqdm, a bar shows the progress. Otherwise a line is printed after 10, 20, 40,
    ... seconds. With `long`, a line is also printed at the start and at the end. Use `long` if the
    work is one call that cannot report progress.

    Args:
        what: description of the work; the bar or the printed line begins with this text.
        total: number of units of work, if known.
        unit: the unit; ``"B"`` for bytes.
        long: whether the work is known to take long.
        bar_after: seconds before a bar appears.
        left: whether a line shows the number of remaining seconds. A bar always shows this number.
            The remaining time is estimated from the mean time per unit. This mean leaves out the
            units in the first call of the yielded function, which an earlier run may have finished.

    Yields:
        A function to call with the number of newly finished units.

    Example:
        >>> with shown("addition", total=3) as advance:  # too short to be shown
        ...     for _ in range(3):
        ...         _ = advance(1)
    """
    start, done, bar = time.monotonic(), 0, None
    before: int | None = None
    due = FIRST
    with ExitStack() as stack:

        def advance(count: int) -> None:
            nonlocal done, bar, due, before
            done += count
            before = done if before is None else before
            if bar is not None:
                bar.update(count)
                return
            passed = time.monotonic() - start
            if passed < min(due, bar_after):
                return
            bar = _bar(stack, what, total, done, unit)
            if bar is None and passed >= due:
                of = "" if total is None else f" of {total:,}"
                rest = ""
                if left and total is not None and done > before:
                    rest = f", {(total - done) * passed / (done - before):.0f} s left"
                _say(f"{what}: {done:,}{of} {unit}, {passed:.0f} s{rest}")
                due = max(2 * due, passed)

        if long:
            _say(f"{what} ...")
        yield advance
        if long:
            _say(f"{what}: done, {time.monotonic() - start:.0f} s")


def _bar(stack: ExitStack, what: str, total: int | None, done: int, unit: str) -> Any:
    """Open a progress bar of tqdm, which is closed when the context `stack` ends.

    The result is None if tqdm is not installed, or if the error stream is not a terminal.
    """
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    bar = tqdm(desc=what, total=total, initial=done, unit=unit, unit_scale=unit == "B", leave=False)
    return stack.enter_context(bar)


def _say(line: str) -> None:
    print(f"fgl: {line}", file=sys.stderr, flush=True)
