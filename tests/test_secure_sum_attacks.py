"""Attacks on the secure sum: a server that lies, clients that help it, false shares."""

import warnings
from collections.abc import Callable
from itertools import combinations, islice
from typing import Any

import pytest
import torch
from federations import refuses, sending
from torch import Tensor

import fgl
from fgl import Method
from fgl.privacy.fixed_point import encode
from fgl.transforms import clients_summed, secure_sum

pytest.importorskip("cryptography")
pytest.importorskip("Crypto")
from lying_server import LyingServer, all_keys, lines, own_models

from fgl.privacy import masks as parts
from fgl.privacy.shares import TRIES, recovered, split
from fgl.privacy.shares import _sets as sets
from fgl.transforms.secure_sum.messages import flat

SLOW = pytest.mark.slow


def upload_of(client: int) -> Tensor:
    """A client's words without a mask."""
    weight, initial = client + 1, own_models().initial()
    words = {
        f"model/{name}": encode(value + weight, weight=weight, bits=28, bound=1024.0)
        for name, value in initial.items()
    }
    return flat({**words, "num_examples": torch.tensor(weight)})


PLANS: list[Any] = [
    pytest.param(5, 3, (), id="5-3"),
    pytest.param(10, 6, (), id="10-6", marks=SLOW),
    pytest.param(20, 12, (), id="20-12", marks=SLOW),
    pytest.param(30, 18, (), id="30-18", marks=SLOW),
    pytest.param(10, 7, (7, 8, 9), id="10-7-3"),
]


@pytest.mark.parametrize(("number", "threshold", "colluders"), PLANS)
def test_without_signatures_a_split_view_reads_an_upload(
    number: int, threshold: int, colluders: Any, reached: Any
) -> None:
    """The default mode is for a server that follows the protocol, and the docs say so."""
    server = LyingServer(number, threshold, colluders=colluders)
    read = server.split_view(1).equal(upload_of(1))
    reached("uploads read without `signed`", read, 1)
    assert read


def test_a_threshold_above_two_thirds_stops_this_plan_of_a_server_alone() -> None:
    with pytest.raises(AssertionError, match="too few shares for this plan"):
        LyingServer(10, 7).split_view(1)


@pytest.mark.parametrize(("number", "threshold", "colluders"), [(5, 4, ()), (10, 7, (7, 8, 9))])
def test_with_signatures_a_split_view_fails_at_the_client(
    number: int, threshold: int, colluders: Any, reached: Any
) -> None:
    server = LyingServer(number, threshold, colluders=colluders, signed=True)
    refuses("the server told others another list of clients or keys", lambda: server.split_view(1))
    reached("uploads read with it", 0, 1)


@pytest.mark.parametrize(
    ("number", "threshold", "colluders", "said"),
    [(5, 3, 0, "two thirds of the 5"), (6, 4, 0, "two thirds of the 6"), (10, 7, 4, "4 colluders")],
)
def test_signed_thresholds_are_larger(
    number: int, threshold: int, colluders: int, said: str
) -> None:
    how: Any = {"threshold": threshold, "colluders": colluders, "signed": all_keys(number)}
    method = secure_sum(own_models(), **how)
    with pytest.raises(ValueError, match=f"threshold to be more than .*{said}"):
        fgl.run(method, lines(number), num_rounds=5)


def test_a_client_looks_at_the_threshold_itself() -> None:
    server = LyingServer(6, 5, signed=True)
    listed = server.keys()
    more = {name: torch.cat([value, value[:2]]) for name, value in listed.items()}
    refuses("two thirds of the 8 clients", lambda: server.letters(more))


