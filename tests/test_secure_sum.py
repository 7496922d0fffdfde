"""The secure sum: fixed point, masks, shares; the transform against the plain mean."""

import hashlib
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from typing import Any

import pytest
import torch
from conformance import fedego, fedgl, known
from federations import refuses, ruled, same, sending
from torch import Tensor

import fgl
from fgl import Method, Training, methods
from fgl.federation import after
from fgl.federation.method.compose import unsealed
from fgl.privacy import DoesNotFit
from fgl.privacy.fixed_point import decode, encode, largest_weight, wrapped_sum
from fgl.transforms import clients_summed, robust, secure_sum, summed_rounds

pytest.importorskip("cryptography")
pytest.importorskip("Crypto")
from fgl.privacy import CannotUnmask, shares
from fgl.privacy import masks as parts
from fgl.transforms.secure_sum.client import Client, _encoded, _rows
from fgl.transforms.secure_sum.messages import Terms

F64 = torch.float64
WORDS = 2**64
LOST = pytest.mark.filterwarnings("ignore:Round .* lost in an earlier round")
SLOW = pytest.mark.slow
TEST = partial(pytest.warns, UserWarning, match="This run protects nothing")


def signed(value: int) -> int:
    """An integer modulo 2^64 as int64 has it."""
    return (value + WORDS // 2) % WORDS - WORDS // 2


# Fixed point


@pytest.mark.parametrize("bits", [0, 8, 28])
def test_fixed_point_is_its_naive_twin(bits: int) -> None:
    g = torch.Generator().manual_seed(bits)
    values = (torch.rand(4, 5, generator=g, dtype=F64) - 0.5) * 20
    weights = [3, 0, 7, 1]
    total = wrapped_sum(
        [encode(v, weight=w, bits=bits, bound=16) for v, w in zip(values, weights, strict=True)]
    )
    digits = [[round(Fraction(float(x)) * 2**bits) for x in row] for row in values]
    want = [sum(w * row[i] for w, row in zip(weights, digits, strict=True)) for i in range(5)]
    assert total.tolist() == want
    mean = decode(total, 11, bits=bits, bound=16, like=values)
    for got, exact in zip(mean.tolist(), want, strict=True):
        assert got == pytest.approx(float(Fraction(exact, 11 * 2**bits)), rel=1e-14)
    plain = torch.tensordot(torch.tensor(weights, dtype=F64), values, 1) / 11
    assert float((mean - plain).abs().max()) <= 0.5 * 2.0**-bits + 1e-14


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 8.01, -9.0, 1e38])
def test_what_does_not_fit_is_refused_and_does_not_wrap(value: float) -> None:
    with pytest.raises(DoesNotFit, match="at most 8 in size"):
        encode(torch.tensor([0.0, value], dtype=F64), bits=28, bound=8)


def test_counters_keep_their_digits_and_empty_tensors_their_shape() -> None:
    assert encode(torch.tensor([12345, -7]), weight=2, bits=28, bound=8).tolist() == [24690, -14]
    like = torch.zeros(2, dtype=torch.int64)
    assert decode(torch.tensor([25, -25]), 2, bits=28, bound=8, like=like).tolist() == [12, -12]
    empty = encode(torch.zeros(0, 3), bits=28, bound=8)
    assert decode(empty, 1, bits=28, bound=8, like=torch.zeros(1)).shape == (0, 3)


@pytest.mark.parametrize("bits", [0, 28, 48])
@pytest.mark.parametrize("number", [1, 10, 1000])
def test_the_largest_weights_and_values_do_not_wrap(bits: int, number: int) -> None:
    weight = largest_weight(number, bits=bits, bound=8)
    word = encode(torch.tensor([8.0, -8.0], dtype=F64), weight=weight, bits=bits, bound=8)
    assert abs(int(word[0])) * number < 2**63
    assert wrapped_sum([word] * number).tolist() == [number * int(word[0]), number * int(word[1])]


def test_a_sum_that_no_clients_can_have_is_refused() -> None:
    how: Any = {"bits": 4, "bound": 8, "like": torch.zeros(1)}
    assert decode(torch.tensor([8 * 16 * 3]), 3, **how).tolist() == [8.0]
    with pytest.raises(DoesNotFit):
        decode(torch.tensor([8 * 16 * 3 + 3]), 3, **how)


# The parts, without a federation


