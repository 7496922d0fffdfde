"""How many operations a local step and a round dispatch: a bound, so that none creeps in."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from speed import operations

import fgl

pytestmark = pytest.mark.slow

MOST = {"loop": (39, 25), "batch": (40, 55)}  # operations and views of a step


@pytest.mark.parametrize("way", list(MOST))
def test_a_step_of_fedavg_dispatches_no_more(way: str) -> None:
    graph = fgl.data.splits.split(fgl.data.load("synthetic"), "random")
    clients = fgl.data.partitions.partition_graph(
        graph, fgl.data.partitions.louvain_partition(graph, 3)
    )
    model = fgl.nn.GCN(graph.num_features, 8, graph.num_classes, dropout=0.5)
    adam = partial(torch.optim.Adam, lr=0.01)
    method = fgl.fedavg(model, train=fgl.Training(adam, num_steps=2))
    found = operations.measure(method, clients, way)
    most, most_views = MOST[way]
    assert found["operations"] <= most and found["views"] <= most_views
    assert found["operations"] > 20  # they are counted
    more = operations.measure(method, [*clients, *clients], way)
    clients_more = more["round_operations"] - found["round_operations"]
    assert clients_more <= 3 * (26 if way == "loop" else 8)  # of each client


def test_what_is_counted() -> None:
    x = torch.ones(3, 2)
    with operations.Counted() as count:
        ((x.t() @ x) + 1).view(4)[0]
    assert dict(count.operations) == {"aten.mm.default": 1, "aten.add.Tensor": 1}
    assert count.views.total() == 3
