"""Targets: what the values of y are, in losses, scores, tasks and the selection of a round."""

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from federations import FEATURES, graph, refuses, script
from sklearn.metrics import average_precision_score, roc_auc_score

import fgl
from fgl import data, losses, metrics, tasks
from fgl.federation import Broadcast
from fgl.targets import ANSWERS, REGRESSION, Target

NAN = torch.nan


def numbers(num_nodes: int, columns: int | None = None, *, seed: int = 0, **changes: Any) -> Any:
    """A graph whose answers are sums of features, some unknown."""
    own = graph(num_nodes, seed=seed)
    x: Any = own.x
    shape = (FEATURES,) if columns is None else (FEATURES, columns)
    y = x @ torch.linspace(-1, 1, math.prod(shape)).view(shape)
    y[::5] = NAN
    return own.replace(y=y, **changes)


def yes_or_no(num_nodes: int, columns: int = 3, *, seed: int = 0) -> Any:
    own = numbers(num_nodes, columns, seed=seed)
    return own.replace(y=torch.where(own.y.isnan(), NAN, (own.y > 0).float()))


def gcn(width: int) -> Any:
    torch.manual_seed(0)
    return fgl.nn.GCN(FEATURES, 8, width)


def molecules(count: int, *, seed: int, width: int = 2) -> fgl.Graph:
    """A collection whose graphs have half-known answers, yes or no."""
    generator = torch.Generator().manual_seed(seed)
    graphs, _ = data.small_graphs(count)
    y = (torch.rand(count, width, generator=generator) < 0.5).float()
    y[torch.rand(count, width, generator=generator) < 0.4] = NAN
    return fgl.Graph.join(graphs, y)


# A target is a value.


def test_bad_targets() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"metrics": {}}, "metrics to be one or more beside the loss, but got none"),
        ({"metrics": {"loss": metrics.rmse}}, "but got 'loss' among them"),
        ({"lower": {"mse"}}, r"lower to be names of \['rmse', 'mae', 'r2'\], but got \['mse'\]"),
    ]
    for given, message in wrong:
        with pytest.raises(ValueError, match=message):
            replace(REGRESSION, **given)


# Losses and scores.


def test_numbers_without_a_target_are_refused_with_its_name() -> None:
    own = numbers(12)
    message = "says what the numbers in graph.y are, such as fgl.targets.REGRESSION or ANSWERS, but"
    method = fgl.fedavg(gcn(1))
    refuses(message, lambda: method.loss(method.initial(), own, {}), TypeError)
    with pytest.raises(TypeError, match=f"Round 0, client 0, .*{message}"):
        fgl.run(method, [own], num_rounds=1, clients_at_once=1)
    for each in (own, [own]):
        with pytest.raises(TypeError, match=message):
            fgl.evaluate_on(method, each, [own])
    refuses(message, lambda: tasks.node_scores(gcn(1))(method.initial(), own), TypeError)
    collection = molecules(8, seed=0)
    refuses(message, lambda: tasks.evaluate_graphs(method, [collection], [collection]), TypeError)


def test_labels_where_numbers_are_wanted_are_refused() -> None:
    own = graph(12)
    method = fgl.fedavg(gcn(1), target=REGRESSION)
    with pytest.raises(TypeError, match="y to be floating point, but got torch.int64"):
        method.loss(method.initial(), own, {})
    with pytest.raises(ValueError, match="Expected target to be left out beside a loss"):
        fgl.fedavg(gcn(1), loss=method.loss, target=REGRESSION)


def test_a_column_of_outputs_may_be_a_vector() -> None:
    class Squeezed(fgl.nn.GCN):
        def forward(self, *args: Any, **options: Any) -> Any:
            return super().forward(*args, **options).squeeze(1)

    own, column = numbers(12), fgl.fedavg(gcn(1), target=REGRESSION)
    vector = fgl.fedavg(Squeezed(FEATURES, 8, 1), target=REGRESSION)
    start = column.initial()
    assert vector.loss(start, own, {}).equal(column.loss(start, own, {}))


def test_a_model_that_says_too_little_is_refused_by_name() -> None:
    own = graph(12)
    own = own.replace(y=torch.arange(12) % 3, num_classes=3)
    method = fgl.fedavg(gcn(2))
    with pytest.raises(ValueError, match="give 3 numbers an .* got 2 of .*largest label plus one"):
        method.loss(method.initial(), own, {})
    pairs = own.replace(edge_label_index=torch.stack([torch.arange(12), torch.arange(12).flip(0)]))
    with pytest.raises(ValueError, match="reads edge_label_index, since the graph's examples are"):
        fgl.fedavg(gcn(3)).loss(fgl.fedavg(gcn(3)).initial(), pairs, {})


