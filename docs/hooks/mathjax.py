"""MathJax, on the pages that have a formula. Its file comes from an installed package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))
from formulas import with_tex

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

FOLDER = "assets/mathjax"
SCRIPT = """<script>
MathJax = {{
  tex: {{inlineMath: [["\\\\(", "\\\\)"]], displayMath: [["\\\\[", "\\\\]"]]}},
  options: {{ignoreHtmlClass: ".*|", processHtmlClass: "arithmatex", enableMenu: false}},
  svg: {{fontCache: "global"}},
}};
</script>
<script defer src="{base}/{folder}/tex-svg.js"></script>
</body>"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    spec = importlib.util.find_spec("mathjax")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("Expected MathJax's files: pip install -e '.[docs]'")
    package = Path(spec.origin).parent / "static/mathjax"
    for source in ("es5/tex-svg.js", "LICENSE"):
        place = f"{FOLDER}/{Path(source).name}"
        files.append(File.generated(config, place, abs_src_path=str(package / source)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """What the page of methods has from docstrings is set as they are."""
    return with_tex(markdown) if page.file.src_uri == "methods.md" else markdown


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    if 'class="arithmatex"' not in output:
        return output
    base = "/".join([".."] * page.url.strip("/").count("/") + [".."] * bool(page.url)) or "."
    return output.replace("</body>", SCRIPT.format(base=base, folder=FOLDER))
