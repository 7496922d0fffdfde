"""Pictures for the docs; that of FedGL also needs scikit-learn.

python benchmarks/papers/pictures.py             docs/images/fedgl-tsne.png
python benchmarks/papers/pictures.py fedvgae     docs/images/fedvgae-convergence.png
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.func import functional_call

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.flags import arguments, flag
from harness.machine import RESULTS, ROOT, pyplot
from harness.rows import spelled

from papers import TABLES

IMAGES = ROOT / "docs" / "images"


def figure(rows: int, columns: int, size: tuple[float, float], **options: Any) -> Any:
    """A figure and its axes, without a screen."""
    return pyplot().subplots(rows, columns, figsize=size, constrained_layout=True, **options)


def saved(picture: Any, name: str, **options: Any) -> Path:
    """Write a figure among the images of the documents."""
    IMAGES.mkdir(exist_ok=True)
    picture.savefig(IMAGES / name, **options)
    return IMAGES / name


def fedgl_tsne(dataset: str, rounds: int, seed: int) -> Path:
    """t-SNE of the global model's node embeddings before and after training."""
    from sklearn.manifold import TSNE

    experiment = TABLES["fedgl-table2"].row("FedGL").at(dataset, 6, rounds=rounds, seed=seed)
    task, method = experiment.load()
    summary, result = experiment()
    union: Any = task.whole
    picture, axes = figure(1, 2, (9, 4.2))
    models = {"before": method.initial(), "after": result.outbox[0]["model"]}
    for axis, (when, params) in zip(axes, models.items(), strict=True):
        with torch.no_grad():
            h = functional_call(method.model.eval(), params, union.inputs)[union.test_mask]
        points = TSNE(random_state=seed, init="pca").fit_transform(h.numpy())
        axis.scatter(*points.T, c=union.y[union.test_mask], cmap="tab10", s=6)
        axis.set(title=f"{when} training", xticks=[], yticks=[])
    score = summary["metrics"]["test_accuracy"]["last"]
    picture.suptitle(f"FedGL on {dataset}: test nodes by class (accuracy {score:.3f})")
    return saved(picture, "fedgl-tsne.png", dpi=130)


def fedvgae_convergence(datasets: list[str], rounds: int, seed: int) -> Path:
    """Mean test AUC of the clients' own models round by round (FedVGAE, Figure 3).

    What was run stays in ``benchmarks/results/fedvgae-convergence.json``, and is not run again.
    """
    kept = RESULTS / "fedvgae-convergence.json"
    entries = json.loads(kept.read_text()) if kept.exists() else []
    curves = {spelled(entry["key"]): entry["auc"] for entry in entries}
    picture, axes = figure(1, len(datasets), (9, 3.6), squeeze=False)
    for axis, dataset in zip(axes[0], datasets, strict=True):
        for name in ("Local", "FedAvg", "FedVGAE"):
            row = TABLES["fedvgae-whole-table3"].row(name)
            experiment = row.at(dataset, 10, rounds=rounds, seed=seed, patience=None)
            key = spelled(experiment.key)
            if key not in curves:
                curves[key] = [round(r.metrics["test_auc"], 4) for r in experiment()[1].history]
                entries.append({"key": experiment.key, "auc": curves[key]})
                kept.write_text(json.dumps(entries) + "\n")
            axis.plot(curves[key], label=name, linewidth=1.2)
        axis.set(title=dataset, xlabel="round", ylabel="test AUC")
    axes[0][0].legend()
    return saved(picture, "fedvgae-convergence.png", dpi=130)


def main() -> None:
    args = arguments(
        json=False,
        picture=flag("fedgl", nargs="?", choices=("fedgl", "fedvgae"), positional=True),
        datasets=flag(str, "default cora; of fedvgae cora and pubmed", nargs="+"),
        rounds=flag(int, "default 60; of fedvgae 100"),
        seed=0,
    )
    if args.picture == "fedgl":
        print(fedgl_tsne((args.datasets or ["cora"])[0], args.rounds or 60, args.seed))
    else:
        datasets = args.datasets or ["cora", "pubmed"]
        print(fedvgae_convergence(datasets, args.rounds or 100, args.seed))


if __name__ == "__main__":
    main()
