"""The check of padding: a loss in a batch must be what it is for a client alone."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ....predict import reads, stand_in
from ...method.message import Params, leaves
from ...method.ragged import Ragged
from ...seeds import set_seed
from ...training.train import in_mode, trainable
from .cohort import ONE_BY_ONE, Cohort
from .steps import View


def check_padding(
    view: View, params: Sequence[Params], left: Sequence[int], checked: set[str]
) -> None:
    """Compare the loss of the client that is padded most with its loss alone, once for each kind.

    Args:
        view: of the step at hand.
        params: where each client started.
        left: the clients that have this step.
        checked: what was padded when a loss was compared before, ``"nodes"`` or the path of what is
            `Ragged` in a context; it grows.

    Raises:
        ValueError: if a loss that draws nothing is another one for a padded client.
    """
    if not view.is_new:
        return
    padded = _padded(view.cohort, view.contexts, left)
    if reads(
        stand_in(view.method.model)
    ).edge_index:  # code that nobody here knows: always compared
        padded["edges"] = min(left, key=lambda client: view.cohort.graphs[client].num_edges)
    for kind, client in padded.items():
        if kind not in checked:
            _compare(view, params[client], client)
            checked.add(kind)


def _padded(cohort: Cohort, contexts: Sequence[Any], left: Sequence[int]) -> dict[str, int]:
    """What a batch pads, nodes or parts of contexts, and for which of the clients `left` most."""
    sizes = {"nodes": [graph.num_nodes for graph in cohort.graphs]}
    if cohort.graphs[0].edge_label_index is not None:
        sizes["pairs"] = [graph.num_examples for graph in cohort.graphs]
    for context in contexts:
        for path, value in leaves(context if isinstance(context, Mapping) else {"": context}):
            if isinstance(value, Ragged):
                sizes.setdefault(f"context/{path}", []).append(len(value))
    sizes = {kind: each for kind, each in sizes.items() if len(each) == len(contexts)}
    smallest = {kind: min(left, key=each.__getitem__) for kind, each in sizes.items()}
    return {kind: k for kind, k in smallest.items() if sizes[kind][k] < max(sizes[kind])}


def _compare(view: View, start: Params, client: int) -> None:
    """Compare beside the client's parameters, and at them where the loss is not defined there.

    Where biases start at 0, padded nodes give 0 as well.
    """
    method, cohort = view.method, view.cohort
    graph, context = cohort.graphs[client], view.contexts[client]
    whole = View(method, view.layout).at(cohort, view.contexts, None)
    names = trainable(method)

    def alone(at: Params, seed: int = 0) -> Tensor:
        set_seed(seed)
        return method.loss(at, graph, context)

    def both(at: Params) -> tuple[Params, Tensor, Tensor]:
        """Alone and padded."""
        one = alone(at)
        set_seed(0)
        stacks = {
            name: value.detach().expand(len(cohort), *value.shape)
            for name, value in view.layout.turn(at).items()
        }
        return at, one, whole.losses(stacks)[client]

    kind = graph.device.type
    devices = [graph.device] if kind == "cuda" else []
    exact = torch.autocast(kind, enabled=False)  # halves differ by more than what is looked for
    model = stand_in(method.model)
    with in_mode(model, False), torch.no_grad(), torch.random.fork_rng(devices), exact:
        set_seed(0)
        near = {name: _beside(p) if name in names else p for name, p in start.items()}
        found = None
        with contextlib.suppress(Exception):  # a loss need not be defined there
            found = both(near)
        at, one, padded = found if found and found[1].isfinite() else both(start)
        if torch.allclose(padded, one, rtol=1e-4, atol=1e-5, equal_nan=True):
            return
        if not one.isnan() and not torch.equal(one, alone(at, seed=1)):  # a loss that draws
            return
    raise ValueError(
        "Expected the loss to leave padding out (no training mask has padded nodes; weigh by "
        "graph.node_mask, and by the mask of what is Ragged), but got "
        f"{float(padded):.6g} instead of {float(one):.6g} for client {cohort.clients[client]} in a "
        f"batch{ONE_BY_ONE}"
    )


def _beside(value: Tensor) -> Tensor:
    """A tensor moved by up to a tenth of its entries' mean size, or of 1 where all are 0."""
    size = value.abs().mean()
    return value + 0.1 * torch.rand_like(value) * torch.where(size > 0, size, 1)
