"""Run a paper's table: methods x datasets x clients x seeds, beside the paper's cells.

    python benchmarks/reproduce.py fgssl-table1 --seeds 10 --datasets cora citeseer
    python benchmarks/reproduce.py fgssl-table1 --report

Every finished run is one line of ``benchmarks/results/fgssl.jsonl``; a run that is there is not
made again, so an interrupted table goes on where it was. ``--shard 0/2`` and ``--shard 1/2`` divide
the runs between two processes. ``--report`` only writes the table into its page of
``docs/results`` from what is there.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tables_fedego
import tables_fedgl
import tables_fedvgae
import tables_fgssl
import tables_gpfl
import torch
from machine import example, machine
from scipy.stats import wilcoxon
from tables import Row

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SEEDS = {"pubmed": 3}
FOLDS = 5
LABELS = {
    "best_val": "test, best validation",
    "best_test": "each client's best test round",
    "last": "test, last round",
    "mean_last5": "test, mean of the last five rounds",
    "val": "validation",
}
TABLES = tables_fgssl.TABLES | tables_fedgl.TABLES | tables_fedego.TABLES
TABLES |= tables_fedvgae.TABLES | tables_gpfl.TABLES


@dataclass(frozen=True)
class Job:
    """One run of a table."""

    row: Row
    dataset: str
    clients: int
    seed: int
    rounds: int
    repeat: str = "--seed"

    @property
    def argv(self) -> list[str]:
        where = ["--dataset", self.dataset, "--clients", str(self.clients)]
        when = ["--rounds", str(self.rounds), self.repeat, str(self.seed)]
        if self.repeat == "--fold":  # run 7 is fold 2 of the second split
            when[-1] = str(self.seed % FOLDS)
            when += ["--seed", str(self.seed // FOLDS)] if self.seed >= FOLDS else []
        return [*where, *when, *self.row.argv(self.dataset)]

    @property
    def command(self) -> str:
        return " ".join(["examples/" + self.row.recipe + ".py", *self.argv])


def jobs(table: str, args: argparse.Namespace) -> list[Job]:
    """The runs of a table, all methods of a seed before the next seed."""
    first = TABLES[table].first
    wanted = [
        Job(row, dataset, clients, first + seed, args.rounds, TABLES[table].repeat)
        for dataset in args.datasets
        for seed in range(args.seeds or SEEDS.get(dataset, 5))
        for row in TABLES[table].rows
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
    module = example(job.row.recipe)
    said = io.StringIO()  # progress bars, and why a recipe refuses its flags
    try:
        with contextlib.redirect_stderr(said):
            report, result = module.main(job.argv)
    except SystemExit as end:
        raise SystemExit(f"{job.command}: {said.getvalue()[-500:] or end}") from end
    entry = {
        "command": job.command,
        **report,
        "dropped_messages": sum(len(record.dropped) for record in result.history),
        "machine": machine(),
    }
    with path.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def scores(table: str, results: dict[str, dict[str, Any]], args: argparse.Namespace) -> Any:
    """``(row name, dataset, clients) -> seed -> {"last", "best_val", ...}`` in percent."""
    found: dict[tuple[str, str, int], dict[int, dict[str, float]]] = defaultdict(dict)
    for job in jobs(table, args):
        if job.command in results:
            metrics = results[job.command]["metrics"]
            value = dict(metrics[TABLES[table].metric])
            for head, other in TABLES[table].also.items():
                value[head] = metrics[other][TABLES[table].key]
            if TABLES[table].validation:
                value["val"] = metrics[TABLES[table].validation]["best_val"]
            key = (job.row.name, job.dataset, job.clients)
            found[key][job.seed] = {name: 100 * v for name, v in value.items()}
    return found


def markdown(table: str, results: dict[str, dict[str, Any]], args: argparse.Namespace) -> str:
    """The table with the paper's cells, mean and standard deviation, and the paired test."""
    found = scores(table, results, args)
    base_name, main_key = TABLES[table].base, TABLES[table].key
    keys = [main_key, *(key for key in LABELS if key != main_key), *TABLES[table].also]
    keys = [key for key in keys if any(key in v for m in found.values() for v in m.values())]
    head = ["dataset", "clients", "method", "paper", *(LABELS.get(key, key) for key in keys)]
    head += ["seeds", f"against {base_name}", "p"]
    out = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for dataset in args.datasets:
        for clients in sorted({1, *TABLES[table].clients}):
            for row in TABLES[table].rows:
                mine = found.get((row.name, dataset, clients))
                if not mine:
                    continue
                means = [spread([v[key] for v in mine.values()]) for key in keys]
                paper = row.paper.get((dataset, clients))
                other = row.base or base_name
                base = found.get((other, dataset, clients), {})
                gain, p = paired(mine, base, main_key) if row.name != other else ("", "")
                cell = f"{paper:.2f}" if paper else ""
                line = [dataset, str(clients), row.name, cell, *means, str(len(mine)), gain, p]
                out.append(f"| {' | '.join(line)} |")
    for row in TABLES[table].rows if TABLES[table].pooled else []:
        mine, base = everywhere(found, row.name), everywhere(found, base_name)
        pairs = len(mine.keys() & base.keys())
        if row.name != base_name and pairs:
            gain, p = paired(mine, base, main_key)
            line = ["all", "", row.name, "", *[""] * len(keys), str(pairs), gain, p]
            out.append(f"| {' | '.join(line)} |")
    return "\n".join(out) + "\n"


