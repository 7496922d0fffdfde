"""Bit-reproducible weighted means, sums over clients, and square roots."""

from collections.abc import Mapping, Sequence
from math import inf, prod
from typing import Any

import torch
from torch import Tensor

from ..checks import reject_if
from ..transfer import to_device

SMALL = 2**16  # entries of a stack; smaller stacks are summed together, to save calls
SHORT = 2**13  # entries of a tensor; a list of shorter tensors is stacked, to save calls
LONG = 2**18  # entries of a tensor; longer tensors of a stack do not fit a cache: added singly


def mean(stack: Mapping[str, Tensor | Sequence[Tensor]], weight: Tensor) -> dict[str, Tensor]:
    """Weighted mean over clients: ``sum_k weight_k stack_k / sum_k weight_k``.

    The function computes ``sum_k stack_k / (sum_j weight_j / weight_k)``. The order of the
    additions depends only on K.

    Args:
        stack: dict from name to ``[K, ...]``, or to K tensors ``[...]``; integers are rounded.
        weight: ``[K]``, one non-negative weight per client (FedAvg: the client's number of
            examples).

    Returns:
        Dict from name to ``[...]`` with the stack's dtypes. A stack and a list of the same tensors
        give bit-identical results.

    Raises:
        TypeError: if tensors are complex, or if the tensors of a list differ in dtype.
        ValueError: if a weight is negative or not finite, if all weights are zero, if `weight` does
            not have one entry per client, or if the tensors of a list have different shapes.

    Example:
        >>> mean({"w": torch.tensor([[0.0], [4.0]])}, torch.tensor([3, 1]))
        {'w': tensor([1.])}

    Source: McMahan et al. 2017, https://arxiv.org/abs/1602.05629
    """
    divisor = _divisors(weight)
    clients = divisor.numel()
    divisors: dict[Any, Tensor] = {}
    small: dict[Any, dict[str, Tensor]] = {}
    out = {}
    for name, value in stack.items():
        first = check_stack(name, value, clients)
        where = first.device, exact(first)
        if where not in divisors:
            divisors[where] = to_device(divisor, where[0]).to(where[1])
        shape = first.shape[1:] if isinstance(value, Tensor) else first.shape
        if clients * prod(shape) <= SMALL:
            whole = value if isinstance(value, Tensor) else torch.stack(list(value))
            small.setdefault(where, {})[name] = whole
            out[name] = whole  # its place
        else:
            out[name] = as_dtype(_divided_sum(value, divisors[where]), first.dtype)
    for where, few in small.items():
        flat = [
            whole.reshape(clients, prod(whole.shape[1:])).to(where[1]) for whole in few.values()
        ]
        sums = _sum_of_stack(torch.cat(flat, 1), divisors[where])
        each = sums.split([own.shape[1] for own in flat])
        for (name, whole), own in zip(few.items(), each, strict=True):
            out[name] = as_dtype(own.clone().view(whole.shape[1:]), whole.dtype)
    return out


def exact(value: Tensor) -> torch.dtype:
    """The dtype in which sums are computed.

    A bfloat16 sum would ignore all clients after the first few hundred.
    """
    reject_if(value.is_complex(), "the clients' tensors to be real", value.dtype, TypeError)
    if not value.is_floating_point():
        return torch.float64
    return torch.promote_types(value.dtype, torch.float32)


def folded(total: Tensor) -> Tensor:
    """Sum over the first dimension, by repeatedly adding the second half to the first half.

    The function overwrites its argument. If the number of rows is odd, the middle row is added
    last.
    """
    rows = len(total)
    while rows > 2:
        half = rows // 2
        total[:half].add_(total[rows - half : rows])
        rows -= half
    return total[0] + total[1] if rows == 2 else total[0].clone()  # a view would keep all memory


def _lanes(clients: int) -> int:
    """Number of partial sums (lanes), about sqrt(K); client k is added to lane ``k mod lanes``.

    The number depends only on K. So a stack and a list of K tensors are added in the same order,
    and their sums are bit-identical.
    """
    return 1 << (clients.bit_length() - 1) * 5 // 9


