"""FedSelect: the entries of a client's model that change most in training become personal.

In addition to its trained model, a client keeps three tensors for each weight:

- ``"mask"`` marks the entries that are personal from now on.
- ``"held"`` marks the entries that were personal in the client's last round. When a model arrives,
  the client replaces these entries, and no others, by its own values. An entry that was selected at
  the end of the last round starts from the server's mean.
- ``"reference"`` is a copy of the weight, which the client renews at each selection. In its next
  selection, the client compares the trained weight to this copy.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import federation as fed
from ..aggregate import mean
from ..checks import Count, Share, reject_if
from ..federation import Inbox, Message, Method, Outbox, Params, State, Training
from ..graph import Graph


@fed.layer(checks=[fed.check_one_architecture])
def fedselect(
    fedavg: Method,
    *,
    top: Share = 0.25,
    cap: Share = 0.8,
    every: Count = 3,
    passes: Sequence[bool] = (True, False),
) -> Method:
    """Average only shared entries; as training proceeds, fewer entries are shared (FedSelect).

    A local epoch has two passes, and each pass runs all of the task's local steps. The first pass
    changes only the client's personal entries, and the second pass changes only its shared entries.
    The server averages each entry over the clients that share this entry. After a client's 4th,
    7th, 10th round and so on (see `every`), some of the client's shared entries become personal.
    From n shared entries of a weight, the client selects ``n - round((1 - top) n)`` entries. The
    client selects the entries that changed most since the last selection. Entries that tie with a
    selected entry are also selected. A weight is a tensor with "weight" in its name. Other tensors
    are always shared. Each client keeps its batch norm statistics. If a pass does not change an
    entry, the optimiser's moments of this entry do not change either. Adam's step count includes
    both passes.

    This method follows the public code, with two exceptions. In the public code, all clients have
    the same size and the same weight. Here clients have equal weights only with
    `fgl.tasks.task.weighed_equally`. Here the first pass is skipped if it would change nothing: the
    client has no personal entries, and the model has no batch norm statistics.

    Args:
        fedavg: FedAvg built for a task.
        top: fraction of a weight's shared entries that become personal in one selection.
        cap: bound for the fraction of a weight's entries that are personal. If the fraction is
            above this bound, no further entry of the weight is selected.
        every: number of rounds between a client's selections, at least 1; only rounds in which the
            client takes part are counted.
        passes: the passes of a local epoch, in order. The value True means a pass that changes the
            personal entries, and False means a pass that changes the shared entries.

    Raises:
        ValueError: if a number is out of range, if `passes` is empty, or if `fedavg` is a
            `scaffold`.

    Example:
        >>> graph = fgl.data.csbm(num_nodes=40, num_features=12, words_per_set=3)
        >>> method = fedselect(fgl.fedavg(fgl.nn.GCN(12, 8, 7, dropout=0.0)), every=1)
        >>> result = fgl.run(method, [graph] * 2, num_rounds=2, seed=0)
        >>> result.client_states[0]["mask"]["convs.0.lin.weight"].double().mean()
        tensor(0.2500, dtype=torch.float64)

    Source: Tamirisa et al. 2024, https://arxiv.org/abs/2404.02478; lapisrocks/fedselect
    """
    reject_if(not passes, "passes to be at least one", "none")
    reason = "it counts local steps, of which each entry moves in one pass alone"
    fed.refuse(fedavg, "scaffold", "fedselect", reason)
    weights = fed.pick(fedavg.initial(), [n for n in fed.trainable(fedavg) if "weight" in n])
    none = fed.combine(torch.Tensor.bool, fed.combine(torch.zeros_like, weights))
    statistics = [name for name, _ in fedavg.model.named_buffers()]
    moves_shared = [own for own in passes if not own]

    def receive(message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        completed = with_held_entries(message, state, statistics)
        params, context = fedavg.receive(completed, state, graph)
        return params, {**context, "mask": state.get("mask", none)}

    def batches(graph: Graph, context: Any) -> Iterator[tuple[Graph, Any]]:
        owns = statistics or any(bool(mask.any()) for mask in context["mask"].values())
        return interleaved(fedavg.train, graph, context, passes if owns else moves_shared)

    def settle(new: Params, old: Params, context: Any) -> Params:
        return moving(fedavg.train.settled(new, old, context), old, context)

    def send(params: Params, context: Any, state: State, graph: Graph) -> tuple[Message, State]:
        message, new = fedavg.send(params, context, state, graph)
        mask, model = context["mask"], message["model"]
        reference = state.get("reference", fed.pick(context["start"], mask))
        rounds, masks = state.get("rounds", torch.tensor(0)), fed.pick(mask, model)
        if rounds and rounds % every == 0:
            grown = fed.combine(partial(selected, top=top, cap=cap), masks, params, reference)
            mask, reference = {**mask, **grown}, fed.pick(params, mask)
        hidden = fed.combine(lambda own, value: value.masked_fill(own, 0), masks, model)
        new = {**new, "model": params, "mask": mask, "held": masks, "reference": reference}
        upload = {**message, "model": {**fed.drop(model, statistics), **hidden}, "own": masks}
        return upload, {**new, "rounds": rounds + 1}

    def aggregate(inbox: Inbox, state: State) -> tuple[Outbox, State]:
        weight = inbox.stack("num_examples")
        if not weight.any():
            return fedavg.aggregate(inbox, state)
        outbox, new = fedavg.aggregate(completed(inbox, weight, state["model"]), state)
        # In the next round, the model fills entries that no client shares.
        want = "fedselect to be given a method whose server keeps one model for all"
        reject_if("model" not in new, want, f"a state with {list(new)}")
        return outbox, new

    def deploy(message: Message, state: State, graph: Graph) -> Params:
        return fedavg.deploy(with_held_entries(message, state, statistics), state, graph)

    train = replace(fedavg.train, num_steps=None, batches=batches, settle=settle)
    train = replace(train, settle_moments=True)
    changed: dict[str, Any] = {"receive": receive, "send": send, "aggregate": aggregate}
    return replace(fedavg, **changed, deploy=deploy, train=train)


def with_held_entries(message: Message, state: State, statistics: Sequence[str]) -> Message:
    """Return a message whose model has the client's own personal entries and statistics."""
    if "held" not in state or "model" not in message:
        return message
    trained, masks, model = state["model"], state["held"], dict(message["model"])
    for name, mask in masks.items():
        if name in model:
            model[name] = torch.where(mask, trained[name], model[name])
    return {**message, "model": {**model, **{name: trained[name] for name in statistics}}}


