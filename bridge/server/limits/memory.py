"""Memory of messages that are kept, such as what a client says about itself, or subscribes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_BYTES_OF_A_VALUE = 256
"""Maximum memory of one JSON value, beside its text, in all forms in which it is kept."""


def kept_bytes(text: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> int:
    """Estimate an upper bound of the memory of a message that is parsed and kept, and of the headers of its request."""
    values = sum(text.count(each) for each in b",{[")
    return 2 * len(text) + _BYTES_OF_A_VALUE * values + sum(len(name) + len(value) for name, value in headers)
