"""Fusion, pseudo labels and the pseudo graph against loops and the dense construction."""

from typing import Any

import pytest
import torch
from federations import close, refuses

import fgl
from fgl import pseudo
from fgl.pseudo import fuse, pseudo_graph, pseudo_labels
from fgl.pseudo.quality import describe

HELD = [torch.tensor([0, 3, 4]), torch.tensor([4, 1]), torch.tensor([], dtype=torch.int64)]


def rows(seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(len(h), 2, generator=generator, dtype=torch.float64) for h in HELD]


def naive_fuse(values: Any, ids: Any, weight: Any, num_nodes: int, fill: str) -> torch.Tensor:
    out = torch.zeros(num_nodes, values[0].shape[1], dtype=values[0].dtype)
    for node in range(num_nodes):
        total = 0.0
        for own, held, w in zip(values, ids, weight.tolist(), strict=True):
            for row, i in enumerate(held.tolist()):
                if i == node:
                    out[node] += w * own[row]
                    total += w
        if fill == "padded":
            total = float(weight.sum())
        if total:
            out[node] /= total
    return out


@pytest.mark.parametrize("fill", pseudo.fusion.FILLS)
@pytest.mark.parametrize("weight", [[3, 2, 1], [0, 5, 0], [0.5, 0.25, 7.0]])
def test_fuse_is_its_formula(fill: str, weight: list[float]) -> None:
    w = torch.tensor(weight)
    got = fuse(rows(), HELD, w, 6, fill=fill)
    close(got, naive_fuse(rows(), HELD, w, 6, fill), atol=1e-12)


def test_threshold_before_fusing() -> None:
    own = [torch.tensor([[0.9, 0.1]]), torch.tensor([[0.4, 0.6]])]
    got = fuse(own, [torch.tensor([0])] * 2, torch.tensor([1, 1]), 1, threshold=0.5)
    close(got, torch.tensor([[0.45, 0.3]]))


@pytest.mark.parametrize(("change", "message"), [
    ({"node_id": [torch.tensor([0, 0, 4]), *HELD[1:]]}, "client 0's rows .* once, but got 0"),
    ({"node_id": [torch.tensor([0, 6, 4]), *HELD[1:]]}, r"in \[0, 6\), but got 6"),
    ({"node_id": [torch.tensor([0, -1, 4]), *HELD[1:]]}, "but got -1"),
    ({"rows": [rows()[0][:2], *rows()[1:]]}, r"shape \[3, 2\], but got \[2, 2\]"),
    ({"rows": [rows()[0], rows()[1][:, :1], rows()[2]]}, r"client 1's rows .*\[2, 2\]"),
    ({"weight": torch.tensor([0, 0, 0])}, "weight to be >= 0 and not all 0"),
    ({"weight": torch.tensor([1, -1, 0])}, "weight to be >= 0"),
    ({"weight": torch.tensor([1, 1])}, "one per client, but got .3, 3, 2."),
    ({"fill": "mean"}, "Expected fill to be one of"),
])  # fmt: skip
def test_fuse_refuses(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"rows": rows(), "node_id": HELD, "weight": torch.tensor([1, 2, 3])}
    given |= {"num_nodes": 6, **change}
    refuses(message, lambda: fuse(**given))


def test_pseudo_labels_are_strictly_above() -> None:
    scores = torch.tensor([[0.7, 0.3], [0.2, 0.8], [0.5, 0.5], [0.0, 0.0]])
    assert pseudo_labels(scores, threshold=0.5).tolist() == [0, 1, -1, -1]
    assert pseudo_labels(scores, threshold=0.7).tolist() == [-1, 1, -1, -1]


def dense_pseudo_graph(h: torch.Tensor, s: int) -> torch.Tensor:
    """The dense way: all similarities, a full sort of every row."""
    sim = (h @ h.t()).clamp(min=0)
    order = sim.argsort(dim=1, descending=True)
    kept = torch.zeros_like(sim).scatter(1, order[:, :s], 1.0) * sim
    total = kept.sum(1, keepdim=True)
    return kept / torch.where(total > 0, total, 1)


@pytest.mark.parametrize("block", [1, 50, 10**6])
@pytest.mark.parametrize("s", [1, 4, 30])
def test_pseudo_graph_is_the_dense_one(s: int, block: int) -> None:
    torch.manual_seed(s)
    h = torch.randn(23, 3, dtype=torch.float64)
    h[5] = 0  # similar to nobody
    got = pseudo_graph(h, s=s, block=block)
    want = dense_pseudo_graph(h, s)
    close(got.to_dense(), want, atol=1e-12)
    assert got.nnz == int((want > 0).sum())
    inside = got.pattern.row[1:] == got.pattern.row[:-1]
    assert (got.pattern.col[1:] > got.pattern.col[:-1])[inside].all()


@pytest.mark.slow
def test_pseudo_graph_at_the_size_of_cora() -> None:
    torch.manual_seed(0)
    h = torch.randn(2708, 7, dtype=torch.float64)
    assert torch.equal(pseudo_graph(h, s=100).to_dense() > 0, dense_pseudo_graph(h, 100) > 0)
    close(pseudo_graph(h, s=100).to_dense(), dense_pseudo_graph(h, 100), atol=1e-14)


