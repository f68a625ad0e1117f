"""Headers of a caller's requests that a gateway forwards to servers over HTTP."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bridge.errors import DefinitionError
from bridge.redaction import names_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bridge.tools.context import InvocationContext

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?")

_OF_THE_CONNECTION = frozenset(
    {
        *("accept", "accept-encoding", "connection", "host", "keep-alive", "last-event-id", "te", "trailer"),
        *("transfer-encoding", "upgrade", "origin", "referer"),
    }
)
_PREFIXES = ("content-", "mcp-", "proxy-", "sec-")


def forwarded_headers(names: Iterable[str]) -> Callable[[str, InvocationContext], Mapping[str, str]] | None:
    """Return a function that selects the headers to forward; None if there are none.

    Args:
        names: Names of the headers; case-insensitive.

    Raises:
        DefinitionError: A name is invalid, or the header belongs to the connection or carries credentials. Tokens for
            this server must not be sent to other servers (MCP, "Token Passthrough").
    """
    allowed = tuple(dict.fromkeys(_forwardable(name) for name in names))
    if not allowed:
        return None

    def supply(_server: str, context: InvocationContext) -> Mapping[str, str]:
        headers = context.headers
        return {name: headers[name] for name in allowed if name in headers and _VALUE.fullmatch(headers[name])}

    return supply


def _forwardable(name: str) -> str:
    lower = name.strip().lower()
    if not _NAME.fullmatch(lower):
        raise DefinitionError(f"{name!r} is not a valid header name")
    if names_secret(lower) and not lower.startswith("mcp-"):
        raise DefinitionError(
            f"the header {name!r} carries credentials for this server, which are never forwarded: "
            "give each server its own credentials in its 'headers'"
        )
    if lower in _OF_THE_CONNECTION or lower.startswith(_PREFIXES):
        raise DefinitionError(f"the header {name!r} belongs to one connection and cannot be forwarded")
    return lower
