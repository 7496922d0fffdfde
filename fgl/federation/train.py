"""Local training: the loop executor."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..graph import Graph
from .message import Message, Params
from .method import Method


def train(
    method: Method, params: Params, graph: Graph, context: Message, *, seed: int
) -> tuple[Params, list[float]]:
    """Minimise ``method.loss`` on one client, from `params`.

    Torch's global random state is seeded for the time of the call, and put back.

    Args:
        method: the loss, the optimiser and the number of steps.
        params: where to start; not changed.
        graph: the client's graph.
        context: what `method.receive` made.
        seed: decides dropout, augmentation and whatever else the loss draws.

    Returns:
        The trained parameters, and the loss before each step.

    Example:
        >>> model = fgl.nn.GCN(2, 8, 2)
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> method = fgl.Method(model, train=fgl.Training(num_steps=2))
        >>> params, losses = train(method, method.initial(), graph, {}, seed=0)
        >>> len(losses)
        2
    """
    trainable = {name for name, p in method.model.named_parameters() if p.requires_grad}
    local = {
        name: value.detach().clone().requires_grad_(name in trainable)
        for name, value in params.items()
    }
    leaves = [value for value in local.values() if value.requires_grad]
    optimizer = method.train.optimizer(leaves)
    losses: list[Tensor] = []
    devices = [graph.device] if graph.device.type == "cuda" else []
    was_training = method.model.training
    method.model.train()
    try:
        with torch.random.fork_rng(devices), torch.enable_grad():
            torch.manual_seed(seed)
            for _ in range(method.train.num_steps):
                optimizer.zero_grad()
                loss = method.loss(local, graph, context)
                loss.backward()
                if method.train.max_grad_norm is not None:
                    nn.utils.clip_grad_norm_(leaves, method.train.max_grad_norm)
                optimizer.step()
                losses.append(loss.detach())
    finally:
        method.model.train(was_training)
    history = torch.stack(losses).tolist() if losses else []
    return {name: value.detach() for name, value in local.items()}, history
