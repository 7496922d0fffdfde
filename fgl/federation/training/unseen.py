"""The check that a client's loss does not depend on the labels of test examples."""

import copy
import random
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...graph import Graph
from ...warn import warn
from ..method.message import Params
from ..method.method import Method
from .train import trainable, training


def warn_of_seen_labels(
    method: Method, params: Params, graph: Graph, context: Any, *, client: int
) -> bool:
    """Warn if a loss reads labels of test examples, which then train the model.

    The loss is computed twice: with the graph's labels, and with other labels of the test examples.
    If the results differ, both losses are computed again, since a loss may draw random numbers.
    Minibatches and windows are not checked.

    Returns:
        True if the loss was checked. False if the client cannot check the loss; the loss may fail,
        or the client may lack training examples or test examples.

    Example:
        >>> graph = fgl.data.splits.split(fgl.data.load("synthetic"), "random")
        >>> method = fgl.fedavg(fgl.nn.GCN(graph.num_features, 8, graph.num_classes))
        >>> warn_of_seen_labels(method, method.initial(), graph, {}, client=0)
        True
    """
    mask, y = graph.test_mask, graph.y
    if mask is None or y is None or graph.window_index is not None:
        return False
    if method.train.batches is not None or not graph.training_mask.any():
        return False
    changed = graph.replace(y=_other_labels(y, mask & ~graph.training_mask))
    if y.equal(changed.y):  # type: ignore[arg-type]
        return False
    try:
        first, other = (_loss(method, params, own, context) for own in (graph, changed))
        rtol = max(1e-5, 4 * torch.finfo(first.dtype).eps)  # sums on a GPU may differ in rounding
        close = partial(torch.allclose, rtol=rtol, atol=1e-7)
        reads = not close(first, other)
        if reads:
            again = [_loss(method, params, own, context) for own in (changed, graph)]
            reads = close(torch.stack([other, first]), torch.stack(again))
    except Exception:  # training tells of a loss that fails
        return False
    if reads:
        warn(
            "Expected the loss to leave labels of test examples out, but got one that reads labels "
            f"of test_mask of client {client}, so that the model is told the answers: "
            "mask = graph.train_mask, and cross_entropy(scores[mask], graph.y[mask])"
        )
    return bool((first + other).isfinite().all())


def _other_labels(y: Tensor, where: Tensor) -> Tensor:
    """Change the labels of some examples; NaN, which marks a missing label, stays."""
    if y.is_floating_point():
        other = torch.where(y.isnan(), y, (y != 1).to(y))
    else:
        other = (y + 1) % (y.max() + 1)
    return torch.where(where.view(-1, *[1] * (y.dim() - 1)), other, y)


def _loss(method: Method, params: Params, graph: Graph, context: Any) -> Tensor:
    """The loss at copies of the parameters and of the context, with the same random numbers."""
    names, states = trainable(method, graph), (random.getstate(), np.random.get_state())
    own = {name: p.detach().clone().requires_grad_(name in names) for name, p in params.items()}
    try:
        with method.at(graph), training(method.model_of(graph), graph.device, seed=0):
            return method.loss(own, graph, copy.deepcopy(context)).detach()
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
