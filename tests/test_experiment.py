"""Experiments: runs, reports, and the command line that is made from types."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import pytest
import torch
from federations import REPORT, graphs, model, printed, refuses, script

import fgl
from fgl import Result, layer
from fgl.checks import check_number
from fgl.experiment import Run, choose_names, cli, report, takes_options_of
from fgl.experiment.cli import defaults_of
from fgl.experiment.report import to_json
from fgl.experiment.run import try_writing
from fgl.federation import Round

DEFAULT, ONE_ROUND, TWO_ROUNDS = Run(), Run(rounds=1), Run(rounds=2)
BASELINE = script("examples/baseline.py")
METAVAR = re.compile(r"^(?:(?:\[?(?:INT|FLOAT|STR|PATH)\b|[{\[.])\S* )+")


@dataclass(frozen=True)
class Local:
    lr: float = 0.1
    """The learning rate."""
    steps: int = 2
    """How many steps there are."""

    def __post_init__(self) -> None:
        check_number("lr", self.lr, at_least=0)
        check_number("steps", self.steps, at_least=0, integer=True)


@dataclass(frozen=True)
class Setting:
    """Three clients of a random graph."""

    dataset: str = "synthetic"
    """The dataset."""
    clients: int = 3
    """How many clients there are."""
    weight_decay: float = 5e-4
    """The weight decay."""
    learn: bool = True
    """Whether anything is learned."""
    kind: Literal["gcn", "gat"] = "gcn"
    """Which model it is."""
    fanouts: tuple[int, ...] = (6, 6)
    """How many neighbours are drawn at each depth."""
    cap: int | None = None
    """How many nodes there may be."""
    device: str = "cpu"
    """Where to compute."""
    local: Local = Local()

    published: ClassVar[dict[str, dict[str, Any]]] = {"Cora": {"lr": 0.5, "clients": 2}}

    def load(self, seed: int) -> Any:
        return task(self.clients, self.local)


def task(clients: int = 3, local: Local = Local(), select: str = "val_accuracy") -> Any:
    """What a `Run` asks of a task, on a few small graphs."""
    data = graphs((12, 20, 31, 17))[:clients]
    train = fgl.Training(partial(torch.optim.SGD, lr=local.lr), num_steps=local.steps)
    return SimpleNamespace(
        clients=data,
        fedavg=fgl.fedavg(model(), train=train),
        evaluate=lambda method: fgl.evaluate_on(method, data[0], data),
        select=select,
        bytes_before=0,
        new_nodes=None,
    )


@layer
def scaled(fedavg: fgl.Method, *, scale: float = 1.0) -> fgl.Method:
    """FedAvg whose loss is scaled.

    Args:
        fedavg: what is changed.
        scale: how much larger the loss is.
    """
    check_number("scale", scale, above=0)
    return replace(fedavg, loss=lambda *given: scale * fedavg.loss(*given))


def main(setting: Setting = Setting(), run: Run = TWO_ROUNDS, scale: float = 1.0) -> Any:
    """Train on three clients, with a scaled loss.

    Args:
        scale: How much larger the loss is.
    """
    loaded = setting.load(run.seed)
    return run(scaled(loaded.fedavg, scale=scale), loaded)


def parsed(
    setting: Setting = Setting(), run: Run = DEFAULT, scale: float = 1.0
) -> tuple[Setting, Run, float]:
    """What the command line makes of its flags.

    Args:
        scale: How much larger the loss is.
    """
    return setting, run, scale


def refused(capsys: pytest.CaptureFixture[str], function: Any, *flags: str, **options: Any) -> str:
    """What a wrong command is told, on one line."""
    with pytest.raises(SystemExit) as caught:
        cli(function, argv=flags, **options)
    assert caught.value.code == 2
    return " ".join(capsys.readouterr().err.replace("│", "").split())


def helped(capsys: pytest.CaptureFixture[str], function: Any, *flags: str, **options: Any) -> str:
    with pytest.raises(SystemExit) as caught:
        cli(function, argv=[*flags, "--help"], **options)
    assert caught.value.code == 0
    return " ".join(capsys.readouterr().out.replace("│", "").split())


def sentences(capsys: pytest.CaptureFixture[str], function: Any, *flags: str) -> dict[str, str]:
    """Each flag to what ``--help`` says of it."""
    said = helped(capsys, function, *flags)
    shown = r" --([a-z][a-z0-9-]*)(?:, --no-\S+)? ((?:(?! --).)*?) \((?:default: [^)]*|required)\)"
    found = re.findall(shown, said)
    return {name.replace("-", "_"): METAVAR.sub("", text) for name, text in found}


def but_seconds(report: dict[str, Any]) -> dict[str, Any]:
    return {**report, "seconds_per_round": None}


# The report.


def told(*rounds: Round, select: str = "val_accuracy") -> dict[str, Any]:
    what = {"recipe": "fedavg", "dataset": "", "clients": 1, "rounds": 1, "seed": 0, "config": {}}
    return report(Result({}, {}, {}, list(rounds)), **what, select=select)


def test_without_a_validation_set_the_last_rounds_count() -> None:
    history = [Round(i, [0], metrics={"f1": i / 10, "a_loss": 1.0}) for i in range(7)]
    history[1].metrics["early"] = 1.0
    want = {"f1": {"last": 0.6, "mean_last5": pytest.approx(0.4)}}
    assert told(*history)["metrics"] == told(*history, select="")["metrics"] == want
    assert told(*history[::-1], select="f1")["metrics"] == {"f1": {"last": 0.0, "best_val": 0.6}}


def refuse_constants(text: str) -> None:
    raise ValueError(text)


def test_the_report_is_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "results" / "out.json"
    run = Run(rounds=1, json=str(path))
    loaded = task()
    run(
        loaded.fedavg,
        loaded,
        config={"fanouts": (6, 6), "delta": math.inf},
        evaluate=lambda *_: {"f1": math.nan, "val_accuracy": 0.5},
    )
    read = json.loads(path.read_text(), parse_constant=refuse_constants)
    assert read["metrics"]["f1"] == {"last": None, "best_val": None}
    assert read["metrics"]["val_accuracy"]["last"] == 0.5
    assert read["config"] == {"fanouts": [6, 6], "delta": None}
    text = to_json({"a": [math.inf, (1.0, None)]})
    assert json.loads(text, parse_constant=refuse_constants) == {"a": [None, [1.0, None]]}


# The run.


def test_run_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    loaded = task()
    summary, result = Run(rounds=2)(loaded.fedavg, loaded, recipe="fedavg", dataset="tiny")
    assert list(summary) == REPORT
    assert [summary[key] for key in REPORT[:5]] == ["fedavg", "tiny", 3, 2, 0]
    assert list(summary["metrics"]) == ["test_accuracy", "test_macro_f1", "val_accuracy"]
    for values in summary["metrics"].values():
        assert list(values) == ["last", "best_val"]
        assert all(type(value) is float for value in values.values())
    size = sum(p.numel() * p.element_size() for p in result.outbox[0]["model"].values())
    assert (summary["bytes_down"], summary["bytes_up"]) == (6 * size, 6 * (size + 8))
    assert [type(summary[key]) for key in ("bytes_up", "bytes_down")] == [int, int]
    assert summary["seconds_per_round"] > 0
    curve = summary["curves"]["val_accuracy"]
    assert curve == [record.metrics["val_accuracy"] for record in result.history]
    assert curve[summary["best_round"]] == summary["metrics"]["val_accuracy"]["best_val"]
    assert summary["dropped"] == []
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 5 and said[2].startswith("fedavg tiny: test_accuracy last ")


def test_patience_ends_a_run_and_asks_for_a_validation() -> None:
    loaded = task()
    scores = iter([0.1, 0.5, 0.4, 0.3, 0.2, 0.9])
    run = Run(rounds=6, patience=2)
    _, result = run(loaded.fedavg, loaded, evaluate=lambda *_: {"val_accuracy": next(scores)})
    assert len(result.history) == 4
    blind = task(select="")
    refuses("Expected patience to be None .* validation.* got 2", lambda: run(blind.fedavg, blind))


def test_dropped_messages_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    loaded = task()

    def accept(message: Any, client: int, state: Any) -> None:
        if client:
            raise ValueError("no")

    with pytest.warns(UserWarning, match="no"):
        Run(rounds=1)(replace(loaded.fedavg, accept=accept), loaded)
    assert "run: 2 messages dropped, the first (round, client): (0, 1, " in capsys.readouterr().out


def test_interrupted_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    want, _ = cli(main, argv=["--rounds", "3"])

    def interrupt(num_rounds: int, name: str) -> Any:
        def stop(record: Round, result: Result) -> None:
            if record.round == 1:
                raise KeyboardInterrupt

        return stop

    flags = ["--rounds", "3", "--checkpoint", str(tmp_path / "runs")]
    with monkeypatch.context() as patch:
        patch.setattr("fgl.experiment.run.progress", interrupt)
        refuses("130", lambda: cli(main, argv=flags), SystemExit)
    assert "--checkpoint FOLDER the same command goes on" in capsys.readouterr().err
    again, result = cli(main, argv=flags)
    assert but_seconds(again) == but_seconds(want)
    assert len(result.history) == 3


# The command line.


def test_flags_are_flat() -> None:
    assert list(defaults_of(main, None, "")) == [
        *("dataset", "clients", "weight_decay", "learn", "kind", "fanouts", "cap", "device"),
        *("lr", "steps"),
        *("rounds", "seed", "participation", "clients_at_once", "threads", "patience"),
        *("checkpoint", "json", "plot", "each", "scale"),
    ]
    words = "--clients 7 --weight-decay 0 --no-learn --kind gat --fanouts 3 4 5 --cap 9 --lr=1"
    setting, run, scale = cli(parsed, argv=[*words.split(), "--clients-at-once", "all"])
    assert setting == Setting("synthetic", 7, 0.0, False, "gat", (3, 4, 5), 9, local=Local(1.0))
    assert run.clients_at_once == "all"
    assert scale == 1.0
    setting, run, _ = cli(parsed, argv=["--learn", "--cap", "None", "--clients-at-once", "4"])
    assert setting == Setting()
    assert run.clients_at_once == 4


@pytest.mark.parametrize(("flags", "wanted"), [
    (["--rounds", "-1"], "--rounds: Expected rounds to be an integer >= 0, but got -1"),
    (["--lr", "nan"], "--lr: Expected lr to be a number >= 0, but got nan"),
    (["--scale", "0"], "--scale: Expected scale to be a number > 0, but got 0.0"),
    (["--json", "."], "--json: Expected json to name a file"),
    (["--json", f"{__file__}/x.json"], "--json: Expected json to name a file"),
    (["--rounds", "many"], "--rounds: Expected an integer, but got many"),
    (["--lr", "high"], "--lr: Expected a number, but got high"),
    (["--kind", "mlp"], "'--kind'. Expected one of ('gcn', 'gat')"),
    (["--recipe", "mine"], "--recipe"),
])  # fmt: skip
def test_bad(
    flags: list[str], wanted: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert wanted in refused(capsys, main, *flags)


def test_a_report_that_cannot_be_written_is_said_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **options: Any) -> Any:
        pytest.fail("it has begun to train")

    path = tmp_path / "new" / "folder" / "out.json"
    with monkeypatch.context() as patch:
        patch.setattr("fgl.experiment.run.run", never)
        if sys.platform == "linux":  # root may write anywhere, it seems
            said = refused(capsys, main, "--json", "/proc/new/out.json")
            assert "--json: Expected json to name a file that can be written, but got " in said
    try_writing("json", path)
    assert path.parent.exists() and not path.exists()  # it leaves no file of its own
    with monkeypatch.context() as patch:  # and what nobody could have known
        patch.setattr(Path, "write_text", lambda *_: (_ for _ in ()).throw(OSError(28, "No space")))
        assert "Expected json to be written to" in refused(capsys, main, "--json", str(path))


def test_an_error_of_the_rounds_is_raised_as_it_is() -> None:
    def broken(run: Run = ONE_ROUND) -> Any:
        loaded = task()
        evaluate: Any = lambda *_: 3  # noqa: E731
        return run(loaded.fedavg, loaded, evaluate=evaluate)

    refuses("dict of metrics", lambda: cli(broken, argv=[]), (TypeError, RuntimeError))


def test_presets(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    presets = {"cora": {"lr": 0.7, "scale": 3.0}, "pubmed": {"learn": False, "fanouts": (2, 3)}}
    show = partial(cli, parsed, presets=presets)
    setting, _, scale = show(argv=["--dataset", "cora"])
    assert (setting.clients, setting.local.lr, scale) == (2, 0.7, 3.0)
    summary, _ = cli(main, presets=presets, argv=["--dataset", "cora", "--rounds", "0"])
    assert (summary["dataset"], summary["config"]["lr"]) == ("cora", 0.7)
    setting, _, scale = show(argv=["--lr", "0.1", "--dataset=CORA", "--scale", "1"])
    assert (setting.clients, setting.local.lr, scale) == (2, 0.1, 1.0)
    setting, _, _ = show(argv=["--dataset", "pubmed"])
    assert (setting.learn, setting.fanouts) == (False, (2, 3))
    assert show(argv=[])[0] == Setting()
    monkeypatch.setenv("COLUMNS", "200")
    said = helped(capsys, parsed, presets=presets)
    assert said.endswith("Cora --lr 0.7 --clients 2 --scale 3.0 pubmed --no-learn --fanouts 2 3")


@pytest.mark.parametrize(("preset", "wanted"), [
    ({"rate": 1}, "Expected the preset of acm to name flags, but got rate"),
    ({"lr": -1.0}, "Expected lr to be a number >= 0, but got -1.0 in the preset of acm"),
    ({"dataset": "x"}, "Expected the preset of acm to name flags, but got dataset"),
])  # fmt: skip
def test_a_wrong_preset_is_an_error_at_start(preset: dict[str, Any], wanted: str) -> None:
    refuses(wanted, lambda: cli(parsed, presets={"acm": preset}, argv=["--dataset", "other"]))


def test_the_first_word_chooses(capsys: pytest.CaptureFixture[str]) -> None:
    mains = {"links": main, "nodes": parsed}
    summary, _ = cli(mains, argv=["links", "--rounds", "1"])
    assert summary["config"]["task"] == "links"
    assert summary["recipe"] == "test_experiment"
    presets = {"nodes": {"cora": {"scale": 4.0}}}
    assert cli(mains, argv=["nodes", "--dataset", "cora"], presets=presets)[2] == 4.0
    said = helped(capsys, mains)
    assert "links Train on three clients" in said and "nodes What the command line" in said
    assert "Expected task to be one of links, nodes, but got none" in refused(capsys, mains)
    assert "but got --rounds" in refused(capsys, mains, "--rounds", "3")
    assert "How much larger the loss is." in helped(capsys, mains, "nodes")
    with pytest.raises(ValueError, match="Expected presets to be those of links, nodes, .* cora"):
        cli(mains, argv=["links"], presets={"cora": {}})


def test_help_is_light(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Setting, "load", lambda *_: pytest.fail("loaded"))
    said = sentences(capsys, main)
    assert set(said) == set(defaults_of(main, None, ""))
    assert said["steps"] == "How many steps there are."


def test_two_flags_of_one_name_are_refused() -> None:
    def twice(setting: Setting = Setting(), lr: float = 0.1) -> None: ...

    refuses("one meaning, but got setting.local.lr and lr", lambda: cli(twice, argv=[]), TypeError)


def test_options_of_a_builder(capsys: pytest.CaptureFixture[str]) -> None:
    def builder(fedavg: Any, *, rate: float, rule: str = "sgd", how: Any = None) -> None:
        """A method.

        Args:
            rate: how fast it is.
            rule: which rule it follows.
        """

    @takes_options_of(partial(builder, how=None))
    def taken(run: Run = DEFAULT, **options: Any) -> dict[str, Any]:
        return options

    said = sentences(capsys, taken)
    assert list(defaults_of(taken, None, ""))[-2:] == ["rate", "rule"]
    assert (said["rate"], said["rule"]) == ("How fast it is.", "Which rule it follows.")
    assert cli(taken, argv=["--rate", "3"]) == {"rate": 3.0, "rule": "sgd"}
    assert "--rate" in refused(capsys, taken)

    def unmarked(**options: Any) -> None: ...

    with pytest.raises(TypeError, match=r"marked by takes_options_of, but got \*\*options alone"):
        cli(unmarked, argv=[])


def test_words_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    tables = {"method": {"scaled": scaled}, "task": {"nodes": Setting}}
    names, rest = choose_names("", ["scaled", "nodes", "--help"], **tables)
    assert (names, rest) == (("scaled", "nodes"), ["--help"])
    for argv in (["--help"], ["scaled", "-h"]):
        with pytest.raises(SystemExit, match="0"):
            choose_names("What it does.", argv, **tables)
        assert "  scaled  FedAvg whose loss is scaled.\n" in capsys.readouterr().out
    refuses("2", lambda: choose_names("", ["scaled", "edges"], **tables), SystemExit)
    assert "Expected task to be one of nodes, but got edges" in capsys.readouterr().err


@pytest.mark.slow
def test_everything_but_the_command_line_works_without_tyro() -> None:
    code = """
