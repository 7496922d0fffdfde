"""Typed graphs: types side by side, shared types, metapaths, and networks on them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from federations import refuses
from torch import Tensor

import fgl
from fgl import tasks
from fgl.data import from_hetero, from_link_split, metapaths, to_hetero, typed_graph, with_shared

BY, AT = ("paper", "by", "author"), ("paper", "at", "conf")


def pieces(seed: int = 0) -> dict[str, Any]:
    """Five papers with three features, four authors without, two conferences with two."""
    rng = torch.Generator().manual_seed(seed)
    by = torch.tensor([[0, 0, 1, 2, 3, 4], [0, 1, 1, 2, 3, 0]])
    at = torch.tensor([[0, 1, 2, 3], [0, 1, 1, 0]])
    return {
        "nodes": {
            "paper": torch.rand(5, 3, generator=rng) + 0.1,
            "author": 4,
            "conf": torch.eye(2),
        },
        "relations": {BY: by, AT: at},
        "y": {"author": torch.tensor([1, 0, 2, 1])},
        "train_mask": {"author": torch.tensor([True, True, False, True])},
        "edge_attr": {BY: torch.rand(6, 2, generator=rng), AT: torch.rand(4, 1, generator=rng)},
        "edge_time": {BY: torch.arange(6), AT: torch.arange(4) + 10},
    }


def graph(seed: int = 0, **others: Any) -> fgl.Graph:
    given = pieces(seed) | others
    return typed_graph(given.pop("nodes"), given.pop("relations"), **given)


def rows(edges: Tensor) -> list[tuple[int, int]]:
    return [(int(u), int(v)) for u, v in edges.T]


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"relations": {("paper", "by", "who"): torch.zeros(2, 1).long()}},
        r"to join .* but got \['who'",
    ),
    ({"relations": {BY: torch.tensor([[5], [0]])}}, r"to be in \[0, 5\), but got 5"),
    ({"y": {"venue": torch.zeros(2).long()}}, "Expected y to be of .* but got ..venue.."),
    (
        {"train_mask": {"author": torch.ones(3).bool()}},
        r"torch.bool of shape \[4\], but got torch.bool \[3",
    ),
    ({"edge_time": {BY: torch.arange(6)}}, "edge_time of all relations, but got none of"),
    ({"edge_attr": {BY: torch.rand(5, 2)}}, r"to have shape \[6, \*\], but got \[5, 2\]"),
    ({"edge_attr": {("a", "b", "c"): torch.rand(5, 2)}}, "Expected edge_attr to be of"),
    ({"nodes": {}}, "Expected nodes to have a type, but got none"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=range(len(REFUSED)))
def test_what_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    base = {"y": None, "train_mask": None, "edge_attr": None, "edge_time": None}
    refuses(message, lambda: graph(**(base | change if "relations" in change else change)))


@pytest.mark.parametrize("way", ["random", "class_capped"])
def test_nodes_of_types_without_labels_are_not_split(way: str) -> None:
    """Their label 0 is no answer; what is split is split as a graph of these nodes alone."""
    y = torch.arange(30) % 3
    nodes = {"paper": 50, "author": torch.eye(30)}
    none = {BY: torch.zeros(2, 0, dtype=torch.int64)}
    typed = fgl.data.splits.split(typed_graph(nodes, none, y={"author": y}), way, seed=3)
    alone = fgl.Graph(torch.eye(30), none[BY], y=y)
    alone = fgl.data.splits.split(alone, way, seed=3)
    for name in ("train_mask", "val_mask", "test_mask"):
        assert not getattr(typed, name)[:50].any()
        assert torch.equal(getattr(typed, name)[50:], getattr(alone, name))
    again = fgl.data.splits.random_split(typed.replace(train_mask=None), train=0.5, val=0.5)
    assert int(again.train_mask.sum()) == 15  # type: ignore[union-attr]
    pairs = {"edge_label_index": torch.arange(80).expand(2, 80), "y": None, "num_classes": None}
    pairs |= {"train_mask": typed.train_mask, "val_mask": None, "test_mask": None}
    asked = fgl.data.splits.random_split(typed.replace(**pairs))
    assert int(sum(m.sum() for m in (asked.train_mask, asked.val_mask, asked.test_mask))) == 80  # type: ignore[union-attr]


def test_shared_nodes_join_the_clients_that_touch_them() -> None:
    """Beside a twin in loops."""
    made = graph(both=True)
    parts = [torch.tensor([0, 5, 9]), torch.tensor([3, 1, 2, 6]), torch.tensor([4, 7, 8, 10])]
    shared = with_shared(made, parts, types=[2])
    for part, more in zip(parts, shared, strict=True):
        own = set(part.tolist())
        ends = rows(made.edge_index)
        touched = {v for u, v in ends if u in own} | {u for u, v in ends if v in own}
        want = sorted(node for node in touched - own if node >= 9)
        assert more.tolist() == part.tolist() + want
    clients = fgl.data.partitions.partition_graph(made, shared)
    assert [int((own.node_type == 2).sum()) for own in clients] == [1, 2, 1]
    with pytest.raises(ValueError, match="Expected the graph to have node_type, but got none"):
        with_shared(fgl.Graph(torch.eye(2), torch.tensor([[0], [1]])), [], [0])


def test_metapaths_are_walks() -> None:
    """Beside a twin that walks."""
    made = graph(both=True)
    paths = [[2, 0], [2, 1, 3, 0], [1]]
    composed = metapaths(made, paths)
    typed = list(zip(rows(made.edge_index), made.edge_type.tolist(), strict=True))
    want = []
    for k, path in enumerate(paths):
        pairs = {(u, u) for u in range(made.num_nodes)}
        for relation in path:
            pairs = {(a, v) for a, b in pairs for (u, v), r in typed if r == relation and u == b}
        want += [(pair, k) for pair in pairs]
    got = list(zip(rows(composed.edge_index), composed.edge_type.tolist(), strict=True))
    assert sorted(got) == sorted(want)
    assert composed.edge_attr is None and torch.equal(composed.node_type, made.node_type)
    refuses("Expected edges with types and paths", lambda: metapaths(made, [[]]))


def hetero(**others: Any) -> Any:
    pyg = pytest.importorskip("torch_geometric.data")
    given, data = pieces(), pyg.HeteroData()
    data["paper"].x, data["author"].num_nodes = given["nodes"]["paper"], 4
    data["conf"].x = given["nodes"]["conf"]
    data["author"].y = given["y"]["author"]
    data["author"].train_mask = given["train_mask"]["author"]
    for of, edges in given["relations"].items():
        data[of].edge_index = edges
        data[of].edge_attr, data[of].edge_time = given["edge_attr"][of], given["edge_time"][of]
    return data


def test_what_hetero_data_has_besides_is_refused_by_name() -> None:
    for of, name, value, text in (
        ("paper", "title", torch.zeros(5), r"data\['paper'\] .*but got \['title'\] besides"),
        (BY, "weight", torch.zeros(6), r"but got \['weight'\] besides"),
        (BY, "time", torch.zeros(6), r"\['time'\] besides: .* edge_time"),
        (None, "name", "all", r"Expected data itself .*but got \['name'\] besides"),
        ("author", "train_mask", torch.ones(4, 3, dtype=torch.bool), "split"),
    ):
        data = hetero()
        setattr(data if of is None else data[of], name, value)
        with pytest.raises(ValueError, match=text):
            from_hetero(data)
        assert from_hetero(data, ignore=[name]).num_nodes == 11
    assert int(from_hetero(data, split=1).train_mask.sum()) == 4
    with pytest.raises(TypeError, match="to have types of nodes and edges, but got Tensor"):
        from_hetero(torch.eye(2))


def test_labels_of_several_types_are_not_one_numbering() -> None:
    one, many = torch.arange(4) % 2, torch.tensor([0, 1, 2, 3, 4])
    both = {"author": one, "paper": many}
    with pytest.raises(ValueError, match=r"y to be of one type .* got \['author', 'paper'\]"):
        graph(y=both, train_mask=None)
    assert graph(y=both, train_mask=None, num_classes=5).num_classes == 5
    assert graph(y={k: v.float() for k, v in both.items()}, train_mask=None).num_classes is None
    data = hetero()
    data["author"].y, data["paper"].y = one, many
    data["paper"].val_mask = many > 2
    refuses(r"y of one type .* targets=\['paper'\] reads", lambda: from_hetero(data))
    for targets, classes in ((["paper"], 5), (["author"], 2), (["author", "paper"], 5)):
        found = from_hetero(data, targets=targets)
        assert found.num_classes == classes
        papers, authors = found.train_mask[:5], found.train_mask[5:9]
        assert bool(authors.any()) == ("author" in targets)
        if "paper" in targets:
            assert found.val_mask[:5].tolist() == (many > 2).tolist()
            assert not (papers & found.val_mask[:5]).any()
        else:
            assert found.val_mask is None
    del data["paper"].y
    refuses(r"val_mask to be of types with y, .* targets=\['author'\]", lambda: from_hetero(data))
    assert from_hetero(data, targets=["author"]).val_mask is None
    data["paper"].y = many
    for targets in (["conf"], "paper"):
        with pytest.raises((TypeError, ValueError), match="Expected targets to be .*'paper'"):
            from_hetero(data, targets=targets)
    with pytest.raises(ValueError, match="Expected val_mask to be of .* but got ..paper"):
        graph(val_mask={"paper": many > 2})


def asked() -> Any:
    pyg = pytest.importorskip("torch_geometric.data")
    data = pyg.HeteroData()
    data["u"].x, data["m"].x = torch.rand(4, 2, dtype=torch.float64), torch.rand(5, 3)
    data["u", "rates", "m"].edge_index = torch.tensor([[0, 1, 2, 3, 0], [4, 3, 2, 1, 0]])
    data["u", "rates", "m"].edge_label = torch.tensor([3, 1, 2, 5, 4])
    return data


@pytest.mark.filterwarnings("ignore:Labels are 0 to")  # a part may lack some
def test_labels_of_a_relation_are_pairs_to_learn_from() -> None:
    data, of = asked(), ("u", "rates", "m")
    found = from_hetero(data)
    want = data[of].edge_index + torch.tensor([[0], [4]])
    assert torch.equal(found.edge_label_index, want) and torch.equal(found.y, data[of].edge_label)
    assert found.edge_label_type.tolist() == [0] * 5
    assert found.x.dtype == torch.float32
    from torch_geometric.transforms import RandomLinkSplit, ToUndirected

    split = RandomLinkSplit(0.2, 0.2, edge_types=of, rev_edge_types=("m", "rev_rates", "u"))
    for part in split(ToUndirected()(data)):
        found = from_hetero(part)
        want = part[of].edge_label_index + torch.tensor([[0], [4]])
        assert torch.equal(found.edge_label_index, want)
        assert torch.equal(found.y, part[of].edge_label)
        assert found.num_edges == 2 * part[of].edge_index.shape[1]
    data["u"].y = torch.arange(4)
    refuses(r"ignore=\['y'\] learns edge_label", lambda: from_hetero(data))
    assert from_hetero(data, ignore=["y"]).num_examples == 5
    assert from_hetero(data, ignore=["edge_label", "edge_label_index"]).num_examples == 9
    del data["u"].y
    data["m", "by", "u"].edge_index, data["m", "by", "u"].edge_label = want[:, :0], want[0, :0]
    refuses(r"edge_label of one relation, .*'rates'.*'by'", lambda: from_hetero(data))
    del data["m", "by", "u"].edge_label
    data[of].edge_label_index = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]])
    refuses(r"edge_label_index of .* to be in \[0, 4\), but got 4", lambda: from_hetero(data))


def test_three_parts_of_a_link_split_are_one_graph() -> None:
    """Typed and untyped; what a test asks about is no message, nor its reverse."""
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.transforms import RandomLinkSplit, ToUndirected

    torch.manual_seed(0)
    edges, of, rev = (
        torch.unique(torch.randint(60, (2, 500)), dim=1),
        ("u", "r", "m"),
        ("m", "s", "u"),
    )
    plain, typed = Data(x=torch.rand(60, 3), edge_index=edges), HeteroData()
    typed["u"].x, typed["m"].x, typed[of].edge_index = plain.x, plain.x, edges
    typed[rev].edge_index = edges.flip(0)
    both = ToUndirected()(plain)
    for data, how, rows in (
        (plain, {}, 60),
        (both, {"is_undirected": True}, 60),
        (typed, {"edge_types": of, "rev_edge_types": rev, "disjoint_train_ratio": 0.3}, 120),
    ):
        parts = RandomLinkSplit(0.2, 0.3, **how)(data)  # type: ignore[arg-type]
        graph: Any = from_link_split(*parts)
        assert graph.num_nodes == rows and graph.has("edge_label_type") == (data is typed)
        messages = {*map(tuple, graph.edge_index.T.tolist())}
        tested = graph.edge_label_index[:, (graph.val_mask | graph.test_mask) & (graph.y == 1)].T
        assert tested.numel() and not messages & {*map(tuple, tested.tolist())}
        assert data is plain or not messages & {*map(tuple, tested.flip(1).tolist())}
        counts = [int(m.sum()) for m in (graph.train_mask, graph.val_mask, graph.test_mask)]
        assert counts == [len(part[of if data is typed else None].edge_label) if data is typed
                          else len(part.edge_label) for part in parts]  # fmt: skip
    train, val, test = RandomLinkSplit(0.2, 0.3, is_undirected=False)(both)
    refuses("reverse of a pair .*is_undirected=True", lambda: from_link_split(train, val, test))
    train, val, test = RandomLinkSplit(0.2, 0.3, edge_types=of)(typed)
    refuses("reverse of a pair .*rev_edge_types", lambda: from_link_split(train, val, test))
    train, val, test = RandomLinkSplit(0.2, 0.3)(plain)
    refuses("val's pairs among train's edges", lambda: from_link_split(test, val, test))
    refuses("test's pairs among val's pairs", lambda: from_link_split(train, val, val))
    refuses("Expected val to have edge_label", lambda: from_link_split(train, plain, test))
    test.x = torch.rand(60, 3)
    refuses("x of test to be x of train", lambda: from_link_split(train, val, test))
    typed["u", "again", "m"].edge_index = edges
    parts = RandomLinkSplit(0.2, 0.3, edge_types=of, rev_edge_types=rev)(typed)
    with pytest.warns(UserWarning, match="relation 2 has 100%"):
        from_link_split(*parts)
    other = RandomLinkSplit(0.2, 0.3, edge_types=("u", "again", "m"))(typed)[2]
    refuses("edge_label of test to be of train's", lambda: from_link_split(*parts[:2], other))


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
def test_adjacencies_and_ids_of_types() -> None:
    from torch_geometric.transforms import ToSparseTensor

    data, of = asked(), ("u", "rates", "m")
    del data[of].edge_label
    want = from_hetero(data)
    data["u"].y, data["u"].train_idx = torch.arange(4), torch.tensor([2])
    found = from_hetero(ToSparseTensor(layout=torch.sparse_csr)(data))
    assert torch.equal(found.adj.to_dense(), want.adj.to_dense())
    assert found.train_mask.nonzero().flatten().tolist() == [2]


def same(one: Any, two: Any) -> bool:
    """Whether two `HeteroData` hold the same, floats to the bit."""
    assert one.node_types == two.node_types and one.edge_types == two.edge_types
    for of in (*one.node_types, *one.edge_types):
        mine, other = dict(one[of].items()), dict(two[of].items())
        mine.pop("num_nodes", None), other.pop("num_nodes", None)
        assert sorted(mine) == sorted(other), of
        assert all(torch.equal(mine[key], other[key]) for key in mine), of
    return all(one[of].num_nodes == two[of].num_nodes for of in one.node_types)


@pytest.mark.parametrize("dense", [False, True])
def test_the_way_back_to_hetero_data(dense: bool) -> None:
    data = hetero()
    graph = from_hetero(data)
    graph = graph.replace(x=graph.x.to_dense()) if dense else graph
    assert same(to_hetero(graph, data), data)


def test_reverses_have_pyg_names() -> None:
    from torch_geometric.transforms import ToUndirected

    data = hetero()
    assert same(to_hetero(from_hetero(data, both=True), data), ToUndirected()(data.clone()))


@pytest.mark.parametrize("back", [False, True])
def test_pairs_of_a_relation_on_the_way_back(back: bool) -> None:
    """Of either direction; a client's pairs are those of PyG's own subgraph, by node ids."""
    from torch_geometric.transforms import RandomLinkSplit, ToUndirected

    torch.manual_seed(0)
    data, of, rev = asked(), ("u", "rates", "m"), ("m", "rev_rates", "u")
    data[of].edge_index = (torch.rand(4, 5) < 0.8).nonzero().T
    data[of].edge_label = 5 * torch.rand(data[of].edge_index.shape[1])
    data = ToUndirected()(data)
    of, rev = (rev, of) if back else (of, rev)
    del data[rev].edge_label
    how: Any = {"neg_sampling_ratio": 0.0, "edge_types": [of], "rev_edge_types": [rev]}
    parts = RandomLinkSplit(0.3, 0.3, **how)(data)
    graph = from_link_split(*parts)
    whole = to_hetero(graph, data)
    for part, mask in zip(parts, ("train_mask", "val_mask", "test_mask"), strict=True):
        chosen = whole[of][mask]
        assert torch.equal(whole[of].edge_label_index[:, chosen], part[of].edge_label_index)
        assert torch.equal(whole[of].edge_label[chosen], part[of].edge_label)
    assert "y" not in whole["u"] and "train_mask" not in whole["u"]
    again = from_hetero(whole, ignore=["n_id"])
    for name in ("edge_label_index", "edge_label_type", "y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(getattr(again, name), getattr(graph, name)), name
    own = {"u": [0, 2], "m": [1, 2, 4]}
    client = graph.subgraph(torch.tensor([6, 2, 5, 0, 8]))  # movies 2, 1, 4 and users 2, 0
    found = to_hetero(client.replace(node_id=torch.tensor([6, 2, 5, 0, 8])), data)
    first, last = (found[end].n_id - 4 * (end == "m") for end in (of[0], of[2]))
    ends = found[of].edge_label_index
    pairs = zip(first[ends[0]].tolist(), last[ends[1]].tolist(), strict=True)
    values = dict(zip(pairs, found[of].edge_label.tolist(), strict=True))
    every = zip(*whole[of].edge_label_index.tolist(), whole[of].edge_label.tolist(), strict=True)
    assert values == {(a, b): y for a, b, y in every if a in own[of[0]] and b in own[of[2]]}
    none = to_hetero(graph.subgraph(torch.tensor([0])), whole)  # a client without a pair
    assert none[of].edge_label.numel() == 0 and "edge_label" not in none[rev]


def test_masks_of_edges_without_labels_are_refused() -> None:
    data = asked()
    del data["u", "rates", "m"].edge_label
    data["u", "rates", "m"].train_mask = torch.ones(5, dtype=torch.bool)
    refuses("train_mask", lambda: from_hetero(data))


def test_what_to_hetero_refuses() -> None:
    data = hetero()
    graph = from_hetero(data, both=True)
    less, wide, fewer, own = (data.clone() for _ in range(4))
    less["conf"].x = torch.rand(2, 1)
    del wide[AT].edge_attr, fewer[AT]
    own["author", "rev_by", "paper"].edge_index = torch.tensor([[0], [3]])
    del own[BY].edge_attr, own[AT].edge_attr, own[BY].edge_time, own[AT].edge_time
    untyped = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]))
    many = graph.node_type + (graph.node_type == 2)
    pairs = {"y": None, "train_mask": None, "edge_label_index": graph.edge_index}
    wrong: list[tuple[fgl.Graph, Any, str]] = [
        (untyped, data, "to have node_type and edge_type, but got none"),
        (graph, less, "x to have 5 columns, but got 6"),
        (graph, wide, "edge_attr to have 2 columns, but got 3"),
        (graph.replace(edge_attr=graph.edge_attr[:, :2]), fewer, "1 relations, .* but got 4"),
        (from_hetero(own, both=True), own, "reverses to have names of their own, but got"),
        (graph.replace(edge_type=graph.edge_type.flip(0)), data, "these types, but got others"),
        (graph.replace(node_type=many), data, "3 types of nodes, but got 4"),
        (graph.replace(**pairs), data, "pairs to have edge_label_type, but got none"),
    ]
    for given, like, text in wrong:
        with pytest.raises(ValueError, match=f"Expected .*{text}"):
            to_hetero(given, like)
    with pytest.raises(TypeError, match="Expected like to have types of nodes and edges"):
        to_hetero(graph, torch.eye(2))


@pytest.mark.parametrize("shared", [False, True])
def test_clients_share_conferences_or_not(shared: bool) -> None:
    how: dict[str, Any] = {"clients": 3, "partition": "random", "share_conferences": shared}
    task = tasks.TypedNodes(**how).load(seed=1)
    inside = [own.node_id[own.node_type == 2] for own in task.clients]
    assert (torch.cat(inside).unique().numel() < sum(map(len, inside))) == shared


def test_a_split_among_some_is_a_split_of_these() -> None:
    among = torch.arange(20) % 2 == 0
    whole = fgl.Graph(torch.ones(20, 1), torch.tensor([[0], [1]]))
    split = fgl.data.splits.random_split(whole, among=among, seed=3)
    masks = torch.stack([split.train_mask, split.val_mask, split.test_mask])
    assert torch.equal(masks.any(0), among) and masks.sum(1).tolist() == [6, 2, 2]
    with pytest.raises(TypeError, match="Expected among to be a bool tensor"):
        fgl.data.splits.random_split(whole, among=torch.ones(20))


def test_a_bibliography_is_read_from_its_tables(tmp_path: Path) -> None:
    tables = {
        "author_label": "30\t1\n10\t0\n",
        "paper_author": "7\t10\n7\t20\n9\t30\n",
        "paper_conf": "9\t5\n7\t4\n",
        "paper_term": "7\t100\n9\t300\n9\t100\n",
    }
    for name, text in tables.items():
        (tmp_path / f"{name}.txt").write_text(text)
    made = fgl.data.catalogue.read_dblp_four_area(tmp_path, "")
    assert made.node_type.tolist() == [0, 0, 1, 1, 1, 2, 2]
    words = [[1, 0], [1, 1]]
    assert made.x.to_dense()[:2, :2].tolist() == words and made.num_features == 5
    assert rows(made.edge_index[:, :5]) == [(0, 2), (0, 3), (1, 4), (1, 6), (0, 5)]
    assert made.y.tolist() == [0, 0, 0, 0, 1, 0, 0]
    assert made.train_mask.nonzero().flatten().tolist() == [2, 4]
    (tmp_path / "author_label.txt").write_text("40\t1\n10\t0\n")
    with pytest.raises(ValueError, match="to have papers, but got none of .40"):
        fgl.data.catalogue.read_dblp_four_area(tmp_path, "")


def test_public_dblp_four_area() -> None:
    try:
        made = fgl.data.load("dblp_four_area")
    except FileNotFoundError:
        pytest.skip("dblp_four_area is not there")
    assert made.node_type.bincount().tolist() == [14376, 14475, 20]
    assert made.edge_type.bincount().tolist() == [41794, 14376, 41794, 14376]
    assert made.x.shape == (28871, 8941) and made.num_train == 4057
    assert made.y[made.train_mask].bincount().tolist() == [1197, 745, 1109, 1006]
