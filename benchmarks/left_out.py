"""Runs that the tables ask for and that nobody has made yet, counted beside the tables.

    python benchmarks/left_out.py              print the list
    python benchmarks/left_out.py --report     write it into benchmarks/results/tables/left_out.md

A table's missing runs are made by ``python benchmarks/reproduce.py TABLE``.
"""

import sys

import reproduce
from harness.flags import arguments
from harness.record import load
from harness.report import publish
from papers import TABLES


def line(name: str) -> str:
    """A table's runs: how many are there, how many are asked, which rows have none."""
    args = reproduce.parsed([name])
    found = load(args.results)
    jobs = reproduce.jobs(name, args)
    there = [job for job in jobs if job.key in found]
    begun = {job.row.name for job in there}
    none = dict.fromkeys(job.row.name for job in jobs if job.row.name not in begun)
    rows = "; ".join(none) if begun else "all"
    return f"| `{name}` | {len(there)} | {len(jobs)} | {rows if none else ''} |"


def text() -> str:
    """Every table that is not whole, a line each."""
    lines = [line(name) for name in sorted(TABLES)]
    left = [each for each in lines if each.split(" | ")[1] != each.split(" | ")[2]]
    head = "| table | runs there | asked | rows without a run |\n|---|---|---|---|\n"
    return f"{head}{chr(10).join(left)}\n\nThe other {len(lines) - len(left)} tables are whole.\n"


def main() -> None:
    args, page = arguments(json=False, report=False), text()
    if args.report:
        publish("left-out", page)
    sys.stdout.write(page)


if __name__ == "__main__":
    main()
