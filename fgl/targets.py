"""Targets: the meaning of the values in `y`, with a loss and metrics for this meaning."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .checks import reject_if
from .losses import absolute_error, binary_cross_entropy, cross_entropy, squared_error
from .metrics import mae, mape, mean_auc, mean_average_precision, r2, rmse
from .metrics.classes import class_counts, hit_counts, on_host
from .warn import warn

TargetLoss = Callable[[Tensor, Tensor, Tensor | None], Tensor]
Metric = Callable[[Tensor, Tensor, Tensor | None], Any]


@dataclass(frozen=True)
class Target:
    """The kind of label to predict, with a loss, metrics, and the metric for model selection.

    The best round is selected by the first metric, computed on validation data. On test data, all
    metrics are computed.

    Args:
        loss: ``(output, y, mask) -> scalar``, the loss that a client minimises.
        metrics: dict from name to function ``(output, y, mask) -> number``. A function may also
            return a scalar tensor, like `fgl.metrics.rmse`, or counts, like `hit_counts` and
            `class_counts` in `fgl.metrics.classes`. Without examples to score, a function returns
            NaN.
        lower: the names of the metrics for which smaller values are better; the object stores a
            frozenset.

    Raises:
        ValueError: if there are no metrics, if a metric is called ``"loss"``, or if `lower` has a
            name that is not in `metrics`.

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
        reject_if(others, f"lower to be names of {list(self.metrics)}", others)
        object.__setattr__(self, "metrics", dict(self.metrics))
        object.__setattr__(self, "lower", frozenset(self.lower))

    @property
    def first(self) -> str:
        """The first metric's name."""
        return next(iter(self.metrics))

    @property
    def select(self) -> str:
        """The name of the metric that selects the best round, in the form that `selected` reads."""
        return f"{'-' if self.first in self.lower else ''}val_{self.first}"

    def at(self, horizons: Sequence[int]) -> Target:
        """This target with further metrics for single horizons (columns), such as ``"mae@3"``.

        Example:
            >>> list(FORECAST.at((3, 12)).metrics)[2:5]
            ['mape', 'mae@3', 'rmse@3']
        """

        def of_column(metric: Metric, column: int) -> Metric:
            return lambda output, y, mask: metric(output[:, column], y[:, column], mask)

        each = {
            f"{name}@{horizon}": of_column(metric, column)
            for column, horizon in enumerate(horizons)
            for name, metric in self.metrics.items()
        }
        lower = {name for name in each if name.split("@")[0] in self.lower}
        return replace(self, metrics={**self.metrics, **each}, lower={*self.lower, *lower})

    def measure(
        self, prefix: str, output: Tensor, y: Tensor, mask: Tensor | None = None
    ) -> dict[str, Any]:
        """Dict of all metrics; every key begins with a prefix such as ``"test_"``."""
        values, before = {}, output._version
        for name, metric in self.metrics.items():
            check_no_broadcast(f"the metric {name!r}", metric, output, y)
            values[f"{prefix}{name}"] = metric(output, y, mask)
            reject_if(
                output._version != before,
                f"the metric {name!r} to leave output as it is",
                "one that changes it in place: output.sigmoid() in place of output.sigmoid_()",
            )
        return values


def check_no_broadcast(name: str, function: Metric, output: Tensor, y: Tensor) -> None:
    """Raise an error if a function broadcasts output ``[n, 1]`` and y ``[n]`` to ``[n, n]``.

    Example:
        >>> mse = lambda output, y, mask: (output - y).square().mean()
        >>> check_no_broadcast("the loss", mse, torch.zeros(3, 1), torch.zeros(3))
        Traceback (most recent call last):
        ValueError: Expected the loss to take output [3, 1] and y [3] example by example, but ...
    """
    own = str(getattr(function, "__module__", "")).startswith(("fgl.losses", "fgl.metrics"))
    if own or output.shape[1:] != (1,) or y.dim() != 1:
        return
    try:
        square = _broadcasts(function)
    except TypeError:  # an object without a hash
        square = _broadcasts.__wrapped__(function)
    if not square:
        return
    raise ValueError(
        f"Expected {name} to take output {list(output.shape)} and y {list(y.shape)} example by "
        "example, but got one that makes a square of them: output.squeeze(1) in place of output"
    )


