"""Attacks on DP-SGD: what an observer makes of one upload stays within the claimed epsilon.

The observer knows all but whether one example is there: the other examples, the model, the run's
seed, every argument. The bytes of the operating system come from a seed here, so a test that passes
once passes always.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from conformance import first
from federations import refuses, same
from scipy.stats import beta

import fgl
from fgl import Method, Training, privacy
from fgl.federation import train
from fgl.privacy.gaussian import grid_step
from fgl.transforms import per_example_gaussian
from fgl.transforms.dp_sgd import per_example

F32, F64 = torch.float32, torch.float64
NONE = torch.zeros(2, 0, dtype=torch.int64)
DELTA = 1e-5
QUIET = 25.0  # a noise multiplier: a step that draws every example is worth an epsilon of .125
CHANCE = 1e-4  # with which a rate lies beyond each of its Clopper-Pearson bounds
TRIALS = 64  # uploads of each world; a threshold is chosen on one half and tried on the other

Statistic = Callable[[torch.Tensor], float]  # of what an upload changed, float64 [entries]


@pytest.fixture(autouse=True)
def system(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operating system whose bytes are always the same."""
    monkeypatch.setattr("os.urandom", np.random.default_rng(7).bytes)


class Rows(torch.nn.Module):
    """A perceptron that looks at no edge; biases start at 0, and no example reaches `unused`."""

    def __init__(self, hidden: int = 8) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(6, hidden), torch.nn.Linear(hidden, 3)
        for layer in (self.one, self.two):
            torch.nn.init.zeros_(layer.bias)
        self.unused = torch.nn.Parameter(torch.zeros(4))

    def forward(self, x: Any, adj: Any = None) -> Any:
        return self.two(self.one(x).relu())


def gcn(dropout: float = 0.0, hidden: int = 8) -> fgl.nn.GCN:
    return fgl.nn.GCN(6, hidden, 3, dropout=dropout)


def rows(count: int, dtype: torch.dtype = F32) -> fgl.Graph:
    """The last of always the same rows, so that a client with one more has it in front."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(6000, 6, generator=generator).to(dtype), torch.arange(6000) % 3
    return fgl.Graph(x[6000 - count :], NONE, y=y[6000 - count :], num_classes=3)


def trees(trained: int) -> fgl.Graph:
    """A collection of three paths of three nodes, of which the last ones are trained on."""
    edges = torch.tensor([[0, 1, 3, 4, 6, 7], [1, 2, 4, 5, 7, 8]])
    x = torch.randn(9, 6, generator=torch.Generator().manual_seed(0))
    given: dict[str, Any] = {"y": torch.tensor([0, 1, 2]), "batch": torch.arange(9) // 3}
    return fgl.Graph(x, edges, **given, train_mask=torch.arange(3) >= 3 - trained)


def private(
    net: Callable[[], Any] = gcn, train: Any = None, dtype: torch.dtype = F32, **how: Any
) -> Method:
    given = {"length": 1.0, "noise_multiplier": QUIET, "sample_rate": 1.0, "num_steps": 1}
    given |= {"expected_batch_size": 1, "delta": DELTA, **how}
    sgd = partial(torch.optim.SGD, lr=1.0)
    plain = fgl.fedavg(first(net, dtype), train=Training(sgd if train is None else train))
    return per_example_gaussian(plain, **given)


def upload(method: Method, own: fgl.Graph, seed: int = 0) -> torch.Tensor:
    """What the client's upload changed of what it was sent."""
    start: Any = method.initial()
    params, context = method.receive({"model": start}, {}, own)
    done = train(method, params, own, context, seed=seed)
    message: Any = method.send(done.params, context, {}, own)[0]["model"]
    return torch.cat([(message[n].double() - start[n].double()).flatten() for n in start])


def worlds(method: Method, *clients: fgl.Graph) -> list[list[torch.Tensor]]:
    return [[upload(method, own) for _ in range(TRIALS)] for own in clients]


def bounds(hits: int, of: int, chance: float = CHANCE) -> tuple[float, float]:
    """The Clopper-Pearson bounds of a rate; each is missed with a probability of `chance`."""
    low = float(beta.ppf(chance, hits, of - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - chance, hits + 1, of - hits)) if hits < of else 1.0
    return low, high


