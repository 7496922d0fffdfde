"""FGSSL's tables: the paper's cells, and the values that were chosen."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from harness import baselines
from harness.baselines import Make
from harness.machine import example
from harness.rows import Cells, Row, Table, changed

from fgl import augment, tasks

from .fgssl_controls import augmented_fedavg, keys_shuffled, shuffled_graph

fgssl = baselines.on_fedavg(example("fgssl").fgssl)
RANDOM, CAPPED = tasks.Nodes(), tasks.Nodes(split="class_capped")
ADAM = {"optimizer": "adam", "lr": 0.005}
Values = Mapping[str, Any]
ByDataset = dict[str, dict[str, Any]]


def cells(cora: str, citeseer: str = "", pubmed: str = "") -> Cells:
    """The paper's cells from "86.63 86.21 86.01", for 5, 7 and 10 clients."""
    given = {"cora": cora, "citeseer": citeseer, "pubmed": pubmed}
    return {
        (dataset, clients): float(value)
        for dataset, values in given.items()
        for clients, value in zip((5, 7, 10), values.split(), strict=False)
    }


@dataclass(frozen=True)
class Chosen:
    """A split of the nodes, and what was chosen on it by dataset.

    `fedavg` are the values of FedAvg, which the other baselines share; `fgssl` are FGSSL's own.
    """

    setting: tasks.Nodes
    fedavg: ByDataset
    fgssl: ByDataset

    def baseline(self, name: str, method: Make, paper: Cells, **options: Any) -> Row:
        """A row with FedAvg's optimiser."""
        return Row(name, paper, self.setting, method, options, tuned=self.fedavg)

    def row(self, name: str, paper: Cells, method: Make = fgssl, **options: Any) -> Row:
        """FGSSL as chosen, but for `options`."""
        return Row(name, paper, self.setting, method, options, tuned=self.fgssl)

    def table1(self) -> list[Row]:
        """All methods."""
        local_cells = cells("61.54 45.32 32.42", "73.85 62.87 48.91", "83.81 72.34 59.19")
        prox_cells = cells("86.60 86.27 86.22", "77.15 77.28 76.87", "85.21 84.01 84.98")
        opt_cells = cells("86.11 85.89 85.20", "76.96 76.82 76.71", "84.39 84.10 83.91")
        return [
            self.baseline("Global", baselines.centralized, GLOBAL),
            self.baseline("Local", baselines.local, local_cells),
            self.baseline("FedAvg", baselines.fedavg, FEDAVG),
            self.baseline("FedProx", baselines.fedprox, prox_cells, mu=0.1),
            self.baseline("FedOpt", baselines.fedopt, opt_cells, rule="sgd", server_lr=0.5),
            self.row("FGSSL", FGSSL),
        ]

    def sage(self) -> list[Row]:
        """FedSage and FedSage+ beside FedAvg; which of them the paper's row is, it does not say."""
        setting = changed(self.setting, {"model": "sage"})
        plain = self.baseline("FedSage", baselines.fedsage, FEDSAGE)
        small = {"gen_wide": 256, "gen_epochs": 5, "gen_local_epochs": 10}
        plus = self.baseline("FedSage+", baselines.fedsage_plus, FEDSAGE, **small)
        return [
            self.baseline("FedAvg", baselines.fedavg, FEDAVG),
            replace(plain, setting=setting),
            replace(plus, setting=setting),
        ]

    def table2(self) -> list[Row]:
        """Each term alone."""
        only_d = cells("86.86 86.32 86.51", "77.91 77.53 76.42")
        only_c = cells("88.01 88.23 87.84", "79.89 79.43 79.12")
        return [
            self.baseline("FedAvg", baselines.fedavg, FEDAVG),
            self.row("FGSD only", only_d, lambda_c=0.0),
            self.row("FNSC only", only_c, lambda_d=0.0),
            self.row("FGSSL", FGSSL),
        ]

    def table3(self) -> list[Row]:
        """Which view is strong."""
        rows = [self.baseline("FedAvg", baselines.fedavg, cells("86.63"))]
        for (mine, other), value in VIEWS.items():
            views = {"local_view": VIEW[mine], "global_view": VIEW[other]}
            name = f"FNSC, local {mine}, global {other}"
            rows.append(self.row(name, cells(value), lambda_d=0.0, **views))
        return rows

    def controls(self) -> list[Row]:
        """What is left of the gain without its reasons, in `fgssl_controls`."""
        local = {f.name for f in fields(tasks.Local)}
        optimizer = {
            dataset: {name: value for name, value in values.items() if name in local}
            for dataset, values in self.fgssl.items()
        }
        differ = {k: v for k, v in SMALL.items() if optimizer.get(k[0]) != self.fedavg.get(k[0])}
        alike = self.baseline("FedAvg, FGSSL's optimizer", baselines.fedavg, differ)
        other = {"global_view": shuffled_graph}
        return [
            self.baseline("FedAvg", baselines.fedavg, SMALL),
            replace(alike, tuned=optimizer),
            self.baseline("FedAvg, augmented", augmented_fedavg, SMALL),
            self.baseline("FedAvg, augmented, sum", augmented_fedavg, SMALL, reduction="sum"),
            self.row("FGSSL", SMALL),
            self.row("keys shuffled", SMALL, keys_shuffled),
            self.row("teacher's graph shuffled", SMALL, **other),
            self.row("FGSD only", SMALL, lambda_c=0.0),
            self.row("FGSD only, teacher's graph shuffled", SMALL, lambda_c=0.0, **other),
        ]


