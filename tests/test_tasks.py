"""Tasks: made of one's own graphs or of a dataset, the bounds of their settings, centralized."""

from __future__ import annotations

import typing
from typing import Any

import pytest
import torch
from conformance import TASKS
from federations import CLASSES, FEATURES, end, graph, model, same

import fgl
from fgl import tasks
from fgl.kinds import bounds_of
from fgl.tasks import Local

SETTINGS = [
    tasks.Nodes,
    tasks.OverlappingNodes,
    tasks.EgoNodes,
    tasks.OwnNodes,
    tasks.SubgraphNodes,
    tasks.Links,
    tasks.Graphs,
    tasks.Molecules,
]


@pytest.mark.parametrize("name", TASKS)
def test_a_task_of_ones_own_graphs_runs_and_is_scored(name: str) -> None:
    made = TASKS[name](0.5, torch.float32)
    result = fgl.run(made.fedavg, made, num_rounds=1)
    metrics = result.history[0].metrics
    assert metrics and (not made.select or made.select.removeprefix("-") in metrics)


def test_a_setting_is_the_task_of_its_graphs() -> None:
    setting = tasks.Nodes(clients=3, partition="random", model="gcn", hidden=8)
    made = setting.load(seed=2)
    whole = fgl.data.splits.split(fgl.data.load("synthetic"), "random", seed=2)
    parts = fgl.data.partitions.random_partition(whole, 3, seed=2)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        net = fgl.nn.GCN(whole.num_features, 8, whole.num_classes, dropout=0.5)
    train = fgl.Training(setting.local.optimizer_factory(), num_steps=4)
    own = tasks.node_task(whole, fgl.data.partitions.partition_graph(whole, parts), net, train)
    one, two = (end(fgl.run(each.fedavg, each, num_rounds=2)) for each in (made, own))
    assert same(one, two)


def test_nodes_are_cut_by_any_partition() -> None:
    whole = graph(60)
    parts = [torch.arange(0, 60, 2), torch.arange(1, 60, 2)]
    made = tasks.node_task(
        whole, fgl.data.partitions.partition_graph(whole, parts), model(), fgl.Training()
    )
    assert [own.num_nodes for own in made.clients] == [30, 30]
    counts = [
        [own.num_nodes for own in tasks.Nodes(clients=4, partition=how, hidden=4).load().clients]
        for how in ("louvain", "random")
    ]
    assert all(sum(each) == 2708 for each in counts) and counts[0] != counts[1]


def dropouts(network: Any) -> set[float]:
    modules = list(network.modules())
    own = {m.p if isinstance(m, torch.nn.Dropout) else getattr(m, "dropout", None) for m in modules}
    return {float(share) for share in own if isinstance(share, float | int)}


def test_every_network_has_the_dropout_that_its_setting_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


def test_centralized_is_one_client_with_everything() -> None:
    made = TASKS["nodes"](0.0, torch.float32)
    whole = tasks.centralized(made)
    assert [own.num_nodes for own in whole.clients] == [72]
    metrics = fgl.run(whole.fedavg, whole, num_rounds=1).history[0].metrics
    assert set(metrics) == {"val_accuracy", "val_loss", "test_accuracy", "test_macro_f1"}
    overlap = tasks.centralized(TASKS["overlapping"](0.0, torch.float32))
    assert "local_accuracy" in fgl.run(overlap.fedavg, overlap, num_rounds=1).history[0].metrics


def test_without_the_whole_there_is_no_centralized_training() -> None:
    task: Any = TASKS["graphs"](0.0, torch.float32)
    if task.whole is None:
        with pytest.raises(ValueError, match="whole graph to train on centrally"):
            tasks.centralized(task)


@pytest.mark.parametrize(
    ("name", "bad"), [("clients", 0), ("hidden", 0), ("dropout", 2), ("dropout", -0.1)]
)
@pytest.mark.parametrize("setting", SETTINGS)
def test_bounds_of_every_setting(setting: Any, name: str, bad: float) -> None:
    with pytest.raises(ValueError, match=f"Expected {name} to be "):
        setting(**{name: bad})


