"""Checks for untrusted JSON; errors show the received value."""

from __future__ import annotations

import math
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from bridge.errors import WireError
from bridge.text import short_repr

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
_STRINGS_AT_ONCE = 50_000

Json = dict[str, Any]
"""A JSON object."""

RETRY_AFTER_META_KEY = "io.github.mcp-toolbridge/retryAfterSeconds"
"""Key in ``_meta`` of the result of a refused call: seconds after which it may be called again."""
REQUEST_ID_META_KEY = "io.github.mcp-toolbridge/requestId"
"""Key in ``_meta`` of a recorded result, and of requests that a gateway sends for it: the id of the call in the log,
the audit log and the traces of the server that made it."""
Step = Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]
"""Runs the first step of a coroutine; returns an awaitable for the rest, or raises StopIteration with its value."""

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""The severities of RFC 5424, as MCP names them."""
LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
"""The severities in ascending order."""

Feature = Literal["tools", "resources", "prompts"]
"""A kind of what a server offers (MCP, "Server Features")."""

FEATURES: tuple[Feature, ...] = ("tools", "resources", "prompts")
"""All kinds, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class ValueBounds:
    """Limits for the numbers of values in one JSON text, which determine the time and memory of parsing.

    Args:
        containers: Maximum objects and arrays; each takes up to a hundred times its two bytes.
        entries: Maximum names and values, including objects and arrays.
        names: Maximum different names, which take several times as long as other values; None for no limit of theirs.
    """

    containers: int
    entries: int
    names: int | None = None

    def excess(self, text: bytes) -> str | None:
        """Count the values of a JSON text before it is parsed; return a description of the excess, or None.

        Characters inside JSON strings do not count. Up to the first syntax error, where a parser stops, the count is
        never too low.
        """
        names = math.inf if self.names is None else self.names
        if len(text) <= self.containers or (self._counted(text) is None and text.count(b":") <= names):
            return None  # these are upper bounds, sufficient for most texts
        if b"\\" in text:
            text = text.replace(rb"\\", b"").replace(rb"\"", b"")
        if (texts := text.count(b'"') // 2) > self.entries + 1:
            return f"{texts:,} names and texts, of {self.entries:,} at most"
        if (excess := self._counted(b"".join(text.split(b'"')[::2]))) is not None:
            return excess
        if self.names is not None and text.count(b":") > self.names and _has_more_names(text, self.names):
            return f"more than {self.names:,} different names"
        return None

    def share(self, text: bytes, ignored: float) -> float:
        """Estimate, from above, the part of the bounds that a text without excess takes, from 0.0 to 1.0.

        Characters inside JSON strings count as well. Up to the part ``ignored`` the quickest estimate is sufficient.
        """
        quickest = max((text.count(b"{") + text.count(b"[")) / self.containers, len(text) / self.entries)
        if quickest <= ignored:
            return quickest
        containers, entries = _counts(text)
        return min(1.0, max(containers / self.containers, entries / self.entries))

    def _counted(self, text: bytes) -> str | None:
        containers, entries = _counts(text)
        if containers > self.containers:
            return f"{containers:,} objects and arrays, of {self.containers:,} at most"
        if entries > self.entries:
            return f"{entries:,} names and values, of {self.entries:,} at most"
        return None


def _has_more_names(text: bytes, most: int) -> bool:
    """Return True if a JSON text without escaped quotation marks has more than so many different names."""
    names: set[bytes] = set()
    rest = text
    while True:
        *parts, rest = rest.split(b'"', _STRINGS_AT_ONCE * 2)
        followers = [*parts[2::2], rest]
        names.update(name for name, after in zip(parts[1::2], followers, strict=False) if after.lstrip()[:1] == b":")
        if len(names) > most:
            return True
        if len(parts) < _STRINGS_AT_ONCE * 2:
            return False


def _counts(text: bytes) -> tuple[int, int]:
    return text.count(b"{") + text.count(b"["), len(text) - len(text.translate(None, b",:{["))


def without_none(**fields: Any) -> Json:
    """Return the fields that are not None."""
    return {key: value for key, value in fields.items() if value is not None}


def optional_field(json: Mapping[str, Any], key: str, kind: type[T]) -> T | None:
    """Return a field that may be absent or null; raises `WireError` if it has another type."""
    value = json.get(key)
    if value is None or (isinstance(value, kind) and not (kind is int and isinstance(value, bool))):
        return value
    raise WireError(f"{key!r} must be {kind.__name__}: {short_repr(json)}")


def require_object(value: object, what: str) -> Json:
    """Return the value if it is a JSON object; raises `WireError` otherwise."""
    if not isinstance(value, dict):
        raise WireError(f"{what} is not an object: {short_repr(value)}")
    return value


def require_text(value: object) -> str:
    """Return the value if it is a string; raises `WireError` otherwise."""
    if not isinstance(value, str):
        raise WireError(f"expected a string: {short_repr(value)}")
    return value


def require_base64(value: object) -> bytes:
    """Decode a base64 string; raises `WireError` if it is none."""
    try:
        return b64decode(require_text(value).encode("ascii"), validate=True)
    except (Base64Error, UnicodeEncodeError) as error:
        raise WireError(f"expected base64: {short_repr(value)}") from error
