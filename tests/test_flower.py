"""The Flower executor: the bits of the loop, and what happens when nodes fail."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from conformance import case
from federations import SGD, end, fedavg, graphs, model, refuses, same
from test_transforms_privacy import BESIDE, sized

import fgl
from fgl.metrics import hit_rows

pytest.importorskip("flwr")

from flower_grid import RECIPES, Grid, apps, kept, spoiled
from flwr.app import Error

from fgl.federation import Flower, client_app

in_process = partial(fgl.run, clients_at_once=1)  # as a node trains
QUICK: dict[str, Any] = {"poll": 0.001, "timeout": 20.0}
KEEPING = replace(SGD, keep_optimizer=True)  # each client's momentum is its state


def flower(grid: Grid, **options: Any) -> Flower:
    return Flower(grid, **{"num_clients": len(grid.apps), **QUICK, **options})


def stateful() -> tuple[fgl.Method, list[fgl.Graph]]:
    return fedavg(model(), KEEPING), graphs()


def check_equal(result: fgl.Result, here: fgl.Result, root: Any, *, history: bool = True) -> None:
    """Bit for bit: messages, the server's state, what the clients keep, and the history."""
    there, wanted = end(result), end(here)
    for part in ("outbox", "server", *(["history"] if history else [])):
        assert same(there[part], wanted[part]), part
    states = {client: state for client, state in wanted["clients"].items() if state}
    assert same(kept(root, result.client_states), states)


@pytest.mark.few
@pytest.mark.parametrize(
    ("name", "task"), [("fedavg", "nodes"), ("fedper apart", "clients that differ"), *RECIPES]
)
def test_the_bits_are_those_of_the_loop(name: str, task: str, tmp_path: Any) -> None:
    method, setting = case(name, task)
    how: Any = {"num_rounds": 3 * method.rules.exchange, "seed": 5}
    here = in_process(method, setting.clients, **how)
    grid = Grid(apps(method, setting.clients), state=str(tmp_path))
    check_equal(fgl.run(method, flower(grid), **how), here, tmp_path)


@pytest.mark.parametrize("per_tensor", [False, True])
def test_without_a_folder_the_node_keeps_the_state(per_tensor: bool) -> None:
    method, clients = stateful()
    grid, how = Grid(apps(method, clients)), {"num_rounds": 3, "participation": 0.5}
    result = fgl.run(method, flower(grid, per_tensor=per_tensor), **how)
    here = in_process(method, clients, **how)
    assert same(end(result)["outbox"], end(here)["outbox"])
    assert all(len(context.state) <= 3 for context in grid.contexts.values())


def nan(message: Any) -> None:
    message["model"]["convs.0.bias"][0] = torch.nan


def without_a_key(message: Any) -> None:
    del message["num_examples"]


def without_a_parameter(message: Any) -> None:
    del message["model"]["convs.0.bias"]


def other_shape(message: Any) -> None:
    message["model"]["convs.0.bias"] = torch.zeros(1)


def other_round(reply: Any) -> Any:
    reply.content["note"]["round"] = "7"
    return reply


def other_node(reply: Any) -> Any:
    reply.metadata.__dict__["_src_node_id"] = 103
    return reply


def garbage(reply: Any) -> Any:
    reply.content["message"]["packed"].data = b"garbage"
    return reply


FAULTS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda reply: spoiled(reply, nan), "model/convs.0.bias is not finite"),
    (lambda reply: spoiled(reply, without_a_key), "missing ['num_examples']"),
    (lambda reply: spoiled(reply, without_a_parameter), "missing ['model/convs.0.bias']"),
    (lambda reply: spoiled(reply, other_shape), "to have shape [8], but got [1]"),
    (garbage, "to be a packed message, but got 7 bytes"),
    (other_round, "to be of round 1, but got 7"),
    (other_node, "answered by another node, 103"),
    (lambda reply: Error(2, "ValueError:<'no'>"), "Flower's error 2: ValueError:<'no'>"),
    (lambda reply: Error(6, ""), "Flower's error 6"),
    (lambda reply: None, "no answer in 1 s"),
]


