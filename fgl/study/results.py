"""Results of a study: paired statistics, a table, LaTeX, curves and the single runs."""

import functools
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..checks import check_choice, imported, install
from ..experiment.plots import band, literal, over, save
from ..experiment.tables import aligned, escaped, mean_and_deviation, plus_minus, tabular
from ..targets import less_is_better, lower_of
from .folder import Store, described, load_plan
from .plan import Cell, Plan
from .play import compared
from .statistics import (
    LEVEL,
    MANY,
    Difference,
    difference,
    holm,
    improvement,
    least_effect,
    seeds_needed,
)

SETTINGS_FOR_OTHERS = 6  # with fewer settings a sign test cannot reach p < 0.05
POINT = 0.01


@dataclass(frozen=True)
class Tested:
    """Comparison of one method with the first method, on one setting or averaged over settings.

    Args:
        difference: statistics of the differences between the two methods' runs with equal seeds.
        holm: p-value after Holm's correction for all tests in the table.
        better: probability of improvement over the first method; NaN for the mean over settings.
        least: the smallest difference that the test detects with the seeds of the study; the power
            is 80 %.
        needed: number of seeds with which the test would detect a difference of 0.01.

    Example:
        >>> Tested(difference([0.01, 0.03]), 0.03, 1.0, 0.05, 9).survives
        True
    """

    difference: Difference
    holm: float
    better: float
    least: float
    needed: int

    @property
    def survives(self) -> bool:
        """Whether the difference stays significant at 5 % after Holm's correction."""
        return self.holm < LEVEL


