"""Looks at every page of the built site in a browser, and follows every link.

    python docs/site_check.py [site] [--pictures FOLDER] [--only reference/]

Each page is opened in a headless Chromium, at two widths, light and dark. The check fails where a
page is wider than the window, where something is cut off, where a picture, a page or a heading that
is linked is missing, where the console has an error, and where anything is fetched from elsewhere.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urljoin, urlsplit

from browser import Tab, browser, executable

WIDTHS = {"wide": (1366, 900), "narrow": (390, 844)}
SCHEMES = {"light": "default", "dark": "slate"}
LOADED = {  # what a browser fetches to show a page, by tag and attribute
    ("script", "src"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("link", "href"),
}
# Whatever sticks out of the window, or of a box that hides its overflow.
PROBE = """(() => {
  const name = e => e.tagName.toLowerCase() + (e.id ? '#' + e.id : '')
    + (typeof e.className === 'string' && e.className ? '.' + e.className.split(' ')[0] : '');
  const found = [], width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width + 1)
    found.push(`wider than the window: ${document.documentElement.scrollWidth} of ${width}`);
  const inner = ':not(pre *, code *, svg *, mjx-container *)';
  for (const e of document.querySelectorAll(`.md-content ${inner}, .md-footer ${inner}`)) {
    const style = getComputedStyle(e), box = e.getBoundingClientRect();
    if (!box.width || style.visibility === 'hidden') continue;
    const cuts = ['hidden', 'clip'].includes(style.overflowX) && e.clientWidth > 1;
    if (cuts && e.scrollWidth > e.clientWidth + 1)
      found.push(`cut off: ${name(e)}, ${e.scrollWidth} of ${e.clientWidth}`);
    if (box.right > width + 1) {
      let outer = e.parentElement;
      while (outer && !['auto', 'scroll'].includes(getComputedStyle(outer).overflowX))
        outer = outer.parentElement;
      if (!outer) found.push(`out of the window: ${name(e)}, ${Math.round(box.right)} of ${width}`);
    }
  }
  for (const image of document.images)
    if (image.complete && !image.naturalWidth) found.push(`missing picture: ${image.src}`);
  for (const e of document.querySelectorAll('mjx-merror, .arithmatex'))
    if (e.tagName === 'MJX-MERROR' || !e.querySelector('mjx-container'))
      found.push(`formula that is not set: ${e.textContent.slice(0, 40)}`);
  return found.slice(0, 5);
})()"""
AT_ONCE = """(() => {  // colours would fade from light to dark
  const style = document.createElement('style');
  style.textContent = '* { transition: none !important; animation: none !important; }';
  document.head.append(style);
})()"""
SEARCH = """(async () => {
  const field = document.querySelector('.md-search__input');
  field.focus(); field.value = 'FedProx'; field.dispatchEvent(new Event('input', {bubbles: true}));
  field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));
  for (let i = 0; i < 100; i++) {
    await new Promise(done => setTimeout(done, 100));
    if (document.querySelector('.md-search-result__item')) return true;
  }
  return false;
})()"""


class Document(HTMLParser):
    """The links, the headings' names and the fetched addresses of one HTML file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = {"", "__skip"}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif (tag, name) in LOADED and ("rel", "canonical") not in attrs:
                self.loads.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


def read(site: Path) -> dict[str, Document]:
    """All pages by their address within the site."""
    return {
        path.relative_to(site).as_posix().removesuffix("index.html"): Document(path)
        for path in sorted(site.rglob("*.html"))
    }


def broken(site: Path, pages: dict[str, Document]) -> Iterator[str]:
    """Links to pages, files or headings that are not there, and addresses that are elsewhere."""
    for address, document in pages.items():
        base = "/" if address == "404.html" else f"/{address}"
        for load in document.loads:
            if urlsplit(load).scheme not in ("", "data"):
                yield f"{address}: fetched from elsewhere: {load}"
        for link in [*document.links, *document.loads]:
            parts = urlsplit(urljoin(base, link))
            if parts.scheme or parts.netloc:
                continue
            target = unquote(parts.path).lstrip("/")
            if target.endswith("index.html"):
                target = target.removesuffix("index.html")
            if target not in pages and not (site / target).is_file():
                yield f"{address}: link to a page that is missing: {link}"
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{address}: link to a heading that is missing: {link}"


def looked_at(tab: Tab, home: str, address: str, pictures: Path | None) -> Iterator[str]:
    """What is wrong with a page in the browser."""
    tab.resize(*WIDTHS["wide"])
    tab.open(home + address)
    tab.ask(AT_ONCE)
    for width, size in WIDTHS.items():
        tab.resize(*size)
        for scheme, value in SCHEMES.items():
            tab.ask(f"document.body.setAttribute('data-md-color-scheme', '{value}')")
            yield from (f"{address} ({width}, {scheme}): {found}" for found in tab.ask(PROBE))
            if pictures is not None:
                name = address.strip("/").replace("/", "-") or "home"
                tab.picture(pictures / f"{name}-{width}-{scheme}.png")
    yield from (f"{address}: {found}" for found in tab.complaints(home))


@cache
def without_pages(index: Path) -> bytes:
    """The index of the search as if there were no page."""
    return json.dumps({**json.loads(index.read_text(encoding="utf-8")), "docs": []}).encode()


class Quiet(SimpleHTTPRequestHandler):
    """Serves a site. Each page would index all others for its search; until asked, it gets none."""

    searchable = False

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        if not self.path.endswith("search_index.json") or Quiet.searchable:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(without_pages(Path(self.translate_path(self.path))))


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The address of the site on this machine, while the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Look at every page of the built site.")
    parser.add_argument("site", type=Path, nargs="?", default=Path("site"))
    parser.add_argument("--pictures", type=Path, help="a folder for a picture of every page")
    parser.add_argument("--only", default="", help="only the pages whose address begins with this")
    args = parser.parse_args()
    pages = read(args.site)
    if not pages:
        sys.exit(f"Expected {args.site} to hold a built site, but got no page: run make docs")
    found = list(broken(args.site, pages))
    chromium = executable()
    if chromium is None:
        print("no Chromium: the pages were not looked at, only their links followed")
    else:
        with served(args.site) as home, browser(chromium) as tab:
            for address in (page for page in pages if page.startswith(args.only)):
                found += looked_at(tab, home, address, args.pictures)
            Quiet.searchable = True
            tab.open(home)
            if not tab.ask(SEARCH):
                found.append("the search finds nothing for FedProx")
    print("\n".join(dict.fromkeys(found)))
    print(f"{len(pages)} pages, {len(found)} findings")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
