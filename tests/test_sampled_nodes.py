"""The minibatch task: all neighbours are the full batch; what its steps are, and keep."""

from __future__ import annotations

import importlib
import itertools
from functools import partial
from typing import Any

import pytest
import torch
from conformance import known, nodes
from federations import close, end, graph

import fgl
from fgl import tasks
from fgl.federation import Steps
from fgl.sampler import NeighbourSampler
from fgl.tasks.sampled_nodes import sampled_steps
from fgl.transforms import secure_sum
from fgl.transforms.secure_sum.messages import MASKED

F32 = torch.float32
KINDS = (fgl.nn.GCN, fgl.nn.SAGE, fgl.nn.GAT)
SGD = partial(torch.optim.SGD, lr=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_all_neighbours_in_one_batch_are_the_full_batch(kind: Any) -> None:
    whole = nodes(0.0, F32, kind)
    full = tasks.node_task(
        whole.whole,
        whole.clients,
        whole.fedavg.model,
        fgl.Training(SGD, num_steps=2),  # type: ignore[arg-type]
    )
    how: dict[str, Any] = {"fanouts": (-1, -1), "epochs": 2, "batch_size": 100, "block_size": 10}
    made = tasks.sampled_node_task(
        whole.whole,
        whole.clients,
        whole.fedavg.model,
        SGD,
        **how,  # type: ignore[arg-type]
    )
    own, params = whole.clients[1], whole.fedavg.initial()
    batch, context = made.fedavg.train.batches(own, {})[0]  # type: ignore[misc, index]
    loss = made.fedavg.loss(params, batch, context)
    assert abs(float(loss - full.fedavg.loss(params, own, {}))) < 1e-5
    one, other = (fgl.run(each.fedavg, each, num_rounds=2) for each in (full, made))
    close(end(one)["outbox"], end(other)["outbox"], atol=1e-5)
    for first, second in zip(one.history, other.history, strict=True):
        assert first.metrics == pytest.approx(second.metrics, abs=1e-5)


def test_steps_go_through_the_training_nodes_and_draw_anew() -> None:
    own = graph(40)
    torch.manual_seed(0)
    steps = sampled_steps(NeighbourSampler(own, (2, 2)), {}, epochs=2, batch_size=6)
    train = own.train_mask.nonzero().squeeze(1).tolist()  # type: ignore[union-attr]
    assert len(train) % 6 and len(steps) == 2 * (len(train) // 6 + 1)
    seeds = [batch.node_id[batch.train_mask].tolist() for batch, _ in steps]  # type: ignore[index]
    half = len(steps) // 2
    for epoch in (seeds[:half], seeds[half:]):
        assert sorted(itertools.chain(*epoch)) == train
    assert seeds[0] != seeds[half]
    again = [batch.edge_index.tolist() for batch, _ in (steps[3], steps[3], steps[-1])]
    assert again[0] == again[1] != again[2]


def test_a_secure_sum_and_mended_graphs_keep_one_batch_too() -> None:
    made = known("sampled", 0.5, torch.float32)
    own, counting = made.clients[0], importlib.import_module("fgl.tasks.mended")._counting
    asked = {"secure": {"phase": torch.tensor(MASKED)}}
    for method in (secure_sum(made.fedavg, threshold=2), counting(made.fedavg, {})):
        assert isinstance(method.train.batches(own, asked), Steps)


def test_steps_are_a_sequence() -> None:
    steps = Steps(4, lambda number: (number, None))  # type: ignore[arg-type, return-value]
    assert [a for a, _ in steps] == [0, 1, 2, 3] and steps[-1][0] == 3
    assert [a for a, _ in steps[1::2]] == [1, 3] and not Steps(0, lambda number: steps[0])
    with pytest.raises(IndexError):
        steps[4]


def test_as_many_layers_as_fanouts() -> None:
    made = tasks.SampledNodes(
        clients=2, hidden=4, fanouts=(3, 2, 2), model="gcn", partition="random"
    ).load()
    assert len(made.fedavg.model.convs) == 3  # type: ignore[arg-type]
