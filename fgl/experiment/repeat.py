"""Repetition of a command with several seeds; it goes with the next release."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..federation import Result
from .plots import plot
from .report import DESCRIBED, to_json
from .run import Run, try_writing, write
from .tables import mean_and_deviation, spread


def over_seeds(main: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a `main` once, or with each seed of the `Run` among its arguments.

    With several seeds each seed has its own checkpoint folder, ``seed-0`` and so on. One report and
    one picture cover all seeds.

    Args:
        main: the function; with several seeds it must return the result of its `Run`.
        arguments: arguments of `main`.

    Returns:
        The result of `main`; with several seeds a list of results.

    Raises:
        TypeError: if there are several seeds and `main` returns anything else.

    Example:
        >>> over_seeds(lambda run: run.rounds, {"run": Run(rounds=3)})
        3
    """
    named = [name for name, value in arguments.items() if isinstance(value, Run)]
    if not named or arguments[named[0]].seeds == 1:
        return main(**arguments)
    warnings.warn(
        "--seeds and Run(seeds=) go with the next release: fgl.compare and fgl.study run methods "
        "over seeds",
        FutureWarning,
        stacklevel=3,
    )
    name, first = named[0], arguments[named[0]]
    for kind in ("json", "plot"):
        if getattr(first, kind):
            try_writing(kind, Path(getattr(first, kind)))
    pairs = []
    for seed in range(first.seed, first.seed + first.seeds):
        folder = first.checkpoint and str(Path(first.checkpoint) / f"seed-{seed}")
        one = replace(first, seed=seed, seeds=1, checkpoint=folder, json=None, plot=None)
        pairs.append(_checked(main(**{**arguments, name: one})))
    summary = summed(reports := [report for report, _ in pairs])
    what = f"{reports[0]['recipe']} {reports[0]['dataset']}".strip() or "run"
    for metric, ways in summary["metrics"].items():
        scores = [f"{DESCRIBED[way]} {spread(*values)}" for way, values in ways.items()]
        print(f"{what}, {first.seeds} seeds: {metric} {', '.join(scores)}")
    if first.json:
        write(Path(first.json), to_json(summary))
    if first.plot:
        plot({what: [result for _, result in pairs]}, path=first.plot)
    return pairs


def summed(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join reports of several seeds: mean and deviation of each metric, and the reports.

    Args:
        reports: see `fgl.experiment.report`.

    Returns:
        ``{"seeds", "metrics", "runs"}``; a metric has a mean and a deviation for each way to choose
        a round. Metrics of single clients are left out.

    Example:
        >>> metrics = [{"auc": {"last": 0.5}}, {"auc": {"last": 0.7}}]
        >>> summed([{"seed": k, "metrics": found} for k, found in enumerate(metrics)])["metrics"]
        {'auc': {'last': (0.6, 0.1414...)}}
    """
    metrics: dict[str, dict[str, tuple[float, float]]] = {}
    for metric, ways in reports[0]["metrics"].items():
        if "/" in metric:
            continue
        each = [report["metrics"].get(metric, {}) for report in reports]
        metrics[metric] = {
            way: mean_and_deviation([values.get(way, math.nan) for values in each]) for way in ways
        }
    seeds = [report["seed"] for report in reports]
    return {"seeds": seeds, "metrics": metrics, "runs": list(reports)}


def _checked(returned: Any) -> tuple[dict[str, Any], Result]:
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Result):
        return returned
    raise TypeError(
        "Expected main to return what its Run returned, the report and the result, where there are "
        f"several seeds, but got {type(returned).__name__}"
    )
