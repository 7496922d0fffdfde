"""FedSPA: clients with smooth features or with typical attention have larger weights."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .. import federation as fed
from ..aggregate import mean
from ..checks import PositiveShare, reject_if
from ..federation import Broadcast, Inbox, Message, Method, Outbox, Params, State
from ..graph import Graph
from ..sparse.rows import widened

KINDS = (".unlike_", ".alike_")  # in the names of an fgl.nn.SPA's parameters


@fed.layer(checks=[fed.check_averages, fed.check_one_architecture])
def fedspa(fedavg: Method, *, feature_share: PositiveShare = 0.2) -> Method:
    """FedAvg with larger weights for clients with smooth features or typical attention (FedSPA).

    The model is an `fgl.nn.SPA`, which treats similar, dissimilar and unknown neighbours
    separately. A client also sends an energy, computed from a random fraction of its features:
    ``e_k = mean_f x_f^T (D - A) x_f / x_f^T x_f``. The model scores neighbours with two kinds of
    tensors. Tensors ``u`` score dissimilar neighbours, and tensors ``a`` score similar neighbours.
    For both kinds the client sends ``F_k = (grad mean_i log p_k(y_i))^2``, computed in training
    mode. The weight ``w(d)_k`` is ``exp(-(d_k - min d) / (max d - min d))``, divided by the sum of
    these values over clients. The server averages both kinds of tensors with weights
    ``w(||F_k - mean F||_1)``. For each kind, these weights are computed from the entries of F for
    the tensors of this kind. All other tensors are averaged with weights ``w(e)``. So the largest
    weight is always e = 2.718 times the smallest weight. If all distances d_k are equal, clients
    have equal weights.

    The paper calls the energy e_k a bias of homophily. This method follows the public code. The
    public code computes the distance between an energy and the mean energy, but weights clients by
    the energy itself. So clients with smooth features get the largest weights. In the public code,
    F is the square of a mean gradient, and not a mean of squared gradients. In the public code, the
    "global" vectors for unknown neighbours are frozen and passed to each layer. Training does not
    use these vectors, so they are left out here.

    The public code differs in five ways. In the public code, F also depends on labels of validation
    and test nodes, so F reveals test labels to the server. Here F depends only on labels of
    training nodes. In the public code, the server shuffles the list of clients without shuffling
    the list of energies. So a client can get the weight that belongs to another client's energy.
    Here a client's weight always comes from the client's own energy. The public code divides by 0
    if all energies are equal; this method gives all clients equal weights. If all sampled features
    of a client are 0, the public code again divides by 0. Here the energy of such a client is zero.
    The public code applies dropout during evaluation. In a directed graph, the public code uses
    edges in both directions. Its ``M x`` averages features over the targets of a node's outgoing
    edges, but its sums over neighbours are over the sources of the incoming edges. Here averages
    and sums are both over the sources of the incoming edges.

    The public script trains with SGD (learning rate .1), 4 steps, a width of 128 and dropout .1.

    Args:
        fedavg: FedAvg built for a task; the server must send the mean of the models.
        feature_share: the energy is computed from this fraction of the features, above 0 and at
            most 1.

    Raises:
        ValueError: if an argument is out of range, if the model has no tensors u and a, or if the
            server of `fedavg` does not send the mean of the models.

    Example:
        >>> fedspa(fgl.fedavg(fgl.nn.SPA(4, 8, 2)), feature_share=1.0)
        fedspa(fedavg(SPA(...)), feature_share=1.0)

    Source: Tan et al. 2025 (CVPR, pages 15464-15475); https://github.com/OakleyTan/FedSPA
    """
    shapes = {name: each.shape for name, each in fedavg.model.named_parameters() if kind_of(name)}
    shapes = fed.pick(shapes, fed.trainable(fedavg))
    want = "to score alike and unlike neighbours, as fgl.nn.SPA does (model='spa' in a task)"
    reject_if(not shapes, f"the model {want}", type(fedavg.model).__name__)

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = fedavg.send(params, context, state, graph)
        drawn = "energy" in state
        energy = state["energy"] if drawn else feature_energy(graph, share=feature_share)
        squares = fisher(fedavg, params, graph, list(shapes), graph.training_mask)
        return {**message, "energy": energy, "fisher": squares}, {**new_state, "energy": energy}

    def accept(message: Message, client: int, state: State) -> None:
        fedavg.accept(message, client, state)
        energy = message.get("energy")
        number = isinstance(energy, Tensor) and not energy.dim() and not energy < 0
        reject_if(not number, "energy to be a number, at least 0", energy)
        check_squares(message.get("fisher"), shapes)

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        models, squares = inbox.each("model"), inbox.stack("fisher")
        energy = inbox.stack("energy")
        active = inbox.stack("num_examples").to(energy) > 0  # a client without any looks smoothest
        if not active.any():
            return {}, state
        squares = fed.combine(lambda each: each[active], squares)
        far = {"": energy[active], **{kind: distances(squares, kind) for kind in KINDS}}
        model: dict[str, Tensor] = {}
        for kind, distance in far.items():
            weight = distance.new_zeros(len(active)).masked_scatter(active, shares(distance))
            model |= mean({n: each for n, each in models.items() if kind_of(n) == kind}, weight)
        message: Message = {"model": {name: model[name] for name in models}}
        return Broadcast(message, inbox.num_clients), dict(message)

    return replace(fedavg, send=send, accept=accept, aggregate=aggregate)


def check_squares(squares: Any, shapes: Mapping[str, torch.Size]) -> None:
    """Raise a ValueError unless an upload has squared gradients with the given names and shapes."""
    named = squares if isinstance(squares, Mapping) else {}
    got = {name: each.shape for name, each in named.items()}
    reject_if(got != shapes, f"fisher to have the shapes {shapes}", got)
    for name, each in named.items():
        reject_if(each.min() < 0, f"fisher/{name} to be squares", f"{each.min():g}")


def kind_of(name: str) -> str:
    """The entry of `KINDS` that a tensor's name contains, or "" if there is no such entry.

    Example:
        >>> kind_of("convs.0.unlike_low"), kind_of("convs.0.itself")
        ('.unlike_', '')
    """
    return next((kind for kind in KINDS if kind in name), "")


def feature_energy(graph: Graph, *, share: float = 1.0) -> Tensor:
    """Energy of the features along edges, averaged over features: ``x^T (D - A) x / x^T x``.

    Args:
        graph: the graph; weights of edges are ignored.
        share: fraction of the features, sampled with torch's global generator; features that are 0
            everywhere are ignored.

    Returns:
        Scalar, not negative; 0 if all sampled features are ignored.

    Example:
        >>> graph = fgl.Graph(torch.tensor([[1.0], [0.0]]), torch.tensor([[0, 1], [1, 0]]))
        >>> feature_energy(graph)
        tensor(1.)
    """
    dense = graph.x.to_dense()
    drawn = torch.randperm(dense.shape[1], device=dense.device)
    x = widened(dense[:, drawn[: max(1, int(share * dense.shape[1]))]])
    edges = graph.adj.T
    edges = edges.with_value((edges.values != 0).to(x.dtype))
    degree = edges @ x.new_ones(len(x), 1)
    above = (x * (degree * x - edges @ x)).sum(0)
    size = x.square().sum(0)
    each = torch.where(size > 0, above / torch.where(size > 0, size, 1), 0)
    return (each.sum() / (size > 0).sum().clamp(min=1)).clamp(min=0)


def fisher(method: Method, params: Params, graph: Graph, names: list[str], mask: Tensor) -> Params:
    """Square of the gradient of the mean log-likelihood over some nodes, computed in training mode.

    Args:
        method: a method whose model returns a row of logits for each node.
        params: the parameters at which the gradient is computed.
        graph: a graph with class labels.
        names: names of the parameters.
        mask: bool ``[num_nodes]``, True for the nodes to use. If the mask is empty, the result is
            0.
    """
    leaves = {name: params[name].detach().clone().requires_grad_() for name in names}
    with torch.enable_grad(), method.at(graph), fed.in_mode(fed.stand_in(method.model), True):
        logits = widened(fed.predict(method.model, {**params, **leaves}, graph))
        labels = torch.where(mask, graph.labels, 0)[:, None]
        likely = logits.log_softmax(1).gather(1, labels)[:, 0]
        likely = torch.where(mask, likely, 0).sum() / mask.sum().clamp(min=1)
        grads = torch.autograd.grad(likely, list(leaves.values()))
    return {name: grad.square() for name, grad in zip(names, grads, strict=True)}


def distances(squares: Params, kind: str) -> Tensor:
    """Distance ``[K]`` between each client's F and the mean F, over tensors of one kind."""
    own = [each for name, each in squares.items() if kind_of(name) == kind]
    far = [widened(each - each.mean(0)).abs().flatten(1).sum(1) for each in own]
    return torch.stack(far).sum(0)


def shares(distance: Tensor) -> Tensor:
    """Weights ``[K]`` with sum 1, proportional to ``exp(-(d - min d) / (max d - min d))``.

    Distances that differ only by rounding are treated as equal. For example, if there are only two
    clients, their distances to the mean are always equal. A rounding error in these distances would
    otherwise give one client a weight of .73.

    Example:
        >>> shares(torch.tensor([3.0, 3.0 + 1e-6]))
        tensor([0.5000, 0.5000])
    """
    above = distance - distance.min()
    rounding = 64 * torch.finfo(distance.dtype).eps * distance.max()
    return (-above / torch.where(above.max() > rounding, above.max(), torch.inf)).softmax(0)
