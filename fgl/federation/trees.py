"""FedEgo's parts of a round: steps on sampled trees, mashed uploads, a server that trains."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from ..ego import EgoSampler, check_mashed, levels, mash, resample
from ..graph import Graph
from ..losses import soft_cross_entropy
from ..nn import EgoSAGE
from ..personalize import is_distribution, split_layers
from ..sparse import SparseMatrix
from .evaluate import in_mode
from .message import Message, Params, check_model
from .method import OptimizerFactory
from .ragged import Ragged
from .schedule import training_examples
from .train import fused, load_state, state_of


def ego_steps(
    sampler: EgoSampler, graph: Graph, *, epochs: int, batch_size: int
) -> Iterable[tuple[Graph, Message]]:
    """FedEgo's local steps: per epoch a fifth of the client's nodes, drawn from the training nodes.

    A step sees ``"trees"`` (int64 ``[b, size]``) into ``"x"``, the features of the nodes that occur
    in them, and ``"labels"``, one-hot ``[b, C]``, all `Ragged`: a last step is short. So the first layer works on each node once.

    Args:
        sampler: of the client's graph.
        graph: with labels and a training mask.
        epochs: passes, each over ``num_nodes // 5`` fresh training nodes, at least one (or all, if
            fewer).
        batch_size: centres per step.

    Returns:
        Pairs of the graph and the context of a step, for `Training.batches`.

    Raises:
        ValueError: if `batch_size` is not in ``[1, num_train]``, or there are no labels.

    Example:
        >>> graph = fgl.data.split(fgl.data.load("synthetic"), "random")
        >>> steps = list(ego_steps(fgl.ego.EgoSampler(graph), graph, epochs=1, batch_size=32))
        >>> len(steps), steps[0][1]["trees"].values.shape
        (17, torch.Size([32, 43]))
    """
    check_batch_size(batch_size, graph)
    pool = training_examples(graph)
    labels = one_hot(graph)
    for _ in range(epochs):
        drawn = torch.randperm(pool.numel(), device=pool.device)[: max(graph.num_nodes // 5, 1)]
        for centres in pool[drawn].split(batch_size):
            nodes, trees = sampler(centres).unique(return_inverse=True)
            x: Any = graph.x.rows(nodes) if isinstance(graph.x, SparseMatrix) else graph.x[nodes]
            step: Any = {"x": x, "trees": trees, "labels": labels[centres]}
            yield graph, {name: Ragged(value) for name, value in step.items()}


def check_batch_size(batch_size: int, graph: Graph) -> None:
    """A batch must not be larger than the client, nor empty."""
    if not 1 <= batch_size <= graph.num_train:
        raise ValueError(
            f"Expected batch_size to be in [1, {graph.num_train}], the client's training nodes, "
            f"but got {batch_size}"
        )


def one_hot(graph: Graph) -> Tensor:
    """Labels as rows ``[num_nodes, C]`` of zeros and a one."""
    if graph.y is None or graph.num_classes is None:
        raise ValueError("Expected graph.y to be a tensor of labels, but got None")
    return torch.eye(graph.num_classes, dtype=graph.x.dtype, device=graph.device)[graph.y]


def upload_trees(
    sampler: EgoSampler,
    graph: Graph,
    embeddings: Tensor,
    *,
    batch_size: int,
    mixup: bool = True,
    noise: float = 0.0,
) -> Message:
    """What a FedEgo client uploads of its graph: one mashed ego-graph per batch of training nodes.

    Args:
        sampler: of the client's graph.
        graph: with labels and a training mask.
        embeddings: of all nodes, float ``[num_nodes, H]``.
        batch_size: ego-graphs per mashed one; a short last batch makes one too.
        mixup: if not, the first ego-graph of a batch is uploaded as it is.
        noise: standard deviation of the Gaussian noise on the embeddings.

    Returns:
        ``{"embeddings": [G, size, H], "labels": [G, size, C]}``.

    Raises:
        ValueError: if `batch_size` is not in ``[1, num_train]``, `embeddings` has not a row per
            node, `noise` is negative or not finite, or there are no labels.

    Example:
        >>> graph = fgl.data.split(fgl.data.load("synthetic"), "random")
        >>> r = torch.rand(graph.num_nodes, 8)
        >>> upload = upload_trees(fgl.ego.EgoSampler(graph), graph, r, batch_size=32)
        >>> upload["embeddings"].shape, upload["labels"].shape
        (torch.Size([51, 43, 8]), torch.Size([51, 43, 7]))
    """
    check_batch_size(batch_size, graph)
    if len(embeddings) != graph.num_nodes:
        raise ValueError(
            f"Expected embeddings to have {graph.num_nodes} rows, one per node, "
            f"but got {len(embeddings)}"
        )
    if not 0 <= noise < math.inf:
        raise ValueError(f"Expected noise to be at least 0, but got {noise}")
    trees = sampler(training_examples(graph))
    made = []
    for values in (embeddings, one_hot(graph)):
        if mixup:
            made.append(mash(values, trees, batch_size=batch_size))
        else:
            made.append(values[trees[::batch_size]])
    if noise:
        made[0] = made[0] + noise * torch.randn_like(made[0])
    return {"embeddings": made[0], "labels": made[1]}


def check_upload(message: Message, model: EgoSAGE, *, ego: bool = True) -> None:
    """Check what a FedEgo client uploads beside its reduction layer.

    Args:
        message: the upload.
        model: the architecture.
        ego: whether it has mashed ego-graphs; if not, a ``"head"`` and a ``"distribution"``.

    Raises:
        TypeError, ValueError: for a missing key, and as `check_mashed`; or if the head has other
            layers, shapes or dtypes, or the distribution is negative or does not sum to 1.

    Example:
        >>> model = fgl.nn.EgoSAGE(4, 8, 2, fanouts=(2,))
        >>> good = {"embeddings": torch.zeros(1, 3, 8), "labels": torch.full((1, 3, 2), 0.5)}
        >>> check_upload(good, model)
    """
    for key in ("embeddings", "labels") if ego else ("head", "distribution"):
        if key not in message:
            raise ValueError(f"Expected message to have {key!r}, but got keys {list(message)}")
    classes = model.head.out_features
    parts: Any = message
    if ego:
        shape = levels(model.fanouts)[-1], model.head.in_features, classes
        both = parts["embeddings"], parts["labels"]
        check_mashed(*both, shape=shape, dtype=model.head.weight.dtype)
        return
    check_model(parts["head"], split_layers(model.state_dict(), ["reduction"])[1], "head")
    share = parts["distribution"]
    if share.shape != (classes,) or not is_distribution(share):
        raise ValueError(
            f"Expected distribution to be {classes} shares that sum to 1, but got {share.tolist()}"
        )


def train_on_trees(
    model: EgoSAGE,
    params: Params,
    trees: Tensor,
    labels: Tensor,
    *,
    optimizer: OptimizerFactory,
    state: Mapping[str, Tensor],
    epochs: int = 5,
    batch_size: int = 32,
) -> tuple[Params, Params]:
    """A server's training on mashed ego-graphs: soft labels of the centres, neighbours re-sampled.

    Every epoch sees a fifth of the trees, drawn anew. Randomness is torch's global one.

    Args:
        model: the architecture.
        params: the layers to train, name to tensor; not changed.
        trees: embeddings, float ``[G, size, H]``.
        labels: float ``[G, C]``, the centres'.
        optimizer: makes a `torch.optim` optimiser.
        state: the optimiser's, of the last call; ``{}`` at first.
        epochs: passes, each over ``G // 5`` trees, at least one.
        batch_size: trees per step.

    Returns:
        The trained layers and the optimiser's state.

    Raises:
        ValueError: if there are no trees, or not as many labels.

    Example:
        >>> model = fgl.nn.EgoSAGE(4, 8, 2)
        >>> params = {name: p for name, p in model.state_dict().items() if "reduction" not in name}
        >>> trees, labels = torch.randn(10, 43, 8), torch.full((10, 2), 0.5)
        >>> new, adam = train_on_trees(
        ...     model, params, trees, labels, optimizer=torch.optim.Adam, state={}
        ... )
        >>> list(new) == list(params), int(adam["step/head.weight"])
        (True, 5)
    """
    if len(trees) != len(labels) or not len(trees):
        raise ValueError(
            f"Expected trees and labels to be of as many graphs, at least one, "
            f"but got {len(trees)} and {len(labels)}"
        )
    leaves = {name: value.detach().clone().requires_grad_() for name, value in params.items()}
    stepper = fused(optimizer(list(leaves.values())))
    load_state(stepper, leaves, state)
    with in_mode(model, True), torch.enable_grad():
        for _ in range(epochs):
            order = torch.randperm(len(trees), device=trees.device)
            for chosen in order[: max(len(trees) // 5, 1)].split(batch_size):
                stepper.zero_grad()
                x = resample(trees[chosen], fanouts=model.fanouts)
                logits = functional_call(model, leaves, (x,))
                soft_cross_entropy(logits, labels[chosen]).backward()
                stepper.step()
    trained = {name: leaf.detach() for name, leaf in leaves.items()}
    return trained, state_of(stepper, leaves)