def _divided_sum(value: Tensor | Sequence[Tensor], divisor: Tensor) -> Tensor:
    """``sum_k value_k / divisor_k``."""
    if isinstance(value, Tensor):
        shape = value.shape[1:]
        if shape.numel() > LONG:
            return _sum_of_list(value.unbind(), divisor)
        if value.dim() == 3 and value.mT.is_contiguous() and not value.is_contiguous():
            return _divided_sum(value.mT, divisor).mT  # without a copy
        return _sum_of_stack(value.reshape(len(value), shape.numel()), divisor).view(shape)
    if value[0].numel() > SHORT:
        return _sum_of_list(value, divisor)
    return _divided_sum(torch.stack(list(value)), divisor)


def _sum_of_stack(rows: Tensor, divisor: Tensor) -> Tensor:
    lanes = _lanes(len(rows))
    parts, divisors = rows.to(divisor.dtype).split(lanes), divisor[:, None].split(lanes)
    total = parts[0] / divisors[0]
    for part, by in zip(parts[1:], divisors[1:], strict=True):
        some = total if len(part) == lanes else total[: len(part)]
        some.addcdiv_(part, by)  # hardware may fuse a product with a sum, but never a division
    return folded(total)


def _sum_of_list(rows: Sequence[Tensor], divisor: Tensor) -> Tensor:
    lanes, divisors, totals = _lanes(len(rows)), divisor.unbind(), []
    rows = rows if rows[0].dtype == divisor.dtype else [row.to(divisor.dtype) for row in rows]
    for lane in range(lanes):
        total = rows[lane] / divisors[lane]
        first = lane + lanes
        for row, by in zip(rows[first::lanes], divisors[first::lanes], strict=True):
            total.addcdiv_(row, by)
        totals.append(total)
    while len(totals) > 1:  # as `folded` does
        half = len(totals) // 2
        totals = [a.add_(b) for a, b in zip(totals[:half], totals[half:], strict=True)]
    return totals[0]


def _divisors(weight: Tensor) -> Tensor:
    """Divisors for the clients' tensors, float64 ``[K]``: ``sum_j weight_j / weight_k``."""
    reject_if(weight.dim() != 1, "weight to have shape [K]", list(weight.shape))
    share = weight.double()
    low, high = (float(end) for end in share.detach().aminmax()) if len(share) else (0.0, 0.0)
    # The first comparison also rejects NaN.
    reject_if(not 0 <= low <= high < inf, "weight to be finite and >= 0", weight.tolist())
    reject_if(not high, "weight to have a positive entry", weight.tolist())
    return folded(share.clone()) / share


def check_stack(name: str, value: Tensor | Sequence[Tensor], clients: int) -> Tensor:
    """Check a stack or a list of K tensors; return the stack, or the list's first tensor.

    Callers read the dtype and the device from the result.
    """
    shape = list(value.shape) if isinstance(value, Tensor) else [len(value)]
    expected = f"stack[{name!r}] to have {clients} clients"
    reject_if(shape[:1] != [clients], expected, f"shape {shape}")
    if isinstance(value, Tensor):
        return value
    shapes = {tensor.shape for tensor in value}  # a sum would broadcast them
    reject_if(len(shapes) > 1, f"stack[{name!r}] to have one shape", sorted(map(tuple, shapes)))
    dtypes = {tensor.dtype for tensor in value}
    different = sorted(map(str, dtypes))
    reject_if(len(dtypes) > 1, f"stack[{name!r}] to have one dtype", different, TypeError)
    return value[0]


def as_dtype(average: Tensor, dtype: torch.dtype) -> Tensor:
    return (average if dtype.is_floating_point else average.round()).to(dtype)


def root(value: Tensor) -> Tensor:
    """Square root ``1 / (1 / sqrt(x))`` of each entry, exact up to two units of the last digit.

    On a CPU, `torch.sqrt` calls MKL. The last digit of MKL's result depends on the type of CPU.
    `rsqrt` and `reciprocal` use IEEE arithmetic for square roots and divisions, so every CPU gives
    the same result.

    Args:
        value: floating point ``[...]``; for half precision the root is computed in float32.

    Returns:
        ``[...]``, of the dtype of `value`.

    Example:
        >>> root(torch.tensor([0.0, 4.0, torch.inf]))
        tensor([0., 2., inf])
    """
    wide = value.to(torch.promote_types(value.dtype, torch.float32))
    return wide.rsqrt().reciprocal().to(value.dtype)