class Study:
    """The results of all finished runs of a study; print the object to see a table.

    Args:
        folder: the study's folder.
        plan: the plan; by default the plan in the folder is loaded. A stored plan contains pickled
            code: open only folders that you trust.

    Raises:
        ValueError: if the folder contains no study.

    Example:
        >>> import tempfile
        >>> Study(tempfile.mkdtemp())
        Traceback (most recent call last):
        ValueError: Expected folder to hold a study, plan.json, but got ...
    """

    def __init__(self, folder: str | os.PathLike[str], plan: Plan | None = None) -> None:
        self.plan = plan or load_plan(folder)
        self.folder = Path(folder).absolute()
        self._store = Store(folder)

    def raw(self) -> list[dict[str, Any]]:
        """The finished runs of the plan with their values, reports, environments and commands."""
        self._store.refresh()
        jobs = {job.id: job for job in self.plan.jobs(self._store) if job.id in self._store}
        tests = {job.id for cell in self._cells.values() for job in cell.tests.values()}
        return [{**self._store.full(n), "stage": "test" if n in tests else "trial"} for n in jobs]

    @functools.cached_property
    def _cells(self) -> dict[tuple[str, str], Cell]:
        return {key: self.plan.cell(*key, self._store) for key in self.plan.cells()}

    @functools.cached_property
    def _tests(self) -> dict[tuple[str, str], dict[int, dict[str, Any]]]:
        """Records of finished test runs: dict from (setting, method) to records by seed."""
        store = self._store
        return {
            key: {seed: store.full(job.id) for seed, job in cell.tests.items() if job.id in store}
            for key, cell in self._cells.items()
        }

    def scores(self, setting: str, method: str) -> dict[int, float]:
        """The score to compare, for each finished seed; NaN if the run failed or diverged."""
        return {seed: self._score(run) for seed, run in self._tests[setting, method].items()}

    def _score(self, run: Mapping[str, Any]) -> float:
        if run["status"] != "finished":
            return math.nan
        value = run["report"]["metrics"][compared(run, self.plan.metric)].get(run["at"])
        return math.nan if value is None else float(value)

    def metric(self, setting: str) -> str:
        """The name of the metric that is compared on a setting; "" before the first run."""
        runs = (run for m in self.plan.methods for run in self._tests[setting, m].values())
        return self.plan.metric or next((r["metric"] for r in runs if "metric" in r), "")

    def _less_is_better(self, setting: str) -> bool:
        runs = (run for m in self.plan.methods for run in self._tests[setting, m].values())
        run: dict[str, Any] = next((run for run in runs if "report" in run), {"report": {}})
        lower = lower_of(run["report"].get("config", {}))
        return less_is_better(self.metric(setting), run.get("select", ""), lower)

    def in_points(self, setting: str) -> bool:
        """Whether a setting's scores are fractions; tables show fractions in percent."""
        values = [v for m in self.plan.methods for v in self.scores(setting, m).values()]
        shares = all(0 <= value <= 1 for value in values if not math.isnan(value))
        return shares and not self._less_is_better(setting)

    def gains(self, setting: str, method: str) -> dict[int, float]:
        """Difference from the first method for each seed; NaN if a run of either method failed."""
        base = self.scores(setting, next(iter(self.plan.methods)))
        mine = self.scores(setting, method)
        return {seed: value - base[seed] for seed, value in mine.items() if seed in base}

    def mean_gains(self, method: str) -> dict[int, float]:
        """The mean difference over all settings, by seed; {} if settings have different metrics."""
        if len({self.metric(setting) for setting in self.plan.settings}) > 1:
            return {}
        each = [self.gains(setting, method) for setting in self.plan.settings]
        seeds = [seed for seed in each[0] if all(seed in gains for gains in each)]
        return {seed: statistics.fmean(gains[seed] for gains in each) for seed in seeds}

    @functools.cached_property
    def tests(self) -> dict[tuple[str, str], Tested]:
        """Compare every method with the first method, on every setting.

        Holm's correction covers all of these tests together.

        Cells that were given up are left out. Unfinished cells have p = 1.
        """
        methods = list(self.plan.methods)[1:]
        keys = [(s, m) for s in self.plan.settings for m in methods if not self._cells[s, m].lost]
        tests = _tested({key: self.gains(*key) for key in keys})
        return {key: replace(test, better=self._better(*key)) for key, test in tests.items()}

    def _better(self, setting: str, method: str) -> float:
        """The probability of improvement over the first method; NaN if a run failed."""
        names = method, next(iter(self.plan.methods))
        mine, others = (list(self.scores(setting, name).values()) for name in names)
        if any(map(math.isnan, mine + others)):
            return math.nan
        return improvement(mine, others, less=self._less_is_better(setting))

    @functools.cached_property
    def headline(self) -> dict[str, Tested]:
        """Test each further method's gain over the first method, averaged over all settings."""
        methods = list(self.plan.methods)[1:]
        lost = {method for (_, method), cell in self._cells.items() if cell.lost}
        return _tested({name: self.mean_gains(name) for name in methods if name not in lost})

    def chosen(self, setting: str, method: str) -> dict[str, list[Any]]:
        """The chosen values by name; several values per name if seeds were tuned separately."""
        points = self._cells[setting, method].chosen.values()
        names = dict.fromkeys(name for point in points for name in point.values)
        values = {name: [point.values.get(name) for point in points] for name in names}
        return {n: [v for i, v in enumerate(own) if v not in own[:i]] for n, own in values.items()}

    def edges(self, setting: str, method: str) -> list[str]:
        """Describe each chosen number that is the smallest or the largest tried value.

        Numbers that are equal to a hard bound are left out.
        """
        return self.plan.edges(setting, method, self._store)

    def _megabytes(self, setting: str, method: str) -> float:
        """Megabytes sent in a run; NaN if nothing is sent (local training, or a single client)."""
        runs = [r for r in self._tests[setting, method].values() if r["status"] == "finished"]
        sent = [sum(run["report"]["bytes"]) / 1e6 for run in runs]
        silent = all(run["report"]["bytes_up"] == 0 or run["alone"] for run in runs)
        return math.nan if silent else statistics.fmean(sent)

    def __repr__(self) -> str:
        head = ["setting", "method", "mean", "seeds", "difference", "interval", "p (Holm)"]
        head += ["P(better)", "MB", "cpu s", "bad", "chosen"]
        rows = [self._row(*key) for key in self.plan.cells()]
        return "\n".join([aligned([head, *rows]), "", *self.sentences()])

    def _scale(self, setting: str) -> int:
        return 100 if self.in_points(setting) else 1

    def _records(self, cell: Cell) -> list[dict[str, Any]]:
        return [self._store[job.id] for job in cell.jobs if job.id in self._store]

    def _row(self, setting: str, method: str) -> list[str]:
        cell, scale = self._cells[setting, method], self._scale(setting)
        records = self._records(cell)
        bad = sum(record["status"] != "finished" for record in records)
        spent = [record["processor"] for record in records if "processor" in record]
        mean, seeds = _mean(list(self.scores(setting, method).values()), scale)
        if len(self._tests[setting, method]) < len(self.plan.seeds) and not cell.lost:
            seeds += f" of {len(self.plan.seeds)}"
        sent = self._megabytes(setting, method)
        cost = ["-" if math.isnan(sent) else f"{sent:.3g}" if sent < 1000 else f"{sent:.0f}"]
        cost += [f"{statistics.fmean(spent):.1f}" if spent else "", str(bad or "")]
        edges = ", ".join(self.edges(setting, method))
        note = _listed(self.chosen(setting, method)) + (edges and f"; at an edge: {edges}")
        note = f"given up: {cell.lost.splitlines()[0][:120]}" if cell.lost else note
        return [setting, method, mean, seeds,
                *_difference(self.tests.get((setting, method)), scale), *cost, note]  # fmt: skip

    def sentences(self) -> list[str]:
        """Sentences on tests over all settings, on detectable differences, and on failed runs."""
        base, count = next(iter(self.plan.methods)), len(self.plan.settings)
        scale = min(map(self._scale, self.plan.settings))
        lines = []
        for method, test in self.headline.items() if count > 1 else ():
            if test.difference.count > 1 and not math.isnan(test.difference.mean):
                mean, interval, p, _ = _difference(test, scale)
                interval = interval.strip("[]").replace(",", " to")
                lines.append(
                    f"{method} minus {base}, mean of {count} settings: {mean} (95 % interval "
                    f"{interval}), Holm-corrected p {p}"
                )
        tests = [t for t in self.tests.values() if math.isfinite(t.least)]
        if tests and scale == 100:
            least = sorted(100 * test.least for test in tests)
            needed = sorted(test.needed for test in tests)
            most = f"{needed[-1]}" if needed[-1] < MANY else f"{MANY} or more"
            lines.append(
                f"With {len(self.plan.seeds)} seeds, {len(self.tests)} comparisons and a power of "
                "80 %, half of the comparisons can detect a difference of "
                f"{statistics.median_low(least):.1f} points, and all can detect {least[-1]:.1f}. "
                "To detect 1 point, half of the comparisons need at most "
                f"{statistics.median_low(needed)} seeds, and one needs {most}"
            )
        if 1 < count < SETTINGS_FOR_OTHERS:
            lines.append(
                f"{count} settings are too few to generalise to other data: a sign test over fewer "
                f"than {SETTINGS_FOR_OTHERS} settings cannot give p < 0.05"
            )
        return lines + self._troubles()

    def _troubles(self) -> list[str]:
        lines, cells = [], self._cells.values()
        records = [record for cell in cells for record in self._records(cell)]
        errors = [r for r in records if r["status"] != "finished"]
        missing = len(records) < sum(len(cell.jobs) for cell in cells)
        if missing or not all(cell.whole for cell in cells):
            lines.append(f"not finished: {len(records)} of at most {self.plan.count()} runs")
        if errors:
            first = errors[0].get("error", "").splitlines()[0]  # its end has the remedy
            first = first if len(first) < 300 else f"{first[:100]} ... {first[-195:]}"
            lines.append(
                f"{len(errors)} runs failed or diverged. The first of these runs is "
                f"{errors[0]['id']}, with the error `{first}`"
            )
        texts = dict.fromkeys(text for record in records for text in record.get("warnings", ()))
        if texts:
            lines.append(f"{len(texts)} different warnings, such as `{next(iter(texts))}`")
        return lines

    def to_latex(self, *, best: Literal["bold", "none"] = "bold", percent: bool = True) -> str:
        """The table in LaTeX with rules of booktabs: one line per method, one column per setting.

        A star marks a cell whose difference from the first method is significant after Holm's
        correction. A dash marks a cell with a missing or failed run.

        Args:
            best: whether to print the best mean of every setting in bold.
            percent: whether to print fractions in percent.

        Returns:
            A ``tabular`` environment.
        """
        check_choice("best", best, ("bold", "none"))
        columns = [self._column(s, percent, best == "bold") for s in self.plan.settings]
        rows = [[escaped(m), *(column[m] for column in columns)] for m in self.plan.methods]
        head = ["Method", *map(escaped, self.plan.settings)]
        return tabular([head, *rows], "l" + "c" * len(columns))

    def _column(self, setting: str, percent: bool, bold: bool) -> dict[str, str]:
        scale = self._scale(setting) if percent else 1
        scores = {m: list(self.scores(setting, m).values()) for m in self.plan.methods}
        whole = {
            name: statistics.fmean(values)
            for name, values in scores.items()
            if len(values) == len(self.plan.seeds) and values and not any(map(math.isnan, values))
        }
        order = min if self._less_is_better(setting) else max
        top = order(whole.values()) if whole and bold else math.nan
        cells = dict.fromkeys(self.plan.methods, "--")
        for name, mean in whole.items():
            numbers = mean_and_deviation([scale * value for value in scores[name]])
            text = plus_minus(*numbers, digits=1 if scale == 100 else 3).replace("±", r"\pm")
            text = rf"\mathbf{{{text}}}" if mean == top else text
            test = self.tests.get((setting, name))
            cells[name] = f"${text}{r'^{*}' if test and test.survives else ''}$"
        return cells

    def chosen_to_latex(self) -> str:
        """The chosen values in LaTeX, for an appendix: one line for each method on each setting."""
        rows = [[s, m, _listed(self.chosen(s, m))] for s, m in self.plan.cells()]
        return tabular(
            [["Setting", "Method", "Chosen"], *(list(map(escaped, r)) for r in rows)], "lll"
        )

    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        what: Literal["curves", "differences"] = "curves",
    ) -> Any:
        """Draw test runs: curves with bands of one standard deviation, or differences of methods.

        Args:
            path: file to write; the file extension determines the format. By default no file is
                written.
            what: ``"curves"`` draws the metric by round, in one panel per setting.
                ``"differences"`` draws, for every method, the difference from the first method and
                the difference's 95 % interval.

        Returns:
            The matplotlib figure.

        Raises:
            ImportError: if matplotlib is not installed.
        """
        check_choice("what", what, ("curves", "differences"))
        pyplot = imported("matplotlib.pyplot", "for a plot", install("plots"))
        settings, curves = self._scored_settings(), what == "curves"
        wide = min(3, len(settings))
        high = math.ceil(len(settings) / wide)
        size = {"figsize": (1.5 + 3 * wide, 3.4 * high), "layout": "constrained"}
        figure, axes = pyplot.subplots(high, wide, sharey=not curves, squeeze=False, **size)
        figure.get_layout_engine().set(h_pad=0.1)  # labels apart from the titles below
        for axis in axes.flat[len(settings) :]:
            axis.remove()
        for axis, setting in zip(axes.flat, settings, strict=False):
            (self._draw_curves if curves else self._draw_differences)(axis, setting)
            axis.set_title(literal(setting))
            axis.grid(alpha=0.25)
        if curves:
            lines, names = axes[0][0].get_legend_handles_labels()
            figure.legend(lines, names, loc="outside lower center", ncols=min(len(names), 4))
        if path is not None:
            save(figure, Path(path))
        pyplot.close(figure)
        return figure

    def _scored_settings(self) -> list[str]:
        """The settings with a finished test run, or all settings if no test run is finished."""
        runs = {key: own.values() for key, own in self._tests.items()}
        done = {s for (s, _), own in runs.items() if any(r["status"] == "finished" for r in own)}
        return [setting for setting in self.plan.settings if setting in done or not done]

    def _draw_curves(self, axis: Any, setting: str) -> None:
        metric = self.metric(setting)
        for method in self.plan.methods:
            runs = self._tests[setting, method].values()
            curves = [r["report"]["curves"][metric] for r in runs if r["status"] == "finished"]
            means, deviations = over(curves)
            if means:
                axis.plot(means, label=literal(method))
                band(axis, range(len(means)), means, deviations, alpha=0.15)
        axis.set(xlabel="round", ylabel=f"{metric} ({self._direction(setting)})")

    def _draw_differences(self, axis: Any, setting: str) -> None:
        base, *others = self.plan.methods
        scale = self._scale(setting)
        for place, method in enumerate(others):
            test = self.tests.get((setting, method))
            if test is not None and math.isfinite(test.difference.low):
                own = test.difference
                half = scale * (own.high - own.mean)
                color = "#1f5a94" if test.survives else "#999999"
                axis.errorbar(scale * own.mean, place, xerr=half, fmt="o", color=color, capsize=3)
        axis.axvline(0, color="#c0742c", linewidth=0.8)
        axis.set_yticks(range(len(others)), [*map(literal, others)])
        axis.set_ylim(len(others) - 0.5, -0.5)
        label = f"{self.metric(setting)} - {literal(base)}" + ", points" * (scale == 100)
        axis.set_xlabel(f"{label}\n({self._direction(setting)})")

    def _direction(self, setting: str) -> str:
        return ("lower" if self._less_is_better(setting) else "higher") + " is better"


