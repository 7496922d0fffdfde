"""Contrastive loss between two sets of embeddings of the same nodes.

For one client, similarities are computed in blocks of rows. Under `vmap`, the similarities of many
small clients are computed as one masked tensor.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ..checks import check_choice, check_length, check_mask, check_number, reject_if
from ..sparse.autograd import batched
from ..sparse.precision import full_precision
from ..sparse.recording import in_one
from ..sparse.rows import widened
from .unit_rows import unit_rows

BLOCK = 2**23  # entries of the similarity matrix that are in memory at a time
CACHED = 2**18  # similarities that fit in a CPU's cache, together with intermediate results


def node_contrast(
    anchor: Tensor,
    keys: Tensor,
    y: Tensor,
    *,
    temperature: float = 0.1,
    mask: Tensor | None = None,
    denominator: str = "negatives",
    direction: str = "anchor",
    block: int = BLOCK,
) -> Tensor:
    """Attract embeddings to keys of their class, and repel keys of other classes (FGSSL, Eq. 7).

    ``phi_ij = exp(cos(anchor_i, keys_j) / temperature)``, ``loss = -mean_i 1/|P_i| sum_{p in P_i}
    log(phi_ip / (phi_ip + sum_{k: y_k != y_i} phi_ik))`` with ``P_i = {p: y_p = y_i}``. The loss
    takes O(N^2 d) time and O(block + N d) extra memory. Similarities are computed in blocks of
    rows. The backward pass computes the similarities again. Tensors in half precision are computed
    in float32.

    Args:
        anchor: float ``[num_nodes, d]``, the embeddings being trained.
        keys: float ``[num_nodes, d]``, embeddings of the nodes in `anchor`, in the order of the
            anchors. In FGSSL's paper, the frozen global model computes the keys. With the settings
            in FGSSL's public code, the local model computes the keys. `keys` gets a gradient if it
            requires one.
        y: int64 ``[num_nodes]`` labels.
        temperature: the paper's tau.
        mask: bool ``[num_nodes]``, the nodes used in the loss (usually the training nodes).
        denominator: ``"negatives"`` selects the paper's formula, given above. With ``"all"``, the
            denominator is the sum over all keys, as in the authors' code. This is supervised
            contrast with the sum over positives outside the logarithm.
        direction: ``"anchor"`` selects the loss above. With ``"symmetric"``, anchors and keys are
            exchanged in a second loss, and the mean of the two losses is returned.
        block: largest number of similarities in memory at a time.

    Returns:
        A scalar: the mean loss over the anchors with a positive key. If there is no such anchor,
        the loss and its gradient are 0. Rows of length zero have similarity 0 to all rows and get
        no gradient.

    Raises:
        TypeError: if `mask` is not bool.
        ValueError: if shapes do not match, if the temperature is not positive, or if an option is
            unknown.
        RuntimeError: from autograd, if a second derivative is requested.

    Example:
        >>> h = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> node_contrast(h, h, torch.tensor([0, 1]), temperature=1.0)
        tensor(0.3133)

    Source: Huang et al., IJCAI 2023, https://doi.org/10.24963/ijcai.2023/426
    """
    expected = f"keys to have the anchor's shape {list(anchor.shape)} [num_nodes, d]"
    reject_if(anchor.dim() != 2 or anchor.shape != keys.shape, expected, list(keys.shape))
    check_length(len(anchor), y=y, mask=mask)
    if mask is not None:
        check_mask("mask", mask, len(anchor))
    check_number("temperature", temperature, above=0)
    check_choice("denominator", denominator, ("negatives", "all"))
    check_choice("direction", direction, ("anchor", "symmetric"))
    scale = temperature**-0.5
    dtype = anchor.dtype
    anchor, keys = (unit_rows(widened(rows)) * scale for rows in (anchor, keys))
    mask = torch.ones_like(y, dtype=torch.bool) if mask is None else mask
    options = (y, mask, denominator == "all", block)
    loss: Tensor = _Contrast.apply(anchor, keys, *options)[0]  # type: ignore[no-untyped-call]
    if direction == "symmetric":
        other = _Contrast.apply(keys, anchor, *options)[0]  # type: ignore[no-untyped-call]
        loss = (loss + other) / 2
    return loss.to(dtype)


class _Contrast(Function):
    """The loss, and its gradient with respect to the anchors, computed in blocks.

    All rows of the anchors and keys have length ``temperature^-1/2`` or 0.
    """

    @staticmethod
    @full_precision
    def forward(
        anchor: Tensor, keys: Tensor, y: Tensor, mask: Tensor, divide_by_all: bool, block: int
    ) -> tuple[Tensor, Tensor]:
        if _at_once(y, block):
            return _batch_of_one((anchor, keys, y, mask), divide_by_all)
        nodes, counts = _by_class(y, mask)
        a, k = anchor.index_select(0, nodes), keys.index_select(0, nodes)
        total, slopes = anchor.new_zeros(()), torch.zeros_like(a)
        for rows, loss, slope in _blocks(a, k, counts, divide_by_all, block):
            total += loss
            slopes[rows] = slope @ k
        return total, torch.zeros_like(anchor).index_copy(0, nodes, slopes)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.divide_by_all, ctx.block = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1], *tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, twice: Tensor | None) -> Any:
        if twice is not None:
            raise RuntimeError("node_contrast has no second derivative")
        if grad is None:
            return (None,) * 6
        slopes, anchor, keys, y, mask = ctx.saved_tensors
        grad_keys = None
        if ctx.needs_input_grad[1]:
            options = ctx.divide_by_all, ctx.block
            grad_keys = _KeySlopes.apply(anchor, keys, y, mask, *options) * grad  # type: ignore[no-untyped-call]
        return slopes * grad, grad_keys, *[None] * 4

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        tensors = _batched(info, in_dims, args)
        if any(map(is_functorch_wrapped_tensor, tensors)):  # by a second `vmap`
            losses, slopes = _in_chunks(*tensors, *args[4:])
            return (losses, slopes), (0, 0)
        out: tuple[Tensor, Tensor] = _Batch.apply(*tensors, *args[4:])  # type: ignore[no-untyped-call]
        return out, (0, 0)


class _Batch(Function):
    """The losses of K clients, and the gradients of these losses with respect to the anchors."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor]:
        losses, slopes = _in_chunks(*args)
        ctx.args = args[4:]
        ctx.mark_non_differentiable(slopes)
        ctx.save_for_backward(slopes, *args[:4])
        return losses, slopes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> Any:
        slopes, *tensors = ctx.saved_tensors
        grad, grad_keys = grad[:, None, None], None
        if ctx.needs_input_grad[1]:
            grad_keys = _keys_in_chunks(*tensors, *ctx.args)[0] * grad
        return slopes * grad, grad_keys, *[None] * 4


