"""Clipped updates: clients send only updates of bounded norm."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from .. import federation as fed
from ..checks import Positive, reject_if
from ..federation import Message, Method, OfMeans, Params, State
from ..graph import Graph
from ..privacy import clip

COVERED = ("model", "num_examples")


@fed.layer(sealed=("receive", "send", "aggregate"))
def clipped(method: Method, *, length: Positive) -> Method:
    """Clip each client's update to norm `length`, and give all clients the same weight.

    A client sends ``sent + clip(model - sent)``, where ``sent`` is the server's model. The norm of
    the clipped update, over all trained tensors together, is at most `length`. For
    buffers, such as a batch norm's mean, clients return the values that the server sent. Clients
    send 1 as ``"num_examples"``, since their true numbers of examples are private too. The history
    still contains the true numbers (see `Rules.silent`). Clipping alone does not protect data. But
    clipping is needed, since noise protects data only if updates are clipped.

    Args:
        method: the method. The method's uploads must contain ``"model"`` and ``"num_examples"``,
            and nothing else.
        length: the largest norm of an update, above 0.

    Returns:
        The method. This transform must be the outermost wrapper of the method. A run raises an
        error if another transform wraps this method, since the other transform could send data that
        is not clipped.

    Raises:
        ValueError: if `length` is not positive, or if the server declares that it reads more than
            ``"model"`` and ``"num_examples"``. The method's functions raise a ValueError if an
            upload has no model, has a tensor that the server has not sent, or has an entry other
            than ``"model"`` and ``"num_examples"``.

    Example:
        >>> method = clipped(fgl.fedavg(torch.nn.Linear(1, 1, bias=False)), length=0.5)
        >>> params, context = method.receive({"model": {"weight": torch.zeros(1, 1)}}, {}, None)
        >>> graph = fgl.Graph(torch.ones(3, 1), torch.zeros(2, 0, dtype=torch.int64))
        >>> method.send({"weight": torch.tensor([[-4.0]])}, context, {}, graph)[0]
        {'model': {'weight': tensor([[-0.5000]])}, 'num_examples': tensor(1)}

    Source: McMahan et al. 2018, https://arxiv.org/abs/1710.06963
    """
    for name in ("rounded_downloads", "quantised", "sparsified", "secure_sum"):
        reason = f"its messages have no plain model: write {name}(clipped(method, ...), ...)"
        fed.refuse(method, name, "clipped", reason)
    _check_reads(method)
    names = fed.trainable(method)

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = method.receive(message, state, graph)
        return params, {**context, "was_sent": message.get("model", {})}

    @torch.no_grad()
    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = method.send(params, context, state, graph)
        _check_covered(message)
        model = message["model"]
        sent = context["was_sent"]
        unknown = list(fed.drop(model, sent))
        want = "all of the model that a client sends, since only a change can be clipped"
        reject_if(unknown, f"the server to have sent {want}", f"no {unknown}")
        update = clip(fed.combine(torch.sub, fed.pick(model, names), sent), length=length)
        message = {**message, "model": added(sent, update, list(model))}
        if "num_examples" in message:
            message["num_examples"] = torch.ones_like(message["num_examples"])
        return message, new_state

    clipping = replace(method, receive=receive, send=send)
    most = min(1, method.rules.max_examples)  # equal weights
    return replace(clipping, rules=replace(clipping.rules, max_examples=most))


def added(sent: Params, update: Params, names: list[str]) -> Params:
    """Add each update to the sent tensor with the same name; other sent tensors are unchanged."""
    return {name: sent[name] + update[name] if name in update else sent[name] for name in names}


def _check_reads(method: Method) -> None:
    """Raise an error if the server reads an entry that clients send without clipping and noise."""
    served = method.aggregate
    if isinstance(served, OfMeans):
        _refuse_others(f"the server of {method} to read", (*served.equally, *served.reads))


def _check_covered(message: Message) -> None:
    """Raise an error if a message has an entry that is sent without clipping and noise."""
    lacks = not isinstance(message.get("model"), Mapping)
    reject_if(lacks, "the message to have a model to clip", f"keys {list(message)}")
    _refuse_others("the message to have", message)


def _refuse_others(subject: str, keys: Iterable[str]) -> None:
    others = [key for key in keys if key not in COVERED]
    want = f"{subject} 'model' and 'num_examples' alone, which clipping and noise cover"
    reject_if(others, want, f"{others} too, which would leave the client as it is")
