"""AdaFGL beside a small implementation of its own, by numbers."""

import importlib
from functools import partial
from typing import Any

import pytest
import torch
from by_loops import adjacency, normalised
from conformance import known
from federations import close, double, graphs, refuses
from torch import Tensor

import fgl
from fgl import tasks
from fgl.methods.adafgl import adafgl, propagation_accuracy

MODULE: Any = importlib.import_module("fgl.methods.adafgl")
LR, HOPS, ALPHA, BETA = 0.05, 2, 0.3, 0.2
CLIENTS = double(graphs((11, 8, 9)))
ACCURACY = {"homophilous": 0.9, "heterophilous": 0.89}  # of labels that propagate


def net() -> Any:
    torch.manual_seed(0)
    extractor = fgl.nn.GCN(6, 5, 3)
    how = {"hops": HOPS, "alpha": ALPHA, "beta": BETA, "dropout": 0.0}
    return fgl.nn.AdaFGL(extractor, 6, 4, 3, **how).double()


def method() -> fgl.Method:
    train = fgl.Training(partial(torch.optim.SGD, lr=LR), num_steps=2)
    return adafgl(fgl.fedavg(net(), train=train))


def softmax(row: Tensor) -> Tensor:
    return row.exp() / row.exp().sum()


def cosines(rows: Tensor) -> list[list[Any]]:
    """Of the rows' softmaxes, 0 on the diagonal."""
    s = [softmax(row) for row in rows]
    none = torch.zeros((), dtype=torch.float64)

    def cos(i: int, j: int) -> Tensor:
        return none if i == j else s[i] @ s[j] / (s[i] @ s[i] * (s[j] @ s[j])).sqrt()

    return [[cos(i, j) for j in range(len(s))] for i in range(len(s))]


def mlp(params: Any, name: str, h: Tensor, slope: str) -> Tensor:
    depths = sorted(k for k in params if k.startswith(f"personal.{name}.") and "weight" in k)
    for i, key in enumerate(depths):
        if i:
            h = torch.maximum(h, h * 0) + params[f"personal.{slope}"] * torch.minimum(h, h * 0)
        h = h @ params[key].T + params[key.replace("weight", "bias")]
    return h


def signed(h: Tensor, alike: Tensor, slope: Tensor) -> Tensor:
    now = cosines(h)
    n = len(h)
    signs = [[BETA * alike[i, j] + (1 - BETA) * now[i][j] for j in range(n)] for i in range(n)]
    every: list[Any] = [r for row in signs for r in row]
    mean, most = sum(every) / n**2, max(every, key=lambda each: each.item())
    rows = []
    for i in range(n):
        pull: Any = torch.zeros(3).double()
        push: Any = torch.zeros(3).double()
        for j in range(n):
            r = signs[i][j]
            edge = (r - mean) / (most - mean) if r > mean else -r / mean
            edge = edge + (i == j)
            pull = pull + (edge if edge > 0 else slope * edge) * h[j]
            push = push + (-edge if edge < 0 else -slope * edge) * h[j]
        rows.append((softmax(pull) - softmax(push) + h[i]) / 2)
    return torch.stack(rows)


def entropy(out: Tensor, own: fgl.Graph) -> Any:
    picked = [-softmax(out[i])[own.y[i]].log() for i in range(own.num_nodes) if own.train_mask[i]]  # type: ignore[index]
    return sum(picked) / len(picked)


