"""FedSage+: the generator, its loss, the relay of gradients, mended graphs."""

import importlib
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from conformance import case
from federations import CLASSES, FEATURES, close, graph, graphs, refuses, same
from test_as_published import published_greedy
from torch.func import functional_call
from torch.nn.functional import cross_entropy, smooth_l1_loss

import fgl
from fgl import data, losses, tasks
from fgl.federation import fold_in
from fgl.graph.neighbours import neighbour_features, neighbour_table
from fgl.methods import fedsage_plus, random_neighbours
from fgl.tasks.mended import _hide, mend

LR = 0.1
SGD = fgl.Training(partial(torch.optim.SGD, lr=LR), num_steps=1)


def generator(dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    sizes: dict[str, Any] = {"latent": 7, "widths": (9, 11), **options}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return fgl.nn.NeighbourGenerator(FEATURES, 8, CLASSES, **sizes).to(dtype)


def double(own: fgl.Graph) -> fgl.Graph:
    return own.replace(x=own.x.double())  # type: ignore[union-attr]


def task_of(**options: Any) -> tasks.Task:
    return tasks.generator_task([double(own) for own in graphs()], generator(), SGD, **options)


# Tables of neighbours, and hidden nodes


@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_table_of_neighbours_is_that_of_loops(width: int) -> None:
    own = graph(20)
    table, number = neighbour_table(own.edge_index, 20, width)
    features = neighbour_features(own, table, number)
    for node in range(20):
        want = [u for u, v in own.edge_index.t().tolist() if v == node][:width]
        assert table[node, : number[node]].tolist() == want
        assert int(number[node]) == len(want)
        for place in range(width):
            there = own.x[want[place]] if place < len(want) else torch.zeros(FEATURES)
            assert features[node, place].equal(there)
    none = torch.zeros(2, 0, dtype=torch.int64)
    assert neighbour_table(none, 3, width)[1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("sparse", [True, False])
def test_hidden_nodes_are_those_of_loops(sparse: bool) -> None:
    own = graph(20)
    dense: Any = own.x
    given = own.replace(x=fgl.SparseMatrix.from_dense(dense)) if sparse else own
    hidden = [3, 11, 17]
    made = data.hidden_nodes.hide_nodes(given, torch.tensor(hidden), width=2)
    kept = [v for v in range(20) if v not in hidden]
    assert made.graph.node_id is not None
    assert made.graph.node_id.tolist() == kept
    for row, node in enumerate(kept):
        want = [u for u, v in own.edge_index.t().tolist() if v == node and u in hidden]
        assert int(made.missing[row]) == len(want)
        rows = [dense[u] for u in want[:2]] + [torch.zeros(FEATURES)] * (2 - len(want[:2]))
        assert made.features[row].equal(torch.stack(rows))
    nothing = data.hidden_nodes.hide_nodes(own, torch.zeros(0, dtype=torch.int64))
    assert nothing.graph.num_edges == own.num_edges
    assert not nothing.missing.any()
    refuses("nodes", lambda: data.hidden_nodes.hide_nodes(own, torch.tensor([20])))


# The greedy loss


def drawn(n: int = 7, p: int = 4, q: int = 3, d: int = 2, seed: int = 0) -> Any:
    g = torch.Generator().manual_seed(seed)
    made = torch.randn(n, p, d, generator=g, dtype=torch.float64)
    hidden = torch.randn(n, q, d, generator=g, dtype=torch.float64)
    count = 6 * torch.rand(n, generator=g, dtype=torch.float64)
    number = torch.randint(5, (n,), generator=g)  # 0 and more than there are places too
    mask = torch.rand(n, generator=g) < 0.7
    return made, count, hidden, number, mask


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("p", "q"), [(4, 3), (1, 5), (5, 1)])
def test_greedy_loss_is_that_of_loops(seed: int, p: int, q: int) -> None:
    made, count, hidden, number, mask = drawn(p=p, q=q, seed=seed)
    got = losses.nearest_features(made, count, hidden, number, mask=mask)
    want = published_greedy(made[mask], hidden[mask], count[mask], number[mask])
    close(got, want, atol=1e-12)
    whole = losses.nearest_features(made, count, hidden, number)
    close(whole, published_greedy(made, hidden, count, number), atol=1e-12)


@pytest.mark.parametrize("place", range(4))
def test_greedy_loss_refuses(place: int) -> None:
    given = list(drawn()[:4])
    given[place] = given[place][:3] if place else given[0][0]
    with pytest.raises(ValueError, match="Expected (made|hidden|count|hidden_count) to have shape"):
        losses.nearest_features(*given)


# The generator


def test_the_generators_loss_is_its_formula() -> None:
    task = task_of(weights=(0.7, 0.3, 2.0))
    own, net = task.clients[2], task.fedavg.model
    _, context = next(iter(task.fedavg.train.batches(own, {})))  # type: ignore[misc]
    values = {name: context[name].values for name in ("missing", "hidden", "noise", "keep")}
    known = _hide(
        double(graphs()[2]), 0.5, 5, fold_in(0, 2, "hide")
    )  # the same seed hides the same
    assert values["missing"].equal(known.missing)
    assert values["hidden"].equal(known.features)
    assert known.missing.any()
    params = {name: p.detach() for name, p in net.named_parameters()}
    count, made, logits = functional_call(
        net, params, (own.x, own.adj, values["noise"], values["keep"])
    )
    rows = own.train_mask
    assert rows is not None
    missing, hidden = values["missing"][rows], values["hidden"][rows]
    terms = [
        0.7 * smooth_l1_loss(count[rows], missing.double()),
        0.3 * losses.nearest_features(made[rows], count[rows], hidden, missing),
        2.0 * cross_entropy(logits[rows], own.y[rows]),  # type: ignore[index]
    ]
    assert all(terms)
    close(task.fedavg.loss(params, own, context), sum(terms))


def test_noise_and_dropout_are_what_is_given() -> None:
    net, own = generator(), double(graph(20))
    torch.manual_seed(0)
    one, two = net.draw(20), net.draw(20)
    assert sorted(one) == ["keep", "noise"]
    assert set(one["keep"].unique().tolist()) == {0.0, 2.0}
    made = [net(own.x, own.adj, **each)[1] for each in (one, one, two)]
    assert made[0].equal(made[1])
    assert not made[0].equal(made[2])
    assert made[0].abs().max() <= 1
    assert set(generator(dropout=1.0).draw(3)["keep"].flatten().tolist()) == {0.0}


def test_generator_task_refuses() -> None:
    refuses("share", lambda: task_of(share=1.5))
    refuses("weight b", lambda: task_of(weights=(1.0, -1.0, 1.0)))
    with pytest.raises(ValueError, match="val_mask"):
        tasks.generator_task([double(graph(20, val_mask=None))], generator(), SGD)
    task = task_of()
    with pytest.raises(ValueError, match="a client of this task"):
        next(iter(task.fedavg.train.batches(graph(20), {})))  # type: ignore[misc]

    with pytest.raises(ValueError, match="fedavg to be that of generator_task, .* without steps"):
        fgl.methods.fedsage_plus(fgl.fedavg(generator()))


# The relay


@pytest.mark.few
@pytest.mark.parametrize("cut", [lambda t: t[1:], lambda t: t[:, :2], lambda t: t.float()])
@pytest.mark.parametrize("key", ["made", "gradients"])
def test_what_does_not_fit_is_refused(key: str, cut: Any) -> None:
    """It costs its client the round, and no other client its training."""
    task = task_of()
    method, bad = fedsage_plus(task.fedavg), task.clients[1]

    def send(params: Any, context: Any, state: Any, own: fgl.Graph) -> Any:
        message, kept = method.send(params, context, state, own)
        if own is bad and key in message:
            each: Any = message[key]
            changed = {k: cut(v) for k, v in each.items()} if key == "gradients" else cut(each)
            message = {**message, key: changed}
        return message, kept

    with pytest.warns(UserWarning, match=f"Expected {key}.* of shape"):
        result = fgl.run(replace(method, send=send), task.clients, num_rounds=3)
    assert [list(r.dropped) for r in result.history][key == "gradients"] == [1]
    assert not same(result.client_states[0]["model"], method.initial())


def test_random_neighbours_are_neighbours() -> None:
    """With repeats, of nodes that have one."""
    own = graph(20)
    torch.manual_seed(0)
    features, number = random_neighbours(own, 200, 3)
    dense: Any = own.x
    rows = {tuple(dense[v].tolist()): v for v in range(20)}
    sets = [{u for u, w in own.edge_index.t().tolist() if w == v} for v in range(20)]
    found = [{rows[tuple(row.tolist())] for row in each} for each in features]
    assert number.tolist() == [3] * 200
    assert all(any(each <= near for near in sets) for each in found)
    assert {len(each) for each in found} == {1, 2, 3}
    assert set().union(*found) == set().union(*sets)
    other, _ = random_neighbours(own, 200, 3)
    assert not other.equal(features)
    alone = own.replace(edge_index=own.edge_index[:, :0])
    features, number = random_neighbours(alone, 4, 3)
    assert not features.any() and not number.any()


# Mended graphs


def test_a_mended_graph_has_what_the_generator_says() -> None:
    net, own = generator(), double(graph(20))
    params = dict(net.state_dict())
    params["count.bias"] = params["count.bias"] + 1
    made = mend(net, params, own, seed=3)
    new = made.num_nodes - 20
    assert new > 0
    for name in ("train_mask", "val_mask", "test_mask"):
        assert not getattr(made, name)[20:].any()
        assert getattr(made, name)[:20].equal(getattr(own, name))
    assert made.x[:20].equal(own.x)  # type: ignore[index, arg-type]
    with torch.no_grad():
        count, _, _ = functional_call(net, params, own.inputs)
    expected = count.floor().clamp(max=5).long()
    edges = made.edge_index[:, own.num_edges :]
    assert edges.shape[1] == 2 * new
    into = edges[:, edges[0] >= 20]
    assert into[1].bincount(minlength=20).equal(expected)
    assert edges[:, edges[0] < 20].equal(into.flip(0))
    assert into[0].unique().numel() == new  # one node each
    again = mend(net, params, own, seed=3)
    assert again.x.equal(made.x)  # type: ignore[arg-type, union-attr]
    other = mend(net, params, own, seed=4)
    assert not other.x.equal(made.x)  # type: ignore[arg-type, union-attr]


SMALL = {"gen_hidden": 4, "gen_latent": 4, "gen_wide": 6, "gen_epochs": 1, "gen_local_epochs": 2}


def small_task() -> tasks.Task:
    """Three clients of one small graph, which train a GraphSAGE."""
    whole = data.splits.split(data.csbm(num_nodes=150, num_features=20, words_per_set=9), "random")
    clients = data.partitions.partition_graph(whole, data.partitions.random_partition(whole, 3))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = fgl.nn.SAGE(20, 8, whole.num_classes or 0, dropout=0.0)
    return tasks.node_task(whole, clients, model, fgl.Training(num_steps=2))


UNTRAINED = {**SMALL, "gen_epochs": 0, "gen_local_epochs": 0, "gen_rounded": True}
# about one neighbour each


def test_generated_nodes_make_no_local_steps() -> None:
    """Of EgoNodes, where a round has a fifth of a client's nodes."""
    setting = tasks.EgoNodes(clients=2, hidden=4, batch_size=16)
    task = setting.load(seed=0)
    made = tasks.mended(task, 0, **UNTRAINED)
    for own, old in zip(made.clients, task.clients, strict=True):
        assert own.num_nodes > old.num_nodes
        steps = [list(method.train.batches(graph, {})) for method, graph in  # type: ignore[misc]
                 ((made.fedavg, own), (task.fedavg, old))]  # fmt: skip
        sizes = [[len(context["labels"].values) for _, context in each] for each in steps]
        assert sizes[0] == sizes[1]


def test_a_warning_says_that_nothing_was_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["fgl.tasks.mended"], "mend", lambda *given, **_: given[2])
    task = small_task()
    with pytest.warns(UserWarning, match="Expected generators to generate a neighbour"):
        made = tasks.mended(task, 0, **UNTRAINED)
    assert made.new_nodes == 0
    assert task.new_nodes is None


