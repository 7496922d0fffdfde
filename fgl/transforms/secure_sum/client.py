"""The client's part of a secure sum: publish keys, encrypt shares, mask uploads, reveal shares."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...checks import check_kind, reject_if
from ...federation import Message, Method, Params, State, drop, leaves, local_steps
from ...graph import Graph
from ...kinds import check_kind as of_kind
from ...privacy import DoesNotFit
from ...privacy import masks as parts
from ...privacy.fixed_point import encode
from ...transfer import to_host
from . import messages as wire
from . import signed
from .signed import Signatures


@dataclass(frozen=True)
class Client:
    """A client's functions, wrapped around the method's functions."""

    method: Method
    terms: wire.Terms
    draw: Callable[[int], bytes]

    def receive(self, message: Message, state: State, graph: Graph) -> tuple[Params, Any]:
        inner, request = wire.split(message, state)
        params, context = self.method.receive(inner, wire.of_method(state), graph)
        of_kind("the context of a secure sum", context, Mapping)
        request = {name: value.cpu() for name, value in request.items()}  # bytes and masks
        first = {wire.TOLD: dict(leaves(inner))} if request["phase"] == wire.KEYS else {}
        return params, {**context, wire.ASKED: request, **first}

    def batches(self, graph: Graph, context: Any) -> Sequence[tuple[Graph, Any]]:
        """The local steps of a round.

        Clients train only in the round of masked uploads; in other rounds the list is empty.
        """
        trains = context[wire.ASKED]["phase"] == wire.MASKED
        return local_steps(self.method.train, graph, context) if trains else []

    def costs(self, message: Message) -> Mapping[str, float]:
        """The privacy cost that the method states for a masked upload.

        Answers of the other phases do not depend on data and cost nothing.
        """
        return self.method.privacy.costs(message) if wire.phase_of(message) == wire.MASKED else {}

    def deploy(self, message: Message, state: State, graph: Graph) -> Params:
        inner, _ = wire.split(message, state)
        return self.method.deploy(inner, wire.of_method(state), graph)

    def send(
        self, params: Params, context: Any, state: State, graph: Graph
    ) -> tuple[Message, State]:
        request = context[wire.ASKED]
        phase, plain = int(request["phase"]), wire.of_method(state)
        if phase == wire.REST:  # the client's secrets are no longer needed
            return wire.envelope(wire.REST, {}), {**plain, wire.TOLD: state[wire.TOLD]}
        if phase == wire.KEYS:
            own = {name: parts.as_tensor(self.draw(parts.KEY)) for name in ("seal", "mask")}
            pair = b"".join(parts.public_key(parts.as_bytes(secret)) for secret in own.values())
            answer = wire.envelope(wire.KEYS, self._said(parts.as_tensor(pair), graph))
            exchange = {**own, "phase": torch.tensor(wire.KEYS)}
            return answer, {**plain, wire.ASKED: exchange, wire.TOLD: context[wire.TOLD]}
        exchange = state.get(wire.ASKED, {"phase": torch.tensor(wire.REST)})
        if not self.terms.follows(phase, int(exchange["phase"])):
            got = wire.NAMES.get(phase, str(phase))
            raise ValueError(
                f"Expected to be asked for what follows in this exchange, but got {got!r}:"
                " a client tells each thing once, so that nobody can take its own mask off"
            )
        exchange = {**exchange, "phase": torch.tensor(phase)}
        if phase == wire.LETTERS:
            if not len(_rows(request["keys"], exchange)):  # the client's keys were changed or lost
                return wire.envelope(wire.LETTERS, {}), plain
            payload, exchange = self._letters(request, exchange, graph)
        elif phase == wire.LISTS:
            payload, exchange = self._list(request["sent"], exchange, _told(state), graph)
        elif phase == wire.SHARES:
            by = self.terms.signed
            sent = self._agreed(by, request, exchange, _told(state)) if by else request["sent"]
            return wire.envelope(wire.SHARES, self._shares(sent, exchange)), plain
        else:
            inner = drop(context, (wire.ASKED, wire.TOLD))
            message, plain = self.method.send(params, inner, plain, graph)
            payload, exchange = self._masked(message, request, exchange)
        new_state = {**plain, wire.ASKED: exchange, wire.TOLD: state[wire.TOLD]}
        return wire.envelope(phase, payload), new_state

    def _said(self, pair: Tensor, graph: Graph) -> Params:
        """The public keys of this client.

        In the signed mode, a signature of these keys is added.
        """
        by = self.terms.signed
        return {"keys": pair, **({"signature": by.sign(signed.of_keys(pair), graph)} if by else {})}

    def _letters(self, request: Params, exchange: Params, graph: Graph) -> tuple[Params, Params]:
        """Letters to all other clients: encrypted shares of this client's secrets."""
        keys = request["keys"]
        check_kind("keys", keys, torch.uint8, (len(keys), 2 * parts.KEY))
        self.terms.check(len(keys))
        row = _row(keys, exchange)
        own = [parts.as_bytes(exchange[name]) for name in ("seal", "mask")]
        want = "every client to have keys of its own"
        reject_if(len(keys.view(-1, parts.KEY).unique(dim=0)) < 2 * len(keys), want, "two alike")
        if self.terms.signed:
            signed.check_keys(self.terms.signed, request, row, self.terms.signed.number_of(graph))
            exchange = {**exchange, "clients": request["clients"]}
        seed = self.draw(parts.KEY)
        about = self.terms.about(keys)
        letters = parts.letters(row, [*own, seed], keys, self.terms.threshold, about, self.draw)
        drawn = {"seed": parts.as_tensor(seed), "own": letters[row].clone()}
        exchange = {**exchange, "keys": keys, **drawn}
        letters[row, : parts.KEY] = parts.as_tensor(parts.commitment(seed, about))  # no own letter
        letters[row, parts.KEY :] = 0
        return {"letters": letters}, exchange

    def _masked(self, message: Message, request: Params, exchange: Params) -> tuple[Params, Params]:
        """The method's message in fixed point, plus masks.

        The message is empty if a value is out of range.
        """
        here, row = request["here"], _row(exchange["keys"], exchange)
        _check_among(here, row, self.terms.threshold, len(exchange["keys"]))
        letters = request["letters"].clone()
        letters[row] = exchange["own"]
        exchange = {**exchange, "here": here, "letters": letters}
        try:
            encoded = _encoded(message, self.terms, len(here))
        except DoesNotFit:
            return {}, exchange
        secrets = [parts.as_bytes(exchange[name]) for name in ("seal", "mask", "seed")]
        words, about = wire.flat(encoded), self.terms.about(exchange["keys"])
        hidden = parts.masked(words, row, secrets, exchange["keys"], here, about)
        return wire.unflat(hidden, encoded), exchange

    def _list(
        self, sent: Tensor, exchange: Params, message: Message, graph: Graph
    ) -> tuple[Params, Params]:
        """The client's signature of the list of clients in the sum.

        Each client signs one list per exchange.
        """
        keys = exchange["keys"]
        _check_among(sent, _row(keys, exchange), self.terms.threshold, len(keys))
        want = "those who sent to be among those with letters"
        reject_if(bool((sent & ~exchange["here"]).any()), want, "more")
        by = self.terms.signed
        sign = {"signature": by.sign(self._seen(sent, exchange, message), graph)} if by else {}
        return sign, {**exchange, "sent": sent}

    def _agreed(self, by: Signatures, signs: Params, exchange: Params, first: Message) -> Tensor:
        """The clients in the sum.

        Raise an error unless enough of these clients signed the list that this client signed.
        """
        clients, sent = exchange["clients"].tolist(), exchange["sent"]
        what = self._seen(sent, exchange, first)
        signed.check_lists(by, signs, clients, sent, what, self.terms.threshold)
        return sent

    def _seen(self, sent: Tensor, exchange: Params, message: Message) -> bytes:
        about, digest = self.terms.about(exchange["keys"]), signed.message_digest(message)
        return signed.of_list(about, exchange["clients"], sent, digest)

    def _shares(self, sent: Tensor, exchange: Params) -> Params:
        """Return the shares of other clients' secrets, and delete this client's own secrets."""
        keys, here, sealing = exchange["keys"], exchange["here"], parts.as_bytes(exchange["seal"])
        row = _row(keys, exchange)
        _check_among(sent, row, self.terms.threshold, len(keys))
        about = self.terms.about(keys)
        shares = parts.revealed(row, sealing, keys, exchange["letters"], here, sent, about)
        return {"shares": shares}


