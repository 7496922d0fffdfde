"""FedGTA: average clients whose propagated labels have similar moments."""

import math
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from .. import federation as fed
from ..checks import Count, Positive, Share, check_number, reject_if
from ..client_network import similarity
from ..federation import Inbox, Message, Method, Outbox, Params, State
from ..graph import Graph
from ..sparse.rows import widened
from .fedproto import labelled
from .mix_models import mix_models

Moments = Literal["origin", "mean", "hybrid"]


@fed.layer(checks=[fed.check_averages])
def fedgta(
    fedavg: Method,
    *,
    propagations: Count = 5,
    neighbour_share: Share = 0.5,
    temperature: Positive = 20.0,
    moments: Moments = "hybrid",
    num_moments: Count = 6,
    threshold: float = 0.5,
) -> Method:
    """Average the models of clients with similar label moments, weighted by confidence (FedGTA).

    After training, a client propagates the matrix ``Y``. The row of a training node is the node's
    one-hot label. The row of any other node contains the model's probabilities. Propagation starts
    from ``F = Y``. Each of `propagations` steps computes ``F <- alpha S F + (1 - alpha) Y`` with
    ``S = D^-1/2 (A + I) D^-1/2``, and then adds each training node's one-hot label to the node's
    row. In the resulting matrix Y', the row of a training node is the node's one-hot label. Any
    other row of Y' is the softmax of the same row of F. The client sends its model, the moments of
    the columns of Y' (Eq. 5) and its confidence ``sum_v d_v sum_c (1 / e + p_vc log p_vc)`` (Eq.
    4). Here d_v is the degree of node v, and p_v is a softmax of row v of ``F / temperature``.
    Client i gets a mean of the models of all clients j with
    ``cos(moments_i, moments_j) > threshold``. The confidences are the weights in this mean (Eq. 6
    and 7).

    This method follows the authors' code, with three exceptions. In the authors' code, clients keep
    their Adam state (``Training(keep_optimizer=True)``). In the authors' code, a node that is in no
    split uses its true label. Here such a node uses the model's probabilities, like every node
    outside the training split. If a graph has no edges, its client's confidence is 0. If all
    confidences in a mean are 0, the clients have equal weights here. In the authors' code, this
    mean is NaN. The authors use a GAMLP as the model; here the task defines the model.

    Args:
        fedavg: FedAvg built for a task; the server must send the mean of the models. The model
            returns a row of logits for each node of the client's graph.
        propagations: steps of label propagation; the authors use 5.
        neighbour_share: alpha, weight of the neighbours in a step, between 0 and 1; the authors use
            0.5.
        temperature: temperature of the confidence's softmax, above 0; the authors use 20.
        moments: ``"origin"`` (raw moments of the entries), ``"mean"`` (moments of the differences
            between the entries and their mean), or ``"hybrid"`` (both). The authors use
            ``"hybrid"`` for Cora and CiteSeer, and ``"origin"`` for PubMed.
        num_moments: number of moments; the authors use 6 for Cora, 20 for CiteSeer and 13 for
            PubMed.
        threshold: a value between -1 and 1. Two clients are averaged if the cosine of their moments
            is above this value. The authors use 0.5 for Cora, 0.6 for CiteSeer and 0.65 for PubMed.

    Raises:
        ValueError: if a number is out of range, or if the server of `fedavg` does not send the mean
            of the models. The method's functions raise a ValueError if a client's examples are not
            nodes with class labels.

    Example:
        >>> fedgta(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), num_moments=3)
        fedgta(fedavg(GCN(...), ...), num_moments=3, ...)

    Source: Li et al. 2023, https://arxiv.org/abs/2401.11755; https://github.com/xkLi-Allen/FedGTA
    """
    check_number("threshold", threshold, at_least=-1, at_most=1)

    @torch.no_grad()
    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = fedavg.send(params, context, state, graph)
        with fedavg.at(graph), fed.in_mode(fed.stand_in(fedavg.model), False):
            logits = widened(fed.predict(fedavg.model, params, graph))
        rows = propagated(logits.softmax(1), graph, hops=propagations, alpha=neighbour_share)
        sharp, flat = (with_labels(f.softmax(1), graph) for f in (rows, rows / temperature))
        says = {"moments": column_moments(sharp, num_moments, moments).flatten()}
        return {**message, **says, "confidence": confidence(flat, graph)}, new_state

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        similar = similarity(inbox.stack("moments"), centre=False) > threshold
        similar = similar | torch.eye(len(similar), dtype=torch.bool, device=similar.device)
        weight = similar * inbox.stack("confidence")
        weight = torch.where(weight.sum(1, keepdim=True) > 0, weight, similar.to(weight))
        return mix_models(inbox, weight / weight.sum(1, keepdim=True))

    return replace(fedavg, send=send, aggregate=aggregate)