def test_sets_of_shares_are_neighbours_first_and_all_sets_after_them() -> None:
    rows = [4, 0, 2, 7, 5]
    some = list(sets(rows, 3))
    assert [list(each) for each in some[:5]] == [
        [4, 0, 2], [0, 2, 7], [2, 7, 5], [7, 5, 4], [5, 4, 0],
    ]  # fmt: skip
    assert [set(each) for each in some[5:]] == [set(each) for each in combinations(rows, 3)]
    assert list(sets(rows, 5)) == [rows]
    many = list(islice(sets(range(30), 15), TRIES))
    assert all(len(set(each)) == 15 and set(each) <= set(range(30)) for each in many)
    assert len({frozenset(each) for each in many}) == TRIES


PAIR = parts.as_tensor(parts.public_key(bytes([9]) * 32) + parts.public_key(bytes([8]) * 32))
LIES: dict[str, tuple[Callable[[dict[str, Tensor]], dict[str, Any]], str]] = {
    "invented": (
        lambda listed: {"keys": torch.cat([listed["keys"][:3], PAIR[None], listed["keys"][4:]])},
        "keys that client 3 has signed",
    ),
    "swapped": (lambda listed: {"clients": [0, 1, 3, 2, 4]}, "keys that client 3 has signed"),
    "twice": (lambda listed: {"clients": [0, 1, 2, 3, 3]}, "every client once"),
    "unknown": (lambda listed: {"clients": [0, 1, 2, 3, 5]}, "keys that client 5 has signed"),
    "other": (lambda listed: {"clients": [1, 0, 2, 3, 4]}, "this one as 0"),
}


@pytest.mark.parametrize("lie", LIES)
def test_with_signatures_a_server_cannot_invent_clients(lie: str, reached: Any) -> None:
    """What a server may put into the list of keys, and what client 0 says."""
    server = LyingServer(5, 4, signed=True)
    (change, said), listed = LIES[lie], server.keys()
    told = {name: torch.as_tensor(value) for name, value in change(listed).items()}
    refuses(said, lambda: server.letters({**listed, **told}, among=[0]))
    with pytest.raises(ValueError, match=r"a list of keys with \['clients', 'signatures'\]"):
        server.letters({"keys": listed["keys"]}, among=[0])
    reached("lies answered with `signed`", 0, 1)


def test_old_keys_of_clients_who_are_not_here_sign_nothing() -> None:
    """A server may repeat signed keys of an earlier exchange, but nobody signs the list for it."""
    server = LyingServer(10, 7, signed=True)
    old, listed = server.keys(), server.keys()
    fresh = range(6)
    for name in ("keys", "signatures"):
        listed[name][6:] = old[name][6:]
    letters, all_ = server.letters(listed, among=fresh), torch.ones(10).bool()
    for client in fresh:
        server.masked(client, letters, all_)
    with pytest.raises(ValueError, match="at least 7 clients to sign the list .* but got 6"):
        server.shares(listed["keys"], dict.fromkeys(fresh, all_))


@pytest.mark.parametrize("signed", [False, True])
def test_a_model_that_only_one_client_is_sent(signed: bool, reached: Any) -> None:
    """Where the others' model leaves nothing to learn, the sum is one client's upload."""
    server = LyingServer(5, 4, signed=signed)
    still = {name: torch.zeros_like(value) for name, value in server.method.initial().items()}
    server.models = [server.models[0], *[{"model": still}] * 4]
    listed, all_ = server.keys(), torch.ones(5).bool()
    letters = server.letters(listed)
    for client in range(5):
        server.masked(client, letters, all_)
    if not signed:
        assert len(server.shares(listed["keys"], dict.fromkeys(range(5), all_))) == 5
        return
    with pytest.raises(ValueError, match="or another message"):
        server.shares(listed["keys"], dict.fromkeys(range(5), all_))
    reached("lies answered with `signed`", 0, 1)


