"""Baselines: methods of `fgl.methods` on tasks of `fgl.tasks`.

    python examples/baseline.py fedavg louvain-nodes --dataset cora --clients 5 --json out.json
    python examples/baseline.py fedprox louvain-nodes --dataset cora --mu 0.1
    python examples/baseline.py local graphs --dataset PROTEINS
    python examples/baseline.py centralized louvain-nodes --dataset citeseer
    python examples/baseline.py fedper links --help

The flags are those of the method, the task, its local training and the run; ``--help`` after
both names shows them. A method of your own joins the table as ``name(fedavg, *, ...)``.
"""

from dataclasses import replace
from functools import partial

import torch

from fgl import methods, tasks
from fgl.experiment import Run, choose, cli, takes_options_of


def fedavg(fedavg):
    """FedAvg: the server sends everybody the mean of the clients' models."""
    return fedavg


def centralized(fedavg):
    """Centralized training: one client has the data of all."""
    return fedavg


METHODS = {
    "fedavg": fedavg,
    "local": methods.local,
    "centralized": centralized,
    "fedprox": methods.fedprox,
    "fedopt": partial(methods.fedopt, momentum=None),
    "fedper": methods.fedper,
    "fedselect": partial(methods.fedselect, passes=(True, False)),
    "graphfl": methods.graphfl,
    "moon": methods.moon,
    "fedamp": methods.fedamp,
    "heurfedamp": methods.heurfedamp,
    "pfedgraph": methods.pfedgraph,
    "fedpub": methods.fedpub,
    "ring": methods.ring,
    "gcfl": partial(methods.gcfl, seq_length=0),
    "gcfl-plus": methods.gcfl_plus,
    "fedstar": methods.fedstar,
    "scaffold": partial(methods.scaffold, lr=None),
}
TASKS = {
    "louvain-nodes": tasks.Nodes,
    "overlapping-nodes": tasks.OverlappingNodes,
    "ego-nodes": tasks.EgoNodes,
    "own-nodes": tasks.OwnNodes,
    "links": tasks.Links,
    "graphs": tasks.Graphs,
}
NETWORKS = {"fedstar": "star"}  # the model that a method needs, where a task has a choice
RUNS = {  # how long the papers' tables run; the others 200 rounds
    "overlapping-nodes": Run(rounds=300, patience=30),
    "own-nodes": Run(rounds=100, patience=20, clients_at_once="all"),
    "links": Run(rounds=100, patience=20, clients_at_once="all"),
    "graphs": Run(clients_at_once=8),
}


def experiment(method, task):
    """The `main` of one method on one task, both by name."""
    build, setting = METHODS[method], TASKS[task]
    start = replace(RUNS.get(task, Run()), recipe=method, config={"task": task})
    needed = method in NETWORKS and hasattr(setting, "model")
    chosen = setting(model=NETWORKS[method]) if needed else setting()

    @takes_options_of(build)
    def main(task: setting = chosen, run: Run = start, **options):
        loaded, given = task.load(run.seed), []
        if build is centralized:
            loaded = tasks.centralized(loaded)
        if build is methods.fedpub:  # it asks all models about one random graph
            generator = torch.Generator().manual_seed(run.seed)
            given = [methods.proxy_graph(loaded.clients[0], generator=generator)]
        return run(build(loaded.fedavg, *given, **options), loaded)

    return main


def main(argv=None):
    names, flags = choose(__doc__, argv, method=METHODS, task=TASKS)
    return cli(experiment(*names), argv=flags, words=names)


if __name__ == "__main__":
    main()
