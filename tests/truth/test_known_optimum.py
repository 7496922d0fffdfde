"""Known optima: every method on convex problems, where its end is known without running it.

Least squares ``f_k(theta) = mean (X_k theta - y_k)^2`` of four clients of unequal size has gradient
``H_k theta - b_k``. So a local step is affine, and a fixed point that a docstring states in a
formula is the solution of a linear system: here by numpy, from the formula alone.

A method of `fgl.methods` without a row in `ROWS` or a reason in `NO_ROW` fails.

Faults that the suite let pass at 820a2c65, before this file stood (their texts, and the tests that
ran, in `benchmarks/results/truth_mutants.json`; `mutants.py --seeded` puts them in):

| fault | let pass | found in |
|---|---|---|
| FedDC, FedDyn: ``n`` is the mean of the last round's participants | it stood | half, softmax |
| clusters of GCFL count a client without examples | it stood | moves_no_end |
| FedDC learns a control from a client without examples | tried, 966 tests | moves_no_end |
| `adaptive_fedprox` sends at most 1 for its number of examples | tried, 1,072 tests | all |

Others that a test here finds (each was tried):

| mutant | found in |
|---|---|
| `unlearned` counts the forgotten client again from the fifth round after on | all, half |
| `share_of` is the root of a client's share | softmax |
| FedDC sends the change of ``s_k`` without the client's share | softmax |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import nn

import fgl
from fgl import Method, Training, methods
from fgl.aggregate.robust import median
from fgl.transforms import clipped, robust, rounded_downloads, secure_sum, sparsified

Array = Any  # of numpy
SIZES, FEATURES, K = (4, 14, 6, 9), 3, 4
LR, STEPS = 0.5, 3
SHARE = np.array(SIZES) / sum(SIZES)
EQUAL = np.full(K, 1 / K)


class Net(nn.Module):
    """Linear in its inputs, in two parts, of which one may stay with a client."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, 1, bias=False), nn.Linear(1, 1, bias=False)

    def forward(self, x: Any, *rest: Any) -> Any:
        return self.a(x[:, :2]) + self.b(x[:, 2:])


@dataclass(frozen=True)
class Problem:
    """Four clients, and what numpy knows of them."""

    clients: Sequence[fgl.Graph]
    hessian: Array  # [K, d, d]
    linear: Array  # [K, d]

    @property
    def own(self) -> Array:
        """Each client's own optimum, ``[K, d]``."""
        return np.linalg.solve(self.hessian, self.linear[..., None])[..., 0]

    def optimum(self, weight: Array) -> Array:
        """The minimum of ``sum_k weight_k f_k``."""
        hessian = np.tensordot(weight, self.hessian, 1)
        return np.linalg.solve(hessian, weight @ self.linear)

    def slope(self, k: int, theta: Array) -> Array:
        return self.hessian[k] @ theta - self.linear[k]

    def trained(self, k: int, theta: Array, pull: float = 0.0, to: Array = 0.0) -> Array:
        """Local steps on ``f_k + pull / 2 ||theta - to||^2``."""
        for _ in range(STEPS):
            theta = theta - LR * (self.slope(k, theta) + pull * (theta - to))
        return theta


@cache
def problem(*, shared: bool) -> Problem:
    """Unequal clients; where `shared`, one theta is optimal for each of them."""
    draw, clients, hessian, linear = np.random.default_rng(5), [], [], []
    common = draw.normal(size=FEATURES)
    for size in SIZES:
        rows, _ = np.linalg.qr(draw.normal(size=(size, FEATURES)))
        turn, _ = np.linalg.qr(draw.normal(size=(FEATURES, FEATURES)))
        x = np.sqrt(size) * rows * draw.uniform(0.6, 0.95, FEATURES) @ turn
        y = x @ (common if shared else common + 0.5 * draw.normal(size=FEATURES))
        y = y if shared else y + 0.3 * draw.normal(size=size)
        clients.append(graph_of(torch.tensor(x), torch.tensor(y)))
        hessian.append(2 / size * x.T @ x)
        linear.append(2 / size * x.T @ y)
    return Problem(clients, np.stack(hessian), np.stack(linear))


def graph_of(x: Any, y: Any, **more: Any) -> fgl.Graph:
    mask = torch.ones(len(x), dtype=torch.bool)
    return fgl.Graph(x, torch.zeros(2, 0, dtype=torch.int64), y=y, train_mask=mask, **more)