def test_a_client_signs_one_list_and_tells_nothing_before() -> None:
    server = LyingServer(5, 4, signed=True)
    listed, all_ = server.keys(), torch.ones(5).bool()
    letters = server.letters(listed)
    for client in range(5):
        server.masked(client, letters, all_)
    with pytest.raises(ValueError, match="what follows in this exchange, but got 'shares'"):
        server.ask(0, {"phase": torch.tensor(3), "secure": {"sent": all_}})
    for wrong, said in ((all_ & (torch.arange(5) > 1), "this one among them"), (~all_, "at least")):
        with pytest.raises(ValueError, match=said):
            server.ask(0, {"phase": torch.tensor(5), "secure": {"sent": wrong}})
    server.ask(0, {"phase": torch.tensor(5), "secure": {"sent": all_}})
    fewer = torch.arange(5) < 4
    with pytest.raises(ValueError, match="what follows in this exchange, but got 'signature'"):
        server.ask(0, {"phase": torch.tensor(5), "secure": {"sent": fewer}})


@pytest.mark.parametrize("phase", [1, 2, 5])
def test_a_list_that_can_be_read_in_two_ways_is_refused(phase: int) -> None:
    """256 is true, and as a byte it is 0: with it, two lists would have one signature."""
    server = LyingServer(5, 4, signed=True)
    listed, all_ = server.keys(), torch.ones(5).bool()
    twice = torch.tensor([1, 1, 1, 1, 256])
    if phase == 1:
        wide = {**listed, "keys": listed["keys"].long()}
        with pytest.raises(ValueError, match=r"keys to be torch.uint8 of shape \[5, 64\]"):
            server.letters(wide, among=[0])
        return
    letters = server.letters(listed)
    said = r"who is in the sum to be torch.bool of shape \[5\], but got torch.int64"
    if phase == 2:
        refuses(said, lambda: server.masked(0, letters, twice))
        return
    for client in range(5):
        server.masked(client, letters, all_)
    refuses(said, lambda: server.ask(0, {"phase": torch.tensor(5), "secure": {"sent": twice}}))


# Clients who help a server that follows the protocol


