"""The signed mode of the secure sum: the same sums in five rounds, keys and their files."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from federations import refuses, sending

import fgl
from fgl import Method
from fgl.transforms import clients_summed, secure_sum, summed_rounds

pytest.importorskip("cryptography")
pytest.importorskip("Crypto")
from lying_server import all_keys, lines, own_models, secret_of

from fgl.privacy.signatures import read_private, read_public
from fgl.transforms import Signatures
from fgl.transforms.secure_sum.messages import Terms

LOST = pytest.mark.filterwarnings("ignore:Round .* lost in an earlier round")


def signed(number: int, **how: Any) -> Method:
    return secure_sum(own_models(), **{"threshold": number - 1, "signed": all_keys(number), **how})


def like(got: Any, want: Any) -> None:
    """Two models that are equal up to the fixed point's last digit."""
    for name, value in want.outbox[0]["model"].items():
        assert float((got.outbox[0]["model"][name] - value).abs().max()) < 2.0**-28


def gone(*pairs: tuple[int, int]) -> Callable[[int, int], bool]:
    return lambda index, client: (index, client) in pairs


@pytest.mark.parametrize("at_once", [1, "all"])
@LOST
def test_signed_sums_are_the_plain_means(at_once: Any) -> None:
    """The second exchange loses a client in each round where one can be lost."""
    method, away = signed(7, threshold=5), gone((7, 1), (8, 2))
    assert (method.rules.exchange, method.rules.silent) == (5, True)
    got = fgl.run(
        method, lines(7), num_rounds=10, dropouts=away, watch=clients_summed,
        clients_at_once=at_once,
    )  # fmt: skip
    want = fgl.run(own_models(), lines(7), num_rounds=2, dropouts=gone((1, 1)))
    like(got, want)
    one, two = summed_rounds(got.history, method.rules.exchange)
    assert (one.dropped, list(two.dropped)) == ({}, [1])
    assert [one.metrics, two.metrics] == [{"clients_summed": 7}, {"clients_summed": 6}]
    assert all(not got.client_states[k] for k in range(7) if k not in (1, 2))
    assert set(got.outbox[0]) == {"model"}


@pytest.mark.few
@pytest.mark.parametrize("index", range(5))
@LOST
@pytest.mark.filterwarnings("ignore:Round .* of this exchange, but got keys")
def test_too_few_clients_in_a_round_keep_the_old_model(index: int) -> None:
    method = signed(5)
    what = ("keys", "letters", "masked uploads", "signatures", "shares")[index]
    with pytest.warns(UserWarning, match=f"{what} of at least 4 clients, but got 3: everybody"):
        got = fgl.run(
            method, lines(5), num_rounds=10, dropouts=gone((index, 1), (index, 2)),
            watch=clients_summed,
        )  # fmt: skip
    assert [each.metrics["clients_summed"] for each in got.history[4::5]] == [0, 5]


@pytest.mark.parametrize(("phase", "away"), [(0, True), (5, False)])
@LOST
@pytest.mark.filterwarnings("ignore:Round .* of this exchange, but got keys")
def test_a_false_signature_costs_its_client_the_round(phase: int, away: bool) -> None:

    def forge(message: Any, own: fgl.Graph) -> Any:
        if own.num_nodes != 3 or message["phase"] != phase:
            return message
        secure = message["secure"]
        return {**message, "secure": {**secure, "signature": secure["signature"] ^ 1}}

    with pytest.warns(UserWarning, match="client 2: Expected the signature of client 2 under"):
        got = fgl.run(sending(signed(5), forge), lines(5), num_rounds=5, watch=clients_summed)
    assert got.history[-1].metrics == {"clients_summed": 4 if away else 5}


