"""The gate in loops: distances, forms and bounds of uploads, each at its exact limit."""

import dataclasses
import math
import random
import statistics
from collections import Counter
from typing import Any

import pytest
import torch
from federations import refuses, ruled

import fgl
from fgl.federation import Limits
from fgl.federation.gate import uploads
from fgl.federation.gate.guard import check_whole
from fgl.federation.gate.uploads import (
    Change,
    Diverged,
    changes,
    check_jump,
    farthest,
    form_of,
    root_mean_square,
    sift,
)

DTYPES = (torch.float32, torch.float64, torch.float16, torch.int64)


def rms(numbers: list[float]) -> float:
    return math.sqrt(sum(x * x for x in numbers) / len(numbers)) if numbers else 0.0


def drawn(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    numbers = [rng.choice((0.0, 1.0, -3.0, 8.0)) for _ in range(math.prod(shape))]
    return torch.tensor(numbers).reshape(shape).to(dtype)


def message(rng: random.Random) -> dict[str, Any]:
    """Entries alone and in a dict, of any dtype; some are not there, some are empty."""
    whole: dict[str, Any] = {"model": {}, "num_examples": torch.tensor(3.0)}
    for name in "abc":
        shape = rng.choice(((2,), (2, 2), (0,)))
        into = whole["model"] if rng.random() < 0.5 else whole
        if rng.random() < 0.8:
            into[name] = drawn(rng, shape, rng.choice(DTYPES))
    return whole


def test_norms_beyond_a_dtype_are_computed_in_double() -> None:
    for dtype, large in ((torch.float16, 6e4), (torch.float32, 3e38), (torch.float64, 1e150)):
        same = [torch.full((4,), large, dtype=dtype)]
        assert root_mean_square(same) == pytest.approx(large, rel=1e-3)
    assert root_mean_square([torch.ones(0)]) == root_mean_square([]) == 0.0
    wide = [torch.full((uploads.FEW // 2 + 1,), 2.0) for _ in range(3)]
    assert root_mean_square(wide) == pytest.approx(2.0)
    with torch.autocast("cpu", dtype=torch.float16):
        assert root_mean_square([torch.ones(2).half(), torch.ones(3).half()]) == pytest.approx(
            1, rel=1e-3
        )
    old = {0: {"w": torch.full((3,), 3e38)}}
    found, _ = changes({0: {"w": torch.full((3,), -3e38)}}, old)
    assert found[0]["w"].moved == pytest.approx(6e38)


def test_the_farthest_come_first_as_in_loops() -> None:
    rng = random.Random(1)
    for _ in range(80):
        shape = rng.choice(((2,), (0,), (2, 2)))
        dtype = rng.choice(DTYPES)
        new: Any = {k: {"w": drawn(rng, shape, dtype)} for k in range(rng.randint(1, 5))}
        for own in new.values():
            if rng.random() < 0.3:
                own["more"] = drawn(rng, (3,), torch.float32) * 5
            if rng.random() < 0.2:
                own["w"] = drawn(rng, (3,), rng.choice(DTYPES))
        sent = {k: {"w": drawn(rng, shape, dtype)} for k in new if rng.random() < 0.7}
        distance = dict.fromkeys(new, 0.0)
        for path in ("w", "more"):
            sizes = {}
            for k, own in new.items():
                if path not in own:
                    continue
                numbers = own[path].double().flatten().tolist()
                old = sent.get(k, {}).get(path)
                if old is not None and old.shape == own[path].shape:
                    olds = old.double().flatten().tolist()
                    numbers = [x - y for x, y in zip(numbers, olds, strict=True)]
                sizes[k] = rms(numbers)
            positive = [size for size in sizes.values() if size > 0]
            median = statistics.median_low(positive) if positive else 1.0
            for k, size in sizes.items():
                distance[k] = max(distance[k], size / median)
        for path in ("w", "more"):
            for what in ("dtype", "shape"):
                kinds = {k: getattr(own[path], what) for k, own in new.items() if path in own}
                if kinds:
                    usual, count = Counter(kinds.values()).most_common(1)[0]
                    for k, kind in kinds.items():
                        if kind != usual and count > len(kinds) / 2:
                            distance[k] = math.inf
        assert farthest(new, sent) == sorted(new, key=lambda k: (-distance[k], k))


@pytest.mark.parametrize(
    ("new", "old", "refused"),
    [
        (10.0, 1.0, False), (10.1, 1.0, True),  # ten times
        (10.0, 0.1, False), (10.1, None, True), (10.0, None, False),  # of 1 at least
        (20.0, 2.0, False), (20.1, 2.0, True), (math.nan, 1.0, True), (math.inf, 1.0, True),
        (9.0, 0.0, False),
    ],
)  # fmt: skip
def test_a_state_grows_by_at_most_its_bound(new: float, old: float | None, refused: bool) -> None:
    values = {"n": torch.tensor(10**9), "w": torch.full((4,), new, dtype=torch.float64)}
    before = {} if old is None else {"w": torch.full((4,), old, dtype=torch.float64)}
    for one, other in ((values, before), ({"model": values}, {"model": before})):
        if refused:
            with pytest.raises(Diverged, match="state"):
                check_jump(one, other, "state", 10.0)
        else:
            check_jump(one, other, "state", 10.0)


@pytest.mark.parametrize(
    ("moved", "sizes", "refused"),
    [
        ((1.0, 1.0, 10.0), (1.0, 1.0, 1.0), []),  # ten times the median, exactly
        ((1.0, 1.0, 10.1), (1.0, 1.0, 1.0), [2]),
        ((1.0, 1.0, 10.1), (11.0, 11.0, 11.0), []),  # less than what was sent
        ((1.0, 1.0, 10.1), (10.1, 10.1, 10.1), []),
        ((0.01, 0.01, 1.0), (None, None, None), []),  # of what was not sent, less than 1
        ((0.01, 0.01, 1.1), (None, None, None), [2]),
        ((10.0, 10.0), (1.0, 0.1), []),  # ten times what was sent
        ((10.1, 10.1), (1.0, 0.1), [0, 1]),
        ((30.1, 30.0), (3.0, 3.0), [0]),
        ((1.0, 1.0, 20.0, 20.0), (1.0,) * 4, [2, 3]),  # the upper median
        ((1.0, 1.0, 9.0, 9.0), (1.0,) * 4, []),
        ((0.0, 0.0, 0.5), (0.0, 0.0, 0.0), []),  # who did not move has no part in the median
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), []),
        ((0.1, 5.0), (None, None), [1][:0]),
        ((99.0,), (None,), []), ((99.0,), (1.0,), [0]),
    ],
)  # fmt: skip
def test_a_change_has_two_bounds(
    moved: tuple[float, ...], sizes: tuple[float | None, ...], refused: list[int]
) -> None:
    pairs = enumerate(zip(moved, sizes, strict=True))
    far = uploads._too_far({k: {"w": Change(*each)} for k, each in pairs}, 10.0)
    assert sorted(far) == refused
    assert all("w changed by" in str(error) for error in far.values())


@pytest.mark.parametrize(
    ("count", "right"), [(0.0, True), (7.0, True), (7.5, False), (-0.1, False), (math.nan, False)]
)
def test_a_weight_is_one_that_a_client_can_have(count: float, right: bool) -> None:
    for value in (torch.tensor(count), torch.tensor([1.0, count])):
        if right:
            uploads._check_count({"num_examples": value}, 7.0)
        else:
            with pytest.raises(ValueError, match=r"num_examples to be from 0 to 7, but got"):
                uploads._check_count({"num_examples": value}, 7.0)
    uploads._check_count({"other": torch.tensor(-1.0)}, 7.0)


class Own(torch.Tensor):
    pass


W = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (W, "torch.float32 [2, 3]"), (W.T, "torch.float32 [3, 2]"),
        (W[:, :0], "torch.float32 [2, 0]"),
        (torch.ones(1, 1).expand(1, 1), "torch.float32 [1, 1]"),
        (torch.ones(1, 3)[:, ::2], "torch.float32 [1, 2]"),
        (torch.eye(2).to_sparse(), "torch.float32 [2, 2] torch.sparse_coo"),
        (torch.tensor(3), "torch.int64 []"), ({"v": W.bool()}, {"v": "torch.bool [2, 3]"}),
        ({}, {}),
        (torch.nn.Parameter(W, requires_grad=False), "torch.float32 [2, 3]"),
        (torch.ones(2, 1).expand(2, 3), ValueError), (torch.ones(3).expand(2, 3), ValueError),
        (W.to("meta"), TypeError), (Own(2), TypeError), (W.clone().requires_grad_(), ValueError),
        (torch.ones(2).to(torch.float8_e5m2), TypeError), ({"v": {"u": W}}, TypeError),
        (3.0, TypeError), ({3: W}, TypeError), (None, TypeError), ({"v": 1}, TypeError),
    ],
)  # fmt: skip
def test_forms_of_entries(value: Any, form: Any) -> None:
    if isinstance(form, type):
        refuses("w", lambda: form_of({"w": value}), form)
        return
    assert form_of({"w": value}) == {"w": form}
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        assert form_of({"w": value}, ragged=["w"]) == {}
    with pytest.raises(ValueError, match="'rows' to be dense"):
        form_of({"rows": torch.eye(2).to_sparse()}, ragged={"rows"})
    for wrong in ([value], {"w": 3.0}, {3: W}):
        with pytest.raises(TypeError, match="the upload"):
            form_of(wrong)


