"""Exchanges of a knowledge graph: FedE, FedR, FedAvg, alone and all data on UMLS.

    FGL_DATA=... python benchmarks/papers/umls.py [--kinds TransE DistMult] [--methods FedE FedR]

`docs/guides/knowledge_graphs.md` shows the test MRR at the rate with the best mean validation; the
runs are in ``benchmarks/results/umls.jsonl``.
"""

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.flags import arguments, some
from harness.machine import RESULTS, example

import fgl

EVERY = 20  # rounds between two scores
RATES = (0.01, 0.03)


def scored(evaluate: Any, result: list[int]) -> Any:
    """An `evaluate` that scores each twentieth round."""

    def score(outbox: Any, states: Any) -> dict[str, float]:
        result.append(0)
        return evaluate(outbox, states) if len(result) % EVERY == 0 else {}

    return score


def main(argv: list[str] | None = None) -> None:
    triples = example("triples")
    triples.METHODS["FedE, rows by id"] = example("fede").fede
    kinds = some(("TransE", "DistMult", "RotatE"), ["TransE"])
    args = arguments(argv, kinds=kinds, methods=some(tuple(triples.METHODS)), seeds=3)
    folder = Path(os.environ["FGL_DATA"]) / "umls" / "raw"
    for kind, lr, seed in ((k, r, s) for k in args.kinds for r in RATES for s in range(args.seeds)):
        triples.ADAM = partial(torch.optim.Adam, lr=lr)
        for name in args.methods:
            build = triples.METHODS[name]
            task = triples.task_of(seed, folder=folder, kind=getattr(triples, kind))
            task = fgl.tasks.centralized(task) if name == "all data" else task
            method = task.fedavg if name == "all data" else build(task.fedavg)
            evaluate = scored(task.evaluate(method, each=True), [])
            result = fgl.run(method, task, num_rounds=100, seed=seed, evaluate=evaluate)
            best = max((r for r in result.history if r.metrics), key=lambda r: r.metrics["val_mrr"])
            key = {"kind": kind, "lr": lr, "seed": seed, "method": name, "round": best.round}
            line = {**key, "bytes": sum(result.traffic), **best.metrics}
            with (RESULTS / "umls.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
