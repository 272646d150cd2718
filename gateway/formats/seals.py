"""Seals on reasoning: only what this gateway sent, unchanged, carries the right one. No state is kept."""

import base64
import binascii
import hashlib

_KEY = b"haltline gateway"
"""It protects nothing: it makes a changed text known."""
_DIGEST_BYTES = 32


def signature(text: str) -> str:
    return base64.b64encode(_digest(text)).decode()


def sealed(text: str) -> str:
    """The text so that a client cannot read it."""
    return base64.b64encode(_digest(text) + text.encode()).decode()


def unsealed(seal: str) -> str | None:
    """The text of sealed(); None: it is none, or was changed."""
    try:
        text = base64.b64decode(seal, validate=True)[_DIGEST_BYTES:].decode()
    except (binascii.Error, ValueError):
        return None
    return text if sealed(text) == seal else None


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), key=_KEY, digest_size=_DIGEST_BYTES).digest()
