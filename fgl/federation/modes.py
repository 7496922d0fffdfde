"""Modes of a model: training or evaluation, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """The model in training or evaluation mode; each of its modules gets its own back.

    Example:
        >>> model = torch.nn.Dropout()
        >>> with in_mode(model, False):
        ...     model(torch.ones(3))
        tensor([1., 1., 1.])
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
