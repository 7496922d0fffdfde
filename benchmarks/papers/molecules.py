"""Molecules across companies: FedAvg beside each alone and beside one that has everything.

    python benchmarks/papers/molecules.py [--datasets esol freesolv] [--seeds 3] [--rounds 50]

GINE, ten clients that hold other scaffolds, a random split in each, one epoch of Adam a round in
minibatches of 32. The learning rate is the one of the best validation; pooled test scores are those
of its best round of validation. What the report has is not run again. Needs the extra `molecules`.
"""

import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.flags import arguments, some
from harness.machine import RESULTS, kept, machine, write

import fgl
from fgl import methods, tasks

METHODS: dict[str, Any] = {
    "fedavg": lambda fedavg: fedavg,
    "scaffold": methods.scaffold,
    "local": methods.local,
    "central": lambda fedavg: fedavg,
}
RATES = (0.01, 0.003, 0.001)
METRIC = {"esol": "rmse", "freesolv": "rmse", "bace": "auc", "clintox": "auc", "tox21": "auc"}


def best(name: str, dataset: str, rate: float, seed: int, rounds: int) -> dict[str, float]:
    """Validation and pooled test score of the round that validates best."""
    local = tasks.Local("adam", lr=rate, weight_decay=0.0, steps=1)
    how: dict[str, Any] = {"partition": "scaffold", "split": "random", "local": local}
    task = tasks.Molecules(dataset=dataset, clients=10, **how).load(seed)
    if name == "central":
        task = tasks.centralized(task)
    method = METHODS[name](task.fedavg)
    result = fgl.run(method, task, num_rounds=rounds, seed=seed)
    metric = METRIC[dataset]
    sign = -1 if task.select.startswith("-") else 1
    records = [record.metrics for record in result.history]
    top = max(records, key=lambda found: sign * found[f"val_{metric}"])
    return {"val": top[f"val_{metric}"], "test": top[f"pooled_test_{metric}"]}


def chosen(found: dict[str, Any], dataset: str, name: str, seeds: int) -> dict[str, Any]:
    """The test scores of the rate whose mean validation is best."""
    lower = METRIC[dataset] == "rmse"
    by_rate = {
        rate: [found[f"{dataset} {name} {rate} {seed}"] for seed in range(seeds)] for rate in RATES
    }
    valid = {rate: mean(each["val"] for each in runs) for rate, runs in by_rate.items()}
    rate = min(valid, key=valid.__getitem__) if lower else max(valid, key=valid.__getitem__)
    tests = [each["test"] for each in by_rate[rate]]
    return {"rate": rate, "test": tests, "mean": mean(tests), "deviation": stdev(tests)}


def main(argv: list[str] | None = None) -> None:
    given = arguments(argv, datasets=some(METRIC, ["esol", "freesolv"]), seeds=3, rounds=50)
    path = given.json or RESULTS / "molecules_methods.json"
    report: dict[str, Any] = kept(path)
    found: dict[str, Any] = report.setdefault("runs", {})
    for dataset in given.datasets:
        for name in METHODS:
            for rate in RATES:
                for seed in range(given.seeds):
                    key = f"{dataset} {name} {rate} {seed}"
                    if key not in found:
                        found[key] = best(name, dataset, rate, seed, given.rounds)
                        report["machine"] = machine()
                        write(report, path)
            cell = chosen(found, dataset, name, given.seeds)
            report.setdefault("cells", {})[f"{dataset} {name}"] = cell
            write(report, path)
            print(f"{dataset} {name}: {cell['mean']:.3f} +- {cell['deviation']:.3f}", flush=True)


if __name__ == "__main__":
    main()