class Exchange:
    """All that happens in an exchange of clients with these words, by the pure functions."""

    def __init__(self, words: list[Tensor], threshold: int, seed: int = 0) -> None:
        g = torch.Generator().manual_seed(seed)
        self.draw: Any = lambda n: parts.as_bytes(
            torch.randint(256, (n,), generator=g, dtype=torch.uint8)
        )
        self.words, self.threshold, self.about = words, threshold, b"a test"
        self.secrets = [[self.draw(32) for _ in range(3)] for _ in words]
        self.keys = torch.stack(
            [parts.as_tensor(b"".join(map(parts.public_key, s[:2]))) for s in self.secrets]
        )

    def letters(self, row: int) -> Tensor:
        secrets = self.secrets[row]
        return parts.letters(row, secrets, self.keys, self.threshold, self.about, self.draw)

    def masked(self, row: int, here: Tensor) -> Tensor:
        return parts.masked(self.words[row], row, self.secrets[row], self.keys, here, self.about)

    def told(self, row: int, sealed: Tensor, here: Tensor, sent: Tensor) -> Tensor:
        seal = self.secrets[row][0]
        return parts.revealed(row, seal, self.keys, sealed[:, row], here, sent, self.about)

    def total(self, here: Tensor, sent: Tensor, telling: list[int]) -> Tensor:
        sealed = torch.stack([self.letters(row) for row in range(len(self.words))])
        came = [self.masked(row, here) for row in sent.nonzero().flatten().tolist()]
        told = {row: self.told(row, sealed, here, sent) for row in telling}
        secrets, _ = self.recovered(told, here, sent)
        return parts.unmasked(wrapped_sum(came), self.keys, sent, secrets, self.about)

    def recovered(self, told: Any, here: Tensor, sent: Tensor) -> Any:
        seeds = [parts.commitment(secrets[2], self.about) for secrets in self.secrets]
        committed = torch.stack([parts.as_tensor(each) for each in seeds])
        return parts.told_secrets(
            told, self.keys, here, sent, committed, self.threshold, self.about
        )


def some_words(number: int, count: int = 7, seed: int = 1) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randint(-(2**62), 2**62, (count,), generator=g) for _ in range(number)]


def flags(number: int, without: tuple[int, ...] = ()) -> Tensor:
    return torch.tensor([row not in without for row in range(number)])


def test_only_whole_exchanges_have_a_line() -> None:
    for count, lines_ in ((3, 0), (4, 1), (7, 1), (8, 2), (9, 2)):
        rounds = [fgl.federation.Round(k, [0], padding=1 - k / 9, bytes_up=1) for k in range(count)]
        summed = summed_rounds(rounds)
        assert [(each.padding, each.bytes_up) for each in summed] == [
            (1 - 4 * k / 9, 4) for k in range(lines_)
        ]


def test_a_client_knows_its_own_keys_alone() -> None:
    secrets = {name: parts.as_tensor(bytes([k]) * 32) for k, name in enumerate(("seal", "mask"), 1)}
    pair = b"".join(parts.public_key(parts.as_bytes(each)) for each in secrets.values())
    own = parts.as_tensor(pair)
    assert _rows(torch.stack([own * 0, own, own * 0 + 255]), secrets) == [1]


def test_each_direction_and_exchange_has_a_key_of_its_own() -> None:
    made = Exchange(some_words(2), 1)
    seals = [own[0] for own in made.secrets]

    def key(own: int, writer: int, reader: int, about: bytes) -> bytes:
        return parts._sealing_key(seals[own], made.keys, writer, reader, own=own, about=about)

    for writer, reader in ((0, 1), (1, 0)):
        assert key(0, writer, reader, b"a") == key(1, writer, reader, b"a")
    keys = [key(0, 0, 1, b"a"), key(0, 1, 0, b"a"), key(0, 0, 1, b"b"), key(0, 1, 0, b"b")]
    assert len({*keys}) == 4


def test_letters_are_bound_to_all_terms() -> None:
    keys = torch.arange(128, dtype=torch.uint8).view(2, 64)
    signed = [fgl.transforms.Signatures({0: bytes(32), 1: bytes([k]) * 32}) for k in (1, 2)]
    terms: list[dict[str, Any]] = [
        *({"threshold": 3, **more} for more in ({}, {"bits": 20}, {"bound": 8.0})),
        *({"threshold": 3, "equally": ("a",), "signed": each} for each in (None, *signed)),
        *({"threshold": 4, "colluders": k, "signed": signed[0]} for k in (1, 2)),
    ]
    each = [Terms(**how).about(own) for how in terms for own in (keys, keys.flip(0))]
    assert len({*each}) == len(each) and {len(own) for own in each} == {32}


@pytest.mark.parametrize(("lost", "kind"), [((), parts.SECRET), ((1,), parts.SEED)])
def test_a_share_of_another_kind_is_not_used_and_no_lie(lost: Any, kind: int) -> None:
    made, here = Exchange(some_words(4), 2), flags(4)
    sealed, sent = torch.stack([made.letters(row) for row in range(4)]), flags(4, lost)
    told = {row: made.told(row, sealed, here, sent) for row in (0, 2, 3)}
    told[0][1, 0] = kind
    told[0][1, 1:] = 7
    secrets, false = made.recovered(told, here, sent)
    which = [1 if row in lost else 2 for row in range(4)]
    assert secrets == {row: made.secrets[row][which[row]] for row in range(4)} and false == {}


