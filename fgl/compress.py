"""Compression of tensors: round entries at random to a few levels, or keep the largest entries."""

import math

import torch
from torch import Tensor

from .checks import check_choice, check_count, check_number, reject_if

BITS = (2, 4, 8)


@torch.no_grad()
def quantise(
    x: Tensor, *, bits: int = 8, bucket: int = 512, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Round each entry at random to one of its two neighbouring levels, without bias.

    ``Q(v) = scale sign(v) floor(s |v| / scale + u) / s``, where u is uniform, at least 0 and below
    1 (QSGD, section 3.1). There are ``s = 2 ** (bits - 1) - 1`` levels on each side of 0. The scale
    is the largest absolute entry of a bucket (section 4). ``E[Q(v)] = v``, and every entry changes
    by less than ``scale / s``.

    Args:
        x: floating-point tensor of any shape; n is the number of its entries.
        bits: number of bits per entry, 2, 4 or 8.
        bucket: number of consecutive entries that share a scale.
        generator: source of randomness for u; by default torch's global generator.

    Returns:
        Codes, uint8 ``[ceil(n bits / 8)]``, and scales, float32 ``[ceil(n / bucket)]``.

    Raises:
        TypeError: if `x` is not floating-point.
        ValueError: if `bits` or `bucket` is out of range.

    Example:
        >>> codes, scales = quantise(torch.tensor([0.0, -1.0, 1.0]), bits=4)
        >>> dequantise(codes, scales, torch.Size([3]), bits=4)
        tensor([ 0., -1.,  1.])

    Source: Alistarh et al. 2017, https://arxiv.org/abs/1610.02132
    """
    _check(bits, bucket)
    reject_if(not x.is_floating_point(), "x to be floating-point", x.dtype, TypeError)
    levels, entries = 2 ** (bits - 1) - 1, x.numel()
    rows = x.new_zeros(math.ceil(entries / bucket), bucket, dtype=torch.float64)
    rows.view(-1)[:entries] = x.reshape(-1)
    scales = rows.abs().amax(1) if entries else rows.new_zeros(0)
    scales = scales.float()  # the precision that the receiver gets
    share = rows / scales.double().where(scales > 0, 1.0)[:, None]
    draws = torch.rand(rows.shape, dtype=torch.float64, generator=generator, device=x.device)
    steps = (share.abs() * levels + draws).floor().clamp(max=levels) * share.sign()
    unsigned = (steps + levels).nan_to_num().to(torch.uint8).view(-1)[:entries]
    return _packed(unsigned, bits), scales


@torch.no_grad()
def dequantise(
    codes: Tensor,
    scales: Tensor,
    shape: torch.Size,
    *,
    bits: int = 8,
    bucket: int = 512,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Decode the result of `quantise` to a tensor.

    Args:
        codes, scales: the two results of `quantise`, called with the same `bits` and `bucket`.
        shape: shape of the tensor.
        dtype: dtype of the tensor.

    Raises:
        ValueError: if the number of codes or scales does not match the shape.

    Example:
        >>> dequantise(torch.tensor([255, 1], dtype=torch.uint8), torch.ones(1), torch.Size([2]))
        tensor([ 1.0079, -0.9921])

    Source: Alistarh et al. 2017, https://arxiv.org/abs/1610.02132
    """
    _check(bits, bucket)
    entries = shape.numel()
    want = (math.ceil(entries * bits / 8), math.ceil(entries / bucket))
    if (codes.numel(), scales.numel()) != want:
        got = f"{codes.numel()} and {scales.numel()}"
        raise ValueError(f"Expected {want[0]} codes and {want[1]} scales, but got {got}")
    levels = 2 ** (bits - 1) - 1
    steps = _unpacked(codes, bits)[:entries].double() - levels
    spread = scales.double().repeat_interleave(bucket)[:entries]
    values: Tensor = (steps / levels * spread).to(dtype)
    return values.view(shape)


@torch.no_grad()
def largest(x: Tensor, *, share: float) -> tuple[Tensor, Tensor]:
    """Select the entries with the largest absolute values; in a tie, earlier entries are selected.

    Args:
        x: tensor of any shape; n is the number of its entries.
        share: fraction of entries to select, above 0 and at most 1. The number of selected entries
            is ``k = ceil(share n)``.

    Returns:
        The indices in ``x.flatten()``, int32 ``[k]`` in ascending order, and the values ``[k]``.

    Raises:
        ValueError: if `share` is out of range.

    Example:
        >>> largest(torch.tensor([1.0, -3.0, 2.0, 3.0]), share=0.5)
        (tensor([1, 3], dtype=torch.int32), tensor([-3.,  3.]))

    Source: Stich et al. 2018, https://arxiv.org/abs/1809.07599
    """
    check_number("share", share, above=0, at_most=1)
    flat = x.reshape(-1)
    count = num_largest(flat.numel(), share)
    size = flat.abs().nan_to_num(nan=math.inf, posinf=math.inf)
    least = size.topk(count).values[-1:]
    above = (size > least).nonzero()[:, 0]
    equal = (size == least).nonzero()[: count - len(above), 0]
    places: Tensor = torch.cat([above, equal]).sort().values
    return places.int(), flat[places]


def num_largest(entries: int, share: float) -> int:
    """Number of entries that `largest` selects.

    Example:
        >>> num_largest(7, share=0.5), num_largest(0, share=0.5)
        (4, 0)
    """
    return math.ceil(share * entries)


def _check(bits: int, bucket: int) -> None:
    check_choice("bits", bits, BITS)
    check_count(bucket=bucket)


def _packed(codes: Tensor, bits: int) -> Tensor:
    """Pack several codes into each byte; the first code in a byte uses the lowest bits."""
    each = 8 // bits
    filled = codes.new_zeros(math.ceil(len(codes) / each) * each)
    filled[: len(codes)] = codes
    shifts = bits * torch.arange(each, device=codes.device)
    packed: Tensor = (filled.view(-1, each).int() << shifts).sum(1)
    return packed.to(torch.uint8)


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    shifts = bits * torch.arange(8 // bits, device=packed.device)
    codes: Tensor = (packed.int()[:, None] >> shifts) & (2**bits - 1)
    return codes.view(-1)
