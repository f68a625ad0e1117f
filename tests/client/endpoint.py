"""A server over HTTP that answers each message as a test says, in a thread of its own."""

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
    """Answers the greeting of its era, and whatever a test has an answer for; anything else is no method of its.

    Args:
        era: ``legacy``, with sessions, or the modern version.
        answers: What answers a method, or a tool by its name.

    Attributes:
        seen: The methods that were asked for, and the names of the tools that were called, in order.
        url: Where it is.
    """

    def __init__(self, era: str, answers: dict[str, Answer]) -> None:
        self.seen: list[str] = []
        self.url = ""
        self._era = era
        self._answers = answers
        self._sessions = 0

    def config(self, **settings: Any) -> ServerConfig:
        """How to reach it, with a key."""
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
    """A result."""
    return JSONResponse(
        {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}}, **options
    )


def error_of(call_id: Any, code: int, text: str, *, status: int = 200) -> Response:
    """An error."""
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
    """An endpoint; the methods of MCP that a test answers have an underscore for their slash."""
    with running(Endpoint(era, {name.replace("_", "/"): answer for name, answer in answers.items()})) as made:
        yield made
