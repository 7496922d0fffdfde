"""Metrics against scikit-learn's, for every name of `fgl.metrics`.

A name without a row in `THEIRS` or a reason in `PARTS` fails.

Mutants that this file finds (each was tried):
- `_area` in which a positive and a negative of one score count as won.
- `macro_f1` that leaves out a class with predictions and no labels.
- `hit_rate` with a list that is longer by one.
- `rmse` without the root.
- `r2` about the mean of all tasks' answers.

Faults that the suite let pass at 820a2c65, before this file stood (their texts, and the tests that
ran, in `benchmarks/results/truth_mutants.json`; `mutants.py --seeded` puts them in):
- one logit a row is class 0: stood in `hit_rows`.
- a label that no column has is a miss: stood in `accuracy`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fgl import metrics

skl = pytest.importorskip("sklearn.metrics")
KINDS = ("distinct", "ties", "constant")


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def ranked(kind: str) -> tuple[Tensor, Tensor]:
    """Scores of 5,000 answers, with many, a few or no ties, and the answers."""
    y = torch.rand(5000, generator=drawn(0)) < 0.4
    scores = torch.randn(5000, generator=drawn(1)) + y
    scores = (2 * scores).round() if kind == "ties" else scores
    return scores * (kind != "constant"), y


def of_ranking(ours: Any, theirs: Any) -> None:
    for scores, y in map(ranked, KINDS):
        for labels in (y, y.long(), y.float()):
            got = ours(scores, labels)
            assert got == pytest.approx(theirs(y.numpy(), scores.numpy()), abs=1e-12)


def of_classes(ours: Any, theirs: Any) -> None:
    """Some classes have no node, and some nodes no mask."""
    for classes in (2, 5, 9):
        logits = torch.randn(30, classes, generator=drawn(classes))
        y = torch.randint(min(classes, 4), (30,), generator=drawn(2))
        for mask in (torch.ones(30).bool(), torch.rand(30, generator=drawn(3)) < 0.5):
            want = theirs(y[mask].numpy(), logits.argmax(1)[mask].numpy())
            assert ours(logits, y, mask) == pytest.approx(want, abs=1e-12)
        assert ours(logits, y) == pytest.approx(theirs(y.numpy(), logits.argmax(1).numpy()))


def of_tasks(ours: Any, theirs: Any) -> None:
    """A third of the answers is not known; then all are."""
    binary = theirs in (skl.roc_auc_score, skl.average_precision_score)
    y = torch.randn(40, 4, generator=drawn(4))
    y = (y > 0.3).float() if binary else y
    out = (y + torch.randn(40, 4, generator=drawn(5))).round(decimals=1)  # with ties
    mask = torch.rand(40, generator=drawn(6)) < 0.7
    assert float(ours(out, y)) == pytest.approx(by_task(theirs, out, y, mask | True), rel=1e-12)
    y[torch.rand(40, 4, generator=drawn(7)) < 0.3] = torch.nan
    for given in (mask, None):
        want = by_task(theirs, out, y, mask | (given is None))
        assert float(ours(out, y, given)) == pytest.approx(want, rel=1e-12)
    for one in ((out[:, 0], y[:, 0]), (out[:, :1], y[:, 0]), (out[:, :1], y[:, :1])):
        want = by_task(theirs, out[:, :1], y[:, :1], mask | True)
        assert float(ours(*one)) == pytest.approx(want, rel=1e-12)


def by_task(metric: Any, out: Tensor, y: Tensor, mask: Tensor) -> float:
    """A metric of scikit-learn for each task on what is known, then the mean."""
    scores = []
    for j in range(y.shape[1]):
        rows = [v for v in range(len(y)) if mask[v] and not math.isnan(y[v, j])]
        scores.append(metric(y[rows, j].double().numpy(), out[rows, j].double().numpy()))
    return float(sum(scores) / len(scores))


def of_lists(ours: Any, theirs: Any) -> None:
    """The positive is the first of eleven classes."""
    scores = torch.randn(200, 11, generator=drawn(8))
    for k in (1, 3, 10):
        want = theirs([0] * 200, scores.numpy(), k=k, labels=range(11))
        assert ours(scores[:, 0], scores[:, 1:], k=k) == pytest.approx(want, abs=1e-12)


def macro_f1(y: Any, predicted: Any) -> float:
    return float(skl.f1_score(y, predicted, average="macro"))


THEIRS: dict[str, tuple[Callable[[Any, Any], None], Any]] = {
    "accuracy": (of_classes, skl.accuracy_score),
    "macro_f1": (of_classes, macro_f1),
    "auc": (of_ranking, skl.roc_auc_score),
    "average_precision": (of_ranking, skl.average_precision_score),
    "mean_auc": (of_tasks, skl.roc_auc_score),
    "mean_average_precision": (of_tasks, skl.average_precision_score),
    "rmse": (of_tasks, skl.root_mean_squared_error),
    "mae": (of_tasks, skl.mean_absolute_error),
    "r2": (of_tasks, skl.r2_score),
    "hit_rate": (of_lists, skl.top_k_accuracy_score),
}
PARTS = {"hit_rows": "of accuracy", "mape": "below: scikit-learn divides by 0 too"}


def test_every_metric_has_a_row() -> None:
    assert {*metrics.__all__} == THEIRS.keys() | PARTS.keys()


@pytest.mark.parametrize("name", THEIRS)
def test_a_metric_is_scikit_learns(name: str) -> None:
    compare, theirs = THEIRS[name]
    compare(getattr(metrics, name), theirs)


def test_what_scikit_learn_would_score_otherwise_is_refused() -> None:
    """One logit a row has a sign and no class; a label beyond the columns is no miss."""
    for ours in (metrics.accuracy, metrics.macro_f1):
        with pytest.raises(ValueError, match="logits to have"):
            ours(torch.tensor([[-1.0], [2.0]]), torch.tensor([0, 0]))
        for y in ([0, 3], [-1, 0]):
            with pytest.raises(ValueError, match="y to be in"):
                ours(torch.eye(3)[:2], torch.tensor(y))


def test_mape_is_scikit_learns_of_answers_that_are_not_zero() -> None:
    y = torch.tensor([[2.0], [-4.0], [0.0], [math.nan], [8.0]])
    out = torch.tensor([[1.0], [-5.0], [3.0], [7.0], [6.0]])
    rows = [0, 1, 4]
    want = skl.mean_absolute_percentage_error(y[rows].numpy(), out[rows].numpy())
    assert float(metrics.mape(out, y)) == pytest.approx(want, rel=1e-6)


def test_both_of_one_sort_are_the_two() -> None:
    for scores, y in map(ranked, KINDS):
        both = metrics.ranking.auc_and_average_precision(scores, y)
        assert both == (metrics.auc(scores, y), metrics.average_precision(scores, y))
