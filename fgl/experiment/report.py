"""Reports: JSON records of runs, including the best round."""

import json
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..federation import Result, Round, best_round
from ..targets import less_is_better, lower_of

DESCRIBED = {
    "last": "last",
    "best_val": "best validation",
    "mean_last5": "mean of the last five",
    "best_test": "each client's best test round",
}


def report(
    result: Result,
    *,
    recipe: str,
    dataset: str,
    clients: int,
    rounds: int,
    seed: int,
    config: Mapping[str, Any],
    select: str = "val_accuracy",
) -> dict[str, Any]:
    """The report of a run, as a dict.

    The dict has ``recipe, dataset, clients, rounds, seed``, ``config``, and:

    - ``metrics``: each metric except losses. ``last`` is the value at the last round. If the metric
      `select` exists, ``best_val`` is the value at the best round. Otherwise ``mean_last5`` is the
      mean over the last five rounds. If a metric has one value per client (``name/0`` and so on),
      ``best_test`` is the mean of the clients' best values. The rounds of ``best_test`` are
      selected on test data. For each client, rounds before its first participation are ignored.
    - ``seconds_per_round``: the time of a round from broadcast to evaluation. The number is the
      median over the third and all later rounds.
    - ``bytes_up, bytes_down``: bytes of the whole run, summed over clients.
    - ``best_round``: the round of ``best_val``, counted from 0; None without validation.
    - ``curves``: each metric as a list with one number per round; None for a round without the
      metric. Metrics of individual clients are left out.
    - ``dropped``: for each message that was not used, the round, the client and the reason.

    Args:
        result: the result of `fgl.run`.
        recipe, dataset, clients, rounds, seed: description of the run, copied into the report.
        config: all other settings.
        select: name of the metric that determines the best round. The best round has the largest
            value of this metric, or the smallest value if a minus sign precedes the name (see
            `best_round`). For a run without validation, give a name that is not a metric of any
            round, such as "".

    Example:
        >>> history = [fgl.federation.Round(0, [0], metrics={"val_f1": 0.4, "test_f1": 0.3})]
        >>> result = fgl.Result({}, {}, {}, history)
        >>> what = dict(recipe="fedavg", dataset="cora", clients=1, rounds=1, seed=0, config={})
        >>> report(result, **what, select="val_f1")["metrics"]["test_f1"]
        {'last': 0.3, 'best_val': 0.3}
    """
    history = result.history
    seconds = [record.seconds for record in history[2:] or history]
    return {
        "recipe": recipe,
        "dataset": dataset,
        "clients": clients,
        "rounds": rounds,
        "seed": seed,
        "metrics": _metrics(history, select, lower_of(result.config)),
        "seconds_per_round": statistics.median(seconds) if seconds else 0.0,
        "bytes_up": sum(record.bytes_up for record in history),
        "bytes_down": sum(record.bytes_down for record in history),
        "config": dict(config),
        "best_round": best_round(history, select).round if _selects(history, select) else None,
        "curves": _curves(history),
        "dropped": [[r.round, k, reason] for r in history for k, reason in r.dropped.items()],
    }


def to_json(report: Any) -> str:
    """Convert a report to JSON; NaN and infinite numbers become null, since JSON lacks them.

    Args:
        report: dicts, lists, tuples, strings, numbers, booleans and None.

    Returns:
        JSON text that ends with a newline, ready to be written to a file.

    Raises:
        TypeError: for a value that JSON cannot represent.

    Example:
        >>> print(to_json({"last": float("nan")}))
        {
         "last": null
        }
    """

    def strict(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: strict(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [strict(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(strict(report), indent=1, allow_nan=False) + "\n"


def _selects(history: Sequence[Round], select: str) -> bool:
    return bool(history) and select.removeprefix("-") in history[-1].metrics


def _curves(history: Sequence[Round]) -> dict[str, list[float | None]]:
    names = sorted({name for record in history for name in record.metrics if "/" not in name})
    return {name: [record.metrics.get(name) for record in history] for name in names}


def _metrics(
    history: Sequence[Round], select: str, lower: Collection[str]
) -> dict[str, dict[str, float]]:
    metrics = {}
    names = [] if not history else sorted(history[-1].metrics)
    for name in (name for name in names if not name.endswith("_loss")):
        last = history[-1].metrics[name]
        if not _selects(history, select):
            recent = statistics.mean(_recorded(history[-5:], name))
            metrics[name] = {"last": last, "mean_last5": recent}
        elif name in (best := best_round(history, select).metrics):
            metrics[name] = {"last": last, "best_val": best[name]}
        each = [other for other in names if other.startswith(f"{name}/")]
        if each and name in metrics:
            best_of = min if less_is_better(name, select, lower) else max
            top = [best_of(_recorded(history, other)) for other in each]
            metrics[name]["best_test"] = statistics.mean(top)
    return metrics


def _recorded(history: Sequence[Round], name: str) -> list[float]:
    """Values of a metric in the rounds that have this metric."""
    return [record.metrics[name] for record in history if name in record.metrics]