@pytest.mark.parametrize(
    ("setting", "name", "bad"),
    [
        (tasks.OverlappingNodes, "l2", -1),
        (tasks.OverlappingNodes, "per_class", 0),
        (tasks.OverlappingNodes, "overlap", 1.5),
        (tasks.OverlappingNodes, "proportions", ("x",)),
        (tasks.EgoNodes, "share", 1.5),
        (tasks.EgoNodes, "major_rate", -0.5),
        (tasks.EgoNodes, "num_test", 0),
        (tasks.EgoNodes, "batch_size", 0),
        (tasks.OwnNodes, "latent", 0),
        (tasks.OwnNodes, "kl", -1),
        (tasks.Links, "latent", 0),
        (tasks.Links, "kl", float("nan")),
        (tasks.Graphs, "alpha", 0),
        (tasks.Graphs, "batch_size", 0),
        (tasks.Molecules, "batch_size", 0),
        (tasks.Molecules, "layers", 0),
        (tasks.Molecules, "partition", "louvain"),
        (tasks.Molecules, "split", "public"),
        (tasks.Molecules, "target", "classes"),
        (tasks.Molecules, "model", "gat"),
        (Local, "lr", -1),
        (Local, "momentum", -1),
        (Local, "weight_decay", -1),
        (Local, "steps", -1),
    ],
)
def test_bounds_of_settings(setting: Any, name: str, bad: Any) -> None:
    with pytest.raises(ValueError, match=f"Expected {name} to be "):
        setting(**{name: bad})


@pytest.mark.parametrize("name", ["own", "links"])
def test_bounds_of_builders(name: str) -> None:
    net = fgl.nn.VGAE(FEATURES, 4, 2, num_classes=CLASSES)
    with pytest.raises(ValueError, match="Expected kl to be a number >= 0, but got -1"):
        if name == "own":
            tasks.own_node_task([graph(20)], net, fgl.Training(), kl=-1)
        else:
            tasks.link_task([fgl.data.splits.edge_split(graph(40))], net, fgl.Training(), kl=-1)
    if name == "links":
        made = [fgl.data.splits.edge_split(graph(40))]
        with pytest.raises(ValueError, match="Expected recon to be one of 'sampled', .* got 'all'"):
            tasks.link_task(made, net, fgl.Training(), recon="all")  # type: ignore[arg-type]


def test_momentum_is_of_sgd_alone() -> None:
    with pytest.raises(ValueError, match="momentum to be left out beside adam, but got 0.9"):
        Local("adam", momentum=0.9)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: fgl.tasks.Local("rmsprop"), "optimizer to be one of 'sgd', 'adam'"),
        (lambda: fgl.tasks.Nodes(partition="kmeans"), "partition to be one of 'louvain', 'louvain"),
        (lambda: fgl.tasks.Nodes(model="mlp"), "model to be one of 'gcn', 'gat'"),
        (lambda: fgl.tasks.Links(features="cooked"), "features to be one of 'raw'"),
    ],
)
def test_choices_hold_in_python(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=f"Expected {text}"):
        make()


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("device", ["cud", "cpu:x", "meta", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_at_once(setting: Any, device: Any) -> None:
    with pytest.raises(ValueError, match=rf"Expected device to be one .* here, but got {device!r}"):
        setting(device=device)
    assert setting(device="cpu").device == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"Expected device to be .*, but got 'cuda' \("):
        tasks.Nodes(device="cuda")


@pytest.mark.parametrize("name", TASKS)
def test_a_task_knows_how_many_examples_a_client_can_have(name: str) -> None:
    """As many as the largest has, or all together where clients overlap."""
    task = TASKS[name](0.0, torch.float32)
    own = [each.num_nodes if each.batch is None else each.num_graphs for each in task.clients]
    if task.clients[0].edge_label_index is not None:
        own = [each.edge_label_index.shape[1] for each in task.clients]
    if name not in ("mended", "overlapping"):
        assert task.fedavg.rules.max_examples == max(own)
    assert task.fedavg.rules.max_examples >= max(each.num_train for each in task.clients)


def test_a_field_that_a_setting_declares_again_keeps_its_bound() -> None:
    """A subclass with another default may forget the type's bound."""
    settings = [kind for kind in vars(tasks).values() if isinstance(kind, type)]
    settings = [kind for kind in settings if issubclass(kind, tasks.settings.Setting)]
    assert len(settings) > 8
    for kind in settings:
        own = typing.get_type_hints(kind, include_extras=True)
        for base in kind.__mro__[1:-1]:
            for name, hint in typing.get_type_hints(base, include_extras=True).items():
                bounds = len(bounds_of(hint))
                assert len(bounds_of(own[name])) >= bounds, f"{kind.__name__}.{name}"
