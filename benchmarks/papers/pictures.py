"""Pictures of single runs for the docs; that of FedGL also needs scikit-learn.

python benchmarks/papers/pictures.py             docs/images/fedgl-tsne.png
python benchmarks/papers/pictures.py fedego      fedego-divergence.png and fedego-labels.png
python benchmarks/papers/pictures.py fedvgae     fedvgae-convergence.png
python benchmarks/papers/pictures.py gpfl        gpfl-network.png, as the paper's Figure 5
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.func import functional_call

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.flags import arguments, flag
from harness.machine import RESULTS, ROOT, pyplot
from harness.rows import Experiment, spelled

import fgl
from fgl.personalize import label_distribution
from papers import TABLES

IMAGES = ROOT / "docs" / "images"
GAMMAS = (0.125, 0.5, 1.0, 2.0)  # of FedEgo
TITLES = {  # of GPFL
    "gpfl-other-draw-table2": (0.0, "all clients' classes alike"),
    "gpfl-groups": (0.5, "clients 0 to 11: classes reversed"),
}


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
    picture.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return saved(picture, "fedvgae-convergence.png", dpi=130)


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


def networks(dataset: str, clients: int, rounds: int) -> Path:
    """The running network of the last round, with clients alike and in two groups."""
    picture, axes = figure(1, 2, (9, 4.6))
    for axis, (table, (flip, title)) in zip(axes, TITLES.items(), strict=True):
        _, result = TABLES[table].row("GPFL, alpha 5").at(dataset, clients, rounds=rounds)()
        network: Any = result.server_state["network"]
        shown = axis.imshow(network.cpu().numpy(), cmap="viridis", vmin=0)
        picture.colorbar(shown, ax=axis, shrink=0.8)
        group = round(flip * clients)
        within = float(network[:group, :group].sum() + network[group:, group:].sum()) / clients
        axis.set(title=f"{title}\n{within:.0%} of a row within its group" if group else title)
        axis.set(xlabel="learns from", ylabel="client")
    picture.suptitle(f"GPFL's client network on {dataset}, round {rounds}")
    return saved(picture, "gpfl-network.png", dpi=110, bbox_inches="tight")


def fedego(dataset: str, rounds: int, seed: int) -> list[Path]:
    """How far clients' heads are from the global one, and a client's labels and predictions."""
    values = {"dataset": dataset, "rounds": rounds, "hidden": 128, "seed": seed}
    torch.set_num_threads(1)
    path, result = weight_divergence(values)
    return [path, labels_and_predictions(values, result)]


def main() -> None:
    args = arguments(
        json=False,
        picture=flag(
            "fedgl", nargs="?", choices=("fedgl", "fedego", "fedvgae", "gpfl"), positional=True
        ),
        datasets=flag(str, "default cora; of fedvgae cora and pubmed, of gpfl PROTEINS", nargs="+"),
        rounds=flag(int, "default 60; of fedego 40, of fedvgae and gpfl 100"),
        seed=0,
    )
    some, rounds = args.datasets, args.rounds
    if args.picture == "fedgl":
        print(fedgl_tsne((some or ["cora"])[0], rounds or 60, args.seed))
    elif args.picture == "fedego":
        print(*fedego((some or ["cora"])[0], rounds or 40, args.seed))
    elif args.picture == "fedvgae":
        print(fedvgae_convergence(some or ["cora", "pubmed"], rounds or 100, args.seed))
    else:
        print(networks((some or ["PROTEINS"])[0], 25, rounds or 100))


if __name__ == "__main__":
    main()
