"""Statistics of a metric over clients: the worst client, the tenth percentile, means of groups."""

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from ..checks import check_choice, reject_if
from ..federation import Result, Round
from ..kinds import typed
from ..targets import less_is_better, lower_of


@typed
def spread(
    run: Result | Round,
    metric: str = "test_accuracy",
    *,
    groups: Sequence[Hashable] | None = None,
    lower: bool | None = None,
) -> dict[str, Any]:
    """Statistics of a metric over the clients of a run with ``fgl.run(..., each=True)``.

    Args:
        run: a result or a round, such as ``result.history[-1]``. For a result, the round with the
            best validation score is used, or the last round if there is no validation.
        metric: name of a metric with one value per client, without a client's suffix such as
            ``/3``.
        groups: the group of each client, such as its region. By default there are no groups.
        lower: whether smaller values are better. The default is True for a loss, rmse, mae and
            mape. If `run` is a result, the default is also True for two other kinds of metrics. One
            is the metric that selects the best round, if the round with the smallest value is the
            best. The others are the metrics that the method's `Target` lists in its field `lower`.

    Returns:
        A dict. ``mean`` is the mean over clients with equal weights. ``worst`` is the value of the
        client ``worst_client``. ``tenth`` is the 10% quantile over clients, or the 90% quantile if
        smaller values are better. Quantiles are interpolated linearly. ``deviation`` is the
        standard deviation, computed with the number of clients as divisor. ``clients`` is the
        number of clients that have the metric. ``groups`` contains the mean of each group. If the
        metric of at least one client is NaN, all values are NaN.

    Raises:
        ValueError: if no client has the metric, or if `groups` does not have one entry per client.

    Example:
        >>> metrics = {"test_auc/0": 0.9, "test_auc/1": 0.5, "test_auc/4": 0.7}
        >>> spread(fgl.federation.Round(0, [0], metrics=metrics), "test_auc")
        {'mean': 0.69..., 'worst': 0.5, 'worst_client': 1, 'tenth': 0.54, 'deviation': 0.163...,
         'clients': 3, 'groups': {}}
    """
    record = run if isinstance(run, Round) else round_of(run)
    values = of_clients(record, metric)
    numbers = np.array([*values.values()])
    rules = ("", ()) if isinstance(run, Round) else (run.select, lower_of(run.config))
    less = less_is_better(metric, *rules) if lower is None else lower
    unknown = [client for client, value in values.items() if math.isnan(value)]
    worst = (unknown or sorted(values, key=lambda k: values[k], reverse=less))[0]
    return {
        "mean": float(numbers.mean()),
        "worst": values[worst],
        "worst_client": worst,
        "tenth": float(np.quantile(numbers, 0.9 if less else 0.1)),
        "deviation": float(numbers.std()),
        "clients": len(values),
        "groups": {} if groups is None else _by_group(values, groups, run),
    }


def round_of(result: Result) -> Round:
    """The round with the best validation score, or the last round if there is no validation.

    Example:
        >>> round_of(fgl.Result({}, {}, {}, [Round(0, [0]), Round(1, [0])])).round
        1
    """
    reject_if(not result.history, "a result of at least one round", "none")
    return result.best() if result.selects else result.history[-1]


def of_clients(record: Round, metric: str) -> dict[int, float]:
    """The metric's value at each client; clients without the metric are left out.

    Example:
        >>> of_clients(Round(0, [0], metrics={"auc": 0.5, "auc/3": 0.5}), "auc")
        {3: 0.5}
    """
    pairs = [(*name.rpartition("/")[::2], value) for name, value in record.metrics.items()]
    values = {int(k): v for name, k, v in pairs if name == metric and k.isdecimal()}
    if not values:
        own = list(dict.fromkeys(name for name, k, _ in pairs if k.isdecimal() and name))
        got = f"{list(record.metrics)}: fgl.run(..., each=True) records them"
        reject_if(not own, f"metrics of each client, such as {metric}/0", got)
        check_choice("metric", metric, own)
    return dict(sorted(values.items()))


def _by_group(
    values: dict[int, float], groups: Sequence[Hashable], run: Result | Round
) -> dict[Hashable, float]:
    """The mean of the metric in each group; clients and groups without the metric are left out."""
    count = len(run.outbox) if isinstance(run, Result) else max(len(groups), max(values) + 1)
    reject_if(len(groups) != count, f"groups to have one for each of {count} clients", len(groups))
    own = {group: [v for k, v in values.items() if groups[k] == group] for group in groups}
    return {group: sum(each) / len(each) for group, each in own.items() if each}
