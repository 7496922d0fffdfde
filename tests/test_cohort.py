"""A cohort's graphs and contexts inside `vmap` are each client's own, padded."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from federations import FEATURES, graphs, refuses
from torch import Tensor
from torch.func import vmap

import fgl
from fgl import SparseMatrix
from fgl.federation.executors.batch.cohort import Cohort
from fgl.federation.executors.batch.train_cohort import _clip
from fgl.graph import MASKS
from fgl.sparse.batched_pattern import Member

SIZES = (12, 20, 31, 17)


def inside(cohort: Cohort, function: Callable[[fgl.Graph], Any]) -> Any:
    """The function of every client's graph, under `vmap`."""
    return vmap(lambda index: function(cohort.graph(Member(index))))(cohort.index)


def bare(num_nodes: int = 5, **changes: Any) -> fgl.Graph:
    """A graph of nothing but features and edges, unless told otherwise."""
    edges = torch.stack([torch.arange(num_nodes), torch.arange(num_nodes).roll(1)])
    return fgl.Graph(torch.rand(num_nodes, FEATURES), edges, **changes)


def sparse(data: fgl.Graph) -> fgl.Graph:
    return data.replace(x=SparseMatrix.from_dense(data.x.relu()))


@pytest.mark.parametrize("kind", [lambda data: data, sparse], ids=["dense", "sparse"])
def test_fields_are_each_clients_own(kind: Callable[[fgl.Graph], fgl.Graph]) -> None:
    clients = [kind(data) for data in graphs(SIZES)]
    clients = [data.replace(node_id=torch.arange(data.num_nodes) + 7) for data in clients]
    cohort = Cohort(clients)
    assert cohort.sparse == (kind is sparse)
    for name in ("y", "node_id", "node_mask", *MASKS):
        got = inside(cohort, lambda data, name=name: getattr(data, name))
        assert got.shape == (4, 31)
        for row, data in zip(got, clients, strict=True):
            want = getattr(data, name)
            assert row.dtype == want.dtype
            assert torch.equal(row[: data.num_nodes], want)
            assert not row[data.num_nodes :].any()
    dense = [data.x.to_dense() if kind is sparse else data.x for data in clients]
    x = inside(cohort, lambda data: data.x.to_dense() if kind is sparse else data.x)
    adj = inside(cohort, lambda data: data.adj.to_dense())
    for i, data in enumerate(clients):
        n = data.num_nodes
        assert torch.equal(x[i, :n], dense[i])
        assert torch.equal(adj[i, :n, :n], data.adj.to_dense())
    assert not x[0, 12:].any()
    assert not adj[0, 12:].any()
    assert not adj[0, :, 12:].any()


def test_sizes_that_all_share_are_plain_numbers() -> None:
    seen = []

    def look(data: fgl.Graph) -> Tensor:
        seen.append((data.num_features, data.num_classes, data.device, data.x.shape))
        return data.num_nodes

    inside(Cohort(graphs(SIZES)), look)
    assert seen == [(6, 3, torch.device("cpu"), (31, 6))]


def test_replace_changes_that_field_only() -> None:
    cohort = Cohort(graphs(SIZES))

    def look(data: fgl.Graph) -> tuple[Tensor, ...]:
        new = data.replace(y=data.y + 1, train_mask=data.val_mask)
        assert new is not data
        assert new.adj.shape == data.adj.shape
        return data.y, new.y, new.train_mask, data.train_mask, new.val_mask, new.x - data.x

    before, after, train, old, val, nothing = inside(cohort, look)
    assert torch.equal(after, before + 1)
    assert torch.equal(train, val)
    assert not torch.equal(train, old)
    assert not nothing.any()


def test_replaced_training_mask_is_counted() -> None:
    """As in a plain graph, where `num_train` counts the mask that is there."""
    clients = graphs(SIZES)

    def count(data: fgl.Graph) -> Any:
        before = data.num_train  # seen first: what is kept of it must not stay
        return (
            data.replace(train_mask=data.val_mask & data.node_mask, val_mask=None).num_train
            + 0 * before
        )

    assert inside(Cohort(clients), count).tolist() == [count(data) for data in clients]


@pytest.mark.parametrize("name", ["edge_index", "edge_weight"])
def test_edges_are_only_there_as_a_matrix(name: str) -> None:
    with pytest.raises(ValueError, match=f"graph.adj, but got {name}; clients_at_once=1"):
        inside(Cohort(graphs(SIZES)), lambda data: getattr(data, name))


