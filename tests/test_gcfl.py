"""GCFL and GCFL+: time warping, cuts, and the clusters that they make."""

from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

import pytest
import torch
from conformance import known
from federations import close, receive_as_a_run, refuses

from fgl.client_network import dtw_distances, min_cut
from fgl.federation import Inbox
from fgl.methods import fedprox, gcfl, gcfl_plus
from fgl.methods.gcfl import cosine, flat_updates, gradient_norm, trends

F64 = torch.float64
TASK = known("nodes", 0.0, F64)
FEDAVG, CLIENTS = TASK.fedavg, TASK.clients
SPLIT: Any = {"eps1": 1e6, "eps2": 0.0, "first_round": 0}


def rows(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def warped(one: list[float], other: list[float]) -> float:
    """The recursion of dynamic time warping, as the textbook has it."""

    @cache
    def cost(i: int, j: int) -> float:
        if i < 0 or j < 0:
            return 0.0 if i == j else float("inf")
        step = min(cost(i - 1, j), cost(i, j - 1), cost(i - 1, j - 1))
        return (one[i] - other[j]) ** 2 + step

    return cost(len(one) - 1, len(other) - 1) ** 0.5


@pytest.mark.parametrize("length", [0, 1, 2, 5, 10])
def test_time_warping_is_the_recursion(length: int) -> None:
    sequences = rows(5, length, seed=length)
    found, each = dtw_distances(sequences), sequences.tolist()
    want = [[warped(a, b) if length else 0.0 for b in each] for a in each]
    close(found, torch.tensor(want, dtype=F64).view(5, 5), atol=1e-12)
    assert torch.equal(found, found.T)
    assert not found.diagonal().any()
    assert dtw_distances(sequences[:0]).shape == (0, 0)


@pytest.mark.parametrize("clients", [2, 3, 4, 6, 7])
def test_min_cut_is_the_least_of_all_cuts(clients: int) -> None:
    half = rows(clients, clients, seed=clients).abs()
    weight = half + half.T
    sides = [
        [k in side for k in range(clients)]
        for size in range(1, clients // 2 + 1)
        for side in combinations(range(clients), size)
    ]

    def between(side: Any) -> float:
        one = torch.as_tensor(side)
        return float(weight[one][:, ~one].sum())

    found = min_cut(weight)
    assert between(found) == pytest.approx(min(map(between, sides)))
    assert 1 <= int(found.sum()) <= clients / 2
    if int(found.sum()) * 2 == clients:
        assert not found[0]


@pytest.mark.parametrize(("weight", "said"), [
    (torch.ones(1, 1), "two clients or more"),
    (torch.ones(2, 3), "shape"),
    (torch.tensor([[0.0, 1.0], [2.0, 0.0]]), "symmetric"),
    (-torch.ones(2, 2), "at least 0"),
    (torch.full((2, 2), torch.inf), "finite"),
])  # fmt: skip
def test_min_cut_refuses(weight: torch.Tensor, said: str) -> None:
    refuses(said, lambda: min_cut(weight))


def test_similarities_by_hand() -> None:
    updates, sequences = rows(5, 7), rows(5, 4, seed=1).abs()
    updates[3] = 0
    found = cosine(updates, sequences)
    for i, j in combinations(range(5), 2):
        want = torch.cosine_similarity(updates[i], updates[j], dim=0) + 1
        assert float(found[i, j]) == pytest.approx(float(want))
    assert float(found[3, 0]) == 1
    apart = dtw_distances(sequences)
    close(trends(updates, sequences), apart.max() - apart)


def messages(updates: torch.Tensor, sent: dict[int, Any], examples: Any = None) -> dict[int, Any]:
    examples = [1] * len(updates) if examples is None else examples
    return {
        k: {"model": {"w": sent[k]["model"]["w"] + u}, "num_examples": torch.tensor(n)}
        for k, (u, n) in enumerate(zip(updates, examples, strict=True))
    }


def play(method: Any, rounds: list[torch.Tensor]) -> tuple[Any, Any]:
    """Rounds of updates `[num_clients, P]` as the server sees them."""
    size = len(rounds[0])
    state: Any = {"model": {"w": torch.zeros_like(rounds[0][0])}}
    outbox: Any = dict.fromkeys(range(size), state)
    for updates in rounds:
        made, state = method.aggregate(Inbox(messages(updates, outbox), size, outbox), state)
        outbox = {**outbox, **made}
    return outbox, state


def test_a_cluster_moves_by_its_own_weighted_mean() -> None:
    updates, examples = rows(5, 3), [1, 2, 3, 4, 5]
    updates[:3], updates[3:] = updates[:3].abs(), -updates[3:].abs()
    start = {"model": {"w": torch.ones(3, dtype=F64)}}
    sent: Any = dict.fromkeys(range(5), start)
    inbox = Inbox(messages(updates, sent, examples), 5, sent)
    outbox, state = gcfl(FEDAVG, **SPLIT).aggregate(inbox, {})
    assert state["clusters"].tolist() == [0, 0, 0, 1, 1]
    for part in ([0, 1, 2], [3, 4]):
        total = sum(examples[k] for k in part)
        want = 1 + sum(examples[k] * updates[k] for k in part) / total
        for client in part:
            close(outbox[client]["model"]["w"], want, atol=1e-12)
    close(flat_updates(inbox), updates, atol=1e-12)


def test_trends_split_and_sequences_begin_again() -> None:
    """Two groups that pull against each other; the norms of one rise, those of the other fall."""
    side = torch.tensor([[1.0], [1.0], [-1.0], [-1.0], [1.0], [-1.0]])
    rising = torch.tensor([True, False, True, False, True, False])[:, None]
    rounds = [side * torch.where(rising, 1.0 + t, 6.0 - t) for t in range(5)]
    method = gcfl_plus(FEDAVG, seq_length=5, eps1=10.0, eps2=0.1, first_round=0)
    assert not play(method, rounds[:4])[1]["clusters"].any()
    _, state = play(method, rounds)
    assert state["clusters"].tolist() == [0, 1, 0, 1, 0, 1]
    assert not state["sequences"].any() and not state["lengths"].any()
    again = play(method, [*rounds, *rounds[:4]])[1]["clusters"]
    assert again.tolist() == [0, 1, 0, 1, 0, 1]


def test_sequences_of_float64_models_keep_their_digits() -> None:
    pulls = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=F64)
    _, state = play(gcfl_plus(FEDAVG, seq_length=1, eps1=0.0), [pulls])
    want = [(0.1**2 + 0.2**2) ** 0.5, (0.3**2 + 0.4**2) ** 0.5]
    assert state["sequences"].flatten().tolist() == pytest.approx(want, rel=1e-14)


def test_gradient_norms_are_those_of_the_loss() -> None:
    own, method = CLIENTS[1], gcfl_plus(fedprox(FEDAVG, mu=0.5), sequence="gradients")
    params, context = receive_as_a_run(method, {"model": method.initial()}, {}, own)
    moved = {name: (value + 0.1).requires_grad_() for name, value in params.items()}
    got = method.send({k: v.detach() for k, v in moved.items()}, context, {}, own)[0]
    grads = torch.autograd.grad(method.loss(moved, own, context), list(moved.values()))
    want = sum(float(grad.square().sum()) for grad in grads) ** 0.5
    assert float(got["gradient_norm"]) == pytest.approx(want)
    assert want > 0
    still = replace(FEDAVG, loss=lambda params, own, context: params["convs.0.bias"].sum())
    assert float(gradient_norm(still, method.initial(), {}, own)) == pytest.approx(8**0.5)


def test_the_weights_of_a_cut_are_symmetric_where_long_products_are_not() -> None:
    """Ten long rows are multiplied in another order on either side: opposite ones are rounding."""
    one, small = rows(1, 92_231).float(), rows(10, 92_231, seed=1).float()
    updates = one + 1e-3 * small
    updates[0] *= -1
    weight = cosine(updates, torch.zeros(10, 0))
    assert torch.equal(weight, weight.T)
    assert min_cut(weight).tolist() == [True, *[False] * 9]
