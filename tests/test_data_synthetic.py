"""`csbm`: a clean graph, of the statistics that its arguments name, the same for a seed."""

from typing import Any

import pytest

from fgl.data import csbm


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