SMALL: Cells = {("cora", 5): 0.0, ("citeseer", 5): 0.0}
GLOBAL: Cells = {("cora", 1): 87.78, ("citeseer", 1): 76.91, ("pubmed", 1): 88.38}
FEDAVG = cells("86.63 86.21 86.01", "76.37 76.57 75.92", "85.29 84.27 84.57")
FEDSAGE = cells("86.86 86.59 86.32", "77.91 77.82 77.30", "87.75 87.51 87.49")
FGSSL = cells("88.34 88.56 88.01", "80.43 80.21 80.01", "88.25 87.75 87.60")
VIEW = {"weak": augment.weak, "strong": augment.strong}
VIEWS = {("weak", "weak"): "87.24", ("weak", "strong"): "86.86"}
VIEWS |= {("strong", "strong"): "87.91", ("strong", "weak"): "88.01"}
AT_FIVE = {("cora", 5): 0.0, ("citeseer", 5): 0.0, ("pubmed", 5): 0.0}


def point(setting: tasks.Nodes, name: str, method: Make, local: Values, **options: Any) -> Row:
    """A row of a search: the same values on all datasets."""
    return Row(name, AT_FIVE, changed(setting, local), method, options)


def weighted(setting: tasks.Nodes, name: str, local: Values, c: float, d: float) -> Row:
    """A row of a search of FGSSL's weights."""
    name = f"FGSSL, {name}, lambda_C {c:g}, lambda_D {d:g}"
    return point(setting, name, fgssl, local, lambda_c=c, lambda_d=d)


# Random split: eight trials of FedAvg, eight of FGSSL, on seeds that no table has.
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD 0.1": {"lr": 0.1},
    "SGD 0.25": {},
    "SGD 0.5": {"lr": 0.5},
    "SGD 0.03, momentum 0.9": {"lr": 0.03, "momentum": 0.9},
    "SGD 0.1, momentum 0.9": {"lr": 0.1, "momentum": 0.9},
    "Adam 0.001": {"optimizer": "adam", "lr": 0.001},
    "Adam 0.005": ADAM,
    "Adam 0.01": {"optimizer": "adam", "lr": 0.01},
}
TRIALS = (
    ("SGD 0.1", 1.5, 25.0),
    ("SGD 0.25", 0.5, 5.0),
    ("SGD 0.25", 1.5, 25.0),
    ("SGD 0.25", 5.0, 25.0),
    ("SGD 0.5", 0.5, 25.0),
    ("SGD 0.1, momentum 0.9", 0.5, 5.0),
    ("Adam 0.005", 0.5, 5.0),
    ("Adam 0.005", 1.5, 25.0),
)
TUNING_SEED = 100
TUNING = [
    *(point(RANDOM, f"FedAvg, {name}", baselines.fedavg, own) for name, own in OPTIMIZERS.items()),
    *(weighted(RANDOM, name, OPTIMIZERS[name], *lambdas) for name, *lambdas in TRIALS),
]
# The trial of the best validation accuracy, mean of two seeds; test_reproduce.py checks it.
# Of equal trials the first counts. PubMed was not searched: its optimiser is the other split's.
CHOSEN: ByDataset = {"cora": {"lr": 0.5}, "citeseer": {"lr": 0.25}, "pubmed": ADAM}
CHOSEN_FGSSL: ByDataset = {
    "cora": {"lr": 0.25, "lambda_c": 0.5, "lambda_d": 5.0},
    "citeseer": {"lr": 0.5, "lambda_c": 0.5, "lambda_d": 25.0},
    "pubmed": ADAM,
}
BY_TRIALS = Chosen(RANDOM, fedavg=CHOSEN, fgssl=CHOSEN_FGSSL)

