"""`Graph`: what it refuses, what it is made from and cut into."""

import copy
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from federations import refuses
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph as pyg_subgraph

import fgl
from fgl import Graph, SparseMatrix
from fgl.federation.training.minibatches import with_train_mask
from fgl.graph import MASKS
from fgl.nn import GCN
from fgl.sampler import NeighbourSampler

EDGES = torch.tensor([[0, 1, 2, 2, 3, 0], [1, 0, 1, 3, 2, 0]])
TRUE = torch.ones(4, dtype=torch.bool)


def graph(**changes: Any) -> Graph:
    """Four nodes, six edges, everything given."""
    fields: dict[str, Any] = {
        "x": torch.arange(8.0).view(4, 2),
        "edge_index": EDGES,
        "y": torch.tensor([0, 2, 1, 0]),
        "num_classes": 4,
        "train_mask": torch.tensor([True, False, False, True]),
        "val_mask": torch.tensor([False, True, False, False]),
        "test_mask": torch.tensor([False, False, True, False]),
        "node_id": torch.tensor([10, 11, 12, 13]),
        "edge_weight": torch.arange(1.0, 7),
    }
    return Graph(**{**fields, **changes})


def same(a: Graph, b: Graph) -> bool:
    def equal(v: Any, w: Any) -> bool:
        return torch.equal(v, w) if isinstance(v, Tensor) and isinstance(w, Tensor) else v == w

    return all(equal(v, vars(b)[name]) for name, v in vars(a).items() if name != "adj")


def changed(tensor: Tensor, index: Any, value: float) -> Tensor:
    tensor = tensor.clone()
    tensor[index] = value
    return tensor


X = torch.ones(4, 2)
BAD: list[tuple[dict[str, Any], str]] = [
    ({"x": [[1.0]]}, "Expected x to be a Tensor or SparseMatrix, but got list"),
    ({"x": None}, "Expected x to be a Tensor or SparseMatrix, but got NoneType"),
    ({"x": torch.ones(4)}, r"x to have shape \[num_nodes, num_features\], .*, but got \[4\]"),
    ({"x": X.long()}, "Expected x to be floating point, but got torch.int64"),
    ({"x": changed(X, (0, 1), float("nan"))}, "Expected x to be finite, but got 1 NaN"),
    ({"x": changed(X, 0, float("inf"))}, "Expected x to be finite, but got 2 NaN or"),
    ({"x": SparseMatrix.from_dense(changed(X, 0, -torch.inf))}, "x to be finite, but got 2 NaN or"),
    ({"edge_index": EDGES.float()}, "edge_index to be an int64 tensor, but got torch.float32"),
    ({"edge_index": EDGES.int()}, "edge_index to be an int64 tensor, but got torch.int32"),
    ({"edge_index": [[0], [1]]}, "edge_index to be an int64 tensor, but got list"),
    ({"edge_index": EDGES.T}, r"edge_index to have shape \[2, \*\], but got \[6, 2\]: .*\.t\("),
    ({"edge_index": EDGES[0]}, r"edge_index to have shape .* but got \[6\]"),
    ({"edge_index": changed(EDGES, (0, 0), 4)}, r"edge_index to be in \[0, 4\), but got 4"),
    ({"edge_index": changed(EDGES, (1, 3), -1)}, r"edge_index to be .* but got -1"),
    ({"y": torch.ones(4), "num_classes": 2}, "num_classes to be left out beside y of"),
    ({"y": torch.ones(4).int()}, r"torch.int32: call .long\(\)"),
    ({"y": torch.ones(4).bool()}, r"an int64 tensor, but got torch.bool: call .long\(\)"),
    ({"y": torch.tensor([0, -1, 1, 1])}, "but got -1: .*out of the masks"),
    ({"y": torch.tensor([0, 1])}, r"Expected y to have shape \[4\], but got \[2\]"),
    ({"y": torch.zeros(4, 1).long()}, r"y to have shape \[4\], but got \[4, 1\]"),
    ({"y": torch.tensor([0, 1, 2, 4])}, r"Expected y to be in \[0, 4\), but got 4"),
    ({"y": torch.tensor([0, 1, 2, -1]), "num_classes": None}, "at least 0, but got -1: replace"),
    ({"num_classes": 0}, "Expected num_classes to be an integer >= 1, but got 0"),
    *(({name: value}, f"Expected {name} to {message}") for name in ("train_mask", "val_mask",
        "test_mask") for value, message in ((TRUE[:3], r"have shape \[4\], but got \[3\]"), (TRUE[:,
        None], r"have shape \[4\], but got \[4, 1\]"), (TRUE.long(),
        rf"be a bool tensor, .*int64: {name}.bool\(\)"), (torch.arange(3),
        r"be a bool .*: torch.zeros\(4, .*index_fill\(0, .*_mask, True"), ([True] * 4,
        r"be a bool tensor, but got list: torch.tensor"),)),
    *(({name: value.requires_grad_()}, rf"{name} to require no .*: {name}.detach\(\)") for name,
        value in (("x", torch.rand(4, 2)), ("edge_weight", torch.rand(6)), ("edge_attr",
        torch.rand(6, 2)), ("y", torch.rand(4)),)),
    ({"x": torch.rand(4, 2) > 0}, r"x to be floating point, .*bool: call .float\(\)"),
    ({"x": torch.ones(4, 2).long()}, r"x to be floating .*int64: call .float\(\)"),
    ({"x": torch.rand(4, 2) + 0j}, r"x to be .*complex64: torch.view_as_real\(x\)"),
    *(({**dict.fromkeys(MASKS), one: TRUE, two: changed(~TRUE, 2, True)},
        f"got 1 in both {one} and {two}",) for one, two in combinations(MASKS, 2)),
    ({"node_id": torch.tensor([0, 1, 2, -3])}, "node_id to be at least 0, but got -3"),
    ({"node_id": torch.arange(3)}, r"node_id to have shape \[4\], but got \[3\]"),
    ({"node_id": torch.rand(4)}, "node_id to be an int64 tensor, but got torch.float32"),
    ({"edge_weight": torch.ones(5)}, r"edge_weight to have shape \[6\], but got \[5\]"),
    ({"edge_weight": EDGES[0]}, "edge_weight to be a float tensor, but got torch.int64"),
    ({"edge_weight": [1.0] * 6}, "edge_weight to be a float tensor, but got list"),
    ({"edge_weight": changed(torch.ones(6), 2, float("nan"))},
        "Expected edge_weight to be finite, but got NaN or infinite values",),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BAD, ids=[f"{b[0]}"[:40] for b in BAD])
