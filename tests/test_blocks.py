"""Inference in blocks: equal to the whole forward, whatever the block; how much a block reads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from federations import CLASSES, FEATURES, close, graph
from test_sampler import MODELS, logits, odd
from torch.func import functional_call

import fgl
from fgl.blocks import logits_in_blocks


@pytest.mark.parametrize("block_size", [1, 7, 30])
@pytest.mark.parametrize("kind", MODELS)
def test_blocks_are_the_whole_forward(kind: Any, block_size: int) -> None:
    model = kind(FEATURES, 8, CLASSES, num_layers=3).eval()
    for data in (graph(30), odd(), odd(weights=False, loops=False)):
        own = model.to(data.x.dtype)
        for x in (data.x, fgl.SparseMatrix.from_dense(data.x)):
            seen = data.replace(x=x)
            made = logits_in_blocks(own, own.state_dict(), seen, block_size=block_size)
            close(made, logits(own, seen))


def test_the_parameters_are_those_given() -> None:
    data = graph(20)
    one, other = (fgl.nn.GCN(FEATURES, 8, CLASSES).eval() for _ in range(2))
    made = logits_in_blocks(one, other.state_dict(), data, block_size=6)
    close(made, logits(other, data))
    assert not made.requires_grad


def test_a_block_reads_its_nodes_and_their_neighbours_alone() -> None:
    """The peak: what is made at a time has as many rows as a block and its neighbours."""
    n, block = 400, 20
    ring = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
    data = fgl.Graph(torch.randn(n, 5), torch.cat([ring, ring.flip(0)], 1))
    model, sizes = fgl.nn.SAGE(5, 8, 3).eval(), []
    for conv in model.convs:
        conv.register_forward_hook(lambda module, args, out: sizes.append(len(args[0])))
    made = logits_in_blocks(model, model.state_dict(), data, block_size=block)
    assert sizes == [block + 2] * (2 * n // block)
    close(made, functional_call(model, model.state_dict(), data.inputs))


def test_what_cannot_be_cut_is_refused() -> None:
    data, model = graph(20), fgl.nn.EgoSAGE(FEATURES, 8, CLASSES)
    assert len(logits_in_blocks(model, model.state_dict(), data, block_size=20)) == 20
    with pytest.raises(TypeError, match="stack of convolutions"):
        logits_in_blocks(model, model.state_dict(), data, block_size=19)
    with pytest.raises(ValueError, match="block_size"):
        logits_in_blocks(model, model.state_dict(), data, block_size=0)
