"""Kills of a 15-round FedAvg run at random moments: it is resumed, its end compared bit for bit.

    python benchmarks/reliability/crash.py --kills 20 --json benchmarks/results/crash.json

Every trial starts anew in a process of its own, is killed (SIGKILL) at a random moment of a random
round, is started again and ends. Its final message, server state and history must be those of a
run that nobody disturbed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import SUPPRESS, arguments, flag
from harness.machine import machine, write

import fgl
from fgl import Training

ROUNDS = 15


def federation() -> tuple[fgl.Method, list[fgl.Graph]]:
    """Four random graphs and a GAT with dropout, large enough that a round takes a moment."""
    generator = torch.Generator().manual_seed(0)
    clients = []
    for num_nodes in (100, 150, 120, 80):
        edges = torch.randint(num_nodes, (2, 4 * num_nodes), generator=generator)
        x = torch.rand(num_nodes, 100, generator=generator)
        y = torch.randint(5, (num_nodes,), generator=generator)
        clients.append(fgl.Graph(x, edges, y=y, num_classes=5))
    torch.manual_seed(0)
    optimizer = partial(torch.optim.Adam, lr=0.01)
    return fgl.fedavg(
        fgl.nn.GAT(100, 64, 5, dropout=0.5), train=Training(optimizer, num_steps=4)
    ), clients


def work(folder: Path) -> None:
    """The process that gets killed: run, or go on, and write the end."""
    torch.set_num_threads(1)
    method, clients = federation()
    fgl.run(method, clients, num_rounds=1)  # torch loads a good part of itself in the first step
    print("started", flush=True)
    tell = [lambda record, result: print("round", flush=True)]
    result = fgl.run(method, clients, num_rounds=ROUNDS, checkpoint=folder, callbacks=tell)
    torch.save(ending(result), folder / "end.pt")


def ending(result: fgl.Result) -> tuple[Any, ...]:
    """What is compared: the final message, the server's state, the history but its seconds."""
    history = [(record.round, record.participants, record.loss) for record in result.history]
    return result.outbox[0], result.server_state, history


def start(folder: Path) -> subprocess.Popen[str]:
    """A worker whose run has begun."""
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", str(folder)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    if process.stdout.readline() != "started\n":
        raise RuntimeError(f"Expected the worker to start, but it ended with {process.wait()}")
    return process


def end(folder: Path) -> Any:
    """Run, or go on, to the end: what it wrote."""
    process = start(folder)
    process.communicate()
    if process.returncode:
        raise RuntimeError(f"Expected the worker to end well, but got {process.returncode}")
    return torch.load(folder / "end.pt", weights_only=True)


def stop(folder: Path, rounds: int, seconds: float, how: signal.Signals = signal.SIGKILL) -> bool:
    """Send a signal some seconds after some rounds; False where the run had ended before."""
    with start(folder) as process:
        assert process.stdout is not None
        for _ in range(rounds):
            process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(how)
    return not (folder / "end.pt").exists()


def equal(a: Any, b: Any) -> bool:
    """Bit for bit, all the way down."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def trial(folder: Path, most: list[int], moment: random.Random, seconds: float) -> tuple[Any, Any]:
    """A run killed after at most so many rounds each time: its end, and the rounds saved by then.

    The moment within a round is random too; a round takes about so many seconds.
    """
    saved: list[int] = []
    while len(saved) < len(most):
        rounds = moment.randint(0, most[len(saved)])
        if stop(folder, rounds, moment.uniform(0, seconds)):
            files = [int(path.stem.removeprefix("round-")) for path in folder.glob("round-*.ckpt")]
            saved.append(max(files, default=0))
        else:  # it ended before the signal came: start anew
            shutil.rmtree(folder)
            folder.mkdir()
            saved.clear()
    return end(folder), saved


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv, kills=20, seed=flag(0, "of the moments"), worker=flag(Path, SUPPRESS))
    if args.worker:
        work(args.worker)
        return 0
    torch.set_num_threads(1)
    moment = random.Random(args.seed)
    same = 0
    saved: list[int] = []
    method, clients = federation()
    fgl.run(method, clients, num_rounds=1)
    undisturbed = fgl.run(method, clients, num_rounds=ROUNDS)
    seconds = statistics.median(record.seconds for record in undisturbed.history)
    for number in range(args.kills):
        with tempfile.TemporaryDirectory() as folder:
            got, rounds = trial(Path(folder), [ROUNDS - 1], moment, seconds)
        same += equal(got, ending(undisturbed))
        saved += rounds
        print(f"kill {number + 1}: round {rounds[0]} was saved, equal so far {same}", flush=True)
    print(f"{same} of {args.kills}")
    report = {
        "benchmark": "crash",
        "rounds": ROUNDS,
        "seed": args.seed,
        "kills": args.kills,
        "bit_equal": same,
        "rounds_saved_at_kill": saved,
        "seconds_per_round": round(seconds, 4),
        "machine": machine(),
    }
    write(report, args.json)
    return int(same < args.kills)


if __name__ == "__main__":
    sys.exit(main())
