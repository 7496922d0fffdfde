"""S2FGL beside a small implementation of its own, by numbers."""

import importlib
from functools import cache, partial
from typing import Any

import pytest
import torch
from by_loops import sgd
from federations import close, double, graph, receive_as_a_run, refuses, seeded
from torch import Tensor

import fgl
from fgl.methods import s2fgl

MODULE: Any = importlib.import_module("fgl.methods.s2fgl")
LR, KNOWLEDGE, ALIGNMENT, FREQUENCIES, NEIGHBOURS, RESTART = 0.2, 5.0, 2.0, 2, 2, 0.6
# Where a third of the nodes trains, only these are among the first third.
CLIENTS = double([graph(31, train=0.2), graph(18), graph(40, train=0.15)])


def net() -> Any:
    torch.manual_seed(0)
    return fgl.nn.GCN(6, 5, 3).double()


def forward(p: Any, own: fgl.Graph) -> tuple[Tensor, Tensor]:
    n = own.num_nodes
    a = torch.eye(n).double()
    for s, t in own.edge_index.T.tolist():
        a[t, s] = 1
    scale = a.sum(1).rsqrt()
    a = scale[:, None] * a * scale
    h = a @ (own.x @ p["convs.0.lin.weight"].T) + p["convs.0.bias"]  # type: ignore[operator]
    return a @ (h.clamp(min=0) @ p["convs.1.lin.weight"].T) + p["convs.1.bias"], h


def cos(x: Tensor, y: Tensor) -> Tensor:
    size = x.norm() * y.norm()
    return x @ y / size if size > 0 else 0 * (x @ y)


def order(own: fgl.Graph) -> list[int]:
    n = own.num_nodes
    a = torch.zeros(n, n).double()
    for s, t in own.edge_index.T.tolist():
        a[s, t] = 1
    walk = torch.diag(1 / (a.sum(1) + 1e-6)) @ a
    p = torch.eye(n).double()
    power = torch.eye(n).double()
    for _ in range(200):  # the series of the inverse
        power = (1 - RESTART) * power @ walk
        p = p + power
    labelled = own.train_mask.nonzero()[:, 0].tolist()  # type: ignore[union-attr]
    score = [max(p[i, labelled]) + RESTART * sum(p[i, labelled]) for i in range(n)]
    return sorted(range(n), key=lambda i: (-round(float(score[i]), 10), i))


def vectors(x: Tensor) -> list[Tensor]:
    """The first and the last eigenvectors."""
    x = x.detach()
    n = len(x)
    weight = torch.zeros(n, n).double()
    for i in range(n):
        row = [float(cos(x[i], x[j])) for j in range(n)]
        for j in sorted(range(n), key=lambda j: -row[j])[: NEIGHBOURS + 1]:
            weight[i, j] = row[j]
    weight = (weight + weight.T) / 2
    laplacian = torch.diag(weight.sum(1) + 1e-6 * torch.arange(n).double() / n) - weight
    found = torch.linalg.eigh(laplacian)[1].T
    ends = [*range(min(FREQUENCIES, n)), *range(n - 1, max(n - FREQUENCIES, 0) - 1, -1)]
    return [found[i] for i in ends]


def terms(h: Tensor, g: Tensor, book: Tensor, focus: list[int]) -> Tensor:
    told: Any = 0
    for i in range(len(h)):
        p, q = (torch.stack([cos(e[i], c) for c in book]).exp() for e in (g, h))
        p, q = p / p.sum(), q / q.sum()
        told = told + (p * (p / q).log()).sum()
    total: Any = KNOWLEDGE * told / len(h)
    pairs = zip(vectors(h[focus]), vectors(g[focus]), strict=True)
    for v, u in pairs:
        left, right = torch.outer(v, v) @ h[focus], torch.outer(u, u) @ g[focus]
        total = total + ALIGNMENT * ((left - right) ** 2).mean()
    return total  # type: ignore[no-any-return]


def fit(params: Any, own: fgl.Graph, g: Tensor, book: Any, focus: Any) -> Tensor:
    out, h = forward(params, own)
    mask: Any = own.train_mask
    loss = torch.nn.functional.cross_entropy(out[mask], own.y[mask])  # type: ignore[index]
    return loss if book is None else loss + terms(h, g, book, focus)


