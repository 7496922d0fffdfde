"""Checks that no scored example of a task is also a training example.

Scores on training labels do not measure generalisation. A user may still want such scores in order
to measure memorisation. So a failed check gives a warning and no error.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..data.copies import fingerprints, mixed, node_fingerprints, rows_fingerprints
from ..data.splits import EdgeSplit
from ..data.splits.free_pairs import directed_keys, keys_of
from ..graph import Graph
from ..graph.facts import check_graphs
from ..graph.fields import present
from ..warn import warn

SCORED = ("val_mask", "test_mask")
MOST_COPIES = 4  # of an example that somebody repeats; common features occur more often
LEAKS = (  # edges, what they must be, and what their number means
    (
        "held-out edges",
        "no edges of its graph",
        "whose answers the model is told: remove them from split.graph and split.train_edges, as "
        "fgl.data.splits.edge_split(graph) does",
    ),
    (
        "pairs without an edge",
        "no edges of its graph",
        "whose answers the model is told: fgl.data.splits.negative_edges(edges, num_nodes, num) "
        "draws others",
    ),
    (
        "pairs without an edge",
        "distinct pairs of two nodes",
        "which repeat, or join a node to itself: fgl.data.splits.negative_edges(edges, num_nodes, "
        "num) draws distinct pairs",
    ),
    ("test edges", "no validation edges", "whose test scores choose the best round"),
    (
        "edges",
        "in split.graph in both directions",
        "which have no reverse: torch.cat([edge_index, edge_index.flip(0)], 1), or a DirectedSplit",
    ),
    (
        "split.train_edges",
        "the edges of split.graph",
        "which are in one of the two: a client trains on split.graph",
    ),
)
MOST = 10**8  # entries of features, which take a second or two to hash


def warn_of_trained(
    clients: Sequence[Graph], whole: Graph | None = None, *, elsewhere: bool = True
) -> None:
    """Warn if a training example is also in a validation or test mask.

    The masks of the clients and of the whole graph are checked.

    Args:
        clients: the clients' graphs. If the graphs have `node_id`, each node has the same id in its
            client's graph as in the whole graph.
        whole: the whole graph, if scores are computed on the whole graph.
        elsewhere: whether a client's scored examples are also compared with other clients' training
            examples.

    Example:
        >>> mask = torch.tensor([True, False])
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), train_mask=mask)
        >>> warn_of_trained([graph.replace(test_mask=~mask)])
    """
    check_graphs(clients)
    of_nodes = whole is not None and whole.batch is None and whole.edge_label_index is None
    whole = whole if of_nodes else None
    scored: list[tuple[str, int]] = []
    for client, (own, answered) in enumerate(zip(clients, _trained(clients), strict=True)):
        scored += _scored(f"client {client}", own, answered)
    if whole is not None and _has_local_ids(clients, whole):
        warn(
            "Expected node_id to name nodes of the whole graph, but got 0, 1, 2, ... at each "
            "client: graph.replace(node_id=None), or fgl.data.partitions.partition_graph(whole, "
            "parts), whose clients keep the ids of the whole graph"
        )
        clients = [own.replace(node_id=None) for own in clients]
    if whole is not None and not scored:
        trains = _trained_windows if whole.has("window_index") else trained_nodes
        scored = _scored("the whole graph", whole, trains(whole, clients))
    if scored:
        _warn_of_scored(scored, clients, whole)
    elif elsewhere:
        _warn_of_trained_elsewhere(clients, whole)


def _scored(place: str, graph: Graph, trained: Tensor) -> list[tuple[str, int]]:
    """Find a validation or test mask that contains training examples.

    The list contains the first such mask's name, and the number of training examples in the mask.
    The list is empty if there is no such mask.
    """
    counts = {name: int((m & trained).sum()) for name, m in present(graph, SCORED).items()}
    return [(f"{name} of {place}", count) for name, count in counts.items() if count][:1]


def _warn_of_scored(
    scored: Sequence[tuple[str, int]], clients: Sequence[Graph], whole: Graph | None
) -> None:
    """Warn that validation or test masks contain training examples, and suggest a remedy."""
    graphs = clients if whole is None else [*clients, whole]
    masks = dict.fromkeys(f"graph.{name}" for own in graphs for name in present(own, SCORED))
    trained = "" if any(own.train_mask is None for own in clients) else "graph.train_mask & "
    place, count = scored[-1]
    remedy = f"graph.replace(train_mask={trained}~({' | '.join(masks)}))"
    if any(own.window_index is not None for own in clients):
        remedy = "fgl.data.splits.windows(series, shares=...), with the same shares at every client"
    others = "" if len(scored) == 1 else f" (so in {len(scored)} clients)"
    warn(
        f"Expected examples that are scored not to train, but got {count} in the {place}{others}, "
        f"whose answers the model is told: {remedy}"
    )


def _has_local_ids(clients: Sequence[Graph], whole: Graph) -> bool:
    """Whether several clients have parts of the graph, and every client numbers nodes from 0."""
    return len(clients) > 1 and all(
        0 < own.num_nodes < whole.num_nodes and _counts_from_0(own) for own in clients
    )


def _counts_from_0(graph: Graph) -> bool:
    """Whether the node ids are 0, 1, 2, ..., so that they probably count the client's own nodes."""
    own = torch.arange(graph.num_nodes, device=graph.device)
    return graph.node_id is not None and torch.equal(graph.node_id, own)


