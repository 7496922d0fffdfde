"""The ranking loss and the hit rate, beside their formulas in loops."""

import math
from functools import partial

import pytest
import torch
from federations import refuses
from torch.func import vmap

from fgl.losses import ranking
from fgl.metrics import hit_rate


def drawn(n: int, k: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    how = {"generator": generator, "dtype": torch.float64}
    positive, negative = torch.randn(n, **how), torch.randn(n, k, **how)  # type: ignore[call-overload]
    return positive, negative, torch.arange(n) % 3 > 0


def in_loops(positive: torch.Tensor, negative: torch.Tensor, mask: torch.Tensor) -> float:
    terms = [
        math.log1p(math.exp(-(float(positive[i]) - float(other))))
        for i in range(len(positive))
        if mask[i]
        for other in negative[i]
    ]
    return sum(terms) / len(terms)


def test_ranking_of_some_rows_is_that_of_these_alone() -> None:
    positive, negative, mask = drawn(7, 4)
    want = in_loops(positive, negative, mask)
    assert float(ranking(positive, negative, mask=mask)) == pytest.approx(want)
    bad = torch.where(mask[:, None], negative, math.nan).requires_grad_()
    loss = ranking(torch.where(mask, positive, math.inf), bad, mask=mask)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(want)
    assert bad.grad is not None and bad.grad.isfinite().all() and not bad.grad[~mask].any()


def test_ranking_has_the_right_gradient() -> None:
    positive, negative, mask = drawn(5, 3)
    given = positive.requires_grad_(), negative.requires_grad_()
    assert torch.autograd.gradcheck(ranking, given)
    assert torch.autograd.gradcheck(lambda p, n: ranking(p, n, mask=mask), given)


def test_ranking_of_nothing_is_zero_with_a_gradient() -> None:
    positive, negative, _ = drawn(3, 2)
    positive.requires_grad_()
    loss = ranking(positive, negative, mask=torch.zeros(3, dtype=torch.bool))
    loss.backward()
    assert float(loss.detach()) == 0 and positive.grad is not None and not positive.grad.any()
    assert float(ranking(torch.zeros(0), torch.zeros(0, 3))) == 0
    assert float(ranking(torch.zeros(2), torch.zeros(2, 0))) == 0


def test_ranking_of_scores_far_apart_is_finite() -> None:
    loss = ranking(torch.tensor([-1e4, 1e4]), torch.tensor([1e4, -1e4]))
    assert float(loss) == pytest.approx(1e4)


def test_ranking_in_a_batch_is_that_of_each_client() -> None:
    each = [drawn(6, 3, seed) for seed in range(3)]
    stacks = [torch.stack(parts) for parts in zip(*each, strict=True)]
    batch = vmap(lambda p, n, m: ranking(p, n, mask=m))(*stacks)
    torch.testing.assert_close(batch, torch.stack([ranking(p, n, mask=m) for p, n, m in each]))


def test_hit_rate_gives_nothing_for_equal_scores_nan_and_nothing() -> None:
    assert hit_rate(torch.zeros(3), torch.zeros(3, 5), k=5) == 0
    assert hit_rate(torch.tensor([math.nan, 1.0]), torch.zeros(2, 3), k=1) == 0.5
    assert hit_rate(torch.ones(1), torch.tensor([[math.nan, 0.0]]), k=1) == 0
    assert hit_rate(torch.ones(1), torch.full((1, 3), -math.inf), k=1) == 1
    assert math.isnan(hit_rate(torch.zeros(0), torch.zeros(0, 3), k=1))
    assert math.isnan(
        hit_rate(torch.zeros(2), torch.zeros(2, 3), k=1, mask=torch.zeros(2, dtype=torch.bool))
    )


def test_other_masks_and_numbers_are_refused() -> None:
    one, three = torch.zeros(2), torch.ones(3, dtype=torch.bool)
    refuses(r"mask .*\[2\], .*\[3\]", lambda: ranking(one, one, mask=three))
    refuses("k .* >= 1, but got 0", lambda: hit_rate(one, one[:, None], k=0))
    bad = partial(hit_rate, one, one[:, None], k=1, mask=one)
    refuses("mask to be a bool tensor, but got torch.float32", bad, TypeError)
