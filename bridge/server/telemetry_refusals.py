"""Calls that are refused before they are dispatched, as an observer hears of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from bridge.server.http.requests import is_message
from bridge.server.protocol import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from bridge.telemetry import switch
from bridge.telemetry.conventions import TOOLS_CALL
from bridge.telemetry.instruments import Peer

if TYPE_CHECKING:
    from starlette.types import Scope

    from bridge.tools.context import Caller
    from bridge.tools.tool import Tool
    from bridge.types import Json


def call_refused(scope: Scope, message: Json, tool: Tool, caller: Caller | None, error_type: str) -> None:
    """A call of a tool was refused: it is counted, traced and recorded as any other.

    Args:
        scope: The request that it came in.
        message: The call.
        tool: The tool.
        caller: Who calls; None where nobody had to say.
        error_type: Why, in a word.
    """
    if (observer := switch.observer()) is None:
        return
    headers, params = Headers(scope=scope), message["params"]
    peer = Peer("sse" if is_message(scope) else "http", _version_in(headers))
    arguments, meta = params.get("arguments"), params.get("_meta")
    details = observer.call_details(
        tool.name,
        tool.server,
        None if caller is None else caller.name,
        peer.transport,
        arguments if isinstance(arguments, dict) else {},
    )
    trace = meta if isinstance(meta, dict) else None
    series, session_id = observer.series(TOOLS_CALL, tool.name, peer), headers.get("mcp-session-id")
    observer.serve(series, message.get("id"), trace, session_id, details).end(error_type)


def _version_in(headers: Headers) -> str:
    """The revision that is spoken, as the client says; anybody may say anything."""
    version = headers.get("mcp-protocol-version", "")
    return version if version in MODERN_VERSIONS or version in HANDSHAKE_VERSIONS else ""
