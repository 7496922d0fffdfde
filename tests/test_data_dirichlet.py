"""The label-skewed partition of graphs and the folds of each client."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from federations import refuses
from sklearn.model_selection import StratifiedKFold
from test_graph_batch import collection

from fgl.data.partitions import dirichlet_partition, gpfl_partition
from fgl.data.splits import balanced_classes, fold_clients, stratified_folds

Y = torch.tensor([0] * 60 + [1] * 40 + [2] * 27)


def test_equals_the_rule_in_loops() -> None:
    rng = np.random.default_rng(3)
    mix = rng.dirichlet([0.3] * 3, 4)
    for row in mix:
        for j, share in enumerate(list(row)):
            if share > 0.8:
                row += (share - 0.8) / 2
                row[j] = 0.8
    left = {c: [i for i in range(127) if Y[i] == c] for c in range(3)}
    parts: list[list[int]] = [[], [], [], []]
    sizes = [32, 32, 32, 31]
    while any(left.values()):
        client = rng.choice([k for k in range(4) if len(parts[k]) < sizes[k]])
        share = [mix[client][c] if left[c] else 0 for c in range(3)]
        label = rng.choice(3, p=np.array(share) / sum(share))
        parts[client].append(left[label].pop())
    got = dirichlet_partition(Y, 4, alpha=0.3, cap=0.8, seed=3)
    assert [part.tolist() for part in got] == [sorted(part) for part in parts]


def largest_shares(y: Any, parts: Any) -> float:
    return float(np.mean([np.bincount(y[np.array(part)]).max() / len(part) for part in parts]))


def openfgl(y: Any, num_clients: int, rng: np.random.Generator) -> list[list[int]]:
    """OpenFGL's rule: a client that has its n / clients gets nothing of the next classes."""
    parts: list[list[int]] = [[] for _ in range(num_clients)]
    for label in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == label))
        share = rng.dirichlet([0.1] * num_clients)
        share *= [len(part) < len(y) / num_clients for part in parts]
        ends = (np.cumsum(share / share.sum()) * len(members)).astype(int)
        for part, new in zip(parts, np.split(members, ends[:-1]), strict=True):
            part += new.tolist()
    return parts


def test_unequal_clients_are_as_skewed_as_openfgls_and_as_the_draws() -> None:
    y, rng, shares = np.arange(700) % 7, np.random.default_rng(0), []
    for seed in range(40):
        how: Any = {"alpha": 0.1, "equal_sizes": False, "seed": seed}
        got = [part.tolist() for part in dirichlet_partition(torch.from_numpy(y), 10, **how)]
        assert sorted(node for part in got for node in part) == list(range(700))
        assert max(map(len, got)) > 2 * min(map(len, got)) > 0
        want = [part for part in openfgl(y, 10, rng) if part]
        shares.append([largest_shares(y, got), largest_shares(y, want)])
    drawn = rng.dirichlet([0.1] * 7, 9999).max(1).mean()
    ours, theirs = np.mean(shares, 0)
    assert abs(ours - theirs) < 0.03 and abs(ours - drawn) < 0.04
    with pytest.raises(ValueError, match="cap to be left out beside equal_sizes=False"):
        dirichlet_partition(Y, 3, alpha=1.0, cap=0.5, equal_sizes=False)


def test_labels_need_not_be_contiguous_and_one_class_is_enough() -> None:
    assert len(dirichlet_partition(Y * 7 + 3, 5, alpha=1.0)) == 5
    assert [p.numel() for p in dirichlet_partition(torch.zeros(5).long(), 2, alpha=1.0)] == [3, 2]


