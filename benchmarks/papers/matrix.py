"""The first matrix: every method on seven tasks, where it applies, with four trials each.

Its runs are in ``benchmarks/results/matrix.jsonl``; no command adds to them.

A trial is a learning rate and a value of the method's own; a method that has nothing of its own to
choose gets four learning rates. All trials have half the rounds of the runs that count. What is
chosen is the trial of the best validation score.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.machine import RESULTS
from harness.rows import (
    Experiment,
    Make,
    changed,
    fedamp,
    fedavg,
    fedgcn,
    fedopt,
    fedper,
    fedprox,
    fedpub,
    fedsage,
    fedsage_plus,
    fedselect,
    fedstar,
    flat,
    gcfl,
    gcfl_plus,
    graphfl,
    heurfedamp,
    local,
    moon,
    pfedgraph,
    ring,
    scaffold,
    spelled,
)

from fgl import Graph, Method, data, evaluate_on, tasks
from fgl.experiment import Run
from fgl.federation import Evaluate, Watch, together
from fgl.federation.method.method import State
from fgl.targets import selected

from .fedgl import fedgl
from .fedvgae import fedvgae
from .fgssl import fgssl
from .gpfl import gpfl, uniform

Values = Mapping[str, Any]
Own = tuple[Values, Values]
Recorded = Mapping[str, dict[str, Any]]
TUNING_SEED = 100
SEEDS = (0, 1, 2)
NORMS = RESULTS / "matrix_norms.json"
FIRST_ROUND = 20  # of GCFL: before its clusters do not split


@dataclass(frozen=True)
class GraphsWithValidation(tasks.Graphs):
    """Graphs in folds; a quarter of what a client would train on validates."""

    def load(self, seed: int = 0) -> tasks.Task:
        """The task; the best round is the one of the best validation."""
        folds, tests = self.folds_of(seed)
        kept, held = zip(*(quartered(own, seed) for own in folds), strict=True)
        made = self.of(kept, tests, seed=seed)
        if self.model == "star":
            held = [tasks.with_structure(own) for own in held]

        def scores(method: Method, clients: Sequence[Graph]) -> Evaluate:
            validate = tasks.evaluate_graphs(method, held, clients)

            def validation(outbox: Any, states: Any) -> dict[str, float]:
                return {"val_accuracy": validate(outbox, states)["test_accuracy"]}

            return together(made.scores(method, clients), validation)

        return replace(made, scores=scores, select="val_accuracy")


@dataclass(frozen=True)
class NodesBothWays(tasks.Nodes):
    """Louvain nodes; models are scored on the whole graph, and on each client's own test nodes."""

    def load(self, seed: int = 0) -> tasks.Task:
        """The task, with `local_accuracy` too."""
        made = super().load(seed)

        def scores(method: Method, clients: Sequence[Graph]) -> Evaluate:
            own = evaluate_on(method, made.clients, clients)
            return together(made.scores(method, clients), own)

        return replace(made, scores=scores)


def quartered(graph: Graph, seed: int) -> tuple[Graph, Graph]:
    """Three quarters of a collection, and the last one."""
    y: Any = graph.y
    quarter = data.splits.stratified_folds(y, 4, seed=seed)
    last = quarter == 3
    return graph.select((~last).nonzero()[:, 0]), graph.select(last.nonzero()[:, 0])


@dataclass(frozen=True)
class Column:
    """A task of the matrix: its setting and run, what is scored, four learning rates."""

    title: str
    setting: Any
    run: Run
    metric: str
    validation: str  # as `Task.select`: "-val_rmse" where less is better
    own: str  # the score on each client's own test examples, "" where `metric` is that
    lrs: tuple[float, float, float, float]  # the two in the middle go with values of a method

    @property
    def less(self) -> bool:
        """Whether less of its scores is better: these are errors, and no shares of 100 %."""
        return self.validation.startswith("-")


