"""Scores of clients' models on nodes, held-out edges, ego-graphs or graphs; pooled scores."""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from .. import federation as fed
from .. import targets
from ..checks import SPLIT, check_classes, reject_if
from ..data.partitions.major_label import unseen_nodes
from ..data.splits import EdgeSplit
from ..federation import Cohort, Evaluate, Inbox, Method, Outbox, Params, Score, State
from ..graph import Graph
from ..graph.windows import asked, by_answer, horizons
from ..losses import pair_scores, soft_cross_entropy
from ..metrics import hit_rows
from ..metrics.classes import hit_counts, on_host
from ..metrics.ranking import auc_and_average_precision
from ..sparse.batched_pattern import Member
from ..targets import CLASSES, Target
from ..transfer import to_host


def node_scores(
    model: nn.Module,
    *,
    test: bool = True,
    logits_of: Callable[..., Any] = fed.predict,
    target: Target = CLASSES,
) -> Score:
    """A function that scores a model on a client's nodes or on a collection's graphs.

    Args:
        model: ``model(*graph.inputs)`` returns logits, or the output that the target needs.
        test: whether to score test nodes too; if False, only validation nodes are scored.
        logits_of: ``(model, params, graph) -> logits``; by default the model's output for the whole
            graph.
        target: meaning of the values of ``graph.y``; by default class labels.

    Returns:
        ``(params, graph) -> {"val_accuracy", "test_accuracy"}``. With `fgl.targets.REGRESSION`, the
        metrics are ``{"val_rmse", "test_rmse", "test_mae", "test_r2"}``. A metric is left out if
        the mask for it is missing or empty, or if no label in the mask is known.

    Example:
        >>> mask = torch.tensor([True, False])
        >>> graph = fgl.Graph(torch.eye(2), torch.tensor([[0], [1]]), y=torch.tensor([0, 1]))
        >>> model = fgl.nn.GCN(2, 8, 2)
        >>> list(node_scores(model)(model.state_dict(), graph.replace(test_mask=mask)))
        ['test_accuracy']
    """

    @torch.no_grad()
    def score(params: Params, graph: Graph) -> dict[str, float]:
        targets.checked_y(target, graph.y)
        metrics: dict[str, Any] = {}
        with fed.in_mode(model, False):
            of = asked(graph, lambda own: logits_of(model, params, own))
            if graph.val_mask is not None:
                first = target.metrics[target.first]
                metrics[f"val_{target.first}"] = first(*of(graph.val_mask))
            if test and graph.test_mask is not None:
                own = targets.of_clients(target).at(horizons(graph))
                metrics |= own.measure("test_", *of(graph.test_mask))
        return targets.scored_alone(on_host(metrics)[0])

    return score


def link_scores(model: nn.Module, splits: Sequence[EdgeSplit], *, test: bool = True) -> Score:
    """A function that scores how well a model separates held-out edges from pairs without edge.

    Args:
        model: ``model(graph.x, graph.adj)`` returns embeddings; their inner products are the scores
            of links.
        splits: one split per client; ``split.graph`` identifies the client.
        test: whether to score test pairs too.

    Returns:
        ``(params, graph) -> {"val_auc", "val_ap", "test_auc", "test_ap"}``. A metric is left out if
        its edges or its negatives are missing. For a client without held-out edges the dict is
        empty. Metrics are NaN if the model's scores are NaN, for example after divergence.

    Raises:
        ValueError: if the returned function is called with a graph that is not the graph of a
            split.

    Example:
        >>> split = fgl.data.splits.edge_split(fgl.data.load("synthetic"))
        >>> model = fgl.nn.VGAE(1433, 8, 4)
        >>> list(link_scores(model, [split])(model.state_dict(), split.graph))
        ['val_auc', 'val_ap', 'test_auc', 'test_ap']
    """
    of = {split.graph: split for split in splits}

    @torch.no_grad()
    def score(params: Params, graph: Graph) -> dict[str, float]:
        split = of.get(graph) or _split_like(graph, splits)
        if split.trains_only:
            return {}
        with fed.in_mode(model, False):
            z = fed.predict(model, params, graph)
        held_out = {"val_": (split.val_edges, split.val_negatives)}
        if test:
            held_out["test_"] = (split.test_edges, split.test_negatives)
        held_out = {k: pairs for k, pairs in held_out.items() if all(p.shape[1] for p in pairs)}
        scores = {prefix: pair_scores(z, torch.cat(pairs, 1)) for prefix, pairs in held_out.items()}
        diverged = to_host(*(own.isnan().any() for own in scores.values()))
        metrics = {}
        for (prefix, own), bad in zip(scores.items(), diverged, strict=True):
            positive = torch.arange(len(own), device=own.device) < held_out[prefix][0].shape[1]
            both = (math.nan, math.nan) if bad else auc_and_average_precision(own, positive)
            metrics[f"{prefix}auc"], metrics[f"{prefix}ap"] = both
        return metrics

    return score