def plain(more: float = 0.0, **entries: Any) -> dict[str, Any]:
    return {"model": {"weight": torch.full((1, 2), 1.0 + more), "bias": torch.ones(1)}, **entries}


X, Y = torch.ones(2), torch.ones(3)
METHOD = fgl.fedavg(torch.nn.Linear(2, 1))


@pytest.mark.parametrize(("came", "form", "taken", "words"), [
    ([plain(), plain(), plain()], {}, [0, 1, 2], {}),
    ([plain(a=X), plain(a=X), plain()], {}, [0, 1], {2: r"missing \['a'\]"}),
    ([plain(a=X), plain(), plain()], {}, [1, 2], {0: r"extra \['a'\]"}),
    ([plain(a=X), plain(a=X), plain(a=Y)], {}, [0, 1], {2: r"a to be torch.float32 \[2\] as"}),
    ([plain(a=X), plain(a=Y)], {}, [], {0: "no majority", 1: "no majority"}),
    ([plain(a=X), plain(a=Y)], form_of(plain(a=Y)), [1], {0: r"a to be torch.float32 \[3\]"}),
    ([plain(a={"b": X}), plain(a={"b": X}), plain(a=X)], {}, [0, 1], {2: r"missing \['a/b'\]"}),
    ([plain(a={}), plain(a={}), plain()], {}, [0, 1], {2: r"missing \['a'\]"}),
    ([plain(), {"model": {"weight": X}}, 3], {}, [0], {1: "model", 2: "upload"}),
])  # fmt: skip
def test_most_clients_decide_a_form(came: Any, form: Any, taken: Any, words: Any) -> None:
    everybody = dict(enumerate(came))
    sent = dict.fromkeys(range(3), plain())
    found = sift(METHOD, everybody, sent, {}, form)
    assert list(found.taken) == taken and found.malformed == sorted(words)
    for client, word in words.items():
        with pytest.raises(Exception, match=word):
            raise found.refused[client]
    agreed = form_of(everybody[taken[0]]) if len(taken) == 3 else form
    assert found.form == agreed


