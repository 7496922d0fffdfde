"""Errors and warnings of branches that no other test takes, and results of their empty cases."""

import dataclasses
import math
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import networkx as nx
import pytest
import torch
from federations import graph, graphs, model, refuses, same, threads
from torch import Tensor

import fgl
from fgl.aggregate.robust.stacks import lengths
from fgl.client_network.features import unit_centred
from fgl.client_network.grouping import finch
from fgl.data.splits import class_capped_split, edge_split
from fgl.data.splits.free_pairs import FreePairsLike
from fgl.experiment.callbacks import peak_memory
from fgl.experiment.plots import _direction
from fgl.federation import Inbox, Ragged
from fgl.federation.evaluate import _rate, _why_none
from fgl.federation.history import _spelled, _takes_no_graph
from fgl.federation.method.message import check_message, compact
from fgl.federation.run import _place
from fgl.federation.training.optimizer import Layout, change_grads, made, named, state_of
from fgl.federation.training.unseen import _other_labels
from fgl.graph.facts import check_graphs
from fgl.graph.tables import Table
from fgl.methods.fedgm import first_features
from fgl.pseudo.uploads import check_upload
from fgl.study.work import one_torch_thread
from fgl.tasks import apart
from fgl.tasks.mended import _places
from fgl.transforms.dp_sgd.examples import alone, check_alone, made_up

NET, CLIENTS = model(dropout=0.0), graphs()[:2]
METHOD, ONE, SGD = fgl.fedavg(NET), torch.ones(1), torch.optim.SGD
PAIRS = graph(y=torch.tensor([0, 1]), edge_label_index=torch.tensor([[0, 1], [2, 3]]),
              train_mask=None, val_mask=None, test_mask=None, num_classes=2)  # fmt: skip
BARE = fgl.Graph(torch.eye(3), torch.zeros(2, 0).long())
UPLOAD = {
    "num_examples": torch.tensor(2), "node_id": torch.tensor([0, 3]),
    "predictions": torch.tensor([[0.5, 0.5], [1.0, 0.0]]), "embeddings": torch.ones(2, 2),
}  # fmt: skip


def raising(kind: type[Exception], *words: str) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise kind(*words)

    return call


def with_loss(loss: Any) -> fgl.Method:
    return dataclasses.replace(METHOD, loss=loss)