@pytest.mark.parametrize(("number", "threshold", "silent", "lost", "away"), [
    (1, 1, (), (), ()), (2, 2, (), (), ()), (3, 2, (), (), (1,)), (4, 3, (0,), (), ()),
    (4, 2, (), (1,), (3,)), (5, 3, (4,), (0,), ()), (7, 4, (2,), (0, 6), ()),
    (10, 6, (1, 3), (9,), (0,)),
])  # fmt: skip
def test_the_sum_is_that_of_pythons_integers(
    number: int, threshold: int, silent: Any, lost: Any, away: Any
) -> None:
    """`silent` gave no letters, `lost` did not send, `away` sent and told no shares."""
    made = Exchange(some_words(number), threshold)
    here, sent = flags(number, silent), flags(number, (*silent, *lost))
    telling = [row for row in range(number) if sent[row] and row not in away]
    rows = sent.nonzero().flatten().tolist()
    want = [signed(sum(int(made.words[row][i]) for row in rows)) for i in range(7)]
    assert made.total(here, sent, telling).tolist() == want


def test_the_masks_are_their_naive_twin() -> None:
    """The same words by Python's integers, pair by pair."""
    made, here, about = Exchange(some_words(3, 4), 2), flags(3), b"a test"
    for row in range(3):
        want = [int(word) for word in made.words[row]]
        own = parts.mask(made.secrets[row][2], 4).tolist()
        want = [a + b for a, b in zip(want, own, strict=True)]
        for other in {0, 1, 2} - {row}:
            pair = b" mask %d %d" % (min(row, other), max(row, other))
            public = parts.public_key(made.secrets[other][1])
            seed = parts.agreed_key(made.secrets[row][1], public, about + pair)
            sign = 1 if row < other else -1
            stream = parts.mask(seed, 4).tolist()
            want = [a + sign * b for a, b in zip(want, stream, strict=True)]
        assert made.masked(row, here).tolist() == [signed(word) for word in want]


def test_what_the_server_sees_of_one_client_tells_nothing_and_the_masks_of_pairs_cancel() -> None:
    count = 500
    made, here = Exchange([torch.zeros(count, dtype=torch.int64)] * 2, 2), flags(2)
    one, two = made.masked(0, here), made.masked(1, here)
    for seen in (one, two):
        assert int((seen == 0).sum()) == 0
        bits = torch.tensor([bin(int(word) % WORDS).count("1") for word in seen])
        assert abs(float(bits.double().mean()) - 32) < 1  # of 64; 2.8 standard deviations are .5
    own = [parts.mask(secrets[2], count) for secrets in made.secrets]
    assert wrapped_sum([one, two], minus=own).tolist() == [0] * count
    # Without its own mask, or without that of the pair, a client is still hidden.
    assert int((wrapped_sum([one], minus=own[:1]) == 0).sum()) == 0
    other = Exchange([torch.zeros(count, dtype=torch.int64)] * 2, 2, seed=5)
    assert int((other.masked(0, here) == one).sum()) == 0


def test_a_client_tells_one_secret_of_another_and_never_both() -> None:
    made, here, sent = Exchange(some_words(4), 3), flags(4), flags(4, (2,))
    sealed = torch.stack([made.letters(row) for row in range(4)])
    told = made.told(0, sealed, here, sent)
    assert told[:, 0].tolist() == [parts.SEED, parts.SEED, parts.SECRET, parts.SEED]
    assert told.shape == (4, 33)  # room for one share of each
    absent = made.told(0, sealed, flags(4, (2,)), sent)
    assert absent[2].tolist() == [0] * 33
    refuses("among those with letters", lambda: made.told(0, sealed, flags(4, (2,)), here))


def test_fewer_shares_than_the_threshold_give_nothing() -> None:
    secret = bytes(range(32))
    pieces = shares.split(secret, 3, 5)
    for rows in ((0, 1, 2), (4, 2, 0), (1, 3, 4)):
        assert shares.combine({row: pieces[row] for row in rows}) == secret
    assert shares.combine({row: pieces[row] for row in (0, 1)}) != secret
    made, here = Exchange(some_words(4), 3), flags(4)
    with pytest.raises(CannotUnmask, match="seed of row 0: Expected 3 shares of it, but got 2"):
        made.total(here, here, [0, 1])


def test_malformed_letters_and_shares_are_refused() -> None:
    made, here, sent = Exchange(some_words(4), 3), flags(4), flags(4, (3,))
    sealed = torch.stack([made.letters(row) for row in range(4)])
    spoiled = sealed.clone()
    spoiled[1, 0, 20] ^= 1  # one bit of a letter
    assert made.told(0, spoiled, here, sent)[1].tolist() == [0] * 33
    swapped = sealed.clone()
    swapped[:, 0] = sealed[:, 1]  # the letters to somebody else
    assert made.told(0, swapped, here, sent)[:, 0].tolist() == [0] * 4
    of_another = Exchange(some_words(4), 3)
    of_another.secrets, of_another.keys = made.secrets, made.keys
    of_another.about = b"another exchange"
    assert of_another.told(0, sealed, here, sent)[:, 0].tolist() == [0] * 4
    told = {row: made.told(row, sealed, here, sent) for row in (0, 1, 2)}
    told[1][3, 5] ^= 1  # a share of the lost client's key
    with pytest.raises(CannotUnmask, match="key of row 3: .* got 3 with false ones"):
        made.recovered(told, here, sent)


