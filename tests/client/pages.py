"""A server over HTTP that lists what a test specifies, valid or not, and knows nothing else of the protocol."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from bridge.client import HttpTransport, ServerConfig
from tests.server import http_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from starlette.requests import Request

CAPABILITIES: dict[str, Any] = {"tools": {}}
INFO = {"name": "pages", "version": "1"}
OF_2026 = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


class Pages:
    """Answers with one page of tools, over streamable HTTP in both eras, and over SSE."""

    def __init__(self, tools: Sequence[Any]) -> None:
        self._page = {**OF_2026, "tools": list(tools)}
        self._answers: asyncio.Queue[str] = asyncio.Queue()

    def _answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any]
        match message["method"]:
            case "initialize":
                found = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": INFO}
            case "server/discover":
                found = {**OF_2026, "supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
            case "tools/list":
                found = self._page
            case _:
                found = {}
        return {"jsonrpc": "2.0", "id": message["id"], "result": found}

    async def post(self, request: Request) -> Response:
        """Streamable HTTP."""
        message = await request.json()
        return JSONResponse(self._answer(message)) if "id" in message else Response(status_code=202)

    async def messages(self, request: Request) -> Response:
        """Answer a message to a server over SSE."""
        message = await request.json()
        if "id" in message:
            await self._answers.put(json.dumps(self._answer(message)))
        return Response(status_code=202)

    async def stream(self, request: Request) -> Response:
        """Return the response of a server over SSE."""

        async def events() -> AsyncIterator[str]:
            yield "event: endpoint\ndata: /messages\n\n"
            while True:
                yield f"event: message\ndata: {await self._answers.get()}\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")


@contextmanager
def listing(tools: Sequence[Any], kind: Any, protocol: Any) -> Iterator[ServerConfig]:
    """Serve a list; yields the configuration of the server."""
    pages = Pages(tools)
    routes = [
        Route("/mcp", pages.post, methods=["POST"]),
        Route("/messages", pages.messages, methods=["POST"]),
        Route("/sse", pages.stream),
    ]
    with http_server.serving(Starlette(routes=routes)) as origin:
        url = f"{origin}/{'sse' if kind == 'sse' else 'mcp'}"
        yield ServerConfig(name="pages", transport=HttpTransport(url, kind=kind), protocol=protocol)