def _warn_of_trained_elsewhere(clients: Sequence[Graph], whole: Graph | None) -> None:
    """Warn if copies of held-out examples are training examples of other clients.

    An example and its copy have equal labels and equal features, and their neighbours have equal
    features. If every graph has `node_id`, an example and its copy must have the same id, and
    neighbours are not compared. One copy is then enough for a warning, except if several clients
    have the ids 0, 1, 2, ... Such ids probably count each client's own nodes, so equal ids can be a
    coincidence. Examples that occur more than once at one client are ignored. Nodes without
    individual features thus give no warning. A second check ignores ids and neighbours: it searches
    all clients for copies with the same labels and the same rare features. For examples of the
    whole graph, only the second check is made. Large graphs are not compared.
    """
    scored = clients if whole is None else [whole]
    others = (own.has("batch") or own.has("window_index") for own in clients)
    every = (*clients, *scored)
    size = sum(own.num_nodes * own.num_features for own in every)
    unknown = any(others) or size > MOST or any(own.y is None for own in every)
    if unknown or _warn_of_repeated(scored):
        return
    of_pairs = any(own.edge_label_index is not None for own in clients)
    named = not of_pairs and all(own.node_id is not None for own in clients)
    close: dict[str, Any] = {"steps": int(not named), "named": named}
    rare: dict[str, Any] = {"steps": 0, "named": False, "most": MOST_COPIES}
    # With ids, `trained_nodes` has already compared the clients with the whole graph.
    ways: list[tuple[Graph | None, dict[str, Any]]] = [(whole, rare)] * (whole is not None)
    if whole is None or not named:
        ways = [(None, close), *[(None, rare)] * (not of_pairs), *ways]
    global_ids = named and sum(map(_counts_from_0, clients)) < 2
    for tested, how in ways:
        leaks = [
            f"{copies} of {total} in {place}"
            for place, copies, total in _copies(clients, tested, how)
            if copies > (0 if global_ids and how is close else max(2, total / 10))
        ]
        if leaks:
            leaks.sort(key=lambda leak: "val_mask" in leak)  # leaks of tests are worse
            warn(
                f"Expected examples that are scored not to train, but got {', '.join(leaks[:3])} "
                f"{'and more ' * (len(leaks) > 3)}that are copies of training examples of clients: "
                "give all copies of an example the same role, or clients their own parts of one "
                "graph by fgl.data.partitions.partition_graph"
            )
            return


def _copies(
    clients: Sequence[Graph], whole: Graph | None, how: Mapping[str, Any]
) -> Iterator[tuple[str, int, int]]:
    """For each scored mask: its name, the number of copies, and the number of examples in it."""
    hashes = [_recognised(own, **how) for own in clients]
    train = [keys[:, own.training_mask.cpu()] for own, keys in zip(clients, hashes, strict=True)]
    places = {f"client {client}": own for client, own in enumerate(clients)}
    if whole is not None:
        places, hashes = {"the whole graph": whole}, [_recognised(whole, **how)]
    anywhere = whole is not None or "most" in how
    for number, (place, own) in enumerate(places.items()):
        elsewhere = [keys for other, keys in enumerate(train) if anywhere or other != number]
        for name, mask in present(own, SCORED).items():
            copies = _num_copies(hashes[number][:, mask.cpu()], elsewhere)
            yield f"{name} of {place}", copies, int(mask.sum())


def _num_copies(keys: Tensor, train: Sequence[Tensor]) -> int:
    """Count the examples for which `train` has an example with the same features and label.

    The result is 0 if examples with equal features often have different labels. In this case, two
    examples with equal features and labels need not be copies. For example, every client may number
    its nodes and use one-hot vectors of these numbers as features.
    """
    every = torch.cat([keys[:, :0], *train], 1)
    trained, labelled = every[:, every[0] != 0].unique(dim=1)
    features, num_labels = trained.unique(return_counts=True)
    same_features = torch.isin(keys[0], features)
    copies = torch.isin(keys[1], labelled) & ~torch.isin(keys[0], features[num_labels > 1])
    return int(copies.sum()) if copies.sum() >= 0.95 * same_features.sum() else 0


