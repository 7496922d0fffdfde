"""FedSPA beside a small implementation of its own, by numbers."""

import math
from functools import cache, partial
from typing import Any

import pytest
import torch
from by_loops import adjacency, gradient
from federations import close, double, graphs, refuses
from torch import Tensor

import fgl
from fgl.methods import fedspa
from fgl.methods.fedspa import distances, feature_energy, shares

LR = 0.3
CLIENTS = double(graphs((11, 9, 13)))


def net() -> Any:
    torch.manual_seed(0)
    return fgl.nn.SPA(6, 5, 3, dropout=0.0).double()


def convolved(params: Any, depth: int, h: Tensor, own: fgl.Graph) -> Tensor:
    """One layer, node by node."""
    p = {n.split(".", 2)[2]: v for n, v in params.items() if n.startswith(f"convs.{depth}.")}
    eye = torch.eye(own.num_nodes).double()
    smooth = adjacency(own) + eye
    smooth = smooth / smooth.sum(1, keepdim=True)
    low = (smooth @ h @ p["low.weight"].T).clamp(min=0)
    high = ((eye - smooth) @ h @ p["high.weight"].T).clamp(min=0)
    mine = (h @ p["own.weight"].T).clamp(min=0)
    vectors = [p[n][:, 0] for n in ("unlike_low", "unlike_high", "alike_low", "alike_high")]
    y: Any = [int(c) if t else None for c, t in zip(own.y, own.train_mask, strict=True)]  # type: ignore[arg-type]
    rows = []
    for i in range(own.num_nodes):
        sums = [torch.zeros_like(low[0]) for _ in range(6)]
        for a, b in own.edge_index.T.tolist():
            if b != i:
                continue
            kind = 2 if y[a] is None or y[i] is None else int(y[a] == y[i])
            sums[2 * kind] = sums[2 * kind] + low[a]
            sums[2 * kind + 1] = sums[2 * kind + 1] + high[a]
        share = [
            1 / (1 + torch.exp(-(s @ p["balance.weight"][0] + p["balance.bias"][0])))
            for s in sums[4:]
        ]
        scores = torch.stack(
            [
                *(s @ v for s, v in zip(sums, vectors, strict=False)),
                share[0] * (sums[4] @ vectors[0]) + (1 - share[0]) * (sums[4] @ vectors[2]),
                share[1] * (sums[5] @ vectors[1]) + (1 - share[1]) * (sums[1] @ vectors[3]),
                mine[i] @ p["itself"][:, 0],
            ]
        )
        logits = (1 / (1 + torch.exp(-scores))) @ p["together"] / 7
        weight = logits.exp() / logits.exp().sum()
        rows.append(7 * sum(w * part for w, part in zip(weight, [*sums, mine[i]], strict=True)))
    return torch.stack(rows)


def likelihood(params: Any, own: fgl.Graph, mask: Tensor) -> Tensor:
    hidden = convolved(params, 0, own.x, own).clamp(min=0)  # type: ignore[arg-type]
    out = convolved(params, 1, hidden, own)
    chosen = [out[i, own.y[i]] - out[i].exp().sum().log() for i in mask.nonzero()[:, 0]]  # type: ignore[index]
    return torch.stack(chosen).mean()


def grads(params: Any, own: fgl.Graph, mask: Any) -> dict[str, Tensor]:
    return gradient(partial(likelihood, own=own, mask=mask), params)


def energy(own: fgl.Graph) -> float:
    ratios = []
    for f in range(6):
        x = own.x[:, f]  # type: ignore[index]
        laplacian = torch.diag(adjacency(own).sum(1)) - adjacency(own)
        ratios.append(float(x @ laplacian @ x / (x @ x)))
    return sum(ratios) / len(ratios)


def weights(distance: list[float]) -> list[float]:
    low, high = min(distance), max(distance)
    raw = [math.exp(-(d - low) / (high - low)) for d in distance]
    return [r / sum(raw) for r in raw]


@cache
def twin(rounds: int) -> dict[str, Tensor]:
    """The server's model after some rounds."""
    model = {name: value.detach().clone() for name, value in net().state_dict().items()}
    by_energy = weights([energy(own) for own in CLIENTS])
    for _ in range(rounds):
        trained, squares = [], []
        for own in CLIENTS:
            params = model
            for _ in range(2):
                found = grads(params, own, own.train_mask)
                params = {n: v + LR * found[n] for n, v in params.items()}
            trained.append(params)
            squares.append({n: g**2 for n, g in grads(params, own, own.train_mask).items()})
        shares = {}
        for kind in (".unlike", ".alike"):
            names = [n for n in model if kind in n]
            mean = {n: sum(s[n] for s in squares) / len(squares) for n in names}
            shares[kind] = weights(
                [sum(float((s[n] - mean[n]).abs().sum()) for n in names) for s in squares]
            )
        assert max(shares[".unlike"]) / min(shares[".unlike"]) == pytest.approx(math.e)
        for name in model:
            kind = ".unlike" if ".unlike" in name else ".alike" if ".alike" in name else ""
            ws = shares.get(kind, by_energy)
            model = {**model, name: sum(w * t[name] for w, t in zip(ws, trained, strict=True))}
    return model