def test_refuses(change: dict[str, Any], message: str) -> None:
    refuses(message, lambda: graph(**change), (TypeError, ValueError))
    with pytest.raises((TypeError, ValueError), match=message):  # a changed copy is checked again
        graph().replace(**change)


def test_masks_of_several_splits_become_tensors_of_their_own() -> None:
    masks = torch.eye(4, dtype=torch.bool)
    one = graph(train_mask=masks[:, 0], val_mask=masks[:, 1], test_mask=masks[:, 2])
    assert torch.equal(one.train_mask, masks[0]) and torch.equal(one.val_mask, masks[1])
    assert all(mask.is_contiguous() for mask in (one.train_mask, one.val_mask, one.test_mask))


def test_labels_with_gaps_are_told() -> None:
    far, near = torch.tensor([0, 1000, 2000, 0]), torch.tensor([0, 3, 1, 1])
    for y, classes, used in ((far, 2001, 3), (near, 4, 3)):
        with pytest.warns(UserWarning, match=rf"only {used} of .*num_classes={classes} says that"):
            assert graph(y=y, num_classes=None).num_classes == classes
        assert graph(y=y, num_classes=classes).num_classes == classes
        numbered = y.unique(return_inverse=True)[1]
        assert graph(y=numbered, num_classes=None).num_classes == used


def test_negative_weights_are_refused_where_degrees_are_normalised() -> None:
    signed = graph(edge_weight=torch.tensor([1.0, -0.5, 1, 1, 1, 1]))
    assert signed.adj.to_dense().min() == -0.5
    text = r"edge_weight to be at least 0 .* but got -0.5: edge_weight.abs\(\)"
    for at_once in (1, "all"):
        with pytest.raises(ValueError, match=text):
            fgl.run(fgl.fedavg(GCN(2, 4, 4)), [signed] * 2, num_rounds=1, clients_at_once=at_once)
    with pytest.raises(ValueError, match=text):
        _ = NeighbourSampler(signed, (2,)).scale
    for weight in (signed.edge_weight.abs(), None):
        fgl.run(fgl.fedavg(GCN(2, 4, 4)), [graph(edge_weight=weight)], num_rounds=1)
    other = GCN(2, 4, 4, normalize=False)
    fgl.run(fgl.fedavg(other), [signed], num_rounds=1)


def test_features_of_another_dtype_have_a_remedy_that_works() -> None:
    wide, model = graph(x=torch.rand(4, 2, dtype=torch.float64), edge_weight=None), GCN(2, 4, 4)
    sparse = wide.replace(x=SparseMatrix.from_dense(wide.x))
    for own, cast in ((wide, "to"), (sparse, "astype")):
        text = rf"graph.x.{cast}\(torch.float32\)\), or model.to\(torch.float64\)"
        with pytest.raises(TypeError, match=text):
            fgl.run(fgl.fedavg(model), [own], num_rounds=1)
        narrow = own.replace(x=getattr(own.x, cast)(torch.float32))
        fgl.run(fgl.fedavg(model), [narrow], num_rounds=1)
        fgl.run(fgl.fedavg(copy.deepcopy(model).to(torch.float64)), [own], num_rounds=1)