def with_labels(rows: Tensor, graph: Graph) -> Tensor:
    """Replace the rows of training nodes by their one-hot labels; rows of all other nodes are kept.

    Args:
        rows: float ``[num_nodes, num_classes]``.
        graph: a graph with labels and a training mask.

    Raises:
        ValueError: if there are no class labels, or if the number of rows is not the number of
            nodes.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([1, 0]),
        ...                   train_mask=torch.tensor([True, False]))
        >>> with_labels(torch.full((2, 2), 0.5), graph)
        tensor([[0.0000, 1.0000],
                [0.5000, 0.5000]])
    """
    want = "examples to be nodes, along whose edges labels go"
    reject_if(graph.batch is not None, want, "graphs")
    y, weight = labelled(rows, graph)
    one_hot = torch.nn.functional.one_hot(y, rows.shape[1]).to(rows.dtype)
    return torch.where(weight[:, None] > 0, one_hot, rows)


def propagated(probabilities: Tensor, graph: Graph, *, hops: int, alpha: float) -> Tensor:
    """Propagate labels in several steps: ``F <- alpha S F + (1 - alpha) Y + Y_train``.

    Args:
        probabilities: the model's output, float ``[num_nodes, num_classes]``.
        graph: a graph with edges, labels and a training mask.
        hops: number of steps.
        alpha: weight of the neighbours.

    Returns:
        float ``[num_nodes, num_classes]``; rows do not sum to 1.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([1, 0]),
        ...                   train_mask=torch.tensor([True, False]))
        >>> propagated(torch.full((2, 2), 0.5), graph, hops=1, alpha=0.5)
        tensor([[0.1250, 1.8750],
                [0.3750, 0.6250]])
    """
    y = with_labels(probabilities, graph)
    fixed = with_labels(torch.zeros_like(probabilities), graph)
    return spread(graph.adj.astype(y.dtype).gcn_norm, y, fixed, steps=hops, alpha=alpha)


def spread(operator: Any, first: Tensor, fixed: Tensor, *, steps: int, alpha: float) -> Tensor:
    """Propagate labels from ``F = first``: ``F <- alpha S F + (1 - alpha) first + fixed``.

    Args:
        operator: S, ``[n, n]``, a tensor or a `SparseMatrix`.
        first: float ``[n, C]``.
        fixed: float ``[n, C]``. Every step adds this term.
        steps: number of steps.
        alpha: weight of the neighbours.

    Example:
        >>> first = torch.tensor([[1.0], [0.0]])
        >>> spread(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), first, 0 * first, steps=1, alpha=0.5)
        tensor([[0.5000],
                [0.5000]])
    """
    labels = first
    for _ in range(steps):
        labels = alpha * (operator @ labels) + (1 - alpha) * first + fixed
    return labels


def column_moments(rows: Tensor, num_moments: int, kind: Moments = "origin") -> Tensor:
    """Moments 1 to `num_moments` of each column: raw moments, central moments, or both.

    Args:
        rows: float ``[n, C]``, n at least 1.
        num_moments: number of moments.
        kind: ``"origin"``, ``"mean"`` or ``"hybrid"``.

    Returns:
        float ``[num_moments, C]``, or ``[2 num_moments, C]`` if both kinds are computed.

    Example:
        >>> column_moments(torch.tensor([[1.0], [3.0]]), 2, "hybrid").flatten()
        tensor([2., 5., 0., 1.])
    """
    centred = {"origin": [rows], "mean": [rows - rows.mean(0)]}
    centred["hybrid"] = [*centred["origin"], *centred["mean"]]
    powers = [each**p for each in centred[kind] for p in range(1, num_moments + 1)]
    return torch.stack([power.mean(0) for power in powers])


def confidence(probabilities: Tensor, graph: Graph) -> Tensor:
    """Degree-weighted confidence of nodes: ``sum_v d_v sum_c (1 / e + p_vc log(p_vc + 1e-8))``.

    Args:
        probabilities: p, float ``[num_nodes, num_classes]``.
        graph: the graph whose degrees are used.

    Returns:
        Scalar, never negative, since ``-p log p`` is at most 1 / e.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0, 1], [1, 0]]))
        >>> confidence(torch.eye(2), graph)  # 4 / e
        tensor(1.4715)
    """
    ones = probabilities.new_ones(len(probabilities), 1)
    degree = (graph.adj.astype(ones.dtype) @ ones)[:, 0]
    negative = (probabilities * (probabilities + 1e-8).log()).sum(1)
    return (degree * (negative + probabilities.shape[1] / math.e)).sum().clamp(min=0)
