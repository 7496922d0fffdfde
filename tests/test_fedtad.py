"""FedTAD beside a small implementation of its own, by numbers, and its terms by hand."""

import importlib
from functools import partial
from typing import Any

import pytest
import torch
from by_loops import gcn, normalised, sgd
from federations import close, double, graph, refuses
from torch import Tensor

import fgl
from fgl.methods import fedtad

MODULE: Any = importlib.import_module("fgl.methods.fedtad")
LR, SERVER_LR, DECAY, NODES, NEAR, NOISE = 0.1, 0.01, 5e-4, 11, 3, 4
CLIENTS = double([graph(size, seed=k) for k, size in enumerate((14, 10, 12))])
CLIENTS[1] = CLIENTS[1].replace(y=CLIENTS[1].y % 2)  # it knows nothing of class 2
TURNS = {"epochs": 2, "generator_steps": 1, "distil_steps": 2}


def networks() -> tuple[Any, Any]:
    torch.manual_seed(0)
    net = fgl.nn.GCN(6, 5, 3, dropout=0.0).double()
    return net, fgl.nn.node_generator.NodeGenerator(6, 3, noise=NOISE, widths=(7, 6)).double()


def degrees(own: fgl.Graph) -> Tensor:
    return torch.stack([own.adj.to_dense().sum(0), own.adj.to_dense().sum(1) ** 2], 1)


def method(**options: Any) -> fgl.Method:
    net, generator = networks()
    train = fgl.Training(partial(torch.optim.SGD, lr=LR), num_steps=2)
    how = {"num_nodes": NODES, "neighbours": NEAR, "topology": degrees, **TURNS}
    how |= {"distil_lr": SERVER_LR, "generator_lr": SERVER_LR, "distil_decay": DECAY, **options}
    return fedtad(fgl.fedavg(net, train=train), generator, **how)


def drawn(turn: int) -> Tensor:
    return torch.randn(NODES, NOISE, generator=torch.Generator().manual_seed(turn)).double()


@pytest.fixture
def same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter(range(100))
    monkeypatch.setattr(MODULE, "noise", lambda *sizes: drawn(next(turns)))


def logits(params: dict[str, Tensor], x: Tensor, edges: set[tuple[int, int]]) -> Tensor:
    """A GCN with a dense operator, edge by edge."""
    matrix = torch.zeros(len(x), len(x)).double()
    for source, target in edges:
        matrix[target, source] = 1
    return gcn(params, x, normalised(matrix))[0]


def generated(net: dict[str, Tensor], z: Tensor, labels: list[int]) -> Tensor:
    h = torch.cat([torch.stack([net["classes.weight"][c] for c in labels]), z], 1)
    for depth in range(2):
        h = torch.tanh(h @ net[f"hidden.{depth}.weight"].T + net[f"hidden.{depth}.bias"])
    return h @ net["head.weight"].T + net["head.bias"]


def similar(x: Tensor) -> set[tuple[int, int]]:
    """The edges of a generated graph, without loops."""
    edges = set()
    x = x.detach()
    for i, row in enumerate(x):
        cos = [float(row @ other / row.norm() / other.norm()) for other in x]
        for j in sorted(range(len(x)), key=lambda j: -cos[j])[:NEAR]:
            edges |= {(i, j), (j, i)} if i != j else set()
    return edges


def reliability(own: fgl.Graph) -> list[float]:
    found = [0.0, 0.0, 0.0]
    h = torch.cat([own.x, degrees(own)], 1)  # type: ignore[list-item]
    for i in range(own.num_nodes):
        if own.train_mask[i]:  # type: ignore[index]
            near = [int(b) for a, b in own.edge_index.T if a == i]
            total = 1.0
            for j in near:
                total += float(h[i] @ h[j] / h[i].norm() / h[j].norm())
            found[int(own.y[i])] += total / (len(near) + 1)  # type: ignore[index]
    return found


def per_class(share: list[float], value: Tensor, labels: list[int]) -> Any:
    """``sum_c w_c mean_{i of c} value_i``."""
    total: Any = 0.0
    for c, weight in enumerate(share):
        rows = [value[i] for i, label in enumerate(labels) if label == c]
        total = total + weight * sum(rows) / len(rows)
    return total


def unlike(z: Tensor, x: Tensor) -> Tensor:
    far = []
    for i in range(len(x)):
        for j in range(len(x)):
            far.append(-((z[i] - z[j]) ** 2).mean() * (x[i] - x[j]).abs().mean())
    return torch.exp(sum(far) / len(far))  # type: ignore[arg-type]


