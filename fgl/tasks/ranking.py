"""Ranking metrics for the triples of a knowledge graph: mean reciprocal rank, and hits."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from .. import federation as fed
from ..checks import check_count, reject_if
from ..data.splits.free_pairs import FreeCells
from ..federation import Evaluate, Method, Params, Ragged, Score, Training
from ..graph import Graph
from ..predict import reads
from ..sparse.gather import ranges
from .scores import validation
from .task import Once, Task, bounded

CELLS = 2**20


def ranking(
    *, ks: Sequence[int] = (1, 3, 10), filtered: bool = True, both: bool = True
) -> Callable[..., Score]:
    """Score each triple by the rank of its correct node among all nodes of the graph.

    Every triple with label 1 in the validation or test mask gives two questions, ``(h, r, ?)`` and
    ``(?, r, t)``. For each question, the model scores every node of the graph as a candidate for
    the unknown end. For the question ``(h, r, ?)``, the rank of the correct node t is
    ``1 + |{e: s(e) > s(t)}| + |{e: s(e) = s(t)}| / 2``. A tied node adds one half to the rank. So
    if a model gives equal scores to all nodes, the correct node has the middle rank and not the
    first rank. ``MRR = mean 1 / rank``, ``Hits@k = mean [rank <= k]``.

    Args:
        ks: the values of k in Hits@k.
        filtered: whether to leave out nodes that also answer the question correctly, according to
            the graph's edges and the pairs in any mask.
        both: whether to rank heads and tails; if False, only tails are ranked.

    Returns:
        ``(model, *, test=True) -> score``; a score is
        ``(params, graph) -> {"val_mrr", "test_mrr", "test_hits@1", ...}``. The metrics of a mask
        are missing if no triple in the mask has label 1. If the model's score of a node is NaN, the
        metric is NaN.

    Example:
        >>> graph = fgl.Graph(torch.eye(3), torch.tensor([[0], [1]]), y=torch.ones(1),
        ...     edge_label_index=torch.tensor([[0], [2]]), test_mask=torch.tensor([True]))
        >>> class Same(torch.nn.Module):
        ...     def forward(self, x, adj, *, edge_label_index):
        ...         return 0.0 * edge_label_index[0]
        >>> {k: round(v, 2) for k, v in ranking(ks=[1, 2])(Same())({}, graph).items()}
        {'test_mrr': 0.58, 'test_hits@1': 0.0, 'test_hits@2': 1.0}

    Source: the filtered setting of Bordes et al. 2013; ties as in Berrendorf et al. 2020,
    https://arxiv.org/abs/2002.06914
    """
    reject_if(not ks, "ks to be one number or more", "none")
    for k in ks:
        check_count(ks=k)

    def score_of(model: nn.Module, *, test: bool = True) -> Score:
        @torch.no_grad()
        def score(params: Params, graph: Graph) -> dict[str, float]:
            metrics: dict[str, float] = {}
            for prefix in ("val", "test") if test else ("val",):
                rows = _questions(graph, prefix)
                if not len(rows):
                    continue
                ends = (1, 0)[: 1 + both]
                each = [_ranks(model, params, graph, rows, end, filtered) for end in ends]
                ranks = torch.cat(each)
                metrics[f"{prefix}_mrr"] = float((1 / ranks).mean())
                for k in ks if prefix == "test" else ():
                    hits = (ranks <= k).double().masked_fill(ranks.isnan(), torch.nan)
                    metrics[f"{prefix}_hits@{k}"] = float(hits.mean())
            return metrics

        return score

    return score_of


def _questions(graph: Graph, prefix: str) -> Tensor:
    """Indices of the pairs with label 1 in a mask."""
    mask: Tensor | None = getattr(graph, f"{prefix}_mask")
    if graph.edge_label_index is None or mask is None:
        return torch.zeros(0, dtype=torch.int64)
    return (mask & _is_true(graph)).nonzero().squeeze(1)


def relation_of(graph: Graph) -> Tensor:
    """The relation of every pair, int64 ``[p]``.

    The relation is 0 if pairs have no relations.

    Example:
        >>> pairs = torch.tensor([[0], [1]])
        >>> relation_of(fgl.Graph(torch.eye(2), pairs, edge_label_index=pairs))
        tensor([0])
    """
    if graph.edge_label_type is not None:
        return graph.edge_label_type
    return torch.zeros_like(graph.edge_label_index[0])  # type: ignore[index]  # checked


def _is_true(graph: Graph) -> Tensor:
    """Mask of the pairs that are edges: pairs with label 1; without labels, all pairs."""
    return graph.example_mask if graph.y is None else graph.example_mask & (graph.y == 1)


def _ranks(
    model: nn.Module, params: Params, graph: Graph, rows: Tensor, end: int, filtered: bool
) -> Tensor:
    """Ranks of the heads or of the tails of the pairs in `rows`, float64 ``[m]``.

    `end` is 0 for heads and 1 for tails.
    """
    n, pairs, relation = graph.num_nodes, graph.edge_label_index, relation_of(graph)
    facts = _facts(graph, end, _is_true(graph)) if filtered else relation[:0]
    nodes = torch.arange(n, device=graph.device)
    ranks = []
    for some in rows.split(max(1, CELLS // n)):
        fixed, true = pairs[1 - end, some], pairs[end, some]  # type: ignore[index]  # checked
        ends = [nodes.repeat(len(some)), fixed.repeat_interleave(n)]
        fields: dict[str, Any] = {"edge_label_index": torch.stack(ends if end == 0 else ends[::-1])}
        if "edge_label_type" in reads(model).names:
            fields["edge_label_type"] = relation[some].repeat_interleave(n)
        with fed.in_mode(model, False):
            scores = fed.predict(model, params, graph, **fields).reshape(len(some), n)
        own = scores.gather(1, true[:, None])
        counts = ~_cells(facts, relation[some] * n + fixed, n)
        counts[torch.arange(len(some), device=graph.device), true] = False
        above, equal = ((way & counts).sum(1) for way in (scores > own, scores == own))
        wrong = (scores.isnan() & counts).any(1) | own.isnan().squeeze(1)
        ranks.append((1 + above + equal.double() / 2).masked_fill(wrong, torch.nan))
    return torch.cat(ranks)


def _facts(graph: Graph, end: int, mask: Tensor) -> Tensor:
    """Sorted keys ``(r n + fixed end) n + other end`` of all edges and of the pairs in a mask."""
    n, relation = graph.num_nodes, relation_of(graph)[mask]
    ends: Any = graph.edge_label_index[:, mask]  # type: ignore[index]  # checked
    alone = torch.zeros_like(graph.edge_index[0])
    of_edges = alone if graph.edge_label_type is None else graph.edge_type
    if of_edges is not None:
        ends = torch.cat([ends, graph.edge_index], 1)
        relation = torch.cat([relation, of_edges])
    keys: Tensor = ((relation * n + ends[1 - end]) * n + ends[end]).unique()
    return keys


def _cells(facts: Tensor, rows: Tensor, n: int) -> Tensor:
    """Mask of the cells that contain facts, in the given rows of a table: bool ``[m, n]``.

    A fact in row r and column c is encoded as the number ``r * n + c``.
    """
    first, last = (torch.searchsorted(facts, each * n) for each in (rows, rows + 1))
    index, row = ranges(first, last - first)
    cells = torch.zeros(len(rows), n, dtype=torch.bool, device=rows.device)
    cells[row, facts[index] % n] = True
    return cells


def ranked_task(
    clients: Sequence[Graph],
    model: nn.Module,
    train: Training,
    loss: Any,
    score_of: Callable[..., Score],
    negatives: int,
) -> Task:
    """A task in which clients' triples are ranked (see `pair_task`).

    Example:
        >>> graph = fgl.Graph(torch.eye(3), torch.tensor([[0], [1]]), y=torch.ones(1),
        ...     edge_label_index=torch.tensor([[0], [2]]), test_mask=torch.tensor([True]))
        >>> model = fgl.nn.PairNet(3, 4, 1)
        >>> ranked_task([graph], model, fgl.Training(), None, ranking(), 1).select
        'val_mrr'
    """
    drawn = _corrupted(train, len(clients), negatives)
    drawing = replace(train, num_steps=None, batches=drawn, epochs=fed.num_steps(train))
    method = bounded(fed.fedavg(model, loss=loss, train=drawing), clients)

    def scores(method: Method, trained: Sequence[Graph], *, each: bool = False) -> Evaluate:
        return fed.evaluate_on(method, clients, trained, score=score_of(model), each=each)

    validate = validation(score_of(model, test=False), "val_mrr")
    return Task(clients, method, scores, "val_mrr", validate)


def _corrupted(train: Training, num_clients: int, count: int) -> Any:
    """A function for a client's steps: each step gets triples with a random tail or a random head.

    A negative is never a training triple, but may be a validation or test triple. If validation
    and test triples were never negatives, a model could recognise them by this property.
    """

    def tables(graph: Graph) -> tuple[FreeCells, FreeCells]:
        mask = graph.training_mask & _is_true(graph)
        kinds = relation_of(graph)
        rows = (int(kinds.max()) + 1) * graph.num_nodes if len(kinds) else 0
        size = rows, graph.num_nodes
        keys = [_facts(graph, end, mask) for end in (1, 0)]
        tails, heads = (torch.stack([k // size[1], k % size[1]]) for k in keys)
        return FreeCells(tails, *size), FreeCells(heads, *size)

    tables_of = Once(tables, num_clients)

    def batches(graph: Graph, context: Any) -> Iterator[tuple[Graph, Any]]:
        chosen = (graph.training_mask & _is_true(graph)).nonzero().squeeze(1).repeat(count)
        relation, pairs = relation_of(graph)[chosen], graph.edge_label_index[:, chosen]  # type: ignore[index]
        for _ in range(fed.num_steps(train)):
            drawn = []
            for end, free in zip((1, 0), tables_of(graph), strict=True):
                others, has = free.of_rows(relation * graph.num_nodes + pairs[1 - end])
                ends = [others, pairs[1 - end, has]]
                drawn.append(torch.stack([*(ends if end == 0 else ends[::-1]), relation[has]]))
            yield graph, {**context, "negatives": Ragged(torch.cat(drawn, 1).T)}

    return batches
