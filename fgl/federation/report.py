"""What a recipe says of its run: a progress bar, when to stop, the report."""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from .result import Result, Round

VALIDATION = "val_accuracy"
DESCRIBED = {
    "last": "last",
    "best_val": "best validation",
    "mean_last5": "mean of the last five",
    "best_test": "each client's best test round",
}
NOT_CONFIG = ("recipe", "dataset", "clients", "rounds", "seed", "json", "checkpoint", "device")


def report(args: argparse.Namespace, result: Result, *, select: str = VALIDATION) -> dict[str, Any]:
    """The JSON that every recipe writes.

    Args:
        args: the flags of a recipe.
        result: of `run`.
        select: the metric whose largest value (among equals smaller ``val_loss``, then earlier)
            says which round is best, of those where most clients could be scored.

    Returns:
        ``recipe, dataset, clients, rounds, seed``; ``metrics``: each metric but losses at the last
        round, and at the best (``best_val``) where there is a metric `select`, else as the mean of
        the last five rounds (``mean_last5``); where there is one per client, ``name/0`` and so on,
        also the mean over clients of each one's best round (``best_test``: it selects on the test;
        the rounds before a client first took part have none);
        ``seconds_per_round``: median from the third round on, broadcast to evaluation;
        ``bytes_up, bytes_down``: of the whole run, all clients; ``config``: the other flags.

    Example:
        >>> from fgl.federation.recipe import arguments
        >>> args = arguments("fedavg", "").parse_args(["--rounds", "0"])
        >>> report(args, Result({}, {}, {}, []))["metrics"]
        {}
    """
    history = result.history
    metrics = {}
    names = [] if not history else sorted(history[-1].metrics)
    for name in (name for name in names if not name.endswith("_loss")):
        last = history[-1].metrics[name]
        if select not in names:
            recent = [record.metrics[name] for record in history[-5:] if name in record.metrics]
            metrics[name] = {"last": last, "mean_last5": statistics.mean(recent)}
        elif name in (best := best_round(history, select).metrics):
            metrics[name] = {"last": last, "best_val": best[name]}
        each = [other for other in names if other.startswith(f"{name}/")]
        if each:
            top = [max(r.metrics[other] for r in history if other in r.metrics) for other in each]
            metrics[name]["best_test"] = statistics.mean(top)
    seconds = [record.seconds for record in history[2:] or history]
    return {
        "recipe": args.recipe,
        "dataset": args.dataset,
        "clients": args.clients,
        "rounds": args.rounds,
        "seed": args.seed,
        "metrics": metrics,
        "seconds_per_round": statistics.median(seconds) if seconds else 0.0,
        "bytes_up": sum(record.bytes_up for record in history),
        "bytes_down": sum(record.bytes_down for record in history),
        "config": configuration(args),
    }


def to_json(report: Any) -> str:
    """A report as JSON, which has no NaN: a number that is not finite is null there.

    Example:
        >>> print(to_json({"last": float("nan")}))
        {
         "last": null
        }
    """

    def strict(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strict(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [strict(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(strict(report), indent=1) + "\n"


def progress(num_rounds: int, name: str) -> Callable[[Round, Result], None]:
    """A callback that shows a progress bar, where tqdm is installed; else it does nothing.

    Example:
        >>> progress(10, "fedavg") is not None
        True
    """
    try:
        from tqdm import tqdm
    except ImportError:
        return lambda record, result: None
    bar: Any = None

    def show(record: Round, result: Result) -> None:
        nonlocal bar
        bar = bar or tqdm(desc=name, total=num_rounds, initial=record.round, unit="round")
        shown = {key: value for key, value in record.metrics.items() if "/" not in key}
        bar.set_postfix({key: f"{value:.3f}" for key, value in shown.items()})
        bar.update()
        if record.round + 1 == num_rounds:
            bar.close()

    return show


def early_stop(patience: int, select: str = VALIDATION) -> Callable[[Round, Result], bool]:
    """A callback that ends a run after `patience` rounds without a better validation."""

    def stop(record: Round, result: Result) -> bool:
        return record.round - best_round(result.history, select).round >= patience

    return stop


def best_round(history: Sequence[Round], select: str = VALIDATION) -> Round:
    """The round of the largest metric `select`; among equals smaller ``val_loss``, then earlier.

    A mean over fewer clients says less: rounds of the most ``scored_clients`` come first.
    """

    def key(record: Round) -> tuple[bool, float, float, float]:
        found = record.metrics
        value = found.get(select, math.nan)  # where nobody could be scored
        clients, loss = found.get("scored_clients", 0.0), found.get("val_loss", 0.0)
        return not math.isnan(value), clients, value, -loss

    return max(history, key=key)


def configuration(args: argparse.Namespace) -> dict[str, Any]:
    """The flags that a report does not name elsewhere."""
    return {key: value for key, value in vars(args).items() if key not in NOT_CONFIG}
