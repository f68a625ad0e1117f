"""Calls that a server refuses over HTTP."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from bridge.client import HttpTransport, ServerConfig
from bridge.client.transports.http_client import MessageClient
from bridge.errors import ServerAuthError, ServerRefusedError, ServerUnavailableError
from bridge.server.http.app import http_app
from bridge.server.server import Server
from tests.client import served
from tests.client.conftest import DEADLINE_SECONDS, opened
from tests.client.endpoint import MODERN, Endpoint, endpoint, error_of, result_of
from tests.server import http_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request

    from bridge.types import Json
    from tests.client.guard import Guard
    from tests.client.reports import Reports

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["legacy", MODERN])

PAID = {"content": [{"type": "text", "text": "paid"}]}


def refusing(response: Response, times: int = 1_000_000) -> Callable[[Json], Awaitable[Response]]:
    """Return a function that answers with this response so many times, then with a result."""
    left = times

    async def refuse(message: Json) -> Response:
        nonlocal left
        left -= 1
        return response if left >= 0 else result_of(message, PAID)

    return refuse


# --- sessions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (404, "booking 7 not found"),
        (404, "Session not found"),
        (400, "charged, but the session ID could not be closed"),
        (400, "charged, but the checkout session could not be closed"),
        (401, "the bank wants to know who you are"),
    ],
)
async def test_an_error_with_the_calls_own_id_is_its_answer_whatever_the_status(status: int, text: str) -> None:
    async def fail(message: Json) -> Response:
        return error_of(message["id"], -32002, text, status=status)

    with endpoint(pay=fail) as server:
        async with opened(server.config()) as connection:
            with pytest.raises(ServerRefusedError) as caught:
                await connection.call_tool("pay", {})
            assert (await connection.list_tools()).tools
            assert connection.status().connects == 1
        assert server.seen.count("pay") == 1
    assert (caught.value.code, caught.value.message) == (-32002, text)


WORDS = (
    "Session abc123 not found",
    "Session '6f1e-4c' does not exist",
    "session does not exist",
    "Could not find session",
    "Invalid or missing session",
    "Session is unknown",
)


REFUSALS = [
    Response(status_code=404),
    PlainTextResponse("session not found", 404),
    JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}}, 404),
    JSONResponse({"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "gone"}}, 404),
    JSONResponse(
        {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": -32000, "message": "Bad Request: No valid session ID provided"},
        },
        400,
    ),
    PlainTextResponse("Bad Request: Unknown Mcp-Session-Id header", 400),
    PlainTextResponse("Bad Request: Server not initialized", 400),
    *(PlainTextResponse(words, 400) for words in WORDS),
    *(
        JSONResponse({"jsonrpc": "2.0", "id": number, "error": {"code": -32000, "message": words}}, 400)
        for words in WORDS
        for number in (None, "server-error")
    ),
]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_call_in_a_session_that_the_server_does_not_know_is_made_again_in_another(refusal: Response) -> None:
    with endpoint(pay=refusing(refusal, times=1)) as server:
        async with opened(server.config()) as connection:
            assert (await connection.call_tool("pay", {}))["content"] == PAID["content"]
            assert connection.status().connects == 2
        assert server.seen.count("pay") == 2


async def test_a_server_that_knows_no_session_is_asked_for_a_call_twice_at_most() -> None:
    with endpoint(pay=refusing(Response(status_code=404))) as server:
        async with opened(server.config()) as connection:
            with pytest.raises(ServerUnavailableError, match=r"calling 'pay': the server no longer knows the session"):
                await connection.call_tool("pay", {})
        assert server.seen.count("pay") == 2


async def test_what_a_refusal_says_of_some_other_session_is_no_reason_to_call_again() -> None:
    refusal = PlainTextResponse("charged, but the checkout session could not be closed", 400)
    with endpoint(pay=refusing(refusal)) as server:
        async with opened(server.config()) as connection:
            with pytest.raises(ServerRefusedError, match="HTTP 400"):
                await connection.call_tool("pay", {})
        assert server.seen.count("pay") == 1


async def test_a_session_that_is_lost_is_begun_anew_even_where_the_server_says_so_with_the_calls_id() -> None:
    is_lost = True

    async def know_no_session(message: Json) -> Response:
        if not is_lost:
            return result_of(message, PAID if message["method"] == "tools/call" else {})
        return error_of(message["id"], -32001, "Session not found", status=404)

    with endpoint(pay=know_no_session, ping=know_no_session) as server:
        async with opened(server.config()) as connection:
            ready = anyio.Event()
            connection.on_state(lambda _state: ready.set() if connection.status().connects == 2 else None)
            with pytest.raises(ServerRefusedError, match="Session not found"):
                await connection.call_tool("pay", {})
            await ready.wait()
            is_lost = False
            await connection.call_tool("pay", {})
        assert server.seen.count("pay") == 2


# --- credentials -----------------------------------------------------------------------------------------------------


class Bank:
    """Pays on request, with a secret that is not shown."""

    def __init__(self) -> None:
        self.payments: list[str] = []
        self._began, self._may_end = anyio.Event(), anyio.Event()

    def answers(self) -> dict[str, Any]:
        return {"pay": self._pay, "secret": self._secret, "release": self._release}

    async def _pay(self, message: Json) -> Response:
        self.payments.append("began")
        self._began.set()
        await self._may_end.wait()
        self.payments.append("ended")
        return result_of(message, PAID)

    async def _secret(self, _message: Json) -> Response:
        await self._began.wait()
        return Response(status_code=401, headers={"www-authenticate": "Bearer"})

    async def _release(self, message: Json) -> Response:
        self._may_end.set()
        return result_of(message, {"content": []})


async def release(server: Endpoint) -> None:
    """Let the bank complete its payment, without a message over the connection under test."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "release"}}
    async with httpx2.AsyncClient() as client:
        await client.post(server.url, json=message)


