"""A link to the repository that the site is built from, if this has an address on the web."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig


def web_address(remote: str) -> str | None:
    """A remote of git as a page: no user, no password. A folder has none."""
    scheme = r"(?:(?:https|ssh)://(?:[^@/]+@)?|[\w.-]+@)"
    found = re.fullmatch(scheme + r"([\w.-]+)(?::\d+)?[:/](.+?)(?:\.git)?/?", remote)
    return f"https://{found[1]}/{found[2]}" if found else None


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    command = ["git", "remote", "get-url", "origin"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return config
    address = web_address(done.stdout.strip())
    if address is not None and not config.repo_url:
        config.repo_url = address
        config.repo_name = address.split("/", 3)[3]
    return config
