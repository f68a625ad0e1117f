"""403 for calls without the scope of their tool.

Scopes of tools: a call whose scope is missing is refused before it is dispatched.

Calls that are refused before they are dispatched, as an observer hears of them.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json
from starlette.datastructures import Headers

from bridge.server.auth.failures import Challenge, send_challenge
from bridge.server.auth.identity import access_of_request, caller_of_request
from bridge.server.http.requests import is_message, read_body, replay_body
from bridge.server.protocol import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from bridge.telemetry import switch
from bridge.telemetry.conventions import TOOLS_CALL
from bridge.telemetry.instruments import Peer
from bridge.telemetry.repetitions import Repetitions
from bridge.text import clip

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from bridge.server.auth.auth import Auth
    from bridge.server.core import ServerCore
    from bridge.tools.context import Caller
    from bridge.tools.tool import Tool
    from bridge.types import Json

_logger = logging.getLogger("bridge.server.auth")

_INSUFFICIENT_SCOPE = "insufficient_scope"
"""What RFC 6750, section 3.1, calls it."""


class ToolScopeMiddleware:
    """ASGI middleware behind the gate and the body: answers 403 to calls whose scope is missing.

    Args:
        app: What is behind it.
        auth: What the tools ask for.
        publisher: The tools. To a caller who may not know of a tool, it asks for nothing.
        metadata_url: Where a client learns which issuers give tokens for this server.
        max_bytes: How long a body may be.
    """

    def __init__(
        self, app: ASGIApp, *, auth: Auth, publisher: ServerCore, metadata_url: str | None, max_bytes: int
    ) -> None:
        self._app = app
        self._auth = auth
        self._publisher = publisher
        self._metadata_url = metadata_url
        self._max_bytes = max_bytes
        self._repetitions = Repetitions()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = await read_body(receive, self._max_bytes)
        call = _call_in(body)
        name = None if call is None else call["params"]["name"]
        tool, missing = self._missing(name)
        if call is not None and tool is not None and missing:
            caller = caller_of_request()
            call_refused(scope, call, tool, caller, _INSUFFICIENT_SCOPE)
            shown = None if caller is None else clip(caller.name)
            if (addition := self._repetitions.addition(shown, name)) is not None:
                told = "refused %r the tool %r: not granted %s%s"
                _logger.warning(told, shown, name, " ".join(sorted(missing)), addition)
            needed = self._auth.required_scopes | self._auth.tool_scopes.of(name or "")
            challenge = Challenge(
                status=403,
                error=_INSUFFICIENT_SCOPE,
                description=f"the tool {name} needs the scope {' '.join(sorted(missing))}",
                scopes=needed,
            )
            await send_challenge(send, challenge, self._metadata_url)
            return
        await self._app(scope, replay_body(body, receive), send)

    def _missing(self, name: str | None) -> tuple[Tool | None, frozenset[str]]:
        """The tool of a name, as far as the caller may know of it, and the scopes that are missing for it."""
        access = access_of_request()
        tool = None if name is None else self._publisher.views.of(access).tools.find(name)
        return tool, frozenset() if tool is None else access.missing(tool.name)


def _call_in(body: bytes) -> Json | None:
    """A message that calls a tool by its name, if it is one; read as leniently as whatever reads it later."""
    try:
        message: Any = from_json(body)
    except ValueError:
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            return None
    if not isinstance(message, dict) or message.get("method") != "tools/call":
        return None
    params = message.get("params")
    name = params.get("name") if isinstance(params, dict) else None
    return message if isinstance(name, str) else None


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