@pytest.mark.parametrize("at_once", [1, "all"])
def test_it_is_fedspa_by_numbers(at_once: Any) -> None:
    train = fgl.Training(partial(torch.optim.SGD, lr=LR), num_steps=2)
    method = fedspa(fgl.fedavg(net(), train=train), feature_share=1.0)
    result = fgl.run(method, CLIENTS, num_rounds=2, clients_at_once=at_once)
    close(result.outbox[0]["model"], twin(2), atol=1e-12)
    moved = [n for n, v in net().named_parameters() if v.equal(result.outbox[0]["model"][n])]
    assert not moved, "every tensor is trained"


def test_a_share_of_the_features_is_drawn_once() -> None:
    own = CLIENTS[0]
    close(feature_energy(own), torch.tensor(energy(own), dtype=torch.float64), atol=1e-12)
    each = [float(feature_energy(own.replace(x=own.x[:, [f]]))) for f in range(6)]  # type: ignore[index]
    drawn = {float(feature_energy(own, share=0.2)) for _ in range(20)}
    assert all(any(math.isclose(one, other) for other in each) for one in drawn)
    assert len(drawn) > 1
    method = fedspa(fgl.fedavg(net()))
    result = fgl.run(method, CLIENTS, num_rounds=1)
    again = fgl.run(method, CLIENTS, num_rounds=3)
    for client, state in result.client_states.items():
        assert state["energy"].equal(again.client_states[client]["energy"])


def test_a_node_whose_label_is_unknown_has_unknown_neighbours_alone() -> None:
    own, model = CLIENTS[2], net()
    params = dict(model.named_parameters())
    told = own.replace(y=torch.where(own.train_mask, own.y, (own.y + 1) % 3))  # type: ignore[operator, arg-type]
    close(fgl.predict(model, params, told), fgl.predict(model, params, own), atol=0)
    changed = own.replace(y=(own.y + (torch.arange(13) % 2)) % 3)  # type: ignore[operator]
    assert not fgl.predict(model, params, changed).equal(fgl.predict(model, params, own))
    silent = own.replace(train_mask=torch.zeros_like(own.train_mask))
    close(fgl.predict(model, params, silent), model(own.x, own.adj), atol=0)


def test_a_client_without_examples_has_no_weight() -> None:
    """Without edges it would be the smoothest."""
    whole = fgl.data.splits.split(fgl.data.load("synthetic"), "random")
    few = fgl.data.partitions.partition_graph(
        whole, [torch.arange(300), torch.zeros(0, dtype=torch.int64)]
    )
    torch.manual_seed(0)
    plain = fgl.fedavg(fgl.nn.SPA(whole.num_features, 4, whole.num_classes, dropout=0.0))
    method = fgl.methods.fedspa(plain)
    both = fgl.run(method, few, num_rounds=1, clients_at_once=1).model.state_dict()
    alone = fgl.run(method, few[:1], num_rounds=1, clients_at_once=1).model.state_dict()
    for name, value in alone.items():
        torch.testing.assert_close(both[name], value)


def test_what_it_refuses() -> None:
    with pytest.raises(ValueError, match=r"alike and unlike neighbours, .* but got GCN"):
        fedspa(fgl.fedavg(fgl.nn.GCN(4, 8, 2)))
    method = fedspa(fgl.fedavg(net()))
    params, context = method.receive({"model": method.initial()}, {}, CLIENTS[0])
    good, _ = method.send(params, context, {}, CLIENTS[0])
    method.accept(good, 0, {})
    squares = good["fisher"]
    name = next(iter(squares))
    for bad, words in (
        ({**good, "energy": good["energy"] - 100}, "energy to be a number, at least 0"),
        ({**good, "fisher": {}}, "fisher to have the shapes"),
        ({**good, "fisher": {**squares, name: -squares[name] - 1}}, f"{name} to be squares"),
    ):
        with pytest.raises(ValueError, match=words):
            method.accept(bad, 0, {})
    collection = fgl.Graph(CLIENTS[0].x, CLIENTS[0].edge_index, batch=torch.zeros(11).long())
    refuses("examples to be nodes", lambda: fgl.predict(net(), params, collection))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_two_clients_weigh_alike_however_their_distances_are_rounded(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    for size in (3, 30, 300):
        squares = {"a.alike_low": torch.rand(2, size, generator=generator, dtype=dtype)}
        weight = shares(distances(squares, ".alike_"))
        assert weight.tolist() == [0.5, 0.5]
    far = torch.tensor([1.0, 1.001], dtype=dtype)  # a difference that is none of rounding counts
    assert shares(far)[0] > 0.7
