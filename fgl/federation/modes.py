"""Modes of a model: training or evaluation, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """The model in training or evaluation mode; each of its modules gets its own back.

    Args:
        model: whose mode is set.
        training: True for training mode.

    Example:
        >>> model = torch.nn.Dropout(0.5)
        >>> with in_mode(model, False):
        ...     print(model.training)
        False
        >>> model.training
        True
    """
    modes = [(module, module.training) for module in model.modules()]
    if any(mode != training for _, mode in modes):
        model.train(training)
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
