"""The second backend: equal in value and gradient to torch's kernels, chosen by name."""

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from federations import METHODS, close, graphs, model, refuses

import fgl
from fgl import SparseMatrix
from fgl.sparse import row_log_softmax, row_softmax, row_sum, sampled_product, weighted_product
from fgl.sparse.pattern import Pattern

MISSING = [n for n in ("torch_sparse", "torch_scatter") if importlib.util.find_spec(n) is None]
needs_both = pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not installed (extra `sparse`)")


def matrix(rows: int = 7, cols: int = 5, density: float = 0.4) -> SparseMatrix:
    generator = torch.Generator().manual_seed(rows)
    dense = torch.rand(rows, cols, generator=generator, dtype=torch.float64)
    return SparseMatrix.from_dense(dense * (dense > 1 - density))


CALLS: dict[str, Callable[..., Any]] = {
    "product": lambda p, v, x, y: weighted_product(p, v, x),
    "sampled": lambda p, v, x, y: sampled_product(p, y, x),
    "sum": lambda p, v, x, y: row_sum(p, v),
    "softmax": lambda p, v, x, y: row_softmax(p, v),
    "masked softmax": lambda p, v, x, y: row_softmax(p, v, v > 0.8),
    "log softmax": lambda p, v, x, y: row_log_softmax(p, v),
}


@needs_both
@pytest.mark.parametrize("density", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("name", CALLS)
def test_equal_in_value_and_gradient(name: str, density: float) -> None:
    A = matrix(density=density)
    results = []
    for which in ("torch", "torch_sparse"):
        torch.manual_seed(0)
        value = torch.rand(A.nnz, dtype=torch.float64, requires_grad=True)
        x = torch.rand(5, 3, dtype=torch.float64, requires_grad=True)
        y = torch.rand(7, 3, dtype=torch.float64, requires_grad=True)
        out = CALLS[name](A.using(which).pattern, value, x, y)
        weight = torch.rand(out.shape, dtype=torch.float64)
        inputs = (value, x, y)
        grads = torch.autograd.grad((out * weight).sum(), inputs, allow_unused=True)
        results.append([out.detach(), *(g for g in grads if g is not None)])
    close(results[0], results[1], atol=1e-12)


@needs_both
@pytest.mark.parametrize("kind", [fgl.nn.GCN, fgl.nn.GAT], ids=["gcn", "gat"])
@pytest.mark.parametrize("at_once", [1, "all"])
@pytest.mark.parametrize("name", ["fedavg", "fgsd-only"])
def test_a_run_is_the_same(kind: Any, at_once: Any, name: str) -> None:
    ends = []
    for which in ("torch", "torch_sparse"):
        clients = [
            g.replace(x=SparseMatrix.from_dense(g.x * (g.x > 0)), backend=which) for g in graphs()
        ]
        method = METHODS[name](model(kind, dropout=0.0))
        result = fgl.run(method, clients, num_rounds=2, seed=1, clients_at_once=at_once)
        ends.append(result.outbox[0]["model"])
    close(ends[0], ends[1], atol=1e-5)


@needs_both
def test_what_is_derived_keeps_the_backend() -> None:
    g = graphs()[0].replace(backend="torch_sparse")
    assert g.adj.pattern.backend == "torch_sparse"
    made = [g.adj.T, g.adj.gcn_norm, g.adj.with_self_loops, g.adj.rows(torch.tensor([0, 2]))]
    assert {m.pattern.backend for m in made} == {"torch_sparse"}
    assert g.subgraph(torch.tensor([1, 3])).adj.pattern.backend == "torch_sparse"
    assert g.replace(y=None).backend == "torch_sparse"
    sparse = g.replace(x=SparseMatrix.from_dense(g.x))
    assert sparse.x.pattern.backend == "torch_sparse"
    assert fgl.Graph(sparse.x, g.edge_index).backend == "torch_sparse"


def test_an_unknown_backend_is_refused() -> None:
    refuses("Expected backend to be one of .*torch_sparse.*'mkl'", lambda: matrix().using("mkl"))
    with pytest.raises(ValueError, match="Expected backend"):
        Pattern(torch.tensor([0]), torch.zeros(0, dtype=torch.int64), (0, 0), "cusparse")


def test_a_missing_backend_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from fgl.sparse import kernels

    monkeypatch.setitem(sys.modules, "torch_sparse", None)
    refuses(r"torch_sparse to be installed .*\[sparse\]", kernels.TorchSparse, ImportError)
