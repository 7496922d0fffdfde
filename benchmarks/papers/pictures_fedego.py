"""Pictures of FedEgo for the docs.

python benchmarks/pictures_fedego.py    docs/images/fedego-divergence.png and fedego-labels.png
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from machine import example
from pictures import ROOT
from torch.func import functional_call

import fgl
from fgl.federation import personal, recipe
from fgl.personalize import label_distribution

GAMMAS = (0.125, 0.5, 1.0, 2.0)


def divergence(result: Any) -> float:
    """Mean over clients of the distance between their own head and the global one."""
    total = 0.0
    for client, state in result.client_states.items():
        head = result.outbox[client]["head"]
        moved = [(state["model"][name] - value).norm() for name, value in head.items()]
        total += float(torch.stack(moved).sum())
    return total / len(result.client_states)


def watched(flags: list[str]) -> tuple[list[float], Any]:
    """A run of the recipe: the divergence after every round, and how it ended."""
    seen: list[float] = []
    run = recipe.run

    def watch(*args: Any, callbacks: Any, **options: Any) -> Any:
        mine = [*callbacks, lambda record, result: seen.append(divergence(result))]
        return run(*args, callbacks=mine, **options)

    recipe.run = watch
    try:
        _, result = example("fedego").main(flags)
    finally:
        recipe.run = run
    return seen, result


def figure(rows: int, columns: int, size: tuple[float, float]) -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(rows, columns, figsize=size, constrained_layout=True, sharey=rows > 1)


def saved(picture: Any, name: str) -> Path:
    path = ROOT / "docs" / "images" / name
    path.parent.mkdir(exist_ok=True)
    picture.savefig(path, dpi=110)
    return path


def weight_divergence(flags: list[str]) -> tuple[Path, Any]:
    """The paper's Figure 5: how far clients' heads are from the global one, over gamma."""
    picture, axis = figure(1, 1, (6, 3.6))
    ends = {}
    for gamma in GAMMAS:
        seen, ends[gamma] = watched([*flags, "--gamma", str(gamma)])
        axis.plot(range(1, len(seen) + 1), seen, label=f"gamma {gamma:g}")
    axis.set(xlabel="round", ylabel="distance of own and global head")
    axis.legend()
    return saved(picture, "fedego-divergence.png"), ends[0.5]


def labels_and_predictions(args: argparse.Namespace, result: Any) -> Path:
    """A client's training labels, what its model predicts on the global test graph, the truth."""
    graph = fgl.data.load(args.dataset)
    test, clients = fgl.data.major_label_partition(graph, 5, seed=args.seed)
    classes = int(graph.num_classes or 0)
    model = fgl.nn.EgoSAGE(graph.num_features, args.hidden, classes).eval()
    picture, axes = figure(len(clients), 1, (6, 1.5 * len(clients)))
    for client, (axis, own) in enumerate(zip(axes, clients, strict=True)):
        params = personal.own_model(model, result.client_states[client])
        with torch.no_grad():
            guess = functional_call(model, params, (test.x, test.adj)).argmax(1)
        shares = {
            "training labels": label_distribution(own.y, classes, own.train_mask),
            "predictions, global test": label_distribution(guess, classes),
            "labels, global test": label_distribution(test.y, classes),
        }
        for i, (name, share) in enumerate(shares.items()):
            axis.bar(torch.arange(classes) + 0.27 * (i - 1), share, width=0.25, label=name)
        axis.set(ylabel=f"client {client}", xticks=range(classes))
    axes[0].legend(fontsize=7, ncols=3)
    axes[-1].set(xlabel="class")
    return saved(picture, "fedego-labels.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    flags = [f"--{name}={value}" for name, value in vars(args).items()]
    path, result = weight_divergence(flags)
    print(path)
    print(labels_and_predictions(args, result))


if __name__ == "__main__":
    main()