def test_pseudo_graph_of_nothing_and_bad_input() -> None:
    assert pseudo_graph(torch.zeros(0, 3)).shape == (0, 0)
    assert pseudo_graph(torch.zeros(4, 3)).nnz == 0
    assert not pseudo_graph(torch.rand(4, 3, requires_grad=True)).value.requires_grad
    refuses("Expected s to be an integer >= 1", lambda: pseudo_graph(torch.rand(4, 3), s=0))
    refuses(r"Expected h to have shape \[N, C\]", lambda: pseudo_graph(torch.rand(4)))


def test_overlapping_partition() -> None:
    graph = fgl.Graph(torch.ones(200, 1), torch.tensor([[0], [1]]))
    shares = [0.3, 0.4, 0.5, 0.5, 0.6, 0.7]
    parts = fgl.data.partitions.overlapping_partition(graph, shares, seed=3)
    assert [len(p) for p in parts] == [60, 80, 100, 100, 120, 140]
    assert all(len(p.unique()) == len(p) for p in parts)
    again = fgl.data.partitions.overlapping_partition(graph, shares, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))
    for ratio in (0.0, 0.1, 0.3):
        parts = fgl.data.partitions.overlapping_partition(graph, shares, common=ratio)
        assert [len(p) for p in parts] == [60, 80, 100, 100, 120, 140]
        held = torch.stack([torch.bincount(p, minlength=200) for p in parts])
        assert int(held.all(0).sum()) == round(200 * ratio)
    with pytest.raises(ValueError, match="client 1's share"):
        fgl.data.partitions.overlapping_partition(graph, [0.5, 1.2])
    with pytest.raises(ValueError, match="outside of some client"):
        fgl.data.partitions.overlapping_partition(graph, [1.0, 1.0], common=0.2)


@pytest.mark.parametrize("row", [[1.5, -0.5], [0.95, 0.0], [torch.nan, 1.0]])
def test_what_is_no_probability_is_refused(row: list[float]) -> None:
    predictions = torch.tensor([[0.5, 0.5], row])
    message = {"num_examples": torch.tensor(2), "node_id": torch.tensor([0, 1])}
    message |= {"predictions": predictions, "embeddings": predictions}
    with pytest.raises(ValueError, match=r"Expected predictions to be probabilities, .* row 1 "):
        pseudo.uploads.check_upload(message, 2, 2)


def test_edges_that_two_clients_hold_count_once_and_loops_not_at_all() -> None:
    held = torch.tensor([0, 1])
    own = (torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0]), torch.tensor([0.5, 0.25, 0.25]))
    found = describe([], [own, own], [held, held], torch.tensor([0, 1]))
    assert found == {"pseudo_homophily": 0.0, "pseudo_column_sum": 0.75}


def test_the_threshold_itself_is_kept() -> None:
    got = fuse([torch.tensor([[0.5, 0.25]])], [torch.tensor([0])], torch.ones(1), 1, threshold=0.5)
    assert got.tolist() == [[0.5, 0.0]]


# What a server refuses.


def upload(*ids: int, **changes: Any) -> dict[str, Any]:
    message = {
        "num_examples": torch.tensor(len(ids)),
        "node_id": torch.tensor(ids),
        "predictions": torch.full((len(ids), 2), 0.5),
        "embeddings": torch.ones(len(ids), 2),
    }
    return {**message, **changes}


KNOWN = pseudo.nodes_of({7: upload(0, 3, 4)}, {})


DOUBLES = dict.fromkeys(pseudo.ROWS[1:], torch.full((3, 2), 0.5).double())
HUGE = torch.full((3, 2), 1e30)
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    (upload(0, 3), ValueError, "to be the 3 nodes that the client had before, but got 2"),
    (upload(0, 3, 5), ValueError, r"node ids in \[0, 5\), but got 5"),
    (upload(0, 3, 3), ValueError, "each node id once, but got 3 again"),
    (upload(0, 3, 4, embeddings=HUGE), ValueError, "of finite length"),
    (upload(0, 3, 4, **DOUBLES), TypeError, "predictions to be torch.float32, .* torch.float64"),
]


@pytest.mark.parametrize(("message", "kind", "text"), REFUSED)
def test_uploads_that_are_refused(message: Any, kind: Any, text: str) -> None:
    refuses(text, lambda: pseudo.upload_check(5, torch.zeros(2))(message, 7, KNOWN), kind)


def test_uploads_that_are_taken() -> None:
    accept = pseudo.upload_check(5, torch.zeros(2))
    accept(upload(0, 3, 4), 7, KNOWN)
    accept(upload(0, 1, 3, 4), 7, KNOWN)  # more nodes than before
    accept(upload(0), 2, KNOWN)  # of whom nothing is known
    assert sorted(pseudo.nodes_of({2: upload(0)}, KNOWN)["nodes"]) == ["2", "7"]


@pytest.mark.parametrize("kept", [pseudo.client_parts.NAMES, ("labels",), ("row", "col", "weight")])
def test_a_part_for_other_nodes_is_left_out(kept: Any) -> None:
    graph = fgl.Graph(torch.eye(3), torch.zeros(2, 0, dtype=torch.int64))
    similar = pseudo_graph(torch.eye(4), s=4)
    part = pseudo.part_of(torch.arange(4), torch.zeros(4, dtype=torch.int64), similar)
    message = {"model": {}, **{key: value for key, value in part.items() if key in kept}}
    with pytest.warns(UserWarning, match="a part for the client's 3 nodes, but got one for others"):
        rest, labels, edges = pseudo.unpacked(message, graph)
    assert rest == {"model": {}}
    assert labels.tolist() == [-1, -1, -1]
    assert not edges.to_dense().any()
