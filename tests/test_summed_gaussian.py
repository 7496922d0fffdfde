"""Noise inside a secure sum: how much of it there is, who may know it, and what it is worth."""

import math
import sys
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from federations import refuses
from torch import Tensor

import fgl
from fgl import Method, Training, privacy
from fgl.federation import Limits
from fgl.privacy.signatures import signing_key
from fgl.transforms import clipped, privacy_spent, secure_sum, summed_gaussian, summed_rounds

pytest.importorskip("cryptography")
pytest.importorskip("Crypto")

F64 = torch.float64
FALSE_ALARM = 1e-6  # of each statistical test here
LENGTH = 0.25
MODULE = sys.modules["fgl.transforms.summed_gaussian"]  # the function has its name
CLIENT: Any = sys.modules["fgl.transforms.secure_sum.client"]
pytestmark = pytest.mark.filterwarnings("ignore:Round .* exchange")  # lost clients, later
BITS = 28


def line(dtype: torch.dtype = F64, size: int = 400) -> Method:
    """A method whose model is a line of 802 numbers."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Linear(size, 2).to(dtype)

    def loss(params: Any, graph: Any, context: Any) -> Tensor:
        return (graph.x @ params["weight"].T + params["bias"] - 1).square().mean()

    return fgl.fedavg(model, loss=loss, train=Training(num_steps=2))


def clients(number: int, dtype: torch.dtype = F64, size: int = 400) -> list[fgl.Graph]:
    edges = torch.zeros(2, 0, dtype=torch.int64)
    g = torch.Generator().manual_seed(3)
    drawn = [torch.randn(k + 1, size, generator=g, dtype=F64).to(dtype) for k in range(number)]
    return [fgl.Graph(x, edges) for x in drawn]


def gone(*pairs: tuple[int, int]) -> Any:
    return lambda index, client: (index, client) in pairs


def change(result: Any, method: Method) -> Tensor:
    """What the run changed of the initial model, as one row."""
    model, first = result.outbox[0]["model"], method.initial()
    return torch.cat([(model[name] - first[name]).double().flatten() for name in first])


def deviations(noise: Tensor) -> tuple[float, float]:
    """The least and the largest deviation that normal numbers may have; seldom wrong."""
    squares, count = float(noise.square().sum()), len(noise)
    ends = (scipy.stats.chi2.isf(FALSE_ALARM, count), scipy.stats.chi2.ppf(FALSE_ALARM, count))
    least, most = (math.sqrt(squares / float(end)) for end in ends)
    return least, most


# The noise


@pytest.mark.parametrize("number", [1, 7])
def test_the_sum_of_shares_has_the_distribution_that_is_claimed(number: int) -> None:
    """Chi-square of whole numbers against a Gaussian with ``sqrt(n) sigma``."""
    sigma, count = 16.0, 40_000
    total = sum(privacy.discrete_gaussian(torch.Size([count]), sigma=sigma) for _ in range(number))
    assert isinstance(total, Tensor) and total.dtype == torch.int64
    edges = np.arange(-30, 31) * round(sigma * math.sqrt(number) / 8) + 0.5
    observed = np.histogram(total.numpy(), np.r_[-np.inf, edges, np.inf])[0]

    def tested(deviation: float) -> float:
        cells = np.diff(scipy.stats.norm.cdf(np.r_[-np.inf, edges, np.inf], scale=deviation))
        few = cells * count < 5
        sums = [np.r_[each[~few], each[few].sum()] for each in (observed, cells * count)]
        return float(scipy.stats.chisquare(*(each[sums[1] > 0] for each in sums)).pvalue)

    assert tested(sigma * math.sqrt(number)) > FALSE_ALARM
    assert tested(0.9 * sigma * math.sqrt(number)) < FALSE_ALARM  # the test can fail


@pytest.mark.parametrize("sigma", [0.6, 0.8, 1.0])
def test_the_gap_bounds_what_a_sum_of_two_is_off(sigma: float) -> None:
    """The density of a sum and of what rounding cut off, over that of the Gaussian mechanism."""
    m = np.arange(-60, 61)
    worst = 0.0
    for cut in np.linspace(-0.5, 0.5, 21):
        for total in np.linspace(-4, 4, 41):
            joint = scipy.stats.norm.pdf(m + cut, scale=sigma) @ scipy.stats.norm.pdf(
                total - m - cut, scale=sigma
            )
            one = scipy.stats.norm.pdf(total, scale=math.sqrt(2) * sigma)
            worst = max(worst, abs(math.log(joint / one)))
    assert 0 < worst <= privacy.gap_of_sum(2, sigma=sigma) <= 10 * worst


def test_the_noise_is_of_no_seed_and_refuses() -> None:
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)
        drawn.append(privacy.discrete_gaussian(torch.Size([50]), sigma=1e6))
    assert not drawn[0].equal(drawn[1])
    g = torch.Generator()
    one, two = (
        privacy.discrete_gaussian(torch.Size([9]), sigma=99.0, unprotected=g.manual_seed(1))
        for _ in range(2)
    )
    assert one.equal(two)
    for sigma in (15.9, 2.0**48 + 1, math.nan):
        with pytest.raises(ValueError, match="Expected sigma"):
            privacy.discrete_gaussian(torch.Size([1]), sigma=sigma)


# The transform


@pytest.mark.parametrize("lost", [(), (4,), (1, 5)])
def test_the_noise_in_the_sum_is_what_the_accountant_credits(lost: tuple[int, ...]) -> None:
    """Clients that drop out take their share along, and epsilon says so."""
    number, threshold, colluders, multiplier = 6, 4, 1, 30.0
    method = summed_gaussian(
        line(), threshold=threshold, colluders=colluders, length=LENGTH,
        noise_multiplier=multiplier, delta=1e-6,
    )  # fmt: skip
    dropouts = gone(*((2, client) for client in lost))
    how: Any = {"num_rounds": 4, "dropouts": dropouts}
    got = fgl.run(method, clients(number), watch=privacy_spent, **how)
    plain = fgl.run(secure_sum(clipped(line(), length=LENGTH), threshold=4), clients(number), **how)
    left = number - len(lost)
    noise = (change(got, line()) - change(plain, line())) * left
    share = LENGTH * multiplier / math.sqrt(threshold - colluders)
    least, most = deviations(noise)
    assert least <= share * math.sqrt(left) <= most < 1.3 * least
    scaled = (noise / share / math.sqrt(left)).numpy()
    assert scipy.stats.kstest(scaled, "norm").pvalue > FALSE_ALARM
    credited = multiplier * math.sqrt((left - colluders) / (threshold - colluders))
    want = privacy.epsilon(noise_multiplier=credited, rounds=1, delta=1e-6)
    assert got.history[-1].metrics["epsilon"] == pytest.approx(want)
    spent: Any = got.server_state["privacy"]
    assert spent["rounds"].nonzero().flatten().tolist() == [k for k in range(6) if k not in lost]
    assert got.history[2].metrics["epsilon"] == 0.0  # nothing has been told yet


@pytest.mark.parametrize("colluders", [0, 2])
def test_colluders_who_take_their_noise_off_leave_what_is_claimed(
    colluders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: the server and q clients know their noise, and all updates but one's."""
    number, threshold, multiplier = 6, 4, 20.0
    drawn: list[Tensor] = []

    def noted(*given: Any, **how: Any) -> Tensor:
        drawn.append(privacy.discrete_gaussian(*given, **how))
        return drawn[-1]

    monkeypatch.setattr(MODULE, "discrete_gaussian", noted)
    method = summed_gaussian(
        line(), threshold=threshold, colluders=colluders, length=LENGTH, noise_multiplier=multiplier
    )
    lost = gone((2, 4), (2, 5))  # as few are left as may be
    got = fgl.run(method, clients(number), num_rounds=4, dropouts=lost, watch=privacy_spent)
    how: Any = {"num_rounds": 4, "dropouts": lost}
    plain = fgl.run(secure_sum(clipped(line(), length=LENGTH), threshold=4), clients(number), **how)
    total = (change(got, line()) - change(plain, line())) * threshold
    each = [
        torch.cat([a.flatten(), b.flatten()]) for a, b in zip(drawn[::2], drawn[1::2], strict=True)
    ]
    assert len(each) in (threshold, number)
    left = total - sum(each[:colluders], torch.zeros(802)).double() * 2.0**-BITS
    least, most = deviations(left)
    assert least <= LENGTH * multiplier <= most, "less noise is left than is claimed"
    claimed = got.history[-1].metrics["epsilon"]
    reached = privacy.epsilon(noise_multiplier=most / LENGTH, rounds=1, delta=1e-5)
    assert (
        reached <= claimed <= privacy.epsilon(noise_multiplier=least / LENGTH, rounds=1, delta=1e-5)
    )
    if colluders:  # crediting the colluders' noise as well would have claimed more
        all_ = multiplier * math.sqrt(threshold / (threshold - colluders))
        assert all_ > most / LENGTH


