"""Collections of graphs: checked, joined, chosen from, pooled; alone and in a cohort."""

from typing import Any

import pytest
import torch
from federations import refuses
from torch_geometric.data import Batch, Data

from fgl import Graph, SparseMatrix
from fgl.federation.executors.batch.cohort import Cohort

NONE = torch.zeros(2, 0, dtype=torch.int64)


def one(num_nodes: int, *, seed: int = 0, weighted: bool = False) -> Graph:
    generator = torch.Generator().manual_seed(100 * num_nodes + seed)
    edges = torch.randint(num_nodes, (2, 3 * num_nodes), generator=generator)
    weight = torch.rand(edges.shape[1], generator=generator) + 1 if weighted else None
    return Graph(torch.rand(num_nodes, 3, generator=generator), edges, edge_weight=weight)


def collection(sizes: tuple[int, ...] = (4, 1, 6, 3), **options: Any) -> tuple[Graph, list[Graph]]:
    graphs = [one(size, seed=i, **options) for i, size in enumerate(sizes)]
    y = torch.arange(len(sizes)) % 2
    masks = {"train_mask": y == 0, "test_mask": y == 1}
    return Graph.join(graphs, y, num_classes=2, **masks), graphs


def test_join_fills_in_missing_weights() -> None:
    whole = Graph.join([one(3), one(2, weighted=True)])
    assert whole.edge_weight is not None
    assert torch.equal(whole.edge_weight[:9], torch.ones(9))
    ends = torch.tensor([[0, 1], [0, 1]])
    sparse = Graph(SparseMatrix.from_edge_index(ends, 2, torch.ones(2)), ends)
    whole = Graph.join([sparse, Graph(torch.eye(2), ends, edge_weight=torch.tensor([2.0, 3.0]))])
    assert torch.equal(whole.edge_weight, torch.tensor([1.0, 1.0, 2.0, 3.0]))


@pytest.mark.parametrize(("graphs", "match"), [
    ([], "graphs to be at least one, but got none"),
    ([one(2), Graph(torch.ones(0, 3), NONE)], "graph 1 to be one graph with nodes, but got no"),
    ([one(2), Graph(torch.ones(1, 4), NONE)], "graph 1 .*got 4"),
    ([Graph.join([one(2)])], "graph 0 to be one graph with nodes, but got a batch"),
])  # fmt: skip
def test_join_refuses(graphs: list[Graph], match: str) -> None:
    refuses(match, lambda: Graph.join(graphs))


@pytest.mark.parametrize(("changes", "match"), [
    ({"batch": [0, 1, 0]}, "sorted and every graph to have nodes, but got 1, then 0 at node 2"),
    ({"batch": [0, 2, 2]}, "every graph to have nodes, but got 0, then 2 at node 1"),
    ({"batch": [1, 1, 1]}, "batch to begin with 0, but got 1"),
    ({"batch": [0, 1]}, r"batch to have shape \[3\], but got \[2\]"),
    ({"edge_index": [[0, 1], [1, 2]]}, "edge 1 from graph 0 to graph 1"),
    ({"y": [0, 1, 1]}, r"y to have shape \[2\], but got \[3\]"),
    ({"test_mask": [True]}, r"test_mask to have shape \[2\], but got \[1\]"),
])  # fmt: skip
def test_a_collection_refuses(changes: dict[str, Any], match: str) -> None:
    fields = {"batch": [0, 0, 1], "edge_index": [[0], [1]], "y": [0, 1], **changes}
    with pytest.raises(ValueError, match=match):
        Graph(torch.ones(3, 1), **{name: torch.tensor(v) for name, v in fields.items()})


def test_a_collection_without_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="batch to name a graph, but got no nodes"):
        Graph(torch.ones(0, 1), NONE, batch=torch.zeros(0, dtype=torch.int64))


def test_select_refuses() -> None:
    whole, graphs = collection()
    refuses(r"graphs to be in \[0, 4\), but got 4", lambda: whole.select(torch.tensor([4])))
    with pytest.raises(ValueError, match="graphs to name a graph, but got none"):
        whole.select(torch.tensor([], dtype=torch.int64))
    refuses("a graph with batch", lambda: graphs[0].select(torch.tensor([0])))
    refuses("a graph without batch", lambda: whole.subgraph(torch.tensor([0])))


def test_symmetric_edges_keep_the_weights_of_both_directions() -> None:
    ends = torch.tensor([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]])
    graphs = [Graph(torch.eye(3), ends, edge_weight=torch.rand(5)) for _ in range(3)]
    chosen = Graph.join(graphs).select(torch.tensor([2, 0])).adj
    assert chosen.T.pattern.col is chosen.pattern.col
    x = torch.rand(6, 2, requires_grad=True)
    (chosen.plus_identity @ x).square().sum().backward()
    dense = torch.block_diag(*(graphs[i].adj.to_dense() for i in (2, 0))) + torch.eye(6)
    torch.testing.assert_close(x.grad, 2 * dense.T @ dense @ x.detach())


def test_one_graph_is_a_collection_of_one() -> None:
    graph = one(4)
    assert graph.num_graphs == 1
    assert graph.num_examples == 4
    assert graph.ptr.tolist() == [0, 4]
    assert torch.allclose(graph.pool @ graph.x, graph.x.sum(0, keepdim=True))
    assert len(graph.inputs) == 2


def test_to_and_from_pyg() -> None:
    whole, graphs = collection()
    batch = Batch.from_data_list([Data(x=g.x, edge_index=g.edge_index) for g in graphs])
    got = Graph.from_pyg(batch)
    assert torch.equal(got.batch, whole.batch)
    assert torch.equal(got.adj.to_dense(), whole.adj.to_dense())
    back = whole.to_pyg(Batch)
    assert torch.equal(back.ptr, batch.ptr)
    assert torch.equal(back.batch, batch.batch)
    of_nodes = [Data(x=g.x, edge_index=g.edge_index, y=torch.arange(g.num_nodes)) for g in graphs]
    assert Graph.from_pyg(Batch.from_data_list(of_nodes)).batch is None
    nobody = Data(x=torch.ones(0, 3), edge_index=NONE, y=NONE[0], batch=NONE[0])
    refuses("batch to name a graph, but got no nodes", lambda: Graph.from_pyg(nobody))
    moved = whole.to("cpu")
    assert torch.equal(moved.batch, whole.batch)


def test_a_cohort_of_collections_and_graphs_is_refused() -> None:
    refuses("client 1 to have fields", lambda: Cohort([Graph.join([one(3)]), one(3)]))
