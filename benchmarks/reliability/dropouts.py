"""Clients that fail: 1,000 dropout schedules, and NaN from every k of n clients.

    python benchmarks/reliability/dropouts.py --json benchmarks/results/dropouts.json

A schedule says who fails in which round, drawn at a rate between 0 and 1. A run with it must be
what its parts make by hand, call by call, bit for bit: outbox, server's state, clients' states.
Then every set of clients sends NaN in the last round, and the end must be that of the run in which
they fail.
FedOpt, whose server keeps moments, and `own_models`, whose clients keep their models, take turns.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import torch
from federations import by_hand
from harness.flags import arguments
from harness.machine import machine, write
from reliability.small_federation import equal, federation

import fgl
from fgl.federation import Limits

CLIENTS, ROUNDS = 5, 3


def small(index: int) -> tuple[fgl.Method, list[fgl.Graph]]:
    method, clients = federation(num_clients=CLIENTS)
    return (fgl.methods.own_models(method) if index % 2 else method), clients


def end(result: fgl.Result) -> list[Any]:
    """What a run leaves: the last messages and states."""
    return [
        [dict(result.outbox[client]) for client in range(CLIENTS)],
        dict(result.server_state),
        [dict(result.client_states.get(client, {})) for client in range(CLIENTS)],
    ]


def schedule(index: int) -> Callable[[int, int], bool]:
    """Who fails when; the same for the same number."""
    generator = torch.Generator().manual_seed(index)
    rate = torch.rand((), generator=generator)
    table = torch.rand(ROUNDS, CLIENTS, generator=generator) < rate
    return lambda round_, client: bool(table[round_, client])


def holds(index: int) -> bool:
    """Whether a run with a schedule is what its parts make by hand."""
    fails = schedule(index)
    method, clients = small(index)
    how: Any = {"seed": index, "dropouts": fails, "limits": Limits(empty_rounds=None)}
    got = fgl.run(method, clients, num_rounds=ROUNDS, clients_at_once=1, **how)
    want = by_hand(*small(index), ROUNDS, seed=index, absent=fails)
    return equal(end(got), end(want))


def spoiled(index: int, bad: set[int]) -> bool:
    """Whether NaN from some clients in the last round is as if they had failed in it."""
    method, clients = small(index)
    sends: dict[int, int] = {}

    def send(params: Any, context: Any, state: Any, graph: fgl.Graph) -> Any:
        message, new = method.send(params, context, state, graph)
        client = graph.num_nodes - clients[0].num_nodes
        sends[client] = sends.get(client, 0) + 1
        if client in bad and sends[client] == ROUNDS:
            model = {name: value * math.nan for name, value in message["model"].items()}  # type: ignore[union-attr]
            message = {**message, "model": model}
        return message, new

    got = fgl.run(
        replace(method, send=send), clients, num_rounds=ROUNDS, seed=index, clients_at_once=1
    )
    fails = lambda round_, client: round_ == ROUNDS - 1 and client in bad  # noqa: E731
    want = fgl.run(*small(index), num_rounds=ROUNDS, seed=index, dropouts=fails, clients_at_once=1)
    return equal(end(got), end(want)) and set(got.history[-1].dropped) == bad


def main() -> None:
    args = arguments(schedules=1000)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sets = [
        {client for client, chosen in enumerate(each) if chosen}
        for each in product([False, True], repeat=CLIENTS)
        if any(each)
    ]
    nan = [spoiled(index, bad) for bad in sets for index in (0, 1)]
    print(f"NaN from k of {CLIENTS}: {sum(nan)} of {len(nan)} bit-equal", flush=True)
    equal_ones = sum(holds(index) for index in range(args.schedules))
    print(f"schedules: {equal_ones} of {args.schedules} bit-equal", flush=True)
    report = {
        "NaN from k of n": {"tried": len(nan), "equal": sum(nan), "clients": CLIENTS},
        "schedules": {"tried": args.schedules, "equal": equal_ones, "rounds": ROUNDS},
        "machine": machine(),
    }
    write(report, args.json)


if __name__ == "__main__":
    main()
