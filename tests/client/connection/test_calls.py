"""Deadlines, cancellation, and notifications during a call."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge.client import (
    CallOptions,
    ClientHandlers,
    Connection,
    HttpTransport,
    MemoryTransport,
    ReconnectPolicy,
    ServerConfig,
)
from bridge.errors import (
    OutcomeUnknownError,
    ServerAnswerError,
    ServerTimeoutError,
    ServerUnavailableError,
)
from bridge.server.server import Server
from bridge.tools.channel import Channel
from bridge.tools.context import InvocationContext
from bridge.tools.questions import ElicitationAnswer
from tests.client.conftest import opened, proxied, python_config, stdio_config
from tests.client.http_client import sent_by
from tests.interop import tools as interop

if TYPE_CHECKING:
    from tests.client.conftest import RemoteServer
    from tests.client.reports import Reports

pytestmark = pytest.mark.anyio

BEGUN_SECONDS = 1.5  # by then a call has begun on a busy machine too
MODERN = "2026-07-28"
ERAS = pytest.mark.parametrize("pin", ["auto", "legacy"])
ROUTES = pytest.mark.parametrize(
    ("route", "pin"), [(r, p) for r in ("stdio", "http", "sse") for p in ("auto", "legacy")][:-1]
)


def config_of(route: str, steady: RemoteServer, **settings: Any) -> ServerConfig:
    if route == "stdio":
        return stdio_config(**settings)
    is_sse = not route.startswith("http")
    transport = HttpTransport(steady.sse_url if is_sse else steady.url, kind="sse" if is_sse else "http")
    config = replace(ServerConfig(name="served", transport=transport), **settings)
    return sent_by(config, own=route != "http by the client")


class Hearing(Channel):
    """Channel that records its messages."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.came = anyio.Event()

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        await anyio.lowlevel.checkpoint()
        self.heard.append((progress, total, message))
        self.came.set()

    async def log(self, level: Any, data: Any, logger: str | None) -> None:
        self.heard.append((level, data, logger))


# --- deadlines -------------------------------------------------------------------------------------------------------


@ROUTES
async def test_a_call_without_progress_ends_in_time_and_the_server_is_told(
    route: str, pin: Any, steady: RemoteServer, reports: Reports
) -> None:
    async with opened(config_of(route, steady, protocol=pin)) as connection:
        with pytest.raises(ServerTimeoutError) as caught:
            await connection.call_tool(
                "hold", {"port": reports.port}, options=CallOptions(timeout_seconds=BEGUN_SECONDS)
            )
        await reports.wait_for("cancelled")
        assert (await connection.call_tool("add", {"a": 1, "b": 1}))["isError"] is False
        assert connection.status().connects == 1
    assert caught.value.failure.reason == (
        "no answer within 1.5 seconds without progress; it was cancelled: the outcome is unknown"
    )


async def test_progress_begins_the_time_anew_and_the_cap_ends_the_call_all_the_same() -> None:
    config = ServerConfig(
        name="slow",
        transport=MemoryTransport(Server(interop.TOOLS, name="x")),
        timeout_seconds=30,
        max_call_seconds=0.3,
    )
    async with opened(config) as connection:
        with pytest.raises(ServerTimeoutError, match=r"no answer within 0\.3 seconds; it was cancelled"):
            await connection.call_tool("meet", {"place": "nowhere", "people": 2})


def test_progress_arrives_in_a_program_whose_event_loop_anyio_has_not_started(steady: RemoteServer) -> None:
    async def main() -> list[object]:
        hearing = Hearing()
        async with opened(config_of("http", steady)) as connection:
            await connection.call_tool("steps", {"to": 2}, context=InvocationContext(channel=hearing))
        return hearing.heard

    assert asyncio.run(main()) == [(1, 2, None), (2, 2, None)]


@ERAS
async def test_a_question_that_a_person_thinks_about_is_no_lack_of_progress(pin: Any) -> None:
    async def think(question: Any, context: InvocationContext) -> ElicitationAnswer:
        with pytest.raises(ServerTimeoutError):  # longer than a call may go without progress
            await connection.call_tool("meet", {"place": f"thoughts {pin}", "people": 2})
        return ElicitationAnswer("accept", {"dish": "soup"})

    transport = MemoryTransport(Server(interop.TOOLS, name="x"))
    config = ServerConfig(name="asks", transport=transport, timeout_seconds=0.3, protocol=pin)
    async with opened(config, handlers=ClientHandlers(elicitation=think)) as connection:
        result = await connection.call_tool("order", {})
    assert result["structuredContent"]["action"] == "accept"


async def test_the_contexts_own_deadline_counts(reports: Reports, steady: RemoteServer) -> None:
    async with opened(config_of("http", steady)) as connection:
        context = InvocationContext(deadline=anyio.current_time() + BEGUN_SECONDS)
        with pytest.raises(ServerTimeoutError) as caught:
            await connection.call_tool("hold", {"port": reports.port}, context=context)
        await reports.wait_for("cancelled")
    assert caught.value.failure.hint == "the caller's deadline has passed"


