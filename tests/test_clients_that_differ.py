"""Clients that differ: other features, classes and architectures, with a part in common."""

import copy
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import close, refuses, same
from torch import nn

import fgl
from fgl import Method
from fgl.federation import Batch, Own
from fgl.federation.executors.remote.client import agreement
from fgl.federation.method.message import leaves
from fgl.methods import fedper

HIDDEN = 6
ADAM = fgl.Training(partial(torch.optim.Adam, lr=0.02), num_steps=3)


class Net(nn.Module):
    """A layer of the client's width, a layer that all share, a head of the client's classes."""

    def __init__(self, features: int, classes: int, *, act: Any = torch.relu) -> None:
        super().__init__()
        self.first = nn.Linear(features, HIDDEN)
        self.conv = fgl.nn.GCN(HIDDEN, HIDDEN, HIDDEN, dropout=0.0)
        self.head = nn.Linear(HIDDEN, classes)
        self.act = act

    def forward(self, x: Any, adj: Any) -> Any:
        return self.head(self.act(self.conv(self.act(self.first(x)), adj)))


class Deep(nn.Module):
    """Another architecture with the same common part, under the same name."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.Linear(features, 9), nn.Tanh(), nn.Linear(9, HIDDEN))
        self.conv = fgl.nn.GCN(HIDDEN, HIDDEN, HIDDEN, dropout=0.0)
        self.head = nn.Linear(HIDDEN, classes)

    def forward(self, x: Any, adj: Any) -> Any:
        return self.head(self.conv(self.enter(x), adj))


def net(graph: fgl.Graph) -> nn.Module:
    return Net(graph.num_features, int(graph.num_classes or 0)).to(graph.x.dtype)


def net_or_deep(graph: fgl.Graph) -> nn.Module:
    kind: Any = Deep if graph.num_nodes > 22 else Net
    made: nn.Module = kind(graph.num_features, graph.num_classes).to(graph.x.dtype)
    return made


def client(
    nodes: int, features: int, classes: int, dtype: torch.dtype = torch.float32
) -> fgl.Graph:
    generator = torch.Generator().manual_seed(nodes)
    return fgl.Graph(
        torch.randn(nodes, features, generator=generator).to(dtype),
        torch.randint(nodes, (2, 3 * nodes), generator=generator),
        y=torch.randint(classes, (nodes,), generator=generator),
        num_classes=classes,
        train_mask=torch.arange(nodes) % 3 > 0,
        test_mask=torch.arange(nodes) % 3 == 0,
    )


SIZES = [(20, 5, 3), (24, 9, 4), (18, 5, 3), (22, 9, 4), (26, 7, 2)]


def clients(dtype: torch.dtype = torch.float32) -> list[fgl.Graph]:
    return [client(*sizes, dtype) for sizes in SIZES]


def plain(dtype: torch.dtype = torch.float32) -> Method:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return fgl.fedavg(Net(5, 3).to(dtype), train=ADAM)


def method(models: Any = net, dtype: torch.dtype = torch.float32) -> Method:
    return fedper(plain(dtype), shared=["conv"], models=models)


one_by_one = partial(fgl.run, clients_at_once=1)
COMMON = ["conv.convs.0.bias", "conv.convs.0.lin.weight", "conv.convs.1.bias"]
COMMON += ["conv.convs.1.lin.weight"]


@pytest.mark.parametrize("at_once", [1, "all"])
def test_personal_parts_never_travel(at_once: Any) -> None:
    """Neither in the first message nor in any other, in either direction."""
    crossed: list[Any] = []
    own = method()

    def send(*given: Any) -> Any:
        message, state = own.send(*given)
        crossed.append(message)
        return message, state

    def receive(message: Any, state: Any, graph: Any) -> Any:
        crossed.append(message)
        return own.receive(message, state, graph)

    watched = replace(own, send=send, receive=receive)
    result = fgl.run(watched, clients(), num_rounds=2, clients_at_once=at_once)
    assert len(crossed) == 2 * 2 * len(SIZES)
    crossed += [*result.outbox.values(), result.server_state]
    paths = {path for message in crossed for path, _ in leaves(message)}
    assert paths == {*(f"model/{name}" for name in COMMON), "num_examples"}
    size = 4 * 2 * (HIDDEN * HIDDEN + HIDDEN)
    assert result.history[0].bytes_down == len(SIZES) * size
    assert result.history[0].bytes_up == len(SIZES) * (size + 8)


def by_hand(graphs: list[fgl.Graph], models: Any, rounds: int) -> tuple[list[Any], Any]:
    """FedPer in loops: modules that train themselves, a mean of the layers in the middle."""
    own = [copy.deepcopy(module) for module in models]
    state = plain(graphs[0].x.dtype).model.state_dict()
    common = {name: t for name, t in state.items() if name.startswith("conv.")}
    for _ in range(rounds):
        for module, graph in zip(own, graphs, strict=True):
            module.load_state_dict(common, strict=False)
            optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
            for _ in range(3):
                optimizer.zero_grad()
                out = module(graph.x, graph.adj)[graph.train_mask]
                y: Any = graph.y
                nn.functional.cross_entropy(out, y[graph.train_mask]).backward()
                optimizer.step()
        counts = [int(graph.train_mask.sum()) for graph in graphs]  # type: ignore[union-attr]
        states = [module.state_dict() for module in own]
        common = {
            name: sum(n * s[name] for n, s in zip(counts, states, strict=True)) / sum(counts)
            for name in common
        }
    return own, common


def test_models_of_equal_shapes_and_other_functions_are_not_confused() -> None:
    def models(graph: fgl.Graph) -> nn.Module:
        act = torch.tanh if graph.num_nodes == 18 else torch.relu
        return Net(graph.num_features, 3, act=act)

    graphs = [client(20, 5, 3), client(18, 5, 3)]
    own = method(models)
    assert Batch(own, graphs, 2, seed=0).groups([0, 1]) == [(1,), (0,)]
    result = fgl.run(own, graphs, num_rounds=2, clients_at_once="all")
    _, common = by_hand(graphs, [own.model_of(graph) for graph in graphs], 2)
    close(result.outbox[0]["model"], common, atol=1e-5)
    text = "Expected client 1 to have a model of the architecture of client 0's, but got another"
    start = [own.own.models.first(graph) for graph in graphs]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=text):
        fgl.federation.executors.batch.train_cohort.train_cohort(
            own, start, fgl.federation.Cohort(graphs), [{}, {}], seeds=[0, 1]
        )


def test_another_width_is_another_run_and_named(tmp_path: Path) -> None:
    fgl.run(method(), clients(), num_rounds=1, checkpoint=tmp_path)
    wide = [*clients()[:2], client(18, 6, 3), *clients()[3:]]
    text = r"clients' own=\{'client 2': \{'first.weight': \[6, 6\], .*got \{'client 2': .*\[6, 5\]"
    refuses(text, lambda: fgl.run(method(), wide, num_rounds=2, checkpoint=tmp_path))
    deep = replace(method(net_or_deep), layers=method().layers)
    with pytest.raises(ValueError, match=r"with clients' own=\{'client 1': .*'architecture'"):
        fgl.run(deep, clients(), num_rounds=2, checkpoint=tmp_path)


def refused(models: Any, text: str) -> None:
    refuses(text, lambda: fgl.run(method(models), clients(), num_rounds=1), (TypeError, ValueError))


def test_a_model_without_the_common_part_is_refused() -> None:
    def other(graph: fgl.Graph) -> nn.Module:
        made = Net(graph.num_features, 4)
        if graph.num_nodes == 18:
            made.conv = fgl.nn.GCN(HIDDEN, 8, HIDDEN)
        return made

    refused(other, r"client 2's model\['conv.convs.0.bias'\] to have shape \[6\], but got \[8\]")
    refused(lambda graph: nn.Linear(graph.num_features, 2), "client 0's model to have keys .*miss")
    refused(lambda graph: "net", "client 0's model to be a module, but got str")
    refused(lambda graph: net(graph).double(), "bias'. to be torch.float32, but got torch.float64")


def test_tied_parameters_are_refused() -> None:
    def tied(graph: fgl.Graph) -> nn.Module:
        made = Net(graph.num_features, HIDDEN)
        made.head.bias = made.first.bias
        return made

    refused(tied, r"client 0's model's parameters to be untied, but got \['head.bias'\] tied")


def test_a_shape_that_does_not_fit_its_own_model_names_client_and_key() -> None:
    own = method()

    def receive(message: Any, state: Any, graph: fgl.Graph) -> Any:
        params, context = own.receive(message, state, graph)
        if graph.num_nodes == 24:
            params = {**params, "head.weight": torch.zeros(3, HIDDEN)}
        return params, context

    text = r"^Round 0, client 1, receive: .*'head.weight'. to have shape \[4, 6\], but got \[3, 6\]"
    refuses(text, lambda: one_by_one(replace(own, receive=receive), clients(), num_rounds=1))

    def deploy(message: Any, state: Any, graph: fgl.Graph) -> Any:
        params = own.deploy(message, state, graph)
        return {name: t for name, t in params.items() if name != "first.bias"}

    wrong = replace(own, deploy=deploy)
    with pytest.raises(ValueError, match="^Round 0, client 0, deploy: .* missing .'first.bias'"):
        one_by_one(wrong, clients(), num_rounds=1, score=lambda params, graph: {})
    score = fgl.evaluate_on(wrong, clients(), clients())
    with pytest.raises(ValueError, match="Expected client 0's model to have keys"):
        one_by_one(wrong, clients(), num_rounds=1, evaluate=score)


def test_a_server_that_sends_a_personal_part_is_wrong() -> None:
    own = method()

    def aggregate(inbox: Any, state: Any) -> Any:
        outbox, state = own.aggregate(inbox, state)
        model = {**outbox[0]["model"], "head.bias": torch.zeros(3)}
        return {0: {**outbox[0], "model": model}}, state

    with pytest.raises(ValueError, match=r"outbox\[0\]\['model'\] .* extra \['head.bias'\]"):
        fgl.run(replace(own, aggregate=aggregate), clients(), num_rounds=1)


def test_fields_of_a_method() -> None:
    with pytest.raises(ValueError, match="Expected own to name modules of .* but got 'body'"):
        replace(plain(), own=Own(["body"]))
    refuses("modules to be .*, but got 'first'", lambda: Own("first"), TypeError)
    with pytest.raises(ValueError, match="Expected modules to name a module beside models"):
        Own(models=method().own.models)


def test_other_widths_still_need_a_word() -> None:
    text = r"client 1 to have 5 features as client 0, but got 9: fgl.methods.fedper\(shared="
    refuses(text, lambda: fgl.run(plain(), clients(), num_rounds=1))


def test_every_step_sees_the_client_s_own_model_in_minibatches() -> None:
    batches = partial(fgl.federation.node_minibatches, batch_size=5)
    fedavg = replace(plain(), train=replace(ADAM, num_steps=None, batches=batches))
    own = fedper(fedavg, shared=["conv"], models=net_or_deep)
    one, two = (fgl.run(own, clients(), num_rounds=2, clients_at_once=n) for n in (1, "all"))
    for k in range(len(SIZES)):
        close(one.client_states[k], two.client_states[k], atol=1e-5)


def test_collections_are_scored_too() -> None:
    def collection(features: int, classes: int, seed: int) -> fgl.Graph:
        generator = torch.Generator().manual_seed(seed)
        batch = torch.arange(6).repeat_interleave(4)
        edges = torch.arange(24).view(6, 4)
        pairs = torch.stack([edges[:, :3].flatten(), edges[:, 1:].flatten()])
        x = torch.randn(24, features, generator=generator)
        y = torch.arange(6) % classes
        return fgl.Graph(x, pairs, y=y, num_classes=classes, batch=batch)

    class Graphs(nn.Module):
        def __init__(self, features: int, classes: int) -> None:
            super().__init__()
            self.first, self.gin = nn.Linear(features, HIDDEN), fgl.nn.GIN(HIDDEN, HIDDEN, HIDDEN)
            self.head = nn.Linear(HIDDEN, classes)

        def forward(self, x: Any, adj: Any, pool: Any) -> Any:
            return self.head(self.gin(self.first(x), adj, pool))

    graphs = [collection(3, 2, 0), collection(5, 3, 1)]
    own = fedper(
        fgl.fedavg(Graphs(3, 2), train=ADAM),
        shared=["gin"],
        models=lambda graph: Graphs(graph.num_features, int(graph.num_classes or 0)),
    )
    evaluate = fgl.tasks.evaluate_graphs(own, graphs, graphs)
    metrics = fgl.run(own, graphs, num_rounds=2, evaluate=evaluate).history[-1].metrics
    assert 0 <= metrics["test_accuracy"] <= 1


def test_server_and_clients_agree_whatever_is_their_own() -> None:
    """A client may build its FedAvg with its own sizes: the common part counts."""

    def built(features: int, classes: int) -> Method:
        torch.manual_seed(3)
        model = Net(features, classes)
        model.conv.load_state_dict(plain().model.conv.state_dict())  # type: ignore[union-attr]
        return fedper(fgl.fedavg(model, train=ADAM), shared=["conv"], models=net)

    server, at_client = agreement(built(1, 1)), agreement(built(9, 4))
    assert server == at_client
    assert "first" not in json.dumps(server["model"])
    graph = client(24, 9, 4)
    one, two = (made.own.models.first(graph) for made in (built(1, 1), built(9, 4)))  # type: ignore[union-attr]
    assert same(one, two)
