"""FedEgo's tables: the paper's cells, and values as in the authors' code.

docs/papers/fedego.md explains them.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from harness.baselines import Make, fedavg, graphfl, local, ring
from harness.rows import Cells, Row, Table, changed

from fgl import ego, privacy, tasks

from .fedego_methods import (
    RECORDED,
    Always,
    SAGEFirst,
    adaptive_fedprox,
    averaged_heads,
    fedego,
    first_of_each_batch,
    without_ego_graphs,
    without_rl,
)

DATASETS = ("cora", "citeseer", "dblp", "wiki_cs", "cora_full")
CLIENTS = {"cora": 5, "citeseer": 5, "dblp": 10, "wiki_cs": 10, "cora_full": 10}
PLAIN, EGO = tasks.EgoNodes(), tasks.EgoNodes(dropout=0.5)  # dropout is of FedEgo alone
SAGE_FIRST = SAGEFirst(dropout=0.5)
# Setting by dataset; DBLP and Wiki-CS are the two readings of the paper's "Wiki".
WIKI = {"share": 0.2, "num_test": 300}
OWN: dict[str, dict[str, Any]] = {
    "dblp": WIKI,
    "wiki_cs": WIKI,
    "cora_full": {"share": 0.3, "num_test": 300},
}
LONGER = {"lr": 5e-4, "rounds": 300}
FASTER = {"dblp": LONGER, "wiki_cs": LONGER, "cora_full": {"lr": 5e-4}}  # FedEgo alone


def cells(cora: float, citeseer: float, wiki: float = 0, full: float = 0) -> Cells:
    """Cells in percent; the "Wiki" one stands at DBLP and at Wiki-CS."""
    values = {"cora": cora, "citeseer": citeseer, "dblp": wiki, "wiki_cs": wiki, "cora_full": full}
    return {(dataset, CLIENTS[dataset]): 100 * value for dataset, value in values.items()}


def baseline(name: str, paper: Cells, method: Make, values: Mapping[str, Any] | None = None) -> Row:
    return Row(name, paper, changed(PLAIN, values or {}), method, tuned=OWN)


def row(
    name: str,
    paper: Cells,
    method: Make = fedego,
    values: Mapping[str, Any] | None = None,
    setting: tasks.EgoNodes = EGO,
    **options: Any,
) -> Row:
    """FedEgo, or a part of it, with other `values` of its task and `options`.

    FedEgo itself uploads what it did when the runs were recorded.
    """
    if method is fedego:
        options = {**RECORDED, **options}
    tuned = {dataset: {**OWN[dataset], **FASTER[dataset]} for dataset in OWN}
    return Row(name, paper, changed(setting, values or {}), method, options, tuned=tuned)


BASELINES: dict[str, Make] = {"Local": local, "FedAvg": fedavg}
BASELINES |= {"FedProx": adaptive_fedprox, "D-FedGNN": ring}


def main_rows(papers: dict[str, Cells]) -> list[Row]:
    rows = [baseline(name, papers[name], method) for name, method in BASELINES.items()]
    return [*rows, row("FedEgo", papers["FedEgo"])]


def others(papers: dict[str, Cells]) -> list[Row]:
    """FedAvg, and GraphFL. FedGCN's exchange is not built for clients that share nodes."""
    return [
        baseline("FedAvg", papers["FedAvg"], fedavg),
        replace(baseline("GraphFL", papers["GraphFL"], graphfl), options={"adapt_steps": 1}),
    ]


