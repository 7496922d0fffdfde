"""The Byzantine grid: attacks, robust means, and up to four hostile clients of ten.

    python benchmarks/reliability/byzantine.py                     what is not there yet, all of it
    python benchmarks/reliability/byzantine.py --datasets cora --attacks none --bad 1
    python benchmarks/reliability/byzantine.py --report            the cells, and the picture

Every run is a line of ``benchmarks/results/byzantine.jsonl``; what is there is not made again, and
``--minutes`` ends the process after the run that passes them. A rule is told how many clients are
hostile. Without an attack it is told the same number, and the score is what the rule costs.
"""

import argparse
import json
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments, flag, some
from harness.machine import RESULTS, ROOT, machine, pyplot
from harness.record import load, rounded
from harness.report import publish
from harness.rows import spelled

import fgl
from fgl import tasks, transforms
from fgl.aggregate import robust

CLIENTS = 10
DATASETS: dict[str, tuple[str, Any]] = {
    "cora": ("louvain-nodes", tasks.Nodes(dataset="cora", clients=CLIENTS)),
    "PROTEINS": ("graphs", tasks.Graphs(dataset="PROTEINS", clients=CLIENTS)),
}
ATTACKS: dict[str, transforms.attacks.Attack | None] = {
    "none": None,
    "scale -10": transforms.scaled_updates(-10.0),
    "sign of model": transforms.attacks.negated_models,
    "sign of update": transforms.scaled_updates(-1.0),
    "noise": transforms.attacks.noise(1.0),
    "little is enough": transforms.attacks.little_is_enough(1.5),
    "label flip": None,  # of the data
    "weight 1e9": transforms.attacks.heavy(1e9),
}
Build = Callable[[fgl.Method, int], fgl.Method]


def of(rule: Any, *, told: bool = False, bucket: int = 1) -> Build:
    """FedAvg with a rule, which is told how many are bad where it asks."""

    def build(method: fgl.Method, bad: int) -> fgl.Method:
        chosen = partial(rule, bad=bad) if told else rule
        return transforms.robust(method, chosen, bucket=bucket)

    return build


def near(rule: Any) -> Any:
    """Nearest means before a rule."""
    return lambda stack, bad: rule(robust.nearest_means(stack, bad=bad), bad=bad)


RULES: dict[str, Build] = {
    "FedAvg": lambda method, bad: method,
    "equal weights": of(partial(robust.trimmed_mean, bad=0)),
    "norm bound": of(robust.norm_bound),
    "centred clipping": of(robust.centred_clipping),  # beyond a tenth no theorem holds
    "geometric median": of(robust.geometric_median, told=True),
    "trimmed mean": of(robust.trimmed_mean, told=True),
    "median": of(robust.median, told=True),
    "krum": of(robust.krum, told=True),
    "multi-krum": of(robust.multi_krum, told=True),
    "nearest means, median": of(near(robust.median), told=True),
    "nearest means, trimmed mean": of(near(robust.trimmed_mean), told=True),
    "buckets of 2, median": of(robust.median, told=True, bucket=2),
    "buckets of 2, geometric median": of(robust.geometric_median, told=True, bucket=2),
}
DEAF = ("FedAvg", "equal weights", "norm bound", "centred clipping")  # not told anything
ALIKE = (*DEAF, "median", "geometric median")  # the number told changes nothing but a check
LIMITS = {"buckets of 2, median": 2, "buckets of 2, geometric median": 2}  # of 5 buckets


def key(dataset: str, rule: str, attack: str, bad: int, seed: int, rounds: int) -> dict[str, Any]:
    """What a run is known by; where nobody attacks, 0 for rules that the number does not change."""
    told = 0 if attack == "none" and (rule in ALIKE or "buckets" in rule) else bad
    return {
        "method": "byzantine",
        "task": DATASETS[dataset][0],
        "settings": {"rule": rule, "attack": attack, "bad": told},
        "dataset": dataset,
        "clients": CLIENTS,
        "seed": seed,
        "rounds": rounds,
    }