def _split_like(graph: Graph, splits: Sequence[EdgeSplit]) -> EdgeSplit:
    """Find the split of a graph; `graph` may be a copy with equal nodes and edges."""
    for split in splits:
        own = split.graph
        ids = [each.node_id for each in (own, graph) if each.node_id is not None]
        same = own.num_nodes == graph.num_nodes and torch.equal(own.edge_index, graph.edge_index)
        if same and (len(ids) < 2 or torch.equal(*ids)):
            return split
    raise ValueError("Expected graph to be the graph of a split, but got another")


def validation(score: Score, select: str) -> Callable[[Params, Graph], float]:
    """Build a function that computes a client's validation score.

    The score is NaN if the client has no validation examples. A larger score is always better. For
    example, the score for ``"-val_rmse"`` is minus the metric.
    """

    def validate(params: Params, graph: Graph) -> float:
        metrics: Mapping[str, Any] = score(params, graph)
        return targets.selected(metrics, select)

    return validate


def evaluate_own(
    score: Score,
    method: Method,
    clients: Sequence[Graph],
    *,
    required: bool = True,
    each: bool = False,
    lower: Set[str] = CLASSES.lower,
) -> Evaluate:
    """Score every client's deployed model, and the model at the start of the client's last round.

    The model at the start of the round is scored only if the method keeps this model in the
    clients' states, under the key ``"adopted"``.

    Args:
        score: ``(params, graph) -> metrics``, such as `link_scores` or `node_scores`.
        method: the method. Its function `deploy` returns the parameters that are scored.
        clients: the clients' graphs.
        required: whether to raise an error if no client has a metric.
        each: whether to add the metrics of single clients, such as ``test_accuracy/3`` of client 3,
            and of the worst client, such as ``worst_test_accuracy``.
        lower: names of further metrics for which smaller values are better. The names are given
            without ``test_`` or ``val_``. For losses, rmse and mae, smaller values are always
            better, so these names can be left out.

    Returns:
        ``(outbox, states) -> metrics``. Every metric is a mean over the clients with a value of
        this metric. If clients keep the model from the start of their last round, this model is
        scored too. The names of this model's metrics end in ``_before``. ``scored_clients`` is the
        number of clients that have all metrics. If one client's value is NaN, the mean is NaN.

    Warns:
        UserWarning: if `each` is true and a client lacks a metric that another client has. The
            warning names these clients and the reason.

    Raises:
        ValueError: raised by the returned function if no client has a metric, or if a model is
            incomplete.

    Example:
        >>> graph = fgl.data.splits.split(fgl.data.load("synthetic"), "random")
        >>> model = fgl.nn.GCN(graph.num_features, 8, graph.num_classes)
        >>> evaluate = evaluate_own(node_scores(model), fgl.fedavg(model), [graph])
        >>> sorted(evaluate({0: {"model": model.state_dict()}}, {}))
        ['scored_clients', 'test_accuracy', 'val_accuracy']
    """
    model, models = method.model, fed.deployed(method, clients)
    merge = fed.merging(each, clients, lower)

    def evaluate(outbox: Outbox, states: Mapping[int, State]) -> dict[str, float]:
        used = models(outbox, states)
        pairs = {(k, ""): (used[k], graph) for k, graph in enumerate(clients)}
        if any("adopted" in state for state in states.values()):
            common = method.common()
            for k, graph in enumerate(clients):
                started = states.get(k, {}).get("adopted", used[k])
                fed.check_whole(method, started, graph, f"client {k}'s adopted model", common)
                pairs[k, "_before"] = started, graph
        metrics: list[dict[str, float]] = [{} for _ in clients]
        trained = {key: method.model_of(clients[key[0]]) for key in pairs}
        for (k, ending), own in fed.scored(model, score, pairs, trained).items():
            metrics[k] |= {f"{name}{ending}": value for name, value in own.items()}
        names = {name for own in metrics for name in own}
        reject_if(not names and required, "a client to have something to test on", f"none{SPLIT}")
        whole = sum(len(own) == len(names) for own in metrics) if names else 0
        return {**merge(dict(enumerate(metrics))), "scored_clients": float(whole)}

    return evaluate