def test_uploads_are_put_in_the_order_that_most_clients_have() -> None:
    turned = {"a": X, "model": dict(reversed(plain()["model"].items()))}
    found = sift(METHOD, {0: turned, 1: plain(a=X), 2: plain(a=X)}, {}, {}, {})
    assert [list(own) for own in found.taken.values()] == [["model", "a"]] * 3
    assert list(found.taken[0]["model"]) == ["weight", "bias"]


def test_limits_are_met_exactly() -> None:
    limits, method = Limits(upload_bytes=100, note_bytes=10, metrics=2, metric_length=3), METHOD
    limits.check_bytes(method, 100, 10)
    for upload, note in ((101, 0), (0, 11)):
        with pytest.raises(ValueError, match="at most"):
            limits.check_bytes(method, upload, note)
    limits.check_metrics({"abc": 1.0, "d": 2.0})
    for names in (("a", "b", "c"), ("abcd",), ("a\n",)):
        with pytest.raises(ValueError, match="metrics"):
            limits.check_metrics(dict.fromkeys(names, 1.0))
    usual = Limits()
    assert usual.of_upload(method) == 16 * 12 + 2**24
    assert usual.of_note(method) == 2**20 + 16 * len("weightbias")
    rows = ruled(method, ragged=frozenset({"rows"}))
    assert usual.of_upload(rows) == 16 * 12 + 2**24 + 2**30
    for name, least in (
        ("metrics", 0),
        ("metric_length", 0),
        ("upload_bytes", 1),
        ("note_bytes", 1),
    ):
        Limits(**{name: least})
        with pytest.raises(ValueError, match=name):
            Limits(**{name: least - 1})
    scores = {0: {"a": 1.0, "b": 1.0}, 1: {"b": 1.0, "c": 1.0}, 2: {"b": 1.0, "c": 2.0}}
    assert Limits(metrics=2).too_many(scores) == {"a"} and usual.too_many(scores) == set()


