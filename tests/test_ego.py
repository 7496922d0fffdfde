"""Ego-graphs: trees against a loop over edges, resampling, the aligned Mixup, bad input."""

from typing import Any

import pytest
import torch
from federations import refuses, seeded

import fgl
from fgl import ego
from fgl.ego import EgoSampler, mash, resample
from fgl.ego.uploads import check_mashed

PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])  # 0 - 1 - 2, and 3 alone


def test_direction_is_from_source_to_target() -> None:
    data = fgl.Graph(torch.ones(3, 1), torch.tensor([[0], [1]]))
    trees = EgoSampler(data, (2,))(torch.arange(3))
    assert trees.tolist() == [[0, 0, 0], [1, 0, 0], [2, 2, 2]]


def test_dropped_edges_are_no_neighbours() -> None:
    data = fgl.Graph(torch.ones(4, 1), PATH)
    adj = data.adj.with_value(torch.tensor([1.0, 1.0, 0.0, 0.0]))  # row 1 keeps 0, row 2 nothing
    trees = EgoSampler(adj, (4,))(torch.arange(3), generator=seeded())
    assert trees.tolist() == [[0, 1, 1, 1, 1], [1, 0, 0, 0, 0], [2, 2, 2, 2, 2]]


def test_adjacency_must_be_square() -> None:
    with pytest.raises(ValueError, match=r"square, but got shape \(2, 3\)"):
        EgoSampler(fgl.SparseMatrix.from_dense(torch.ones(2, 3)))


def test_resampling_refuses_another_size() -> None:
    with pytest.raises(ValueError, match=r"trees to have shape \[\*, 43, ...\].*got \[2, 42\]"):
        resample(torch.zeros(2, 42))


def naive_mash(values: torch.Tensor, trees: torch.Tensor, batch: int, least: int) -> torch.Tensor:
    out = []
    parts = [trees[start : start + batch] for start in range(0, len(trees), batch)]
    if len(parts) > 1 and len(parts[-1]) < least:
        parts[-2:] = [torch.cat(parts[-2:])]
    for part in parts:
        rows = []
        for position in range(trees.shape[1]):
            total = torch.zeros_like(values[0])
            for tree in part:
                total = total + values[tree[position]]
            rows.append(total / len(part))
        out.append(torch.stack(rows))
    return torch.stack(out)


@pytest.mark.parametrize(
    ("count", "batch", "least"),
    [(8, 4, 4), (9, 4, 1), (9, 4, 2), (11, 4, 3), (11, 4, None), (3, 3, 3), (5, 1, 1), (7, 6, 6)],
)
@pytest.mark.filterwarnings("ignore:Expected means of several ego-graphs")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mash_is_a_mean_by_position(count: int, batch: int, least: int | None, dtype: Any) -> None:
    values = torch.randn(20, 5, generator=seeded(), dtype=dtype)
    trees = torch.randint(20, (count, 7), generator=seeded())
    got = mash(values, trees, batch_size=batch, least=least)
    assert got.dtype == dtype
    torch.testing.assert_close(got, naive_mash(values, trees, batch, least or batch))
    whole = mash(values, trees)
    torch.testing.assert_close(whole, naive_mash(values, trees, count, count))


def test_a_mean_of_one_ego_graph_is_warned_of() -> None:
    values, trees = torch.randn(20, 5), torch.randint(20, (3, 7))
    with pytest.warns(UserWarning, match="Expected means of several .* but got batch_size 1"):
        assert mash(values, trees, batch_size=1).equal(values[trees])
    with pytest.warns(UserWarning, match="Expected means of several"):
        mash(values, trees[:1])


def test_mash_gradient_order_and_emptiness() -> None:
    trees = torch.randint(6, (4, 3), generator=seeded())
    values = torch.randn(6, 2, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: mash(v, trees, batch_size=3), (values,))
    plain, order = values.detach(), torch.randperm(6, generator=seeded())
    moved = mash(plain[order], order.argsort()[trees])
    torch.testing.assert_close(moved, mash(plain, trees))
    torch.testing.assert_close(mash(plain, trees.flip(0)), mash(plain, trees))
    assert mash(plain, trees[:0]).shape == (0, 3, 2)


@pytest.mark.parametrize(("values", "trees", "message"), [
    (torch.eye(3).long(), torch.zeros(2, 3).long(), "values to be a float tensor"),
    (torch.eye(3).to_sparse(), torch.zeros(2, 3).long(), "values to be a dense"),
    ([[1.0]], torch.zeros(2, 3).long(), "values to be a float tensor, but got list"),
    (torch.ones(6), torch.zeros(4, 3).long(), r"values .*got \[6\]"),
    (torch.eye(3), torch.zeros(2, 3), "trees to be an int64 tensor"),
    (torch.eye(3), torch.zeros(3).long(), r"trees to have shape \[\*, \*\]"),
    (torch.eye(3), torch.full((2, 3), 3), r"trees to be in \[0, 3\), but got 3"),
    (torch.eye(3), torch.full((2, 3), -1), r"trees to be in \[0, 3\), but got -1"),
])  # fmt: skip
def test_bad_mash(values: Any, trees: Any, message: str) -> None:
    for size in (0, -1, 5, 2.0):
        with pytest.raises((TypeError, ValueError), match=rf"batch_size .* but got {size}"):
            mash(torch.ones(6, 2), torch.zeros(4, 3, dtype=torch.int64), batch_size=size)  # type: ignore[arg-type]
    refuses(message, lambda: mash(values, trees), (TypeError, ValueError))