def check_claim(
    epsilon: float, seen: list[list[torch.Tensor]], looks: Sequence[Statistic]
) -> float:
    """No statistic with its best threshold has ``hits > e^epsilon false alarms + delta``.

    Returns:
        The epsilon that the attack reached, which the true one is above with a probability of 95 %.
        The look and the threshold that do best on one half of the uploads are tried on the other.
    """
    half, tried = TRIALS // 2, []
    for look in looks:
        values = [[look(each) for each in world] for world in seen]
        for sign in (1.0, -1.0):
            one, two = ([sign * value for value in world] for world in values)
            for yes, no in ((one, two), (two, one)):
                cut = max(yes[:half] + no[:half], key=partial(gain, yes[:half], no[:half]))
                hits, alarms = (sum(v >= cut for v in world[half:]) for world in (yes, no))
                tried.append((gain(yes[:half], no[:half], cut), hits, alarms))
                low, high = bounds(hits, half)[0], bounds(alarms, half)[1]
                found = f"{hits} hits and {alarms} false alarms of {half} by {named(look)}"
                assert low <= math.exp(epsilon) * high + DELTA, found
    _, hits, alarms = max(tried, key=lambda each: each[0])
    low, high = bounds(hits, half, 0.025)[0], bounds(alarms, half, 0.025)[1]
    return max(math.log((low - DELTA) / high), 0.0) if low > DELTA else 0.0


def named(look: Any) -> str:
    given = {k: v for k, v in getattr(look, "keywords", {}).items() if not torch.is_tensor(v)}
    return f"{getattr(look, 'func', look).__name__} {given}"


def gain(yes: list[float], no: list[float], cut: float) -> int:
    return sum(v >= cut for v in yes) - sum(v >= cut for v in no)


def on_grid(change: torch.Tensor, *, sigma: float, times: float, near: float) -> float:
    """The share of entries that are multiples of the noise's step, if multiplied with `times`."""
    steps = change * times / grid_step(sigma)
    return float(((steps - steps.round()).abs() <= near).double().mean())


def short(change: torch.Tensor, *, bits: int) -> float:
    """The share of entries whose last bits of a float32 are zeros."""
    whole = change.float().view(torch.int32)
    return float((whole % 2**bits == 0).double().mean())


def spread(change: torch.Tensor) -> float:
    return float(change.std())


def largest(change: torch.Tensor) -> float:
    return float(change.abs().max())


def zeros(change: torch.Tensor) -> float:
    return float((change == 0).double().mean())


def repeated(change: torch.Tensor) -> float:
    return 1 - len(change.abs().unique()) / len(change)


def along(change: torch.Tensor, *, direction: torch.Tensor) -> float:
    """The likelihood ratio's statistic: how far an upload lies in the direction of a difference."""
    return float(change @ direction / direction.norm())


def all_looks(*, lr: float, sigma: float, size: float) -> list[Statistic]:
    """What an observer looks at who knows the learning rate and the batch size that is expected."""
    grids = [
        partial(on_grid, sigma=sigma, times=times, near=near)
        for times in (size / lr, 1 / lr, size, 1.0)
        for near in (1e-3, 0.1)
    ]
    shorts = [partial(short, bits=bits) for bits in (1, 4, 8)]
    return [*grids, *shorts, spread, largest, zeros, repeated]


OPTIMIZERS: dict[str, tuple[float, Any]] = {  # a learning rate, and who has it
    "power of two": (0.5, torch.optim.SGD),
    "one": (1.0, torch.optim.SGD),
    "tenth": (0.1, torch.optim.SGD),
    "momentum": (0.25, partial(torch.optim.SGD, momentum=0.9, weight_decay=0.1)),
    "adam": (0.01, torch.optim.Adam),
}


ATTACKED = [(gcn, "adam")]
FURTHER = [*((gcn, name) for name in OPTIMIZERS if name != "adam"), (Rows, "power of two")]
ATTACKED += [pytest.param(*each, marks=pytest.mark.slow) for each in (*FURTHER, (Rows, "adam"))]


@pytest.mark.parametrize(("net", "name"), ATTACKED)
def test_the_grid_does_not_tell_an_empty_batch(net: Any, name: str, reached: Any) -> None:
    """The noise lay on a grid, and the gradient did not: one look at an upload told them apart."""
    lr, kind = OPTIMIZERS[name]
    for steps, size in ((1, 1), (3, 12)):
        noise = QUIET * steps**0.5
        claimed = privacy.epsilon(noise_multiplier=noise, rounds=steps, delta=DELTA)
        assert claimed == pytest.approx(0.125, abs=0.001)
        how: dict[str, Any] = {"num_steps": steps, "expected_batch_size": size}
        method = private(net, partial(kind, lr=lr), noise_multiplier=noise, **how)
        looks = all_looks(lr=lr, sigma=noise, size=size)
        found = check_claim(claimed, worlds(method, rows(0), rows(1)), looks)
        reached("epsilon", found, claimed)


