"""Signs of ratings on bitcoin_otc: by time and at random, beside a mean, and with a leak.

    python benchmarks/papers/ratings.py [--seeds 3] [--rounds 30]

Rows: `fedavg` and `local` (each client alone) read the earlier half of the ratings; `more_edges` is
the same model, which reads the training ratings too when it is tested; `leak` reads them when it
trains as well, so that a pair's answer is a feature of an edge; `looking` and `looking_leak` are
the two with a network that sees the edge of a pair itself; `mean_rating` is the mean that the rated
one has got before. Test AUC at the round of the best validation, and the last training loss.
"""

import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import RESULTS, machine, write

import fgl
from fgl import tasks
from fgl.metrics.ranking import auc_and_average_precision

CLIENTS = 5


def leaking(split: fgl.Graph, ratings: torch.Tensor) -> fgl.Graph:
    """The split whose training pairs are messages too, with what they answer."""
    mask = split.train_mask
    return replace(
        split,
        edge_index=torch.cat([split.edge_index, split.edge_label_index[:, mask]], 1),
        edge_attr=torch.cat([split.edge_attr, ratings[mask, None]]),
        edge_time=None,
    )


def mean_rating(graph: fgl.Graph) -> float:
    """Test AUC of the mean of the ratings that the rated one has got before, in the messages."""
    target, ratings = graph.edge_index[1], graph.edge_attr[:, 0]
    total = torch.zeros(graph.num_nodes).index_add(0, target, ratings)
    count = target.bincount(minlength=graph.num_nodes)
    score = torch.where(count > 0, total / count.clamp(min=1), ratings.mean())
    rated, answers = graph.edge_label_index[1, graph.test_mask], graph.y[graph.test_mask]
    return auc_and_average_precision(score[rated], answers > 0)[0]


def clients_of(split: fgl.Graph, parts: list[torch.Tensor]) -> list[fgl.Graph]:
    clients = fgl.data.partitions.partition_graph(split, parts)
    return [fgl.data.degree_features(own) for own in clients]


class Looking(fgl.nn.PairNet):
    """A network that also sees the edge of a pair itself, as attention between two nodes does."""

    def __init__(self, *sizes: int, **how: Any) -> None:
        super().__init__(*sizes, **how)
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x: Any, edges: Any, *, edge_label_index: Any, edge_attr: Any) -> Any:
        out = super().forward(x, edges, edge_label_index=edge_label_index, edge_attr=edge_attr)
        n, (source, target) = edges.shape[0], edge_label_index
        keys = edges.pattern.row * n + edges.pattern.col
        place = torch.searchsorted(keys, target * n + source).clamp(max=len(keys) - 1)
        own = torch.where(keys[place] == target * n + source, edge_attr[place, 0], 0.0)
        return out + self.weight * 10 * own[:, None]


def run(
    trained: list[fgl.Graph],
    tested: list[fgl.Graph],
    seed: int,
    rounds: int,
    *,
    local: bool = False,
    network: type[fgl.nn.PairNet] = fgl.nn.PairNet,
) -> tuple[float, float]:
    """Test AUC at the round of the best validation, and the loss of the last round."""
    torch.manual_seed(seed)
    model = network(trained[0].num_features, 32, 1, edge_dim=1)
    train = tasks.Local("adam", lr=0.01, weight_decay=5e-4, steps=5).training()
    score = tasks.node_scores(model, target=fgl.targets.ANSWERS)
    task = replace(
        tasks.pair_task(trained, model, train),
        scores=lambda method, clients: fgl.evaluate_on(method, tested, clients, score=score),
    )
    method = fgl.methods.local(task.fedavg) if local else task.fedavg
    one = 1 if network is Looking else "auto"
    result = fgl.run(method, task, num_rounds=rounds, seed=seed, clients_at_once=one)
    best = max(result.history, key=lambda each: each.metrics["val_auc"])
    return best.metrics["test_auc"], result.history[-1].loss


def measured(order: str, seed: int, rounds: int) -> dict[str, float]:
    """Test AUC of every row, each the mean over the clients that have both signs."""
    whole = fgl.data.load("bitcoin_otc")
    whole = whole.replace(edge_attr=whole.edge_attr / 10)
    cut = fgl.data.splits.split_by_time if order == "time" else fgl.data.splits.pair_split
    how: dict[str, Any] = {} if order == "time" else {"seed": seed}
    split = cut(whole, whole.edge_attr[:, 0], **how)
    ratings, split = split.y, split.replace(y=(split.y > 0).float())
    parts = fgl.data.partitions.louvain_partition(split, CLIENTS, seed=seed)
    plain, leaky = clients_of(split, parts), clients_of(leaking(split, ratings), parts)
    found = {}
    found["fedavg"], found["fedavg_loss"] = run(plain, plain, seed, rounds)
    found["local"], _ = run(plain, plain, seed, rounds, local=True)
    found["more_edges"], _ = run(plain, leaky, seed, rounds)
    found["leak"], found["leak_loss"] = run(leaky, leaky, seed, rounds)
    found["looking"], _ = run(plain, leaky, seed, rounds, network=Looking)
    looking = run(leaky, leaky, seed, rounds, network=Looking)
    found["looking_leak"], found["looking_leak_loss"] = looking
    for name, clients in {"mean_rating": plain, "mean_rating_more_edges": leaky}.items():
        found[name] = mean(auc for own in clients if (auc := mean_rating(own)) == auc)
    return found


def main(argv: list[str] | None = None) -> None:
    given = arguments(argv, seeds=3, rounds=30)
    path = given.json or RESULTS / "ratings.json"
    report: dict[str, Any] = {"machine": machine(), "clients": CLIENTS}
    report |= {"rounds": given.rounds, "seeds": given.seeds}
    for order in ("random", "time"):
        runs = [measured(order, seed, given.rounds) for seed in range(given.seeds)]
        for name in runs[0]:
            values = [run[name] for run in runs]
            spread = stdev(values) if len(values) > 1 else 0.0
            report[f"{order}_{name}"] = {"mean": mean(values), "std": spread, "values": values}
            print(f"{order:7} {name:20} {mean(values):.3f} +- {spread:.3f}", flush=True)
    write(report, path)


if __name__ == "__main__":
    main()
