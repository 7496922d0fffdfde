"""Each client's own scores: beside the means, the worst of them, their spread, and who has none."""

import math
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from conformance import TASKS, case
from federations import SGD, graph, graphs, model, refuses, same, seeded

import fgl
from fgl.experiment import report, spread
from fgl.federation import Round
from fgl.federation.evaluate import merging
from fgl.targets import ANSWERS, REGRESSION, Target
from fgl.tasks import node_task

one = partial(fgl.run, num_rounds=1, clients_at_once=1, seed=3)


def own_nodes(clients: Any, **how: Any) -> fgl.tasks.Task:
    return node_task(None, clients, model(), SGD, **how)


@pytest.mark.filterwarnings("ignore:Clients .* have no", "ignore:Secure sum")
def test_every_task_has_the_same_means_and_each_client_beside_them() -> None:
    for name in TASKS:
        method, task = case("fedper apart" if name == "clients that differ" else "fedavg", name)
        plain, each = one(method, task).history[0], one(method, task, each=True).history[0]
        metrics = each.metrics
        assert same({k: metrics[k] for k in plain.metrics}, plain.metrics), name
        of_clients = {k: v for k, v in metrics.items() if "/" in k}
        assert of_clients, name
        for base in {k.rpartition("/")[0] for k in of_clients}:
            values = [v for k, v in of_clients.items() if k.rpartition("/")[0] == base]
            errs = base.split("@")[0].endswith(("rmse", "mae", "mape", "loss", "error"))
            worst = max if errs else min
            assert metrics[f"worst_{base}"] == worst(values), (name, base)
            assert metrics[base] == pytest.approx(sum(values) / len(values)), (name, base)


def test_a_client_is_scored_as_by_a_plain_loop() -> None:
    clients = graphs()
    task = own_nodes(clients)
    method = fgl.methods.local(task.fedavg)
    result = one(method, task, each=True)
    for k, own in enumerate(clients):
        right = result.model_of(k)(own.x, own.adj).argmax(1) == own.y
        metrics = result.history[0].metrics
        assert metrics[f"test_accuracy/{k}"] == pytest.approx(
            float(right[own.test_mask].float().mean())
        )
    on_own = fgl.evaluate_on(method, clients, clients, each=True)(
        result.outbox, result.client_states
    )
    for k in range(4):
        assert on_own[f"local_accuracy/{k}"] == metrics[f"test_accuracy/{k}"]
    whole = graph(40)
    on_one = fgl.evaluate_on(method, whole, clients, each=True)(result.outbox, result.client_states)
    right = result.model_of(2)(whole.x, whole.adj).argmax(1) == whole.y
    assert on_one["test_accuracy/2"] == pytest.approx(float(right[whole.test_mask].float().mean()))
    for others in (clients[:3], [*clients, whole]):
        with pytest.raises(ValueError, match=f"graph to be .* 4 clients, but got {len(others)}"):
            fgl.evaluate_on(method, others, clients)


def test_the_model_at_the_start_of_a_round_is_scored_too() -> None:
    net, clients = model(dropout=0.0), graphs()[:2]
    method, score = fgl.fedavg(net), fgl.tasks.node_scores(net)
    first = method.initial()
    other = {name: torch.randn(value.shape, generator=seeded()) for name, value in first.items()}
    outbox = {client: {"model": first} for client in (0, 1)}
    evaluate = fgl.tasks.evaluate_own(score, method, clients)
    found = evaluate(outbox, {0: {"adopted": other}, 1: {}})
    one, two, third = (
        score(params, own)["test_accuracy"]
        for params, own in ((first, clients[0]), (first, clients[1]), (other, clients[0]))
    )
    assert one != third and found["test_accuracy"] == pytest.approx((one + two) / 2)
    assert found["test_accuracy_before"] == pytest.approx((third + two) / 2)
    assert found["scored_clients"] == 2 and "test_accuracy_before" not in evaluate(outbox, {})
    refuses("client 0's adopted model", lambda: evaluate(outbox, {0: {"adopted": {}}, 1: {}}))
    numbers = clients[0].replace(y=torch.ones(12), num_classes=None)
    for call in (
        partial(fgl.tasks.evaluate_pooled, method, [numbers]),
        partial(score, first, numbers),
    ):
        with pytest.raises(TypeError, match="but got fgl.targets.CLASSES"):
            call()


