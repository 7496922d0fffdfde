"""Processor time of a forecast's local step, ordinary and traced, for four clients as a batch.

    FGL_DATA=... python benchmarks/speed/windows.py

Every step trains all 64 windows, so that it can be traced. `docs/speed.md` has the table.
"""

import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.machine import example

import fgl
from fgl.federation.executors.batch import traced

CLIENTS, WINDOWS, STEPS, ROUNDS = 4, 64, 50, 4
SERIES = {"chickenpox": None, "synthetic": None, "metr-la-like": 1152}  # times, of which all


def clients_of(name: str, times: int | None) -> list[fgl.Graph]:
    """Districts with 64 training windows each."""
    setting = fgl.tasks.Forecast(dataset=name, clients=CLIENTS)
    whole = setting.load(seed=0).whole if times is None else fgl.data.load(name)
    whole = whole.replace(x=whole.x[:, :times], y=whole.y[:, :times])  # type: ignore[union-attr,index]
    parts = fgl.data.partitions.ldg_partition(whole, CLIENTS)
    cut = [setting.windows(own) for own in fgl.data.partitions.partition_graph(whole, parts)]
    rows = torch.randperm(int(cut[0].train_mask.sum()))[:WINDOWS]  # type: ignore[union-attr]
    return [own.select(rows) for own in cut]


def milliseconds(clients: list[fgl.Graph], model: Any, after: int) -> float:
    """Of a step, in the fastest round but the first."""
    traced.AFTER = after
    train = fgl.Training(partial(torch.optim.Adam, lr=0.01), num_steps=STEPS)
    method = fgl.fedavg(model, train=train, target=fgl.targets.FORECAST)
    ends: list[float] = []
    note = [lambda *_: ends.append(time.process_time())]
    fgl.run(method, clients, num_rounds=ROUNDS, clients_at_once="all", callbacks=note)
    return 1e3 * min(b - a for a, b in pairwise(ends)) / STEPS


def main() -> None:
    torch.set_num_threads(1)
    cell = example("tgcn").TGCN
    for name, times in SERIES.items():
        clients = clients_of(name, times)
        width = clients[0].num_features
        makers = {
            "forecast": partial(fgl.tasks.forecast.Forecaster, width, 64, steps=12, num_horizons=3),
            "TGCN": partial(cell, width, 16, 3, "cell"),
        }
        for kind, make in makers.items():
            torch.manual_seed(0)
            model = make()
            times_of = [milliseconds(clients, model, after) for after in (10**9, 32)]
            print(
                f"{name:14} {kind:9} {times_of[0]:6.2f} ms, traced {times_of[1]:6.2f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