def evaluate_ego(
    method: Method, clients: Sequence[Graph], test: Graph, *, each: bool = False
) -> Evaluate:
    """Score every client's model on the client's test nodes and on a common test graph.

    The score is micro-F1, which equals accuracy if each node has one label. A client that has never
    taken part in a round has no model yet and is not scored.

    Args:
        method: the method; the method's ``model(graph.x, graph.adj)`` returns logits.
        clients: the clients' graphs, with labels and masks.
        test: the test graph, common to all clients; all nodes of this graph are scored.
        each: whether to add the metrics of the worst client and of single clients.

    Returns:
        ``(outbox, states) -> metrics``, empty if no client has taken part. ``local_f1``,
        ``global_f1``, ``val_f1`` and ``val_loss`` are means over the scored clients, whose number
        is ``scored_clients``. ``local_unseen_f1`` counts a client's test node only if no other
        client trains on this node (`unseen_nodes`). ``local_unseen_f1`` is a mean over the clients
        that have such test nodes; ``unseen_clients`` is their number. If no client has such nodes,
        the metric is left out. The metrics of single clients are ``local_f1/0``, ``global_f1/0``,
        ``local_unseen_f1/0``, ...

    Example:
        >>> test, clients = fgl.data.partitions.major_label_partition(fgl.data.load("synthetic"), 2)
        >>> model = fgl.nn.EgoSAGE(test.num_features, 8, test.num_classes)
        >>> outbox = {0: {"model": model.state_dict()}}
        >>> list(evaluate_ego(fgl.fedavg(model), clients, test)(outbox, {0: {}}))
        ['local_f1', 'global_f1', 'val_f1', 'val_loss', 'local_unseen_f1', 'scored_clients',
         'unseen_clients', 'local_f1/0', 'global_f1/0', 'local_unseen_f1/0']
    """
    fed.check_one_architecture(method, "evaluate_ego")
    model, models = method.model, fed.deployed(method, clients)
    named = all(graph.node_id is not None for graph in clients)
    masks = zip(clients, unseen_nodes(clients) if named else [], strict=named)
    unseen = {graph: mask for graph, mask in masks if mask.any()}
    merge = fed.merging(each)

    def score(params: Params, graph: Any) -> dict[str, Any]:
        own, common = (functional_call(model, params, (each.x, each.adj)) for each in (graph, test))
        metrics = {
            "local_f1": hit_counts(own, graph.y, graph.test_mask),
            "global_f1": hit_counts(common, test.y),  # type: ignore[arg-type]  # checked
            "val_f1": hit_counts(own, graph.y, graph.val_mask),
            "val_loss": soft_cross_entropy(own, one_hot(graph), graph.val_mask),
        }
        if graph in unseen:
            metrics["local_unseen_f1"] = hit_counts(own, graph.y, unseen[graph])
        return metrics

    def evaluate(outbox: Outbox, states: Mapping[int, State]) -> dict[str, float]:
        used = models({client: outbox[client] for client in sorted(states)}, states)
        metrics = fed.scored(model, score, {k: (params, clients[k]) for k, params in used.items()})
        if not metrics:
            return {}
        counts = {"scored_clients": float(len(metrics))}
        if named:
            unseen_clients = sum("local_unseen_f1" in own for own in metrics.values())
            counts["unseen_clients"] = float(unseen_clients)
        of_clients = {
            f"{name}/{client}": own[name]
            for client, own in metrics.items()
            for name in ("local_f1", "global_f1", "local_unseen_f1")
            if name in own
        }
        return {**merge(metrics), **counts, **of_clients}

    return evaluate


def one_hot(graph: Graph) -> Tensor:
    """Labels in one-hot form, ``[num_nodes, C]``."""
    labels, classes = graph.labels, int(graph.num_classes or 0)
    return torch.eye(classes, dtype=graph.x.dtype, device=graph.device)[labels]


