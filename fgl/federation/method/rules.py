"""Groups of a method's fields: rules of a round, privacy, parts of a client; ragged tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...checks import Count, reject_if
from ...graph import Graph
from ...kinds import typed
from ...sparse import SparseMatrix
from .message import Aggregate, Inbox, Message, State
from .models import Models


class Ragged:
    """A tensor whose first dimension differs from client to client, with a mask of its rows.

    A batch of clients pads such a tensor with zeros, so a loss must know what is padding: put it
    into the context as ``Ragged(tensor)``, read it as ``context[key].values``, and leave out the
    rows that ``context[key].mask`` excludes. Without a batch the mask is true everywhere.

    Args:
        values: ``[n, ...]``, or a `SparseMatrix` of n rows.
        mask: bool ``[n]``; default all.

    Raises:
        TypeError: if `values` is neither.
        ValueError: if `values` has no dimension, or `mask` not one entry per row.

    Example:
        >>> pairs = Ragged(torch.tensor([[0, 1], [1, 2], [2, 0]]))
        >>> pairs.values.shape, pairs.mask
        (torch.Size([3, 2]), tensor([True, True, True]))
    """

    def __init__(self, values: Any, mask: Tensor | None = None) -> None:
        if not isinstance(values, Tensor | SparseMatrix):
            got = type(values).__name__
            raise TypeError(f"Expected values to be a tensor or a SparseMatrix, but got {got}")
        shape = tuple(values.shape)
        reject_if(not shape, "values to have a first dimension", "a scalar")
        if mask is not None and tuple(mask.shape) != shape[:1]:
            raise ValueError(
                f"Expected mask to have shape [{shape[0]}], but got {list(mask.shape)}"
            )
        self.values: Any = values
        if mask is None:
            mask = torch.ones(shape[0], dtype=torch.bool, device=values.device)
        self.mask = mask

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def __repr__(self) -> str:
        return f"Ragged({list(self.values.shape)})"


Costs = Callable[[Message], Mapping[str, float]]
Account = Callable[[Inbox, State], State]


@dataclass(frozen=True)
class Joining:
    """The clients' messages before the first round, and the server's use of them.

    All clients are asked, also clients that the first round leaves out. So a server knows a
    statistic of all clients, such as their mean number of examples, before the training starts. A
    remote client that does not answer still takes part in the rounds.

    Args:
        say: ``(graph) -> message``, a client's message; its bytes count in the first round.
        welcome: ``(inbox, state) -> outbox, state``, the server's part, as `Method.aggregate`.
            ``inbox.sent`` are the messages of the first round, which the outbox replaces.
        max_examples: largest ``"num_examples"`` of such a message; a message with a larger one is
            refused. Default no bound.

    Example:
        >>> joining = fgl.methods.feddyn(fgl.fedavg(torch.nn.Linear(1, 1))).rules.joining
        >>> joining.say(fgl.Graph(torch.ones(3, 1), torch.zeros(2, 0).long()))
        {'num_examples': tensor(3)}
    """

    say: Callable[[Graph], Message]
    welcome: Aggregate
    max_examples: float = math.inf


@typed
@dataclass(frozen=True)
class Rules:
    """Rules of a method's rounds: who takes part, what is told, and what the server accepts.

    Args:
        exchange: number of consecutive rounds that have the same participants. If it is above 1 and
            no upload of a round counts, `aggregate` is called with an empty inbox: it may give up
            the exchange. An error of that call does not end the run.
        participants: smallest number of participants of a round. A run with fewer raises.
        silent: if True, clients send nothing beside their messages: no losses and no numbers of
            examples. Otherwise these appear in the history.
        ragged: keys of an upload whose shapes, inner names or presence may differ between clients
            or rounds; `accept` checks them. All other keys must have the names, shapes and dtypes
            on which most clients agree.
        max_examples: largest ``"num_examples"`` that a client can have; an upload with a larger one
            is refused. Tasks set it; default no bound.
        max_change: let c be this number, and the size of a change its root mean square. The server
            refuses an upload if an entry's change is larger than c times the round's median change
            and larger than what was sent, or than 1 if nothing was sent; or if it is larger than c
            times what was sent. The server's outbox and state may grow by the factor c at most.
            ``math.inf`` for no bound.
        joining: messages of all clients before the first round; default none.

    Raises:
        ValueError: if `exchange` or `participants` is not positive.

    Example:
        >>> method = fgl.fedavg(torch.nn.Linear(1, 1))
        >>> from dataclasses import replace
        >>> replace(method, rules=replace(method.rules, max_change=10.0)).rules.max_change
        10.0
    """

    exchange: Count = 1
    participants: Count = 1
    silent: bool = False
    ragged: Collection[str] = frozenset()
    max_examples: float = math.inf
    max_change: float = 300.0
    joining: Joining | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("max_examples", "max_change"):
            value = getattr(self, name)
            reject_if(not value > 0, f"{name} to be a number > 0", value)  # NaN is not


def without_noise(message: Message) -> Mapping[str, float]:
    """The cost of an answer without noise: a noise multiplier of 0.

    Example:
        >>> without_noise({})
        {'noise_multiplier': 0.0}
    """
    return {"noise_multiplier": 0.0}


@typed
@dataclass(frozen=True)
class Privacy:
    """Privacy costs of a method's messages, and who counts them.

    Args:
        costs: ``(message) -> numbers``, the privacy cost of a client's answer to a message: the
            ``"noise_multiplier"`` of the client's own noise, and its ``"steps"`` and
            ``"sample_rate"`` if they are not 1. It is empty if the answer does not depend on the
            client's data. The default is an answer without noise; a site with a budget refuses it.
        onward: entries of a client's state that never go back to earlier values. A client on its
            own machine keeps their newest values, even if its server resumes from an earlier round.
        account: ``(inbox, state) -> state``, called after a round without a result; the inbox is
            empty but has `asked`. A method needs it if its server's results contain noise. A
            checkpoint is then written before a round is scored, so that a resumed run shows the
            same result and draws no new noise.

    Example:
        >>> fgl.fedavg(torch.nn.Linear(1, 1)).privacy.costs({})
        {'noise_multiplier': 0.0}
    """

    costs: Costs = field(default=without_noise, compare=False)
    onward: Collection[str] = field(default=(), compare=False)
    account: Account | None = field(default=None, compare=False)


@typed
@dataclass(frozen=True)
class Own:
    """Parts of a model, and tensors beside it, that each client has for itself.

    Args:
        modules: names of modules of the model, such as an input layer or a head, that each client
            has for itself, in its own shape, or lacks. They are never sent: the first message does
            not have them, and an upload with them is refused. So clients may have different
            features and classes.
        models: the clients' own models, made from their graphs; see `fgl.methods.own_models`.
        personal: tensors that every client trains beside the model, such as masks or mixing
            weights: name to initial tensor. `receive` returns them among the params, where the loss
            and `send` find them. They are neither in a message's ``"model"`` nor in the params of
            `deploy`.

    Raises:
        TypeError: if `modules` is a string.
        ValueError: if `models` are given without `modules`.

    Example:
        >>> method = fgl.fedavg(torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Linear(2, 2)))
        >>> from dataclasses import replace
        >>> list(replace(method, own=replace(method.own, modules=["0"])).common())
        ['1.weight', '1.bias']
    """

    modules: Collection[str] = ()
    models: Models | None = field(default=None, compare=False)
    personal: Mapping[str, Tensor] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if self.models is not None and not self.modules:
            raise ValueError("Expected modules to name a module beside models, but got none")
