"""The check of the site finds what is broken: without a browser, and in one."""

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
BROKEN = {
    "wider than the window": '<div style="width: 2000px">wide</div>',
    "out of the window": '<div style="position: relative; left: 3000px">out</div>',
    "cut off": '<div style="overflow: hidden; width: 50px; white-space: nowrap">a long line</div>',
    "missing picture": '<img src="nothing.png">',
    "error in a script": "<script>undefined.name</script>",
    "error on the console": '<script>console.error("oh")</script>',
    "request to elsewhere": '<script>fetch("http://127.0.0.1:9/").catch(() => 0)</script>',
    "formula that is not set": '<span class="arithmatex">x</span>',
}


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


def test_a_browser_finds_what_is_broken(tmp_path: Path) -> None:
    pytest.importorskip("websockets")
    chromium = CHECK.executable()
    if chromium is None:
        pytest.skip("there is no Chromium")
    with CHECK.served(tmp_path) as home, CHECK.browser(chromium) as tab:
        site(tmp_path, '<p>whole</p><a href="https://example.org">elsewhere</a>')
        assert list(CHECK.looked_at(tab, home, "", None)) == []
        for i, (finding, body) in enumerate(BROKEN.items()):
            site(tmp_path / f"{i}", body)
            found = list(CHECK.looked_at(tab, home, f"{i}/", tmp_path / "pictures"))
            assert any(finding in line for line in found), (finding, found)
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 4 * len(BROKEN)