def test_a_key_of_low_order_is_refused() -> None:
    with pytest.raises(ValueError):
        parts.agreed_key(bytes(range(32)), bytes(32), b"")


# The transform


def tiny(size: int = 3) -> Method:
    """A method whose model is a line, trained by its own data alone."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Linear(size, 2).double()

    def loss(params: Any, graph: Any, context: Any) -> Tensor:
        out = graph.x @ params["weight"].T + params["bias"]
        return ((out - 1).square() * graph.node_mask[:, None]).sum() / graph.num_nodes

    return fgl.fedavg(model, loss=loss, train=Training(num_steps=2))


@cache
def lines(number: int) -> list[fgl.Graph]:
    """Clients with 1, 2, 3, ... nodes."""
    edges = torch.zeros(2, 0, dtype=torch.int64)
    g = torch.Generator().manual_seed(3)
    return [fgl.Graph(torch.randn(k + 1, 3, generator=g, dtype=F64), edges) for k in range(number)]


def last_digit(got: Any, want: Any, bits: int) -> None:
    """Two models that are equal up to half of the fixed point's last digit."""
    assert list(got) == list(want)
    for name, value in want.items():
        assert float((got[name] - value).abs().max()) <= 0.5 * 2.0**-bits + 1e-13


@pytest.mark.parametrize(
    ("number", "bits"),
    [
        pytest.param(number, bits, marks=() if bits == 28 and number in (2, 3, 5, 10) else SLOW)
        for number in range(2, 11)
        for bits in (6, 28)
    ],
)
def test_equal_to_the_plain_mean_to_the_last_digit(number: int, bits: int) -> None:
    method, threshold = tiny(), number // 2 + 1
    summed = secure_sum(method, threshold=threshold, bits=bits)
    got = fgl.run(summed, lines(number), num_rounds=4, watch=clients_summed)
    want = fgl.run(method, lines(number), num_rounds=1)
    last_digit(got.outbox[0]["model"], want.outbox[0]["model"], bits)
    assert got.history[-1].metrics == {"clients_summed": number}
    assert same(got.client_states, {k: {} for k in range(number)})


def ran(number: int, threshold: int, participation: float = 1.0, **how: Any) -> Any:
    method = secure_sum(tiny(), threshold=threshold, **how)
    how = {"participation": participation, "callbacks": [lambda *_: True]}  # of one round
    return fgl.run(method, lines(number), num_rounds=4, **how)


def test_thresholds_and_digits_that_can_have_no_sum_are_refused() -> None:
    """At once: no round could ever count."""
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: secure_sum(tiny(), threshold=1), "threshold to be an integer >= 2, but got 1"),
        (lambda: ran(1, 2), "at least 2 participants, as secure_sum .* got 1 of 1"),
        (
            lambda: fgl.run(secure_sum(tiny(), threshold=3), lines(4), num_rounds=5),
            "to be a multiple of 4, .* of secure_sum, but got 5",
        ),
        (lambda: ran(4, 2), "more than half of the 4 clients, but got 2"),
        (lambda: ran(3, 4), "at least 4 participants, as secure_sum .* got 3 of 3"),
        (lambda: ran(3, 3, 0.6), "at least 3 participants, as secure_sum .* got 2 of 3"),
        (lambda: secure_sum(tiny(), threshold=3, bits=48, bound=2.0**14), "3 clients, .*16384"),
        (lambda: ran(5, 4, bits=48, bound=2.0**12), r"^Round 0, server, .*2\^62 / 5 .*4096"),
    ]
    for call, text in wrong:
        with pytest.raises(ValueError, match=text):
            call()
    assert len(ran(4, 4, bits=48, bound=2.0**12).history) == 1


def gone(*pairs: tuple[int, int]) -> Callable[[int, int], bool]:
    return lambda index, client: (index, client) in pairs


@pytest.mark.few
@pytest.mark.parametrize("at_once", [1, pytest.param("all", marks=SLOW)])
@pytest.mark.parametrize(
    ("dropouts", "absent"),
    [
        (gone((0, 1)), [1]),  # before its keys
        (gone((1, 1)), [1]),  # before its letters
        (gone((2, 1)), [1]),  # after its letters: others give its key
        (gone((3, 1)), []),  # after sending: it is in the sum
        (gone((0, 0), (2, 4)), [0, 4]),
        (gone((2, 0), (3, 4)), [0]),
        (gone((1, 0), (2, 1), (3, 2)), [0, 1]),
    ],
)
def test_dropouts_before_and_after_sending(dropouts: Any, absent: Any, at_once: Any) -> None:
    method = tiny()
    summed = secure_sum(method, threshold=4)
    how: Any = {"clients_at_once": at_once}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Round .* exchange")  # they come back too late
        got = fgl.run(summed, lines(7), num_rounds=8, dropouts=dropouts, **how)
    first = fgl.run(method, lines(7), num_rounds=2, dropouts=lambda i, k: i == 0 and k in absent)
    last_digit(got.outbox[0]["model"], first.outbox[0]["model"], 27)  # two sums
    one, two = summed_rounds(got.history)
    for whole, rounds in ((one, got.history[:4]), (two, got.history[4:8])):
        assert whole.seconds == pytest.approx(sum(each.seconds for each in rounds))
    assert (sorted(one.dropped), sorted(two.dropped)) == (absent, [])


