"""The notebooks as they are kept: with outputs and without junk. `make notebooks` runs them."""

import json
from pathlib import Path
from typing import Any

import pytest
from federations import script

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    whole = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in whole["cells"] if cell["cell_type"] == kind]


@each
def test_a_notebook_was_executed_from_top_to_bottom_and_has_a_plot(path: Path) -> None:
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@each
def test_a_notebook_shows_no_warning_no_error_and_no_path(path: Path) -> None:
    run: Any = script("docs/notebooks/run.py")
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert run.problems(notebook) == []
    assert notebook == run.tidy(json.loads(path.read_text(encoding="utf-8")))
    for told in ("in /home/somebody/fgl", "UserWarning: beware"):
        bad = {"output_type": "stream", "name": "stdout", "text": ["fine\n", told]}
        notebook["cells"][1]["outputs"] = [bad]
        assert len(run.problems(notebook)) == 1
