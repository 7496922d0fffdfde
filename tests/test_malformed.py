"""Bad input gets a clear error that names where it happened, and nothing is lost."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import federations
import pytest
import torch
from conformance import case
from federations import Elsewhere, by_hand, end, fedavg, fedopt, graphs, model, refuses, ruled, same

import fgl
from fgl import Method
from fgl.federation import Broadcast, Inbox, Limits, average, send_model
from fgl.federation.method.compose import unsealed

WEIGHT = "convs.0.lin.weight"


# Arguments of a run.

SHARE = "a number > 0 and <= 1"
BAD_ARGUMENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"clients": []}, ValueError, "clients to be at least one graph, but got none"),
    (
        {"clients": [federations.graph(), {"x": 1}]},
        TypeError,
        "client 1 to be a Graph, but got dict",
    ),
    ({"clients": [None]}, TypeError, "client 0 to be a Graph, but got NoneType"),
    ({"num_rounds": -1}, ValueError, "num_rounds to be an integer >= 0, but got -1"),
    ({"num_rounds": 1.5}, TypeError, "num_rounds to be an integer >= 0, but got 1.5"),
    ({"num_rounds": "3"}, TypeError, "num_rounds to be an integer >= 0, but got '3'"),
    ({"seed": "3"}, TypeError, "seed to be an integer, but got '3'"),
    ({"clients": dict(enumerate(graphs()))}, TypeError, "a task or a place, but got a dict"),
    ({"clients": graphs()[0]}, TypeError, "a task or a place, but got a Graph"),
    ({"participation": 0.0}, ValueError, f"participation to be {SHARE}, but got 0.0"),
    ({"participation": -0.5}, ValueError, f"participation to be {SHARE}, but got -0.5"),
    ({"participation": 1.01}, ValueError, f"participation to be {SHARE}, but got 1.01"),
    ({"participation": float("nan")}, ValueError, f"participation to be {SHARE}, .* nan"),
    ({"dropouts": -0.1}, ValueError, "dropouts to be a number >= 0 and <= 1, but got -0.1"),
    ({"dropouts": 1.1}, ValueError, "dropouts to be a number >= 0 and <= 1, but got 1.1"),
    ({"dropouts": float("nan")}, ValueError, "dropouts to be a number >= 0 and <= 1, .* nan"),
    ({"config": {"lr": torch.ones(1)}}, TypeError, "config to hold JSON's types only, but got"),
    ({"limits": 3}, TypeError, r"limits to be .*Limits.*, but got 3"),
]


@pytest.mark.parametrize(("options", "kind", "text"), BAD_ARGUMENTS)
def test_refuses(options: dict[str, Any], kind: type[Exception], text: str, tmp_path: Path) -> None:
    arguments = {"clients": graphs(), "num_rounds": 1, "checkpoint": tmp_path / "c", **options}
    refuses(text, lambda: fgl.run(fedavg(model()), **arguments), kind)
    assert not (tmp_path / "c").exists()


# Messages.

Change = Callable[[dict[str, Any]], dict[str, Any]]


def weights(**changes: Any) -> Change:
    """A change of the model within a message."""

    def change(message: dict[str, Any]) -> dict[str, Any]:
        params = {**message["model"], **changes}
        return {**message, "model": {k: v for k, v in params.items() if v is not None}}

    return change


def biased(value: Any) -> Change:
    return weights(**{"convs.1.bias": value})


def more(**entries: Any) -> Change:
    """A message with further entries, or others."""
    return lambda message: {**message, **entries}


class Own(torch.Tensor):
    """A tensor that could mean anything by an addition."""


BIAS = r"\['model'\]\['convs.1.bias'\]"
BAD_MODELS: dict[str, tuple[Change, type[Exception], str]] = {
    "extra key": (weights(head=torch.zeros(1)), ValueError, r"\['model'\] .*extra \['head'\]"),
    "one number": (biased(torch.zeros(1)), ValueError, rf"{BIAS} .*\[3\], but got \[1\]"),
    "no dimension": (biased(torch.tensor(0.0)), ValueError, rf"{BIAS} .*\[3\], but got \[\]"),
    "transposed": (weights(**{WEIGHT: torch.zeros(6, 8)}), ValueError, rf"{WEIGHT}.* got \[6, 8\]"),
    "double": (biased(torch.zeros(3).double()), TypeError, rf"{BIAS} .* but got torch.float64"),
    "integers": (biased(torch.zeros(3).long()), TypeError, rf"{BIAS} .* but got torch.int64"),
    "no tensor": (biased([0.0, 0.0, 0.0]), TypeError, rf"{BIAS} to be a tensor, but got list"),
    "two deep": (biased({"a": torch.zeros(3)}), TypeError, rf"{BIAS} to be a tensor, but got dict"),
    "a tensor": (more(model=torch.zeros(3)), TypeError, r"\['model'\] to be a dict.* got a Tensor"),
    "a number": (more(rate=0.5), TypeError, r"\['rate'\] to be a tensor, but got float"),
    "a key that is no name": (lambda m: {**m, 7: torch.zeros(1)}, TypeError, "strings, but got 7"),
    "nothing": (lambda m: None, TypeError, "to be a dict of tensors, but got NoneType"),
}
FORM, NUMBERS = "the entries that .* but got", "to be a tensor of numbers in memory, but got"
NO_COUNT: Change = lambda message: {"model": message["model"]}  # noqa: E731
META, SUBCLASS = biased(torch.zeros(3, device="meta")), biased(torch.zeros(3).as_subclass(Own))
PATH: Change = lambda m: {**m, f"model/{WEIGHT}": m["model"][WEIGHT]}  # noqa: E731
FLOAT = r"num_examples to be torch.int64 \[\] as most clients', but got torch.float32 \[\]"
BAD_UPLOADS: dict[str, tuple[Change, type[Exception], str]] = {
    **BAD_MODELS,
    "no count": (NO_COUNT, ValueError, rf"{FORM} missing \['num_examples'\]"),
    "extra entry": (more(gossip=torch.zeros(1)), ValueError, rf"{FORM} extra \['gossip'\]"),
    "a key that is another's path": (PATH, ValueError, rf"{FORM} extra \['model/{WEIGHT}'\]"),
    "missing key": (biased(None), ValueError, rf"{FORM} missing \['model/convs.1.bias'\]"),
    "a count of another type": (more(num_examples=torch.tensor(7.0)), ValueError, FLOAT),
    "no memory": (META, TypeError, f"'model/convs.1.bias' {NUMBERS} .*meta"),
    "a kind of tensor of its own": (SUBCLASS, TypeError, f"'model/convs.1.bias' {NUMBERS} a Own"),
}


def sending(
    change: Change, at: tuple[int, int], method: Method | None = None, clients: Any = None
) -> Method:
    """FedOpt, or another method, in which one client sends something else in one round."""
    method, liar = method or fedopt(model()), (clients or graphs())[at[1]].num_nodes
    rounds: dict[int, int] = {}

    def send(params: Any, context: Any, state: Any, data: fgl.Graph) -> Any:
        message, state = method.send(params, context, state, data)
        index = rounds.get(data.num_nodes, 0)
        rounds[data.num_nodes] = index + 1
        if (index, data.num_nodes) == (at[0], liar):
            return change(dict(message)), state
        return message, state

    return replace(unsealed(method), send=wraps(method.send)(send))  # what is mended keeps its name


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    return end(fgl.run(fedopt(model()), graphs(), num_rounds=2))


@pytest.mark.few
@pytest.mark.parametrize("what", BAD_UPLOADS)
def test_a_bad_upload_of_this_process_raises_and_the_round_before_it_is_safe(
    what: str, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """It is a mistake in the method, and names its round, client and stage."""
    change, kind, text = BAD_UPLOADS[what]
    clients = graphs()
    before = copy.deepcopy([(data.x, data.edge_index) for data in clients])
    method = sending(change, at=(1, 2))
    with pytest.raises(kind, match=rf"^Round 1, client 2, send: Expected .*{text}"):
        fgl.run(method, clients, num_rounds=2, checkpoint=tmp_path)
    assert [path.name for path in tmp_path.glob("*.ckpt")] == ["round-000001.ckpt"]
    assert same([(data.x, data.edge_index) for data in clients], before)
    resumed = fgl.run(fedopt(model()), clients, num_rounds=2, checkpoint=tmp_path)
    assert same(end(resumed), undisturbed)


@pytest.mark.few
@pytest.mark.parametrize("at", [(0, 0), (1, 2)])
@pytest.mark.parametrize("what", BAD_UPLOADS)
def test_bad_uploads_from_elsewhere_cost_the_round(what: str, at: tuple[int, int]) -> None:
    """Whoever comes first: bit-equal to the run in which that client was absent."""
    change, kind, text = BAD_UPLOADS[what]
    with pytest.warns(UserWarning, match=f"Round {at[0]}, client {at[1]}: Expected .*{text}"):
        got = fgl.run(sending(change, at=at), Elsewhere(graphs(), 1), num_rounds=2)
    assert [list(record.dropped) for record in got.history] == [
        [at[1]] if index == at[0] else [] for index in range(2)
    ]
    want = by_hand(fedopt(model()), graphs(), num_rounds=2, absent=lambda *where: where == at)
    assert same(dict(got.outbox), want.outbox)
    assert same(dict(got.server_state), want.server_state)
    with pytest.raises(kind, match=rf"^Round {at[0]}, client {at[1]}, send: Expected .*{text}"):
        fgl.run(sending(change, at=at), Elsewhere(graphs(), 1), num_rounds=2, strict=True)


# What form uploads have.


def gossiping(*who: tuple[int, int]) -> Method:
    """FedOpt; these clients send an entry more, each in its round."""
    method = fedopt(model())
    for at in who:
        method = sending(BAD_UPLOADS["extra entry"][0], at=at, method=method)
    return method


@pytest.mark.filterwarnings("ignore:Round 0, client 1")
def test_of_two_forms_neither_is_wrong() -> None:
    """Nobody counts; the next round goes on from the first model."""
    pair = graphs()[:2]
    with pytest.warns(UserWarning, match=r"Round 0, client 0: Expected .*no majority"):
        got = fgl.run(gossiping((0, 1)), Elsewhere(pair, 1), num_rounds=2)
    assert list(got.history[0].dropped) == [0, 1]
    assert len(set(got.history[0].dropped.values())) == 1
    want = by_hand(fedopt(model()), pair, num_rounds=2, absent=lambda index, client: index == 0)
    assert same(dict(got.outbox), want.outbox)
    assert not got.history[1].dropped
    with pytest.raises(ValueError, match=r"^Round 0, client 0, send: Expected .*no majority"):
        fgl.run(gossiping((0, 1)), pair, num_rounds=1)


@pytest.mark.filterwarnings("ignore:Round")
def test_few_clients_fix_no_form_for_the_others() -> None:
    """One or two liars are alone in round 0, and before everybody in round 1: refused there."""
    for liars in ([0], [0, 1]):
        method = gossiping(*((index, client) for client in liars for index in (0, 1)))
        clients = graphs((12, 20, 31, 17, 15))
        alone: Any = {"dropouts": lambda index, client: index == 0 and client > liars[-1]}  # noqa: B023
        got = fgl.run(method, Elsewhere(clients, 1), num_rounds=3, **alone)
        honest = [client for client in range(5) if client not in liars]
        assert [list(record.dropped) for record in got.history] == [honest, liars, []]
        assert "extra ['gossip']" in got.history[1].dropped[0]
        assert got.form.keys() == {"model", "num_examples"}


@pytest.mark.filterwarnings("ignore:Round")
def test_a_form_that_accept_refuses_has_no_vote() -> None:
    """Two liars of three agree, and the honest client counts all the same."""

    def accept(message: Any, client: int, state: Any) -> None:
        if "gossip" in message:
            raise ValueError("no gossip")

    method = replace(gossiping((0, 0), (0, 1)), accept=accept)
    clients = graphs()[:3]
    got = fgl.run(method, Elsewhere(clients, 1), num_rounds=1)
    assert got.history[0].dropped == {0: "no gossip", 1: "no gossip"}
    want = by_hand(fedopt(model()), clients, num_rounds=1, absent=lambda index, client: client < 2)
    assert same(dict(got.outbox), want.outbox)


@pytest.mark.parametrize("others", [1, 2, 3])
def test_tiny_uploads_have_no_honest_one_refused(others: int) -> None:
    """As many liars as honest clients at most: two, one of three, two of four."""
    many, bad = others + 1, range((others + 1) // 2)

    def shrink(message: dict[str, Any]) -> dict[str, Any]:
        old = model().state_dict()
        near = {k: old[k] + 1e-7 * (v - old[k]) for k, v in message["model"].items()}
        return weights(**near)(message)

    method = ruled(fedavg(model()), max_change=10.0)
    for client in bad:
        method = sending(shrink, at=(0, client), method=method)
    far = weights(**{WEIGHT: torch.full((8, 6), 5.0)})  # the honest ones learn much
    for client in range(len(bad), many):
        method = sending(far, at=(0, client), method=method)
    got = fgl.run(method, graphs()[:many], num_rounds=1, clients_at_once=1)
    assert not got.history[0].dropped


# What is finite, and far beyond what it was.


@pytest.mark.filterwarnings("ignore:Round 1, client [123]")
def test_a_server_that_grows_too_far_keeps_its_old_model() -> None:
    """What it makes of uploads that are close to each other is not taken."""
    method = fedavg(model())

    def aggregate(inbox: Inbox, state: Any) -> Any:
        outbox, state = method.aggregate(inbox, state)
        if inbox.round == 1:
            far = {name: 1e5 * value for name, value in outbox[0]["model"].items()}  # type: ignore[union-attr]
            outbox = Broadcast({"model": far}, inbox.num_clients)
        return outbox, state

    grown = r"Expected outbox\[\d\]\['model'\] to grow by at most 300, but got"
    text = rf"Round 1, client 0: the server keeps the old model: {grown}"
    with pytest.warns(UserWarning, match=text):
        got = fgl.run(replace(method, aggregate=aggregate), graphs(), num_rounds=2)
    want = fgl.run(method, graphs(), num_rounds=1)
    assert same(dict(got.outbox), dict(want.outbox))
    assert same(dict(got.server_state), dict(want.server_state))
    assert sorted(got.history[1].dropped) == [0, 1, 2, 3]


def spoiled(*who: tuple[int, int], clients: Any = None, calls: Any = None) -> Method:
    """FedAvg whose server raises where a client says 1000 examples; these clients say so."""
    plain = fedavg(model())

    def aggregate(inbox: Inbox, state: Any) -> Any:
        (calls if calls is not None else []).append(len(inbox))
        if any(int(message["num_examples"]) == 1000 for message in inbox.values()):
            raise KeyError("w")
        return plain.aggregate(inbox, state)

    method = replace(plain, aggregate=aggregate)
    for at in who:
        lie = more(num_examples=torch.tensor(1000))
        method = sending(lie, at=at, method=method, clients=clients)
    return method


@pytest.mark.parametrize("liars", [[3], [0, 5], [1, 2, 6], [0, 1, 2, 7]])
def test_the_server_goes_on_without_the_uploads_that_moved_farthest(liars: list[int]) -> None:
    """Of eight clients up to four break the aggregate together: a few calls find them."""
    clients = graphs((12, 20, 31, 17, 15, 22, 18, 25))
    calls: list[int] = []
    method = spoiled(*((0, client) for client in liars), clients=clients, calls=calls)
    with pytest.warns(UserWarning, match="the server left this upload out: .*'w'"):
        got = fgl.run(method, Elsewhere(clients, 1), num_rounds=1)
    left_out = list(got.history[0].dropped)
    count = 1 << (len(liars) - 1).bit_length()  # the next power of two
    assert set(liars) <= set(left_out) and len(left_out) == count
    assert calls == [8, *(8 - 2**k for k in range(count.bit_length()))]
    gone = by_hand(
        fedavg(model()), clients, num_rounds=1, absent=lambda index, client: client in left_out
    )
    assert same(dict(got.outbox), gone.outbox)


def test_an_error_of_aggregate_raises_in_this_process() -> None:
    """Whoever is the cause; from elsewhere it does with strict=True alone."""
    with pytest.raises(KeyError, match="Round 0, server, aggregate"):
        fgl.run(spoiled((0, 3)), graphs(), num_rounds=1)
    with pytest.raises(KeyError, match="Round 0, server, aggregate"):
        fgl.run(spoiled((0, 3)), Elsewhere(graphs(), 1), num_rounds=1, strict=True)


@pytest.mark.filterwarnings("ignore:Round 1, client [123]")
def test_where_nothing_helps_the_server_keeps_its_old_model() -> None:
    """Three of four spoil the aggregate; so does a client that comes alone."""
    three = spoiled((1, 0), (1, 1), (1, 2))
    with pytest.warns(UserWarning, match="Round 1, client 0: the server keeps the old model: .*w"):
        got = fgl.run(three, Elsewhere(graphs(), 1), num_rounds=3)
    assert [sorted(record.dropped) for record in got.history] == [[], [0, 1, 2, 3], []]
    want = by_hand(fedavg(model()), graphs(), num_rounds=3, absent=lambda index, _: index == 1)
    assert same(dict(got.outbox), want.outbox)
    assert same(dict(got.server_state), want.server_state)
    alone: Any = {"dropouts": lambda index, client: index == 1 and client != 2, "num_rounds": 2}
    with pytest.warns(UserWarning, match="Round 1, client 2: the server keeps .*: KeyError: .*w"):
        got = fgl.run(spoiled((1, 2)), Elsewhere(graphs(), 1), **alone)
    want = by_hand(fedavg(model()), graphs(), num_rounds=1)
    assert same(dict(got.outbox), want.outbox)


@pytest.mark.filterwarnings("ignore:Round .*the server keeps the old model")
@pytest.mark.filterwarnings("ignore:Expected the checkpoint to know all settings")
def test_servers_that_raise_in_every_round_are_not_hostile_clients_for_ever(tmp_path: Path) -> None:
    """In the third round in a row the run says so, a resume between them or not."""
    method = fedavg(model())

    def failing(*rounds: int) -> Method:
        def aggregate(inbox: Inbox, state: Any) -> Any:
            if inbox.round in rounds:
                raise KeyError("cluster")
            return method.aggregate(inbox, state)

        return replace(method, aggregate=aggregate)

    place = Elsewhere(graphs(), 1)
    fgl.run(failing(1, 2, 3), place, num_rounds=3, checkpoint=tmp_path)
    text = "Round 3: no upload counted in 3 rounds in a row: .*'cluster'"
    with pytest.raises(RuntimeError, match=text) as caught:
        fgl.run(failing(1, 2, 3), place, num_rounds=4, checkpoint=tmp_path)
    assert isinstance(caught.value.__cause__, KeyError)
    kept = fgl.run(failing(1, 2, 4, 5), place, num_rounds=6)
    assert [len(record.dropped) for record in kept.history] == [0, 4, 4, 0, 4, 4]


def test_a_run_in_which_nobody_takes_part_does_not_complete(tmp_path: Path) -> None:
    """Neither for three rounds in a row, nor in all of its rounds; none of these is saved."""
    method, clients = fedavg(model()), graphs()
    how: Any = {"checkpoint": tmp_path, "clients_at_once": 1}
    absent: Any = {"dropouts": lambda index, client: index > 1}
    text = "Round 4: no upload counted in 3 rounds in a row: "
    with pytest.raises(RuntimeError, match=f"{text}clients 0-3: dropped out"):
        fgl.run(method, clients, num_rounds=9, **how, **absent)
    assert max(path.name for path in tmp_path.glob("*.ckpt")) == "round-000002.ckpt"
    with pytest.raises(RuntimeError, match="Round 1: no upload counted in 2 rounds"):
        fgl.run(method, clients, num_rounds=2, dropouts=1.0)
    with pytest.raises(RuntimeError, match="Round 0: no upload counted: "):
        fgl.run(method, clients, num_rounds=1, dropouts=1.0)
    some = fgl.run(method, clients, num_rounds=4, **absent)
    assert [len(record.dropped) for record in some.history] == [0, 0, 4, 4]
    limits: Any = {"limits": Limits(empty_rounds=None)}
    some = fgl.run(method, clients, num_rounds=5, **absent, **limits)
    assert [len(record.dropped) for record in some.history] == [0, 0, 4, 4, 4]
    with pytest.raises(RuntimeError, match="Round 2: no upload counted: "):
        fgl.run(method, clients, num_rounds=5, **absent, limits=Limits(empty_rounds=1))


def test_rounds_without_an_upload_are_saved_with_the_next_that_has_one(tmp_path: Path) -> None:
    """Or with the end of the run, if a callback says so or it is the last round."""
    method, clients = fedavg(model()), graphs()
    how: Any = {"clients_at_once": 1, "dropouts": lambda index, client: index in (1, 2, 4)}
    names: list[str] = []

    def look(record: Any, result: Any) -> bool:
        names.append(max(path.name for path in (tmp_path / "a").glob("*.ckpt"))[10:12])
        return False

    got = fgl.run(method, clients, num_rounds=5, checkpoint=tmp_path / "a", callbacks=[look], **how)
    assert names == ["01", "01", "01", "04", "05"]
    again = fgl.run(method, clients, num_rounds=5, checkpoint=tmp_path / "a", **how)
    assert same(end(again), end(got))
    stop: Any = {"callbacks": [lambda record, result: record.round == 1]}
    how |= {"checkpoint": tmp_path / "b", **stop}
    assert len(fgl.run(method, clients, num_rounds=5, **how).history) == 2
    with pytest.warns(UserWarning, match="after 2 of 5 rounds"):
        assert len(fgl.run(method, clients, num_rounds=5, **how).history) == 2


# How much is sent.


def growing(entries: int, at: tuple[int, int]) -> Method:
    return sending(more(spam=torch.zeros(entries)), at=at, method=fedavg(model()))


def test_an_upload_has_a_largest_size() -> None:
    """From the model's; it is not even counted."""
    text = "Round 0, client 0: Expected the upload to have at most 16782528 bytes, but got 20000340"
    place = Elsewhere(graphs(), 1)
    with pytest.warns(UserWarning, match=text):
        got = fgl.run(growing(5_000_000, (0, 0)), place, num_rounds=2)
    assert [list(record.dropped) for record in got.history] == [[0], []]
    assert got.history[0].bytes_up == 3 * 340
    with pytest.warns(UserWarning, match="at most 400 bytes, but got 440"):
        fgl.run(growing(25, (0, 0)), place, num_rounds=2, limits=Limits(upload_bytes=400))
    text = r"^Round 0, client 0, send: Expected the upload .* at most 100 bytes"
    with pytest.raises(ValueError, match=text):  # a number of one's own that is too small
        fgl.run(fedavg(model()), graphs(), num_rounds=1, limits=Limits(upload_bytes=100))


