"""FedEgo's ablations: what each leaves out, in the loop and in a batch; unseen test nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from harness.rows import Loaded
from papers.fedego import TABLES
from papers.fedego_methods import server_steps

import fgl
from fgl import Method
from fgl.data.partitions.major_label import unseen_nodes
from fgl.tasks import Local, Task, ego_node_task

SMALL = fgl.data.csbm(num_nodes=260, num_features=20, words_per_set=5, seed=1)
TEST, CLIENTS = fgl.data.partitions.major_label_partition(SMALL, 4, share=0.4, num_test=15)
FEATURES, CLASSES, HIDDEN, FANOUTS, BATCH = SMALL.num_features, 7, 8, (3, 3), 8
ABLATION = TABLES["fedego-table5"]
NAMES = ("w/o Mixup", "w/o EGO", "w/o RL", "w/o PL", "FedEgo-Server", "heads averaged")
rows = pytest.mark.parametrize("name", NAMES)
pytestmark = pytest.mark.filterwarnings("ignore:Expected means of ego-graphs")  # w/o Mixup


def build(
    name: str, *, dropout: float = 0.0, dtype: torch.dtype = torch.float32
) -> tuple[Method, Task]:
    """A row of the ablation on a small task."""
    row = ABLATION.row(name)
    local = Local("adam", lr=0.01, weight_decay=0.0, steps=2)
    small = {"hidden": HIDDEN, "fanouts": FANOUTS, "batch_size": BATCH, "dropout": dropout}
    setting = replace(row.setting, local=local, **small)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = setting.network(SMALL).to(dtype)
    steps = {"epochs": 2, "batch_size": BATCH}
    graphs = [own.replace(x=own.x.astype(dtype)) for own in CLIENTS]
    test = TEST.replace(x=TEST.x.astype(dtype))
    task = ego_node_task(graphs, test, model, local.optimizer_factory(), **steps)
    loaded = Loaded(setting, task, seed=0)
    assert server_steps(loaded) == steps
    return row.method(loaded, **row.options), task


# Test nodes that nobody else trains on.


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


def test_a_report_has_the_unseen_nodes() -> None:
    method, task = build("w/o PL")
    result = fgl.run(method, task, num_rounds=2, evaluate=task.evaluate(method))
    what: Any = {"recipe": "", "dataset": "", "clients": 4, "rounds": 2, "seed": 0, "config": {}}
    found = fgl.experiment.report(result, **what, select="val_f1")["metrics"]["local_unseen_f1"]
    assert set(found) == {"last", "best_val", "best_test"}
    names = [f"local_unseen_f1/{k}" for k, own in enumerate(by_sets(CLIENTS)) if own]
    best = [max(record.metrics[name] for record in result.history) for name in names]
    assert found["best_test"] == pytest.approx(sum(best) / len(best))
