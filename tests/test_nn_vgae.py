"""VGAE and MLP against their formulas."""

from typing import Any

import pytest
import torch

from fgl.nn import VGAE

N, F, H, D = 9, 5, 8, 4


def data(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    upper = (torch.rand(N, N, generator=generator) < 0.3).triu(1)
    x = torch.rand(N, F, generator=generator, dtype=torch.float64)
    return x, (upper | upper.t()).nonzero().t()


def model(**options: Any) -> VGAE:
    torch.manual_seed(0)
    return VGAE(F, H, D, **options).double()


@pytest.mark.slow
def test_evaluation_takes_the_mean_and_training_draws() -> None:
    net, (x, edges) = model(), data()
    net.eval()
    out, mu, log_sigma = net(x, edges, return_embedding=True)
    assert torch.equal(out, mu) and torch.equal(net(x, edges), mu)
    net.train()
    torch.manual_seed(3)
    z = net(x, edges)
    torch.manual_seed(3)
    assert torch.equal(z, mu + torch.randn_like(mu) * log_sigma.exp())
    draws = torch.stack([net(x, edges) for _ in range(2000)])
    torch.testing.assert_close(draws.mean(0), mu, rtol=0, atol=0.2)
    torch.testing.assert_close(draws.std(0), log_sigma.exp(), rtol=0.1, atol=0)


@pytest.mark.parametrize("shape", [(D,), (1, D), (N, 1), (N + 1, D)])
def test_noise_of_another_shape(shape: tuple[int, ...]) -> None:
    x, edges = data()
    with pytest.raises(ValueError, match=r"Expected noise to have shape \[9, 4\], but got \["):
        model()(x, edges, noise=torch.zeros(shape, dtype=torch.float64))


def test_classifier_reads_z_and_a_large_sigma_stays_finite() -> None:
    net, (x, edges) = model(num_classes=3).eval(), data()
    mu, _ = net.encode(x, edges)
    first, second = net.head.lins
    want = (mu @ first.weight.t() + first.bias).relu() @ second.weight.t() + second.bias
    torch.testing.assert_close(net(x, edges), want)
    assert net(x, edges).shape == (N, 3)
    with torch.no_grad():
        net.conv_logstd.bias.fill_(1e6)
    assert net.train()(x, edges).isfinite().all()
