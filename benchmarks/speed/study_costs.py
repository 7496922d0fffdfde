"""What a study costs beside its runs: a run, a worker, a claim; and what a second worker gains.

    python benchmarks/speed/study_costs.py --json benchmarks/results/study_costs.json

A run's overhead is what a study of short runs takes without workers, less the seconds in its
records. A worker's start is what passes before its first run. The gain of two workers is for the
seconds from the first run's start on, one and two workers in turn: keep both cores free. A claim is
one look for the next run in a plan of 5,060 runs, most of them finished; its records are drawn, not
run.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.flags import arguments
from harness.machine import in_turn, machine, ratio, write

import fgl
from fgl import LogUniform, Tuned, methods, tasks
from fgl.study.folder import Store
from fgl.study.work import missing

SPACE = [{"lr": LogUniform(0.1, 1.0)}, {"lr": LogUniform(1.0, 10.0)}]
AVERAGE: dict[str, Any] = {"FedAvg": lambda task: task.fedavg}


def study(rounds: int, workers: int) -> tuple[float, float, float]:
    """Seconds of a study of 16 runs: in all, from the first run's start on, and in its runs."""
    with tempfile.TemporaryDirectory() as folder:
        how: dict[str, Any] = {"num_rounds": rounds, "seeds": range(8), "folder": folder}
        entrants = AVERAGE | {"SCAFFOLD": methods.scaffold}
        start = time.perf_counter()
        found = fgl.study(entrants, {"a": tasks.Nodes(clients=3)}, workers=workers, **how)
        took, runs = time.perf_counter() - start, found.raw()
        ends = max(run["ended"] for run in runs)
        span = max(ends - run["ended"] + run["seconds"] for run in runs)
        return took, span, sum(run["seconds"] for run in runs)


def claim(finished: int = 4500, looks: int = 9) -> dict[str, float]:
    """Median seconds of a look for the next run, each after one more run has finished."""
    with tempfile.TemporaryDirectory() as folder:
        own = {f"m{k}": Tuned(methods.fedprox, mu=LogUniform(1e-3, 1.0 + k)) for k in range(22)}
        settings = {f"s{k}": tasks.Nodes(clients=2 + k) for k in range(10)}
        how: dict[str, Any] = {"num_rounds": 3, "trials": 12, "local": SPACE, "seeds": range(10)}
        plan = fgl.study(AVERAGE | own, settings, workers="later", folder=folder, **how).plan
        store, took = Store(folder), []
        while len(store) < finished + looks:
            start = time.perf_counter()
            jobs = missing(plan, store)
            took.append(time.perf_counter() - start)
            for job in jobs[: max(1, finished - len(store))]:
                record = {"status": "finished", "validation": int(job.id[-6:], 16) / 2**24}
                store.put(job.id, record)
        seconds = statistics.median(took[-looks:])
        return {"seconds_of_a_claim": round(seconds, 4), "runs_of_the_plan": plan.count()}


def main(argv: list[str] | None = None) -> None:
    args = arguments(argv, repeats=5, rounds=60)
    idle = [study(1, 0) for _ in range(args.repeats)]
    started = [took - span for took, span, _ in (study(1, 1) for _ in range(args.repeats))]
    long = in_turn({str(k): lambda k=k: study(args.rounds, k)[1] for k in (1, 2)}, args.repeats)
    gain, spread = ratio(long["1"], long["2"])
    report = {
        "seconds_beside_a_run": round(statistics.median((a - b) / 16 for a, _, b in idle), 3),
        "seconds_to_start_a_worker": round(statistics.median(started), 2),
        "one_worker_over_two": {"median": gain, "range": spread, "seconds_of_one": long["1"]},
        **claim(),
    }
    print(report)
    write({**report, "machine": machine()}, args.json)


if __name__ == "__main__":
    main()