def far(inbox: Any, state: Any) -> Any:
    return fgl.federation.average(inbox, {})[0], {"sum": torch.full((4,), 1e9)}


def listed(inbox: Any, state: Any) -> Any:
    return fgl.federation.average(inbox, {})[0], [torch.ones(1)]


def stray(inbox: Any, state: Any) -> Any:
    return {7: plain()}, {}


def welcomed(welcome: Any) -> Any:
    joining = fgl.federation.Joining(lambda graph: {"n": torch.ones(1)}, welcome)
    return {"rules": dataclasses.replace(METHOD.rules, joining=joining)}


def accounted(account: Any) -> Any:
    return {"privacy": dataclasses.replace(METHOD.privacy, account=account)}


GRAPH = fgl.Graph(torch.ones(3, 2), torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([0, 0, 0]))
INBOX = fgl.federation.Inbox({0: {**plain(), "num_examples": torch.tensor(1)}}, 2, {0: plain()})


@pytest.mark.parametrize(("changed", "call", "error"), [
    ({"aggregate": far}, lambda m: m.aggregate(INBOX, {}), "state.*to grow"),
    ({"aggregate": listed}, lambda m: m.aggregate(INBOX, {}), "state"),
    ({"aggregate": stray}, lambda m: m.aggregate(INBOX, {}), r"clients from 0 to 1, .*\[7\]"),
    ({"aggregate": lambda *_: 3}, lambda m: m.aggregate(INBOX, {}), "aggregate to return"),
    ({"aggregate": lambda *_: (3, {})}, lambda m: m.aggregate(INBOX, {}), "outbox to be"),
    (welcomed(listed), lambda m: m.rules.joining.welcome(INBOX, {}), "state"),
    (
        welcomed(lambda *_: ({0: {"model": {"weight": X}}}, {})),
        lambda m: m.rules.joining.welcome(INBOX, {}),
        "model",
    ),
    (welcomed(stray), lambda m: m.rules.joining.welcome(INBOX, {}), "clients from 0 to 1"),
    (welcomed(lambda *_: 3), lambda m: m.rules.joining.welcome(INBOX, {}), "welcome to return"),
    (accounted(lambda *_: 3), lambda m: m.privacy.account(INBOX, {}), "state"),
    ({"send": lambda *_: ({}, 3)}, lambda m: m.send({}, {}, {}, GRAPH), "state"),
    ({"send": lambda *_: ({},)}, lambda m: m.send({}, {}, {}, GRAPH), "send to return"),
    ({"receive": lambda *_: ({}, {})}, lambda m: m.receive({}, {}, GRAPH), "params"),
    ({"deploy": lambda *_: {}}, lambda m: m.deploy({}, {}, GRAPH), "params"),
])  # fmt: skip
def test_what_a_method_returns_is_checked(changed: Any, call: Any, error: str) -> None:
    method = fgl.federation.checked(dataclasses.replace(METHOD, **changed))
    refuses(error, lambda: call(method), (TypeError, ValueError))
    fgl.federation.checked(METHOD).aggregate(INBOX, {})


@pytest.mark.parametrize("accept", [lambda message: None, lambda: None, lambda *, a, b, c: None])
def test_accept_takes_three_arguments(accept: Any) -> None:
    with pytest.raises(TypeError, match="accept to be a function of"):
        fgl.federation.checked(dataclasses.replace(METHOD, accept=accept))
    for right in (lambda *given: None, lambda a, b, c, d=1: None, print):
        fgl.federation.checked(dataclasses.replace(METHOD, accept=right))


def test_a_part_of_ones_own_has_any_shape_and_no_other_name() -> None:
    method = dataclasses.replace(METHOD, own=dataclasses.replace(METHOD.own, modules=("bias",)))
    right = {"weight": torch.ones(1, 2), "bias": torch.ones(7)}
    check_whole(method, right, GRAPH, "params")
    for wrong in ({**right, "more": X}, {"weight": X, "bias": X}, {"bias": X}, None):
        with pytest.raises((TypeError, ValueError), match="params"):
            check_whole(method, wrong, GRAPH, "params")