ELSEWHERE: Any = SimpleNamespace(identity=dict)
STARTED: Any = SimpleNamespace(client_states={0: {}})
OPTIMIZER: Any = SimpleNamespace(state={ONE: {"step": 3, "none": None}})
NO_TEST = [own.replace(test_mask=None) for own in CLIENTS]
REFUSED: list[tuple[str, type[Exception], Callable[[], Any]]] = [
    ("but got edge_label_index", ValueError, lambda: edge_split(PAIRS)),
    ("but got edge_label_index", ValueError, lambda: class_capped_split(PAIRS)),
    ("test nodes, but got none", ValueError, lambda: fgl.evaluate_on(METHOD, NO_TEST, NO_TEST)),
    ("tensors, but got a Graph", TypeError, lambda: _takes_no_graph(NET, (CLIENTS[0],))),
    ("dict of tensors, but got a T", TypeError, lambda: check_message({"model": ONE}, model={})),
    ("no client's state", ValueError, lambda: _place(ELSEWHERE, "auto", None, STARTED)),
    ("left out beside a place", ValueError, lambda: _place(ELSEWHERE, 1, None, None)),
    ("step to be a tensor, but got 3", TypeError, lambda: state_of(OPTIMIZER, {"w": ONE})),
    ("adjust.* to be a dict", TypeError, lambda: named("adjust", lambda *_: 3)({}, {}, None)),
    ("^my word$", ValueError, lambda: made(raising(ValueError, "my word"), {"w": ONE})),
    ("that trains, but got none", ValueError, lambda: made(raising(ValueError, "no"), {})),
    ("batch beside u", ValueError, lambda: BARE.replace(u=torch.ones(1, 2))),
    (r"Graph: \[graph\]", TypeError, lambda: check_graphs(BARE)),
    ("lists of names", TypeError, lambda: fgl.Graph.from_networkx(nx.Graph(), x="a")),
    ("graph, but got", TypeError, lambda: fgl.Graph.from_networkx(3, x=[])),  # type: ignore[arg-type]
    ("in row 1", ValueError, lambda: fgl.pseudo.pseudo_graph(torch.tensor([[1.0], [1e30]]), s=1)),
    ("node_id to be int64 and", ValueError, lambda: checked(node_id=torch.tensor([0.0, 3.0]))),
    (r"shape \[2\]", ValueError, lambda: checked(node_id=torch.tensor([0]))),
    ("predictions to be fl", ValueError, lambda: checked(predictions=torch.ones(2, 2).long())),
    ("embeddings to be fl", ValueError, lambda: checked(embeddings=torch.ones(2, 2).double())),
    ("finite length", ValueError, lambda: checked(embeddings=torch.full((2, 2), 1e30))),
    (
        "to read trees",
        TypeError,
        lambda: fgl.tasks.ego_node_task(CLIENTS, graph(), NET, torch.optim.Adam),
    ),
    ("part to have node_id", ValueError, lambda: _places(BARE, BARE)),
    ("or one of", ValueError, lambda: fgl.tasks.OverlappingNodes(proportions=("a",)).shares),
    ("labels, but got None", ValueError, lambda: alone(BARE, torch.tensor(0))),
    ("labels, but got None", ValueError, lambda: made_up(BARE)),
    ("but got KeyError", ValueError, lambda: check_alone(with_loss(raising(KeyError)), DOT, {})),
    ("but got so", ValueError, lambda: check_alone(with_loss(raising(OSError, "so")), DOT, {})),
]
DOT = BARE.replace(y=torch.tensor([0, 1, 2]), x=torch.eye(6)[:3])


def checked(**changed: Tensor) -> None:
    check_upload({**UPLOAD, **changed}, 4, 2)


def test_what_is_refused_is_named() -> None:
    for match, kind, call in REFUSED:
        with pytest.raises(kind, match=match):
            call()
            pytest.fail(match)
    checked()


def test_empty_cases_have_results() -> None:
    assert lengths(torch.zeros(3, 0)).tolist() == [0, 0, 0]
    assert unit_centred(torch.zeros(0, 4)).shape == (0, 4)
    assert math.isnan(_rate([])) and _rate([(1.0, 2.0), (2.0, 2.0)]) == 0.75
    without: Any = SimpleNamespace(state={ONE: {"a": None}})
    assert state_of(without, {"w": ONE}) == {} == state_of(OPTIMIZER, {})
    leaf = torch.ones(2)
    change_grads({"w": leaf}, lambda grads, *_: {"w": grads["w"] + 3}, Layout({"w": leaf}), None)
    assert leaf.grad.tolist() == [3, 3]  # type: ignore[union-attr]
    whole = {"a": torch.eye(3).to_sparse(), "b": {"c": ONE}}
    kept: Any = compact(whole)
    assert kept["a"] is whole["a"] and kept["b"]["c"] is ONE
    assert BARE.train_labels.tolist() == [-1, -1, -1]
    assert repr(Ragged(torch.ones(2, 3))) == "Ragged([2, 3])"
    none, empty = "its score returns none for client ", torch.zeros(20).bool()
    assert _why_none(NO_TEST, 1, "test_f1") == f"{none}1"
    assert _why_none([graph(val_mask=empty)], 0, "val_f1") == "client 0 has no example in val_mask"
    assert _why_none([graph()], 0, "val_f1") == f"{none}0"
    numbers = Table("node", [0, 1], {"a": [3, 2]}).labels("a", None, "classes")
    assert numbers.dtype == torch.int64 and numbers.tolist() == [3, 2]
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [-1.0, 0.1], [-1.0, 0.0]])
    assert finch(rows).tolist() == [0, 0, 1, 1, 2, 2]


