"""Scopes of tools: a call whose scope is missing is refused before it is dispatched."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from bridge.server.auth.challenge import Challenge, send_challenge
from bridge.server.auth.identity import access_of_request, caller_of_request
from bridge.server.body import read_body, replaying
from bridge.telemetry.texts import abridged

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from bridge.server.auth.auth import Auth
    from bridge.server.publisher import Publisher

_logger = logging.getLogger("bridge.server.auth")


class ScopedTools:
    """ASGI middleware behind the gate and the body: answers 403 to calls whose scope is missing.

    Args:
        app: What is behind it.
        auth: What the tools ask for.
        publisher: The tools. To a caller who may not know of a tool, it asks for nothing.
        metadata_url: Where a client learns which issuers give tokens for this server.
        max_bytes: How long a body may be.
    """

    def __init__(
        self, app: ASGIApp, *, auth: Auth, publisher: Publisher, metadata_url: str | None, max_bytes: int
    ) -> None:
        self._app = app
        self._auth = auth
        self._publisher = publisher
        self._metadata_url = metadata_url
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = await read_body(receive, self._max_bytes)
        name = _called(body)
        missing = self._missing(name)
        if missing:
            caller = caller_of_request()
            _logger.warning(
                "refused %r the tool %r: not granted %s",
                None if caller is None else abridged(caller.name),
                name,
                " ".join(sorted(missing)),
            )
            needed = self._auth.required_scopes | self._auth.tool_scopes.of(name or "")
            challenge = Challenge(
                status=403,
                error="insufficient_scope",
                description=f"the tool {name} needs the scope {' '.join(sorted(missing))}",
                scopes=needed,
            )
            await send_challenge(send, challenge, self._metadata_url)
            return
        await self._app(scope, replaying(body, receive), send)

    def _missing(self, name: str | None) -> frozenset[str]:
        access = access_of_request()
        if name is None or self._publisher.views.of(access).tools.find(name) is None:
            return frozenset()
        return access.missing(name)


def _called(body: bytes) -> str | None:
    """The tool that a message calls, if it calls one; read as leniently as whatever reads it later."""
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
    return name if isinstance(name, str) else None
