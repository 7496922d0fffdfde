"""Comparisons over seeds: their numbers against loops, resumption, formats; and plots."""

import math
import statistics
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import fgl
from fgl import Result
from fgl.experiment import Comparison
from fgl.experiment.report import DESCRIBED
from fgl.federation import Round, best_round
from fgl.methods import fedprox, local, scaffold

SETTING = fgl.tasks.Nodes(clients=3, hidden=4, model="gcn", partition="random")
METHODS = {
    "FedAvg": lambda task: task.fedavg,
    "FedProx": partial(fedprox, mu=5.0),
    "SCAFFOLD": scaffold,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("comparison")


@pytest.fixture(scope="module")
def comparison(folder: Path) -> Comparison:
    return fgl.compare(METHODS, SETTING, num_rounds=2, seeds=(0, 3), checkpoint=folder)


@pytest.mark.slow
def test_a_comparison_is_a_loop_over_seeds(comparison: Comparison) -> None:
    """Data, partition, model and training are another seed's; the differences are paired."""
    scores: dict[str, list[float]] = {name: [] for name in METHODS}
    sent: list[int] = []
    for seed in (0, 3):
        task = SETTING.load(seed=seed)
        made = {"FedAvg": task.fedavg, "FedProx": fedprox(task.fedavg, mu=5.0)}
        for name, method in {**made, "SCAFFOLD": scaffold(task.fedavg)}.items():
            result = fgl.run(method, task, num_rounds=2, seed=seed)
            scores[name].append(best_round(result.history).metrics["test_accuracy"])
            if name == "SCAFFOLD":
                sent.append(sum(r.bytes_up + r.bytes_down for r in result.history))
    assert (comparison.metric, comparison.at) == ("test_accuracy", "best_val")
    for line in comparison.lines:
        mine = scores[line.method]
        assert line.mean == statistics.fmean(mine)
        assert line.deviation == statistics.stdev(mine)
        assert line.seeds == 2 and line.seconds > 0
        gains = [a - b for a, b in zip(mine, scores["FedAvg"], strict=True)]
        if line.method == "FedAvg":
            assert math.isnan(line.difference) and math.isnan(line.error)
        else:
            assert line.difference == statistics.fmean(gains)
            assert line.error == pytest.approx(abs(gains[0] - gains[1]) / 2)
    assert comparison.lines[2].bytes == statistics.fmean(sent)


def test_a_comparison_goes_on(comparison: Comparison, folder: Path) -> None:
    """Nothing that is there is played again; what is missing is; another mu is refused."""
    played: list[tuple[str, int, int]] = []

    def note(name: str, seed: int) -> Any:
        return [lambda record, result: played.append((name, seed, record.round))]

    how: Any = {"checkpoint": folder, "callbacks": note}
    again = fgl.compare(METHODS, SETTING, num_rounds=2, seeds=(0, 3), **how)
    assert not played and repr(again) == repr(comparison)
    more = fgl.compare(METHODS, SETTING, num_rounds=2, seeds=(0, 3, 4), **how)
    assert played == [(name, 4, index) for name in METHODS for index in (0, 1)]
    assert [line.seeds for line in more.lines] == [3, 3, 3]
    other = {"FedAvg": METHODS["FedAvg"], "FedProx": partial(fedprox, mu=1.0)}
    with pytest.raises(ValueError, match=r"settings of fedprox={'mu': 1.0}, but got {'mu': 5.0}"):
        fgl.compare(other, SETTING, num_rounds=2, seeds=[0], checkpoint=folder)


def test_a_function_of_a_task_may_make_another_task() -> None:
    methods = {"local": local, "centralized": fgl.tasks.centralized}
    found = fgl.compare(methods, SETTING, num_rounds=1, seeds=[1], at="last", patience=3)
    task = SETTING.load(seed=1)
    whole = fgl.tasks.centralized(task)
    result = fgl.run(whole.fedavg, whole, num_rounds=1, seed=1)
    assert found.lines[1].mean == result.history[-1].metrics["test_accuracy"]
    assert math.isnan(found.lines[1].deviation)
    assert " ± " not in repr(found)


def test_a_setting_that_ignores_the_seed_is_told() -> None:
    task = fgl.tasks.Nodes(clients=2, hidden=4, model="gcn", dropout=0.0).load(seed=0)
    with pytest.warns(UserWarning, match="does setting use its seed"):
        fgl.compare({"a": lambda fedavg: fedavg}, lambda seed: task, num_rounds=1, seeds=range(2))


def test_a_comparison_stops_early_and_names_its_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    module = sys.modules["fgl.study.compare"]
    monkeypatch.setattr(module, "shown", lambda *_, **__: nullcontext(steps.append))
    flat = fgl.tasks.Nodes(
        clients=2, hidden=4, model="gcn", partition="random", local=fgl.tasks.Local(lr=0.0)
    )
    how: Any = {"num_rounds": 9, "seeds": [0], "patience": 2}
    metric = "test_macro_f1/1"  # of a client
    found = fgl.compare({"a": lambda own: own}, flat.load, metric=metric, each=True, **how)
    assert len(found.reports["a"][0]["bytes"]) == 3 and sum(steps) == 9
    assert found.metric == metric
    with pytest.raises(ValueError, match="metric to be one of .*test_macro_f1"):
        fgl.compare({"a": lambda fedavg: fedavg}, flat, num_rounds=1, seeds=[0], metric="auc")


def test_a_wrong_metric_is_refused_after_one_run_and_a_wrong_method_before() -> None:
    played: list[str] = []

    def note(name: str, seed: int) -> Any:
        return [lambda record, result: played.append(name)]

    how: Any = {"num_rounds": 1, "seeds": [0, 1], "callbacks": note}
    with pytest.raises(ValueError, match="Expected metric to be one of"):
        fgl.compare(METHODS, SETTING, metric="auc", **how)
    assert played == ["FedAvg"]
    with pytest.raises(TypeError, match="Expected b to make a Method, but got None"):
        fgl.compare({"a": scaffold, "b": lambda fedavg: None}, SETTING, **how)  # type: ignore[dict-item, return-value]
    assert played == ["FedAvg"]


@pytest.mark.parametrize(("methods", "setting", "how", "text"), [
    ({}, SETTING, {}, "Expected methods to be functions by name"),
    ([scaffold], SETTING, {}, 'Expected methods to be a dict, but got list: {"FedAvg"'),
    ({"a": 3}, SETTING, {}, "Expected a to be a function that makes a method"),
    ({"a": fgl.Tuned(fedprox, mu=[1.0, 2.0])}, SETTING, {}, "a to be without anything to tune"),
    ({"a": scaffold}, 3, {}, "setting to load a task for each seed, such as"),
    ({"a": lambda task: 3}, SETTING, {}, "a to make a Method, but got int"),
    ({"a": scaffold}, SETTING, {"seeds": [1, 1]}, "seeds to be different"),
    ({"a": scaffold}, SETTING, {"seeds": []}, "seeds to be different"),
    ({"a": scaffold}, SETTING, {"seeds": torch.ones(()).numpy()}, "seeds to be a sequence"),
    ({"a": scaffold}, SETTING, {"patience": 0}, "patience to be"),
    ({"a b": scaffold, "A/b": local}, SETTING, {"checkpoint": "x"}, "methods to differ in let"),
])  # fmt: skip
def test_what_no_comparison_takes(methods: Any, setting: Any, how: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        fgl.compare(methods, setting, num_rounds=1, **{"seeds": [0], **how})


def test_a_loaded_task_is_no_setting() -> None:
    task = SETTING.load(seed=0)
    with pytest.raises(TypeError, match="got a Task, whose data are the same for every seed"):
        fgl.compare({"a": scaffold}, task, num_rounds=1)  # type: ignore[arg-type]
    found = fgl.compare({"a": scaffold}, lambda seed: task, num_rounds=1, seeds=[0])
    assert found.lines[0].seeds == 1


def made_up(scores: list[float]) -> Result:
    rounds = [
        Round(
            index,
            [0, 1],
            bytes_up=10**6,
            bytes_down=10**6,
            metrics={"val_auc": score, "test_auc": score / 2},
        )
        for index, score in enumerate(scores)
    ]
    return Result({}, {}, {}, rounds)


def test_a_plot_shows_means_bands_and_bytes() -> None:
    pytest.importorskip("matplotlib")
    runs = {"one": [made_up([0.2, 0.4]), made_up([0.4, 0.8, 1.0])], "other": made_up([0.5, 0.1])}
    figure = fgl.plot(runs, title="a title")  # type: ignore[arg-type]
    by_round, by_bytes = figure.axes
    assert (
        by_round.get_ylabel() == "test_auc (higher is better)" and by_round.get_xlabel() == "round"
    )
    one, other = by_round.lines
    assert list(one.get_ydata()) == pytest.approx([0.15, 0.3, 0.5])
    assert list(by_bytes.lines[0].get_xdata()) == [2.0, 4.0, 6.0]
    assert len(by_round.collections) == 1  # a band, of the one that has several runs
    band = by_round.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx(0.5) and band.min() == pytest.approx(0.15 - 0.05 * 2**0.5)
    assert [line.get_color() for line in by_bytes.lines] == [one.get_color(), other.get_color()]
    assert other.get_markevery() == [0] and other.get_marker() == "o"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "other"]


def reported(values: list[float], sent: int, dropped: list[Any]) -> dict[str, Any]:
    """A report of two rounds and two clients, whose last value is the mean of theirs."""
    ways = {"test_auc": sum(values) / 2, "test_auc/0": values[0], "test_auc/1": values[1]}
    metrics: dict[str, Any] = {name: {"last": value} for name, value in ways.items()}
    curves = {"test_auc": [0.1, ways["test_auc"]]}
    more = {"seconds": 3.0, "dropped": dropped, "best_round": 1, "bytes": [sent, sent]}
    return {"metrics": {**metrics, "val_auc": {"best_val": 1.0}}, "curves": curves, **more}


def compared() -> Comparison:
    one = [
        reported([0.4, 0.6], 10**6, [[0, 3, "x"], [1, 3, "x"]]),
        reported([0.6, 0.8], 10**6, [[0, 2, ""]]),
    ]
    two = [reported([0.8, 0.8], 0, []), reported([0.7, 0.9], 0, [])]
    both = {"a|b": dict(enumerate(one)), "c_d": dict(enumerate(two))}
    return Comparison(both, "test_auc", "last")


def test_a_comparison_is_a_table_and_a_dict() -> None:
    found = compared()
    head = f"test_auc ({DESCRIBED['last']})"
    markdown = [
        rf"| method | {head} | against a\|b | MB | s | seeds |",
        "|---|---|---|---:|---:|---:|",
        r"| a\|b | 0.6000 ± 0.1414 |  | 2.000 | 3.0 | 2 |",
        "| c_d | 0.8000 ± 0.0000 | +0.2000 ± 0.1000 | - | 3.0 | 2 |",
    ]
    assert found.to_markdown().split("\n") == [*markdown, ""]
    assert found._repr_markdown_() == found.to_markdown()
    latex = found.to_latex().splitlines()
    assert latex[0] == r"\begin{tabular}{lllrrr}" and len(latex) == 8
    assert latex[5] == r"c\_d & 0.8000 $\pm$ 0.0000 & +0.2000 $\pm$ 0.1000 & - & 3.0 & 2 \\"
    told = found.to_dict()
    assert (told["metric"], told["at"], told["reports"]) == ("test_auc", "last", found.reports)
    assert [line["mean"] for line in told["lines"]] == pytest.approx([0.6, 0.8])


def test_a_comparison_is_drawn() -> None:
    found = compared()
    to_rgb = pytest.importorskip("matplotlib.colors").to_rgb
    axes = fgl.plot(found).axes
    assert [*axes[0].lines[0].get_ydata()] == pytest.approx([0.1, 0.6]) and len(axes) == 4
    steps, bars = axes[2].lines[0], axes[3].patches
    assert [*steps.get_ydata()] == [1.0, 0.5] and steps.get_drawstyle() == "steps-mid"
    assert [(bar.get_center()[0], bar.get_height()) for bar in bars] == [(3, 1.0), (2, 0.5)]
    assert {bar.get_facecolor()[:3] for bar in bars} == {to_rgb(steps.get_color())}
    assert [*axes[2].lines[1].get_ydata()] == [0, 0] and bars[0].get_alpha() == 0.5
    assert [axis.get_legend_handles_labels()[1][0] for axis in axes[2:]] == ["a|b", "a|b"]
    (dots,) = fgl.plot(found, clients=True).axes
    assert [*dots.lines[0].get_ydata()] == [0.4, 0.6, 0.6, 0.8]
    assert [*dots.lines[1].get_xdata()] == [1] * 4 and "test_auc of each" in dots.get_ylabel()
    (means,) = dots.collections[0].get_segments()
    assert means[:, 1].tolist() == pytest.approx([0.6, 0.6])


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "a.png").touch()
    for nothing in ({}, 3, None):
        with pytest.raises(ValueError, match="a result, results by name or a comparison"):
            fgl.plot(nothing)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Expected a to be results of at least one round"):
        fgl.plot({"a": Result({}, {}, {}, [])})
    with pytest.raises(ValueError, match="metrics to be one of 'val_auc', 'test_auc'"):
        fgl.plot(made_up([0.5]), metrics=["f1"])
    with pytest.raises(OSError, match="Expected path to be a file that can be written"):
        fgl.plot(made_up([0.5]), path=tmp_path / "a.png" / "a.png")


def test_a_plot_without_matplotlib_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib", "matplotlib.pyplot"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(ImportError, match="matplotlib to be installed for a plot, but got none"):
        fgl.plot(made_up([0.5]))


def test_seeds_draw_data_and_model_anew() -> None:
    one, other = (SETTING.load(seed=seed) for seed in (0, 1))
    pairs = zip(one.fedavg.initial().values(), other.fedavg.initial().values(), strict=True)
    assert not all(torch.equal(a, b) for a, b in pairs)
