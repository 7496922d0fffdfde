"""Runs against loops written by hand with nothing but torch."""

import copy
import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any

import federations
import pytest
import torch
import torch.nn.functional as F
from federations import CLASSES, FEATURES, close, fedavg, graph, graphs, model, refuses, same
from torch import Tensor, nn

import fgl
from fgl import Message, Result, Training
from fgl.federation import Broadcast, Inbox, average
from fgl.federation.process import NEVER, young_only

Weights = dict[str, Tensor]


def weights(result: Result, client: int = 0) -> Weights:
    params = result.outbox[client]["model"]
    assert isinstance(params, dict)
    return params


def test_an_infinite_aggregate_is_refused_and_the_round_before_is_safe(tmp_path: Path) -> None:
    """The good model must not be overwritten by one that nobody can train from."""

    def broken(inbox: Inbox, state: Message) -> Any:
        outbox, state = average(inbox, state)
        if len(rounds) == 2:
            outbox[0]["model"]["convs.0.bias"].fill_(math.inf)
        return outbox, state

    rounds: list[int] = []
    method = replace(fgl.fedavg(model()), aggregate=wraps(average)(broken))
    note = [lambda record, result: rounds.append(record.round)]
    text = r"Round 2, server, aggregate: Expected outbox\[\d\] to be finite"
    with pytest.raises(ValueError, match=text):
        fgl.run(method, graphs(), num_rounds=4, checkpoint=tmp_path, callbacks=note, strict=True)
    again = fgl.run(fgl.fedavg(model()), graphs(), num_rounds=2, checkpoint=tmp_path)
    assert torch.isfinite(again.outbox[0]["model"]["convs.0.bias"]).all()


@pytest.mark.parametrize("clients_at_once", [1, "all"])
def test_only_the_loss_sees_training_mode(clients_at_once: Any) -> None:
    """What a client says of its nodes must have no dropout in it."""
    net = model(dropout=0.5)
    seen = set()

    def spy(name: str, function: Any) -> Any:
        def spied(*args: Any) -> Any:
            seen.add((name, net.training))
            return function(*args)

        return spied

    method = fgl.fedavg(net)
    calm = ("receive", "send", "aggregate", "accept")
    spies = {name: spy(name, getattr(method, name)) for name in ("loss", *calm)}
    evaluate = spy("evaluate", lambda outbox, states: {})
    options: Any = {"clients_at_once": clients_at_once, "evaluate": evaluate}
    fgl.run(replace(method, **spies), graphs(), num_rounds=2, **options)
    expected = {("loss", True), ("evaluate", False), *((name, False) for name in calm)}
    assert expected <= seen <= expected | {("loss", False)}  # a batch's check of its padding
    assert net.training


OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, lr=0.1),
    "momentum": partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=5e-4),
    "adam": partial(torch.optim.Adam, lr=0.01, weight_decay=5e-4, fused=True),
}


def plain_fedavg(net: nn.Module, clients: Sequence[fgl.Graph], optimizer: Any) -> Weights:
    """Five rounds of three steps, in the way of a torch tutorial."""
    server = copy.deepcopy(net)
    total = sum(int(data.train_mask.sum()) for data in clients)
    for _ in range(5):
        mean = {name: torch.zeros_like(t) for name, t in server.state_dict().items()}
        for data in clients:
            mine = copy.deepcopy(server).train()
            step = optimizer(mine.parameters())
            for _ in range(3):
                step.zero_grad()
                mask = data.train_mask
                F.cross_entropy(mine(data.x, data.adj)[mask], data.y[mask]).backward()
                step.step()
            for name, value in mine.state_dict().items():
                mean[name] += int(data.train_mask.sum()) / total * value
        server.load_state_dict(mean)
    return dict(server.state_dict())


@pytest.mark.few
@pytest.mark.parametrize("rule", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["GCN", "GAT"])
def test_fedavg_is_the_plain_loop(kind: str, rule: str) -> None:
    net, clients = model(getattr(fgl.nn, kind), dropout=0.0).double(), federations.double(graphs())
    result = fgl.run(fedavg(net, Training(OPTIMIZERS[rule], num_steps=3)), clients, num_rounds=5)
    close(weights(result), plain_fedavg(net, clients, OPTIMIZERS[rule]))


