"""Baselines: methods of `fgl.methods` on tasks of `fgl.tasks`.

    python examples/baseline.py fedavg louvain-nodes --dataset cora --clients 5 --json out.json
    python examples/baseline.py fedprox louvain-nodes --dataset cora --mu 0.1
    python examples/baseline.py fedgcn louvain-nodes --dataset citeseer --hops 1
    python examples/baseline.py fedsage-plus louvain-nodes --dataset cora
    python examples/baseline.py fedper links --help

The flags are those of the method, the task, its local training and the run; ``--help`` after
both names shows them. A method of your own joins the table as ``name(fedavg, *, ...)``.
"""

from dataclasses import replace
from functools import partial

from fgl import methods, tasks
from fgl.experiment import Run, choose, cli, takes_options_of


def fedavg(fedavg):
    """FedAvg: the server sends everybody the mean of the clients' models."""
    return fedavg


def centralized(fedavg):
    """Centralized training: one client has the data of all."""
    return fedavg


def fedgcn(fedavg):
    """FedGCN: FedAvg, after clients have summed their neighbours' features (--hops)."""
    return fedavg


def fedsage(fedavg):
    """FedSage: FedAvg of a GraphSAGE (--model sage)."""
    return fedavg


METHODS = {
    "fedavg": fedavg,
    "local": methods.local,
    "centralized": centralized,
    "fedprox": methods.fedprox,
    "fedopt": partial(methods.fedopt, momentum=None),
    "fedper": methods.fedper,
    "moon": methods.moon,
    "ring": methods.ring,
    "fedgcn": fedgcn,
    "fedsage": fedsage,
    "fedsage-plus": tasks.mended,
}
ON_NODES = {"fedgcn": tasks.Nodes(model="gcn", hops=2)}  # on louvain-nodes alone
ON_NODES |= dict.fromkeys(("fedsage", "fedsage-plus"), tasks.Nodes(model="sage"))
TASKS = {
    "louvain-nodes": tasks.Nodes,
    "overlapping-nodes": tasks.OverlappingNodes,
    "ego-nodes": tasks.EgoNodes,
    "own-nodes": tasks.OwnNodes,
    "links": tasks.Links,
    "graphs": tasks.Graphs,
}
RUNS = {  # how long the papers' tables run; the others 200 rounds
    "overlapping-nodes": Run(rounds=300, patience=30),
    "own-nodes": Run(rounds=100, patience=20, clients_at_once="all"),
    "links": Run(rounds=100, patience=20, clients_at_once="all"),
    "graphs": Run(clients_at_once=8),
}


def experiment(method, task):
    """The `main` of one method on one task, both by name."""
    build, setting = METHODS[method], TASKS[task]
    usual = (setting is tasks.Nodes and ON_NODES.get(method)) or setting()
    start = replace(RUNS.get(task, Run()), recipe=method, config={"task": task})

    @takes_options_of(build)
    def main(task: setting = usual, run: Run = start, **options):
        wanted = ON_NODES.get(method)
        if wanted and not (isinstance(task, tasks.Nodes) and task.model == wanted.model):
            said = f"louvain-nodes with {wanted.model} for {method}"
            raise ValueError(f"Expected task to be {said}, but got another")
        loaded = task.load(run.seed)
        if build is tasks.mended:
            loaded = build(loaded, run.seed, **options)
            return run(loaded.fedavg, loaded)
        loaded = tasks.centralized(loaded) if build is centralized else loaded
        return run(build(loaded.fedavg, **options), loaded)

    return main


def main(argv=None):
    names, flags = choose(__doc__, argv, method=METHODS, task=TASKS)
    return cli(experiment(*names), argv=flags, words=names)


if __name__ == "__main__":
    main()
