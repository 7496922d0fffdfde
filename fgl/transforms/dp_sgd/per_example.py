"""DP-SGD at every client: each example's gradient is clipped, and each step adds noise."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from ... import federation as fed
from ...checks import Chance, Count, Positive, PositiveShare
from ...federation import Message, Method, Params, Ragged, State
from ...graph import Graph
from ...privacy import clip
from ...privacy.clip import clipped_gradient
from ...privacy.gaussian import on_grid, plus_noise, seed_from_system, uniform
from ..clipped import clipped
from ..gaussian import NO_NOISE, local_noise, noise_source
from .examples import LOG, Unseen, alone, check_alone, check_method, like_row, of_row, usable

LONG = 1e18  # longer than any update: examples are clipped, not updates


@fed.layer(
    sealed=("receive", "send", "aggregate", "loss", "train", "rules.silent", "rules.joining")
)
def per_example_gaussian(
    method: Method,
    *,
    length: Positive,
    noise_multiplier: Positive,
    sample_rate: PositiveShare,
    expected_batch_size: Positive,
    num_steps: Count,
    delta: Chance = 1e-5,
    unprotected: bool = False,
) -> Method:
    """Make clients train by DP-SGD, which protects each single example.

    In every local step, the gradient is ``g = (sum_{i in B} clip(grad L_i) + N(0, (length
    noise_multiplier)^2)) / b``. Here ``L_i`` is the loss of the method on example i alone, and B is
    a random set of examples. A term of the loss that reads no example, such as FedProx's proximal
    term, is part of each ``L_i``. Each training example of the client is in B with probability q.
    The operating system provides the random numbers for B and for the noise. The task's minibatches
    are not used.

    Epsilon bounds the effect of **adding or removing one example**. So a client's number of
    examples is private. Therefore b does not depend on the client, and all clients have equal
    weights. Clients report neither losses nor numbers of examples. Losses in the history are NaN.
    If one example is replaced, epsilon is at most doubled, and delta becomes
    ``(1 + e^epsilon) delta``.

    Clipped gradients and noise are multiples of the same power of two, so that their sum is exact
    (`fgl.privacy.gaussian`). Random numbers for dropout come from the operating system too. After
    the noise is added, only the noisy sum is read: the sum is divided by b, and the optimiser takes
    its step.

    Examples must be independent of each other: the graphs of a collection, or the rows of a graph
    without edges. A graph with edges raises an error, for two reasons. A node influences the
    gradients of its neighbours, and an edge influences the gradients of all nodes that receive
    messages along it. The loss of the method must be the mean of the losses of single examples;
    otherwise the method raises an error. Each round checks the loss on made-up examples. The method
    also raises an error if its function `receive` or `send` reads an example. If the examples are
    graphs, they are processed one after another. So clients with such examples cannot train
    together in one batch.

    An example is left out if its loss raises an error, or if its gradient is not finite. So an
    example influences only the noisy sums. Neither an error nor the absence of a client reveals an
    example. The client's log contains the number of excluded examples. Some labels of an example
    may be unknown (NaN). Every example has the same weight, whatever its number of known labels.

    `privacy_spent` bounds the information about one example in all messages that a client sends.

    Args:
        method: the method, whose optimiser takes the local steps.
        length: the largest norm of an example's gradient, above 0; larger gradients are clipped.
        noise_multiplier: the noise's standard deviation divided by `length`, above 0.
        sample_rate: q, above 0 and at most 1.
        expected_batch_size: b, above 0. Since b is public, do not compute b from private data. For
            example, if clients usually have n examples, choose ``b = q n``.
        num_steps: local steps of a round, at least 1.
        delta, unprotected: the arguments of `local_gaussian`.

    Returns:
        The method. Only `secure_sum` may wrap this method. A run with any other wrapper raises an
        error, since a loss term that the wrapper adds would be ignored or would get no noise.

    Raises:
        ValueError: if a number is out of range, if the method's training has an `adjust` or a
            `max_grad_norm`, or if the method's model has a batch norm. The method's functions raise
            a ValueError for a graph with edges and for an unsuitable method (see above), or if
            `clipped` would raise a ValueError.

    Example:
        >>> how = {"length": 1.0, "noise_multiplier": 1.0, "sample_rate": 0.1, "num_steps": 5}
        >>> plain = fgl.fedavg(fgl.nn.GIN(2, 8, 2))
        >>> method = per_example_gaussian(plain, **how, expected_batch_size=16)
        >>> method.train.adjust.__name__, method.rules.silent
        ('adjust', True)

    Source: Abadi et al. 2016, https://arxiv.org/abs/1607.00133
    """
    generator = noise_source(unprotected)
    fed.check_one_architecture(method, "per_example_gaussian")
    check_method(method)
    fed.check_no_joining(method, "per_example_gaussian", NO_NOISE)
    names, sigma = fed.trainable(method), length * noise_multiplier
    initial = {**method.initial(), **method.own.personal}
    zeros = {n: torch.zeros_like(initial[n], dtype=torch.float64) for n in initial if n in names}

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = method.receive(message, state, Unseen.of(graph))
        still = fed.drop(params, names)
        return params, {**context, "still": still} if still else context

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        entries = fed.drop(context, ("still", "trained"))
        if "trained" in context:  # the losses before each step depend on the examples
            entries["trained"] = {"num_steps": context["trained"]["num_steps"]}
        return method.send(params, entries, state, Unseen.of(graph))

    def batches(graph: Graph, context: Any) -> Iterator[tuple[Graph, Any]]:
        check_alone(method, graph, context)  # depends only on the graph's form
        examples = usable(method, graph, context, fed.training_examples(graph))
        for _ in range(num_steps):
            drawn = examples[uniform(examples.shape, generator).to(examples.device) < sample_rate]
            noise = plus_noise(zeros, sigma, generator)
            yield graph, {**context, "example_noise": noise, **_drawn(graph, drawn)}

    def adjust(grads: Params, params: Params, context: Any) -> Params:
        if generator is None:  # the run's seed would reveal every example's dropout
            seed_from_system(next(iter(params.values())).device)
        whole = {**context.get("still", {}), **params}
        total = _clipped_sum(method, whole, grads, context, length, sigma)
        noise = context["example_noise"]  # on the same grid, so that the sum is exact
        return {name: (total[name] + noise[name]) / expected_batch_size for name in grads}

    def loss(params: Params, graph: Graph, context: Any) -> torch.Tensor:
        """The method's own loss.

        In a local step the loss is 0, since `adjust` computes the gradient.
        """
        if "example_noise" not in context:
            return method.loss(params, graph, context)
        return 0 * torch.stack([params[name].sum() for name in sorted(names)]).sum()

    train = replace(method.train, num_steps=None, batches=batches, adjust=adjust)
    noise_told = 0.0 if unprotected else noise_multiplier
    settings_told = {"noise_multiplier": noise_told, "sample_rate": sample_rate, "delta": delta}
    settings_told["steps"] = float(num_steps)
    base = replace(method, receive=receive, send=send, loss=loss, train=train)
    base = replace(base, rules=replace(method.rules, silent=True))
    return local_noise(clipped(base, length=LONG), kind="per_example_gaussian", **settings_told)


def _drawn(graph: Graph, drawn: torch.Tensor) -> dict[str, Any]:
    """A step's examples for `_clipped_sum`: single graphs, or the rows of one tensor."""
    if graph.batch is not None:
        return {"graphs": [alone(graph, example) for example in drawn.unbind()]}
    row = like_row(graph)
    rows = alone(graph, drawn)
    return {"row": row, "rows": Ragged(rows.x), "row_labels": Ragged(rows.y)}


