"""Flower's processes on this machine: one SuperLink, SuperNodes, and a run of an app."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
APP = ROOT / "examples" / "flower_app"
BIN = Path(sys.executable).parent
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "OMP_NUM_THREADS": "1",
}


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Federation:
    """A SuperLink and its SuperNodes; all are stopped when the block ends.

    Args:
        folder: for logs, states and Flower's own files.
        graphs: where ``client-K.pt`` lie.
        clients: how many SuperNodes.
        states: whether they keep their states in a folder.
        database: whether the SuperLink keeps what it knows in a file.
    """

    def __init__(
        self,
        folder: Path,
        graphs: Path,
        clients: int = 4,
        *,
        states: bool = True,
        database: bool = False,
    ) -> None:
        self.database = database
        self.folder, self.graphs, self.clients, self.states = folder, graphs, clients, states
        self.port, *self.node_ports = free_ports(1 + clients)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.env = {**os.environ, **QUIET, "FLWR_HOME": str(folder / "flwr")}
        self.env["PATH"] = f"{BIN}{os.pathsep}{self.env['PATH']}"
        paths = [
            str(ROOT),
            str(ROOT / "examples"),
            str(ROOT / "tests"),
            self.env.get("PYTHONPATH", ""),
        ]
        self.env["PYTHONPATH"] = os.pathsep.join(paths)  # the recipe is not in the app

    def __enter__(self) -> Federation:
        (self.folder / "flwr").mkdir(parents=True, exist_ok=True)
        (self.folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\n'
            f'address = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        self.start_link()
        for client in range(self.clients):
            self.start_node(client)
        return self

    def __exit__(self, *error: Any) -> None:
        for name in reversed(list(self.processes)):
            self.stop(name)

    def start_link(self) -> None:
        flags = ["--insecure", "--host", "127.0.0.1", "--port", str(self.port)]
        flags += ["--disable-runtime-dependency-installation"]
        if self.database:
            flags += ["--database", str(self.folder / "link.db")]
        self._start("superlink", "flower-superlink", *flags)
        self.wait_for(self.port)

    def start_node(self, client: int, *options: str) -> None:
        config = f"partition-id={client} graphs='{self.graphs}'"
        if self.states:
            config += f" state='{self.folder / 'states'}'"
        flags = ["--insecure", "--superlink", f"127.0.0.1:{self.port}", "--host", "127.0.0.1"]
        flags += ["--port", str(self.node_ports[client]), "--node-config", config, *options]
        self._start(f"node-{client}", "flower-supernode", *flags)

    def run(self, app: Path = APP, limit: float = 1800, **config: Any) -> str:
        """What ``flwr run`` prints until the run has ended; ``fault_round`` is ``fault-round``."""
        named = {name.replace("_", "-"): value for name, value in config.items()}
        said = " ".join(f"{name}={_toml(value)}" for name, value in named.items())
        command = [str(BIN / "flwr"), "run", str(app), "here", "--stream", "--run-config", said]
        done = subprocess.run(
            command, env=self.env, timeout=limit, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        return done.stdout.decode()

    def stop(self, name: str, how: int = signal.SIGTERM) -> None:
        """End a process, and what it started."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def wait_for(self, port: int, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            if time.monotonic() > end:
                raise TimeoutError(f"Expected port {port} to open, but got {self.log('superlink')}")
            time.sleep(0.2)

    def _start(self, name: str, program: str, *flags: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / program), *flags],
                env=self.env,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )


def _toml(value: Any) -> str:
    return f"'{value}'" if isinstance(value, (str, Path)) else str(value)
