"""Partitions in which clients differ in their labels, features or degrees."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ...checks import Natural, Positive, Several, check_choice, reject_if
from ...graph import Graph
from ...sparse import SparseMatrix, row_sum
from .checks import check_labels, check_num_clients, filled

RARE = 1e-4  # a class with a smaller probability would take too many draws


def dirichlet_partition(
    y: Tensor,
    num_clients: int,
    *,
    alpha: float,
    cap: float = 0.95,
    equal_sizes: bool = True,
    seed: int = 0,
) -> list[Tensor]:
    """Assign examples to clients with different class distributions; sizes are equal, as in GPFL.

    With n examples, every client gets ``floor(n / num_clients)`` examples. Each of the first
    ``n mod num_clients`` clients gets one further example. The class distribution of a client is
    ``p_i ~ Dirichlet(alpha 1)``. If a probability in p_i exceeds `cap`, it is lowered to `cap`, and
    the excess is divided equally among the probabilities of all other classes. The cap is applied
    only once. With three or more classes, the added excess may raise another probability above
    `cap`. The examples are assigned one by one: a client is drawn from the clients that are not
    full, and this client draws a class from its class distribution. If no example of this class is
    left, the client draws a class again. From the remaining examples of this class, the client gets
    the example with the largest id.

    Sometimes no class with a positive probability in p_i has examples left. Client i then draws one
    of the classes with remaining examples, with equal probabilities.

    The clients' examples differ less than the distributions p_i, since a class has only a limited
    number of examples. Consider 3 classes of 1,000 examples, 4 clients and ``alpha=0.1``. The
    largest probability in a p_i is 89 % on average before the cap, and 87 % after the cap. But the
    largest class of a client has only 67 % of the client's examples on average.

    With ``equal_sizes=False``, the function follows OpenFGL's rule. Each class is split among the
    clients that so far have fewer than ``n / num_clients`` examples. The proportions of the split
    are drawn from Dirichlet(alpha 1), and the examples of the class are shuffled. In the example
    above, the largest class then has 91 % of a client's examples. Finally, one example of the
    largest client is moved to each client without examples. OpenFGL instead draws again if a client
    has fewer than 5 examples.

    Args:
        y: classes, int64 ``[n]``.
        num_clients: number of clients, at most n.
        alpha: concentration. With a smaller `alpha`, the clients' class distributions differ more.
        cap: largest probability of a class in a client's distribution, applied once as described
            above. With ``equal_sizes=False``, probabilities have no cap.
        equal_sizes: whether the sizes of two clients differ by at most one.
        seed: random seed.

    Returns:
        One int64 tensor per client, with the ids of the client's examples in ascending order. Every
        example belongs to exactly one client.

    Raises:
        TypeError: if `y` is not int64.
        ValueError: if `y` has the wrong shape or a negative class, if `num_clients` is below 1 or
            above n, or if `alpha` is not positive. A ValueError is also raised if `cap` is below
            ``1 / num_classes`` or above 1, or if `cap` is given together with
            ``equal_sizes=False``.

    Example:
        >>> y = torch.arange(2).repeat(20)
        >>> parts = dirichlet_partition(y, 3, alpha=0.5)
        >>> [part.numel() for part in parts]
        [14, 13, 13]

    Source: Hsu et al. 2019, https://arxiv.org/abs/1909.06335, for the Dirichlet distribution; the
    assignment is from https://github.com/Jiachen2cc/Graph-Personalized-Federated-Learning,
    data_split.py. The rule for unequal sizes is from https://github.com/xkLi-Allen/OpenFGL,
    openfgl/data/simulation.py
    """
    check_labels(y)
    n = y.numel()
    check_num_clients(num_clients, n)
    classes = _classes(y, alpha)
    wrong = len(classes) > 1 and not 1 / len(classes) <= cap <= 1
    reject_if(wrong, f"cap to be in [{1 / len(classes):.4g}, 1]", cap)
    rng = np.random.default_rng(seed)
    if not equal_sizes:
        reject_if(cap != 0.95, "cap to be left out beside equal_sizes=False", cap)
        return filled(_split_by_class(classes, num_clients, alpha, rng).to(y.device), num_clients)
    mix = _capped(rng.dirichlet(np.full(len(classes), alpha), num_clients), cap)
    room = np.full(num_clients, n // num_clients)
    room[: n % num_clients] += 1
    left = np.array([len(members) for members in classes])
    parts: list[list[int]] = [[] for _ in range(num_clients)]
    for _ in range(n):
        client = int(rng.choice(np.flatnonzero(room)))
        share = mix[client] * (left > 0)  # like drawing until a class has examples left
        share = share if share.sum() > 0 else (left > 0).astype(float)
        label = int(rng.choice(len(classes), p=share / share.sum()))
        parts[client].append(classes[label].pop())
        room[client] -= 1
        left[label] -= 1
    return [torch.tensor(sorted(part), device=y.device) for part in parts]


def _split_by_class(
    classes: list[list[int]], num_clients: int, alpha: float, rng: np.random.Generator
) -> Tensor:
    """The client of each example; each class is split among clients in random proportions."""
    n = sum(map(len, classes))
    owner, size = np.zeros(n, dtype=np.int64), np.zeros(num_clients, dtype=np.int64)
    for members in classes:
        small = np.flatnonzero(size < n / num_clients)
        share = rng.dirichlet(np.full(len(small), alpha))
        cuts = (share.cumsum()[:-1] * len(members)).astype(int)
        count = np.diff(cuts, prepend=0, append=len(members))
        owner[rng.permutation(members)] = small.repeat(count)
        size[small] += count
    return torch.from_numpy(owner)


def gpfl_partition(y: Tensor, num_clients: int, *, alpha: float) -> list[Tensor]:
    """Reproduce the partition that GPFL's public implementation makes with seed 0.

    The function follows the rule of `dirichlet_partition` with ``cap=0.95``. Random numbers come
    from NumPy's legacy generator, and are drawn in the order of the public implementation. All
    class distributions are drawn first. The following steps are then repeated until all clients are
    full. A client is drawn from *all* clients. If the drawn client is full, the draw is repeated.
    For the drawn client, a class is drawn by inverting the cumulative sum of the client's
    distribution. If no example of this class is left, the class is drawn once more. The resulting
    clients are therefore the clients of the paper's Table 2.

    Each client has its own class distribution. In the distribution of the client that was drawn,
    the classes that still have examples may have a total probability below 1e-4. The public
    implementation may then repeat its draw of a class for hours. In this case, this function draws
    a class that still has examples, with equal probabilities. The case does not occur with two
    classes: since the cap is 0.95, each class has a probability of at least 0.05.

    Args:
        y: classes, int64 ``[n]``, in the order of the dataset's files.
        num_clients: number of clients, at most n.
        alpha: concentration. With a smaller `alpha`, the clients' class distributions differ more.

    Returns:
        One int64 tensor per client, with the ids of the client's examples in ascending order. Every
        example belongs to exactly one client.

    Raises:
        TypeError: if `y` is not int64.
        ValueError: if `y` has the wrong shape or a negative class, if `num_clients` is below 1 or
            above n, if `alpha` is not positive, or if `alpha` is so small or so large that a
            probability becomes NaN.

    Example:
        >>> y = torch.arange(2).repeat(20)
        >>> [y[part].sum().item() for part in gpfl_partition(y, 3, alpha=0.5)]
        [8, 9, 3]

    Source: Hsu et al. 2019, https://arxiv.org/abs/1909.06335, for the Dirichlet distribution; the
    assignment is from https://github.com/Jiachen2cc/Graph-Personalized-Federated-Learning,
    data_split.py
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
    """Draw a class by cumulative probabilities; redraw until the class has examples left."""
    while True:
        label = int(np.argmax(rng.uniform() <= steps))  # the first class if rounding leaves none
        if label in left:
            return label