def fedavg(steps: int = STEPS, **more: Any) -> Method:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        net = Net().double()
    train = Training(partial(torch.optim.SGD, lr=LR), num_steps=steps, **more)
    return fgl.fedavg(net, train=train, target=fgl.targets.REGRESSION)


def vector(params: Any) -> Array:
    return torch.cat([params["a.weight"][0], params["b.weight"][0]]).numpy()


def fixed_point(turn: Callable[[Array], Array], *shape: int) -> Array:
    """The solution of ``theta = turn(theta)`` for an affine map, probed entry by entry."""
    size = int(np.prod(shape))
    zero = turn(np.zeros(shape)).ravel()
    columns = [turn(unit.reshape(shape)).ravel() - zero for unit in np.eye(size)]
    return np.linalg.solve(np.eye(size) - np.stack(columns, 1), zero).reshape(shape)


def averaging(weight: Array, **more: Any) -> Callable[[Problem, Any], Array]:
    """FedAvg's fixed point: ``theta = sum_k weight_k trained_k(theta)``."""

    def point(p: Problem, result: Any) -> Array:
        return fixed_point(
            lambda theta: sum(w * p.trained(k, theta, **more) for k, w in enumerate(weight) if w),
            FEATURES,
        )

    return point


def fedprox_point(mus: Sequence[float]) -> Callable[[Problem, Any], Array]:
    def point(p: Problem, result: Any) -> Array:
        def turn(theta: Array) -> Array:
            each = [p.trained(k, theta, mus[k], theta) for k in range(K)]
            return SHARE @ np.stack(each)

        return fixed_point(turn, FEATURES)

    return point


def adaptive_point(p: Problem, result: Any) -> Array:
    """FedProx's, with the weight at which each client ended."""
    return fedprox_point([float(result.client_states[k]["mu"]) for k in range(K)])(p, result)


def without(client: int) -> Array:
    weight = np.array(SIZES, dtype=float)
    weight[client] = 0
    return weight / weight.sum()


def ditto_point(p: Problem, result: Any) -> Array:
    """``argmin f_k + lambda / 2 ||v - theta||^2`` around the common fixed point."""
    theta = averaging(EQUAL)(p, result)
    pulled = p.hessian + 0.7 * np.eye(FEATURES)
    return np.linalg.solve(pulled, (p.linear + 0.7 * theta)[..., None])[..., 0]


def fedper_point(p: Problem, result: Any) -> Array:
    """The first two entries travel; ``[K, d]``."""

    def turn(each: Array) -> Array:
        new = np.stack([p.trained(k, each[k]) for k in range(K)])
        new[:, :2] = SHARE @ new[:, :2]
        return new

    return fixed_point(turn, K, FEATURES)


def used_after(point: Callable[[Problem, Any], Array]) -> Callable[[Problem, Any], Array]:
    """What clients use who keep what they trained, from what they are sent."""

    def trained(p: Problem, result: Any) -> Array:
        sent = np.broadcast_to(point(p, result), (K, FEATURES))
        return np.stack([p.trained(k, sent[k]) for k in range(K)])

    return trained


def ring_point(p: Problem, result: Any) -> Array:
    def turn(each: Array) -> Array:
        new = np.stack([p.trained(k, each[k]) for k in range(K)])
        return (np.roll(new, 1, 0) + new + np.roll(new, -1, 0)) / 3

    return fixed_point(turn, K, FEATURES)


def gcfl_point(p: Problem, result: Any) -> Array:
    """FedAvg's fixed point in each cluster."""
    clusters = result.server_state["clusters"].numpy()
    assert len(set(clusters)) >= 2
    points = []
    for own in clusters:
        weight = np.where(clusters == own, SIZES, 0)
        points.append(averaging(weight / weight.sum())(p, result))
    return np.stack(points)


