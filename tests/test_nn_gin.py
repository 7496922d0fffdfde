"""GIN: equal to loops, alone and for many clients."""

from functools import partial

import pytest
import torch
from torch.func import vmap

from fgl.nn import GIN
from fgl.nn.layers import coarse_scale


@pytest.mark.parametrize("p", [0.5, 0.25, 0.75, 0.1])
def test_dropout_keeps_its_share_at_its_scale(p: float) -> None:
    x = torch.arange(1.0, 4005).view(-1, 13).requires_grad_()
    out = x * coarse_scale(x, p)
    ratio = out / x
    kept = ratio[ratio != 0]
    assert torch.allclose(kept, torch.tensor(1 / (1 - p)), rtol=1e-3)
    assert abs(float((ratio == 0).float().mean()) - p) < 0.05
    out.sum().backward()
    assert torch.allclose(x.grad, ratio.detach(), rtol=1e-3)
    columns = (ratio == 0).float().mean(0)
    assert (columns - p).abs().max() < 0.15
    other = vmap(lambda _: coarse_scale(x.detach(), p), randomness="different")(torch.zeros(2))
    assert not torch.equal(other[0], other[1])
    assert coarse_scale(x[:0], p).shape == (0, 13)
    assert not coarse_scale(x, 1.0).any()
    if p in (0.25, 0.5, 0.75):  # in double precision too
        assert coarse_scale(x.double(), p).max().item() == 1 / (1 - p)
    after = []
    bits = {0.5: 1, 0.25: 2, 0.75: 2}.get(p, 16)  # of an entry
    words = partial(torch.randint, -(2**63), 2**63 - 1, (x.numel() * bits // 64 + 1,))
    for draw in (partial(coarse_scale, x, p), words):
        torch.manual_seed(0)
        draw()
        after.append(torch.rand(1))
    assert after[0] == after[1]


def test_a_pool_of_another_kind_is_refused() -> None:
    for pool, error, message in (
        (torch.ones(1, 4), TypeError, "pool, the graph of each node, to be an int64 tensor"),
        (torch.zeros(3, dtype=torch.int64), ValueError, r"shape \[4\], but got \[3\]"),
        (torch.tensor([0, -1, 0, 0]), ValueError, "to be at least 0, but got -1"),
    ):
        with pytest.raises(error, match=message):
            GIN(3, 4, 2)(torch.rand(4, 3), torch.tensor([[0], [1]]), pool)