def test_rows_that_are_one_memory_are_refused_under_any_key() -> None:
    method = fedavg(model())
    for change in (
        weights(**{WEIGHT: torch.zeros(1, 6).expand(8, 6)}),
        weights(**{WEIGHT: torch.zeros(1000, 6)[:1].expand(8, 6)}),
        lambda message: weights(
            **{k: v.sum().expand(v.shape) for k, v in message["model"].items()}
        )(message),
    ):
        with pytest.warns(UserWarning, match="to be whole, but got an expanded tensor"):
            got = fgl.run(
                sending(change, at=(0, 1), method=method), Elsewhere(graphs(), 1), num_rounds=1
            )
        assert list(got.history[0].dropped) == [1]


@pytest.mark.filterwarnings("ignore:Expected the checkpoint to know all settings")
def test_the_form_of_uploads_survives_a_checkpoint(tmp_path: Path) -> None:
    """With one client left in the second round, only the first round knows what all send."""
    change = BAD_UPLOADS["extra entry"][0]
    how: Any = {"dropouts": lambda index, client: index == 1 and client != 2}
    how |= {"clients": Elsewhere(graphs(), 1), "checkpoint": tmp_path}
    fgl.run(fedopt(model()), num_rounds=1, **how)
    with pytest.warns(UserWarning, match=r"Round 1, client 2: .* extra \['gossip'\]"):
        fgl.run(sending(change, at=(0, 2)), num_rounds=2, **how)


