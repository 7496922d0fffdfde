"""Binary cross-entropy of logits over a mask, of answers some of which may be unknown."""

from __future__ import annotations

from functools import partial

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ..kinds import explained
from .known_mean import known_mean

_EACH = partial(binary_cross_entropy_with_logits, reduction="none")


@explained
def binary_cross_entropy(output: Tensor, y: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mean binary cross-entropy over the known entries of the masked rows.

    ``-1/|K| sum_{(v, j) in K} y_vj log s(output_vj) + (1 - y_vj) log(1 - s(output_vj))``, s being
    the logistic function and K the entries of masked rows whose answer is not NaN; 0, with a
    gradient, if K is empty.

    Args:
        output: logits, float ``[n]``, ``[n, 1]`` or ``[n, t]``, a model's output for n examples.
        y: float ``[n]`` or ``[n, t]``, from 0 to 1, NaN where unknown.
        mask: bool or float weights ``[n]``; default all rows.

    Returns:
        Scalar.

    Raises:
        TypeError: if `y` is not floating point, or `mask` neither bool nor floating point.
        ValueError: for shapes that do not fit.

    Example:
        >>> y = torch.tensor([[1.0, torch.nan], [0.0, 1.0]])
        >>> binary_cross_entropy(torch.zeros(2, 2), y)
        tensor(0.6931)

    Source: Hu et al. 2020, Open Graph Benchmark, https://arxiv.org/abs/2005.00687
    """
    return known_mean(_EACH, output, y, mask)
