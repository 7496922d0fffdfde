"""Ranks of methods over many tables, Friedman's test, and Nemenyi's critical difference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range

LEVEL = 0.05


class Ranking(NamedTuple):
    """Mean ranks, best first, Friedman's p, the critical difference, how many blocks there are."""

    ranks: dict[str, float]
    p: float
    difference: float
    blocks: int

    def like_the_best(self) -> list[str]:
        """The methods whose mean rank is less than a critical difference behind the best one's."""
        best = next(iter(self.ranks.values()))
        return [name for name, rank in self.ranks.items() if rank - best < self.difference]


def ranking(scores: Mapping[str, Mapping[Any, float]], level: float = LEVEL) -> Ranking | None:
    """Rank methods in every block that all of them have, the largest score first.

    Args:
        scores: method to block (a dataset and how it is cut) to score; ties share a rank.
        level: of Nemenyi's test.

    Returns:
        None with fewer than three methods or two blocks.

    Source: Demsar 2006, Statistical Comparisons of Classifiers over Multiple Data Sets, eq. 6
    """
    names = list(scores)
    common = [set(blocks) for blocks in scores.values()]
    blocks = [b for b in (scores[names[0]] if names else {}) if all(b in each for each in common)]
    if len(names) < 3 or len(blocks) < 2:
        return None
    table = np.array([[scores[name][block] for name in names] for block in blocks])
    means = rankdata(-table, axis=1).mean(0)
    order = sorted(range(len(names)), key=lambda i: (means[i], i))
    alike = bool((table == table[:, :1]).all())  # all tied: the test divides by 0
    p = 1.0 if alike else float(friedmanchisquare(*table.T).pvalue)
    ranks = {names[i]: float(means[i]) for i in order}
    return Ranking(ranks, p, critical_difference(len(names), len(blocks), level), len(blocks))


def critical_difference(methods: int, blocks: int, level: float = LEVEL) -> float:
    """By how much two mean ranks must differ (Nemenyi): ``q sqrt(k (k + 1) / (6 N))``.

    Example:
        >>> round(critical_difference(4, 14), 2)  # Demsar's example, q = 2.569
        1.25
    """
    q = studentized_range.ppf(1 - level, methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * blocks)))
