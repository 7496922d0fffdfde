"""Contexts in a batch: what is padded brings its mask, and nothing is padded in silence."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from federations import close, fedavg, graph, graphs, model, refuses
from torch import Tensor
from torch.func import functional_call

import fgl
from fgl import Method, Ragged, Training

SGD = Training(partial(torch.optim.SGD, lr=0.1), num_steps=2)


def pairs_of(data: fgl.Graph, context: Any, *, marked: bool) -> Iterator[tuple[fgl.Graph, Any]]:
    """The edges of a client as rows of pairs, in every step."""
    pairs = data.edge_index.t()
    for _ in range(2):
        yield data, {**context, "pairs": Ragged(pairs) if marked else pairs}


def short_last(data: fgl.Graph, context: Any, *, marked: bool) -> Iterator[tuple[fgl.Graph, Any]]:
    """Six training nodes a step, the last step of each client what is left of its own."""
    nodes = data.train_mask.nonzero().squeeze(1)
    for part in (nodes[:6], nodes[6:]):
        yield data, {**context, "nodes": Ragged(part) if marked else part}


def mean(values: Tensor, mask: Tensor | None) -> Tensor:
    return values.mean() if mask is None else (values * mask).sum() / mask.sum()


def learner(batches: Any, *, ignore: bool = False) -> Method:
    """A mean over the pairs, or over the nodes, that its batches draw."""
    net = model(dropout=0.0)

    def loss(params: Any, data: fgl.Graph, context: Any) -> Tensor:
        z = functional_call(net, params, data.inputs)
        given = context["pairs"] if "pairs" in context else context["nodes"]
        values, mask = given, None
        if isinstance(given, Ragged):
            values, mask = given.values, None if ignore else given.mask
        if "pairs" in context:
            return mean((z[values[:, 0]] - z[values[:, 1]]).square().sum(1), mask)
        return mean(-z.log_softmax(1)[values].gather(1, data.y[values][:, None])[:, 0], mask)

    return fgl.fedavg(net, loss=loss, train=replace(SGD, num_steps=None, batches=batches))


def equals() -> list[fgl.Graph]:
    """Clients of equal size that differ in their edges and in their training nodes."""
    same = [graph(20, seed=seed) for seed in range(3)]
    masks = [torch.arange(20) < count for count in (12, 9, 11)]
    return [
        g.replace(train_mask=mask, val_mask=None, test_mask=None)
        for g, mask in zip(same, masks, strict=True)
    ]


@pytest.mark.parametrize(("batches", "key"), [(pairs_of, "pairs"), (short_last, "nodes")])
def test_unmarked_is_refused_in_a_batch_and_runs_alone(batches: Any, key: str) -> None:
    """Clients of equal size; the second has its short step after one that needs no padding."""
    method = learner(partial(batches, marked=False))
    assert len(fgl.run(method, equals(), num_rounds=1).history) == 1
    text = rf"Round 0, 3 clients.*client \d's context\['{key}'\] to be .*Ragged.*clients_at_once=1"
    refuses(text, lambda: fgl.run(method, equals(), num_rounds=1, clients_at_once="all"))


@pytest.mark.parametrize("batches", [pairs_of, short_last])
def test_a_mask_that_the_loss_ignores_is_found(batches: Any) -> None:
    method = learner(partial(batches, marked=True), ignore=True)
    text = r"the loss to leave padding out .*Ragged\), but got .* for client \d in a batch"
    refuses(text, lambda: fgl.run(method, equals(), num_rounds=1, clients_at_once="all"))


def received(entry: Any) -> Method:
    """FedAvg whose context has an entry ``own`` more."""
    method = fedavg(model(dropout=0.0), SGD)

    def receive(message: Any, state: Any, data: fgl.Graph) -> Any:
        params, context = method.receive(message, state, data)
        return params, {**context, "own": entry(data)}

    return replace(method, receive=receive)


def test_an_entry_that_no_loss_reads_may_have_any_shape() -> None:
    wide = received(lambda data: torch.ones(data.num_nodes))
    kinds = received(lambda data: None if data.num_nodes == 12 else object())
    for method in (wide, kinds):
        loop = fgl.run(method, graphs(), num_rounds=1, clients_at_once=1)
        batch = fgl.run(method, graphs(), num_rounds=1, clients_at_once="all")
        close(dict(batch.outbox[0]["model"]), dict(loop.outbox[0]["model"]))


NOT_RAGGED: list[tuple[Any, Any, type[Exception], str]] = [
    ([1, 2], None, TypeError, "values to be a tensor or a SparseMatrix, but got list"),
    (torch.tensor(1.0), None, ValueError, "values to have a first dimension"),
    (torch.ones(3), torch.ones(2).bool(), ValueError, r"mask to have shape \[3\], .* \[2\]"),
]


@pytest.mark.parametrize(("values", "mask", "kind", "text"), NOT_RAGGED)
def test_what_cannot_be_ragged(values: Any, mask: Any, kind: Any, text: str) -> None:
    refuses(text, lambda: Ragged(values, mask), kind)