def _encoded(message: Message, terms: wire.Terms, num_clients: int) -> Params:
    """A client's weighted upload in fixed point: dict from a tensor's path to the numbers."""
    want = f"every exchange's upload to be {list(terms.names)}, which a secure sum covers"
    reject_if(set(message) != set(terms.names), want, sorted(message) or "an empty one")
    count = message["num_examples"]
    how: Any = {"bits": terms.bits, "bound": terms.bound}
    if count.numel() != 1 or not bool((count.floor() == count) & (count >= 0) & count.isfinite()):
        raise ValueError(
            f"Expected num_examples to be a whole number >= 0, as secure sums count in whole "
            f"numbers, but got {count}: round the weights, such as (100 * weight).round()"
        )
    weight = int(count)
    want = f"at most {terms.limit(num_clients)} examples"
    reject_if(weight > terms.limit(num_clients), want, weight, DoesNotFit)
    paths, values = zip(*leaves(message), strict=True)
    encoded = {}
    for path, value in zip(paths, to_host(*values), strict=True):
        by = weight if path.startswith("model/") else 1
        encoded[path] = encode(value, weight=by, **how)
    return {**encoded, "num_examples": torch.tensor(weight)}


def _told(state: State) -> Message:
    """The message that began the current exchange."""
    return wire.as_message(state[wire.TOLD])


def _row(keys: Tensor, exchange: Params) -> int:
    """Index of a client's row in the list of keys: the row that has the client's own keys."""
    rows = _rows(keys, exchange)
    reject_if(len(rows) != 1, "the list of keys to have one's own once", len(rows))
    return rows[0]


def _rows(keys: Tensor, exchange: Params) -> list[int]:
    """Find the client's own public keys in `keys`; return the indices of their rows."""
    own = b"".join(parts.public_key(parts.as_bytes(exchange[name])) for name in ("seal", "mask"))
    return list((keys == parts.as_tensor(own)).all(1).nonzero().flatten().tolist())


def _check_among(which: Tensor, row: int, threshold: int, number: int) -> None:
    check_kind("who is in the sum", which, torch.bool, (number,))
    want = f"a sum of at least {threshold} clients, this one among them"
    got = f"{int(which.sum())}{('' if which[row] else ' others')}"
    reject_if(not which[row] or int(which.sum()) < threshold, want, got)


def of_seed(count: int) -> bytes:
    """Bytes from torch's generator.

    The run's seed determines these bytes, so they protect nothing.
    """
    return parts.as_bytes(torch.randint(256, (count,), dtype=torch.uint8))
