"""Secure sum: clients add masks to uploads; the masks cancel out in the server's sum."""

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ... import federation as fed
from ...checks import Natural, Positive, Several, check_number, reject_if
from ...federation import Method, OfMeans, OfSums, Privacy, Round, State
from ...warn import warn
from ..robust import WITH_SUMS
from .client import Client, of_seed
from .messages import ASKED, KEYS, LETTERS, MASKED, NAMES, ROUNDS, TOLD, Terms
from .server import Server
from .signed import Signatures

SEALED = ["receive", "send", "aggregate", "train", "deploy", "accept"]
SEALED += ["rules.silent", "rules.joining"]


@fed.layer(sealed=SEALED)
def secure_sum(
    method: Method,
    *,
    threshold: Several,
    honest: Several = 2,
    colluders: Natural = 0,
    signed: Signatures | None = None,
    bits: int = 28,
    bound: Positive = 1024.0,
    unprotected: bool = False,
) -> Method:
    """Hide single uploads from the server, which receives only sums over clients.

    An honest server learns only the two sums ``sum_k n_k theta_k`` and ``sum_k n_k`` over the
    clients whose masked uploads arrive. With `signed`, a dishonest server learns no more than an
    honest server. Each sum takes four rounds of the run, which are together called an exchange. In
    the first round, clients publish keys. In the second round, clients send each other encrypted
    shares of their secrets. Messages with encrypted shares are called letters. In the third round,
    clients train and send masked uploads. In the fourth round, clients reveal the shares that
    remove the masks. So a run with ``num_rounds=40`` contains ten rounds of the method.
    `summed_rounds` merges the records of an exchange in the history into one record. After each
    exchange, the outbox and the states contain the same entries as without this transform.

    Args:
        method: the method. The method's `aggregate` must be a `fgl.federation.OfSums`, or a
            `fgl.federation.OfMeans` that does not read single uploads.
        threshold: number of clients that must complete an exchange. The threshold must be at least
            ``honest + colluders``. The threshold must also be more than half of the number of
            participants. With `signed`, the threshold must be more than two thirds of this number.
        honest: the smallest number of honest clients in a sum, at least 2. Each honest upload is
            hidden in the sum of all honest uploads. If a sum had only one honest client, the
            colluders could subtract their own uploads and would learn the honest upload.
        colluders: number of clients that may show the server everything they know. With `signed`,
            uploads stay hidden even if the server is dishonest and these clients help it. All
            colluders may take part in the same sum.
        signed: keys for signatures. In an additional round, each client signs the list of
            summed clients that the server sent. A server that sends clients different lists gets no
            shares if ``2 threshold > n + colluders``. Here n is the number of clients in the
            exchange.
        bits: number of bits after the point in a fixed-point number; the last bit is worth
            ``2^-bits``.
        bound: largest magnitude of an entry that clients send. A client sends nothing if its upload
            has an entry above this bound.
        unprotected: derive keys and seeds from the run's seed. This makes the masks of an
            experiment repeatable but protects nothing: a warning says so.

    Returns:
        The method. If fewer clients than `threshold` remain, all clients keep the old model, and a
        warning gives the reason. The same happens if the sum is larger than any sum of allowed
        uploads.

    Raises:
        ValueError: if a number is out of range, if `threshold` is less than ``honest + colluders``,
            if `bits` and `bound` allow only weights of 0, or if the method's server needs more than
            means or sums. The error names every reason. A run raises a ValueError if the keys of an
            upload differ from the keys that the sum covers. A ValueError is also raised if the
            number of participants is below `threshold`, or too large for this threshold.
        TypeError: if `signed` is not a `Signatures`.

    Example:
        >>> method = secure_sum(fgl.fedavg(fgl.nn.GCN(4, 8, 2)), threshold=3)
        >>> method.rules.exchange, method.rules.silent
        (4, True)

    Source: Bonawitz et al. 2017, https://eprint.iacr.org/2017/281
    """
    least = honest + colluders
    reason = f"for {honest} honest clients in a sum beside {colluders} colluders"
    reject_if(threshold < least, f"threshold to be at least {least}, {reason}", threshold)
    check_number("bits", bits, at_least=0, at_most=48, integer=True)
    _check_means(method)
    sums = isinstance(method.aggregate, OfSums)
    keys = (method.aggregate.key,) if sums else method.aggregate.equally  # type: ignore[attr-defined]
    terms = Terms(threshold, keys, bits, float(bound), colluders, signed, models=not sums)
    terms.limit(threshold)  # raises
    if unprotected:
        warn(
            "Expected keys of the operating system, but got unprotected=True: keys are drawn from "
            "the run's seed, which the server knows. This run protects nothing"
        )
    draw = of_seed if unprotected else secrets.token_bytes
    ask = Client(method, terms, draw)
    serve = Server(method, terms)
    train = replace(method.train, num_steps=None, batches=ask.batches)
    changed: dict[str, Any] = {"receive": ask.receive, "send": ask.send, "deploy": ask.deploy}
    changed |= {"aggregate": serve.aggregate, "accept": serve.accept}
    rules = replace(
        method.rules,
        exchange=len(terms.rounds),
        participants=threshold,
        silent=True,
        ragged=("phase", "secure"),  # accept checks the whole message
    )
    account = None if method.privacy.account is None else serve.account
    privacy = Privacy(ask.costs, (*method.privacy.onward, ASKED, TOLD), account)
    return replace(method, train=train, rules=rules, privacy=privacy, **changed)


