"""Every public name is documented with an example, and the code in the documents runs."""

import inspect
import re
from pathlib import Path

import pytest
from federations import script

import fgl

ROOT = Path(__file__).parents[1]
HOOK = script("docs/hooks/reference.py")
FORMULAS = script("docs/hooks/formulas.py")
DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
PAGES = [ROOT / "README.md", *sorted(set((ROOT / "docs").rglob("*.md")) - set(DECISIONS))]


DOCUMENTED = {
    path: value
    for exports in [HOOK.public(fgl), *map(HOOK.words, HOOK.ROOMS)]
    for path, value in exports.items()
    if inspect.isfunction(value) or inspect.isclass(value)
}


def test_public_names_have_a_docstring_with_an_example() -> None:
    assert not [name for name, value in DOCUMENTED.items() if ">>>" not in (value.__doc__ or "")]


def test_reference_has_every_room_once() -> None:
    rooms = [room for group in HOOK.groups().values() for room in group]
    assert sorted(rooms) == HOOK.ROOMS
    assert ":::" not in (ROOT / "docs/reference.md").read_text(encoding="utf-8")


def test_reference_shows_the_names() -> None:
    pages = {room: HOOK.page(room) for room in HOOK.ROOMS}
    for value in DOCUMENTED.values():
        room = value.__module__.split(".")[1]
        assert f"::: {value.__module__}.{value.__name__}\n" in pages[room]


def test_a_guide_opens_with_ten_lines_and_a_newcomers_script_has_less_than_25() -> None:
    scripts = {"pairs_and_time", "forecast", "positions", "tables", "knowledge_graphs"}
    others = {"fairness", "phases", "use_the_model", "client_data", "recommender"}
    for name in scripts | others:
        text = (ROOT / f"docs/guides/{name}.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        sizes = [sum(map(bool, block.split("\n"))) for block in blocks]
        assert sizes[0] <= 10, name
        runs = [n for n, block in zip(sizes, blocks, strict=True) if "fgl.run(" in block]
        assert name in others or (runs and max(runs) < 25), name
        assert name != "fairness" or len(text.splitlines()) <= 40


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=str(page.relative_to(ROOT)),
            marks=() if page.name in ("README.md", "tutorial.md") else pytest.mark.slow,
        )
        for page in PAGES
    ],
)
def test_code_in_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ```python blocks of a page run from top to bottom, as one script."""
    blocks = re.findall(
        r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    if page.name == "README.md":
        assert blocks
    if any("fgl.plot(" in block for block in blocks):
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), str(page), "exec"), {"__name__": "__main__"})


def test_the_index_of_decisions_has_each_once_with_its_title() -> None:
    index = (ROOT / "docs/decisions/index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[(.+)\]\((\S+)\)$", index, re.MULTILINE)
    written = []
    for page in DECISIONS:
        title, date, text = page.read_text(encoding="utf-8").split("\n\n", 2)
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", date), page.name
        assert text.strip(), page.name
        written.append((title.removeprefix("# "), page.name))
    assert sorted(listed) == sorted(written)


@pytest.mark.parametrize(("plain", "tex"), [
    ("1/2 ||theta - u_i||^2", r"1/2 \| \theta  - u_{i}\| ^{2}"),
    ("D^-1/2 (A + I) D^-1/2", r"D^{-1/2} (A + I)\,D^{-1/2}"),
    ("sum_{j != i} A_ij x_j", r"\sum _{j \ne  i} A_{ij}\ x_{j}"),
    ("1 / sqrt(2 noise_multiplier)", r"1 / \sqrt{2\ \mathrm{noise\_multiplier}}"),
])  # fmt: skip
def test_a_formula_of_a_docstring_is_set(plain: str, tex: str) -> None:
    assert FORMULAS.is_formula(plain)
    assert FORMULAS.tex(plain) == tex


@pytest.mark.parametrize(
    "code", ["[num_nodes, d + 1]", "num_rounds=40", "edge_attr [E]", "fgl.run(a, b)", "(x) -> y"]
)
def test_code_in_a_docstring_stays_code(code: str) -> None:
    assert FORMULAS.with_tex(f"``{code}``") == f"``{code}``"


def test_every_formula_has_as_many_braces_open_as_closed() -> None:
    files = [path.read_text(encoding="utf-8") for path in (ROOT / "fgl").rglob("*.py")]
    spans = {" ".join(span.split()) for text in files for span in re.findall("``([^`]+)``", text)}
    set_ones = [FORMULAS.tex(span) for span in spans if FORMULAS.is_formula(span)]
    assert len(set_ones) > 100
    for tex in set_ones:
        bare = re.sub(r"\\[{}]", "", tex)
        assert bare.count("{") == bare.count("}"), tex
