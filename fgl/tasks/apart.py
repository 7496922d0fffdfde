"""Checks that a task's examples which are scored are not those which train.

A score on answers that the model has read is no score. A check warns, since somebody may
want to see how well a model remembers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..data import EdgeSplit
from ..data.splits.free_pairs import keys_of
from ..graph import Graph
from ..graph.arguments import check_graphs
from ..sparse import SparseMatrix


def warn_of_trained(clients: Sequence[Graph], whole: Graph | None = None) -> None:
    """Warn if clients train on examples of their validation or test masks, or of the whole graph's.

    Args:
        clients: the clients' graphs; nodes are compared with the whole graph's by `node_id`.
        whole: the graph that is scored, if one is.

    Example:
        >>> mask = torch.tensor([True, False])
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), train_mask=mask)
        >>> warn_of_trained([graph.replace(test_mask=~mask)])
    """
    check_graphs(clients)
    scored, counts = "", []
    for client, own in enumerate(clients):
        for name in ("val_mask", "test_mask"):
            mask = getattr(own, name)
            count = 0 if mask is None else int((mask & own.training_mask).sum())
            if count:
                scored = f"{name} of client {client}"
                counts.append(count)
                break
    if not counts and whole is not None and whole.batch is None:
        scored, count = _trained_of(whole, clients)
        counts += [count] if count else []
    if not counts:
        return
    tested = " | ".join(
        f"graph.{name}"
        for name in ("val_mask", "test_mask")
        if any(getattr(own, name) is not None for own in (*clients, *([whole] if whole else [])))
    )
    mask = (
        f"~({tested})"
        if any(own.train_mask is None for own in clients)
        else (f"graph.train_mask & ~({tested})")
    )
    others = "" if len(counts) == 1 else f" (so in {len(counts)} clients)"
    warnings.warn(
        f"Expected examples that are scored not to train, but got {counts[-1]} in the {scored}"
        f"{others}, whose answers the model is told: graph.replace(train_mask={mask})",
        stacklevel=3,
    )


def _trained_of(whole: Graph, clients: Sequence[Graph]) -> tuple[str, int]:
    """A mask of the whole graph with nodes that clients train on, and how many it has."""
    node_ids = [own.node_id[own.training_mask] for own in clients if own.node_id is not None]
    if not node_ids:
        return "", 0
    nodes = torch.arange(whole.num_nodes, device=whole.device)
    ids = nodes if whole.node_id is None else whole.node_id
    trained = torch.cat(node_ids).to(whole.device)
    for name in ("val_mask", "test_mask"):
        mask = getattr(whole, name)
        count = 0 if mask is None else int(torch.isin(ids[mask], trained).sum())
        if count:
            return f"{name} of the whole graph", count
    return "", 0


def warn_of_copies(clients: Sequence[Graph], tests: Sequence[Graph]) -> None:
    """Warn if graphs of the tests are copies of graphs that train, and not by chance.

    By chance are as many copies as the training graphs have among themselves, up to a half: small
    molecules repeat.

    Args:
        clients: collections; the graphs in the training mask train, without one all.
        tests: collections; the graphs in the test mask are tested, without one all.

    Example:
        >>> none = torch.zeros(2, 0, dtype=torch.int64)
        >>> graph = fgl.Graph(torch.rand(8, 4), none, batch=torch.arange(8))
        >>> warn_of_copies([graph.select(torch.arange(5))], [graph.select(torch.arange(5, 8))])
    """
    if any(own.batch is None for own in (*clients, *tests)):
        return
    train = torch.cat([fingerprints(own)[own.training_mask].cpu() for own in clients])
    masks = [own.example_mask if own.test_mask is None else own.test_mask for own in tests]
    test = torch.cat([fingerprints(o)[m].cpu() for o, m in zip(tests, masks, strict=True)])
    if not len(train) or not len(test):
        return
    distinct, counts = train.unique(return_counts=True)
    chance = float(counts[counts > 1].sum()) / len(train)
    copies = int(torch.isin(test, distinct).sum())
    spread = 5 * math.sqrt(len(test) * chance * (1 - chance)) + max(2, 0.02 * len(test))
    if copies <= min(len(test) / 2, len(test) * chance + spread) and copies < len(test):
        return
    warnings.warn(
        f"Expected graphs that are tested not to train, but got {copies} of {len(test)} that are "
        "copies of graphs that train, whose answers the model is told: "
        "fgl.data.random_split(graph) or fgl.data.fold_clients(graph, parts, fold=0) keeps graphs "
        "apart",
        stacklevel=3,
    )


def fingerprints(graph: Graph) -> Tensor:
    """A number for each graph of a collection, the same for graphs of equal features and edges.

    The order of a graph's nodes does not matter. Different graphs have one number where a step of
    neighbourhood aggregation cannot distinguish them, or by a chance of 1 in 2^64.

    Example:
        >>> edges = torch.tensor([[0, 2], [1, 3]])
        >>> batch = torch.tensor([0, 0, 1, 1])
        >>> one, two = fingerprints(fgl.Graph(torch.ones(4, 1), edges, batch=batch))
        >>> one == two
        tensor(True)
    """
    generator = torch.Generator().manual_seed(0)
    top = torch.iinfo(torch.int64).max
    salt = torch.randint(top, (graph.num_features,), generator=generator).to(graph.device)
    node = torch.zeros(graph.num_nodes, dtype=torch.int64, device=graph.device)
    if isinstance(graph.x, SparseMatrix):
        pattern = graph.x.pattern
        node.index_add_(0, pattern.row, _mixed(_bits(graph.x.values) ^ salt[pattern.col]))
    else:
        for column in range(graph.num_features):  # not all at once: the features may be large
            node += _mixed(_bits(graph.x[:, column].to(graph.device)) ^ salt[column])
    source, target = graph.edge_index
    neighbours = torch.zeros_like(node).index_add_(0, target, _mixed(node[source]))
    owner: Any = graph.batch
    total = torch.zeros(graph.num_graphs, dtype=torch.int64, device=graph.device)
    return total.index_add_(0, owner, _mixed(_mixed(node) + neighbours))


def _bits(values: Tensor) -> Tensor:
    return (values.double() + 0.0).contiguous().view(torch.int64)  # -0.0 is 0.0


def _mixed(numbers: Tensor) -> Tensor:
    """Numbers of which each bit depends on all of them."""
    for factor in (-0x61C8864680B583EB, -0x4B47D0C5E9A5B1C5):
        numbers = (numbers ^ (numbers >> 31)).mul(factor)
    return numbers ^ (numbers >> 29)


def warn_of_known_edges(splits: Sequence[EdgeSplit]) -> None:
    """Warn if edges that are asked about are messages, train, or count as no edges.

    Example:
        >>> warn_of_known_edges([fgl.data.edge_split(fgl.data.load("synthetic"))])
    """
    for client, split in enumerate(splits):
        held_out = keys_of(torch.cat([split.val_edges, split.test_edges], 1))
        negatives = keys_of(torch.cat([split.val_negatives, split.test_negatives], 1))
        train = keys_of(torch.cat([split.graph.edge_index, split.train_edges], 1))
        for what, one, two in (
            ("held-out edges", held_out, train),
            ("pairs without an edge", negatives, torch.cat([held_out, train])),
        ):
            count = int(torch.isin(one, two).sum())
            if count:
                warnings.warn(
                    f"Expected {what} of client {client} to be no edges of its graph, but got "
                    f"{count}, whose answers the model is told: fgl.data.edge_split(graph)",
                    stacklevel=3,
                )
                return


def warn_of_known_pairs(clients: Sequence[Graph]) -> None:
    """Warn if most pairs that are tested are messages, reverses of messages, or train.

    Of answers 1 and 0 it is most if the share among pairs of answer 1 is larger by a half than the
    share among the others.

    Example:
        >>> edges, pairs = torch.tensor([[0], [1]]), torch.tensor([[1], [2]])
        >>> graph = fgl.Graph(torch.eye(3), edges, y=torch.ones(1), edge_label_index=pairs)
        >>> warn_of_known_pairs([graph])
    """
    facts = [_known_facts(own) for own in clients]
    for what in ("messages", "reverses of messages", "pairs that train"):
        revealed, total = (sum(each[what][k] for each in facts if what in each) for k in (0, 1))
        if total and revealed / total > 0.5:
            warnings.warn(
                f"Expected pairs that are tested to be new, but {revealed / total:.0%} of them are "
                f"{what}, which tell the model their answers: see fgl.data.pair_split and "
                "fgl.data.split_by_time",
                stacklevel=3,
            )
            return


def _known_facts(graph: Graph) -> dict[str, tuple[float, float]]:
    """Estimate how many tested pairs each fact reveals, and count the tested pairs."""
    pairs, mask, y = graph.edge_label_index, graph.test_mask, graph.y
    if pairs is None or mask is None or y is None or not mask.any():
        return {}
    n, (source, target) = graph.num_nodes, graph.edge_index
    edges = source * n + target
    if graph.edge_label_type is not None and graph.edge_type is not None:
        edges = edges[torch.isin(graph.edge_type, graph.edge_label_type)]
    key, back = pairs[0] * n + pairs[1], pairs[1] * n + pairs[0]
    binary = y.is_floating_point() and y.dim() == 1 and bool(((y == 0) | (y == 1)).all())
    positive, negative = (mask & (y == 1), mask & (y == 0)) if binary else (mask, mask & ~mask)
    trains = key[graph.training_mask & ~mask]
    facts = {"messages": torch.isin(key, edges), "pairs that train": torch.isin(key, trains)}
    if binary and bool(negative.any()):
        facts["reverses of messages"] = torch.isin(back, edges)

    def share(fact: Tensor, own: Tensor) -> float:
        return float(fact[own].double().mean()) if bool(own.any()) else 0.0

    size = float(positive.sum())
    return {
        name: (size * (share(fact, positive) - share(fact, negative)), size)
        for name, fact in facts.items()
    }
