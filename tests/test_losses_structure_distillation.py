"""`structure_distillation` against loops over the formula."""

import math
from typing import Any

import pytest
import torch
from federations import refuses
from torch import Tensor

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


@pytest.mark.parametrize("mask", [None, MASK])
def test_gradcheck(mask: Tensor | None) -> None:
    pattern = SparseMatrix.from_edge_index(EDGES, N)

    def loss(s: Tensor, t: Tensor) -> Tensor:
        return structure_distillation(s, t, pattern, temperature=2.0, mask=mask)

    assert torch.autograd.gradcheck(loss, pair())


def test_a_node_without_a_neighbour_contributes_nothing() -> None:
    s, t = pair()
    more_s, more_t = (torch.cat([z, 100 * torch.ones(5, C).double()]) for z in (s, t))
    got = structure_distillation(more_s, more_t, EDGES)
    torch.testing.assert_close(got, structure_distillation(s, t, EDGES), rtol=1e-13, atol=1e-15)
    (slope,) = torch.autograd.grad(structure_distillation(s, t, EDGES), s)
    assert (slope[8] == 0).all()  # no edge at all
    assert (slope[5] != 0).any()  # has no neighbour, but is one


@pytest.mark.parametrize(("change", "message"), [
    ({"teacher": torch.ones(N, C + 1)}, r"teacher to have the student's shape \[9, 4\]"),
    ({"teacher": torch.ones(1, C)}, r"but got \[1, 4\]"),
    (dict.fromkeys(("student", "teacher"), torch.ones(N, C, 1)), r"shape \[9, 4, 1\] \[num_n"),
    ({"edges": SparseMatrix.from_edge_index(EDGES, N + 1)}, "Expected edges to join 9 nodes"),
    ({"mask": MASK[1:]}, r"Expected mask to have shape \[9\], but got \[8\]"),
    ({"mask": MASK[:, None]}, r"Expected mask to have shape \[9\], but got \[9, 1\]"),
    ({"temperature": 0.0}, "Expected temperature to be a number > 0, but got 0.0"),
])  # fmt: skip
def test_bad_input(change: dict[str, Any], message: str) -> None:
    good = {"student": torch.ones(N, C), "teacher": torch.ones(N, C), "edges": EDGES}
    refuses(message, lambda: structure_distillation(**good | change))
