"""`structure_distillation` against loops over the formula."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from fgl import SparseMatrix
from fgl.losses import structure_distillation

N, C = 9, 4
MASK = torch.tensor([1, 0, 1, 1, 0, 1, 1, 1, 0], dtype=torch.bool)
# Directed, with a self-loop (2), a repeated edge (3 <- 1), a node with one neighbour (4 <- 0),
# nodes that only send (5, 7) and a node with no edge at all (8).
EDGES = torch.tensor(
    [[1, 2, 3, 0, 2, 5, 1, 1, 4, 0, 6, 7, 1], [0, 0, 0, 1, 2, 2, 3, 3, 3, 4, 1, 6, 6]]
)


def pair(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(3)
    s, t = (2 * torch.randn(2, N, C, generator=g, dtype=torch.float64)).to(dtype).unbind()
    return s.clone().requires_grad_(), t.clone().requires_grad_()


def softmax(logits: list[float]) -> list[float]:
    total = sum(math.exp(v) for v in logits)
    return [math.exp(v) / total for v in logits]


def loops(
    student: Tensor,
    teacher: Tensor,
    edges: Tensor,
    *,
    temperature: float = 5.0,
    mask: Tensor | None = None,
) -> float:
    """The formula, in plain Python."""
    s, t = student.tolist(), teacher.tolist()
    total, count = 0.0, 0
    for i in range(len(s)):
        neighbours = [source for source, target in edges.t().tolist() if target == i]
        if not neighbours or (mask is not None and not mask[i]):
            continue
        views = []
        for z in (t, s):
            dots = [sum(a * b for a, b in zip(z[i], z[j], strict=True)) for j in neighbours]
            views.append(softmax([d / temperature for d in dots]))
        total += sum(p * math.log(p / q) for p, q in zip(*views, strict=True))
        count += 1
    return total / max(count, 1)


def dense(student: Tensor, teacher: Tensor, edges: Tensor, temperature: float) -> Tensor:
    """The formula with an N x N matrix, for autograd; no repeated edges."""
    neighbour = torch.zeros(len(student), len(student), dtype=torch.bool)
    neighbour[edges[1], edges[0]] = True
    log_s, log_t = (
        torch.where(neighbour, z @ z.t() / temperature, -1e6)[neighbour.any(1)].log_softmax(1)
        for z in (student, teacher)
    )
    gap = torch.where(neighbour[neighbour.any(1)], log_t.exp() * (log_t - log_s), 0)
    return gap.sum(1).mean()


@pytest.mark.parametrize("mask", [None, MASK])
@pytest.mark.parametrize("temperature", [0.5, 5.0, 50.0])
@pytest.mark.parametrize("sparse", [False, True])
def test_equals_loops(mask: Tensor | None, temperature: float, sparse: bool) -> None:
    s, t = pair()
    edges = SparseMatrix.from_edge_index(EDGES, N) if sparse else EDGES
    got = structure_distillation(s, t, edges, temperature=temperature, mask=mask)
    want = loops(s, t, EDGES, temperature=temperature, mask=mask)
    assert got.item() == pytest.approx(want, rel=1e-11, abs=1e-13)
    assert want > 1e-5


def test_equals_loops_in_float32() -> None:
    s, t = pair(torch.float32)
    got = structure_distillation(s, t, EDGES)
    assert got.dtype == torch.float32
    assert got.item() == pytest.approx(loops(s, t, EDGES), rel=1e-5)


def test_gradients_equal_autograd_of_the_dense_formula() -> None:
    s, t = pair()
    edges = EDGES.unique(dim=1)
    got = structure_distillation(s, t, edges, temperature=2.0)
    want = dense(s, t, edges, 2.0)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)
    for ours, theirs in zip(
        torch.autograd.grad(got, (s, t)), torch.autograd.grad(want, (s, t)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("mask", [None, MASK])
def test_gradcheck(mask: Tensor | None) -> None:
    pattern = SparseMatrix.from_edge_index(EDGES, N)

    def loss(s: Tensor, t: Tensor) -> Tensor:
        return structure_distillation(s, t, pattern, temperature=2.0, mask=mask)

    assert torch.autograd.gradcheck(loss, pair())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_to_learn_from_oneself(dtype: torch.dtype) -> None:
    s, _ = pair(dtype)
    loss = structure_distillation(s, s.detach().clone(), EDGES)
    loss.backward()
    assert loss.item() == 0
    assert s.grad.abs().max() < 10 * torch.finfo(dtype).eps


def test_is_a_divergence() -> None:
    s, t = pair()
    assert structure_distillation(s, t, EDGES) > 0
    assert not torch.isclose(
        structure_distillation(s, t, EDGES), structure_distillation(t, s, EDGES)
    )


def test_the_teacher_gives_the_weights() -> None:
    # Two neighbours: teacher (p, 1 - p), student (q, 1 - q); KL(p || q), not KL(q || p).
    edges = torch.tensor([[1, 2], [0, 0]])
    s = torch.tensor([[1.0], [0.0], [math.log(4.0)]], dtype=torch.float64)  # q = 1/5, 4/5
    t = torch.tensor([[1.0], [0.0], [0.0]]).double()  # p = 1/2, 1/2
    want = 0.5 * math.log(0.5 / 0.2) + 0.5 * math.log(0.5 / 0.8)
    got = structure_distillation(s, t, edges, temperature=1.0)
    assert got.item() == pytest.approx(want, rel=1e-12)


def test_neighbours_are_the_sources_of_a_target() -> None:
    s, t = pair()
    star = torch.tensor([[1, 2, 3], [0, 0, 0]])
    assert structure_distillation(s, t, star) > 0
    # Turned around, every node has a single neighbour, and a softmax over one is 1.
    assert structure_distillation(s, t, star.flip(0)).item() == 0


def test_the_order_of_edges_does_not_matter() -> None:
    s, t = pair()
    shuffled = EDGES[:, torch.randperm(EDGES.shape[1])]
    got, want = (structure_distillation(s, t, e) for e in (shuffled, EDGES))
    torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-15)
    slope, other = (torch.autograd.grad(loss, s)[0] for loss in (got, want))
    torch.testing.assert_close(slope, other, rtol=1e-12, atol=1e-15)


def test_the_order_of_nodes_does_not_matter() -> None:
    s, t = pair()
    order = torch.randperm(N)
    place = order.argsort()
    got = structure_distillation(s[order], t[order], place[EDGES], mask=MASK[order])
    want = structure_distillation(s, t, EDGES, mask=MASK)
    torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-15)
    slope, other = (torch.autograd.grad(loss, s)[0] for loss in (got, want))
    torch.testing.assert_close(slope, other, rtol=1e-12, atol=1e-15)


def test_a_node_without_a_neighbour_contributes_nothing() -> None:
    s, t = pair()
    more_s, more_t = (torch.cat([z, 100 * torch.ones(5, C).double()]) for z in (s, t))
    got = structure_distillation(more_s, more_t, EDGES)
    torch.testing.assert_close(got, structure_distillation(s, t, EDGES), rtol=1e-13, atol=1e-15)
    (slope,) = torch.autograd.grad(structure_distillation(s, t, EDGES), s)
    assert (slope[8] == 0).all()  # no edge at all
    assert (slope[5] != 0).any()  # has no neighbour, but is one


@pytest.mark.parametrize("mask", [None, torch.zeros(N, dtype=torch.bool)])
@pytest.mark.parametrize("edges", [torch.zeros(2, 0, dtype=torch.int64), EDGES])
def test_nothing_to_average_is_zero_with_a_gradient(edges: Tensor, mask: Tensor | None) -> None:
    if mask is None and edges is EDGES:
        edges = torch.tensor([[0, 3], [1, 2]])  # a single neighbour each
    s, t = pair()
    loss = structure_distillation(s, t, edges, mask=mask)
    loss.backward()
    assert loss.item() == 0
    assert (s.grad == 0).all()


def test_no_nodes() -> None:
    s = torch.zeros(0, C, requires_grad=True)
    loss = structure_distillation(s, s.detach(), torch.zeros(2, 0, dtype=torch.int64))
    loss.backward()
    assert loss.item() == 0 and s.grad.shape == s.shape


def test_a_mask_selects_the_targets_not_the_neighbours() -> None:
    s, t = pair()
    mask = torch.zeros(N, dtype=torch.bool)
    mask[0] = True
    got = structure_distillation(s, t, EDGES, mask=mask)
    only = structure_distillation(s, t, EDGES[:, EDGES[1] == 0])
    torch.testing.assert_close(got, only)
    (slope,) = torch.autograd.grad(got, s)
    assert (slope[[0, 1, 2, 3]] != 0).any(1).all() and (slope[4:] == 0).all()


def test_repeated_edges_count_as_often_as_they_are_there() -> None:
    s, t = pair()
    doubled = EDGES.repeat_interleave(2, dim=1)
    got = structure_distillation(s, t, doubled)
    assert got.item() == pytest.approx(loops(s, t, doubled), rel=1e-11)
    torch.testing.assert_close(got, structure_distillation(s, t, EDGES))  # all alike: no change


def test_values_of_the_adjacency_do_not_matter() -> None:
    s, t = pair()
    matrix = SparseMatrix.from_edge_index(EDGES, N)
    weights = torch.rand(matrix.nnz).double()
    weights[0] = 0
    got = structure_distillation(s, t, matrix.with_value(weights))
    torch.testing.assert_close(got, structure_distillation(s, t, matrix))


def test_temperature_is_a_scale_of_the_logits() -> None:
    s, t = pair()
    got = structure_distillation(s, t, EDGES, temperature=8.0)
    want = structure_distillation(s / 2, t / 2, EDGES, temperature=2.0)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-15)


def test_large_logits_stay_finite() -> None:
    s, t = (100 * z.detach().float() for z in pair())
    s.requires_grad_()
    loss = structure_distillation(s, t, EDGES)
    loss.backward()
    assert loss.isfinite() and s.grad.isfinite().all()


def test_an_all_zero_row_is_harmless() -> None:
    s = torch.zeros(N, C, requires_grad=True)
    loss = structure_distillation(s, pair(torch.float32)[1], EDGES)
    loss.backward()
    assert loss.isfinite() and (s.grad == 0).all()  # both ends of every edge are 0


def test_vmap_equals_the_loop() -> None:
    clients = 3
    s = torch.randn(clients, N, C, dtype=torch.float64, requires_grad=True)
    t = torch.randn(clients, N, C, dtype=torch.float64)
    mask = torch.rand(clients, N) < 0.7
    mask[-1] = False
    edges = SparseMatrix.from_edge_index(EDGES, N)

    def loss(s: Tensor, t: Tensor, mask: Tensor) -> Tensor:
        return structure_distillation(s, t, edges, mask=mask)

    got = vmap(loss)(s, t, mask)
    want = torch.stack([loss(*each) for each in zip(s, t, mask, strict=True)])
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)
    (slope,) = torch.autograd.grad(want.sum(), s)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), s)[0], slope)
    torch.testing.assert_close(vmap(grad(loss))(s, t, mask), slope)
    torch.testing.assert_close(grad(lambda s: vmap(loss)(s, t, mask).sum())(s), slope)


def test_vmap_with_one_teacher_for_all() -> None:
    s = torch.randn(3, N, C, dtype=torch.float64, requires_grad=True)
    t = torch.randn(N, C, dtype=torch.float64)
    edges = SparseMatrix.from_edge_index(EDGES, N)
    got = vmap(structure_distillation, in_dims=(0, None, None))(s, t, edges)
    want = torch.stack([structure_distillation(each, t, edges) for each in s])
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(
        torch.autograd.grad(got.sum(), s), torch.autograd.grad(want.sum(), s)
    )


def test_inputs_are_untouched() -> None:
    s, t = pair()
    kept = s.detach().clone(), t.detach().clone(), EDGES.clone(), MASK.clone()
    structure_distillation(s, t, EDGES, mask=MASK).backward()
    for now, before in zip((s, t, EDGES, MASK), kept, strict=True):
        assert torch.equal(now, before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"teacher": torch.ones(N, C + 1)},
            r"Expected teacher to have the student's shape \[9, 4\]",
        ),
        ({"teacher": torch.ones(1, C)}, r"but got \[1, 4\]"),
        (
            {"student": torch.ones(N, C, 1), "teacher": torch.ones(N, C, 1)},
            r"student's shape \[9, 4, 1\] \[num_nodes, num_classes\]",
        ),
        ({"edges": SparseMatrix.from_edge_index(EDGES, N + 1)}, "Expected edges to join 9 nodes"),
        ({"mask": MASK[1:]}, r"Expected mask to have shape \[9\], but got \[8\]"),
        ({"mask": MASK[:, None]}, r"Expected mask to have shape \[9\], but got \[9, 1\]"),
        ({"temperature": 0.0}, "Expected temperature to be a number > 0, but got 0.0"),
    ],
)
def test_bad_input(change: dict[str, Any], message: str) -> None:
    good = {"student": torch.ones(N, C), "teacher": torch.ones(N, C), "edges": EDGES}
    with pytest.raises(ValueError, match=message):
        structure_distillation(**good | change)
