"""The tables of `benchmarks/reproduce.py`: every row has flags that its recipe takes."""

from __future__ import annotations

import argparse
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


@pytest.mark.parametrize("table", sorted(reproduce.TABLES))
def test_flags(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_args

    def parsed(self: argparse.ArgumentParser, argv: Any) -> None:
        raise Parsed(parse(self, argv))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parsed)
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
