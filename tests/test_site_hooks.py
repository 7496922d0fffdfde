"""What the site is made of: the link to its repository, and the pages of notebooks."""

import base64
import re
from pathlib import Path

import pytest
from federations import script

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
REPOSITORY = script("docs/hooks/repository.py")
NOTEBOOKS = script("docs/hooks/notebooks.py")


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://me:secret@example.org/group/fgl.git", "https://example.org/group/fgl"),
        ("git@example.org:group/fgl.git", "https://example.org/group/fgl"),
        ("ssh://git@example.org:22/group/fgl", "https://example.org/group/fgl"),
        ("/home/me/fgl", None),
        ("", None),
    ],
)
def test_the_repository_is_linked_without_passwords(remote: str, address: str | None) -> None:
    assert REPOSITORY.web_address(remote) == address


def test_a_notebook_is_a_page_with_its_outputs() -> None:
    picture = base64.b64encode(b"a picture").decode()
    outputs = [
        {"output_type": "stream", "text": ["\x1b[31mone\x1b[0m\n", "two\n"]},
        {"output_type": "display_data", "data": {"image/png": picture, "text/plain": "<Figure>"}},
        {"output_type": "execute_result", "data": {"text/plain": "3"}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# A title\n", "\n", "Words."]},
        {"cell_type": "code", "source": "print(1)", "outputs": outputs},
        {"cell_type": "code", "source": "", "outputs": []},
    ]
    text, pictures = NOTEBOOKS.page({"cells": cells}, "own")
    assert pictures == {"own-0.png": b"a picture"}
    assert text.startswith("# A title\n\nWords.\n\nThis page is a [notebook](own.ipynb)")
    blocks = [
        "```python\nprint(1)\n```",
        "```text\none\ntwo\n```",
        "](own-0.png)",
        "```text\n3\n```",
    ]
    assert [block in text for block in blocks] == [True] * 4


def test_the_settings_fetch_nothing_from_elsewhere() -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in settings
    assert not re.search(r"https?://", settings)
    for path in (ROOT / "docs/theme").rglob("*.*"):
        assert not re.search(
            r"https?://|@import|data-md-component=.source", path.read_text("utf-8")
        )
