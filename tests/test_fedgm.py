"""FedGM beside a small implementation of its own, by numbers."""

import importlib
from dataclasses import replace
from typing import Any

import pytest
import torch
from by_loops import adjacency, biased, gcn, normalised
from federations import close, double, graphs
from torch import Tensor

import fgl
from fgl.federation import Inbox
from fgl.methods import fedgm

MODULE: Any = importlib.import_module("fgl.methods.fedgm")
LR, WIDTH, STEPS, FIT = 0.05, 4, 5, 4
CLIENTS = double(graphs((12, 16)))
NAMES = ["convs.0.bias", "convs.0.lin.weight", "convs.1.bias", "convs.1.lin.weight"]
HOW = {"reduction": 0.7, "condense_steps": STEPS, "adjacency_steps": 2, "feature_steps": 1}
HOW |= {"condense_lr": LR, "condense_width": WIDTH, "fit_steps": FIT, "fit_lr": LR}


def model(turn: int) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in biased(1 + turn).state_dict().items()}


def start(own: fgl.Graph, y: Tensor) -> Tensor:
    """The first nodes of each class, instead of drawn ones."""
    rows = []
    for c in sorted(set(y.tolist())):
        nodes = [i for i in range(own.num_nodes) if own.train_mask[i] and own.y[i] == c]  # type: ignore[index]
        rows += [nodes[i % len(nodes)] for i in range(y.tolist().count(c))]
    return own.x[rows]  # type: ignore[index, return-value]


def edge_net() -> fgl.nn.pair_weights.PairWeights:
    torch.manual_seed(99)
    return fgl.nn.pair_weights.PairWeights(6, WIDTH).double()


def method(**options: Any) -> fgl.Method:
    how: dict[str, Any] = {**HOW, **options}
    return fedgm(fgl.fedavg(biased()), **how)


@pytest.fixture
def same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter(range(1000))
    monkeypatch.setattr(MODULE, "drawn", lambda module: model(next(turns)))
    monkeypatch.setattr(MODULE, "first_features", start)
    monkeypatch.setattr(MODULE, "PairWeights", lambda *sizes: edge_net())


def logits(params: dict[str, Tensor], x: Tensor, weights: Tensor) -> Tensor:
    return gcn(params, x, normalised(weights))[0]


def gradient(
    params: Any, x: Tensor, weights: Tensor, y: list[int], nodes: list[int], **how: Any
) -> Any:
    """Of the mean cross-entropy of some nodes."""
    leaves = {name: params[name].detach().clone().requires_grad_() for name in NAMES}
    out = logits(leaves, x, weights).log_softmax(1)
    loss: Any = sum(-out[i, y[i]] for i in nodes) / len(nodes)
    return torch.autograd.grad(loss, list(leaves.values()), **how)


def pair_weights(edges: dict[str, Tensor], x: Tensor) -> Tensor:
    n = len(x)
    pairs = [torch.cat([x[i], x[j]]) for i in range(n) for j in range(n)]
    values: list[Tensor] = []
    long, size = n * n % 5, n * n // 5
    for part in range(5):
        first = len(values)
        rows = torch.stack(pairs[first : first + size + (part < long)])
        for depth in range(2):
            rows = rows @ edges[f"lins.{depth}.weight"].T + edges[f"lins.{depth}.bias"]
            rows = (rows - rows.mean(0)) / (rows.var(0, correction=0) + 1e-5).sqrt()
            rows = (rows * edges["scale"][depth] + edges["shift"][depth]).relu()
        values += list((rows @ edges["lins.2.weight"].T + edges["lins.2.bias"])[:, 0])
    out = torch.zeros(n, n).double()
    for i in range(n):
        for j in range(n):
            if i != j:
                out[i, j] = ((values[i * n + j] + values[j * n + i]) / 2).sigmoid()
    return out


def own_gradient(params: Any, own: fgl.Graph, c: int) -> Any:
    y: Any = own.y
    nodes = [i for i in range(own.num_nodes) if own.train_mask[i] and y[i] == c]  # type: ignore[index]
    return gradient(params, own.x, adjacency(own), y.tolist(), nodes) if nodes else None  # type: ignore[arg-type]


def distance(made: Any, wanted: Any) -> Any:
    return sum(((a - b) ** 2).sum() for a, b in zip(made, wanted, strict=True))


def labels(own: fgl.Graph) -> list[int]:
    train = [int(own.y[i]) for i in range(own.num_nodes) if own.train_mask[i]]  # type: ignore[index]
    number = [int(train.count(c) * HOW["reduction"]) for c in range(3)]
    number[max(range(3), key=train.count)] += int(len(train) * HOW["reduction"]) - sum(number)
    return [c for c in range(3) for _ in range(number[c])]


def condensed(own: fgl.Graph, turn: int) -> tuple[Tensor, list[int], Tensor]:
    y = labels(own)
    x = start(own, torch.tensor(y)).clone().requires_grad_()
    edges = {k: v.detach().clone().requires_grad_() for k, v in edge_net().named_parameters()}
    adams = [torch.optim.Adam(list(edges.values()), lr=LR), torch.optim.Adam([x], lr=LR)]
    found = []
    for step in range(STEPS):
        params, weights = model(turn + step), pair_weights(edges, x)
        loss: Any = 0.0
        for c in set(y):
            nodes = [i for i, label in enumerate(y) if label == c]
            made = gradient(params, x, weights, y, nodes, create_graph=True)
            share = y.count(c) / max(map(y.count, set(y)))
            loss = loss + share * distance(made, own_gradient(params, own, c))
        found.append((loss.item(), x.detach().clone(), weights.detach()))
        for each in adams:
            each.zero_grad()
        loss.backward()
        adams[0 if step % 3 < 2 else 1].step()
    _, best, weights = min(found, key=lambda each: each[0])
    return best, y, weights


