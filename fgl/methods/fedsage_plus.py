"""FedSage+'s generators: other clients judge generated neighbours and return gradients.

Before each step, a client must send generated neighbours to the other clients, and the other
clients must send gradients back. So an epoch takes three rounds, with the same clients in all
three:

- ``OFFER``: a client sends its offer, the neighbours that it generates for its training nodes;
- ``JUDGE``: a client compares every other client's offer with neighbours in its own graph. The
  client computes a loss for each offer, and sends the loss's gradient with respect to the offer;
- ``STEP``: a client takes one optimiser step. The step reduces the client's own loss and the other
  clients' losses, of which the client knows only the returned gradients.

In ``OFFER``, a client samples noise and dropout masks, and stores them under ``"drawn"``. From
these samples, the client can generate exactly the same neighbours again in ``STEP``. The returned
gradients are gradients with respect to these neighbours.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from .. import federation as fed
from ..aggregate import mean
from ..checks import Weight, reject_if
from ..federation import Inbox, Message, Method, Outbox, Params, Ragged, State
from ..graph import Graph
from ..graph.neighbours import neighbour_features
from ..kinds import typed
from ..losses import nearest_features
from ..nn import NeighbourGenerator
from ..nn.observe import outputs
from .own_models import own_models

Neighbours = Callable[[Graph, int, int], tuple[Tensor, Tensor]]
OFFER, JUDGE, STEP = range(3)
LARGEST = 2**31 - 1  # largest number of a node's hidden neighbours
UPLOADS = {OFFER: ("made", "count", "missing"), JUDGE: ("gradients",), STEP: ()}
DRAWN = ("noise", "keep")


@typed
def random_neighbours(graph: Graph, count: int, width: int) -> tuple[Tensor, Tensor]:
    """Sample random nodes, and then features of each node's neighbours; both with replacement.

    Nodes are sampled from all nodes that have a neighbour.

    Returns:
        The features, float ``[count, width, num_features]``, and the number of sampled neighbours
        of each node, int64 ``[count]``: always `width`, or always 0 if no node of the graph has a
        neighbour.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0, 1], [1, 0]]))
        >>> features, number = random_neighbours(graph, 3, 5)
        >>> features.shape, number
        (torch.Size([3, 5, 2]), tensor([5, 5, 5]))
    """
    source, target = graph.edge_index[:, graph.edge_index[1].argsort(stable=True)]
    nodes, degree = target.unique_consecutive(return_counts=True)
    number = source.new_full((count,), width if nodes.numel() else 0)
    if not nodes.numel():
        return neighbour_features(graph, source.new_zeros(count, width), number), number
    drawn = torch.randint(nodes.numel(), (count,), device=graph.device)
    place = (torch.rand(count, width, device=graph.device) * degree[drawn][:, None]).long()
    table = source[(degree.cumsum(0) - degree)[drawn][:, None] + place]
    return neighbour_features(graph, table, number), number


@fed.layer(checks=[fed.check_one_architecture])
def fedsage_plus(
    fedavg: Method, *, weight: Weight = 1.0, neighbours: Neighbours = random_neighbours
) -> Method:
    """Train each client's generator of neighbours with gradients from all clients (FedSage+).

    Client i minimises ``(L_i + b sum_{j != i} greedy(H_i, neighbours of random nodes of j)) / K``
    (Eq. 9). Here H_i are the neighbours that client i generates for its own training nodes. Only
    the part of the generator that generates features is trained. If a training node has m hidden
    neighbours, its generated neighbours are compared with the first m neighbours of a random node
    of client j. If a training node has no hidden neighbours, its generated neighbours are not
    compared. Clients send only generated rows, and gradients for the generated rows of other
    clients. A client's features and generator are never sent. A client that is absent in a round is
    left out of that round. A client that receives no gradients learns only from its own loss.

    Args:
        fedavg: FedAvg built for a `fgl.tasks.generator_task`. The task's model is a
            `fgl.nn.NeighbourGenerator`.
        weight: b, at least 0.
        neighbours: ``(graph, count, width) -> features, number``. In each epoch, this function
            samples real neighbours from a client's graph. The client then compares the generated
            neighbours of other clients to these real neighbours.

    Raises:
        ValueError: if `weight` is negative, or if `fedavg` does not sample local steps.

    Example:
        >>> graph = fgl.data.csbm(num_nodes=60, num_features=20, words_per_set=9)
        >>> net = fgl.nn.NeighbourGenerator(20, 8, 7, latent=3, widths=(5, 6))
        >>> clients = [fgl.data.splits.split(graph, "random")]
        >>> method = fedsage_plus(fgl.tasks.generator_task(clients, net, fgl.Training()).fedavg)
        >>> method.rules.exchange
        3

    Source: Zhang et al. 2021, https://arxiv.org/abs/2106.13430; zkhku/fedsage
    """
    base, model = own_models(fedavg), fedavg.model
    steps: Any = fedavg.train.batches
    of = type(model).__name__ if steps is not None else f"{type(model).__name__} without steps"
    wrong = steps is None or not isinstance(model, NeighbourGenerator)
    reject_if(wrong, "fedavg to be that of generator_task", f"one of {of}")

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = base.receive(fed.drop(message, ("pull", "owners")), state, graph)
        stage = int(message.get("stage", torch.tensor(OFFER)))
        context = {**context, "stage": torch.tensor(stage)}
        if stage == OFFER:
            context |= fed.pick(drawn_step(steps, graph), (*DRAWN, "missing"))
        if stage == STEP:
            context |= kept_draws(state) or fed.pick(drawn_step(steps, graph), DRAWN)
            context |= pulled(model, graph, message if "drawn" in state else {})
        return params, context

    def batches(graph: Graph, context: Any) -> Iterator[tuple[Graph, Any]]:
        if context["stage"] == STEP:
            yield next(iter(steps(graph, context)))

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        if "pull" not in context:
            return base.loss(params, graph, context)
        with outputs(model) as passes:
            total = base.loss(params, graph, context)
        generated = passes[-1][1]
        # By the chain rule, this product's gradient is that of other clients' losses: the pull is
        # their gradient to `generated`, and a constant here.
        others = (context["pull"].values * generated).sum()
        joint: Tensor = (total + weight * others) / context["owners"]
        return joint

    def settle(new: Params, old: Params, context: Any) -> Params:
        new = fedavg.train.settled(new, old, context)
        return {n: p if n.startswith("features.") else old[n] for n, p in new.items()}

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        _, new_state = base.send(params, context, state, graph)
        stage = int(context["stage"])
        if stage == OFFER:
            drawn = {name: context[name].values for name in DRAWN}
            return offer(model, params, graph, context, drawn), {**new_state, "drawn": drawn}
        if stage == JUDGE:
            return {"gradients": gradients(context, graph, neighbours)}, new_state
        return {}, fed.drop(new_state, ["drawn"])

    def accept(message: Message, client: int, state: State) -> None:
        base.accept(message, client, state)
        check_upload(model, message, client, state, fedavg.rules.max_examples)

    train = replace(fedavg.train, num_steps=None, batches=batches, epochs=None, settle=settle)
    changed: Any = {"receive": receive, "loss": loss, "send": send, "accept": accept}
    rules = replace(base.rules, exchange=len(UPLOADS), ragged=UPLOADS[OFFER] + UPLOADS[JUDGE])
    return replace(base, **changed, aggregate=relayed, train=train, rules=rules)


# Each stage at a client


def drawn_step(steps: Any, graph: Graph) -> dict[str, Any]:
    """A step's context, with newly sampled noise and dropout."""
    context: dict[str, Any] = next(iter(steps(graph, {})))[1]
    return context


