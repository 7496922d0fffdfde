"""Flower's processes on this machine: one SuperLink, SuperNodes, and a run of an app."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
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
        folder: for logs, states, keys and Flower's own files.
        graphs: where the folders ``client-K`` lie.
        clients: how many SuperNodes.
        states: whether they keep their states in a folder.
        database: whether the SuperLink keeps what it knows in a file.
        secure: whether they speak TLS, and each SuperNode has a registered key.
        simulated: whether the SuperLink plays the SuperNodes itself, on Ray.
    """

    def __init__(
        self,
        folder: Path,
        graphs: Path,
        clients: int = 4,
        *,
        states: bool = True,
        database: bool = False,
        secure: bool = False,
        simulated: bool = False,
    ) -> None:
        self.database, self.secure, self.simulated = database, secure, simulated
        self.folder, self.graphs, self.clients, self.states = folder, graphs, clients, states
        self.keys = folder / "keys"
        self.port, *self.node_ports = free_ports(1 + clients)
        self.entrance = self.port  # where SuperNodes connect; a relay may stand before the port
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.env = {**os.environ, **QUIET, "FLWR_HOME": str(folder / "flwr")}
        self.env["PATH"] = f"{BIN}{os.pathsep}{self.env['PATH']}"
        paths = [ROOT, ROOT / "examples", ROOT / "tests", self.env.get("PYTHONPATH", "")]
        self.env["PYTHONPATH"] = os.pathsep.join(map(str, paths))  # the recipe is not in the app

    def __enter__(self) -> Federation:
        (self.folder / "flwr").mkdir(parents=True, exist_ok=True)
        trust = f'root-certificates = "{self.keys}/ca.crt"' if self.secure else "insecure = true"
        (self.folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\n'
            f'address = "127.0.0.1:{self.port}"\n{trust}\n'
        )
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        for name in reversed(list(self.processes)):
            self.stop(name)

    def _begin(self) -> None:
        if self.secure:
            make_authority(self.keys, "ca", "server")
        self.start_link()
        for client in range(0 if self.simulated else self.clients):
            if self.secure:
                make_key(self.keys / f"node-{client}")
                self.flwr("supernode", "register", str(self.keys / f"node-{client}.pub"), "here")
            self.start_node(client)

    def start_link(self) -> None:
        flags = ["--host", "127.0.0.1", "--port", str(self.port)]
        flags += ["--disable-runtime-dependency-installation"]
        if self.database:
            flags += ["--database", str(self.folder / "link.db")]
        if self.simulated:
            flags += ["--simulation"]
        if self.secure:
            flags += ["--enable-supernode-auth", "--ssl-ca-certfile", str(self.keys / "ca.crt")]
            flags += ["--ssl-certfile", str(self.keys / "server.crt")]
            flags += ["--ssl-keyfile", str(self.keys / "server.key")]
        else:
            flags += ["--insecure"]
        self._start("superlink", "flower-superlink", *flags)
        self.wait_for(self.port)

    def start_node(
        self, client: int, name: str | None = None, entry: Sequence[str] | None = None
    ) -> None:
        """Start a SuperNode; `entry` is how it shows itself, if not as it should."""
        config = f"partition-id={client} graphs='{self.graphs}'"
        if self.states:
            config += f" state='{self.folder / 'states'}'"
        port = self.node_ports[client] if name is None else free_ports(1)[0]
        flags = ["--superlink", f"127.0.0.1:{self.entrance}", "--host", "127.0.0.1"]
        flags += ["--port", str(port), "--node-config", config]
        flags += self.entry(f"node-{client}") if entry is None else entry
        self._start(name or f"node-{client}", "flower-supernode", *flags)

    def supervise(self, client: int, seconds: float = 240) -> None:
        """Start a SuperNode until it is let in: its key is not while it still counts as there."""
        name, end = f"node-{client}", time.monotonic() + seconds
        before = self.log(name).count("SuperNode ID:")
        while time.monotonic() < end:
            self.start_node(client)
            while self.processes[name].poll() is None:
                if self.log(name).count("SuperNode ID:") > before:
                    return
                time.sleep(0.2)
            time.sleep(5)
        raise TimeoutError(f"Expected {name} to be let in, but got {self.log(name)}")

    def entry(self, key: str = "", ca: str = "ca") -> list[str]:
        """The flags with which a SuperNode shows itself: plain, or with a CA and a key."""
        if not self.secure:
            return ["--insecure"]
        flags = ["--root-certificates", str(self.keys / f"{ca}.crt")]
        return [*flags, "--auth-supernode-private-key", str(self.keys / key)] if key else flags

    def run(self, app: Path = APP, limit: float = 1800, **config: Any) -> str:
        """What ``flwr run`` prints until the run has ended; ``num_clients`` is ``num-clients``."""
        named = {name.replace("_", "-"): value for name, value in config.items()}
        said = " ".join(f"{name}={_toml(value)}" for name, value in named.items())
        more = ["--federation-config", f"num-supernodes={self.clients}"] if self.simulated else []
        return self.flwr(
            "run", str(app), "here", "--stream", "--run-config", said, *more, limit=limit
        )

    def flwr(self, *words: str, limit: float = 120) -> str:
        """What the command prints."""
        done = subprocess.run(
            [str(BIN / "flwr"), *words],
            env=self.env,
            timeout=limit,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
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

    def wait_for_log(self, name: str, words: str, times: int = 1, seconds: float = 120) -> None:
        """Wait until a process, or those before it of the same name, have said something."""
        end = time.monotonic() + seconds
        while self.log(name).count(words) < times:
            if time.monotonic() > end:
                raise TimeoutError(f"Expected {name} to say {words!r}, but got {self.log(name)}")
            time.sleep(0.2)

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


def make_key(path: Path) -> None:
    """A SuperNode's private key, and ``.pub`` beside it."""
    _quiet("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-C", "", "-f", str(path))


def make_authority(folder: Path, ca: str, server: str) -> None:
    """A certificate authority, and a certificate for this machine by it."""
    folder.mkdir(parents=True, exist_ok=True)
    at = {name: str(folder / name) for name in (f"{ca}.key", f"{ca}.crt", f"{server}.key")}
    new = ["openssl", "req", "-newkey", "rsa:3072", "-nodes"]
    signed = ["-x509", "-days", "365", "-subj", f"/CN={ca}"]
    _quiet(*new, *signed, "-keyout", at[f"{ca}.key"], "-out", at[f"{ca}.crt"])
    (folder / "server.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    request = str(folder / f"{server}.csr")
    _quiet(*new, "-subj", "/CN=localhost", "-keyout", at[f"{server}.key"], "-out", request)
    by = ["-CA", at[f"{ca}.crt"], "-CAkey", at[f"{ca}.key"], "-CAcreateserial"]
    names = ["-extfile", str(folder / "server.ext"), "-out", str(folder / f"{server}.crt")]
    _quiet("openssl", "x509", "-req", "-in", request, *by, "-days", "365", *names)


def _quiet(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)


def _toml(value: Any) -> str:
    return f"'{value}'" if isinstance(value, (str, Path)) else str(value)
