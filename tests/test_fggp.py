"""FGGP: the authors' round in loops with given noise, the terms of its loss, and its clusters."""

import sys
from typing import Any

import pytest
import torch
from by_loops import (
    apart,
    clients,
    cosine,
    forward,
    label,
    mean,
    plain,
    sgd,
    supervised,
    train_nodes,
)
from federations import CLASSES
from torch import Tensor, nn

import fgl
from fgl.client_network import finch
from fgl.methods import fggp
from fgl.methods.fggp import by_prototypes, clustered, drawn

NEAR, EVERY, RATE = 2, 2, 0.3  # at .1 the nearest nodes stay the same, at .2 some tie
ONE = torch.ones((), dtype=torch.float64)


def noise(like: Tensor) -> Tensor:
    """The same for every matrix of a size, in (0, 1)."""
    steps = torch.arange(like.numel(), dtype=like.dtype).view_as(like)
    return 0.5 + 0.49 * (steps * 1.7).sin()


@pytest.fixture(autouse=True)
def given_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["fgl.methods.fggp"], "uniform_noise", noise)


def union(params: Any, own: fgl.Graph) -> Tensor:
    """The authors' ``adj_orig``: edges, each node's nearest others, and itself."""
    _, hidden = forward(params, own)
    n, rows = own.num_nodes, hidden.relu().detach()
    made = torch.zeros(n, n, dtype=torch.float64)
    for source, target in own.edge_index.T.tolist():
        made[source, target] = 1
    for v in range(n):
        others = sorted((u for u in range(n) if u != v), key=lambda u: -float(cosine(rows[v], rows[u])))  # fmt: skip # noqa: E501
        made[v, v] = 1
        for u in others[:NEAR]:
            made[v, u] = 1
    return made


