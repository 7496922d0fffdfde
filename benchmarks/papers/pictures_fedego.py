"""Pictures of FedEgo for the docs: images/fedego-divergence.png and fedego-labels.png.

python benchmarks/papers/pictures_fedego.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch.func import functional_call

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.flags import arguments
from harness.rows import Experiment

import fgl
from fgl.personalize import label_distribution
from papers import TABLES
from papers.pictures import figure, saved

GAMMAS = (0.125, 0.5, 1.0, 2.0)


def divergence(result: fgl.Result) -> float:
    """Mean over clients of the distance between their own head and the global one."""
    total = 0.0
    for client, state in result.client_states.items():
        head: Any = result.outbox[client]["head"]
        own: Any = state["model"]
        moved = [(own[name] - value).norm() for name, value in head.items()]
        total += float(torch.stack(moved).sum())
    return total / len(result.client_states)


def watched(experiment: Experiment) -> tuple[list[float], fgl.Result]:
    """A run: the divergence after every round, and how it ended."""
    seen: list[float] = []
    task, method = experiment.load()
    result = fgl.run(
        method,
        task,
        num_rounds=experiment.run.rounds,
        seed=experiment.run.seed,
        evaluate=lambda outbox, states: {},
        callbacks=[lambda record, result: seen.append(divergence(result))],
    )
    return seen, result


def weight_divergence(values: dict[str, Any]) -> tuple[Path, fgl.Result]:
    """The paper's Figure 5: how far clients' heads are from the global one, over gamma."""
    picture, axis = figure(1, 1, (6, 3.6))
    ends = {}
    for gamma in GAMMAS:
        row = TABLES["fedego-table2"].row("FedEgo")
        seen, ends[gamma] = watched(row.at(clients=5, gamma=gamma, **values))
        axis.plot(range(1, len(seen) + 1), seen, label=f"gamma {gamma:g}")
    axis.set(xlabel="round", ylabel="distance of own and global head")
    axis.legend()
    return saved(picture, "fedego-divergence.png", dpi=110), ends[0.5]


def labels_and_predictions(values: dict[str, Any], result: fgl.Result) -> Path:
    """A client's training labels, what its model predicts on the global test graph, the truth."""
    graph = fgl.data.load(values["dataset"])
    test, clients = fgl.data.partitions.major_label_partition(graph, 5, seed=values["seed"])
    classes = int(graph.num_classes or 0)
    model = fgl.nn.EgoSAGE(graph.num_features, values["hidden"], classes).eval()
    picture, axes = figure(len(clients), 1, (6, 1.5 * len(clients)), sharey=True)
    for client, (axis, own) in enumerate(zip(axes, clients, strict=True)):
        params: Any = result.client_states[client]["model"]
        with torch.no_grad():
            guess = functional_call(model, dict(params), (test.x, test.adj)).argmax(1)
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
    return saved(picture, "fedego-labels.png", dpi=110)


def main() -> None:
    values = vars(arguments(json=False, dataset="cora", rounds=40, hidden=128, seed=0))
    torch.set_num_threads(1)
    path, result = weight_divergence(values)
    print(path)
    print(labels_and_predictions(values, result))


if __name__ == "__main__":
    main()
