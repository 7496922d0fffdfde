"""Epsilons against dp-accounting's and Opacus', for every function of the accountant.

Mutants that this file finds (each was tried):
- A sampled use that costs as much as one without sampling.
- Sampled uses of which one is counted.
- Uses without sampling whose noise is divided by their number, not by its root.
- `noise_for` of a sample that gives the noise without sampling.

Faults that the suite let pass at 820a2c65, before this file stood (their texts, and the tests that
ran, in `benchmarks/results/truth_mutants.json`; `mutants.py --seeded` puts them in):
- `summed_gaussian` counts what ``start=`` carries under its own noise: stood in its `account`.
- a plain round before a private run costs nothing: stood in `counted`.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from test_privacy import GRID, RENYI

import fgl
from fgl import privacy
from fgl.privacy import accountant
from fgl.transforms import privacy_spent

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


@pytest.mark.parametrize("uses", [
    {(1.0, 0.01): 50},
    {(1.0, 0.01): 50, (3.0, 0.1): 20},
    {(2.0, 1.0): 3, (1.0, 0.01): 50, (5.0, 1.0): 0},
    {(2.0, 1.0): 3, (4.0, 1.0): 5, (0.5, 0.0): 9},
])  # fmt: skip
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
def test_unsampled_epsilon_is_dp_accountings(noise: float, rounds: int, delta: float) -> None:
    other = pld.PLDAccountant(value_discretization_interval=4e-3)
    other.compose(dp.GaussianDpEvent(noise), rounds)
    got = privacy.epsilon(noise_multiplier=noise, rounds=rounds, delta=delta)
    assert got == pytest.approx(other.get_epsilon(delta), rel=5e-3)
    divergence = dp.rdp.RdpAccountant(list(privacy.accountant.ORDERS))
    divergence.compose(dp.GaussianDpEvent(noise), rounds)
    by_order = privacy.epsilon(noise_multiplier=noise, rounds=rounds, delta=delta, **RENYI)
    assert by_order == pytest.approx(divergence.get_epsilon(delta), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("target", "rate", "rounds"), [(2.0, 1.0, 10), (1.0, 0.1, 20)])
def test_noise_for_an_epsilon_is_dp_accountings(target: float, rate: float, rounds: int) -> None:
    how: dict[str, Any] = {"rounds": rounds, "delta": 1e-5, "sample_rate": rate}
    noise = privacy.noise_for(epsilon=target, **how)
    other = pld.PLDAccountant(value_discretization_interval=1e-3)
    event = dp.GaussianDpEvent(noise)
    other.compose(dp.PoissonSampledDpEvent(rate, event) if rate < 1 else event, rounds)
    assert other.get_epsilon(1e-5) == pytest.approx(target, rel=0.01)


RUNS: dict[str, list[dict[str, Any]]] = {  # two runs' settings beside their noise
    "local_gaussian": [{}, {}],
    "central_gaussian": [{}, {}],
    "summed_gaussian": [{"threshold": 3}, {"threshold": 3}],
    "per_example_gaussian": [
        {"expected_batch_size": 3, "sample_rate": 0.5, "num_steps": 3},
        {"expected_batch_size": 3, "sample_rate": 0.2, "num_steps": 4},
    ],
}


def test_runs_that_start_from_another_are_composed_as_by_dp_accounting() -> None:
    """Two rounds, then one of other noise; with a plain round before or between nothing holds."""
    none = torch.zeros(2, 0, dtype=torch.int64)
    clients = [fgl.Graph(torch.randn(6, 3), none, y=torch.arange(6) % 2) for _ in range(3)]
    plain = fgl.fedavg(fgl.nn.GCN(3, 4, 2))
    bare = fgl.run(plain, clients, num_rounds=1)

    def spent(method: fgl.Method, rounds: int, start: Any) -> Any:
        rounds *= method.rules.exchange
        return fgl.run(
            method, clients, num_rounds=rounds, start=start, watch=privacy_spent, clients_at_once=1
        )

    for kind, settings in RUNS.items():
        other, before = pld.PLDAccountant(value_discretization_interval=4e-3), None
        for how, noise, rounds in zip(settings, (1.0, 10.0), (2, 1), strict=True):
            method = getattr(fgl.transforms, kind)(plain, length=1.0, noise_multiplier=noise, **how)
            event, rate = dp.GaussianDpEvent(noise), how.get("sample_rate", 1)
            event = dp.PoissonSampledDpEvent(rate, event) if rate < 1 else event
            other.compose(event, rounds * how.get("num_steps", 1))
            result = spent(method, rounds, before)
            if before is None or kind == "local_gaussian":
                plainly = spent(plain, 1, before) if before else bare
                assert spent(method, rounds, plainly).history[-1].metrics["epsilon"] == math.inf
            want, before = other.get_epsilon(1e-5), result
            assert result.history[-1].metrics["epsilon"] == pytest.approx(want, rel=0.01), kind


ROWS = {"epsilon", "noise_for"}


def test_every_function_of_the_accountant_has_a_row() -> None:
    words = ("epsilon", "noise_for", "budget", "delta", "accountant")
    assert {name for name in privacy.__all__ if any(word in name for word in words)} == ROWS