def fit_of(params: Any, own: fgl.Graph, edges: set[tuple[int, int]]) -> Tensor:
    out = logits(params, own.x, edges)[own.train_mask]  # type: ignore[arg-type]
    return torch.nn.functional.cross_entropy(out, own.y[own.train_mask])  # type: ignore[index]


def twin(rounds: int, fit: float, diversity: float) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The model and the generator after some rounds."""
    net, generator = networks()
    names = ["convs.0.bias", "convs.0.lin.weight", "convs.1.bias", "convs.1.lin.weight"]
    mean = {name: value.detach().clone() for name, value in net.state_dict().items()}
    theta = {name: mean[name].requires_grad_() for name in names}
    phi = {k: v.detach().clone().requires_grad_() for k, v in generator.state_dict().items()}
    adams = [torch.optim.Adam(list(each.values()), lr=SERVER_LR, weight_decay=DECAY)
             for each in (phi, theta)]  # fmt: skip
    known = [reliability(own) for own in CLIENTS]
    total = [sum(row[c] for row in known) for c in range(3)]
    share = [[row[c] / total[c] for c in range(3)] for row in known]
    labels = [0] * 3 + [1] * 3 + [2] * 5
    turn = 0
    for _ in range(rounds):
        teachers = []
        for own in CLIENTS:
            edges = {(int(a), int(b)) for a, b in own.edge_index.T}
            still = {k: v.detach() for k, v in theta.items()}
            teachers.append(sgd(partial(fit_of, own=own, edges=edges), still, LR, 2))
        weight = [own.num_train / sum(each.num_train for each in CLIENTS) for own in CLIENTS]
        with torch.no_grad():
            for name in names:
                theta[name].copy_(sum(w * t[name] for w, t in zip(weight, teachers, strict=True)))
        for _ in range(TURNS["epochs"]):
            z, turn = drawn(turn), turn + 1
            for _ in range(TURNS["generator_steps"]):
                loss_g: Any = 0.0
                for k, teacher in enumerate(teachers):
                    x = generated(phi, z, labels)
                    edges = similar(x)
                    said, student = logits(teacher, x, edges), logits(theta, x, edges)
                    wrong = -said.log_softmax(1)[range(NODES), labels]
                    apart = (student - said.detach()).abs().mean(1)
                    loss_g = loss_g + fit * per_class(share[k], wrong, labels)
                    loss_g = loss_g - per_class(share[k], apart, labels) + diversity * unlike(z, x)
                adams[0].zero_grad()
                loss_g.backward()
                adams[0].step()
            x = generated(phi, z, labels).detach()
            edges = similar(x)
            for _ in range(TURNS["distil_steps"]):
                loss_d: Any = 0.0
                for k, teacher in enumerate(teachers):
                    apart = (logits(theta, x, edges) - logits(teacher, x, edges)).abs().mean(1)
                    loss_d = loss_d + per_class(share[k], apart, labels)
                adams[1].zero_grad()
                loss_d.backward()
                adams[1].step()
    return {k: v.detach() for k, v in theta.items()}, {k: v.detach() for k, v in phi.items()}


def test_it_is_fedtad_by_numbers(same_draws: None) -> None:
    result = fgl.run(method(fit=0.7, diversity=0.3), CLIENTS, num_rounds=2)
    theta, phi = twin(2, 0.7, 0.3)
    close(result.outbox[0]["model"], theta, atol=1e-12)
    close(result.server_state["generator"], phi, atol=1e-12)


def test_reliability_by_hand_and_the_share_of_a_class_that_nobody_has() -> None:
    for own in CLIENTS:
        found = MODULE.class_reliability(own, 3, topology=degrees)
        close(found, torch.tensor(reliability(own)).double(), atol=1e-6)
    table = torch.tensor([[1.0, 0.0, 0.0], [3.0, 0.0, 2.0]])
    assert MODULE.shares(table).tolist() == [[0.25, 0.0, 0.0], [0.75, 0.0, 1.0]]


def test_reliability_of_sparse_features_is_that_of_dense_ones() -> None:
    own = CLIENTS[0]
    sparse = own.replace(x=fgl.SparseMatrix.from_dense(own.x))
    found = (MODULE.class_reliability(each, 3, topology=degrees) for each in (own, sparse))
    close(*found)


def test_what_it_refuses() -> None:
    whole = fgl.Graph.join(*fgl.data.small_graphs(6))
    refuses("one graph, but got a collection", lambda: MODULE.class_reliability(whole, 2))
    refuses("num_nodes", lambda: method(num_nodes=2))
    with pytest.raises(ValueError, match=r"reliability to have shape \[3\], but got \[2\]"):
        method().accept({"reliability": torch.ones(2)}, 0, {})