def shift(tensors: Any) -> None:
    tensors["convs.0.bias"].add_(1)


def extend(tensors: Any) -> None:
    tensors["extra"] = torch.zeros(1)


def rebind(tensors: Any) -> None:
    tensors["convs.0.bias"] = torch.zeros(8)


CHANGES: list[tuple[Callable[[Any], None], str]] = [
    (shift, "convs.0.bias"),
    (extend, "extra"),
    (rebind, "convs.0.bias"),
]


@pytest.mark.parametrize("clients_at_once", [1, 2])
@pytest.mark.parametrize(("change", "name"), CHANGES)
@pytest.mark.parametrize("what", ["message", "state"])
@pytest.mark.parametrize("stage", ["receive", "loss", "send", "aggregate"])
def test_nothing_changes(
    stage: str, what: str, change: Any, name: str, clients_at_once: Any
) -> None:
    """All clients hold the same tensors, and a state outlives an upload that is refused."""
    method, rounds = fgl.fedavg(model()), [0]
    seen: dict[str, Any] = {}

    def note(where: str, message: Any, state: Any) -> None:
        if where == stage and rounds[0]:
            change((message if what == "message" else state)["model"])

    def receive(message: Any, state: Any, data: fgl.Graph) -> Any:
        seen.update(message=message, state=state)
        made = method.receive(message, state, data)
        note("receive", message, state)
        return dict(made[0]), made[1]

    def loss(params: Any, data: fgl.Graph, context: Any) -> Tensor:
        note("loss", seen["message"], seen["state"])
        return method.loss(params, data, context)

    def send(params: Any, context: Any, state: Any, data: fgl.Graph) -> Any:
        note("send", context, state)
        return method.send(params, context, {"model": dict(params)}, data)

    def aggregate(inbox: Inbox, state: Any) -> Any:
        made = average(inbox, state)
        note("aggregate", next(iter(inbox.values())), state)
        return made

    changing = replace(method, receive=receive, loss=loss, send=send, aggregate=aggregate)
    callback = [lambda record, result: rounds.append(rounds.pop() + 1)]
    text = f"Round 1, .*{stage}: 'model/{name}' .* was changed in place"
    with pytest.raises(ValueError, match=text):
        fgl.run(
            changing, graphs(), num_rounds=2, clients_at_once=clients_at_once, callbacks=callback
        )


def test_no_model_loss_or_metric_changes_a_graph() -> None:
    """Unknown answers that become zeros would train and be scored from the second round on."""

    def known(output: Tensor, y: Tensor, mask: Any, name: str) -> Tensor:
        if name == "y" and mask.sum() > 0:
            y[y.isnan()] = 0
        if name == "output" and not output.requires_grad:
            output.sigmoid_()
        return ((output.squeeze(-1) - y.nan_to_num())[mask] ** 2).mean()

    class Doubling(nn.Module):
        def __init__(self, at: bool) -> None:
            super().__init__()
            self.net, self.at = nn.Linear(6, 1), at

        def forward(self, x: Tensor, adj: Any) -> Tensor:
            return self.net(x.mul_(2) if self.training == self.at else x)

    class OnlyRows(nn.Linear):
        def forward(self, x: Tensor, adj: Any) -> Tensor:  # type: ignore[override]
            return super().forward(x)

    rows, y = OnlyRows(6, 1), torch.rand(30).where(torch.arange(30) % 2 == 0, math.nan)
    for name, net, loss, metric in (
        ("graph.y", rows, "y", ""), ("graph.y", rows, "", "y"), ("output", rows, "", "output"),
        ("graph.x", Doubling(True), "", ""), ("graph.x", Doubling(False), "", ""),
    ):  # fmt: skip
        own = fgl.data.splits.random_split(graph(30).replace(y=y.clone(), num_classes=None))
        metrics = {"a": partial(known, name=metric)}
        target = fgl.targets.Target(partial(known, name=loss), metrics)
        task = fgl.tasks.node_task(None, [own], net, Training(), target=target)
        with pytest.raises(ValueError, match=f"{name}.* in place"):
            fgl.run(task.fedavg, task, num_rounds=1, clients_at_once=1)