async def test_a_black_hole_ends_the_call_in_time_and_then_the_connection(
    remote: RemoteServer, reports: Reports
) -> None:
    reconnect = ReconnectPolicy(health_timeout_seconds=0.3)
    async with proxied(remote) as proxy:
        transport = HttpTransport(f"http://127.0.0.1:{proxy.port}/mcp", kind="http")
        config = ServerConfig(name="remote", transport=transport, connect_timeout_seconds=1)
        async with opened(config, reconnect=reconnect) as connection:
            proxy.is_silent = True
            with pytest.raises(ServerTimeoutError):
                await connection.call_tool("run", {"port": reports.port}, options=CallOptions(timeout_seconds=0.3))
            proxy.is_silent = False
            await connection.call_tool("run", {"port": reports.port})
    assert reports.words == ["ran"]


# --- cancellation ----------------------------------------------------------------------------------------------------


@ROUTES
async def test_cancelling_the_caller_cancels_the_remote_work(
    route: str, pin: Any, steady: RemoteServer, reports: Reports
) -> None:
    async with opened(config_of(route, steady, protocol=pin)) as connection:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.call_tool, "hold", {"port": reports.port})
            await reports.wait_for("started")
            tasks.cancel_scope.cancel()
        await reports.wait_for("cancelled")


async def test_closing_a_connection_ends_the_calls_under_way(steady: RemoteServer, reports: Reports) -> None:
    connection = Connection(config_of("http", steady))
    await connection.open()
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            with pytest.raises(OutcomeUnknownError):
                await connection.call_tool("hold", {"port": reports.port})

        tasks.start_soon(call)
        await reports.wait_for("started")
        await connection.aclose()


# --- what is heard ---------------------------------------------------------------------------------------------------


@ERAS
async def test_progress_and_log_messages_reach_the_callers_context_in_their_order(pin: Any) -> None:
    channel = Hearing()
    context = InvocationContext(channel=channel)
    config = ServerConfig(name="x", transport=MemoryTransport(Server(interop.TOOLS, name="x")), protocol=pin)
    async with opened(config) as connection:
        await connection.call_tool("steps", {}, context=context)
        await connection.call_tool("chatter", {}, context=context)
    assert channel.heard == [
        (1, 3, "one"),
        (2, 3, None),
        (3, None, None),
        ("debug", "too quiet to be heard", None),
        ("warning", {"disk": "full"}, "storage"),
    ]


@ROUTES
async def test_progress_is_heard_while_the_call_runs(
    route: str, pin: Any, steady: RemoteServer, reports: Reports
) -> None:
    channel = Hearing()
    context = InvocationContext(channel=channel)
    async with opened(config_of(route, steady, protocol=pin)) as connection, anyio.create_task_group() as tasks:
        arguments = {"port": reports.port}
        tasks.start_soon(lambda: connection.call_tool("progress_and_hold", arguments, context=context))
        await channel.came.wait()
        tasks.cancel_scope.cancel()
    assert channel.heard == [(1, 2, "half")]


async def test_a_caller_that_cannot_be_told_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Deaf(Hearing):
        async def progress(self, progress: float, total: float | None, message: str | None) -> None:
            raise OSError("gone")

    config = ServerConfig(name="x", transport=MemoryTransport(Server(interop.TOOLS, name="x")))
    async with opened(config) as connection:
        result = await connection.call_tool("steps", {}, context=InvocationContext(channel=Deaf()))
    assert result["isError"] is False
    assert "a progress or log callback failed" in caplog.text


# --- answers ---------------------------------------------------------------------------------------------------------


async def test_an_answer_that_the_protocol_does_not_know_is_an_error_that_names_it() -> None:
    code = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
    elif request["method"] == "tools/call":
        result = {"content": "text"}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""
    async with opened(python_config(code, protocol="legacy")) as connection:
        with pytest.raises(ServerAnswerError, match="'child', calling 'add': its response is not valid MCP: content"):
            await connection.call_tool("add", {})


async def test_a_call_that_waits_for_a_server_in_vain_never_ran() -> None:
    connection = Connection(python_config("import sys; sys.stdin.read()", protocol="legacy", connect_wait_seconds=0.2))
    await connection.open(wait=False)
    with pytest.raises(ServerUnavailableError, match=r"did not become ready within 0\.2 seconds"):
        await connection.call_tool("add", {})
    await connection.aclose()


# --- capabilities ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["stdio", "http", "http by the client"])
async def test_a_call_declares_the_capabilities_of_the_client_that_it_is_for(route: str, steady: RemoteServer) -> None:
    async with opened(config_of(route, steady)) as connection:

        async def declared(**options: Any) -> list[str]:
            result = await connection.call_tool("declared", {}, options=CallOptions(**options))
            return list(result["structuredContent"]["result"])

        for options in ({}, {"hands_on_questions": True}, {"meta": {"a": 1}}):
            assert await declared(capabilities={"roots": {}, "sampling": {}}, **options) == [
                MODERN,
                "roots",
                "sampling",
            ]
            assert await declared(capabilities={}, **options) == [MODERN]
            assert await declared(**options) == [MODERN, "extensions"]
    async with opened(config_of(route, steady, protocol="legacy")) as connection:
        version, *capabilities = await declared(capabilities={"roots": {}})
        assert version != MODERN
        assert capabilities == []
