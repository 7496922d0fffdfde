"""FedGCN's exchange through a secure sum: the same graphs, and what each reader learns of them."""

import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from federations import FEATURES, close, graph
from torch import Tensor

import fgl
from fgl import data
from fgl.federation import Inbox
from fgl.transforms import secure_rows
from fgl.transforms.secure_rows import BITS, PAD, padded_rows

pytest.importorskip("cryptography")
pytest.importorskip("Crypto")

FALSE_ALARM = 1e-6
MODULE = sys.modules["fgl.transforms.secure_rows"]  # the function has its name


def parts_of(n: int, sizes: list[int]) -> list[Tensor]:
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    return list(order.split(sizes))


def bags(own: fgl.Graph) -> fgl.Graph:
    x = (own.x > 0.8).float()  # type: ignore[operator]
    return own.replace(x=fgl.SparseMatrix.from_dense(x).with_value(None))


def dense(x: Any) -> Tensor:
    made: Tensor = x.to_dense() if isinstance(x, fgl.SparseMatrix) else x
    return made


@pytest.mark.parametrize("features", [lambda own: own, bags], ids=["dense", "sparse"])
@pytest.mark.parametrize("hops", [1, 2])
def test_clients_have_the_graphs_of_the_plain_exchange(hops: int, features: Any) -> None:
    whole, parts = features(graph(40)), parts_of(40, [9, 14, 1, 16])
    want = data.neighbour_sums(whole, parts, hops=hops)
    got = data.neighbour_sums(whole, parts, hops=hops, total=secure_rows(threshold=3))
    for ours, theirs in zip(got.clients, want.clients, strict=True):
        assert type(ours.x) is type(theirs.x)
        close(dense(ours.x), dense(theirs.x), atol=4 * 2.0**-BITS)
        close(ours.edge_weight, theirs.edge_weight)
        for name in ("edge_index", "y", "train_mask", "val_mask", "test_mask", "node_id"):
            one, two = getattr(ours, name), getattr(theirs, name)
            assert one is two is None or one.equal(two), name
    assert dense(got.whole.x).equal(dense(want.whole.x))
    assert got.num_bytes > want.num_bytes


@pytest.mark.parametrize("directed", [False, True])
def test_rows_are_those_of_loops(directed: bool) -> None:
    own, parts = graph(12), parts_of(12, [5, 3, 4])
    if directed:
        own = own.replace(edge_index=own.edge_index[:, ::3])
    x: Any = own.x
    asked = [parts[0][:2], torch.cat([parts[1], parts[0][1:3]]), parts[2][:0]]
    edges = own.edge_index.t().tolist()
    degree = [1 + sum(target == v for _, target in edges) for v in range(12)]
    made = data.asked_rows(own, parts, asked)
    rows = torch.cat(asked).tolist()
    for client, (got, part) in enumerate(zip(made, parts, strict=True)):
        want = torch.zeros(len(rows), FEATURES + 1, dtype=torch.float64)
        for row, v in enumerate(rows):
            for u in [u for u, target in edges if target == v] + [v]:
                if u in part.tolist():
                    want[row, :-1] += x[u].double() / degree[u] ** 0.5
                    want[row, -1] += 1
        close((got.adj.astype(torch.float64) @ got.x)[len(part) :], want)
        mask: Any = got.train_mask
        mine = mask[len(part) :].nonzero().flatten().tolist()
        assert mine == [[0, 1], [2, 3, 4, 5, 6], []][client]
    with pytest.raises(ValueError, match="without edge_weight"):
        data.asked_rows(own.replace(edge_weight=torch.ones(own.num_edges)), parts, asked)


# Attacks: a node with one neighbour, which another client holds


def a_pair() -> tuple[fgl.Graph, list[Tensor]]:
    """Client 0's node 0 hangs on client 1's node 2, whose words it would like to read."""
    x = torch.tensor([[0.0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]])
    edges = torch.tensor([[0, 1, 2, 3, 3, 4], [2, 2, 3, 2, 4, 3]])
    edges = torch.cat([edges, edges.flip(0)], 1).unique(dim=1)
    return fgl.Graph(x, edges), [torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([4])]


def seen_by_the_server(unpadded: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, Any]:
    """The sums that the server of a secure sum of all rows reads, and the graphs."""
    seen: list[Tensor] = []
    real = fgl.run

    def noted(*given: Any, **how: Any) -> Any:
        result = real(*given, **how)
        message: Any = result.outbox[0]
        seen.append(message["model"]["rows"] * float(message["num_clients"]))
        return result

    monkeypatch.setattr(MODULE.fed, "run", noted)
    if unpadded:
        monkeypatch.setattr(MODULE, "_pad", lambda seed, count, width: torch.zeros(count, width))
    whole, parts = a_pair()
    made = data.neighbour_sums(whole, parts, hops=1, total=secure_rows(threshold=2))
    return seen[0], made


