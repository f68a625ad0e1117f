"""Messages and questions of a call by era."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest
from mcp import Client, MCPError

from bridge import ClientHandlers
from bridge.errors import ToolError
from bridge.server.channel import missing_capability
from bridge.server.server import Server
from bridge.testing import connected
from bridge.tools.content import Text
from bridge.tools.questions import (
    Elicitation,
    Roots,
    Sampling,
    SamplingAnswer,
    SamplingMessage,
    ToolUse,
    UrlElicitation,
)
from bridge.tools.toolbox import ToolBox
from tests.server.memory import memory
from tests.server.test_channel import Person, text
from tests.server.tools import GREET, NAME_FORM, made

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.client import ClientRequestContext
    from mcp_types import (
        ElicitRequestParams,
        ElicitResult,
        LoggingMessageNotificationParams,
    )

    from bridge.tools.context import InvocationContext
    from bridge.tools.questions import Question

pytestmark = pytest.mark.anyio


async def leveled(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
    for level in ("debug", "info", "warning", "error"):
        await context.log(level, level)
    return "done"


async def test_a_session_of_the_handshake_era_gets_all_messages_until_it_sets_a_level() -> None:
    said: list[Any] = []

    async def log(params: LoggingMessageNotificationParams) -> None:
        said.append(params.data)

    publisher = Server(ToolBox(made("work", leveled)), name="tests")
    async with (
        Client(memory(publisher), mode="legacy", logging_callback=log) as client,
        Client(memory(publisher), mode="legacy", logging_callback=log) as other,
    ):
        await client.call_tool("work", {})
        with pytest.warns(UserWarning, match="deprecated"):
            await client.set_logging_level("warning")
        await client.call_tool("work", {})
        assert said == ["debug", "info", "warning", "error", "warning", "error"]
        said.clear()
        await other.call_tool("work", {})
        assert said == ["debug", "info", "warning", "error"]


async def test_a_request_of_the_modern_era_gets_the_messages_that_it_asks_for() -> None:
    said: list[Any] = []

    async def log(params: LoggingMessageNotificationParams) -> None:
        said.append(params.data)

    server = Server(ToolBox(made("work", leveled)), name="tests")
    async with Client(memory(server), logging_callback=log, log_level="error") as client:
        await client.call_tool("work", {})
    async with Client(memory(server), logging_callback=log) as client:
        await client.call_tool("work", {})
    assert said == ["error"]


async def test_a_client_of_the_handshake_era_that_cannot_be_asked_is_a_tool_error() -> None:
    async with Client(memory(Server(ToolBox(GREET), name="tests")), mode="legacy") as client:
        result = await client.call_tool("greet", {})
    assert result.is_error
    assert text(result) == "this call needs a client with the capability elicitation.form"


async def test_a_client_of_the_handshake_era_that_fails_to_answer_is_a_tool_error() -> None:
    async def refuse(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        raise MCPError(-1, "not today")

    server = Server(ToolBox(GREET), name="tests")
    async with Client(memory(server), mode="legacy", elicitation_callback=refuse) as client:
        result = await client.call_tool("greet", {})
    assert result.is_error
    assert text(result) == "the client did not answer 'elicitation/create': not today"


async def test_a_client_of_the_modern_era_that_cannot_be_asked_is_told_what_it_lacks() -> None:
    async with Client(memory(Server(ToolBox(GREET), name="tests"))) as client:
        try:
            await client.call_tool("greet", {})
        except MCPError as error:
            refusal = error
    assert refusal.code == -32021
    assert refusal.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}


FORM = Elicitation("?", NAME_FORM)
URL = UrlElicitation("?", "https://example.com", "1")
MODEL = Sampling((), 1)


@pytest.mark.parametrize(
    ("question", "declared", "missing"),
    [
        (FORM, {"elicitation": {}}, None),
        (FORM, {"elicitation": {"form": {}}}, None),
        (FORM, {"elicitation": {"form": {}, "url": {}}}, None),
        (FORM, {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        (FORM, {}, {"elicitation": {"form": {}}}),
        (URL, {"elicitation": {}}, {"elicitation": {"url": {}}}),
        (URL, {"elicitation": {"url": {}}}, None),
        (URL, {"sampling": {}}, {"elicitation": {"url": {}}}),
        (MODEL, {"sampling": {}}, None),
        (MODEL, {}, {"sampling": {}}),
        (Roots(), {"roots": {}}, None),
        (Roots(), {}, {"roots": {}}),
    ],
)
async def test_what_a_client_must_declare(question: Question, declared: Any, missing: Any) -> None:
    assert missing_capability(question, declared) == missing


async def test_a_tool_error_is_what_a_question_after_the_end_gets() -> None:
    contexts: list[InvocationContext] = []

    async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
        contexts.append(context)
        return "done"

    async with Person().client(made("work", body), mode="legacy") as client:
        await client.call_tool("work", {})
        with pytest.raises(ToolError, match="the call has ended"):
            await contexts[0].elicit("late?", NAME_FORM)


HALF = "half a pair: \ud800"


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
@pytest.mark.parametrize(
    "message",
    [
        SamplingMessage("user", (Text(HALF),)),
        SamplingMessage("assistant", (ToolUse("1", "f", {"a": HALF}),)),
        SamplingMessage("user", (Text(""),), {"note": HALF}),
    ],
)
async def test_a_question_that_cannot_be_written_fails_the_call_alone(
    protocol: Literal["legacy", "2026-07-28"], message: SamplingMessage
) -> None:
    async def ask(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
        return await context.sample([message], max_tokens=1)

    async def answer(*_: object) -> SamplingAnswer:
        raise AssertionError("it is not asked")

    async with connected(made("ask", ask), protocol=protocol, handlers=ClientHandlers(sampling=answer)) as provider:
        result = await provider.connections["memory"].call_tool("ask", {})
    assert result["isError"]
    assert "the tool 'ask' failed" in result["content"][0]["text"]


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_an_answer_with_half_a_surrogate_pair_arrives(protocol: Literal["legacy", "2026-07-28"]) -> None:
    async def ask(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
        return ascii((await context.sample([SamplingMessage("user", (Text("Hi"),))], max_tokens=1)).content[0])

    async def answer(*_: object) -> SamplingAnswer:
        return SamplingAnswer((Text(HALF),), "model")

    async with connected(made("ask", ask), protocol=protocol, handlers=ClientHandlers(sampling=answer)) as provider:
        result = await provider.connections["memory"].call_tool("ask", {})
    assert ascii(HALF) in result["content"][0]["text"]
