"""Epsilons against dp-accounting's and Opacus', for every function of the accountant.

Mutants that this file finds (each was tried):
- A sampled use that costs as much as one without sampling.
- Sampled uses of which one is counted.
- Uses without sampling whose noise is divided by their number, not by its root.
- `noise_for` of a sample that gives the noise without sampling.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from test_privacy import GRID, RENYI

from fgl import privacy
from fgl.privacy import accountant

dp = pytest.importorskip("dp_accounting")
pld = pytest.importorskip("dp_accounting.pld")
SAMPLED = [(1.0, 200, 1e-5, 0.01), (0.7, 3, 1e-6, 0.5), (50.0, 6, 1e-5, 0.5)]


@pytest.mark.parametrize(("noise", "rounds", "delta", "rate"), SAMPLED)
def test_epsilon_of_a_sample_is_never_too_small_and_hardly_too_large(
    noise: float, rounds: int, delta: float, rate: float, reached: Any
) -> None:
    """Between dp-accounting's two bounds on a grid four times as fine, and below Renyi's."""
    losses = pld.privacy_loss_distribution
    step = (10 / noise + 0.5 / noise**2) / accountant.POINTS / 4
    ends = [
        losses.from_gaussian_mechanism(
            noise, sampling_prob=rate, pessimistic_estimate=upper,
            value_discretization_interval=step, use_connect_dots=upper,
        ).self_compose(rounds).get_epsilon_for_delta(delta)
        for upper in (False, True)
    ]  # fmt: skip
    how: Any = {"noise_multiplier": noise, "rounds": rounds, "delta": delta, "sample_rate": rate}
    spent = privacy.epsilon(**how)
    reached("below a lower bound of it", spent < ends[0], 1)
    assert ends[0] <= spent <= 1.001 * ends[1] + 1e-6
    assert spent < privacy.epsilon(**how, **RENYI)
    assert spent < privacy.epsilon(**{**how, "sample_rate": 1.0})


@pytest.mark.parametrize(
    "uses",
    [
        {(1.0, 0.01): 50},
        {(1.0, 0.01): 50, (3.0, 0.1): 20},
        {(2.0, 1.0): 3, (1.0, 0.01): 50, (5.0, 1.0): 0},
        {(2.0, 1.0): 3, (4.0, 1.0): 5, (0.5, 0.0): 9},
    ],
)
def test_several_uses_are_composed_as_by_dp_accounting(uses: Any) -> None:
    other = pld.PLDAccountant(value_discretization_interval=4e-3)
    for (noise, rate), times in uses.items():
        if times and rate:
            event = dp.GaussianDpEvent(noise)
            other.compose(dp.PoissonSampledDpEvent(rate, event) if rate < 1 else event, times)
    want = other.get_epsilon(1e-5)
    assert privacy.accountant.composed_epsilon(uses, delta=1e-5) == pytest.approx(want, rel=0.01)


@pytest.mark.parametrize("rate", [1.0, 0.5, 0.1, 0.01])
@pytest.mark.parametrize(("noise", "rounds", "delta"), GRID)
def test_epsilon_is_that_of_opacus(noise: float, rounds: int, delta: float, rate: float) -> None:
    """On whole orders; of a sampled mechanism the two sum another series at broken ones."""
    analysis = pytest.importorskip("opacus.accountants.analysis.rdp")
    orders = privacy.accountant.ORDERS if rate == 1 else [float(order) for order in range(2, 64)]
    how: Any = {"q": rate, "noise_multiplier": noise, "steps": rounds, "orders": orders}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the best order may be the last one
        divergence = analysis.compute_rdp(**how)
        want = analysis.get_privacy_spent(orders=orders, rdp=divergence, delta=delta)[0]
    given: Any = {"noise_multiplier": noise, "rounds": rounds, "delta": delta}
    got = privacy.epsilon(**given, sample_rate=rate, orders=orders)
    assert got == pytest.approx(max(float(want), 0.0), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("noise", "rounds", "delta"), GRID)
def test_without_a_sample_epsilon_is_dp_accountings(
    noise: float, rounds: int, delta: float
) -> None:
    other = pld.PLDAccountant(value_discretization_interval=4e-3)
    other.compose(dp.GaussianDpEvent(noise), rounds)
    got = privacy.epsilon(noise_multiplier=noise, rounds=rounds, delta=delta)
    assert got == pytest.approx(other.get_epsilon(delta), rel=5e-3)
    divergence = dp.rdp.RdpAccountant(list(privacy.accountant.ORDERS))
    divergence.compose(dp.GaussianDpEvent(noise), rounds)
    by_order = privacy.epsilon(noise_multiplier=noise, rounds=rounds, delta=delta, **RENYI)
    assert by_order == pytest.approx(divergence.get_epsilon(delta), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("target", "rate", "rounds"), [(2.0, 1.0, 10), (1.0, 0.1, 20)])
def test_the_noise_for_an_epsilon_gives_it_by_dp_accounting(
    target: float, rate: float, rounds: int
) -> None:
    how: dict[str, Any] = {"rounds": rounds, "delta": 1e-5, "sample_rate": rate}
    noise = privacy.noise_for(epsilon=target, **how)
    other = pld.PLDAccountant(value_discretization_interval=1e-3)
    event = dp.GaussianDpEvent(noise)
    other.compose(dp.PoissonSampledDpEvent(rate, event) if rate < 1 else event, rounds)
    assert other.get_epsilon(1e-5) == pytest.approx(target, rel=0.01)


ROWS = {"epsilon", "noise_for"}


def test_every_function_of_the_accountant_has_a_row() -> None:
    words = ("epsilon", "noise_for", "budget", "delta", "accountant")
    assert {name for name in privacy.__all__ if any(word in name for word in words)} == ROWS
