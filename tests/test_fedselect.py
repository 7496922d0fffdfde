"""FedSelect: which entries become a client's own, which move, and what the server averages."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from federations import fedavg, graphs, model
from torch import Tensor, optim

import fgl
from fgl import Method, Result, Training
from fgl.methods import fedselect

LR = 0.1
SGD = Training(partial(optim.SGD, lr=LR), num_steps=2)


def plain(how: Training = SGD) -> Method:
    return fedavg(model(dropout=0.0), how)


def state(result: Result, client: int, key: str) -> Any:
    return result.client_states[client][key]


def by_hand(moved: Tensor, own: Tensor, top: float, cap: float) -> set[int]:
    """Which entries become a client's own: those above a rank, and their equals."""
    shared = sorted((float(moved[i]) for i in range(len(own)) if not own[i]), reverse=True)
    count = len(shared) - round((1 - top) * len(shared))
    if not count or float(own.sum() / own.numel()) > cap:
        return set()
    last = shared[count - 1]
    return {i for i in range(len(own)) if not own[i] and float(moved[i]) >= last}


def test_selections_by_hand() -> None:
    """After rounds 3, 6, ... (from 0), by what moved since the last one, up to the cap."""
    base = plain()
    method, clients = fedselect(base), graphs()
    before = base.initial()
    chosen = {name: torch.zeros_like(p, dtype=torch.bool) for name, p in before.items()}
    for rounds in range(1, 9):
        result = fgl.run(method, clients, num_rounds=rounds, seed=0)
        params = state(result, 1, "model")
        if rounds in (4, 7):
            for name in ("convs.0.lin.weight", "convs.1.lin.weight"):
                moved = (params[name] - before[name]).abs().flatten()
                new = by_hand(moved, chosen[name].flatten(), 0.25, 0.8)
                assert new
                chosen[name].view(-1)[list(new)] = True
            before = params
        got = state(result, 1, "mask")
        assert sorted(got) == ["convs.0.lin.weight", "convs.1.lin.weight"]  # biases stay shared
        assert all(torch.equal(got[name], chosen[name]) for name in got)
    assert sum(int(mask.sum()) for mask in chosen.values()) > 20