def _clipped_sum(
    method: Method, params: Params, grads: Params, context: Any, length: float, sigma: float
) -> Params:
    """Sum the clipped gradients of all examples, for each tensor whose name is in `grads`.

    The clipped gradients are rounded to multiples of a power of two. The noise consists of
    multiples of the same number, so the sum of gradients and noise is exact.
    """
    still = fed.drop(params, grads)
    free = {name: params[name] for name in grads}
    if "graphs" not in context:
        row, x, y = context["row"], context["rows"], context["row_labels"]

        def loss(own: Params, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return method.loss({**still, **own}, of_row(row, x, y), context)

        how: dict[str, Any] = {"length": length, "counts": x.mask, "sigma": sigma}
        return clipped_gradient(loss, free, (x.values, y.values), **how)
    total = {n: torch.zeros_like(value, dtype=torch.float64) for n, value in free.items()}
    gradient = torch.func.grad(lambda own, of: method.loss({**still, **own}, of, context))
    for graph in context["graphs"]:
        try:
            gradients = gradient(free, graph)
        except Exception:  # no error may reveal this graph: leave it out
            LOG.warning("The loss of a graph raises: it counts for nothing", exc_info=True)
            continue
        exact = on_grid(clip(gradients, length=length), sigma=sigma)
        total = {name: total[name] + value for name, value in exact.items()}
    return total
