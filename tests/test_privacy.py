"""Clipping, noise and the accountant, as functions of tensors."""

import logging
import math
import sys
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from federations import close, refuses, same

from fgl import privacy
from fgl.privacy import accountant
from fgl.privacy.clip import clipped_gradient, length_of
from fgl.privacy.gaussian import gap_of_sum, grid_step, on_grid, seed_from_system, standard_normal
from fgl.privacy.shares import need


def update(seed: int = 0, *, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Any:
    g = torch.Generator().manual_seed(seed)
    return {
        name: (scale * torch.randn(shape, generator=g)).to(dtype)
        for name, shape in (("w", (7, 5)), ("b", (5,)), ("scalar", ()))
    }


def flat(tensors: Any) -> torch.Tensor:
    return torch.cat([value.double().flatten() for value in tensors.values()])


def naive_clip(tensors: Any, length: float) -> torch.Tensor:
    """Number by number."""
    numbers = flat(tensors).tolist()
    norm = math.sqrt(math.fsum(number**2 for number in numbers))
    return torch.tensor([number * min(1.0, length / norm) for number in numbers])


@pytest.mark.parametrize("length", [1e-3, 1.0, 5.0, 1e4])
def test_clip_is_its_formula_over_all_tensors(length: float) -> None:
    given = update(scale=3.0)
    close(flat(privacy.clip(given, length=length)).float(), naive_clip(given, length), atol=1e-5)


def test_what_is_short_stays_the_very_same_and_inputs_stay() -> None:
    given = update()
    before = {name: value.clone() for name, value in given.items()}
    made = privacy.clip(given, length=1e3)
    assert all(made[name] is given[name] for name in given)
    privacy.clip(given, length=1e-3)
    assert same(given, before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_no_rounding_makes_it_longer_than_the_bound(dtype: torch.dtype) -> None:
    for seed in range(200):
        made = privacy.clip(update(seed, dtype=dtype, scale=10.0), length=0.37)
        assert all(value.dtype == dtype for value in made.values())
        norm = math.sqrt(math.fsum(x * x for x in flat(made).tolist()))
        assert 0.36 < norm <= 0.37


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_becomes_zeros(bad: float) -> None:
    given = update()
    given["w"][3, 1] = bad
    made = privacy.clip(given, length=1e9)
    assert all(not value.any() and value.shape == given[n].shape for n, value in made.items())


def test_zeros_nothing_and_huge_values() -> None:
    zeros = {"w": torch.zeros(3)}
    assert same(privacy.clip(zeros, length=1.0), zeros)
    assert privacy.clip({}, length=1.0) == {}
    assert length_of({}) == 0
    huge = privacy.clip({"w": torch.full((2,), 3e38)}, length=1.0)  # squares overflow float32
    close(huge["w"], torch.full((2,), 0.5**0.5))
    assert not privacy.clip({"w": torch.tensor([1e200] * 2).double()}, length=1)["w"].isnan().any()


def squares(params: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (torch.tanh(x @ params["w"]) * params["b"] - y).square().sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_on_a_grid_have_exact_sums(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = torch.Generator().manual_seed(1)
    params = {"w": torch.randn(4, 3, generator=g).to(dtype), "b": torch.ones(3).to(dtype)}
    x, y = torch.randn(9, 4, generator=g).to(dtype), torch.randn(9, 3, generator=g).to(dtype)
    how: dict[str, Any] = {"length": 4.0, "sigma": 1.3}
    made = clipped_gradient(squares, params, (x, y), **how)
    assert all(value.dtype == torch.float64 for value in made.values())
    close(made, {n: v.double() for n, v in clipped_gradient(
        squares, params, (x, y), length=4.0).items()}, atol=1e-4)  # fmt: skip
    alone = [
        clipped_gradient(squares, params, (x, y), counts=torch.arange(9) == i, **how)
        for i in range(9)
    ]
    lengths = [math.sqrt(math.fsum(v**2 for v in flat(each).tolist())) for each in alone]
    assert max(lengths) <= 4.0 and sum(length > 3.999 for length in lengths) >= 2
    assert same(made, {n: torch.stack([each[n] for each in alone[::-1]]).sum(0) for n in made})
    assert bool(((flat(made) / grid_step(1.3)).frac() == 0).all())
    module = sys.modules["fgl.privacy.clip"]
    monkeypatch.setattr(module, "CACHED", 25)  # two examples of "w" at once, eight of "b"
    assert same(made, clipped_gradient(squares, params, (x, y), **how))
    none = clipped_gradient(squares, params, (x[:0], y[:0]), **how)
    assert all(value.dtype == torch.float64 and not value.any() for value in none.values())


def test_a_parameter_that_is_one_number_has_a_clipped_gradient() -> None:
    def loss(params: Any, x: torch.Tensor) -> torch.Tensor:
        return params["s"] * x.sum()

    rows = torch.tensor([[3.0, 4.0], [0.25, 0.25]])
    how: dict[str, Any] = {"length": 1.0, "sigma": 1.0}
    made = clipped_gradient(loss, {"s": torch.tensor(2.0)}, (rows,), **how)
    assert 1.5 - 2**-19 < float(made["s"]) <= 1.5


def test_a_parameter_without_entries_has_an_empty_gradient() -> None:
    params = {"w": torch.zeros(2), "none": torch.zeros(0, 3)}
    loss = lambda params, x: (params["w"] * x).sum() + params["none"].sum()  # noqa: E731
    made = clipped_gradient(loss, params, (torch.tensor([[3.0, 4.0]]),), length=1.0)
    assert made["none"].shape == (0, 3) and made["w"].tolist() == pytest.approx([0.6, 0.8])


def test_an_example_without_a_finite_gradient_counts_for_nothing() -> None:
    params = {"w": torch.ones(2, 1), "b": torch.ones(1)}
    x, y = torch.tensor([[1.0, 2.0], [math.nan, 1.0]]), torch.zeros(2, 1)
    both = clipped_gradient(squares, params, (x, y), length=1.0)
    close(both, clipped_gradient(squares, params, (x[:1], y[:1]), length=1.0))
    none = clipped_gradient(squares, params, (x[:0], y[:0]), length=1.0)
    assert all(not value.any() for value in none.values())


def test_noise_is_normal_and_no_seed_repeats_it() -> None:
    for seed in (0, 0):
        torch.manual_seed(seed)
        np.random.seed(seed)
    one = privacy.gaussian({"w": torch.zeros(50_000)}, sigma=3.0)["w"]
    torch.manual_seed(0)
    np.random.seed(0)
    two = privacy.gaussian({"w": torch.zeros(50_000)}, sigma=3.0)["w"]
    assert not one.equal(two)
    assert abs(float(torch.corrcoef(torch.stack([one, two]))[0, 1])) < 0.03
    for noise in (one, two):  # a right one fails here once in 10^9 runs
        assert scipy.stats.kstest((noise / 3.0).numpy(), "norm").pvalue > 1e-9


def test_noise_of_extreme_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(count: int) -> bytes:
        return np.array([0, 1, 2**64 - 1, 2**64 - 2], dtype=np.uint64).tobytes()

    monkeypatch.setattr("os.urandom", ends)
    far = scipy.stats.norm.isf(0.5 / 2**64)
    close(standard_normal(torch.Size([4])), torch.tensor([-far, far, 0.0, 0.0]).double())
    assert far > 9


def test_every_bit_of_a_state_from_the_system_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 32 bits, as a seed has on the CPU, all can be tried."""
    words = np.random.default_rng(0).integers(2**64, size=624, dtype=np.uint64)

    def drawn(*, word: int = 0, flip: int = 0) -> torch.Tensor:
        given = words.copy()
        given[word] ^= np.uint64(flip)
        monkeypatch.setattr("os.urandom", lambda count: given.tobytes()[:count])
        with torch.random.fork_rng():
            seed_from_system(torch.device("cpu"))
            return torch.randint(2**31, (1300,))

    first = drawn()
    assert first.equal(drawn())
    for word in (0, 1, 300, 623):
        assert not first.equal(drawn(word=word, flip=1 << 63))
    assert first.float().mean().div(2**30).sub(1).abs() < 0.1


def test_the_last_bits_of_a_sum_tell_nothing() -> None:
    """Mironov's attack: some floats are a sum of one value and noise, and of no other value."""
    sigma = 0.3
    step = grid_step(sigma)
    assert sigma / 2**21 < step <= sigma / 2**20
    given = {"w": torch.tensor([1 / 3, -math.pi, 1e-12, 0.0] * 50).double()}
    noisy = privacy.gaussian(given, sigma=sigma)["w"]
    assert bool(((noisy / step) == (noisy / step).round()).all())
    exact = on_grid(given, sigma=sigma)["w"]
    assert bool((exact.abs() <= given["w"].abs()).all())  # so no length grows
    assert float((exact - given["w"]).abs().max()) < step
    rows = [on_grid(update(seed, scale=0.1), sigma=sigma)["w"] for seed in range(9)]
    assert torch.stack(rows).sum(0).equal(torch.stack(rows[::-1]).sum(0))  # no sum is rounded


def test_a_seed_repeats_and_warns() -> None:
    made = []
    for _ in range(2):
        with pytest.warns(UserWarning, match="protects nothing"):
            g = torch.Generator().manual_seed(4)
            made.append(privacy.gaussian(update(), sigma=1.0, unprotected=g))
    assert same(*made)
    noise = flat(made[0]) - flat(update())
    assert float(noise.abs().max()) > 0.1


def test_gaussian_keeps_shapes_and_refuses() -> None:
    given = {**update(dtype=torch.float16), "none": torch.zeros(0, 3)}
    noisy = privacy.gaussian(given, sigma=1e-3)
    assert [(n, v.shape, v.dtype) for n, v in noisy.items()] == [
        (n, v.shape, v.dtype) for n, v in given.items()
    ]
    with pytest.raises(ValueError, match="Expected w to be finite"):
        privacy.gaussian({"w": torch.tensor([math.nan])}, sigma=1.0)


def test_noisy_shares_are_distributions() -> None:
    shares = torch.eye(4).repeat(50, 1)[:, None]  # [200, 1, 4]
    noisy = privacy.noisy_shares(shares, sigma=0.2)
    assert noisy.shape == shares.shape
    assert bool((noisy >= 0).all())
    close(noisy.sum(2), torch.ones(200, 1), atol=1e-5)
    assert not noisy.equal(shares)
    assert privacy.noisy_shares(shares[:0], sigma=0.2).shape == (0, 1, 4)


def by_hand(noise: float, rounds: int, delta: float) -> float:
    """The accountant's formula, order by order."""
    return min(
        rounds * a / (2 * noise**2) + math.log((a - 1) / a) - (math.log(delta * a)) / (a - 1)
        for a in privacy.accountant.ORDERS
    )


GRID = [(0.7, 1, 1e-5), (1.1, 30, 1e-5), (3.0, 200, 1e-6), (20.0, 1000, 1e-3)]


RENYI: dict[str, Any] = {"orders": privacy.accountant.ORDERS}


@pytest.mark.parametrize(("noise", "rounds", "delta"), [*GRID, (1e3, 3, 1e-5), (0.05, 2, 1e-5)])
def test_unsampled_epsilon_is_exact(noise: float, rounds: int, delta: float, reached: Any) -> None:
    """Its delta by integrating how much likelier one result is, digit by digit."""
    from mpmath import erfc, exp, mp, mpf, sqrt

    spent = privacy.epsilon(noise_multiplier=noise, rounds=rounds, delta=delta)
    with mp.workdps(60):
        mu = sqrt(mpf(rounds)) / mpf(noise)

        def tail(x: Any) -> Any:
            return erfc(x / sqrt(mpf(2))) / 2

        def delta_at(level: float) -> float:
            at = mpf(level) / mu
            return float(tail(at - mu / 2) - exp(mpf(level)) * tail(at + mu / 2))

        reached("epsilons below the exact one", delta_at(spent) > (1 + 1e-6) * delta, 1)
        if spent:
            assert delta_at(spent) == pytest.approx(delta, rel=1e-6)
        else:
            assert delta_at(0.0) <= delta
    assert spent <= by_hand(noise, rounds, delta)


def test_an_epsilon_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    how: Any = {"noise_multiplier": 1.37, "rounds": 7, "delta": 1e-5, "sample_rate": 0.2}
    first = privacy.epsilon(**how)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    assert privacy.epsilon(**how) == first


def test_no_use_costs_nothing_and_one_without_noise_everything() -> None:
    assert privacy.accountant.composed_epsilon({(1.0, 1.0): 0}, delta=1e-5) == 0
    both = {(1.0, 1.0): 1, (0.0, 0.5): 1}
    assert privacy.accountant.composed_epsilon(both, delta=1e-5) == math.inf
    with pytest.raises(ValueError, match="rounds to be .* -1"):
        privacy.accountant.composed_epsilon({(1.0, 1.0): 3, (2.0, 1.0): -1}, delta=1e-5)
    for rounds, error in ((-1, ValueError), (2.5, TypeError)):
        with pytest.raises(error, match=f"rounds to be .* {rounds}"):
            privacy.epsilon(noise_multiplier=1.0, rounds=rounds, delta=1e-5)  # type: ignore[arg-type]


def test_an_epsilon_that_no_noise_gives_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter([2.0])  # of all the noise that the search begins with
    monkeypatch.setattr(accountant, "_spent", lambda **how: next(spent))
    with pytest.raises(ValueError, match="epsilon to be one that noise can give, but got 1.0"):
        privacy.noise_for(epsilon=1.0, rounds=1, delta=1e-5, sample_rate=0.5)


def test_epsilon_of_a_sample_says_nothing_of_orders_that_fail() -> None:
    """dp-accounting logs a line for each; what else it logs is heard, and epsilon is the same."""
    said: list[str] = []

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger, heard = logging.getLogger("absl"), Heard()
    logger.addHandler(heard)
    try:
        how: Any = {"noise_multiplier": 1.2, "rounds": 6, "delta": 1e-5, "sample_rate": 0.5}
        got = privacy.epsilon(**how, **RENYI)
        quiet = accountant._quiet_about("Excluding this order")
        with pytest.raises(ValueError, match="sampling prob"), quiet:
            logger.warning("another")
            raise ValueError("sampling prob")
        logger.warning("Excluding this order, after all")
    finally:
        logger.removeHandler(heard)
    assert said == ["another", "Excluding this order, after all"]
    whole = privacy.epsilon(
        **how, orders=[order for order in privacy.accountant.ORDERS if order >= 2]
    )
    assert got == pytest.approx(whole, abs=1e-6)


def test_epsilon_at_its_ends() -> None:
    assert privacy.epsilon(noise_multiplier=1.0, rounds=0, delta=1e-5) == 0
    assert privacy.epsilon(noise_multiplier=1.0, rounds=5, delta=1e-5, sample_rate=0.0) == 0
    assert privacy.epsilon(noise_multiplier=0.0, rounds=1, delta=1e-5) == math.inf


def test_noise_for_a_sample_is_little_more_than_it_takes() -> None:
    how: Any = {"rounds": 1, "delta": 0.1, "sample_rate": 0.9}
    noise = privacy.noise_for(epsilon=30.0, **how)
    assert privacy.epsilon(noise_multiplier=noise, **how) <= 30
    assert privacy.epsilon(noise_multiplier=0.9985 * noise, **how) > 30


def test_noise_for_a_tiny_epsilon() -> None:
    """Renyi's orders told nothing below .009; the exact formula does."""
    noise = privacy.noise_for(epsilon=1e-5, rounds=40, delta=1e-5)
    spent = privacy.epsilon(noise_multiplier=noise, rounds=40, delta=1e-5)
    assert spent == pytest.approx(1e-5, rel=1e-3) and spent <= 1e-5
    with pytest.raises(ValueError, match="Expected sample_rate to be a number > 0"):
        privacy.noise_for(epsilon=1.0, rounds=1, delta=1e-5, sample_rate=0.0)


def test_too_small_noise_of_the_calibration_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    accounting = pytest.importorskip("dp_accounting")
    small = 2.4948  # its epsilon is 1.0001
    monkeypatch.setattr(accounting, "calibrate_dp_mechanism", lambda *how, **more: small)
    how: Any = {"rounds": 1, "delta": 1e-5, "sample_rate": 0.5}
    assert privacy.epsilon(noise_multiplier=small, **how) > 1
    noise = privacy.noise_for(epsilon=1.0, **how)
    assert 0.999 < privacy.epsilon(noise_multiplier=noise, **how) <= 1
    for rate in (-0.1, 1.5, math.nan):
        with pytest.raises(ValueError, match="sample_rate to be"):
            privacy.noise_for(epsilon=1.0, rounds=1, delta=1e-5, sample_rate=rate)


def test_without_an_accountant_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ImportError, match=r"\.\[private\]"):
        privacy.epsilon(noise_multiplier=1.2345, rounds=1, delta=1e-5)  # asked for nowhere else
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    refuses(r"\.\[private\]", lambda: need("cryptography.exceptions"), ImportError)


def test_of_the_accountant_the_part_needed_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(accountant, "imported", lambda name, *how: loaded.append(name))
    accountant._dp_accounting("pld")
    accountant._dp_accounting()
    assert loaded == ["dp_accounting.pld", "dp_accounting", "dp_accounting"]


def test_bits_of_a_rehearsal_are_pairs_of_words() -> None:
    from fgl.privacy.gaussian import _bits

    low, high = torch.randint(2**32, (6,), generator=torch.Generator().manual_seed(3)).view(3, 2).T
    want = [int(a) + 2**32 * int(b) for a, b in zip(low, high, strict=True)]
    assert _bits(3, torch.Generator().manual_seed(3)).tolist() == want


def test_a_record_holds_what_its_kind_needs_with_all_digits() -> None:
    from fgl.privacy.record import Noise, with_answers, with_noise

    first = with_noise({}, Noise(0.1), num_clients=2, kind="central_gaussian", delta=1e-5)
    assert {*first} == {"rounds", "noise_multiplier", "delta", "kind"}
    later = with_noise(with_answers(first, {0: 1}), Noise(0.3), num_clients=2)
    assert later["earlier_noise"].tolist() == [0.1] and later["noise_multiplier"] == 0.3


def test_numbers_of_noise_are_checked_first() -> None:
    one = (torch.ones(1),)
    calls: list[tuple[Any, str]] = [
        (lambda: privacy.noise_for(epsilon=1.0, rounds=1, delta=0.0), "delta"),
        (lambda: privacy.noise_for(epsilon=1.0, rounds=1, delta=1.0), "delta"),
        (lambda: privacy.noise_for(epsilon=1.0, rounds=0, delta=0.1), "rounds"),
        (lambda: privacy.noise_for(epsilon=0.0, rounds=1, delta=0.1), "epsilon"),
        (lambda: privacy.epsilon(noise_multiplier=1.0, rounds=1, delta=0.0), "delta"),
        (lambda: privacy.epsilon(noise_multiplier=-1.0, rounds=1, delta=0.1), "noise_multiplier"),
        (lambda: clipped_gradient(len, {}, one, length=0.0), "length"),
        (lambda: clipped_gradient(len, {}, one, length=1.0, sigma=0.0), "sigma"),
        (lambda: gap_of_sum(2, sigma=0.4), "sigma"),
        *((lambda k=k: privacy.clip(update(), length=k), "length") for k in (0.0, -1.0, math.nan)),
        *((lambda k=k: privacy.gaussian(update(), sigma=k), "sigma") for k in (0.0, -1, math.inf)),
    ]
    for call, name in calls:
        with pytest.raises(ValueError, match=f"{name} to be"):
            call()
    with pytest.raises(TypeError, match="Expected n to be in floating point"):
        privacy.clip({"n": torch.tensor([1])}, length=1.0)