GOOD: dict[str, Any] = {"embeddings": torch.zeros(2, 3, 4), "labels": torch.full((2, 3, 2), 0.5)}


@pytest.mark.parametrize(("key", "value", "message"), [
    ("embeddings", torch.zeros(2, 3, 5), r"embeddings to have shape \[\*, 3, 4\]"),
    ("embeddings", torch.zeros(2, 4, 4), r"embeddings to have shape \[\*, 3, 4\]"),
    ("embeddings", torch.zeros(()), "embeddings to have shape"),
    ("embeddings", torch.zeros(0, 3, 4), r"labels to have shape \[0, 3, 2\]"),
    ("embeddings", torch.zeros(2, 3, 4).long(), "embeddings to be a float tensor"),
    ("labels", torch.full((1, 3, 2), 0.5), r"labels to have shape \[2, 3, 2\]"),
    ("labels", torch.full((2, 3), 0.5), r"labels to have shape \[2, 3, 2\]"),
    ("labels", torch.full((2, 3, 3), 0.5), r"labels to have shape \[2, 3, 2\]"),
    ("labels", torch.full((2, 3, 2), 0.6), "sum to 1, but got 1.2 in graph 0"),
    ("labels", torch.tensor([1.5, -0.5]).expand(2, 3, 2), ">= 0, but got -0.5 in"),
    ("labels", torch.full((2, 3, 2), torch.nan), "rows that sum to 1, but got nan"),
    ("labels", "labels", "labels to be a float tensor, but got str"),
    ("labels", GOOD["labels"].to_sparse(), "labels to be a dense tensor"),
])  # fmt: skip
def test_bad_mashed_graphs(key: str, value: Any, message: str) -> None:
    check_mashed(**GOOD, shape=(3, 4, 2))
    with pytest.raises((TypeError, ValueError), match=message):
        check_mashed(**{**GOOD, key: value}, shape=(3, 4, 2))


def test_mashed_graphs_of_another_dtype() -> None:
    check_mashed(**GOOD, shape=(3, 4, 2), dtype=torch.float32)
    for key, value in GOOD.items():
        message = f"Expected {key} to be torch.float32, but got torch.float64"
        with pytest.raises(TypeError, match=message):
            check_mashed(**{**GOOD, key: value.double()}, shape=(3, 4, 2), dtype=torch.float32)


def test_mashed_graphs_may_be_off_by_rounding_alone() -> None:
    labels = torch.full((1, 3, 2), 0.5)
    check_mashed(torch.zeros(1, 3, 4), labels * 1.0005, shape=(3, 4, 2))
    with pytest.raises(ValueError, match="rows that sum to 1, but got 1.002"):
        check_mashed(torch.zeros(1, 3, 4), labels * 1.002, shape=(3, 4, 2))
    with pytest.raises(ValueError, match="embeddings to have a graph, but got none"):
        check_mashed(torch.zeros(0, 3, 4), torch.zeros(0, 3, 2), shape=(3, 4, 2))
    huge = torch.zeros(2, 3, 4)
    huge[1, 2, 0] = 3e38
    with pytest.raises(ValueError, match=r"of finite length, but got 3e\+38 in graph 1"):
        check_mashed(huge, labels.expand(2, 3, 2), shape=(3, 4, 2))


def test_more_ego_graphs_than_a_client_can_have_are_refused() -> None:
    accept = ego.mashed_check((2,), torch.zeros(2, 4), 3)
    sized = lambda n: {"embeddings": torch.zeros(n, 3, 4), "labels": torch.full((n, 3, 2), 0.5)}  # noqa: E731
    accept(sized(3), 5, {})
    refuses("embeddings of at most 3 graphs, but got 4", lambda: accept(sized(4), 6, {}))


def test_no_pass_may_be_made_but_a_batch_has_a_node() -> None:
    from fgl.ego.trees import check_steps

    check_steps(0, 1)
    for wrong in ((-1, 1), (1, 0), (0.5, 1), (1, 1.5)):
        with pytest.raises((TypeError, ValueError), match="epochs|batch_size"):
            check_steps(*wrong)  # type: ignore[arg-type]


def test_a_task_of_trees_says_how_many_passes_a_client_makes() -> None:
    from conformance import majors

    test, clients = majors()
    net = fgl.nn.EgoSAGE(test.num_features, 4, test.num_classes or 0, fanouts=(2, 2))
    for epochs in (1, 3):
        how: Any = {"epochs": epochs, "batch_size": 8}
        made = fgl.tasks.ego_node_task(clients, test, net, torch.optim.Adam, **how)
        assert made.fedavg.train.epochs == epochs