@LOST
@pytest.mark.filterwarnings("ignore:Round .* of this exchange, but got keys")
def test_who_is_lost_is_no_fault_where_all_faults_raise() -> None:
    away = gone((0, 1), (1, 2))
    method = secure_sum(tiny(), threshold=4)
    got = fgl.run(method, lines(7), num_rounds=4, dropouts=away, strict=True)
    assert sorted(summed_rounds(got.history)[0].dropped) == [1, 2]


@pytest.mark.parametrize(
    ("index", "what"), list(enumerate(["keys", "letters", "masked uploads", "shares"]))
)
def test_under_the_threshold_everybody_keeps_the_old_model(index: int, what: str) -> None:
    method, summed = tiny(), secure_sum(tiny(), threshold=3)
    leaving = gone((4 + index, 0), (4 + index, 1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = fgl.run(summed, lines(4), num_rounds=12, dropouts=leaving, watch=clients_summed)
    said = [str(w.message) for w in caught if "Secure sum" in str(w.message)]
    assert len(said) == 1 and what in said[0]
    assert "of at least 3 clients, but got 2: everybody keeps" in said[0]
    want = fgl.run(method, lines(4), num_rounds=2)
    last_digit(got.outbox[0]["model"], want.outbox[0]["model"], 27)
    ends = [record.metrics["clients_summed"] for record in got.history[3::4]]
    assert ends == [4, 0, 4]


@pytest.mark.parametrize("index", range(4))
def test_a_round_without_any_upload_ends_the_exchange_and_not_the_next(index: int) -> None:
    """With other participants in each exchange, the two must begin together."""
    summed = secure_sum(tiny(), threshold=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = fgl.run(
            summed, lines(7), num_rounds=12, participation=0.6, seed=1,
            dropouts=lambda i, k: i == 4 + index, watch=clients_summed,
        )  # fmt: skip
    ends = [record.metrics["clients_summed"] for record in got.history[3::4]]
    assert ends == [4, 0, 4]
    assert "phase" not in got.outbox[0]


@pytest.mark.filterwarnings("ignore:Secure sum")
@pytest.mark.parametrize(("num_rounds", "ends"), [(4, 3), (9, 7), (40, 10)])
def test_a_run_whose_exchanges_all_come_to_nothing_raises(
    num_rounds: int, ends: int, tmp_path: Any
) -> None:
    """Keys and letters count, but nobody ever sends an upload: at sites whose training raises."""
    method = secure_sum(tiny(), threshold=3)

    def lost(index: int, client: int) -> bool:
        return index % 4 >= 2

    said = f"Round {ends}: no upload counted in a round of the exchange: "
    with pytest.raises(RuntimeError, match=said):
        fgl.run(method, lines(4), num_rounds=num_rounds, dropouts=lost, checkpoint=tmp_path)
    once = fgl.run(
        method, lines(4), num_rounds=8, dropouts=lambda index, client: index >= 6
    )  # the first exchange had its sum
    assert once.history[-1].is_empty


def test_a_task_whose_clients_weigh_the_same_composes() -> None:
    """Its accept looks at the weights alone, which a sum bounds by itself."""
    assert secure_sum(known("ego", 0.0, torch.float32).fedavg, threshold=3).rules.silent


def refuse(message: Any, client: int, state: Any) -> None:
    """An accept that looks at an upload."""


def test_what_it_switches_off_is_refused_together() -> None:
    method = ruled(replace(robust(tiny(), fgl.aggregate.robust.median), accept=refuse), exchange=2)
    with pytest.raises(ValueError, match="a server needs means|whose server needs means") as raised:
        secure_sum(method, threshold=2)
    said = str(raised.value)
    assert "its accept looks at each upload" in said
    assert "its own exchange takes 2 rounds" in said
    assert "its server reads the whole inbox" in said


WHOLE = "reads the whole inbox"
REFUSED: list[tuple[Any, str, str]] = [
    (lambda t: methods.gcfl_plus(t.fedavg), "nodes", f"gcfl_plus.* {WHOLE}"),
    (lambda t: methods.ditto(t.fedavg), "nodes", WHOLE),
    (lambda t: methods.s2fgl(t.fedavg), "nodes", r"reads \['prototypes', 'counts'\] of each"),
    (lambda t: methods.fedsage_plus(t.fedavg), "generators", "its own exchange takes 3 rounds"),
    (fedgl, "overlapping", "node_id"),
    (fedego, "ego", r"reads \['embeddings', 'labels'\] of each upload"),
]


@pytest.mark.parametrize(("build", "task", "said"), REFUSED)
def test_methods_that_need_more_than_means_are_refused(build: Any, task: str, said: str) -> None:
    refuses(said, lambda: secure_sum(build(known(task, 0.0, F64)), threshold=3))


def test_parts_that_are_not_covered_are_refused_by_name() -> None:
    method = sending(tiny(), lambda message, own: {**message, "histogram": torch.ones(2)})
    with pytest.raises(ValueError, match=r"exchange's upload to be .* but got \['hist"):
        fgl.run(secure_sum(method, threshold=2), lines(2), num_rounds=4)


def changed(method: Method, change: Callable[[Any], Any], who: int) -> Method:
    """The method, one of whose clients (known by its size) sends something else."""
    return sending(method, lambda sent, own: change(sent) if own.num_nodes == who + 1 else sent)


@LOST
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_a_client_that_diverged_says_so_and_the_others_go_on(value: float) -> None:
    def spoil(message: Any) -> Any:
        return {**message, "model": {k: v * value for k, v in message["model"].items()}}

    bad = secure_sum(changed(tiny(), spoil, 2), threshold=3)
    with pytest.warns(UserWarning, match="client 2: Expected values that are finite and at most"):
        got = fgl.run(bad, lines(4), num_rounds=4)
    want = fgl.run(tiny(), lines(4), num_rounds=1, dropouts=lambda index, client: client == 2)
    last_digit(got.outbox[0]["model"], want.outbox[0]["model"], 28)
    assert sorted(summed_rounds(got.history)[0].dropped) == [2]


def test_a_wild_sum_is_refused_as_a_whole() -> None:
    """Who masks something else than it was told cannot be found; the sum shows it."""

    def wild(message: Any) -> Any:
        masked = "model/bias" in message["secure"]
        secure = {k: v + 2**55 * masked for k, v in message["secure"].items()}
        return {**message, "secure": secure}

    bad = changed(secure_sum(tiny(), threshold=3), wild, 2)
    with pytest.warns(UserWarning, match="a sum of examples that clients can have|at most 1024"):
        got = fgl.run(bad, lines(4), num_rounds=4, watch=clients_summed)
    assert same(dict(got.outbox[0]["model"]), tiny().initial())
    assert got.history[-1].metrics == {"clients_summed": 0}


@LOST
def test_too_many_examples_do_not_wrap() -> None:
    def heavy(message: Any) -> Any:
        return {**message, "num_examples": torch.tensor(2**40)}

    with pytest.warns(UserWarning, match="client 1: .* the client says that its own are not"):
        got = fgl.run(secure_sum(changed(tiny(), heavy, 1), threshold=2), lines(3), num_rounds=4)
    assert sorted(got.history[2].dropped) == [1]


def test_a_number_of_examples_that_is_none_is_refused_at_the_client() -> None:
    message: Any = {"model": {"w": torch.ones(2)}}
    for given in (-1, 1.5, math.nan, math.inf, [1, 2], []):
        examples = torch.tensor(given, dtype=F64)
        with pytest.raises(ValueError, match="num_examples to be a whole number >= 0"):
            _encoded({**message, "num_examples": examples}, Terms(2), 3)
    for given in (torch.tensor(3), torch.tensor([3.0])):
        got = _encoded({**message, "num_examples": given}, Terms(2, bits=4), 3)
        assert got["model/w"].tolist() == [48, 48] and int(got["num_examples"]) == 3
    more = {**message, "num_examples": torch.tensor(3), "control": {"w": torch.ones(2)}}
    got = _encoded(more, Terms(2, equally=("control",), bits=4), 3)
    assert got["control/w"].tolist() == [16, 16]  # without a weight


def test_a_context_that_is_no_dict_is_refused() -> None:
    _, asked = stages()
    other = replace(tiny(), receive=lambda message, state, own: (message["model"], torch.ones(1)))
    with pytest.raises(TypeError, match="context of a secure sum to be a dict, but got Tensor"):
        Client(other, Terms(2), bytes).receive(*asked[0], lines(1)[0])


def test_clients_tell_neither_losses_nor_numbers_of_examples() -> None:
    none = lines(2)[1].replace(train_mask=torch.zeros(2).bool())
    got = fgl.run(secure_sum(tiny(), threshold=3), [*lines(4), none], num_rounds=4)
    want = fgl.run(tiny(), [*lines(4), none], num_rounds=1)
    assert want.history[0].zero_weight == [4]
    last_digit(got.outbox[0]["model"], want.outbox[0]["model"], 28)
    for record in got.history:
        assert (record.zero_weight, math.isnan(record.loss)) == ([], True)


def test_nobody_has_an_example() -> None:
    none = lines(2)[1].replace(train_mask=torch.zeros(2).bool())
    with pytest.warns(UserWarning, match="0 from all: they keep the old model"):
        got = fgl.run(secure_sum(tiny(), threshold=2), [none] * 3, num_rounds=4)
    assert same(dict(got.outbox[0]["model"]), tiny().initial())
    assert "phase" not in got.outbox[0]


def stages(**more: Any) -> tuple[Method, list[tuple[Any, Any]]]:
    """A secure sum, and client 0's (message, state) before each of its four rounds."""
    with TEST():
        summed = secure_sum(tiny(), threshold=2, unprotected=True, **more)
    asked: list[tuple[Any, Any]] = []

    def receive(message: Any, state: Any, own: fgl.Graph) -> Any:
        if own.num_nodes == 1:
            asked.append((message, state))
        return summed.receive(message, state, own)

    fgl.run(replace(unsealed(summed), receive=receive), lines(3), num_rounds=4)
    return summed, asked


def sends(method: Method, message: Any, state: Any) -> Any:
    own = lines(3)[0]
    params, context = method.receive(message, state, own)
    told = {"num_steps": torch.tensor(0), "losses": torch.zeros(0)}
    return method.send(params, {**context, "trained": told}, state, own)


def test_a_client_answers_each_question_once() -> None:
    method, asked = stages()
    after = [sends(method, *each)[1] for each in asked]
    for phase in (1, 2, 3):
        with pytest.raises(ValueError, match="a client tells each thing once"):
            sends(method, asked[phase][0], {**after[phase], "told": after[0]["told"]})
    last, known = asked[3]
    other = {**last, "secure": {"sent": torch.tensor([True, True, False])}}
    assert sends(method, other, known)[0]["secure"]["shares"][:, 0].tolist() == [1, 1, 2]
    with pytest.raises(ValueError, match="a client tells each thing once"):
        sends(method, other, {**after[3], "told": after[0]["told"]})  # not the other share too
    for sent in ([True, False, False], [False, True, True]):
        few = {**last, "secure": {"sent": torch.tensor(sent)}}
        with pytest.raises(ValueError, match="at least 2 clients, this one among them"):
            sends(method, few, known)


def test_a_client_looks_at_the_keys() -> None:
    method, asked = stages()
    message, state = asked[1]
    keys = message["secure"]["keys"]
    for wrong, said in (
        (keys[[0, 0, 1]], "one's own once, but got 2"),
        (keys[[0, 1, 1]], "keys of its own, but got two alike"),
        (keys[[0, 1, 2, 0]], "more than half of the 4"),
    ):
        with pytest.raises(ValueError, match=said):
            sends(method, {**message, "secure": {"keys": wrong}}, state)
    answer, after = sends(method, {**message, "secure": {"keys": keys[1:]}}, state)
    assert answer["phase"] == 1 and not answer["secure"]  # it tells nothing, and is asked no more
    with pytest.raises(ValueError, match="a client tells each thing once|first message"):
        sends(method, *((asked[1][0], after)))


def test_of_its_letter_to_itself_a_client_sends_a_commitment_alone() -> None:
    method, asked = stages()
    answer, kept = sends(method, *asked[1])
    letters, exchange = answer["secure"]["letters"], kept["secure"]
    about = Terms(2).about(exchange["keys"])
    said = hashlib.sha256(b"fgl secure sum 1 commits to " + about)
    said.update(parts.as_bytes(exchange["seed"]))
    assert parts.as_bytes(letters[0]) == said.digest() + bytes(letters.shape[1] - 32)
    assert letters[1:, 32:].any(1).all()


def test_a_server_looks_at_the_keys() -> None:
    """Client 2 sends what client 1 sent: nothing is summed, and nobody is asked for letters."""
    first: dict[str, Any] = {}

    def twice(message: Any, own: fgl.Graph) -> Any:
        same_keys = message["phase"] == 0 and own.num_nodes in (2, 3)
        return first.setdefault("keys", message) if same_keys else message

    method = sending(secure_sum(tiny(), threshold=2), twice)
    with pytest.warns(UserWarning, match="every client to have keys of its own, but got two alike"):
        got = fgl.run(method, lines(3), num_rounds=4)
    assert same(dict(got.outbox[0]["model"]), tiny().initial())


def test_who_is_not_in_the_exchange_is_refused() -> None:
    method = secure_sum(tiny(), threshold=2)
    known: Any = {"phase": torch.tensor(2), "clients": torch.tensor([0, 2, 3])}
    known["here"] = torch.tensor([True, False, True])
    for client, said in ((0, "its own are not"), (1, "Client 1 is not"), (2, "Client 2 is not")):
        with pytest.raises(ValueError, match=said):
            method.accept({"phase": torch.tensor(2), "secure": {}}, client, {"secure": known})


def spoiled(tensor: Tensor, how: str) -> Tensor:
    """What a hostile client makes of a tensor that it should send."""
    if how == "zeros":
        return torch.zeros_like(tensor)
    if how == "drawn":
        return torch.randint_like(tensor, 200)
    return tensor.flatten().flip(0).view_as(tensor)


@pytest.mark.few
@pytest.mark.parametrize("how", [pytest.param("zeros", marks=SLOW), "drawn", "turned"])
@pytest.mark.parametrize("phase", range(4))
@pytest.mark.filterwarnings("ignore:Secure sum", "ignore:Round .* client 3")
def test_a_hostile_client_can_stop_rounds_but_not_the_run(phase: int, how: str) -> None:
    answers: list[int] = []

    def spoil(message: Any) -> Any:
        answers.append(int(message["phase"]))
        if len(answers) > 4 or answers[-1] != phase:
            return message
        return {**message, "secure": {k: spoiled(v, how) for k, v in message["secure"].items()}}

    method = changed(secure_sum(tiny(), threshold=3), spoil, 3)
    got = fgl.run(method, lines(4), num_rounds=8, watch=clients_summed)
    want = fgl.run(tiny(), lines(4), num_rounds=1).outbox[0]["model"]
    assert got.history[-1].metrics == {"clients_summed": 4}  # the second exchange is an honest one
    for name, value in got.outbox[0]["model"].items():  # type: ignore[union-attr]
        assert float((value - want[name]).abs().max()) < 1  # type: ignore[index]
    assert got.history[3].metrics["clients_summed"] in ((3,) if phase == 0 else (0, 3, 4))
    assert all(set(record.dropped) <= {3} for record in got.history)  # the others keep their place


BYTE = torch.zeros(64, dtype=torch.uint8)
MALFORMED: list[tuple[int, Any, str]] = [
    (0, {"model": {}}, "an answer of a secure sum, but got keys"),
    (0, {"phase": torch.tensor(0), "secure": BYTE}, "an answer of a secure sum"),
    (0, {"phase": torch.tensor(0.0), "secure": {}}, "phase to be an int64 scalar"),
    (0, {"phase": torch.tensor([0]), "secure": {}}, "phase to be an int64 scalar"),
    (0, {"phase": torch.tensor(9), "secure": {}}, "Expected keys of this .* but got phase 9"),
    (0, {"phase": torch.tensor(1), "secure": {}}, "Expected keys of this exchange, but got lett"),
    (0, {"phase": torch.tensor(4), "secure": {}}, "lost in an earlier round"),
    (0, {"phase": torch.tensor(0), "secure": {}}, "Expected 'keys', but got"),
    (0, {"phase": torch.tensor(0), "secure": {"keys": BYTE[1:]}}, r"of shape \[64\]"),
    (0, {"phase": torch.tensor(0), "secure": {"keys": BYTE.long()}}, "uint8"),
    (0, {"phase": torch.tensor(0), "secure": {"keys": BYTE}}, "computing shared key"),
    (0, {"phase": torch.tensor(0), "secure": {"keys": BYTE + 9}}, "one key twice"),
    (1, {"phase": torch.tensor(1), "secure": {}}, "the list of keys is without its own"),
    (1, {"phase": torch.tensor(1), "secure": {"letters": BYTE}}, r"of shape \[3, 92\]"),
    (2, {"phase": torch.tensor(2), "secure": {}}, "the client says that its own are not"),
    (2, {"phase": torch.tensor(2), "secure": {"model/w": BYTE}}, "but got 'model/w'"),
    (2, {"phase": torch.tensor(2), "secure": {"model/bias": BYTE}}, r"int64 of shape \[2\]"),
    (2, {"phase": torch.tensor(2), "secure": {"num_examples": BYTE.long()}}, r"of shape \[\]"),
    (2, {"phase": torch.tensor(2), "secure": {"num_examples": BYTE.long()[0]}}, "but got no"),
    (2, {"phase": torch.tensor(2), "secure": {"more": BYTE.long()}}, "but got 'more'"),
    (3, {"phase": torch.tensor(3), "secure": {"shares": BYTE}}, r"of shape \[3, 33\]"),
]


@pytest.mark.parametrize(("phase", "message", "said"), MALFORMED)
def test_malformed_uploads_are_refused(phase: int, message: Any, said: str) -> None:
    method = secure_sum(tiny(), threshold=2)
    state: Any = {"secure": {"phase": torch.tensor(phase), "clients": torch.arange(3)}}
    refuses(said, lambda: method.accept(message, 0, state))


def ragged(sizes: list[int]) -> Method:
    """A method whose clients send one more tensor, of a size of their own."""

    def more(message: Any, own: fgl.Graph) -> Any:
        return {**message, "more": {"w": torch.ones(sizes[own.num_nodes - 1])}}

    def unchanged(outbox: Any, new: Any, means: Any, state: Any) -> Any:
        return outbox, new

    method = sending(tiny(), more)
    return replace(method, aggregate=after(method.aggregate, unchanged, equally=("more",)))


@LOST
def test_ragged_tensors_are_refused() -> None:
    with pytest.raises(ValueError, match="what is summed cannot be ragged"):
        fgl.run(secure_sum(ragged([1, 2, 3]), threshold=2), lines(3), num_rounds=4)
    with pytest.warns(UserWarning, match=r"clients \[2\] sent .* they are left out"):
        got = fgl.run(secure_sum(ragged([1, 1, 2]), threshold=2), lines(3), num_rounds=4)
    want = fgl.run(tiny(), lines(3), num_rounds=1, dropouts=lambda index, client: client == 2)
    last_digit(got.outbox[0]["model"], want.outbox[0]["model"], 28)
