"""Headers: which of a caller's headers a gateway hands on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bridge.client.redaction import names_secret
from bridge.errors import DefinitionError

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


def header_supplier(names: Iterable[str]) -> Callable[[str, InvocationContext], Mapping[str, str]] | None:
    """What hands on some of a caller's headers; None where there are none to hand on.

    Args:
        names: The headers, whatever their case.

    Raises:
        DefinitionError: One is no header, belongs to the connection, or carries what proves who somebody is: a token
            that was meant for this server is never shown to another (MCP, "Token Passthrough").
    """
    allowed = tuple(dict.fromkeys(_checked(name) for name in names))
    if not allowed:
        return None

    def supply(_server: str, context: InvocationContext) -> Mapping[str, str]:
        headers = context.headers
        return {name: headers[name] for name in allowed if name in headers and _VALUE.fullmatch(headers[name])}

    return supply


def _checked(name: str) -> str:
    lower = name.strip().lower()
    if not _NAME.fullmatch(lower):
        raise DefinitionError(f"{name!r} is no name of a header")
    if names_secret(lower) and not lower.startswith("mcp-"):
        raise DefinitionError(
            f"the header {name!r} carries a secret that was meant for this server, and is never handed on: "
            "give each server a credential of its own in its 'headers'"
        )
    if lower in _OF_THE_CONNECTION or lower.startswith(_PREFIXES):
        raise DefinitionError(f"the header {name!r} belongs to one connection, and cannot be handed on")
    return lower