def test_an_observer_of_sums_does_no_better_than_epsilon_allows(reached: Any) -> None:
    """A client's clipped update or zeros: hits and false alarms of the best test, 20,000 each."""
    runs, parties, multiplier, delta = 20_000, 3, 1.0, 1e-5
    scale = 2.0**BITS
    sigma = LENGTH * multiplier / math.sqrt(parties)

    def sums(update: float) -> Tensor:
        noise = [
            privacy.discrete_gaussian(torch.Size([runs]), sigma=sigma * scale)
            for _ in range(parties)
        ]
        return torch.stack(noise).sum(0) + math.trunc(update * scale)

    def bound(hit: Tensor, alarm: Tensor, chance: float = FALSE_ALARM) -> float:
        lows = scipy.stats.beta.ppf(chance / 2, hit.sum(), runs - hit.sum() + 1)
        high = scipy.stats.beta.isf(chance / 2, alarm.sum() + 1, runs - alarm.sum())
        return math.log(max(float(lows) - delta, 1e-12) / float(high))

    there, away = sums(LENGTH), sums(0.0)
    cuts = [(there > t * LENGTH * scale, away > t * LENGTH * scale) for t in np.arange(0, 3, 0.1)]
    best = max(bound(*each) for each in cuts)
    claimed = privacy.epsilon(noise_multiplier=multiplier, rounds=1, delta=delta)
    reached("epsilon", max(bound(*each, 0.05 / len(cuts)) for each in cuts), claimed)
    assert 1.0 < best <= claimed
    less = privacy.epsilon(noise_multiplier=4 * multiplier, rounds=1, delta=delta)
    assert best > less  # of four times the noise it would be a violation


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_an_upload_is_a_clipped_update_on_the_grid_and_noise(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its whole numbers have the length at most: no rounding makes one longer."""
    words: list[dict[str, Tensor]] = []

    def none(shape: torch.Size, **how: Any) -> Tensor:
        return torch.zeros(shape, dtype=torch.int64)

    monkeypatch.setattr(MODULE, "discrete_gaussian", none)
    real = CLIENT._encoded

    def noted(*given: Any) -> Any:
        words.append(real(*given))
        return words[-1]

    monkeypatch.setattr(CLIENT, "_encoded", noted)
    method = summed_gaussian(line(dtype), threshold=3, length=LENGTH, noise_multiplier=1.0)
    fgl.run(method, clients(4, dtype), num_rounds=4)
    first = line(dtype).initial()
    assert len(words) == 4
    for each in words:
        assert int(each["num_examples"]) == 1
        squares = sum(
            int(a - b) ** 2
            for name, value in first.items()
            for a, b in zip(
                each[f"model/{name}"].flatten().tolist(),
                (value.double() * 2.0**BITS).round().flatten().tolist(),
                strict=True,
            )
        )
        assert (0.99 * LENGTH * 2**BITS) ** 2 < squares <= (LENGTH * 2**BITS) ** 2


def test_whether_an_upload_fits_tells_nothing_of_the_data() -> None:
    """Near the bound nobody sends, be its update up or down; well below everybody does."""
    model = line()
    how: dict[str, Any] = {"threshold": 3, "length": LENGTH, "noise_multiplier": 1.0}
    sigma = LENGTH / math.sqrt(3)
    largest = max(float(value.abs().max()) for value in model.initial().values())
    tight = largest + LENGTH + 9.2 * sigma
    for bound, fits in ((tight + 1e-6, 4), (tight - 1e-6, 0)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            method = summed_gaussian(model, **how, bound=bound)
            got = fgl.run(method, clients(4), num_rounds=4, limits=Limits(empty_rounds=None))
        assert 4 - len(summed_rounds(got.history)[0].dropped) == fits


def test_a_sum_that_failed_after_shares_were_told_counts() -> None:
    """Colluders' shares may complete those that came, so that the server could know the sum."""
    method = summed_gaussian(line(), threshold=3, length=LENGTH, noise_multiplier=1.0)
    lost = gone((3, 0), (3, 1))
    with pytest.warns(UserWarning, match="Expected shares of at least 3 clients, but got 2"):
        got = fgl.run(method, clients(4), num_rounds=4, dropouts=lost, watch=privacy_spent)
    want = privacy.epsilon(noise_multiplier=math.sqrt(4 / 3), rounds=1, delta=1e-5)
    assert got.history[-1].metrics["epsilon"] == pytest.approx(want)
    earlier = gone((2, 0), (2, 1))
    with pytest.warns(UserWarning, match="Expected masked uploads of at least 3"):
        got = fgl.run(method, clients(4), num_rounds=4, dropouts=earlier, watch=privacy_spent)
    assert got.history[-1].metrics["epsilon"] == 0.0  # masks are on


def test_clients_that_sign_count_once_for_five_rounds() -> None:
    made = clients(4, size=30)
    secrets = [bytes([client]) * 32 for client in range(4)]
    public = {client: signing_key(secret) for client, secret in enumerate(secrets)}
    signed = fgl.transforms.Signatures(public, lambda graph: secrets[graph.num_nodes - 1])
    how: dict[str, Any] = {"threshold": 3, "colluders": 1, "length": LENGTH, "signed": signed}
    method = summed_gaussian(line(size=30), noise_multiplier=2.0, **how)
    lost = gone((7, 3))
    got = fgl.run(method, made, num_rounds=10, dropouts=lost, watch=privacy_spent)
    spent = [each.metrics["epsilon"] for each in got.history[3::5]]
    costs = (2 / 3, 2 / 3 + 1)  # in rounds: two shares are planned, three credited, then two
    want = [
        privacy.epsilon(noise_multiplier=2 / math.sqrt(cost), rounds=1, delta=1e-5)
        for cost in costs
    ]
    assert spent == [0.0, pytest.approx(want[0])]  # signatures tell nothing yet
    ends = [each.metrics["epsilon"] for each in got.history[4::5]]
    assert ends == pytest.approx(want)
    assert [sorted(r.dropped) for r in summed_rounds(got.history, method.rules.exchange)] == [
        [],
        [3],
    ]


def test_what_is_out_of_range_is_refused() -> None:
    good: dict[str, Any] = {"threshold": 3, "length": 1.0, "noise_multiplier": 1.0}
    bad: list[tuple[dict[str, Any], str]] = [
        ({"threshold": 1}, "threshold"), ({"length": 0.0}, "length"), ({"delta": 1.0}, "delta"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"), ({"colluders": 3}, "colluders"),
        ({"colluders": -1}, "colluders"), ({"bits": 4}, "bits to be at least 5"),
        ({"colluders": 2}, "threshold to be at least 4"),
        ({"noise_multiplier": 2.6e6, "bound": 3e7}, "bits to be at most 27"),
        ({"bits": 49}, "bits"), ({"bound": 6.0}, "bound"), ({"bits": 48, "bound": 64.0}, "bound"),
    ]  # fmt: skip
    for given, said in bad:
        with pytest.raises(ValueError, match=f"Expected {said}"):
            summed_gaussian(line(), **{**good, **given})
    edge = {"threshold": 4, "length": 1.0, "noise_multiplier": 2.0, "bits": 4}
    summed_gaussian(line(), **edge)  # type: ignore[arg-type]  # a step is a sixteenth, just enough
    once = partial(summed_gaussian, **good)
    refuses("clipped to be given a method without secure_sum", lambda: once(once(line())))


def test_noise_at_the_server_of_a_secure_sum_names_the_noisy_sum() -> None:
    noisy = partial(fgl.transforms.central_gaussian, length=1.0, noise_multiplier=2.0)
    summed = partial(fgl.transforms.secure_sum, threshold=3)
    call = r"write fgl.transforms.summed_gaussian\(method, threshold=..., length=..., noise_mul"
    for outer, inner in ((noisy, summed), (summed, noisy)):
        with pytest.raises(ValueError, match=call):
            outer(inner(line()))  # type: ignore[operator]
