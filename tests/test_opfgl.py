"""O-pFGL beside a small implementation of its own, by numbers: the run, and each of its terms."""

import importlib
import math
from functools import partial
from typing import Any

import pytest
import torch
from by_loops import adjacency, biased
from federations import close, double, graphs, refuses, sending
from torch import Tensor

import fgl
from fgl.methods import opfgl
from fgl.transforms import secure_sum

SURROGATE: Any = importlib.import_module("fgl.methods.surrogate")
CLIENTS = double(graphs((12, 16, 14)))
C, D, HOPS, PER, LR = 3, 6, 2, 2, 0.05
HOW: dict[str, Any] = {
    **{"propagations": HOPS, "expand": 2, "sure": 0.6, "min_degree": 3, "label_steps": 3},
    **{"label_share": 0.8, "nodes_per_class": PER, "condense_steps": 9, "feature_lr": 0.03},
    **{"edge_lr": 0.01, "condense_width": 4, "alignment": 3.0, "smoothness": 0.7},
    **{"fit_steps": 3, "fit_lr": LR, "distil": 0.9, "distil_least": 0.2, "distil_most": 0.5},
}


def method(**options: Any) -> fgl.Method:
    train = fgl.Training(partial(torch.optim.Adam, lr=LR), num_steps=2)
    return opfgl(fgl.fedavg(biased(), train=train), **{**HOW, **options})


def first_features(number: int, width: int) -> Tensor:
    torch.manual_seed(7)
    return torch.randn(number, width)


def first_edges(width: int, hidden: int) -> fgl.nn.pair_weights.PairWeights:
    torch.manual_seed(8)
    return fgl.nn.pair_weights.PairWeights(width, hidden, parts=1)


@pytest.fixture
def same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SURROGATE.TURNS == (10, 40)
    monkeypatch.setattr(SURROGATE, "TURNS", (2, 5))
    monkeypatch.setattr(SURROGATE, "first_features", first_features)
    monkeypatch.setattr(SURROGATE, "PairWeights", lambda *sizes, parts: first_edges(*sizes))


# A client's, in loops


def neighbours(own: fgl.Graph) -> list[list[int]]:
    near: list[list[int]] = [[] for _ in range(own.num_nodes)]
    for a, b in own.edge_index.T.tolist():
        near[b].append(a)
    return near


def labels_of(own: fgl.Graph) -> dict[int, int]:
    return {i: int(own.y[i]) for i in range(own.num_nodes) if own.train_mask[i]}  # type: ignore[index]


def spread(own: fgl.Graph) -> list[list[float]]:
    near, known = neighbours(own), labels_of(own)
    first = [[float(known.get(i) == c) for c in range(C)] for i in range(own.num_nodes)]
    now, share = first, HOW["label_share"]
    for _ in range(HOW["label_steps"]):
        then = []
        for i, row in enumerate(first):
            arrived = [
                sum(now[j][c] / math.sqrt(len(near[i]) * len(near[j])) for j in near[i])
                for c in range(C)
            ]
            mixed = [share * a + (1 - share) * f for a, f in zip(arrived, row, strict=True)]
            then.append([min(max(value, 0.0), 1.0) for value in mixed])
        now = then
    return [row if sum(row) else [1 / C] * C for row in now]


def remembered(own: fgl.Graph) -> list[float]:
    near, known = neighbours(own), labels_of(own)
    homophily = [0.0] * C
    for i, label in known.items():
        met = [known[j] for j in near[i] if j in known]
        homophily[label] += met.count(label) / len(met) if met else 0.0
    return [1 / (1 + math.log(h + 1)) for h in homophily]


def gamma(own: fgl.Graph) -> Tensor:
    of_class = remembered(own)
    raw = [
        HOW["distil"] * sum(f * w for f, w in zip(row, of_class, strict=True))
        for row in spread(own)
    ]
    return torch.tensor([min(max(g, 0.2), 0.5) for g in raw], dtype=torch.float64)


def more_labels(own: fgl.Graph) -> dict[int, int]:
    near, of_class, found = neighbours(own), remembered(own), labels_of(own)
    chosen = sorted(range(C), key=lambda c: of_class[c])[: HOW["expand"]]
    for i, row in enumerate(spread(own)):
        best = max(range(C), key=lambda c: row[c])
        sure = row[best] / sum(row) >= HOW["sure"]
        if i not in found and sure and best in chosen and len(near[i]) >= HOW["min_degree"]:
            found[i] = best
    return found


