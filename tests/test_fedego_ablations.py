"""Test nodes of a client that no other client trains on."""

from typing import Any

import pytest
import torch

import fgl
from fgl.data.partitions.major_label import unseen_nodes

SMALL = fgl.data.csbm(num_nodes=260, num_features=20, words_per_set=5, seed=1)


def by_sets(clients: list[fgl.Graph]) -> list[set[int]]:
    trained = [set(g.node_id[g.train_mask].tolist()) for g in clients]  # type: ignore[index]
    tested = [set(g.node_id[g.test_mask].tolist()) for g in clients]  # type: ignore[index]
    return [
        tested[k] - set().union(*(own for j, own in enumerate(trained) if j != k))
        for k in range(len(clients))
    ]


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6])
def test_unseen_nodes_are_those_of_no_other_training_set(share: float) -> None:
    _, clients = fgl.data.partitions.major_label_partition(SMALL, 4, share=share, num_test=8)
    masks = unseen_nodes(clients)
    pairs: Any = zip(clients, masks, strict=True)
    found = [set(own.node_id[mask].tolist()) for own, mask in pairs]
    assert found == by_sets(clients)
    assert len(found[0]) == 8  # nobody may take the test nodes of the clients before
    backwards = unseen_nodes(clients[::-1])[::-1]
    assert all(torch.equal(a, b) for a, b in zip(backwards, masks, strict=True))


def test_a_node_that_another_client_trains_on_is_seen() -> None:
    ids = torch.tensor([5, 9])
    mask = torch.tensor([True, False])
    own = fgl.Graph(torch.ones(2, 1), torch.zeros(2, 0, dtype=torch.int64), node_id=ids)
    tests = own.replace(train_mask=~mask, test_mask=mask)
    trains = own.replace(train_mask=mask, test_mask=~mask)
    assert [each.tolist() for each in unseen_nodes([tests])] == [[True, False]]
    assert [each.tolist() for each in unseen_nodes([tests, trains])] == [[False, False]] * 2
    assert [each.tolist() for each in unseen_nodes([tests, tests])] == [[True, False]] * 2
    with pytest.raises(ValueError, match=r"node_id, but got none in clients \[1\]"):
        unseen_nodes([tests, tests.replace(node_id=None)])
