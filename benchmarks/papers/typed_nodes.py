"""Areas of DBLP's authors: conferences of one client each, or known to all; methods beside.

    python benchmarks/papers/typed_nodes.py [--seeds 3] [--rounds 6]

Test accuracy on the whole graph after the last round, and that of each client's model on its own
test authors. RGCN of width 16, Louvain parts for five clients, three steps of Adam in a round.
"""

import sys
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.flags import arguments
from harness.machine import RESULTS, machine, write

import fgl
from fgl import methods, tasks

ALIKE = partial(methods.fedhgn, draw=False)  # as recorded, before clients drew their coefficients
RUNS: dict[str, tuple[dict[str, Any], Any]] = {
    "fedavg, torn conferences": ({"share_conferences": False}, lambda fedavg: fedavg),
    "fedavg, shared conferences": ({}, lambda fedavg: fedavg),
    "local, shared conferences": ({}, methods.local),
    "central": ({"clients": 1}, lambda fedavg: fedavg),
    "fedavg, 4 bases, shared": ({"bases": 4}, lambda fedavg: fedavg),
    "fedhgn, 4 bases, shared": ({"bases": 4}, ALIKE),
    "fedavg, 4 bases, torn": ({"bases": 4, "share_conferences": False}, lambda fedavg: fedavg),
    "fedhgn, 4 bases, torn": ({"bases": 4, "share_conferences": False}, ALIKE),
}


def main(argv: list[str] | None = None) -> None:
    given = arguments(argv, seeds=3, rounds=6)
    path = given.json or RESULTS / "typed_nodes.json"
    report: dict[str, Any] = {"machine": machine(), "rounds": given.rounds, "seeds": given.seeds}
    for name, (setting, build) in RUNS.items():
        found: dict[str, list[float]] = {"test_accuracy": [], "local_accuracy": []}
        for seed in range(given.seeds):
            task = tasks.TypedNodes(dataset="dblp_four_area", **setting).load(seed)
            method = build(task.fedavg)
            evaluate = fgl.federation.together(
                task.evaluate(method), fgl.evaluate_on(method, task.clients, task.clients)
            )
            result = fgl.run(
                method, task.clients, evaluate=evaluate, num_rounds=given.rounds, seed=seed
            )
            for metric, values in found.items():
                values.append(result.history[-1].metrics[metric])
        report[name] = found
        said = (f"{m} {mean(v):.3f} +- {stdev(v):.3f}" for m, v in found.items())
        print(f"{name:28}", *said, flush=True)
    write(report, path)


if __name__ == "__main__":
    main()
