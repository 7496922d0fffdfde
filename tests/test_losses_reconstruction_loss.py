"""`reconstruction_loss`, `pair_scores` and `kl_divergence` against loops over the formulas."""

import math
from typing import Any

import pytest
import torch
from federations import refuses, seeded
from torch import Tensor
from torch.func import grad, vmap

from fgl.losses import kl_divergence, pair_scores, reconstruction_loss, sampled_reconstruction
from fgl.losses.reconstruction_loss import KINDS, _uniform_pairs, dense_reconstruction

N, D = 7, 3


def rows(seed: int, n: int = N, d: int = D) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, dtype=torch.float64, generator=generator)


def pairs(seed: int, count: int, n: int = N) -> Tensor:
    return torch.randint(n, (2, count), generator=torch.Generator().manual_seed(seed))


def both(seed: int = 0, n: int = N) -> Tensor:
    """Some undirected edges in both directions, none twice."""
    generator = torch.Generator().manual_seed(seed)
    upper = (torch.rand(n, n, generator=generator) < 0.4).triu(1)
    return (upper | upper.t()).nonzero().t()


def bce(score: float, target: float) -> float:
    p = 1 / (1 + math.exp(-score))
    return -(target * math.log(p) + (1 - target) * math.log(1 - p))


def dot(z: Tensor, u: int, v: int) -> float:
    return sum(a * b for a, b in zip(z[u].tolist(), z[v].tolist(), strict=True))


def test_sampled_equals_loops() -> None:
    z, edges, negatives = rows(0), pairs(1, 5), pairs(2, 8)
    want = [bce(dot(z, u, v), 1) for u, v in edges.t().tolist()]
    want += [bce(dot(z, u, v), 0) for u, v in negatives.t().tolist()]
    assert float(sampled_reconstruction(z, edges, negatives)) == pytest.approx(sum(want) / 13)


def test_drawn_negatives_join_two_different_nodes_uniformly() -> None:
    z = torch.eye(4, dtype=torch.float64) * 3
    torch.manual_seed(0)
    got = _uniform_pairs(4, torch.zeros(2, 6000, dtype=torch.int64))
    counts = torch.zeros(4, 4).index_put_((got[0], got[1]), torch.ones(6000), accumulate=True)
    assert (counts.diagonal() == 0).all()
    assert (counts[~torch.eye(4).bool()] - 500).abs().max() < 100
    edges = torch.tensor([[0, 1], [0, 1]])  # scores 9, those of the drawn are 0
    want = (2 * bce(9, 1) + 2 * bce(0, 0)) / 4
    assert float(sampled_reconstruction(z, edges)) == pytest.approx(want)


@pytest.mark.parametrize("weighted", [False, True])
def test_dense_equals_loops(weighted: bool) -> None:
    z, edges = rows(0), both()
    there = set(map(tuple, edges.t().tolist()))
    m = len(there)
    total = 0.0
    for u in range(N):
        for v in range(N):
            weight = (N * N - m) / m if weighted and (u, v) in there else 1
            total += weight * bce(dot(z, u, v), float((u, v) in there))
    factor = N * N / (2 * (N * N - m)) / N**2 if weighted else 1 / N
    got = dense_reconstruction(z, edges, weighted=weighted)
    assert float(got) == pytest.approx(factor * total)


def test_kinds() -> None:
    z, edges, negatives = rows(0), both(), pairs(3, 9)
    mask, other, nodes = (torch.arange(k) > 1 for k in (edges.shape[1], 9, N))
    masks = {"mask": mask, "negative_mask": other, "node_mask": nodes}
    got = [reconstruction_loss(z, edges, negatives, kind=kind, **masks) for kind in KINDS]
    want = [sampled_reconstruction(z, edges, negatives, mask=mask, negative_mask=other)]
    for weighted in (False, True):
        options = {"mask": mask, "node_mask": nodes, "weighted": weighted}
        want.append(dense_reconstruction(z, edges, **options))
    assert torch.equal(torch.stack(got), torch.stack(want)) and len(set(got)) == 3
    assert reconstruction_loss(z, edges, negatives) == sampled_reconstruction(z, edges, negatives)
    with pytest.raises(ValueError, match="Expected kind to be one of .*, but got 'all'"):
        reconstruction_loss(z, edges, kind="all")


