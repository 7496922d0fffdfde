"""Accuracy under noise of the clients, of the server, and of the clients inside a secure sum.

    python benchmarks/reliability/summed_noise.py --json benchmarks/results/summed_noise.json
    python benchmarks/reliability/summed_noise.py --report      docs/privacy.md, from that file

FedAvg on Cora with 100 clients at random, 50 rounds, a GCN of width 8. Width, rounds and clipping
length were chosen by the validation accuracy of central noise on a split of their own (seed 100).
Noise inside the sum is drawn as `summed_gaussian` draws it and added up without masks, which cancel
exactly: an exchange of 100 clients with masks takes minutes. `--masked` measures one. Runs that the
file has are not made again.
"""

import math
import statistics
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import RESULTS, kept, machine, write
from harness.report import publish

import fgl
from fgl import Method
from fgl.federation.method.compose import unsealed
from fgl.privacy import epsilon, noise_for
from fgl.transforms import (
    central_gaussian,
    clipped,
    local_gaussian,
    privacy_spent,
    summed_gaussian,
    summed_rounds,
)
from fgl.transforms.summed_gaussian import _with_shares

CLIENTS, THRESHOLD, ROUNDS, LENGTH, DELTA = 100, 67, 50, 0.5, 1e-5
EPSILONS = (1.0, 4.0, 8.0)
KINDS = {
    "central": "by the server, which is trusted",
    "summed": "inside the secure sum, nobody colludes",
    "summed, 10 collude": "inside the secure sum, 10 of 100 collude",
    "local": "by each client",
}


def task(seed: int) -> Any:
    how: dict[str, Any] = {"partition": "random", "model": "gcn", "hidden": 8, "dropout": 0.0}
    return fgl.tasks.Nodes(dataset="cora", clients=CLIENTS, **how).load(seed)


def unmasked(method: Method, *, multiplier: float, colluders: int) -> Method:
    """What `summed_gaussian` sums, as plain uploads in the model's dtype.

    `multiplier` is that of the noise which is credited when all clients are in the sum.
    """
    sigma = LENGTH * multiplier / math.sqrt(CLIENTS - colluders)
    how: dict[str, Any] = {"bits": 28, "bound": 1024.0, "unprotected": False}
    shares = unsealed(_with_shares(method, length=LENGTH, sigma=sigma, **how))

    def send(*given: Any) -> Any:
        message, state = shares.send(*given)
        model: Any = message["model"]
        return {**message, "model": {name: value.float() for name, value in model.items()}}, state

    return replace(shares, send=send, rules=replace(shares.rules, max_change=math.inf))


def with_noise(method: Method, kind: str, wanted: float | None) -> Method:
    if wanted is None:
        return method if kind == "plain" else clipped(method, length=LENGTH)
    multiplier = noise_for(epsilon=wanted, rounds=ROUNDS, delta=DELTA)
    if kind.startswith("summed"):
        return unmasked(method, multiplier=multiplier, colluders=10 if "10" in kind else 0)
    noise = {"central": central_gaussian, "local": local_gaussian}[kind]
    return noise(method, length=LENGTH, noise_multiplier=multiplier)


def run(kind: str, wanted: float | None, seed: int) -> dict[str, Any]:
    start, made = time.perf_counter(), task(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method = with_noise(made.fedavg, kind, wanted)
        result = fgl.run(method, made, num_rounds=ROUNDS, clients_at_once="all", seed=seed)
    accuracy = result.history[-1].metrics["test_accuracy"]
    key = {"kind": kind, "epsilon": wanted, "seed": seed}
    return {**key, "test_accuracy": accuracy, "seconds": time.perf_counter() - start}


def masked_exchange() -> dict[str, Any]:
    """One exchange with masks: what it costs, and what it is worth with 10 colluders."""
    made = task(0)
    multiplier = noise_for(epsilon=8.0, rounds=ROUNDS, delta=DELTA)
    planned = multiplier * math.sqrt((THRESHOLD - 10) / (CLIENTS - 10))
    how: dict[str, Any] = {"length": LENGTH, "threshold": THRESHOLD, "colluders": 10}
    method = summed_gaussian(made.fedavg, noise_multiplier=planned, **how)
    start = time.process_time()
    result = fgl.run(method, made.clients, num_rounds=4, clients_at_once="all", watch=privacy_spent)
    (record,) = summed_rounds(result.history)
    return {
        "clients": CLIENTS,
        "numbers": sum(value.numel() for value in made.fedavg.initial().values()),
        "processor_seconds": time.process_time() - start,
        "bytes_up_per_client": record.bytes_up / CLIENTS,
        "bytes_down_per_client": record.bytes_down / CLIENTS,
        "epsilon": result.history[-1].metrics["epsilon"],
        "epsilon_expected": epsilon(noise_multiplier=multiplier, rounds=1, delta=DELTA),
        "epsilon_of_the_threshold": epsilon(noise_multiplier=planned, rounds=1, delta=DELTA),
    }


def text(found: dict[str, Any]) -> str:
    """The table of the page."""

    def cell(kind: str, wanted: float | None) -> str:
        some = [
            100 * each["test_accuracy"]
            for each in found["runs"]
            if (each["kind"], each["epsilon"]) == (kind, wanted)
        ]
        return f"{statistics.mean(some):.1f} ± {statistics.stdev(some):.1f}"

    lines = [
        "| noise is added | " + " | ".join(f"epsilon {wanted:g}" for wanted in EPSILONS) + " |",
        "|---|" + "---|" * len(EPSILONS),
    ]
    for kind, said in KINDS.items():
        cells = " | ".join(cell(kind, wanted) for wanted in EPSILONS)
        lines.append(f"| {said} | {cells} |")
    seeds = len({each["seed"] for each in found["runs"]})
    lines += ["", f"Without noise: {cell('plain', None)}, with clipping only "
              f"{cell('clipped', None)}. {seeds} seeds each.", ""]  # fmt: skip
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv, seeds=5, masked=False, report=False)
    if args.report:
        publish("summed noise", text(kept(RESULTS / "summed_noise.json")))
        return 0
    torch.set_num_threads(1)
    report: dict[str, Any] = {"benchmark": "noise inside the secure sum", "runs": []}
    report |= kept(args.json)
    if args.masked:
        report["masked"] = masked_exchange()
        write({**report, "machine": machine()}, args.json)
        return 0
    done = {(each["kind"], each["epsilon"], each["seed"]) for each in report["runs"]}
    for seed in range(args.seeds):
        asked: list[tuple[str, float | None]] = [("plain", None), ("clipped", None)]
        asked += [(kind, wanted) for kind in KINDS for wanted in EPSILONS]
        for kind, wanted in asked:
            if (kind, wanted, seed) not in done:
                report["runs"].append(run(kind, wanted, seed))
                print(report["runs"][-1], flush=True)
                write({**report, "machine": machine()}, args.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