def kept_draws(state: State) -> dict[str, Any]:
    """Noise and dropout of a client's last offer, if there is one."""
    drawn: Any = state.get("drawn", {})
    return {name: Ragged(value) for name, value in drawn.items()}


@torch.no_grad()
def offer(model: Any, params: Params, graph: Graph, context: Any, drawn: Any) -> Message:
    """A client's message: generated neighbours, and each node's number of missing neighbours."""
    count, generated, _ = functional_call(model, params, (graph.x, graph.adj), drawn)
    rows, dtype = graph.training_mask, model.count.weight.dtype
    sent = {"made": generated[rows].to(dtype), "count": model.number(count)[rows].to(dtype)}
    return {**sent, "missing": context["missing"].values[rows]}


def gradients(context: Any, graph: Graph, neighbours: Neighbours) -> Message:
    """Gradients of the greedy loss with respect to the neighbours that other clients generated."""
    by_owner = {}
    for owner, generated in context.get("made", {}).items():
        features, number = neighbours(graph, generated.shape[0], generated.shape[1])
        number = torch.minimum(number, context["missing"][owner])
        count = context["count"][owner]
        by_owner[owner] = torch.func.grad(nearest_features)(generated, count, features, number)
    return by_owner


def pulled(model: Any, graph: Graph, message: Message) -> dict[str, Any]:
    """The returned gradients for all nodes, and the number of clients whose losses are averaged."""
    like: Tensor = model.count.weight
    whole = like.new_zeros(graph.num_nodes, model.num_neighbours, graph.num_features)
    if "pull" in message:
        whole[graph.training_mask] = message["pull"]
    owners: Any = message.get("owners", 1)
    return {"pull": Ragged(whole), "owners": like.new_ones(()) * owners}