def evaluate_pooled(
    method: Method,
    clients: Sequence[Graph],
    *,
    tests: Sequence[Graph] | None = None,
    target: Target = CLASSES,
) -> Evaluate:
    """Score all clients' test examples together; each example is predicted by its client's model.

    A metric can be undefined for one client, but defined for all clients together. For example, the
    AUC is undefined for a client if all labels of the client are equal.

    Args:
        method: the method. The method's function `deploy` returns the parameters that are scored.
            The call ``model(*graph.inputs)`` of the method's model returns outputs for the target.
        clients: the clients' graphs.
        tests: for each client, one graph with labels; graphs without a test mask are not scored. If
            there are more graphs than clients, the additional graphs are scored with the first
            client's model. Default `clients`.
        target: meaning of the values of ``graph.y``; by default class labels.

    Returns:
        ``(outbox, states) -> metrics``. The dict contains all defined metrics of the target. The
        names of these metrics begin with ``pooled_test_``.

    Raises:
        ValueError: if no client has a test example. The returned function raises a ValueError if a
            model is incomplete.

    Example:
        >>> graph = fgl.data.splits.split(fgl.data.load("synthetic"), "random")
        >>> model = fgl.nn.GCN(graph.num_features, 8, graph.num_classes)
        >>> evaluate = evaluate_pooled(fgl.fedavg(model), [graph])
        >>> list(evaluate({0: {"model": model.state_dict()}}, {}))
        ['pooled_test_accuracy', 'pooled_test_macro_f1']
    """
    model, models = method.model, fed.deployed(method, clients)
    masks = [own.test_mask for own in (clients if tests is None else tests)]
    tested = {
        client: (own, mask)
        for client, (own, mask) in enumerate(zip(tests or clients, masks, strict=True))
        if mask is not None and bool(mask.any())
    }
    reject_if(not tested, "a client to have test examples", "none")
    for own, _ in tested.values():
        targets.checked_y(target, own.y)
    first, _ = next(iter(tested.values()))
    target = target.at(horizons(first))

    @torch.no_grad()
    def evaluate(outbox: Outbox, states: Mapping[int, State]) -> dict[str, float]:
        used = models(outbox, states)
        parts: list[tuple[Tensor, Tensor]] = []
        with fed.in_mode(model, False):
            for client, (own, mask) in tested.items():
                trained = client if client in used else 0
                with method.at(clients[trained]):
                    of = asked(own, partial(fed.predict, model, used[trained]))
                    output, y, rows = of(mask)
                parts.append((output, y) if rows is None else (output[rows], y[rows]))
        outputs, answers = (torch.cat(each) for each in zip(*parts, strict=True))
        return targets.scored_alone(on_host(target.measure("pooled_test_", outputs, answers))[0])

    return evaluate


def with_pooled(
    evaluate: Evaluate,
    method: Method,
    clients: Sequence[Graph],
    tests: Sequence[Graph],
    target: Target,
) -> Evaluate:
    """The score function, with pooled scores added if a client cannot be scored alone.

    `evaluate_pooled` is added if a metric is undefined for the labels of a client.

    A warning names the clients with an undefined metric.
    """
    targets.warn_undefined(target, [by_answer(own, own.val_mask)[1:] for own in tests], "val_")
    questions = [by_answer(own, own.test_mask)[1:] for own in tests]
    answered = [(y, mask) for y, mask in questions if y is not None and mask is not None]
    if not answered:
        return evaluate
    instead, lost = _instead(target, answered)
    if not targets.warn_undefined(target, questions, "test_", instead=instead) or lost:
        return evaluate
    return fed.together(evaluate, evaluate_pooled(method, clients, tests=tests, target=target))


def _instead(target: Target, answered: Sequence[tuple[Tensor, Tensor]]) -> tuple[str, list[str]]:
    """Check whether metrics are defined if the labels of all clients are pooled.

    Returns:
        A text that says whether pooled metrics exist, and the metrics that are undefined even for
        the pooled labels. The text is appended to a warning.
    """
    y, mask = (torch.cat(part) for part in zip(*answered, strict=True))
    lost = targets.undefined_metrics(target, y, mask)
    if lost:
        return ", nor is there one of all clients' answers together", lost
    return "; pooled_test_... are of all clients' answers together", lost