@lru_cache(maxsize=64)
def _broadcasts(function: Metric) -> bool:
    """Whether a metric or loss broadcasts outputs ``[n, 1]`` and labels ``[n]`` to ``[n, n]``.

    The metric or loss is called with made-up outputs. The function broadcasts if two conditions
    hold. First, a column ``[n, 1]`` and a vector ``[n]`` of the same outputs give different
    numbers. Second, the number for the column does not change if the outputs in the column are
    reordered. The function's own state and the global generator stay as they are.
    """
    output, y = torch.tensor([[0.5], [-1.0], [2.0]]), torch.tensor([1.0, 0.0, 1.0])
    results = []
    try:
        function = copy.deepcopy(function)
        for made_up in (output, output.squeeze(1), output.roll(1, 0)):
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(0)
                results.append(float(function(made_up, y, y >= 0)))
    except Exception:  # it reads columns, or needs other numbers
        return False
    column, vector, shuffled = results
    return abs(column - vector) > 1e-4 > abs(column - shuffled)


CLASSES = Target(cross_entropy, {"accuracy": hit_counts, "macro_f1": class_counts})
"""Class labels, int64 ``[n]``: cross-entropy of logits ``[n, num_classes]``."""
REGRESSION = Target(
    squared_error, {"rmse": rmse, "mae": mae, "r2": r2}, lower=frozenset({"rmse", "mae"})
)
"""Numeric labels, float ``[n]`` or ``[n, t]`` (unknown labels are NaN): squared error."""
FORECAST = Target(
    absolute_error,
    {"mae": mae, "rmse": rmse, "mape": mape},
    lower=frozenset({"mae", "rmse", "mape"}),
)
"""Numeric labels of a series (unknown: NaN): absolute error, per horizon and on average."""
ANSWERS = Target(binary_cross_entropy, {"auc": mean_auc, "ap": mean_average_precision})
"""Binary labels, float ``[n]`` or ``[n, t]`` of 0, 1 or NaN: binary cross-entropy of logits."""


def checked_y(target: Target, y: Tensor | None) -> Tensor:
    """Check that labels fit a target, and return the labels.

    Args:
        target: the target of the run.
        y: the labels of a graph.

    Returns:
        `y`.

    Raises:
        TypeError: for floating-point labels if the target is for class labels.
        ValueError: if there is no `y`.

    Example:
        >>> checked_y(CLASSES, torch.tensor([0.5]))
        Traceback (most recent call last):
        TypeError: Expected a target that says what the numbers in graph.y are, such as
            fgl.targets.REGRESSION or ANSWERS, but got fgl.targets.CLASSES for torch.float32 [1]:
            y.long() if the numbers are classes
    """
    if y is None:
        raise ValueError("Expected graph.y to be a tensor of labels, but got None")
    if y.is_floating_point() and target == CLASSES:
        raise TypeError(
            "Expected a target that says what the numbers in graph.y are, such as "
            "fgl.targets.REGRESSION or ANSWERS, but got fgl.targets.CLASSES for "
            f"{y.dtype} {list(y.shape)}: y.long() if the numbers are classes"
        )
    return y


def of_clients(target: Target) -> Target:
    """The target with the metrics by which a single client is scored.

    For class labels, the accuracy is the only metric. Macro-F1 is left out, since a client may have
    too few nodes for this metric.

    Example:
        >>> list(of_clients(CLASSES).metrics), list(of_clients(ANSWERS).metrics)
        (['accuracy'], ['auc', 'ap'])
    """
    if target.metrics != CLASSES.metrics:
        return target
    return Target(target.loss, {"accuracy": hit_counts}, target.lower & {"accuracy"})


def selected(metrics: Mapping[str, float], select: str) -> float:
    """The value of the metric for model selection, negated if smaller values are better.

    Args:
        metrics: dict from name to number.
        select: a metric's name; a minus before the name says that smaller values are better, as in
            ``"-val_rmse"``.

    Returns:
        The metric, multiplied by -1 if `select` begins with a minus. The result is NaN if `metrics`
        does not contain the metric.

    Example:
        >>> selected({"val_rmse": 0.5}, "-val_rmse"), selected({"val_auc": 0.5}, "val_auc")
        (-0.5, 0.5)
    """
    value = float(metrics.get(select.removeprefix("-"), math.nan))
    return -value if select.startswith("-") else value


def less_is_better(name: str, select: str = "", lower: Collection[str] = ()) -> bool:
    """Whether smaller values of this metric are better, as for losses, rmse, mae and mape.

    If `select` (the metric for model selection) names this metric, smaller values are better only
    if `select` begins with a minus sign. `lower` contains the names of more metrics for which
    smaller values are better. A name in `lower` has no prefix such as ``"test_"``.

    Example:
        >>> less_is_better("val_rmse"), less_is_better("test_loss"), less_is_better("-val_rmse")
        (True, True, False)
        >>> less_is_better("test_miss", "-val_miss")
        True
    """
    if name.startswith("-"):
        return False
    own = _unprefixed(name)
    if select and own & _unprefixed(select):
        return select.startswith("-")
    if own & {*lower}:
        return True
    words = name.split("/")[0].split("@")[0].split("_")
    usual = words[-1] in {"loss", *REGRESSION.lower, *FORECAST.lower}
    return usual and "neg" not in words