@pytest.mark.slow
def test_the_grid_does_not_tell_graphs_of_a_collection(reached: Any) -> None:
    method = private(partial(fgl.nn.GIN, 6, 8, 3, dropout=0.0))
    claimed = privacy.epsilon(noise_multiplier=QUIET, rounds=1, delta=DELTA)
    for count in (0, 2):
        seen = worlds(method, trees(count), trees(count + 1))
        found = check_claim(claimed, seen, all_looks(lr=1.0, sigma=QUIET, size=1))
        reached("epsilon", found, claimed)


@pytest.mark.slow
def test_the_spread_of_an_upload_does_not_tell_how_many_rows_there_are(reached: Any) -> None:
    """The divisor was ``sample_rate`` times the number of rows: 20 and 19 were 5 % apart."""
    noise, net = 20.0, partial(Rows, 600)  # 6,000 entries: a spread is off by 1 %
    method = private(net, sample_rate=0.25, noise_multiplier=noise, expected_batch_size=5)
    claimed = privacy.epsilon(noise_multiplier=noise, rounds=1, delta=DELTA, sample_rate=0.25)
    assert claimed < 0.05
    for one, other in ((20, 19), (1, 0), (2, 200)):  # the last are no neighbours, and yet alike
        seen = worlds(method, rows(one), rows(other))
        reached("epsilon", check_claim(claimed, seen, [spread, largest, zeros]), claimed)


@pytest.mark.slow
def test_a_runs_seed_tells_no_dropouts(monkeypatch: pytest.MonkeyPatch, reached: Any) -> None:
    """Dropout came from the run's seed: with one row more, every later row had another mask.

    So a row changed the sum by 60 lengths, in a direction that whoever knows the seed computes.
    """
    net, clients = partial(gcn, dropout=0.5, hidden=16), (rows(4000), rows(4001))
    with monkeypatch.context() as patch:  # the observer's own computation, with the run's seed
        patch.setattr(per_example, "seed_from_system", lambda device: None, raising=False)
        one, other = (upload(private(net, noise_multiplier=1e-9), own) for own in clients)
    claimed = privacy.epsilon(noise_multiplier=10.0, rounds=1, delta=DELTA)
    seen = worlds(private(net, noise_multiplier=10.0), *clients)
    found = check_claim(claimed, seen, [partial(along, direction=other - one)])
    reached("epsilon", found, claimed)


@pytest.mark.parametrize("at_once", [1, "all"])
def test_dropout_comes_from_the_operating_system(at_once: Any) -> None:
    net, clients = partial(gcn, dropout=0.5), [rows(9), rows(4)]
    quiet = private(net, noise_multiplier=1e-9)
    one, two = (
        fgl.run(quiet, clients, num_rounds=1, clients_at_once=at_once).outbox[0]["model"]
        for _ in range(2)
    )
    assert float((one["convs.1.lin.weight"] - two["convs.1.lin.weight"]).abs().max()) > 1e-3


Sum = Callable[..., Any]


