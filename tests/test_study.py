"""Studies: their runs against loops, failures, refusals, tables; and their processes, killed."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock, call

import numpy as np
import pytest
import torch
from federations import refuses
from scipy import stats

import fgl
from fgl import LogUniform, Tuned
from fgl.federation import Round, best_round
from fgl.methods import fedprox, local, scaffold
from fgl.study import Study
from fgl.study.__main__ import main
from fgl.study.crew import Worker, _watch, default_workers, finish
from fgl.study.execute import _stops, about, execute, same_again
from fgl.study.folder import Store, begun
from fgl.study.plan import Job, Plan, Point
from fgl.study.results import _difference, _listed
from fgl.study.statistics import difference, least_effect, seeds_needed
from fgl.study.study import Chosen
from fgl.study.work import _try, work

ROOT = Path(__file__).parents[1]
SETTING = fgl.tasks.Nodes(clients=2, hidden=4, model="gcn", partition="random")
RATES = {"lr": LogUniform(0.05, 1), "steps": [1, 2]}


def averaged(task: Any) -> Any:
    return task.fedavg


def tiny(seed: int, lr: float = 0.1, steps: int = 1) -> Any:
    """A task of 60 nodes: a setting that is a function."""
    graph = fgl.data.large_graph(60, 200, num_features=4, seed=seed)
    graph = fgl.data.splits.random_split(graph, seed=seed)
    clients = fgl.data.partitions.partition_graph(
        graph, fgl.data.partitions.random_partition(graph, 2, seed=seed)
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = fgl.nn.GCN(4, 4, graph.num_classes)
    train = fgl.tasks.Local(lr=lr, steps=steps).training()
    return fgl.tasks.node_task(graph, clients, model, train)


METHODS = {"FedAvg": averaged, "FedProx": Tuned(fedprox, mu=LogUniform(0.1, 10))}
HOW: Any = {"num_rounds": 2, "local": RATES, "trials": 3, "seeds": [0, 1], "workers": 0}


def untrained(plan: Plan, job: Job, folder: Path | None = None) -> dict[str, Any]:
    """A run's record without a run: its scores are drawn by its id."""
    draw = random.Random(job.id)
    curves = {name: [draw.random() for _ in range(2)] for name in ("test_accuracy", "test_auc")}
    metrics = {name: {"best_val": curve[-1]} for name, curve in curves.items()}
    report = {"metrics": metrics, "curves": curves, "bytes": [10**6], "bytes_up": 5}
    record = {**about(job), "status": "finished", "validation": draw.random(), "report": report}
    record |= {"metric": "test_accuracy", "at": "best_val", "alone": False, "peak": 10**6}
    return record | {"processor": 1.0, "warnings": []}


