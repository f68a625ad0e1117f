"""A gateway answers the same before ASGI and by its app, and calls its server as often."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import uvicorn
from mcp import Client, MCPError
from mcp_types import ElicitResult

from bridge.client import HttpTransport, ServerConfig
from bridge.gateway import Gateway
from bridge.hosting import sockets
from bridge.hosting.serve import http_protocol
from bridge.hosting.server import BackgroundServer
from bridge.server import http_app
from bridge.server.http.guards import PreAsgiHandler
from bridge.tools.toolbox import ToolBox
from tests.server.differential_tools import OTHER_CALLS, PLAIN_CALLS, toolbox
from tests.server.tools import GREET, Waiting, made

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from mcp.client import ClientRequestContext
    from mcp_types import ElicitRequestParams, LoggingMessageNotificationParams

    from bridge.tools.context import InvocationContext

pytestmark = pytest.mark.anyio

MODERN = "2026-07-28"
ERAS = ("legacy", MODERN)
DEADLINE_SECONDS = 60
TALKATIVE_CALLS = (*PLAIN_CALLS, *OTHER_CALLS, ("note", {}), ("greet", {}), ("ask_twice", {}))
QUIET_CALLS = (*TALKATIVE_CALLS, ("cut", {}))


async def _ask_twice(_: Mapping[str, Any], context: InvocationContext) -> str:
    await context.progress(1, 2, "asking")
    first = await context.elicit("First?", {"type": "object", "properties": {}}, key="first")
    second = await context.elicit("Second?", {"type": "object", "properties": {}}, key="second")
    return f"{first.action} {second.action}"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def served(app: Any, http: Any = "h11") -> AsyncIterator[str]:
    """Serve an app by a real server in this event loop; yields its origin."""
    server = BackgroundServer(uvicorn.Config(app, log_config=None, ws="none", http=http, access_log=False))
    begun = asyncio.Event()
    begun.set()
    listeners = sockets.bind(sockets.resolve("127.0.0.1", 0))
    async with server.running(listeners, begun):
        yield f"http://127.0.0.1:{listeners[0].getsockname()[1]}"
        app.state.shutdown()


def called_in(body: bytes) -> str | None:
    """Return the tool that a message calls; None for another message."""
    message = json.loads(body)
    return message["params"]["name"] if message.get("method") == "tools/call" else None


class Upstream:
    """Counts the calls of each tool, and answers a call of ``cut`` by half a response."""

    def __init__(self, *tools: object) -> None:
        self.calls: Counter[str] = Counter()
        self.wishes_for_logs = 0
        self._app = http_app(ToolBox(*toolbox(), GREET, made("cut", _ask_twice), made("ask_twice", _ask_twice), *tools))
        self.state = self._app.state

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        first = await receive() if scope.get("method") == "POST" else None

        async def replayed() -> Any:
            nonlocal first
            message, first = first, None
            return message or await receive()

        if first is not None and (name := called_in(first["body"])) is not None:
            self.calls[name] += 1
            self.wishes_for_logs += b"io.modelcontextprotocol/logLevel" in first["body"]
            if name == "cut":
                headers = [(b"content-type", b"application/json"), (b"content-length", b"9")]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                await send({"type": "http.response.body", "body": b"{", "more_body": True})
                return
        await self._app(scope, replayed, send)


@asynccontextmanager
async def gateways(era: str, upstream: Upstream) -> AsyncIterator[tuple[str, str]]:
    """Run a gateway to a server, in this era; yields its URLs: before ASGI, and of the app."""
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.fail_after(DEADLINE_SECONDS))
        url = await stack.enter_async_context(served(upstream)) + "/mcp"
        pin: Any = era
        config = ServerConfig(name="upstream", transport=HttpTransport(url), protocol=pin)
        gateway = await stack.enter_async_context(Gateway([config]))
        direct, app = http_app(gateway.tools), http_app(gateway.tools)
        http = http_protocol(direct.pre_asgi_handler(lambda: True))
        yield (
            await stack.enter_async_context(served(direct, http)) + "/mcp",
            await stack.enter_async_context(served(app)) + "/mcp",
        )


async def transcript(url: str, era: str, *, is_quiet: bool) -> list[Any]:
    """Return all messages, questions, results and errors of a client's calls, in order."""
    got: list[Any] = []

    async def on_log(params: LoggingMessageNotificationParams) -> None:
        got.append(["log", params.level, params.data, params.logger])

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        got.append(["progress", progress, total, message])

    async def on_elicitation(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        got.append(["asked", params.message])
        return ElicitResult(action="accept", content={"name": "Ada"})

    handlers: dict[str, Any] = {"logging_callback": on_log, "elicitation_callback": on_elicitation}
    progress = None if is_quiet else on_progress
    async with Client(url, mode=era, log_level=None if is_quiet else "info", **handlers) as client:
        for name, arguments in QUIET_CALLS if is_quiet else TALKATIVE_CALLS:
            try:
                result = await client.call_tool(name, arguments, progress_callback=progress)
            except MCPError as error:
                got.append([name, error.error.model_dump(mode="json")])
            else:
                got.append([name, result.model_dump(mode="json", by_alias=True)])
    return got


@pytest.mark.parametrize("era", ERAS, ids=lambda era: f"to-{era}")
@pytest.mark.parametrize("server_era", ERAS, ids=lambda era: f"from-{era}")
async def test_every_call_has_the_same_outcome_before_asgi_and_by_the_app(
    era: str, server_era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered: Counter[bool] = Counter()
    begin = PreAsgiHandler.begin

    def counting(self: PreAsgiHandler, head: Any, body: bytes) -> Any:
        found = begin(self, head, body)
        offered[found is not None] += b'"tools/call"' in body
        return found

    monkeypatch.setattr(PreAsgiHandler, "begin", counting)
    upstream = Upstream()
    async with gateways(server_era, upstream) as urls:
        said = ""
        for is_quiet in (True, False):
            got = []
            for url in urls:
                upstream.calls.clear()
                got.append((await transcript(url, era, is_quiet=is_quiet), dict(upstream.calls)))
            assert got[0] == got[1]
            said += str(got[0])
            # In sessions of the handshake era, clients that have set no level get all messages.
            is_asked_for_logs = server_era == MODERN and not (is_quiet and era == MODERN)
            assert (upstream.wishes_for_logs > 0) is is_asked_for_logs
        for words in ("Second?", "half", "noted", "the outcome is unknown", "no: é", "tests/mark"):
            assert words in said
    assert offered[True] >= len(QUIET_CALLS) + len(TALKATIVE_CALLS)
    assert offered[False] == 0


@pytest.mark.parametrize("era", ERAS, ids=lambda era: f"to-{era}")
@pytest.mark.parametrize("server_era", ERAS, ids=lambda era: f"from-{era}")
async def test_a_call_that_is_given_up_is_cancelled_at_its_server(era: str, server_era: str) -> None:
    for number in (0, 1):
        waiting = Waiting()
        async with gateways(server_era, Upstream(waiting.tool)) as urls, Client(urls[number], mode=era) as client:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "wait", {})
                await waiting.started.wait()
                tasks.cancel_scope.cancel()
            await waiting.cancelled.wait()
