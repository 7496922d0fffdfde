"""A headless Chromium, driven over its DevTools protocol: pages are opened, measured and drawn."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--no-proxy-server",
)
SETTLED = """(async () => {
  await window.MathJax?.startup?.promise;
  await document.fonts.ready;
  const frame = new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  await Promise.race([frame, new Promise(done => setTimeout(done, 200))]);
})()"""


def executable() -> str | None:
    """The path of a Chromium, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Tab:
    """A page of the browser, and what it asked for and complained of."""

    def __init__(self, socket: ClientConnection, session: str) -> None:
        self.socket, self.session, self.last = socket, session, 0
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command and returns its result. Events that come before it are kept."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": params, "sessionId": self.session}
        self.socket.send(json.dumps(message))
        while True:
            answer = self.receive()
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def receive(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.socket.recv(timeout=60))
        if "method" in answer:
            self.events.append(answer)
        return answer

    def open(self, url: str) -> None:
        """Goes to a page and waits until it is loaded and its formulas are set."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.receive()
        self.ask(SETTLED)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def picture(self, path: Path) -> None:
        """Draws what is in the window."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def complaints(self, home: str) -> Iterator[str]:
        """Errors on the console, requests that failed, and requests to another place than home."""
        for event in self.events:
            given = event["params"]
            match event["method"]:
                case "Runtime.exceptionThrown":
                    yield f"error in a script: {given['exceptionDetails']['text']}"
                case "Log.entryAdded" if given["entry"]["level"] == "error":
                    yield f"error on the console: {given['entry']['text']}"
                case "Runtime.consoleAPICalled" if given["type"] == "error":
                    yield f"error on the console: {given['args']}"
                case "Network.requestWillBeSent":
                    url = given["request"]["url"]
                    if not url.startswith((home, "data:", "blob:", "about:")):
                        yield f"request to elsewhere: {url}"
                case "Network.responseReceived" if given["response"]["status"] >= 400:
                    yield f"missing: {given['response']['url']}"


@contextmanager
def browser(path: str) -> Iterator[Tab]:
    """A tab of a Chromium that ends with the block."""
    from websockets.sync.client import connect

    root = os.name == "posix" and os.geteuid() == 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [path, *OPTIONS, *["--no-sandbox"] * root, f"--user-data-dir={folder}"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([*command, "about:blank"], **quiet)
        try:
            with connect(address(Path(folder), process), max_size=None) as socket:
                socket.send(json.dumps({"id": 0, "method": "Target.getTargets"}))
                targets = json.loads(socket.recv(timeout=30))["result"]["targetInfos"]
                target = next(t["targetId"] for t in targets if t["type"] == "page")
                params = {"targetId": target, "flatten": True}
                attach = {"id": 1, "method": "Target.attachToTarget", "params": params}
                socket.send(json.dumps(attach))
                answer: dict[str, Any] = {}
                while answer.get("id") != 1:
                    answer = json.loads(socket.recv(timeout=30))
                yield Tab(socket, answer["result"]["sessionId"])
        finally:
            process.terminate()
            process.wait(timeout=30)


def address(folder: Path, process: subprocess.Popen[bytes]) -> str:
    """Where the browser listens; it writes this into its folder when it is ready."""
    file = folder / "DevToolsActivePort"
    for _ in range(600):
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        if len(lines) == 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        if process.poll() is not None:
            raise RuntimeError(f"Expected a browser, but got its exit code {process.returncode}")
        time.sleep(0.1)
    raise TimeoutError("Expected a browser within a minute, but got none")
