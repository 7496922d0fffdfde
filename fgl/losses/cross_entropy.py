"""Cross-entropies over a mask: for class labels, for soft labels, and for binary labels."""

import weakref
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.weak import WeakTensorKeyDictionary

from ..checks import check_classes, check_length, reject_if
from ..kinds import explained
from ..sparse.autograd import batched, mapped, positional
from ..sparse.rows import widened
from .weighted_mean import known_mean, weighted_mean

# A cache from a mask to tensors that depend on the mask and labels; each training step reads it.
_known = WeakTensorKeyDictionary()


@explained
def cross_entropy(logits: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean cross-entropy over the masked nodes.

    ``-1/|mask| sum_{v in mask} log softmax(logits_v)[y_v]``. If the mask is empty, the loss and its
    gradient are 0.

    Args:
        logits: float ``[num_nodes, num_classes]``.
        y: int64 ``[num_nodes]``; entries outside the mask are ignored and may be -1.
        mask: bool mask or float weights ``[num_nodes]``; by default all nodes.

    Returns:
        Scalar.

    Raises:
        TypeError: if `y` is not an integer tensor, or if `mask` is an integer tensor (node indices
            are not a mask).
        ValueError: if `y` or `mask` does not have one entry per row of `logits`.

    Example:
        >>> cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3]), torch.tensor([True, False]))
        tensor(1.3863)
    """
    check_classes(logits)
    check_length(len(logits), y=y, mask=mask)
    reject_if(y.dtype not in (torch.int64, torch.int32), "y to be int64", y.dtype, TypeError)
    if mask is not None and mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(f"Expected mask to be bool or float weights, but got {mask.dtype}")
    if mask is not None and mask.requires_grad:
        target = torch.where(mask.bool(), y, 0)[:, None]
        return weighted_mean(_shifted(logits, target).logsumexp(1), mask)
    loss: Tensor = mapped(_MaskedMean, logits, y, mask)[0]
    return loss


def _shifted(logits: Tensor, target: Tensor) -> Tensor:
    """Subtract the label's logit from all logits; `logsumexp` of the result is then the exact loss.

    If there are only a few classes, this computation takes a third of the time that `log_softmax`
    takes.
    """
    return logits - logits.gather(-1, target)


Targets = tuple[Tensor, Tensor, Tensor]


def _targets(y: Tensor, mask: Tensor | None, dtype: torch.dtype) -> Targets:
    """Return three tensors: the label indices, entries of -1, and a weight for each row.

    The indices and the entries of -1 have shape ``[..., n, 1]``; the weights have ``[..., n]``.

    The gradient is the softmax minus the one-hot label, so -1 is added at each row's label.
    """
    key = y if mask is None else mask
    if key.is_inference() or y.is_inference():  # inference tensors have no version counter
        return _made(y, mask, dtype)
    state = y._version, key._version, dtype
    labels, version, targets = _known.get(key, (None, None, None))
    if targets is None or labels() is not y or version != state:
        targets = _made(y, mask, dtype)
        _known[key] = weakref.ref(y), state, targets
    return targets  # type: ignore[no-any-return]


@torch.no_grad()
def _made(y: Tensor, mask: Tensor | None, dtype: torch.dtype) -> Targets:
    mask = torch.ones_like(y, dtype=torch.bool) if mask is None else mask
    weight = mask.to(torch.promote_types(dtype, torch.float32))
    total = weight.sum(-1, keepdim=True)
    target = torch.where(mask.bool(), y, 0)[..., None]  # -1 (no label) is not a valid index
    minus_one = weight.new_full((), -1, dtype=dtype).expand_as(target)
    return target, minus_one, weight / (total + (total == 0))


class _MaskedMean(Function):
    """Mean cross-entropy over masked nodes; a closed-form gradient saves half the operations.

    ``d loss / d logits_v = share_v (softmax(logits_v) - onehot(y_v))``
    """

    @staticmethod
    @positional
    def forward(logits: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        target, _, share = _targets(y, mask, logits.dtype)
        shifted = _shifted(logits, target)
        each = shifted.logsumexp(-1)
        return (each * share).sum(-1).to(logits.dtype), shifted, each

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # no zero tensors for outputs without a gradient
        ctx.save_for_backward(*inputs, *output[1:])
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Any, *rest: Any) -> tuple[Tensor | None, None, None]:
        if grad is None:
            return None, None, None
        logits, y, mask, shifted, each = ctx.saved_tensors
        target, minus_one, share = _targets(y, mask, logits.dtype)
        if torch.is_grad_enabled():  # for a second derivative
            shifted = _shifted(logits, target)
            each = shifted.logsumexp(-1)
        wrong = (shifted - each.unsqueeze(-1)).exp().scatter_add(-1, target, minus_one)
        return wrong * (share * grad[..., None]).to(logits.dtype)[..., None], None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *rest: Any) -> tuple[Tensor, None, None]:
        logits, y, mask = ctx.saved_tensors
        target, _, share = _targets(y, mask, logits.dtype)
        slope = (logits.softmax(-1) * _shifted(tangent, target)).sum(-1)
        return (slope * share).sum(-1).to(logits.dtype), None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Tensor | None) -> tuple[Any, tuple[int, int, int]]:
        whole = (
            None if arg is None else batched(arg, dim, info.batch_size)
            for arg, dim in zip(args, in_dims, strict=True)
        )
        return _MaskedMean.apply(*whole), (0, 0, 0)  # type: ignore[no-untyped-call]


def soft_cross_entropy(logits: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean cross-entropy with soft labels over the masked rows.

    ``-1/|mask| sum_{v in mask} sum_c target_vc log(softmax(logits_v)_c + 1e-7)`` (FedEgo). If the
    mask is empty, the loss and its gradient are 0.

    Args:
        logits: float ``[n, num_classes]``.
        target: float ``[n, num_classes]``; each row sums to 1.
        mask: bool mask or float weights ``[n]``; by default all.

    Returns:
        Scalar.

    Raises:
        ValueError: if `target` does not have the shape of `logits`, or if `mask` does not have one
            entry per row.

    Example:
        >>> soft_cross_entropy(torch.zeros(1, 4), torch.full((1, 4), 0.25))
        tensor(1.3863)

    Source: Zhang et al., FedEgo, https://arxiv.org/abs/2208.13685
    """
    want = f"target to have shape {list(logits.shape)}"
    reject_if(target.shape != logits.shape, want, list(target.shape))
    check_length(logits.shape[0], mask=mask)
    loss = -(target * (widened(logits).softmax(1) + 1e-7).log()).sum(1)  # float16 cannot add 1e-7
    return weighted_mean(loss, mask).to(logits.dtype)