@in_one
def _in_chunks(
    anchor: Tensor, keys: Tensor, y: Tensor, mask: Tensor, *options: int
) -> tuple[Tensor, Tensor]:
    """Compute losses ``[K]`` and the anchors' gradients for one chunk of clients at a time."""
    divide_by_all, block = options
    parts = [
        _contrast_batch(*chunk, bool(divide_by_all))
        if chunk[2].shape[0] > 1
        else [out[None] for out in _Contrast.forward(*(t[0] for t in chunk), *options)]
        for chunk in _chunks((anchor, keys, y, mask), block)
    ]
    losses, slopes = (torch.cat(out) for out in zip(*parts, strict=True))
    return losses, slopes


@in_one
def _keys_in_chunks(
    anchor: Tensor, keys: Tensor, y: Tensor, mask: Tensor, *options: int
) -> tuple[Tensor]:
    """Compute the keys' gradients for one chunk of clients at a time."""
    divide_by_all, block = options
    parts = [
        _contrast_batch(*chunk, bool(divide_by_all), by_keys=True)[1]
        if chunk[2].shape[0] > 1
        else _KeySlopes.forward(*(t[0] for t in chunk), *options)[None]
        for chunk in _chunks((anchor, keys, y, mask), block)
    ]
    return (torch.cat(parts),)


class _KeySlopes(Function):
    """Gradient with respect to the keys; `vmap` requires a separate autograd Function for it."""

    @staticmethod
    @full_precision
    def forward(
        anchor: Tensor, keys: Tensor, y: Tensor, mask: Tensor, *options: *tuple[bool, int]
    ) -> Tensor:
        if _at_once(y, options[1]):
            return _batch_of_one((anchor, keys, y, mask), options[0], by_keys=True)[1]
        nodes, counts = _by_class(y, mask)
        a, k = anchor.index_select(0, nodes), keys.index_select(0, nodes)
        slopes = torch.zeros_like(k)
        for rows, _, slope in _blocks(a, k, counts, *options):
            slopes += slope.t() @ a[rows]
        return torch.zeros_like(keys).index_copy(0, nodes, slopes)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, twice: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError("node_contrast has no second derivative")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Tensor, int]:
        return _keys_in_chunks(*_batched(info, in_dims, args), *args[4:])[0], 0


def _batched(info: Any, in_dims: Any, args: tuple[Any, ...]) -> list[Tensor]:
    """Move the clients' dimension of anchors, keys, labels and masks to the front."""
    pairs = zip(args[:4], in_dims[:4], strict=True)
    return [batched(arg, dim, info.batch_size) for arg, dim in pairs]


def _by_class(y: Tensor, mask: Tensor) -> tuple[Tensor, list[int]]:
    """Indices of the masked nodes, sorted by class, and the number of masked nodes per class."""
    nodes = mask.nonzero().squeeze(1)
    labels, order = y.index_select(0, nodes).sort(stable=True)
    return nodes[order], labels.unique_consecutive(return_counts=True)[1].tolist()