def twin() -> tuple[dict[str, Tensor], Tensor]:
    """The server's model after two rounds, and its condensed features."""
    made = [condensed(own, STEPS * k) for k, own in enumerate(CLIENTS)]
    x = torch.cat([each[0] for each in made]).requires_grad_()
    y = [label for each in made for label in each[1]]
    weights = torch.block_diag(*[each[2] for each in made])
    turn = STEPS * len(CLIENTS)
    probe = model(turn)
    wanted = {}
    for c in set(y):
        number = [each[1].count(c) for each in made]
        each = [own_gradient(probe, own, c) for own in CLIENTS]
        wanted[c] = [
            sum(n / sum(number) * g[part] for n, g in zip(number, each, strict=True) if g)
            for part in range(4)
        ]
    loss: Any = 0.0
    for c, goal in wanted.items():
        nodes = [i for i, label in enumerate(y) if label == c]
        grads = gradient(probe, x, weights, y, nodes, create_graph=True)
        loss = loss + y.count(c) / max(map(y.count, set(y))) * distance(grads, goal)
    adam = torch.optim.Adam([x], lr=LR)
    loss.backward()
    adam.step()
    params = {k: v.clone().requires_grad_() for k, v in model(turn + 3).items()}
    for lr in (LR, LR / 10):
        adam = torch.optim.Adam(list(params.values()), lr=lr, weight_decay=5e-4)
        for _ in range(FIT // 2):
            out = logits(params, x.detach(), weights).log_softmax(1)
            adam.zero_grad()
            (sum(-out[i, label] for i, label in enumerate(y)) / len(y)).backward()  # type: ignore[union-attr]
            adam.step()
    return {k: v.detach() for k, v in params.items()}, x.detach()


def test_it_is_fedgm_by_numbers(same_draws: None) -> None:
    result = fgl.run(method(), CLIENTS, num_rounds=2)
    params, x = twin()
    kept: Any = result.server_state["x"]
    close(torch.cat([kept["0"], kept["1"]]), x, atol=1e-12)
    close(result.outbox[0]["model"], params, atol=1e-12)


def test_what_it_refuses() -> None:
    whole = fgl.Graph.join(*fgl.data.small_graphs(6))
    made = method()
    with pytest.raises(ValueError, match="hold one graph, but got a collection"):
        made.receive({"model": made.initial()}, {}, whole)
    x, y, square = torch.ones(3, 6), torch.ones(2).long(), torch.ones(3, 3)
    with pytest.raises(ValueError, match="to be of the same nodes"):
        made.accept({"x": x, "y": y, "adjacency": square}, 0, {})
    with pytest.raises(ValueError, match="the upload"):
        made.accept({"x": x, "y": y, "adjacency": square}, 0, {"x": {"0": x}})


def test_a_gradient_of_another_form_is_refused_before_it_meets_the_others() -> None:
    """In the loop a missing name ended the round for all clients."""
    bounded = fgl.fedavg(biased())
    made = fedgm(replace(bounded, rules=replace(bounded.rules, max_examples=9)), **HOW)
    rows = {name: p.new_zeros(3, *p.shape) for name, p in made.initial().items()}
    sound: Any = {"gradient": rows, "count": torch.tensor([2, 0, 1])}
    state: Any = {"x": {"0": torch.ones(3, 6)}}
    made.accept(sound, 0, state)
    name = next(iter(rows))
    lies: dict[str, tuple[Any, str]] = {
        "name missing": ({"gradient": {k: v for k, v in rows.items() if k != name}}, "gradient to"),
        "name extra": ({"gradient": {**rows, "gossip": rows[name]}}, "gradient to"),
        "a tensor": ({"gradient": torch.zeros(3)}, "gradient to"),
        "a class less": ({"gradient": {**rows, name: rows[name][:2]}}, f"gradient.'{name}'. to"),
        "half": ({"gradient": {**rows, name: rows[name].half()}}, f"gradient.'{name}'. to"),
        "a dict": ({"count": {"value": torch.ones(3).long()}}, "count to be int64"),
        "floats": ({"count": torch.ones(3)}, "count to be int64"),
        "negative": ({"count": torch.tensor([2, -1, 1])}, "count to be at least 0"),
        "huge": ({"count": torch.tensor([2, 2**62, 1])}, "count to be at most 9"),
    }
    for lie, (change, words) in lies.items():
        with pytest.raises(ValueError, match=words):
            made.accept({**sound, **change}, 0, state)
            pytest.fail(lie)


def test_reports_without_a_condensed_node_change_nothing() -> None:
    """0 of 0 nodes would be NaN at the server, and a sound client be blamed."""
    made = method()
    drawn = made.initial()
    x, y = torch.rand(3, 6).double(), torch.tensor([0, 1, 2])
    first = {"x": x, "y": y, "adjacency": torch.full((3, 3), 0.5).double()}
    _, state = made.aggregate(Inbox({0: first}, 2), {"model": drawn})
    gradient = {name: torch.zeros(3, *value.shape) for name, value in drawn.items()}
    told = {"gradient": gradient, "count": torch.zeros(3, dtype=torch.int64)}
    _, later = made.aggregate(Inbox({1: told}, 2), state)
    assert torch.equal(later["x"]["0"], x)
    assert all(bool(value.isfinite().all()) for value in later["model"].values())


def test_a_training_with_epochs_of_batches_is_left_out() -> None:
    training = fgl.Training(batches=fgl.federation.node_minibatches, epochs=1)
    assert fedgm(fgl.fedavg(biased(), train=training)).train.num_steps == 0