def twin(own: fgl.Graph, homophilous: bool, rounds: int) -> tuple[dict[str, Tensor], Tensor]:
    """One client's parameters, and what it answers."""
    model = net().eval()
    params: Any = {k: v.detach().clone() for k, v in model.state_dict().items()}
    with torch.no_grad():
        answers = torch.stack([softmax(row) for row in model.extractor(own.x, own.adj)])
    alike = torch.tensor([[float(c > 0.999) for c in row] for row in cosines(answers)]).double()
    assert 0 < alike.sum() < alike.numel()
    operator = normalised(ALPHA * adjacency(own) + (1 - ALPHA) * alike)
    seen = torch.cat([own.x, operator @ own.x, operator @ operator @ own.x], 1)  # type: ignore[operator, list-item]

    def outputs() -> list[Tensor]:
        passed = mlp(params, "signed", seen, "slope_signed")
        return [
            mlp(params, "homo", seen, "slope_homo"),
            mlp(params, "own", own.x, "slope"),  # type: ignore[arg-type]
            mlp(params, "smooth", seen, "slope"),
            signed(passed, alike, params["personal.slope_signed"]),
        ]

    names = [name for name in params if name.startswith("personal.")]
    for _ in range(2 * rounds):
        for name in names:
            params[name] = params[name].detach().requires_grad_()
        homo, *others = outputs()
        if homophilous:
            loss = entropy(homo, own) + ((homo - answers) ** 2).mean()
        else:
            loss = sum(entropy(each, own) for each in others)
        used = [params[name] for name in names]
        grads = torch.autograd.grad(loss, used, allow_unused=True)
        for name, grad in zip(names, grads, strict=True):
            params[name] = params[name].detach() - LR * (0 if grad is None else grad)
    homo, *others = outputs()
    if homophilous:
        pairs = [(softmax(a) + softmax(b)) / 2 for a, b in zip(homo, answers, strict=True)]
    else:
        pairs = [sum(softmax(o[i]) for o in others) / 3 for i in range(own.num_nodes)]  # type: ignore[misc]
    return params, torch.stack(pairs)


@pytest.mark.parametrize("at_once", [1, "all"])
@pytest.mark.parametrize("kind", ACCURACY)
def test_it_is_adafgl_by_numbers(kind: str, at_once: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "propagation_accuracy", lambda own: ACCURACY[kind])
    made = method()
    result = fgl.run(made, CLIENTS, num_rounds=2, clients_at_once=at_once)
    for client, own in enumerate(CLIENTS[:2] if at_once == 1 else CLIENTS[2:], 2 * (at_once != 1)):
        want, answers = twin(own, kind == "homophilous", rounds=2)
        found = made.deploy(result.outbox[client], result.client_states[client], own)
        want["homophilous"] = torch.tensor(float(kind == "homophilous")).double()
        close(found, want, atol=1e-12)
        close(fgl.predict(result.model_of(client), found, own).exp(), answers, atol=1e-12)
    assert result.history[-1].bytes_up == 0


def test_how_well_labels_propagate_by_hand() -> None:
    own = CLIENTS[2]
    torch.manual_seed(4)
    found = propagation_accuracy(own)
    torch.manual_seed(4)
    nodes = [i for i in range(own.num_nodes) if own.train_mask[i]]  # type: ignore[index]
    nodes = [nodes[int(place)] for place in torch.randperm(len(nodes))]
    tell, asked = nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :]
    first = torch.full((own.num_nodes, 3), 1 / 3).double()
    for i in tell:
        first[i] = torch.eye(3)[own.y[i]]  # type: ignore[index]
    told = first
    for _ in range(10):
        told = 0.5 * normalised(adjacency(own)) @ told + 0.5 * first
        for i in tell:
            told[i] += first[i]
    right = [int(told[i].argmax()) == int(own.y[i]) for i in asked]  # type: ignore[index]
    assert found == sum(right) / len(right)
    assert 0 < found <= 1
    none = own.replace(train_mask=torch.zeros_like(own.train_mask))
    assert propagation_accuracy(none) == 0


def test_both_steps_of_a_task() -> None:
    task = known("nodes", 0.5, torch.float32)
    made = tasks.adapted(task, first_rounds=2, own_hidden=4)
    again = tasks.adapted(task, first_rounds=2, own_hidden=4)
    close(again.fedavg.initial(), made.fedavg.initial())
    trained = made.fedavg.initial()["extractor.convs.0.lin.weight"]
    assert not trained.equal(task.fedavg.initial()["convs.0.lin.weight"])
    assert made.bytes_before > 0
    result = fgl.run(made.fedavg, made, num_rounds=1)
    assert {"val_accuracy", "test_accuracy"} <= set(result.history[-1].metrics)
    refuses(r"trains an fgl.nn.AdaFGL, but got GCN", lambda: adafgl(task.fedavg))


def test_pairs_of_nodes_are_refused() -> None:
    pairs = torch.tensor([[0, 1], [1, 2]])
    own = fgl.Graph(torch.zeros(4, 6).double(), pairs, y=torch.tensor([0, 1]),
                    edge_label_index=pairs, num_classes=3)  # fmt: skip
    made = method()
    with pytest.raises(ValueError, match="examples to be nodes, but got pairs"):
        made.receive({"model": made.initial()}, {}, own)
