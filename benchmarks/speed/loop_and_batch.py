"""Scores of the loop and of the batch, are they the same: every recipe, ten seeds, short runs.

    python benchmarks/speed/loop_and_batch.py --json benchmarks/results/loop_and_batch.json
    python benchmarks/speed/loop_and_batch.py --recipes fgssl --seeds 2

A batch draws dropout and the like as one, so the two are not equal bit by bit. They should agree in
distribution: the mean difference of paired seeds with its standard error, Wilcoxon's two-sided p,
and Holm's correction over the recipes. The metric is that of the last round. Finished runs stay.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments, some
from harness.machine import example, kept, machine, write
from harness.report import holm
from scipy.stats import wilcoxon

from fgl.experiment import cli

BASELINE = example("baseline")
BASELINES = {
    "fedavg": [],
    "fedprox": ["--mu", "0.1"],
    "scaffold": [],
    "moon": [],
    "fedper": ["--shared", "convs.0"],
    "fedpub": [],
    "fedgcn": ["--model", "gcn", "--hops", "1"],
}
# argv of each recipe, the metric, and how many rounds are enough to be past the start.
RECIPES: dict[str, tuple[Any, list[str], str, int]] = {
    "fgssl": (example("fgssl").main, ["--dataset", "cora"], "test_accuracy", 20),
    "fedgl": (example("fedgl").main, ["--dataset", "cora"], "test_accuracy", 20),
    "fedego": (example("fedego").main, ["--dataset", "cora"], "global_f1", 5),
    "fedvgae links": (example("fedvgae").links, ["--dataset", "cora"], "auc", 20),
    "fedvgae nodes": (example("fedvgae").nodes, ["--dataset", "cora"], "test_accuracy", 20),
    "gpfl": (example("gpfl").main, ["--dataset", "PROTEINS"], "test_accuracy", 20),
    **{
        f"{name} louvain-nodes": (
            BASELINE.experiment(name, "louvain-nodes"),
            ["--dataset", "cora", *flags],
            "test_accuracy",
            20,
        )
        for name, flags in BASELINES.items()
    },
}


def score(name: str, seed: int, at_once: str) -> float:
    """The metric of one run."""
    main, argv, metric, rounds = RECIPES[name]
    words = [*argv, "--seed", str(seed), "--rounds", str(rounds), "--clients-at-once", at_once]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        report, _ = cli(main, argv=words)
    return 100 * float(report["metrics"][metric]["last"])


def compared(scores: dict[str, list[float]]) -> dict[str, Any]:
    """Means, the paired difference with its error, and p."""
    gains = [b - a for a, b in zip(scores["1"], scores["all"], strict=True)]
    error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
    p = float(wilcoxon(gains).pvalue) if any(gains) and len(gains) > 1 else 1.0
    means = {name: round(statistics.mean(values), 2) for name, values in scores.items()}
    found = {"loop": means["1"], "batch": means["all"], "seeds": len(gains), "p": round(p, 4)}
    return {**found, "difference": round(statistics.mean(gains), 3), "error": round(error, 3)}


def with_holm(table: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The same rows with Holm's p."""
    adjusted = holm([row["p"] for row in table.values()])
    each = zip(table.items(), adjusted, strict=True)
    return {name: {**row, "p_holm": round(p, 4)} for (name, row), p in each}


def main(argv: list[str] | None = None) -> dict[str, Any]:
    args = arguments(argv, recipes=some(RECIPES), seeds=10)
    torch.set_num_threads(1)
    scores: dict[str, dict[str, list[float]]] = kept(args.json).get("scores", {})
    report: dict[str, Any] = {"benchmark": "loop_and_batch", "machine": machine()}
    for name in args.recipes:
        mine = scores.setdefault(name, {"1": [], "all": []})
        for at_once, values in mine.items():
            values += [score(name, seed, at_once) for seed in range(len(values), args.seeds)]
        done = with_holm({each: compared(values) for each, values in scores.items()})
        report |= {"table": done, "scores": scores}
        print(name, done[name], flush=True)
        write(report, args.json)
    return report


if __name__ == "__main__":
    main()