@pytest.mark.parametrize("at_once", [1, "all"])
def test_no_loss_changes_copies_of_graphs(at_once: Any) -> None:
    """They stay for all rounds; without padding no client is compared outside of the batch."""
    method = fedavg(model())
    reads: dict[str, Any] = {
        "graph.x": lambda own: own.x.mul_(0),
        "graph.y": lambda own: own.y.clamp_max_(0),
        "(graph.ent|stack)": lambda own: own.entries("edge_attr").mul_(0),  # copied in round 0
        "(graph.adj.values|stack)": lambda own: own.adj.values.mul_(0),
        "(graph.adj.gcn_norm|stack)": lambda own: own.adj.gcn_norm.values.mul_(0),
    }
    for name, change in reads.items():

        def loss(params: Any, own: Any, context: Any, change: Any = change) -> Any:
            change(own)
            return method.loss(params, own, context)

        alike = [graph(12, seed=seed) for seed in (0, 1)]
        alike = [own.replace(edge_attr=torch.ones(own.num_edges, 1)) for own in alike]
        with pytest.raises(ValueError, match=f"['\"]{name}.* in place"):
            fgl.run(replace(method, loss=loss), alike, num_rounds=2, clients_at_once=at_once)


@pytest.mark.parametrize("clients_at_once", [1, "all"])
def test_one_network_for_all_clients_uploads_is_refused(clients_at_once: Any) -> None:
    """``state_dict()`` gives the network's own tensors, which the next client's turn overwrites."""
    net = model()
    shared = model()

    def send(params: Any, context: Any, state: Any, data: fgl.Graph) -> Any:
        shared.load_state_dict(params)
        return {"model": shared.state_dict(), "num_examples": torch.tensor(data.num_train)}, state

    def copied(params: Any, context: Any, state: Any, data: fgl.Graph) -> Any:
        upload, state = send(params, context, state, data)
        return {**upload, "model": copy.deepcopy(upload["model"])}, state

    options: Any = {"num_rounds": 2, "clients_at_once": clients_at_once}
    with pytest.raises(ValueError, match=r"Round 0, client 1, send: .*Clients 0 and 1 share"):
        fgl.run(replace(fedavg(net), send=send), graphs(), **options)
    got = fgl.run(replace(fedavg(net), send=copied), graphs(), **options)
    assert same(weights(got), weights(fgl.run(fedavg(net), graphs(), **options)))


@pytest.mark.parametrize("make", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr, torch.clone])
def test_sparse_and_empty_tensors_may_be_sent(make: Any) -> None:
    more = {"matrix": make(torch.eye(3)), "none": torch.zeros(0)}
    method = federations.sending(fedavg(model()), lambda message, own: {**message, **more})
    result = fgl.run(method, graphs(), num_rounds=2)
    assert same(weights(result), weights(fgl.run(fedavg(model()), graphs(), num_rounds=2)))


def test_a_network_with_a_lazy_layer_trains() -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.LazyLinear(CLASSES)

        def forward(self, x: Tensor, adj: Any) -> Tensor:
            return self.lin(adj @ x)

    net = Lazy()
    loss = fgl.federation.supervised(net)
    net(torch.zeros(1, FEATURES), fgl.SparseMatrix.from_dense(torch.eye(1)))
    params = dict(net.named_parameters())
    assert loss(params, graph(), {}).requires_grad
    with pytest.raises(ValueError, match=r"\[\] of another shape .* and \['lin.bias'\] missing"):
        loss({"lin.weight": params["lin.weight"]}, graph(), {})


METRICS: list[tuple[Any, str]] = [
    (0.5, "to return a dict .* got float"),
    ({"accuracy": "high"}, "'accuracy' to be a number, but got 'high'"),
    ({3: 0.5}, "to name metrics by strings, but got 3"),
    ({"accuracy": torch.ones(2)}, "'accuracy' to be a number, but got tensor"),
]


@pytest.mark.parametrize("name", ["evaluate", "score", "watch"])
@pytest.mark.parametrize(("metrics", "error"), METRICS)
def test_metrics_are_numbers_by_names(name: str, metrics: Any, error: str) -> None:
    with pytest.raises(TypeError, match=rf"Round 0, .*Expected {name}.*{error}"):
        fgl.run(fedavg(model()), graphs(), num_rounds=1, **{name: lambda *_: metrics})


