"""The tables of `benchmarks/reproduce.py`: every row has flags that its recipe takes."""

from __future__ import annotations

import argparse
import json
import sys
from functools import cache
from typing import Any

import pytest
from federations import ROOT, script

import fgl

sys.path.insert(0, str(ROOT / "benchmarks"))
import reproduce

recipe_of = cache(lambda name: script(f"examples/{name}.py"))


class Parsed(Exception):
    """A recipe took its flags."""


@pytest.fixture
def parse_only(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_args

    def parsed(self: argparse.ArgumentParser, argv: Any) -> None:
        raise Parsed(parse(self, argv))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)


@pytest.mark.parametrize("table", sorted(reproduce.TABLES))
def test_flags(table: str, parse_only: None) -> None:
    known = reproduce.TABLES[table]
    every = {name: getattr(known, name) for name in ("datasets", "clients", "rounds")}
    args = argparse.Namespace(**every, methods=None, shard="0/1", seeds=1)
    jobs = reproduce.jobs(table, args)
    assert {job.row.name for job in jobs} == {row.name for row in known.rows}
    for job in jobs:
        with pytest.raises(Parsed) as got:
            recipe_of(job.row.recipe).main(job.argv)
        flags = got.value.args[0]
        assert (flags.dataset, flags.clients) == (job.dataset, job.clients)
        if "proportions" in flags and not flags.centralized:
            assert len(fgl.data.PROPORTIONS[flags.proportions]) == flags.clients


def test_published_commands_still_parse(parse_only: None) -> None:
    lines = [line for p in reproduce.RESULTS.glob("*.jsonl") for line in p.read_text().splitlines()]
    commands = {json.loads(line)["command"] for line in lines}
    curves = json.loads((reproduce.RESULTS / "fedvgae-convergence.json").read_text())
    commands |= {f"examples/fedvgae.py {flags}" for flags in curves}
    assert len(commands) > 900
    for command in sorted(commands):
        recipe, *flags = command.split()
        with pytest.raises(Parsed):
            recipe_of(recipe.removeprefix("examples/").removesuffix(".py")).main(flags)


def test_runs_of_folds_are_splits_of_five() -> None:
    row = reproduce.TABLES["gpfl-table2"].rows[0]
    flags = [reproduce.Job(row, "PROTEINS", 25, run, 9, "--fold").argv[6:10] for run in (4, 5, 11)]
    assert flags[0] == ["--fold", "4", "--alpha", "5"]
    assert flags[1:] == [["--fold", "0", "--seed", "1"], ["--fold", "1", "--seed", "2"]]


def test_second_draw_is_of_seed_1() -> None:
    known = reproduce.TABLES["gpfl-second-draw"]
    every = {name: getattr(known, name) for name in ("datasets", "clients", "rounds")}
    args = argparse.Namespace(**every, methods=None, shard="0/1", seeds=None)
    runs = {tuple(job.argv[6:10]) for job in reproduce.jobs("gpfl-second-draw", args)}
    assert runs == {("--fold", str(fold), "--seed", "1") for fold in range(5)}
