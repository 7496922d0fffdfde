"""Baselines: methods of `fgl.methods` on tasks of `fgl.tasks`.

    python examples/baseline.py fedavg louvain-nodes --dataset cora --clients 5 --json out.json
    python examples/baseline.py fedprox louvain-nodes --dataset cora --mu 0.1
    python examples/baseline.py scaffold molecules --dataset esol
    python examples/baseline.py fedgcn louvain-nodes --dataset citeseer --hops 1
    python examples/baseline.py scaffold sampled-nodes --dataset cora --fanouts 10 5
    python examples/baseline.py fedper links --help

The flags are those of the method, the task, its local training and the run; ``--help`` after
both names shows them. A method of your own joins the table as ``name(fedavg, *, ...)``.
"""

from functools import partial

import torch

from fgl import methods, tasks
from fgl.experiment import Run, choose_names, cli, takes_options_of


def fedavg(fedavg):
    """FedAvg: the server sends everybody the mean of the clients' models."""
    return fedavg


def centralized(fedavg):
    """Centralized training: one client has the data of all."""
    return fedavg


def fedsage(fedavg):
    """FedSage: FedAvg of a GraphSAGE, nothing else."""
    return tasks.of_network(fedavg, "fedsage")


def fedgcn(fedavg):
    """FedGCN: FedAvg, after clients have summed their neighbours' features across all borders."""
    return tasks.of_network(fedavg, "fedgcn")


PLAIN = ["local", "fedprox", "moon", "graphfl", "gcfl_plus", "fedstar", "ring", "fedamp", "fedhgn"]
METHODS = {"fedavg": fedavg, "centralized": centralized, "fedsage-plus": tasks.mended}
METHODS |= {name.replace("_", "-"): getattr(methods, name) for name in PLAIN}
METHODS |= {"fedgcn": fedgcn, "fedsage": fedsage, "fedper": partial(methods.fedper, models=None)}
METHODS |= {name: getattr(methods, name) for name in ["heurfedamp", "pfedgraph", "fedpub"]}
METHODS |= {  # some options are no flags
    "fedopt": partial(methods.fedopt, momentum=None),
    "scaffold": partial(methods.scaffold, lr=None),
    "fedselect": partial(methods.fedselect, passes=(True, False)),
    "gcfl": partial(methods.gcfl, seq_length=0),
}
TASKS = {
    "louvain-nodes": tasks.Nodes,
    "sampled-nodes": tasks.SampledNodes,
    "overlapping-nodes": tasks.OverlappingNodes,
    "ego-nodes": tasks.EgoNodes,
    "own-nodes": tasks.OwnNodes,
    "links": tasks.Links,
    "graphs": tasks.Graphs,
}
TASKS |= {"molecules": tasks.Molecules, "pairs": tasks.Pairs, "typed-nodes": tasks.TypedNodes}
RUNS = dict.fromkeys(["own-nodes", "links"], Run(rounds=100, patience=20))
RUNS["overlapping-nodes"] = Run(rounds=300, patience=30)  # as the papers' tables; else 200 rounds


def built(build, loaded, seed, options):
    """A method, and the task that it runs on."""
    if build is tasks.mended:
        loaded = build(loaded, seed, **options)
        return loaded.fedavg, loaded
    if build is methods.fedpub:  # it asks all models about one random graph
        generator = torch.Generator().manual_seed(seed)
        probes = methods.proxy_graph(loaded.clients[0], generator=generator)
        return build(loaded.fedavg, probes, **options), loaded
    loaded = tasks.centralized(loaded) if build is centralized else loaded
    return build(loaded.fedavg, **options), loaded


def experiment(method, name):
    """The `main` of one method on one task, both by name."""
    build, setting = METHODS[method], TASKS[name]
    usual = tasks.preset(method, setting)
    start = RUNS.get(name, Run())

    @takes_options_of(build)
    def main(task: setting = usual, run: Run = start, **options):
        made, loaded = built(build, task.load(run.seed), run.seed, options)
        return run(made, loaded, recipe=method, config={"task": name})

    return main


def main(argv=None):
    names, flags = choose_names(__doc__, argv, method=METHODS, task=TASKS)
    return cli(experiment(*names), argv=flags, words=names)


if __name__ == "__main__":
    main()