def _classes(y: Tensor, alpha: float) -> list[list[int]]:
    """For each class that occurs, the examples of this class; classes are in ascending order."""
    reject_if(not alpha > 0, "alpha to be > 0", alpha)
    return [(y == label).nonzero().squeeze(1).tolist() for label in y.unique()]


def _capped(mix: np.ndarray, cap: float) -> np.ndarray:
    """Limit each probability to `cap`; divide the excess equally among all other classes."""
    if mix.shape[1] == 1:
        return mix
    excess = np.clip(mix - cap, 0, None)
    others = (excess.sum(1, keepdims=True) - excess) / (mix.shape[1] - 1)
    mix = mix - excess + others
    return mix


def quantile_labels(y: Tensor, bins: Several) -> Tensor:
    """Assign a label to each number by quantiles, so that labels are about equally frequent.

    Each known number gets one of `bins` labels. In
    ``dirichlet_partition(quantile_labels(y, 4), num_clients, alpha=0.5)``, some clients get mostly
    small numbers, and some get mostly large numbers.

    Args:
        y: float ``[n]``; NaN means unknown.
        bins: number of ranges, at least 2.

    Returns:
        int64 ``[n]``: labels from 0 for the smallest numbers to ``bins - 1`` for the largest
        numbers. Unknown numbers get one further label, the integer value of `bins`. Equal numbers
        get equal labels. If many numbers are equal, some labels may therefore not occur.

    Raises:
        TypeError: if `y` is not floating point.
        ValueError: if `y` is not a vector, or if `bins` is below 2.

    Example:
        >>> quantile_labels(torch.tensor([0.1, 9.0, 0.3, torch.nan, 4.0]), bins=2)
        tensor([0, 1, 0, 2, 1])
    """
    reject_if(not y.is_floating_point(), "y to be floating point", y.dtype, TypeError)
    reject_if(y.dim() != 1, "y to have shape [n], one column", list(y.shape))
    unknown = y.isnan()
    ordered = y[~unknown].sort().values
    first = torch.arange(1, bins, device=y.device) * ordered.numel() // bins  # start of each range
    if not ordered.numel():
        return torch.full_like(unknown, bins, dtype=torch.int64)
    labels = torch.searchsorted(ordered[first], y, right=True)
    return torch.where(unknown, bins, labels)