def test_who_has_another_key_is_refused() -> None:
    """At the client, if it has no place in the list; at the server, if another key has it."""
    stranger = Signatures(all_keys(5).public, bytes([99]) * 32)
    refuses("own to be the key of a client in public", lambda: stranger.number_of(None))
    with pytest.raises(ValueError, match="to have its own key, but got none"):
        Signatures(all_keys(5).public).number_of(None)
    everybody = secure_sum(own_models(), threshold=4, signed=stranger)
    with pytest.raises(ValueError, match="Expected the signature of client 0"):
        fgl.run(everybody, lines(5), num_rounds=5, strict=True)


@pytest.mark.parametrize(("number", "threshold", "follows", "lies"), [
    (5, 3, 1, None), (5, 4, 2, 2), (10, 6, 4, None), (10, 7, 5, 3), (10, 9, 7, 7),
    (30, 20, 18, None), (30, 21, 19, 11),
])  # fmt: skip
def test_table_of_colluders(number: int, threshold: int, follows: int, lies: int | None) -> None:
    secure_sum(own_models(), threshold=threshold, colluders=follows)
    with pytest.raises(ValueError, match="for 2 honest clients"):
        secure_sum(own_models(), threshold=threshold, colluders=follows + 1)
    keys = all_keys(number)
    for colluders in range(follows + 1):
        terms = Terms(threshold, colluders=colluders, signed=keys)
        if lies is not None and colluders <= lies:
            terms.check(number)
            continue
        with pytest.raises(ValueError, match="threshold to be more than"):
            terms.check(number)


def test_private_keys_stand_nowhere() -> None:
    """Neither in what a method says of itself, nor in its results; and the keys of others count."""
    method = signed(4)
    secret = secret_of(1)
    result = fgl.run(method, lines(4), num_rounds=5)
    said = repr(method) + json.dumps(result.config) + repr(method.layers)
    assert "Signatures(4 clients" in said
    assert secret.hex() not in said and repr(secret)[2:-1] not in said
    named = repr(all_keys(4))
    assert repr(Signatures(all_keys(4).public)) == named  # the server has the same
    assert repr(Signatures({**all_keys(4).public, 0: bytes(32)})) != named


def test_keys_are_read_from_files(tmp_path: Path) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("no ssh-keygen")
    for name, kind in (("sign-0", "ed25519"), ("sign-1", "ed25519"), ("node-0", "ecdsa")):
        make = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", name]
        subprocess.run(make, cwd=tmp_path, check=True)
    public = [tmp_path / "sign-0.pub", tmp_path / "sign-1.pub"]
    for client in (0, 1):
        assert Signatures.read(public, tmp_path / f"sign-{client}").number_of(None) == client
    assert repr(Signatures.read(public)) == repr(Signatures.read(public, tmp_path / "sign-0"))
    refuses("node-0 to hold an Ed25519 key, but got", lambda: read_private(tmp_path / "node-0"))
    with pytest.raises(ValueError, match="node-0.pub to hold an Ed25519 key, but got"):
        read_public(tmp_path / "node-0.pub")


@pytest.mark.parametrize(
    ("public", "said"),
    [({0: bytes(31)}, r"32 bytes, but got others of \[0\]"), ({0: bytes(32), 1: bytes(32)}, "own")],
)
def test_malformed_keys_are_refused(public: Any, said: str) -> None:
    refuses(said, lambda: Signatures(public))
    with pytest.raises(TypeError, match="signed to be .*Signatures.* but got dict"):
        secure_sum(own_models(), threshold=3, signed={})  # type: ignore[arg-type]


NO_KEYS, KEYS = torch.zeros(64).byte(), torch.ones(64).byte()
MALFORMED: list[tuple[Any, str]] = [
    ({"keys": NO_KEYS}, r"Expected 'keys' and 'signature', but got \['keys'\]"),
    ({"keys": KEYS, "signature": NO_KEYS[:63]}, r"signature to be torch.uint8 of shape \[64\]"),
]


@pytest.mark.parametrize(("message", "said"), MALFORMED)
def test_malformed_signatures_are_refused(message: Any, said: str) -> None:
    upload: Any = {"phase": torch.tensor(0), "secure": message}
    refuses(said, lambda: signed(5).accept(upload, 0, {}))