def evaluate_graphs(
    method: Method,
    tests: Sequence[Graph],
    clients: Sequence[Graph],
    *,
    target: Target = CLASSES,
    each: bool = False,
) -> Evaluate:
    """Score every client's model on the client's own test graphs.

    For class labels, the score is the accuracy. A majority baseline is scored too: it always
    predicts the most frequent class among a client's training graphs. If several classes are
    equally frequent, the baseline predicts the class with the lowest index. For any other target, a
    metric is scored in two ways. The mean over clients leaves out clients for which the metric is
    undefined. The pooled metric is computed over the test graphs of all clients together. The model
    of a graph's client predicts the output for this graph; in a centralized run there is only one
    model.

    Args:
        method: the method; the method's ``model(*graph.inputs)`` returns logits, or the output that
            the target needs.
        tests: for each client, one collection with labels. If a collection has a test mask, only
            the graphs in this mask are scored. Without masks, all graphs are scored.
        clients: the clients' training graphs. If these graphs have validation masks, metrics that
            begin with ``val_`` and ``pooled_test_`` are added.
        target: meaning of the values of ``graph.y``; by default class labels.
        each: as for `evaluate_own`.

    Returns:
        ``(outbox, states) -> {"test_accuracy", "majority_accuracy"}``, means over clients.
        ``"majority_accuracy"`` is the accuracy of the majority baseline; this number is the same in
        all rounds. With `fgl.targets.ANSWERS`, the metrics are
        ``{"val_auc", "test_auc", "test_ap", "pooled_test_auc", "pooled_test_ap"}``. Undefined
        metrics are left out.

    Raises:
        TypeError: if ``y`` has a floating-point dtype, but the target is for class labels.
        ValueError: if a collection lacks labels or a `batch`, if a collection has masks but no test
            mask, if a mask is empty, or if `clients` and `tests` have different lengths. For a
            target other than class labels, `clients` may also be a list of one collection, as in
            a centralized run. The returned function raises a ValueError if a model is incomplete.

    Example:
        >>> none = torch.zeros(2, 0, dtype=torch.int64)
        >>> y = torch.tensor([0, 0, 1])
        >>> graph = fgl.Graph(torch.ones(3, 4), none, y=y, batch=torch.arange(3))
        >>> model = fgl.nn.GIN(4, 8, 2)
        >>> outbox = fgl.federation.Broadcast({"model": model.state_dict()}, num_clients=1)
        >>> evaluate_graphs(fgl.fedavg(model), [graph], [graph])(outbox, {})
        {'test_accuracy': 0..., 'majority_accuracy': 0.6...}
    """
    for graph in (*tests, *clients):
        targets.checked_y(target, graph.y)
        reject_if(graph.batch is None, "tests and clients to be collections", "no batch")
    for client, graph in enumerate(tests):
        others = [name for name in ("train_mask", "val_mask") if getattr(graph, name) is not None]
        expected = f"client {client}'s tests to have test_mask beside {' and '.join(others)}"
        hint = "without it graphs that train would be tested; without masks all are tested"
        reject_if(others and graph.test_mask is None, expected, f"none: {hint}")
    for client, (own, test) in enumerate(zip(clients, tests, strict=False)):
        width = own.num_features
        expected = f"client {client}'s tests to have {width} features as its training graphs"
        reject_if(test.num_features != width, expected, test.num_features)
    classes = target.metrics == CLASSES.metrics
    wrong = len(clients) != len(tests) and (classes or len(clients) != 1)
    reject_if(wrong, f"clients to be {len(tests)} as tests", len(clients))
    if not classes:
        return _evaluate_answers(method, tests, clients, target, each)
    if any(map(has_validation, clients)):
        accuracy = _evaluate_answers(method, tests, clients, targets.of_clients(target), each)
        majority = {"majority_accuracy": _majority(tests, clients)}
        return lambda outbox, states: {**accuracy(outbox, states), **majority}
    return _evaluate_classes(method, tests, clients, target, each)


