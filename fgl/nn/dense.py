"""Dense products ``x W^T + b``: oneDNN computes the bits of `torch.matmul`, in half the time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..sparse import SparseMatrix
from ..sparse.autograd import batched, mapped, positional
from ..sparse.recording import in_one

NARROW, WIDE = 16, 192  # sizes of weights between which MKL adds products in oneDNN's order
ROWS, MOST = 256, 4096  # rows of a piece; the result of a piece stays in the cache
LEAST = 2**22  # multiplications from which oneDNN is faster


def linear(x: Tensor | SparseMatrix, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute ``x W^T + b`` as a new tensor; the caller may change this tensor in place."""
    if isinstance(x, Tensor) and _by_onednn(x, weight):
        out: Tensor = mapped(_Linear, x, weight, bias)
        return out
    out = x @ weight.t()
    return out if bias is None else out.add_(bias)


def _by_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether to multiply with oneDNN, by the rule in docs/speed.md."""
    if min(weight.shape) < NARROW or max(weight.shape) > WIDE or x.dim() != 2:
        return False
    if len(x) < ROWS or len(x) * weight.numel() < LEAST:
        return False
    kinds = {(each.dtype, each.device.type) for each in (x, weight)}
    whole = kinds == {(torch.float32, "cpu")} and not torch.is_autocast_enabled("cpu")
    return whole and has_onednn()


@cache
def has_onednn() -> bool:
    """Whether the CPU is AMD's and has AVX-512; MKL uses AVX2 there, and oneDNN uses AVX-512."""
    name = getattr(torch.cpu, "get_capabilities", dict[str, str])().get("cpu_name", "")
    fast = name.startswith("AMD") and torch.backends.cpu.get_cpu_capability() == "AVX512"
    libraries = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return fast and libraries and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@in_one
def _multiplied(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor]:
    """Multiply ``[..., n, in]`` by ``[..., out, in]``; leading dimensions are equal."""
    out = x.new_empty(*x.shape[:-1], weight.shape[-2])
    _fill(out, x, weight, bias)
    return (out,)


def _fill(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if x.dim() > 2:
        biases = [None] * len(x) if bias is None else bias.unbind()
        for part in zip(out.unbind(), x.unbind(), weight.unbind(), biases, strict=True):
            _fill(*part)
        return
    for start, size in _pieces(len(x)):
        rows = x.narrow(0, start, size)
        product = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
        out.narrow(0, start, size).copy_(product)


def _pieces(count: int) -> Iterator[tuple[int, int]]:
    """Starts and sizes of pieces that cover all rows; the last piece may repeat rows.

    There are few sizes, since oneDNN compiles 0.6 MB of code for each size: a size has three
    significant bits.
    """
    start = 0
    while (rest := min(count - start, MOST)) >= ROWS:
        zeros = rest.bit_length() - 3
        size = rest >> zeros << zeros
        yield start, size
        start += size
    if start < count:
        yield count - ROWS, ROWS


class _Linear(Function):
    @staticmethod
    @positional
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _multiplied(x, weight, bias)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needed = ctx.needs_input_grad
        return (
            mapped(_Linear, grad, weight.mT, None) if needed[0] else None,
            grad.mT @ x if needed[1] else None,
            grad.sum(-2) if needed[2] else None,
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, weight: Tensor, bias: Any) -> tuple[Tensor, int]:
        size, (of_x, of_weight, of_bias) = info.batch_size, in_dims
        x, weight = batched(x, of_x, size), batched(weight, of_weight, size)
        bias = None if bias is None else batched(bias, of_bias, size)
        return mapped(_Linear, x, weight, bias), 0
