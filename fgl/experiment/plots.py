"""Plots of runs: metrics by round and by bytes, deviations over seeds, and dropped clients."""

import itertools
import math
import os
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..checks import check_choice, check_disk, imported, reject_if
from ..federation import Result, Round, best_round
from ..targets import less_is_better
from .clients import of_clients, round_of
from .comparison import Comparison
from .tables import mean_and_deviation

Runs = Result | Sequence[Result]


@dataclass(frozen=True)
class Curve:
    """Data of one run for a plot: metrics, bytes and dropped clients of each round."""

    metrics: Mapping[str, Sequence[float | None]]
    bytes: Sequence[int]
    dropped: Sequence[tuple[int, int]]  # round and client
    best: int | None

    def megabytes(self) -> list[float]:
        """The megabytes sent so far, at the end of each round."""
        return [total / 1e6 for total in itertools.accumulate(self.bytes)]


def plot(
    what: Result | Comparison | Mapping[str, Runs],
    *,
    metrics: Sequence[str] | None = None,
    title: str = "",
    path: str | os.PathLike[str] | None = None,
    clients: bool = False,
) -> Any:
    """Draw each metric of runs by round and by megabytes sent; also draw the dropped clients.

    If several runs have the same name, their mean is drawn, with a band of one standard deviation.
    If only one run has this name, a dot marks the round with the best validation score. A run that
    stopped early is included only in the means of the rounds that it completed.

    Args:
        what: a result, a comparison, or a dict. The dict maps each name to a result, or to a list
            of results with one result per seed.
        metrics: names of the metrics. The default is the comparison's metric. Without a comparison,
            all metrics that begin with ``test_`` are drawn. If no metric has this prefix, all
            metrics except losses are drawn. If all metrics are losses, the training loss is drawn.
            ``"train_loss"`` is `Round.loss`.
        title: title of the figure.
        path: file to write; the file extension determines the format. By default no file is
            written.
        clients: whether to draw a dot for each client and a line for the mean over clients, instead
            of curves. The runs need ``each=True``. The values are from the round with the best
            validation score, or from the last round if there is no validation.

    Returns:
        The matplotlib figure. A notebook shows the figure at the end of a cell.

    Raises:
        ImportError: if matplotlib is not installed.
        ValueError: if there is no run, if a run has no rounds, or if no run has a metric.
        OSError: if the file cannot be written.

    Example:
        >>> task = fgl.tasks.Nodes(clients=3, hidden=8).load(seed=0)
        >>> result = fgl.run(task.fedavg, task, num_rounds=2)
        >>> figure = plot({"FedAvg": result}, metrics=["test_accuracy"])  # doctest: +SKIP
    """
    if clients:
        return _plot_clients(what, metrics, title, path)
    curves = _curves(what)
    every = list(itertools.chain(*curves.values()))
    recorded = dict.fromkeys(name for run in every for name in run.metrics)
    if metrics is None:
        metrics = [what.metric] if isinstance(what, Comparison) else _usual(list(recorded))
    for name in metrics:
        check_choice("metrics", name, list(recorded))
    pyplot = imported("matplotlib.pyplot", "for a plot", "pip install matplotlib")
    drops = any(run.dropped for run in every)
    rows = len(metrics) + drops
    size = {"figsize": (9, 3.2 * rows), "layout": "constrained"}
    figure, axes = pyplot.subplots(rows, 2, squeeze=False, **size)
    for name, runs in ((literal(name), runs) for name, runs in curves.items()):
        for metric, (left, right) in zip(metrics, axes, strict=False):
            _draw(left, right, name, runs, metric)
        if drops:
            _draw_dropped(axes[-1][0], axes[-1][1], name, runs)
    axis_labels = [f"{metric}{_direction(metric)}" for metric in metrics]
    labels = [("round", text, "MB sent, up and down", text) for text in axis_labels]
    labels += [("round", "dropped clients", "client", "rounds in which it was dropped")] * drops
    for (left, right), (x, y, other_x, other_y) in zip(axes, labels, strict=True):
        left.set(xlabel=x, ylabel=y)
        right.set(xlabel=other_x, ylabel=other_y)
        left.grid(alpha=0.25)
        right.grid(alpha=0.25)
    if any(curves):  # the legend is below the axes, so that it hides no curve
        lines, texts = axes[0][0].get_legend_handles_labels()
        figure.legend(lines, texts, loc="outside lower center", ncols=min(len(texts), 4))
    return _finished(pyplot, figure, title, path)


