"""The recipes from the command line: report, repetition, checkpoints, presets."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import REPORT, end, printed, same, script

from fgl.experiment import cli

pytestmark = pytest.mark.slow

SMALL = ["--rounds", "2", "--hidden", "8"]
VARIANTS = {
    "fgssl": ("fgssl", [*SMALL, "--clients", "3", "--model", "gcn"]),
    "fnsc": ("fgssl", [*SMALL, "--clients", "3", "--model", "gcn", "--lambda-d", "0"]),
    "fedgl": ("fedgl", [*SMALL, "--proportions", "0.3", "0.4"]),
    "fedego": ("fedego", [*SMALL, "--clients", "2", "--steps", "1"]),
    "links": ("fedvgae", ["links", *SMALL, "--clients", "3", "--partition", "random"]),
    "nodes": ("fedvgae", ["nodes", *SMALL, "--clients", "3", "--partition", "random"]),
    "gpfl": ("gpfl", [*SMALL, "--clients", "4"]),
}
ALIKE = ("fnsc", "nodes")  # another one has the same code


def go(name: str, *argv: str) -> tuple[dict[str, Any], Any]:
    """A recipe with these flags: its report and result."""
    module = script(f"examples/{name}.py")
    if name == "baseline":
        return module.main(list(argv))
    mains = {"links": module.links, "nodes": module.nodes} if name == "fedvgae" else module.main
    presets = getattr(module, "PRESETS", None)
    return cli(mains, presets=presets, argv=list(argv))


@pytest.mark.parametrize(
    "variant", [n if n not in ALIKE else pytest.param(n, marks=pytest.mark.slow) for n in VARIANTS]
)
def test_report_and_repetition(variant: str, tmp_path: Path) -> None:
    """The JSON has the promised keys; the same seed gives the same run, another one another."""
    name, flags = VARIANTS[variant]
    path = tmp_path / "results" / "out.json"
    torch.manual_seed(1)
    report, result = go(name, *flags, "--json", str(path))
    assert json.loads(path.read_text()) == json.loads(json.dumps(report))
    assert list(report) == REPORT
    assert (report["recipe"], report["dataset"], report["rounds"]) == (name, "synthetic", 2)
    assert report["metrics"]
    assert report["bytes_up"] == sum(record.bytes_up for record in result.history)
    taken = {"recipe", "dataset", "clients", "rounds", "seed", "json", "checkpoint", "device"}
    assert not taken & set(report["config"])
    torch.manual_seed(2)
    again, same_result = go(name, *flags)
    assert {**again, "seconds_per_round": 0} == {**report, "seconds_per_round": 0}
    assert same(end(same_result), end(result))
    _, other = go(name, *flags, "--seed", "4")
    assert not same(end(other), end(result))


@pytest.mark.parametrize("variant", ["fgssl", "fedgl", "gpfl"])
def test_interrupted_recipe_goes_on(variant: str, tmp_path: Path) -> None:
    name, flags = VARIANTS[variant]
    whole = go(name, *flags)[1]
    folder = ["--checkpoint", str(tmp_path)]
    go(name, *flags, "--rounds", "1", *folder)
    assert same(end(go(name, *flags, *folder)[1]), end(whole))


def test_recipe_is_a_script(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    out = printed("examples/fgssl.py", *VARIANTS["fgssl"][1], "--json", str(path))
    assert "\nfgssl synthetic: test_accuracy last " in out
    assert json.loads(path.read_text())["recipe"] == "fgssl"


@pytest.mark.skipif("FGL_DATA" not in os.environ, reason="FGL_DATA does not name a data folder")
def test_a_dataset_alone_gives_its_published_setting() -> None:
    report, result = go("fgssl", "--dataset", "cora", "--rounds", "1", "--hidden", "8")
    assert report["config"]["lambda_c"] == 0.5
    assert report["config"]["split"] == "random"
    # GAT 1433 -> 8 -> 7: two weights, two attention vectors and a bias per layer.
    numbers = (1433 * 8 + 3 * 8) + (8 * 7 + 3 * 7)
    assert report["bytes_down"] == 5 * 4 * numbers
    assert report["bytes_up"] == 5 * (4 * numbers + 8)
    assert result.history[0].dropped == {}