def hops(operator: Tensor, x: Tensor) -> Tensor:
    rows = [x]
    for _ in range(HOPS):
        rows.append(operator @ rows[-1])
    return torch.cat(rows, 1)


def normal(weights: Tensor) -> Tensor:
    whole = weights + torch.eye(len(weights)).double()
    return whole / (whole.sum(1)[:, None] * whole.sum(1)).sqrt()


# The server's, as the public code has it: of means and deviations


def statistics() -> list[tuple[int, Tensor, Tensor]]:
    """Each class's number, mean and pooled deviation."""
    found = []
    for c in range(C):
        told = []
        for own in CLIENTS:
            nodes = [i for i, label in more_labels(own).items() if label == c]
            if len(nodes) > 1:
                rows = hops(normal(adjacency(own)), own.x)[nodes]  # type: ignore[arg-type]
                told.append((len(nodes), rows.mean(0), rows.std(0)))
        n = sum(each[0] for each in told)
        mean: Any = sum(k * m for k, m, _ in told) / n
        spread_: Any = sum((k - 1) * s**2 + k * (m - mean) ** 2 for k, m, s in told)
        found.append((n, mean, (spread_ / (n - len(told))).sqrt()))
    return found


def edge_weights(edges: dict[str, Tensor], x: Tensor) -> Tensor:
    n = len(x)
    rows = torch.stack([torch.cat([x[i], x[j]]) for i in range(n) for j in range(n)])
    for depth in range(2):
        rows = rows @ edges[f"lins.{depth}.weight"].T + edges[f"lins.{depth}.bias"]
        rows = (rows - rows.mean(0)) / (rows.var(0, correction=0) + 1e-5).sqrt()
        rows = (rows * edges["scale"][depth] + edges["shift"][depth]).relu()
    raw = (rows @ edges["lins.2.weight"].T + edges["lins.2.bias"]).view(n, n)
    weights = ((raw + raw.T) / 2).sigmoid() * (1 - torch.eye(n).double())
    return weights * (weights >= 0.01)


