"""Scopes of tools: the guard that refuses a call without the scope of its tool, before it is dispatched."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from bridge.server.auth.failures import Challenge, send_challenge
from bridge.server.http.requests import NOT_JSON, is_message, is_utf8
from bridge.server.protocol import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from bridge.telemetry import switch
from bridge.telemetry.conventions import TOOLS_CALL
from bridge.telemetry.instruments import Peer
from bridge.telemetry.repetitions import Repetitions
from bridge.text import clip

if TYPE_CHECKING:
    from bridge.server.auth.auth import Auth
    from bridge.server.core import ServerCore
    from bridge.server.http.requests import Request
    from bridge.tools.context import Caller
    from bridge.tools.tool import Tool
    from bridge.types import Json

_logger = logging.getLogger("bridge.server.auth")

_INSUFFICIENT_SCOPE = "insufficient_scope"
"""The error code of RFC 6750, section 3.1."""


class ToolScopeGuard:
    """Guard that refuses calls of tools whose scope the caller was not granted, with 403. It comes after the body.

    Calls of tools that are not visible to the caller are admitted, and answered as unknown.
    """

    def __init__(self, auth: Auth, publisher: ServerCore, metadata_url: str | None) -> None:
        self._auth = auth
        self._publisher = publisher
        self._metadata_url = metadata_url
        self._repetitions = Repetitions()

    def admits_at_once(self, request: Request) -> bool:  # noqa: ARG002 - as every guard
        """Admit every request: the fast path checks scopes itself."""
        return True

    async def admit(self, request: Request) -> bool:
        """Check the scopes of a call."""
        call = _call_in(request) if request.scope["method"] == "POST" else None
        if call is None:
            return True
        name: str = call["params"]["name"]
        tool = self._publisher.views.of(request.access).tools.find(name)
        missing = frozenset[str]() if tool is None else request.access.missing(tool.name)
        if tool is None or not missing:
            return True
        caller = None if request.user is None else request.user.caller
        _observe_refusal(request, call, tool, caller)
        shown = None if caller is None else clip(caller.name)
        if (addition := self._repetitions.addition(shown, name)) is not None:
            message = "refused %r the tool %r: not granted %s%s"
            _logger.warning(message, shown, name, " ".join(sorted(missing)), addition)
        challenge = Challenge(
            status=403,
            error=_INSUFFICIENT_SCOPE,
            description=f"the tool {name} needs the scope {' '.join(sorted(missing))}",
            scopes=self._auth.required_scopes | self._auth.tool_scopes.of(name),
        )
        await send_challenge(request.send, challenge, self._metadata_url)
        return False


def _call_in(request: Request) -> Json | None:
    """Return the message of a request if it is a ``tools/call``, read as leniently as by the SDK; else None."""
    message = request.message
    if message is NOT_JSON and is_utf8(request.body):
        try:
            message = json.loads(request.body)
        except (ValueError, RecursionError):
            return None
    if not isinstance(message, dict) or message.get("method") != "tools/call":
        return None
    params = message.get("params")
    name = params.get("name") if isinstance(params, dict) else None
    return message if isinstance(name, str) else None


def _observe_refusal(request: Request, message: Json, tool: Tool, caller: Caller | None) -> None:
    """Count, trace and audit a refused call."""
    if (observer := switch.observer()) is None:
        return
    params = message["params"]
    peer = Peer("sse" if is_message(request.scope) else "http", _version_in(request))
    arguments, meta = params.get("arguments"), params.get("_meta")
    details = observer.call_details(
        tool.name,
        tool.server,
        None if caller is None else caller.name,
        peer.transport,
        arguments if isinstance(arguments, dict) else {},
    )
    trace = meta if isinstance(meta, dict) else None
    series, session_id = observer.series(TOOLS_CALL, tool.name, peer), request.headers.get(b"mcp-session-id")
    session = None if session_id is None else session_id.decode("latin-1")
    observer.serve(series, message.get("id"), trace, session, details).end(_INSUFFICIENT_SCOPE)


def _version_in(request: Request) -> str:
    """Return the protocol version in the header; empty if it is unknown."""
    version = request.headers.get(b"mcp-protocol-version", b"").decode("latin-1")
    return version if version in MODERN_VERSIONS or version in HANDSHAKE_VERSIONS else ""
