"""A server over HTTP that answers each message as a test specifies, in a thread of its own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bridge.client import HttpTransport, ServerConfig
from tests.client.scripted import listed
from tests.server import http_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from starlette.requests import Request

    from bridge.types import Json

    Answer = Callable[[Json], Awaitable[Response]]

MODERN = "2026-07-28"


class Endpoint:
    """Answers the handshake of its era, and methods for which the test has an answer; others are unknown.

    Args:
        era: ``legacy``, with sessions, or the modern version.
        answers: Answers by method, or by name of a tool.

    Attributes:
        seen: Methods of the requests, and names of the called tools, in order.
        url: Its URL.
    """

    def __init__(self, era: str, answers: dict[str, Answer]) -> None:
        self.seen: list[str] = []
        self.url = ""
        self._era = era
        self._answers = answers
        self._sessions = 0

    def config(self, **settings: Any) -> ServerConfig:
        """Return its configuration, with a key."""
        transport = HttpTransport(self.url, kind="http", headers={"Authorization": "Bearer key"})
        pin: Any = self._era
        return ServerConfig(name="remote", transport=transport, protocol=pin, **settings)

    async def answer(self, request: Request) -> Response:
        """Answer one message."""
        if request.method != "POST":
            return Response(status_code=405)
        message: Json = await request.json()
        if "id" not in message:
            return Response(status_code=202)
        method = message["method"]
        name = message["params"]["name"] if method == "tools/call" else method
        self.seen.append(name)
        if name in self._answers:
            return await self._answers[name](message)
        return self._greeting(method, message)

    def _greeting(self, method: str, message: Json) -> Response:
        told = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "x", "version": "1"}}
        if method == "initialize":
            self._sessions += 1
            session = {"mcp-session-id": f"session-{self._sessions}"}
            return result_of(message, {"protocolVersion": "2025-11-25", **told}, headers=session)
        if method == "server/discover":
            return result_of(message, {"supportedVersions": [MODERN], "ttlMs": 0, "cacheScope": "private", **told})
        if method == "tools/list":
            return result_of(message, {"tools": [listed("pay")], "ttlMs": 3_600_000, "cacheScope": "private"})
        if method == "ping" and self._era != MODERN:
            return result_of(message, {})
        return error_of(message["id"], -32601, "no such method", status=404 if self._era == MODERN else 200)


def result_of(message: Json, result: Json, **options: Any) -> Response:
    """Return a response with a result."""
    return JSONResponse(
        {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}}, **options
    )


def error_of(call_id: Any, code: int, text: str, *, status: int = 200) -> Response:
    """Return a response with an error."""
    error = {"code": code, "message": text}
    return JSONResponse({"jsonrpc": "2.0", "id": call_id, "error": error}, status_code=status)


@contextmanager
def running(made: Endpoint) -> Iterator[Endpoint]:
    """Serve an endpoint."""
    app = Starlette(routes=[Route("/mcp", made.answer, methods=["GET", "POST", "DELETE"])])
    with http_server.serving(app) as origin:
        made.url = f"{origin}/mcp"
        yield made


@contextmanager
def endpoint(era: str = "legacy", **answers: Answer) -> Iterator[Endpoint]:
    """Serve an endpoint; the methods of MCP that a test answers have an underscore for their slash."""
    with running(Endpoint(era, {name.replace("_", "/"): answer for name, answer in answers.items()})) as made:
        yield made
