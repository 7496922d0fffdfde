"""The wire table: what every method sends, how large it is, and what can be read from it.

    python benchmarks/reliability/wire.py      writes the table into docs/privacy.md

Two rounds of every method on a small task: synthetic graphs of Cora's and PROTEINS' kind.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.machine import example
from harness.report import publish

import fgl
from fgl import Method, methods, tasks, transforms
from fgl.federation.message import num_bytes
from fgl.tasks import Local, Task

UP, DOWN, BEFORE = "up", "down", "before"
BASELINES = example("baseline")
ONE = Local(steps=1)
SMALL: dict[str, Any] = {  # a setting of each kind of task
    "louvain-nodes": tasks.Nodes(model="gcn", hidden=64, local=ONE),
    "star nodes": tasks.Nodes(model="star", hidden=64, local=ONE),
    "summed nodes": tasks.Nodes(model="gcn", hops=2, hidden=64, local=ONE),
    "sage nodes": tasks.Nodes(model="sage", hidden=64, local=ONE),
    "overlapping-nodes": tasks.OverlappingNodes(local=ONE),
    "ego-nodes": tasks.EgoNodes(hidden=64, local=ONE),
    "links": tasks.Links(local=ONE),
    "graphs": tasks.Graphs(clients=5, local=ONE),
}
KINDS = {"fedstar": "star nodes", "fedgcn": "summed nodes", "fedsage": "sage nodes"}
KINDS["fedsage-plus"] = "sage nodes"
NAMES = {  # as they are written, where not as they are called
    "fedavg": "FedAvg", "local": "Local", "fedprox": "FedProx", "fedopt": "FedOpt",
    "moon": "MOON", "fedper": "FedPer", "scaffold": "SCAFFOLD", "fedselect": "FedSelect",
    "graphfl": "GraphFL", "gcfl": "GCFL", "gcfl-plus": "GCFL+", "fedstar": "FedStar",
    "ring": "D-FedGNN (ring)", "fedgcn": "FedGCN", "fedsage": "FedSage",
    "fedsage-plus": "FedSage+", "fedamp": "FedAMP", "heurfedamp": "HeurFedAMP",
    "pfedgraph": "pFedGraph", "fedpub": "FED-PUB", "fgssl": "FGSSL", "fedgl": "FedGL",
    "fedego": "FedEgo", "fedvgae": "FedVGAE", "gpfl": "GPFL", "own-models": "own models",
    "mix-updates": "mixed updates", "local-gaussian": "local noise",
    "central-gaussian": "central noise", "fedsage-plus-generators": "FedSage+, its generators",
}  # fmt: skip


Make = Callable[[Task], Any]  # a method, or a method and the task that it runs on


def cases() -> dict[str, tuple[Make, str]]:
    """Every method: how it is made of a task, and of which."""

    def baseline(name: str, build: Any) -> Make:
        return lambda task: BASELINES.built(build, task, 0, OPTIONS.get(name, {}))

    found: dict[str, tuple[Make, str]] = {
        name: (baseline(name, build), KINDS.get(name, "louvain-nodes"))
        for name, build in BASELINES.METHODS.items()
        if name != "centralized"
    }
    noise: dict[str, Any] = {"length": 1.0, "noise_multiplier": 1.0}
    return found | {
        "own-models": (lambda t: methods.own_models(t.fedavg), "louvain-nodes"),
        "mix-updates": (lambda t: methods.mix_updates(t.fedavg, methods.uniform), "louvain-nodes"),
        "fedsage-plus-generators": (generators, "sage nodes"),
        "fgssl": (lambda t: example("fgssl").fgssl(t.fedavg), "louvain-nodes"),
        "fedgl": (fedgl, "overlapping-nodes"),
        "fedego": (lambda t: example("fedego").fedego(t.fedavg), "ego-nodes"),
        "fedvgae": (lambda t: example("fedvgae").fedvgae(t.fedavg, t.validate), "links"),
        "gpfl": (gpfl, "graphs"),
        "clipped": (lambda t: transforms.clipped(t.fedavg, length=1.0), "louvain-nodes"),
        "local-gaussian": (lambda t: transforms.local_gaussian(t.fedavg, **noise), "louvain-nodes"),
        "central-gaussian": (
            lambda t: transforms.central_gaussian(t.fedavg, **noise), "louvain-nodes"
        ),
    }  # fmt: skip


OPTIONS: dict[str, dict[str, Any]] = {  # what has no default, or takes long
    "fedprox": {"mu": 0.1},
    "fedper": {"shared": ["convs.0"]},
    "fedsage-plus": {"gen_epochs": 1, "gen_local_epochs": 1, "gen_wide": 8, "gen_hidden": 8},
}


def generators(task: Task) -> Any:
    model = fgl.nn.NeighbourGenerator(task.clients[0].num_features, 128, 7)
    made = tasks.generator_task(task.clients, model, fgl.Training())
    return methods.fedsage_plus(made.fedavg), made


def fedgl(task: Task) -> Method:
    whole: Any = task.whole
    method: Method = example("fedgl").fedgl(task.fedavg, int(whole.node_id.max()) + 1)
    return method


def gpfl(task: Task) -> Method:
    recipe = example("gpfl")
    method: Method = recipe.gpfl(
        task.fedavg, recipe.random_graphs(task.clients[0].num_features, 0)
    )
    return method


READS: dict[str, str] = {  # by direction and key, or by method, direction and key
    "up model": "which features the client's nodes have (98 to 100 %, `leaks.py`); of few examples the labels",
}


def flow(name: str, rounds: int = 2) -> Iterator[tuple[str, str, str, int]]:
    """Direction, key, shape and bytes of all that the first client sends and is sent."""
    make, kind = cases()[name]
    loaded = SMALL[kind].load(0)
    made = make(loaded)
    method, task = made if isinstance(made, tuple) else (made, loaded)
    yield from exchanged(method, task, rounds)
    if task.bytes_before and name != "fedsage-plus":  # its generators are a row of their own
        yield BEFORE, "all messages", "", task.bytes_before


def exchanged(method: Method, task: Any, rounds: int = 2) -> list[tuple[str, str, str, int]]:
    """What one client sends and is sent in so many rounds, each key once."""
    found: dict[tuple[str, str], tuple[str, int]] = {}

    def note(direction: str, message: Mapping[str, Any]) -> None:
        for key, value in message.items():
            found[direction, key] = shape_of(value), num_bytes({key: value})

    def receive(message: Any, state: Any, graph: Any) -> Any:
        if graph is task.clients[0]:
            note(DOWN, message)
        return method.receive(message, state, graph)

    def send(params: Any, context: Any, state: Any, graph: Any) -> Any:
        message, new = method.send(params, context, state, graph)
        if graph is task.clients[0]:
            note(UP, message)
        return message, new

    watched = replace(method, receive=receive, send=send)
    result = fgl.run(watched, list(task.clients), num_rounds=rounds)
    note(DOWN, result.outbox[0])
    return [(way, key, *said) for (way, key), said in sorted(found.items(), reverse=True)]


def shape_of(value: Any) -> str:
    if isinstance(value, Mapping):
        total = sum(tensor.numel() for tensor in value.values())
        return f"{len(value)} tensors, {total:,} numbers"
    return str(list(value.shape)) if value.dim() else "a number"


def reading(name: str, way: str, key: str) -> str:
    """What can be read from a part of a message."""
    for known in (f"{name} {way} {key}", f"{way} {key}"):
        if known in READS:
            return READS[known]
    raise ValueError(f"Expected READS to say what can be read from {way} {key} of {name}")