def test_a_number_of_missing_neighbours_that_no_node_can_have_is_refused() -> None:
    check_offer = importlib.import_module("fgl.methods.fedsage_plus").check_offer
    net = fgl.nn.NeighbourGenerator(6, 8, 3)
    rows = {"made": torch.zeros(4, 5, 6), "count": torch.zeros(4)}
    sound = {**rows, "missing": torch.tensor([0, 1, 2, 9])}
    check_offer(net, sound, 4)
    for number in (-1, 2**62):
        with pytest.raises(ValueError, match="missing to be in"):
            lie = {**rows, "missing": torch.tensor([0, number, 2, 9])}
            check_offer(net, lie, 4)


def test_a_step_has_the_draws_of_the_clients_offer_or_new_ones() -> None:
    of_fedsage = importlib.import_module("fgl.methods.fedsage_plus")
    method, task = case("fedsage plus", "generators")
    message: Any = {"model": method.initial(), "stage": torch.tensor(of_fedsage.STEP)}
    _, context = method.receive(message, {}, task.clients[0])
    assert set(of_fedsage.DRAWN) <= set(context)
    kept = of_fedsage.kept_draws({"drawn": {name: torch.ones(2) for name in of_fedsage.DRAWN}})
    assert set(kept) == set(of_fedsage.DRAWN)