_EACH = partial(binary_cross_entropy_with_logits, reduction="none")


@explained
def binary_cross_entropy(output: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean binary cross-entropy over known entries in masked rows.

    ``-1/|K| sum_{(v, j) in K} y_vj log s(output_vj) + (1 - y_vj) log(1 - s(output_vj))``. Here s is
    the logistic function, and K is the set of known labels (not NaN) in masked rows. If K is empty,
    the loss and its gradient are 0.

    Args:
        output: logits, float ``[n]``, ``[n, 1]`` or ``[n, t]``, a model's output for n examples.
        y: float ``[n]`` or ``[n, t]``, labels between 0 and 1, or NaN for an unknown label.
        mask: bool mask or float weights ``[n]``; by default all rows.

    Returns:
        Scalar.

    Raises:
        TypeError: if `y` is not floating point, or if `mask` is neither bool nor floating point.
        ValueError: if shapes do not match.

    Example:
        >>> y = torch.tensor([[1.0, torch.nan], [0.0, 1.0]])
        >>> binary_cross_entropy(torch.zeros(2, 2), y)
        tensor(0.6931)

    Source: Hu et al. 2020, Open Graph Benchmark, https://arxiv.org/abs/2005.00687
    """
    return known_mean(_EACH, output, y, mask)
