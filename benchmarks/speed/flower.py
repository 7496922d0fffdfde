"""Seconds and bytes of a round on Flower, deployed and simulated, beside the same in one process.

    python benchmarks/speed/flower.py --json benchmarks/results/flower.json
    python benchmarks/speed/flower.py --report       docs/speed.md, from that file

FedAvg of a GCN of 0.1, 1 and 10 million parameters; a client has 50 nodes and takes one step, so a
round is what sending costs. The first round, in which processes start, does not count; a median of
the others does. Deployed clients are real SuperNodes on the loopback interface, and a relay between
them and the SuperLink counts what crosses it, Flower's own talk included. Simulated clients share
the memory of this machine: bytes are those of the messages. A cell that needs more memory than is
free is left out, and says so. `--cells` measures some, and keeps the others in the file.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "reliability"))
sys.path.insert(0, str(Path(__file__).parent / "sized_app"))

import torch
from flower_processes import Federation, free_ports
from harness.flags import arguments, some
from harness.machine import RESULTS, kept, machine, write
from harness.report import publish
from sized import graph, method

import fgl

APP = Path(__file__).parent / "sized_app"
SIZES = {"0.1M": (1000, 100), "1M": (1000, 1000), "10M": (10000, 1000)}
CLIENTS = {"deployed": (4, 10), "simulated": (50, 200)}
CELLS = [f"{how}-{k}-{size}" for how in CLIENTS for k in CLIENTS[how] for size in SIZES]


class Relay:
    """A port of this machine that passes on to another one, and counts the bytes both ways."""

    def __init__(self, target: int) -> None:
        self.target, self.bytes = target, 0
        (self.port,) = free_ports(1)
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *error: Any) -> None:
        self.listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 18):
                sink.sendall(data)
                self.bytes += len(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def on_flower(how: str, clients: int, size: str, rounds: int) -> list[dict[str, Any]]:
    """Each round as it was told, with the bytes that had crossed the relay by then."""
    features, hidden = SIZES[size]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        federation = Federation(folder, folder, clients, states=False, simulated=how == "simulated")
        relay = stack.enter_context(Relay(federation.port))
        federation.entrance = relay.port
        stack.enter_context(federation)
        out = folder / "rounds.jsonl"
        out.touch()
        told: list[dict[str, Any]] = []
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.05):
                for line in out.read_text().splitlines()[len(told) :]:
                    told.append({**json.loads(line), "relayed": relay.bytes})

        watcher = threading.Thread(target=watch)
        watcher.start()
        config = {"features": features, "hidden": hidden, "rounds": rounds, "clients": clients}
        said = federation.run(APP, out=out, **config)
        time.sleep(0.2)
        done.set()
        watcher.join()
    if len(told) != rounds or any(record["dropped"] for record in told):
        raise RuntimeError(f"Expected {rounds} rounds of all clients, but got {told}\n{said}")
    return told


def here(clients: int, size: str, rounds: int) -> float:
    """Seconds of a round in this process."""
    features, hidden = SIZES[size]
    graphs = [graph(features, client) for client in range(clients)]
    result = fgl.run(method(features, hidden), graphs, num_rounds=rounds, clients_at_once=1)
    return statistics.median(record.seconds for record in result.history[1:])


def measure(cell: str, rounds: int) -> dict[str, Any]:
    """One cell of the table."""
    how, number, size = cell.split("-")
    clients, (features, hidden) = int(number), SIZES[size]
    count = sum(value.numel() for value in method(features, hidden).model.parameters())
    found: dict[str, Any] = {"cell": cell, "parameters": count}
    needs, free = 6e-9 * 4 * count * clients, _free()  # messages packed, as tensors, on their way
    if needs > free:
        return {**found, "left_out": f"{needs:.0f} GB may be needed, {free:.0f} are free"}
    before = os.getloadavg()[0]
    told = on_flower(how, clients, size, rounds)
    seconds = [round(record["seconds"], 3) for record in told]
    each = told[-1]["bytes_down"] + told[-1]["bytes_up"]
    relayed = (told[-1]["relayed"] - told[0]["relayed"]) / (rounds - 1)
    return {
        **found,
        "seconds": statistics.median(seconds[1:]),
        "first_seconds": seconds[0],
        "all_seconds": seconds,
        "here_seconds": round(here(clients, size, rounds), 4),
        "message_bytes": each,
        "relayed_bytes": round(relayed) if how == "deployed" else None,
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
    }


def _free() -> float:
    """Gigabytes of memory that a process could take now."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if "MemAvailable" in line)) / 1e6


def table(report: dict[str, Any]) -> str:
    """What was measured, as text."""
    out = ["| clients | parameters | seconds a round | first | in one process | MB of messages |"]
    out[0] += " MB relayed | relayed / messages | load |"
    out.append("|---" * 9 + "|")
    for row in report["cells"]:
        how, number, size = row["cell"].split("-")
        start = f"| {number} {how} | {size.replace('M', ' M')} "
        if "left_out" in row:
            out.append(f"{start}| {row['left_out']} | | | | | | |")
            continue
        sent, relayed = row["message_bytes"], row["relayed_bytes"]
        crossed = f"{relayed / 1e6:.1f} | {relayed / sent:.2f}" if relayed else " | "
        out.append(
            f"{start}| {row['seconds']:.2f} | {row['first_seconds']:.1f} "
            f"| {row['here_seconds']:.3f} | {sent / 1e6:.1f} | {crossed} | {row['load'][0]} |"
        )
    return "\n".join(out) + "\n"


def main() -> None:
    args = arguments(cells=some(CELLS), rounds=4, report=False)
    if args.report:
        publish("flower", table(kept(RESULTS / "flower.json")))
        return
    torch.set_num_threads(1)
    found = {row["cell"]: row for row in kept(args.json).get("cells", ())}
    for cell in args.cells:
        found[cell] = {**measure(cell, args.rounds), "machine": machine()}
        print({k: v for k, v in found[cell].items() if k != "machine"}, flush=True)
        cells = [found[name] for name in CELLS if name in found]
        write({"benchmark": "flower", "rounds": args.rounds, "cells": cells}, args.json)


if __name__ == "__main__":
    main()
