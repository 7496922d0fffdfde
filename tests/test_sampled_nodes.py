"""The minibatch task: all neighbours are the full batch; what its steps are, and keep."""

import importlib
import itertools

import pytest
import torch
from conformance import known
from federations import graph

from fgl import tasks
from fgl.federation import Steps
from fgl.sampler import NeighbourSampler
from fgl.tasks.sampled_nodes import sampled_steps
from fgl.transforms import secure_sum
from fgl.transforms.secure_sum.messages import MASKED


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