@pytest.mark.few
@pytest.mark.filterwarnings("ignore:Round 1, client 2")
@pytest.mark.parametrize(("fault", "why"), FAULTS)
def test_a_bad_answer_costs_one_round(fault: Callable[[Any], Any], why: str, tmp_path: Any) -> None:
    method, clients = stateful()
    grid = Grid(
        apps(method, clients),
        lambda kind, node, times, reply: fault(reply) if (node, times) == (102, 2) else reply,
        state=str(tmp_path),
    )
    timeout = 1.0 if "no answer" in why else 20.0
    result = fgl.run(method, flower(grid, timeout=timeout), num_rounds=4)
    dropped = [record.dropped for record in result.history]
    assert why in dropped[1].pop(2)
    assert dropped == [{}] * 4
    here = in_process(method, clients, num_rounds=4, dropouts=lambda r, k: (r, k) == (1, 2))
    check_equal(result, here, tmp_path, history=False)


@pytest.mark.parametrize("code", [3, 4, 5, 8])
def test_a_lost_answer_is_asked_for_again(code: int, tmp_path: Any) -> None:
    method, clients = stateful()

    def lose(kind: str, node: int, times: int, reply: Any) -> Any:
        return Error(code, "lost") if node == 101 and times in (2, 3) else reply

    grid = Grid(apps(method, clients), lose, state=str(tmp_path))
    result = fgl.run(method, flower(grid), num_rounds=3)
    assert grid.asked.count(("train", 101)) == 5
    check_equal(result, in_process(method, clients, num_rounds=3), tmp_path)


def test_an_app_that_raises_says_why(tmp_path: Any) -> None:
    method, clients = stateful()

    def made(fails: bool) -> fgl.Method:
        def loss(params: Any, graph: Any, context: Any) -> Any:
            if fails:
                raise RuntimeError("no memory")
            return method.loss(params, graph, context)

        return replace(method, loss=loss)

    why = {True: "loss at clinic 103: RuntimeError: Round {}, client 3, loss: no memory"}
    why[False] = "loss at clinic 103: RuntimeError (its log has the words)"
    for full in (True, False):
        how: Any = {"full_errors": full}
        made_apps = [*apps(made(False), clients)[:3], apps(made(True), clients, **how)[3]]
        grid = Grid(made_apps, state=tmp_path)
        result = fgl.run(made(False), flower(grid), num_rounds=3)
        for record in result.history:
            assert record.dropped == {3: why[full].format(record.round)}
    here = in_process(method, clients, num_rounds=3, dropouts=lambda r, k: k == 3)
    check_equal(result, here, tmp_path, history=False)


def leave_and_return(grid: Grid, node: int, back: Callable[[], None]) -> Any:
    """A callback: a node is gone after the first round, and back after the second."""

    def tell(record: Any, result: Any) -> None:
        if record.round == 0:
            grid.gone.add(node)
        if record.round == 1:
            back()

    return tell


def test_a_round_does_not_wait_for_a_node_that_is_gone(tmp_path: Any) -> None:
    method, clients = stateful()
    grid = Grid(apps(method, clients), state=str(tmp_path))
    tell = leave_and_return(grid, 102, grid.gone.clear)
    start = time.monotonic()
    result = fgl.run(method, flower(grid, timeout=60.0), num_rounds=4, callbacks=[tell])
    assert time.monotonic() - start < 50
    gone = {2: "its node is not there"}
    assert [record.dropped for record in result.history] == [{}, gone, {}, {}]
    here = in_process(method, clients, num_rounds=4, dropouts=lambda r, k: (r, k) == (1, 2))
    check_equal(result, here, tmp_path, history=False)


@pytest.mark.parametrize("folder", [True, False])
def test_a_client_comes_back_as_another_node(folder: bool, tmp_path: Any) -> None:
    method, clients = stateful()
    grid = Grid(apps(method, clients), **({"state": str(tmp_path)} if folder else {}))
    tell = leave_and_return(grid, 102, lambda: grid.add(900, like=102))
    how = flower(grid, num_clients=4)
    result = fgl.run(method, how, num_rounds=4, callbacks=[tell])
    dropped = [record.dropped for record in result.history]
    assert dropped[1] == {2: "its node is not there"}
    if folder:
        assert dropped[2:] == [{}, {}]
        here = in_process(method, clients, num_rounds=4, dropouts=lambda r, k: (r, k) == (1, 2))
        check_equal(result, here, tmp_path, history=False)
    else:
        assert "to have kept its state of round 0, but got none" in dropped[2][2]
        assert "to have kept its state of round 0, but got none" in dropped[3][2]