@dataclass(frozen=True)
class Skew:
    """Settings: in what way clients differ, and how many clients never train.

    Example:
        >>> graph = fgl.data.load("synthetic")
        >>> parts = Skew(skew_by="degrees").parts(graph, 3)
        >>> degree = graph.edge_index[1].bincount(minlength=2708)
        >>> [round(float(degree[part].float().mean()), 1) for part in parts]
        [1.5, 2.8, 7.3]

    Source: the settings of OpenFGL, https://github.com/xkLi-Allen/OpenFGL; for labels, OpenFGL's
    setting is ``equal_sizes=False``
    """

    skew_by: Literal["nothing", "labels", "features", "degrees"] = "nothing"
    """Property in which clients differ: label distribution, mean feature, or mean degree. It
    replaces the partition."""
    skew_alpha: Positive = 0.5
    """Concentration of the Dirichlet distribution; the smaller it is, the more clients differ."""
    equal_sizes: bool = True
    """Whether clients that differ in labels have equal sizes, see `dirichlet_partition`."""
    unseen: Natural = 0
    """Number of clients that never train; these are the last clients. They are scored with other
    clients' models."""

    def __post_init__(self) -> None:
        by, labels = repr(self.skew_by), self.skew_by == "labels"
        alone = self.skew_alpha != Skew.skew_alpha and not labels
        reject_if(alone, f"skew_by to be 'labels' beside skew_alpha, {self.skew_alpha}", by)
        alone = not self.equal_sizes and not labels
        reject_if(alone, "skew_by to be 'labels' beside equal_sizes=False", by)

    def parts(self, graph: Graph, num_clients: int, *, seed: int = 0) -> list[Tensor]:
        """Ids of each client's nodes or graphs; only the Dirichlet partition uses `seed`.

        Raises:
            ValueError, TypeError: if clients should differ in labels, but nodes or graphs have no
                labels.
        """
        if self.skew_by == "labels":
            expected = "skew_by to be 'features' or 'degrees' where pairs have the labels"
            reject_if(graph.edge_label_index is not None, expected, "'labels'")
            how: dict[str, Any] = {"alpha": self.skew_alpha, "equal_sizes": self.equal_sizes}
            return dirichlet_partition(graph.labels, num_clients, **how, seed=seed)
        return sorted_partition(graph, num_clients, by=self.skew_by)


def sorted_partition(graph: Graph, num_clients: int, *, by: str) -> list[Tensor]:
    """Sort examples by a number, and give each client one range of the sorted list.

    Args:
        graph: a graph or a collection. The examples are the nodes of the graph, or the graphs of
            the collection.
        num_clients: number of clients, at most the number of examples.
        by: number by which examples are sorted. ``"features"`` is the mean of an example's
            features. ``"degrees"`` is a node's degree, or the mean degree of a graph.

    Returns:
        One sorted int64 tensor of examples per client. The sizes of two clients differ by at most
        one. The first client has the examples with the smallest numbers. Examples with equal
        numbers keep the order of their ids.

    Raises:
        ValueError: if `by` is unknown, if `num_clients` is out of range, or if all feature means
            are equal up to rounding, for example after `fgl.data.normalize_features`.

    Example:
        >>> graph = fgl.Graph(torch.eye(4), torch.tensor([[0, 1, 0, 2], [1, 0, 2, 0]]))
        >>> [part.tolist() for part in sorted_partition(graph, 2, by="degrees")]
        [[1, 3], [0, 2]]

    Source: "feature_skew" and "topology_skew" of OpenFGL, https://arxiv.org/abs/2408.16288. For
    collections, OpenFGL gives all remaining graphs to the last client
    """
    check_choice("by", by, ("features", "degrees"))
    check_num_clients(num_clients, graph.num_nodes if graph.batch is None else graph.num_graphs)
    degree = graph.edge_index[1].bincount(minlength=graph.num_nodes).double()
    value = _means(graph) if by == "features" else degree
    if graph.batch is not None:
        total = value.new_zeros(graph.num_graphs).index_add_(0, graph.batch, value)
        value = total / graph.batch.bincount(minlength=graph.num_graphs).clamp(min=1)
    expected = "features whose means differ between examples"
    got = "means that are equal up to rounding; cut before features are normalized"
    reject_if(by == "features" and num_clients > 1 and _alike(value, graph), expected, got)
    order = value.argsort(stable=True)
    return [part.sort().values for part in order.tensor_split(num_clients)]


def _means(graph: Graph) -> Tensor:
    """The mean feature of every node."""
    x: Any = graph.x
    if isinstance(x, SparseMatrix):
        return row_sum(x.pattern, x.values.double()) / x.shape[1]
    return torch.as_tensor(x.double().mean(1))


def _alike(value: Tensor, graph: Graph) -> bool:
    """Whether all nonzero feature means are equal, up to rounding."""
    some = value[value != 0]
    if some.numel() < 2:
        return False
    precise = torch.finfo(torch.float32).eps * graph.num_features
    return bool(some.max() - some.min() <= precise * some.abs().max())