GLOBAL = {
    "Local": cells(0.691, 0.634, 0.700, 0.501),
    "FedAvg": cells(0.769, 0.701, 0.785, 0.544),
    "FedProx": cells(0.770, 0.701, 0.784, 0.549),
    "D-FedGNN": cells(0.776, 0.712, 0.795, 0.576),
    "GraphFL": cells(0.739, 0.649, 0.677, 0.350),
    "FedEgo": cells(0.794, 0.727, 0.818, 0.653),
}
LOCAL = {
    "Local": cells(0.851, 0.757, 0.874, 0.639),
    "FedAvg": cells(0.952, 0.917, 0.922, 0.874),
    "FedProx": cells(0.954, 0.915, 0.924, 0.875),
    "D-FedGNN": cells(0.954, 0.917, 0.915, 0.883),
    "GraphFL": cells(0.861, 0.766, 0.789, 0.479),
    "FedEgo": cells(0.959, 0.920, 0.926, 0.901),
}
NONE = cells(0, 0)  # where the paper prints no number that we could use
ABLATION = [  # global
    row("w/o Mixup", cells(0.783, 0.717), mash=first_of_each_batch),
    row("Linear", cells(0.793, 0.717), values={"linear": True}),
    row("w/o EGO", NONE, without_ego_graphs, setting=SAGE_FIRST),
    row("w/o RL", NONE, without_rl),
    row("w/o PL", NONE, weight=Always(0.0)),
    row("FedEgo-Server", NONE, weight=Always(1.0)),
    row("heads averaged", NONE, averaged_heads),  # ours
    baseline("FedAvg with dropout", NONE, fedavg, {"dropout": 0.5}),
    row("FedEgo", cells(0.794, 0.727)),
]
ABLATION_LOCAL = {
    "w/o Mixup": cells(0.951, 0.912),
    "Linear": cells(0.958, 0.918),
    "FedEgo": cells(0.959, 0.920),
}
MIXING = [  # global
    row("lambda 0", cells(0.7705, 0, 0, 0.6173), weight=Always(0.0)),  # as w/o PL
    row("lambda 0.5", cells(0.7843, 0, 0, 0.6437), weight=Always(0.5)),
    row("lambda 1", cells(0.7921, 0, 0, 0.6418), weight=Always(1.0)),  # as FedEgo-Server
    row("FedEgo", cells(0.7939, 0, 0, 0.6442)),
]
CORA = {("cora", 5): 0.0}  # the paper prints no numbers that we have
GAMMAS = [row(f"gamma {eighths / 8:g}", CORA, gamma=eighths / 8) for eighths in range(1, 8)]
MAJOR = [
    replace(made, base=f"FedAvg, rate {rate:g}")
    for rate in (0.8, 0.3, 0.0)  # the first is the default
    for made in (
        baseline(f"FedAvg, rate {rate:g}", CORA, fedavg, {"major_rate": rate}),
        row(f"FedEgo, rate {rate:g}", CORA, values={"major_rate": rate}),
    )
]
ONCE_MORE = "unseen nodes"  # the first runs were not scored on them
UNSEEN = [
    replace(baseline("Local", CORA, local), again=ONCE_MORE),
    replace(baseline("FedAvg", CORA, fedavg), again=ONCE_MORE),
    replace(row("FedEgo", CORA), again=ONCE_MORE),
    row("w/o EGO", CORA, without_ego_graphs, setting=SAGE_FIRST),
]
NOW: dict[str, Any] = {"mash": ego.mash, "shuffle": True}  # the recipe's own
UPLOADS = [
    row("short last batch, in order", CORA),
    row("as it is now", CORA, **NOW),
    *(
        row(f"labels with noise {s:g}", CORA, blur=partial(privacy.noisy_shares, sigma=s), **NOW)
        for s in (0.02, 0.1, 0.5)
    ),
]


def table(rows: list[Row], metric: str, base: str, **changes: object) -> Table:
    made = Table(
        rows,
        base,
        "fedego.jsonl",
        datasets=DATASETS,
        clients=(5, 10),
        metric=metric,
        key="best_test",
        validation="val_f1",
    )
    return replace(made, **changes)


LOCALLY = [replace(each, paper=ABLATION_LOCAL.get(each.name, NONE)) for each in ABLATION]
MIXING_LOCAL = [replace(each, paper=dict.fromkeys(each.paper, 0.0)) for each in MIXING]
SMALL, MIXED = {"datasets": ("cora", "citeseer")}, {"datasets": ("cora", "cora_full")}
ON_CORA: dict[str, Any] = {"datasets": ("cora",), "also": {"local F1": "local_f1"}}
TABLES = {
    "fedego-table2": table(main_rows(GLOBAL), "global_f1", "FedAvg"),
    "fedego-table3": table(main_rows(LOCAL), "local_f1", "FedAvg"),
    "fedego-table5": table(ABLATION, "global_f1", "FedEgo", **SMALL),
    "fedego-table5-local": table(LOCALLY, "local_f1", "FedEgo", **SMALL),
    "fedego-table6": table(GAMMAS, "global_f1", "gamma 0.5", datasets=("cora",)),
    "fedego-table6-local": table(GAMMAS, "local_f1", "gamma 0.5", datasets=("cora",)),
    "fedego-unseen": table(UNSEEN, "local_unseen_f1", "FedAvg", **ON_CORA),
    "fedego-uploads": table(UPLOADS, "global_f1", UPLOADS[0].name, rounds=15, seeds=3, **ON_CORA),
    "fedego-table2-others": table(others(GLOBAL), "global_f1", "FedAvg", **SMALL),
    "fedego-table3-others": table(others(LOCAL), "local_f1", "FedAvg", **SMALL),
    "fedego-major": table(MAJOR, "global_f1", "FedAvg", datasets=("cora",)),
    "fedego-major-local": table(MAJOR, "local_f1", "FedAvg", datasets=("cora",)),
    "fedego-table9": table(MIXING, "global_f1", "FedEgo", **MIXED),
    "fedego-table9-local": table(MIXING_LOCAL, "local_f1", "FedEgo", **MIXED),
}
