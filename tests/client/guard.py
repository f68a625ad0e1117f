"""A guard in front of a server over HTTP, in a thread of its own, which refuses requests or records them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount

from bridge.server.http.app import http_app
from bridge.server.server import Server
from tests.client import served
from tests.server import http_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Receive, Scope, Send

    from bridge.types import Json


class Guard:
    """Guard in front of an app.

    Attributes:
        status: HTTP status of refusals.
        error: JSON-RPC error of refusals; None for none.
        refusals: Number of next messages that are refused.
        key: Required key; requests without it get 401; None for no key.
        seen: HTTP methods and paths of the requests.
        url: URL of streamable HTTP.
    """

    def __init__(self) -> None:
        self.status = 500
        self.error: Json | None = None
        self.refusals = 0
        self.key: str | None = None
        self.seen: list[tuple[str, str]] = []
        self.url = ""
        self.app = http_app(Server(served.TOOLS, name="guarded"))

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
    """Run a guarded server."""
    guard = Guard()
    app = Starlette(routes=[Mount("/", app=guard)], lifespan=guard.app.router.lifespan_context)
    app.state = guard.app.state
    with http_server.serving(app) as origin:
        guard.url = f"{origin}/mcp"
        yield guard
