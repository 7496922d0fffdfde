"""Symmetries: changes of the data after which a run must move in a known way, over all methods.

Every row of the conformance table that is a method of `fgl.methods` has all symmetries, or stands
in `EXCEPT` with a reason. So a new method has them all by being a row there. Runs are in
double, without dropout, so a difference is a fault and no rounding.

- *nodes*: the nodes of every client are renamed.
- *clients*: the clients come in another order.
- *doubled*: every client's graph stands there twice, side by side.
- *split*: a client with its graph twice becomes two clients with the graph once.
- *empty*: one more client has no training example, and the others learn as before.
- *classes*: labels are permuted, and the rows of the first model's last layer too.
- *scaled*: the loss is four times as large, and every rate of it a quarter.

Faults that the suite let pass at 820a2c65, before this file stood (their texts, and the tests that
ran, in `benchmarks/results/truth_mutants.json`; `mutants.py --seeded` puts them in):

| fault | let pass | found in |
|---|---|---|
| clusters of GCFL count a client without examples | it stood | empty |
| `adaptive_fedprox` sends at most 1 for its number of examples | tried, 1,072 tests | split |
| `moon` does, but for FedGL's messages | tried, 1,153 tests | split |

Others that a test here finds (each was tried):

| mutant | found in |
|---|---|
| `cross_entropy` in which a node of class 0 counts twice | classes |
| `fedproto` without the distance from the prototype of class 0 | classes |
| `fedproto` that keeps no prototype of class 0 | classes |
| `scaffold` that takes a rate of .1 for its control, whatever the optimiser's | scaled |
| `fedprox` with `mu` of at most 1 | scaled |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
from conformance import CLASSES, ROWS, SPLIT, first, known, row
from federations import FEATURES, ruled

import fgl
from fgl import Method, Training, methods, tasks
from fgl.graph.fields import EDGE_FIELDS, EXAMPLE_FIELDS, NODE_FIELDS

F64 = torch.float64
ROUNDS = 2
# Tasks whose losses draw nothing and see whole graphs; a row takes the first that it has.
STILL = (
    "nodes", "aux", "spa", "deep", "star nodes", "types", "adaptive", "clients that differ",
    "subgraphs",
)  # fmt: skip
HELPERS = {"node_generator", "proxy_graph", "random_neighbours", "uniform"}
NO_ROW = {
    "fedssp": "collections in drawn minibatches: test_fedssp.py",
    "fedsage_plus": "generators draw noise: test_fedsage_plus.py",
}


def names() -> list[str]:
    """Rows of single methods of the library, on a task that is still."""
    words = [name.replace("_", " ") for name in {*methods.__all__, "fedavg"} - HELPERS]
    own = [n for n in ROWS if not {"of", "gaussian"} & {*n.split()}]
    own = [n for n in own if any(n.startswith(word) for word in words)]
    return [name for name in own if task_of(name)]


def task_of(name: str) -> str:
    return next((task for task in STILL if task in row(name).tasks), "")


EQUALLY = {"split": "all clients weigh the same"}
MIXED = {
    name: "a client takes a share of each other's model, whatever its size"
    for name in ("split", "empty")
}
STEPS = {"empty": "a step of the server is divided by the number of clients"}
LIKE = {"empty": "clients are compared or pulled by what they send, as it does too"}
BY_ID = {"clients": "it draws for each client"}
DRAWN = dict.fromkeys(("nodes", "clients", "doubled", "split"), "it draws nodes")
EXCEPT: dict[str, dict[str, str]] = {
    "scaffold": EQUALLY | STEPS, "feddyn": EQUALLY | STEPS, "feddc": EQUALLY | STEPS,
    "ditto": EQUALLY, "graphfl": EQUALLY, "fedavg alike": EQUALLY, "fedprox alike": EQUALLY,
    "mix updates": EQUALLY | MIXED, "fedproto": EQUALLY,
    "fedspa": BY_ID | {"split": "weights by the largest and the smallest energy of a client"},
    "fedamp": MIXED, "heurfedamp": MIXED, "pfedgraph": MIXED, "fedpub": MIXED, "fedpub code": MIXED,
    "fedaux": MIXED, "ring": {"clients": "who stands beside whom matters", **MIXED},
    "fedstar": BY_ID | {"split": "each half draws a model"},
    "fedhgn": BY_ID | LIKE | {"split": "each half draws coefficients"}, "fedgta": LIKE,
    "fedproto drawn": BY_ID | EQUALLY | {"classes": "it draws a head"},
    "fedtgp": EQUALLY | {"classes": "the server draws a row for each class"},
    "fedtad": {
        "split": "its term L_dis counts clients",
        "classes": "the server draws a graph class by class",
    },
    "retrained": {"clients": "client 1 is forgotten"},
    "unlearned": {"clients": "client 2 is forgotten"},
    "adafgl": dict.fromkeys(("clients", "doubled", "split"), "it draws half of the training nodes"),
    "graphfl drawn": DRAWN, "fedgm drawn": DRAWN | {"classes": "it draws class by class"},
    "fggp": DRAWN | {"classes": "it draws an augmentor"},
    "feddep": DRAWN | {"empty": "prototypes of its nodes teach too"},
    "s2fgl": {
        "nodes": "of nodes with one score the first ranks first",
        "clients": "books are drawn from the clients",
        "doubled": "the nearest other of a node is its copy",
        "split": "books are drawn from the clients",
        "empty": "books are drawn from the clients",
    },
    "opfgl drawn": {
        "doubled": "a class with one labelled node sends nothing, with two it does",
        "split": "as doubled",
        "classes": "the server draws a graph class by class",
    },
}  # fmt: skip


def test_every_method_has_a_row_or_a_reason() -> None:
    rows = names()
    missing = {
        name
        for name in set(methods.__all__) - HELPERS - set(NO_ROW)
        if not any(each.startswith(name.replace("_", " ")) for each in rows)
    }
    assert not missing
    assert set(EXCEPT) <= set(rows)
    assert {symmetry for each in EXCEPT.values() for symmetry in each} <= set(CHANGES)


def renamed(own: fgl.Graph) -> fgl.Graph:
    draw = torch.Generator().manual_seed(own.num_nodes)
    return own.subgraph(torch.randperm(own.num_nodes, generator=draw))


def doubled(own: fgl.Graph) -> fgl.Graph:
    """Two copies side by side, without an edge between them."""
    twice: dict[str, Any] = {"node_id": None}
    x = own.x.to_dense() if isinstance(own.x, fgl.SparseMatrix) else own.x
    for name in {*NODE_FIELDS, *EXAMPLE_FIELDS, *EDGE_FIELDS} - {"node_id"}:
        value = getattr(own, name)
        if value is not None:
            twice[name] = torch.cat([value, value])
    edges = torch.cat([own.edge_index, own.edge_index + own.num_nodes], 1)
    return replace(own, x=torch.cat([x, x]), edge_index=edges, **twice)


def used(method: Method, clients: Sequence[fgl.Graph], num_rounds: int = ROUNDS) -> list[Any]:
    """The models that the clients use at the end."""
    result = fgl.run(method, list(clients), num_rounds=num_rounds, clients_at_once=1)
    states = result.client_states
    return [
        method.deploy(result.outbox[k], states.get(k, {}), own) for k, own in enumerate(clients)
    ]


def case(name: str) -> tuple[Method, Sequence[fgl.Graph]]:
    """The method, whose clients may have twice the examples, and its clients."""
    made = known(task_of(name), 0.0, F64)
    roomy = ruled(made.fedavg, max_examples=2 * made.fedavg.rules.max_examples)
    return row(name).build(replace(made, fedavg=roomy)), made.clients


@cache
def plain(name: str) -> list[Any]:
    return used(*case(name))


def apart(one: Any, other: Any) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def by_nodes(name: str) -> float:
    method, clients = case(name)
    return max(map(apart, plain(name), used(method, [renamed(own) for own in clients])))


def by_clients(name: str) -> float:
    method, clients = case(name)
    order = [2, 0, 3, 1]
    found = used(method, [clients[k] for k in order])
    return max(apart(plain(name)[k], each) for k, each in zip(order, found, strict=True))


def by_doubled(name: str) -> float:
    method, clients = case(name)
    return max(map(apart, plain(name), used(method, [doubled(own) for own in clients])))


def by_split(name: str) -> float:
    method, (*others, last) = case(name)
    whole = used(method, [*others, doubled(last)])
    return max(map(apart, [*whole, whole[-1]], used(method, [*others, last, last])))


def by_empty(name: str) -> float:
    method, clients = case(name)
    nothing = torch.zeros(clients[-1].num_examples, dtype=torch.bool)
    found = used(method, [*clients, clients[-1].replace(train_mask=nothing)])
    return max(apart(one, other) for one, other in zip(plain(name), found, strict=False))


def by_classes(name: str) -> float:
    """Of a GCN, whose last layer has a row a class."""
    if task_of(name) != "nodes":
        return 0.0
    made, order = known("nodes", 0.0, F64), torch.tensor([2, 0, 1])
    model = first(partial(fgl.nn.GCN, FEATURES, 8, CLASSES, dropout=0.0), F64)
    last, start = ("convs.1.lin.weight", "convs.1.bias"), dict(model.state_dict())
    model.load_state_dict({**start, **{n: start[n][order.argsort()] for n in last}})
    whole, *clients = [own.replace(y=order[own.y]) for own in (made.whole, *made.clients)]
    other = tasks.node_task(whole, clients, model, made.fedavg.train)
    found = used(row(name).build(other), clients)
    back = [{n: t[order] if n in last else t for n, t in each.items()} for each in found]
    return max(map(apart, plain(name), back))


SLOW = (  # variants of another row
    "fedopt yogi", "fedopt adagrad", "graphfl drawn", "fedprox alike",
    "fedpub code", "gcfl plus", "fedproto drawn", "fedstar alike", "fedper apart",
)  # fmt: skip
CHANGES: dict[str, Callable[[str], float]] = {
    "nodes": by_nodes,
    "clients": by_clients,
    "doubled": by_doubled,
    "split": by_split,
    "empty": by_empty,
    "classes": by_classes,
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in names()]
)
def test_symmetries(name: str) -> None:
    asked = {change: CHANGES[change] for change in CHANGES if change not in EXCEPT.get(name, {})}
    moved = {change: by(name) for change, by in asked.items()}
    assert {change: far for change, far in moved.items() if not far < 1e-8} == {}


FOUR = 4.0
PULLS = {  # the weights of terms beside the loss, of each method that is scaled
    "fedprox": {"mu": 0.5},
    "feddyn": {"penalty": 0.2},
    "feddc": {"penalty": 0.2},
    "ditto": {"penalty": 0.3},
    "fedamp": {"penalty": 0.3},
    "heurfedamp": {"penalty": 0.3},
    "pfedgraph": {"attraction": 0.01},
    "moon": {"contrast": 1.0},
    "fedproto": {"weight": 1.0},
    "scaffold": {}, "fedopt": {}, "local": {}, "own_models": {}, "fedper": {}, "ring": {},
    "mix_updates": {}, "gcfl": {}, "fedselect": {}, "fedgta": {}, "retrained": {},
}  # fmt: skip
GIVEN: dict[str, Any] = {
    "fedper": {"shared": ["convs.0"]}, "mix_updates": {"network": methods.uniform},
    "gcfl": SPLIT, "retrained": {"client": 1}, "fedproto": {"draw": False},
    "fedselect": {"every": 1},
}  # fmt: skip
NOT_SCALED = {
    "adaptive_fedprox": "its weight follows the loss in steps of ten",
    "unlearned": "its ascent is clipped to a length",
    "graphfl": "steps within steps: test_known_optimum.py",
    "gcfl_plus": "as gcfl",
    "fedpub": "of two penalties one counts by signs",
    **dict.fromkeys(("fedtgp", "fedtad", "fedgm", "opfgl"), "its server trains"),
    **dict.fromkeys(("fggp", "s2fgl", "feddep", "fedspa", "adafgl"), "several losses of its own"),
    **dict.fromkeys(("fedstar", "fedaux", "fedhgn"), "FedAvg's training of a model of its own"),
}


def test_every_method_is_scaled_or_says_why_not() -> None:
    assert set(methods.__all__) - HELPERS - set(NO_ROW) == set(PULLS) | set(NOT_SCALED)


def scaled(name: str, factor: float) -> Method:
    """The method on a loss times a factor, with all rates divided by it."""
    base = known("nodes", 0.0, F64).fedavg
    train = Training(partial(torch.optim.SGD, lr=0.1 / factor), num_steps=2)
    base = replace(base, loss=lambda *given: factor * known_loss(*given), train=train)
    pulls = {key: factor * value for key, value in PULLS[name].items()}
    made: Method = getattr(methods, name)(base, **pulls, **GIVEN.get(name, {}))
    return made


def known_loss(*given: Any) -> Any:
    return known("nodes", 0.0, F64).fedavg.loss(*given)


@pytest.mark.parametrize("name", PULLS)
def test_scaled_losses(name: str) -> None:
    clients = known("nodes", 0.0, F64).clients
    one, four = (used(scaled(name, factor), clients, 3) for factor in (1.0, FOUR))
    assert max(map(apart, one, four)) < 1e-8
