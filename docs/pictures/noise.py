"""The picture of docs/privacy.md: accuracy over epsilon, by who adds the noise.

python docs/pictures/noise.py          docs/images/noise.png

The numbers are those of ``benchmarks/results/summed_noise.json``.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

DOCS = Path(__file__).parents[1]
RUNS = DOCS.parent / "benchmarks" / "results" / "summed_noise.json"
NOISY = {
    "central": ("by the server, which is trusted", "#1f5a94", "o"),
    "summed": ("inside the secure sum, nobody colludes", "#3d8b53", "s"),
    "summed, 10 collude": ("inside the secure sum, 10 of 100 collude", "#8a6bb1", "^"),
    "local": ("by each client", "#c0742c", "D"),
}
LEVELS = {"plain": "without noise", "clipped": "clipped, without noise"}
APART = 0.04  # of an epsilon, so that points of one epsilon do not hide each other


def points(kind: str) -> list[tuple[float | None, float, float]]:
    """Epsilon, mean and standard deviation of the test accuracy in percent, over the seeds."""
    runs = [run for run in json.loads(RUNS.read_text())["runs"] if run["kind"] == kind]
    found = []
    for epsilon in dict.fromkeys(run["epsilon"] for run in runs):
        each = [100 * run["test_accuracy"] for run in runs if run["epsilon"] == epsilon]
        found.append((epsilon, statistics.mean(each), statistics.stdev(each)))
    return found


def draw() -> None:
    figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    for kind, (label, color, marker) in NOISY.items():
        epsilons, means, spreads = zip(*points(kind), strict=True)
        shift = 1 + APART * (list(NOISY).index(kind) - 1.5)
        axes.errorbar(
            [shift * epsilon for epsilon in epsilons], means, yerr=spreads, label=label,
            color=color, marker=marker, capsize=3, markersize=6, linewidth=1.6,
        )  # fmt: skip
    for kind, label in LEVELS.items():
        ((_, mean, _),) = points(kind)
        axes.axhline(mean, color="#888888", linewidth=1, linestyle="-" if kind == "plain" else ":")
        above = kind == "plain"
        axes.text(1, mean + (0.8 if above else -0.8), label, color="#555555", fontsize=9,
                  va="bottom" if above else "top")  # fmt: skip
    axes.set_xscale("log", base=2)
    ticks = sorted({epsilon for epsilon, *_ in points("central") if epsilon})
    axes.set_xticks(ticks, [f"{epsilon:g}" for epsilon in ticks])
    axes.set_ylim(0, 100)
    axes.set_xlabel("epsilon of all 50 rounds, at delta 1e-5")
    axes.set_ylabel("test accuracy, %")
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, title="Noise is added")
    figure.savefig(DOCS / "images" / "noise.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    draw()
