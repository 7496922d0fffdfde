"""Clients that join later, classes that appear later, and forgetting from the last clean state."""

import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from by_loops import apart, clients, mean, plain, sgd, supervised, train_nodes
from conformance import case
from federations import SGD, graphs, model, refuses, same, script

import fgl
from fgl.tasks import earlier, node_task

one_by_one = partial(fgl.run, clients_at_once=1)


def task_of(clients: Any = None) -> fgl.tasks.Task:
    return node_task(None, graphs() if clients is None else clients, model(dropout=0.0), SGD)


LATER: dict[str, Any] = {  # tasks whose batches or weights are their own
    "ego": fgl.tasks.EgoNodes(clients=3, hidden=4).load,
    "graphs": fgl.tasks.Graphs(clients=3, hidden=4).load,
    "generators": lambda seed: case("fedavg", "generators")[1],  # draws for a graph it knows
    "overlapping": lambda seed: case("fedavg", "overlapping")[1],  # weighed by nodes
}


@pytest.mark.parametrize("name", LATER)
def test_tasks_with_batches_of_their_own_have_clients_that_join_later(name: str) -> None:
    task = LATER[name](seed=0)
    first = one_by_one(task.fedavg, earlier(task, clients=[1]), num_rounds=1)
    assert first.history[0].zero_weight == [1]
    assert all(value == value for value in first.history[0].metrics.values())
    never = one_by_one(task.fedavg, task, dropouts=lambda _, k: k == 1, num_rounds=1)
    for name, value in never.outbox[0]["model"].items():
        torch.testing.assert_close(first.outbox[0]["model"][name], value)


def test_a_class_that_the_task_lacks_is_named() -> None:
    for label in (99, -1):
        with pytest.raises(ValueError, match=f"Expected classes .* but got {label}"):
            earlier(task_of(), classes=[0, label])


def test_classes_that_appear_later_do_not_train_before() -> None:
    task = task_of()
    before = earlier(task, classes=[1])
    for old, own in zip(task.clients, before.clients, strict=True):
        train: Any = own.train_mask
        assert not (own.y[train] == 1).any()  # type: ignore[index]
        assert train.equal(old.train_mask & (old.y != 1))  # type: ignore[operator]
        assert own.test_mask.equal(old.test_mask)  # type: ignore[union-attr,arg-type]
    wrong = [own.replace(y=torch.where(own.y == 1, 0, own.y)) for own in before.clients]  # type: ignore[arg-type]
    told = one_by_one(before.fedavg, before.clients, num_rounds=2)
    untold = one_by_one(before.fedavg, wrong, num_rounds=2)
    assert same(told.outbox[0], untold.outbox[0])  # no answer of the class was read


def test_a_run_in_which_a_client_joins_and_a_class_appears_is_a_loop(tmp_path: Any) -> None:
    """And it is a run with ``start=``; neither a batch nor an interruption changes it."""
    own = clients()
    method = plain()
    task = node_task(None, own, method.model, method.train)
    late = earlier(task, clients=[2], classes=[1], rounds=2)
    theta = method.initial()
    for index in range(4):
        seen = own
        if index < 2:
            kept = [g.replace(train_mask=g.train_mask & (g.y != 1)) for g in own[:2]]  # type: ignore[operator]
            seen = kept
        models = [sgd(lambda p, g=g: supervised(p, g), theta) for g in seen]  # type: ignore[misc]
        theta = mean(models, [float(len(train_nodes(g))) for g in seen])
    result = fgl.run(late.fedavg, late, num_rounds=4, clients_at_once="all")
    assert apart(result.outbox[0]["model"], theta) < 1e-10
    assert [record.zero_weight for record in result.history] == [[2], [2], [], []]
    whole = one_by_one(late.fedavg, late, num_rounds=4)
    first = one_by_one(task.fedavg, earlier(task, clients=[2], classes=[1]), num_rounds=2)
    assert same(whole.outbox[0], one_by_one(task.fedavg, task, num_rounds=2, start=first).outbox[0])
    for rounds in (1, 2, 3, 4):  # stopped before, at and after the join
        again = one_by_one(late.fedavg, late, num_rounds=rounds, checkpoint=tmp_path)
    assert same(again.outbox[0], whole.outbox[0])
    for other in (task, earlier(task, clients=[1], rounds=2), earlier(task, clients=[2], rounds=2)):
        with pytest.raises(ValueError, match="first rounds"):
            one_by_one(other.fedavg, other, num_rounds=5, checkpoint=tmp_path)


def test_all_data_at_one_client_leave_out_what_comes_later() -> None:
    task = fgl.tasks.Nodes(clients=3, hidden=4).load(seed=0)
    late: Any = task.clients[2]
    (own,) = fgl.tasks.centralized(earlier(task, clients=[2], classes=[1])).clients
    whole: Any = task.whole
    mine = torch.isin(torch.arange(whole.num_nodes), late.node_id)
    assert own.train_mask.equal(whole.train_mask & ~mine & (whole.y != 1))  # type: ignore[union-attr]
    unnamed = replace(task, clients=[each.replace(node_id=None) for each in task.clients])
    refuses("whole", lambda: fgl.tasks.centralized(earlier(unnamed, clients=[2])))


