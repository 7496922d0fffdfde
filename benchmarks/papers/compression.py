"""Accuracy against bytes: FedAvg's uploads and downloads in codes, on Cora, PubMed and PROTEINS.

    python benchmarks/papers/compression.py [--datasets cora] [--seeds 3] [--rounds 100]
    python benchmarks/papers/compression.py --report      the table and the picture

Each task has its default settings: no code is tuned. The score is that of the round of the best
validation. What the report has is not run again.
"""

import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.flags import arguments, some
from harness.machine import RESULTS, ROOT, kept, machine, pyplot, write
from harness.report import publish

import fgl
from fgl import tasks
from fgl.transforms import quantised, rounded_downloads, sparsified
from papers.matrix import GraphsWithValidation

SETTINGS: dict[str, Any] = {
    "cora": tasks.Nodes(dataset="cora"),
    "pubmed": tasks.Nodes(dataset="pubmed"),
    "PROTEINS": GraphsWithValidation(dataset="PROTEINS"),
}
CODES: dict[str, Any] = {
    "FedAvg": lambda fedavg: fedavg,
    "8 bits": quantised,
    "4 bits": lambda fedavg: quantised(fedavg, bits=4),
    "2 bits": lambda fedavg: quantised(fedavg, bits=2),
    "largest 10 %": lambda fedavg: sparsified(fedavg, share=0.1),
    "largest 1 %": sparsified,
    "largest 1 %, rest lost": lambda fedavg: sparsified(fedavg, feedback=False),
    "bfloat16 down": rounded_downloads,
    "4 bits, bfloat16 down": lambda fedavg: rounded_downloads(quantised(fedavg, bits=4)),
    "largest 1 %, bfloat16 down": lambda fedavg: rounded_downloads(sparsified(fedavg)),
}


def scores(dataset: str, name: str, seed: int, rounds: int) -> dict[str, float]:
    """Test score of the round that validates best, and a client's megabytes in all rounds."""
    task = SETTINGS[dataset].load(seed)
    result = fgl.run(CODES[name](task.fedavg), task, num_rounds=rounds, seed=seed)
    top = max(result.history, key=lambda record: record.metrics["val_accuracy"])
    clients = len(task.clients)
    return {
        "test": 100 * top.metrics["test_accuracy"],
        "up": sum(record.bytes_up for record in result.history) / clients / 1e6,
        "down": sum(record.bytes_down for record in result.history) / clients / 1e6,
    }


def cells(report: dict[str, Any], dataset: str, name: str) -> list[dict[str, float]]:
    """The runs of a code that are there."""
    start = f"{dataset} | {name} | "
    return [run for key, run in report["runs"].items() if key.startswith(start)]


def table(report: dict[str, Any], dataset: str) -> str:
    lines = ["| | test accuracy, % | MB up | MB down | up, FedAvg's over it |", "|---" * 5 + "|"]
    whole = mean(run["up"] for run in cells(report, dataset, "FedAvg"))
    for name in CODES:
        runs = cells(report, dataset, name)
        test = [run["test"] for run in runs]
        up, down = (mean(run[key] for run in runs) for key in ("up", "down"))
        said = f"{mean(test):.1f} ± {stdev(test):.1f}" if len(test) > 1 else f"{test[0]:.1f}"
        lines.append(f"| {name} | {said} | {up:.2f} | {down:.2f} | {whole / up:.1f} |")
    return "\n".join(lines) + "\n"


def draw(report: dict[str, Any], datasets: list[str]) -> None:
    """A panel a dataset: accuracy against a client's bytes up and down."""
    plt = pyplot()
    figure, panels = plt.subplots(1, len(datasets), figsize=(10, 4.2), layout="constrained",
                                  squeeze=False)  # fmt: skip
    for axes, dataset in zip(panels[0], datasets, strict=True):
        for name in CODES:
            runs = cells(report, dataset, name)
            test = [run["test"] for run in runs]
            size = mean(run["up"] + run["down"] for run in runs)
            error = stdev(test) if len(test) > 1 else 0
            axes.errorbar(size, mean(test), yerr=error, fmt="o", capsize=2.5, label=name)
        axes.set(title=dataset, xlabel="MB of a client, up and down")
        axes.grid(alpha=0.3)
    panels[0][0].set_ylabel("test accuracy, %")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.savefig(ROOT / "docs" / "images" / "compression.png", dpi=110)
    plt.close(figure)


def main(argv: list[str] | None = None) -> None:
    given = arguments(argv, datasets=some(SETTINGS), seeds=3, rounds=100, report=False)
    path = given.json or RESULTS / "compression.json"
    report: dict[str, Any] = kept(path)
    found = report.setdefault("runs", {})
    if given.report:
        there = [name for name in SETTINGS if all(cells(report, name, code) for code in CODES)]
        parts = [f"### {name}\n\n{table(report, name)}" for name in there]
        publish("compression", "\n" + "\n".join(parts))
        return draw(report, there)
    for dataset in given.datasets:
        for seed in range(given.seeds):
            for name in CODES:
                key = f"{dataset} | {name} | {seed}"
                if key not in found:
                    found[key] = scores(dataset, name, seed, given.rounds)
                    report |= {"machine": machine(), "rounds": given.rounds}
                    write(report, path)
                    print(key, found[key], flush=True)


if __name__ == "__main__":
    main()
