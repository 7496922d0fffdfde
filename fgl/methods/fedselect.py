"""FedSelect: the entries of a model that move most become a client's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..aggregate import mean
from ..checks import check_count, check_share
from ..federation import (
    Inbox,
    Message,
    Method,
    Params,
    State,
    check_one_architecture,
    layer,
    local_steps,
    refuse,
    trainable,
)
from ..graph import Graph


@layer
def fedselect(
    fedavg: Method,
    *,
    top: float = 0.25,
    cap: float = 0.8,
    every: int = 3,
    passes: Sequence[bool] = (True, False),
) -> Method:
    """FedAvg of the entries that are not a client's own (FedSelect, Algorithm 1).

    A round is one pass over the task's steps that moves a client's own entries, and one that moves
    the shared ones. The server averages each entry over the clients that share it, weighted as
    `fedavg` does. After every third round but the first, of each weight the shared entries that
    moved most since the last time, ``|theta_i - theta_i at the last selection|``, become the
    client's own; they start from the server's mean. Biases and vectors stay shared. In the pass in
    which an entry does not move the optimiser's moments of it stay as they are; Adam's number of
    steps counts both passes.

    Args:
        fedavg: what clients train, and how they are weighted.
        top: share of a weight's shared entries that become a client's own at a time.
        cap: share of a weight that may be a client's own at most.
        every: rounds of a client between two selections, at least 1.
        passes: which entries each pass moves, the client's own (True) or the shared ones.

    Raises:
        ValueError: if a number is out of range, `passes` is empty, or `fedavg` is a `scaffold`.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> method = fedselect(fgl.fedavg(fgl.nn.GCN(2, 8, 2)), every=1)
        >>> result = fgl.run(method, [graph] * 2, num_rounds=2, seed=0)
        >>> result.client_states[0]["chosen"]["convs.0.lin.weight"].sum()
        tensor(4)

    Source: Tamirisa et al. 2024, https://arxiv.org/abs/2404.02478
    """
    check_share(top=top, cap=cap)
    check_count(every=every)
    check_one_architecture(fedavg, "fedselect")
    if not passes:
        raise ValueError("Expected passes to be at least one, but got none")
    why = "it counts local steps, of which each entry moves in one pass alone"
    refuse(fedavg, "scaffold", "fedselect", why)
    adjusted, settled = fedavg.train.adjust, fedavg.train.settle
    names = trainable(fedavg)
    none = {
        name: torch.zeros_like(value, dtype=torch.bool)
        for name, value in fedavg.initial().items()
        if name in names and value.dim() > 1
    }

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        params, context = fedavg.receive(with_own_entries(message, state), state, graph)
        return params, {**context, "own": state.get("chosen", none)}

    def batches(graph: Graph, context: Any) -> Iterator[tuple[Graph, Any]]:
        some = any(bool(own.any()) for own in context["own"].values())
        for of_own in passes:
            if some or not of_own:  # nothing would move otherwise
                yield from marked(local_steps(fedavg.train, graph, context), of_own)

    def adjust(grads: Params, params: Params, context: Any) -> Params:
        grads = grads if adjusted is None else adjusted(grads, params, context)
        zeros = {name: torch.zeros_like(grad) for name, grad in grads.items()}
        return moving(grads, zeros, context)

    def settle(new: Params, old: Params, context: Any) -> Params:
        new = new if settled is None else settled(new, old, context)
        return moving(new, old, context)

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new_state = fedavg.send(params, context, state, graph)
        own, model = context["own"], dict(message["model"])
        before = state.get("before", {name: context["start"][name] for name in own})
        rounds = state.get("rounds", torch.tensor(0))
        travels = {name: own[name] for name in own if name in model}
        chosen = own
        if rounds and rounds % every == 0:
            moved = {name: (params[name] - before[name]).abs() for name in travels}
            more = {n: own[n] | most(moved[n], own[n], top=top, cap=cap) for n in travels}
            chosen, before = {**own, **more}, {name: params[name] for name in own}
        model |= {name: model[name].masked_fill(mask, 0) for name, mask in travels.items()}
        new_state = {**new_state, "model": params, "own": own, "chosen": chosen, "before": before}
        return {**message, "model": model, "own": travels}, {**new_state, "rounds": rounds + 1}

    def aggregate(inbox: Inbox, state: State) -> tuple[Mapping[int, Message], State]:
        weight = inbox.stack("num_examples")
        if not weight.any():
            return fedavg.aggregate(inbox, state)
        outbox, kept = fedavg.aggregate(completed(inbox, weight, state["model"]), state)
        if "model" not in kept:  # to fill with what nobody shares, in the next round
            raise ValueError(
                "Expected fedselect to be given a method whose server keeps one model for all, "
                f"but got a state with {list(kept)}"
            )
        return outbox, kept

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        return fedavg.deploy(with_own_entries(message, state), state, graph)

    train = replace(fedavg.train, num_steps=None, batches=batches, adjust=adjust, settle=settle)
    train = replace(train, settle_moments=True)
    changed: dict[str, Any] = {"receive": receive, "send": send, "aggregate": aggregate}
    return replace(fedavg, **changed, deploy=deploy, train=train)


def with_own_entries(message: Message, state: State) -> Message:
    """The message with the client's own entries in its model, once it has some."""
    if "own" not in state or "model" not in message:
        return message
    own = state["own"]
    own_model = state["model"]
    sent = message["model"]
    model = {n: torch.where(own[n], own_model[n], p) if n in own else p for n, p in sent.items()}
    return {**message, "model": model}


