"""Pictures for the docs. This one also needs scikit-learn.

python benchmarks/pictures.py        docs/images/fedgl-tsne.png
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

import torch

import fgl
from fgl.federation import recipe

ROOT = Path(__file__).parents[1]


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(fedgl_tsne(args.dataset, args.rounds, args.seed))


if __name__ == "__main__":
    main()