@pytest.mark.parametrize("who", ["evaluate", "watch", "callback"])
def test_who_only_looks_may_not_write(who: str) -> None:
    def write(*given: Any) -> Any:
        message = given[0] if who == "watch" else getattr(given[-1], "outbox", given[0])[0]
        message["model"][WEIGHT].zero_()
        return {}

    how: Any = {"callbacks": [write]} if who == "callback" else {who: write}
    with pytest.raises(ValueError, match=f"'model/{WEIGHT}' .* was changed in place"):
        fgl.run(fedavg(model()), graphs(), num_rounds=1, **how)


@pytest.mark.parametrize("what", BAD_MODELS)
def test_bad_outbox_is_refused_where_it_is_made(what: str, tmp_path: Path) -> None:
    """Before it is saved, let alone sent."""
    change, kind, text = BAD_MODELS[what]

    def wrong(inbox: Inbox, state: Any) -> Any:
        outbox, state = average(inbox, state)
        return {1: change(dict(outbox[1]))}, state

    method = replace(fedavg(model()), aggregate=wrong)
    with pytest.raises(kind, match=rf"^Round 0, server, aggregate: Expected .*{text}") as caught:
        fgl.run(method, graphs(), num_rounds=2, checkpoint=tmp_path)
    assert "outbox[1]" in str(caught.value)
    assert not list(tmp_path.glob("*.ckpt"))