# Each stage at the server


def relayed(inbox: Inbox, state: State) -> tuple[Outbox, State]:
    """The server's messages: generated neighbours after ``OFFER``, and gradients after ``JUDGE``.

    Each client receives the neighbours that all other clients generated, and later the gradients
    with respect to the neighbours that the client itself generated.
    """
    stage = int(state.get("stage", OFFER))
    following = torch.tensor((stage + 1) % len(UPLOADS))
    relays: dict[int, Callable[[Inbox, int], Message]] = {
        OFFER: offers_of_others,
        JUDGE: gradients_for,
        STEP: lambda inbox, client: {},
    }
    relay = relays[stage]
    outbox = {k: {"stage": following, **relay(inbox, k)} for k in range(inbox.num_clients)}
    if stage == OFFER:  # number of nodes for which each client has generated neighbours
        rows = {str(k): torch.tensor(len(message["made"])) for k, message in inbox.items()}
        state = {**state, "rows": rows}
    return outbox, {**state, "stage": following}


def offers_of_others(inbox: Inbox, client: int) -> Message:
    """The neighbours that the other clients have generated."""
    others = {str(k): message for k, message in inbox.items() if k != client}
    return {key: {k: m[key] for k, m in others.items()} for key in UPLOADS[OFFER]}


def gradients_for(inbox: Inbox, client: int) -> Message:
    """The sum of the gradients that a client gets from other clients.

    The result is empty if no client sent a gradient.
    """
    sent: list[Any] = [message["gradients"] for message in inbox.values()]
    pulls = [each[str(client)] for each in sent if str(client) in each]
    if not pulls:
        return {}
    total = mean({"pull": pulls}, torch.ones(len(pulls), device=pulls[0].device))["pull"]
    owners = torch.tensor(len(pulls) + 1, device=total.device)
    return {"pull": total * len(pulls), "owners": owners}


def check_upload(model: Any, message: Any, client: int, state: State, most: float) -> None:
    """Raise a ValueError unless an upload has the entries that its stage requires."""
    stage = int(state.get("stage", OFFER))
    fed.check_keys(message, UPLOADS[stage], f"the upload of stage {stage}")
    if stage == OFFER:
        check_offer(model, message, most)
    if stage == JUDGE:
        check_gradients(model, message["gradients"], client, state.get("rows", {}))


def check_offer(model: Any, message: Any, most: float) -> None:
    """Require neighbours and two numbers for each node, and at most the given number of nodes."""
    generated, count, missing = (message[name] for name in UPLOADS[OFFER])
    _check(model, "made", generated, count.numel())
    want = "count to be a number for each node"
    reject_if(count.dim() != 1 or count.dtype != generated.dtype, want, "others")
    want = "missing to be an int64 for each node"
    reject_if(missing.shape != count.shape or missing.dtype != torch.int64, want, "others")
    got = "another number"
    reject_if(((missing < 0) | (missing > LARGEST)).any(), f"missing to be in [0, {LARGEST}]", got)
    reject_if(len(count) > most, f"count to be of at most {most:g} nodes", len(count))


def check_gradients(model: Any, sent: Any, client: int, rows: Any) -> None:
    """Require a gradient for the neighbours that each other client has generated."""
    fed.check_keys(sent, [k for k in rows if k != str(client)], "gradients")
    for owner, gradient in sent.items():
        _check(model, f"gradients[{owner!r}]", gradient, int(rows[owner]))


def _check(model: Any, name: str, value: Tensor, rows: int) -> None:
    """Raise a ValueError unless a tensor has a row of neighbours' features for every node."""
    places: int = model.num_neighbours
    want = (rows, places, model.features[2].out_features // places)
    reject_if(
        value.shape != want or value.dtype != model.count.weight.dtype,
        f"{name} to be {model.count.weight.dtype} of shape {list(want)}",
        f"{value.dtype} {list(value.shape)}",
    )
