"""FGSSL against FedAvg on the embedded synthetic graph: a table and a picture (`make demo`)."""

import argparse
from pathlib import Path

import fedavg
import fgssl


def table(reports):
    """One line per method, as text."""
    head = f"{'method':8} {'last':>7} {'best val':>9} {'s/round':>8} {'MB up':>7} {'MB down':>8}"
    lines = [head, "-" * len(head)]
    for name, report in reports.items():
        score = report["metrics"]["test_accuracy"]
        lines.append(
            f"{name:8} {score['last']:7.3f} {score['best_val']:9.3f} "
            f"{report['seconds_per_round']:8.3f} {report['bytes_up'] / 1e6:7.1f} "
            f"{report['bytes_down'] / 1e6:8.1f}"
        )
    return "\n".join(lines)


def draw(results, path):
    """Test accuracy over rounds, with the best-validation round marked."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for (name, result), color in zip(results.items(), ("#777777", "#c0392b"), strict=True):
        curve = [record.metrics["test_accuracy"] for record in result.history]
        validation = [record.metrics["val_accuracy"] for record in result.history]
        best = max(range(len(curve)), key=validation.__getitem__)
        axes.plot(curve, label=name, color=color, linewidth=1.8)
        axes.plot(best, curve[best], "o", color=color)
    axes.set_xlabel("round")
    axes.set_ylabel("test accuracy, whole graph")
    axes.set_title("Synthetic graph, 5 clients (dot: best validation round)", fontsize=11)
    axes.legend(frameon=False, loc="lower right")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--picture", type=Path, default=Path("out/demo.png"))
    args = parser.parse_args(argv)
    shared = ["--dataset", "synthetic", "--rounds", str(args.rounds)]
    reports, results = {}, {}
    for name, recipe in (("FedAvg", fedavg), ("FGSSL", fgssl)):
        reports[name], results[name] = recipe.main(shared)
    draw(results, args.picture)
    print(f"\n{table(reports)}\n\nwrote {args.picture}")


if __name__ == "__main__":
    main()
