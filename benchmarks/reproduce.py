"""Run a paper's table: methods x datasets x clients x seeds, beside the paper's cells.

    python benchmarks/reproduce.py fgssl-table1 --seeds 10 --datasets cora citeseer
    python benchmarks/reproduce.py fgssl-table1 --report

Every finished run is one line of ``benchmarks/results/fgssl.jsonl``; a run that is there is not
made again, so an interrupted table goes on where it was. ``--shard 0/2`` and ``--shard 1/2`` divide
the runs between two processes. ``--report`` only writes the table into ``docs/results.md`` from
what is there.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from machine import machine
from scipy.stats import wilcoxon

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SEEDS = {"pubmed": 3}


@dataclass(frozen=True)
class Row:
    """A method of a table: a recipe, its flags, the paper's cells by (dataset, clients).

    `tuned` are flags in the place of the chosen ones, to choose among them.
    """

    name: str
    recipe: str
    flags: tuple[str, ...]
    paper: dict[tuple[str, int], float]
    tuned: tuple[str, ...] | None = None


def cells(cora: str, citeseer: str = "", pubmed: str = "") -> dict[tuple[str, int], float]:
    """The paper's cells from "86.63 86.21 86.01", for 5, 7 and 10 clients."""
    given = {"cora": cora, "citeseer": citeseer, "pubmed": pubmed}
    return {
        (dataset, clients): float(value)
        for dataset, values in given.items()
        for clients, value in zip((5, 7, 10), values.split(), strict=False)
    }


def global_cells(cora: float, citeseer: float, pubmed: float) -> dict[tuple[str, int], float]:
    return {("cora", 1): cora, ("citeseer", 1): citeseer, ("pubmed", 1): pubmed}


