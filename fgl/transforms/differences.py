"""Coded differences: clients encode their changes in fewer bytes, and the server decodes them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..checks import reject_if
from ..federation import Inbox, Message, Method, Outbox, Params, State, drop, pick
from ..graph import Graph

EXACT = "a code moves an upload: then its length is not bounded any more, or a sum is not right"
TWICE = "its uploads are in a code already"
REFUSED = {"clipped": EXACT, "secure_sum": EXACT, "summed_gaussian": EXACT}
REFUSED |= {"quantised": TWICE, "sparsified": TWICE}


class Code(NamedTuple):
    """Functions that encode and decode the differences that clients send.

    Args:
        keys: suffixes. For each entry to encode, the upload contains one entry per suffix. The name
            of such an entry is the old name, an underscore and the suffix.
        encode: a function ``(difference, remainder) -> (tensors, remainder)`` that returns one
            tensor for each key. The client keeps the returned remainder for its next round. The
            remainder may be None.
        decode: a function ``(tensors, like) -> difference``. The difference must have the shape and
            the dtype of `like`. If the tensors do not encode such a difference, the function raises
            a ValueError.
    """

    keys: tuple[str, ...]
    encode: Callable[[Tensor, Tensor | None], tuple[Sequence[Tensor], Tensor | None]]
    decode: Callable[[Sequence[Tensor], Tensor], Tensor]


def check_codable(method: Method, name: str) -> None:
    """Raise an error if a method's uploads must be exact or are already coded.

    Methods with noise are allowed. Noise that clients add (`local_gaussian`) protects as much after
    any coding as before it. With `central_gaussian`, the server clips the updates after it has
    decoded them.
    """
    for layer in method.layers:
        want, reason = f"a method without {layer.name} around it", REFUSED.get(layer.name)
        reject_if(reason, f"{name} to be given {want}", f"{method}: {reason}")


def coded(method: Method, parts: Sequence[str], code: Code) -> Method:
    """Make clients send coded differences between their new tensors and the received tensors.

    Args:
        method: the method. In the method's messages, each entry in `parts` is a dict of
            tensors, named like the model's tensors.
        parts: entries of an upload. For a tensor that the server has not sent, the difference from
            zero is coded.
        code: the code. Tensors that are not floating-point are sent unchanged.
    """
    template = method.common()
    decoded = partial(_decoded, code, template, parts)

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = method.receive(message, _without_left(state, parts), graph)
        return params, {**context, "coded_from": pick(message, parts)}

    @torch.no_grad()
    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new = method.send(params, context, _without_left(state, parts), graph)
        missing = [part for part in parts if part not in message]
        reject_if(message and missing, f"an upload to have {missing}", list(message))
        out, new_state = drop(message, parts), dict(new)
        for part in parts if message else ():
            sent, left = context["coded_from"].get(part, {}), state.get(_left(part), {})
            check_names(part, message[part], template)
            named, rests = _encoded(code, part, message[part], sent, left)
            out |= named
            new_state |= {_left(part): rests} if rests else {}
        return out, new_state

    def accept(message: Message, client: int, state: State) -> None:
        method.accept(decoded(message, {}), client, state)

    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        whole = {client: decoded(inbox[client], inbox.sent.get(client, {})) for client in inbox}
        return method.aggregate(inbox.with_messages(whole), state)

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        return method.deploy(message, _without_left(state, parts), graph)

    changed: dict[str, Any] = {"receive": receive, "send": send, "accept": accept}
    return replace(method, **changed, aggregate=aggregate, deploy=deploy)


def _left(part: str) -> str:
    return f"{part}_left"


def _without_left(state: State, parts: Sequence[str]) -> State:
    return drop(state, {_left(part) for part in parts})


def check_names(part: str, value: Any, template: Params) -> None:
    """Raise a ValueError if a part of an upload has a name that the model lacks."""
    unknown = drop(value, template) if isinstance(value, Mapping) else [part]
    reject_if(unknown, f"{part} to have names of the model", list(unknown))


def _encoded(
    code: Code,
    part: str,
    value: Mapping[str, Tensor],
    sent: Mapping[str, Tensor],
    left: Mapping[str, Tensor],
) -> tuple[Message, Params]:
    """Encode one part of an upload, such as the model.

    The function also returns the new remainders, which the client keeps for its next round.
    """
    columns = [f"{part}_{key}" for key in code.keys]
    plain = {name: t for name, t in value.items() if not t.is_floating_point()}
    out: Message = {column: {} for column in columns} | ({part: plain} if plain else {})
    rests: Params = {}
    for name, tensor in drop(value, plain).items():
        difference = tensor - sent[name] if name in sent else tensor
        tensors, rest = code.encode(difference, left.get(name))
        for column, coded_tensor in zip(columns, tensors, strict=True):
            out[column][name] = coded_tensor
        rests |= {} if rest is None else {name: rest}
    return out, rests


def _decoded(
    code: Code, template: Params, parts: Sequence[str], message: Message, sent: Message
) -> Message:
    """The message after its coded parts are decoded."""
    out = drop(message, [f"{part}_{key}" for part in parts for key in code.keys])
    for part in parts:
        names = [f"{part}_{key}" for key in code.keys]
        if names[0] in message:
            tables = [message.get(name) for name in names]
            whole = _whole(code, template, names, tables, sent.get(part, {}))
            out[part] = {**out.get(part, {}), **whole}
    return out


def _whole(
    code: Code, template: Params, names: list[str], tables: list[Any], before: Mapping[str, Tensor]
) -> Params:
    """A part's tensors: the tensors that the server sent, plus the decoded differences."""
    wrong = any(not isinstance(t, Mapping) or t.keys() != tables[0].keys() for t in tables)
    reject_if(wrong, f"{names} to be dicts with the same names", "others")
    check_names(names[0], tables[0], template)
    return {
        name: _added(code.decode([t[name] for t in tables], template[name]), before.get(name))
        for name in tables[0]
    }


def _added(difference: Tensor, before: Tensor | None) -> Tensor:
    return difference if before is None else before + difference
