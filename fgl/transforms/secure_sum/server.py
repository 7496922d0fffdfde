"""The server's part of a secure sum: pass on encrypted shares, and remove masks from the sum."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ... import federation as fed
from ...checks import check_kind, reject_if
from ...federation import Inbox, Means, Message, Method, Outbox, Params, State
from ...privacy import CannotUnmask, DoesNotFit
from ...privacy import masks as parts
from ...privacy.fixed_point import decode, wrapped_sum
from ...warn import warn
from . import messages as wire
from . import signed


class CannotSum(ValueError):
    """Error for an exchange that ends without a sum.

    Example:
        >>> issubclass(CannotSum, ValueError)
        True
    """


@dataclass(frozen=True)
class Server:
    """The server's functions, wrapped around the method's functions."""

    method: Method
    terms: wire.Terms

    def accept(self, message: Message, client: int, state: State) -> None:
        """Raise an error if a message does not answer the request."""
        exchange = state.get(wire.ASKED, wire.START)
        phase, payload = int(exchange["phase"]), _check_phase(message, int(exchange["phase"]))
        number = _check_member(client, exchange)
        if phase == wire.MASKED:
            self._check_masked(payload)
            return
        if phase == wire.LETTERS and not payload:
            raise ValueError(
                "The client sent no letters: the list of keys is without its own, so its keys "
                "were changed on their way"
            )
        for name, shape in self._sizes(phase, number, payload).items():
            check_kind(name, payload[name], torch.uint8, shape)
        if phase == wire.KEYS:
            _check_public_keys(payload["keys"])
        if self.terms.signed and "signature" in payload:
            text = signed.of_keys(payload["keys"]) if phase == wire.KEYS else self._seen(exchange)
            want = f"the signature of client {client} under what it was told"
            got = "another"
            reject_if(not self.terms.signed.holds(client, payload["signature"], text), want, got)

    def _sizes(
        self, phase: int, number: int, payload: Mapping[str, Tensor]
    ) -> dict[str, tuple[int, ...]]:
        """The names of an answer's tensors, with the tensors' shapes."""
        shapes: dict[int, dict[str, tuple[int, ...]]] = {
            wire.KEYS: {"keys": (2 * parts.KEY,)},
            wire.LETTERS: {"letters": (number, parts.LETTER)},
            wire.LISTS: {"signature": (signed.SIGNATURE,)},
            wire.SHARES: {"shares": (number, 1 + parts.KEY)},
        }
        if self.terms.signed:
            shapes[wire.KEYS] |= shapes[wire.LISTS]
        if set(payload) != set(shapes[phase]):
            names = " and ".join(map(repr, shapes[phase]))
            raise ValueError(f"Expected {names}, but got {list(payload)}")
        return shapes[phase]

    def _seen(self, exchange: Mapping[str, Tensor]) -> bytes:
        """The text that every honest client signs in this exchange."""
        about, digest = self.terms.about(exchange["keys"]), parts.as_bytes(exchange["told"])
        return signed.of_list(about, exchange["clients"], exchange["sent"], digest)

    def _check_masked(self, payload: Mapping[str, Tensor]) -> None:
        values = f"values that are finite and at most {self.terms.bound:g} in size"
        want = f"{values}, and as many examples as can be summed"
        reject_if(not payload, want, "none: the client says that its own are not")
        tensors = dict(fed.leaves({"model": self.method.model.state_dict()}))
        for path, value in payload.items():
            key = path.split("/")[0]
            wrong = key not in self.terms.names or (key == "model" and path not in tensors)
            reject_if(wrong, f"parts of {list(self.terms.names)}", f"{path!r}")
            shape = tensors[path].shape if path in tensors else value.shape
            shape = torch.Size() if path == "num_examples" else shape
            check_kind(path, value, torch.int64, tuple(shape))
        missing = {path.split("/")[0] for path in payload} ^ set(self.terms.names)
        reject_if(missing, f"parts of {list(self.terms.names)}", f"no {missing}")

    @torch.no_grad()
    def aggregate(self, inbox: Inbox, state: State) -> tuple[Outbox, State]:
        phase = int(state.get(wire.ASKED, wire.START)["phase"])
        rounds = self.terms.rounds
        now = phase if inbox.round is None else rounds[inbox.round % len(rounds)]
        if phase == wire.KEYS != now:  # the last exchange was abandoned: wait for the next
            return {}, {**wire.of_method(state), wire.ASKED: wire.at(wire.KEYS, summed=0)}
        steps = {wire.KEYS: self._keys, wire.LETTERS: self._letters, wire.MASKED: self._masked}
        steps |= {wire.LISTS: self._lists, wire.SHARES: self._shares}
        try:
            if phase != now:
                raise CannotSum(f"No {wire.NAMES[phase]} arrived in a round of the exchange")
            return steps[phase](inbox, state)
        except (CannotSum, DoesNotFit, CannotUnmask) as error:
            warn(f"Secure sum: {error}: everybody keeps the old model")
            own = wire.of_method(self.account(inbox, state))
            return _restored(state), {**own, wire.ASKED: wire.at(wire.KEYS, summed=0)}

    def account(self, inbox: Inbox, state: State) -> State:
        """Call the method's `account` as soon as shares are requested, even if no sum follows."""
        summed = wire.told_shares(inbox, state, len(self.terms.rounds))
        if self.method.privacy.account is None:
            return state
        inner = Inbox({}, inbox.num_clients, asked=summed)
        return {**state, **self.method.privacy.account(inner, wire.of_method(state))}

    def _enough(self, count: int, what: str) -> None:
        least = self.terms.threshold
        reject_if(count < least, f"{what} of at least {least} clients", count, CannotSum)

    def _keys(self, inbox: Inbox, state: State) -> tuple[Outbox, State]:
        """Send all clients' keys to every client."""
        self._enough(len(inbox), "keys")
        self.terms.check(len(inbox))
        self.terms.limit(len(inbox))  # raises
        clients = torch.tensor(inbox.clients)
        keys = torch.stack([wire.part(inbox[client])["keys"].cpu() for client in inbox])
        wrong = len(keys.view(-1, parts.KEY).unique(dim=0)) < 2 * len(keys)
        reject_if(wrong, "every client to have keys of its own", "two alike", CannotSum)
        common = fed.one_for_all([inbox.sent[client] for client in inbox], "message")
        sent: dict[str, Any] = {path: tensor for path, tensor in fed.leaves(common)}
        payload, exchange = {"keys": keys}, wire.at(wire.LETTERS, clients=clients, keys=keys)
        if self.terms.signed:
            signs = torch.stack([wire.part(inbox[client])["signature"].cpu() for client in inbox])
            payload |= {"clients": clients, "signatures": signs}
            exchange["told"] = parts.as_tensor(signed.message_digest(common))
        outbox = dict.fromkeys(inbox.clients, wire.envelope(wire.LETTERS, payload))
        return outbox, {**wire.of_method(state), wire.ASKED: exchange, wire.TOLD: sent}

    def _letters(self, inbox: Inbox, state: State) -> tuple[Outbox, State]:
        """Forward the letters with encrypted shares to the clients to which they are addressed."""
        exchange = state[wire.ASKED]
        self._enough(len(inbox), "letters")
        here, clients = _present(inbox, exchange), exchange["clients"].tolist()
        sealed = torch.zeros(len(clients), len(clients), parts.LETTER, dtype=torch.uint8)
        rows = here.nonzero().flatten().tolist()
        for row in rows:
            sealed[row] = wire.part(inbox[clients[row]])["letters"]
        outbox = _rest(exchange["clients"])
        for row in rows:
            payload = {"letters": sealed[:, row].clone(), "here": here}
            outbox[clients[row]] = wire.envelope(wire.MASKED, payload)
        committed = sealed.diagonal()[: parts.KEY].T.contiguous()  # instead of letters to oneself
        return outbox, {
            **state,
            wire.ASKED: {**exchange, **wire.at(wire.MASKED, here=here, committed=committed)},
        }

    def _masked(self, inbox: Inbox, state: State) -> tuple[Outbox, State]:
        """Add up the masked uploads and delete them.

        Send all clients the list of clients in the sum.
        """
        exchange = state[wire.ASKED]
        counted = _of_one_layout(inbox)
        self._enough(len(counted), "masked uploads")
        sent = _present(counted, exchange)
        each = [wire.part(counted[client]) for client in counted]
        total = wrapped_sum([wire.flat(masked) for masked in each])
        outbox = _rest(exchange["clients"][exchange["here"]])
        phase = self.terms.after(wire.MASKED)
        outbox |= dict.fromkeys(counted, wire.envelope(phase, {"sent": sent}))
        exchange = {**exchange, **wire.at(phase, sent=sent)}
        return outbox, {**state, wire.ASKED: exchange, "masked": wire.unflat(total, each[0])}

    def _lists(self, inbox: Inbox, state: State) -> tuple[Outbox, State]:
        """Send every client all signatures; each client signed the list of clients in the sum."""
        exchange = state[wire.ASKED]
        self._enough(len(inbox), "signatures")
        clients = exchange["clients"].tolist()
        signs = torch.zeros(len(clients), signed.SIGNATURE, dtype=torch.uint8)
        for client in inbox:
            signs[clients.index(client)] = wire.part(inbox[client])["signature"]
        outbox = _rest(exchange["clients"][exchange["sent"]])
        outbox |= dict.fromkeys(inbox, wire.envelope(wire.SHARES, {"signatures": signs}))
        exchange = {**exchange, **wire.at(wire.SHARES, signers=_present(inbox, exchange))}
        return outbox, {**state, wire.ASKED: exchange}

    def _shares(self, inbox: Inbox, state: State) -> tuple[Outbox, State]:
        """Remove the masks from the sum, and give the means to the method."""
        exchange = state[wire.ASKED]
        self._enough(len(inbox), "shares")
        clients = exchange["clients"].tolist()
        shares = {clients.index(client): wire.part(inbox[client])["shares"] for client in inbox}
        hidden = state["masked"]
        keys, here, sent = exchange["keys"], exchange["here"], exchange["sent"]
        about = self.terms.about(keys)
        threshold, committed = self.terms.threshold, exchange["committed"]
        secrets, false = parts.told_secrets(shares, keys, here, sent, committed, threshold, about)
        _warn_of_false(false, clients)
        words = parts.unmasked(wire.flat(hidden), keys, sent, secrets, about)
        summed = [client for row, client in enumerate(clients) if sent[row]]
        means = self._means(wire.unflat(words, hidden), len(summed), len(clients))
        outbox, new = self._served(means, summed, inbox, state)
        outbox = {**_restored(state), **outbox} if len(outbox) < inbox.num_clients else outbox
        return outbox, {**new, wire.ASKED: wire.at(wire.KEYS, summed=len(summed))}

    def _means(self, total: Params, summed: int, members: int) -> Message:
        """Means over the clients in the sum.

        If the sum has no examples, there is no mean of models.
        """
        weight, limit = int(total["num_examples"]), self.terms.limit(members)
        wrong = not 0 <= weight <= summed * min(limit, self.method.rules.max_examples)
        reject_if(wrong, "a sum of examples that clients can have", "another", DoesNotFit)
        template = dict(fed.leaves({"model": self.method.model.state_dict()}))
        how: Any = {"bits": self.terms.bits, "bound": self.terms.bound}
        means: dict[str, Any] = {}
        for path, words in total.items():
            key, _, name = path.partition("/")
            like = template.get(f"model/{name}", torch.zeros((), dtype=torch.float64))
            by = weight if key == "model" else summed
            if key != "num_examples" and by:
                means[path] = decode(words, by, like=like, **how)
        return wire.as_message(means)

    def _served(
        self, means: Message, summed: list[int], inbox: Inbox, state: State
    ) -> tuple[Outbox, State]:
        """The outbox and the state, which the method's server computes from means or sums."""
        served, own = self.method.aggregate, wire.of_method(state)
        if isinstance(served, fed.OfSums):
            sums = {name: len(summed) * value for name, value in means[served.key].items()}
            return served.serve(sums, inbox.num_clients, own)
        exchange = None if inbox.round is None else inbox.round // len(self.terms.rounds)
        sent = dict.fromkeys(summed, wire.as_message(state[wire.TOLD]))
        nothing: dict[int, Message] = {client: {} for client in summed}
        inner = Inbox(nothing, inbox.num_clients, sent, exchange)
        assert isinstance(served, fed.OfMeans)  # `secure_sum` refuses every other server
        return served.serve(Means(means, inner), own)


