"""Handlers of server requests, in both eras and over every transport."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from bridge.client import CallOptions, ClientHandlers, HttpTransport, MemoryTransport, ServerConfig
from bridge.errors import ServerAnswerError, ServerRefusedError
from bridge.server.server import Server
from bridge.tools.context import InvocationContext
from bridge.tools.questions import Elicitation, ElicitationAnswer, Root, SamplingAnswer
from tests.client.conftest import RemoteServer, opened, python_config, stdio_config
from tests.interop import tools as interop

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("pin", ["auto", "legacy"])
REPEATING = """
import json, sys

def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

form = {"message": "?", "requestedSchema": {"type": "object"}}
question = {"id": "q", "method": "elicitation/create", "params": form}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        told = {"capabilities": {"tools": {}}, "serverInfo": {"name": "repeating", "version": "1"}}
        say({"id": message["id"], "result": {"protocolVersion": "2025-11-25", **told}})
    elif message.get("method") == "tools/call":
        call, answers = message["id"], []
        say(question)
        say(question)
    elif message.get("id") == "q":
        answers.append(message)
        if len(answers) == 2:
            say({"id": call, "result": {"content": [], "structuredContent": {"answers": answers}}})
"""


class Answers:
    """Handlers that record the requests."""

    def __init__(self) -> None:
        self.asked_by: list[object] = []

    async def elicit(self, question: Any, context: InvocationContext) -> ElicitationAnswer:
        assert isinstance(question, Elicitation)
        self.asked_by.append(context.memory_id)
        return ElicitationAnswer("accept", {"dish": context.memory_id})

    async def sample(self, question: Any, context: InvocationContext) -> SamplingAnswer:
        self.asked_by.append(context.memory_id)
        return SamplingAnswer(question.messages[0].content, "a model")

    async def roots(self, context: InvocationContext) -> list[Root]:
        self.asked_by.append(context.memory_id)
        return [Root("file:///home")]

    def handlers(self) -> ClientHandlers:
        return ClientHandlers(elicitation=self.elicit, sampling=self.sample, roots=self.roots)


@ERAS
async def test_questions_reach_the_programs_handlers_with_the_context_of_their_call(pin: Any) -> None:
    answers = Answers()
    transport = MemoryTransport(Server(interop.TOOLS, name="x"))
    config = ServerConfig(name="x", transport=transport, protocol=pin)
    async with opened(config, handlers=answers.handlers()) as connection:
        order = await connection.call_tool("order", {}, context=InvocationContext(memory_id="me"))
        think = await connection.call_tool("think", {"question": "why"}, context=InvocationContext(memory_id="you"))
        folders = await connection.call_tool("folders", {}, context=InvocationContext(memory_id="us"))
        await connection.call_tool("interview", {}, context=InvocationContext(memory_id="all"))
    assert order["structuredContent"] == {"action": "accept", "content": {"dish": "me"}}
    assert think["content"][0]["text"] == "a model: why"
    assert folders["structuredContent"] == {"result": ["file:///home"]}
    assert answers.asked_by == ["me", "you", "us", "all", "all", "all"]


async def test_what_has_no_handler_is_not_declared_to_a_modern_server() -> None:
    transport = MemoryTransport(Server(interop.TOOLS, name="x"))
    async with opened(ServerConfig(name="x", transport=transport)) as connection:
        with pytest.raises(ServerRefusedError) as caught:
            await connection.call_tool("order", {})
    assert caught.value.code == -32021
    assert caught.value.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}


async def test_what_has_no_handler_is_not_declared_to_an_older_server() -> None:
    transport = MemoryTransport(Server(interop.TOOLS, name="x"))
    async with opened(ServerConfig(name="x", transport=transport, protocol="legacy")) as connection:
        result = await connection.call_tool("order", {})
    assert result["isError"] is True
    assert "elicitation" in result["content"][0]["text"]


async def test_questions_can_be_handed_on_and_their_answers_brought_back() -> None:
    transport = MemoryTransport(Server(interop.TOOLS, name="x"))
    async with opened(ServerConfig(name="x", transport=transport), handlers=Answers().handlers()) as connection:
        asked = await connection.call_tool("order", {}, options=CallOptions(hands_on_questions=True))
        (key,) = asked["inputRequests"]
        result = await connection.call_tool(
            "order",
            {},
            options=CallOptions(
                input_responses={key: {"action": "decline"}},
                request_state=asked["requestState"],
                hands_on_questions=True,
            ),
        )
    assert asked["resultType"] == "input_required"
    assert result["structuredContent"]["action"] == "decline"


async def test_a_handler_that_fails_fails_the_call_and_not_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(question: Any, context: InvocationContext) -> ElicitationAnswer:
        raise RuntimeError("the password is hunter2")

    transport = MemoryTransport(Server(interop.TOOLS, name="x"))
    async with opened(ServerConfig(name="x", transport=transport), handlers=ClientHandlers(elicitation=fail)) as it:
        with pytest.raises(ServerAnswerError, match="it requests input that cannot be provided") as caught:
            await it.call_tool("order", {})
        assert (await it.call_tool("add", {"a": 1, "b": 1}))["isError"] is False
    assert "hunter2" not in str(caught.value)
    assert "the handler of 'elicitation/create' failed" in caplog.text


@ERAS
async def test_users_who_call_at_once_over_http_are_each_asked_for_themselves(pin: Any, steady: RemoteServer) -> None:
    answers = Answers()
    results: dict[str, Any] = {}
    config = ServerConfig(name="served", transport=HttpTransport(steady.url, kind="http"), protocol=pin)
    async with opened(config, handlers=answers.handlers()) as connection:

        async def order(user: str) -> None:
            result = await connection.call_tool("order", {}, context=InvocationContext(memory_id=user))
            results[user] = result["content"][0]["text"]

        async with anyio.create_task_group() as tasks:
            for user in "abcdefgh":
                tasks.start_soon(order, user)
    assert results == {user: user for user in "abcdefgh"}


async def test_where_it_cannot_be_told_who_is_asked_for_nobody_is() -> None:
    answers = Answers()
    async with opened(stdio_config(protocol="legacy"), handlers=answers.handlers()) as connection:
        await connection.call_tool("order", {}, context=InvocationContext(memory_id="alone"))

        async def order() -> None:
            await connection.call_tool("order_together", {}, context=InvocationContext(memory_id="one of two"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(order)
            tasks.start_soon(order)
    assert answers.asked_by == ["alone", None, None]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_requests_of_a_server_with_the_same_id_are_both_answered() -> None:
    """A server must not repeat an ID, and its session survives it."""
    asked, both = 0, anyio.Event()

    async def elicit(question: Any, context: InvocationContext) -> ElicitationAnswer:
        nonlocal asked
        asked += 1
        if asked == 2:
            both.set()
        await both.wait()
        return ElicitationAnswer("accept", {"number": asked})

    config = python_config(REPEATING, protocol="legacy")
    async with opened(config, handlers=ClientHandlers(elicitation=elicit)) as connection:
        for _ in range(2):
            result = await connection.call_tool("twice", {})
            assert [each["result"]["action"] for each in result["structuredContent"]["answers"]] == ["accept"] * 2