def _tested(gains: Mapping[Any, Mapping[int, float]]) -> dict[Any, Tested]:
    """Test the differences in every entry; Holm's correction covers all entries."""
    each = {key: difference(list(own.values())) for key, own in gains.items()}
    adjusted = holm([own.p for own in each.values()])
    tests = {}
    for (key, own), p in zip(each.items(), adjusted, strict=True):
        finite = math.isfinite(own.deviation)
        least = own.deviation * least_effect(own.count, len(each)) if finite else math.inf
        needed = seeds_needed(own.deviation, POINT, len(each)) if finite else MANY
        tests[key] = Tested(own, p, math.nan, least, needed)
    return tests


def _mean(scores: Sequence[float], scale: float) -> list[str]:
    """Mean, deviation and number of seeds as text; after a failed run, no mean is given."""
    failed = sum(map(math.isnan, scores))
    if failed:
        return ["", f"{len(scores) - failed} of {len(scores)}"]
    mean = mean_and_deviation([scale * value for value in scores])
    return [plus_minus(*mean, digits=2 if scale == 100 else 4) if scores else "", str(len(scores))]


def _difference(test: Tested | None, scale: float) -> list[str]:
    """Difference, interval, p-value and probability of improvement as text."""
    if test is None or math.isnan(test.difference.mean):
        return [""] * 4
    own, digits = test.difference, 2 if scale == 100 else 4
    mean, low, high = (f"{scale * end:+.{digits}f}" for end in (own.mean, own.low, own.high))
    if math.isinf(own.low):
        return [mean, "", "", ""]
    p = f"{test.holm:.3f}" if test.holm >= 0.0005 else "<0.001"
    better = "" if math.isnan(test.better) else f"{test.better:.2f}"
    return [mean, f"[{low}, {high}]", p, better]


def _listed(chosen: Mapping[str, Sequence[Any]]) -> str:
    return ", ".join(f"{n} {' / '.join(map(_spelled, own))}" for n, own in chosen.items())


def _spelled(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:g}"
    return value if isinstance(value, str) else described(value)
