"""FedGCN's data: appended nodes, borders, sums over all clients, against loops and the whole."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from federations import CLASSES, FEATURES, close, graph, refuses, same

import fgl
from fgl import data, tasks


def parts_of(n: int, sizes: list[int], seed: int = 0) -> list[torch.Tensor]:
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return list(order.split(sizes))


def bags(own: fgl.Graph) -> fgl.Graph:
    """The same graph with sparse features without values."""
    x = (own.x > 0.8).float()  # type: ignore[operator]
    return own.replace(x=fgl.SparseMatrix.from_dense(x).with_value(None))


# Graph.append


def test_append_where_all_nodes_trained_makes_a_training_mask() -> None:
    own = graph(9, train_mask=None, val_mask=None, test_mask=None)
    more = own.append(torch.ones(2, FEATURES), torch.tensor([[9], [0]]))
    assert more.train_mask is not None
    assert more.train_mask.tolist() == [True] * 9 + [False] * 2
    assert more.val_mask is None
    empty = own.append(torch.ones(0, FEATURES), torch.zeros(2, 0, dtype=torch.int64))
    assert empty.train_mask is not None  # as its neighbours in a batch
    bare = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]))
    assert bare.append(torch.eye(2), torch.tensor([[0], [3]])).train_mask is None


@pytest.mark.parametrize("valued", [True, False])
def test_append_to_sparse_features(valued: bool) -> None:
    own = bags(graph(8))
    dense = own.x.to_dense()  # type: ignore[union-attr]
    new = torch.tensor([[0.0, 2, 0, 0, 0, 1]])
    sparse = fgl.SparseMatrix.from_dense(new)
    edges = torch.tensor([[8], [0]])
    more = own.append(sparse if valued else sparse.with_value(None), edges)
    assert isinstance(more.x, fgl.SparseMatrix)
    close(more.x.to_dense(), torch.cat([dense, new if valued else (new > 0).float()]))
    mixed = own.append(new, edges)
    close(mixed.x, torch.cat([dense, new]))


def test_append_keeps_ids_and_weights() -> None:
    own = graph(6).subgraph(torch.tensor([3, 1, 5]))
    edges = torch.tensor([[3], [0]])
    x = torch.ones(1, FEATURES)
    assert own.append(x, edges).node_id is None
    more = own.append(x, edges, node_id=torch.tensor([4]), edge_weight=torch.tensor([0.5]))
    assert more.node_id is not None
    assert more.node_id.tolist() == [3, 1, 5, 4]
    assert more.edge_weight is not None
    assert more.edge_weight.tolist() == [1.0] * own.num_edges + [0.5]
    again = more.append(x, edges)
    assert again.edge_weight is not None
    assert again.edge_weight[-1] == 1


def test_append_refuses() -> None:
    one = torch.ones(1, 6)
    refused: list[tuple[Any, Any, type[Exception], str]] = [
        (torch.ones(1, 2), 0, ValueError, "Expected x to have 6 features"),
        (one.double(), 0, ValueError, "of torch.float64"),
        (one, 21, ValueError, r"edge_index to be in \[0, 21\), but got 21"),
        (torch.full((1, 6), torch.nan), 0, ValueError, "finite"),
        (torch.ones(6), 0, ValueError, "shape"),
        (one.long(), 0, TypeError, "floating point"),
    ]
    for x, target, error, message in refused:
        with pytest.raises(error, match=message):
            graph(20).append(x, torch.tensor([[0], [target]]))
    with pytest.raises(ValueError, match="without batch"):
        fgl.Graph.join([graph(3), graph(4)]).append(one, torch.tensor([[0], [0]]))


# Borders


def naive_borders(own: fgl.Graph, parts: list[torch.Tensor]) -> list[Any]:
    owner = {int(v): (k, i) for k, part in enumerate(parts) for i, v in enumerate(part)}
    edges = own.edge_index.t().tolist()
    found = []
    for client, part in enumerate(parts):
        rows = []
        for edge, (source, target) in enumerate(edges):
            if owner.get(target, (-1, 0))[0] != client or source not in owner:
                continue
            if owner[source][0] != client:
                rows.append((edge, owner[target][1], *owner[source]))
        degree = [sum(t == int(v) for _, t in edges) for v in part]
        found.append((rows, degree))
    return found


@pytest.mark.parametrize("sizes", [[20], [7, 13], [1, 10, 9], [5, 5, 4, 6], [3, 4, 13]])
@pytest.mark.parametrize("directed", [False, True])
def test_borders_are_those_of_loops(sizes: list[int], directed: bool) -> None:
    own = graph(20)
    if directed:
        own = own.replace(edge_index=own.edge_index[:, ::3])
    parts = parts_of(20, sizes)[: 2 if sizes[0] == 3 else None]  # some nodes are nobody's
    for got, (rows, degree) in zip(
        data.borders(own, parts), naive_borders(own, parts), strict=True
    ):
        columns = (got.edge, got.node, got.client, got.neighbour)
        assert torch.stack(columns, 1).tolist() == [list(row) for row in rows]
        assert got.degree.tolist() == degree


def test_borders_refuse_overlap() -> None:
    for parts in ([torch.tensor([0, 1]), torch.tensor([1])], [torch.tensor([0, 0])]):
        with pytest.raises(ValueError, match="disjoint"):
            data.borders(graph(20), parts)
    refuses(r"in \[0, 20\)", lambda: data.borders(graph(20), [torch.tensor([20])]))
    assert data.borders(graph(20), []) == []


# Sums of neighbours


def gcn(dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return fgl.nn.GCN(FEATURES, 8, CLASSES, dropout=0.0, **options).to(dtype)


def double(own: fgl.Graph) -> fgl.Graph:
    x: Any = own.x
    return own.replace(x=x.astype(torch.float64) if isinstance(x, fgl.SparseMatrix) else x.double())


SUMMED = {"normalize": False, "summed": True}


@pytest.mark.parametrize("features", [lambda own: own, bags], ids=["dense", "sparse"])
@pytest.mark.parametrize("hops", [1, 2])
def test_what_clients_compute_is_what_the_whole_graph_would(hops: int, features: Any) -> None:
    whole, parts = double(features(graph(40))), parts_of(40, [9, 14, 1, 16])
    central, model = gcn(), gcn(**SUMMED)
    model.load_state_dict(central.state_dict())
    logits, first = central(whole.x, whole.adj, return_embedding=True)
    made = data.neighbour_sums(whole, parts, hops=hops)
    cut = [part.numel() for part in parts]
    for own, part, size in zip(made.clients, parts, cut, strict=True):
        got, embedding = model(own.x, own.adj, return_embedding=True)
        torch.testing.assert_close(embedding[:size], first[part], rtol=0, atol=1e-6)
        same_ = torch.allclose(got[:size], logits[part], rtol=0, atol=1e-6)
        assert same_ == (hops == 2)  # with one hop the second layer lacks neighbours
    got, _ = model(made.whole.x, made.whole.adj, return_embedding=True)
    torch.testing.assert_close(got, logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize("sizes", [[40], [20, 20], [1, 15, 24], [9, 14, 1, 16]])
def test_bytes_are_those_of_loops(sizes: list[int]) -> None:
    whole, parts = graph(40), parts_of(40, sizes)
    owner = {int(v): k for k, part in enumerate(parts) for v in part}
    cut = [(u, v) for u, v in whole.edge_index.t().tolist() if owner[u] != owner[v]]
    row = 4 * FEATURES + 8
    one = len({(v, owner[u]) for u, v in cut}) + len({v for _, v in cut})
    assert data.neighbour_sums(whole, parts, hops=1).num_bytes == one * row
    asked, told = len({u for u, _ in cut}), len({(u, owner[v]) for u, v in cut})
    two = (one + asked) * row + told * (row + 4)
    assert data.neighbour_sums(whole, parts, hops=2).num_bytes == two
    assert data.neighbour_sums(whole, parts, hops=0).num_bytes == 0


def test_hops_out_of_range() -> None:
    refuses("hops", lambda: data.neighbour_sums(graph(20), [torch.arange(20)], hops=3))
    for model in ("gat", "sage"):
        with pytest.raises(ValueError, match=f"hops to be 0 beside {model}"):
            tasks.Nodes(model=model, hops=1)


# The task


def test_the_setting_of_two_hops_scores_one_model_as_without() -> None:
    setting = tasks.Nodes(clients=3, hidden=8, model="gcn", dropout=0.0, hops=2)
    made = setting.load(seed=0), replace(setting, hops=0).load(seed=0)
    assert made[0].bytes_before > 0 and made[1].bytes_before == 0
    starts = [fgl.run(task.fedavg, task, num_rounds=0) for task in made]
    assert same(dict(starts[0].outbox[0]), dict(starts[1].outbox[0]))
    pairs = zip(made, starts, strict=True)
    one, two = (task.evaluate(task.fedavg)(start.outbox, {}) for task, start in pairs)
    assert one == pytest.approx(two, abs=1e-5)