def authors_rule(y: list[int], num_clients: int, alpha: float) -> list[list[int]]:
    """The public code's rule, one draw after the other."""
    rng = np.random.RandomState(0)
    names = sorted(set(y))
    mix = rng.dirichlet([alpha] * len(names), num_clients).tolist()
    for row in mix:
        above = [j for j, share in enumerate(row) if share > 0.95]
        for j in above:
            for other in range(len(row)):
                row[other] += 0 if other == j else (row[j] - 0.95) / (len(row) - 1)
            row[j] = 0.95
    left = {name: [i for i, label in enumerate(y) if label == name] for name in names}
    room = [len(y) // num_clients + (k < len(y) % num_clients) for k in range(num_clients)]
    parts: list[list[int]] = [[] for _ in range(num_clients)]
    while any(room):
        k = rng.randint(num_clients)
        if room[k] == 0:
            continue
        while True:
            u, total, label = rng.uniform(), 0.0, None
            for name, share in zip(names, mix[k], strict=True):
                total += share
                if label is None and u <= total:
                    label = name
            if left[names[0] if label is None else label]:
                break
        parts[k].append(left[names[0] if label is None else label].pop())
        room[k] -= 1
    return [sorted(part) for part in parts]


@pytest.mark.parametrize("alpha", [0.1, 0.5, 5.0])
@pytest.mark.parametrize("factor", [1, 7])
def test_authors_draw_equals_the_rule_in_loops(alpha: float, factor: int) -> None:
    y = factor * Y[torch.randperm(127, generator=torch.Generator().manual_seed(0))]
    got = [part.tolist() for part in gpfl_partition(y, 4, alpha=alpha)]
    assert got == authors_rule(y.tolist(), 4, alpha)
    assert got != [part.tolist() for part in dirichlet_partition(y, 4, alpha=alpha)]


@pytest.mark.parametrize("build", [dirichlet_partition, gpfl_partition])
def test_partitions_refuse(build: Any) -> None:
    refused: list[tuple[int, dict[str, Any], str]] = [
        (0, {}, r"num_clients to be in \[1, 127\], but got 0"),
        (128, {}, r"num_clients to be in \[1, 127\], but got 128"),
        (5, {"alpha": 0.0}, "alpha to be > 0, but got 0"),
        (5, {"alpha": float("nan")}, "alpha to be > 0, but got nan"),
    ]
    if build is dirichlet_partition:
        refused.append((5, {"cap": 0.3}, r"cap to be in \[0.3333, 1\], but got 0.3"))
    else:
        refused.append((5, {"alpha": 1e-5}, "alpha to be of a size to draw mixes with"))
    for num_clients, options, match in refused:
        with pytest.raises(ValueError, match=match):
            build(Y, num_clients, **{"alpha": 1.0, **options})


@pytest.mark.parametrize("num_folds", [2, 5, 7])
def test_folds_have_scikit_learns_counts(num_folds: int) -> None:
    y = Y[torch.randperm(127, generator=torch.Generator().manual_seed(0))]
    fold = stratified_folds(y, num_folds)
    splitter = StratifiedKFold(num_folds, shuffle=True, random_state=0)
    theirs = [Counter(y[test].tolist()) for _, test in splitter.split(y, y)]
    assert [Counter(y[fold == f].tolist()) for f in range(num_folds)] == theirs


def test_folds_refuse() -> None:
    graph, _ = collection((2, 3, 1, 4))
    whole = [torch.arange(4)]
    refused: list[tuple[Any, dict[str, Any], str]] = [
        ([torch.arange(3), torch.tensor([3])], {}, "client 1 to have at least 2 graphs, .*got 1"),
        (whole, {"fold": 2}, r"fold to be in \[0, 2\), but got 2"),
        (whole, {"fold": 1.0}, "fold to be an integer, but got 1.0"),
        (whole, {"num_folds": 2.5}, "num_folds to be an integer, but got 2.5"),
        ([torch.tensor([0, 1, 1])], {}, r"parts\[0\] to name graphs once, but got repeats"),
        *(([torch.tensor(bad)], {}, r"parts\[0\] to be") for bad in ([0, 4], [-1, 0], [0.0, 1.0])),
    ]
    for parts, how, match in refused:
        with pytest.raises((TypeError, ValueError), match=match):
            fold_clients(graph, parts, **{"fold": 0, "num_folds": 2, **how})
    with pytest.raises(ValueError, match="graph to have labels"):
        fold_clients(graph.replace(y=None), whole, fold=0, num_folds=2)
    how = {"num_clients": 2, "alpha": 1.0}
    calls: list[tuple[Any, dict[str, Any]]] = [
        *((dirichlet_partition, how), (gpfl_partition, how)),
        *((stratified_folds, {"num_folds": 2}), (balanced_classes, {})),
    ]
    for call, rest in calls:
        with pytest.raises(ValueError, match=r"y to have shape \[\*\], but got \[6, 1\]"):
            call(torch.zeros(6, 1, dtype=torch.int64), **rest)
        with pytest.raises(TypeError, match="y to be an int64 tensor, but got torch.float32"):
            call(torch.zeros(6), **rest)
    refuses("num_folds to be .* 2, but got 1", lambda: stratified_folds(Y, 1))
    refuses("at least 3 examples, one per fold, but got 2", lambda: stratified_folds(Y[:2], 3))


def test_balanced_classes() -> None:
    y = torch.tensor([7] * 5 + [2] * 3 + [4] * 9)
    kept = balanced_classes(y)
    assert torch.equal(kept, kept.unique())
    assert y[kept].bincount().tolist() == [0, 0, 3, 0, 3, 0, 0, 3]
    assert torch.equal(kept, balanced_classes(y))
    draws = torch.stack([balanced_classes(y, seed=seed) for seed in range(400)])
    chosen = draws.flatten().bincount(minlength=len(y)) / 400
    assert torch.all((chosen[:5] - 3 / 5).abs() < 0.1) and torch.all(chosen[5:8] == 1)
    assert torch.all((chosen[8:] - 3 / 9).abs() < 0.1)
    assert balanced_classes(y[:0]).numel() == 0