def _finished(pyplot: Any, figure: Any, title: str, path: Any) -> Any:
    """Set a figure's title, write the figure if there is a path, and close the figure."""
    if title:
        figure.suptitle(title)
    if path is not None:
        save(figure, Path(path))
    pyplot.close(figure)  # otherwise a notebook shows it twice, and a script keeps it
    return figure


def _plot_clients(what: Any, metrics: Sequence[str] | None, title: str, path: Any) -> Any:
    """Draw a plot per metric; each name in `what` has a column of dots, one per client and run."""
    runs: dict[str, list[Any]]
    read: Any = _clients_of_result
    if isinstance(what, Comparison):
        metrics = [what.metric] if metrics is None else metrics
        runs = {name: [*reports.values()] for name, reports in what.reports.items()}
        read = partial(_clients_of_report, at=what.at)
    else:
        named = {"": what} if isinstance(what, Result) else what
        runs = {name: list(_results(name, results)) for name, results in named.items()}
        metrics = ["test_accuracy"] if metrics is None else metrics
    dots = {m: {name: [read(r, m) for r in each] for name, each in runs.items()} for m in metrics}
    pyplot = imported("matplotlib.pyplot", "for a plot", "pip install matplotlib")
    size = {"figsize": (2 + 1.2 * len(runs), 3.2 * len(metrics)), "layout": "constrained"}
    figure, axes = pyplot.subplots(len(metrics), 1, squeeze=False, **size)
    for metric, (axis,) in zip(metrics, axes, strict=True):
        for place, values in enumerate(dots[metric].values()):
            numbers = [value for own in values for value in own]
            axis.plot([place] * len(numbers), numbers, "o", alpha=0.4)
            mean = statistics.fmean(numbers)
            axis.hlines(mean, place - 0.3, place + 0.3, color="black")
        axis.set_xticks(range(len(runs)), list(runs))
        which_way = _direction(metric).replace(" ", "\n", 1)  # one line is longer than the axis
        axis.set(ylabel=f"{metric} of each client{which_way}")
        axis.grid(alpha=0.25, axis="y")
    return _finished(pyplot, figure, title, path)


def _clients_of_result(result: Result, metric: str) -> list[float]:
    return [*of_clients(round_of(result), metric).values()]


def _clients_of_report(report: Mapping[str, Any], metric: str, *, at: str) -> list[float]:
    values = {name: ways[at] for name, ways in report["metrics"].items() if at in ways}
    return [*of_clients(Round(0, [], metrics=values), metric).values()]


HIGH = ("accuracy", "f1", "auc", "ap", "r2", "mrr", "hits")  # of a user's metric nothing is known


def _direction(metric: str) -> str:
    """Text at the end of an axis label: whether high or low values are better; "" if unknown."""
    if less_is_better(metric):
        return " (lower is better)"
    last = metric.split("@")[0].rsplit("_", 1)[-1]  # "gap" is no "ap"
    return " (higher is better)" if last in HIGH else ""


def save(figure: Any, path: Path) -> None:
    """Write a figure to a file; create the file's folder if needed."""
    with check_disk(f"path to be a file that can be written, which {path} is not"):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)


def _curves(what: Any) -> dict[str, list[Curve]]:
    """The curves to draw, as a dict from names in the legend to curves."""
    if isinstance(what, Comparison):
        reports = what.reports.items()
        return {name: list(map(_of_report, runs.values())) for name, runs in reports}
    if isinstance(what, Result):
        what = {"" if what.method is None else repr(what.method): what}
    drawn = isinstance(what, Mapping) and what
    reject_if(not drawn, "a result, results by name or a comparison to be drawn", repr(what))
    return {name: list(map(_of_result, _results(name, runs))) for name, runs in what.items()}