def _check_phase(message: Message, phase: int) -> Mapping[str, Tensor]:
    """Return the content of an answer.

    Raise an error unless the answer belongs to the current phase.
    """
    got: Any = message.get("phase")
    payload: Any = message.get("secure")
    wrong = set(message) != {"phase", "secure"} or not isinstance(payload, Mapping)
    reject_if(wrong, "an answer of a secure sum", f"keys {list(message)}")
    want = "phase to be an int64 scalar"
    reject_if(not isinstance(got, Tensor) or got.shape or got.dtype != torch.int64, want, got)
    if got == wire.REST:
        raise fed.Absent("Expected to be in this exchange, but got lost in an earlier round")
    if got != phase:
        answer = wire.NAMES.get(int(got), f"phase {int(got)}")
        late = fed.Absent if got == wire.KEYS else ValueError  # a client that was absent at first
        raise late(f"Expected {wire.NAMES[phase]} of this exchange, but got {answer}")
    return dict(payload)


def _check_public_keys(keys: Tensor) -> None:
    """Raise a ValueError unless a value consists of two valid public keys for key agreement."""
    for public in keys.view(2, parts.KEY):
        parts.agreed_key(bytes([1]) * parts.KEY, parts.as_bytes(public), b"")
    if keys[: parts.KEY].equal(keys[parts.KEY :]):
        raise ValueError("The client sent one key twice")


