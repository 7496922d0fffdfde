"""The leaderboard: entrants on six settings of FED-PUB's clients, all tuned, as one study.

    python benchmarks/leaderboard.py study-leaderboard                 all entrants
    python benchmarks/leaderboard.py study-leaderboard --report        docs/leaderboard.md

Optimizer, learning rate and steps are tuned for all methods, and each method's own values: 18
trials on a tuning seed, then 10 seeds of 100 rounds. The same command goes on after an
interruption, and ``python -m fgl.study study-leaderboard`` joins it.
"""

from typing import Any

import torch
from harness.machine import example
from harness.study_page import play_study, study_flags

import fgl
from fgl import LogUniform, Tuned, Uniform, methods, tasks

SETTINGS = {
    "Cora": tasks.SubgraphNodes(dataset="cora"),
    "CiteSeer": tasks.SubgraphNodes(dataset="citeseer"),
    "Cora, overlapping": tasks.SubgraphNodes(dataset="cora", overlap=5),
    "CiteSeer, overlapping": tasks.SubgraphNodes(dataset="citeseer", overlap=5),
    "Photo": tasks.SubgraphNodes(dataset="amazon_photo"),
    "PubMed": tasks.SubgraphNodes(dataset="pubmed"),
}
STEPS = [1, 2, 3, 5, 10]
LOCAL = [
    {"optimizer": "sgd", "lr": LogUniform(0.1, 10), "steps": STEPS},
    {"optimizer": "adam", "lr": LogUniform(1e-3, 0.1), "steps": STEPS},
]


def fedavg(task: tasks.Task) -> fgl.Method:
    return task.fedavg


def fedadam(fedavg: fgl.Method, server_lr: float) -> fgl.Method:
    """FedAvg with Adam at the server."""
    return methods.fedopt(fedavg, rule="adam", server_lr=server_lr)


def fedpub(task: tasks.Task, **values: Any) -> fgl.Method:
    """FED-PUB, which asks all models about one random graph."""
    generator = torch.Generator().manual_seed(0)
    probes = methods.proxy_graph(task.clients[0], generator=generator)
    return methods.fedpub(task.fedavg, probes, **values)


def uniform(fedavg: fgl.Method, rho: float) -> fgl.Method:
    """The mean of all updates, mixed with a client's own."""
    return methods.mix_updates(fedavg, methods.uniform, self_weight=rho)


SHARE = Uniform(0.01, 0.9, bounds=(0, 1))
BOUNDS = {"eps1": LogUniform(0.1, 10), "eps2": LogUniform(0.1, 10)}
FGSSL = {"lambda_c": LogUniform(0.1, 10), "lambda_d": LogUniform(1, 100)}
ATTENTION = {"sigma": LogUniform(1, 1e5), "server_lr": LogUniform(1, 1e4)}
ENTRANTS = {
    "FedAvg": fedavg,
    "FedAdam": Tuned(fedadam, server_lr=LogUniform(1e-3, 0.1)),
    "Local": methods.local,
    "SCAFFOLD": methods.scaffold,
    "FedAMP": Tuned(methods.fedamp, penalty=LogUniform(0.01, 100), **ATTENTION),
    "FED-PUB": Tuned(fedpub, scale=LogUniform(1, 30), penalties=[True, False]),
    "uniform": Tuned(uniform, rho=SHARE),
    "FGSSL": Tuned(example("fgssl").fgssl, **FGSSL),
    "FedProx": Tuned(methods.fedprox, mu=LogUniform(1e-3, 1)),
    "GCFL+": Tuned(methods.gcfl_plus, **BOUNDS),
    "FedTGP": Tuned(methods.fedtgp, weight=LogUniform(0.1, 100)),
}


def main(argv: list[str] | None = None) -> None:
    args = study_flags(argv, entrants=11)
    chosen = dict(list(ENTRANTS.items())[: args.entrants])
    how: dict[str, Any] = {"local": LOCAL, "trials": 18, "num_rounds": 100, "seeds": range(10)}
    play_study("leaderboard", args, chosen, SETTINGS, **how)


if __name__ == "__main__":
    main()
