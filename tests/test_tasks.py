"""Tasks: made of one's own graphs or of a dataset, the bounds of their settings, centralized."""

from typing import Any

import pytest
import torch
from conformance import TASKS
from federations import refuses

import fgl
from fgl import tasks
from fgl.tasks import Local

SETTINGS = [
    tasks.Nodes, tasks.OverlappingNodes, tasks.EgoNodes, tasks.OwnNodes, tasks.SubgraphNodes,
    tasks.Links, tasks.Graphs, tasks.Molecules,
]  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_a_task_of_ones_own_graphs_runs_and_is_scored(name: str) -> None:
    made = TASKS[name](0.5, torch.float32)
    result = fgl.run(made.fedavg, made, num_rounds=1)
    metrics = result.history[0].metrics
    assert metrics and (not made.select or made.select.removeprefix("-") in metrics)


def dropouts(network: Any) -> set[float]:
    modules = list(network.modules())
    own = {m.p if isinstance(m, torch.nn.Dropout) else getattr(m, "dropout", None) for m in modules}
    return {float(share) for share in own if isinstance(share, float | int)}


def test_every_network_has_its_settings_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    how: Any = {"dropout": 0.25, "hidden": 8}
    cut = {**how, "partition": "random"}
    few = [fgl.data.small_graphs(2, seed=k) for k in range(4)]
    many = [fgl.Graph.join(*each) for each in few]
    made = {f"Graphs {name}": tasks.Graphs(**how, model=name).of(many[:2], many[2:])
            for name in ("gin", "star", "ssp")}  # fmt: skip
    whole: list[Any] = [tasks.Molecules(**how), tasks.TypedNodes(**how), tasks.EgoNodes(**how),
                        tasks.OverlappingNodes(**how), tasks.OwnNodes(**cut)]  # fmt: skip
    made |= {type(setting).__name__: setting.load() for setting in whole}
    small = fgl.data.csbm(num_nodes=200, num_features=12, words_per_set=4, seed=0)
    monkeypatch.setattr(fgl.data, "load", lambda name: small)
    settings = [tasks.Nodes(**cut, model=name) for name in ("gcn", "gat", "sage", "spa")]
    settings += [
        tasks.SubgraphNodes(**cut),
        tasks.SampledNodes(**cut),
        tasks.Links(**cut, clients=2),
    ]
    made |= {repr(setting): setting.load() for setting in settings}
    found = {name: dropouts(task.fedavg.model) for name, task in made.items()}
    assert found == {name: {0.25} for name in made}
    with pytest.raises(ValueError, match=r"Expected dropout to be 0 for Pairs, .*but got 0\.25"):
        tasks.Pairs(dropout=0.25)


def test_overlapping_clients_train_on_a_datasets_own_split(monkeypatch: pytest.MonkeyPatch) -> None:
    whole: Any = fgl.data.splits.random_split(fgl.data.csbm(num_nodes=300, seed=3), train=0.1)
    monkeypatch.setattr(fgl.data, "load", lambda name: whole)
    clients: Any = tasks.OverlappingNodes(hidden=4).load().clients
    trained = [node for own in clients for node in own.node_id[own.train_mask].tolist()]
    assert trained and bool(whole.train_mask[trained].all())


def test_without_the_whole_there_is_no_centralized_training() -> None:
    task: Any = TASKS["graphs"](0.0, torch.float32)
    if task.whole is None:
        refuses("whole graph to train on centrally", lambda: tasks.centralized(task))


def test_momentum_is_of_sgd_alone() -> None:
    refuses("momentum to be left out beside adam, but got 0.9", lambda: Local("adam", momentum=0.9))


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("device", ["cud", "cpu:x", "meta", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_at_once(setting: Any, device: Any) -> None:
    with pytest.raises(ValueError, match=rf"Expected device to be one .* here, but got {device!r}"):
        setting(device=device)
    assert setting(device="cpu").device == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_at_once() -> None:
    refuses(r"Expected device to be .*, but got 'cuda' \(", lambda: tasks.Nodes(device="cuda"))


def test_ids_that_each_client_numbers_itself_are_named_as_the_cause() -> None:
    """They looked like nodes of the whole graph that are scored and train."""
    whole = fgl.data.splits.random_split(fgl.data.large_graph(60, 120, num_features=4), seed=0)
    parts = fgl.data.partitions.random_partition(whole, 3, seed=0)
    clients = [whole.subgraph(part) for part in parts]
    net, train = fgl.nn.GCN(4, 4, whole.num_classes), fgl.Training()  # type: ignore[arg-type]
    local = [own.replace(node_id=torch.arange(own.num_nodes)) for own in clients]
    with pytest.warns(
        UserWarning, match="node_id .*of the whole graph.* but got 0, 1, 2"
    ) as caught:
        fgl.tasks.node_task(whole, local, net, train)
    assert len(caught) == 1
    for remedy in (clients, [own.replace(node_id=None) for own in local], [whole, whole]):
        fgl.tasks.node_task(whole, remedy, net, train)


def test_tests_of_another_width_are_named() -> None:
    whole = fgl.Graph.join(*fgl.data.load_graphs("synthetic"))
    parts = [whole.select(torch.arange(k, 40, 4)) for k in range(4)]
    parts[3] = parts[3].replace(x=parts[3].x[:, 1:])
    net = fgl.nn.GIN(whole.num_features, 4, 2)
    task = fgl.tasks.graph_task(parts[:2], parts[2:], net, fgl.Training())
    with pytest.raises(ValueError, match="client 1's tests to have 5 features .* but got 4"):
        fgl.run(task.fedavg, task, num_rounds=1)


@pytest.mark.parametrize("trained", [lambda task: task, tasks.centralized])
def test_nodes_can_be_scored_at_their_own_clients(trained: Any) -> None:
    """A plain loop: each client's graph, nodes and labels, and the mean over clients."""
    task = tasks.Nodes(clients=3, hidden=8, scored="own").load()
    made = trained(task)
    result = fgl.run(made.fedavg, made, num_rounds=2)
    shares = []
    for client, own in enumerate(task.clients):
        assert own.y is not None and own.test_mask is not None
        right = result.predict(own, client=client % len(made.clients)).argmax(1) == own.y
        shares.append(right[own.test_mask].double().mean())
    want = torch.stack(shares).mean().item()
    assert result.history[-1].metrics["test_accuracy"] == pytest.approx(want)
