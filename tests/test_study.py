"""Studies: their runs against loops, failures, refusals, tables; and their processes, killed."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import fgl
from fgl import LogUniform, Tuned
from fgl.federation import best_round
from fgl.methods import fedprox, local, scaffold
from fgl.study import Study
from fgl.study.execute import execute
from fgl.study.folder import Store, begun
from fgl.study.plan import Plan
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("study")
    fgl.study(METHODS, {"a": SETTING}, folder=place, **HOW)
    return place


def test_a_study_is_a_loop_over_trials_and_seeds(folder: Path) -> None:
    found = Study(folder)
    for name in METHODS:
        trials = [r for r in found.raw() if r["method"] == name and r["stage"] == "trial"]
        runs = {r["seed"]: r for r in found.raw() if r["method"] == name and r["stage"] == "test"}
        assert len(trials) == 3 and sorted(runs) == [0, 1]

        def score(record: Any, seed: int, metric: str) -> float:
            changed = fgl.tasks.Local(lr=record["local"]["lr"], steps=record["local"]["steps"])
            task = fgl.tasks.Nodes(
                clients=2, hidden=4, model="gcn", partition="random", local=changed
            ).load(seed)
            method = fedprox(task.fedavg, **record["own"]) if record["own"] else task.fedavg
            history = fgl.run(method, task, num_rounds=2, seed=seed).history
            return float(best_round(history).metrics[metric])

        worth = [score(record, 1000, "val_accuracy") for record in trials]
        assert [record["validation"] for record in trials] == worth
        best = trials[worth.index(max(worth))]
        for seed, record in runs.items():
            assert (record["local"], record["own"]) == (best["local"], best["own"])
            assert found.scores("a", name)[seed] == score(best, seed, "test_accuracy")
    assert all(r["status"] == "finished" and r["environment"] and r["command"] for r in found.raw())
    assert {"python", "torch", "packages"} <= set(
        json.loads(next((folder / "environments").glob("*.json")).read_text())
    )


def test_a_study_goes_on_and_what_was_deleted_is_made_again(folder: Path) -> None:
    times = {path.name: path.stat().st_mtime_ns for path in (folder / "runs").iterdir()}
    first = folder / "runs" / min(times)
    before = json.loads(first.read_text())
    first.unlink()
    (folder / "runs" / ".half.json.host.1").write_text("{")
    more = fgl.study({**METHODS, "Local": local}, {"a": SETTING}, folder=folder, **HOW)
    after = {path.name: path.stat().st_mtime_ns for path in (folder / "runs").glob("*.json")}
    assert {n for n, t in times.items() if after[n] != t} == {first.name}
    again = json.loads(first.read_text())
    assert again["report"]["curves"] == before["report"]["curves"]
    assert len(after) == len(times) + 5 and len(more.scores("a", "Local")) == 2
    assert not list((folder / "locks").glob("*.begun"))


def test_another_method_space_setting_or_patience_is_refused(folder: Path) -> None:
    same = {"methods": METHODS, "settings": {"a": SETTING}, "folder": folder, **HOW}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"methods": {"FedAvg": lambda task: fedprox(task.fedavg, mu=1.0)}}, "method FedAvg"),
        ({"methods": {"FedProx": Tuned(fedprox, mu=LogUniform(0.1, 9))}}, "method FedProx"),
        ({"settings": {"a": fgl.tasks.Nodes(clients=3)}}, "setting a"),
        ({"local": {**RATES, "lr": LogUniform(0.05, 2)}}, "local"),
        ({"patience": 1}, "patience"),
        ({"participation": 0.5}, "further arguments"),
        ({"tuning_seeds": [1]}, "tuning_seeds"),
        ({"local": {"learning_rate": [0.1]}}, "learning_rate"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"tuning_seeds": [1, 1]}, "tuning_seeds"),
        ({"trials": 0}, "trials"),
        ({"workers": -1}, "workers"),
        ({"methods": {}}, "methods"),
        ({"settings": {}}, "settings"),
    ]
    for other, name in cases:
        with pytest.raises(ValueError, match=f"Expected .*{name}"):
            fgl.study(**{**same, **other})
    lock = __import__("threading").Lock()
    with pytest.raises(TypeError, match="Expected methods and settings .* cloudpickle"):
        fgl.study(**{**same, "methods": {"locked": lambda task: lock and task.fedavg}})
    for wrong in ({"trial": 3}, {"callbacks": []}):  # else each run would fail
        with pytest.raises(
            TypeError, match=f"Expected arguments .* {[*wrong]}".replace("[", r"\[")
        ):
            fgl.study(**{**same, **wrong})
    for wrong in ({"methods": {"a": 3}}, {"settings": {"a": SETTING.load(0)}}):
        with pytest.raises(TypeError):
            fgl.study(**{**same, **wrong})
    assert len(fgl.study(**same).raw()) == 10


def test_a_failure_is_a_record_and_hides_no_other(tmp_path: Path) -> None:
    def wrong(fedavg: Any) -> Any:
        return fedavg.nothing

    def picky(fedavg: Any, mu: float) -> Any:
        if mu > 1:
            raise ValueError(f"Expected mu to be small, but got {mu}")
        warnings.warn("a word of the method", stacklevel=1)
        return fedprox(fedavg, mu=mu)

    def noisy(fedavg: Any) -> Any:
        from dataclasses import replace

        loss = fedavg.loss
        return replace(fedavg, loss=lambda *of: loss(*of) * float("nan"))

    methods = {
        "FedAvg": averaged,
        "wrong": wrong,
        "picky": Tuned(picky, mu=LogUniform(0.1, 10)),
        "noisy": noisy,
    }
    found = fgl.study(methods, {"a": tiny}, folder=tmp_path, **HOW)
    runs = {name: [r for r in found.raw() if r["method"] == name] for name in methods}
    assert len(runs["wrong"]) == 1 and "AttributeError" in runs["wrong"][0]["error"]
    assert "wrong" in runs["wrong"][0]["traceback"]
    assert {r["status"] for r in runs["picky"] if r["own"]["mu"] > 1} == {"failed"}
    good = [r for r in runs["picky"] if r["own"]["mu"] <= 1]
    assert {r["status"] for r in good} == {"finished"} and len(found.scores("a", "picky")) == 2
    assert all("a word of the method" in r["warnings"] for r in good)
    assert runs["noisy"] and all(r["status"] != "finished" for r in runs["noisy"])
    text = repr(found)
    assert "given up: AttributeError" in text and "different warnings" in text
    assert found.to_latex().count("--") == 2  # of wrong and noisy
    assert {key for key in found.tests} == {("a", "picky")}  # Holm's family


def test_a_run_whose_process_died_three_times_is_a_record(tmp_path: Path) -> None:
    found = fgl.study({"FedAvg": averaged}, {"a": tiny}, folder=tmp_path, **HOW)
    store, plan = Store(tmp_path), found.plan
    job = plan.cell("a", "FedAvg", store).tests[1]
    store.path(job.id).unlink()
    mark = tmp_path / "locks" / f"{job.id}.begun"
    mark.write_text("host 1 2\n" * 2)
    with begun(store, job.id) as deaths:
        assert deaths == 2 and mark.read_text().count("\n") == 3
        assert not _try(plan, job, Store(tmp_path), "", None)  # another process holds it
    assert mark.read_text().count("\n") == 2  # this process did not die
    mark.write_text("host 1 2\n" * 3)
    work(tmp_path, plan=plan)
    record = Store(tmp_path).full(job.id)
    assert record["status"] == "failed" and "died 3 times" in record["error"]
    scores = Study(tmp_path).scores("a", "FedAvg")
    assert math.isnan(scores[1]) and not math.isnan(scores[0])
    assert "1 of 2" in repr(Study(tmp_path))


def test_what_is_tuned_can_be_compared() -> None:
    best = fgl.tune(METHODS, tiny, num_rounds=2, local=RATES, trials=3, workers=0)
    assert set(best["FedProx"].own) == {"mu"} and set(best["FedProx"].local) == {"lr", "steps"}
    compared = fgl.compare(best, tiny, num_rounds=2, seeds=[0])
    chosen = best["FedProx"].local
    task = tiny(0, **chosen)
    result = fgl.run(fedprox(task.fedavg, **best["FedProx"].own), task, num_rounds=2)
    assert compared.lines[1].mean == best_round(result.history).metrics["test_accuracy"]
    with pytest.raises(RuntimeError, match="No trial of a"):
        fgl.tune({"a": lambda f: 3}, tiny, num_rounds=1, local=RATES, trials=2, workers=0)


def test_all_workers_but_the_first_wait_while_memory_is_short(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder, tmp_path / "s")
    plan, store = Study(tmp_path / "s").plan, Store(tmp_path / "s")
    jobs = list(plan.jobs(store))
    peak = max(store[job.id]["peak"] for job in jobs)
    assert peak > 10**8
    store.path(jobs[0].id).unlink()
    module = sys.modules["fgl.study.work"]
    monkeypatch.setattr(module, "available_memory", lambda: 1.1 * peak)
    assert not _try(plan, jobs[0], store, "", 1)
    monkeypatch.setattr(module, "available_memory", lambda: 1.3 * peak)
    assert _try(plan, jobs[0], store, "", 1)
    store.path(jobs[0].id).unlink()
    monkeypatch.setattr(module, "available_memory", lambda: 0)
    assert _try(plan, jobs[0], store, "", 0)


def test_another_metric_needs_no_run(folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(folder, tmp_path / "s")
    how = {**HOW, "folder": folder, "settings": {"a": SETTING}, "methods": METHODS}
    times = {path: path.stat().st_mtime_ns for path in (folder / "runs").iterdir()}
    found = fgl.study(**how, metric="test_macro_f1")
    for record in found.raw():
        if record["stage"] == "test":
            f1 = record["report"]["metrics"]["test_macro_f1"]["best_val"]
            assert found.scores("a", record["method"])[record["seed"]] == f1
    with pytest.raises(ValueError, match="Expected metric to be one of .* but got 'auc'"):
        repr(fgl.study(**how, metric="auc"))
    assert found.metric("a") == "test_macro_f1"
    assert times == {path: path.stat().st_mtime_ns for path in (folder / "runs").iterdir()}


def test_failed_runs_are_made_again_when_asked(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from fgl.study.__main__ import main

    shutil.copytree(folder, tmp_path / "s")
    first = min((tmp_path / "s" / "runs").glob("*.json"))
    before = first.read_text()
    broken = {**json.loads(before), "status": "failed", "error": "OSError: no space"}
    first.write_text(json.dumps({**broken, "validation": None}))
    main([str(tmp_path / "s")])
    assert json.loads(first.read_text())["status"] == "failed"
    main([str(tmp_path / "s"), "--retry"])
    assert (
        json.loads(first.read_text())["report"]["curves"] == json.loads(before)["report"]["curves"]
    )
    main([str(tmp_path / "s"), "--show"])
    assert "FedProx" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main([str(tmp_path / "s"), "--again", first.stem])
    changed = json.loads(before)
    changed["report"]["curves"]["test_accuracy"][0] += 1e-9
    first.write_text(json.dumps(changed))
    with pytest.raises(SystemExit, match="1"):
        main([str(tmp_path / "s"), "--again", first.stem])
    for wrong in ([str(tmp_path / "nothing")], [str(tmp_path / "s"), "--again", "x"]):
        with pytest.raises(SystemExit, match="2"):
            main(wrong)
    assert "Expected folder to hold a study" in capsys.readouterr().err


def test_a_plan_can_be_written_for_others(tmp_path: Path) -> None:
    how = {**HOW, "workers": "later"}
    found = fgl.study(METHODS, {"a": tiny}, folder=tmp_path, **how)
    assert found.raw() == [] and "not finished: 0 of at most 10 runs" in repr(found)
    assert "--" in found.to_latex()
    work(tmp_path)  # another process would read the plan, too
    assert len(Study(tmp_path).raw()) == 10


# Tables, from records that are written by hand.


def made_up(
    folder: Path, scores: dict[str, dict[str, list[float]]], metric: str = "test_accuracy"
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
            record = {"metric": metric, "at": "best_val", "report": report, "seed": seed}
            record |= {"status": "finished", "alone": False, "processor": 1.0}
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
    text = repr(found)
    assert f"{100 * head.mean:+.2f} [{100 * head.low:+.2f}, {100 * head.high:+.2f}]" in text
    row = next(line for line in text.splitlines() if line.startswith("b") and " Local " in line)
    assert " - " in row  # no bytes, since nothing would be sent
    assert "nothing follows for other data" in text and "power of 80 %" in text
    latex = found.to_latex().splitlines()
    mean = 100 * statistics.fmean(scores["b"]["good"])
    assert latex[2] == r"Method & a\_1 & b \\"
    assert rf"$\mathbf{{{mean:.1f} \pm " in latex[5] and latex[5].count("^{*}") == 2
    assert found.to_latex(best="none", percent=False).count("mathbf") == 0
    assert f"{mean / 100:.3f}" in found.to_latex(percent=False)


def test_errors_are_better_when_small(tmp_path: Path) -> None:
    scores = {"a": {"FedAvg": [1.0, 1.2, 1.4], "good": [0.8, 1.01, 1.2]}}
    found = made_up(tmp_path, scores, "pooled_test_rmse")
    assert not found.in_points("a") and found.tests["a", "good"].better > 0.5
    latex = found.to_latex().splitlines()
    assert "mathbf" in latex[5] and "1.003" in latex[5] and "mathbf" not in latex[4]
    assert "-0.1967" in repr(found) and "points" not in repr(found)


def test_settings_with_different_metrics_have_no_common_mean(tmp_path: Path) -> None:
    found = made_up(tmp_path, {s: {"x": [0.1, 0.3], "y": [0.2, 0.5]} for s in "ab"})
    for run in found._tests["b", "x"].values():
        run["metric"] = "test_auc"
        run["report"]["metrics"]["test_auc"] = {"best_val": 0.5}
    assert found.mean_gains("y") == {} and "mean of 2 settings" not in repr(found)


def test_a_study_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = made_up(tmp_path, {"a": {"FedAvg": [0.5, 0.6], "x": [0.7, 0.9]}})
    figure = found.plot(tmp_path / "new" / "curves.png")
    assert list(figure.axes[0].lines[1].get_ydata()) == pytest.approx([0.1, 0.25, 0.8])
    assert (tmp_path / "new" / "curves.png").stat().st_size > 1000
    axis = found.plot(what="differences").axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["x"]


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
def test_any_number_of_workers_and_a_notebook_give_the_same_bits(
    alone: dict[str, Any], tmp_path: Path
) -> None:
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
def test_workers_cost_little_and_share_the_work(tmp_path: Path) -> None:
    script = SCRIPT.replace("trials=3", "trials=12").replace("range(3)", "range(12)")
    (tmp_path / "script.py").write_text(script)
    folder = tmp_path / "s"
    env = environment(folder, 2, NAP="0.5")
    subprocess.run([sys.executable, str(tmp_path / "script.py")], env=env, check=True)
    records = [json.loads(p.read_text()) for p in (folder / "runs").glob("*.json")]
    slow = [r for r in records if r["method"] == "slow" and r["own"]]
    tests = [r for r in slow if r["rounds"] == 2 and r["seed"] != 1000]
    first = min(r["ended"] - r["seconds"] for r in tests)
    wall = max(r["ended"] for r in tests) - first
    assert sum(r["seconds"] for r in tests) / wall > 1.6  # naps, which need no second core
    before = os.times()
    join = [sys.executable, "-m", "fgl.study", str(folder)]
    subprocess.run(join, env=env, check=True)  # nothing is missing
    after = os.times()
    spent = after.children_user - before.children_user
    assert spent + after.children_system - before.children_system < 5


@pytest.mark.slow
def test_a_worker_that_cannot_start_is_told(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "s")
    next((tmp_path / "s" / "runs").glob("*.json")).unlink()
    (tmp_path / "s" / "plan.pkl").write_bytes(b"")
    from fgl.study.crew import finish

    with pytest.raises(RuntimeError, match="ended with .* before its first run"):
        finish(tmp_path / "s", Study(folder).plan, 1)


def test_an_interrupt_gives_the_run_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, store = Study(folder).plan, Store(folder)
    job = next(plan.jobs(store))
    content = store.path(job.id).read_text()
    store.path(job.id).unlink()

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["fgl.study.work"], "execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        work(folder, plan=plan)
    assert not list((folder / "locks").glob("*.begun"))
    store.path(job.id).write_text(content)


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


def test_equal_clients_are_cut_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials load the same clients; another seed, graph or number of clients is cut anew."""
    from fgl.tasks import settings

    cuts: list[int] = []

    def cut(graph: Any, num_clients: int, *, seed: int) -> Any:
        cuts.append(seed)
        return fgl.data.partitions.random_partition(graph, num_clients, seed=seed)

    monkeypatch.setitem(settings.PARTITIONS, "louvain", cut)
    small = fgl.tasks.Nodes(clients=2, hidden=4, model="gcn")
    first = small.load(0)
    other_rate = fgl.tasks.Nodes(clients=2, hidden=4, model="gcn", local=fgl.tasks.Local(lr=9.0))
    again = other_rate.load(0)
    assert cuts == [0]
    pairs = zip(first.clients, again.clients, strict=True)
    assert all(a.edge_index.equal(b.edge_index) and a.y.equal(b.y) for a, b in pairs)
    small.load(1)
    fgl.tasks.Nodes(clients=3, hidden=4, model="gcn").load(0)
    assert cuts == [0, 1, 0]
    parts = settings.partitioned("louvain", fgl.data.load("synthetic"), 2, seed=0)
    parts[0].zero_()  # a caller's change is its own
    assert settings.partitioned("louvain", fgl.data.load("synthetic"), 2, seed=0)[0].any()


@pytest.mark.slow
def test_a_ray_cluster_gives_the_same_bits(folder: Path, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False)
    try:
        found = fgl.study(
            METHODS, {"a": SETTING}, folder=tmp_path, **{**HOW, "workers": "ray", "seeds": [0, 1]}
        )
    finally:
        ray.shutdown()
    theirs, mine = numbers(tmp_path), numbers(folder)
    assert len(theirs) == 10 and all(mine[name] == value for name, value in theirs.items())
    assert len(found.raw()) == 10