def test_a_model_may_give_one_number_an_example_without_a_column() -> None:
    """One number an example, as PyG's models give after `squeeze`, has the loss of one column."""

    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = gcn(1)

        def forward(self, x: Any, adj: Any) -> Any:
            return self.net(x, adj)[:, 0]

    for own, target in ((numbers(12), REGRESSION), (yes_or_no(12, 1), ANSWERS)):
        own = own.replace(y=own.y.view(-1))
        flat, column = (fgl.fedavg(m.eval(), target=target) for m in (Flat(), gcn(1)))
        expected = column.loss(column.initial(), own, {})
        torch.testing.assert_close(flat.loss(flat.initial(), own, {}), expected)


def test_a_client_with_nothing_known_is_left_out_of_the_mean() -> None:
    model = gcn(3).eval()
    method = fgl.fedavg(model, target=ANSWERS)
    clients = [yes_or_no(n, seed=n) for n in (80, 30, 60)]
    clients[1] = clients[1].replace(y=torch.full((30, 3), NAN))
    outbox = Broadcast({"model": model.state_dict()}, 3)
    with pytest.warns(UserWarning, match=r"\[1\], have no local_auc, .* no known answer"):
        local = fgl.evaluate_on(method, clients, clients, target=ANSWERS)(outbox, {})
    score = tasks.node_scores(model, target=ANSWERS)
    each = [score(method.initial(), own) for own in clients]
    assert each[1] == {} and list(each[0]) == ["val_auc", "test_auc", "test_ap"]
    mean = (each[0]["test_auc"] + each[2]["test_auc"]) / 2
    assert list(local) == ["local_auc", "local_ap"] and local["local_auc"] == pytest.approx(mean)
    own_scores = tasks.evaluate_own(score, method, clients)(outbox, {})
    assert own_scores["test_auc"] == pytest.approx(mean) and own_scores["scored_clients"] == 2


# Collections of graphs.


def test_scores_of_graphs_are_of_each_client_and_pooled() -> None:
    torch.manual_seed(0)
    model = fgl.nn.GIN(5, 8, 2).eval()
    method = fgl.fedavg(model, target=ANSWERS)
    clients = [molecules(n, seed=n) for n in (20, 12, 9)]
    clients[2] = clients[2].replace(y=torch.full((9, 2), NAN))
    clients[0] = data.splits.random_split(clients[0])
    masks = [None, None, torch.arange(9) < 4]
    tests = [own.replace(test_mask=m) for own, m in zip(clients, masks, strict=True)]
    tests[0] = tests[0].replace(test_mask=clients[0].test_mask)
    sent = [{k: v + 0.1 * i for k, v in method.initial().items()} for i in range(3)]
    outbox = {i: {"model": params} for i, params in enumerate(sent)}
    with pytest.warns(UserWarning, match=r"2 of 3 clients, \[0, 2\], have no test_auc, test_ap"):
        score = tasks.evaluate_graphs(method, tests, clients, target=ANSWERS)
    got = score(outbox, {})

    said, true, each = [], [], []
    for params, own in zip(sent, tests, strict=True):
        out = torch.func.functional_call(model, params, own.inputs).detach()
        mask = torch.ones(len(out)).bool() if own.test_mask is None else own.test_mask
        said.append(out[mask])
        true.append(own.y[mask])  # type: ignore[index]
        each.append(metrics.mean_auc(said[-1], true[-1]))
    assert math.isnan(each[2])
    mean = [value for value in each if not math.isnan(value)]
    pooled = metrics.mean_auc(torch.cat(said), torch.cat(true))
    assert list(got) == ["val_auc", "test_auc", "test_ap", "pooled_test_auc", "pooled_test_ap"]
    assert got["test_auc"] == pytest.approx(sum(mean) / len(mean))
    assert got["pooled_test_auc"] == pytest.approx(pooled)
    own = clients[0]
    out = torch.func.functional_call(model, sent[0], own.inputs).detach()
    assert got["val_auc"] == pytest.approx(metrics.mean_auc(out, own.y, own.val_mask))  # type: ignore[arg-type]