@pytest.fixture
def without_training(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("work", "execute"):
        monkeypatch.setattr(sys.modules[f"fgl.study.{module}"], "execute", untrained)
    monkeypatch.setattr(sys.modules["fgl.study.work"], "environment", lambda folder: "here")


@pytest.fixture
def folder(tmp_path: Path, without_training: None) -> Path:
    """A finished study of ten runs, none of which was trained."""
    fgl.study(METHODS, {"a": SETTING}, folder=tmp_path / "s", **HOW)
    return tmp_path / "s"


def finished(folder: Path) -> dict[str, int]:
    """When each record was written."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / "runs").glob("*.json")}


def test_a_study_is_a_loop_over_trials_and_seeds(tmp_path: Path) -> None:
    methods = {"FedProx": METHODS["FedProx"]}
    found = fgl.study(methods, {"a": tiny}, folder=tmp_path, **HOW)
    trials = [record for record in found.raw() if record["stage"] == "trial"]
    runs = {record["seed"]: record for record in found.raw() if record["stage"] == "test"}
    assert len(trials) == 3 and sorted(runs) == [0, 1]

    def score(record: Any, seed: int, metric: str) -> float:
        task = tiny(seed, **record["local"])
        method = fedprox(task.fedavg, **record["own"])
        history = fgl.run(method, task, num_rounds=2, seed=seed).history
        return float(best_round(history).metrics[metric])

    worth = [score(record, 1000, "val_accuracy") for record in trials]
    assert [record["validation"] for record in trials] == worth
    best = trials[worth.index(max(worth))]
    for seed, record in runs.items():
        assert (record["local"], record["own"]) == (best["local"], best["own"])
        assert found.scores("a", "FedProx")[seed] == score(best, seed, "test_accuracy")
    assert all(r["status"] == "finished" and r["environment"] and r["command"] for r in found.raw())
    text = next((tmp_path / "environments").glob("*.json")).read_text()
    assert {"python", "torch", "packages"} <= set(json.loads(text))
    job = found.plan.cell("a", "FedProx", Store(tmp_path)).tests[1]
    assert same_again(found.plan, job, runs[1])[0] and not same_again(found.plan, job, runs[0])[0]


def test_a_study_goes_on_and_what_was_deleted_is_made_again(folder: Path) -> None:
    times = finished(folder)
    first = folder / "runs" / min(times)
    before = json.loads(first.read_text())
    first.unlink()
    (folder / "runs" / ".half.json.host.1").write_text("{")
    more = fgl.study({**METHODS, "Local": local}, {"a": SETTING}, folder=folder, **HOW)
    after = finished(folder)
    assert {n for n, t in times.items() if after[n] != t} == {first.name}
    assert json.loads(first.read_text())["report"] == before["report"]
    assert len(after) == len(times) + 5 and len(more.scores("a", "Local")) == 2
    for trials, stages in ((2, [2]), (5, [2, 3, 5])):
        how = {**HOW, "trials": trials}
        assert fgl.study(METHODS, {"a": SETTING}, folder=folder, **how).plan.stages == stages
    assert not list((folder / "locks").glob("*.begun"))


def test_another_method_space_setting_or_patience_is_refused(folder: Path) -> None:
    same = {"methods": METHODS, "settings": {"a": SETTING}, "folder": folder, **HOW}
    lock = threading.Lock()
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"methods": {"FedAvg": lambda task: fedprox(task.fedavg, mu=1.0)}}, ValueError, "FedAvg"),
        ({"methods": {"FedProx": Tuned(fedprox, mu=LogUniform(0.1, 9))}}, ValueError, "FedProx"),
        ({"settings": {"a": fgl.tasks.Nodes(clients=3)}}, ValueError, "setting a"),
        ({"local": {**RATES, "lr": LogUniform(0.05, 2)}}, ValueError, "local"),
        ({"patience": 1}, ValueError, "patience"),
        ({"participation": 0.5}, ValueError, "further arguments"),
        ({"tuning_seeds": [1]}, ValueError, "tuning_seeds"),
        ({"local": {"learning_rate": [0.1]}}, ValueError, "learning_rate"),
        ({"seeds": [1, 1]}, ValueError, "seeds"),
        ({"tuning_seeds": [1, 1]}, ValueError, "tuning_seeds"),
        ({"trials": 0}, ValueError, "trials"),
        ({"workers": -1}, ValueError, "workers"),
        ({"methods": {}}, ValueError, "methods"),
        ({"settings": {}}, ValueError, "settings"),
        ({"local": []}, ValueError, "local"),
        (
            {"methods": {"x": lambda task: lock and task.fedavg}},
            TypeError,
            "methods .* cloudpickle",
        ),
        ({"trial": 3}, TypeError, "argument .*trial"),  # else each run would fail
        ({"callbacks": []}, TypeError, "argument .*callbacks"),
        ({"methods": {"x": 3}}, TypeError, "x to be a function"),
        ({"methods": {"": averaged}}, ValueError, r"names of methods .* \[''\]"),
        ({"settings": {"two\nlines": SETTING}}, ValueError, "names of settings"),
        ({"methods": {"x": lambda task: drawn(GENERATOR, task)}}, TypeError, "Generator"),
        ({"settings": {"a": 3}}, TypeError, "setting a to load"),
    ]
    for other, kind, name in cases:
        with pytest.raises(kind, match=f"Expected .*{name}"):
            fgl.study(**{**same, **other})
    with pytest.raises(TypeError, match="Expected setting a to load"):
        fgl.study(**{**same, "settings": {"a": tiny(0)}})
    assert len(fgl.study(**same).raw()) == 10


GENERATOR = torch.Generator()


def drawn(generator: torch.Generator, task: Any) -> Any:
    return fedprox(task.fedavg, mu=float(torch.rand(1, generator=generator)))


def test_runs_do_not_depend_on_earlier_ones_by_global_generators() -> None:
    def setting(seed: int, _: int = 0) -> Any:
        return tiny(int(1e6 * (random.random() + np.random.rand() + float(torch.rand(1)))))

    methods = {"a": averaged, "b": averaged, "tuned": Chosen("b", averaged, {"_": 1})}
    plan = Plan({"a": Tuned(averaged)}, {"a": setting}, [{}], [1], [1000], [0], 1, 1)

    def states() -> list[Any]:
        return [random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()]

    before = states()
    jobs = [Job("a", "a", Point({}, {}), seed, 1) for seed in (0, 1, 0)]
    losses = [execute(plan, job)["report"]["curves"]["train_loss"] for job in jobs]
    assert losses[0] == losses[2] != losses[1]
    found = fgl.compare(methods, setting, num_rounds=1, seeds=[1, 0])
    for runs in found.reports.values():  # the same data for a seed, whatever was loaded before
        assert [runs[seed]["curves"]["train_loss"] for seed in (0, 1)] == losses[:2]
    assert states() == before


def test_equal_lambdas_of_a_loop_are_told(tmp_path: Path) -> None:
    same = {f"mu {mu}": (lambda task: fedprox(task.fedavg, mu=mu)) for mu in (0.1, 1.0)}  # noqa: B023
    with pytest.warns(UserWarning, match="mu 0.1 and method mu 1.0 have the same"):
        fgl.study(same, {"a": SETTING}, folder=tmp_path, **{**HOW, "workers": "later"})


def test_damage_is_told(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_study, first = Study(folder), min((folder / "runs").glob("*.json"))
    whole = first.read_text()
    for text in (whole[:100], "[]", "{}"):
        first.write_text(text)
        refuses(f"Expected {first} to hold the record of a run", Study(folder).raw)
    first.unlink()
    assert len(open_study.raw()) == 9
    full = OSError(28, "No space left")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=full))
    with pytest.raises(OSError, match=r"Expected folder to be .* written, .* No space"):
        work(folder, plan=open_study.plan)
    assert not [p for p in folder.rglob("*") if p.name.startswith(".") or p.suffix == ".begun"]
    monkeypatch.undo()
    monkeypatch.setattr(Path, "write_text", Mock(side_effect=full))
    with pytest.raises(OSError, match="Expected folder"), begun(Store(folder), first.stem):
        pass
    monkeypatch.undo()
    (folder / "locks").rename(tmp_path / "locks")  # as in a copy without empty folders
    monkeypatch.setattr(os, "access", Mock(return_value=False))
    assert len(Study(folder).raw()) == 9 and not (folder / "locks").exists()
    monkeypatch.setattr(Path, "read_bytes", Mock(side_effect=ModuleNotFoundError("No module x")))
    refuses("Expected the modules .* No module x", lambda: Study(folder))


def test_a_name_may_have_any_letters(tmp_path: Path, without_training: None) -> None:
    """Names go to files and LaTeX; a file whose name begins with a dot would not be seen."""
    methods = {"5$ & 6%$ of a_b": averaged, "_x/{y}": local, "ü ∇": scaffold}
    found = fgl.study(methods, {".a $": SETTING}, folder=tmp_path, **{**HOW, "local": None})
    assert len(found.raw()) == 6
    latex = found.to_latex()
    assert r"5\$ \& 6\%\$ of a\_b & $" in latex and r"\_x/\{y\} & $" in latex


def test_numbers_of_numpy_are_numbers(tmp_path: Path, without_training: None) -> None:
    space = {"lr": list(np.logspace(-2, 0, 3)), "steps": list(np.arange(1, 4))}
    how = {**HOW, "local": space, "trials": 6}
    found = fgl.study({"FedAvg": averaged}, {"a": SETTING}, folder=tmp_path, **how)
    assert all(type(record["local"]["steps"]) is int for record in found.raw())
    assert "np." not in repr(found) + found.chosen_to_latex()
    steps = found.plan.cell("a", "FedAvg", Store(tmp_path)).chosen[0].local["steps"]
    assert ("steps" in str(found.edges("a", "FedAvg"))) is bool(steps != 2)


def wrong(fedavg: Any) -> Any:
    return fedavg.nothing


def picky(fedavg: Any, mu: float) -> Any:
    if mu > 1:
        raise ValueError(f"Expected mu to be small, but got {mu}")
    warnings.warn("a word of the method", stacklevel=1)
    return fedprox(fedavg, mu=mu)


def noisy(fedavg: Any) -> Any:
    loss = fedavg.loss
    return dataclasses.replace(fedavg, loss=lambda *of: loss(*of) * float("nan"))


def test_a_failure_is_a_record() -> None:
    methods = {"wrong": Tuned(wrong), "picky": Tuned(picky, mu=1.0), "noisy": Tuned(noisy)}
    methods["exits"] = Tuned(lambda task: sys.exit(3))
    plan = Plan(methods, {"a": tiny}, [{}], [1], [1000], [0], 1, 1)

    def record(method: str, **own: float) -> dict[str, Any]:
        return execute(plan, Job("a", method, Point({}, own), seed=0, rounds=1))

    lost = record("wrong")
    assert (lost["kind"], lost["status"], lost["validation"]) == ("AttributeError", "failed", None)
    assert "AttributeError" in lost["error"] and "in wrong" in lost["traceback"]
    assert record("picky", mu=2.0)["error"] == "ValueError: Expected mu to be small, but got 2.0"
    good = record("picky", mu=0.5)
    assert good["status"] == "finished" and "a word of the method" in good["warnings"]
    assert min(good["seconds"], good["processor"]) > 0
    assert record("noisy")["status"] != "finished"
    assert record("exits")["error"] == "SystemExit: 3"  # else it would end the user's script


def test_a_run_stops_early_in_its_second_half_alone() -> None:
    history = [Round(k, [0], metrics={"val_accuracy": 1 / (k + 1)}) for k in range(8)]
    task: Any = SimpleNamespace(select="val_accuracy")
    (stop,) = _stops(1, 8, task)
    stopped = [stop(each, fgl.Result({}, {}, {}, history[: each.round + 1])) for each in history]
    assert stopped == [False] * 4 + [True] * 4
    assert _stops(None, 8, task) == _stops(1, 8, SimpleNamespace(select="")) == []  # type: ignore[arg-type]


def test_a_worker_takes_free_runs_and_waits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, store, finished = Study(folder).plan, Store(folder), []
    jobs = list(plan.jobs(store))[:3]
    for job in jobs:
        store.path(job.id).unlink()
    monkeypatch.setattr(time, "sleep", Mock(side_effect=InterruptedError))
    with begun(store, jobs[2].id), pytest.raises(InterruptedError):
        work(folder, plan=plan, index=2, advance=lambda own: finished.append(len(own)))
    assert finished == [7, 8, 9]
    work(folder, plan=plan, advance=lambda own: finished.append(len(own)))
    assert finished == [7, 8, 9, 9, 10]


def test_a_failure_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def some_fail(plan: Plan, job: Job, folder: Path | None = None) -> dict[str, Any]:
        record = untrained(plan, job)
        record["warnings"] = [f"a word of {job.method}"]
        kind = {"wrong": "AttributeError", "picky": "ValueError", "noisy": "Diverged"}
        if job.method in kind and (job.method != "picky" or job.point.own["mu"] > 1):
            error = {"kind": kind[job.method], "error": f"{kind[job.method]}: no\nmore"}
            record |= {"status": "failed", "validation": None, **error}
        return record

    monkeypatch.setattr(sys.modules["fgl.study.work"], "execute", some_fail)
    monkeypatch.setattr(sys.modules["fgl.study.work"], "environment", lambda folder: "here")
    methods = {"FedAvg": averaged, "wrong": wrong, "noisy": noisy}
    methods["picky"] = Tuned(picky, mu=LogUniform(0.1, 10))
    found = fgl.study(methods, {"a": tiny}, folder=tmp_path, **HOW)
    runs = {name: [r for r in found.raw() if r["method"] == name] for name in methods}
    assert {name: len(own) for name, own in runs.items()} == {
        "FedAvg": 5, "wrong": 1, "noisy": 2, "picky": 5
    }  # fmt: skip
    failed = sum(r["status"] == "failed" for own in runs.values() for r in own)
    assert failed > 3 and len(found.scores("a", "picky")) == 2
    text = repr(found)
    assert "given up: AttributeError: no\n" in text + "\n" and f"{failed} runs failed" in text
    assert "4 different warnings, such as `a word of FedAvg" in text
    assert found.to_latex().count("--") == 2  # of wrong and noisy
    assert list(found.tests) == [("a", "picky")]  # Holm's family


def test_a_run_whose_process_died_three_times_is_a_record(folder: Path) -> None:
    plan, store = Study(folder).plan, Store(folder)
    job = plan.cell("a", "FedAvg", store).tests[1]
    store.path(job.id).unlink()
    assert "1 of 2" in repr(Study(folder))  # a run is missing
    mark = folder / "locks" / f"{job.id}.begun"
    mark.write_text("host 1 2\n" * 2)
    with begun(store, job.id) as deaths:
        assert deaths == 2 and mark.read_text().count("\n") == 3
        assert not _try(plan, job, Store(folder), "", None)  # another process holds it
    assert mark.read_text().count("\n") == 2  # this process did not die
    mark.write_text("host 1 2\n" * 3)
    work(folder, plan=plan)
    record = Store(folder).full(job.id)
    assert record["status"] == "failed" and "died 3 times" in record["error"]
    scores = Study(folder).scores("a", "FedAvg")
    assert math.isnan(scores[1]) and not math.isnan(scores[0])
    assert "1 of 2" in repr(Study(folder)) and not mark.exists()


def test_what_is_tuned_can_be_compared(tmp_path: Path) -> None:
    methods = {"FedProx": METHODS["FedProx"]}
    best = fgl.tune(methods, tiny, num_rounds=2, local=RATES, trials=2, workers=0)["FedProx"]
    assert set(best.own) == {"mu"} and set(best.local) == {"lr", "steps"}
    compared = fgl.compare({"FedProx": best}, tiny, num_rounds=2, seeds=[0])
    task = tiny(0, **best.local)
    result = fgl.run(fedprox(task.fedavg, **best.own), task, num_rounds=2)
    assert compared.lines[0].mean == best_round(result.history).metrics["test_accuracy"]
    how: Any = {"num_rounds": 2, "seeds": [0], "workers": 0, "folder": tmp_path}
    found = fgl.study({"FedProx": best}, {"a": tiny}, **how)  # with the chosen local training
    assert found.scores("a", "FedProx") == {0: compared.lines[0].mean}
    with pytest.raises(TypeError, match="setting .* lambda seed, lr, steps: .*'lr'"):
        fgl.compare({"FedProx": best}, lambda seed: task, num_rounds=2, seeds=[0])
    how["workers"] = "x"
    refuses("'ray', 'later'.* 'x'", lambda: fgl.study({"FedProx": best}, {"a": tiny}, **how))
    with pytest.raises(RuntimeError, match="No trial of a"):
        fgl.tune({"a": lambda f: 3}, tiny, num_rounds=1, local=RATES, trials=2, workers=0)


def test_all_workers_but_the_first_wait_while_memory_is_short(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, store = Study(folder).plan, Store(folder)
    job, other = list(plan.jobs(store))[:2]
    store.put(other.id, {**untrained(plan, other), "peak": 10**8})
    store.full(other.id)
    for index, free, runs in ((1, 1.1, False), (1, 1.3, True), (0, 0, True), (None, 0, True)):
        store.path(job.id).unlink()
        memory = Mock(return_value=free * 10**8)
        monkeypatch.setattr(sys.modules["fgl.study.work"], "available_memory", memory)
        assert _try(plan, job, store, "", index) is runs
        store.put(job.id, untrained(plan, job))


def test_another_metric_needs_no_run(folder: Path) -> None:
    how = {**HOW, "folder": folder, "settings": {"a": SETTING}, "methods": METHODS}
    times = finished(folder)
    found = fgl.study(**how, metric="test_auc")
    for record in found.raw():
        if record["stage"] == "test":
            auc = record["report"]["metrics"]["test_auc"]["best_val"]
            assert found.scores("a", record["method"])[record["seed"]] == auc
    with pytest.raises(ValueError, match="Expected metric to be one of .* but got 'mrr'"):
        repr(fgl.study(**how, metric="mrr"))
    refuses("'mrr'", lambda: fgl.study(**{**how, "folder": folder / "other"}, metric="mrr"))
    assert len(finished(folder / "other")) == 1
    assert found.metric("a") == "test_auc" and times == finished(folder)


def test_failed_runs_are_made_anew(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = min((folder / "runs").glob("*.json"))
    before = json.loads(first.read_text())
    broken = {"status": "failed", "error": "OSError: no space", "validation": None}
    first.write_text(json.dumps({**before, **broken}))
    times = finished(folder)
    main([str(folder)])
    assert json.loads(first.read_text())["status"] == "failed" and finished(folder) == times
    main([str(folder), "--retry"])
    assert json.loads(first.read_text())["report"] == before["report"]
    assert len({*times.items()} - {*finished(folder).items()}) == 1
    main([str(folder), "--show"])
    assert "FedProx" in capsys.readouterr().out
    refuses("0", lambda: main([str(folder), "--again", first.stem]), SystemExit)
    before["report"]["curves"]["test_accuracy"][0] += 1e-9
    first.write_text(json.dumps(before))
    refuses("1", lambda: main([str(folder), "--again", first.stem]), SystemExit)
    for argv in ([str(folder / "nothing")], [str(folder), "--again", "x"]):
        with pytest.raises(SystemExit, match="2"):
            main(argv)
    assert "Expected folder to hold a study" in capsys.readouterr().err


def test_a_plan_can_be_written_for_others(tmp_path: Path, without_training: None) -> None:
    how = {**HOW, "workers": "later"}
    found = fgl.study(METHODS, {"a": tiny}, folder=tmp_path, **how)
    assert found.raw() == [] and "not finished: 0 of at most 10 runs" in repr(found)
    assert "--" in found.to_latex()
    work(tmp_path)  # another process would read the plan, too
    assert len(Study(tmp_path).raw()) == 10


# Tables, from records that are written by hand.


def made_up(
    folder: Path,
    scores: dict[str, dict[str, list[float]]],
    metric: str = "test_accuracy",
    select: str = "",
    lower: list[str] | None = None,
) -> Study:
    """A study of finished runs: setting to method to a score of each seed."""
    names = list(next(iter(scores.values())))
    seeds = list(range(len(scores[next(iter(scores))][names[0]])))
    methods = {name: Tuned(averaged) for name in names}
    plan = Plan(methods, dict.fromkeys(scores), [{}], [1], [1000], seeds, 3, 3)
    store = Store(folder)
    for setting, method in plan.cells():
        for seed, job in plan.cell(setting, method, store).tests.items():
            value = scores[setting][method][seed]
            curves = {metric: [0.1, 0.2 + seed / 10, value]}
            report = {"metrics": {metric: {"best_val": value}}, "curves": curves}
            report |= {"bytes": [10**6], "bytes_up": 0 if method == "Local" else 5}
            report["config"] = {"layers": [{"name": "fedavg", "target": {"lower": lower or []}}]}
            record = {"metric": metric, "at": "best_val", "report": report, "seed": seed}
            record |= {"status": "finished", "alone": False, "processor": 1.0, "select": select}
            store.put(job.id, {**record, "setting": setting, "method": method, "id": job.id})
    return Study(folder, plan)


def test_a_table_says_paired_tests_over_settings_and_seeds(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    base = {s: rng.uniform(0.6, 0.7, 8) for s in ("a_1", "b")}
    gain = {s: rng.normal(0.05, 0.01, 8) for s in base}
    scores = {
        s: {"FedAvg": list(base[s]), "good": list(base[s] + gain[s]), "Local": list(base[s][::-1])}
        for s in base
    }
    found = made_up(tmp_path, scores)
    ps = [
        stats.ttest_rel(scores[s][m], scores[s]["FedAvg"]).pvalue
        for s in base
        for m in ("good", "Local")
    ]
    order = sorted(range(4), key=ps.__getitem__)
    by_hand: dict[int, float] = {}
    for rank, i in enumerate(order):
        by_hand[i] = max([min(1.0, (4 - rank) * ps[i]), *by_hand.values()])
    mine = [test.holm for test in found.tests.values()]
    assert mine == pytest.approx([by_hand[i] for i in range(4)])
    means = (gain["a_1"] + gain["b"]) / 2
    theirs = stats.ttest_1samp(means, 0).confidence_interval()
    head = found.headline["good"].difference
    assert (head.low, head.high) == pytest.approx(tuple(theirs))
    latex = found.to_latex().splitlines()
    mean = 100 * statistics.fmean(scores["b"]["good"])
    assert latex[2] == r"Method & a\_1 & b \\"
    assert rf"$\mathbf{{{mean:.1f} \pm " in latex[5] and latex[5].count("^{*}") == 2
    assert found.to_latex().count("mathbf") == 2
    assert found.to_latex(best="none", percent=False).count("mathbf") == 0
    assert f"{mean / 100:.3f}" in found.to_latex(percent=False)


def test_each_cell_and_sentence_of_a_table(tmp_path: Path) -> None:
    own = {"FedAvg": [0.5, 0.6, 0.7], "x": [0.61, 0.69, 0.83], "Local": [0.44, 0.22, 0.31]}
    found = made_up(tmp_path, {"a": own, "b": own})
    gains = {m: 100 * np.subtract(own[m], own["FedAvg"]) for m in ("x", "Local")}
    tests = {m: stats.ttest_1samp(gain, 0) for m, gain in gains.items()}
    small, large = sorted(tests, key=lambda m: tests[m].pvalue)

    def words(method: str, family: int) -> list[str]:
        low, high = tests[method].confidence_interval()
        p = max(family * tests[small].pvalue, (method == large) * tests[large].pvalue * family / 2)
        return [f"{gains[method].mean():+.2f}", f"[{low:+.2f}, {high:+.2f}]", f"{min(p, 1):.3f}"]

    for method, better, sent in (("x", "0.78", "1"), ("Local", "0.00", "-")):
        mean = f"{100 * np.mean(own[method]):.2f} ± {100 * np.std(own[method], ddof=1):.2f}"
        row = ["a", method, mean, "3", *words(method, 4), better, sent, "1.0", "", ""]
        assert found._row("a", method) == row
    assert found._row("b", "FedAvg")[2:] == ["60.00 ± 10.00", "3", *[""] * 4, "1", "1.0", "", ""]
    spread = [gain.std(ddof=1) for gain in gains.values()]
    least = [d * least_effect(3, 4) for d in spread]
    few, many = sorted(seeds_needed(d, 1.0, 4) for d in spread)
    lines = []
    for method in gains:
        mean, interval, p = words(method, 2)
        ends = interval[1:-1].replace(",", " to")
        line = f"{method} minus FedAvg, mean of 2 settings: {mean} (95 % interval {ends})"
        lines.append(f"{line}, Holm-corrected p {p}")
    assert found.sentences() == [
        *lines,
        "With 3 seeds, 4 comparisons and a power of 80 %, half of the comparisons can detect a "
        f"difference of {min(least):.1f} points, and all can detect {max(least):.1f}. To detect "
        f"1 point, half of the comparisons need at most {few} seeds, and one needs "
        f"{many if many < 1000 else '1000 or more'}",
        "2 settings are too few to generalise to other data: a sign test over fewer than 6 "
        "settings cannot give p < 0.05",
    ]
    store = Store(tmp_path)
    ids = {(job.setting, job.method, job.seed): job.id for job in found.plan.jobs(store)}
    lost, much = store.full(ids["a", "x", 1]), store.full(ids["a", "FedAvg", 0])
    error = {"status": "failed", "error": "ValueError: no\nmore", "warnings": ["first", "second"]}
    store.put(lost["id"], lost | error)
    store.put(much["id"], much | {"report": much["report"] | {"bytes": [10**9, 5 * 10**9]}})
    store.path(ids["b", "x", 2]).unlink()
    found = Study(tmp_path, dataclasses.replace(found.plan, _whole={}))
    assert found._row("a", "x") == ["a", "x", "", "2 of 3", *[""] * 4, "1", "1.0", "1", ""]
    assert found._row("b", "x")[3] == "2 of 3" and found._row("a", "FedAvg")[8] == "2001"
    assert found.sentences()[-3:] == [
        "not finished: 17 of at most 18 runs",
        f"1 runs failed or diverged. The first of these runs is {lost['id']}, with the error "
        "`ValueError: no`",
        "2 different warnings, such as `first`",
    ]
    test = dataclasses.replace(found.tests["b", "Local"], holm=0.0004, better=math.nan)
    assert _difference(test, 100)[2:] == ["<0.001", ""] and _difference(None, 1) == [""] * 4
    test = dataclasses.replace(test, holm=0.0005, difference=difference([0.012]))
    assert _difference(test, 100) == ["+1.20", "", "", ""]
    values = {"lr": [0.10000001, np.float64(1e-5)], "kind": ["adam"], "steps": [3], "by": [max]}
    assert _listed(values) == "lr 0.1 / 1e-05, kind adam, steps 3, by max"


def test_errors_are_better_when_small(tmp_path: Path) -> None:
    scores = {"a": {"FedAvg": [1.0, 1.2, 1.4], "good": [0.8, 1.01, 1.2]}}
    found = made_up(tmp_path, scores, "pooled_test_rmse")
    test = found.tests["a", "good"]
    assert not found.in_points("a") and test.better > 0.5
    one = made_up(tmp_path / "one", {"a": {"FedAvg": [0.5], "good": [0.6]}})
    assert one.sentences() == []
    bounds = [dataclasses.replace(test, holm=p).survives for p in (0.049, 0.05)]
    assert bounds == [True, False]
    latex = found.to_latex().splitlines()
    assert "mathbf" in latex[5] and "1.003" in latex[5] and "mathbf" not in latex[4]
    assert "-0.1967" in repr(found) and "points" not in repr(found)


def test_a_metric_of_ones_own_is_better_when_small_if_the_task_says_so(tmp_path: Path) -> None:
    scores = {"a": {"FedAvg": [0.9, 0.8, 0.7], "good": [0.5, 0.4, 0.3]}}
    ways: list[Any] = [{"select": "-val_miss"}, {"select": "val_auc", "lower": ["miss"]}]
    for number, how in enumerate(ways):
        found = made_up(tmp_path / str(number), scores, "pooled_test_miss", **how)
        assert not found.in_points("a") and found.tests["a", "good"].better == 1
        latex = found.to_latex().splitlines()
        assert "mathbf" in latex[5] and "mathbf" not in latex[4]


def test_settings_with_different_metrics_have_no_common_mean(tmp_path: Path) -> None:
    found = made_up(tmp_path, {s: {"x": [0.1, 0.3], "y": [0.2, 0.5]} for s in "ab"})
    for run in found._tests["b", "x"].values():
        run["metric"] = "test_auc"
        run["report"]["metrics"]["test_auc"] = {"best_val": 0.5}
    assert found.mean_gains("y") == {} and "mean of 2 settings" not in repr(found)


def test_a_study_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = made_up(tmp_path, {"a $": {"5$ & 6%$": [0.5, 0.6], "_x": [0.7, 0.9]}})
    figure = found.plot(tmp_path / "new" / "curves.png")  # with names that are no formulas
    assert len(figure.legends[0].get_texts()) == 2  # matplotlib hides names that begin with _
    assert list(figure.axes[0].lines[1].get_ydata()) == pytest.approx([0.1, 0.25, 0.8])
    assert (tmp_path / "new" / "curves.png").stat().st_size > 1000


def test_what_a_plot_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is handed to matplotlib, without matplotlib."""
    axes = np.array([[Mock(), Mock()]])
    for axis in axes.flat:
        axis.get_legend_handles_labels.return_value = [], []
    pyplot = Mock(subplots=Mock(return_value=(Mock(), axes)))
    monkeypatch.setattr(sys.modules["fgl.study.results"], "imported", lambda *of: pyplot)
    sums = [0.5, 0.6, 0.7]
    scores = {"FedAvg": sums, "x": [0.7, 0.81, 0.9], "y": [0.6, 0.5, 0.7]}
    found = made_up(tmp_path, {"a": scores, "b": {**scores, "x": sums}})
    found.plot()
    assert pyplot.subplots.call_args.args == (1, 2)
    for axis, name in zip(axes.flat, "ab", strict=True):
        axis.set_title.assert_called_once_with(name)
        drawn = {call.kwargs["label"]: call.args[0] for call in axis.plot.call_args_list}
        assert [*drawn] == ["FedAvg", "x", "y"]
        assert drawn["FedAvg"] == pytest.approx([0.1, 0.3, 0.6])
        axis.set.assert_called_once_with(xlabel="round", ylabel="test_accuracy (higher is better)")
    found.plot(what="differences")
    (x, place), how = axes[0, 0].errorbar.call_args_list[0]
    theirs = stats.ttest_1samp([0.2, 0.21, 0.2], 0).confidence_interval()
    assert (x, place) == (pytest.approx(100 * 0.61 / 3), 0)
    assert how["xerr"] == pytest.approx(50 * (theirs.high - theirs.low))
    colors = [call.kwargs["color"] for call in axes[0, 0].errorbar.call_args_list]
    assert len({*colors}) == 2  # x survives Holm's correction, y does not
    axes[0, 0].set_yticks.assert_called_once_with(range(2), ["x", "y"])
    label = "test_accuracy - FedAvg, points\n(higher is better)"
    axes[0, 0].set_xlabel.assert_called_once_with(label)
    other = made_up(tmp_path / "errors", {"a": {"x": sums}}, "test_rmse")
    other._draw_differences(axes[0, 1], "a")
    axes[0, 1].set_xlabel.assert_called_with("test_rmse - x\n(lower is better)")


# Processes.

SCRIPT = """
import os, sys, time
import fgl
from fgl import LogUniform, Tuned
from fgl.methods import fedprox

@fgl.layer
def own(fedavg, *, mu):  # a method of a script
    return fedprox(fedavg, mu=mu)

def slow(task, mu):  # each run is noted once it begins
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{os.getpid()}\\n")
    time.sleep(float(os.environ.get("NAP", "0")))
    return own(task.fedavg, mu=mu)

class Own(fgl.tasks.Nodes):  # a class of a script
    pass

made_up = Own(clients=2, hidden=4, model="gcn", partition="random")
study = fgl.study(
    {"FedAvg": lambda task: task.fedavg, "slow": Tuned(slow, mu=LogUniform(0.1, 10))},
    {"a": made_up},
    num_rounds=2, local={"lr": LogUniform(0.05, 1)}, trials=3, seeds=range(3),
    workers=int(os.environ["WORKERS"]), folder=os.environ["FOLDER"],
)
print(study)
"""


def environment(folder: Path, workers: int, **other: str) -> dict[str, str]:
    own = {"FOLDER": str(folder), "NOTES": str(folder) + ".notes", "WORKERS": str(workers)}
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **own, **other}


