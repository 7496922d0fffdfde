"""Differences in a code: clients send their changes in fewer bytes, the server decodes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..federation import Inbox, Message, Method, Params, State
from ..graph import Graph

EXACT = "a code moves an upload: then its length is not bounded any more, or a sum is not right"
TWICE = "its uploads are in a code already"
REFUSED = {"clipped": EXACT, "secure_sum": EXACT, "summed_gaussian": EXACT}
REFUSED |= {"quantised": TWICE, "sparsified": TWICE}


class Code(NamedTuple):
    """The code of differences on the wire.

    Args:
        keys: suffixes: an entry is sent as tensors by its name with each suffix.
        encode: ``(difference, left) -> tensors, left``, one tensor for each key. `left` is what the
            client keeps of the difference for its next round; None if it keeps nothing.
        decode: ``(tensors, like) -> difference``, of the shape and dtype of `like`; raises a
            ValueError if the tensors are no code of such a difference.
    """

    keys: tuple[str, ...]
    encode: Callable[[Tensor, Tensor | None], tuple[Sequence[Tensor], Tensor | None]]
    decode: Callable[[Sequence[Tensor], Tensor], Tensor]


def check_codable(method: Method, name: str) -> None:
    """Refuse methods whose uploads must be exact, or are in a code already.

    Noise of clients (`local_gaussian`) protects as much after any code, and `central_gaussian`
    clips the decoded updates.
    """
    for layer in method.layers:
        if layer.name in REFUSED:
            raise ValueError(
                f"Expected {name} to be given a method without {layer.name} around it, but got "
                f"{method}: {REFUSED[layer.name]}"
            )


def coded(method: Method, parts: Sequence[str], code: Code) -> Method:
    """The method whose clients send their differences from the received tensors in a code.

    Args:
        method: its messages' `parts` are dicts of tensors with names of the model.
        parts: entries of an upload. A tensor that the server has not sent counts as zeros.
        code: the code. Tensors that are not floating-point travel as they are.
    """
    template = method.common()

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = method.receive(message, _without_left(state, parts), graph)
        return params, {**context, "received": {p: message[p] for p in parts if p in message}}

    @torch.no_grad()
    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        inner = _without_left(state, parts)
        message, new = method.send(params, context, inner, graph)
        missing = [part for part in parts if part not in message]
        if message and missing:
            raise ValueError(f"Expected an upload to have {missing}, but got {list(message)}")
        out, new_state = dict(message), dict(new)
        for part in parts if message else ():
            named, left = _encoded(
                code, part, out.pop(part), context["received"], state.get(_left(part), {}), template
            )
            out |= named
            new_state |= {_left(part): left} if left else {}
        return out, new_state

    def decoded(message: Message, sent: Message) -> Message:
        return _decoded(code, message, sent, parts, template)

    def accept(message: Message, client: int, state: State) -> None:
        method.accept(decoded(message, {}), client, state)

    def aggregate(inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
        whole = {client: decoded(inbox[client], inbox.sent.get(client, {})) for client in inbox}
        decoded_inbox = Inbox(whole, inbox.num_clients, inbox.sent, inbox.round, inbox.asked)
        return method.aggregate(decoded_inbox, state)

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        return method.deploy(message, _without_left(state, parts), graph)

    changed: dict[str, Any] = {"receive": receive, "send": send, "accept": accept}
    return replace(method, **changed, aggregate=aggregate, deploy=deploy)


def _left(part: str) -> str:
    return f"{part}_left"


def _without_left(state: State, parts: Sequence[str]) -> State:
    names = {_left(part) for part in parts}
    return {key: value for key, value in state.items() if key not in names}


def _encoded(
    code: Code,
    part: str,
    value: Any,
    received: Mapping[str, Any],
    left: Mapping[str, Tensor],
    template: Params,
) -> tuple[Message, Params]:
    """A part's coded tensors by key, its tensors without a code, and the client's remainders."""
    unknown = [name for name in value if name not in template] if isinstance(value, dict) else part
    if unknown:
        raise ValueError(f"Expected {part} to have names of the model, but got {unknown}")
    sent, columns = received.get(part, {}), [f"{part}_{key}" for key in code.keys]
    plain = {name: t for name, t in value.items() if not t.is_floating_point()}
    out: Message = {column: {} for column in columns} | ({part: plain} if plain else {})
    rests: Params = {}
    for name in [name for name in value if name not in plain]:
        difference = value[name] - sent[name] if name in sent else value[name]
        tensors, rest = code.encode(difference, left.get(name))
        for column, tensor in zip(columns, tensors, strict=True):
            out[column][name] = tensor
        rests |= {} if rest is None else {name: rest}
    return out, rests


def _decoded(
    code: Code, message: Message, sent: Message, parts: Sequence[str], template: Params
) -> Message:
    """A message with whole parts instead of codes."""
    columns = {part: [f"{part}_{key}" for key in code.keys] for part in parts}
    coded = {column for names in columns.values() for column in names}
    out = {key: value for key, value in message.items() if key not in coded}
    for part, names in columns.items():
        if names[0] not in message:
            continue
        tables: list[Any] = [message.get(name) for name in names]
        if any(not isinstance(t, Mapping) or t.keys() != tables[0].keys() for t in tables):
            raise ValueError(f"Expected {names} to be dicts with the same names, but got others")
        unknown = [name for name in tables[0] if name not in template]
        if unknown:
            raise ValueError(f"Expected {names[0]} to have names of the model, but got {unknown}")
        before = sent.get(part, {})
        whole = {
            name: _added(code.decode([t[name] for t in tables], template[name]), before.get(name))
            for name in tables[0]
        }
        out[part] = {**out.get(part, {}), **whole}
    return out


def _added(difference: Tensor, before: Tensor | None) -> Tensor:
    return difference if before is None else before + difference
