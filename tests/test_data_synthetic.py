"""`csbm`: a clean graph, of the statistics that its arguments name, the same for a seed."""

from typing import Any

import pytest
import torch
from federations import pairs, refuses

from fgl.data import csbm, small_graphs, small_molecules


@pytest.mark.parametrize(("argument", "message"), [
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
])  # fmt: skip
def test_refuses(argument: dict[str, Any], message: str) -> None:
    refuses(message, lambda: csbm(**argument))


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


def test_small_molecules_are_rings_and_chains_whose_atoms_and_bonds_are_added_up() -> None:
    graphs, y, scaffolds = small_molecules(400, seed=1)
    sizes, chains, atoms, doubles = set(), set(), set(), []
    for graph, target, scaffold in zip(graphs, y.tolist(), scaffolds, strict=True):
        size, x = len(scaffold), graph.x.tolist()  # type: ignore[union-attr]
        kinds = [int(row[0]) for row in x]
        assert ["CN"[kind == 7] for kind in kinds[:size]] == [*scaffold] == sorted(scaffold)[::-1]
        bonds = {
            (a, b): row for (a, b), row in zip(pairs(graph), graph.edge_attr.tolist(), strict=True)
        }  # type: ignore[union-attr]
        ring = {(size - 1, 0)} if size else set()
        once = {(k, k + 1) for k in range(len(x) - 1)} | ring
        assert {*bonds} == once | {(b, a) for a, b in once}
        assert all(
            bonds[a, b] == bonds[b, a] and bonds[a, b] in ([1, 0, 0], [2, 0, 0]) for a, b in once
        )
        degree = [sum(k in bond for bond in once) for k in range(len(x))]
        assert x == [[kinds[k], 0, degree[k], *[0] * 5, k < size] for k in range(len(x))]
        double = [bonds[bond][0] == 2 for bond in once]
        atomic = sum({6: 0.3, 7: -0.7, 8: -1.2}[kind] for kind in kinds)
        assert target == pytest.approx(atomic + sum(double), abs=1e-5)
        sizes.add(size), chains.add((size > 0, len(x) - size)), atoms.update(kinds[size:])
        doubles += double
    assert sizes == {0, *range(3, 9)} and atoms == {6, 7, 8}
    assert chains == {*((True, n) for n in range(6)), *((False, n) for n in range(1, 7))}
    assert {scaffold.count("N") for scaffold in scaffolds} == {0, 1, 2}
    assert abs(sum(doubles) / len(doubles) - 0.3) < 0.03