def test_training_examples_are_counted_again_where_the_mask_changes() -> None:
    g = graph()
    assert (g.num_train, g.num_train) == (2, 2)
    g.train_mask.fill_(True)  # type: ignore[union-attr]
    assert g.num_train == 4
    assert copy.deepcopy(g).num_train == 4
    assert with_train_mask(g, torch.tensor([True, False, False, False])).num_train == 1
    with torch.inference_mode():
        assert graph().num_train == 2


def loops(g: Graph, nodes: list[int]) -> list[tuple[int, int, float]]:
    """Edges of the induced subgraph, in the order of the whole graph's."""
    assert g.edge_weight is not None
    return [
        (nodes.index(s), nodes.index(t), w)
        for s, t, w in zip(*g.edge_index.tolist(), g.edge_weight.tolist(), strict=True)
        if s in nodes and t in nodes
    ]


@pytest.mark.parametrize("nodes", [[], [2], [3, 0, 2], [1, 0], [0, 1, 2, 3]])
@pytest.mark.parametrize("sparse", [False, True])
def test_subgraph(nodes: list[int], sparse: bool) -> None:
    g = graph()
    if sparse:
        g = g.replace(x=SparseMatrix.from_dense(g.x))
    index = torch.tensor(nodes, dtype=torch.int64)
    part = g.subgraph(index)
    x, whole = (h.x.to_dense() if isinstance(h.x, SparseMatrix) else h.x for h in (part, g))
    torch.testing.assert_close(x, whole[index])
    for name in ("y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(getattr(part, name), getattr(g, name)[index])
    assert part.node_id.tolist() == [10 + i for i in nodes]
    assert part.num_classes == 4
    got = [*zip(*part.edge_index.tolist(), part.edge_weight.tolist(), strict=True)]
    assert got == loops(g, nodes)
    if nodes == sorted(nodes):
        edges, weight = pyg_subgraph(
            index, g.edge_index, g.edge_weight, relabel_nodes=True, num_nodes=4
        )
        assert torch.equal(part.edge_index, edges)
        assert torch.equal(part.edge_weight, weight)


@pytest.mark.parametrize(("nodes", "message"), [
    (torch.tensor([0, 4]), r"Expected nodes to be in \[0, 4\), but got 4"),
    (torch.tensor([-1]), r"Expected nodes to be in \[0, 4\), but got -1"),
    (torch.tensor([1, 1]), "Expected nodes to be without repeats"),
    (TRUE, r"nodes to be an int64 tensor, but got torch.bool: mask.nonzero\(\)\[:, 0\]"),
    ([0], r"nodes to be an int64 tensor, but got list: torch.tensor\(nodes\)"),
    (torch.tensor([[0]]), "Expected nodes to have shape"),
])  # fmt: skip
def test_subgraph_refuses(nodes: Any, message: str) -> None:
    refuses(message, lambda: graph().subgraph(nodes), (TypeError, ValueError))


def test_edges_to_keep_are_named_once_each() -> None:
    """Ones and zeros for a mask would name edges 0 and 1 again and again."""
    made = fgl.Graph(torch.eye(3), torch.tensor([[0, 1, 2], [1, 2, 0]]))
    for edges, error in (
        (torch.tensor([1, 0, 1]), ValueError), (torch.tensor([-1]), ValueError),
        (torch.tensor([3]), ValueError), (torch.tensor([True]), ValueError),
        (torch.tensor([1.0]), TypeError),
    ):  # fmt: skip
        with pytest.raises(error, match="Expected edges"):
            made.with_edges(edges)


def test_pyg_without_the_optional_fields() -> None:
    data = Data(x=X, edge_index=EDGES)
    g = Graph.from_pyg(data)
    assert (g.y, g.num_classes, g.train_mask, g.node_id) == (None, None, None, None)
    assert sorted(g.to_pyg(Data).keys()) == ["edge_index", "x"]
    assert same(Graph.from_pyg(SimpleNamespace(x=X, edge_index=EDGES)), g)
    with pytest.raises(ValueError, match="data.x to be the features of nodes, but got N"):
        Graph.from_pyg(Data(edge_index=EDGES))
    labelled = Data(x=X, edge_index=EDGES, y=torch.tensor([0, 1, 0, 1]))
    assert Graph.from_pyg(labelled, num_classes=3).num_classes == 3
    with pytest.raises(ValueError, match=r"Expected y to be in \[0, 1\), but got 1"):
        Graph.from_pyg(labelled, num_classes=1)
    labelled.y[2] = 7
    with pytest.warns(UserWarning, match="only 3 of these 8 occur: .* label 7 of example 2 is a m"):
        Graph.from_pyg(labelled)


def test_sparse_features_become_dense_in_pyg() -> None:
    g = graph(x=SparseMatrix.from_dense(torch.eye(4)))
    assert torch.equal(g.to_pyg(Data).x, torch.eye(4))


def test_torch_sparse_features_are_refused() -> None:
    edges = torch.zeros(2, 0, dtype=torch.int64)
    with pytest.raises(TypeError, match="Expected x to be dense or a SparseMatrix"):
        Graph(torch.eye(3).to_sparse_csr(), edges)
