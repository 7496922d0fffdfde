"""Tasks that predict future edges, or labels of edges; no node is at two clients."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .. import data
from .. import federation as fed
from ..checks import Count, Share, check_choice, check_count, reject_if
from ..data.splits.negatives import Window, checked_answers
from ..federation import Evaluate, Loss, Method, Params, Ragged, Score, Training
from ..graph import Graph
from ..graph.facts import answered, check_graphs
from ..nn import PairNet
from ..predict import reads
from ..targets import ANSWERS, Target
from ..warn import warn
from .apart import warn_of_known_pairs, warn_of_trained
from .ranking import ranked_task
from .scores import node_scores, validation, with_pooled
from .settings import Cut, setting
from .task import Local, Once, Task, bounded

Negatives = bool | int | Literal["degree"]
RATING = 10.0  # the largest rating, by which features of edges are divided


def pair_task(
    clients: Sequence[Graph],
    model: nn.Module,
    train: Training,
    *,
    target: Target = ANSWERS,
    negatives: Negatives = False,
    seed: int = 0,
    ranking: Callable[..., Score] | None = None,
) -> Task:
    """Predict labels of pairs of nodes.

    Each client is scored on its own pairs.

    The model reads `edge_label_index` and returns one row for each pair. The label may depend on
    the direction of the pair. `fgl.data.splits.split_by_time` builds graphs for this task.

    With `negatives`, the model learns to predict whether a pair is an edge. In each local step, one
    negative is sampled for every training pair that is an edge. This pair is called the original
    edge. A negative is a pair that is not an edge. A negative has the source of the original edge
    and a new target. The new target has the same node type as the original target. The new target
    must also occur in a message edge, or in a pair of the original edge's time window or of an
    earlier window. Negatives of validation and test pairs are sampled before training
    (`fgl.data.splits.with_negatives`). Validation and test pairs are never used as negatives.

    With `ranking`, the true ends of pairs are ranked among all nodes. For example, pairs can be
    triples of a knowledge graph. In each local step, negatives are sampled for every training pair:
    `negatives` pairs in which the target is replaced, and `negatives` pairs in which the source is
    replaced. Replacements are sampled uniformly. Only training pairs are excluded.

    Args:
        clients: graphs with `edge_label_index`, `y` and masks of pairs.
        model: a model that reads `edge_label_index`. With `fgl.targets.ANSWERS`, the model returns
            one number for each pair.
        train: local training.
        target: meaning of the values of ``graph.y``; by default binary labels, 1 for yes and 0 for
            no.
        negatives: whether to sample pairs that are not edges. With "degree", a node's probability
            of becoming a target is proportional to the number of pairs that end at this node. Then
            the degrees of targets do not reveal which pairs are negatives. With `ranking`,
            `negatives` is the number of negatives for each end of a training pair, at least 1.
        seed: seed of the negatives for validation and for the test.
        ranking: the result of `fgl.tasks.ranking`. With `ranking`, the best round is selected by
            ``val_mrr``.

    Raises:
        ValueError: if a client has no pairs. With `negatives`, the error is also raised if a label
            is neither 0 nor 1, if local training defines batches itself, or if the target is not
            `fgl.targets.ANSWERS`. The error is also raised if `ranking` is given and `negatives` is
            not a number, or if `negatives` is a number and `ranking` is not given.

    Example:
        >>> whole = fgl.data.splits.split_by_time(fgl.data.ratings())
        >>> parts = fgl.data.partitions.random_partition(whole, 2)
        >>> clients = fgl.data.partitions.partition_graph(whole, parts)
        >>> model = fgl.nn.PairNet(1, 8, 1, edge_dim=1)
        >>> task = pair_task(clients, model, fgl.Training(), negatives=True)
        >>> task.select, len(task.clients)
        ('val_auc', 2)

    Source: Huang et al. 2023, Temporal Graph Benchmark, https://arxiv.org/abs/2307.01026, which
    samples a new target for each pair
    """
    check_graphs(clients)
    lacking = [k for k, own in enumerate(clients) if own.edge_label_index is None or own.y is None]
    expected = "clients to have edge_label_index and y"
    reject_if(lacking, expected, f"none in {lacking}: see fgl.data.splits.split_by_time")
    warn_of_trained(clients)
    warn_of_known_pairs(clients)
    if (negatives or ranking) and (target is not ANSWERS or train.batches is not None):
        got = "another" if target is not ANSWERS else "batches of its own"
        raise ValueError(f"Expected target ANSWERS and plain training, but got {got}")
    if ranking is not None:
        reject_if(negatives == "degree", "negatives to be a number beside ranking", "'degree'")
        check_count(negatives=int(negatives))
        for own in clients:
            checked_answers(own)
        return ranked_task(clients, model, train, _among_negatives(model), ranking, int(negatives))
    check_choice("negatives", negatives, (False, True, "degree"))
    if negatives:
        clients = _with_negatives(clients, seed, negatives)
    return _task_of(clients, model, train, target, negatives)


def _with_negatives(clients: Sequence[Graph], seed: int, how: Negatives = True) -> list[Graph]:
    """The clients with added negative pairs for validation and for the test."""
    seeds = [fed.fold_in(seed, client, "negatives") for client in range(len(clients))]
    draw = partial(data.splits.with_negatives, negatives="degree" if how == "degree" else "uniform")
    return [draw(graph, seed=own) for graph, own in zip(clients, seeds, strict=True)]


def _task_of(
    clients: Sequence[Graph],
    model: nn.Module,
    train: Training,
    target: Target,
    negatives: Negatives,
) -> Task:
    """The task of the given clients, which already have all validation and test pairs."""
    if not negatives:
        _warn_of_one_label(clients, target)
        method = fed.fedavg(model, train=train, target=target)
    else:
        drawn = _drawn(train, len(clients), by_degree=negatives == "degree")
        drawing = replace(train, num_steps=None, batches=drawn, epochs=fed.num_steps(train))
        method = fed.fedavg(model, loss=_among_negatives(model), train=drawing)

    if not any(map(_is_tested, clients)):
        warn("Expected a client to have test pairs, but got none: there will be no test metrics")

    def scores(method: Method, trained: Sequence[Graph], *, each: bool = False) -> Evaluate:
        score = node_scores(model, target=target)
        how: dict[str, Any] = {"target": target, "each": each}
        own = fed.evaluate_on(method, clients, trained, score=score, **how)
        return with_pooled(own, method, trained, clients, target)

    validate = validation(node_scores(model, test=False, target=target), target.select)
    return Task(clients, bounded(method, clients), scores, target.select, validate)


def _warn_of_one_label(clients: Sequence[Graph], target: Target) -> None:
    """Warn if every training pair has label 1: a model that always answers 1 would be perfect."""
    y = torch.cat([own.y[own.training_mask].flatten().cpu() for own in clients])  # type: ignore[index]
    if target is ANSWERS and len(y) and bool((y == 1).all()):
        warn(
            "Expected training pairs with labels 0 and 1, but got 1 alone: negatives=True samples "
            "pairs that are no edges"
        )


def _is_tested(graph: Graph) -> bool:
    """Whether a client has test pairs with known labels."""
    return graph.test_mask is not None and bool(answered(graph.test_mask, graph.y).any())


def _drawn(train: Training, num_clients: int, *, by_degree: bool) -> Any:
    """A function for a client's steps: each step gets the graph and newly sampled negatives."""

    def own_window(graph: Graph) -> tuple[Window, Tensor]:
        positive = graph.training_mask & (checked_answers(graph) == 1)
        return Window(graph, ["train_mask"], by_degree=by_degree), positive

    window = Once(own_window, num_clients)

    def batches(graph: Graph, context: Any) -> Iterator[tuple[Graph, Any]]:
        draw, positive = window(graph)
        for _ in range(fed.num_steps(train)):
            pairs, like = draw(positive)
            if graph.edge_label_type is not None:
                pairs = torch.cat([pairs, graph.edge_label_type[like][None]])
            yield graph, {**context, "negatives": Ragged(pairs.T)}

    return batches