def test_a_message_without_a_model_is_not_adopted() -> None:
    method = replace(fedavg(model()), aggregate=lambda inbox, state: ({2: {}}, state))
    text = r"^Round 1, client 2, receive: Expected message to have 'model', but got keys \[\]"
    refuses(text, lambda: fgl.run(method, graphs(), num_rounds=2))


NAMED = "outbox to name clients from 0 to 3, but got"
BAD_OUTBOXES: list[tuple[Any, type[Exception], str]] = [
    ({4: {}, 0: {}}, ValueError, rf"{NAMED} \[4\]"),
    ({4: {}, 5: {}, 6: {}, 7: {}}, ValueError, rf"{NAMED} \[4, 5, 6, 7\]"),
    ({"model": {}}, ValueError, rf"{NAMED} \['model'\]"),
    (None, TypeError, "outbox to be a dict of messages, but got NoneType"),
]


@pytest.mark.parametrize(("outbox", "kind", "text"), BAD_OUTBOXES)
def test_outbox_for_nobody(outbox: Any, kind: type[Exception], text: str) -> None:
    method = replace(fedavg(model()), aggregate=lambda inbox, state: (outbox, state))
    with pytest.raises(kind, match=rf"^Round 0, server, aggregate: Expected {text}"):
        fgl.run(method, graphs(), num_rounds=1)


