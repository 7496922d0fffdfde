"""The Flower executor: the bits of the loop, and what happens when nodes fail."""

from __future__ import annotations

from typing import Any

import pytest
from federations import end, same

import fgl

pytest.importorskip("flwr")

from conformance import case
from flower_grid import Grid, apps, kept

from fgl.federation import Flower

QUICK: dict[str, Any] = {"poll": 0.001, "timeout": 20.0}


def flower(grid: Grid, **options: Any) -> Flower:
    return Flower(grid, num_clients=len(grid.apps), **{**QUICK, **options})


RECIPES = [
    ("fedavg", "nodes"),
    ("fgssl", "nodes"),
    ("fedgl", "overlapping"),
    ("fedego", "ego"),
    ("gpfl", "graphs"),
    ("fedvgae", "own"),
    ("fedper", "nodes"),
    ("fedamp", "graphs"),
    ("fedopt adam", "links"),
]


@pytest.mark.parametrize(("name", "task"), RECIPES)
def test_the_bits_are_those_of_the_loop(name: str, task: str, tmp_path: Any) -> None:
    method, setting = case(name, task)
    here = end(fgl.run(method, setting.clients, num_rounds=3, seed=5))
    grid = Grid(apps(method, setting.clients), state=str(tmp_path))
    result = fgl.run(method, on=flower(grid), num_rounds=3, seed=5)
    there = end(result)
    for part in ("outbox", "server", "history"):
        assert same(there[part], here[part]), part
    states = {client: state for client, state in here["clients"].items() if state}
    assert same(kept(tmp_path, result.client_states), states)
