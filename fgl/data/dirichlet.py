"""Label skew: clients of equal size with their own mix of classes, and folds of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..graph import Graph
from ..graph.checks import check_index


def dirichlet_partition(
    y: Tensor, num_clients: int, *, alpha: float, cap: float = 0.95, seed: int = 0
) -> list[Tensor]:
    """Examples dealt to clients of equal size, each with its own mix of classes (GPFL).

    With n examples, a client gets ``floor(n / num_clients)``, the first ``n mod num_clients`` one
    more. Its mix is ``p_i ~ Dirichlet(alpha 1)``; what an entry has above `cap` is spread evenly
    over the others, once, which may lift another of three or more above `cap`. Again and again a
    random client with room draws a class from its mix, again if the class is used up, and takes the
    last example of it that is left.

    What the rule leaves open: where a client's mix has nothing left that it could draw, all classes
    with examples left are equally likely.

    Args:
        y: classes, int64 ``[n]``.
        num_clients: number of clients, at most n.
        alpha: small for clients of one class, large for clients alike.
        cap: share of a class in a mix above which it is cut.
        seed: of the mixes and of the dealing.

    Returns:
        One sorted int64 tensor of examples per client; every example is in exactly one.

    Raises:
        TypeError: if `y` is not int64.
        ValueError: if `y` has another shape or a negative class, `num_clients` is not in
            ``[1, n]``, `alpha` is not positive, or `cap` is not in ``[1 / num_classes, 1]``.

    Example:
        >>> y = torch.arange(2).repeat(20)
        >>> parts = dirichlet_partition(y, 3, alpha=0.5)
        >>> [part.numel() for part in parts]
        [14, 13, 13]

    Source: https://github.com/Jiachen2cc/Graph-Personalized-Federated-Learning, data_split.py
    """
    check_index("y", y, (None,), None)
    n = y.numel()
    if not 1 <= num_clients <= n:
        raise ValueError(f"Expected num_clients to be in [1, {n}], but got {num_clients}")
    if not alpha > 0:
        raise ValueError(f"Expected alpha to be > 0, but got {alpha}")
    classes = [(y == label).nonzero().squeeze(1).tolist() for label in y.unique()]
    if len(classes) > 1 and not 1 / len(classes) <= cap <= 1:
        raise ValueError(f"Expected cap to be in [{1 / len(classes):.4g}, 1], but got {cap}")
    rng = np.random.default_rng(seed)
    mix = rng.dirichlet(np.full(len(classes), alpha), num_clients)
    excess = np.clip(mix - cap, 0, None)
    if len(classes) > 1:
        others = (excess.sum(1, keepdims=True) - excess) / (len(classes) - 1)
        mix = mix - excess + others
    room = np.full(num_clients, n // num_clients)
    room[: n % num_clients] += 1
    left = np.array([len(members) for members in classes])
    parts: list[list[int]] = [[] for _ in range(num_clients)]
    for _ in range(n):
        client = int(rng.choice(np.flatnonzero(room)))
        share = mix[client] * (left > 0)  # to draw again until a class has examples left
        share = share if share.sum() > 0 else (left > 0).astype(float)
        label = int(rng.choice(len(classes), p=share / share.sum()))
        parts[client].append(classes[label].pop())
        room[client] -= 1
        left[label] -= 1
    return [torch.tensor(sorted(part), device=y.device) for part in parts]


def stratified_folds(y: Tensor, num_folds: int, *, seed: int = 0) -> Tensor:
    """The fold of every example: equal sizes, the classes spread evenly over the folds.

    The shuffled examples, sorted by class, are dealt out in turn; a class's counts differ by
    at most one, as in scikit-learn's ``StratifiedKFold`` (which orders the classes by their first
    example, so that another fold may have the one). A class smaller than `num_folds` is missing in
    some folds.

    Args:
        y: classes, int64 ``[n]``.
        num_folds: at least 2, at most n.
        seed: of the shuffle.

    Returns:
        int64 ``[n]`` in ``[0, num_folds)``.

    Raises:
        TypeError: if `y` is not int64.
        ValueError: if `y` has another shape or a negative class, or `num_folds` is less than 2 or
            more than n.

    Example:
        >>> stratified_folds(torch.tensor([0, 0, 1, 1]), 2).bincount()
        tensor([2, 2])

    Source: GPFL, TMLR 2025
    """
    check_index("y", y, (None,), None)
    n = y.numel()
    if num_folds < 2:
        raise ValueError(f"Expected num_folds to be at least 2, but got {num_folds}")
    if n < num_folds:
        raise ValueError(f"Expected at least {num_folds} examples, one per fold, but got {n}")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=generator).to(y.device)
    order = order[torch.argsort(y[order], stable=True)]
    fold = torch.empty_like(order)
    fold[order] = torch.arange(n, device=y.device) % num_folds
    return fold


def fold_clients(
    graph: Graph, parts: Sequence[Tensor], *, fold: int, num_folds: int = 5, seed: int = 0
) -> tuple[list[Graph], list[Graph]]:
    """Each client's graphs, cut into those to train on and one fold for the test.

    Args:
        graph: a collection with labels; its masks are not looked at.
        parts: each client's graphs (`dirichlet_partition`).
        fold: the test fold, in ``[0, num_folds)``.
        num_folds: number of folds, drawn client by client with the same seed.
        seed: of the folds.

    Returns:
        The clients' training collections, and their test collections.

    Raises:
        TypeError, ValueError: if `graph` has no labels, `fold` is out of range, a part names a
            graph that is not there or one twice, or a client has fewer graphs than folds, naming
            it.

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
    if y is None:
        raise ValueError("Expected graph to have labels, but got none")
    if not 0 <= fold < num_folds:
        raise ValueError(f"Expected fold to be in [0, {num_folds}), but got {fold}")
    graph = graph.replace(train_mask=None, val_mask=None, test_mask=None)
    train, test = [], []
    for client, part in enumerate(parts):
        check_index(f"parts[{client}]", part, (None,), graph.num_examples)
        if part.unique().numel() < part.numel():  # it would train on what it is tested with
            raise ValueError(f"Expected parts[{client}] to name graphs once, but got repeats")
        if part.numel() < num_folds:
            raise ValueError(
                f"Expected client {client} to have at least {num_folds} graphs, one per fold, "
                f"but got {part.numel()}"
            )
        own = stratified_folds(y[part], num_folds, seed=seed)
        train.append(graph.select(part[own != fold]))
        test.append(graph.select(part[own == fold]))
    return train, test


def balanced_classes(y: Tensor, *, seed: int = 0) -> Tensor:
    """As many examples of every class as the smallest class has, drawn at random.

    Args:
        y: classes, int64 ``[n]``.
        seed: of the draw.

    Returns:
        int64, the examples that stay, in order.

    Raises:
        TypeError: if `y` is not int64.
        ValueError: if `y` has another shape or a negative class.

    Example:
        >>> y = torch.tensor([0, 0, 0, 1, 1, 0])
        >>> y[balanced_classes(y)].bincount()
        tensor([2, 2])

    Source: GPFL, TMLR 2025, which cuts Yeast down so
    """
    check_index("y", y, (None,), None)
    if y.numel() == 0:
        return y
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(y.numel(), generator=generator).to(y.device)
    members = [order[y[order] == label] for label in y.unique()]
    least = min(own.numel() for own in members)
    return torch.cat([own[:least] for own in members]).sort().values
