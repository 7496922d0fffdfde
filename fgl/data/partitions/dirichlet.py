"""Label skew: clients of equal size, each with its own mix of classes (GPFL)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...checks import reject_if
from ...kinds import typed
from .checks import check_labels, check_num_clients

RARE = 1e-4  # a class with a smaller share would be drawn too seldom to wait for it


@typed
def dirichlet_partition(
    y: Tensor, num_clients: int, *, alpha: float, cap: float = 0.95, seed: int = 0
) -> list[Tensor]:
    """Examples dealt to clients of equal size, each with its own mix of classes (GPFL).

    With n examples, a client gets ``floor(n / num_clients)``, the first ``n mod num_clients`` one
    more. Its mix is ``p_i ~ Dirichlet(alpha 1)``; what an entry has above `cap` is spread evenly
    over the others, once, which may lift another of three or more above `cap`. Again and again a
    random client with room draws a class from its mix, again if the class is used up, and takes the
    last example of it that is left.

    Left open by the rule: where a client's mix has nothing left that it could draw, all classes
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

    Source: Hsu et al. 2019, https://arxiv.org/abs/1909.06335, for Dirichlet's draw; the dealing is
    of https://github.com/Jiachen2cc/Graph-Personalized-Federated-Learning, data_split.py
    """
    check_labels(y)
    n = y.numel()
    check_num_clients(num_clients, n)
    classes = _classes(y, alpha)
    if len(classes) > 1 and not 1 / len(classes) <= cap <= 1:
        raise ValueError(f"Expected cap to be in [{1 / len(classes):.4g}, 1], but got {cap}")
    rng = np.random.default_rng(seed)
    mix = _capped(rng.dirichlet(np.full(len(classes), alpha), num_clients), cap)
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


@typed
def gpfl_partition(y: Tensor, num_clients: int, *, alpha: float) -> list[Tensor]:
    """Examples dealt as GPFL's public code deals them: its own draw, of seed 0.

    The rule is the one of `dirichlet_partition` with ``cap=0.95``, drawn from numpy's legacy
    generator in the public code's order: all mixes; then, until everybody has enough, a client
    among *all* of them, again if it has no room, and a class by inverting the mix's cumulative sum,
    again if the class is used up. So the clients are those behind the paper's Table 2.

    Left open by the public code: it would draw for hours where the classes that are left have
    next to nothing of a client's mix (less than 1e-4); here they are equally likely then. Of two
    classes each has at least 0.05.

    Args:
        y: classes, int64 ``[n]``, in the order of the dataset's files.
        num_clients: number of clients, at most n.
        alpha: small for clients of one class, large for clients alike.

    Returns:
        One sorted int64 tensor of examples per client; every example is in exactly one.

    Raises:
        TypeError: if `y` is not int64.
        ValueError: if `y` has another shape or a negative class, `num_clients` is not in
            ``[1, n]``, or `alpha` is not positive, or so small or large that a mix is no number.

    Example:
        >>> y = torch.arange(2).repeat(20)
        >>> [y[part].sum().item() for part in gpfl_partition(y, 3, alpha=0.5)]
        [8, 9, 3]

    Source: Hsu et al. 2019, https://arxiv.org/abs/1909.06335, for Dirichlet's draw; the dealing is
    of https://github.com/Jiachen2cc/Graph-Personalized-Federated-Learning, data_split.py
    """
    check_labels(y)
    n = y.numel()
    check_num_clients(num_clients, n)
    classes = _classes(y, alpha)
    rng = np.random.RandomState(0)
    mix = rng.dirichlet(np.full(len(classes), alpha), num_clients)
    reject_if(not np.isfinite(mix).all(), "alpha to be of a size to draw mixes with", alpha)
    mix = _capped(mix, 0.95)
    steps = mix.cumsum(1)
    room = [n // num_clients + (k < n % num_clients) for k in range(num_clients)]
    parts: list[list[int]] = [[] for _ in range(num_clients)]
    while any(room):
        client = int(rng.randint(num_clients, dtype=np.int64))
        if room[client] == 0:
            continue
        left = [label for label, members in enumerate(classes) if members]
        waiting = mix[client, left].sum() >= RARE
        label = _class_left(rng, steps[client], left) if waiting else int(rng.choice(left))
        parts[client].append(classes[label].pop())
        room[client] -= 1
    return [torch.tensor(sorted(part), device=y.device) for part in parts]


def _class_left(rng: np.random.RandomState, steps: np.ndarray, left: list[int]) -> int:
    """A class by the cumulative sum of a mix, drawn again until it has examples left."""
    while True:
        label = int(np.argmax(rng.uniform() <= steps))  # the first where rounding leaves none
        if label in left:
            return label


def _classes(y: Tensor, alpha: float) -> list[list[int]]:
    """The examples of each class that occurs, in order."""
    reject_if(not alpha > 0, "alpha to be > 0", alpha)
    return [(y == label).nonzero().squeeze(1).tolist() for label in y.unique()]


def _capped(mix: np.ndarray, cap: float) -> np.ndarray:
    """Cut mixes at `cap`; the other classes share the rest."""
    if mix.shape[1] == 1:
        return mix
    excess = np.clip(mix - cap, 0, None)
    others = (excess.sum(1, keepdims=True) - excess) / (mix.shape[1] - 1)
    mix = mix - excess + others
    return mix