def _check_member(client: int, exchange: Mapping[str, Tensor]) -> int:
    """Number of clients in the exchange.

    Raise an error if the given client has dropped out of the exchange.
    """
    clients = exchange["clients"].tolist() if "clients" in exchange else []
    here = exchange.get("signers", exchange.get("sent", exchange.get("here")))
    if clients and (client not in clients or not (here is None or here[clients.index(client)])):
        raise ValueError(f"Client {client} is not in this exchange")
    return len(clients)


def _present(inbox: Inbox, exchange: Mapping[str, Tensor]) -> Tensor:
    """A bool mask of the exchange's clients: True if the inbox contains the client's message."""
    return torch.tensor([client in inbox for client in exchange["clients"].tolist()])


def _rest(clients: Tensor) -> dict[int, Message]:
    """The message to clients that dropped out of this exchange."""
    return dict.fromkeys(clients.tolist(), wire.envelope(wire.REST, {}))


def _restored(state: State) -> dict[int, Message]:
    """Send the method's message to all clients of an exchange again."""
    exchange = state.get(wire.ASKED, wire.START)
    message = state.get(wire.TOLD, {})
    return dict.fromkeys(
        exchange.get("clients", torch.tensor([])).tolist(), wire.as_message(message)
    )


def _warn_of_false(false: Mapping[int, frozenset[int]], clients: list[int]) -> None:
    """Warn of false shares.

    A share is false if its sender lied, or if the owner of the secret sent false shares. The
    correct shares are enough to continue.
    """
    for row, tellers in false.items():
        warn(
            f"Secure sum: clients {[clients[teller] for teller in sorted(tellers)]} sent false "
            f"shares of client {clients[row]}'s secret: these shares are left out"
        )


def _of_one_layout(inbox: Inbox) -> Inbox:
    """Keep the uploads whose tensors have the most frequent names and shapes.

    Uploads can be added up only if their tensors have the same names and shapes.
    """
    kinds: dict[Any, list[int]] = {}
    for client, message in inbox.items():
        kind = tuple(sorted((path, tuple(t.shape)) for path, t in wire.part(message).items()))
        kinds.setdefault(kind, []).append(client)
    most = max(kinds.values(), key=len)
    others = [client for client in inbox if client not in most]
    if len(kinds) == len(inbox) > 2:  # no hostile client does that, but a method may
        raise ValueError(
            f"The clients sent {len(kinds)} kinds of tensors, by names and shapes: what is summed "
            "cannot be ragged"
        )
    if others:
        warn(
            f"Secure sum: clients {others} sent tensors of other names or shapes than most: they "
            "are left out"
        )
    return Inbox({c: inbox[c] for c in most}, inbox.num_clients, inbox.sent, inbox.round)
