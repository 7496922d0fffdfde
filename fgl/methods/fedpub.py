"""FED-PUB: clients mask their weights; each gets a mix of models that answer as its own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..checks import check_weight
from ..client_network import probe_graphs, similarity, softmax_attention
from ..federation import (
    Inbox,
    Message,
    Method,
    Params,
    State,
    check_averages,
    check_one_architecture,
    layer,
    predict,
)
from ..graph import Graph
from ..predict import check_reads
from .mix_models import mix_models

MASK = "mask."  # before the name of a weight: the name of its mask


def mean_answer(answers: Tensor) -> Tensor:
    """FED-PUB's embedding of a model: the mean of what it answers on the proxy graph."""
    return answers.mean(0)


@layer
def fedpub(
    fedavg: Method,
    probes: Graph,
    *,
    sparsity: float = 1e-3,
    proximity: float = 1e-3,
    scale: float = 10.0,
    penalties: bool = True,
    embed: Callable[[Tensor], Tensor] = mean_answer,
) -> Method:
    """Every weight is ``W * m`` with a mask m of the client's own; similar clients share W.

    A client minimises ``loss(W * m) + l1 ||m||_1 + l2 ||W - W_received||_2`` in W and m, from its
    own m, at first 1. Entries with ``|m| < l1`` are 0 in the model that it uses. It sends W and
    ``e_i``, what this model answers to `probes`, as GPFL's clients do: the server has no masks to
    ask with. Client i gets ``sum_j S_ij W_j``, ``S_ij = exp(scale cos(e_i, e_j))``, rows with sum
    1. Masks and statistics of batch norm stay. An absent client counts for nobody in this round. A
    client without a training example has no penalty, which alone would make its masks 0.

    Args:
        fedavg: what clients train, send and use; its server averages.
        probes: the common random graph, a collection where clients have one; see `proxy_graph`.
        sparsity: weight of the masks' size (l1), and the bound below which entries are dropped; at
            least 0.
        proximity: weight of the distance to the received weights (l2), at least 0.
        scale: how sharp the server's weights are, at least 0; 0 gives all clients equal shares.
        penalties: if not, no penalty has a gradient, as in the public code.
        embed: of a model's answers ``[R, C]``.

    Raises:
        ValueError: if a number is out of range, or the server of `fedavg` does more than average.

    Example:
        >>> probes = fgl.Graph(torch.eye(4), torch.tensor([[0], [1]]))
        >>> method = fedpub(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), probes)
        >>> params, context = method.receive({"model": method.initial()}, {}, None)
        >>> list(params)[-2:], params["mask.convs.1.bias"]
        (['mask.convs.1.bias', 'mask.convs.1.lin.weight'], tensor([1., 1.]))

    Source: Baek et al. 2023, https://arxiv.org/abs/2206.10206
    """
    check_weight(sparsity=sparsity, proximity=proximity, scale=scale)
    check_averages(fedavg, "fedpub")
    check_one_architecture(fedavg, "fedpub")
    check_reads(fedavg.model, probes, "fedpub")
    reader, statistics = copy.deepcopy(fedavg.model).eval(), dict(fedavg.model.named_buffers())
    weights = {name: p for name, p in fedavg.model.named_parameters() if p.requires_grad}
    masks = {MASK + name: torch.ones_like(p).detach() for name, p in weights.items()}
    first = {**masks, **{name: value.detach().clone() for name, value in statistics.items()}}

    def whole(message: Message, state: State) -> Message:
        """The message, with the client's own statistics."""
        sent = message.get("model", {})
        own = state.get("own", first)
        return {**message, "model": {**sent, **{name: own[name] for name in statistics}}}

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        received, context = fedavg.receive(whole(message, state), state, graph)
        own = state.get("own", first)
        params = {**received, **{name: own[name] for name in masks}}
        return params, {**context, "received": received}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        total = fedavg.loss(masked(params), graph, context)
        if not penalties:
            return total
        size = torch.stack([params[name].abs().sum() for name in masks]).sum()
        apart = [(params[n] - context["received"][n].detach()).flatten() for n in weights]
        far: Tensor = torch.linalg.vector_norm(torch.cat(apart))
        mask = graph.train_mask
        some = 1.0 if mask is None else mask.any().to(total.dtype)  # else masks would vanish
        return total + some * (sparsity * size) + some * (proximity * far)

    @torch.no_grad()
    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        plain = {name: value for name, value in params.items() if name not in masks}
        message, kept = fedavg.send(plain, context, state, graph)
        model = message["model"]
        answers = predict(reader, masked(params, bound=sparsity), probes)
        travels = {name: value for name, value in model.items() if name not in statistics}
        own = {name: params[name] for name in first}
        return {**message, "model": travels, "embedding": embed(answers)}, {**kept, "own": own}

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
        alike = similarity(inbox.stack("embedding"), centre=False)
        return mix_models(inbox, softmax_attention(alike, scale=scale))

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        used = fedavg.deploy(whole(message, state), state, graph)
        own = state.get("own", first)
        return masked({**used, **{name: own[name] for name in masks}}, bound=sparsity)

    method = replace(fedavg, receive=receive, loss=loss, send=send, personal=masks)
    return replace(method, aggregate=aggregate, deploy=deploy)


def masked(params: Mapping[str, Tensor], *, bound: float = 0.0) -> Params:
    """A model's weights times their masks: ``W * m``, 0 where ``|m| < bound``.

    Args:
        params: name to tensor; the mask of a weight is called ``"mask."`` and the weight's name.
        bound: below it an entry of a mask counts as 0.

    Returns:
        The model without masks; a tensor that has none is itself.

    Example:
        >>> masked({"w": torch.tensor([3.0, 4.0]), "mask.w": torch.tensor([0.5, 0.01])}, bound=0.1)
        {'w': tensor([1.5000, 0.0000])}

    Source: Baek et al. 2023, https://arxiv.org/abs/2206.10206
    """
    out = {}
    for name, value in params.items():
        if name.startswith(MASK):
            continue
        mask = params.get(MASK + name)
        if mask is None:
            out[name] = value
        else:
            pruned = torch.where(mask.abs() < bound, 0, mask) if bound else mask
            out[name] = value * pruned
    return out


def proxy_graph(
    like: Graph,
    *,
    blocks: int = 5,
    num_nodes: int = 100,
    p: float = 0.1,
    generator: torch.Generator | None = None,
) -> Graph:
    """The graph that all clients' models are asked about: random blocks, features from N(0, 1).

    Args:
        like: a client's graph, for the number of features, their dtype and the device; where it is
            a collection the blocks are a collection too.
        blocks: how many graphs of Erdos and Renyi.
        num_nodes: of each.
        p: probability of an edge.
        generator: of edges and features.

    Raises:
        ValueError: if a number is out of range.

    Example:
        >>> graph = fgl.Graph(torch.ones(3, 4), torch.zeros(2, 0, dtype=torch.int64))
        >>> proxy_graph(graph, blocks=2, num_nodes=5).x.shape
        torch.Size([10, 4])

    Source: Baek et al. 2023, https://arxiv.org/abs/2206.10206
    """
    how: dict[str, Any] = {"num_features": like.num_features, "features": "normal"}
    x, edges, batch = probe_graphs(blocks, num_nodes, p, generator=generator, **how)
    collected = None if like.batch is None else batch
    return Graph(x.to(like.x.dtype), edges, batch=collected).to(like.device)
