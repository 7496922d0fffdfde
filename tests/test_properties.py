"""Properties of graphs against networkx, loops, and one graph at a time."""

import math
from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from federations import refuses
from torch import Tensor

import fgl
from fgl import properties
from fgl.properties import graph_properties
from fgl.properties.measures import PROPERTIES


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def edges(graph: nx.Graph) -> Tensor:
    return torch.tensor(list(graph.edges), dtype=torch.int64).reshape(-1, 2).T


def numbers(graph: nx.Graph) -> list[float]:
    """The six, by networkx where it has them, else from the formula."""
    n, m = graph.number_of_nodes(), graph.number_of_edges()
    if not m:
        return [0.0] * 6
    degree = [d for _, d in graph.degree()]
    mean = sum(degree) / n
    return [
        mean,
        nx.density(graph),
        sum((d - mean) ** 2 for d in degree) / n,
        sum(d * math.log(d) for d in degree if d) / (2 * m),
        -(1 / mean + 2),
        sum(nx.closeness_centrality(graph).values()) / n,
    ]


def random_graphs() -> list[nx.Graph]:
    """Of all kinds: sparse and dense, one of 65 nodes and more, in parts, empty, single, a star."""
    sizes = [1, 2, 3, 5, 8, 13, 30, 63, 64, 65, 127, 128, 129, 200, 40, 40, 40]
    graphs = [
        nx.gnp_random_graph(n, p, seed=seed)
        for seed, (n, p) in enumerate((n, p) for n in sizes for p in (0.02, 0.1, 0.5))
    ]
    graphs += [nx.empty_graph(n) for n in (0, 1, 4)]
    graphs += [nx.path_graph(150), nx.star_graph(90), nx.cycle_graph(64), nx.complete_graph(70)]
    graphs += [nx.disjoint_union(nx.path_graph(70), nx.complete_graph(5)), nx.empty_graph(0)]
    order = np.random.default_rng(0).permutation(len(graphs))
    return [graphs[i] for i in order]


def batched(graphs: list[nx.Graph]) -> tuple[Tensor, Tensor]:
    sizes = torch.tensor([len(g) for g in graphs])
    first = (sizes.cumsum(0) - sizes).tolist()
    edge_index = torch.cat([edges(g) + at for g, at in zip(graphs, first, strict=True)], 1)
    return edge_index, torch.arange(len(graphs)).repeat_interleave(sizes)


def test_many_graphs_at_once_equal_networkx() -> None:
    graphs = random_graphs()
    got = graph_properties(*batched(graphs))
    assert got.shape == (len(graphs), len(PROPERTIES))
    want = torch.tensor([numbers(g) for g in graphs])
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_no_graph_and_no_node() -> None:
    nothing = torch.empty(2, 0, dtype=torch.int64)
    batch = torch.empty(0, dtype=torch.int64)
    assert graph_properties(nothing, batch).shape == (0, 6)
    assert torch.equal(graph_properties(nothing, 0), torch.zeros(1, 6))


def test_default_dtype() -> None:
    torch.set_default_dtype(torch.float32)
    assert graph_properties(torch.tensor([[0], [1]]), 2).dtype == torch.float32


@pytest.mark.parametrize(("arguments", "message"), [
    ((torch.tensor([[0.0], [1.0]]), 2), "edge_index to be an int64 tensor, .* torch.float32"),
    ((torch.tensor([0, 1]), 2), r"edge_index to have shape \[2, \*\], but got \[2\]"),
    ((torch.tensor([[0], [2]]), 2), r"edge_index to be in \[0, 2\), but got 2"),
    ((torch.tensor([[0], [-1]]), 2), r"edge_index to be in \[0, 2\), but got -1"),
    ((torch.tensor([[0], [1]]), -1), "nodes to be a number >= 0 or a batch, but got -1"),
    ((torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 0, 1])), "edge 1 between graphs 0 and"),
    ((torch.tensor([[0], [1]]), torch.tensor([0, 1, 0])), "batch to be in order"),
    ((torch.tensor([[0], [1]]), torch.tensor([-1, 0])), "batch to be at least 0, but got -1"),
    ((torch.tensor([[0], [1]]), torch.tensor([0.0, 0.0])), "batch to "),
    ((torch.tensor([[0], [1]]), torch.tensor([[0, 0]])), "batch to "),
])  # fmt: skip
def test_bad_input_is_refused_by_name(arguments: Any, message: str) -> None:
    refuses(message, lambda: graph_properties(*arguments), (TypeError, ValueError))


def test_sorted_edges_that_repeat_count_once() -> None:
    edges = torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0]])
    for given in (edges, edges.flip(1), edges[:, [0, 2]]):
        assert float(graph_properties(given, 2)[0, 0]) == 1.0


def test_numpys_integers_count_nodes_too() -> None:
    edges = torch.tensor([[0, 1], [1, 2]])
    assert torch.equal(graph_properties(edges, np.int64(3)), graph_properties(edges, 3))
    for bad in (np.int64(-1), 3.0, True):
        with pytest.raises(ValueError, match="nodes to be a number >= 0 or a batch"):
            graph_properties(edges, bad)  # type: ignore[arg-type]


def test_a_graph_that_is_no_collection_is_one_of_one() -> None:
    mask = torch.arange(12) < 4  # a mask of nodes has no say
    for given in (nx.path_graph(12), nx.barbell_graph(5, 2)):
        alone = fgl.Graph(torch.ones(12, 1), edges(given), train_mask=mask)
        found = properties.mean_properties(alone)
        assert found.equal(graph_properties(edges(given), torch.zeros(12).long())[0])
        assert found.tolist() == pytest.approx(numbers(given))