BAD_STATES: list[tuple[Any, str]] = [
    ({"rounds": 3}, r"state\['rounds'\] to be a tensor, but got int"),
    ({"a": {"b": {"c": torch.zeros(1)}}}, r"state\['a'\]\['b'\] to be a tensor, but got dict"),
    (None, r"state to be a dict of tensors, but got NoneType"),
]


@pytest.mark.parametrize(("state", "text"), BAD_STATES)
def test_bad_state(state: Any, text: str) -> None:
    """It could not be saved, so it is refused, with or without a checkpoint."""
    method = fedavg(model())
    client = replace(method, send=lambda *args: (send_model(*args)[0], state))
    with pytest.raises(TypeError, match=rf"^Round 0, client 0, send: Expected {text}"):
        fgl.run(client, graphs(), num_rounds=1)
    server = replace(method, aggregate=lambda inbox, _: (average(inbox, {})[0], state))
    with pytest.raises(TypeError, match=rf"^Round 0, server, aggregate: Expected {text}"):
        fgl.run(server, graphs(), num_rounds=1)


# Weights.


def weighted(*numbers: float) -> Method:
    method = fedavg(model())
    table = dict(zip((g.num_nodes for g in graphs()), numbers, strict=True))

    def send(params: Any, context: Any, state: Any, data: fgl.Graph) -> Any:
        return {"model": params, "num_examples": torch.tensor(table[data.num_nodes])}, state

    return replace(method, send=send)


