"""Parts of the secure sum: keys, masks, secret shares and encrypted messages.

All cryptographic primitives come from libraries. X25519, HKDF-SHA256, ChaCha20 and
ChaCha20-Poly1305 come from `cryptography`. Shamir's secret sharing comes from `pycryptodome`;
Flower uses the same package.

The clients of an exchange form a list; a client's index in this list is the client's row. A client
contributes int64 values to the sum. Before the upload, the client hides these values: it adds a
mask of its own, and one mask for each pair with another client. The client derives its own mask
from a seed. Each client has two key pairs. The client uses the first key pair to encrypt its
messages to other clients, which contain shares of its secrets. Such a message is called a letter.
The client uses the second key pair to derive its masks for pairs of clients.

Source: Bonawitz et al. 2017, https://eprint.iacr.org/2017/281
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import reject_if
from .fixed_point import wrapped_sum
from .shares import CannotUnmask, need, recovered, split

KEY = 32  # bytes of a key, a seed and a share
NONCE = 12
LETTER = NONCE + 2 * KEY + 16  # bytes of a letter: nonce, two shares, tag
NOTHING, SEED, SECRET = 0, 1, 2  # the secret of which a client reveals a share
Draw = Callable[[int], bytes]


def public_key(secret: bytes) -> bytes:
    """The public half of an X25519 key.

    Example:
        >>> len(public_key(bytes(range(32))))
        32
    """
    x25519: Any = need("cryptography.hazmat.primitives.asymmetric.x25519")
    return bytes(x25519.X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw())


def agreed_key(secret: bytes, public: bytes, about: bytes) -> bytes:
    """The key that two clients have in common: X25519, then HKDF-SHA256 with `about` as the info.

    Raises:
        ValueError: if the public key has low order, since anybody could then compute the agreed
            key.

    Example:
        >>> one, two = bytes([1]) * 32, bytes([2]) * 32
        >>> agreed_key(one, public_key(two), b"us") == agreed_key(two, public_key(one), b"us")
        True
    """
    x25519: Any = need("cryptography.hazmat.primitives.asymmetric.x25519")
    hashes: Any = need("cryptography.hazmat.primitives.hashes")
    hkdf: Any = need("cryptography.hazmat.primitives.kdf.hkdf")
    own = x25519.X25519PrivateKey.from_private_bytes(secret)
    shared = own.exchange(x25519.X25519PublicKey.from_public_bytes(public))
    kdf = hkdf.HKDF(hashes.SHA256(), length=KEY, salt=None, info=b"fgl secure sum 1 " + about)
    return bytes(kdf.derive(shared))


def mask(seed: bytes, count: int) -> Tensor:
    """A mask: the first 64-bit integers of the ChaCha20 key stream, with the seed as the key.

    Returns:
        int64 ``[count]``. To everybody who does not know the seed, these integers look uniformly
        random modulo 2^64.

    Example:
        >>> mask(bytes(32), 2)
        tensor([-8053014886254331786,  2935650227004792128])
    """
    ciphers: Any = need("cryptography.hazmat.primitives.ciphers")
    stream = ciphers.Cipher(ciphers.algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
    return torch.from_numpy(np.frombuffer(stream.update(bytes(8 * count)), "<i8").astype(np.int64))


def letters(
    row: int, secrets: Sequence[bytes], keys: Tensor, threshold: int, about: bytes, draw: Draw
) -> Tensor:
    """A client's letters: encrypted messages to each client, with shares of the sender's secrets.

    The sender has two secrets: the seed of its own mask, and the key from which it derives one mask
    for each pair with another client.

    Args:
        row: the client's own row.
        secrets: three secrets of the client: the key for encryption, the key for masks, and the
            seed of the client's own mask.
        keys: uint8 ``[n, 64]``, the public keys of all clients.
        threshold: number of shares that are needed to recover a secret.
        about: bytes that identify the exchange. An encrypted message can be decrypted only with the
            same bytes.
        draw: function that returns a given number of random bytes.

    Returns:
        uint8 ``[n, 92]``, one letter for each client, including the sender.

    Example:
        >>> keys = as_tensor(public_key(bytes([1]) * 32) * 2).view(1, 64)
        >>> letters(0, [bytes([1]) * 32] * 3, keys, 1, b"", bytes).shape
        torch.Size([1, 92])
    """
    sealing, masking, seed = secrets
    number = len(keys)
    shares = zip(split(seed, threshold, number), split(masking, threshold, number), strict=True)
    sealed = []
    for other, (of_seed, of_secret) in enumerate(shares):
        key = _sealing_key(sealing, keys, row, other, own=row, about=about)
        nonce = draw(NONCE)
        sealed.append(nonce + _aead(key).encrypt(nonce, of_seed + of_secret, about))
    return as_tensor(b"".join(sealed)).view(number, LETTER)


def masked(
    words: Tensor, row: int, secrets: Sequence[bytes], keys: Tensor, here: Tensor, about: bytes
) -> Tensor:
    """Hide a client's values: add its own mask, and one mask for each pair with another client.

    ``y_u = x_u + PRG(b_u) + sum_{u < v} PRG(s_uv) - sum_{u > v} PRG(s_uv)`` (Sec. 4). The sums are
    over the other clients v in `here`. Each pair of clients uses the same mask, once with a plus
    and once with a minus. So these masks cancel if the results of all clients in `here` are added.

    Args:
        words: int64 ``[P]``, the values that the client contributes to the sum.
        row, secrets, keys, about: the same arguments as for the function `letters`.
        here: bool ``[n]``, True for each client that sent encrypted shares to all clients
            (`letters`).

    Returns:
        int64 ``[P]``.

    Example:
        >>> keys = as_tensor(public_key(bytes([1]) * 32) * 2).view(1, 64)
        >>> alone = masked(torch.tensor([5]), 0, [bytes(32)] * 3, keys, torch.tensor([True]), b"")
        >>> alone - mask(bytes(32), 1)
        tensor([5])
    """
    _, masking, seed = secrets
    plus: list[Tensor] = [words, mask(seed, words.numel())]
    minus: list[Tensor] = []
    for other in _rows(here):
        if other != row:
            pair = mask(_pair_seed(masking, keys, row, other, about), words.numel())
            (plus if row < other else minus).append(pair)
    return wrapped_sum(plus, minus=minus)


def revealed(
    row: int, sealing: bytes, keys: Tensor, sealed: Tensor, here: Tensor, sent: Tensor, about: bytes
) -> Tensor:
    """Shares that a client reveals to the server: one share for each client of the exchange.

    Client i has split two secrets into shares: a seed and a key. From the seed, client i derives
    its own mask. From the key, client i derives its masks for pairs of clients. If the masked
    values of client i reached the server, a share of the seed is revealed. If client i sent
    encrypted shares and then dropped out, a share of the key is revealed. No share is revealed if
    the message with the encrypted shares cannot be decrypted.

    Args:
        row, keys, about: the same arguments as for the function `letters`.
        sealing: the revealing client's key for encryption.
        sealed: uint8 ``[n, 92]``; row i is the encrypted message from client i to this client. The
            message contains a share of each of client i's two secrets (see the function `letters`).
        here: bool ``[n]``, True for each client that sent encrypted shares (`letters`).
        sent: bool ``[n]``, True for each client whose masked values reached the server.

    Returns:
        uint8 ``[n, 33]``: the kind of the secret (0: none), followed by the share.

    Raises:
        ValueError: if `sent` is True for a client for which `here` is False.

    Example:
        >>> keys = as_tensor(public_key(bytes([1]) * 32) * 2).view(1, 64)
        >>> own = letters(0, [bytes([1]) * 32] * 3, keys, 1, b"", bytes)
        >>> yes = torch.tensor([True])
        >>> revealed(0, bytes([1]) * 32, keys, own, yes, yes, b"")[0, :3]
        tensor([1, 1, 1], dtype=torch.uint8)
    """
    reject_if(bool((sent & ~here).any()), "those who sent to be among those with letters", "others")
    shares = []
    for other in range(len(keys)):
        kind, share = NOTHING, bytes(KEY)
        opened = _opened(row, other, sealing, keys, sealed, about) if bool(here[other]) else b""
        if opened:
            kind = SEED if bool(sent[other]) else SECRET
            share = opened[:KEY] if kind == SEED else opened[KEY:]
        shares.append(bytes([kind]) + share)
    return as_tensor(b"".join(shares)).view(len(keys), 1 + KEY)


def commitment(seed: bytes, about: bytes) -> bytes:
    """A client's commitment to the seed of its own mask, sent before any share is revealed.

    Example:
        >>> len(commitment(bytes(32), b""))
        32
    """
    return hashlib.sha256(b"fgl secure sum 1 commits to " + about + seed).digest()


def told_secrets(
    told: Mapping[int, Tensor],
    keys: Tensor,
    here: Tensor,
    sent: Tensor,
    committed: Tensor,
    threshold: int,
    about: bytes,
) -> tuple[dict[int, bytes], dict[int, frozenset[int]]]:
    """Recover clients' secrets from shares; with these secrets, `unmasked` removes the masks.

    Args:
        told: dict from a client's row to the shares that this client revealed to the server, as
            returned by the function `revealed`.
        keys, here, sent, about: the same arguments as for the function `revealed`.
        committed: uint8 ``[n, 32]``; row i is the `commitment` of client i to the seed of its own
            mask.
        threshold: number of shares that are needed to recover a secret.

    Returns:
        Two dicts. The first dict maps each client's row to the client's recovered secret: the seed
        of its own mask if `sent` is True, and otherwise the key for the masks of pairs. The second
        dict maps a client's row to the rows of all clients that revealed false shares of this
        client's secret. The second dict can lack a client that revealed a false share, since
        `recovered` does not check every share.

    Raises:
        CannotUnmask: if too few shares of a secret arrived, or if the secret cannot be recovered
            from the shares.

    Example:
        >>> keys = as_tensor(public_key(bytes([1]) * 32) * 2).view(1, 64)
        >>> yes, seed = torch.tensor([True]), bytes([7]) * 32
        >>> own = letters(0, [bytes([1]) * 32] * 2 + [seed], keys, 1, b"", bytes)
        >>> told = {0: revealed(0, bytes([1]) * 32, keys, own, yes, yes, b"")}
        >>> committed = as_tensor(commitment(seed, b""))[None]
        >>> told_secrets(told, keys, yes, yes, committed, 1, b"")[0] == {0: seed}
        True
    """
    secrets: dict[int, bytes] = {}
    false: dict[int, frozenset[int]] = {}
    for row in _rows(here):
        kind = SEED if sent[row] else SECRET

        def fits(secret: bytes, row: int = row, kind: int = kind) -> bool:
            if kind == SECRET:
                return public_key(secret) == as_bytes(keys[row, KEY:])
            return commitment(secret, about) == as_bytes(committed[row])

        shares = {
            by: as_bytes(each[row, 1:]) for by, each in told.items() if int(each[row, 0]) == kind
        }
        doubted = frozenset().union(*false.values())
        try:
            secrets[row], wrong = recovered(shares, threshold, fits, doubted)
        except CannotUnmask as error:
            what = "seed" if kind == SEED else "key"
            raise CannotUnmask(f"the {what} of row {row}: {error}") from None
        if wrong:
            false[row] = wrong
    return secrets, false


def unmasked(
    total: Tensor, keys: Tensor, sent: Tensor, secrets: Mapping[int, bytes], about: bytes
) -> Tensor:
    """Remove the masks from the sum of the clients' masked values, with the recovered secrets.

    Args:
        total: int64 ``[P]``, the sum of the results of `masked` over the clients in `sent`.
        keys, sent, about: the same arguments as for the function `revealed`.
        secrets: dict from row to secret, from `told_secrets`.

    Returns:
        int64 ``[P]``.

    Example:
        >>> keys = as_tensor(public_key(bytes([1]) * 32) * 2).view(1, 64)
        >>> secrets, yes = [bytes([1]) * 32] * 3, torch.tensor([True])
        >>> hidden = masked(torch.tensor([5]), 0, secrets, keys, yes, b"")
        >>> unmasked(hidden, keys, yes, {0: secrets[2]}, b"")
        tensor([5])
    """
    plus: list[Tensor] = [total]
    minus: list[Tensor] = []
    for row, secret in secrets.items():
        if sent[row]:
            minus.append(mask(secret, total.numel()))
            continue
        for other in _rows(sent):
            pair = mask(_pair_seed(secret, keys, row, other, about), total.numel())
            (minus if other < row else plus).append(pair)
    return wrapped_sum(plus, minus=minus)


def as_bytes(value: Tensor) -> bytes:
    """The bytes of a uint8 tensor.

    Example:
        >>> as_bytes(as_tensor(b"abc"))
        b'abc'
    """
    return bytes(value.cpu().contiguous().numpy().tobytes())


def as_tensor(value: bytes) -> Tensor:
    """Bytes as a uint8 tensor.

    Example:
        >>> as_tensor(b"abc")
        tensor([97, 98, 99], dtype=torch.uint8)
    """
    return torch.from_numpy(np.frombuffer(value, np.uint8).copy())


def _rows(which: Tensor) -> list[int]:
    return list(which.nonzero().flatten().tolist())


def _sealing_key(
    secret: bytes, keys: Tensor, writer: int, reader: int, *, own: int, about: bytes
) -> bytes:
    """The key that encrypts letters between two clients; both clients can compute this key."""
    other = reader if own == writer else writer
    direction = b" letter %d %d" % (writer, reader)
    return agreed_key(secret, as_bytes(keys[other, :KEY]), about + direction)


def _pair_seed(masking: bytes, keys: Tensor, row: int, other: int, about: bytes) -> bytes:
    """The seed of the mask that two clients have in common."""
    both = b" mask %d %d" % (min(row, other), max(row, other))
    return agreed_key(masking, as_bytes(keys[other, KEY:]), about + both)


def _opened(
    row: int, other: int, sealing: bytes, keys: Tensor, sealed: Tensor, about: bytes
) -> bytes:
    """A letter's content; empty if the letter is for another client or from another exchange."""
    letter = as_bytes(sealed[other])
    try:
        key = _sealing_key(sealing, keys, other, row, own=row, about=about)
        plain: bytes = _aead(key).decrypt(letter[:NONCE], letter[NONCE:], about)
    except (ValueError, need("cryptography.exceptions").InvalidTag):
        return b""
    return plain if len(plain) == 2 * KEY else b""


def _aead(key: bytes) -> Any:
    return need("cryptography.hazmat.primitives.ciphers.aead").ChaCha20Poly1305(key)
