"""A number stays on one line with its error, and with the sign that it is compared by."""

from __future__ import annotations

import re

NUMBER = re.compile(r"(?:(?:(?<=\d) )?±|&[lg]t;=?) (?=[\d.])")


def on_page_content(html: str, **_: object) -> str:
    """Joins the numbers of a page; code keeps its spaces."""
    parts = re.split(r"(<pre.*?</pre>)", html, flags=re.DOTALL)
    joined = [NUMBER.sub(lambda found: found[0].replace(" ", "&nbsp;"), s) for s in parts[::2]]
    parts[::2] = joined
    return "".join(parts)