@pytest.mark.parametrize(
    ("numbers", "most", "bad"),
    [((1, -2, 3, 4), 10, [1]), ((1, -1, 1, -1), 10, [1, 3]), ((1, 2, 10, 11), 10, [3])],
)
def test_weights_that_nobody_can_have_are_refused(numbers: Any, most: int, bad: Any) -> None:
    method = ruled(weighted(*numbers), max_examples=most)
    with pytest.warns(UserWarning, match="Expected num_examples to be from 0 to 10, but got"):
        got = fgl.run(method, graphs(), num_rounds=1, clients_at_once=1)
    assert list(got.history[0].dropped) == bad
    gone = by_hand(method, graphs(), num_rounds=1, absent=lambda index, client: client in bad)
    assert same(dict(got.outbox), gone.outbox)


@pytest.mark.parametrize(
    ("name", "task"),
    [("scaffold", "nodes"), ("clipped", "nodes"), ("own models drawn", "ego"), ("fedego", "ego")],
)
def test_where_all_weigh_the_same_nobody_weighs_more(name: str, task: str) -> None:
    """Not even as much as the largest client has examples."""
    method, made = case(name, task)
    assert method.rules.max_examples > 2 or name in ("scaffold", "clipped")

    heavy = sending(more(num_examples=torch.tensor(2)), (0, 1), method, made.clients)
    with pytest.warns(UserWarning, match=r"client 1: Expected num_examples to be .*1, but got 2"):
        got = fgl.run(heavy, made.clients, num_rounds=1)
    assert list(got.history[0].dropped) == [1]


