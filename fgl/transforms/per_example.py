"""DP-SGD at every client: each example's gradient is clipped, and every step has noise."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..checks import check_number
from ..federation import Method, Params, Ragged
from ..federation.minibatches import training_examples
from ..federation.train import trainable
from ..graph import Graph
from ..privacy import clipped_gradient, gaussian
from ..privacy.gaussian import uniform
from ..sparse import SparseMatrix
from .clipped import clipped
from .gaussian import checked, counted

LossOfOne = Callable[[Params, Tensor, Tensor], Tensor]
LONG = 1e18  # no update is so long: it is the examples that are clipped, not the client


def per_example_gaussian(
    method: Method,
    loss: LossOfOne,
    *,
    length: float,
    noise_multiplier: float,
    sample_rate: float,
    num_steps: int,
    delta: float = 1e-5,
    unprotected: bool = False,
) -> Method:
    """The method whose clients train by DP-SGD: it protects each example of a client.

    ``g = (sum_{i in B} clip(grad loss(x_i, y_i)) + N(0, (length noise_multiplier)^2)) / (q n)`` in
    every local step. Each of the client's n training rows is in B with probability q, drawn from
    the operating system too. Rows must be independent: a graph with edges is refused, since a node
    is then in the gradients of its neighbours. ``loss`` takes the place of the method's own in
    training; the history's losses are the method's. The server sees no clipped client here:
    `privacy_spent` says what its messages tell of one example.

    Args:
        method: what clients send and receive, as for `clipped`; its optimiser takes the steps.
        loss: ``(params, x, y) -> scalar`` of one row, x ``[F]`` and y a scalar.
        length: the bound of an example's gradient, above 0.
        noise_multiplier: the noise's standard deviation over `length`, above 0.
        sample_rate: q, in (0, 1].
        num_steps: local steps of a round, at least 1.
        delta, unprotected: as for `local_gaussian`.

    Raises:
        ValueError: if a number is out of range, or the method's training has an `adjust`; when
            called, for a graph with edges, or as `clipped`.

    Example:
        >>> def loss(params, x, y):
        ...     return (x @ params["weight"][0] - y).square()
        >>> how = {"length": 1.0, "noise_multiplier": 1.0, "sample_rate": 0.1, "num_steps": 5}
        >>> method = per_example_gaussian(fgl.fedavg(torch.nn.Linear(2, 1)), loss, **how)
        >>> method.train.adjust.__name__
        'adjust'

    Source: Abadi et al. 2016, https://arxiv.org/abs/1607.00133
    """
    generator = checked(length, noise_multiplier, delta, unprotected)
    check_number("sample_rate", sample_rate, above=0, at_most=1)
    check_number("num_steps", num_steps, at_least=1, integer=True)
    if method.train.adjust is not None:
        raise ValueError("Expected the method's training to have no adjust, but got one")
    names, initial = trainable(method), method.initial()
    zeros = {name: torch.zeros_like(initial[name]) for name in initial if name in names}

    def batches(graph: Graph, context: Any) -> Iterator[tuple[Graph, Any]]:
        if graph.edge_index.numel() or graph.batch is not None:
            raise ValueError(
                "Expected a graph without edges, whose nodes are independent examples, but got "
                "one with edges or a collection"
            )
        nodes, labels = training_examples(graph), graph.y
        if labels is None:
            raise ValueError("Expected graph.y to be a tensor of labels, but got None")
        for _ in range(num_steps):
            drawn = nodes[uniform(nodes.shape, generator).to(nodes.device) < sample_rate]
            x: Any = graph.x.rows(drawn) if isinstance(graph.x, SparseMatrix) else graph.x[drawn]
            x = x.to_dense() if isinstance(x, SparseMatrix) else x
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a rehearsal, which has been warned of
                noise = gaussian(zeros, sigma=length * noise_multiplier, unprotected=generator)
            rows = {"rows": Ragged(x), "row_labels": Ragged(labels[drawn])}
            expected = torch.tensor(sample_rate * max(len(nodes), 1), device=nodes.device)
            yield graph, {**context, **rows, "row_noise": noise, "row_count": expected}

    def adjust(grads: Params, params: Params, context: Any) -> Params:
        x, y = context["rows"], context["row_labels"]
        given = {"length": length, "counts": x.mask}
        total = clipped_gradient(loss, params, (x.values, y.values), **given)
        noise, count = context["row_noise"], context["row_count"]
        return {name: (total[name] + noise[name]) / count for name in grads}

    train = replace(
        method.train, num_steps=None, batches=batches, adjust=adjust, max_grad_norm=None
    )
    told = {"noise_multiplier": 0.0 if unprotected else noise_multiplier, "delta": delta}
    told |= {"steps": float(num_steps), "sample_rate": sample_rate}
    return counted(clipped(replace(method, train=train), length=LONG), **told)
