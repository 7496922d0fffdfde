"""FedDyn: a client's drift corrects the client's loss; the drifts' sum corrects the mean model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .. import federation as fed
from ..aggregate import mean
from ..checks import Weight, reject_if
from ..federation import Broadcast, Inbox, Joining, Message, Method, Outbox, Params, State
from ..graph import Graph

LARGEST = 2.0**40  # examples of a client: sums of many such sizes fit an int64
SIZES = ("num_examples", "num_clients")  # numbers that the server sends to all clients


@fed.layer(checks=[fed.check_averages])
def feddyn(fedavg: Method, *, penalty: Weight = 0.01) -> Method:
    """FedAvg with equal weights and a regulariser; fixed points minimise the global loss (FedDyn).

    Client k minimises ``loss + alpha_k <h_k, theta> + alpha_k / 2 ||theta - theta^t||^2``. The
    drift h_k is the sum of ``theta_k - theta^t`` over a client's rounds. In the paper's notation,
    h_k is ``-g_k / alpha``. The coefficient is ``alpha_k = alpha n / n_k``, where n_k is the
    client's number of training examples and n is the mean of n_k over all clients. Clients send n_k
    before the first round (`fgl.federation.Joining`). The server computes
    ``theta^{t+1} = mean_S theta_k + 1 / K sum_k h_k``. S is the set of participants, and K is the
    number of all clients. All participants have equal weights. A fixed point has
    ``n_k grad_k = -alpha n h_k`` and ``sum_k h_k = 0``. So at a fixed point, the total gradient
    over all clients' examples is 0. This holds for any choice of the clients that take part in a
    round.

    This method computes the same local steps and the same models as the authors' code, apart from
    two differences. Here clients predict with the server's model theta; the authors' plots show
    results of another model, the mean of all clients' models. Here gradients are clipped only if
    `fedavg` clips gradients; the authors clip gradients at norm 10.

    Args:
        fedavg: FedAvg built for a task; the server must send the mean of the models.
        penalty: alpha, weight of the regulariser, at least 0; 0.01 in the authors' code.

    Raises:
        ValueError: if `penalty` is negative, if the server of `fedavg` does not send the mean of
            the models, or if clients train tensors outside the model.

    Example:
        >>> method = feddyn(fgl.fedavg(torch.nn.Linear(1, 1)), penalty=0.1)
        >>> graph = fgl.Graph(torch.ones(3, 1), torch.zeros(2, 0).long())
        >>> drift = {"weight": torch.ones(1, 1), "bias": torch.ones(1)}
        >>> sizes = {"num_examples": torch.tensor(4), "num_clients": torch.tensor(2)}
        >>> message = {"model": method.initial(), **sizes}
        >>> _, context = method.receive(message, {"drift": drift}, graph)
        >>> context["drift"]["weight"], context["share"]
        (tensor([[1.]]), tensor(1.5000))

    Source: Acar et al. 2021, https://arxiv.org/abs/2111.04263;
    https://github.com/alpemreacar/FedDyn
    """
    base = drifting(fedavg, "feddyn")

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        tilt = inner(context["drift"], params)
        far = half_square(params, context["start"], context["drift"])
        term: Tensor = penalty / context["share"] * (tilt + far)
        return fedavg.loss(params, graph, context) + term

    return replace(base, loss=loss)


def drifting(fedavg: Method, name: str) -> Method:
    """FedAvg in which each client keeps a drift; `feddyn` and `feddc` extend this method.

    A joining client sends its number of examples. A client keeps its drift ``h_k``. A client's
    context contains the client's drift and the ratio ``n_k / n``. The server adds the clients' mean
    drift to the mean of the models.

    Args:
        fedavg: FedAvg built for a task; the server must send the mean of the models.
        name: name of the method, for errors.

    Raises:
        ValueError: if clients train tensors outside the model.

    Example:
        >>> drifting(fgl.fedavg(torch.nn.Linear(1, 1)), "feddyn").aggregate.__name__
        'aggregate'
    """
    fed.check_model_alone(fedavg, name)
    names = fed.trainable(fedavg)

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = fedavg.receive(message, state, graph)
        sent = [key for key in message["model"] if key in names]
        zeros = {key: torch.zeros_like(params[key]) for key in sent}
        drift = {**zeros, **state.get("drift", {})}
        share = share_of(message, graph).to(next(iter(params.values())))
        return params, {**context, "drift": drift, "share": share}

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = fedavg.send(params, context, state, graph)
        start, drift = context["start"], context["drift"]
        if message["num_examples"]:  # else the server ignores how weight decay moved the model
            drift = {key: drift[key] + (params[key] - start[key]) for key in drift}
        return message, {**new_state, "drift": drift}

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        count = inbox.stack("num_examples")
        if not count.any():
            return {}, state
        counts = (count > 0).to(torch.float64)
        models: Params = mean(inbox.each("model"), counts)
        before, share = state.get("drift", {}), counts.sum() / inbox.num_clients
        change = mean(inbox.changes("model"), counts)
        drift = {key: before.get(key, 0) + share * change[key] for key in change if key in names}
        drift = {key: value.to(models[key]) for key, value in drift.items()}
        new = {key: value + drift[key] if key in drift else value for key, value in models.items()}
        message: Message = {"model": new, **{key: state[key] for key in SIZES if key in state}}
        return Broadcast(message, inbox.num_clients), {**state, "model": new, "drift": drift}

    # A bound of 1 means equal weights, as in GraphFL, and does not bound sizes.
    most = min(fedavg.rules.max_examples, LARGEST) if fedavg.rules.max_examples > 1 else LARGEST
    rules = replace(fedavg.rules, joining=Joining(say_size, add_sizes, max_examples=most))
    return replace(fedavg, receive=receive, send=send, aggregate=aggregate, rules=rules)


def say_size(graph: Graph) -> Message:
    """Number of a client's training examples, int64.

    The client sends this number when it joins.
    """
    return {"num_examples": torch.tensor(graph.num_train)}


def add_sizes(inbox: Inbox, state: State) -> tuple[Outbox, State]:
    """Count all examples, and all clients with examples; add both counts to messages and state."""
    count = inbox.stack("num_examples")
    # If no joined client has examples, a later client's ratio is its number of examples.
    total, clients = count.sum().clamp(min=1), (count > 0).sum().clamp(min=1)
    sizes = dict(zip(SIZES, (total, clients), strict=True))
    outbox = fed.changed_messages(inbox.sent, lambda message: {**message, **sizes})
    return outbox, {**state, **sizes}


def share_of(message: Mapping[str, Any], graph: Graph) -> Tensor:
    """A client's number of training examples, divided by the mean number over all clients.

    Args:
        message: the server's message, which contains the totals of examples and of clients.
        graph: the client's graph.

    Returns:
        float64 scalar, above 0. For a client without an example the ratio is 1.

    Raises:
        ValueError: if the message lacks one of the two totals. The server knows both totals as soon
            as all clients have joined.

    Example:
        >>> graph = fgl.Graph(torch.eye(3), torch.zeros(2, 0).long())
        >>> share_of({"num_examples": torch.tensor(4), "num_clients": torch.tensor(2)}, graph)
        tensor(1.5000, dtype=torch.float64)
    """
    missing = [key for key in SIZES if key not in message]
    reason = "which the server knows when all clients have joined (Method.rules.joining)"
    reject_if(missing, f"message to have {missing}, {reason}", list(message))
    if not graph.num_train:
        return torch.ones((), dtype=torch.float64)
    total, clients = message["num_examples"], message["num_clients"]
    share: Tensor = graph.num_train * clients.double() / total.double()
    return share


def inner(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> Tensor:
    """The inner product of two models, over the tensors of the first model.

    The first model is treated as a constant, so gradients flow only to the second model.

    Example:
        >>> inner({"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 4.0])})
        tensor(11.)
    """
    return torch.stack([(value.detach() * other[name]).sum() for name, value in one.items()]).sum()


def half_square(
    params: Mapping[str, Tensor], reference: Mapping[str, Tensor], names: Mapping[str, Tensor]
) -> Tensor:
    """``1/2 ||params - reference||^2``, summed over the tensors whose names are keys of `names`.

    No gradient flows to the reference.

    Example:
        >>> half_square({"w": torch.tensor([3.0])}, {"w": torch.ones(1)}, {"w": torch.ones(1)})
        tensor(2.)
    """
    each = [(params[name] - reference[name].detach()).square().sum() for name in names]
    return torch.stack(each).sum() / 2
