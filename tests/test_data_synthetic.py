"""`csbm`: a clean graph, of the statistics that its arguments name, the same for a seed."""

from typing import Any

import pytest
import torch
from federations import pairs

from fgl.data import csbm, small_graphs


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"num_nodes": 0}, "Expected num_nodes to be .*, but got 0"),
        ({"class_weights": ()}, "Expected class_weights to be .*, but got -1"),
        ({"class_weights": (1, -2)}, "Expected class_weights to be .*, but got -2"),
        ({"class_weights": (0, 0)}, r"Expected sum\(class_weights\) to be .*, but got 0"),
        ({"communities_per_class": 0}, "Expected communities_per_class to be"),
        ({"degree": -1}, "Expected degree to be"),
        ({"homophily": 1.1}, "Expected homophily to be .*, but got 1.1"),
        ({"homophily": float("nan")}, "Expected homophily to be .*, but got nan"),
        ({"closeness": -0.1}, "Expected closeness to be"),
        ({"strays": 1.0}, "Expected strays to be"),
        ({"tail": 0.5}, "Expected tail to be"),
        ({"num_features": 0}, "Expected num_features to be"),
        ({"words_per_node": -1}, "Expected words_per_node to be"),
        ({"num_features": 50}, r"Expected words_per_set to be in \[1, 50\], but got 100"),
        ({"topic": 1.5}, "Expected topic to be"),
        ({"topic": 0.7, "flavour": 0.5}, "Expected flavour to be in .*, but got 0.5"),
    ],
)
def test_refuses(argument: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        csbm(**argument)


def test_small_graphs_are_rings_with_chords_of_their_class() -> None:
    graphs, y = small_graphs(300, seed=3)
    assert {graph.num_nodes for graph in graphs} == {*range(8, 24)}
    for label, first in ((0, 1 / 3), (1, 1 / 5)):  # of nodes, those of kind 0
        own = [graph for graph, each in zip(graphs, y.tolist(), strict=True) if each == label]
        nodes, chords, kinds = 0, 0, torch.zeros(5)
        for graph in own:
            n, edges = graph.num_nodes, {*pairs(graph)}
            ring = {(i, (i + step) % n) for i in range(n) for step in (1, -1)}
            assert ring <= edges and {(b, a) for a, b in edges} == edges
            assert {min((a - b) % n, (b - a) % n) for a, b in edges - ring} <= {2 + label}
            nodes, chords, kinds = nodes + n, chords + len(edges - ring) / 2, kinds + graph.x.sum(0)
        assert abs(chords / nodes - 1 / 3) < 0.03
        want = [first, *[(1 - first) / 4] * 4]
        assert max(abs(float(k) / nodes - w) for k, w in zip(kinds, want, strict=True)) < 0.03
