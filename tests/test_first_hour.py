"""Mistakes of somebody's first hour: each is told in a sentence that says what to do."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from federations import CLASSES, FEATURES, fedavg, graph, graphs, model, refuses
from torch import Tensor, nn

import fgl

PLAIN = fedavg(model())
TASK = fgl.tasks.node_task(graph(), graphs(), model(), fgl.Training(num_steps=1))
METHODS = {"FedAvg": lambda task: task.fedavg}

MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "the task in the method's place": (
        lambda: fgl.run(TASK, TASK, num_rounds=1),  # type: ignore[arg-type]
        "Expected method to be a Method, .*but got Task: fgl.run.task.fedavg, task",
    ),
    "a builder in the method's place": (
        lambda: fgl.run(fgl.methods.fedprox, TASK, num_rounds=1),  # type: ignore[arg-type]
        r"the function fedprox: fgl.run\(fedprox\(task.fedavg, mu=...\), task, num_rounds=",
    ),
    "a setting in the method's place": (
        lambda: fgl.run(fgl.tasks.Nodes(clients=2), TASK, num_rounds=1),  # type: ignore[arg-type]
        "got Nodes: fgl.run.setting.load.seed=0..fedavg, task, num_rounds=",
    ),
    "fgl.fedavg in the method's place": (
        lambda: fgl.methods.scaffold(fgl.fedavg),
        "function fedavg: scaffold",
    ),
    "a number among callbacks": (
        lambda: fgl.run(PLAIN, TASK, num_rounds=1, callbacks=[3]),  # type: ignore[list-item]
        r"Expected callbacks\[0\] to be a function, but got 3",
    ),
    "a number in a folder's place": (
        lambda: fgl.run(PLAIN, TASK, num_rounds=1, checkpoint=3),  # type: ignore[arg-type]
        "Expected checkpoint to be a string or a PathLike or None, but got 3",
    ),
    "a number of clients in the parts' place": (
        lambda: fgl.data.partitions.partition_graph(graph(), 5),  # type: ignore[arg-type]
        "but got 5: fgl.data.partitions.louvain_partition.graph, 5.",
    ),
    "the clients of nodes in the parts' place": (
        lambda: fgl.data.partitions.partition_graph(graph(), torch.arange(graph().num_nodes) % 2),  # type: ignore[arg-type]
        r"but got Tensor: \[\(parts == k\).nonzero\(\).* for k in range\(parts.max\(\) \+ 1\)\]",
    ),
    "node ids in the clients' place": (
        lambda: fgl.run(PLAIN, fgl.data.partitions.random_partition(graph(), 2), num_rounds=1),  # type: ignore[arg-type]
        "Expected client 0 to be a Graph, but got Tensor: fgl.data.partitions.partition_graph",
    ),
    "a setting by position": (lambda: fgl.methods.fedprox(PLAIN, 0.1), r"at most 1 of fedprox's"),
    "a setting left out": (lambda: fgl.methods.fedprox(PLAIN), r"Expected mu .*got none"),
    "fgl.fedavg as a method to compare": (
        lambda: fgl.compare({"FedAvg": fgl.fedavg}, lambda seed: TASK, num_rounds=1),
        "Expected model to be a torch.nn.Module, but got Method",
    ),
    "a number of seeds": (
        lambda: fgl.compare(METHODS, lambda seed: TASK, num_rounds=1, seeds=3),  # type: ignore[arg-type]
        r"Expected seeds to be .*, but got 3: .*range\(3\)",
    ),
    "a graph for its labels": (
        lambda: fgl.data.partitions.dirichlet_partition(graph(), 3, alpha=1.0),  # type: ignore[arg-type]
        "Expected y to be a tensor, but got Graph: graph.y",
    ),
}


class Scores(nn.Module):
    """A model whose output is made of its scores by a function."""

    def __init__(self, make: Callable[[Tensor], Any] = lambda scores: scores) -> None:
        super().__init__()
        self.lin, self.make = nn.Linear(FEATURES, CLASSES), make

    def forward(self, x: Tensor, adj: Any) -> Any:
        return self.make(adj @ self.lin(x))


class Edges(nn.Module):
    """A model that reads features of edges, where there are some."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.edge = nn.Linear(FEATURES, CLASSES), nn.Linear(2, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        out: Tensor = self.lin(x)
        return out if edge_attr is None else out + self.edge(edge_attr).mean(0)


class Dicts(Scores):
    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return {name: self.lin(x) for name, x in x_dict.items()}


