"""What the site is made of: the link to its repository, and its own files alone."""

import re
from pathlib import Path

import pytest
from federations import script

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
REPOSITORY = script("docs/hooks/repository.py")


@pytest.mark.parametrize(("remote", "address"), [
    ("https://me:secret@example.org/group/fgl.git", "https://example.org/group/fgl"),
    ("git@example.org:group/fgl.git", "https://example.org/group/fgl"),
    ("ssh://git@example.org:22/group/fgl", "https://example.org/group/fgl"),
    ("/home/me/fgl", None), ("", None),
])  # fmt: skip
def test_the_repository_is_linked_without_passwords(remote: str, address: str | None) -> None:
    assert REPOSITORY.web_address(remote) == address


def test_the_settings_fetch_nothing_from_elsewhere() -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in settings
    assert not re.search(r"https?://", settings)
    for path in (ROOT / "docs/theme").rglob("*.*"):
        assert not re.search(
            r"https?://|@import|data-md-component=.source", path.read_text("utf-8")
        )


def test_a_number_stays_with_its_error() -> None:
    joined = script("docs/hooks/spaces.py").on_page_content
    assert joined("<p>1.2 ± .3 or &lt; 4<pre>1 ± 2</pre>") == (
        "<p>1.2&nbsp;±&nbsp;.3 or &lt;&nbsp;4<pre>1 ± 2</pre>"
    )
