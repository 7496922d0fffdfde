"""Memory over 1,000 checkpointed rounds: does anything pile up?

    python benchmarks/reliability/steady.py --json benchmarks/results/steady.json

Resident memory after each hundred rounds (Linux only). The history has a record for each round;
nothing else may grow.
"""

import gc
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments
from harness.machine import machine, process_memory, write
from reliability.small_federation import federation

import fgl


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv, rounds=1000)
    torch.set_num_threads(1)
    method, clients = federation(hidden=2000)
    held: list[float] = []

    def note(record: Any, result: Any) -> None:
        if (record.round + 1) % 100 == 0:
            gc.collect()
            held.append(round(process_memory("VmRSS"), 1))
            print(f"round {record.round + 1}: {held[-1]} MB", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        fgl.run(method, clients, num_rounds=args.rounds, callbacks=[note], checkpoint=folder)
    grown = held[-1] - held[0]
    print(f"{grown:+.1f} MB from round 100 to round {args.rounds}")
    report = {"benchmark": "steady", "rounds": args.rounds, "megabytes": held}
    write({**report, "machine": machine()}, args.json)
    return int(grown > 20)


if __name__ == "__main__":
    sys.exit(main())
