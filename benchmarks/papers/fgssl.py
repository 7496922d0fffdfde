"""FGSSL's tables: the paper's cells, and the flags that were chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tables import Cells, Row, Table


def cells(cora: str, citeseer: str = "", pubmed: str = "") -> Cells:
    """The paper's cells from "86.63 86.21 86.01", for 5, 7 and 10 clients."""
    given = {"cora": cora, "citeseer": citeseer, "pubmed": pubmed}
    return {
        (dataset, clients): float(value)
        for dataset, values in given.items()
        for clients, value in zip((5, 7, 10), values.split(), strict=False)
    }


def global_cells(cora: float, citeseer: float, pubmed: float) -> Cells:
    return {("cora", 1): cora, ("citeseer", 1): citeseer, ("pubmed", 1): pubmed}


ADAM = ("--optimizer", "adam", "--lr", "0.005")
# Chosen in fgssl-tuning (docs/results/fgssl.md says how): optimiser, lambda_C, lambda_D.
TUNED = {
    "cora": (("--lr", "0.25"), "5", "25"),
    "citeseer": (("--lr", "0.1"), "1.5", "25"),
    "pubmed": (ADAM, "5", "1"),
}


def flags(
    recipe: str, optimizer: tuple[str, ...], lambda_c: str = "", lambda_d: str = ""
) -> tuple[str, ...]:
    """Flags of the tuned values; FedAvg has no weights."""
    weights = ("--lambda-c", lambda_c, "--lambda-d", lambda_d) if recipe == "fgssl" else ()
    return (*optimizer, *weights)


def row(
    name: str,
    recipe: str,
    given: tuple[str, ...],
    paper: Cells,
    tuned: tuple[str, ...] | None = None,
) -> Row:
    """A row with the chosen flags of its recipe, or others in their place."""
    chosen = {dataset: flags(recipe, *values) for dataset, values in TUNED.items()}
    return Row(name, recipe, given, paper, chosen if tuned is None else {"*": tuned})


FEDAVG = row(
    "FedAvg",
    "fedavg",
    (),
    cells("86.63 86.21 86.01", "76.37 76.57 75.92", "85.29 84.27 84.57"),
)
FGSSL = row(
    "FGSSL",
    "fgssl",
    (),
    cells("88.34 88.56 88.01", "80.43 80.21 80.01", "88.25 87.75 87.60"),
)
# At 10 clients lambda_C = 5 diverges on some seeds of Cora.
CALM = ("--lr", "0.25", "--lambda-c", "1.5", "--lambda-d", "25")
ROWS: dict[str, list[Row]] = {
    "fgssl-table1": [
        row("Global", "fedavg", ("--centralized",), global_cells(87.78, 76.91, 88.38)),
        row(
            "Local",
            "fedavg",
            ("--local",),
            cells("61.54 45.32 32.42", "73.85 62.87 48.91", "83.81 72.34 59.19"),
        ),
        FEDAVG,
        row(
            "FedProx",
            "fedavg",
            ("--fedprox", "0.1"),
            cells("86.60 86.27 86.22", "77.15 77.28 76.87", "85.21 84.01 84.98"),
        ),
        row(
            "FedOpt",
            "fedavg",
            ("--fedopt", "sgd", "--server-lr", "0.5"),
            cells("86.11 85.89 85.20", "76.96 76.82 76.71", "84.39 84.10 83.91"),
        ),
        FGSSL,
        row("FGSSL, lambda_C 1.5", "fgssl", (), {("cora", 10): 88.01}, CALM),
    ],
    "fgssl-table2": [
        FEDAVG,
        row(
            "FGSD only",
            "fgssl",
            ("--fgsd-only",),
            cells("86.86 86.32 86.51", "77.91 77.53 76.42"),
        ),
        row(
            "FNSC only",
            "fgssl",
            ("--fnsc-only",),
            cells("88.01 88.23 87.84", "79.89 79.43 79.12"),
        ),
        FGSSL,
    ],
    "fgssl-table3": [
        FEDAVG,
        *(
            row(
                f"FNSC, local {local}, global {other}",
                "fgssl",
                ("--fnsc-only", "--local-view", local, "--global-view", other),
                {("cora", 5): value},
            )
            for local, other, value in (
                ("weak", "weak", 87.24),
                ("weak", "strong", 86.86),
                ("strong", "strong", 87.91),
                ("strong", "weak", 88.01),
            )
        ),
    ],
}
WEIGHTS = (("0.25", "1.5", "25"), ("0.25", "5", "25"), ("0.25", "5", "100"))
GRID = (*WEIGHTS, ("0.1", "1.5", "25"), ("0.1", "5", "25"))
ALL_AT_FIVE = {("cora", 5): 0.0, ("citeseer", 5): 0.0, ("pubmed", 5): 0.0}


ROWS["fgssl-tuning"] = [
    *(
        row(f"FedAvg, lr {lr}", "fedavg", (), ALL_AT_FIVE, flags("fedavg", ("--lr", lr)))
        for lr in ("0.1", "0.25", "0.5")
    ),
    *(
        row(
            f"FGSSL, lr {point[0]}, lambda_C {point[1]}, lambda_D {point[2]}",
            "fgssl",
            (),
            ALL_AT_FIVE,
            flags("fgssl", ("--lr", point[0]), *point[1:]),
        )
        for point in GRID
    ),
    *(
        row(f"FedAvg, {' '.join(given)}", "fedavg", (), {("pubmed", 5): 0.0}, given)
        for given in (("--lr", "1.0"), ADAM)
    ),
]
ROWS["fgssl-tuning"] += [
    row(
        f"FGSSL, Adam 0.005, lambda_C {lambda_c}, lambda_D {lambda_d}",
        "fgssl",
        (),
        {("pubmed", 5): 0.0},
        flags("fgssl", ADAM, lambda_c, lambda_d),
    )
    for lambda_c in ("0.5", "1.5", "5")
    for lambda_d in ("25", "1")
    if (lambda_c, lambda_d) != ("0.5", "1")
]
TABLES = {name: Table(rows, "FedAvg", "fgssl.jsonl") for name, rows in ROWS.items()}
ONLY: dict[str, Any] = {"datasets": ("cora",), "clients": (5,)}  # the paper's Table 3
TABLES["fgssl-table3"] = replace(TABLES["fgssl-table3"], **ONLY)
