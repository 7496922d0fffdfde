"""FED-PUB: clients multiply weights by masks; the server mixes models with similar outputs."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from .. import federation as fed
from ..checks import Weight
from ..client_network import probe_graphs
from ..federation import Inbox, Message, Method, Outbox, Params, State
from ..graph import Graph
from ..nn.observe import gives_embeddings
from ..predict import check_reads
from .mix_models import mix_similar

MASK = "mask."  # before the name of a weight: the name of its mask
Masked = Literal["matrices", "all"]
Embedding = Literal["auto", "embedding", "answers"]


def mean_answer(answers: Tensor) -> Tensor:
    """FED-PUB's embedding of a model: the mean of the model's outputs on the proxy graph."""
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
    """Train weights ``W * m``: each client keeps its masks m, and similar clients average W.

    A client minimises ``loss(W * m) + l1 ||m||_1 + l2 sum_n ||W_n - W^t_n||_2`` over W and m. Here
    W^t are the received weights, and the sum is over the tensors n of the model. The client starts
    from its own m. In the first round, all entries of m are 1. The last term of this loss is used
    from the second round on. For predictions, all mask entries with ``|m| < l1`` are treated as
    zero. The client sends W and ``e_i``. The masked model embeds the nodes of `probes`, and ``e_i``
    is the mean of these embeddings. The server could not compute ``e_i``, since the server has no
    masks. Client i gets ``sum_j S_ij W_j``. The matrix S has the entries
    ``exp(scale cos(e_i, e_j))``, and each row is divided by the row's sum. A new client gets the
    mean of the models. Each client keeps its masks and its batch norm statistics. The mixes of a
    round do not include models of absent clients.

    This method follows the public code, except for the penalties. In the public code, the penalties
    have no gradient, since ``state_dict()`` detaches its tensors. Here the penalties have a
    gradient, as in the loss of the paper. A client without a labelled training example has no
    penalties. Otherwise the penalties would shrink this client's masks to 0.

    Args:
        fedavg: FedAvg built for a task; the server must send the mean of the models. The public
            code keeps Adam's state between rounds: ``Training(keep_optimizer=True)``.
        probes: one random graph for all clients (see `proxy_graph`). If clients hold collections of
            graphs, the probes are a collection too.
        sparsity: l1, the weight of the masks' size, at least 0. An entry of a mask is treated as 0
            if its magnitude is below l1.
        proximity: l2, the weight of the penalty for distance from the received W, at least 0.
        scale: factor of the cosines, at least 0. A larger factor gives more weight to similar
            clients; 0 gives all clients equal weights. The default of the public code is 10. The
            public scripts use 3 for disjoint clients and 5 for overlapping clients.
        penalties: whether the penalties have a gradient; in the public code they have no gradient.
        masks: which tensors have a mask: either all weights with at least two dimensions, or all
            trained tensors.
        of: the kind of rows from which `embed` computes ``e_i``. With ``"answers"``, the rows are
            the model's outputs. With ``"embedding"``, the rows are the model's embeddings: the
            results of the last hidden convolution before the activation. The default ``"auto"``
            selects embeddings if the model takes ``return_embedding=True``, and outputs otherwise.
        embed: a function that computes ``e_i`` from a matrix ``[R, C]``. The matrix contains the
            rows that the client's masked model returns for the probes.

    Raises:
        ValueError: if a number is out of range, if a choice is unknown, or if the server of
            `fedavg` does not send the mean of the models.

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
    masked_weights = {n: p for n, p in weights.items() if p.dim() > 1 or masks == "all"}
    ones = {MASK + name: torch.ones_like(p).detach() for name, p in masked_weights.items()}
    first = {**ones, **{name: value.detach().clone() for name, value in statistics.items()}}
    embeds = of == "embedding" or (of == "auto" and gives_embeddings(reader))

    def whole(message: Message, state: State) -> Message:
        """Add the client's own batch norm statistics to the model in the message."""
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
        message, new_state = fedavg.send(fed.drop(params, ones), context, state, graph)
        model = message["model"]
        used = masked(params, bound=sparsity)
        output = fed.predict(reader, used, probes, **({"return_embedding": True} if embeds else {}))
        read: Tensor = output[1] if embeds else output
        travels = fed.drop(model, statistics)
        own = fed.pick(params, first)
        return {**message, "model": travels, "embedding": embed(read)}, {**new_state, "own": own}

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        return mix_similar(inbox, state, inbox.stack("embedding"), scale=scale)

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        used = fedavg.deploy(whole(message, state), state, graph)
        return masked({**used, **fed.pick(state.get("own", first), ones)}, bound=sparsity)

    method = replace(fedavg, receive=receive, loss=loss, send=send)
    method = replace(method, own=replace(fedavg.own, personal=ones))
    return replace(method, aggregate=aggregate, deploy=deploy)


def mask_size(masks: Params, like: Tensor) -> Tensor:
    """Size of all masks: ``sum |m|`` over the entries of all masks, or 0 if there is no mask."""
    total: Tensor = sum((mask.abs().sum() for mask in masks.values()), torch.zeros_like(like))
    return total


def distance(weights: Params, received: Mapping[str, Tensor]) -> Tensor:
    """Distance to the received tensors, summed over tensors n: ``sum_n ||W_n - W_n received||_2``.

    No gradient flows to the received tensors.
    """
    apart = fed.combine(lambda own, sent: own - sent.detach(), weights, received)
    return torch.stack([torch.linalg.vector_norm(each) for each in apart.values()]).sum()


def masked(params: Mapping[str, Tensor], *, bound: float = 0.0) -> Params:
    """Multiply weights by masks, ``W * m``; mask entries with ``|m| < bound`` count as 0.

    Args:
        params: dict from name to tensor, with weights and masks. A mask's name is ``"mask."``
            followed by the name of the weight.
        bound: a mask's entry is treated as 0 if its magnitude is below this value.

    Returns:
        A dict of the model's tensors, without the masks. A tensor that has no mask is unchanged.

    Example:
        >>> masked({"w": torch.tensor([3.0, 4.0]), "mask.w": torch.tensor([0.5, 0.01])}, bound=0.1)
        {'w': tensor([1.5000, 0.0000])}

    Source: Baek et al. 2023, https://arxiv.org/abs/2206.10206
    """
    out = {name: value for name, value in params.items() if not name.startswith(MASK)}
    for name in [name for name in out if MASK + name in params]:
        mask = params[MASK + name]
        out[name] = out[name] * (torch.where(mask.abs() < bound, 0, mask) if bound else mask)
    return out


def proxy_graph(
    like: Graph,
    *,
    blocks: int = 5,
    num_nodes: int = 100,
    p: float = 0.1,
    generator: torch.Generator | None = None,
) -> Graph:
    """A random graph for comparing models: blocks of random edges, and features from N(0, 1).

    Args:
        like: a client's graph. The result has the number of features, the dtype and the device of
            this graph. If the client's graph is a collection, the result is a collection with one
            graph per block.
        blocks: number of Erdos-Renyi graphs.
        num_nodes: number of nodes of each block.
        p: probability of an edge.
        generator: random generator for edges and features.

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