def test_a_metric_is_said_by_one_alone() -> None:
    def half(*_: Any) -> dict[str, float]:
        return {"accuracy": 0.5}

    with pytest.raises(ValueError, match=r"Round 0, .*evaluate to return .* 'accuracy' again"):
        fgl.run(fedavg(model()), graphs(), num_rounds=1, score=half, evaluate=half)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Round 0, .*watch to return .* 'accuracy' again"):
        fgl.run(fedavg(model()), graphs(), num_rounds=1, watch=half, evaluate=half)


@pytest.mark.parametrize("spoil", ["clear", "pop", "reverse", "tuple"])
def test_a_callback_may_not_change_the_history(spoil: str) -> None:
    """The count of rounds is their number: a run would go on for ever."""

    def change(record: Any, result: Any) -> None:
        if record.round and spoil == "tuple":
            result.history = tuple(result.history)
        elif record.round:
            getattr(result.history, spoil)()

    with pytest.raises(ValueError, match=r"Round 1, a callback: the rounds of result.history"):
        fgl.run(fedavg(model()), graphs(), num_rounds=3, callbacks=[change])


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "gat": lambda: model(fgl.nn.GAT),
    "sage": lambda: model(fgl.nn.SAGE),
    "narrow": lambda: fgl.nn.GCN(FEATURES, 4, CLASSES),
    "deep": lambda: fgl.nn.GCN(FEATURES, 8, CLASSES, num_layers=3),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_wrapped_loss_stays_with_its_network(other: Any) -> None:
    """`dataclasses.replace` changes a method's model, not the one inside a loss made of it."""
    plain = fedavg(model())

    def loss(params: Any, data: fgl.Graph, context: Any) -> Tensor:
        pull = fgl.losses.proximal(params, context["model"])
        return plain.loss(params, data, context) + 0.1 * pull

    own = fedavg(other())
    method = replace(plain, loss=loss, model=own.model, receive=own.receive)
    with pytest.raises(ValueError, match=r"params to be all of the GCN .* but got .* of another"):
        fgl.run(method, graphs(), num_rounds=1)
    with pytest.raises(ValueError, match=r"client 0, receive: Expected message\['model'\]"):
        fgl.run(replace(plain, model=own.model), graphs(), num_rounds=1)  # made for the other one
    fgl.run(own, graphs(), num_rounds=1)


def test_a_message_with_a_gradient_is_refused_where_it_is_made() -> None:
    head = nn.Linear(CLASSES, CLASSES)

    def aggregate(inbox: Inbox, state: Message) -> Any:
        outbox, state = average(inbox, state)
        with torch.enable_grad():
            target = head(torch.ones(CLASSES))
        return Broadcast({**outbox[0], "target": target}, inbox.num_clients), state

    with pytest.raises(ValueError, match=r"Round 0, server, aggregate: .*'target' to be detached"):
        fgl.run(replace(fedavg(model()), aggregate=aggregate), graphs(), num_rounds=2)


@pytest.mark.parametrize("sparse", [False, True])
def test_features_of_another_type_than_the_model_are_refused_at_once(sparse: bool) -> None:
    def wide(data: fgl.Graph) -> fgl.Graph:
        x: Any = data.x.double()
        return data.replace(x=fgl.SparseMatrix.from_dense(x) if sparse else x)

    clients = [*graphs()[:2], wide(graphs()[2])]
    text = r"^Expected client 2's features to be torch.float32 as the model, but got torch.float64"
    refuses(text, lambda: fgl.run(fedavg(model()), clients, num_rounds=1), TypeError)
    result = fgl.run(fedavg(model().double()), [wide(data) for data in graphs()], num_rounds=1)
    assert weights(result)["convs.0.bias"].dtype == torch.float64


def test_the_collector_is_put_back_even_after_an_error() -> None:
    before = gc.get_threshold()

    def score(outbox: Any, states: Any) -> Any:
        assert gc.get_threshold()[2] == NEVER
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fgl.run(fedavg(model()), graphs(), num_rounds=1, evaluate=score)
    assert gc.get_threshold() == before
    with young_only(), young_only():
        assert gc.isenabled()
    assert gc.get_threshold() == before