def test_copies_of_training_examples_are_told() -> None:
    x = torch.eye(24).repeat(2, 1)
    y, train = torch.arange(48) % 24 % 3, torch.arange(48) < 24
    own = fgl.Graph(x, torch.zeros(2, 0).long(), y=y, train_mask=train, test_mask=~train)
    with pytest.warns(UserWarning, match="got 24 of 24 of a client that are copies of its"):
        assert apart._warn_of_repeated([own])
    others = own.replace(y=torch.where(train, y, (y + 1) % 3)), own.replace(x=torch.ones(48, 1))
    for other in others:
        assert not apart._warn_of_repeated([other])
    halves = [own.subgraph(torch.arange(48).view(2, 24)[k]) for k in range(2)]
    halves[1] = halves[1].replace(val_mask=torch.arange(24) < 9, test_mask=torch.arange(24) >= 9)
    with pytest.warns(UserWarning, match="15 of 15 in test_mask of client 1, 9 of 9 in val_mask"):
        apart._warn_of_trained_elsewhere(halves, None)
    whole, ids = own.replace(x=torch.eye(48)), torch.arange(48)
    parts = [whole.subgraph(ids[20:]), whole.subgraph(ids[:25]).replace(train_mask=None)]
    with pytest.warns(UserWarning, match="got 1 of 24 in test_mask of client 0 that are copies"):
        apart._warn_of_trained_elsewhere(parts, None)
    split = edge_split(graph(30))
    leaks = dataclasses.replace(split, val_edges=split.train_edges[:, :2])
    with pytest.warns(UserWarning, match="edges of client 1 .* got 2 .so in 2 clients., whose"):
        apart.warn_of_known_edges([split, leaks, leaks])
    leaks = dataclasses.replace(split, val_negatives=split.train_edges[:, :2])
    with pytest.warns(UserWarning, match="pairs without an edge of client 0 .* got 2, whose"):
        apart.warn_of_known_edges([leaks])


def test_a_loss_that_reads_test_labels_is_told() -> None:
    def whole(params: Any, own: fgl.Graph, context: Any) -> Tensor:
        return fgl.losses.cross_entropy(fgl.predict(NET, params, own), own.labels, own.node_mask)

    with pytest.warns(UserWarning, match="labels of test_mask of client 0,"):
        fgl.run(with_loss(whole), CLIENTS, num_rounds=1)
    fgl.run(with_loss(lambda *given: METHOD.loss(*given) + random.random()), CLIENTS, num_rounds=1)
    y, where = torch.tensor([2, 0, 1, 1]), torch.tensor([True, True, True, False])
    assert _other_labels(y, where).tolist() == [0, 1, 2, 1]
    assert _other_labels(y / 2, where).tolist() == [0, 1, 1, 0.5]


def test_settings_hand_their_seeds_on() -> None:
    links = fgl.tasks.Links(clients=2, partition="random", partition_after_split=False)
    parts = fgl.data.partitions.partition_graph(graph(60), links.cut(graph(60), seed=3))
    want = [
        edge_split(own, seed=fgl.federation.fold_in(3, k, "split")) for k, own in enumerate(parts)
    ]
    found = links.splits(graph(60), seed=3)
    assert [split.val_edges.tolist() for split in found] == [w.val_edges.tolist() for w in want]
    task = fgl.tasks.Graphs(dataset="synthetic", clients=3, alpha=0.3, partition="dirichlet")
    y = fgl.data.load_graphs("synthetic", attributes=False)[1]
    sizes = [len(p) for p in fgl.data.partitions.dirichlet_partition(y, 3, alpha=0.3, seed=2)]
    folds = zip(*task.folds_of(seed=2), strict=True)
    assert [train.num_graphs + test.num_graphs for train, test in folds] == sizes


