"""An endpoint of streamable HTTP without a server: requests and their responses, as an ASGI server passes them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from bridge.server.http.endpoint import Endpoint
from bridge.server.http.requests import Head, Request
from bridge.server.http.session_requests import SessionRequests
from bridge.server.http.sessions import HttpSession, Sessions
from bridge.server.http.streams import OpenStreams
from bridge.server.observed import dispatch_of
from bridge.server.server import Server
from bridge.tools.toolbox import ToolBox
from tests.server.http_server import HEADERS, MODERN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Message, Scope

DEADLINE_SECONDS = 60
HANDSHAKE = "2025-11-25"
MODERN_CALL = HEADERS | {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "add"}
SESSION_CALL = HEADERS | {"mcp-protocol-version": HANDSHAKE, "mcp-session-id": "s1"}


class ServedEndpoint:
    """An endpoint at ``/mcp`` that serves tools, with one open session.

    Args:
        tools: The tools.
        stateless: As for the endpoint.
        options: As for `Server`.
    """

    def __init__(self, *tools: object, stateless: bool = False, **options: Any) -> None:
        self.toolbox = ToolBox(*tools)
        server = Server(self.toolbox, name="tests", **options)
        self.session = HttpSession("s1", None)
        self.session.version, self.session.capabilities = HANDSHAKE, {"roots": {}}
        self.sessions = Sessions()
        self.sessions.open(self.session)
        self.running = server.running
        dispatch = dispatch_of(server, has_sessions=not stateless)
        handshake = SessionRequests(server, dispatch, self.sessions, OpenStreams(), stateless=stateless)
        self.endpoint = Endpoint(dispatch, self.running, handshake, ("/mcp", "/mcp/"))


@dataclass
class Exchange:
    """One POST, and its response."""

    headers: Mapping[str, str]
    message: Any
    path: str = "/mcp"
    scope: dict[str, Any] = field(default_factory=dict)
    sent: list[Message] = field(default_factory=list)
    is_over: bool = False
    """True once the endpoint has answered, or dropped the request."""

    def __post_init__(self) -> None:
        self.gone = anyio.Event()
        """Set when the client disconnects."""
        self.listened = anyio.Event()
        """Set once the endpoint waits for the client to disconnect."""
        self.listeners = 0
        """Number of those that wait for it."""

    async def run(self, served: ServedEndpoint) -> Exchange:
        """Send the request, until it is answered."""
        headers = [(name.encode(), value.encode("latin-1")) for name, value in self.headers.items()]
        body = self.message if isinstance(self.message, bytes) else json.dumps(self.message).encode()
        line: Scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": self.path}
        scope: Scope = {**line, "headers": headers, **self.scope}
        request = Request(Head(scope), body)
        request.receive, request.send = self._receive, self._send
        assert served.endpoint.serves(scope)
        with anyio.fail_after(DEADLINE_SECONDS):
            await served.endpoint.answer(request)
        self.is_over = True
        return self

    async def _receive(self) -> Message:
        self.listeners += 1
        self.listened.set()
        try:
            await self.gone.wait()
        finally:
            self.listeners -= 1
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def answer(self) -> tuple[int, dict[str, str], Any]:
        """Status, headers and body of a response that is JSON."""
        start, body = self.sent
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        assert int(headers.pop("content-length")) == len(body["body"])
        assert headers.pop("content-type") == "application/json"
        return start["status"], headers, json.loads(body["body"])


def without(headers: Mapping[str, str], name: str) -> dict[str, str]:
    """Return headers without one of them."""
    return {each: value for each, value in headers.items() if each != name}
