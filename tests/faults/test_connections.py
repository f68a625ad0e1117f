"""Faults of the connection to a server, and of proxies in front of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.faults.trial import NETWORK, Route

if TYPE_CHECKING:
    from tests.faults.trial import Trials

pytestmark = [pytest.mark.faults, pytest.mark.anyio]

FAILURE = b"HTTP/1.1 %d Oops\r\ncontent-type: text/html\r\ncontent-length: 13\r\nconnection: close\r\n\r\n<h1>Oops</h1>"
GARBAGE = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 13\r\nconnection: close\r\n\r\n<h1>Oops</h1>",
    b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\nconnection: close\r\n\r\n{"jsonrpc',
    b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: {"json\n\ndata: 5\n\n',
    b"220 mail.example.com ESMTP\r\n",
)


@pytest.mark.parametrize("route", NETWORK, ids=str)
async def test_a_stream_that_is_cut_after_half_a_frame(route: Route, trials: Trials) -> None:
    async with trials.trying("stream cut after half a frame", route) as stage:
        assert stage.network is not None
        for count in (30, 60, 120, 200):
            stage.network.bytes_left = count
            await stage.traffic.more()


@pytest.mark.parametrize("route", NETWORK, ids=str)
async def test_every_connection_cut_again_and_again(route: Route, trials: Trials) -> None:
    async with trials.trying("every connection cut, again and again", route) as stage:
        assert stage.network is not None
        for _ in range(5):
            await stage.network.cut()
            await stage.traffic.more()


@pytest.mark.parametrize("route", NETWORK, ids=str)
async def test_a_network_that_passes_nothing_on_for_a_while(route: Route, trials: Trials) -> None:
    fault = "black hole: nothing passes for a while"
    settings = {"timeout_seconds": 3, "connect_timeout_seconds": 3}
    async with trials.trying(fault, route, **settings) as stage:
        assert stage.network is not None
        stage.network.is_silent = True
        await stage.traffic.more()
        stage.network.is_silent = False


@pytest.mark.parametrize("route", NETWORK, ids=str)
async def test_connections_that_the_network_forgets(route: Route, trials: Trials) -> None:
    async with trials.trying("black hole: connections forgotten for ever", route, timeout_seconds=3) as stage:
        assert stage.network is not None
        stage.network.forget()
        await stage.traffic.more()


@pytest.mark.parametrize("route", NETWORK, ids=str)
async def test_answers_that_drip(route: Route, trials: Trials) -> None:
    async with trials.trying("slow drip, a byte at a time", route) as stage:
        assert stage.network is not None
        stage.network.is_slow = True
        await stage.traffic.more(40)
        stage.network.is_slow = False


@pytest.mark.parametrize("route", NETWORK, ids=str)
async def test_a_proxy_that_answers_with_server_errors(route: Route, trials: Trials) -> None:
    async with trials.trying("HTTP 500, 502, 503, 429", route, connect_wait_seconds=1) as stage:
        assert stage.network is not None
        for status in (500, 502, 503, 429):
            stage.network.answer = FAILURE % status
            await stage.traffic.more(4)
        stage.network.answer = None


@pytest.mark.parametrize("route", NETWORK, ids=str)
async def test_a_proxy_that_answers_with_garbage(route: Route, trials: Trials) -> None:
    async with trials.trying("garbage instead of answers", route, timeout_seconds=3, connect_wait_seconds=1) as stage:
        assert stage.network is not None
        for garbage in GARBAGE:
            stage.network.answer = garbage
            await stage.traffic.more(4)
        stage.network.answer = None


class Spy(httpx2.Auth):
    """Record the session."""

    session = ""

    def auth_flow(self, request: httpx2.Request) -> Any:
        self.session = request.headers.get("mcp-session-id", self.session)
        yield request


async def test_a_session_that_is_deleted(trials: Trials) -> None:
    spy = Spy()
    async with trials.trying("session deleted", Route.HTTP_HANDSHAKE, auth=spy) as stage:
        assert stage.remote is not None
        async with httpx2.AsyncClient() as client:
            for _ in range(3):
                deleted = spy.session
                await client.delete(stage.remote.url, headers={"mcp-session-id": deleted})
                while spy.session == deleted:
                    await stage.traffic.more(1)
