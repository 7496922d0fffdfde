"""Rounded downloads: the server sends its models with 16 bits per entry."""

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from .. import federation as fed
from ..checks import reject_if
from ..federation import Inbox, Message, Method, Outbox, Params, State
from ..graph import Graph

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@fed.layer(sealed=("receive", "aggregate", "deploy"))
def rounded_downloads(
    method: Method, *, dtype: Literal["bfloat16", "float16"] = "bfloat16"
) -> Method:
    """Make the server send models in 16 bits per entry.

    Clients convert the rounded model back to the model's precision. Training begins with the
    converted model, and the converted model is scored. Updates are differences between the trained
    model and the rounded model. The first message of a run is the initial model without rounding.
    The type bfloat16 has the range of float32 and 8 bits of precision. The type float16 has 11 bits
    of precision and a range up to 65,504.

    Args:
        method: any method. Only the entry ``"model"`` of a message is rounded.
        dtype: dtype in which the server sends the entries of the model.

    Returns:
        The method. This transform must be the outermost wrapper.

    Raises:
        ValueError: if `dtype` is not supported. The method's server raises a ValueError if an entry
            does not fit into float16.

    Example:
        >>> task = fgl.tasks.Nodes(clients=2).load(seed=0)
        >>> history = fgl.run(rounded_downloads(task.fedavg), task, num_rounds=2).history
        >>> history[0].bytes_down / history[1].bytes_down
        2.0
    """
    kind, own = DTYPES[dtype], {name: t.dtype for name, t in method.common().items()}

    def packed(message: Message) -> Message:
        if "model" not in message:
            return message
        model = message["model"]
        floats = {n: t for n, t in model.items() if t.is_floating_point() and t.element_size() > 2}
        small = {name: _rounded(name, t, kind) for name, t in floats.items()}
        rest = fed.drop(model, small)
        others = fed.drop(message, ["model"])
        return {**others, **({"model": rest} if rest else {}), "rounded": small}

    def whole(message: Message) -> Message:
        if "rounded" not in message:
            return message
        params = {name: t.to(own[name]) for name, t in message["rounded"].items()}
        params |= message.get("model", {})
        others = fed.drop(message, ["rounded"])
        return {**others, "model": {name: params[name] for name in own if name in params}}

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        return method.receive(whole(message), state, graph)

    @torch.no_grad()
    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        sent = fed.changed_messages(inbox.sent, whole)
        decoded = Inbox(dict(inbox), inbox.num_clients, sent, inbox.round, inbox.asked)
        outbox, new = method.aggregate(decoded, state)
        return fed.changed_messages(outbox, packed), new

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        return method.deploy(whole(message), state, graph)

    return replace(method, receive=receive, aggregate=aggregate, deploy=deploy)


def _rounded(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    small = tensor.to(dtype)
    reject_if(not small.isfinite().all(), f"model/{name} to fit into {dtype}", "larger entries")
    return small
