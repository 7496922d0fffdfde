"""`csbm`: a clean graph, of the statistics that its arguments name, the same for a seed."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fgl import Graph
from fgl.data import csbm


def check(graph: Graph) -> None:
    """Undirected, no self-loop, no repeat; words 0 or 1."""
    edges = [*zip(*graph.edge_index.tolist(), strict=True)]
    assert len({*edges}) == len(edges)
    assert {*edges} == {(t, s) for s, t in edges}
    assert all(s != t for s, t in edges)
    assert edges == sorted(edges, key=lambda pair: pair[::-1])
    x: Any = graph.x
    dense = x.to_dense()
    assert dense.dtype == torch.float32
    assert ((dense == 0) | (dense == 1)).all()
    assert x.nnz == dense.sum()
    assert graph.train_mask is None


@given(data=st.data())
def test_small_graphs(data: st.DataObject) -> None:
    weights = data.draw(
        st.lists(st.floats(0, 5), min_size=1, max_size=4).filter(lambda w: sum(w) > 0.1)
    )
    graph = csbm(
        num_nodes=data.draw(st.integers(1, 40)),
        class_weights=weights,
        communities_per_class=data.draw(st.integers(1, 5)),
        degree=data.draw(st.floats(0, 10)),
        homophily=data.draw(st.floats(0, 1)),
        closeness=data.draw(st.floats(0, 1)),
        strays=data.draw(st.floats(0, 0.9)),
        num_features=data.draw(st.integers(3, 12)),
        words_per_node=data.draw(st.floats(0, 6)),
        words_per_set=3,
        seed=data.draw(st.integers(0, 1000)),
    )
    check(graph)
    assert graph.num_classes == len(weights)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"num_nodes": 0}, "Expected num_nodes to be in .*, but got 0"),
        ({"class_weights": ()}, "Expected class_weights to be .*, but got -1"),
        ({"class_weights": (1, -2)}, "Expected class_weights to be .*, but got -2"),
        ({"class_weights": (0, 0)}, r"Expected sum\(class_weights\) to be .*, but got 0"),
        ({"communities_per_class": 0}, "Expected communities_per_class to be"),
        ({"degree": -1}, "Expected degree to be"),
        ({"homophily": 1.1}, r"Expected homophily to be in \[0, 1\], but got 1.1"),
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
