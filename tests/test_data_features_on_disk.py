"""Features mapped from files: the same values, the same training, nothing written back."""

from pathlib import Path

import pytest
import torch
from pretended_device import PretendedDevice

import fgl
from fgl import Graph
from fgl.data import large_graph, map_features
from fgl.data.partitions import partition_graph, random_partition
from fgl.data.splits import random_split

WHOLE = random_split(large_graph(200, 600, num_classes=3, num_features=5))


def test_a_file_that_is_in_use_stays_with_who_uses_it(tmp_path: Path) -> None:
    """To write into it would change the features of another graph, or kill the process."""
    mapped = map_features(WHOLE, tmp_path / "x")
    again = map_features(mapped, tmp_path / "x")
    other = map_features(WHOLE.replace(x=torch.ones(200, 2)), tmp_path / "x")
    for one, want in ((mapped, WHOLE.x), (again, WHOLE.x), (other, torch.ones(200, 2))):
        assert torch.equal(one.x, want)  # type: ignore[arg-type]
    first, second = (
        partition_graph(mapped, random_partition(WHOLE, 3, seed=s), folder=tmp_path) for s in (0, 1)
    )
    plain = partition_graph(WHOLE, random_partition(WHOLE, 3, seed=0))
    assert all(torch.equal(a.x, b.x) for a, b in zip(first, plain, strict=True))  # type: ignore[arg-type]
    assert not torch.equal(first[0].x, second[0].x)  # type: ignore[arg-type]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0.x", "1.x", "2.x", "x"]


def test_no_nodes(tmp_path: Path) -> None:
    none = Graph(torch.zeros(0, 3), torch.zeros(2, 0, dtype=torch.int64))
    assert map_features(none, tmp_path / "x").num_features == 3


def test_what_cannot_be_mapped(tmp_path: Path) -> None:
    sparse = fgl.data.csbm(num_nodes=50, num_features=4, words_per_set=2)
    with pytest.raises(TypeError, match="Expected graph to have dense .* but got a SparseMatrix"):
        map_features(sparse, tmp_path / "x")


def test_a_graph_no_larger_than_a_block_is_scored_where_its_edges_are(tmp_path: Path) -> None:
    mapped = map_features(WHOLE, tmp_path / "x")
    model = fgl.nn.SAGE(5, 4, 3).eval()
    want = fgl.blocks.logits_in_blocks(model, dict(model.named_parameters()), mapped)
    with PretendedDevice() as gpu:
        there = mapped.to("cuda", features=False)
        got = fgl.blocks.logits_in_blocks(model.cuda(), dict(model.named_parameters()), there)
        assert got.is_cuda
        assert not gpu.mixed
    torch.testing.assert_close(got, want)