def test_a_study_and_a_command_have_clients_that_join_later(tmp_path: Any) -> None:
    def setting(seed: int, **local: Any) -> fgl.tasks.Task:
        task = fgl.tasks.Nodes(clients=3, hidden=4, local=fgl.tasks.Local(**local)).load(seed)
        return earlier(task, clients=[1], rounds=2)

    how: Any = {"seeds": [0], "workers": 0, "folder": tmp_path / "study", "num_rounds": 3}
    found = fgl.study({"FedAvg": lambda task: task.fedavg}, {"late": setting}, trials=1, **how)
    task = setting(0)
    result = fgl.run(task.fedavg, task, num_rounds=3)
    assert result.best().metrics["test_accuracy"] == found.scores("late", "FedAvg")[0]
    assert [record.zero_weight for record in result.history] == [[1], [1], []]
    flags = "--clients 3 --hidden 4 --rounds 3 --late-clients 1 --late-rounds 2"
    _, commanded = script("examples/baseline.py").main(f"fedavg louvain-nodes {flags}".split())
    assert same(commanded.outbox[0], result.outbox[0])


def test_a_flag_of_later_clients_is_named(capsys: Any) -> None:
    """`--clients` and `--rounds` are other flags."""
    main = script("examples/baseline.py").main
    for flags, name in [
        ("--late-clients 9 --late-rounds 1", "--late-clients: .* 9"),
        ("--late-clients 1 --late-rounds -2", "--late-rounds: .* -2"),
        ("--late-rounds 2", "--late-classes, but got neither"),
    ]:
        with pytest.raises(SystemExit):
            main(f"fedavg louvain-nodes --clients 3 --hidden 4 --rounds 3 {flags}".split())
        assert re.search(f"error: .*{name}", capsys.readouterr().err)


def test_forgetting_from_the_last_clean_state_is_never_having_known() -> None:
    """Nodes and edges of a client that joined later: as if never there, in its bits."""
    task, lost = task_of(), 2
    own = task.clients[lost]
    kept = own.subgraph(torch.arange(5, own.num_nodes))
    for clean in (kept, own.with_edges(torch.arange(10, own.num_edges))):
        cleaned = [clean if k == lost else each for k, each in enumerate(task.clients)]
        first = one_by_one(task.fedavg, earlier(task, clients=[lost]), num_rounds=2, seed=1)
        again = one_by_one(task.fedavg, task_of(cleaned), num_rounds=3, seed=1, start=first)
        other = one_by_one(
            task.fedavg, earlier(task_of(cleaned), clients=[lost]), num_rounds=2, seed=1
        )
        never = one_by_one(task.fedavg, task_of(cleaned), num_rounds=3, seed=1, start=other)
        assert same(again.outbox[0], never.outbox[0])
        known = one_by_one(task.fedavg, task, num_rounds=3, seed=1, start=first)
        assert not same(again.outbox[0], known.outbox[0])


def test_what_cannot_come_later_is_refused() -> None:
    task = task_of()
    links, nodes = (
        setting(clients=3, hidden=4).load(seed=0)  # their losses read all of a client
        for setting in (fgl.tasks.Links, fgl.tasks.OwnNodes)
    )
    whole = replace(task, whole=task.clients[0])
    late = earlier(whole, clients=[1], rounds=2)
    central = fgl.tasks.centralized(late)
    numbers = [own.replace(y=own.y.float(), num_classes=None) for own in graphs()]  # type: ignore[union-attr]
    for call, kind, said in [
        (lambda: earlier(task, clients=[4]), ValueError, "clients"),
        (lambda: earlier(task, clients=range(4)), ValueError, "leave an example"),
        (lambda: earlier(task, classes=[0, 1, 2]), ValueError, "leave an example"),
        (lambda: earlier(links, clients=[1]), ValueError, "train_mask alone"),
        (lambda: earlier(nodes, clients=[1]), ValueError, "train_mask alone"),
        (lambda: earlier(task, clients=[1], rounds=0), ValueError, "rounds"),
        (
            lambda: earlier(earlier(task, clients=[1], rounds=1), classes=[1], rounds=2),
            ValueError,
            "rounds",
        ),
        (lambda: fgl.run(central.fedavg, central, num_rounds=3), ValueError, "clients"),
        (lambda: fgl.run(late.fedavg, late, num_rounds=2), ValueError, "num_rounds to be above 2"),
        (lambda: earlier(replace(task, clients=numbers), classes=[0]), TypeError, "class labels"),
    ]:
        with pytest.raises(kind, match=said):
            call()
