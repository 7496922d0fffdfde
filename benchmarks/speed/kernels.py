"""Sparse kernels against torch.sparse, torch-sparse, PyG and index_add.

    python benchmarks/speed/kernels.py --quick --json out.json     under a minute: two sizes
    python benchmarks/speed/kernels.py --json benchmarks/results/kernels.json

``python benchmarks/speed/report.py`` writes docs/speed.md from what was measured.

A random graph of average degree 10; 64 features, 32 at 10^7 edges (the gather that index_add needs
would be 2.5 GB), 128 on a GPU. All contestants are alternated; every ratio has a name:
``spmm/E=10000/ours_over_best`` is how many times longer ours takes than the fastest other one.
"""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from harness.flags import arguments, flag
from harness.machine import alternated, machine, seconds, write

import fgl
from fgl.sparse import row_softmax, weighted_product

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
HAS_SPARSE = importlib.util.find_spec("torch_sparse") is not None
Calls = dict[str, Callable[[], Any]]


def graph(num_edges: int, device: str) -> tuple[fgl.SparseMatrix, torch.Tensor]:
    """A random matrix of 10 entries a row with positive values, and dense features."""
    generator = torch.Generator().manual_seed(0)
    num_nodes = num_edges // 10
    edges = torch.randint(num_nodes, (2, num_edges), generator=generator)
    weight = torch.rand(num_edges, generator=generator)
    matrix = fgl.SparseMatrix.from_edge_index(edges, num_nodes, weight).to(device)
    width = (64 if num_edges <= 1_000_000 else 32) if device == "cpu" else 128
    return matrix, torch.rand(num_nodes, width, generator=generator).to(device)


def spmm(matrix: fgl.SparseMatrix, x: torch.Tensor) -> Calls:
    """The product alone, everything prepared that can be."""
    pattern, value = matrix.pattern, matrix.value
    row, col = pattern.row, pattern.col
    csr = torch.sparse_csr_tensor(pattern.crow, col, value, pattern.shape, check_invariants=False)
    zeros = x.new_zeros(pattern.shape[0], x.shape[1])
    calls: Calls = {
        "ours": lambda: matrix @ x,
        "torch.sparse": lambda: csr @ x,
        "index_add": lambda: zeros.index_add(0, row, x[col] * value[:, None]),
    }
    if HAS_SPARSE:
        from torch_sparse import SparseTensor

        other = SparseTensor(
            rowptr=pattern.crow, col=col, value=value, sparse_sizes=pattern.shape, is_sorted=True
        )
        calls["torch-sparse"] = lambda: other @ x
    return calls


def edge_softmax(matrix: fgl.SparseMatrix, x: torch.Tensor) -> Calls:
    """Softmax of the values over each row, forward and backward."""
    from torch_geometric.utils import softmax

    pattern = matrix.pattern
    value = matrix.value.clone().requires_grad_()
    weight = torch.rand_like(value.detach())
    row, rows = pattern.row, pattern.shape[0]

    def both(out: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad((out() * weight).sum(), value)

    calls: Calls = {
        "ours": both(lambda: row_softmax(pattern, value)),
        "PyG": both(lambda: softmax(value, row, num_nodes=rows)),
        "PyG, ptr": both(lambda: softmax(value, ptr=pattern.crow)),
    }
    if HAS_SPARSE:
        from torch_scatter.composite import scatter_softmax

        calls["torch-scatter"] = both(lambda: scatter_softmax(value, row, dim_size=rows))
    return calls


def product(matrix: fgl.SparseMatrix, x: torch.Tensor) -> Calls:
    """Weighted product, forward and backward to weights and features."""
    pattern = matrix.pattern
    value, x = matrix.value.clone().requires_grad_(), x.clone().requires_grad_()
    weight = torch.rand_like(x.detach())
    row, col, rows = pattern.row, pattern.col, pattern.shape[0]

    def both(out: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad((out() * weight).sum(), (value, x))

    def gather() -> torch.Tensor:
        return x.new_zeros(rows, x.shape[1]).index_add(0, row, x[col] * value[:, None])

    calls: Calls = {"ours": both(lambda: weighted_product(pattern, value, x))}
    calls["index_add"] = both(gather)
    if HAS_SPARSE:
        from torch_sparse import SparseTensor

        shape = dict(sparse_sizes=pattern.shape, is_sorted=True, trust_data=True)
        other = SparseTensor(rowptr=pattern.crow, col=col, **shape)
        other.storage.csr2csc()
        other.storage.colptr()
        other.storage.row()
        calls["torch-sparse"] = both(lambda: other.set_value(value, layout="coo") @ x)
    return calls


KERNELS = {"spmm": spmm, "edge_softmax": edge_softmax, "weighted_product": product}


def compare(num_edges: int, repeats: int, device: str) -> dict[str, float]:
    """Milliseconds and ratios at one size."""
    matrix, x = graph(num_edges, device)
    out: dict[str, float] = {}
    for kernel, contestants in KERNELS.items():
        calls = contestants(matrix, x)
        check(calls)
        inner = max(1, 200_000 // num_edges)  # a call of microseconds is timed in a bunch

        def bunch(call: Callable[[], Any], inner: int = inner) -> Callable[[], float]:
            return lambda: seconds(lambda: [call() for _ in range(inner)], device) / inner

        took = alternated({name: bunch(call) for name, call in calls.items()}, repeats)
        best = min(value for name, value in took.items() if name != "ours")
        for name, value in took.items():
            out[f"{kernel}/E={num_edges}/{name}_ms"] = round(1e3 * value, 4)
            if name != "ours":
                out[f"{kernel}/E={num_edges}/{name}_over_ours"] = round(value / took["ours"], 2)
        out[f"{kernel}/E={num_edges}/ours_over_best"] = round(took["ours"] / best, 3)
        if kernel == "spmm" and device != "cpu":
            moved = num_edges * (x.shape[1] + 3) * 4 + x.numel() * 4
            share = moved / took["ours"] / copy_bandwidth(device)
            out[f"spmm/E={num_edges}/share_of_copy_bandwidth"] = round(share, 3)
        print(kernel, num_edges, {k: round(1e3 * v, 3) for k, v in took.items()}, flush=True)
    return out


def check(calls: Calls) -> None:
    """All contestants compute the same."""
    want = calls["ours"]()
    for name, call in calls.items():
        torch.testing.assert_close(call(), want, rtol=1e-3, atol=1e-4, msg=lambda m, n=name: n + m)


def copy_bandwidth(device: str) -> float:
    """Bytes per second that a copy reads and writes."""
    source = torch.empty(2**28, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    took = min(seconds(lambda: target.copy_(source), device) for _ in range(10))
    return 2 * source.numel() * 4 / took


def main(argv: list[str] | None = None) -> dict[str, Any]:
    quick = flag(False, "two sizes, under a minute")
    args = arguments(argv, quick=quick, sizes=SIZES, repeats=15, threads=1, device="cpu")
    torch.set_num_threads(args.threads)
    numbers: dict[str, Any] = {}
    for size in SIZES[:2] if args.quick else args.sizes:
        numbers |= compare(size, args.repeats if size < 10_000_000 else 5, args.device)
    report = {"benchmark": "kernels", "machine": machine(), "device": args.device, **numbers}
    write(report, args.json)
    return report


if __name__ == "__main__":
    main()