def summed_alone(threshold: int, **how: Any) -> bool:
    """Whether three of five clients, and a server that keeps what it sees, read an upload.

    One client drops out, as clients do. What the three sent they take out of the sum.
    """
    method = secure_sum(own_models(), threshold=threshold, **how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = fgl.run(
            method, lines(5), num_rounds=4, watch=clients_summed,
            dropouts=lambda index, client: client == 1,
        )  # fmt: skip
    if not got.history[-1].metrics["clients_summed"]:
        return False
    initial, mean = own_models().initial(), got.outbox[0]["model"]
    weights = {client: client + 1 for client in (0, 2, 3, 4)}
    total = {name: value * sum(weights.values()) for name, value in mean.items()}  # type: ignore
    for weight in (weights[client] for client in (2, 3, 4)):
        total = {name: value - weight * (initial[name] + weight) for name, value in total.items()}
    return all(torch.allclose(value, initial[name] + 1) for name, value in total.items())


def test_a_sum_has_a_smallest_number_of_honest_clients(reached: Any) -> None:
    """Threshold minus one who work together and one dropout leave one upload alone."""
    without, with_ = summed_alone(4), summed_alone(5, colluders=3)
    reached("uploads alone without `colluders`", without, 1)
    reached("with it", with_, 1)
    assert without and not with_
    for honest, colluders, least in ((2, 3, 5), (3, 3, 6), (4, 1, 5)):
        with pytest.raises(ValueError, match=f"at least {least}, for {honest} honest clients"):
            secure_sum(own_models(), threshold=4, honest=honest, colluders=colluders)
    with pytest.raises(ValueError, match="honest to be an integer >= 2, but got 1"):
        secure_sum(own_models(), threshold=4, honest=1)


# Clients who tell false shares


def lying(method: Method, liars: tuple[int, ...], phase: int = 3) -> Method:
    """The method, some of whose clients draw what they tell in a round."""
    g = torch.Generator().manual_seed(0)

    def lie(message: Any, own: fgl.Graph) -> Any:
        if own.num_nodes - 1 not in liars or message["phase"] != phase:
            return message
        secure = {k: v.clone() for k, v in message["secure"].items()}
        for value in secure.values():
            value[..., 1:] = torch.randint(256, value[..., 1:].shape, generator=g).byte()
        return {**message, "secure": secure}

    return sending(method, lie)


@pytest.mark.few
@pytest.mark.parametrize(("number", "threshold", "liars", "absent"), [
    (4, 3, (0,), ()), (7, 4, (0, 1), ()), (7, 4, (0, 2), (3,)), (9, 5, (0, 2, 4), ()),
    (9, 5, (0, 2, 4), (3,)),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:Round .* in an earlier round")
def test_lies_lose_no_sum(
    number: int, threshold: int, liars: Any, absent: Any, reached: Any
) -> None:
    """Where enough true ones came, of seeds and of keys; the warning names who lied."""

    def gone(index: int, client: int) -> bool:
        return client in absent and index == 2

    plain = own_models()
    want = fgl.run(plain, lines(number), num_rounds=1, dropouts=lambda i, k: k in absent)
    with pytest.warns(
        UserWarning, match=rf"clients \[{', '.join(map(str, liars))}\] sent false shares"
    ):
        got = fgl.run(
            lying(secure_sum(plain, threshold=threshold), liars), lines(number), num_rounds=4,
            dropouts=gone, watch=clients_summed,
        )  # fmt: skip
    reached("sums lost", not got.history[-1].metrics["clients_summed"], 1)
    assert got.history[-1].metrics["clients_summed"] == number - len(absent)
    for name, value in want.outbox[0]["model"].items():  # type: ignore[union-attr]
        assert float((got.outbox[0]["model"][name] - value).abs().max()) < 1e-8  # type: ignore[index]


def test_too_few_true_shares_lose_the_sum_and_say_whose(reached: Any) -> None:
    method = lying(secure_sum(own_models(), threshold=3), (0, 1))
    with pytest.warns(UserWarning, match="seed of row 0: .* got 4 with false ones among"):
        got = fgl.run(method, lines(4), num_rounds=4, watch=clients_summed)
    reached("where too few are true", not got.history[-1].metrics["clients_summed"], 1)
    assert got.history[-1].metrics == {"clients_summed": 0}


@pytest.mark.parametrize("number", [2, 3, 16])
def test_one_false_share_is_always_found(number: int) -> None:
    secret, threshold = bytes(range(32)), number - 1
    true = dict(enumerate(split(secret, threshold, number)))
    for row in {0, number // 2, number - 1}:
        told = {**true, row: bytes(32)}
        got, false = recovered(told, threshold, lambda found: found == secret)
        assert got == secret
        assert false in ({row}, set() if row == number - 1 else {row})


@pytest.mark.parametrize(
    ("number", "threshold", "liars"),
    [(10, 6, 4), (10, 7, 3), (20, 14, 2), (30, 20, 2), (40, 27, 2)],
)
def test_several_false_shares_are_found(number: int, threshold: int, liars: int) -> None:
    """Whoever they are, a set without them is tried."""
    tried = [set(chosen) for chosen in islice(sets(range(number), threshold), TRIES)]
    for false in combinations(range(number), liars):
        assert any(chosen.isdisjoint(false) for chosen in tried)


@pytest.mark.filterwarnings("ignore:Secure sum")
def test_a_hostile_client_may_spoil_every_sum_but_the_run_goes_on() -> None:
    method = lying(secure_sum(own_models(), threshold=3), (3,), phase=1)
    got = fgl.run(method, lines(4), num_rounds=16, watch=clients_summed)
    assert [each.metrics["clients_summed"] for each in got.history[3::4]] == [0] * 4
    initial = own_models().initial()
    assert all(torch.equal(got.outbox[0]["model"][k], v) for k, v in initial.items())  # type: ignore