def test_a_client_without_a_score_is_named_with_the_reason() -> None:
    classes, even, third = graphs()[:2], (torch.arange(12.0) // 3) % 2, torch.arange(12) % 3
    every = {"train_mask": third == 0, "val_mask": third == 1, "test_mask": third == 2}
    numbers = [own.replace(y=torch.ones(own.num_nodes), num_classes=None) for own in classes]
    first = numbers[0].replace(y=even, **every)
    empty = classes[1].replace(test_mask=torch.zeros(20, dtype=torch.bool))
    unknown = numbers[1].replace(y=torch.full((20,), math.nan))
    cases: list[tuple[list[fgl.Graph], Any, str]] = [
        ([classes[0], empty], fgl.targets.CLASSES, "no example in test_mask"),
        ([first, unknown], REGRESSION, "no known answer"),
        ([first, numbers[1]], ANSWERS, "known answers are all 1"),
    ]
    for clients, target, reason in cases:
        width = model() if target is fgl.targets.CLASSES else fgl.nn.GCN(6, 4, 1)
        task = node_task(None, clients, width, SGD, target=target)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = fgl.run(task.fedavg, task, num_rounds=2, each=True)
        lines = [str(w.message) for w in caught if "have no test" in str(w.message)]
        lines = [line for line in lines if line.startswith("Clients")]
        assert len(lines) == len({line.split(":")[0] for line in lines}) >= 1  # once in a run
        assert any("[1]" in line and reason in line for line in lines), lines
        metrics = result.history[-1].metrics
        name = f"test_{target.first}"
        assert f"{name}/0" in metrics
        assert f"{name}/1" not in metrics
        assert metrics[f"worst_{name}"] == metrics[f"{name}/0"]
        assert spread(result, name)["clients"] == 1


def test_the_worst_is_the_largest_where_less_is_better_and_nan_where_one_diverged() -> None:
    scores = {
        0: {"test_rmse": 1.0, "test_gap": 3.0, "auc": 0.2},
        1: {"test_rmse": 2.0, "test_gap": 1.0, "auc": math.nan},
    }
    merged = merging(True, None, {"gap"})(scores)
    assert (merged["worst_test_rmse"], merged["worst_test_gap"]) == (2.0, 3.0)
    assert math.isnan(merged["worst_auc"])
    ahead = merging(True, None, {"gap"})({0: {"test_gap@3": 3.0}, 1: {"test_gap@3": 1.0}})
    assert ahead["worst_test_gap@3"] == 3.0
    target = Target(REGRESSION.loss, {"gap": REGRESSION.metrics["mae"]}, frozenset({"gap"}))
    clients = [own.replace(y=own.y.float(), num_classes=None) for own in graphs()]  # type: ignore[union-attr]
    task = node_task(None, clients, fgl.nn.GCN(6, 4, 1), SGD, target=target)
    metrics = one(task.fedavg, task, each=True).history[0].metrics
    gaps = [metrics[f"test_gap/{k}"] for k in range(4)]
    assert metrics["worst_test_gap"] == max(gaps)
    result = one(task.fedavg, task, num_rounds=3, each=True)
    each = np.array([[r.metrics[f"test_gap/{k}"] for k in range(4)] for r in result.history])
    assert spread(result, "test_gap")["worst"] == each[result.best().round].max()
    how: Any = {"recipe": "", "dataset": "", "clients": 4, "rounds": 3, "seed": 3, "config": {}}
    found = report(result, **how, select=task.select)["metrics"]["test_gap"]["best_test"]
    assert found == pytest.approx(each.min(0).mean())


def test_a_second_metric_of_a_target_is_better_when_small_if_the_target_says_so() -> None:
    """The target's `lower` holds for metrics that select no round; "miss" is no "neg_rmse"."""
    mae = REGRESSION.metrics["mae"]
    metrics = {"fit": lambda *a: -mae(*a), "miss": mae, "neg_rmse": lambda *a: -mae(*a)}
    target = Target(REGRESSION.loss, metrics, {"miss"})
    clients = [own.replace(y=own.y.float(), num_classes=None) for own in graphs()]  # type: ignore[union-attr]
    task = node_task(None, clients, fgl.nn.GCN(6, 4, 1), SGD, target=target)
    result = one(task.fedavg, task, num_rounds=3, each=True)
    for name, worst in (("miss", max), ("fit", min), ("neg_rmse", min)):
        each = np.array([[r.metrics[f"test_{name}/{k}"] for k in range(4)] for r in result.history])
        assert spread(result, f"test_{name}")["worst"] == worst(each[result.best().round]), name
        top = each.min(0) if worst is max else each.max(0)
        how: Any = {"recipe": "", "dataset": "", "clients": 4, "rounds": 3, "seed": 3, "config": {}}
        found = report(result, **how, select=task.select)["metrics"][f"test_{name}"]["best_test"]
        assert found == pytest.approx(top.mean()), name
    refuses('"-test_miss"', lambda: result.best("test_miss"))
    assert result.best("test_neg_rmse") is result.best("-test_miss")


def test_a_metric_that_has_the_name_of_a_worst_one_does_not_replace_it() -> None:
    scores = {0: {"auc": 0.9}, 1: {"auc": 0.5, "worst_auc": 1.0, "auc/0": 0.0}}
    with pytest.warns(UserWarning, match="'auc/0'"):
        merged = merging(True)(scores)
    assert (merged["worst_auc"], merged["auc/0"]) == (0.5, 0.9)


def test_the_worst_client_selects_the_round() -> None:
    task = replace(own_nodes(graphs()), select="worst_val_accuracy")
    result = fgl.run(task.fedavg, task, num_rounds=6, seed=1)
    worst = [min(r.metrics[f"val_accuracy/{k}"] for k in range(4)) for r in result.history]
    assert result.selects == "worst_val_accuracy"
    assert worst[result.best().round] == max(worst)
    comparison = fgl.compare({"a": lambda f: f}, lambda seed: task, num_rounds=2, seeds=[0])
    assert comparison.metric == "worst_test_accuracy"


def test_the_spread_is_numpys() -> None:
    values = torch.rand(23, generator=torch.Generator().manual_seed(0)).tolist()
    record = Round(0, [], metrics={f"test_accuracy/{k}": v for k, v in enumerate(values)})
    groups = ["north" if k % 3 else "south" for k in range(23)]
    found = spread(record, groups=groups)
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["tenth"] == pytest.approx(np.quantile(values, 0.1))
    assert found["deviation"] == pytest.approx(np.std(values))
    assert (found["worst"], found["worst_client"]) == (min(values), int(np.argmin(values)))
    assert found["groups"]["south"] == pytest.approx(np.mean(values[::3]))
    record = Round(0, [], metrics={f"test_rmse/{k}": v for k, v in enumerate(values)})
    found = spread(record, "test_rmse")
    assert (found["worst"], found["tenth"]) == (
        max(values),
        pytest.approx(np.quantile(values, 0.9)),
    )
    record.metrics["test_rmse/4"] = math.nan
    assert spread(record, "test_rmse")["worst_client"] == 4


def test_a_spread_of_nothing_is_refused() -> None:
    record = Round(0, [0], metrics={"test_accuracy": 0.5, "test_auc/0": 0.5, "test_auc/3": 0.5})
    a_result = fgl.Result({k: {} for k in range(4)}, {}, {}, [record])
    for how, got in [
        ({"metric": "test_acc"}, "test_acc"),
        ({"metric": "test_auc", "groups": ["a"]}, "each of 4"),
        ({"run": a_result, "metric": "test_auc", "groups": ["a"] * 5}, "each of 4 .* 5"),
        ({"run": Round(0, [0], metrics={"test_accuracy": 0.5})}, "each=True"),
        ({"run": Round(0, [0], metrics={"test_auc/north": 0.5})}, "each=True"),
        ({"run": fgl.Result({}, {}, {}, [])}, "none"),
    ]:
        with pytest.raises(ValueError, match=got):
            spread(**{"run": record, **how})  # type: ignore[arg-type]


def test_a_dot_for_each_client_is_drawn() -> None:
    pytest.importorskip("matplotlib")
    result = one(*(lambda t: (t.fedavg, t))(own_nodes(graphs())), each=True)
    figure = fgl.plot({"a": result, "b": [result, result]}, clients=True)
    first, second = figure.axes[0].lines
    wanted = [result.history[0].metrics[f"test_accuracy/{k}"] for k in range(4)]
    assert list(first.get_ydata()) == wanted
    assert list(second.get_ydata()) == wanted * 2
    figure.draw_without_rendering()
    label = figure.axes[0].yaxis.label.get_window_extent()
    assert figure.bbox.y0 < label.y0 and label.y1 < figure.bbox.y1  # no word is cut off
    refuses("test_auc", lambda: fgl.plot(result, metrics=["test_auc"], clients=True))