def graphfl_point(p: Problem, result: Any, *, second_order: bool = False) -> Array:
    """GraphFL's: FedAvg of ``f_k`` after two steps of rate .1, clients weighing the same."""
    eye, rate = np.eye(FEATURES), 0.1

    def turn(theta: Array) -> Array:
        ends = []
        for k in range(K):
            own = theta
            for _ in range(STEPS):
                adapted = own
                for _ in range(2):
                    adapted = adapted - rate * p.slope(k, adapted)
                slope = p.slope(k, adapted)
                if second_order:
                    slope = np.linalg.matrix_power(eye - rate * p.hessian[k], 2) @ slope
                own = own - LR * slope
            ends.append(own)
        return EQUAL @ np.stack(ends)

    return fixed_point(turn, FEATURES)


def fedselect_point(p: Problem, result: Any) -> Array:
    """A step of a client's own entries, then one of the shared ones; a mean of who shares each."""
    states = [result.client_states[k] for k in range(K)]
    own = np.stack([vector({n: m.double() for n, m in each["mask"].items()}) for each in states])
    own = own > 0
    assert 0 < own.sum() < own.size

    def turn(each: Array) -> Array:
        new = each.copy()
        for k in range(K):
            for _ in range(STEPS):
                for moves in (own[k], ~own[k]) if own[k].any() else (~own[k],):
                    new[k] = new[k] - LR * moves * p.slope(k, new[k])
        weight = SHARE[:, None] * ~own
        mean = (weight * new).sum(0) / np.where(weight.sum(0) > 0, weight.sum(0), 1)
        return np.where(own, new, mean)

    return fixed_point(turn, K, FEATURES)


def sent_models(result: Any) -> Array:
    return np.stack([vector(result.outbox[k]["model"]) for k in range(K)])


def kept_models(result: Any) -> Array:
    return np.stack([vector(result.client_states[k]["model"]) for k in range(K)])


def passed_on(weight: Callable[[Array], Array], pull: float) -> Callable[[Problem, Any], Array]:
    """FedAMP's: what each client keeps solves ``grad f_i + pull (theta_i - u_i) = 0``."""

    def point(p: Problem, result: Any) -> Array:
        each = kept_models(result)
        mixed = weight(each) @ each
        pulled = p.hessian + pull * np.eye(FEATURES)
        return np.linalg.solve(pulled, (p.linear + pull * mixed)[..., None])[..., 0]

    return point


def near(each: Array) -> Array:
    """FedAMP's attention, sigma 2 and server step .4."""
    apart = ((each[:, None] - each[None]) ** 2).sum(-1)
    weight = 0.4 / 2.0 * np.exp(-apart / 2.0)
    np.fill_diagonal(weight, 0)
    np.fill_diagonal(weight, 1 - weight.sum(1))
    return weight


def cosines(each: Array) -> Array:
    moved = each - vector(fedavg().initial())
    unit = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    return unit @ unit.T


def heur(each: Array) -> Array:
    """HeurFedAMP's attention: .3 of itself, the others by a softmax of cosines."""
    weight = np.exp(2.0 * cosines(each))
    np.fill_diagonal(weight, 0)
    return 0.3 * np.eye(K) + 0.7 * weight / weight.sum(1, keepdims=True)


def onto_simplex(row: Array) -> Array:
    """The nearest point of the simplex, by scipy."""
    limits: Any = {"type": "eq", "fun": lambda x: x.sum() - 1}
    start, box = np.full(len(row), 1 / len(row)), [(0, 1)] * len(row)
    found = minimize(
        lambda x: ((x - row) ** 2).sum(), start, bounds=box, constraints=limits, tol=1e-14
    )
    return found.x


def pfedgraph_point(p: Problem, result: Any) -> Array:
    """One round more, from what everybody was sent: nobody moves (prior .8, no attraction)."""
    each = np.stack([p.trained(k, theta) for k, theta in enumerate(sent_models(result))])
    alike = cosines(each)
    target = SHARE + np.where(alike > 0.9, 1, alike) / (2 * 0.8)
    return np.stack([onto_simplex(row) for row in target]) @ each


def median_point(p: Problem, result: Any) -> Array:
    """One round more: the median of the updates, entry by entry."""
    (theta, *_) = sent_models(result)
    each = np.stack([p.trained(k, theta) - theta for k in range(K)])
    return theta + np.median(each, axis=0)


def clipped_point(p: Problem, result: Any) -> Array:
    """One round more: the mean of updates of length .2 at most."""
    (theta, *_) = sent_models(result)
    each = np.stack([p.trained(k, theta) - theta for k in range(K)])
    length = np.linalg.norm(each, axis=1, keepdims=True)
    assert (length > 0.2).any()
    return theta + (each * np.minimum(1, 0.2 / length)).mean(0)