def test_clients_whose_answers_define_no_metric_are_named_and_pooled() -> None:
    """Of one kind each: no client has an AUC, but all of them together do, as in scikit-learn."""
    whole = yes_or_no(60, seed=0)
    y = (torch.arange(60) % 2).float()
    half = [(y == kind).nonzero().squeeze(1) for kind in (0, 1)]
    whole = whole.replace(y=y)
    clients = [whole.subgraph(part) for part in half]
    train, net = fgl.Training(num_steps=1), gcn(1)
    task = tasks.node_task(None, clients, net, train, target=ANSWERS)
    with pytest.warns(UserWarning) as warned:
        result = fgl.run(task.fedavg, task, num_rounds=1)
    texts = [text for each in warned if "have no" in (text := str(each.message))]
    for text, lacks in zip(texts, ("val_auc:", "test_auc, test_ap:"), strict=True):
        assert f"2 of 2 clients, [0, 1], have no {lacks} client 0's" in text
        assert "known answers are all 0" in text
    found = result.history[-1].metrics
    assert set(found) == {"scored_clients", "pooled_test_auc", "pooled_test_ap"}
    used = result.outbox[0]["model"]
    out = [fgl.predict(net.eval(), used, own).squeeze(1)[own.test_mask] for own in clients]
    true = [own.y[own.test_mask] for own in clients]  # type: ignore[index]
    both = torch.cat(out).numpy(), torch.cat(true).numpy()
    assert found["pooled_test_auc"] == pytest.approx(roc_auc_score(both[1], both[0]))
    assert found["pooled_test_ap"] == pytest.approx(average_precision_score(both[1], both[0]))
    with pytest.warns(UserWarning, match=r"\[0, 1\], have no local_auc.*fgl.tasks.evaluate_pooled"):
        fgl.evaluate_on(task.fedavg, clients, clients, target=ANSWERS)
    score = tasks.evaluate_pooled(task.fedavg, clients, target=ANSWERS)
    assert score(result.outbox, {})["pooled_test_auc"] == found["pooled_test_auc"]
    one = whole.replace(test_mask=whole.test_mask & (y == 1))
    with pytest.warns(UserWarning, match="1 of 1 clients, .* are all 1"):
        score = fgl.evaluate_on(task.fedavg, one, clients, target=ANSWERS)
    assert list(score(result.outbox, {})) == ["val_auc", "val_loss"]
    mixed = tasks.node_task(None, [clients[0], whole], net, train, target=ANSWERS)
    with pytest.warns(UserWarning, match=r"1 of 2 clients, \[0\], have no (test|val)_auc"):
        found = mixed.evaluate(mixed.fedavg)(result.outbox, {})
    assert {"test_auc", "pooled_test_auc"} <= set(found) and not math.isnan(found["test_auc"])


def test_what_no_answers_define_is_named() -> None:
    y, everything = torch.tensor([1.0, 1.0, 1.0, NAN]), torch.ones(4, dtype=torch.bool)
    for target, answers, names in (
        (ANSWERS, y, ["auc", "ap"]),
        (ANSWERS, y * torch.tensor([0.0, 1, 1, 1]), []),
        (ANSWERS, y[:, None].expand(4, 2), ["auc", "ap"]),
        (ANSWERS, y * NAN, ["auc", "ap"]),
        (REGRESSION, y * NAN, ["rmse", "mae", "r2"]),
        (REGRESSION, y, []),
        (REGRESSION, torch.tensor([1.0, NAN, NAN, NAN]), ["r2"]),
        (REGRESSION, torch.arange(4.0), []),
        (fgl.targets.CLASSES, torch.zeros(4).long(), []),
        (Target(losses.absolute_error, {"own": lambda *given: NAN}), y, []),
    ):
        assert fgl.targets.undefined_metrics(target, answers, everything) == names


def test_nothing_known_anywhere_is_no_metric() -> None:
    clients = [molecules(6, seed=0).replace(y=torch.full((6, 2), NAN))]
    method = fgl.fedavg(fgl.nn.GIN(5, 8, 2), target=ANSWERS)
    with pytest.warns(
        UserWarning, match="6 examples have no known answer.* nor is there one of all"
    ):
        score = tasks.evaluate_graphs(method, clients, clients, target=ANSWERS)
    assert score({0: {"model": method.initial()}}, {}) == {}


# What needs classes says so.