def test_a_number_has_one_node(tmp_path: Any) -> None:
    method, clients = stateful()
    grid = Grid(apps(method, clients), state=str(tmp_path))
    grid.add(900, like=101)
    with pytest.warns(UserWarning, match="Nodes 101 and 900 both say that they are client 1"):
        result = fgl.run(method, flower(grid, num_clients=4), num_rounds=2)
    check_equal(result, in_process(method, clients, num_rounds=2), tmp_path)
    assert ("train", 900) not in grid.asked


def test_a_number_out_of_range_is_refused(tmp_path: Any) -> None:
    method, clients = stateful()
    grid = Grid(apps(method, clients), state=str(tmp_path))
    with pytest.warns(UserWarning, match="client to be from 0 to 2, but got 3"):
        result = fgl.run(method, flower(grid, num_clients=3), num_rounds=1)
    assert not result.history[0].dropped


def test_names_say_who_is_who(tmp_path: Any) -> None:
    method, clients = stateful()
    grid = Grid(apps(method, clients), state=str(tmp_path))
    key = b"102".hex()
    names = ["clinic 100", "clinic 101", key, "clinic 777"]
    with pytest.warns(UserWarning, match="Expected client 3 to be the node clinic 777"):
        result = fgl.run(method, flower(grid, names=names, timeout=0.5), num_rounds=1)
    assert list(result.history[0].dropped) == [3]
    assert "to be the node clinic 777" in result.history[0].dropped[3]


@pytest.mark.parametrize(("other", "config", "what"), [
    (fedavg(model(dropout=0.5)), {"weight": 1}, "config"),
    (fedavg(model(fgl.nn.GAT)), {}, "model"),
    (fedavg(model(), replace(SGD, num_steps=3)), {}, "num_steps"),
])  # fmt: skip
def test_a_node_that_differs_is_refused_by_name(other: Any, config: Any, what: str) -> None:
    method, clients = fedavg(model()), graphs()
    made = apps(method, clients)
    made[1] = client_app(lambda context: (other, clients[1], 1, config))
    grid = Grid(made)
    with pytest.warns(UserWarning, match=f"Expected client 1 to have the server's {what}"):
        result = fgl.run(method, flower(grid, timeout=0.5), num_rounds=2)
    for record in result.history:
        assert list(record.dropped) == [1]
        assert f"the server's {what}" in record.dropped[1]


@pytest.mark.filterwarnings("ignore:.*clinic 10. is refused")
def test_other_threads_and_versions_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    method, clients = fedavg(model()), graphs()
    machines: list[dict[str, Any]] = [{}, {"threads": lambda: 77}, {"torch": "77"}, {"fgl": "77"}]
    places = {
        "threads": (torch, "get_num_threads"),
        "torch": (torch, "__version__"),
        "fgl": (fgl, "__version__"),
    }
    ours = {what: getattr(*place) for what, place in places.items()}

    def app(client: int) -> Any:
        def build(context: Any) -> Any:  # every client is on a machine of its own
            for what, place in places.items():
                monkeypatch.setattr(*place, {**ours, **machines[client]}[what])
            return method, clients[client], client

        return client_app(build)

    grid = Grid([app(client) for client in (1, 2, 3, 0)])
    result = fgl.run(method, flower(grid, timeout=2.0), num_rounds=1)
    dropped = result.history[0].dropped
    assert list(dropped) == [1, 2, 3]
    values = {**ours, "threads": ours["threads"]()}
    for client, what in enumerate(("threads", "torch", "fgl"), 1):
        assert f"the server's {what}, {values[what]}, but got 77" in dropped[client]


NOTE = {"run", "seed", "round", "client", "base", "names", "keeps", "losses", "num_examples"}