def best(weight: Array) -> Callable[[Problem, Any], Array]:
    return lambda p, result: p.optimum(weight)


def theirs(p: Problem, result: Any) -> Array:
    return p.own


def fit(params: Any, graph: fgl.Graph) -> Any:
    return fedavg().loss(params, graph, {})


@dataclass(frozen=True)
class Row:
    """A method, and where it ends.

    Args:
        build: from FedAvg to the method.
        point: ``(problem, result) -> theta``, for all or a row for each client.
        rounds: of the run in which all take part; 0 for none.
        half: of the run in which half of the clients do; 0 for none.
        optimal: whether it ends at `point` with half of the clients too; else only where one theta
            is optimal for each client.
        of: what ends there: the models that clients use, or those that they are sent.
        near: the largest distance.
        slow: whether ``make nightly`` runs it.
    """

    build: Callable[[Method], Method]
    point: Callable[[Problem, Any], Array]
    rounds: int = 15
    half: int = 30
    optimal: bool = False
    of: str = "used"
    near: float = 1e-6
    slow: bool = False


def adaptive_server(rule: str, slow: bool = True) -> Row:
    """A large tau makes its step about proportional to the mean update."""
    build = partial(methods.fedopt, rule=rule, server_lr=1.0, momentum=0.0, tau=1.0)
    return Row(build, averaging(SHARE), 55, 0, slow=slow)


class OtherSGD(torch.optim.SGD):
    """SGD that is not known to take steps along the gradient."""


def by_gradients(build: Callable[[Method], Method], f: Method) -> Method:
    return build(replace(f, train=replace(f.train, optimizer=partial(OtherSGD, lr=LR))))


ROWS: dict[str, Row] = {
    "fedavg": Row(lambda f: f, averaging(SHARE)),
    "fedavg, one step": Row(lambda f: fedavg(1), best(SHARE), 25, 50),
    "fedprox": Row(partial(methods.fedprox, mu=0.5), fedprox_point([0.5] * K), 20),
    "adaptive_fedprox": Row(
        partial(methods.adaptive_fedprox, fit=fit, mu=0.1), adaptive_point, 20, 25
    ),
    "fedopt": Row(partial(methods.fedopt, server_lr=0.7), averaging(SHARE), 20, 35),
    "fedopt, momentum": Row(
        partial(methods.fedopt, server_lr=0.5, momentum=0.5), averaging(SHARE), 50, 0, slow=True
    ),
    "fedopt, adam": adaptive_server("adam", slow=False),
    "fedopt, yogi": adaptive_server("yogi"),
    "fedopt, adagrad": adaptive_server("adagrad"),
    "scaffold": Row(methods.scaffold, best(EQUAL), 28, 70, optimal=True),
    "scaffold, gradients": Row(
        partial(by_gradients, partial(methods.scaffold, server_lr=0.8)), best(EQUAL), 20, 60,
        optimal=True, slow=True,
    ),
    "feddyn": Row(partial(methods.feddyn, penalty=1.0), best(SHARE), 32, 60, optimal=True),
    "feddc": Row(partial(methods.feddc, penalty=0.5), best(SHARE), 20, 65, optimal=True),
    "feddc, gradients": Row(
        partial(by_gradients, partial(methods.feddc, penalty=0.5)), best(SHARE), 52, 250,
        optimal=True, slow=True,
    ),
    "local": Row(methods.local, theirs, optimal=True),
    "own_models": Row(methods.own_models, used_after(averaging(SHARE))),
    "fedper": Row(partial(methods.fedper, shared=["a"]), used_after(fedper_point)),
    "ditto": Row(partial(methods.ditto, penalty=0.7), ditto_point),
    "ring": Row(methods.ring, ring_point, 15, 35),
    "mix_updates": Row(
        partial(methods.mix_updates, network=methods.uniform, self_weight=0.4), theirs, 45, 50
    ),
    "mix_updates, the mean": Row(
        partial(methods.mix_updates, network=methods.uniform), averaging(EQUAL), half=0
    ),
    "gcfl": Row(methods.gcfl, averaging(SHARE)),
    "gcfl, clusters": Row(
        partial(methods.gcfl, eps1=1e6, eps2=0.0, first_round=2), gcfl_point, half=0
    ),
    "gcfl_plus": Row(partial(methods.gcfl_plus, seq_length=2), averaging(SHARE)),
    "graphfl": Row(
        partial(methods.graphfl, adapt_steps=2, adapt_lr=0.1, query="all"), graphfl_point, 12, 15,
        of="sent",
    ),
    "graphfl, second order": Row(
        partial(methods.graphfl, adapt_steps=2, adapt_lr=0.1, query="all", second_order=True),
        partial(graphfl_point, second_order=True), 12, 0, of="sent", slow=True,
    ),
    "fedselect": Row(
        partial(methods.fedselect, every=1, top=0.5, cap=0.4), fedselect_point, 20, 25
    ),
    "fedamp": Row(
        partial(methods.fedamp, sigma=2.0, server_lr=0.4, penalty=0.2), passed_on(near, 0.5), 16
    ),
    "heurfedamp": Row(
        partial(methods.heurfedamp, own=0.3, scale=2.0, penalty=0.5), passed_on(heur, 0.5), 16
    ),
    "pfedgraph": Row(
        partial(methods.pfedgraph, attraction=0.0), pfedgraph_point, 15, 25, of="sent"
    ),
    "retrained": Row(partial(methods.retrained, client=1), averaging(without(1))),
    "unlearned": Row(partial(methods.unlearned, client=1, at=2), averaging(without(1))),
    "retrained of feddc": Row(
        lambda f: methods.retrained(methods.feddc(f, penalty=0.5), client=1), best(without(1)), 30,
        80, optimal=True, of="sent", slow=True,
    ),
    "scaffold of fedprox": Row(
        lambda f: methods.scaffold(methods.fedprox(f, mu=0.3)), best(EQUAL), 35, 0, slow=True
    ),
    "clipped": Row(partial(clipped, length=0.2), clipped_point, 45, 0),
    "robust, median": Row(partial(robust, rule=median), median_point, 10, 20),
    "sparsified": Row(  # of unequal clients the largest entries take turns, and nothing rests
        partial(sparsified, share=0.4), theirs, 0, 45
    ),
    "rounded downloads": Row(
        partial(rounded_downloads, dtype="float16"), averaging(SHARE), near=2e-3
    ),
    "secure sum": Row(
        partial(secure_sum, threshold=3), averaging(SHARE), 10, 0, of="sent", near=1e-4
    ),
}  # fmt: skip

