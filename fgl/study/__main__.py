"""The command ``python -m fgl.study FOLDER``, which starts a worker."""

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from .crew import counted
from .execute import same_again
from .folder import MARKS, Store, load_plan, take_back
from .plan import Plan
from .results import Study
from .space import WIDE, sobol_point
from .work import one_torch_thread, work

GRACE = 3.0  # seconds after which a worker without a parent ends, whatever it does


def main(argv: list[str] | None = None) -> None:
    """Execute the runs of a study, show the study's table, or repeat one run."""
    parser = argparse.ArgumentParser("python -m fgl.study", description=main.__doc__)
    parser.add_argument("folder", help="the folder of fgl.study(..., folder=)")
    parser.add_argument("--show", action="store_true", help="print the table, run nothing")
    parser.add_argument("--again", metavar="ID", help="make a finished run again and compare")
    parser.add_argument("--retry", action="store_true", help="make failed runs again, then work")
    parser.add_argument("--index", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--plan", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    try:
        if args.show:
            print(Study(args.folder))
        elif args.again:
            again(args.folder, args.again)
        elif args.index is not None:
            plan = load_plan(args.folder, args.plan)
            _listen(plan)
            # Started by a process that holds the other end of the input.
            threading.Thread(target=_end_with_parent, args=(args.plan,), daemon=True).start()
            work(args.folder, index=args.index, plan=plan)
        else:
            plan = load_plan(args.folder)
            _listen(plan)
            if args.retry:
                forget_failed(args.folder)
            with counted(plan) as count:
                work(args.folder, plan=plan, advance=count)
    except (ValueError, OSError) as error:
        print(f"python -m fgl.study: error: {error}", file=sys.stderr)
        raise SystemExit(2) from error


def again(folder: str, name: str) -> None:
    """Repeat a run; print whether the new numbers equal the recorded numbers bit for bit."""
    plan, store = load_plan(folder), Store(folder)
    jobs = {job.id: job for job in plan.jobs(store)}
    if name not in jobs or name not in store:
        raise ValueError(f"Expected --again to be a finished run of the study, but got {name}")
    with one_torch_thread():
        same, record = same_again(plan, jobs[name], store.full(name))
    print("the same bits" if same else f"other bits: {record['status']} {record.get('error', '')}")
    raise SystemExit(0 if same else 1)


def forget_failed(folder: str) -> None:
    """Delete the records of runs that failed or diverged, so that workers repeat these runs."""
    store = Store(folder)
    for path in (store.folder / "runs").glob("*.json"):
        if store[path.stem]["status"] != "finished":
            path.unlink()


class Ended(BaseException):
    """Raised on SIGTERM, so that `begun` releases the run.

    The class is not a SystemExit, since a run that raises SystemExit is recorded as failed.
    """


def _listen(plan: Plan) -> None:
    """Raise `Ended` on SIGTERM from now on.

    The function first draws one Sobol point, so that scipy loads its table of direction numbers
    before `Ended` can be raised. If `Ended` were raised while scipy loads the table, scipy would
    ignore the exception and continue with a wrong table.
    """
    if any(map(plan.tunes, plan.methods)):
        sobol_point(WIDE, 0)
    signal.signal(signal.SIGTERM, _end)


def _end(*_: Any) -> NoReturn:
    raise Ended


def _end_with_parent(plan: str) -> None:
    """Exit within `GRACE` seconds after the parent process has closed the pipe or died.

    A parent that was killed leaves the plan of its workers behind; the function deletes this plan.
    """
    while os.read(0, 1):  # no lock of sys.stdin, at which the end of Python would wait
        pass
    Path(plan).unlink(missing_ok=True)
    os.kill(os.getpid(), signal.SIGTERM)  # also interrupts system calls such as sleep
    time.sleep(GRACE)
    for mark in [*MARKS]:  # the run is inside a long call of another library
        take_back(mark)
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    try:
        main()
    except Ended:
        raise SystemExit(128 + signal.SIGTERM) from None
