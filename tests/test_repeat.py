"""Recipes over seeds: `--seeds` and `--plot`."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from federations import end, same, script

from fgl.experiment import Run, cli

SMALL = ["fedavg", "louvain-nodes", "--rounds", "2", "--hidden", "4", "--clients", "3"]
SMALL += ["--partition", "random", "--model", "gcn"]


ANNOUNCED = "ignore:--seeds and Run:FutureWarning"  # of every test with several seeds


def go(*flags: str) -> Any:
    return script("examples/baseline.py").main([*SMALL, *flags])


def test_several_seeds_go_with_the_next_release() -> None:
    with pytest.warns(FutureWarning, match=r"fgl\.compare and fgl\.study"):
        go("--seeds", "2")


@pytest.mark.filterwarnings(ANNOUNCED)
@pytest.mark.slow
def test_a_recipe_over_seeds_is_a_loop(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    single = [go("--seed", str(seed)) for seed in (2, 3)]
    capsys.readouterr()
    path, picture, folder = tmp_path / "a" / "out.json", tmp_path / "out.png", tmp_path / "folder"
    how = ["--seed", "2", "--seeds", "2", "--json", str(path), "--checkpoint", str(folder)]
    made = go(*how, "--plot", str(picture))
    printed = capsys.readouterr().out.splitlines()
    for (report, result), (other, its) in zip(single, made, strict=True):
        assert {**report, "seconds_per_round": 0} == {**other, "seconds_per_round": 0}
        assert same(end(result), end(its))
    scores = [report["metrics"]["test_accuracy"]["last"] for report, _ in single]
    mean, deviation = statistics.fmean(scores), statistics.stdev(scores)
    line = f"fedavg synthetic, 2 seeds: test_accuracy last {mean:.4f} ± {deviation:.4f}, best val"
    assert any(each.startswith(line) for each in printed)
    written = json.loads(path.read_text())
    assert written["seeds"] == [2, 3] and len(written["runs"]) == 2
    assert written["metrics"]["test_accuracy"]["last"] == [mean, deviation]
    assert sorted(each.name for each in folder.iterdir()) == ["seed-2", "seed-3"]
    assert picture.stat().st_size > 1000
    again = go(*how)  # all rounds are there
    assert same(end(again[1][1]), end(made[1][1]))


@pytest.mark.filterwarnings(ANNOUNCED)
def test_a_picture_that_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags in (["--plot", str(tmp_path)], ["--seeds", "2", "--plot", str(tmp_path)]):
        with pytest.raises(SystemExit):
            go(*flags)
        assert "--plot: Expected plot to name a file, but got the folder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        go("--seeds", "0")
    assert "Expected seeds to be an integer >= 1, but got 0" in capsys.readouterr().err


@pytest.mark.filterwarnings(ANNOUNCED)
def test_a_main_over_seeds_returns_what_its_run_returned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def main(run: Run = Run()) -> int:
        """Nothing.

        Args:
            run: Ignored.
        """
        return run.seed

    assert cli(main, argv=["--seed", "3"]) == 3
    with pytest.raises(SystemExit):
        cli(main, argv=["--seeds", "2"])
    said = capsys.readouterr().err
    assert "Expected main to return what its Run returned" in said and "but got int" in said


def test_a_run_that_is_called_has_one_seed() -> None:
    with pytest.raises(ValueError, match="Expected seeds to be 1 where a Run is called"):
        Run(seeds=2)(None, None)  # type: ignore[arg-type]