FEDAVG = Row(
    "FedAvg",
    "fedavg",
    (),
    cells("86.63 86.21 86.01", "76.37 76.57 75.92", "85.29 84.27 84.57"),
)
FGSSL = Row(
    "FGSSL",
    "fgssl",
    (),
    cells("88.34 88.56 88.01", "80.43 80.21 80.01", "88.25 87.75 87.60"),
)
# At 10 clients lambda_C = 5 diverges on some seeds of Cora.
CALM = ("--lr", "0.25", "--lambda-c", "1.5", "--lambda-d", "25")
TABLES: dict[str, list[Row]] = {
    "fgssl-table1": [
        Row("Global", "fedavg", ("--centralized",), global_cells(87.78, 76.91, 88.38)),
        Row(
            "Local",
            "fedavg",
            ("--local",),
            cells("61.54 45.32 32.42", "73.85 62.87 48.91", "83.81 72.34 59.19"),
        ),
        FEDAVG,
        Row(
            "FedProx",
            "fedavg",
            ("--fedprox", "0.1"),
            cells("86.60 86.27 86.22", "77.15 77.28 76.87", "85.21 84.01 84.98"),
        ),
        Row(
            "FedOpt",
            "fedavg",
            ("--fedopt", "sgd", "--server-lr", "0.5"),
            cells("86.11 85.89 85.20", "76.96 76.82 76.71", "84.39 84.10 83.91"),
        ),
        FGSSL,
        Row("FGSSL, lambda_C 1.5", "fgssl", (), {("cora", 10): 88.01}, CALM),
    ],
    "fgssl-table2": [
        FEDAVG,
        Row(
            "FGSD only",
            "fgssl",
            ("--fgsd-only",),
            cells("86.86 86.32 86.51", "77.91 77.53 76.42"),
        ),
        Row(
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
            Row(
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
# Chosen in fgssl-tuning (docs/results.md says how): optimiser, lambda_C, lambda_D.
TUNED = {
    "cora": (("--lr", "0.25"), "5", "25"),
    "citeseer": (("--lr", "0.1"), "1.5", "25"),
    "pubmed": (("--optimizer", "adam", "--lr", "0.005"), "1.5", "25"),
}
WEIGHTS = (("0.25", "1.5", "25"), ("0.25", "5", "25"), ("0.25", "5", "100"))
GRID = (*WEIGHTS, ("0.1", "1.5", "25"), ("0.1", "5", "25"))
ALL_AT_FIVE = {("cora", 5): 0.0, ("citeseer", 5): 0.0, ("pubmed", 5): 0.0}


def flags(
    recipe: str, optimizer: tuple[str, ...], lambda_c: str = "", lambda_d: str = ""
) -> tuple[str, ...]:
    """Flags of the tuned values; FedAvg has no weights."""
    weights = ("--lambda-c", lambda_c, "--lambda-d", lambda_d) if recipe == "fgssl" else ()
    return (*optimizer, *weights)


TABLES["fgssl-tuning"] = [
    *(
        Row(f"FedAvg, lr {lr}", "fedavg", (), ALL_AT_FIVE, flags("fedavg", ("--lr", lr)))
        for lr in ("0.1", "0.25", "0.5")
    ),
    *(
        Row(
            f"FGSSL, lr {point[0]}, lambda_C {point[1]}, lambda_D {point[2]}",
            "fgssl",
            (),
            ALL_AT_FIVE,
            flags("fgssl", ("--lr", point[0]), *point[1:]),
        )
        for point in GRID
    ),
    *(
        Row(f"FedAvg, {' '.join(given)}", "fedavg", (), {("pubmed", 5): 0.0}, given)
        for given in (("--lr", "1.0"), ("--optimizer", "adam", "--lr", "0.005"))
    ),
]


@dataclass(frozen=True)
class Job:
    """One run of a table."""

    row: Row
    dataset: str
    clients: int
    seed: int
    rounds: int

    @property
    def argv(self) -> list[str]:
        where = ["--dataset", self.dataset, "--clients", str(self.clients)]
        when = ["--rounds", str(self.rounds), "--seed", str(self.seed)]
        tuned = self.row.tuned or flags(self.row.recipe, *TUNED[self.dataset])
        return [*where, *when, *tuned, *self.row.flags]

    @property
    def command(self) -> str:
        return " ".join(["examples/" + self.row.recipe + ".py", *self.argv])


def jobs(table: str, args: argparse.Namespace) -> list[Job]:
    """The runs of a table, all methods of a seed before the next seed."""
    wanted = [
        Job(row, dataset, clients, seed, args.rounds)
        for dataset in args.datasets
        for seed in range(args.seeds or SEEDS.get(dataset, 5))
        for row in TABLES[table]
        if not args.methods or row.name in args.methods
        for cell_dataset, clients in row.paper
        if cell_dataset == dataset and (clients in args.clients or clients == 1)
    ]
    index, count = (int(part) for part in args.shard.split("/"))
    return [job for i, job in enumerate(wanted) if i % count == index]


def load_results(path: Path) -> dict[str, dict[str, Any]]:
    """Finished runs by command; a line cut short by an interruption is passed over."""
    if not path.exists():
        return {}
    found = {}
    for line in path.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            entry = json.loads(line)
            found[entry["command"]] = entry
    return found


def execute(job: Job, path: Path) -> None:
    """Run a recipe in this process and append its report."""
    spec = importlib.util.spec_from_file_location(
        job.row.recipe, ROOT / "examples" / f"{job.row.recipe}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with contextlib.redirect_stderr(io.StringIO()):
        report, result = module.main(job.argv)
    lowest = min(result.history, key=lambda record: record.metrics["val_loss"]).metrics
    entry = {
        "command": job.command,
        **report,
        "test_accuracy_at_lowest_val_loss": lowest["test_accuracy"],
        "dropped_messages": sum(len(record.dropped) for record in result.history),
        "machine": machine(),
    }
    with path.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def scores(table: str, results: dict[str, dict[str, Any]], args: argparse.Namespace) -> Any:
    """``(row name, dataset, clients) -> seed -> {"last", "best_val"}`` in percent."""
    found: dict[tuple[str, str, int], dict[int, dict[str, float]]] = defaultdict(dict)
    for job in jobs(table, args):
        if job.command in results:
            metrics = results[job.command]["metrics"]
            value = {**metrics["test_accuracy"], "val": metrics["val_accuracy"]["best_val"]}
            key = (job.row.name, job.dataset, job.clients)
            found[key][job.seed] = {name: 100 * v for name, v in value.items()}
    return found


def markdown(table: str, results: dict[str, dict[str, Any]], args: argparse.Namespace) -> str:
    """The table with the paper's cells, mean and standard deviation, and the paired test."""
    found = scores(table, results, args)
    out = [
        "| dataset | clients | method | paper | test, best validation | test, last round "
        "| validation | seeds | against FedAvg | p |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for dataset in args.datasets:
        for clients in (1, 5, 7, 10):
            base = found.get(("FedAvg", dataset, clients), {})
            for row in TABLES[table]:
                mine = found.get((row.name, dataset, clients))
                if not mine:
                    continue
                best, last, val = (
                    spread([v[n] for v in mine.values()]) for n in ("best_val", "last", "val")
                )
                paper = row.paper.get((dataset, clients))
                gain, p = paired(mine, base) if row.name != "FedAvg" else ("", "")
                cell = f"{paper:.2f}" if paper else ""
                out.append(
                    f"| {dataset} | {clients} | {row.name} | {cell} | {best} | {last} | {val} "
                    f"| {len(mine)} | {gain} | {p} |"
                )
    return "\n".join(out) + "\n"


def spread(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"


def paired(mine: dict[int, dict[str, float]], base: dict[int, dict[str, float]]) -> tuple[str, str]:
    """Mean gain at the best-validation round over shared seeds; two-sided Wilcoxon's p."""
    seeds = sorted(mine.keys() & base.keys())
    if not seeds:
        return "", ""
    gains = [mine[seed]["best_val"] - base[seed]["best_val"] for seed in seeds]
    p = f"{wilcoxon(gains).pvalue:.3f}" if any(gains) and len(gains) > 1 else ""
    return f"{statistics.mean(gains):+.2f}", p


def publish(table: str, text: str) -> None:
    """Put a table between its markers in ``docs/results.md``."""
    page = ROOT / "docs" / "results.md"
    before, rest = page.read_text().split(f"<!-- {table} -->\n")
    after = rest.split("<!-- end -->", 1)[1]
    page.write_text(f"{before}<!-- {table} -->\n{text}<!-- end -->{after}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("table", choices=sorted(TABLES))
    add("--datasets", nargs="+", default=["cora", "citeseer", "pubmed"])
    add("--clients", nargs="+", type=int, default=[5, 7, 10])
    add("--seeds", type=int, help="how many; default 5, 3 on pubmed")
    add("--methods", nargs="+", metavar="NAME", help="only these rows, e.g. FedAvg FGSSL")
    add("--rounds", type=int, default=200)
    add("--shard", default="0/1", metavar="I/N")
    add("--threads", type=int, default=1)
    add("--results", type=Path, default=RESULTS / "fgssl.jsonl")
    add("--report", action="store_true", help="run nothing, write the table from what is there")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    if not args.report:
        for job in jobs(args.table, args):
            if job.command not in load_results(args.results):
                execute(job, args.results)
    args.shard = "0/1"
    args.methods = None
    text = markdown(args.table, load_results(args.results), args)
    if args.report:
        publish(args.table, text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