NO_ROW = {
    "moon": "its contrast is not convex",
    "fedpub": "a mask times a weight is not convex",
    "fedproto": "clients' own models and a penalty between embeddings: not convex",
    "fedtgp": "as fedproto",
    "fggp": "a GCN whose edges are drawn",
    "fedgta": "a mix by the moments of propagated labels: the mix has no formula of its own",
    "fedtad": "the server trains a generator of graphs",
    "fedaux": "a fgl.nn.AuxSAGE, not convex",
    "fedgm": "the server trains on condensed graphs",
    "opfgl": "the server trains on a made-up graph",
    "fedspa": "a fgl.nn.SPA, not convex",
    "fedssp": "a fgl.nn.SSP, not convex",
    "fedstar": "a fgl.nn.Star, not convex; what travels is fedper's",
    "fedhgn": "bases times coefficients are not convex",
    "s2fgl": "a contrast with a book of embeddings, not convex",
    "feddep": "a fgl.nn.DeepNeighbours, not convex",
    "fedsage_plus": "a generator of neighbours, not convex",
    "adafgl": "a fgl.nn.AdaFGL, trained alone",
    "node_generator": "no method", "proxy_graph": "no method", "random_neighbours": "no method",
    "uniform": "no method",
}  # fmt: skip


def test_every_method_has_a_row_or_a_reason() -> None:
    named = {name.split(",")[0] for name in ROWS}
    assert set(methods.__all__) - named == set(NO_ROW)
    assert not named & set(NO_ROW)


def ended(row: Row, p: Problem, num_rounds: int, **how: Any) -> tuple[Array, Any]:
    """Where a run ends: the models of all clients, and the result."""
    method = row.build(fedavg())
    num_rounds *= method.rules.exchange
    result = fgl.run(method, list(p.clients), num_rounds=num_rounds, clients_at_once=1, **how)
    if row.of == "sent":
        return sent_models(result), result
    used = [
        method.deploy(result.outbox[k], result.client_states.get(k, {}), own)
        for k, own in enumerate(p.clients)
    ]
    return np.stack([vector(each) for each in used]), result