def _check_means(method: Method) -> None:
    """Raise an error if the method's server needs more than means or sums of uploads."""
    served, reasons = method.aggregate, []
    if not isinstance(served, OfMeans | OfSums):
        names = [each.name for layer in method.layers for each in layer.all]
        way = "write replace(method, aggregate=fgl.federation.OfMeans(serve))"
        way = f"if means are all that it needs, {way}"
        way = next((WITH_SUMS[name] for name in names if name in WITH_SUMS), way)
        reasons.append(f"its server reads the whole inbox; {way}")
    if isinstance(served, OfMeans) and served.reads:
        reasons.append(f"its server reads {list(served.reads)} of each upload")
    bounds_by_itself = (fed.accept_all, fed.accept_equally)  # a sum bounds weights by itself
    accepts = method.accept not in bounds_by_itself
    if accepts and not isinstance(served, OfSums):
        reasons.append("its accept looks at each upload, and masked ones look all alike")
    if method.rules.exchange > 1:
        reasons.append(f"its own exchange takes {method.rules.exchange} rounds")
    if method.rules.joining is not None:
        reasons.append("its clients say something when they join, which no sum hides")
    want = "a method whose server needs means alone, since a secure sum shows it nothing else"
    reject_if(reasons, want, f"{method}: {'; '.join(reasons)}")


def summed_rounds(history: Sequence[Round], exchange: int = ROUNDS) -> list[Round]:
    """Replace the rounds of each exchange by one record, so the history has one record per sum.

    Bytes and seconds are added up. The metrics are those after the exchange's last round. `dropped`
    maps each participant that is missing from the sum to the first reason for its absence. A client
    that is absent only in the last round of an exchange is still in the sum. Rounds after the last
    complete exchange are left out.

    Args:
        history: the history of a run of `secure_sum`.
        exchange: ``method.rules.exchange``, the number of rounds per sum: 4, or 5 in the signed
            mode.

    Example:
        >>> rounds = [Round(k, [0, 1, 2], bytes_up=10) for k in range(9)]
        >>> rounds[2].dropped[1] = "dropped out"
        >>> [(r.round, r.dropped, r.bytes_up) for r in summed_rounds(rounds)]
        [(0, {1: 'masked upload: dropped out'}, 40), (1, {}, 40)]
    """
    rounds = []
    for first in range(0, len(history) - exchange + 1, exchange):
        some = history[first : first + exchange]
        whole = replace(some[-1], round=first // exchange, dropped={})
        for phase, each in zip((KEYS, LETTERS, MASKED), some, strict=False):
            for client, reason in each.dropped.items():
                whole.dropped.setdefault(client, f"{NAMES[phase]}: {reason}")
        whole.bytes_down = sum(each.bytes_down for each in some)
        whole.bytes_up = sum(each.bytes_up for each in some)
        whole.seconds = sum(each.seconds for each in some)
        whole.padding = max(each.padding for each in some)
        rounds.append(whole)
    return rounds


def clients_summed(state: State) -> dict[str, float]:
    """Number of clients in the latest sum, for ``fgl.run(..., watch=clients_summed)``.

    Args:
        state: the server's state.

    Returns:
        Dict with the number ``"clients_summed"``. This number is 0 if there was no sum, or if the
        sum was rejected.

    Example:
        >>> clients_summed({"secure": {"phase": torch.tensor(0), "summed": torch.tensor(7)}})
        {'clients_summed': 7.0}
    """
    return {"clients_summed": float(state.get(ASKED, {}).get("summed", 0))}
