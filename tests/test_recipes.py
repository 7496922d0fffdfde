"""The recipes from the command line: flags, report, repetition, resume; real data if there."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import ROOT, end, graph, same, script
from fgl.federation.report import to_json

import fgl
from fgl.federation import Result, Round, recipe

SMALL = ["--rounds", "3", "--hidden", "8", "--model", "gcn", "--clients", "3", "--steps", "1"]
RECIPES = ["fedavg", "fgssl"]
PARTS: dict[tuple[int, int, int], list[torch.Tensor]] = {}
FLAGS = [
    *("--dataset", "--split", "--clients", "--rounds", "--seed", "--participation", "--model"),
    *("--hidden", "--dropout", "--optimizer", "--lr", "--momentum", "--weight-decay", "--steps"),
    *("--device", "--threads", "--checkpoint", "--json"),
]
OWN_FLAGS = {
    "fedavg": ["--local", "--centralized", "--fedprox", "--fedopt", "--server-lr"],
    "fgssl": [
        *("--fnsc-only", "--fgsd-only", "--lambda-c", "--lambda-d", "--tau", "--omega"),
        *("--local-view", "--global-view", "--keys", "--denominator", "--direction"),
    ],
}
VARIANTS = {
    "fedavg": ("fedavg", []),
    "gat": ("fedavg", ["--model", "gat"]),
    "adam": ("fedavg", ["--optimizer", "adam", "--lr", "0.01"]),
    "part": ("fedavg", ["--participation", "0.4"]),
    "random split": ("fedavg", ["--split", "random"]),
    "local": ("fedavg", ["--local"]),
    "centralized": ("fedavg", ["--centralized"]),
    "fedprox": ("fedavg", ["--fedprox", "0.1"]),
    "fedopt": ("fedavg", ["--fedopt", "yogi", "--server-lr", "0.1"]),
    "fgssl": ("fgssl", []),
    "fnsc": ("fgssl", ["--fnsc-only"]),
    "fgsd": ("fgssl", ["--fgsd-only"]),
    "views": ("fgssl", ["--local-view", "weak", "--global-view", "strong"]),
    "code": ("fgssl", ["--keys", "local", "--denominator", "all", "--direction", "symmetric"]),
}


@pytest.fixture(autouse=True)
def partition_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Louvain takes longer than a small run, and it has tests of its own."""

    def partition(data: fgl.Graph, num_clients: int, *, seed: int) -> list[torch.Tensor]:
        key = (data.num_edges, num_clients, seed)
        if key not in PARTS:
            PARTS[key] = louvain(data, num_clients, seed=seed)
        return PARTS[key]

    louvain = fgl.data.louvain_partition
    monkeypatch.setattr(fgl.data, "louvain_partition", partition)


def go(name: str, *flags: str, small: list[str] = SMALL) -> tuple[dict[str, Any], Any]:
    return script(f"examples/{name}.py").main([*small, *flags])


def check(report: dict[str, Any], name: str, rounds: int) -> None:
    """The JSON that the project promises, no more and no less."""
    assert list(report) == [
        *("recipe", "dataset", "clients", "rounds", "seed", "metrics"),
        *("seconds_per_round", "bytes_up", "bytes_down", "config"),
    ]
    assert report["recipe"] == name
    assert report["rounds"] == rounds
    assert [type(report[key]) for key in ("clients", "seed", "bytes_up", "bytes_down")] == [int] * 4
    assert list(report["metrics"]) == ["test_accuracy", "val_accuracy"]
    for values in report["metrics"].values():
        assert list(values) == ["last", "best_val"]
        assert all(type(value) is float and 0 <= value <= 1 for value in values.values())
    assert report["seconds_per_round"] > 0
    taken = {"recipe", "dataset", "clients", "rounds", "seed", "json", "checkpoint", "device"}
    assert not taken & set(report["config"])


def but_seconds(report: dict[str, Any]) -> dict[str, Any]:
    return {**report, "seconds_per_round": None}


