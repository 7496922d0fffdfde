"""Ed25519 signatures (from the package `cryptography`), and files with keys for signatures.

Source: RFC 8032, https://www.rfc-editor.org/rfc/rfc8032
"""

from os import PathLike
from pathlib import Path
from typing import Any

from .shares import need

SIGNATURE = 64  # bytes


def signing_key(secret: bytes) -> bytes:
    """The public half of an Ed25519 key.

    Example:
        >>> len(signing_key(bytes(range(32))))
        32
    """
    return bytes(_private(secret).public_key().public_bytes_raw())


def signature(secret: bytes, what: bytes) -> bytes:
    """Sign some bytes with a private key.

    Example:
        >>> len(signature(bytes(range(32)), b"what I saw"))
        64
    """
    return bytes(_private(secret).sign(what))


def is_signed(public: bytes, sign: bytes, what: bytes) -> bool:
    """Whether a signature of these bytes is valid for a public key.

    Example:
        >>> secret = bytes(range(32))
        >>> sign = signature(secret, b"one list")
        >>> [is_signed(signing_key(secret), sign, what) for what in (b"one list", b"another")]
        [True, False]
    """
    ed25519: Any = need("cryptography.hazmat.primitives.asymmetric.ed25519")
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(public).verify(sign, what)
    except need("cryptography.exceptions").InvalidSignature:
        return False
    return True


def read_private(path: str | PathLike[str]) -> bytes:
    """Read the private key from a file written by ``ssh-keygen -t ed25519 -N ""``.

    Raises:
        ValueError: if the file holds a key of a different kind.

    Example:
        >>> import tempfile
        >>> from cryptography.hazmat.primitives.serialization import (
        ...     Encoding, NoEncryption, PrivateFormat)
        >>> made = _private(bytes(range(32))), Path(tempfile.mkdtemp()) / "sign-0"
        >>> how = Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()
        >>> _ = made[1].write_bytes(made[0].private_bytes(*how))
        >>> read_private(made[1]) == bytes(range(32))
        True
    """
    serialization: Any = need("cryptography.hazmat.primitives.serialization")
    return _raw(path, serialization.load_ssh_private_key(Path(path).read_bytes(), None), "private")


def read_public(path: str | PathLike[str]) -> bytes:
    """Read the public key from a ``.pub`` file written by ``ssh-keygen -t ed25519``.

    Raises:
        ValueError: if the file holds a key of a different kind.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "sign-0.pub"
        >>> _ = path.write_text("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + 43 * "A")
        >>> read_public(path) == bytes(32)
        True
    """
    serialization: Any = need("cryptography.hazmat.primitives.serialization")
    return _raw(path, serialization.load_ssh_public_key(Path(path).read_bytes()), "public")


def _private(secret: bytes) -> Any:
    ed25519: Any = need("cryptography.hazmat.primitives.asymmetric.ed25519")
    return ed25519.Ed25519PrivateKey.from_private_bytes(secret)


def _raw(path: Any, key: Any, half: str) -> bytes:
    """The 32 bytes of a private or public Ed25519 key; any other key raises an error."""
    ed25519: Any = need("cryptography.hazmat.primitives.asymmetric.ed25519")
    if not isinstance(key, getattr(ed25519, f"Ed25519{half.title()}Key")):
        got = type(key).__name__.strip("_")
        raise ValueError(f"Expected {path} to hold an Ed25519 key, but got {got}")
    return bytes(getattr(key, f"{half}_bytes_raw")())