def _evaluate_answers(
    method: Method, tests: Sequence[Graph], clients: Sequence[Graph], target: Target, each: bool
) -> Evaluate:
    """The scores of single clients and the pooled scores; see `evaluate_graphs`."""
    model, models = method.model, fed.deployed(method, clients)
    tests = [masked(graph, "test_mask", k) for k, graph in enumerate(tests)]
    validated = {
        k: masked(own, "val_mask", k) for k, own in enumerate(clients) if has_validation(own)
    }
    questions: list[Any] = [(graph.y, graph.example_mask) for graph in tests]
    targets.warn_undefined(target, questions, "test_", instead=_instead(target, questions)[0])
    targets.warn_undefined(target, [(own.y, own.val_mask) for own in clients], "val_")
    answers: list[Any] = [graph.y for graph in tests]
    held_out: dict[int, Any] = {k: graph.y for k, graph in validated.items()}
    first, merge = target.metrics[target.first], fed.merging(each, None, target.lower)

    def output_of(params: Params, graph: Graph, client: Graph) -> Any:
        with method.at(client):
            return fed.predict(model, params, graph)

    @torch.no_grad()
    def evaluate(outbox: Outbox, states: Mapping[int, State]) -> dict[str, float]:
        used: Any = models(outbox, states)
        with fed.in_mode(model, False):
            whose = [k if k in used else 0 for k in range(len(tests))]
            calls = zip(whose, tests, strict=True)
            outputs = [output_of(used[k], graph, clients[k]) for k, graph in calls]
            val = {k: output_of(used[k], graph, clients[k]) for k, graph in validated.items()}
        scores = {k: target.measure("test_", outputs[k], answers[k]) for k in range(len(tests))}
        for k in val:
            validation = {f"val_{target.first}": first(val[k], held_out[k], None)}
            scores[k] = {**validation, **scores.get(k, {})}
        pooled = target.measure("pooled_test_", torch.cat(outputs), torch.cat(answers))
        *own, pooled = map(targets.scored_alone, on_host(*scores.values(), pooled))
        return {**merge(dict(zip(scores, own, strict=True))), **pooled}

    return evaluate


def _majority(tests: Sequence[Graph], clients: Sequence[Graph]) -> float:
    """Mean test accuracy of always predicting the client's most frequent training class."""
    pairs: Any = [
        (own.labels[own.training_mask], masked(test, "test_mask", k).y)
        for k, (own, test) in enumerate(zip(clients, tests, strict=True))
    ]
    hits = [(y == labels.bincount().argmax()).double().mean() for labels, y in pairs if len(labels)]
    return float(torch.stack(hits).mean())


def _evaluate_classes(
    method: Method, tests: Sequence[Graph], clients: Sequence[Graph], target: Target, each: bool
) -> Evaluate:
    """The accuracy of the clients' models and of a majority baseline; see `evaluate_graphs`."""
    model, models = method.model, fed.deployed(method, clients)
    majority = _majority(tests, clients)
    tests = [masked(graph, "test_mask", k) for k, graph in enumerate(tests)]
    if method.own.models is not None or fed.batch_norms(model):  # nor do they train in a batch

        def score(params: Params, graph: Graph) -> dict[str, Any]:
            return {"test_accuracy": hit_counts(fed.predict(model, params, graph), graph.labels)}

        own_scores = fed.evaluate_on(method, tests, clients, score=score, each=each)
        return fed.together(own_scores, lambda outbox, states: {"majority_accuracy": majority})
    cohort, merge = Cohort(tests), fed.merging(each)

    def hit_share(index: Tensor, params: Any) -> Tensor:
        graph = cohort.graph(Member(index))
        logits = fed.predict(model, params, graph)
        y: Any = graph.y
        check_classes(logits, graph.num_classes)
        hit = hit_rows(logits, y) & graph.example_mask
        correct: Tensor = hit.sum().double() / graph.num_graphs
        return correct

    @torch.no_grad()
    def evaluate(outbox: Outbox, states: Mapping[int, State]) -> dict[str, float]:
        used: Any = models(outbox, states)
        with fed.in_mode(model, False):
            stack = Inbox({k: {"model": used[k]} for k in range(len(tests))}, len(tests))
            shares = vmap(hit_share)(cohort.index, stack.stack("model"))
        each_share = enumerate(shares.tolist() if each else [])
        own = {k: {"test_accuracy": share} for k, share in each_share}
        mean = {"test_accuracy": float(shares.double().mean()), "majority_accuracy": majority}
        return {**merge(own), **mean}

    return evaluate


def has_validation(graph: Graph) -> bool:
    """Whether a client has validation examples."""
    return graph.val_mask is not None and bool(graph.val_mask.any())


def masked(graph: Graph, name: str, client: int) -> Graph:
    """The graphs that a collection's mask selects; all graphs if there is no mask.

    Raises:
        ValueError: if the mask selects no graph.
    """
    mask: Tensor | None = getattr(graph, name)
    if mask is not None:
        got = "none: [fgl.data.splits.random_split(own, seed=k) for k, own in enumerate(clients)]"
        reject_if(not mask.any(), f"client {client}'s {name} to have a graph", got)
        graph = graph.select(mask.nonzero().squeeze(1))
    return graph.replace(train_mask=None, val_mask=None, test_mask=None)
