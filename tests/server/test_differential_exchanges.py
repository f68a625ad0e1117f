"""Exchanges in which the server talks: the same messages on the wire as from the official SDK's own server.

The same tools are served by `mcp.server.lowlevel.Server` and by a `bridge.server.Server`, whose client sends the same
messages.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp.client._memory import InMemoryTransport
from mcp.server.lowlevel import Server as McpServer
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.message import SessionMessage
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    ListToolsResult,
    TextContent,
    jsonrpc_message_adapter,
)

from bridge.protocol.versions import LOG_LEVEL_KEY
from bridge.server.server import Server
from bridge.tools.toolbox import ToolBox
from tests.server.http_server import call, initialize, modern, notification, request
from tests.server.memory import memory
from tests.server.tools import ADD, NAME_FORM, made

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from mcp.server.context import ServerRequestContext
    from mcp.shared._stream_protocols import ReadStream, WriteStream
    from mcp_types import CallToolRequestParams

    from bridge.tools.context import InvocationContext

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:The logging capability is deprecated"),
]
DEADLINE_SECONDS = 60
MODES = pytest.mark.parametrize("is_modern", [True, False], ids=["modern", "handshake"])
ASKING: dict[str, Any] = {"elicitation": {"form": {}}}
ANSWER = {"action": "accept", "content": {"name": "Ada"}}


async def talk(arguments: Mapping[str, Any], context: InvocationContext) -> str:
    await context.progress(1, 2)
    await context.log("info", {"text": "é"}, "tests")
    await context.progress(2, 2, "done")
    await context.log("error", "late")
    return "talked"


async def ask(arguments: Mapping[str, Any], context: InvocationContext) -> str:
    await context.progress(1)
    answer = await context.elicit("Who are you?", NAME_FORM, key="name")
    return f"{answer.action} {answer.content}"


async def wait(arguments: Mapping[str, Any], context: InvocationContext) -> str:
    await context.progress(1)
    await anyio.sleep_forever()
    return "never"


async def talk_of_sdk(context: ServerRequestContext[Any], params: CallToolRequestParams) -> str:
    session, request_id = context.session, context.request_id
    await session.report_progress(1, 2)
    await session.send_log_message("info", {"text": "é"}, "tests", related_request_id=request_id)
    await session.report_progress(2, 2, "done")
    await session.send_log_message("error", "late", related_request_id=request_id)
    return "talked"


async def ask_of_sdk(context: ServerRequestContext[Any], params: CallToolRequestParams) -> str | InputRequiredResult:
    await context.session.report_progress(1)
    if context.session.can_send_request:
        answer: Any = await context.session.elicit_form(
            "Who are you?", NAME_FORM, related_request_id=context.request_id
        )
    elif params.input_responses is None:
        question = ElicitRequest(params=ElicitRequestFormParams(message="Who are you?", requested_schema=NAME_FORM))
        return InputRequiredResult(input_requests={"name": question}, request_state="state")
    else:
        answer = params.input_responses["name"]
    return f"{answer.action} {answer.content}"


async def wait_of_sdk(context: ServerRequestContext[Any], params: CallToolRequestParams) -> str:
    await context.session.report_progress(1)
    await anyio.sleep_forever()
    return "never"


OF_SDK: dict[str, Callable[..., Awaitable[str | InputRequiredResult]]] = {
    "talk": talk_of_sdk,
    "ask": ask_of_sdk,
    "wait": wait_of_sdk,
}


class Wire:
    """The client's end of a connection: sends messages as they are, and keeps those that it receives."""

    def __init__(
        self,
        streams: tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]],
        change: Callable[[], Awaitable[None]],
    ) -> None:
        self._received, self._sent = streams
        self.change = change
        """Changes the list of tools."""
        self.messages: list[dict[str, Any]] = []

    async def send(self, message: dict[str, Any]) -> None:
        await self._sent.send(SessionMessage(jsonrpc_message_adapter.validate_python(message)))

    async def receive(self) -> dict[str, Any]:
        with anyio.fail_after(DEADLINE_SECONDS):
            received = await self._received.receive()
        assert isinstance(received, SessionMessage)
        message: dict[str, Any] = received.message.model_dump(by_alias=True, exclude_unset=True)
        self.messages.append(message)
        return message

    async def until_answered(self, request_id: Any = 1) -> dict[str, Any]:
        """Receive messages until the answer to a request."""
        while True:
            message = await self.receive()
            if message.get("id") == request_id and "method" not in message:
                return message


@asynccontextmanager
async def ours() -> AsyncIterator[Wire]:
    tools = ToolBox(made("talk", talk), made("ask", ask), made("wait", wait))

    async def change() -> None:
        tools.add(ADD)

    async with memory(Server(tools, name="tests", version="1")) as streams:
        yield Wire(streams, change)


