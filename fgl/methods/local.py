"""Local training: every client trains alone, and nothing is sent."""

from dataclasses import replace
from typing import Any

from .. import federation as fed
from ..checks import reject_if
from ..federation import Inbox, Message, Method, Outbox, Params, State
from ..graph import Graph


@fed.layer(checks=[fed.check_model_alone])
def local(fedavg: Method) -> Method:
    """Local training: every client continues with its own model and sends nothing.

    The server sends the initial model to each client once. The aggregation function of `fedavg` is
    not used.

    Args:
        fedavg: FedAvg built for a task. Clients use the local training of this method.

    Raises:
        ValueError: if clients train tensors outside the model, if clients send a message when they
            join, or if the method defines `accept`.

    Example:
        >>> method = local(fgl.fedavg(torch.nn.Linear(1, 1)))
        >>> state = {"model": {"weight": torch.ones(1, 1), "bias": torch.ones(1)}}
        >>> params, _ = method.receive({"model": method.initial()}, state, None)
        >>> params["weight"], method.deploy({}, state, None) is state["model"]
        (tensor([[1.]]), True)
    """

    fed.check_no_joining(fedavg, "local", "a client alone says nothing and hears of nobody")
    looks = fedavg.accept not in (fed.accept_all, fed.accept_equally)
    want = "a method whose server accepts any message, since a client alone sends none"
    got = f"{fedavg}: local(replace(method, accept=fgl.federation.accept_all))"
    reject_if(looks, f"local to be given {want}", got)

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        return fedavg.receive(with_own(message, state), state, graph)

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        _, new_state = fedavg.send(params, context, state, graph)
        return {}, {**new_state, "model": params}

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        return fedavg.deploy(with_own(message, state), state, graph)

    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        return {client: {} for client in inbox}, state

    return replace(fedavg, receive=receive, send=send, deploy=deploy, aggregate=aggregate)


def with_own(message: Message, state: State) -> Message:
    """The message. If the client has a model of its own, this model replaces the sent model."""
    return {**message, "model": state["model"]} if "model" in state else message
