"""The check of the site finds links that are broken."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from federations import script

pytestmark = pytest.mark.slow

sys.path.append(str(Path(__file__).parents[1] / "docs"))
CHECK: ModuleType = script("docs/site_check.py")

PAGE = """<!doctype html><html><head><title>a page</title><link rel="icon" href="data:,"></head>
<body><h1 id="top">A page</h1><div class="md-content">{}</div></body></html>"""


def site(folder: Path, body: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "index.html").write_text(PAGE.format(body), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("link", "finding"),
    [
        ('<a href="other/">', "link to a page that is missing: other/"),
        ('<a href="#nowhere">', "link to a heading that is missing: #nowhere"),
        ('<script src="https://example.org/a.js"></script>', "fetched from elsewhere"),
        ('<a href="#top"><a href="https://example.org">', None),
    ],
)
def test_links_are_followed(tmp_path: Path, link: str, finding: str | None) -> None:
    pages = CHECK.read(site(tmp_path, link))
    found = list(CHECK.broken(tmp_path, pages))
    assert len(found) == (finding is not None)
    assert finding is None or finding in found[0]