COLUMNS = {
    "louvain-nodes": Column(
        "Louvain nodes, Cora",
        NodesBothWays(dataset="cora"),
        Run(rounds=100, clients_at_once=1),
        "test_accuracy",
        "val_accuracy",
        "local_accuracy",
        (0.05, 0.1, 0.25, 0.5),
    ),
    "overlapping-nodes": Column(
        "Overlapping nodes, CiteSeer",
        tasks.OverlappingNodes(dataset="citeseer"),
        Run(rounds=100, clients_at_once=1),
        "test_accuracy",
        "val_accuracy",
        "local_accuracy",
        (0.003, 0.01, 0.03, 0.1),
    ),
    "links": Column(
        "Links, Cora",
        tasks.Links(dataset="cora"),
        Run(rounds=100, clients_at_once="all"),
        "test_auc",
        "val_auc",
        "",
        (0.0003, 0.001, 0.003, 0.01),
    ),
    "graphs": Column(
        "Graphs, PROTEINS",
        GraphsWithValidation(dataset="PROTEINS"),
        Run(rounds=100, clients_at_once=8),
        "test_accuracy",
        "val_accuracy",
        "",
        (0.0003, 0.001, 0.003, 0.01),
    ),
    "molecules": Column(
        "Molecules, ESOL",
        tasks.Molecules(dataset="esol"),
        Run(rounds=50, clients_at_once=1),
        "pooled_test_rmse",
        "-val_rmse",
        "",
        (0.001, 0.003, 0.01, 0.03),
    ),
    "answers": Column(
        "Molecules, Tox21",
        tasks.Molecules(dataset="tox21"),
        Run(rounds=20, clients_at_once=1),
        "pooled_test_auc",
        "val_auc",
        "",
        (0.001, 0.003, 0.01, 0.03),
    ),
    "pairs": Column(
        "Pairs, bitcoin_otc",
        tasks.Pairs(dataset="bitcoin_otc"),
        Run(rounds=50, clients_at_once=1),
        "test_auc",
        "val_auc",
        "",
        (0.003, 0.01, 0.03, 0.1),
    ),
}
ALL = tuple(COLUMNS)
NODES = ALL[:2]
LONG = tuple(task for task in ALL if task != "answers")  # where GCFL has rounds to split in
PROBED = ALL[:4]  # FED-PUB's and GPFL's probes have no features of edges, and no pairs


@dataclass(frozen=True)
class Entry:
    """A method of the matrix: two values of its own to try, if any; `fixed` by task.

    `own` may be a function of the task and the learning rate. `base` is the entry with the same
    network, which this one is compared with; `watch` is what is recorded of the server's state.
    """

    make: Make
    own: Own | Callable[[str, float], Own] | None = None
    tasks: tuple[str, ...] = ALL
    fixed: Mapping[str, Values] | None = None
    base: str = "FedAvg"
    watch: Watch | None = None

    def trials(self, task: str) -> list[dict[str, Any]]:
        """Four trials: values of the setting and of the method."""
        lrs = COLUMNS[task].lrs
        fixed = dict((self.fixed or {}).get(task, {}))
        if self.own is None:
            return [{"lr": lr, **fixed} for lr in lrs]
        given = self.own
        of = given if callable(given) else lambda *_: given
        return [{"lr": lr, **fixed, **own} for lr in lrs[1:3] for own in of(task, lr)]

    def at(self, task: str, values: Values, seed: int) -> Experiment:
        """The run of a trial."""
        column = COLUMNS[task]
        rounds = column.run.rounds // 2 if seed == TUNING_SEED else column.run.rounds
        run = replace(column.run, seed=seed, rounds=rounds)
        known = flat(column.setting) | flat(run)
        options = {name: value for name, value in values.items() if name not in known}
        made = Experiment(changed(column.setting, values), self.make, options, run)
        return replace(made, watch=self.watch)


SHARED = {  # what FedPer lets travel
    "louvain-nodes": {"shared": ("convs.0",)},
    "overlapping-nodes": {"shared": ("convs.0",)},
    "links": {"shared": ("conv1",)},
    **{task: {"shared": ("convs",)} for task in ALL[3:]},
}
WHOLE = ("louvain-nodes", "overlapping-nodes", "links")  # the model gives embeddings
STAR = {name: {"model": "star"} for name in ("louvain-nodes", "graphs")}
SAGE = {"louvain-nodes": {"model": "sage"}}
GCN = {"louvain-nodes": {"model": "gcn"}}
SMALL = {"gen_wide": 256, "gen_epochs": 5, "gen_local_epochs": 10}  # FedSage+'s generators
ADAPTATIONS = ({"adapt_steps": 1, "adapt_lr": 0.1}, {"adapt_steps": 1, "adapt_lr": 0.01})
ADAM = ({"rule": "adam", "server_lr": 0.01}, {"rule": "adam", "server_lr": 0.001})
GENERATED = ({}, {"gen_hide": 1.0})  # hidden: half of the validation nodes, or all
SPLITS = ((2.0, 0.5), (1.0, 0.5))  # GCFL's eps1 and eps2, in FedAvg's norms: at once, or later


