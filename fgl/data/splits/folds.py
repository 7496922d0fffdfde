"""Folds of labelled examples for cross-validation, and a class-balanced random sample."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ...checks import Several, check_index, reject_if
from ...graph import Graph
from ...graph.windows import check_no_series
from ..partitions.checks import check_labels


def stratified_folds(y: Tensor, num_folds: Several, *, seed: int = 0) -> Tensor:
    """Assign examples to folds of almost equal size with almost equal class distributions.

    The shuffled examples are sorted by class and assigned to the folds in turn. For each class, the
    folds' numbers of examples differ by at most one, as in scikit-learn's ``StratifiedKFold``. Some
    folds have one more example of a class than the other folds have. In scikit-learn, different
    folds may have this example, since scikit-learn sorts the classes by their first examples. If a
    class has fewer than `num_folds` examples, some folds have no example of this class.

    Args:
        y: classes, int64 ``[n]``.
        num_folds: number of folds, from 2 to n.
        seed: random seed.

    Returns:
        int64 ``[n]``, the fold of each example, from 0 to ``num_folds - 1``.

    Raises:
        TypeError: if `y` is not int64.
        ValueError: if `y` has the wrong shape or a negative class, or if `num_folds` is below 2 or
            above n.

    Example:
        >>> stratified_folds(torch.tensor([0, 0, 1, 1]), 2).bincount()
        tensor([2, 2])

    Source: GPFL, TMLR 2025
    """
    check_labels(y)
    n = y.numel()
    reject_if(n < num_folds, f"at least {num_folds} examples, one per fold", n)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=generator).to(y.device)
    order = order[torch.argsort(y[order], stable=True)]
    fold = torch.empty_like(order)
    fold[order] = torch.arange(n, device=y.device) % num_folds
    return fold


def fold_clients(
    graph: Graph, parts: Sequence[Tensor], *, fold: int, num_folds: int = 5, seed: int = 0
) -> tuple[list[Graph], list[Graph]]:
    """Split each client's graphs into training graphs and one test fold.

    Args:
        graph: a collection with labels. Masks of the collection are ignored.
        parts: ids of each client's graphs, for example the result of `dirichlet_partition`.
        fold: index of the test fold, from 0 to ``num_folds - 1``.
        num_folds: number of folds of each client. Folds are drawn separately for each client, and
            all draws use `seed`.
        seed: random seed of the folds.

    Returns:
        Two lists: the training collection of each client, and the test collection of each client.

    Raises:
        TypeError, ValueError: if `graph` has no labels, if `fold` is out of range, if an id in
            `parts` is invalid, or if an id occurs twice in `parts`. If a client has fewer graphs
            than folds, a ValueError names this client.

    Example:
        >>> none = torch.zeros(2, 0, dtype=torch.int64)
        >>> y = torch.tensor([0, 1, 0, 1])
        >>> graph = fgl.Graph(torch.ones(4, 1), none, y=y, batch=torch.arange(4))
        >>> train, test = fold_clients(graph, [torch.arange(4)], fold=0, num_folds=2)
        >>> train[0].num_graphs, test[0].num_graphs
        (2, 2)

    Source: GPFL, TMLR 2025
    """
    y = graph.y
    check_no_series(graph, "fold_clients")
    if y is None:
        raise ValueError("Expected graph to have labels, but got none")
    reject_if(not 0 <= fold < num_folds, f"fold to be in [0, {num_folds})", fold)
    graph = graph.replace(train_mask=None, val_mask=None, test_mask=None)
    train, test = [], []
    owner = torch.full((graph.num_examples,), -1, device=graph.device)
    for client, part in enumerate(parts):
        check_index(f"parts[{client}]", part, (None,), graph.num_examples)
        if part.unique().numel() < part.numel():  # a test graph would be a training graph
            raise ValueError(f"Expected parts[{client}] to name graphs once, but got repeats")
        if (owner[part] >= 0).any():  # a test graph would be another client's training graph
            other = int(owner[part].max())
            raise ValueError(
                f"Expected parts to be disjoint, but got a graph in those of {other} and {client}"
            )
        owner[part] = client
        expected = f"client {client} to have at least {num_folds} graphs, one per fold"
        reject_if(part.numel() < num_folds, expected, part.numel())
        own = stratified_folds(y[part], num_folds, seed=seed)
        train.append(graph.select(part[own != fold]))
        test.append(graph.select(part[own == fold]))
    return train, test


def balanced_classes(y: Tensor, *, seed: int = 0) -> Tensor:
    """Draw n examples from every class, where n is the size of the smallest class.

    Args:
        y: classes, int64 ``[n]``.
        seed: random seed.

    Returns:
        int64, the sorted ids of the drawn examples.

    Raises:
        TypeError: if `y` is not int64.
        ValueError: if `y` has the wrong shape or a negative class.

    Example:
        >>> y = torch.tensor([0, 0, 0, 1, 1, 0])
        >>> y[balanced_classes(y)].bincount()
        tensor([2, 2])

    Source: GPFL, TMLR 2025, which samples Yeast in this way
    """
    check_labels(y)
    if y.numel() == 0:
        return y
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(y.numel(), generator=generator).to(y.device)
    members = [order[y[order] == label] for label in y.unique()]
    least = min(own.numel() for own in members)
    return torch.cat([own[:least] for own in members]).sort().values