@asynccontextmanager
async def of_sdk() -> AsyncIterator[Wire]:
    bus = InMemorySubscriptionBus()

    async def on_call(context: ServerRequestContext[Any], params: CallToolRequestParams) -> Any:
        result = await OF_SDK[params.name](context, params)
        return CallToolResult(content=[TextContent(type="text", text=result)]) if isinstance(result, str) else result

    async def on_list(context: ServerRequestContext[Any], params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[])

    server = McpServer(
        "tests",
        version="1",
        on_call_tool=on_call,
        on_list_tools=on_list,
        on_subscriptions_listen=ListenHandler(bus),
    )
    async with InMemoryTransport(server) as streams:
        yield Wire(streams, lambda: bus.publish(ToolsListChanged()))


async def exchanged(
    serving: Any, script: Callable[[Wire], Awaitable[None]], *, is_modern: bool
) -> list[dict[str, Any]]:
    """Return the messages of a server."""
    async with serving() as wire:
        if not is_modern:
            await wire.send(initialize(ASKING))
            await wire.receive()
            await wire.send(notification("notifications/initialized"))
            wire.messages.clear()
        await script(wire)
        if not is_modern:
            await wire.send(request("ping", request_id="end"))
            await wire.until_answered("end")
        else:
            await wire.send(modern(request("server/discover", request_id="end")))
            await wire.until_answered("end")
            wire.messages.pop()
        return [normalized(message) for message in wire.messages]


def normalized(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without the ids of a server's own requests, and what is sealed."""
    result = message.get("result", {})
    if "requestState" in result:
        message = {**message, "result": {**result, "requestState": "…"}}
    if message.get("method") == "elicitation/create":
        message = {**message, "id": "…"}
    if message.get("method") == "notifications/cancelled":
        message = {**message, "params": {**message["params"], "requestId": "…"}}
    return message


def of_era(message: dict[str, Any], is_modern: bool) -> dict[str, Any]:
    return modern(message, ASKING) if is_modern else message


async def assert_same(script: Callable[[Wire], Awaitable[None]], *, is_modern: bool) -> list[dict[str, Any]]:
    """Check that both servers send the same; return what they send."""
    expected = await exchanged(of_sdk, script, is_modern=is_modern)
    assert await exchanged(ours, script, is_modern=is_modern) == expected
    return expected


@MODES
@pytest.mark.parametrize("meta", [{}, {"progressToken": 7}, {"progressToken": "p"}, {LOG_LEVEL_KEY: "error"}])
@pytest.mark.parametrize("level", [None, "debug", "error"])
async def test_progress_and_log_messages(is_modern: bool, meta: dict[str, Any], level: str | None) -> None:
    if is_modern and level is not None:
        meta = meta | {LOG_LEVEL_KEY: level}

    async def script(wire: Wire) -> None:
        await wire.send(of_era(call("talk", _meta=meta), is_modern))
        await wire.until_answered()

    told = {message.get("method") for message in await assert_same(script, is_modern=is_modern)}
    assert ("notifications/progress" in told) == ("progressToken" in meta)
    assert ("notifications/message" in told) == (LOG_LEVEL_KEY in meta or not is_modern)


@MODES
@pytest.mark.parametrize("answer", [ANSWER, {"action": "decline"}, {"action": "cancel"}])
async def test_a_question_and_its_answer(is_modern: bool, answer: dict[str, Any]) -> None:
    async def script(wire: Wire) -> None:
        await wire.send(of_era(call("ask", _meta={"progressToken": 1}), is_modern))
        if is_modern:
            asked = (await wire.until_answered())["result"]
            again = {"inputResponses": {"name": answer}, "requestState": asked["requestState"]}
            await wire.send(of_era(call("ask", **again) | {"id": 2}, is_modern))
            await wire.until_answered(2)
            return
        while (message := await wire.receive()).get("method") != "elicitation/create":
            pass
        await wire.send({"jsonrpc": "2.0", "id": message["id"], "result": answer})
        await wire.until_answered()

    await assert_same(script, is_modern=is_modern)


async def test_a_question_whose_call_is_cancelled() -> None:
    async def script(wire: Wire) -> None:
        await wire.send(call("ask"))
        message = await wire.receive()
        await wire.send(notification("notifications/cancelled", {"requestId": 1}))
        assert (await wire.receive())["params"]["requestId"] == message["id"]
        await wire.send({"jsonrpc": "2.0", "id": message["id"], "result": ANSWER})  # too late: nothing follows

    await assert_same(script, is_modern=False)


@MODES
async def test_a_cancelled_call(is_modern: bool) -> None:
    async def script(wire: Wire) -> None:
        await wire.send(of_era(call("wait", _meta={"progressToken": 1}), is_modern))
        await wire.receive()
        for _ in range(2):
            await wire.send(notification("notifications/cancelled", {"requestId": 1}))

    told = await assert_same(script, is_modern=is_modern)
    assert not any("error" in message for message in told)


async def test_a_subscription() -> None:
    wanted = {"toolsListChanged": True, "promptsListChanged": False}

    async def script(wire: Wire) -> None:
        await wire.send(modern(request("subscriptions/listen", {"notifications": wanted}, "listen")))
        await wire.receive()
        await wire.change()
        await wire.receive()
        await wire.send(notification("notifications/cancelled", {"requestId": "listen"}))

    acknowledged, changed, *_ = await assert_same(script, is_modern=True)
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert changed["method"] == "notifications/tools/list_changed"
