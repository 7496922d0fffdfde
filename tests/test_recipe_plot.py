"""A recipe's picture: `--plot`."""

from pathlib import Path
from typing import Any

import pytest
from federations import script

SMALL = ["fedavg", "louvain-nodes", "--rounds", "2", "--hidden", "4", "--clients", "3"]
SMALL += ["--partition", "random", "--model", "gcn"]


def go(*flags: str) -> Any:
    return script("examples/baseline.py").main([*SMALL, *flags])


def test_a_recipe_draws_its_run(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    go("--plot", str(tmp_path / "new" / "one.png"))
    assert (tmp_path / "new" / "one.png").stat().st_size > 1000


def test_a_picture_that_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        go("--plot", str(tmp_path))
    assert "--plot: Expected plot to name a file that can be" in capsys.readouterr().err
