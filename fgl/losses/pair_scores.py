"""A link decoder: inner products of pairs of rows, computed with little memory."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..checks import reject_if
from ..sparse import gather_rows
from ..sparse.autograd import batched
from ..sparse.gather import add_rows, below_each_other

BLOCK = 2**20  # entries that are gathered at a time


def pair_scores(z: Tensor, pairs: Tensor) -> Tensor:
    """The decoder's logits, which are inner products of pairs of rows: ``s_uv = z_u . z_v``.

    The forward pass and the backward pass take O(num_pairs d) time and O(num_pairs + n d) extra
    memory. Rows are gathered in blocks, and the backward pass gathers them again.

    Args:
        z: float ``[n, d]``.
        pairs: int64 ``[2, num_pairs]``.

    Returns:
        float ``[num_pairs]``.

    Raises:
        ValueError: if a shape is invalid.

    Example:
        >>> pair_scores(torch.tensor([[1.0, 0.0], [2.0, 3.0]]), torch.tensor([[0, 1], [1, 1]]))
        tensor([ 2., 13.])

    Source: Kipf and Welling 2016, https://arxiv.org/abs/1611.07308, Eq. 2
    """
    reject_if(z.dim() != 2, "z to have shape [n, d]", list(z.shape))
    wrong = pairs.dim() != 2 or pairs.shape[0] != 2
    reject_if(wrong, "pairs to have shape [2, *]", list(pairs.shape))
    out: Tensor = _Pairs.apply(z, pairs[0], pairs[1])  # type: ignore[no-untyped-call]
    return out


class _Pairs(Function):
    """Inner products of pairs of rows, one block of pairs at a time."""

    @staticmethod
    def forward(z: Tensor, left: Tensor, right: Tensor) -> Tensor:
        out = z.new_empty(left.shape)
        size = max(1, BLOCK // max(z.shape[1], 1))
        for part, u, v in zip(out.split(size), left.split(size), right.split(size), strict=True):
            part.copy_((z.index_select(0, u) * z.index_select(0, v)).sum(1))
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        z, left, right = ctx.saved_tensors
        out = torch.zeros_like(z)
        size = max(1, BLOCK // max(z.shape[1], 1))
        for g, u, v in zip(grad.split(size), left.split(size), right.split(size), strict=True):
            add_rows(out, u, g[:, None] * gather_rows(z, v))
            add_rows(out, v, g[:, None] * gather_rows(z, u))
        return out, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Tensor) -> tuple[Tensor, int]:
        """Concatenate the clients' rows, and shift each client's row indices accordingly."""
        size = info.batch_size
        z, left, right = (batched(a, dim, size) for a, dim in zip(args, in_dims, strict=True))
        flat = (below_each_other(nodes, z.shape[1], "pairs") for nodes in (left, right))
        out: Tensor = _Pairs.apply(z.flatten(0, 1), *flat)  # type: ignore[no-untyped-call]
        return out.view(size, -1), 0