def _blocks(
    anchor: Tensor, keys: Tensor, counts: list[int], divide_by_all: bool, block: int
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield blocks of rows of one class, with the loss of the block and the loss's derivatives."""
    anchors = sum(counts)
    size = max(1, block // max(anchors, 1))
    terms = _over_all if divide_by_all else _over_negatives
    stop = 0
    for count in counts:
        columns = slice(stop, stop + count)
        stop += count
        for first in range(columns.start, stop, size):
            rows = slice(first, min(first + size, stop))
            sim = anchor[rows] @ keys.t()
            loss, slope = terms(sim, columns)
            scale = 1 / (count * anchors)
            yield rows, loss * scale, slope.mul_(scale)


def _over_negatives(sim: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
    """Sum of ``-log(phi_ip / (phi_ip + sum_{k: y_k != y_i} phi_ik))`` over a block's positives."""
    positives = sim[:, columns].clone()
    sim[:, columns] = -torch.inf
    rest = sim.logsumexp(1, keepdim=True)
    gap = rest - positives
    loss = F.softplus(gap, threshold=40).sum()
    pull = gap.sigmoid_()
    share = sim.sub_(torch.where(rest > -torch.inf, rest, 0)).exp_()  # 0 if there is no negative
    slope = share.mul_(pull.sum(1, keepdim=True))
    slope[:, columns] = -pull
    return loss, slope


def _over_all(sim: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
    """Sum of ``-log(phi_ip / sum_k phi_ik)`` over a block's positives p."""
    log_shares = sim.log_softmax(1)[:, columns]
    slope = sim.softmax(1).mul_(log_shares.shape[1])
    slope[:, columns] -= 1
    return -log_shares.sum(), slope


def _chunks(tensors: Sequence[Tensor], block: int) -> Iterator[Any]:
    """Split tensors into chunks of clients, with at most `block` similarities in a chunk.

    If a single client has more than `block` similarities, its chunk contains no other client.

    On a GPU the size of the mask is not read, because the program would have to wait for the GPU.
    """
    mask = tensors[3]
    width = mask.shape[1] if mask.is_cuda else int(mask.sum(1).max())
    block = block if mask.is_cuda else min(block, CACHED)
    size = max(1, block // max(width**2, 1))
    yield from zip(*(tensor.split(size) for tensor in tensors), strict=True)


@full_precision
def _contrast_batch(
    anchor: Tensor,
    keys: Tensor,
    y: Tensor,
    mask: Tensor,
    divide_by_all: bool,
    *,
    by_keys: bool = False,
) -> tuple[Tensor, Tensor]:
    """Compute losses ``[K]`` of K clients, and the gradients for the anchors or for the keys.

    All rows of the anchors and keys have length ``temperature^-1/2`` or 0.

    Args:
        anchor: float ``[K, num_nodes, d]``.
        keys: float ``[K, num_nodes, d]``.
        y: int64 ``[K, num_nodes]``.
        mask: bool ``[K, num_nodes]``.
        divide_by_all: whether the denominator is the sum over all keys.
        by_keys: whether to compute the gradient for the keys instead of the anchors.
    """
    nodes = _taking_part(mask)
    a, k = _rows(anchor, nodes), _rows(keys, nodes)
    label, counted = y.gather(1, nodes), mask.gather(1, nodes)
    pairs = counted[:, :, None] & counted[:, None, :]
    same_class = (label[:, :, None] == label[:, None, :]) & pairs
    rivals = pairs if divide_by_all else pairs & ~same_class
    count = same_class.sum(2, keepdim=True)
    anchors = (count > 0).sum(1, keepdim=True)
    scale = 1 / (count * anchors).clamp(min=1).to(a.dtype)
    sim = a @ k.mT
    rest = sim.masked_fill(~rivals, -torch.inf).logsumexp(2, keepdim=True)
    gap = (rest - sim).masked_fill_(~same_class, -torch.inf)
    if divide_by_all:
        losses = gap.masked_fill(~same_class, 0)
        pull = same_class.to(sim.dtype)
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


def _at_once(y: Tensor, block: int) -> bool:
    """Whether to compute all similarities at once: True on a GPU for up to `block` similarities."""
    return y.is_cuda and y.numel() ** 2 <= block


def _batch_of_one(
    tensors: Sequence[Tensor], divide_by_all: bool, *, by_keys: bool = False
) -> tuple[Tensor, Tensor]:
    anchor, keys, y, mask = (tensor[None] for tensor in tensors)
    loss, slopes = _contrast_batch(anchor, keys, y, mask, divide_by_all, by_keys=by_keys)
    return loss[0], slopes[0]


def _taking_part(mask: Tensor) -> Tensor:
    """Node indices ``[K, m]``, masked nodes first; no client has more than m masked nodes."""
    width = mask.shape[1] if mask.is_cuda else int(mask.sum(1).max())
    order = mask.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
    return order[:, :width]


def _rows(x: Tensor, nodes: Tensor) -> Tensor:
    return x.gather(1, nodes[:, :, None].expand(-1, -1, x.shape[2]))


def _back(rows: Tensor, nodes: Tensor, like: Tensor) -> Tensor:
    return torch.zeros_like(like).scatter(1, nodes[:, :, None].expand_as(rows), rows)
