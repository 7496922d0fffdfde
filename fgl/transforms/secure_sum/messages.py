"""Messages of a secure sum, and the terms on which clients and server agree."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...checks import check_kind, reject_if
from ...federation import Inbox, Message, Params, State, drop
from ...privacy import masks as parts
from ...privacy.fixed_point import largest_weight
from .signed import Signatures

KEYS, LETTERS, MASKED, SHARES, REST, LISTS = 0, 1, 2, 3, 4, 5  # the phases of an exchange
NAMES = {KEYS: "keys", LETTERS: "letters", MASKED: "masked upload", SHARES: "shares"}
NAMES |= {LISTS: "signature"}
PLAIN = (KEYS, LETTERS, MASKED, SHARES)  # the rounds of an exchange, in order
SIGNED = (KEYS, LETTERS, MASKED, LISTS, SHARES)
ROUNDS = len(PLAIN)
ASKED, TOLD = "secure", "told"  # entries of contexts and states, in addition to the method's own
START: dict[str, Tensor] = {"phase": torch.tensor(KEYS)}


@dataclass(frozen=True)
class Terms:
    """Terms on which clients and server agree.

    Args:
        threshold: number of clients that must complete an exchange.
        equally: keys of an upload whose values are summed without weights.
        bits, bound: a number in fixed point has `bits` bits after the point, and its magnitude is
            at most `bound`.
        colluders: number of clients that may collude with the server.
        signed: in the signed mode, the keys with which clients sign; otherwise None.
        models: whether clients send models. If false, clients send only values that are summed (see
            `fgl.federation.OfSums`).

    Example:
        >>> Terms(threshold=3).names
        ('model', 'num_examples')
    """

    threshold: int
    equally: tuple[str, ...] = ()
    bits: int = 28
    bound: float = 1024.0
    colluders: int = 0
    signed: Signatures | None = None
    models: bool = True

    @property
    def rounds(self) -> tuple[int, ...]:
        """An exchange's phases in order."""
        return SIGNED if self.signed else PLAIN

    def after(self, phase: int) -> int:
        """The phase that follows a given phase."""
        return self.rounds[self.rounds.index(phase) + 1]

    def follows(self, phase: int, before: int) -> bool:
        """Whether `phase` is the next phase after `before`."""
        return (before, phase) in zip(self.rounds, self.rounds[1:], strict=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The keys of all summed entries of a message."""
        return ("model",) * self.models + ("num_examples", *self.equally)

    def about(self, keys: Tensor) -> bytes:
        """A hash of these terms and of the public keys of all clients.

        The keys for the clients' encrypted messages depend on this hash. The masks for pairs of
        clients also depend on this hash.
        """
        spelled = repr((self.threshold, self.equally, self.bits, float(self.bound))).encode()
        if self.signed:
            spelled += b"%d " % self.colluders + self.signed.digest
        return hashlib.sha256(spelled + parts.as_bytes(keys)).digest()

    def check(self, number: int) -> None:
        """Raise an error unless the threshold is high enough for an exchange of `number` clients.

        If the threshold is at most half of the clients, two groups without a common member can both
        reach it. From one group, the server could then request the first secret of a client, and
        from the other group the client's second secret. With `signed`, the threshold must be so
        high that any two groups that reach it have an honest common member.
        """
        want = f"threshold to be more than half of the {number} clients"
        reject_if(2 * self.threshold <= number, want, self.threshold)
        if not self.signed:
            return
        want = f"threshold to be more than two thirds of the {number} clients, since they sign"
        reject_if(3 * self.threshold <= 2 * number, want, self.threshold)
        reject_if(
            2 * self.threshold <= number + self.colluders,
            f"threshold to be more than half of the {number} clients and the {self.colluders} "
            "colluders together, who may sign two lists",
            self.threshold,
        )

    def limit(self, num_clients: int) -> int:
        """A client's largest possible weight in a sum.

        If the largest weight is 0, the function raises an error, since no client could send an
        upload.
        """
        most = largest_weight(num_clients, bits=self.bits, bound=self.bound)
        want = f"at most 2^62 / {num_clients} clients, so that each may weigh at least 1"
        got = f"bits={self.bits} and bound={self.bound:g}"
        reject_if(most < 1, f"bound * 2^bits to be {want}", got)
        return most


def flat(tensors: Mapping[str, Tensor]) -> Tensor:
    """Join all tensors to one vector, in the order of their names."""
    return torch.cat([tensors[path].flatten() for path in sorted(tensors)])


def unflat(words: Tensor, like: Mapping[str, Tensor]) -> Params:
    """Split a vector of integers into tensors: the inverse of `flat`.

    The result has the same names, order and shapes as the tensors in `like`.
    """
    order = sorted(like)
    each = dict(zip(order, words.split([like[path].numel() for path in order]), strict=True))
    return {path: each[path].view(value.shape) for path, value in like.items()}


def as_message(paths: Mapping[str, Tensor]) -> Message:
    """Build a message from a dict that maps paths, such as ``model/weight``, to tensors."""
    message: dict[str, Any] = {}
    for path, tensor in paths.items():
        key, inside, name = path.partition("/")
        if inside:
            message.setdefault(key, {})[name] = tensor
        else:
            message[key] = tensor
    return message


def split(message: Message, state: State) -> tuple[Message, dict[str, Tensor]]:
    """Split a server's message into the method's message and the request of the secure sum.

    During an exchange, the method's message is in the client's state.
    """
    if "phase" not in message:
        return message, dict(START)
    reject_if(TOLD not in state, "the state to have the exchange's first message", "none")
    return as_message(state[TOLD]), {**part(message), "phase": phase_of(message)}


def phase_of(message: Message) -> Tensor:
    """The phase that a message requests.

    Training and the privacy accounting both call this function, so they use the same phase.
    """
    phase: Any = message.get("phase", START["phase"])
    check_kind("phase", phase, torch.int64, ())
    return phase  # type: ignore[no-any-return]


def told_shares(inbox: Inbox, state: State, exchange: int) -> list[int]:
    """The clients in the sum, if the server requested shares of their secrets in this round.

    Otherwise the list is empty.
    """
    current = state.get(ASKED, START)
    last = inbox.round is None or inbox.round % exchange == exchange - 1
    if int(current["phase"]) != SHARES or not last or not inbox.asked:
        return []
    return list(current["clients"][current["sent"]].tolist())


def of_method(state: State) -> State:
    """A state without the secure sum's entries."""
    return drop(state, (ASKED, TOLD, "masked"))


def envelope(phase: int, what: Mapping[str, Tensor]) -> Message:
    return {"phase": torch.tensor(phase), "secure": dict(what)}


def part(message: Message) -> Any:
    return message["secure"]


def at(phase: int, **known: Any) -> dict[str, Tensor]:
    return {"phase": torch.tensor(phase)} | {k: torch.as_tensor(v) for k, v in known.items()}