def everywhere(found: Any, name: str) -> dict[Any, dict[str, float]]:
    """A row's runs on all datasets, by dataset, clients and seed."""
    return {
        (*where, seed): value
        for (row, *where), runs in found.items()
        if row == name
        for seed, value in runs.items()
    }


def spread(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"


def paired(
    mine: dict[Any, dict[str, float]], base: dict[Any, dict[str, float]], key: str
) -> tuple[str, str]:
    """Mean gain over shared seeds, with its standard error; two-sided Wilcoxon's p."""
    seeds = sorted(mine.keys() & base.keys())
    if not seeds:
        return "", ""
    gains = [mine[seed][key] - base[seed][key] for seed in seeds]
    gain = f"{statistics.mean(gains):+.2f}"
    if len(gains) == 1:
        return gain, ""
    error = statistics.stdev(gains) / len(gains) ** 0.5
    p = wilcoxon(gains).pvalue if any(gains) else 1.0
    return f"{gain} ± {error:.2f}", f"{p:.3f}" if p >= 0.0005 else "< 0.001"


def publish(table: str, text: str) -> None:
    """Put a table between its markers, in the page of ``docs/results`` that has them."""
    mark = f"<!-- {table} -->\n"
    page = next(
        p for p in sorted((ROOT / "docs" / "results").glob("*.md")) if mark in p.read_text()
    )
    before, rest = page.read_text().split(mark)
    after = rest.split("<!-- end -->", 1)[1]
    page.write_text(f"{before}{mark}{text}<!-- end -->{after}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("table", choices=sorted(TABLES))
    add("--datasets", nargs="+", help="default all of the table's")
    add("--clients", nargs="+", type=int, help="default all of the table's")
    add("--seeds", type=int, help="how many; default 5, 3 on pubmed")
    add("--methods", nargs="+", metavar="NAME", help="only these rows, e.g. FedAvg FGSSL")
    add("--rounds", type=int, help="default the table's")
    add("--shard", default="0/1", metavar="I/N")
    add("--threads", type=int, default=1)
    add("--results", type=Path, help="default benchmarks/results/METHOD.jsonl")
    add("--report", action="store_true", help="run nothing, write the table from what is there")
    args = parser.parse_args()
    table = TABLES[args.table]
    args.results = args.results or RESULTS / table.results
    for name in ("datasets", "clients", "rounds"):
        if getattr(args, name) is None:
            setattr(args, name, getattr(table, name))
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