@cache
def twin(rounds: int, leak: bool) -> tuple[dict[str, Tensor], Any]:
    """The server's model and its book after some rounds, every client in every book."""
    model = {name: value.detach().clone() for name, value in net().state_dict().items()}
    book: Any = None
    for _ in range(rounds):
        trained, rows = [], {}
        for own in CLIENTS:
            ranking = order(own)
            g = forward(model, own)[1]
            focus = ranking[: len(ranking) // 5]
            params = sgd(partial(fit, own=own, g=g, book=book, focus=focus), model, LR, 2)
            trained.append(params)
            h = forward(params, own)[1]
            for i in ranking[: len(ranking) // 3]:
                if leak or own.train_mask[i]:  # type: ignore[index]
                    rows.setdefault(int(own.y[i]), []).append(h[i])  # type: ignore[index]
        sizes = [int(own.train_mask.sum()) for own in CLIENTS]  # type: ignore[union-attr]
        for name in model:
            parts = [s / sum(sizes) * t[name] for s, t in zip(sizes, trained, strict=True)]
            model = {**model, name: sum(parts)}  # type: ignore[dict-item]
        none = [torch.zeros(5).double()]
        mean = torch.stack([torch.stack(rows.get(c, none)).mean(0) for c in range(3)])
        book = torch.cat([mean, mean])
    return model, book


@pytest.mark.parametrize("at_once", [1, "all"])
def test_it_is_s2fgl_by_numbers(at_once: Any) -> None:
    train = fgl.Training(partial(torch.optim.SGD, lr=LR), num_steps=2)
    method = s2fgl(
        fgl.fedavg(net(), train=train), knowledge=KNOWLEDGE, alignment=ALIGNMENT,
        frequencies=FREQUENCIES, neighbours=NEIGHBOURS, books=2, book_share=1.0, restart=RESTART,
    )  # fmt: skip
    result = fgl.run(method, CLIENTS, num_rounds=2, clients_at_once=at_once)
    model, book = twin(2, leak=False)
    close(result.outbox[0]["model"], model, atol=1e-12)
    close(result.outbox[0]["books"].flatten(0, 1), book, atol=1e-12)
    assert not twin(2, leak=True)[1].equal(book)


def test_counts_are_of_the_first_third_of_the_nodes() -> None:
    method = s2fgl(fgl.fedavg(net()), restart=RESTART)
    for own in CLIENTS:
        start = {"model": method.initial()}
        params, context = receive_as_a_run(method, start, {}, own)
        upload, _ = method.send(params, context, {}, own)
        near = [i for i in order(own)[: own.num_nodes // 3] if own.train_mask[i]]  # type: ignore[index]
        want = [sum(int(own.y[i]) == c for i in near) for c in range(3)]  # type: ignore[index]
        assert upload["counts"].tolist() == want  # type: ignore[union-attr]


def test_padding_is_in_no_projection() -> None:
    h, g = torch.randn(2, 9, 5, generator=seeded()).double()
    mask = torch.arange(9) < 7
    found = MODULE.by_frequency(h, g, mask, frequencies=FREQUENCIES, neighbours=NEIGHBOURS)
    pairs = [torch.stack([torch.outer(v, v) @ x for v in vectors(x)]) for x in (h[:7], g[:7])]
    close(found, (pairs[0] - pairs[1]).square().mean((1, 2)).sum(), atol=1e-12)
    alone = MODULE.eigenvectors(h[:7], mask[:7], NEIGHBOURS)
    close(MODULE.eigenvectors(h, mask, NEIGHBOURS)[:7, :7].abs(), alone.abs(), atol=1e-8)


def test_ranks_are_those_of_double_precision() -> None:
    own = graph(90, train=0.3)
    assert MODULE.ranked(own, restart=RESTART).tolist() == order(own)


def test_no_node_has_no_rank() -> None:
    nobody = fgl.Graph(torch.zeros(0, 2), torch.zeros(2, 0, dtype=torch.int64))
    assert MODULE.ranked(nobody).tolist() == []


def test_parts_of_a_graph_have_their_eigenvectors_in_order() -> None:
    """Of an eigenvalue that several parts share any basis would do: the ramp decides."""
    x = torch.zeros(6, 3).double()
    for i in range(6):
        x[i, i // 2] = 1.0 + i
    found = MODULE.eigenvectors(x, torch.ones(6, dtype=torch.bool), 1)[:, :3].abs()
    parts = torch.zeros(6, 3).double()
    for i in range(6):
        parts[i, i // 2] = 0.5**0.5
    close(found, parts, atol=1e-5)


def test_what_it_refuses() -> None:
    refuses("book_share", lambda: s2fgl(fgl.fedavg(net()), book_share=0.0))
    refuses("return_embedding", lambda: s2fgl(fgl.fedavg(torch.nn.Linear(1, 1))), TypeError)
    method = s2fgl(fgl.fedavg(net()))
    own = double([graph(20)])[0]
    params, context = method.receive({"model": method.initial()}, {}, own)
    good, _ = method.send(params, context, {}, own)
    method.accept(good, 0, {})
    for bad in ({**good, "counts": good["counts"] - 9}, {**good, "counts": good["counts"][:1]}):
        with pytest.raises(ValueError, match="each count|counts to be"):
            method.accept(bad, 0, {})
