"""What a seed or a generator draws depends on nothing else, and differs for another seed."""

import random
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from federations import graph, seeded
from torch import Tensor

import fgl
from fgl import augment, client_network, data, ego
from fgl.data import partitions, splits

G, Y = graph(60), graph(60).labels
BARE = graph(60, train_mask=None, val_mask=None, test_mask=None)
DIRECTED = data.ratings(30, 300)
SPLIT, TREES = splits.edge_split(G), torch.arange(84.0).view(2, 7, 6).long()
RELATIONS = DIRECTED.replace(edge_type=torch.arange(DIRECTED.num_edges) % 6, edge_attr=None)
DRAWN: dict[str, Callable[[int], Any]] = {
    "bibliography": lambda s: data.bibliography(40, seed=s),
    "csbm": lambda s: data.csbm(num_nodes=80, class_weights=(2, 1), num_features=120, degree=6,
        strays=0.2, seed=s),
    "large_graph": lambda s: data.large_graph(90, 200, num_features=4, num_classes=3, seed=s),
    "ratings": lambda s: data.ratings(30, 200, seed=s),
    "small_graphs": lambda s: data.small_graphs(5, seed=s)[0],
    "small_molecules": lambda s: data.small_molecules(5, seed=s)[:2],
    "damaged": lambda s: data.damaged([G, graph(50)],
        data.Damage(**dict.fromkeys([field.name for field in fields(data.Damage)], 0.3)), seed=s,),
    "lose_edges": lambda s: data.lose_edges(G, 0.5, generator=seeded(s)),
    "lose_features": lambda s: data.lose_features(G, 0.5, generator=seeded(s)),
    "lose_labels": lambda s: data.lose_labels(G, 0.5, generator=seeded(s)),
    "move_edges": lambda s: data.move_edges(G, 0.5, generator=seeded(s)),
    "noisy_features": lambda s: data.noisy_features(G, 0.5, generator=seeded(s)),
    "wrong_labels": lambda s: data.wrong_labels(G, 0.5, generator=seeded(s)),
    "balanced_classes": lambda s: splits.balanced_classes(Y, seed=s),
    "class_capped_split": lambda s: splits.class_capped_split(BARE, train_per_class=4, num_val=9,
        num_test=9, seed=s),
    "edge_split": lambda s: splits.edge_split(G, seed=s),
    "directed edge_split": lambda s: splits.edge_split(DIRECTED.replace(edge_attr=None,
        edge_time=None), seed=s, directed=True),
    "fold_clients": lambda s: splits.fold_clients(MANY, [torch.arange(10), torch.arange(10, 20)],
        fold=0, num_folds=3, seed=s),
    "negative_edges": lambda s: splits.negative_edges(G.edge_index, 60, 9, generator=seeded(s)),
    "many negative_edges": lambda s: splits.negative_edges(G.edge_index, 60, 9, replacement=True,
        generator=seeded(s)),
    "typed negative_edges": lambda s: splits.negative_edges(G.edge_index, 60, 9, node_type=Y,
        generator=seeded(s)),
    "pair_split": lambda s: splits.pair_split(BARE, is_undirected=True, seed=s),
    "random_split": lambda s: splits.random_split(BARE, seed=s),
    "split": lambda s: splits.split(BARE, "random", seed=s),
    "capped split": lambda s: splits.split(BARE, "class_capped", seed=s),
    "stratified_folds": lambda s: splits.stratified_folds(Y, 3, seed=s),
    "subgraph_split": lambda s: splits.subgraph_split(SPLIT, torch.arange(50), seed=s),
    "with_negatives": lambda s: splits.with_negatives(splits.pair_split(BARE, is_undirected=True),
        seed=s, negatives="degree"),
    "community_clients": lambda s: partitions.community_clients(torch.arange(60).split(12), 3,
        seed=s),
    "dirichlet": lambda s: partitions.dirichlet_partition(Y, 3, alpha=0.5, seed=s),
    "ldg": lambda s: partitions.ldg_partition(G, 3, seed=s),
    "louvain": lambda s: partitions.louvain_partition(G, 3, delta=1, seed=s),
    "major_label": lambda s: partitions.major_label_partition(BARE, 2, num_major=1, num_test=5,
        seed=s),
    "overlapping": lambda s: partitions.overlapping_partition(G, [0.5, 0.4], common=0.2, seed=s),
    "random": lambda s: partitions.random_partition(G, 3, seed=s),
    "relation": lambda s: partitions.relation_partition(RELATIONS, 3, seed=s),
    "augment": lambda s: augment.strong(G.x, G.adj, generator=seeded(s)),
    "drop_edges": lambda s: augment.drop_edges(G.adj, p=0.5, generator=seeded(s)),
    "mask_features": lambda s: augment.mask_features(G.x, p=0.5, generator=seeded(s)),
    "probes": lambda s: client_network.probe_graphs(3, 9, 0.4, num_features=4, features="normal",
        generator=seeded(s)),
    "resample": lambda s: ego.resample(TREES, fanouts=(2, 2), generator=seeded(s)),
    "sampler": lambda s: fgl.sampler.drawn(torch.arange(0, 90, 9), torch.full((10,), 9), 3,
        seeded(s)),
}  # fmt: skip
MANY = fgl.Graph.join(*data.small_graphs(20))


def numbers(value: Any) -> list[Any]:
    """All numbers of a value's tensors."""
    if isinstance(value, Tensor):
        return value.to_dense().tolist()  # type: ignore[no-any-return]
    if isinstance(value, fgl.Graph):
        value = [value.x.to_dense(), value.edge_index, *(getattr(value, n) for n in FIELDS)]
    if isinstance(value, fgl.SparseMatrix):
        value = [value.to_dense()]
    value = list(vars(value).values()) if hasattr(value, "__dict__") else value
    return [numbers(each) for each in value] if isinstance(value, list | tuple) else [str(value)]


FIELDS = (*fgl.graph.MASKS, "y", "edge_attr", "edge_time", "edge_label_index", "batch", "node_id")


@pytest.mark.parametrize("part", range(4))
def test_the_seed_alone_decides(part: int) -> None:
    for name, draw in list(DRAWN.items())[part::4]:
        found = []
        for seed, other in ((3, 0), (3, 1), (4, 1)):
            torch.manual_seed(other)
            np.random.seed(other)
            random.seed(other)
            before = torch.get_rng_state()
            found.append(numbers(draw(seed)))
            assert torch.get_rng_state().equal(before), name
        assert found[0] == found[1] != found[2], name
