"""FedSage+'s generators: each learns at the other clients too, which send gradients back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from .. import aggregate as server
from ..checks import check_weight
from ..federation import (
    Inbox,
    Message,
    Method,
    Params,
    Ragged,
    State,
    check_keys,
    check_one_architecture,
    layer,
)
from ..graph import Graph
from ..graph.neighbours import neighbour_features, neighbour_table
from ..losses import nearest_features
from ..nn import outputs
from .own_models import own_models

Neighbours = Callable[[Graph, int, int], tuple[Tensor, Tensor]]
KEYS = (("made", "count"), ("pulls",), ())  # of the uploads of each stage
STAGES = 3  # what was generated goes out, its gradients come back, then everybody takes a step


def random_neighbours(graph: Graph, count: int, width: int) -> tuple[Tensor, Tensor]:
    """The features of up to `width` random neighbours of each of `count` random nodes.

    Returns:
        float ``[count, width, num_features]``, zeros where there are fewer; int64 ``[count]``, how
        many there are.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0, 1], [1, 0]]))
        >>> features, number = random_neighbours(graph, 3, 5)
        >>> features.shape, number
        (torch.Size([3, 5, 2]), tensor([1, 1, 1]))
    """
    order = torch.randperm(graph.num_edges, device=graph.device)
    table, number = neighbour_table(graph.edge_index[:, order], graph.num_nodes, width)
    nodes = torch.randint(graph.num_nodes, (count,), device=graph.device)
    return neighbour_features(graph, table[nodes], number[nodes]), number[nodes]


@layer
def fedsage_plus(
    fedavg: Method, *, weight: float = 1.0, neighbours: Neighbours = random_neighbours
) -> Method:
    """Generators of neighbours that learn from all clients, and stay where they are (FedSage+).

    Client i minimises ``(L_i + b sum_{j != i} greedy(H_i, neighbours of random nodes of j)) / K``
    (Eq. 9), H_i being what it generates for its training nodes. An epoch is three rounds: i sends
    H_i; every j sends the gradient of its term to H_i; i takes one step. So neither features nor
    generators travel, only what is generated and gradients of it. One who is absent in a round is
    left out: without gradients a client learns from its own loss alone.

    Args:
        fedavg: its model is a `fgl.nn.NeighbourGenerator`, its loss that of
            `fgl.tasks.generator_task`.
        weight: b, at least 0.
        neighbours: ``(graph, count, width) -> features, number``, what a client compares others'
            neighbours with, drawn anew in each epoch.

    Raises:
        ValueError: if `weight` is negative.

    Example:
        >>> net = fgl.nn.NeighbourGenerator(4, 8, 2, latent=3, widths=(5, 6))
        >>> fedsage_plus(fgl.fedavg(net)).exchange
        3

    Source: Zhang et al. 2021, https://arxiv.org/abs/2106.13430
    """
    check_weight(weight=weight)
    check_one_architecture(fedavg, "fedsage_plus")
    base, model = own_models(fedavg), fedavg.model
    draw: Any = model.draw

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        plain = {k: v for k, v in message.items() if k not in ("pull", "owners")}
        params, context = base.receive(plain, state, graph)
        stage = message.get("stage", torch.tensor(0))
        context = {**context, "stage": stage}
        if stage == 1:
            return params, context
        pull = message.get("pull")
        drawn = state.get("drawn")
        if pull is None or drawn is None:
            pull, drawn = None, draw(graph.num_nodes)
        context |= {name: Ragged(value) for name, value in sorted(drawn.items())}
        if stage == 0:
            return params, context
        return params, {**context, **_pulled(model, graph, message, pull)}

    def batches(graph: Graph, context: Any) -> Iterator[tuple[Graph, Any]]:
        if context["stage"] == STAGES - 1:
            inner = fedavg.train.batches
            yield next(iter(inner(graph, context))) if inner else (graph, context)

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        if "pull" not in context:
            return base.loss(params, graph, context)
        with outputs(model) as seen:
            total = base.loss(params, graph, context)
        pulled: Tensor = (context["pull"].values * seen[-1][1]).sum()
        joint: Tensor = (total + weight * pulled) / context["owners"]
        return joint

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        _, new_state = base.send(params, context, state, graph)
        new_state = {name: value for name, value in new_state.items() if name != "drawn"}
        if context["stage"] == 1:
            pulls = _pulls(context, graph, neighbours)
            drawn = {"drawn": state["drawn"]} if "drawn" in state else {}
            return {"pulls": pulls}, {**new_state, **drawn}
        if context["stage"] == STAGES - 1:
            return {}, new_state
        own = {name: context[name].values for name in ("keep", "noise")}
        with torch.no_grad():
            count, made, _ = functional_call(model, params, (graph.x, graph.adj), own)
        dtype = next(model.parameters()).dtype
        rows = graph.training_mask  # the nodes that others judge
        sent = {"made": made[rows].to(dtype), "count": count[rows].to(dtype)}
        return sent, {**new_state, "drawn": own}

    def accept(message: Message, client: int, state: State) -> None:
        base.accept(message, client, state)
        stage = int(state.get("stage", 0))
        check_keys(message, KEYS[stage], f"the upload of stage {stage}")
        if stage == 0:
            _check_made(model, message, fedavg.max_examples)
        if stage == 1:
            _check_pulls(model, message["pulls"], client, state.get("rows", {}))

    how = replace(fedavg.train, num_steps=None, batches=batches)
    changed: Any = {"receive": receive, "loss": loss, "send": send, "accept": accept}
    changed |= {"aggregate": relayed, "train": how, "exchange": STAGES}
    return replace(base, **changed, ragged=KEYS[0] + KEYS[1])


def relayed(inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
    """The server passes on what clients generated, then the gradients that came back for each."""
    stage = state.get("stage", torch.tensor(0))
    following = (stage + 1) % STAGES
    outbox: dict[int, Message] = {k: {"stage": following} for k in range(inbox.num_clients)}
    for client, message in outbox.items():
        if stage == 0:
            message |= _of_others(inbox, client)
        elif stage == 1:
            message |= _pulls_for(inbox, client)
    rows = {} if stage else {"rows": _sizes(inbox)}
    return outbox, {**state, "stage": following, **rows}


def _sizes(inbox: Inbox) -> dict[str, Tensor]:
    """For how many nodes each client has generated neighbours."""
    generated: dict[str, Any] = {str(client): message["made"] for client, message in inbox.items()}
    return {client: torch.tensor(len(each)) for client, each in generated.items()}


def _check_made(model: Any, message: Any, most: float) -> None:
    """Refuse what is not P neighbours a row and a number for each, of so many nodes at most."""
    made, count = message["made"], message["count"]
    _check(model, "made", made, count.numel())
    if count.dim() != 1 or count.dtype != made.dtype:
        raise ValueError("Expected count to be a number for each node, but got others")
    if len(count) > most:
        raise ValueError(f"Expected count to be of at most {most:g} nodes, but got {len(count)}")


def _check_pulls(model: Any, pulls: Any, client: int, rows: Any) -> None:
    """Refuse what is not one gradient for each that was sent."""
    check_keys(pulls, [k for k in rows if k != str(client)], "pulls")
    for owner, gradient in pulls.items():
        _check(model, f"pulls[{owner!r}]", gradient, int(rows[owner]))


def _check(model: Any, name: str, value: Tensor, rows: int) -> None:
    """Raise a ValueError unless a tensor is as neighbours of so many nodes are."""
    places: int = model.num_neighbours
    want = (rows, places, model.features[2].out_features // places)
    if value.shape != want or value.dtype != model.count.weight.dtype:
        raise ValueError(
            f"Expected {name} to be {model.count.weight.dtype} of shape {list(want)}, "
            f"but got {value.dtype} {list(value.shape)}"
        )


def _pulls(context: Any, graph: Graph, neighbours: Neighbours) -> dict[str, Tensor]:
    """The gradient of the greedy loss to what each of the other clients generated."""
    pulls = {}
    for owner, made in context.get("made", {}).items():
        features, number = neighbours(graph, made.shape[0], made.shape[1])
        count = context["count"][owner]
        pulls[owner] = torch.func.grad(nearest_features)(made, count, features, number)
    return pulls


def _pulled(model: Any, graph: Graph, message: Message, pull: Any) -> dict[str, Any]:
    """The gradients that came back, for all nodes, and over how many clients the loss is a mean."""
    like = model.count.weight
    shape = (graph.num_nodes, model.num_neighbours, graph.num_features)
    whole = torch.zeros(shape, dtype=like.dtype, device=like.device)
    owners = torch.ones((), dtype=like.dtype, device=like.device)
    if pull is not None:
        whole[graph.training_mask] = pull
        owners = owners * message["owners"]
    return {"pull": Ragged(whole), "owners": owners}


def _of_others(inbox: Inbox, client: int) -> Message:
    """What the other clients generated."""
    others = {str(k): message for k, message in inbox.items() if k != client}
    return {key: {k: m[key] for k, m in others.items()} for key in ("made", "count")}


def _pulls_for(inbox: Inbox, client: int) -> Message:
    """The sum of the gradients that the others sent to a client, if they did."""
    sent: list[Any] = [message["pulls"] for message in inbox.values()]
    gradients = [pulls[str(client)] for pulls in sent if str(client) in pulls]
    if not gradients:
        return {}
    weight = torch.ones(len(gradients), device=gradients[0].device)
    total = server.mean({"pull": gradients}, weight)["pull"] * len(gradients)
    return {"pull": total, "owners": torch.tensor(len(gradients) + 1, device=total.device)}