import sys
sys.modules["tyro"] = sys.modules["docstring_parser"] = None
from fgl.experiment import Run, cli
print(Run(rounds=3).rounds)
try:
    cli(lambda run=Run(): run, argv=[])
except ImportError as error:
    print(error)
"""
    out = printed("-c", code)
    assert out.splitlines()[0] == "3"
    assert "pip install -e '.[examples]' in a checkout of fgl" in out


# Any method on any task.

TINY = {
    "louvain-nodes": ["--hidden", "4", "--model", "gcn", "--clients", "2"],
    "overlapping-nodes": ["--hidden", "4", "--proportions", "0.1", "0.2", "--per-class", "3"],
    "ego-nodes": ["--hidden", "4", "--clients", "2", "--share", "0.2", "--num-test", "20"],
    "own-nodes": ["--hidden", "4", "--clients", "2"],
    "subgraph-nodes": ["--hidden", "4", "--clients", "2"],
    "links": ["--hidden", "4", "--latent", "4", "--clients", "2"],
    "graphs": ["--hidden", "4", "--clients", "2"],
    "pairs": ["--hidden", "4", "--clients", "2"],
    "typed-nodes": ["--hidden", "4", "--clients", "2"],
    "molecules": ["--hidden", "4", "--clients", "2"],
}


@pytest.mark.few
@pytest.mark.parametrize(("method", "task", "flags"), [
    ("fedavg", "louvain-nodes", []),
    ("fedprox", "graphs", ["--mu", "0.1"]),
    ("fedopt", "overlapping-nodes", ["--rule", "adam"]),
    ("moon", "own-nodes", ["--temperature", "0.4"]),
    ("fedavg", "subgraph-nodes", ["--label-noise", "0.2", "--skew-by", "degrees"]),
    ("ring", "links", []), ("local", "ego-nodes", []),
    ("centralized", "louvain-nodes", []),
    ("fedper", "louvain-nodes", ["--shared", "convs.0"]),
    ("gcfl", "graphs", ["--eps1", "0.1"]),
    ("gcfl-plus", "own-nodes", ["--sequence", "gradients"]),
    ("fedstar", "graphs", []),
    ("fedssp", "graphs", ["--weight", "2.0"]),
    ("fedavg", "pairs", ["--asked", "links"]),
    ("fedhgn", "typed-nodes", ["--align", "0.1"]),
    ("scaffold", "molecules", ["--split", "scaffold"]),
    ("centralized", "molecules", ["--partition", "random"]),
])  # fmt: skip
def test_baseline(method: str, task: str, flags: list[str], tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    argv = [method, task, "--rounds", "1", "--steps", "1", *TINY[task], *flags, "--json", str(path)]
    summary, _ = BASELINE.main(argv)
    read = json.loads(path.read_text(), parse_constant=refuse_constants)
    assert list(read) == REPORT
    assert (read["recipe"], read["dataset"], read["rounds"]) == (method, "synthetic", 1)
    assert read["clients"] == summary["clients"] == (1 if method == "centralized" else 2)
    assert read["config"]["task"] == task
    for flag, value in zip(flags[::2], flags[1::2], strict=True):
        kept = read["config"][flag.removeprefix("--").replace("-", "_")]
        assert str(kept[0] if isinstance(kept, list) else kept) == value
    assert not {"recipe", "dataset", "clients", "rounds", "seed", "json"} & set(read["config"])


@pytest.mark.few
@pytest.mark.parametrize(("words", "wanted"), [
    ("centralized graphs", "Expected a task with a whole graph to train on centrally"),
    ("moon graphs", "return_embedding"),
    ("fedstar links", "structure channel"),
    ("fedssp links", "fgl.nn.SSP"),
    ("fedprox graphs --mu -1", "--mu: Expected mu to be a number >= 0, but got -1.0"),
    ("fedavg graphs --dataset nowhere", "--dataset: "),
    ("fedavg molecules --dataset nowhere", "answers for a folder of yours, but got nowhere"),
    ("fedpub molecules", "fedpub's probes to have what GINE reads, but got no ['edge_attr']"),
    ("fedavg molecules --clients 200", "Expected num_clients to be in [1, "),
    ("fedavg graphs --device cud", "--device: Expected device to be one that torch has here"),
    ("fedavg links --device meta", "--device: Expected device to be one that torch has here"),
    ("fedavg nowhere", "Expected task to be one of louvain-nodes"),
    ("fedsage graphs", "Expected fedavg to train a SAGE (model sage), but got a GIN"),
    ("fedgcn overlapping-nodes", "Expected fedavg to train a GCN on sums"),
    ("fedgcn louvain-nodes --model gat", "--hops: Expected hops to be 0 beside gat"),
    ("fedsage louvain-nodes --model gcn", "(model sage), but got a GCN"),
])  # fmt: skip
def test_what_cannot_be(words: str, wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        BASELINE.main([*words.split(), "--rounds", "1"])
    assert caught.value.code == 2
    assert wanted in capsys.readouterr().err