def made_graph(aim: list[tuple[int, Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    x = first_features(C * PER, D).double().requires_grad_()
    drawn = first_edges(D, HOW["condense_width"]).double()
    edges = {name: p.detach().clone().requires_grad_() for name, p in drawn.named_parameters()}
    adams = [
        torch.optim.Adam(list(edges.values()), lr=HOW["edge_lr"]),
        torch.optim.Adam([x], lr=HOW["feature_lr"]),
    ]
    total = sum(n for n, _, _ in aim)
    for step in range(HOW["condense_steps"]):
        weights = edge_weights(edges, x)
        rows, n = hops(normal(weights), x), C * PER
        smooth: Any = sum(
            weights[i, j] * (-0.5 * (x[i] - x[j]) ** 2).exp().mean()
            for i in range(n) for j in range(n)
        )  # fmt: skip
        loss: Any = HOW["smoothness"] * smooth / weights.sum()
        for c, (number, mean, deviation) in enumerate(aim):
            own = rows[c * PER : (c + 1) * PER]
            far = ((own.mean(0) - mean) ** 2).mean() + ((own.std(0) - deviation) ** 2).mean()
            loss = loss + HOW["alignment"] * number / total * far
        for adam in adams:
            adam.zero_grad()
        loss.backward()
        adams[0 if step % 7 < 2 else 1].step()
    return x.detach(), edge_weights(edges, x).detach()


def logits(params: Any, x: Tensor, weights: Tensor) -> Tensor:
    operator = normal(weights)
    h = (operator @ x @ params["convs.0.lin.weight"].T + params["convs.0.bias"]).relu()
    return operator @ h @ params["convs.1.lin.weight"].T + params["convs.1.bias"]


def leaves(params: Any) -> dict[str, Tensor]:
    return {name: value.detach().clone().requires_grad_() for name, value in params.items()}


def global_model() -> tuple[dict[str, Tensor], list[Any]]:
    aim = statistics()
    x, weights = made_graph(aim)
    params = leaves(biased().state_dict())
    adam = torch.optim.Adam(list(params.values()), lr=LR)
    for _ in range(HOW["fit_steps"]):
        out = logits(params, x, weights).log_softmax(1)
        loss: Any = sum(-out[i, i // PER] for i in range(C * PER)) / (C * PER)
        adam.zero_grad()
        loss.backward()
        adam.step()
    return params, aim


def kl(own: fgl.Graph, taught: Tensor, out: Tensor, weight: Tensor) -> Any:
    p, q = taught.softmax(1), out.softmax(1)
    each = [
        weight[i] * sum(p[i, c] * (p[i, c].log() - q[i, c].log()) for c in range(C))
        for i in range(own.num_nodes)
    ]
    return sum(each) / own.num_nodes


def personal(own: fgl.Graph, start: dict[str, Tensor], steps: int) -> dict[str, Tensor]:
    params, x, weights, known = leaves(start), own.x, adjacency(own), labels_of(own)
    taught = logits(start, x, weights).detach()  # type: ignore[arg-type]
    adam = torch.optim.Adam(list(params.values()), lr=LR)
    for _ in range(steps):
        out = logits(params, x, weights)  # type: ignore[arg-type]
        fit: Any = sum(-out.log_softmax(1)[i, c] for i, c in known.items()) / len(known)
        adam.zero_grad()
        (fit + kl(own, taught, out, gamma(own))).backward()
        adam.step()
    return params


def test_it_is_opfgl_by_numbers(same_draws: None) -> None:
    """The whole run in double: the sums, the server's graph and model, two rounds alone."""
    assert any(len(more_labels(own)) > len(labels_of(own)) for own in CLIENTS)
    result = fgl.run(method(), CLIENTS, num_rounds=3)
    start, aim = global_model()
    found: Any = result.server_state["moments"]
    number = torch.tensor([n for n, _, _ in aim]).double()
    close(found["share"], number / number.sum(), atol=1e-12)
    close(found["mean"], torch.stack([mean for _, mean, _ in aim]), atol=1e-12)
    close(found["deviation"], torch.stack([each for _, _, each in aim]), atol=1e-12)
    close(result.server_state["model"], start, atol=1e-12)
    for client, own in enumerate(CLIENTS):
        close(result.client_states[client]["model"], personal(own, start, 4), atol=1e-12)
        close(result.client_states[client]["teacher"], start, atol=1e-12)
    (sent, *rest) = result.history
    assert [record.bytes_up for record in rest] == [0, 0]
    assert [record.bytes_down for record in rest] == [sent.bytes_down + len(CLIENTS), 0]


# What stands around it


def test_two_nodes_of_a_class_can_be_read_from_its_sums() -> None:
    rows, labels = torch.tensor([[1.0, 7.0], [4.0, 5.0], [9.0, 9.0]]), torch.tensor([0, 0, 1])
    sums = SURROGATE.class_sums(rows, labels, 2)
    half = (sums["square"][0] / 2 - (sums["total"][0] / 2).square()).sqrt()
    close(sums["total"][0] / 2 - half, torch.tensor([1.0, 5.0]))  # the smaller of the two values
    close(sums["total"][0] / 2 + half, torch.tensor([4.0, 7.0]))
    assert not any(value[1].any() for value in sums.values())  # of one node nothing is sent


def test_what_it_refuses() -> None:
    made = method()
    whole = fgl.Graph.join(*fgl.data.small_graphs(6))
    with pytest.raises(ValueError, match="hold one graph, but got a collection"):
        made.receive({"model": made.initial()}, {}, whole)
    refuses("distil_most", lambda: method(distil_least=0.3, distil_most=0.2))
    params, context = made.receive({"model": made.initial()}, {}, CLIENTS[0])
    upload, _ = made.send(params, context, {}, CLIENTS[0])
    made.accept(upload, 0, {})
    sums: Any = upload["sums"]
    wrong = {"count": -sums["count"], "clients": 2 + sums["clients"], "square": -sums["square"]}
    for name, value in wrong.items():
        with pytest.raises(ValueError, match="Expected sums of "):
            made.accept({**upload, "sums": {**sums, name: value}}, 0, {})
    with pytest.raises(ValueError, match=r"\[C\], \[C\]"):
        made.accept({**upload, "sums": {**sums, "total": sums["total"][:2]}}, 0, {})
    refuses("extra", lambda: made.accept(upload, 0, {"fitted": torch.tensor(True)}))


def test_sums_of_another_layout_do_not_count() -> None:
    told = {k: {"of": {"n": torch.ones(1 + (k == 1))}} for k in range(3)}
    heard: list[Any] = []

    def serve(sums: Any, num_clients: int, state: Any) -> Any:
        heard.append((sums["n"].tolist(), num_clients))
        return {}, state

    server = fgl.federation.OfSums("of", serve)
    with pytest.warns(UserWarning, match=r"Clients \[1\] sent .* of another layout"):
        server(fgl.federation.Inbox(told, 4), {})
    assert heard == [([2.0], 4)]
    assert server(fgl.federation.Inbox({2: {}}, 4), {}) == ({2: {}}, {})


# What an attack found


def lying(**sums: Any) -> fgl.Method:
    """O-pFGL whose first client says other sums."""

    def lie(message: Any, own: fgl.Graph) -> Any:
        if own is not CLIENTS[0] or "sums" not in message:
            return message
        made = {name: change(message["sums"]) for name, change in sums.items()}
        return {**message, "sums": {**message["sums"], **made}}

    return sending(method(expand=0), lie)


@pytest.mark.few
@pytest.mark.parametrize("lie", [
    {"count": lambda sums: sums["count"] * 0, "clients": lambda sums: sums["clients"] * 0},
    {"total": lambda sums: sums["total"] * 100},
    {"clients": lambda sums: sums["clients"] * 0 + 1, "count": lambda sums: sums["count"] * 0},
    {name: lambda sums, name=name: sums[name].long() for name in SURROGATE.SUMS},
    {"count": lambda sums: -sums["count"]},
])  # fmt: skip
def test_impossible_sums_are_dropped(lie: Any) -> None:
    with pytest.warns(UserWarning, match="Round 0, client 0: Expected sums"):
        history = fgl.run(lying(**lie), CLIENTS, num_rounds=1).history
    assert list(history[0].dropped) == [0]


def test_impossible_sums_under_a_secure_sum_are_left_out_aloud() -> None:
    four = [*CLIENTS, double(graphs((18,)))[0]]
    made = secure_sum(lying(count=lambda sums: -50 - sums["count"]), threshold=3)
    with pytest.warns(UserWarning, match="Expected sums that 4 clients can have, but got"):
        result = fgl.run(made, four, num_rounds=4)
    assert "fitted" not in result.server_state


def test_a_sampled_step_that_holds_all_nodes_is_refused() -> None:
    def own(data: fgl.Graph, context: Any) -> Any:
        nodes = torch.arange(data.num_nodes).flip(0)
        return [(data.subgraph(nodes), context)]

    train = fgl.Training(partial(torch.optim.Adam, lr=LR), batches=own)
    made = opfgl(fgl.fedavg(biased(), train=train), **HOW)
    with pytest.raises(ValueError, match="to see all nodes, but got sampled ones"):
        fgl.run(made, CLIENTS, num_rounds=2, strict=True)


def test_a_class_of_one_node_has_its_mean_and_one_of_none_has_zeros() -> None:
    from fgl.methods.surrogate import moments

    sums = {
        "count": torch.tensor([0.0, 1.0, 3.0]),
        "clients": torch.tensor([0.0, 1.0, 1.0]),
        "total": torch.tensor([[9.0], [5.0], [6.0]]),
        "square": torch.tensor([[9.0], [25.0], [14.0]]),
    }
    found = moments(sums)
    assert found.mean.tolist() == [[0.0], [5.0], [2.0]]  # of 1, 2 and 3
    assert found.deviation.tolist() == [[0.0], [0.0], [1.0]]
    assert found.share.tolist() == [0.0, 0.25, 0.75]


def test_sums_are_those_that_one_client_can_have() -> None:
    from fgl.methods.surrogate import check_sums, what_lacks

    two = torch.tensor([2.0, 0.0])
    right = {
        "count": two,
        "clients": torch.tensor([1.0, 0.0]),
        "total": torch.tensor([[3.0], [0.0]]),
        "square": torch.tensor([[5.0], [0.0]]),  # of 1 and 2
    }
    check_sums(right, 2.0)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"total": right["total"].long()}, "floats"),
        ({"total": torch.zeros(2)}, r"\[C, D\]"),
        ({"total": torch.zeros(2, 0), "square": torch.zeros(2, 0)}, r"\[C, D\]"),
        ({"count": two + 1}, "one client, over 2 to 2"),
        ({"clients": two}, "one client"),
        ({"count": -two, "clients": 0 * two}, "impossible"),
        ({"square": torch.tensor([[4.4], [0.0]])}, "impossible"),  # below 3 * 3 / 2
    ]
    for changed, words in wrong:
        with pytest.raises(ValueError, match=words):
            check_sums({**right, **changed}, 2.0)
    assert what_lacks(right, 1) == "" and "1 clients" in what_lacks(right, 0)
    assert "two labelled nodes" in what_lacks({**right, "count": 0 * two}, 3)
    assert "-1 at least" in what_lacks({**right, "square": right["square"] - 1}, 3)