def test_small_things_of_many_rooms() -> None:
    """Each would go unnoticed if it were otherwise: an argument that is handed on, or a bound."""
    assert [_spelled(v) for v in (-1e-5, 0.0, 1e-3)] == ["-1e-05", "0.0000", "0.0010"]
    ends = ("test_macro_f1", "test_hits@3", "test_gap", "test_rmse", "val_ap")
    high, low = " (higher is better)", " (lower is better)"
    assert [_direction(name) for name in ends] == [high, high, "", low, high]
    steps, link = fgl.Training(num_steps=3), [edge_split(own) for own in CLIENTS]
    task = fgl.tasks.link_task(link, fgl.nn.VGAE(6, 4, 2), steps)
    assert task.fedavg.train.epochs == 3 and task.fedavg.train.num_steps is None
    fedsage = fgl.tasks.sampled_node_task(graph(), CLIENTS, NET, SGD, fanouts=(1,), batch_size=1)
    batches = [own.num_nodes for own, _ in fedsage.fedavg.train.batches(CLIENTS[0], {})]  # type: ignore[misc]
    assert max(batches) == 2
    task = fgl.tasks.subgraph_node_task(CLIENTS, NET, steps)
    assert "test_accuracy_before" in fgl.run(task.fedavg, task, num_rounds=1).history[0].metrics
    setting = fgl.tasks.Nodes(damage=fgl.data.Damage(missing_edges=0.5))
    lost = [setting.damaged([graph()], seed)[0].edge_index.tolist() for seed in (1, 1, 2)]
    assert lost[0] == lost[1] != lost[2]
    own = graph(x=torch.arange(120.0).view(20, 6))
    rows = first_features(own, torch.tensor([0, 0, 2]))[:, 0].long() // 6
    assert own.labels[rows].tolist() == [0, 0, 2] and own.train_mask[rows].all()  # type: ignore[index]
    like, side = torch.tensor([[1], [2]]), torch.tensor([0, 1, 2, 2])
    for pair in (like, like.flip(0)):
        free = FreePairsLike(torch.tensor([[0, 1], [3, 2]]), 4, pair, side=side)
        assert free.enough and free().tolist() == [[1], [3]]
    refuses("passes", lambda: fgl.methods.fedselect(METHOD, passes=()))
    refuses("centres", lambda: fgl.ego.EgoSampler(graph(), (2,))(torch.tensor([20])))
    assert peak_memory(torch.device("cpu")) > 10**7  # type: ignore[operator]
    one, other = (dataclasses.replace(METHOD, accept=lambda *_: None) for _ in range(2))
    assert one.made_of != other.made_of == other.made_of
    hidden = torch.tensor([[[3.0], [-1.0]]])
    for count, want in ((1, 9.0), (2, 1.0), (0, 0.0)):
        found = fgl.losses.nearest_features(hidden[:, :1] * 0, ONE, hidden, torch.tensor([count]))
        assert float(found) == want


def test_an_attack_without_attackers_or_uploads() -> None:
    state = {"model": METHOD.initial()}
    upload = {**state, "num_examples": ONE[0]}
    forged = {**upload, "model": {name: t * torch.nan for name, t in METHOD.initial().items()}}
    method = fgl.transforms.attacked(METHOD, [0], lambda inbox, here: dict.fromkeys(here, forged))
    for client, want in ((1, METHOD.aggregate(Inbox({1: upload}, 2), state)), (0, ({}, state))):
        found: Any = method.aggregate(Inbox({client: upload}, 2), state)
        assert same(dict(found[0]), dict(want[0])) and same(found[1], want[1])


def test_an_average_of_nothing_is_nan_and_threads_come_back() -> None:
    none = torch.tensor([torch.nan])
    for metric in (fgl.metrics.mae, fgl.metrics.rmse, fgl.metrics.mape, fgl.metrics.r2):
        half = torch.tensor([[1.0, torch.nan], [2.0, torch.nan]])  # a column without an answer
        assert not metric(half.nan_to_num(3.0), half).isnan()
        assert metric(ONE, none).isnan() and metric(ONE, ONE, ONE > 1).isnan()
    with threads(2), one_torch_thread():
        assert torch.get_num_threads() == 1
    with threads(2):
        with one_torch_thread():
            pass
        assert torch.get_num_threads() == 2