@functools.cache
def norms(task: str, lr: float) -> tuple[float, float]:
    """FedAvg's norms where GCFL may split: of the mean update, and of the longest."""
    found = json.loads(NORMS.read_text(encoding="utf-8"))["tasks"][task][f"{lr:g}"]
    return found["mean"], found["longest"]


def splits(task: str, lr: float) -> Own:
    """GCFL's two pairs of bounds, as multiples of `norms`."""
    mean, longest = norms(task, lr)
    one, other = (
        {"eps1": float(f"{a * mean:.3g}"), "eps2": float(f"{b * longest:.3g}")} for a, b in SPLITS
    )
    return one, other


def clusters(state: State) -> dict[str, float]:
    """How many clusters GCFL's server has."""
    if "clusters" not in state:  # no client was there yet
        return {}
    found: Any = state["clusters"]
    return {"clusters": float(found.unique().numel())}


ENTRIES: dict[str, Entry] = {
    "Local": Entry(local),
    "FedAvg": Entry(fedavg),
    "FedAvg, gcn": Entry(fedavg, None, ("louvain-nodes",), GCN),
    "FedAvg, star": Entry(fedavg, None, tuple(STAR), STAR),
    "FedProx": Entry(fedprox, ({"mu": 0.01}, {"mu": 0.1})),
    "FedOpt, Adam": Entry(fedopt, ADAM),
    "SCAFFOLD": Entry(scaffold),
    "MOON": Entry(moon, ({"contrast": 0.1}, {"contrast": 1.0}), WHOLE),
    "FedPer": Entry(fedper, fixed=SHARED),
    "FedStar": Entry(fedstar, None, tuple(STAR), STAR, "FedAvg, star"),
    "FedSelect": Entry(fedselect, ({"top": 0.25}, {"top": 0.1})),
    "FED-PUB": Entry(fedpub, ({"sparsity": 1e-3}, {"sparsity": 1e-4}), PROBED),
    "FedAMP": Entry(fedamp, ({"penalty": 0.1}, {"penalty": 1.0})),
    "HeurFedAMP": Entry(heurfedamp, ({"penalty": 0.1}, {"penalty": 1.0})),
    "pFedGraph": Entry(pfedgraph, ({"prior": 0.8}, {"prior": 8.0})),
    "GCFL": Entry(gcfl, splits, LONG, watch=clusters),
    "GCFL+": Entry(gcfl_plus, splits, LONG, watch=clusters),
    "uniform": Entry(uniform, ({"rho": 0.05}, {"rho": 0.5})),
    "D-FedGNN": Entry(ring),
    "GraphFL": Entry(graphfl, ADAPTATIONS),
    "FedGCN": Entry(
        fedgcn,
        None,
        ("louvain-nodes",),
        {"louvain-nodes": {"model": "gcn", "hops": 2}},
        "FedAvg, gcn",
    ),
    "FedSage": Entry(fedsage, None, ("louvain-nodes",), SAGE),
    "FedSage+": Entry(
        fedsage_plus,
        GENERATED,
        ("louvain-nodes",),
        {"louvain-nodes": {**SAGE["louvain-nodes"], **SMALL}},
        "FedSage",
    ),
    "FGSSL": Entry(fgssl, ({"lambda_c": 0.5, "lambda_d": 5.0}, {"lambda_c": 1.5}), NODES),
    "FedGL": Entry(fedgl, ({}, {"alpha": 0.1}), ("overlapping-nodes",)),
    "FedVGAE": Entry(
        fedvgae, ({}, {"contrast": 0.1}), WHOLE, {name: SHARED[name] for name in NODES}
    ),
    "GPFL": Entry(gpfl, ({"rho": 0.05}, {"rho": 0.5}), PROBED),
}


def made(found: Recorded, name: str, task: str, values: Any, seed: int) -> dict[str, Any] | None:
    """A recorded run, if it is there."""
    return found.get(spelled(ENTRIES[name].at(task, values, seed).key))


def best(found: Recorded, name: str, task: str) -> dict[str, Any] | None:
    """The trial that validates best; None while one is missing."""
    trials = ENTRIES[name].trials(task)
    runs = [made(found, name, task, values, TUNING_SEED) for values in trials]
    if any(run is None for run in runs):
        return None
    judged = COLUMNS[task].validation

    def value(index: int) -> float:
        metrics = (runs[index] or {})["metrics"]
        score = metrics.get(judged.removeprefix("-"), {}).get("best_val")
        worth = math.nan if score is None else selected({judged.removeprefix("-"): score}, judged)
        return -math.inf if math.isnan(worth) else worth

    return trials[max(range(len(trials)), key=value)]