# Errors of others.


class TwoArguments(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class KeywordOnly(ValueError):
    def __init__(self, *, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class OwnText(Exception):
    def __str__(self) -> str:
        return "what it always says"


ERRORS = {
    "ValueError": lambda: ValueError("bad"),
    "KeyError": lambda: KeyError("w"),
    "several": lambda: RuntimeError("a", 2),
    "FileNotFoundError": lambda: FileNotFoundError(2, "No such file", "graph.pt"),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    "TwoArguments": lambda: TwoArguments(7, "no reason"),
    "KeywordOnly": lambda: KeywordOnly(detail="d"),
    "OwnText": lambda: OwnText("x"),
    "group": lambda: ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
}
STAGES = {
    "receive": "Round 1, client 0, receive",
    "loss": "Round 1, client 0, loss",
    "send": "Round 1, client 0, send",
    "aggregate": "Round 1, server, aggregate",
    "evaluate": "Round 1, server, evaluate",
}


def failing(stage: str, error: Callable[[], Exception]) -> tuple[Method, dict[str, Any]]:
    """FedAvg of two clients with an error in round 1, and the options of its run."""
    method = fedavg(model())
    # In round 0, the loss is also computed twice to see whether it reads test labels.
    before = {"loss": 2 * method.train.num_steps + 2, "aggregate": 1, "evaluate": 1}.get(stage, 2)
    calls: list[int] = []

    def wrapped(*args: Any) -> Any:
        calls.append(1)
        if len(calls) > before:
            raise error()
        return {} if stage == "evaluate" else getattr(method, stage)(*args)

    if stage == "evaluate":
        return method, {"evaluate": wrapped}
    return replace(method, **{stage: wrapped}), {}


def told(error: BaseException) -> str:
    """What a traceback shows of an error: its text and its notes."""
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


@pytest.mark.parametrize(
    ("stage", "name"),
    [("loss", name) for name in ERRORS]
    + [(stage, name) for stage in STAGES if stage != "loss" for name in ("KeyError", "OwnText")],
)
def test_an_error_keeps_its_type_and_names_its_place(stage: str, name: str, tmp_path: Path) -> None:
    original = ERRORS[name]()
    method, options = failing(stage, lambda: original)
    how: Any = {"checkpoint": tmp_path, "clients_at_once": 1, "strict": stage == "aggregate"}
    with pytest.raises(type(original)) as caught:
        fgl.run(method, graphs()[:2], num_rounds=3, **how, **options)
    assert type(caught.value) is type(original)
    assert STAGES[stage] in told(caught.value)
    assert original in (caught.value, caught.value.__cause__)
    attributes = {k: v for k, v in vars(original).items() if k != "__notes__"}
    assert attributes.items() <= vars(caught.value).items()
    assert [path.name for path in tmp_path.glob("*.ckpt")] == ["round-000001.ckpt"]
    assert all(path.stat().st_size for path in tmp_path.glob("*.ckpt"))
