"""What a method draws for its local steps is what its loss sees, alone and in a batch."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from federations import graphs, model, refuses, same, without_training_nodes
from torch import Tensor, optim
from torch.func import functional_call

import fgl
from fgl import Method, Ragged, Training
from fgl.federation import graph_minibatches, node_minibatches
from fgl.losses import cross_entropy

ADAM = partial(optim.Adam, lr=0.02)


def some_nodes(data: fgl.Graph, context: Any) -> Iterable[tuple[fgl.Graph, Any]]:
    """Two draws with repeats per ten nodes, none where there is no training node."""
    for _ in range(2 * (data.num_train > 0) * (1 + data.num_nodes // 10)):
        nodes = torch.randint(data.num_nodes, (1 + data.num_nodes // 4,))
        yield data, {**context, "nodes": Ragged(nodes)}


def parts(data: fgl.Graph, context: Any) -> Iterable[tuple[fgl.Graph, Any]]:
    """Steps on a random half of the graph, the first on all of it."""
    if not data.num_train:
        return
    yield data, context
    for _ in range(data.num_nodes % 3):
        half = torch.randperm(data.num_nodes)[: data.num_nodes // 2].sort().values
        yield data.subgraph(half), context


def sampled(how: Any = some_nodes, **options: Any) -> Method:
    net = model(dropout=0.0)

    def loss(params: Any, data: fgl.Graph, context: Any) -> Tensor:
        logits = functional_call(net, params, (data.x, data.adj))
        if how is parts:
            return cross_entropy(logits, data.y, data.train_mask)
        nodes = context["nodes"]
        return cross_entropy(logits[nodes.values], data.y[nodes.values], nodes.mask)

    return fgl.fedavg(net, loss=loss, train=Training(ADAM, batches=how, **options))


def clients() -> list[fgl.Graph]:
    given = [*graphs(), without_training_nodes(9, seed=5)]
    return [g.replace(node_id=torch.arange(g.num_nodes)) for g in given]  # as `subgraph` has it


def test_a_client_without_steps_stays() -> None:
    method = sampled(parts)
    run = fgl.run(
        replace(method, aggregate=lambda inbox, state: (dict(inbox), {})),
        clients(),
        num_rounds=1,
        clients_at_once="all",
    )
    assert same(run.outbox[4]["model"], method.initial())
    assert not same(run.outbox[0]["model"], method.initial())


def test_an_example_without_an_answer_is_not_drawn() -> None:
    none = torch.zeros(2, 0, dtype=torch.int64)
    y = torch.tensor([[0.0, torch.nan], [torch.nan, torch.nan], [1.0, 2.0], [torch.nan, 3.0]])
    nodes = fgl.Graph(torch.ones(4, 1), none, y=y, train_mask=torch.tensor([1, 1, 1, 0]).bool())
    drawn = [seen.train_mask for seen, _ in node_minibatches(nodes, {}, batch_size=1)]
    assert torch.stack(drawn).sum(0).tolist() == [1, 0, 1, 0]
    many = fgl.Graph(torch.arange(4.0).unsqueeze(1), none, y=y, batch=torch.arange(4))
    for size in (2, 8):
        seen = [part.x for part, _ in graph_minibatches(many, {}, batch_size=size)]
        assert sorted(torch.cat(seen).flatten().tolist()) == [0.0, 2.0, 3.0]


def test_batches_of_no_example_are_refused() -> None:
    own = fgl.Graph(torch.ones(4, 1), torch.zeros(2, 0, dtype=torch.int64), y=torch.zeros(4).long())
    for draw in (node_minibatches, graph_minibatches):
        for size in (0, -2):
            with pytest.raises(ValueError, match="Expected batch_size to be"):
                list(draw(own, {}, batch_size=size))


def test_two_ways_to_make_batches_are_refused() -> None:
    with pytest.raises(
        ValueError, match="Expected num_steps to be left out beside batches, but got 4"
    ):
        Training(num_steps=4, batches=parts)
    refuses("epochs to be left out without batches, but got 3", lambda: Training(epochs=3))
