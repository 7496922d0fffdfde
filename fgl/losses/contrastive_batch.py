"""Node contrast of many small clients at once: one masked tensor instead of blocks of a class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

CACHED = 2**18  # similarities that a CPU's cache holds with what is made of them


def chunks(tensors: Sequence[Tensor], block: int) -> Iterator[Any]:
    """As many clients at a time as have `block` similarities together, at least one.

    On a GPU the mask is not counted, so that nothing waits for it.
    """
    mask = tensors[3]
    width = mask.shape[1] if mask.is_cuda else int(mask.sum(1).max())
    block = block if mask.is_cuda else min(block, CACHED)
    size = max(1, block // max(width**2, 1))
    yield from zip(*(tensor.split(size) for tensor in tensors), strict=True)


def contrast_batch(
    anchor: Tensor,
    keys: Tensor,
    y: Tensor,
    mask: Tensor,
    divide_by_all: bool,
    include_self: bool,
    *,
    by_keys: bool = False,
) -> tuple[Tensor, Tensor]:
    """Loss ``[K]`` of K clients on scaled unit rows, and its gradient by the anchors or the keys.

    Args:
        anchor: float ``[K, num_nodes, d]``.
        keys: float ``[K, num_nodes, d]``.
        y: int64 ``[K, num_nodes]``.
        mask: bool ``[K, num_nodes]``.
        divide_by_all: the denominator's other form.
        include_self: whether a node's own key is a positive.
        by_keys: the gradient by the keys instead.
    """
    nodes = _taking_part(mask)
    a, k = _rows(anchor, nodes), _rows(keys, nodes)
    label, there = y.gather(1, nodes), mask.gather(1, nodes)
    pairs = there[:, :, None] & there[:, None, :]
    if not include_self:
        pairs = pairs & ~torch.eye(nodes.shape[1], dtype=torch.bool, device=nodes.device)
    alike = (label[:, :, None] == label[:, None, :]) & pairs
    rivals = pairs if divide_by_all else pairs & ~alike
    count = alike.sum(2, keepdim=True)
    anchors = (count > 0).sum(1, keepdim=True)
    scale = torch.where(count > 0, 1 / (count * anchors).clamp(min=1).to(a.dtype), 0)
    sim = a @ k.mT
    rest = sim.masked_fill(~rivals, -torch.inf).logsumexp(2, keepdim=True)
    gap = (rest - sim).masked_fill_(~alike, -torch.inf)
    if divide_by_all:
        losses = gap.masked_fill(~alike, 0)
        pull = alike.to(sim.dtype)
        strength = count.to(sim.dtype)
    else:
        losses = F.softplus(gap, threshold=40)
        pull = gap.sigmoid()
        strength = pull.sum(2, keepdim=True)
    finite = torch.where(rest > -torch.inf, rest, 0)
    share = (sim - finite).masked_fill_(~rivals, -torch.inf).exp_()
    slope = (share * strength - pull) * scale
    slopes = slope.mT @ a if by_keys else slope @ k
    return (losses * scale).sum((1, 2)), _back(slopes, nodes, anchor)


def _taking_part(mask: Tensor) -> Tensor:
    """Node indices ``[K, m]``, those of the mask first; m is what the largest client needs."""
    width = mask.shape[1] if mask.is_cuda else int(mask.sum(1).max())
    order = mask.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    return order[:, :width]


def _rows(x: Tensor, nodes: Tensor) -> Tensor:
    return x.gather(1, nodes[:, :, None].expand(-1, -1, x.shape[2]))


def _back(rows: Tensor, nodes: Tensor, like: Tensor) -> Tensor:
    return torch.zeros_like(like).scatter(1, nodes[:, :, None].expand_as(rows), rows)
