"""FED-PUB: clients mask their weights; each gets a mix of models with similar answers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from .. import federation as fed
from ..checks import Weight
from ..client_network import probe_graphs, similarity
from ..client_network.network import softmax_attention
from ..federation import Inbox, Message, Method, Outbox, Params, State
from ..graph import Graph
from ..kinds import typed
from ..nn.observe import gives_embeddings
from ..predict import check_reads
from .mix_models import mean_for_strangers, mix_models

MASK = "mask."  # before the name of a weight: the name of its mask
Masked = Literal["matrices", "all"]
Embedding = Literal["auto", "embedding", "answers"]


def mean_answer(answers: Tensor) -> Tensor:
    """FED-PUB's embedding of a model: the mean of its outputs on the proxy graph."""
    return answers.mean(0)


@fed.layer(checks=[fed.check_averages, fed.check_one_architecture])
def fedpub(
    fedavg: Method,
    probes: Graph,
    *,
    sparsity: Weight = 1e-3,
    proximity: Weight = 1e-3,
    scale: Weight = 10.0,
    penalties: bool = True,
    masks: Masked = "matrices",
    of: Embedding = "auto",
    embed: Callable[[Tensor], Tensor] = mean_answer,
) -> Method:
    """Train weights ``W * m``: masks m are personal, and similar clients average W (FED-PUB).

    A client minimises ``loss(W * m) + l1 ||m||_1 + l2 sum_n ||W_n - W_n received||_2``, n being the
    model's tensors, in W and m, from its own m, at first 1; the last term begins in the second
    round. Entries with ``|m| < l1`` are 0 in the model that it uses. It sends W and ``e_i``, the
    mean of this model's embeddings of the nodes of `probes`: the server has no masks to ask with.
    Client i gets ``sum_j S_ij W_j``, ``S_ij = exp(scale cos(e_i, e_j))``, rows with sum 1; a new
    client gets the mean. Masks and statistics of batch norm stay. An absent client has no part in
    this round's mixes.

    As the public code, except for the penalties: there they have no gradient, since
    ``state_dict()`` detaches its tensors, and the paper's loss asks for one. And a client without a
    training example that has an answer has none, since they alone would make its masks 0.

    Args:
        fedavg: what clients train, send and use; its server averages. The public code keeps Adam's
            state between rounds: ``Training(keep_optimizer=True)``.
        probes: the common random graph, a collection where clients have one; see `proxy_graph`.
        sparsity: weight of the masks' size (l1), and the bound below which entries are dropped; at
            least 0.
        proximity: weight of the distance to the received weights (l2), at least 0.
        scale: how sharp the server's weights are, at least 0; 0 gives all clients equal shares. The
            public code's default is 10, its scripts have 3 (disjoint) and 5 (overlapping).
        penalties: if not, no penalty has a gradient, as in the public code.
        masks: what has a mask: weights of two dimensions or more, or all that is trained.
        of: what `embed` gets: the model's embeddings, which are the last hidden convolution's
            output before its activation, or its answers; by default embeddings where the model
            takes ``return_embedding=True``, else answers.
        embed: function of the model's outputs on the probes, ``[R, C]``.

    Raises:
        ValueError: if a number is out of range, a choice unknown, or the server of `fedavg` does
            more than average.

    Example:
        >>> probes = fgl.Graph(torch.eye(4), torch.tensor([[0], [1]]))
        >>> method = fedpub(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), probes)
        >>> params, context = method.receive({"model": method.initial()}, {}, None)
        >>> [name for name in params if name.startswith("mask.")]
        ['mask.convs.0.lin.weight', 'mask.convs.1.lin.weight']

    Source: Baek et al. 2023, https://arxiv.org/abs/2206.10206; JinheonBaek/FED-PUB
    """
    check_reads(fedavg.model, probes, "fedpub")
    reader, statistics = copy.deepcopy(fedavg.model).eval(), dict(fedavg.model.named_buffers())
    weights = {name: p for name, p in fedavg.model.named_parameters() if p.requires_grad}
    ones = {
        MASK + name: torch.ones_like(p).detach()
        for name, p in weights.items()
        if p.dim() > 1 or masks == "all"
    }
    first = {**ones, **{name: value.detach().clone() for name, value in statistics.items()}}
    embeds = of == "embedding" or (of == "auto" and gives_embeddings(reader))

    def whole(message: Message, state: State) -> Message:
        """The message, with the client's own statistics."""
        sent = message.get("model", {})
        return {**message, "model": {**sent, **fed.pick(state.get("own", first), statistics)}}

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        received, context = fedavg.receive(whole(message, state), state, graph)
        params = {**received, **fed.pick(state.get("own", first), ones)}
        aggregated = torch.tensor("num_clients" in message)  # not in the first round
        return params, {**context, "received": received, "aggregated": aggregated}

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        total = fedavg.loss(masked(params), graph, context)
        if not penalties:
            return total
        size = mask_size(fed.pick(params, ones), total)
        far = distance(fed.pick(params, weights), context["received"])
        some = torch.ones_like(total) * (graph.num_train > 0)  # no copy that a GPU waits for
        later = context["aggregated"].to(total.dtype)
        penalty: Tensor = sparsity * size + later * proximity * far
        return total + some * penalty

    @torch.no_grad()
    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        plain = fed.drop(params, ones)
        message, new_state = fedavg.send(plain, context, state, graph)
        model = message["model"]
        used = masked(params, bound=sparsity)
        output = fed.predict(reader, used, probes, **({"return_embedding": True} if embeds else {}))
        read: Tensor = output[1] if embeds else output
        travels = fed.drop(model, statistics)
        own = fed.pick(params, first)
        return {**message, "model": travels, "embedding": embed(read)}, {**new_state, "own": own}

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        similarities = similarity(inbox.stack("embedding"), centre=False)
        outbox, new = mix_models(inbox, softmax_attention(similarities, scale=scale))
        outbox, participated = mean_for_strangers(inbox, outbox, state)
        return outbox, {**new, **participated}

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        used = fedavg.deploy(whole(message, state), state, graph)
        return masked({**used, **fed.pick(state.get("own", first), ones)}, bound=sparsity)

    method = replace(fedavg, receive=receive, loss=loss, send=send)
    method = replace(method, own=replace(fedavg.own, personal=ones))
    return replace(method, aggregate=aggregate, deploy=deploy)


def mask_size(masks: Params, like: Tensor) -> Tensor:
    """``sum |m|`` over all entries of all masks; 0 without a mask."""
    total: Tensor = sum((mask.abs().sum() for mask in masks.values()), torch.zeros_like(like))
    return total


def distance(weights: Params, received: Mapping[str, Tensor]) -> Tensor:
    """``sum_n ||W_n - W_n received||_2`` over tensors; the received get no gradient."""
    apart = fed.combine(lambda own, sent: own - sent.detach(), weights, received)
    return torch.stack([torch.linalg.vector_norm(each) for each in apart.values()]).sum()


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


@typed
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