def numbers(folder: Path) -> dict[str, Any]:
    """What must not depend on the processes: ids, values, curves."""
    records = {p.stem: json.loads(p.read_text()) for p in (folder / "runs").glob("*.json")}
    keys = "local", "own", "validation", "status"
    return {
        name: ([r[key] for key in keys], r["report"]["curves"], r["report"]["bytes"])
        for name, r in records.items()
    }


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The numbers of one process."""
    folder = tmp_path_factory.mktemp("alone") / "s"
    script = folder.parent / "script.py"
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, script], env=environment(folder, 0), check=True)
    return numbers(folder)


@pytest.mark.slow
def test_workers_and_a_notebook_give_the_same_bits(alone: dict[str, Any], tmp_path: Path) -> None:
    assert len(alone) == 12
    (tmp_path / "script.py").write_text(SCRIPT)
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        command = [sys.executable, str(tmp_path / "script.py")]
        subprocess.run(command, env=environment(folder, workers), check=True)
        assert numbers(folder) == alone
    folder = tmp_path / "notebook"  # functions of __main__ without a file
    done = subprocess.run(
        [sys.executable, "-"], input=SCRIPT, text=True, env=environment(folder, 2),
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert numbers(folder) == alone and "FedAvg" in done.stdout
    other = SCRIPT.replace("fedprox(fedavg, mu=mu)", "fedprox(fedavg, mu=2 * mu)")
    for text in (SCRIPT, other):
        done = subprocess.run(
            [sys.executable, "-"], input=text, text=True, env=environment(folder, 1),
            capture_output=True,
        )  # fmt: skip
        assert (done.returncode == 0) is (text is SCRIPT), done.stderr
    assert "Expected method slow to be as when" in done.stderr
    again = [sys.executable, "-m", "fgl.study", str(folder), "--again", min(alone)]
    done = subprocess.run(again, env=environment(folder, 1), capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip() == "the same bits", done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="reads /proc")
def test_a_study_survives_kills_and_others_join(alone: dict[str, Any], tmp_path: Path) -> None:
    """What was in flight is made again; nothing else is lost or made twice."""
    folder, notes = tmp_path / "s", tmp_path / "s.notes"
    (tmp_path / "script.py").write_text(SCRIPT)
    env = environment(folder, 2, NAP="0.7")

    def until(condition: Any, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.02)

    def begun_by() -> list[int]:
        return [int(line) for line in notes.read_text().split()] if notes.exists() else []

    with subprocess.Popen([sys.executable, str(tmp_path / "script.py")], env=env) as parent:
        until(lambda: len(begun_by()) >= 2)
        os.kill(begun_by()[-1], signal.SIGKILL)  # a worker inside of a run
        killed, count = begun_by()[-1], len(begun_by())
        until(lambda: len({*begun_by()[count:]} - {killed}) >= 1)
        until(lambda: len(begun_by()) > count + 1)
        parent.kill()
    workers = set(begun_by())
    until(lambda: not any(map(alive, workers)), 5)
    before = numbers(folder)
    assert all(alone[name] == value for name, value in before.items()) and before
    join = [sys.executable, "-m", "fgl.study", str(folder)]
    with (
        subprocess.Popen(join, env=environment(folder, 0, NAP="0.2")) as one,
        subprocess.Popen(join, env=environment(folder, 0, NAP="0.2")) as two,
    ):
        assert one.wait(100) == 0 and two.wait(100) == 0
    assert numbers(folder) == alone
    own = {json.loads(p.read_text())["process"] for p in (folder / "runs").glob("*.json")}
    assert {f"{os.uname().nodename} {each.pid}" for each in (one, two)} <= own  # both had a share
    slow = sum("slow" in name for name in alone)
    assert slow <= len(begun_by()) <= slow + 3  # three were in flight when they were killed
    assert not list((folder / "locks").glob("*.begun"))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="reads /proc")
def test_parents_of_two_plans_share_a_folder_and_workers_end_in_calls(tmp_path: Path) -> None:
    script = """
