"""O-pFGL's server graph: a small graph that matches given means and deviations of classes."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from ..checks import reject_if
from ..federation import OptimizerFactory, Params, check_keys, minimise, predict
from ..graph import Graph
from ..nn.adafgl import normalised
from ..nn.pair_weights import PairWeights
from ..sparse import sum_rows

SUMS = ("count", "clients", "total", "square")  # sums over a client's classes
WEAKEST = 0.01  # least weight of an edge; a smaller one is dropped
TURNS = 10, 40  # alternating steps of the edges and of the features


class Moments(NamedTuple):
    """Moments of C classes over all clients, with D features per node.

    Args:
        share: float ``[C]``, each class's fraction of the labelled nodes.
        mean: float ``[C, D]``.
        deviation: float ``[C, D]``.

    Example:
        >>> Moments(torch.ones(1), torch.zeros(1, 2), torch.ones(1, 2)).share
        tensor([1.])
    """

    share: Tensor
    mean: Tensor
    deviation: Tensor


def hop_rows(operator: Any, x: Tensor, hops: int) -> Tensor:
    """``[x || S x || ... || S^hops x]``, float ``[n, (hops + 1) d]``.

    Example:
        >>> hop_rows(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([[3.0], [5.0]]), 1)
        tensor([[3., 5.],
                [5., 3.]])
    """
    rows = [x]
    for _ in range(hops):
        rows.append(operator @ rows[-1])
    return torch.cat(rows, 1)


def class_sums(rows: Tensor, labels: Tensor, num_classes: int) -> Params:
    """A client's sums over the nodes of each class.

    Classes with fewer than two nodes have sums of 0.

    Args:
        rows: float ``[n, D]``.
        labels: int64 ``[n]``, -1 for a node to leave out.
        num_classes: C.

    Returns:
        A dict with four entries. The entries ``"count"`` (number of nodes) and ``"clients"`` are
        float ``[C]``. ``"clients"`` is 1 for a class that has sums, and 0 for all other classes.
        The entry ``"total"`` contains the sums of each class's rows, and ``"square"`` the sums of
        the squared entries of these rows. Both are float ``[C, D]``.

    Example:
        >>> sums = class_sums(torch.tensor([[1.0], [3.0], [9.0]]), torch.tensor([0, 0, 1]), 2)
        >>> sums["count"], sums["total"].flatten(), sums["square"].flatten()
        (tensor([2., 0.]), tensor([4., 0.]), tensor([10.,  0.]))
    """
    labelled = labels >= 0
    rows, labels = rows[labelled], labels[labelled]
    count = labels.bincount(minlength=num_classes).to(rows)
    several = (count > 1).to(rows)
    total, square = (sum_rows(each, labels, num_classes) for each in (rows, rows.square()))
    of_rows = {"total": total * several[:, None], "square": square * several[:, None]}
    return {"count": count * several, "clients": several, **of_rows}


def moments(sums: Params) -> Moments:
    """The classes' means and pooled deviations, computed from the sums over all clients.

    ``sigma_c^2 = (sum_i x_i^2 - n_c mean_c^2) / (n_c - K_c)``. If K_c clients have class c, with
    means m_kc and deviations s_kc, then sigma_c^2 equals
    ``sum_k ((n_kc - 1) s_kc^2 + n_kc (m_kc - mean_c)^2) / (n_c - K_c)``.

    Example:
        >>> one = torch.ones(1)
        >>> sums = {"count": 2 * one, "clients": one, "total": 4 * one[None]}
        >>> moments({**sums, "square": 10 * one[None]})  # of a 1 and a 3
        Moments(share=tensor([1.]), mean=tensor([[2.]]), deviation=tensor([[1.4142]]))

    Source: Yan et al. 2024, https://arxiv.org/abs/2411.11304 (public code)
    """
    count = sums["count"].round().clamp(min=0)
    number = count.clamp(min=1)[:, None]
    present = (count > 0).to(count)[:, None]
    mean = present * sums["total"] / number
    free = (count - sums["clients"].round()).clamp(min=1)[:, None]
    variance = present * (sums["square"] - number * mean.square()).clamp(min=0) / free
    return Moments(count / count.sum().clamp(min=1), mean, variance.sqrt())


def check_sums(sums: Any, most: float) -> None:
    """Raise an error unless an upload can be the result of `class_sums` for one client.

    The upload may count at most `most` nodes per class.
    """
    check_keys(sums, SUMS, "sums")
    count, clients, total, square = (sums[name] for name in SUMS)
    same_shapes = count.shape == clients.shape == total.shape[:1] and total.shape == square.shape
    wrong = not same_shapes or total.dim() != 2 or not total.numel()
    shapes, dtypes = ([getattr(sums[n], key) for n in SUMS] for key in ("shape", "dtype"))
    reject_if(wrong, "sums to be [C], [C], [C, D] and [C, D]", [*map(list, shapes)])
    reject_if(not all(dtype.is_floating_point for dtype in dtypes), "sums to be floats", dtypes)
    wrong = count.max() > most or not clients.equal((count > 1).to(clients))
    got = f"{count.tolist()} nodes of {clients.tolist()} clients"
    reject_if(wrong, f"sums of one client, over 2 to {most:g} nodes of a class", got)
    wrong = count.min() < 0 or (total.square() > 1.001 * count[:, None] * square).any()
    reject_if(wrong, "sums of numbers and of their squares", "impossible ones")


def what_lacks(sums: Params, num_clients: int) -> str:
    """The reason why the clients' sums do not determine class means; "" if they determine them.

    With a secure sum, the server can check only these sums, and no single upload.

    Example:
        >>> one = torch.ones(1)
        >>> sums = {"count": -one, "clients": one, "total": one[None], "square": one[None]}
        >>> what_lacks(sums, 3)
        'Expected sums that 3 clients can have, but got 1 clients and -1 at least'
    """
    clients = float(sums["clients"].max())
    least = min(float(sums[name].min()) for name in ("count", "clients", "square"))
    if least < -0.5 or clients > num_clients + 0.5:
        return (
            f"Expected sums that {num_clients} clients can have, but got {clients:g} clients and "
            f"{least:g} at least"
        )
    if not (sums["count"] > 0.5).any():
        return "Expected a client with two labelled nodes of a class, but got none"
    return ""


@dataclass(frozen=True)
class Condensation:
    """Function that builds a small graph to match a given mean and deviation of each class.

    The initial graph has `per_class` nodes of each class. The features of the graph are sampled
    from N(0, 1). A randomly initialised `PairWeights` network computes the edge weights W from the
    features. Weights below .01 are dropped. Each of `steps` Adam steps minimises
    ``alignment L_a + smoothness L_s`` (see `apart` and `unlike`). Adam changes the edge network for
    10 steps, then the features for 40 steps, and so on.

    Args:
        hops: number of propagation steps. Means and deviations of classes are computed from the
            results of 0 to `hops` steps.
        per_class: number of nodes per class in the graph.
        steps: number of steps.
        feature_lr: learning rate of Adam for the features.
        edge_lr: learning rate of Adam for the edge network.
        width: width of the edge network.
        alignment: weight of `apart`.
        smoothness: weight of `unlike`.

    Example:
        >>> aim = Moments(torch.ones(2) / 2, torch.zeros(2, 6), torch.ones(2, 6))
        >>> Condensation(hops=1, per_class=2, steps=3, width=4)(aim)
        Graph(x=[4, 3], edge_index=[2, 12], y=[4], num_classes=2, edge_weight=[12])

    Source: Yan et al. 2024, https://arxiv.org/abs/2411.11304 (public code)
    """

    hops: int = 1
    per_class: int = 1
    steps: int = 3000
    feature_lr: float = 5e-3
    edge_lr: float = 1e-3
    width: int = 128
    alignment: float = 10.0
    smoothness: float = 0.1

    def __call__(self, aim: Moments) -> Graph:
        """The condensed graph, in the dtype and on the device of `aim`."""
        classes, width = aim.mean.shape
        features = width // (self.hops + 1)
        x = first_features(classes * self.per_class, features).to(aim.mean).requires_grad_()
        edges = PairWeights(features, self.width, parts=1)
        net = {name: p.detach().to(aim.mean) for name, p in edges.named_parameters()}
        net = {name: p.clone().requires_grad_() for name, p in net.items()}
        weights = partial(_weights, edges, net)
        adams = (
            torch.optim.Adam(list(net.values()), lr=self.edge_lr),
            torch.optim.Adam([x], lr=self.feature_lr),
        )
        for step in range(self.steps):
            for adam in adams:
                adam.zero_grad()
            self.loss(x, weights(x), aim).backward()
            adams[step % sum(TURNS) >= TURNS[0]].step()
        y = torch.arange(classes, device=x.device).repeat_interleave(self.per_class)
        with torch.no_grad():
            adjacency = weights(x)
            pairs = adjacency.nonzero().T
            weight = adjacency[pairs[0], pairs[1]]
        return Graph(x.detach(), pairs, y=y, num_classes=classes, edge_weight=weight)

    def loss(self, x: Tensor, weights: Tensor, aim: Moments) -> Tensor:
        """The loss of the features: ``alignment L_a + smoothness L_s``."""
        rows = hop_rows(normalised(weights), x, self.hops)
        return self.alignment * apart(rows, aim) + self.smoothness * unlike(x, weights)


def trained_on(
    graph: Graph,
    model: nn.Module,
    params: Params,
    names: Collection[str],
    *,
    steps: int,
    optimizer: OptimizerFactory,
) -> Params:
    """Train the parameters `names` by the cross-entropy over all labels of a graph."""

    def loss(params: Params) -> Tensor:
        return cross_entropy(predict(model, params, graph), graph.labels)

    return minimise(loss, params, [()] * steps, optimizer=optimizer, names=names).params


def apart(rows: Tensor, aim: Moments) -> Tensor:
    """``L_a = sum_c n_c / n (mse(mean_c, mean of c's rows) + mse(sigma_c, their deviation))``.

    If each class has only one row, deviations are undefined, and the term with deviations is left
    out.

    Args:
        rows: float ``[C p, D]``, sorted by class.
        aim: moments of C classes.

    Example:
        >>> aim = Moments(torch.ones(1), torch.zeros(1, 1), torch.ones(1, 1))
        >>> apart(torch.tensor([[2.0]]), aim), apart(torch.tensor([[1.0], [1.0], [4.0]]), aim)
        (tensor(4.), tensor(4.5359))
    """
    each = rows.view(len(aim.share), -1, rows.shape[1])
    far = (each.mean(1) - aim.mean).square().mean(1)
    if each.shape[1] > 1:
        far = far + (each.std(1) - aim.deviation).square().mean(1)
    return (aim.share * far).sum()


def unlike(x: Tensor, weights: Tensor) -> Tensor:
    """``L_s = sum_ij W_ij mean_d exp(-(x_id - x_jd)^2 / 2) / sum_ij W_ij``, or 0 without an edge.

    Example:
        >>> weights = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> unlike(torch.tensor([[1.0], [1.0]]), weights)
        tensor(1.)
    """
    kernel = (-(x[:, None] - x).square() / 2).exp().mean(2)
    total = weights.sum()
    return (weights * kernel).sum() / torch.where(total == 0, 1, total)


def first_features(number: int, width: int) -> Tensor:
    """Random features, ``[number, width]``."""
    return torch.randn(number, width)


def _weights(edges: PairWeights, net: Params, x: Tensor) -> Tensor:
    weights = functional_call(edges, net, (x,))
    return torch.where(weights < WEAKEST, 0, weights)