def _results(name: str, runs: Runs) -> list[Result]:
    """The results to draw under one name; raise an error if a result has no round."""
    results = [runs] if isinstance(runs, Result) else list(runs)
    wrong = not results or not all(isinstance(run, Result) and run.history for run in results)
    reject_if(wrong, f"{name or 'what is drawn'} to be results of at least one round", results)
    return results


def _of_result(result: Result) -> Curve:
    rounds = [record.numbers() for record in result.history]
    names = dict.fromkeys(name for record in result.history for name in record.metrics)
    select = result.selects
    return Curve(
        {name: [numbers.get(name) for numbers in rounds] for name in (*names, "train_loss")},
        result.traffic,
        [(record.round, client) for record in result.history for client in record.dropped],
        best_round(result.history, select).round if select else None,
    )


def _of_report(report: Mapping[str, Any]) -> Curve:
    dropped = [(index, client) for index, client, _ in report["dropped"]]
    return Curve(report["curves"], report["bytes"], dropped, report["best_round"])


def _usual(names: Sequence[str]) -> list[str]:
    """All metrics' names that begin with ``test_``.

    If no metric has this prefix, all metrics except losses and metrics of single clients are
    returned. If there are no such metrics either, the training loss is returned.
    """
    plain = [name for name in names if "/" not in name and not name.endswith("loss")]
    return [name for name in plain if name.startswith("test_")] or plain or ["train_loss"]


def _draw(by_round: Any, by_bytes: Any, name: str, runs: Sequence[Curve], metric: str) -> None:
    """Draw the mean of a metric over runs, with a band."""
    mean, deviation = over([run.metrics.get(metric, []) for run in runs])
    sent, _ = over([run.megabytes() for run in runs])
    sent = sent[: len(mean)]
    best = runs[0].best if len(runs) == 1 else None
    mark: dict[str, Any] = {} if best is None else {"marker": "o", "markevery": [best]}
    places: list[Any] = [(by_round, range(len(mean))), (by_bytes, sent)]
    for axes, x in places if any(sent) else places[:1]:
        (line,) = axes.plot(x, mean, label=name, **mark)
        mark["color"] = line.get_color()  # the same color in both axes
        if len(runs) > 1:
            band(axes, x, mean, deviation, alpha=0.2, color=line.get_color())


def band(
    axes: Any, x: Sequence[float], mean: list[float], deviation: list[float], **how: Any
) -> None:
    """Fill a band of one deviation around a mean; without a deviation, the width is 0."""
    widths = [0.0 if math.isnan(width) else width for width in deviation]
    ends = [(m - d, m + d) for m, d in zip(mean, widths, strict=True)]
    axes.fill_between(x, *zip(*ends, strict=True), linewidth=0, **how)


def literal(name: str) -> str:
    """Escape a name, since matplotlib draws $ as a formula and hides names that begin with _."""
    return " " * name.startswith("_") + name.replace("$", r"\$")


def over(runs: Sequence[Sequence[float | None]]) -> tuple[list[float], list[float]]:
    """The mean and the deviation in each round, over the runs that have a value in this round.

    Example:
        >>> over([[1.0, None], [3.0, 5.0, 6.0]])
        ([2.0, 5.0, 6.0], [1.4142135623730951, nan, nan])
    """
    each = itertools.zip_longest(*runs)
    present = [[v for v in values if v is not None and not math.isnan(v)] for values in each]
    pairs = [mean_and_deviation(values) for values in present]
    return [mean for mean, _ in pairs], [deviation for _, deviation in pairs]


def _draw_dropped(by_round: Any, by_client: Any, name: str, runs: Sequence[Curve]) -> None:
    """Draw how many clients were dropped in each round, and how often each client was dropped.

    Both numbers are means over runs.
    """
    rounds = Counter(index for run in runs for index, _ in run.dropped)
    clients = Counter(client for run in runs for _, client in run.dropped)
    longest = max(len(run.bytes) for run in runs)
    counts = [rounds[index] / len(runs) for index in range(longest)]
    (line,) = by_round.step(range(longest), counts, where="mid", label=name)
    heights = [count / len(runs) for count in clients.values()]
    by_client.bar(list(clients), heights, alpha=0.5, color=line.get_color(), label=name)