def test_servers_read_no_sum_under_pads(monkeypatch: pytest.MonkeyPatch, reached: Any) -> None:
    """Without pads a secure sum alone would tell the row of a node with one neighbour."""
    whole, parts = a_pair()
    want = data.neighbour_sums(whole, parts, hops=1)
    with monkeypatch.context() as patch:
        open_, _ = seen_by_the_server(True, patch)
    first = open_[0, :-1] / open_[0, -1].sqrt()
    close(first.float(), dense(want.clients[0].x)[0], atol=1e-5)  # read as it is
    hidden, made = seen_by_the_server(False, monkeypatch)
    reached("numbers of the rows read without pads", int((open_.abs() <= 8).sum()), open_.numel())
    reached("with them", int((hidden.abs() <= 8).sum()), hidden.numel())
    assert float(hidden.abs().min()) > 8  # of +-2^25: seldom wrong, and sums are below 8
    for ours, theirs in zip(made.clients, want.clients, strict=True):
        close(ours.x, theirs.x, atol=1e-5)


def test_pads_are_uniform_and_of_no_seed() -> None:
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        method = padded_rows(2, 5000)
        x = torch.zeros(3, 5000, dtype=torch.float64)
        x[0, -1] = 1
        own = fgl.Graph(x, torch.tensor([[0], [1]]), train_mask=torch.tensor([False, True, True]))
        message, state = method.send({}, {}, {}, own)
        drawn.append(message["model"]["rows"])  # type: ignore[index, call-overload]
        assert state["pad"].shape == (32,)  # type: ignore[union-attr]
    assert not drawn[0].equal(drawn[1])
    numbers = torch.cat([each.flatten() for each in drawn]).numpy() / 2.0 ** (PAD - BITS) + 0.5
    assert scipy.stats.kstest(numbers, "uniform").pvalue > FALSE_ALARM
    assert abs(np.corrcoef(drawn[0].flatten(), drawn[1].flatten())[0, 1]) < 0.1


def test_another_client_reads_no_row_that_it_did_not_ask_for() -> None:
    whole, parts = a_pair()
    graphs = data.asked_rows(whole, parts, [parts[0][:1], parts[1][:1], parts[2]])
    method = padded_rows(3, 5)
    sent = {k: method.send({}, {}, {}, own) for k, own in enumerate(graphs)}
    total: Any = sum(message["model"]["rows"] for message, _ in sent.values())  # type: ignore
    mean = {"model": {"rows": total / 3}, "num_clients": torch.tensor(3)}
    for client, own in enumerate(graphs):
        rows: Any = method.deploy(mean, sent[client][1], own)["rows"]
        assert rows[client].abs().sum() > 0
        assert not rows[[k for k in range(3) if k != client]].any()
        stolen: Any = method.deploy(mean, sent[(client + 1) % 3][1], own)["rows"]
        assert float(stolen[client].abs().max()) > 8  # with another's pad
    first: Any = method.deploy(mean, {}, graphs[0])["rows"]
    assert not first.any()


# The protocol


def test_a_sum_without_a_client_is_refused() -> None:
    """Rows would lack its nodes, and nobody would notice."""
    for threshold, error in ((1, ValueError), (2.5, TypeError)):
        with pytest.raises(error, match="Expected threshold"):
            secure_rows(threshold=threshold)  # type: ignore[arg-type]
    whole, parts = graph(40), parts_of(40, [9, 14, 17])
    with pytest.raises(ValueError, match="at least 4 participants"):
        data.neighbour_sums(whole, parts, hops=1, total=secure_rows(threshold=4))
    x: Any = whole.x
    huge = whole.replace(x=x.index_fill(0, parts[1][:1], 1e30))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match=r"Expected sums over all clients, but got none of"):
            data.neighbour_sums(huge, parts, hops=1, total=secure_rows(threshold=2))


def test_a_rehearsal_repeats_its_pads() -> None:
    whole, parts = graph(20), parts_of(20, [6, 5, 9])
    graphs = data.asked_rows(whole, parts, [part[:2] for part in parts])
    method = replace(padded_rows(6, FEATURES + 1, unprotected=True))
    drawn = []
    for _ in range(2):
        torch.manual_seed(1)
        drawn.append(method.send({}, {}, {}, graphs[0])[0]["model"]["rows"])  # type: ignore
    assert drawn[0].equal(drawn[1])
    inbox = Inbox({0: method.send({}, {}, {}, graphs[0])[0]}, 3, {0: {"model": method.initial()}})
    assert set(method.aggregate(inbox, {"model": method.initial()})[0][0]) == {
        "model",
        "num_clients",
    }