@pytest.mark.parametrize("variant", VARIANTS)
def test_report(variant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, flags = VARIANTS[variant]
    path = tmp_path / "results" / "out.json"
    report, result = go(name, *flags, "--json", str(path))
    assert json.loads(path.read_text()) == report
    check(report, name, rounds=3)
    given = dict(zip(flags[::2], flags[1::2], strict=False)) if len(flags) % 2 == 0 else {}
    for flag, value in given.items():
        assert str(report["config"][flag.removeprefix("--").replace("-", "_")]) == value
    assert report["dataset"] == "synthetic"
    assert report["clients"] == (1 if variant == "centralized" else 3)
    assert f"{name} synthetic: test_accuracy last" in capsys.readouterr().out
    size = sum(p.numel() * p.element_size() for p in result.outbox[0]["model"].values())
    sent = sum(len(record.participants) for record in result.history)
    assert sent == {"part": 3, "centralized": 3}.get(variant, 9)
    assert (report["bytes_down"], report["bytes_up"]) == (sent * size, sent * (size + 8))


def told(*rounds: tuple[float, float, float, float]) -> dict[str, Any]:
    """The report of rounds with these validation accuracies and losses, test scores, seconds."""
    names = ("val_accuracy", "val_loss", "test_accuracy")
    history = [
        Round(index, [0], seconds=seconds, metrics=dict(zip(names, scores, strict=True)))
        for index, (*scores, seconds) in enumerate(rounds)
    ]
    args = recipe.arguments("fedavg", "").parse_args([])
    return recipe.report(args, Result({}, {}, {}, history))


def test_best_is_the_round_of_best_validation() -> None:
    """Highest accuracy, then smallest loss, then the earlier round; never by the test score."""
    metrics = told(
        (0.70, 0.1, 0.99, 1),
        (0.80, 0.4, 0.50, 1),
        (0.80, 0.2, 0.60, 1),
        (0.80, 0.2, 0.90, 1),
        (0.75, 0.1, 0.70, 1),
    )["metrics"]
    assert metrics == {
        "test_accuracy": {"last": 0.70, "best_val": 0.60},
        "val_accuracy": {"last": 0.75, "best_val": 0.80},
    }


def test_best_is_a_round_in_which_somebody_was_scored() -> None:
    args = recipe.arguments("fedavg", "").parse_args([])
    rounds = [Round(0, []), Round(1, [0], metrics={"val_accuracy": 0.5, "test_accuracy": 0.4})]
    metrics = recipe.report(args, Result({}, {}, {}, rounds))["metrics"]
    assert metrics["test_accuracy"] == {"last": 0.4, "best_val": 0.4}


def test_without_a_validation_set_the_last_rounds_count() -> None:
    history = [Round(i, [0], metrics={"f1": i / 10, "a_loss": 1.0}) for i in range(7)]
    history[1].metrics["early"] = 1.0
    args = recipe.arguments("fedavg", "").parse_args([])
    metrics = recipe.report(args, Result({}, {}, {}, history))["metrics"]
    assert metrics == {"f1": {"last": 0.6, "mean_last5": pytest.approx(0.4)}}
    metrics = recipe.report(args, Result({}, {}, {}, history[::-1]), select="f1")["metrics"]
    assert metrics == {"f1": {"last": 0.0, "best_val": 0.6}}


@pytest.mark.parametrize(
    ("name", "flag", "bad"),
    [
        ("fedgl", "--beta", "nan"),
        ("fedgl", "--alpha", "-1"),
        ("fedgl", "--threshold", "1.5"),
        ("fedgl", "--fedprox", "inf"),
        ("fedavg", "--dropout", "1.5"),
        ("fedavg", "--lr", "-0.1"),
        ("fedavg", "--clients", "0"),
        ("fgssl", "--lambda-c", "nan"),
        ("fedvgae", "--queue", "-1"),
        ("fedvgae", "--max-adjust", "-1"),
        ("fedvgae", "--patience", "-1"),
    ],
)
def test_numbers_out_of_range_are_refused(
    name: str, flag: str, bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        script(f"examples/{name}.py").main([flag, bad])
    said = capsys.readouterr().err
    assert re.search(f"{flag}: Expected an? (number|integer) >= .*, but got {bad}", said)


@pytest.mark.parametrize(
    ("seconds", "median"),
    [([90, 80, 3, 1, 2], 2), ([90, 80, 3, 1], 2), ([90, 80, 3], 3), ([4, 2], 3), ([5], 5), ([], 0)],
)
def test_seconds_are_the_median_from_the_third_round_on(seconds: list[int], median: int) -> None:
    report = told(*[(0.5, 0.5, 0.5, value) for value in seconds])
    assert report["seconds_per_round"] == median


@pytest.mark.parametrize("name", RECIPES)
def test_same_seed_same_result(name: str) -> None:
    PARTS.clear()
    torch.manual_seed(1)
    report, result = go(name, "--seed", "3")
    PARTS.clear()
    torch.manual_seed(2)
    again, result_again = go(name, "--seed", "3")
    assert but_seconds(again) == but_seconds(report)
    assert same(end(result_again), end(result))
    _, other = go(name, "--seed", "4")
    assert not same(end(other)["outbox"], end(result)["outbox"])


@pytest.mark.parametrize("variant", ["fedavg", "local", "fedopt", "fgssl"])
def test_interrupted_recipe_goes_on(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, flags = VARIANTS[variant]
    want, _ = go(name, *flags)

    def interrupt(num_rounds: int, title: str) -> Any:
        def stop(record: Any, result: Any) -> None:
            if record.round == 1:
                raise KeyboardInterrupt

        return stop

    folder = ["--checkpoint", str(tmp_path / "runs")]
    with monkeypatch.context() as patch:
        patch.setattr(recipe, "progress", interrupt)
        with pytest.raises(KeyboardInterrupt):
            go(name, *flags, *folder)
    report, result = go(name, *flags, *folder)
    assert but_seconds(report) == but_seconds(want)
    assert len(result.history) == 3
    assert but_seconds(go(name, *flags, *folder)[0]) == but_seconds(want)


@pytest.mark.parametrize(
    "flags",
    [
        ["--lr", "0.01"],
        ["--seed", "1"],
        ["--fedprox", "0.1"],
        ["--fedopt", "sgd"],
        ["--dropout", "0.1"],
        ["--clients", "4"],
    ],
)
def test_checkpoint_of_other_flags_is_refused(flags: list[str], tmp_path: Path) -> None:
    go("fedavg", "--rounds", "1", "--checkpoint", str(tmp_path))
    with pytest.raises(ValueError, match=r"Expected checkpoint .* to be of this run with"):
        go("fedavg", "--checkpoint", str(tmp_path), *flags)


def test_checkpoint_of_another_recipe_is_refused(tmp_path: Path) -> None:
    go("fedavg", "--rounds", "1", "--checkpoint", str(tmp_path))
    with pytest.raises(ValueError, match=r"Expected checkpoint .* to be of this run with config"):
        go("fgssl", "--checkpoint", str(tmp_path))


@pytest.mark.parametrize("name", RECIPES)
def test_help_tells_every_flag(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as caught:
        go(name, "--help")
    assert caught.value.code == 0
    out = capsys.readouterr().out
    for flag in FLAGS + OWN_FLAGS[name]:
        assert f"  {flag} " in out or f"  {flag}\n" in out, flag
    assert script(f"examples/{name}.py").__doc__.splitlines()[0].rstrip(".") in out


def test_recipe_is_a_script(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    out = subprocess.run(
        [sys.executable, "examples/fedavg.py", *SMALL, "--json", str(path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert out.startswith("fedavg synthetic: test_accuracy last ")
    check(json.loads(path.read_text()), "fedavg", rounds=3)


@pytest.mark.parametrize("name", RECIPES)
def test_unknown_dataset_lists_the_known(name: str) -> None:
    with pytest.raises(ValueError, match=r"nowhere") as caught:
        go(name, "--dataset", "nowhere")
    assert all(known in str(caught.value) for known in ("cora", "citeseer", "pubmed", "synthetic"))


@pytest.mark.parametrize(
    "flags",
    [
        ["--model", "mlp"],
        ["--local", "--fedprox", "1"],
        ["--local", "--centralized"],
        ["--fedopt", "rmsprop"],
        ["--rounds", "many"],
        ["--nonsense"],
    ],
)
def test_flags_that_make_no_sense(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        go("fedavg", *flags)
    assert "usage:" in capsys.readouterr().err


def test_ablations_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        go("fgssl", "--fnsc-only", "--fgsd-only")
    assert "not allowed with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ([], {}),
        (["--fnsc-only"], {"lambda_d": 0.0}),
        (["--fgsd-only"], {"lambda_c": 0.0}),
        (["--lambda-c", "3", "--lambda-d", "10"], {"lambda_c": 3.0, "lambda_d": 10.0}),
        (["--tau", "0.5", "--omega", "2"], {"tau": 0.5, "omega": 2.0}),
        (["--local-view", "weak"], {"local_view": "weak"}),
        (["--global-view", "strong"], {"global_view": "strong"}),
        (["--keys", "local"], {"keys": "local"}),
        (["--denominator", "all"], {"denominator": "all"}),
        (["--direction", "symmetric"], {"direction": "symmetric"}),
    ],
)
def test_flags_of_fgssl_reach_the_loss(
    flags: list[str], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flag gives the loss that the option gives, and not the one without it."""
    example = script("examples/fgssl.py")
    built = []
    data = graph(30)
    monkeypatch.setattr(recipe, "federation", lambda args: (data, [data]))
    monkeypatch.setattr(recipe, "run_recipe", lambda args, method, *_: built.append(method))
    example.main([*SMALL, *flags])
    method = built[0]
    params = method.initial()
    there: Any = {"model": {name: value + 0.3 for name, value in params.items()}}

    def loss(method: Any) -> float:
        torch.manual_seed(0)
        return float(method.loss(params, data, there))

    assert loss(method) == loss(example.fgssl(method.model, method.train, **options))
    plain = example.fgssl(method.model, method.train)
    assert (loss(method) == loss(plain)) == (not options)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.skipif("FGL_DATA" not in os.environ, reason="FGL_DATA does not name a data folder")
def test_real_cora(name: str, tmp_path: Path) -> None:
    flags = ["--dataset", "cora", "--clients", "5", "--rounds", "2", "--hidden", "8"]
    report, result = go(name, "--json", str(tmp_path / "out.json"), small=flags)
    check(report, name, rounds=2)
    assert report["dataset"] == "cora"
    assert report["config"]["split"] == "class_capped"
    # GAT 1433 -> 8 -> 7: two weights, two attention vectors and a bias per layer.
    numbers = (1433 * 8 + 3 * 8) + (8 * 7 + 3 * 7)
    assert report["bytes_down"] == 2 * 5 * 4 * numbers
    assert report["bytes_up"] == 2 * 5 * (4 * numbers + 8)
    assert all(math.isfinite(record.loss) for record in result.history)
    assert all(record.zero_weight == [] and record.dropped == {} for record in result.history)


@pytest.mark.parametrize(
    ("name", "flags", "idle", "beside"),
    [
        ("fedego", "--no-ego --noise 5", "--noise", "--no-ego"),
        ("fedego", "--no-ego --no-mixup", "--no-mixup", "--no-ego"),
        ("fedego", "--no-pl --fixed-lambda 0.1", "--fixed-lambda", "--no-pl"),
        ("fedego", "--baseline fedavg --no-rl", "--no-rl", "--baseline"),
        ("fedego", "--baseline local --noise 1", "--noise", "--baseline"),
        ("gpfl", "--fedavg --rho 0.9", "--rho", "--fedavg"),
        ("gpfl", "--fedprox 0 --beta 0.5", "--beta", "--fedprox"),
        ("gpfl", "--local --start random", "--start", "--local"),
        ("gpfl", "--uniform --no-learn", "--no-learn", "--uniform"),
        ("fedgl", "--literal --beta 3", "--beta", "--literal"),
        ("fedgl", "--no-graph --neighbours 5", "--neighbours", "--no-graph"),
        ("fgssl", "--fgsd-only --tau 9", "--tau", "--fgsd-only"),
        ("fgssl", "--fnsc-only --omega 9", "--omega", "--fnsc-only"),
        ("fedavg", "--local --server-lr 3", "--server-lr", "--local"),
    ],
)
def test_flags_that_change_nothing_are_refused(
    name: str, flags: str, idle: str, beside: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        script(f"examples/{name}.py").main(flags.split())
    said = " ".join(capsys.readouterr().err.split())
    want = f"Expected {idle} to be left out where it changes nothing, but got it with {beside}"
    assert want in said


def test_momentum_is_of_sgd_alone() -> None:
    with pytest.raises(ValueError, match="--momentum to be left out beside adam, but got 0.9"):
        script("examples/fedavg.py").main(["--optimizer", "adam", "--momentum", "0.9"])


def test_the_report_is_json_where_a_score_is_none(tmp_path: Path) -> None:
    def refuse(text: str) -> None:
        raise ValueError(text)

    args = recipe.arguments("fedavg", "").parse_args(
        ["--rounds", "1", "--hidden", "4", "--json", str(tmp_path / "out.json")]
    )
    whole, clients = recipe.federation(args)
    method = fgl.Method(recipe.build_model(args, whole), train=recipe.training(args))
    recipe.run_recipe(
        args, method, whole, clients, evaluate=lambda *_: {"f1": math.nan, "val_accuracy": 0.5}
    )
    read = json.loads((tmp_path / "out.json").read_text(), parse_constant=refuse)
    assert read["metrics"]["f1"] == {"last": None, "best_val": None}
    assert read["metrics"]["val_accuracy"]["last"] == 0.5
    assert json.loads(to_json({"a": [math.inf, (1.0, None)]}), parse_constant=refuse) == {
        "a": [None, [1.0, None]]
    }
