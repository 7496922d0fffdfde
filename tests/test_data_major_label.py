"""Clients with major labels: the protocol in loops, its counts on the real graphs, bad input."""

from typing import Any

import pytest
from federations import graph, refuses, same

import fgl
from fgl.data import csbm
from fgl.data.partitions import major_label_partition

SMALL = csbm(num_nodes=400, num_features=20, words_per_set=5, seed=1)


def linked(data: fgl.Graph) -> set[int]:
    return set(data.edge_index.flatten().tolist())


def check(whole: fgl.Graph, share: float, rate: float, num_test: int, seed: int) -> None:
    """Everything the protocol says, node by node, for five clients."""
    test, clients = major_label_partition(
        whole, 5, share=share, major_rate=rate, num_test=num_test, seed=seed
    )
    usable = linked(whole)
    total = len(usable)
    held_out = set(test.node_id.tolist())
    assert len(held_out) == test.num_nodes == int(0.3 * total)
    assert held_out <= usable
    assert test.test_mask.all() and test.train_mask is None
    gone: set[int] = set()
    size = int(share * total)
    for client in clients:
        own = client.node_id.tolist()
        assert not set(own) & (held_out | gone)  # neither the global test nor an earlier one's
        assert len(own) == len(set(own)) <= size
        assert len(linked(client)) == client.num_nodes  # nobody is isolated
        ends = {(a, b) for a, b in whole.edge_index.t().tolist() if a in own and b in own}
        assert client.num_edges == len(ends)
        n = client.num_nodes
        assert client.test_mask.nonzero().flatten().tolist() == list(range(n - num_test, n))
        val = list(range(n - num_test - n // 5, n - num_test))
        assert client.val_mask.nonzero().flatten().tolist() == val
        assert client.train_mask.nonzero().flatten().tolist() == list(range(val[0]))
        assert same(client.y, whole.y[client.node_id])
        gone |= set(own[n - num_test :])
    shared = set(clients[0].node_id.tolist()) & set(clients[1].node_id.tolist())
    assert shared  # clients overlap


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("share", "rate"), [(0.5, 0.8), (0.3, 0.3), (0.5, 0.0), (0.4, 1.0)])
def test_protocol(share: float, rate: float, seed: int) -> None:
    check(SMALL, share, rate, num_test=20, seed=seed)


@pytest.mark.parametrize(("options", "message"), [
    ({"num_clients": 0}, "num_clients to be an integer >= 1, but got 0"),
    ({"major_rate": 1.2}, r"major_rate to be a number >= 0 and <= 1, but got 1.2"),
    ({"share": -0.1}, r"share to be a number >= 0 and <= 1, but got -0.1"),
    ({"global_share": 2}, r"global_share to be a number >= 0 and <= 1, but got 2"),
    ({"num_test": 0}, "num_test to be an integer >= 1, but got 0"),
    ({"num_major": 8}, r"num_major to be in \[1, 7\], but got 8"),
    ({"num_test": 300}, "client 0 to have a training node besides 300 test"),
    ({"share": 0.0}, "client 0 to have a training node"),
])  # fmt: skip
def test_bad_input(options: Any, message: str) -> None:
    refuses(message, lambda: major_label_partition(SMALL, **{"num_clients": 2, **options}))


def test_labels_are_needed() -> None:
    refuses("tensor of labels", lambda: major_label_partition(graph().replace(y=None), 2))