import os, sys, time
import fgl
def nap(task):
    open("begun", "a").write(f"{os.getpid()}\\n")
    time.sleep(float(sys.argv[2]))
    return task.fedavg
methods = {"A": lambda task: nap(task), "B": fgl.methods.scaffold, "C": fgl.methods.local}
made_up = fgl.tasks.Nodes(clients=2, hidden=4, model="gcn", partition="random")
own = {name: methods[name] for name in sys.argv[1]}
fgl.study(own, {"a": made_up}, num_rounds=1, seeds=range(3), workers=1, folder="s")
"""
    script = script.replace("float(sys.argv[2])", 'float(os.environ["NAP"])')  # workers see it too
    (tmp_path / "script.py").write_text(script)

    def parent(methods: str, nap: str) -> Any:
        command = [sys.executable, "script.py", methods]
        return subprocess.Popen(command, env=environment(tmp_path, 1, NAP=nap), cwd=tmp_path)

    with parent("AB", "0.2") as one, parent("AC", "0.2") as two:
        assert one.wait(100) == two.wait(100) == 0
    assert len(list((tmp_path / "s" / "runs").glob("*.json"))) == 9
    (tmp_path / "begun").unlink()
    for path in (tmp_path / "s" / "runs").glob("a_A-*"):
        path.unlink()
    with parent("A", "60") as one:
        end = time.monotonic() + 60
        while not (tmp_path / "begun").exists() or not (tmp_path / "begun").read_text():
            assert time.monotonic() < end
            time.sleep(0.05)
        one.kill()
    (worker,) = map(int, (tmp_path / "begun").read_text().split())
    end = time.monotonic() + 5
    while alive(worker):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert not list((tmp_path / "s" / "locks").glob("*.begun"))


def test_no_start_is_told(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\necho "$MKL_NUM_THREADS $@"\nexit 3\n')
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    worker = Worker(folder, Study(folder).plan, 7)
    for _ in range(2):
        worker.process.wait()
        worker.start_again()
    mark = folder / "locks" / "a.begun"
    mark.write_text(f"host {worker.process.pid} 0\n")  # it began a run: its deaths start anew
    for _ in range(3):
        worker.process.wait()
        worker.start_again()
    worker.process.wait()
    own = f"--plan {folder}/logs/plan-.*.pkl --index 7$"  # another parent may replace plan.pkl
    said = f"ended with 3 outside of a run, 3 times.* 1 -m fgl.study {folder} {own}"
    refuses(said, worker.start_again, RuntimeError)
    worker.wait()
    assert worker.log.read_text().count("--index 7") == 6


class Hand:
    """In place of a worker's process: it dies twice or ends, then does what is missing."""

    crew: ClassVar[list[Hand]] = []
    code = 9

    def __init__(self, folder: Path, plan: Plan, index: int) -> None:
        self.process, self.given, self.starts = Mock(), (folder, index), 0
        self.process.poll.return_value = self.code
        self.ended = False
        Hand.crew.append(self)

    def start_again(self) -> None:
        self.starts += 1
        if self.starts > 2 or not self.code:
            self.process.poll.return_value = 0
            work(self.given[0], index=self.given[1])

    def end(self) -> None:
        self.ended = True

    def wait(self) -> None:
        assert all(hand.ended for hand in Hand.crew)  # none waits while another may still work