def interleaved(
    train: Training, graph: Graph, context: Any, passes: Sequence[bool]
) -> Iterator[tuple[Graph, Any]]:
    """The local steps of all epochs.

    In each epoch, the passes run one after another.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]))
        >>> single = partial(fed.node_minibatches, batch_size=1, num_epochs=2)
        >>> steps = interleaved(Training(batches=single, epochs=2), graph, {}, [True, False])
        >>> [int(context["moves_own"]) for _, context in steps]
        [1, 1, 0, 0, 1, 1, 0, 0]
    """
    drawn = [list(marked(fed.local_steps(train, graph, context), own)) for own in passes]
    passes_of_batches = 1 if train.epochs is None else train.epochs
    epochs = fed.num_steps(train) if train.batches is None else passes_of_batches
    for epoch in range(epochs):
        for steps in drawn:
            first, end = (len(steps) * each // epochs for each in (epoch, epoch + 1))
            yield from steps[first:end]


def marked(steps: Iterable[tuple[Graph, Any]], own: bool) -> Iterator[tuple[Graph, dict[str, Any]]]:
    """Yield the local steps of one pass, and add the kind of the pass to each step's context.

    The entry ``"moves_own"`` of the context is True for a pass that changes the personal entries,
    and False for a pass that changes the shared entries.

    Example:
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]))
        >>> [context for _, context in marked([(graph, {"lr": 1})], True)]
        [{'lr': 1, 'moves_own': tensor(True)}]
    """
    last, extra = None, {}
    for batch, context in steps:
        if context is not last:  # a context common to all steps stays common
            last, extra = context, {**context, "moves_own": torch.tensor(own, device=batch.device)}
        yield batch, extra


def moving(new: Params, old: Params, context: Any) -> Params:
    """New values for the entries that a pass changes, and old values for all other entries.

    Example:
        >>> context = {"mask": {"w": torch.tensor([True, False])}, "moves_own": torch.tensor(False)}
        >>> moving({"w": torch.ones(2)}, {"w": torch.zeros(2)}, context)
        {'w': tensor([0., 1.])}
    """
    reject_if("moves_own" not in context, "fedselect's own steps", "others around it")
    mask, own = context["mask"], context["moves_own"]
    where = {name: mask[name] == own if name in mask else ~own for name in new}
    return {name: torch.where(where[name], new[name], old[name]) for name in new}


def selected(mask: Tensor, value: Tensor, reference: Tensor, *, top: float, cap: float) -> Tensor:
    """Add to the mask the shared entries that changed most since the last selection."""
    return mask | select((value - reference).abs(), mask, top=top, cap=cap)


def select(changes: Tensor, mask: Tensor, *, top: float, cap: float) -> Tensor:
    """Select the fraction `top` of the shared entries that changed most.

    No entry is selected if the fraction of personal entries is already above `cap`.

    Example:
        >>> mask = torch.tensor([True, False, False])
        >>> select(torch.tensor([9.0, 1.0, 2.0]), mask, top=0.5, cap=1.0)
        tensor([False, False,  True])
    """
    taken = int(mask.sum())
    first = round((1 - top) * (mask.numel() - taken))
    if first == mask.numel() - taken or float(torch.tensor(taken) / mask.numel()) > cap:
        return torch.zeros_like(mask)
    in_order = changes.masked_fill(mask, torch.inf).flatten().sort().values
    return (changes >= in_order[first]) & ~mask


def completed(inbox: Inbox, weight: Tensor, old: Any) -> Inbox:
    """Replace each personal entry in an inbox by the mean of the clients that share this entry."""
    own, models = inbox.stack("own"), inbox.stack("model")
    for name, mask in own.items():
        models[name] = filled(models[name], mask, weight, old[name])
    parts = inbox.messages({"model": models})
    return inbox.with_messages({client: {**inbox[client], **parts[client]} for client in inbox})


def filled(values: Tensor, own: Tensor, weight: Tensor, old: Tensor) -> Tensor:
    """Replace each personal entry by the mean of the clients that share it; float ``[K, ...]``.

    So an entry's weighted mean over all clients equals its mean over the clients that share the
    entry. If no client shares an entry, the entry's value is taken from `old`.

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
