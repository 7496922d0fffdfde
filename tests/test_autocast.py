"""Under `torch.autocast` dense products are in bfloat16, sparse ones in float32: nothing mixes."""

from functools import partial
from typing import Any

import pytest
import torch
from conformance import ROWS, TASKS
from federations import close, graphs
from torch.autograd import gradcheck

import fgl
from fgl import SparseMatrix
from fgl.sparse import sampled_product, weighted_product

BF16 = torch.bfloat16


def half() -> torch.autocast:
    return torch.autocast("cpu", dtype=BF16)


SPARSE = ("nodes", "gat", "sage", "sampled", "sampled gcn", "sampled gat", "summed", "overlapping")
SPARSE += ("own", "links")
ALONE = ("spectral graphs",)  # batch norms keep its clients from training as one batch


@pytest.mark.few
@pytest.mark.parametrize("at_once", [1, "all"], ids=["loop", "batch"])
@pytest.mark.parametrize("name", [*TASKS, *(f"{name} sparse" for name in SPARSE)])
def test_every_task_trains_in_mixed_precision(name: str, at_once: Any) -> None:
    """Of several steps too: what autocast made of a parameter is of no use after a step."""
    task = TASKS[name.removesuffix(" sparse")](0.0, torch.float32)
    clients = task.clients
    at_once = 1 if name in ALONE else at_once
    if name.endswith("sparse"):
        clients = [own.replace(x=SparseMatrix.from_dense(own.x)) for own in clients]
    run = partial(fgl.run, task.fedavg, clients, num_rounds=2, clients_at_once=at_once, strict=True)
    want = run()
    with half():
        got = run()
    assert got.history[-1].loss == pytest.approx(want.history[-1].loss, rel=0.02)
    if name != "triples":  # DistMult has no matrix product
        assert got.history[-1].loss != want.history[-1].loss  # something was in halves
    model, other = (run.model_of(0).state_dict() for run in (got, want))
    kinds = {value.dtype for value in model.values() if value.is_floating_point()}
    assert kinds == {torch.float32}
    if name != "adaptive":  # its slope moves by whole steps of Adam, where its gradient is near 0
        close(model, other, atol=0.05)


FAST = ("fgssl", "gpfl", "fedsage plus", "fedgl")


@pytest.mark.few
@pytest.mark.parametrize("at_once", [1, "all"], ids=["loop", "batch"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in ROWS]
)
def test_every_method_runs_in_mixed_precision(name: str, at_once: Any) -> None:
    first = ROWS[name].tasks[0]
    task = TASKS[first](0.5, torch.float32)
    method = ROWS[name].build(task)
    at_once = 1 if first in ROWS[name].alone else at_once
    with half():
        rounds = 2 * method.rules.exchange
        result = fgl.run(method, task, num_rounds=rounds, clients_at_once=at_once, strict=True)
    assert all(value == value for value in result.history[-1].metrics.values())


def test_sparse_products_are_in_float32_and_have_gradients() -> None:
    matrix = SparseMatrix.from_dense(graphs()[0].x)
    x = torch.randn(matrix.shape[1], 3, generator=torch.Generator().manual_seed(0))
    want = matrix @ x
    with half():
        assert (matrix @ x.to(BF16)).dtype == torch.float32
        assert (matrix.astype(BF16) @ x.to(BF16)).dtype == torch.float32
        assert torch.equal(matrix @ x, want)
        left = weighted_product(matrix.pattern, matrix.value.to(BF16), x)  # type: ignore[union-attr]
        pairs = sampled_product(matrix.pattern, want.to(BF16), x)
        assert (left.dtype, pairs.dtype) == (torch.float32, torch.float32)
        double = SparseMatrix.from_dense(torch.eye(3, dtype=torch.float64))
        ones = torch.ones(3, 1, dtype=torch.float64, requires_grad=True)
        assert gradcheck(lambda each: double @ each, ones)
    assert matrix.astype(BF16).dtype == BF16