def test_no_more_workers_than_runs_and_they_are_started_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["fgl.study.crew"]
    monkeypatch.setattr(module, "Worker", Hand)
    monkeypatch.setattr(module, "LOOK", 0.001)
    monkeypatch.setattr(Hand, "crew", [])
    plan, paths = Study(folder).plan, sorted((folder / "runs").glob("*.json"))
    finish(folder, plan, 3)
    assert not Hand.crew  # nothing is missing
    paths[1].unlink()
    finish(folder, plan, 3)
    assert [hand.given for hand in Hand.crew] == [(folder, 0)]
    assert Hand.crew[0].starts == 3 and len(Store(folder)) == 10
    paths[0].unlink()
    monkeypatch.setattr(Hand, "code", 0)  # it ended before the record was deleted
    counts: list[int] = []
    _watch(folder, plan, Store(folder), 1, lambda store: counts.append(len(store)))
    assert len(Hand.crew) == 2 and counts == [9, 10]


def test_a_cluster_makes_each_run_and_gives_up_who_dies(
    tmp_path: Path, without_training: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray in this process: a run dies once before it is done, or four times."""
    asked: list[str] = []

    def get(run: Any) -> Any:
        job = run.args[-1]
        asked.append(job.id)
        if asked.count(job.id) < (5 if job.seed == 1 else 2):
            raise OSError("the process died")
        return run()

    ray = Mock(put=lambda code: code, get=get, exceptions=SimpleNamespace(RayError=OSError))
    ray.is_initialized.return_value = False
    ray.cluster_resources.return_value = {"CPU": 2.0}
    ray.remote = lambda **how: lambda function: SimpleNamespace(remote=partial(partial, function))
    ray.wait = lambda runs, timeout: (runs[:1], runs[1:])
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(sys.modules["fgl.study.crew"], "execute", untrained)
    how = {**HOW, "workers": "ray", "trials": 1, "local": None}
    found = fgl.study({"FedAvg": averaged}, {"a": SETTING}, folder=tmp_path, **how)
    runs = {record["seed"]: record for record in found.raw()}
    assert runs[0]["status"] == "finished" and "died 3 times" in runs[1]["error"]
    assert [asked.count(runs[k]["id"]) for k in (0, 1)] == [2, 3]
    assert ray.init.called and not ray.cancel.called
    assert not list((tmp_path / "locks").glob("*.begun"))


def test_workers_are_as_many_as_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda number: {1, 2, 5} if not number else {1})
    assert default_workers() == 3
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert default_workers() == 1


def test_a_worker_ends_with_its_parent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, end = sys.modules["fgl.study.__main__"], threading.Event()
    monkeypatch.setattr(module, "_end_with_parent", lambda plan: end.wait())
    before = {*threading.enumerate()}
    main([str(folder), "--index", "0", "--plan", str(folder / "plan.pkl")])
    (waiting,) = {*threading.enumerate()} - before
    assert waiting.daemon  # else Python would wait for it
    refuses("^$", signal.getsignal(signal.SIGTERM), module.Ended)  # type: ignore[arg-type]
    end.set()
    waiting.join()
    monkeypatch.undo()
    monkeypatch.setattr(os, "read", Mock(side_effect=[b"a", b"b", b""]))
    monkeypatch.setattr(os, "kill", Mock())  # interrupt_main would not end a sleep
    monkeypatch.setattr(os, "_exit", Mock())
    monkeypatch.setattr(time, "sleep", Mock())
    store = Store(folder)
    with begun(store, "in a long call"):
        module._end_with_parent(folder / "plan.pkl")
        assert not (folder / "plan.pkl").exists()  # of a parent that was killed
        assert not list((folder / "locks").glob("*.begun"))  # an end on request is no death
    assert os.read.call_args_list == 3 * [call(0, 1)]  # type: ignore[attr-defined]
    os.kill.assert_called_once_with(os.getpid(), signal.SIGTERM)  # type: ignore[attr-defined]
    time.sleep.assert_called_once_with(module.GRACE)  # type: ignore[attr-defined]
    os._exit.assert_called_once_with(143)  # type: ignore[attr-defined]
    assert module.GRACE < 5


def test_long_runs_go_on_inside(tmp_path: Path) -> None:
    how = {**HOW, "trials": 1, "local": None, "seeds": [0]}
    found = fgl.study({"SCAFFOLD": scaffold}, {"a": tiny}, folder=tmp_path, checkpoint=True, **how)
    job = found.plan.cell("a", "SCAFFOLD", Store(tmp_path)).tests[0]
    place = tmp_path / "checkpoints" / job.id
    assert not place.exists()  # removed at the end
    task = tiny(0)
    fgl.run(scaffold(task.fedavg), task, num_rounds=1, seed=0, checkpoint=place)
    record = execute(found.plan, job, tmp_path)
    again = Store(tmp_path).full(job.id)
    assert record["report"]["curves"] == again["report"]["curves"]


@pytest.mark.slow
def test_a_ray_cluster_gives_the_same_bits(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    fgl.study(METHODS, {"a": SETTING}, folder=tmp_path / "loop", **HOW)
    ray.init(num_cpus=2, include_dashboard=False)
    try:
        found = fgl.study(
            METHODS, {"a": SETTING}, folder=tmp_path / "ray", **{**HOW, "workers": "ray"}
        )
    finally:
        ray.shutdown()
    assert numbers(tmp_path / "ray") == numbers(tmp_path / "loop")
    assert len(found.raw()) == 10