def _warn_of_repeated(graphs: Sequence[Graph]) -> bool:
    """Warn if most held-out examples of a graph are copies of the graph's training examples.

    Return whether the function gave a warning. There is no warning if the number of distinct
    features is at most a third of the number of training examples. In this case, many examples have
    equal features without being copies.
    """
    for own in graphs:
        held_out = _held_out(own)
        if own.train_mask is None or held_out is None:
            continue
        key = _with_labels(_unlabelled(own, 1), own)
        copies = int(torch.isin(key[held_out], key[own.train_mask]).sum())
        total, features = int(held_out.sum()), _unlabelled(own, 0)[own.train_mask]
        if copies > max(10, total * 0.5) and features.unique().numel() > len(features) / 3:
            warn(
                f"Expected examples that are scored not to train, but got {copies} of {total} of a "
                "client that are copies of its training examples: leave copies out, or split "
                "before examples are repeated"
            )
            return True
    return False


def _held_out(graph: Graph) -> Tensor | None:
    """Mask of all validation and test examples; None if the graph has no such mask."""
    masks = [*present(graph, SCORED).values()]
    return torch.stack(masks).any(0) if masks else None


def _with_labels(key: Tensor, graph: Graph) -> Tensor:
    return mixed(key + rows_fingerprints(graph.y, graph))