@pytest.mark.few
@pytest.mark.parametrize("name", BESIDE)
def test_every_field_of_an_answer_with_noise_is_known_before(name: str) -> None:
    """Beside the message: what a client says is what any other client would say."""
    (wrap, silent), (made, clients) = BESIDE[name], sized()
    method, replies = wrap(made.fedavg), []

    def heard(kind: str, node: int, times: int, reply: Any) -> Any:
        replies.append(reply)
        return reply

    grid = Grid(apps(method, clients), fault=heard)
    fgl.run(method, flower(grid), num_rounds=method.rules.exchange, callbacks=[lambda *_: True])
    for client, reply in enumerate(replies):
        assert set(reply.content) == {"note", "message"}
        note = dict(reply.content.config_records["note"])
        assert set(note) == NOTE
        assert (note["round"], note["client"], note["base"]) == ("0", str(client), "-1")
        number = 1 if silent else clients[client].num_train
        assert note["num_examples"] == str(number)
        assert len(note["losses"]) == (0 if silent else made.fedavg.train.num_steps)
    for name in ("run", "seed", "names", "keeps"):
        assert len({reply.content.config_records["note"][name] for reply in replies}) == 1
    assert len(replies) == len(clients)


def rate(method: fgl.Method) -> Any:
    """Right answers on the training nodes, and how many there are."""

    @torch.no_grad()
    def score(params: Any, graph: fgl.Graph) -> Any:
        hit = hit_rows(torch.func.functional_call(method.model, params, graph.inputs), graph.y)
        return {"rate": (int(hit.sum()), graph.num_nodes), "nodes": float(graph.num_nodes)}

    return score


@pytest.mark.filterwarnings("ignore:Round 0, client 1, score")
def test_a_score_that_fails_is_left_out(tmp_path: Any) -> None:
    method, clients = stateful()

    def spoil(kind: str, node: int, times: int, reply: Any) -> Any:
        if kind == "evaluate" and node == 101:
            reply.content["note"]["metrics"] = '{"rate": "high"}'
        return reply

    grid = Grid(apps(method, clients, score=rate), spoil, state=str(tmp_path))
    result = fgl.run(method, flower(grid), num_rounds=1)
    assert result.history[0].metrics["nodes"] == 20.0  # the mean of 12, 31 and 17


def test_what_a_run_elsewhere_does_not_take() -> None:
    method, clients = stateful()
    on = flower(Grid(apps(method, clients)))
    with pytest.raises(ValueError, match="score to be left out beside a place"):
        fgl.run(method, on, num_rounds=1, score=lambda params, graph: {})
    with pytest.raises(ValueError, match="clients_at_once and score to be left out"):
        fgl.run(method, on, num_rounds=1, clients_at_once="all")
    refuses("clients to be graphs, a task or a place", lambda: fgl.run(method, num_rounds=1))
    for options, why in [
        ({"num_clients": 0}, "num_clients to be an integer >= 1, but got 0"),
        ({"num_clients": "4"}, "num_clients to be an integer >= 1, but got '4'"),
        ({"timeout": 0.0}, "timeout to be a number > 0, but got 0.0"),
        ({"timeout": "600"}, "timeout to be a number > 0, but got '600'"),
        ({"names": ["one"]}, "names to be 4, one per client, but got 1"),
    ]:
        with pytest.raises((TypeError, ValueError), match=why):
            flower(on.grid, **options)


def test_a_number_in_quotes_is_refused_by_name() -> None:
    """Not later, as a message for client 1 that came to client 1."""
    method, clients = stateful()
    made = apps(method, clients)
    made[1] = client_app(lambda context: (method, clients[1], "1"))
    with pytest.warns(UserWarning, match="Expected client to be an integer >= 0, but got '1'"):
        fgl.run(method, flower(Grid(made), timeout=0.2), num_rounds=1)


def test_without_flwr_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(fgl.federation.executors.remote, "flower")
    monkeypatch.setitem(sys.modules, "fgl.federation.executors.remote.flower", None)
    with pytest.raises(ImportError, match=r"pip install -e '.\[flower\]'"):
        fgl.federation.__getattr__("Flower")
