"""FedGL's variants: labels of no other client, edges of no embedding, uploads before training."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from federations import CLASSES, graph
from papers.fedgl_controls import quality_of_own
from test_fedgl import clients, method

import fgl
from fgl import Method, pseudo
from fgl.federation import Inbox


def disjoint() -> list[fgl.Graph]:
    whole = graph(40)
    parts = [torch.arange(0, 12), torch.arange(12, 25), torch.arange(25, 40)]
    return fgl.data.partitions.partition_graph(whole, parts)


def trained(made: Method, data: list[fgl.Graph], rounds: int = 1) -> tuple[Inbox, Any]:
    """What reached the server in the last round, and the result."""
    seen = []

    def aggregate(inbox: Inbox, state: Any) -> Any:
        seen.append(inbox)
        return made.aggregate(inbox, state)

    result = fgl.run(replace(made, aggregate=aggregate), data, num_rounds=rounds, seed=1)
    return seen[-1], result


def test_quality_is_of_the_labels_that_clients_made() -> None:
    data = disjoint()
    states = {k: {"labels": each.y.clone()} for k, each in enumerate(data) if k}
    states[1]["labels"][:3] = (states[1]["labels"][:3] + 1) % CLASSES
    found = quality_of_own(data)({}, {0: {}, **states})
    nodes = data[1].num_nodes + data[2].num_nodes
    assert found["pseudo_label_share"] == 1.0
    assert found["pseudo_label_accuracy"] == pytest.approx(1 - 3 / nodes)


def test_fedgl_fuses_as_it_is_told() -> None:
    """The threshold before the fusion: a node is labelled if any client is sure of it."""
    data = clients()
    early = method(threshold=0.0, neighbours=0, fuse=partial(pseudo.fuse_uploads, threshold=0.6))
    inbox, result = trained(early, data, rounds=3)
    p, _ = pseudo.fuse_uploads(inbox.values(), 40, threshold=0.6)
    sure = {
        int(node)
        for message in inbox.values()
        for node, scores in zip(message["node_id"], message["predictions"], strict=True)
        if float(scores.max()) >= 0.6
    }
    count = 0
    for client, each in enumerate(data):
        ids: Any = each.node_id
        for node, label in zip(ids.tolist(), result.outbox[client]["labels"].tolist(), strict=True):
            assert label == (int(p[node].argmax()) if node in sure else -1)
            count += node in sure
    assert 0 < count < sum(each.num_nodes for each in data)