CLASS = r"Expected graph.y to be class labels, int64 \[num_examples\], but got torch.float32 \[40\]"


def test_what_needs_classes_says_so() -> None:
    own = numbers(40, node_id=torch.arange(40))
    clients, net = [own], fgl.nn.VGAE(FEATURES, 8, 4, num_classes=3)
    ego = fgl.nn.EgoSAGE(FEATURES, 8, 3, fanouts=(2, 2))
    task = tasks.node_task(own, clients, gcn(1), fgl.Training(), target=REGRESSION)
    generator = fgl.nn.NeighbourGenerator(FEATURES, 8, 3, latent=4, widths=(5, 6))
    calls = [
        lambda: own.labels,
        lambda: fgl.transforms.attacks.flipped_labels(own),
        lambda: fgl.pseudo.quality_of(clients),
        lambda: data.splits.class_capped_split(own),
        lambda: data.partitions.major_label_partition(own, 2),
        lambda: tasks.ego_node_task(clients, own, ego, torch.optim.Adam),
        lambda: tasks.generator_task(clients, generator, fgl.Training()),
        lambda: tasks.mended(task),
        lambda: fgl.run(
            tasks.own_node_task(clients, net, fgl.Training()).fedavg, clients, num_rounds=1
        ),
        lambda: fgl.run(script("examples/fgssl.py").fgssl(task.fedavg), clients, num_rounds=1),
        lambda: fgl.run(script("examples/fedgl.py").fedgl(task.fedavg, 40), clients, num_rounds=1),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=CLASS):
            call()


def test_partitions_by_label_say_what_makes_labels_of_numbers() -> None:
    y = torch.rand(40)
    message = (
        "y to be an int64 tensor, but got torch.float32: fgl.data.partitions.quantile_labels makes"
    )
    for call in (
        lambda: data.partitions.dirichlet_partition(y, 3, alpha=1.0),
        lambda: data.partitions.gpfl_partition(y, 3, alpha=1.0),
        lambda: data.splits.stratified_folds(y, 3),
        lambda: data.splits.balanced_classes(y),
        lambda: data.splits.fold_clients(
            molecules(8, seed=0), [torch.arange(8)], fold=0, num_folds=2
        ),
    ):
        with pytest.raises(TypeError, match=message):
            call()


# Methods that need no classes.


def test_a_square_of_outputs_and_answers_is_named() -> None:
    """A column minus a vector is a square: its mean looked like a loss, and like a metric."""
    graph = fgl.data.splits.random_split(fgl.data.large_graph(40, 90, num_features=3))
    graph = graph.replace(y=graph.y.float(), num_classes=None)  # type: ignore[union-attr]

    def square(output: Any, y: Any, mask: Any) -> Any:
        error = (output - y).square()
        return (error if mask is None else error[mask]).mean()

    def right(output: Any, y: Any, mask: Any) -> Any:
        return square(output.squeeze(1), y, mask)

    def columns(output: Any, y: Any, mask: Any) -> Any:
        return square(output[:, 0], y, mask)

    def run(**how: Any) -> Any:
        target = fgl.targets.Target(**{"loss": right, "metrics": {"mse": right}, **how})
        net, train = fgl.nn.GCN(3, 4, 1), fgl.Training(num_steps=1)
        task = fgl.tasks.node_task(None, [graph], net, train, target=target)
        return fgl.run(task.fedavg, task, num_rounds=1)

    refuses(r"the target's loss .* output \[40, 1\] and y \[40\]", lambda: run(loss=square))
    refuses(r"the metric 'mse' .*output\.squeeze\(1\)", lambda: run(metrics={"mse": square}))
    for good in (right, columns):
        run(loss=good, metrics={"mse": good})
    generator = torch.get_rng_state()
    for legitimate in (Unhashable(right), ranks, noisy):
        fgl.targets.check_no_broadcast("it", legitimate, torch.zeros(3, 1), torch.zeros(3))
    assert torch.equal(generator, torch.get_rng_state())


@dataclass
class Unhashable:
    loss: Any

    def __call__(self, *args: Any) -> Any:
        return self.loss(*args)


def ranks(output: Any, y: Any, mask: Any) -> Any:
    return ((output - output.mT) * (y[:, None] - y)).mean()


def noisy(output: Any, y: Any, mask: Any) -> Any:
    return (output.reshape(-1) + torch.randn(len(y)) - y).square().mean()