def sampled(p: Any, own: fgl.Graph, a: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of all pairs, and the drawn operator."""
    n, x = own.num_nodes, own.x
    degree = a.sum(1)
    scaled = a / (degree[:, None] * degree).sqrt()
    hidden: Any = scaled @ (x @ p["augmentor.0"].T)  # type: ignore[operator]
    hidden = (scaled @ (hidden @ p["augmentor.1"].T)).clamp(min=0)
    logits = hidden @ hidden.T
    drawn_edges = torch.eye(n, dtype=torch.float64)
    eps, uniform = torch.finfo(torch.float64).eps, noise(logits)
    highest = logits.max()
    for v in range(n):
        for u in range(v + 1, n):
            share = 0.5 * logits[v, u] / (highest + 1e-6) + 0.5 * a[v, u]
            share = share.clamp(eps, 1 - eps)
            q = uniform[v, u]
            soft = torch.sigmoid((q / (1 - q)).log() + (share / (1 - share)).log())
            edge = soft.detach().round() + soft - soft.detach()
            index = torch.tensor([v, u]), torch.tensor([u, v])
            drawn_edges = drawn_edges.index_put(index, edge.expand(2))
    total = drawn_edges.sum(1)
    return logits, drawn_edges / (total[:, None] * total).sqrt()


def terms(p: Any, own: fgl.Graph, a: Tensor) -> dict[str, Tensor]:
    n, x = own.num_nodes, own.x
    out, hidden = forward(p, own)
    logits, s = sampled(p, own, a)
    other: Any = (s @ (x @ p["convs.0.lin.weight"].T) + p["convs.0.bias"]).relu()  # type: ignore[operator]
    arriving = a.sum(0)
    last = a.T / (arriving[:, None] * arriving).sqrt()
    out2 = last @ (other @ p["convs.1.lin.weight"].T) + p["convs.1.bias"]
    train = train_nodes(own)
    second = torch.stack([out2[v].logsumexp(0) - out2[v, label(own, v)] for v in train]).mean()
    edges = float(a.sum())
    weight = (n * n - edges) / edges
    entropy = weight * a * nn.functional.softplus(-logits) + (1 - a) * nn.functional.softplus(
        logits
    )
    bce = n * n / (2 * (n * n - edges)) * entropy.mean()
    sums: Any = [{}, {}]
    for v in range(n):
        probability = out[v].softmax(0)
        c, sure = (
            (label(own, v), ONE) if v in train else (int(probability.argmax()), probability.max())
        )
        for total, rows in zip(sums, (other, hidden.relu()), strict=True):
            before = total.get(c, (0, 0))
            total[c] = before[0] + sure * rows[v], before[1] + sure
    one, two = ({c: up / (down + 1e-6) for c, (up, down) in total.items()} for total in sums)
    each = []
    for c in one:
        positive = cosine(one[c], two[c]) / 0.5
        negative = [cosine(one[c], one[k]) / 0.5 for k in one if k != c]
        negative += [cosine(one[c], two[k]) / 0.5 for k in one if k != c]
        each.append(torch.stack([positive, *negative]).logsumexp(0) - positive)
    align = torch.stack(each).mean()
    return {"one": supervised(p, own), "two": second, "edges": bce, "align": align}


def start() -> Any:
    base = plain(lr=RATE, steps=2)
    return base, {**base.initial(), **drawn(base)}


def test_rounds_are_the_authors() -> None:
    base, both = start()
    own = clients((6, 8))
    counts, views = [float(len(train_nodes(g))) for g in own], []
    for index in range(3):
        if index % EVERY == 0:
            views = [union(both, g) for g in own]
        sent = [
            sgd(lambda p, g=g, a=a: sum(terms(p, g, a).values(), 0 * ONE), both, RATE, 2)  # type: ignore[misc]
            for g, a in zip(own, views, strict=True)
        ]
        both = mean(sent, counts)
    method = fggp(base, neighbours=NEAR, every=EVERY)
    result = fgl.run(method, own, num_rounds=3, clients_at_once=1)
    got: Any = {**result.outbox[0]["model"], **result.outbox[0]["augmentor"]}  # type: ignore[dict-item]
    assert apart(got, both) < 1e-12


def loops(rows: Tensor) -> list[int]:
    """FINCH as its authors run it: join, average, join again, while it gets coarser."""

    def joined(points: list[Tensor]) -> list[int]:
        n = len(points)
        near = []
        for v in range(n):
            far = [-2.0 if u == v else float(cosine(points[v], points[u])) for u in range(n)]
            near.append(far.index(max(far)))
        group = list(range(n))
        for _ in range(n):
            for v in range(n):
                low = min(group[v], group[near[v]])
                group[v] = group[near[v]] = low
        names = sorted(set(group))
        return [names.index(g) for g in group]

    found = joined(list(rows))
    while max(found) > 0:
        size = max(found) + 1
        centres = [torch.stack([r for r, f in zip(rows, found, strict=True) if f == c]).mean(0)
                   for c in range(size)]  # fmt: skip
        coarser = [joined(centres)[f] for f in found]
        left = max(coarser) + 1
        if left == 1 or left == size:
            break
        found = coarser
        if size - left == 1:
            break
    return found


@pytest.mark.parametrize("n", [1, 2, 5, 12, 40])
def test_clusters_are_finchs(n: int) -> None:
    rows = torch.randn(n, 3, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    want = loops(rows)
    got = finch(rows).tolist()
    same = [[a == b for b in want] for a in want]
    assert [[a == b for b in got] for a in got] == same


def test_prototypes_of_other_domains_stay_apart_and_predict() -> None:
    rows = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.1], [0.0, 0.0]],
                         [[0.0, 1.0], [0.0, 0.0]], [[0.1, 1.0], [-1.0, 0.0]]])  # fmt: skip
    has = torch.tensor([[True, False]] * 3 + [[True, True]])
    centres, there = clustered(rows, has, 4)
    assert there.sum(1).tolist() == [2, 1]
    torch.testing.assert_close(
        centres[0, :2].sort(0).values, torch.tensor([[0.05, 0.05], [1.0, 1.0]])
    )
    seen = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.1]])
    assert by_prototypes(seen, centres, there).argmax(1).tolist() == [0, 0, 1]


def test_another_network_is_refused() -> None:
    net = fgl.nn.SAGE(4, 8, CLASSES)
    with pytest.raises(TypeError, match="a fgl.nn.GCN that normalises .* but got SAGE"):
        fggp(fgl.fedavg(net))


def test_a_preset_has_the_network_that_it_needs() -> None:
    for name in ("fggp", "fedgm"):
        for kind in (fgl.tasks.Nodes, fgl.tasks.SubgraphNodes):
            assert fgl.tasks.preset(name, kind).model == "gcn"


def test_a_client_without_nodes_is_refused() -> None:
    none = fgl.Graph(torch.ones(0, 6), torch.zeros(2, 0, dtype=torch.int64), num_classes=CLASSES)
    made = fggp(fgl.fedavg(fgl.nn.GCN(6, 4, CLASSES)))
    with pytest.raises(ValueError, match="clients to have nodes, but got none"):
        made.receive({"model": made.initial()}, {}, none)