def _unlabelled(graph: Graph, steps: int) -> Tensor:
    """Hash each example; then combine each hash with the hashes of the neighbours, `steps` times.

    If examples are pairs, the two nodes of a pair also count as neighbours. The reason is that a
    split turns edges into pairs, and these edges are missing in the graph.
    """
    if graph.edge_label_index is None:
        return node_fingerprints(graph, steps)
    key, pairs, n = node_fingerprints(graph, 0), graph.edge_label_index, graph.num_nodes
    joined = torch.cat([graph.edge_index, pairs], 1)
    both = torch.cat([joined[0] * n + joined[1], joined[1] * n + joined[0]]).unique()
    for _ in range(steps):
        others = mixed(key)[both // n]
        key = mixed(key + torch.zeros_like(key).index_add_(0, both % n, others))
    key = mixed(mixed(key[pairs[0]]) + key[pairs[1]])
    return key if graph.edge_label_type is None else mixed(key + graph.edge_label_type)


def _recognised(graph: Graph, *, steps: int, named: bool, most: int = 1) -> Tensor:
    """Two hashes of every example, int64 ``[2, n]``, on the CPU; the second includes the label.

    Both hashes of an example are 0 if the example occurs too often in the graph. The argument
    `most` is the largest allowed number of occurrences.
    """
    key = _unlabelled(graph, steps)
    rare = _occurs(key, most)
    if named:
        key = mixed(key + graph.node_id)  # type: ignore[operator]  # checked
    return torch.stack([key, _with_labels(key, graph)]).where(rare, 0).cpu()


def _trained(clients: Sequence[Graph]) -> list[Tensor]:
    """The masks of the examples on which clients train, one mask per client.

    The mask contains a window if one of the window's target times is used for training by this
    client. Training by another client counts too if both clients have a node with the same time
    series.
    """
    series = {
        client: rows_fingerprints(own.y[:, :64], own)
        for client, own in enumerate(clients)
        if own.has("window_index") and own.y is not None
    }
    masks = []
    for client, own in enumerate(clients):
        mine = series.get(client, torch.zeros(0, dtype=torch.int64, device=own.device))
        shared = [k for k, rows in series.items() if torch.isin(rows[rows != 0], mine).any()]
        others = [own, *(clients[k] for k in shared)]
        windows = own.horizon_index is not None
        masks.append(_trained_windows(own, others) if windows else own.training_mask)
    return masks


def trained_nodes(whole: Graph, clients: Sequence[Graph]) -> Tensor:
    """Mask of the nodes in graph `whole` whose `node_id` is the id of a client's training node."""
    ids = [own.node_id[own.training_mask] for own in clients if own.node_id is not None]
    nodes = torch.arange(whole.num_nodes, device=whole.device)
    own = nodes if whole.node_id is None else whole.node_id
    return torch.isin(own, torch.cat(ids).to(whole.device)) if ids else nodes < 0


def _trained_windows(whole: Graph, clients: Sequence[Graph]) -> Tensor:
    """Mask of the windows of `whole`: True if clients train on a target time of the window."""
    times: Any = whole.horizon_index
    trained = [times[:0].flatten()]
    for own in clients:
        if own.horizon_index is not None:
            trained.append(own.horizon_index[own.training_mask].flatten().to(times))
    return torch.isin(times, torch.cat(trained)).any(1)


def warn_of_copies(
    clients: Sequence[Graph], tests: Sequence[Graph], *, mask: str = "test_mask"
) -> None:
    """Warn if over a tenth of the scored graphs, and more than two, are copies of training graphs.

    A few copies are normal: in NCI1, one of sixty molecules occurs twice. A warning is also given
    if all scored graphs are copies of training graphs.

    Args:
        clients: the clients' collections. Graphs in the training mask are training graphs; without
            a training mask, all graphs are training graphs.
        tests: collections. Graphs in the mask are scored; without the mask, all graphs are scored.
        mask: name of the mask, ``"test_mask"`` or ``"val_mask"``.

    Example:
        >>> none = torch.zeros(2, 0, dtype=torch.int64)
        >>> graph = fgl.Graph(torch.rand(8, 4), none, batch=torch.arange(8))
        >>> warn_of_copies([graph.select(torch.arange(5))], [graph.select(torch.arange(5, 8))])
    """
    if not tests or any(own.batch is None for own in (*clients, *tests)):
        return
    train = torch.cat([fingerprints(own)[own.training_mask].cpu() for own in clients])
    masks = [present(own, [mask]).get(mask, own.example_mask) for own in tests]
    test = torch.cat([fingerprints(o)[m].cpu() for o, m in zip(tests, masks, strict=True)])
    if not len(train) or not len(test):
        return
    copies = int(torch.isin(test, train).sum())
    if copies <= max(2, 0.1 * len(test)) and copies < len(test):
        return
    warn(
        f"Expected graphs that are scored not to train, but got {copies} of {len(test)} in {mask} "
        "that are copies of graphs that train, whose answers the model is told: "
        "fgl.data.splits.random_split(graph) or "
        "fgl.data.splits.fold_clients(graph, parts, fold=0) keeps graphs apart, and with "
        "among=fgl.data.first_copies(graph) copies too"
    )


def warn_of_known_edges(splits: Sequence[EdgeSplit]) -> None:
    """Warn if held-out edges are also messages, training edges or negative pairs.

    Example:
        >>> warn_of_known_edges([fgl.data.splits.edge_split(fgl.data.load("synthetic"))])
    """
    counts = [_known_edges(split) for split in splits]
    for (name, want, meaning), numbers in zip(LEAKS, zip(*counts, strict=True), strict=True):
        clients = [client for client, count in enumerate(numbers) if count]
        if clients:
            others = "" if len(clients) == 1 else f" (so in {len(clients)} clients)"
            warn(
                f"Expected {name} of client {clients[0]} to be {want}, but got "
                f"{numbers[clients[0]]}{others}, {meaning}"
            )
            return
    _warn_of_edges_elsewhere(splits)


def _known_edges(split: EdgeSplit) -> tuple[int, ...]:
    """Count the leaking edges of a split, for each kind of leak in `LEAKS`."""
    edges, size = split.graph.edge_index, split.graph.num_nodes
    val, test = keys_of(split.val_edges), keys_of(split.test_edges)
    parts = split.val_negatives, split.test_negatives
    negatives = keys_of(torch.cat(parts, 1))
    again = sum(pairs.shape[1] - len(keys_of(pairs)) for pairs in parts)
    own = keys_of(edges)
    held_out, train = torch.cat([val, test]), torch.cat([own, keys_of(split.train_edges)])
    leaks = (held_out, train), (negatives, torch.cat([held_out, train])), (test, val)
    alone = 0 if split.directed else 2 * len(own) - len(directed_keys(edges, size))
    _, times = train.unique(return_counts=True)
    other = 0 if split.directed else int((times == 1).sum())
    leaked, false, chosen = (int(torch.isin(one, two).sum()) for one, two in leaks)
    return leaked, false, again, chosen, alone, other


def _warn_of_edges_elsewhere(splits: Sequence[EdgeSplit]) -> None:
    """Warn if a client holds out an edge that the graph of another client contains.

    If a graph lacks `node_id`, a node is identified by features that no other node of its graph
    has. Without `node_id`, a warning is given only if another client knows more than half of the
    held-out edges.
    """
    ids: list[Any] = [split.graph.node_id for split in splits]
    named = all(own is not None for own in ids)
    ids = ids if named else _ids_by_features([split.graph for split in splits])
    train = [
        keys_of(own[torch.cat([split.graph.edge_index, split.train_edges], 1)])
        for split, own in zip(splits, ids, strict=True)
    ]
    for client, (split, own) in enumerate(zip(splits, ids, strict=True)):
        edges = torch.cat([split.val_edges, split.test_edges], 1)
        held_out = keys_of(own[edges])
        elsewhere = [keys for other, keys in enumerate(train) if other != client]
        count = max((int(torch.isin(held_out, keys).sum()) for keys in elsewhere), default=0)
        if count > (0 if named else max(2, edges.shape[1] / 2)):
            warn(
                f"Expected held-out edges of client {client} to be no edges of other clients, but "
                f"got {count}, which train in one: fgl.data.splits.subgraph_split divides a split "
                "of the whole graph"
            )
            return


def _ids_by_features(graphs: Sequence[Graph]) -> list[Tensor]:
    """Ids for the nodes of every graph.

    Two nodes of different graphs get equal ids if their features are equal and no third node of the
    two graphs has these features.
    """
    hashes = torch.cat([node_fingerprints(graph, 0) for graph in graphs])
    ids, sizes = hashes.unique(return_inverse=True)[1], [graph.num_nodes for graph in graphs]
    once = torch.cat([_occurs(own, 1) for own in ids.split(sizes)])
    others = torch.arange(len(ids), device=ids.device) + len(ids)
    return list(torch.where(once, ids, others).split(sizes))


def _occurs(keys: Tensor, most: int) -> Tensor:
    """For every entry of a vector, whether the entry's value occurs at most `most` times."""
    _, place, counts = keys.unique(return_inverse=True, return_counts=True)
    rare: Tensor = counts[place] <= most
    return rare


def warn_of_known_pairs(clients: Sequence[Graph]) -> None:
    """Warn if most tested pairs are known: as edges, as reverses of edges or as training pairs.

    If labels are 1 and 0, the check computes the fraction of known pairs twice: among tested pairs
    with label 1 and among tested pairs with label 0. The check warns if the fraction for label 1
    exceeds the fraction for label 0 by more than one half.

    Example:
        >>> edges, pairs = torch.tensor([[0], [1]]), torch.tensor([[1], [2]])
        >>> graph = fgl.Graph(torch.eye(3), edges, y=torch.ones(1), edge_label_index=pairs)
        >>> warn_of_known_pairs([graph])
    """
    facts = [_known_facts(own) for own in clients]
    for what in ("messages", "reverses of messages", "pairs that train"):
        revealed, total = (sum(each[what][k] for each in facts if what in each) for k in (0, 1))
        if total and revealed / total > 0.5:
            warn(
                f"Expected pairs that are tested to be new, but {revealed / total:.0%} of them are "
                f"{what}, which tell the model their answers: see fgl.data.splits.pair_split and "
                "fgl.data.splits.split_by_time"
            )
            return


def _known_facts(graph: Graph) -> dict[str, tuple[float, float]]:
    """Estimate how many labels of tested pairs are revealed by messages and by training pairs.

    The result maps each kind of known pair to this estimate and to the number of tested pairs. If
    labels are 1 and 0, only tested pairs with label 1 count.
    """
    pairs, mask, y = graph.edge_label_index, graph.test_mask, graph.y
    if pairs is None or mask is None or y is None or not mask.any():
        return {}
    n, (source, target) = graph.num_nodes, graph.edge_index
    edges, key, back = source * n + target, pairs[0] * n + pairs[1], pairs[1] * n + pairs[0]
    # The same ends may have several relations.
    relation = 0 if graph.edge_label_type is None else graph.edge_label_type * n * n
    triples = key + relation
    if graph.edge_label_type is not None and graph.edge_type is not None:
        edges, key, back = edges + graph.edge_type * n * n, triples, back + relation
    binary = y.is_floating_point() and y.dim() == 1 and bool(((y == 0) | (y == 1)).all())
    positive, negative = (mask & (y == 1), mask & (y == 0)) if binary else (mask, mask & ~mask)
    trains = triples[graph.training_mask & ~mask]
    facts = {"messages": torch.isin(key, edges), "pairs that train": torch.isin(triples, trains)}
    if binary and bool(negative.any()):
        facts["reverses of messages"] = torch.isin(back, edges)

    def share(fact: Tensor, own: Tensor) -> float:
        return float(fact[own].double().mean()) if bool(own.any()) else 0.0

    size = float(positive.sum())
    return {
        name: (size * (share(fact, positive) - share(fact, negative)), size)
        for name, fact in facts.items()
    }