def _among_negatives(model: nn.Module) -> Loss:
    """Binary cross-entropy over the training pairs and the sampled negatives."""

    def loss(params: Params, graph: Graph, context: Any) -> Tensor:
        drawn = context["negatives"]
        pairs: Any = graph.edge_label_index
        questions: dict[str, Any] = {"edge_label_index": torch.cat([pairs, drawn.values.mT[:2]], 1)}
        if graph.has("edge_label_type") and "edge_label_type" in reads(model).names:
            relation: Any = graph.edge_label_type
            questions["edge_label_type"] = torch.cat([relation, drawn.values.mT[2]])
        output = fed.predict(model, params, graph, **questions)
        y: Any = graph.y
        answers = torch.cat([y, torch.zeros_like(drawn.mask, dtype=y.dtype)])
        return ANSWERS.loss(output, answers, torch.cat([graph.training_mask, drawn.mask]))

    return loss


@setting
class Pairs(Cut):
    """Predict links or signs of ratings in a directed graph whose nodes are divided among clients.

    The model reads message edges, and predicts labels of pairs of nodes. Only the message edges are
    used to divide the nodes among clients. So the pairs to predict do not influence the assignment
    of nodes to clients. A pair is lost if its two nodes belong to different clients.

    Example:
        >>> task = Pairs(clients=3, partition="random", hidden=8).load(seed=0)
        >>> task.select
        'val_auc'
    """

    asked: Literal["sign", "links"] = "sign"
    """The question: whether a rating is positive, or whether a rating exists."""
    order: Literal["time", "random"] = "time"
    """Whether the pairs to predict are later than the known pairs ("time"), or chosen at random."""
    hidden: Count = 32
    dropout: Share = 0.0
    local: Local = Local("adam", lr=0.01, weight_decay=5e-4, steps=5)

    def __post_init__(self) -> None:
        super().__post_init__()
        reject_if(self.dropout, "dropout to be 0 for Pairs, whose network has none", self.dropout)

    def load(self, seed: int = 0) -> Task:
        """Load the task.

        `seed` determines the random order, partition, initial model and negatives.
        """
        whole = self.whole(seed)
        parts = self.cut(whole, seed)
        self.check_all_train()
        clients, links = data.partitions.partition_graph(whole, parts), self.asked == "links"
        if links:  # an edge that a client lost must not count as a negative
            clients = _with_negatives(clients, seed)
        clients = self.damaged(clients, seed, data.degree_features)
        sizes = clients[0].num_features, self.hidden, 1
        model = self.seeded(seed, PairNet, *sizes, edge_dim=1)
        return _task_of(clients, model, self.local.training(), ANSWERS, links)

    def whole(self, seed: int) -> Graph:
        """The graph of all clients; earlier edges are messages, and later edges are predicted."""
        synthetic = self.dataset == "synthetic"
        graph = data.ratings() if synthetic else data.load(self.dataset)
        if graph.edge_attr is None or graph.edge_time is None:
            got = f"{self.dataset!r}, which has not both"
            raise ValueError(f"Expected dataset to have ratings and times, but got {got}")
        positive = (graph.edge_attr[:, 0] > 0).to(graph.x.dtype)
        graph = graph.replace(edge_attr=graph.edge_attr / RATING)
        y = positive if self.asked == "sign" else None
        split = data.splits.split_by_time(graph, y)
        if self.order == "random":
            drawn = fed.fold_in(seed, "split")  # a rating has a direction
            split = data.splits.pair_split(graph, y, seed=drawn, is_undirected=False)
        return split.replace(backend=self.sparse).to(self.device)