def answered(
    method: Method, own: fgl.Graph, monkeypatch: pytest.MonkeyPatch, total: Callable[[Sum], Sum]
) -> Any:
    """A client's answer of a round, where `total` stands in the place of the clipped sum."""
    with monkeypatch.context() as patch:
        patch.setattr(per_example, "_clipped_sum", total(per_example._clipped_sum))
        loop = fgl.federation.Loop(method, [own], seed=0)
        ((_, answer),) = loop.train(0, {0: {"model": method.initial()}}, [0])
    return answer


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("kind", ["rows", "trees"])
def test_an_answer_is_a_function_of_sums_on_the_grid(
    kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client whose noisy sums are the same answers the same, bit for bit."""
    adam = partial(torch.optim.Adam, lr=0.03, weight_decay=0.1)
    net = gcn if kind == "rows" else partial(fgl.nn.GIN, 6, 8, 3, dropout=0.0)
    method = private(net, adam, dtype, noise_multiplier=1.7, num_steps=3, expected_batch_size=7)
    one, other = (rows(5, dtype), rows(0, dtype)) if kind == "rows" else (trees(3), trees(0))
    if kind == "trees":
        one, other = one.replace(x=one.x.to(dtype)), other.replace(x=other.x.to(dtype))
    sums: list[Any] = []

    def heard(real: Sum) -> Sum:
        def total(method: Any, params: Any, grads: Any, context: Any, *rest: Any) -> Any:
            made = real(method, params, grads, context, *rest)
            sums.append({name: made[name] + context["example_noise"][name] for name in made})
            return made

        return total

    def given(real: Sum) -> Sum:
        again = iter(sums)

        def total(method: Any, params: Any, grads: Any, context: Any, *rest: Any) -> Any:
            return {name: v - context["example_noise"][name] for name, v in next(again).items()}

        return total

    first_, second = (
        answered(method, own, monkeypatch, by) for own, by in ((one, heard), (other, given))
    )
    step = grid_step(1.7)
    assert len(sums) == 3
    assert all((value / step).frac().eq(0).all() for each in sums for value in each.values())
    assert same(first_.message, second.message)
    assert (first_.losses, first_.num_examples) == (second.losses, second.num_examples) == ([], 1)


def test_an_example_changes_the_sum_by_its_length_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """And by nothing else: sums of other examples are exact, in whatever order."""
    method = private(partial(fgl.nn.GIN, 6, 8, 3, dropout=0.0), length=0.3)
    totals: list[Any] = []

    def heard(real: Sum) -> Sum:
        def total(*given: Any) -> Any:
            totals.append(real(*given))
            return totals[-1]

        return total

    for trained in (1, 2, 3):
        answered(method, trees(trained), monkeypatch, heard)
    for fewer, more in pairwise(totals):
        change = torch.cat([(more[name] - fewer[name]).flatten() for name in more])
        length = math.sqrt(math.fsum(value**2 for value in change.tolist()))
        assert 0.29 < length <= 0.3
        assert (change / grid_step(0.3 * QUIET)).frac().eq(0).all()


def test_a_row_whose_loss_is_not_finite_does_not_stop_its_client() -> None:
    """That a client had failed would have told that this row is there."""
    own, method = rows(5), private(Rows, noise_multiplier=1.0)
    far = 3.4e38 * method.initial()["one.weight"][:1].sign()
    far = own.replace(x=torch.cat([far, own.x[1:]]))
    assert method.loss(method.initial(), far, {}).isnan()
    assert upload(method, far).isfinite().all()


def test_an_error_tells_no_loss() -> None:
    """Over Flower a server reads it."""
    plain = fgl.fedavg(first(gcn, F32))

    def squared(*given: Any) -> Any:
        return plain.loss(*given) ** 2

    how: dict[str, Any] = {"length": 1.0, "noise_multiplier": 1.0, "sample_rate": 0.5}
    method = per_example_gaussian(
        replace(plain, loss=squared), **how, expected_batch_size=3, num_steps=1
    )
    refuses(r"compares them, adapts to them or draws$", lambda: upload(method, rows(5)))


def test_a_method_cannot_tell_how_many_examples_there_are() -> None:
    plain = fgl.fedavg(first(gcn, F32))

    def tells(params: Any, context: Any, state: Any, graph: Any) -> Any:
        told = [graph.num_nodes, graph.num_graphs, graph.num_train, graph.num_examples]
        seen.append(told)
        return plain.send(params, context, state, graph)

    seen: list[Any] = []
    how: dict[str, Any] = {"length": 1.0, "noise_multiplier": 1.0, "sample_rate": 0.5}
    method = per_example_gaussian(
        replace(plain, send=tells), **how, expected_batch_size=3, num_steps=1
    )
    for count in (0, 3, 7):
        upload(method, rows(count))
    assert seen == [[1] * 4] * 3


def test_every_step_draws_every_row_alone() -> None:
    """With the probability that the accountant counts on, and without regard to other rows."""
    method, own = private(sample_rate=0.3, num_steps=600), rows(8)
    _, context = method.receive({"model": method.initial()}, {}, own)
    batches: Any = method.train.batches
    steps = [step["rows"].values for _, step in batches(own, context)]
    drawn = torch.stack([(own.x[:, None] == each[None]).all(2).any(1) for each in steps]).double()
    assert drawn.shape == (600, 8)
    assert float((drawn.mean(0) - 0.3).abs().max()) < 5 * (0.3 * 0.7 / 600) ** 0.5
    apart = torch.corrcoef(drawn.T) - torch.eye(8)
    after = torch.corrcoef(torch.stack([drawn[1:].flatten(), drawn[:-1].flatten()]))[0, 1]
    assert float(apart.abs().max()) < 5 / 600**0.5
    assert abs(float(after)) < 5 / (599 * 8) ** 0.5
