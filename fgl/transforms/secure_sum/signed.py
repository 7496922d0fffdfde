"""A secure sum's signed mode: clients sign the list of summed clients before they reveal shares.

Clients sign the keys that they publish, so that the server cannot invent clients. In an additional
round, every client signs the list of clients in the sum (the consistency check of Bonawitz et al.
2017). A client reveals its shares only for a list that at least `threshold` clients have signed.
Two different lists get enough signatures only if some clients sign both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from os import PathLike

import torch
from torch import Tensor

from ...checks import check_kind, reject_if
from ...federation import Message, leaves
from ...graph import Graph
from ...privacy import masks as parts
from ...privacy import signatures as ed25519

Key = bytes | Callable[[Graph], bytes] | None
SIGNATURE = ed25519.SIGNATURE


class Signatures:
    """All clients' public keys, and this client's private key.

    Args:
        public: each client's public Ed25519 key of 32 bytes, by client number. Clients must get
            these keys from a trusted source, and not from the server.
        own: the private key of this client, 32 bytes; the server has None. If one process simulates
            all clients, `own` is a function that takes a client's graph and returns this client's
            private key.

    Raises:
        ValueError: if a key does not have 32 bytes, or if two clients have the same key.

    Example:
        >>> own = bytes(range(32))
        >>> Signatures({0: fgl.privacy.signatures.signing_key(own)}, own).number_of(None)
        0
    """

    def __init__(self, public: Mapping[int, bytes], own: Key = None) -> None:
        wrong = [client for client, key in public.items() if len(key) != parts.KEY]
        reject_if(wrong, f"keys of {parts.KEY} bytes", f"others of {wrong}")
        want = "every client to have a key of its own"
        reject_if(len({*public.values()}) < len(public), want, "two alike")
        self.public, self._own = dict(public), own

    @classmethod
    def read(
        cls, public: Sequence[str | PathLike[str]], own: str | PathLike[str] | None = None
    ) -> Signatures:
        """Read keys from files that ``ssh-keygen -t ed25519`` wrote.

        The files of public keys must be in the order of the clients.

        Raises:
            ValueError: if a file has a key that is not an Ed25519 key.
        """
        keys = dict(enumerate(map(ed25519.read_public, public)))
        return cls(keys, None if own is None else ed25519.read_private(own))

    def __repr__(self) -> str:
        """Text with a digest of the public keys, for reports, checkpoints and checks at clients."""
        return f"Signatures({len(self.public)} clients, {self.digest.hex()[:16]})"

    @property
    def digest(self) -> bytes:
        """A digest of the public keys."""
        keys = b"".join(b"%d %b" % pair for pair in sorted(self.public.items()))
        return hashlib.sha256(keys).digest()

    def sign(self, what: bytes, graph: Graph | None) -> Tensor:
        """This client's signature, uint8 ``[64]``."""
        return parts.as_tensor(ed25519.signature(self._secret(graph), what))

    def number_of(self, graph: Graph | None) -> int:
        """The number of this client, found by the client's public key."""
        public = ed25519.signing_key(self._secret(graph))
        clients = [client for client, key in self.public.items() if key == public]
        reject_if(not clients, "own to be the key of a client in public", "another")
        return clients[0]

    def holds(self, client: int, sign: Tensor, what: bytes) -> bool:
        """Whether a client's signature of a text is valid."""
        key = self.public.get(client)
        return key is not None and ed25519.is_signed(key, parts.as_bytes(sign), what)

    def _secret(self, graph: Graph | None) -> bytes:
        own = self._own
        if own is None:
            raise ValueError("Expected a client's Signatures to have its own key, but got none")
        return own if isinstance(own, bytes) else own(graph)  # type: ignore[arg-type]


def of_keys(keys: Tensor) -> bytes:
    """The text that a client signs when it publishes its keys."""
    return b"fgl secure sum 1 signs keys " + parts.as_bytes(keys)


def of_list(about: bytes, clients: Tensor, sent: Tensor, told: bytes) -> bytes:
    """The text that a client signs: keys, terms, the list of clients, and the server's message.

    If the server sends a different message to one client, this client signs a different text. The
    other clients then reject the signature. So the server must send one model to all clients.
    """
    members = parts.as_bytes(clients) + parts.as_bytes(sent.byte())
    return b"fgl secure sum 1 signs list " + about + told + members


def message_digest(message: Message) -> bytes:
    """A digest of all tensors in a message: names, dtypes, shapes and entries."""
    digest = hashlib.sha256()
    for path, tensor in sorted(leaves(message)):
        dense = tensor.detach().cpu().contiguous().flatten()
        name = path.encode()
        digest.update(b"%d %b " % (len(name), name))
        digest.update(f"{tensor.dtype} {list(tensor.shape)} ".encode())
        digest.update(parts.as_bytes(dense.view(torch.uint8)))
    return digest.digest()


def check_keys(signed: Signatures, asked: Mapping[str, Tensor], row: int, own: int) -> None:
    """Raise an error if a row in a list of keys is not signed, or if a client signed two rows.

    Args:
        signed: the known keys of clients.
        asked: a dict with three tensors: ``"keys"`` (uint8 ``[n, 64]``), ``"clients"`` (int64
            ``[n]``) and ``"signatures"`` (uint8 ``[n, 64]``).
        row, own: the index of this client's row in the list, and the number of this client.
    """
    keys = asked["keys"]
    missing = [name for name in ("clients", "signatures") if name not in asked]
    reject_if(missing, f"a list of keys with {missing}", sorted(asked))
    check_kind("clients", asked["clients"], torch.int64, (len(keys),))
    check_kind("signatures", asked["signatures"], torch.uint8, (len(keys), SIGNATURE))
    clients = asked["clients"].tolist()
    wrong = len({*clients}) < len(clients) or clients[row] != own
    reject_if(wrong, f"every client once in the list of keys, this one as {own}", clients)
    for client, pair, sign in zip(clients, keys, asked["signatures"], strict=True):
        want = f"keys that client {client} has signed"
        got = "keys that somebody else put in their place"
        reject_if(not signed.holds(client, sign, of_keys(pair)), want, got)


def check_lists(
    signed: Signatures,
    asked: Mapping[str, Tensor],
    clients: Sequence[int],
    sent: Tensor,
    what: bytes,
    threshold: int,
) -> None:
    """Raise an error unless enough clients in the sum signed the same list as this client.

    Args:
        signed: the known keys of clients.
        asked: a dict with the tensor ``"signatures"`` (uint8 ``[n, 64]``).
        clients: the numbers of all clients in the exchange.
        sent: bool ``[n]``, the clients in the sum.
        what: the text from `of_list` that this client signed.
        threshold: number of clients that must have signed this text.
    """
    signs = asked.get("signatures", torch.zeros(0))
    check_kind("signatures", signs, torch.uint8, (len(sent), SIGNATURE))
    count = sum(
        signed.holds(clients[row], signs[row], what) for row in sent.nonzero().flatten().tolist()
    )
    want = f"at least {threshold} clients to sign the list of the sum that this client was told"
    got = f"{count}: the server told others another list of clients or keys, or another message"
    reject_if(count < threshold, want, got)
