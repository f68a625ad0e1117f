"""A guard before a server over HTTP, in a thread of its own: it refuses, or notes what passes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount

from bridge.server.http.app import http_app
from tests.client import served
from tests.server import http_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Receive, Scope, Send

    from bridge.types import Json


class Guard:
    """Stands before an app.

    Attributes:
        status: What messages are refused with.
        error: The error of the protocol with which they are; None for none.
        refusals: How many of the next messages are refused.
        key: Who does not bring this key is refused with 401; None to ask for none.
        seen: The methods of HTTP and the paths that came.
        url: Where it is, over streamable HTTP.
    """

    def __init__(self) -> None:
        self.status = 500
        self.error: Json | None = None
        self.refusals = 0
        self.key: str | None = None
        self.seen: list[tuple[str, str]] = []
        self.url = ""
        self.app = http_app(served.TOOLS, name="guarded")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self._refusal(scope)) is not None:
            told = {"jsonrpc": "2.0", "id": None, "error": self.error}
            answer = PlainTextResponse("refused", refusal) if self.error is None else JSONResponse(told, refusal)
            await answer(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refusal(self, scope: Scope) -> int | None:
        self.seen.append((scope["method"], scope["path"]))
        if self.key is not None and (b"authorization", self.key.encode()) not in scope["headers"]:
            return 401
        if scope["method"] != "POST" or not self.refusals:
            return None
        self.refusals -= 1
        return self.status


@contextmanager
def guarded() -> Iterator[Guard]:
    """A guarded server."""
    guard = Guard()
    app = Starlette(routes=[Mount("/", app=guard)], lifespan=guard.app.router.lifespan_context)
    app.state = guard.app.state
    with http_server.serving(app) as origin:
        guard.url = f"{origin}/mcp"
        yield guard