def marked(
    steps: Iterable[tuple[Graph, Any]], of_own: bool
) -> Iterator[tuple[Graph, dict[str, Any]]]:
    """The steps of a pass, told whether it moves the client's own entries.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]))
        >>> [context for _, context in marked([(graph, {"lr": 1})], True)]
        [{'lr': 1, 'of_own': tensor(True)}]
    """
    last, told = None, {}
    for seen, context in steps:
        if context is not last:  # the same context in all steps stays one
            last, told = context, {**context, "of_own": torch.tensor(of_own, device=seen.device)}
        yield seen, told


def moving(there: Params, still: Params, context: Any) -> Params:
    """What is `there` for the entries that a pass moves, and `still` for the others.

    Example:
        >>> context = {"own": {"w": torch.tensor([True, False])}, "of_own": torch.tensor(False)}
        >>> moving({"w": torch.ones(2)}, {"w": torch.zeros(2)}, context)
        {'w': tensor([0., 1.])}
    """
    own, of_own = context["own"], context["of_own"]
    where = {name: own[name] == of_own if name in own else ~of_own for name in there}
    return {name: torch.where(where[name], there[name], still[name]) for name in there}


def most(moved: torch.Tensor, own: torch.Tensor, *, top: float, cap: float) -> torch.Tensor:
    """The shared entries that moved most: a share `top` of them, and no more than `cap` allows.

    Example:
        >>> own = torch.tensor([True, False, False])
        >>> most(torch.tensor([9.0, 1.0, 2.0]), own, top=0.5, cap=1.0)
        tensor([False, False,  True])
    """
    taken = int(own.sum())
    count = min(int(top * (own.numel() - taken)), int(cap * own.numel()) - taken)
    order = moved.masked_fill(own, -1).flatten().argsort(descending=True, stable=True)
    chosen = torch.zeros_like(own).flatten()
    return chosen.index_fill(0, order[: max(count, 0)], True).view_as(own)


def completed(inbox: Inbox, weight: torch.Tensor, old: Any) -> Inbox:
    """The inbox with whole models: where an entry is a client's own, the mean of the others'."""
    own, models = inbox.stack("own"), inbox.stack("model")
    for name, mask in own.items():
        models[name] = filled(models[name], mask, weight, old[name])
    parts = inbox.messages({"model": models})
    whole = {client: {**inbox[client], **parts[client]} for client in inbox}
    return Inbox(whole, inbox.num_clients, inbox.sent)


def filled(
    values: torch.Tensor, own: torch.Tensor, weight: torch.Tensor, old: torch.Tensor
) -> torch.Tensor:
    """Clients' tensors ``[K, ...]``, each one's own entries replaced by the mean of the others'.

    So the weighted mean of all is that of those who share an entry; `old` where nobody does.

    Example:
        >>> own = torch.tensor([[False], [True]])
        >>> values, old = torch.tensor([[1.0], [5.0]]), torch.zeros(1)
        >>> filled(values, own, torch.tensor([1, 1]), old).flatten()
        tensor([1., 1.])
    """
    parts = {"sum": values.masked_fill(own, 0), "share": (~own).to(values.dtype)}
    means = mean(parts, weight)
    average = torch.where(means["share"] > 0, means["sum"] / means["share"], old)
    return torch.where(own, average, values)
