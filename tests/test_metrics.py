"""Metrics against loops; against scikit-learn in `truth/`."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from federations import refuses
from sklearn.metrics import r2_score

import fgl
from fgl.losses import cross_entropy
from fgl.metrics import accuracy, auc, macro_f1, mae, mean_auc, mean_average_precision, r2, rmse
from fgl.metrics.classes import class_counts, f1_of, hit_counts, hit_rows
from fgl.targets import REGRESSION


def test_only_the_masked_nodes_count() -> None:
    assert (
        accuracy(torch.eye(4), torch.tensor([0, 1, 0, 0]), torch.tensor([1, 1, 0, 0]).bool()) == 1
    )


def test_nothing_masked_in_is_nan() -> None:
    assert math.isnan(accuracy(torch.eye(4), torch.arange(4), torch.zeros(4, dtype=torch.bool)))
    assert math.isnan(accuracy(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)))


def test_a_million_positives_are_counted_exactly() -> None:
    """In single precision neither 2^24 + 1 nor a product of counts is."""
    y = torch.arange(1_000_000) % 2 == 0
    scores = torch.arange(1_000_000)
    assert auc(scores, y) == (500_000 * 499_999 / 2) / 500_000**2


@pytest.mark.parametrize("metric", [auc, fgl.metrics.average_precision])
@pytest.mark.parametrize(("scores", "y", "message"), [
    ([0.0, 1.0], [1, 1], "positives and negatives, but got 2 and 0"),
    ([0.0, 1.0], [0, 0], "positives and negatives, but got 0 and 2"),
    ([], [], "positives and negatives, but got 0 and 0"),
    ([0.0, 1.0], [0, 2], "y to be 0 or 1"),
    ([0.0, math.nan], [0, 1], "scores to be numbers, but got NaN"),
])  # fmt: skip
def test_malformed_ranking(metric: Any, scores: Any, y: Any, message: str) -> None:
    refuses(message, lambda: metric(torch.tensor(scores), torch.tensor(y)))


def test_a_logit_that_is_no_number_is_a_miss() -> None:
    logits = torch.tensor([[torch.nan, 0.0], [2.0, torch.nan], [1.0, 0.0], [torch.inf, 0.0]])
    assert accuracy(logits, torch.tensor([0, 0, 0, 0])) == 0.5
    assert accuracy(torch.full((4, 3), torch.nan), torch.tensor([0, 0, 0, 1])) == 0.0


def test_macro_f1_of_bad_rows() -> None:
    """A row with a NaN is a miss of its class, and a prediction of none."""
    logits = torch.tensor([[1.0, 0.0], [torch.nan, 0.0], [0.0, 1.0]])
    assert macro_f1(logits, torch.tensor([0, 0, 1])) == pytest.approx((2 / 3 + 1) / 2)
    assert math.isnan(macro_f1(logits, torch.tensor([0, 0, 1]), torch.zeros(3).bool()))
    for label in (-1, 2):
        with pytest.raises(ValueError, match=r"Expected y to be in \[0, 2\)"):
            macro_f1(logits, torch.tensor([0, label, 1]))
    refuses("y to have shape", lambda: macro_f1(logits, torch.tensor([0])))
    with pytest.raises(TypeError, match="mask to be a bool tensor"):
        macro_f1(logits, torch.tensor([0, 0, 1]), torch.ones(3))
    with pytest.raises(ValueError, match=r"y to be in \[0, 2\), but got another label"):
        f1_of(torch.tensor([[1, 0, 0], [1, 1, 0], [2, 0, 1]]))  # counts of a label more


def test_r2_of_answers_that_are_all_the_same() -> None:
    y = torch.full((3,), 2.0, dtype=torch.float64)
    for out in (y, y + 1, y + torch.tensor([0.0, 0.0, 1e-6])):
        assert float(r2(out, y)) == r2_score(y.numpy(), out.numpy())
    y = torch.full((3,), 0.1, dtype=torch.float64)  # its mean differs from it by rounding
    assert float(r2(y + 1, y)) == 0 and float(r2(y, y)) == 1


@pytest.mark.parametrize("metric", [rmse, mae, r2, mean_auc, mean_average_precision])
def test_of_tasks_nothing_to_score_and_bad_input(metric: Any) -> None:
    nothing = torch.full((5, 2), torch.nan)
    assert math.isnan(metric(torch.zeros(5, 2), nothing))
    assert math.isnan(metric(torch.zeros(0, 2), nothing[:0]))
    y = torch.tensor([0.0, 1.0, 0.0])
    assert math.isnan(metric(y, y, torch.zeros(3, dtype=torch.bool)))
    assert not math.isnan(
        metric(torch.tensor([0.0, 1.0, torch.nan]), y * torch.tensor([1, 1, torch.nan]))
    )
    for given, kind, message in (
        ((y, y.long()), TypeError, "y to be floating point, but got torch.int64"),
        ((y, y, y), TypeError, "mask to be a bool tensor, but got torch.float32"),
        ((y, y, torch.ones(2).bool()), ValueError, r"mask to have shape \[3\], but got \[2\]"),
        ((torch.zeros(3, 3), y), ValueError, r"shape \[3\] or \[3, 1\] as y has \[3\]"),
    ):
        with pytest.raises(kind, match=message):
            metric(*given)


def test_an_answer_that_is_neither_yes_nor_no() -> None:
    for wrong in (0.5, 2.0, -1.0):
        y = torch.tensor([0.0, 1.0, wrong])
        with pytest.raises(ValueError, match=f"y to be 0, 1 or NaN, but got {wrong:g}: "):
            mean_auc(torch.zeros(3), y)
    assert mean_auc(torch.zeros(3), y, torch.tensor([True, True, False])) == 0.5


def test_a_model_that_says_nan_is_as_wrong_as_can_be() -> None:
    """As in accuracy, so that NaN means that there is nothing to score."""
    y, said = torch.tensor([0.0, 1.0, 0.0, 1.0]), torch.full((4,), torch.nan)
    assert rmse(said, y) == mae(said, y) == math.inf and r2(said, y) == -math.inf
    assert mean_auc(said, y) == 0 and mean_average_precision(said, y) == 0.5
    some = torch.tensor([0.0, torch.nan, 0.0, 1.0])  # one of two positives loses to both negatives
    assert mean_auc(some, y) == 0.5 and rmse(some, y) == math.inf
    assert mean_auc(torch.tensor([0.0, 2.0, torch.nan, 1.0]), y) == 0.5


def test_one_logit_is_no_score_of_classes() -> None:
    """Each row would predict class 0, and its cross-entropy would be 0."""
    y = torch.tensor([0, 1, 0])
    for metric in (accuracy, macro_f1, hit_rows, hit_counts, class_counts, cross_entropy):
        for shape in ([3, 1], [3], [3, 1, 3]):
            with pytest.raises(ValueError, match=rf"logits .*\[{', '.join(map(str, shape))}\]"):
                metric(torch.zeros(shape), y)


def test_a_label_that_is_no_class_is_told() -> None:
    """It would be a miss in silence, as 1 to 3 in place of 0 to 2 are."""
    for y, kind in (([1, 2, 3], ValueError), ([-1, 0, 1], ValueError), ([0.0, 1.0], TypeError)):
        for metric in (accuracy, macro_f1, hit_counts, class_counts):
            with pytest.raises(kind, match=rf"y .* got ({y[0]}|{y[-1]}|torch.float32)"):
                metric(torch.eye(3)[: len(y)], torch.tensor(y))
        unlabelled = torch.tensor([0, -1, 9])
        assert accuracy(torch.eye(3), unlabelled, torch.tensor([True, False, False])) == 1


def test_a_metric_of_ones_own_that_is_no_number_is_named() -> None:
    """Two numbers, one per class, were read as a sum and its divisor."""
    graph = fgl.data.splits.random_split(fgl.data.large_graph(40, 90, num_features=3))
    graph = graph.replace(y=graph.y.float(), num_classes=None)  # type: ignore[union-attr]
    model, clients = fgl.nn.GCN(3, 4, 1), [graph]
    for bad in (None, "0.5", torch.tensor([0.5, 0.5]), torch.zeros(3, 2), (1, 2), [0.5], 1j):
        metrics = {"rmse": rmse, "mine": lambda *_, bad=bad: bad}
        target = replace(REGRESSION, metrics=metrics, lower={"rmse"})
        task = fgl.tasks.node_task(None, clients, model, fgl.Training(num_steps=0), target=target)
        on = fgl.evaluate_on(task.fedavg, graph, clients, target=target)
        pooled = fgl.tasks.evaluate_pooled(task.fedavg, clients, target=target)
        for evaluate in (None, on, pooled):
            with pytest.raises(TypeError, match="metric .*test_mine to return a number"):
                fgl.run(task.fedavg, task, num_rounds=1, evaluate=evaluate)
