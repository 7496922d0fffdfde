"""A paper's table, run: methods x datasets x clients x seeds, beside the paper's cells.

    python benchmarks/reproduce.py fgssl-table1 --seeds 10 --datasets cora citeseer
    python benchmarks/reproduce.py fgssl-table1 --report

Every finished run is one line of ``benchmarks/results/fgssl.jsonl``; a run that is there is not
made again, so an interrupted table goes on where it was. ``--shard 0/2`` and ``--shard 1/2`` divide
the runs between two processes. ``--report`` only writes the table into its page of
``benchmarks/results/tables``, of all runs that are there.
"""

import argparse
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.commands import command
from harness.flags import arguments, flag
from harness.machine import RESULTS
from harness.record import execute, load
from harness.report import Scored, markdown, publish, scores
from harness.rows import Experiment, Row, spelled
from papers import TABLES

SEEDS = {"pubmed": 3}
MOST_RUNS = 15  # of a row; there are ten seeds at most, or three draws of five folds


@dataclass(frozen=True)
class Job:
    """One run of a table."""

    row: Row
    dataset: str
    clients: int
    number: int
    experiment: Experiment

    @property
    def key(self) -> str:
        return spelled(self.experiment.key)


def jobs(name: str, args: argparse.Namespace) -> list[Job]:
    """The runs of a table, all methods of a seed before the next seed."""
    table = TABLES[name]
    values = {"threads": args.threads} | ({"rounds": args.rounds} if args.rounds else {})
    wanted = [
        (row, dataset, clients, table.first + number)
        for dataset in args.datasets or table.datasets
        for number in range(args.seeds or min(table.seeds, SEEDS.get(dataset, table.seeds)))
        for row in table.rows
        if not args.methods or row.name in args.methods
        for cell_dataset, clients in row.paper
        if cell_dataset == dataset and (clients in (args.clients or table.clients) or clients == 1)
    ]
    index, count = (int(part) for part in args.shard.split("/"))
    return [
        Job(*job, table.at(*job, **values)) for i, job in enumerate(wanted) if i % count == index
    ]


def scored(name: str, results: dict[str, dict[str, Any]], args: argparse.Namespace) -> Scored:
    """The scores of all runs that are there."""
    found: Scored = defaultdict(dict)
    for job in jobs(name, args):
        if job.key in results:
            entry = results[job.key]
            found[job.row.name, job.dataset, job.clients][job.number] = scores(TABLES[name], entry)
    return found


def parsed(argv: list[str] | None = None) -> argparse.Namespace:
    args = arguments(
        argv,
        json=False,
        table=flag(str, choices=sorted(TABLES), positional=True),
        datasets=flag(str, "default all of the table's", nargs="+"),
        clients=flag(int, "default all of the table's", nargs="+"),
        seeds=flag(int, "how many; default the table's, at most 3 on pubmed"),
        methods=flag(str, "only these rows, e.g. FedAvg FGSSL", nargs="+", metavar="NAME"),
        rounds=flag(int, "default the row's or the table's"),
        shard=flag("0/1", metavar="I/N"),
        threads=1,
        results=flag(Path, "default benchmarks/results/METHOD.jsonl"),
        report=False,
    )
    args.results = args.results or RESULTS / TABLES[args.table].results
    return args


def text(args: argparse.Namespace, results: dict[str, dict[str, Any]]) -> str:
    """The table of the runs that are there, by default of all."""
    table, most = TABLES[args.table], {}
    if args.report and not args.seeds and not table.folds:  # GPFL's further draws are a table
        most = {"seeds": MOST_RUNS}
    shown = argparse.Namespace(**{**vars(args), "shard": "0/1", "methods": None, **most})
    found = scored(args.table, results, shown)
    return markdown(table, found, args.datasets or table.datasets)


def main(argv: list[str] | None = None) -> None:
    args = parsed(argv)
    if not args.report:
        for job in jobs(args.table, args):
            if job.key not in load(args.results):
                execute(job.experiment, command(job.experiment, TABLES), args.results)
    made = text(args, load(args.results))
    if args.report:
        publish(args.table, made)
    sys.stdout.write(made)


if __name__ == "__main__":
    main()
