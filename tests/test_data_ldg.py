"""`ldg_partition` against a twin of loops, its bound on sizes, and the edges that it keeps."""

from fractions import Fraction
from math import ceil
from typing import Any

import pytest
import torch

import fgl
from fgl import Graph
from fgl.data import csbm
from fgl.data.partitions import ldg_partition

SMALL = csbm(num_nodes=600, num_features=20, words_per_set=5, seed=1)


def twin(graph: Graph, k: int, passes: int, slack: float, block: int, seed: int) -> list[list[int]]:
    """The rule, node by node."""
    n = graph.num_nodes
    capacity = ceil(n * (1 + Fraction(str(slack))) / k)
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randperm(-(-n // block), generator=generator) * block
    neighbours: list[list[int]] = [[] for _ in range(n)]
    for source, target in graph.edge_index.t().tolist():
        neighbours[target].append(source)
    owner: dict[int, int] = {}
    for _ in range(passes):
        size = [0] * k
        for start in starts.tolist():
            wanted, before = {}, list(size)
            for node in range(start, min(start + block, n)):
                near = [owner[other] for other in neighbours[node] if other in owner]
                scores = [near.count(part) * (1 - before[part] / capacity) for part in range(k)]
                best = max(range(k), key=scores.__getitem__)
                wanted[node] = best if scores[best] > 0 else None
            placed: dict[int, int] = {}
            for node, part in wanted.items():
                if part is not None and size[part] < capacity:
                    placed[node] = part
                    size[part] += 1
            for node in sorted(wanted.keys() - placed.keys()):
                placed[node] = min(range(k), key=size.__getitem__)
                size[placed[node]] += 1
            owner |= placed
    return [sorted(node for node in owner if owner[node] == part) for part in range(k)]


def lists(parts: list[torch.Tensor]) -> list[list[int]]:
    return [part.tolist() for part in parts]


@pytest.mark.few
@pytest.mark.parametrize("block", [1, 7, 100, 600])
@pytest.mark.parametrize(("passes", "slack", "seed"), [(1, 0.0, 0), (3, 0.05, 1)])
def test_it_is_the_rule_of_the_paper(block: int, passes: int, slack: float, seed: int) -> None:
    how: Any = {"passes": passes, "slack": slack, "block": block, "seed": seed}
    assert lists(ldg_partition(SMALL, 5, **how)) == twin(SMALL, 5, **how)


def test_the_default_is_ten_passes_of_a_64th_of_the_nodes() -> None:
    want = twin(SMALL, 3, passes=10, slack=0.05, block=9, seed=0)
    assert lists(ldg_partition(SMALL, 3)) == want


def test_a_capacity_is_not_rounded_up_twice() -> None:
    nodes = torch.arange(30)
    clique = fgl.Graph(torch.ones(100, 1), torch.cartesian_prod(nodes, nodes).t())
    parts = fgl.data.partitions.ldg_partition(clique, 10, slack=0.1, block=1)
    assert max(map(len, parts)) == 11  # 1.1 * 100 / 10, in floats a little more


@pytest.mark.parametrize("name", ["passes", "block"])
def test_wrong_arguments(name: str) -> None:
    with pytest.raises(ValueError, match=f"Expected {name} to be an integer >= 1, but got 0"):
        ldg_partition(SMALL, 2, **{name: 0})
    with pytest.raises(ValueError, match=r"Expected num_clients to be in \[1, 600\], but got 601"):
        ldg_partition(SMALL, 601)
    with pytest.raises(ValueError, match=r"Expected slack to be a number >= 0, but got -0.1"):
        ldg_partition(SMALL, 2, slack=-0.1)
