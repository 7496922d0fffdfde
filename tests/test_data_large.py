"""`large_graph`: a clean graph of the size, degrees, classes that its arguments name."""

from typing import Any

import pytest
import torch
from federations import refuses, threads

from fgl import Graph
from fgl.data import large_graph, load


def made(**options: Any) -> Graph:
    return large_graph(**({"num_nodes": 3000, "num_edges": 20_000} | options))


def degrees(graph: Graph) -> torch.Tensor:
    return graph.edge_index[1].bincount(minlength=graph.num_nodes)


def homophily(graph: Graph) -> float:
    source, target = graph.y[graph.edge_index]  # type: ignore[index]
    return float((source == target).double().mean())


def test_a_seed_is_the_same_bits_with_any_number_of_threads() -> None:
    graphs = []
    for count in (1, 3):
        with threads(count):
            graphs.append(made(num_nodes=10_000, num_edges=60_000, num_features=8))
    one, three = graphs
    assert torch.equal(one.x, three.x)  # type: ignore[arg-type]
    assert torch.equal(one.y, three.y)  # type: ignore[arg-type]
    assert torch.equal(one.edge_index, three.edge_index)
    assert not torch.equal(made(seed=1).edge_index, made(seed=0).edge_index)


def test_few_nodes_or_edges() -> None:
    assert large_graph(1, 0, num_classes=1).num_edges == 0
    full = large_graph(4, 100, num_classes=2, num_features=2)
    assert 0 < full.num_edges <= 12
    assert large_graph(3, 1, num_classes=40).num_classes == 40
    assert made(num_classes=3, strays=0.0).y.bincount().tolist() == [1636, 819, 545]  # 1, 1/2, 1/3


@pytest.mark.parametrize(("options", "words"), [
    ({"num_nodes": 0}, "num_nodes"),
    ({"num_edges": -1}, "num_edges"),
    ({"num_classes": 0}, "num_classes"),
    ({"homophily": 1.1}, "homophily"),
    ({"tail": 1.0}, "tail"),
    ({"max_degree": 0}, "max_degree"),
    ({"community_size": 0}, "community_size"),
    ({"signal": float("nan")}, "signal"),
])  # fmt: skip
def test_arguments_out_of_range(options: dict[str, Any], words: str) -> None:
    refuses(f"Expected {words} to be", lambda: made(**options))


@pytest.mark.slow
def test_the_graph_like_ogbn_arxiv() -> None:
    graph = load("arxiv-like")
    assert (graph.num_nodes, graph.num_edges) == (169_343, 2 * 1_157_799)
    assert (graph.num_features, graph.num_classes) == (128, 40)
    found = degrees(graph)
    assert 5 <= found.median() <= 8
    assert 5_000 <= found.max() <= 20_000
    assert 0.6 < homophily(graph) < 0.7
