"""Fixed point: numbers become integers modulo 2^64, so that sums of masked numbers are exact."""

import math
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from ..checks import reject_if
from ..transfer import to_device

ROOM = 2.0**62  # half of a word's range, so that no sum overflows


class DoesNotFit(ValueError):
    """Error for a number that is not finite or not in the agreed range.

    Example:
        >>> issubclass(DoesNotFit, ValueError)
        True
    """


def encode(value: Tensor, *, weight: int = 1, bits: int, bound: float) -> Tensor:
    """Encode a tensor as ``weight round(value 2^bits)``; integers are not scaled.

    Args:
        value: tensor of any shape. Each entry must be in ``[-bound, bound]``. An integer may be up
            to ``bound 2^bits`` in magnitude.
        weight: factor of the value, an integer of at least 0; see `largest_weight`.
        bits: number of bits of the fraction.
        bound: largest magnitude.

    Returns:
        int64 tensor on the CPU, with the shape of `value`.

    Raises:
        DoesNotFit: if an entry is not finite or exceeds the bound. Without this check a value could
            overflow unnoticed.

    Example:
        >>> encode(torch.tensor([0.5, -1.25]), weight=3, bits=2, bound=8)
        tensor([  6, -15])
    """
    scaled = value.detach().cpu().double()
    if value.is_floating_point():
        scaled = scaled * 2.0**bits
    scaled = scaled.round()
    fits = bool((scaled.abs() <= bound * 2.0**bits).all())  # also rejects NaN
    reject_if(not fits, f"values to be at most {bound:g} in size", "one that is not", DoesNotFit)
    return scaled.long() * weight


def decode(total: Tensor, weight: int, *, bits: int, bound: float, like: Tensor) -> Tensor:
    """Mean ``total / weight / 2^bits`` from a sum of encoded values; the mean is rounded once.

    Args:
        total: int64 ``[...]``, the sum over clients of results of `encode`.
        weight: the sum of the clients' weights, above 0.
        bits, bound: as for `encode`.
        like: a tensor with the dtype and the device of the result.

    Returns:
        ``[...]``, with the dtype of `like`; an integer mean is rounded.

    Raises:
        DoesNotFit: if a mean exceeds the bound; this happens only if a client's value exceeded the
            bound.

    Example:
        >>> decode(torch.tensor([6, -15]), 3, bits=2, bound=8, like=torch.zeros(1))
        tensor([ 0.5000, -1.2500])
    """
    whole = torch.div(total, weight, rounding_mode="floor")
    fits = bool((whole.double().abs() <= bound * 2.0**bits).all())
    reject_if(not fits, f"means to be at most {bound:g} in size", "one that is not", DoesNotFit)
    rest = total - whole * weight
    mean = whole.double() + rest.double() / weight
    mean = mean * 2.0**-bits if like.is_floating_point() else mean.round()
    return to_device(mean.to(like.dtype), like.device)


def largest_weight(num_clients: int, *, bits: int, bound: float) -> int:
    """Largest weight that clients may have so that a sum over all of them fits into 64 bits.

    Example:
        >>> largest_weight(10, bits=28, bound=1024)
        1677721
    """
    return math.floor(ROOM / (bound * 2.0**bits) / num_clients)


def wrapped_sum(words: Iterable[Tensor], *, minus: Iterable[Tensor] = ()) -> Tensor:
    """Sum of int64 tensors minus the sum of the int64 tensors in `minus`, all modulo 2^64.

    Example:
        >>> wrapped_sum([torch.tensor([2**63 - 1]), torch.tensor([1])])
        tensor([-9223372036854775808])
    """
    total: np.ndarray | None = None
    for sign, some in ((1, words), (-1, minus)):
        for word in some:
            other = (
                word.cpu().contiguous().numpy().view(np.uint64)
            )  # integer sums wrap around modulo 2^64
            if total is None:
                total = np.zeros_like(other)
            total = total + other if sign > 0 else total - other
    reject_if(total is None, "words to have a tensor", "none")
    return torch.from_numpy(np.asarray(total).view(np.int64))