def _unprefixed(name: str) -> set[str]:
    """A metric's name without the prefix, in two forms: with and without the horizon at the end."""
    name = name.removeprefix("-").split("/")[0].removesuffix("_before")
    name = re.sub(r"^(worst_|pooled_)*(test_|val_|local_)?", "", name)
    return {name, name.split("@")[0]}


def lower_of(config: Mapping[str, Any]) -> set[str]:
    """Names of the metrics for which smaller values are better, from the targets in a config.

    Example:
        >>> sorted(lower_of({"layers": [{"name": "fedavg", "target": {"lower": ["rmse", "mae"]}}]}))
        ['mae', 'rmse']
    """
    targets = [layer.get("target") for layer in config.get("layers", ())]
    return {name for own in targets if isinstance(own, Mapping) for name in own.get("lower", ())}


def scored_alone(metrics: Mapping[str, float]) -> dict[str, float]:
    """A client's metrics that are not NaN; NaN means that a client has no examples for a metric.

    Example:
        >>> scored_alone({"test_rmse": 0.5, "test_r2": float("nan")})
        {'test_rmse': 0.5}
    """
    return {name: value for name, value in metrics.items() if not math.isnan(value)}


def undefined_metrics(target: Target, y: Tensor, mask: Tensor) -> list[str]:
    """Names of the metrics that are undefined, whatever the model returns.

    For example, the AUC is undefined if all labels are equal.

    Args:
        target: the target with the metrics; only metrics of this library are checked.
        y: the labels.
        mask: the examples to score, bool ``[n]``.

    Returns:
        The checked metrics belong to `ANSWERS`, `REGRESSION` and `FORECAST`. The returned names are
        the metrics that are NaN if all outputs are 0. If no label is known, all checked metrics are
        undefined. For class labels, the list is empty.

    Example:
        >>> answers = torch.tensor([1.0, 1.0, 0.0])
        >>> undefined_metrics(ANSWERS, answers, answers == 1)
        ['auc', 'ap']
        >>> undefined_metrics(ANSWERS, answers, answers >= 0)
        []
    """
    if not y.is_floating_point():
        return []
    targets = (ANSWERS, REGRESSION, FORECAST)
    usual = {metric for each in targets for metric in each.metrics.values()}
    output, usable = torch.zeros_like(y), {k: m for k, m in target.metrics.items() if m in usual}
    if bool(y[mask].isnan().all()):
        return [*usable]
    values = on_host({name: metric(output, y, mask) for name, metric in usable.items()})[0]
    return [name for name, value in values.items() if math.isnan(value)]


def warn_undefined(
    target: Target,
    answers: Sequence[tuple[Tensor | None, Tensor | None]],
    prefix: str,
    *,
    instead: str = "",
) -> dict[int, list[str]]:
    """Give one warning for all clients that have examples to score but an undefined metric.

    Args:
        target: the target with the metrics.
        answers: one pair per client: the client's labels, and the mask of the examples to score.
            Labels or mask may be None.
        prefix: prefix before the metrics' names, such as ``"test_"``.
        instead: the last part of the warning; this part names a score to use instead.

    Returns:
        Dict from client to names of undefined metrics; clients without such metrics are left out.

    Example:
        >>> everything = torch.tensor([True, True])
        >>> warn_undefined(ANSWERS, [(torch.tensor([1.0, 0.0]), everything)], "test_")
        {}
    """
    lacking: dict[int, list[str]] = {}
    read = {target.first} if prefix == "val_" else {*target.metrics}
    for client, (y, mask) in enumerate(answers):
        if y is not None and mask is not None and bool(mask.any()):
            names = [name for name in undefined_metrics(target, y, mask) if name in read]
            lacking |= {client: names} if names else {}
    if lacking:
        first, names = next(iter(lacking.items()))
        some = f"{[*lacking][:10]}{' and others' if len(lacking) > 10 else ''}"
        lacks = ", ".join(prefix + name for name in names)
        warn(
            f"{len(lacking)} of {len(answers)} clients, {some}, have no {lacks}: client {first}'s "
            f"{kind_of(*answers[first])}. They have no part in the mean{instead}",
        )
    return lacking


def kind_of(y: Any, mask: Any) -> str:
    """Description of a client's labels as text.

    Example:
        >>> kind_of(torch.ones(3), torch.tensor([True, True, False]))
        '2 known answers are all 1'
    """
    answers = y[mask][~y[mask].isnan()]
    if not answers.numel():
        return f"{int(mask.sum())} examples have no known answer"
    if bool((answers == answers[0]).all()):
        return f"{answers.numel()} known answers are all {float(answers[0]):g}"
    return f"{answers.numel()} known answers are of one kind for each question"
