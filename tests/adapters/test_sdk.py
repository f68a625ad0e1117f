"""Servers of this package for programs that are built on the official SDK."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.shared.memory import create_client_server_memory_streams
from mcp.shared.message import SessionMessage
from mcp_types import ElicitResult, ToolListChangedNotification, jsonrpc_message_adapter

from bridge import resource, tool
from bridge.adapters import sdk_server
from bridge.server.features import Features
from bridge.server.server import Server
from bridge.tools.context import InvocationContext  # noqa: TC001 - read when the tools are made
from bridge.tools.toolbox import ToolBox
from tests.server.http_server import call, initialize, modern
from tests.server.tools import ADD, GREET, Waiting

if TYPE_CHECKING:
    from mcp.client import ClientRequestContext, IncomingMessage
    from mcp_types import ElicitRequestParams, LoggingMessageNotificationParams

DEADLINE_SECONDS = 60
MODES = ["legacy", "auto", "2026-07-28"]

pytestmark = pytest.mark.anyio
in_all_modes = pytest.mark.parametrize("mode", MODES)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend


@tool
async def report(context: InvocationContext) -> str:
    """Report progress, and log."""
    for number in (1, 2):
        await context.progress(number, 2, "half")
    await context.log("info", {"a": None})
    return "reported"


@tool
async def who(context: InvocationContext) -> str:
    """Name the caller, and a header."""
    name = "nobody" if context.caller is None else context.caller.name
    return f"{name} {context.headers.get('x-tests')}"


@resource("test://text")
def text() -> str:
    """Text."""
    return "some text"


def published(*features: object) -> Server:
    return Server(Features.of(*features), name="tests", version="1.2")


async def accept(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "Ada"})


@in_all_modes
async def test_a_client_of_the_sdk_in_the_same_process_is_served(mode: str) -> None:
    heard: list[tuple[float, float | None, str | None]] = []
    logged: list[Any] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async def log(params: LoggingMessageNotificationParams) -> None:
        logged.append(params.data)

    server = sdk_server(published(ADD, GREET, report, text))
    options: dict[str, Any] = {"elicitation_callback": accept, "logging_callback": log, "log_level": "debug"}
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Client(server, mode=mode, **options) as client:
            assert [each.name for each in (await client.list_tools()).tools] == ["add", "greet", "report"]
            assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"  # type: ignore[union-attr]
            assert (await client.read_resource("test://text")).contents[0].text == "some text"  # type: ignore[union-attr]
            greeted = await client.call_tool("greet", {})
            assert greeted.content[0].text == "Hello Ada"  # type: ignore[union-attr]
            await client.call_tool("report", {}, progress_callback=hear)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(MCPError, match="there is no tool named 'absent'") as refused:
                await client.call_tool("absent", {})
    assert refused.value.error.code == -32602
    assert (heard, logged) == ([(1, 2, "half"), (2, 2, "half")], [{"a": None}])


@in_all_modes
async def test_a_call_is_cancelled_with_its_client(mode: str) -> None:
    waiting = Waiting()
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Client(sdk_server(published(waiting.tool)), mode=mode) as client, anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "wait", {})
            await waiting.started.wait()
            group.cancel_scope.cancel()
        await waiting.cancelled.wait()


async def test_a_session_hears_of_changes() -> None:
    tools, told = ToolBox(ADD), anyio.Event()

    async def hear(message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            told.set()

    server = sdk_server(Server(tools, name="tests"))
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Client(server, mode="legacy", message_handler=hear) as client:
            await client.list_tools()
            tools.add(GREET)
            await told.wait()


async def test_a_client_in_the_same_process_subscribes_to_changes() -> None:
    tools = ToolBox(ADD)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with (
            Client(sdk_server(Server(tools, name="tests")), mode="2026-07-28") as client,
            client.listen(tools_list_changed=True) as changes,
        ):
            tools.add(GREET)
            assert await anext(aiter(changes)) is not None


def test_it_describes_itself_as_the_publisher_does() -> None:
    server = sdk_server(Server(ADD, name="tests", version="1.2", title="Tests", instructions="Add."))
    options = server.create_initialization_options()
    assert (options.server_name, options.server_version, options.title) == ("tests", "1.2", "Tests")
    assert options.instructions == "Add."
    for version in ("2025-11-25", "2026-07-28"):
        capabilities = server.get_capabilities(protocol_version=version)
        assert capabilities.tools is not None
        assert capabilities.tools.list_changed is True


# --- streams ---------------------------------------------------------------------------------------------------------


def typed(message: dict[str, Any]) -> SessionMessage:
    return SessionMessage(jsonrpc_message_adapter.validate_python(message, by_name=False))


async def test_over_streams_both_eras_are_served_and_a_credential_of_the_sdk_is_the_callers() -> None:
    for opening in (initialize(), None):
        server = sdk_server(published(who))
        with anyio.fail_after(DEADLINE_SECONDS):
            async with create_client_server_memory_streams() as (client, streams), anyio.create_task_group() as group:
                group.start_soon(server.run, *streams, server.create_initialization_options())
                received, sent = client
                if opening is not None:
                    await sent.send(typed(opening))
                    await received.receive()
                token = auth_context_var.set(AuthenticatedUser(AccessToken(token="t", client_id="ada", scopes=[])))
                await sent.send(typed(call("who") if opening else modern(call("who"))))
                auth_context_var.reset(token)
                answer: Any = await received.receive()
                assert answer.message.result["content"][0]["text"] == "ada None"
                await sent.aclose()


async def test_what_is_no_message_is_ignored_and_lone_surrogates_are_echoed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "bridge.adapters")
    server = sdk_server(published(ADD))
    with anyio.fail_after(DEADLINE_SECONDS):
        async with create_client_server_memory_streams() as (client, streams), anyio.create_task_group() as group:
            group.start_soon(server.run, *streams, server.create_initialization_options())
            received, sent = client
            await sent.send(ValueError("no message"))
            await sent.send(typed(modern({"jsonrpc": "2.0", "id": "\ud800", "method": "absent", "params": {}})))
            answer: Any = await received.receive()
            assert (answer.message.id, answer.message.error.code) == ("\ud800", -32601)
            await sent.aclose()
    assert "no message" in caplog.text


@pytest.mark.parametrize("closes", ["input", "output", "both"])
async def test_a_client_that_goes_away_ends_what_runs(closes: str) -> None:
    waiting = Waiting()
    server = sdk_server(published(waiting.tool))
    to_server, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writing, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with to_server, from_server, anyio.create_task_group() as group:
            group.start_soon(server.run, reading, writing, server.create_initialization_options())
            await to_server.send(typed(modern(call("wait"))))
            await waiting.started.wait()
            if closes != "input":
                from_server.close()
            if closes == "output":
                waiting.released.set()
                await waiting.finished.wait()
                await to_server.send(typed(modern(call("wait"))))
            to_server.close()
            if closes == "input":
                answer: Any = await from_server.receive()
                assert answer.message.error.code == -32000
    assert waiting.cancelled.is_set() or closes == "output"


async def test_progress_waits_for_a_client_that_does_not_read() -> None:
    reported = list[int]()

    @tool
    async def count(context: InvocationContext) -> None:
        """Count."""
        for number in range(1, 100):
            await context.progress(number)
            reported.append(number)

    server = sdk_server(published(count))
    to_server, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writing, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    with anyio.fail_after(DEADLINE_SECONDS):
        async with to_server, from_server, anyio.create_task_group() as group:
            group.start_soon(server.run, reading, writing, server.create_initialization_options())
            await to_server.send(typed(modern(call("count", {}, _meta={"progressToken": 1}))))
            await anyio.wait_all_tasks_blocked()
            assert reported == []
            messages = [await from_server.receive() for _ in range(100)]
            assert len(messages) == 100
            to_server.close()
    assert len(reported) == 99


# --- the SDK's HTTP --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # on trio, the SDK's client leaves generators open
async def test_over_the_sdks_http_the_modern_era_is_served_and_the_other_refused() -> None:
    server = sdk_server(published(who, report))
    app = server.streamable_http_app(host="testserver")
    heard = list[float]()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    with anyio.fail_after(DEADLINE_SECONDS):
        async with server.session_manager.run():
            transport = httpx2.ASGITransport(app)
            headers = {"x-tests": "here"}
            async with httpx2.AsyncClient(transport=transport, base_url="http://testserver", headers=headers) as http:
                over_http = streamable_http_client("http://testserver/mcp", http_client=http)
                async with Client(over_http, mode="2026-07-28") as client:
                    named = await client.call_tool("who", {})
                    assert named.content[0].text == "nobody here"  # type: ignore[union-attr]
                    await client.call_tool("report", {}, progress_callback=hear)
                old = streamable_http_client("http://testserver/mcp", http_client=http)
                with pytest.raises((MCPError, ExceptionGroup)) as refused:
                    async with Client(old, mode="legacy"):
                        pass
    assert heard == [1, 2]
    assert "serve it by bridge.http_app" in str(errors_in(refused.value))


def errors_in(error: BaseException) -> list[BaseException]:
    """Return the errors in a group, or the error alone."""
    if isinstance(error, BaseExceptionGroup):
        return [each for one in error.exceptions for each in errors_in(one)]
    return [error]