@ERAS
async def test_credentials_that_one_call_lacks_are_no_matter_of_the_calls_under_way(era: str) -> None:
    bank = Bank()
    paid = []
    with endpoint(era, **bank.answers()) as server:
        async with opened(server.config()) as connection, anyio.create_task_group() as tasks:

            async def pay() -> None:
                paid.append(await connection.call_tool("pay", {}))

            tasks.start_soon(pay)
            with pytest.raises(ServerAuthError, match="calling 'secret': it asks for credentials"):
                await connection.call_tool("secret", {})
            await release(server)
    assert [result["content"] for result in paid] == [PAID["content"]]
    assert bank.payments == ["began", "ended"]


@ERAS
async def test_a_call_under_way_goes_on_where_others_need_a_connection_with_other_credentials(era: str) -> None:
    bank = Bank()
    paid = []
    with endpoint(era, **bank.answers()) as server:
        async with opened(server.config()) as connection, anyio.create_task_group() as tasks:

            async def pay() -> None:
                paid.append(await connection.call_tool("pay", {}))

            tasks.start_soon(pay)
            with pytest.raises(ServerAuthError):
                await connection.call_tool("secret", {})
            await connection.call_tool("release", {})
            assert connection.status().connects == 2
    assert [result["content"] for result in paid] == [PAID["content"]]
    assert bank.payments == ["began", "ended"]


# --- over SSE, where an answer comes on a stream of its own --------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (400, None, r"refused \(-32603\), HTTP 400"),
        (403, None, r"refused \(-32603\), HTTP 403"),
        (429, {"code": -32600, "message": "too often"}, r"too often \(-32600\), HTTP 429"),
    ],
)
async def test_a_call_over_sse_that_is_refused_fails_at_once_and_alone(
    guard: Guard, reports: Reports, status: int, error: Json | None, message: str
) -> None:
    config = ServerConfig(name="guarded", transport=HttpTransport(guard.url.replace("/mcp", "/sse"), kind="sse"))
    async with opened(config) as connection, anyio.create_task_group() as tasks:
        tasks.start_soon(connection.call_tool, "hold", {"port": reports.port})
        await reports.wait_for("started")
        guard.status, guard.error, guard.refusals = status, error, 1
        sent = len(guard.seen)
        with pytest.raises(ServerRefusedError, match=message):
            await connection.call_tool("add", {"a": 1, "b": 2})
        assert (await connection.call_tool("add", {"a": 1, "b": 2}))["structuredContent"] == {"result": 3}
        assert guard.seen[sent:] == [("POST", "/messages/")] * 2
        assert (connection.status().connects, reports.words) == (1, ["started"])
        tasks.cancel_scope.cancel()
    await reports.wait_for("cancelled")


# --- redirects -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def redirected(origin: str | None, path: str, *, kind: str, status: int = 307) -> AsyncIterator[ServerConfig]:
    """Serve a redirect of each request for another path to the server's own path, or to another origin."""
    app = http_app(Server(served.TOOLS, name="redirected"))

    pin: Any = "legacy" if kind == "sse" else kind

    async def redirect(request: Request) -> Response:
        return RedirectResponse(f"{origin or ''}{path}", status)

    routes = [Route("/old", redirect, methods=["GET", "POST", "DELETE"]), Mount("/", app=app)]
    outer = Starlette(routes=routes, lifespan=app.router.lifespan_context)
    outer.state = app.state
    with http_server.serving(outer) as here:
        at = HttpTransport(f"{here}/old", kind="sse" if kind == "sse" else "http")
        yield ServerConfig(name="redirected", transport=at, protocol=pin)


@pytest.mark.parametrize("kind", ["auto", MODERN, "sse"])
async def test_a_redirect_within_the_origin_is_followed(kind: str) -> None:
    async with redirected(None, "/sse" if kind == "sse" else "/mcp", kind=kind) as config, opened(config) as connection:
        assert (await connection.call_tool("add", {"a": 1, "b": 2}))["structuredContent"] == {"result": 3}


@pytest.mark.parametrize("kind", ["auto", MODERN, "sse"])
async def test_a_redirect_to_another_origin_is_not_followed(kind: str, guard: Guard) -> None:
    origin = guard.url.removesuffix("/mcp")
    async with redirected(origin, "/sse" if kind == "sse" else "/mcp", kind=kind) as config:
        with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(ServerUnavailableError):
            async with opened(config):
                pass
    assert guard.seen == []


async def test_a_closed_client_sends_nothing() -> None:
    client = MessageClient("http://127.0.0.1:9/mcp", {}, None, None, 1)  # type: ignore[arg-type]  # not used
    await client.aclose()
    with pytest.raises(httpx2.ConnectError, match="the session has ended"):
        await client.send(client.request("POST", {}, b"{}"))