# Class-capped split: chosen in fgssl-capped-tuning, of all methods, and of FGSSL.
TUNED: ByDataset = {"cora": {"lr": 0.25}, "citeseer": {"lr": 0.1}, "pubmed": ADAM}
WEIGHTS: ByDataset = {
    "cora": {"lambda_c": 5.0, "lambda_d": 25.0},
    "citeseer": {"lambda_c": 1.5, "lambda_d": 25.0},
    "pubmed": {"lambda_c": 5.0, "lambda_d": 1.0},
}
BOTH = {dataset: {**TUNED[dataset], **WEIGHTS[dataset]} for dataset in TUNED}
ON_CAPPED = Chosen(CAPPED, fedavg=TUNED, fgssl=BOTH)
GRID = [(0.25, 1.5, 25.0), (0.25, 5.0, 25.0), (0.25, 5.0, 100.0)]
GRID += [(0.1, 1.5, 25.0), (0.1, 5.0, 25.0)]
PUBMED_WEIGHTS = ((0.5, 25.0), (1.5, 25.0), (1.5, 1.0), (5.0, 25.0), (5.0, 1.0))
PUBMED = {("pubmed", 5): 0.0}
CAPPED_TUNING = [
    *(point(CAPPED, f"FedAvg, lr {lr:g}", baselines.fedavg, {"lr": lr}) for lr in (0.1, 0.25, 0.5)),
    *(weighted(CAPPED, f"lr {lr:g}", {"lr": lr}, *lambdas) for lr, *lambdas in GRID),
]
CAPPED_TUNING += [
    replace(each, paper=PUBMED)
    for each in (
        point(CAPPED, "FedAvg, lr 1", baselines.fedavg, {"lr": 1.0}),
        point(CAPPED, "FedAvg, Adam 0.005", baselines.fedavg, ADAM),
        *(weighted(CAPPED, "Adam 0.005", ADAM, *lambdas) for lambdas in PUBMED_WEIGHTS),
    )
]


def made_again(row: Row) -> Row:
    """The class-capped split's "FNSC only" was run a second time as a row of Table 3."""
    twice = row.name == "FNSC, local strong, global weak"
    return replace(row, again="local strong, global weak") if twice else row


# With 10 clients on Cora lambda_C = 5 diverges on some seeds of the class-capped split.
SMALLER = ON_CAPPED.row("FGSSL, lambda_C 1.5", {("cora", 10): 88.01}, lambda_c=1.5)
ROWS: dict[str, list[Row]] = {
    "fgssl-table1": BY_TRIALS.table1(),
    "fgssl-table2": BY_TRIALS.table2(),
    "fgssl-table3": BY_TRIALS.table3(),
    "fgssl-fedsage": BY_TRIALS.sage(),
    "fgssl-tuning": TUNING,
    "fgssl-controls": BY_TRIALS.controls(),
    "fgssl-capped-table1": [*ON_CAPPED.table1(), SMALLER],
    "fgssl-capped-table2": ON_CAPPED.table2(),
    "fgssl-capped-table3": [made_again(row) for row in ON_CAPPED.table3()],
    "fgssl-capped-tuning": CAPPED_TUNING,
}
TABLES = {name: Table(rows, "FedAvg", "fgssl.jsonl") for name, rows in ROWS.items()}
F1 = {"macro F1": "test_macro_f1"}
CHANGES: dict[str, dict[str, Any]] = {
    "fgssl-table1": {"also": F1},
    "fgssl-table2": {"also": F1},
    "fgssl-table3": {"datasets": ("cora",), "clients": (5,)},  # the paper's Table 3
    "fgssl-tuning": {"first": TUNING_SEED, "seeds": 2, "clients": (5,)},
    "fgssl-capped-table3": {"datasets": ("cora",), "clients": (5,)},
}
TABLES |= {name: replace(TABLES[name], **changes) for name, changes in CHANGES.items()}
