"""Targets: what the values of `y` are, what is minimised of them, and how it is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .losses import binary_cross_entropy, cross_entropy, squared_error
from .metrics import (
    class_counts,
    hit_counts,
    mae,
    mean_auc,
    mean_average_precision,
    r2,
    rmse,
)

TargetLoss = Callable[[Tensor, Tensor, Tensor | None], Tensor]
Metric = Callable[[Tensor, Tensor, Tensor | None], Any]


@dataclass(frozen=True)
class Target:
    """What a model shall say of each example: the loss, the metrics, and which of these select.

    The first metric is that of validation, and selects the best round; tests are scored by all.

    Args:
        loss: ``(output, y, mask) -> scalar``, what a client minimises.
        metrics: name to ``(output, y, mask) -> number``, or a tensor as `fgl.metrics.rmse`,
            `fgl.metrics.hit_counts` or `fgl.metrics.class_counts` return it; NaN where there is
            nothing to score.
        lower: the names of the metrics of which less is better; kept as a frozenset.

    Raises:
        ValueError: without metrics, for a metric called ``"loss"``, or if `lower` has another name.

    Example:
        >>> from dataclasses import replace
        >>> robust = replace(fgl.targets.REGRESSION, loss=fgl.losses.huber)
        >>> robust.select, list(robust.metrics)
        ('-val_rmse', ['rmse', 'mae', 'r2'])
    """

    loss: TargetLoss
    metrics: Mapping[str, Metric]
    lower: Set[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.metrics or "loss" in self.metrics:
            got = "'loss' among them" if self.metrics else "none"
            raise ValueError(f"Expected metrics to be one or more beside the loss, but got {got}")
        others = sorted(set(self.lower) - set(self.metrics))
        if others:
            raise ValueError(
                f"Expected lower to be names of {list(self.metrics)}, but got {others}"
            )
        object.__setattr__(self, "metrics", dict(self.metrics))
        object.__setattr__(self, "lower", frozenset(self.lower))

    @property
    def first(self) -> str:
        """The name of the first metric."""
        return next(iter(self.metrics))

    @property
    def select(self) -> str:
        """What says which round is best, see `selected`."""
        return f"{'-' if self.first in self.lower else ''}val_{self.first}"

    def measure(
        self, prefix: str, output: Tensor, y: Tensor, mask: Tensor | None = None
    ) -> dict[str, Any]:
        """Every metric by its name, with a prefix such as ``"test_"``."""
        return {f"{prefix}{name}": metric(output, y, mask) for name, metric in self.metrics.items()}


CLASSES = Target(cross_entropy, {"accuracy": hit_counts, "macro_f1": class_counts})
"""Class labels, int64 ``[n]``: cross-entropy of logits ``[n, num_classes]``."""
REGRESSION = Target(
    squared_error, {"rmse": rmse, "mae": mae, "r2": r2}, lower=frozenset({"rmse", "mae"})
)
"""Numbers, float ``[n]`` or ``[n, t]``, NaN where unknown: squared error."""
ANSWERS = Target(binary_cross_entropy, {"auc": mean_auc, "ap": mean_average_precision})
"""Answers yes or no, float ``[n]`` or ``[n, t]`` of 0, 1 or NaN: binary cross-entropy of logits."""


def checked_y(target: Target, y: Tensor | None) -> Tensor:
    """What a target measures by, or an error that says what else `y` needs.

    Args:
        target: of the run.
        y: of a graph.

    Returns:
        `y`.

    Raises:
        TypeError: for numbers where nobody says what they are.
        ValueError: where there is no `y`.

    Example:
        >>> checked_y(CLASSES, torch.tensor([0.5]))
        Traceback (most recent call last):
        TypeError: Expected a target that says what the numbers in graph.y are, such as
            fgl.targets.REGRESSION or ANSWERS, but got fgl.targets.CLASSES for torch.float32 [1]
    """
    if y is None:
        raise ValueError("Expected graph.y to be a tensor of labels, but got None")
    if y.is_floating_point() and target == CLASSES:
        raise TypeError(
            "Expected a target that says what the numbers in graph.y are, such as "
            "fgl.targets.REGRESSION or ANSWERS, but got fgl.targets.CLASSES for "
            f"{y.dtype} {list(y.shape)}"
        )
    return y


def of_clients(target: Target) -> Target:
    """What single clients are tested by: of classes accuracy alone, since their nodes may be few.

    Example:
        >>> list(of_clients(CLASSES).metrics), list(of_clients(ANSWERS).metrics)
        (['accuracy'], ['auc', 'ap'])
    """
    if target.metrics != CLASSES.metrics:
        return target
    return Target(target.loss, {"accuracy": hit_counts}, target.lower & {"accuracy"})


def selected(metrics: Mapping[str, float], select: str) -> float:
    """The metric that selects, so that more is better.

    Args:
        metrics: name to number.
        select: a name; with a minus before it, such as ``"-val_rmse"``, where less is better.

    Returns:
        The metric, or minus it; NaN where there is none of this name.

    Example:
        >>> selected({"val_rmse": 0.5}, "-val_rmse"), selected({"val_auc": 0.5}, "val_auc")
        (-0.5, 0.5)
    """
    value = float(metrics.get(select.removeprefix("-"), math.nan))
    return -value if select.startswith("-") else value


def less_is_better(name: str) -> bool:
    """Whether a metric is one of those of which less is better everywhere: losses, rmse, mae.

    Example:
        >>> less_is_better("val_rmse"), less_is_better("test_loss"), less_is_better("-val_rmse")
        (True, True, False)
    """
    last = name.split("/")[0].rsplit("_", 1)[-1]
    return not name.startswith("-") and last in {"loss", *REGRESSION.lower}


def scored_alone(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics of a client without those that it has nothing to be scored on, which are NaN.

    Example:
        >>> scored_alone({"test_rmse": 0.5, "test_r2": float("nan")})
        {'test_rmse': 0.5}
    """
    return {name: value for name, value in metrics.items() if not math.isnan(value)}
