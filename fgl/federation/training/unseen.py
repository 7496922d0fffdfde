"""The check that a client's loss does not depend on the labels of test examples."""

from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...graph import Graph
from ...warn import warn
from ..method.message import Params
from ..method.method import Method
from .train import training


def warn_of_seen_labels(
    method: Method, params: Params, graph: Graph, context: Any, *, client: int
) -> bool:
    """Warn if a loss reads labels of test examples, which then train the model.

    The loss is computed twice: with the graph's labels, and with other labels of the test examples.
    A loss that draws random numbers without a seed is not checked. Neither are windows.

    Returns:
        True if the loss was checked. False if the graph has windows, or lacks labels of test
        examples.

    Example:
        >>> graph = fgl.data.splits.split(fgl.data.load("synthetic"), "random")
        >>> method = fgl.fedavg(fgl.nn.GCN(graph.num_features, 8, graph.num_classes))
        >>> warn_of_seen_labels(method, method.initial(), graph, {}, client=0)
        True
    """
    if graph.test_mask is None or graph.y is None or graph.window_index is not None:
        return False
    tested = graph.test_mask & ~graph.training_mask
    if not tested.any():
        return False
    changed = graph.replace(y=_other_labels(graph.y, tested))
    reads = False
    with suppress(Exception):  # training tells of a loss that fails
        first, other = (_loss(method, params, own, context) for own in (graph, changed))
        rtol = max(1e-5, 4 * torch.finfo(first.dtype).eps)  # sums on a GPU may differ in rounding
        close = partial(torch.allclose, first, rtol=rtol, atol=1e-7)
        reads = not close(other) and close(_loss(method, params, graph, context))
    if reads:
        warn(
            "Expected the loss to leave labels of test examples out, but got one that reads labels "
            f"of test_mask of client {client}, so that the model is told the answers: "
            "mask = graph.train_mask, and cross_entropy(scores[mask], graph.y[mask])"
        )
    return True


def _other_labels(y: Tensor, where: Tensor) -> Tensor:
    """Change the labels of some examples; -1 and NaN, which mark missing labels, stay."""
    other = 1 - y if y.is_floating_point() else torch.where(y < 0, y, (y + 1) % (y.max() + 1))
    return torch.where(where.view(-1, *[1] * (y.dim() - 1)), other, y)


def _loss(method: Method, params: Params, graph: Graph, context: Any) -> Tensor:
    """The loss at copies of the parameters and buffers, with the same random numbers each time."""
    own = {name: value.clone() for name, value in params.items()}
    with method.at(graph), training(method.model_of(graph), graph.device, seed=0):
        return method.loss(own, graph, context).detach()