def test_replaced_edges_are_used_or_refused() -> None:
    """Never the old adjacency with the new edges."""
    cohort = Cohort([bare(4), bare(4)])
    none = torch.zeros(2, 0, dtype=torch.int64)
    try:
        got = inside(cohort, lambda data: data.replace(edge_index=none).adj.to_dense())
    except (TypeError, ValueError) as error:
        assert "clients_at_once=1" in str(error)
    else:
        assert not got.any()


def test_replace_knows_its_fields() -> None:
    with pytest.raises(TypeError, match="tarin_mask"):
        inside(Cohort(graphs(SIZES)), lambda data: data.replace(tarin_mask=data.y).num_nodes)


def stacked(values: Sequence[Any], *, clients: Sequence[int] | None = None) -> Callable[..., Any]:
    sizes = SIZES[: len(values)]
    return Cohort(graphs(sizes), clients).stack("context", values)


D = torch.float64
BAD_CONTEXTS: dict[str, tuple[Any, Any]] = {
    "other key": ({"a": torch.ones(1)}, {"b": torch.ones(1)}),
    "missing key": ({"a": torch.ones(1)}, {}),
    "extra key": ({"a": torch.ones(1)}, {"a": torch.ones(1), "b": torch.ones(1)}),
    "deeper key": ({"m": {"w": torch.ones(1)}}, {"m": {"v": torch.ones(1)}}),
    "dtype": ({"a": torch.ones(1)}, {"a": torch.ones(1, dtype=D)}),
    "width": ({"a": torch.ones(3, 2)}, {"a": torch.ones(3, 4)}),
    "more dimensions": ({"a": torch.ones(3)}, {"a": torch.ones(3, 1)}),
    "scalar, then vector": ({"a": torch.tensor(1.0)}, {"a": torch.ones(3)}),
    "vector, then scalar": ({"a": torch.ones(3)}, {"a": torch.tensor(1.0)}),
    "tensor or dict": ({"a": torch.ones(1)}, {"a": {"w": torch.ones(1)}}),
    "tensor or matrix": ({"a": torch.eye(3)}, {"a": SparseMatrix.from_dense(torch.eye(3))}),
    "dtype of a matrix": (
        {"a": SparseMatrix.from_dense(torch.eye(3))},
        {"a": SparseMatrix.from_dense(torch.eye(3, dtype=D))},
    ),
}


@pytest.mark.parametrize(("one", "other"), BAD_CONTEXTS.values(), ids=BAD_CONTEXTS)
def test_contexts_that_cannot_be_stacked(one: Any, other: Any) -> None:
    with pytest.raises(
        (TypeError, ValueError), match=r"client 9's context.* as client 5.*clients_at_once=1"
    ):
        stacked([one, one, other], clients=[5, 7, 9])


def test_one_context_padded_in_many_clients_names_the_first_that_differs() -> None:
    values = [{"a": torch.ones(2, w)} for w in (3, 3, 4, 4)]
    refuses(r"client 2's context\['a'\].*\[2, 4\]", lambda: stacked(values))


def test_no_graphs() -> None:
    refuses("at least one, but got none", lambda: Cohort([]))


def test_gradients_are_clipped_as_torch_does_for_each_client() -> None:
    """Some are so short that the 1e-6 beside their length decides."""
    size = torch.tensor([1.0, 1e-6, 3e-7, 0.0], dtype=torch.float64)
    shapes = ((4, 3, 2), (4, 5), (4,))
    grads = [torch.ones(shape, dtype=torch.float64) for shape in shapes]
    leaves = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]
    for leaf, grad in zip(leaves, grads, strict=True):
        leaf.grad = grad * size.view(-1, *[1] * (grad.dim() - 1))
    alone = [[leaf.grad[k].clone() for leaf in leaves] for k in range(4)]  # type: ignore[index]
    _clip(leaves, 5e-6)
    for k, own in enumerate(alone):
        params = [torch.nn.Parameter(torch.zeros_like(grad)) for grad in own]
        for param, grad in zip(params, own, strict=True):
            param.grad = grad
        torch.nn.utils.clip_grad_norm_(params, 5e-6)
        for leaf, param in zip(leaves, params, strict=True):
            torch.testing.assert_close(leaf.grad[k], param.grad, rtol=1e-12, atol=0)  # type: ignore[index]


def test_what_all_clients_share_may_be_anything() -> None:
    shared = {"name": "all"}
    assert stacked([shared, shared])(None) is shared
