"""The wire table: every method has its rows, no key is missing, and docs/privacy.md has each."""

from functools import cache
from pathlib import Path

import pytest
from conformance import ROWS, case
from federations import script

WIRE = script("benchmarks/reliability/wire.py")
ROOT = Path(__file__).parents[1]
PAGE, SHORT = ROOT / "benchmarks/results/tables/wire.md", ROOT / "docs/privacy.md"
OF = {  # rows of the conformance table that are another's variants, by how their names begin
    "adaptive fedprox": "fedprox",
    "fedsage plus": "fedsage-plus-generators",
    "your own": "fedprox",
}
ALONE = [name for name in ROWS if " of " not in name]


def known_as(name: str) -> str:
    """What the wire table calls a row of the conformance table."""
    known = [*OF, *WIRE.cases()]
    fits = [each for each in known if f"{name} ".startswith(f"{each.replace('-', ' ')} ")]
    assert fits, f"give {name} a case in benchmarks/reliability/wire.py, and run it"
    longest = max(fits, key=len)
    return OF.get(longest, longest)


@cache
def table() -> dict[str, set[tuple[str, str]]]:
    """Method to the directions and keys of its rows, as the page has them."""
    text = PAGE.read_text(encoding="utf-8").split("<!-- wire -->")[1].split("<!-- end -->")[0]
    found: dict[str, set[tuple[str, str]]] = {}
    names: list[str] = []
    for line in text.strip().splitlines()[2:]:
        who, way, key, shape, size, reads = [cell.strip() for cell in line.strip("|").split("|")]
        names = [name.strip() for name in who.split(", ")] if who else names
        assert reads and (shape or way == "before") and int(size.replace(",", "")) >= 0
        for name in names:
            found.setdefault(name, set()).add((way, key.strip("`")))
    return found


def test_the_page_on_privacy_has_every_upload_beside_the_model_and_the_count() -> None:
    lines = SHORT.read_text(encoding="utf-8").splitlines()
    short = [line.strip("|").split(" | ") for line in lines if line.startswith("| ")]
    shown = {
        (method.strip(), key)
        for names, keys, *_ in (cells for cells in short if len(cells) == 3)
        for method in names.split(", ")
        for key in keys.replace("`", "").split(", ")
    }
    asked = {
        (method, key)
        for method, keys in table().items()
        for way, key in keys
        if way == "up" and key not in ("model", "num_examples")
    }
    assert asked - shown == set()


def test_every_method_of_the_table_has_a_case_and_a_row() -> None:
    assert {WIRE.NAMES.get(name, name) for name in WIRE.cases()} == set(table())
    assert {WIRE.NAMES.get(known_as(name), known_as(name)) for name in ALONE} <= set(table())


@pytest.mark.parametrize("name", ALONE)
def test_no_key_is_missing(name: str) -> None:
    method, made = case(name, ROWS[name].tasks[0], dropout=0.0)
    called = known_as(name)
    rounds = max(3 if method.rules.exchange > 1 else 1, method.rules.rounds)
    sent = {part[:2] for part in WIRE.exchanged(method, made, rounds)}
    assert sent <= table()[WIRE.NAMES.get(called, called)]
