"""Weighted sums of clients' tensors, computed as a matrix product without rounding errors."""

from collections.abc import Mapping
from math import inf
from typing import Any

import torch
from torch import Tensor

from ..checks import check_share, reject_if
from .mean import as_dtype, exact, folded


def mix(stack: Mapping[str, Tensor], matrix: Any, *, self_weight: float = 0.0) -> dict[str, Tensor]:
    """Each client's mix of all clients: ``out_i = rho x_i + (1 - rho) sum_j A_ij x_j``.

    The function first rounds the matrix A and the stacked tensors x to coarse grids. Their product
    A x in float64 then has no rounding error. So the bits of the product do not depend on the order
    of summation. The error is about ``2^-24 sum_j |A_ij| max |x_j|`` for float32. For float64,
    ``2^-52`` replaces ``2^-24``. If A gives a client the weight 0, this client does not add to the
    error.

    Args:
        stack: dict from name to ``[K, ...]``, such as updates; integers are mixed and rounded. If A
            is dense, one client's NaN or infinity reaches every other client, whatever the weights
            in A are.
        matrix: the client matrix A, float ``[K, K]``: a dense or sparse Tensor, or another object
            that supports ``@``, such as a `SparseMatrix`. Rows are not normalised.
        self_weight: rho, a client's weight for its own tensors, between 0 and 1. The client's
            diagonal entry in the matrix adds to this weight.

    Returns:
        Dict from name to ``[K, ...]``, with the stack's dtypes. With ``self_weight=1`` the
        result equals the stack bit for bit.

    Raises:
        TypeError: if the matrix is not floating point, or if a tensor is complex.
        ValueError: if the matrix does not have shape ``[K, K]``, if an entry is not finite, or if
            `self_weight` is below 0 or above 1.

    Example:
        >>> A = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
        >>> mix({"w": torch.tensor([[0.0], [4.0]])}, A, self_weight=0.5)
        {'w': tensor([[1.],
                [4.]])}

    Source: GPFL, TMLR 2025, Eq. 4 and 16; exact products: Ozaki et al. 2012,
    https://doi.org/10.1007/s11075-011-9478-1
    """
    check_share(self_weight=self_weight)
    wrong = isinstance(matrix, Tensor) and not matrix.is_floating_point()
    reject_if(wrong, "matrix to be floating point", matrix.dtype, TypeError)
    shape = list(matrix.shape)
    reject_if(len(shape) != 2 or shape[0] != shape[1], "matrix to have shape [K, K]", shape)
    dense = _dense(matrix)
    reject_if(not torch.isfinite(dense).all(), "matrix to be finite", "NaN or infinity")
    sparse = not isinstance(matrix, Tensor) or matrix.layout != torch.strided
    others = dense * (1 - self_weight)
    out = {}
    for name, value in stack.items():
        got = list(value.shape)
        reject_if(got[:1] != shape[:1], f"stack[{name!r}] to have {shape[0]} clients", got)
        dtype, same = exact(value), self_weight == 1 or not value.numel()
        out[name] = value.clone() if same else _mix_one(value, others, self_weight, sparse, dtype)
    return out


def _mix_one(value: Tensor, others: Tensor, own: float, sparse: bool, dtype: torch.dtype) -> Tensor:
    """Mix one stacked tensor; compute in `dtype` and return the tensor's own dtype."""
    places = sorted(range(1, value.dim()), key=value.stride, reverse=True)
    turned = value.permute(0, *places)  # in memory order, flattening often needs no copy
    flat = turned.reshape(len(value), -1).to(dtype)
    mixed = _mixed(flat, others, own, sparse).reshape(turned.shape)
    mixed = mixed.permute(0, *(1 + places.index(dim) for dim in range(1, value.dim())))
    return as_dtype(mixed, value.dtype)


def _dense(matrix: Any) -> Tensor:
    if isinstance(matrix, Tensor):
        return matrix.to_dense().double()
    unit = torch.eye(matrix.shape[1], dtype=torch.float64, device=matrix.device)
    product: Tensor = matrix.astype(torch.float64) @ unit
    return product


def _mixed(flat: Tensor, others: Tensor, own: float, sparse: bool) -> Tensor:
    """Compute ``own flat + others @ flat``; the result has the dtype of `flat`.

    Let m be the largest magnitude in a client's tensor. The tensor is divided by m, and the
    client's column of the matrix is multiplied by m. So a client with large values causes rounding
    errors only for clients that give this client a weight. Each row of the matrix is rounded to a
    grid that depends on the row's sum. Each column of the tensors is rounded to a grid that depends
    on the column's largest entry. Every partial sum is then an integer below 2^53.
    """
    clients = len(flat)
    if flat.dtype == torch.float32:
        count, column_bits = 1, 26 - clients.bit_length() // 6
        row_bits = 53 - column_bits
    else:  # for later slices only the entries are bounded, not their sum
        count = 3
        row_bits = column_bits = (52 - clients.bit_length()) // 2
    scale = _above(_size(flat, 1).double())
    unscale, rows = (1 / scale)[:, None], others * scale
    bound = _above(folded(rows.detach().T.abs()))[:, None]
    left = _slices(rows, bound, row_bits, count)
    left = [part.to_sparse() for part in left] if sparse else left
    pairs = [(i, total - i) for total in reversed(range(count)) for i in range(total + 1)]
    out = []
    for part in flat.split(max(2**16 // clients, 2048), 1):  # stays in the cache
        unit = part.double() * unscale
        right = _slices(unit, _above(_size(unit, 0)), column_bits, count)
        products = [left[i] @ right[j] for i, j in pairs]  # the smallest first
        mixed = sum(products[1:], products[0]).to(flat.dtype)
        out.append(mixed + own * part if own else mixed)
    return out[0] if len(out) == 1 else torch.cat(out, 1)


def _size(value: Tensor, dim: int) -> Tensor:
    """Largest finite magnitude of the entries along a dimension."""
    value = value.detach()
    size = torch.maximum(value.amax(dim), -value.amin(dim))
    if value.is_cuda or not float(size.max()) < inf:  # NaN too; does not wait for a GPU
        size = torch.where(torch.isfinite(value), value, 0).abs().amax(dim)
    return size


def _above(size: Tensor) -> Tensor:
    """The next power of two above 1.001 times a number.

    The function adds 1 to the exponent bits of the float and sets all other bits to 0.
    """
    bits = (size * 1.001).clamp(2.0**-900, 2.0**900).view(torch.int64)  # room for rounding up
    return (((bits >> 52) + 1) << 52).view(torch.float64)


def _slices(value: Tensor, bound: Tensor, bits: int, count: int) -> list[Tensor]:
    """Split `value` into parts; every entry of part n is an integer times ``bound 2^-(n bits)``."""
    out = []
    for n in range(1, count + 1):
        shift = bound * (1.5 * 2.0 ** (52 - n * bits))  # adding it rounds smaller digits away
        out.append((value + shift).sub_(shift))
        if n < count:
            value = value - out[-1]
    return out