def run(wanted: dict[str, Any], now: str, path: Path) -> None:
    """Run in this process and append the line."""
    said, seed = wanted["settings"], wanted["seed"]
    task = DATASETS[wanted["dataset"]][1].load(seed)
    order = torch.randperm(CLIENTS, generator=torch.Generator().manual_seed(seed))
    hostile = [] if said["attack"] == "none" else sorted(order[: said["bad"]].tolist())
    if said["attack"] == "label flip":
        clients = [
            transforms.attacks.flipped_labels(own) if k in hostile else own
            for k, own in enumerate(task.clients)
        ]
        task = replace(task, clients=clients)
    method = RULES[said["rule"]](task.fedavg, said["bad"])
    attack = ATTACKS[said["attack"]]
    if attack is not None:
        method = transforms.attacked(method, hostile, attack)
    start = time.perf_counter()
    result = fgl.run(
        method, task, num_rounds=wanted["rounds"], seed=seed, evaluate=task.evaluate(method),
        clients_at_once="all",
    )  # fmt: skip
    curve = [record.metrics["test_accuracy"] for record in result.history]
    entry = {
        "key": wanted,
        "now": now,
        "hostile": hostile,
        "metrics": {"test_accuracy": {"last": curve[-1], "best": max(curve)}},
        "curves": {"test_accuracy": [rounded(value) for value in curve]},
        "seconds": round(time.perf_counter() - start, 2),
        "machine": machine(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def grid(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The keys of all runs that were asked for, each once; what a rule refuses is none."""
    every = [
        key(dataset, rule, attack, bad, seed, args.rounds)
        for seed in range(args.seeds)
        for dataset in args.datasets
        for bad in args.bad
        for attack in args.attacks
        for rule in args.rules
        if bad <= LIMITS.get(rule, bad) or attack == "none"
    ]
    return list({spelled(each): each for each in every}.values())


def measure(args: argparse.Namespace) -> None:
    """Make what is not there, until the minutes are over."""
    start = time.monotonic()
    for wanted in grid(args):
        if spelled(wanted) in load(args.results):
            continue
        said = wanted["settings"]
        flags = [f"--{name}s {shlex.quote(said[name])}" for name in ("rule", "attack")]
        flags += [f"--bad {said['bad'] or 1}", f"--datasets {wanted['dataset']}"]
        run(wanted, f"python benchmarks/reliability/byzantine.py {' '.join(flags)}", args.results)
        print(wanted["dataset"], said, flush=True)
        if time.monotonic() - start > 60 * args.minutes:
            break


def score(found: dict[str, Any], args: argparse.Namespace, *cell: Any) -> float | None:
    """The mean over seeds of the last round's test accuracy, in percent."""
    keys = [spelled(key(*cell, seed, args.rounds)) for seed in range(args.seeds)]
    values = [found[k]["metrics"]["test_accuracy"]["last"] for k in keys if k in found]
    return 100 * statistics.mean(values) if values else None


def text(found: dict[str, Any], args: argparse.Namespace) -> str:
    """A table for each dataset and number of hostile clients: rules by attacks."""
    parts = []
    for dataset in args.datasets:
        for bad in args.bad:
            lines = []
            for rule in RULES:
                cells = [score(found, args, dataset, rule, attack, bad) for attack in ATTACKS]
                if any(cell is not None for cell in cells):
                    said = ["" if cell is None else f"{cell:.1f}" for cell in cells]
                    lines.append(f"| {rule} | {' | '.join(said)} |")
            # What the number does not change stands under 1 hostile client alone.
            if lines and (bad == 1 or any_of(found, dataset, bad)):
                head = f"| rule | {' | '.join(ATTACKS)} |\n|---{'|---' * len(ATTACKS)}|"
                parts.append(f"### {dataset}, {bad} hostile of {CLIENTS}\n\n{head}\n")
                parts[-1] += "\n".join(lines) + "\n"
    return "\n" + "\n".join(parts) + "\n"


def any_of(found: dict[str, Any], dataset: str, bad: int) -> bool:
    """Whether a run on a dataset has so many hostile clients, or expects them."""
    keys = [run["key"] for run in found.values()]
    return any(k["dataset"] == dataset and k["settings"]["bad"] == bad for k in keys)


def draw(found: dict[str, Any], args: argparse.Namespace) -> None:
    """A panel for each dataset and number of hostile clients, two side by side."""
    plt = pyplot()
    shown = [(d, bad) for d in args.datasets for bad in args.bad]
    rows = -(-len(shown) // 2)
    figure, axes = plt.subplots(rows, 2, figsize=(9, 0.8 + 2.9 * rows), squeeze=False,
                                sharex=True, sharey=True, layout="constrained")  # fmt: skip
    for panel, (dataset, bad) in zip(axes.flat, shown, strict=False):
        cells = [[score(found, args, dataset, r, a, bad) for a in ATTACKS] for r in RULES]
        values = torch.tensor([[float("nan") if c is None else c for c in row] for row in cells])
        panel.imshow(values, vmin=0, vmax=100, cmap="viridis", aspect="auto")
        for y, row in enumerate(cells):
            for x, cell in enumerate(row):
                if cell is not None:
                    color = "black" if cell > 60 else "white"
                    panel.text(x, y, f"{cell:.0f}", ha="center", va="center", color=color)
        panel.set_xticks(range(len(ATTACKS)), list(ATTACKS), rotation=40, ha="right")
        panel.set_yticks(range(len(RULES)), list(RULES))
        panel.set_title(f"{dataset}, {bad} hostile of {CLIENTS}", fontsize=11)
    figure.supxlabel(f"test accuracy after {args.rounds} rounds, %; empty cells are refused")
    figure.savefig(ROOT / "docs" / "images" / "byzantine.png", dpi=110)
    plt.close(figure)


def parsed(argv: list[str] | None = None) -> argparse.Namespace:
    return arguments(
        argv,
        json=False,
        datasets=some(DATASETS),
        rules=some(RULES, metavar="RULE"),
        attacks=some(ATTACKS, metavar="ATTACK"),
        bad=some(range(1, 5)),
        seeds=1,
        rounds=30,
        minutes=flag(float("inf"), "end after these"),
        results=RESULTS / "byzantine.jsonl",
        report=False,
    )


def main(argv: list[str] | None = None) -> None:
    args = parsed(argv)
    if not args.report:
        torch.set_num_threads(1)
        measure(args)
    found = load(args.results)
    if args.report:
        publish("robust", text(found, args))
        draw(found, args)
    sys.stdout.write(text(found, args))


if __name__ == "__main__":
    main()