def rows(field: str) -> Any:
    """The rows that have rounds of this kind."""
    asked = {name: row for name, row in ROWS.items() if getattr(row, field)}
    slow = {name: [pytest.mark.slow] * row.slow for name, row in asked.items()}
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=marks) for name, marks in slow.items()]
    )


@pytest.mark.filterwarnings("ignore:Secure sum")
@rows("rounds")
def test_all_take_part(name: str) -> None:
    """Unequal clients: each method ends at the point of its formula."""
    row, p = ROWS[name], problem(shared=False)
    found, result = ended(row, p, row.rounds)
    assert np.abs(found - row.point(p, result)).max() < row.near


@rows("half")
def test_half_of_the_clients_take_part(name: str) -> None:
    """At the same point, or where one theta is optimal for each client, at that."""
    row, p = ROWS[name], problem(shared=not ROWS[name].optimal)
    found, result = ended(row, p, row.half, participation=0.5)
    want = row.point(p, result) if row.optimal else p.own
    assert np.abs(found - want).max() < max(row.near, 1e-5)


def joined_by_nobody(p: Problem) -> Problem:
    """One more client, which has examples to score and none to train on."""
    last = p.clients[-1]
    return replace(p, clients=[*p.clients, last.replace(train_mask=~last.training_mask)])


# `test_symmetries.py` has the methods in which the others learn as before.
SLOWED = ("scaffold", "feddc", "gcfl", "robust, median")


@pytest.mark.parametrize("name", SLOWED)
def test_a_client_without_examples_moves_no_end(name: str) -> None:
    """It slows these methods down, so runs are half as long again."""
    row, p = ROWS[name], problem(shared=False)
    found, result = ended(row, joined_by_nobody(p), row.rounds * 3 // 2)
    found = found[: len(p.clients)]
    assert np.abs(found - row.point(p, result)).max() < row.near


@cache
def classes() -> tuple[list[fgl.Graph], Array]:
    """Unequal clients with three classes each, and the optimum of the softmax over all examples."""
    draw, clients = torch.Generator().manual_seed(0), []
    for size in (6, 25, 12, 40):
        x = torch.randn(size, 2, generator=draw, dtype=torch.float64)
        x = torch.cat([x + 0.5 * torch.randn(2, generator=draw), torch.ones(size, 1)], 1)
        y = torch.randint(3, (size,), generator=draw)
        clients.append(graph_of(x, y, num_classes=3))
    x, y = (torch.cat([getattr(g, key) for g in clients]).numpy() for key in ("x", "y"))

    def objective(flat: Array) -> tuple[float, Array]:
        logits = x @ flat.reshape(3, 3).T
        top = logits - logits.max(1, keepdims=True)
        chance = np.exp(top) / np.exp(top).sum(1, keepdims=True)
        slope = (chance - np.eye(3)[y]).T @ x / len(y)
        return -np.log(chance[np.arange(len(y)), y]).mean(), slope.ravel()

    start, how = np.zeros(9), {"ftol": 1e-15, "gtol": 1e-10}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=how)
    return clients, found.x.reshape(3, 3)


class Softmax(nn.Linear):
    def forward(self, x: Any, *rest: Any) -> Any:
        return super().forward(x)


@pytest.mark.parametrize("name", ["feddyn", "feddc"])
def test_softmax_with_half_of_the_clients(name: str) -> None:
    """The problem on which FedDC ended at an objective of 320,465."""
    clients, best = classes()
    net = Softmax(3, 3, bias=False).double()
    nn.init.zeros_(net.weight)
    train = Training(partial(torch.optim.SGD, lr=0.5), num_steps=4)
    method = getattr(methods, name)(fgl.fedavg(net, train=train), penalty=0.3)
    result = fgl.run(method, clients, num_rounds=70, participation=0.5, clients_at_once=1)
    weight = result.outbox[0]["model"]["weight"].numpy()
    weight = weight - weight.mean(0) + best.mean(0)  # a softmax does not see the mean
    assert np.abs(weight - best).max() < 1e-4