LOSSES: dict[str, Any] = {
    "sampled": lambda z: sampled_reconstruction(z, both(), pairs(3, 9)),
    "dense": lambda z: dense_reconstruction(z, both()),
    "weighted": lambda z: dense_reconstruction(z, both(), weighted=True),
    "divergence": lambda z: kl_divergence(z, z.flip(0)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradcheck(name: str) -> None:
    assert torch.autograd.gradcheck(LOSSES[name], rows(0).requires_grad_())


EMPTY = torch.zeros(2, 0, dtype=torch.int64)


@pytest.mark.parametrize("loss", [
    lambda z: sampled_reconstruction(z, EMPTY),
    lambda z: sampled_reconstruction(z[:0], EMPTY),
    lambda z: dense_reconstruction(z[:0], EMPTY),
    lambda z: dense_reconstruction(z[:0], EMPTY, weighted=True),
    lambda z: kl_divergence(z[:0], z[:0]),
    lambda z: kl_divergence(z, z, mask=torch.zeros(N).bool()),
])  # fmt: skip
def test_nothing_to_count_is_zero_with_a_gradient(loss: Any) -> None:
    z = rows(0).requires_grad_()
    value = loss(z)
    value.backward()
    assert value.item() == 0
    assert z.grad is not None and (z.grad == 0).all()


def test_no_edge_weighted_is_finite() -> None:
    z = rows(0).requires_grad_()
    value = dense_reconstruction(z, EMPTY, weighted=True)
    value.backward()
    assert math.isfinite(value.item()) and z.grad is not None and z.grad.isfinite().all()


def test_vmap_equals_the_loop_and_leaves_padding_out() -> None:
    """Clients of 7, 5 and 4 nodes, with as many edges each, as the batch executor stacks them."""
    sizes, counts = (7, 5, 4), (6, 9, 2)
    z = torch.stack([rows(k) for k in range(3)])
    edges = torch.zeros(3, 9, 2, dtype=torch.int64)
    negatives, there = edges.clone(), torch.zeros(3, 9, dtype=torch.bool)
    nodes = torch.arange(N) < torch.tensor(sizes)[:, None]
    for k, (n, m) in enumerate(zip(sizes, counts, strict=True)):
        edges[k, :m], negatives[k, :m] = pairs(k, m, n).t(), pairs(k + 9, m, n).t()
        there[k, :m] = True

    def loss(z: Tensor, e: Tensor, f: Tensor, m: Tensor, n: Tensor) -> Tensor:
        sampled = sampled_reconstruction(z, e.mT, f.mT, mask=m, negative_mask=m)
        dense = dense_reconstruction(z, e.mT, weighted=True, mask=m, node_mask=n)
        dense = dense + dense_reconstruction(z, e.mT, mask=m, node_mask=n)
        return sampled + dense + kl_divergence(z, z, mask=n)

    def alone(k: int, z: Tensor) -> Tensor:
        n, m = sizes[k], counts[k]
        e, f = edges[k, :m].t(), negatives[k, :m].t()
        dense = dense_reconstruction(z[:n], e, weighted=True) + dense_reconstruction(z[:n], e)
        return sampled_reconstruction(z[:n], e, f) + dense + kl_divergence(z[:n], z[:n])

    given = (edges, negatives, there, nodes)
    want = torch.stack([alone(k, z[k]) for k in range(3)])
    torch.testing.assert_close(vmap(loss)(z, *given), want)
    slope = torch.stack([grad(lambda own, k=k: alone(k, own))(z[k]) for k in range(3)])
    torch.testing.assert_close(grad(lambda z: vmap(loss)(z, *given).sum())(z), slope)
    torch.testing.assert_close(vmap(grad(loss))(z, *given), slope)
    leaf = z.clone().requires_grad_()
    vmap(loss)(leaf, *given).sum().backward()
    torch.testing.assert_close(leaf.grad, slope)
    one = vmap(lambda e: pair_scores(z[0], e.mT))(edges)  # one model's rows for all
    torch.testing.assert_close(one[1], pair_scores(z[0], edges[1].t()))


@pytest.mark.parametrize(("call", "message"), [
    (lambda z: sampled_reconstruction(z[:1], pairs(0, 2, 1)), "at least 2 rows, but got 1"),
    (lambda z: sampled_reconstruction(z, both(), mask=torch.ones(1).bool()), r"mask .*got \[1"),
    (lambda z: sampled_reconstruction(z, EMPTY, EMPTY, negative_mask=z), "negative_mask to"),
    (lambda z: dense_reconstruction(z, EMPTY, node_mask=torch.ones(1)), r"node_mask .*got"),
    (lambda z: kl_divergence(z, z[1:]), r"log_sigma to have the shape of mu \[7, 3\]"),
    (lambda z: kl_divergence(z, z, mask=torch.ones(1)), r"mask to have shape \[7\]"),
])  # fmt: skip
def test_malformed(call: Any, message: str) -> None:
    refuses(message, lambda: call(rows(0)))


def test_divergence_is_torchs() -> None:
    mu, log_sigma = torch.randn(2, 6, 3, generator=seeded()).double()
    normal, own = torch.distributions.Normal, torch.distributions.kl_divergence
    each = own(normal(mu, log_sigma.exp()), normal(0.0, 1.0)).sum(1)
    mask = torch.arange(6) < 4
    assert torch.isclose(kl_divergence(mu, log_sigma), each.mean())
    assert torch.isclose(kl_divergence(mu, log_sigma, mask=mask), each[:4].mean())


def test_two_rows_have_one_pair() -> None:
    z, edges = torch.tensor([[1.0], [2.0]]), torch.zeros(2, 40, dtype=torch.int64)
    one, none = (-torch.nn.functional.logsigmoid(torch.tensor(s)) for s in (1.0, -2.0))
    assert torch.isclose(sampled_reconstruction(z, edges), (one + none) / 2)


def test_what_is_masked_out_may_be_infinite() -> None:
    z = rows(0)
    z[N - 1] = torch.inf
    edges, there = torch.tensor([[0, 1, N - 1], [2, 3, 4]]), torch.tensor([True, True, False])
    masks = {"mask": there, "negative_mask": there.flip(0)}
    loss = lambda z: sampled_reconstruction(z, edges, edges.flip(1), **masks)  # noqa: E731
    kept = edges[:, :2]
    torch.testing.assert_close(loss(z), sampled_reconstruction(z, kept, kept.flip(1)))
    assert grad(loss)(z).isfinite().all()
    nodes = torch.arange(N) < N - 1
    divergence = lambda z: kl_divergence(z, 100 * z, mask=nodes)  # noqa: E731
    torch.testing.assert_close(divergence(z), kl_divergence(z[:-1], 100 * z[:-1]))
    assert grad(divergence)(z).isfinite().all()


def test_a_client_of_a_batch_has_no_row_of_another() -> None:
    z = rows(0).view(1, N, D).expand(3, N, D)
    out = torch.tensor([[0, N], [1, 1]]).expand(3, 2, 2)
    with pytest.raises(IndexError):
        pair_scores(z[0], out[0])
    refuses(r"pairs to be in \[0, 7\)", lambda: vmap(pair_scores)(z, out), IndexError)


@pytest.mark.parametrize("kind", ["sampled", "dense", "dense_weighted"])
def test_halves_are_computed_in_float32(kind: str) -> None:
    """Inner products of rows of this length are beyond a float16, their mean is not."""
    z = rows(0, 10, 32).float() * (60 if kind == "sampled" else 30)
    z[1] = -z[0]
    edges = torch.stack([torch.arange(9), torch.arange(1, 10)])
    edges = torch.cat([edges, edges.flip(0)], 1)
    negatives = torch.stack([torch.zeros(18, dtype=torch.int64), torch.arange(18) % 9 + 1])
    want = reconstruction_loss(z, edges, negatives, kind=kind)
    got = reconstruction_loss(z.half(), edges, negatives, kind=kind)
    assert got.dtype == torch.float16
    assert got.item() == pytest.approx(want.item(), rel=5e-3)