def with_edges(dtype: torch.dtype, at: tuple[int, ...]) -> list[fgl.Graph]:
    return [
        own.replace(edge_attr=torch.rand(own.num_edges, 2, dtype=dtype)) if k in at else own
        for k, own in enumerate(graphs())
    ]


NO_GRAPH: Any = [graph(), torch.arange(3)]
MODELS: dict[str, tuple[Callable[[], nn.Module], list[fgl.Graph], type[Exception], str]] = {
    "frozen": (lambda: model().requires_grad_(False), graphs(), ValueError, "train.*but got none"),
    "a tuple": (lambda: Scores(lambda scores: (scores, scores)), graphs(), TypeError,
        "the model to return a tensor, a row an example, but got a tuple of Scores"),
    "edges of another dtype": (Edges, with_edges(torch.float64, (0, 1, 2, 3)), TypeError,
        r"edge_attr to be torch.float32 as x for Edges, but got torch.float64: .to\(torch.float32"),
    "edges' features at some": (Edges, with_edges(torch.float32, (0, 2)), ValueError,
        r"all clients to have edge_attr, which Edges reads, or none of them, .*clients \[1"),
    "dicts": (Dicts, graphs(), TypeError, r"x_dict.*fgl.nn.Hetero\(model, columns"),
}  # fmt: skip


@pytest.mark.parametrize("at_once", [1, "all", "auto"])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_does_not_fit_is_told_with_what_to_do(name: str, at_once: Any) -> None:
    make, clients, error, sentence = MODELS[name]
    with pytest.raises(error, match=sentence):
        fgl.run(fgl.fedavg(make()), clients, num_rounds=1, clients_at_once=at_once)


def test_a_lazy_model_sees_data_before_it_is_federated() -> None:
    lazy = Scores()
    lazy.lin = nn.LazyLinear(CLASSES)  # type: ignore[assignment]
    refuses("known shapes, but got lazy ones in Scores: call it once", lambda: fgl.fedavg(lazy))
    lazy(*graph().inputs)
    assert len(fgl.run(fgl.fedavg(lazy), graphs(), num_rounds=1).history) == 1


def test_a_task_of_what_are_no_graphs_is_refused() -> None:
    train = fgl.Training(num_steps=1)
    for clients, sentence in (
        (NO_GRAPH, r"clients\[1\] to be a fgl.Graph, .*Tensor"),
        (graph(), r"clients to be .*Graph: \[graph\]"),
    ):
        with pytest.raises(TypeError, match=f"Expected .*{sentence}"):
            fgl.tasks.node_task(graph(), clients, model(), train)
    with pytest.raises(TypeError, match=r"clients\[1\] to be a fgl.Graph"):
        fgl.tasks.pair_task(NO_GRAPH, model(), train)
    refuses("at least one graph.* none", lambda: fgl.tasks.graph_task([], [], model(), train))
    bare = graph().replace(train_mask=None, val_mask=None, test_mask=None)
    task = fgl.tasks.node_task(None, [bare], model(), train)
    refuses("^Expected a client to have .*random_split", lambda: task.evaluate(task.fedavg))
    with pytest.raises(TypeError, match="Expected whole to be a fgl.Graph or None, but got Tensor"):
        fgl.tasks.node_task(NO_GRAPH[1], graphs(), model(), train)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_of_the_first_hour_is_told_with_what_to_do(name: str) -> None:
    mistake, sentence = MISTAKES[name]
    refuses(sentence, mistake, TypeError)


def test_clients_with_graphs_of_their_own_need_no_whole_graph() -> None:
    clients = [
        own.replace(
            val_mask=~own.train_mask & (torch.arange(own.num_nodes) % 2 == 0),
            test_mask=~own.train_mask & (torch.arange(own.num_nodes) % 2 == 1),
        )
        for own in graphs()
    ]
    task = fgl.tasks.node_task(None, clients, model(), fgl.Training(num_steps=1))
    for build in (lambda plain: plain, fgl.methods.local):
        method = build(task.fedavg)
        result = fgl.run(method, task, num_rounds=2)
        states = result.client_states
        each = []
        for client, own in enumerate(clients):
            used = method.deploy(result.outbox[client], states.get(client, {}), own)
            right = fgl.predict(method.model.eval(), used, own).argmax(1) == own.y
            each.append(right[own.test_mask].float().mean().item())
        metrics = result.history[-1].metrics
        assert metrics["test_accuracy"] == pytest.approx(sum(each) / len(each))
        assert result.best().metrics["val_accuracy"] >= metrics["val_accuracy"]
    refuses("whole graph to train on centrally.*whole=graph", lambda: fgl.tasks.centralized(task))
