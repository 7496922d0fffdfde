"""Pictures for the docs; that of FedGL also needs scikit-learn.

python benchmarks/pictures.py             docs/images/fedgl-tsne.png
python benchmarks/pictures.py fedvgae     docs/images/fedvgae-convergence.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from machine import example

import fgl
from fgl.federation import recipe

ROOT = Path(__file__).parents[1]


def fedgl_tsne(dataset: str, rounds: int, seed: int) -> Path:
    """t-SNE of the global model's node embeddings before and after training."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from sklearn.manifold import TSNE

    module = example("fedgl")
    flags = ["--dataset", dataset, "--rounds", str(rounds), "--seed", str(seed)]
    summary, result = module.main(flags)
    args = recipe.arguments("fedgl", "").parse_args(flags)
    union, _ = recipe.overlapping_federation(args, fgl.data.PROPORTIONS["D4"])
    torch.manual_seed(seed)
    model = fgl.nn.GCN(union.num_features, 16, union.num_classes).eval()
    after = dict(result.outbox[0]["model"])
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), constrained_layout=True)
    for axis, title, params in ((axes[0], "before", {}), (axes[1], "after", after)):
        if params:
            model.load_state_dict(params)
        with torch.no_grad():
            h = model(union.x, union.adj)[union.test_mask]
        points = TSNE(random_state=seed, init="pca").fit_transform(h.numpy())
        axis.scatter(*points.T, c=union.y[union.test_mask], cmap="tab10", s=6)
        axis.set(title=f"{title} training", xticks=[], yticks=[])
    score = summary["metrics"]["test_accuracy"]["last"]
    figure.suptitle(f"FedGL on {dataset}: test nodes by class (accuracy {score:.3f})")
    path = ROOT / "docs" / "images" / "fedgl-tsne.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=130)
    return path


def fedvgae_convergence(datasets: list[str], rounds: int, seed: int) -> Path:
    """Mean test AUC of the clients' own models round by round (FedVGAE, Figure 3).

    What was run stays in ``benchmarks/results/fedvgae-convergence.json``, and is not run again.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    module = example("fedvgae")
    kept = ROOT / "benchmarks" / "results" / "fedvgae-convergence.json"
    curves = json.loads(kept.read_text()) if kept.exists() else {}
    figure, axes = plt.subplots(1, len(datasets), figsize=(9, 3.6), constrained_layout=True)
    for axis, dataset in zip(axes, datasets, strict=True):
        for method in ("local", "fedavg", "fedvgae"):
            flags = ["--method", method, "--dataset", dataset, "--rounds", str(rounds)]
            flags += ["--seed", str(seed), "--patience", "0", "--clients-at-once", "all"]
            if " ".join(flags) not in curves:
                history = module.main(flags)[1].history
                curves[" ".join(flags)] = [round(r.metrics["auc"], 4) for r in history]
                kept.write_text(json.dumps(curves) + "\n")
            axis.plot(curves[" ".join(flags)], label=method, linewidth=1.2)
        axis.set(title=dataset, xlabel="round", ylabel="test AUC")
    axes[0].legend()
    path = ROOT / "docs" / "images" / "fedvgae-convergence.png"
    figure.savefig(path, dpi=130)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", nargs="?", choices=("fedgl", "fedvgae"), default="fedgl")
    parser.add_argument("--datasets", nargs="+", help="default cora; of fedvgae cora and pubmed")
    parser.add_argument("--rounds", type=int, help="default 60; of fedvgae 100")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.picture == "fedgl":
        print(fedgl_tsne((args.datasets or ["cora"])[0], args.rounds or 60, args.seed))
    else:
        datasets = args.datasets or ["cora", "pubmed"]
        print(fedvgae_convergence(datasets, args.rounds or 100, args.seed))


if __name__ == "__main__":
    main()
