"""Baselines: methods of `fgl.methods` on tasks of `fgl.tasks`.

    python examples/baseline.py scaffold molecules --dataset esol
    python examples/baseline.py fedper links --help

The flags are those of the method, the task, its local training and the
run. A method of your own joins the table as ``name(fedavg, *, ...)``.
"""

from dataclasses import dataclass
from functools import partial

import torch

from fgl import methods, tasks
from fgl.experiment import Run, choose_names, cli, takes_options_of


def fedavg(fedavg):
    """FedAvg: the server sends all clients the mean of the clients' models."""
    return fedavg


# Names of `fgl.methods` without an option that is no flag.
PLAIN = """local fedprox moon fedamp heurfedamp pfedgraph fedpub ring graphfl gcfl_plus fedstar
fedhgn fedproto fedtgp feddyn feddc ditto fedgta fedtad fedaux fedgm opfgl fggp fedspa s2fgl
fedssp feddep scaffold retrained unlearned"""
METHODS = {
    "fedavg": fedavg,
    "centralized": tasks.centralized,
    **{name.replace("_", "-"): getattr(methods, name) for name in PLAIN.split()},
    "fedper": partial(methods.fedper, models=None),
    "fedopt": partial(methods.fedopt, momentum=None, weight_decay=0.0),
    "fedselect": partial(methods.fedselect, passes=(True, False)),
    "gcfl": partial(methods.gcfl, seq_length=0),
    "fedgcn": tasks.fedgcn,
    "fedsage": tasks.fedsage,
    "fedsage-plus": tasks.mended,
    "adafgl": tasks.adapted,
}
TASKS = {
    "louvain-nodes": tasks.Nodes,
    "sampled-nodes": tasks.SampledNodes,
    "overlapping-nodes": tasks.OverlappingNodes,
    "ego-nodes": tasks.EgoNodes,
    "own-nodes": tasks.OwnNodes,
    "subgraph-nodes": tasks.SubgraphNodes,
    "typed-nodes": tasks.TypedNodes,
    "links": tasks.Links,
    "pairs": tasks.Pairs,
    "graphs": tasks.Graphs,
    "forecast": tasks.Forecast,
    "molecules": tasks.Molecules,
}
# Rounds as in the papers' tables; else 200.
RUNS = dict.fromkeys(("own-nodes", "links"), Run(rounds=100, patience=20))
RUNS |= {"overlapping-nodes": Run(rounds=300, patience=30), "subgraph-nodes": Run(rounds=100)}


@dataclass(frozen=True)
class Late:
    """Clients that join, and classes that appear, during the run."""

    late_clients: tuple[int, ...] = ()
    """Numbers of the clients that join later."""
    late_classes: tuple[int, ...] = ()
    """Classes whose training examples appear later."""
    late_rounds: int = 0
    """Number of rounds before they do; 0 if they never do."""

    def without(self, task):
        if self == Late():
            return task
        late = {"clients": self.late_clients, "classes": self.late_classes}
        if not any(late.values()):
            raise ValueError("Expected --late-clients or --late-classes, but got neither")
        try:
            return tasks.earlier(task, **late, rounds=self.late_rounds or None)
        except ValueError as error:  # about clients or rounds, which are other flags
            vars(error)["argument"] = f"late_{vars(error).get('argument')}"
            raise


def built(build, loaded, seed, options):
    """A method, and the task that it runs on."""
    if build in (tasks.mended, tasks.adapted):  # first they train something else
        loaded = build(loaded, seed, **options)
        return loaded.fedavg, loaded
    if build is methods.fedpub:  # it asks all models about one random graph
        generator = torch.Generator().manual_seed(seed)
        probes = methods.proxy_graph(loaded.clients[0], generator=generator)
        return build(loaded.fedavg, probes, **options), loaded
    if build is methods.fedtad:  # its server makes nodes up
        made_up = methods.node_generator(loaded.clients[0], seed=seed)
        return build(loaded.fedavg, made_up, **options), loaded
    if build is tasks.centralized:
        loaded, build = build(loaded), fedavg
    return build(loaded.fedavg, **options), loaded


def experiment(method, name):
    """The `main` of one method on one task, both by name."""
    build, setting = METHODS[method], TASKS[name]
    usual = tasks.preset(method, setting)
    start = RUNS.get(name, Run())

    @takes_options_of(build)
    def main(task: setting = usual, run: Run = start, late: Late = Late(), **options):
        loaded = late.without(task.load(run.seed))
        federated, loaded = built(build, loaded, run.seed, options)
        return run(federated, loaded, recipe=method, config={"task": name})

    return main


def main(argv=None):
    names, flags = choose_names(__doc__, argv, method=METHODS, task=TASKS)
    return cli(experiment(*names), argv=flags, words=names)


if __name__ == "__main__":
    main()
