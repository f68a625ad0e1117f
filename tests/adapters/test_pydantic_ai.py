from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    ModelRetry,
    RunContext,
    ToolReturn,
)
from pydantic_ai import Tool as PydanticAiTool
from pydantic_ai.exceptions import CallDeferred, ToolFailed
from pydantic_ai.messages import (
    DocumentUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextContent,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from bridge import ClientHandlers, Image, ResourceLink, Text, ToolBox, ai_service
from bridge.adapters import ToolProgressEvent, from_pydantic_ai, pydantic_ai_toolset
from bridge.service import unless_read_only
from bridge.testing import ScriptedChatModel, connected
from bridge.tools import ElicitationAnswer
from bridge.tools.content import Audio, File
from bridge.tools.tool import ToolExecutionRequest
from tests.adapters.tools import Waiting, add, box, count, delete, who_am_i
from tests.models.requests import PDF, PIXEL

if TYPE_CHECKING:
    from bridge import InvocationContext
    from bridge.tools.questions import Elicitation, UrlElicitation

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]


def model(*calls: tuple[str, Any], offered: list[Any] | None = None) -> FunctionModel:
    """Makes the calls in its first reply, and answers afterwards."""

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if offered is not None:
            offered.append(info.function_tools)
        if any(isinstance(message, ModelResponse) for message in messages):
            return ModelResponse(parts=[TextPart("Done.")])
        return ModelResponse(parts=[ToolCallPart(name, given, f"call_{i}") for i, (name, given) in enumerate(calls)])

    return FunctionModel(reply)


async def returns(source: object, *calls: tuple[str, Any], deps: Any = None) -> list[ToolReturnPart[Any]]:
    """Return the results of an agent's calls, in order."""
    run = await Agent(model(*calls), toolsets=[pydantic_ai_toolset(source)], deps_type=object).run("Go.", deps=deps)
    ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(run.all_messages()))
    return [part for message in run.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]


# --- ours as theirs --------------------------------------------------------------------------------------------------


async def test_an_agent_offers_the_tools_with_their_schemas() -> None:
    offered: list[Any] = []
    await Agent(model(("count", {}), offered=offered), toolsets=[pydantic_ai_toolset(box())]).run("Go.")
    definitions = {each.name: each for each in offered[0]}
    assert list(definitions) == ["add", "chart", "attach", "delete", "who_am_i", "count"]
    assert definitions["add"].description == "Add two numbers."
    assert definitions["add"].parameters_json_schema == add_parameters()
    assert definitions["add"].metadata == {"annotations": {"readOnlyHint": True}, "meta": {}}


def add_parameters() -> Any:
    return box().get("add").specification.parameters


async def test_a_return_is_what_the_model_reads_and_the_metadata_all_of_it() -> None:
    part, text = await returns(box(), ("add", {"a": 1, "b": 2}), ("count", {}))
    assert (part.content, part.outcome) == ('{"total":3}', "success")
    assert part.metadata == {
        "content": [{"type": "text", "text": '{"total":3}'}],
        "structuredContent": {"total": 3},
        "isError": False,
    }
    assert (text.content, text.metadata) == ("counted", None)


async def test_media_are_binary_content() -> None:
    chart, attached = await returns(box(), ("chart", {"city": "Oslo"}), ("attach", {}))
    assert chart.content == ["A chart of Oslo.", BinaryContent(data=PIXEL, media_type="image/png")]
    assert attached.content == [
        BinaryContent(data=PDF, media_type="application/pdf"),
        BinaryContent(data=b"RIFF", media_type="audio/wav"),
        "file:///a.txt:\none",
    ]


async def test_invalid_arguments_are_retried_and_other_failures_are_not() -> None:
    failed, invalid, no_object = await returns(box(), ("delete", {"path": "a"}), ("add", '{"a": "x"}'), ("add", "[1]"))
    assert (failed.outcome, failed.content) == ("failed", "a is locked; close it first")
    assert (invalid.outcome, invalid.content) == (
        "retried",
        "invalid arguments for 'add': a: should be a valid integer, got \"x\"",
    )
    assert no_object.outcome == "retried"


async def test_a_tool_reads_the_dependencies_and_the_conversation() -> None:
    agent = Agent(model(("who_am_i", {})), toolsets=[pydantic_ai_toolset(who_am_i)], deps_type=str)
    run = await agent.run("Go.", deps="ada", conversation_id="c1")
    assert "{'deps': 'ada'} in c1" in str(run.all_messages())


async def test_progress_is_an_event_of_the_run() -> None:
    agent = Agent(TestModel(call_tools=["count"]), toolsets=[pydantic_ai_toolset(count)])
    async with agent.run_stream_events("Go.") as events:
        seen = [event async for event in events if isinstance(event, ToolProgressEvent)]
    assert [(each.tool_name, each.progress, each.total, each.message) for each in seen] == [
        ("count", 1, 2, "half"),
        ("count", 2, 2, None),
    ]


async def test_calls_wait_for_approval() -> None:
    toolset = pydantic_ai_toolset([add, delete], approval=unless_read_only)
    agent = Agent(
        model(("add", {"a": 1}), ("delete", {"path": "a"})),
        toolsets=[toolset],
        output_type=[str, DeferredToolRequests],
    )
    run = await agent.run("Go.")
    assert isinstance(run.output, DeferredToolRequests)
    (call,) = run.output.approvals
    assert call.tool_name == "delete"
    approved = DeferredToolResults(approvals={call.tool_call_id: True})
    end = await agent.run(message_history=run.all_messages(), deferred_tool_results=approved)
    assert "a is locked; close it first" in str(end.all_messages()[-2])


async def test_a_cancelled_run_cancels_its_tools() -> None:
    waiting = Waiting()
    agent = Agent(model(("wait", {})), toolsets=[pydantic_ai_toolset(waiting)])
    running = asyncio.create_task(agent.run("Go."))
    await waiting.started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await waiting.cancelled.wait()


async def test_each_request_has_the_tools_that_a_provider_has_then() -> None:
    served = ToolBox(add)
    async with connected(served) as provider:
        seen: list[list[str]] = []

        async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            seen.append([each.name for each in info.function_tools])
            if len(seen) == 1:
                served.add(count)
                await provider.refresh()
                return ModelResponse(parts=[ToolCallPart("add", {"a": 1})])
            return ModelResponse(parts=[TextPart("Done.")])

        await Agent(FunctionModel(reply), toolsets=[pydantic_ai_toolset(provider)]).run("Go.")
        assert seen == [["add"], ["add", "count"]]


# --- theirs as ours --------------------------------------------------------------------------------------------------

theirs: FunctionToolset[Any] = FunctionToolset()


@theirs.tool
def multiply(ctx: RunContext[str], a: int, b: int = 2) -> dict[str, Any]:
    """Multiply two numbers."""
    return {"product": a * b, "for": ctx.deps}


@theirs.tool_plain
def picture() -> ToolReturn[str]:
    """Return a picture."""
    image = BinaryContent(PIXEL, media_type="image/png")
    document = DocumentUrl("https://example.com/a.pdf", media_type="application/pdf", identifier="a")
    return ToolReturn("Here.", content=["See", TextContent("this:"), image, document])


@theirs.tool_plain
def files() -> list[BinaryContent]:
    """Return files."""
    report = BinaryContent(PDF, media_type="application/pdf", identifier="a.pdf")
    return [BinaryContent(b"RIFF", media_type="audio/wav"), report]


@theirs.tool_plain(requires_approval=True)
def remove(path: str) -> str:
    """Remove a file."""
    return f"{path} is gone"


@theirs.tool_plain
def again() -> str:
    """Ask for another try."""
    raise ModelRetry("try again")


@theirs.tool_plain
def broken() -> str:
    """Fail."""
    raise ToolFailed("no more")


@theirs.tool_plain
def later() -> str:
    """Answer later."""
    raise CallDeferred


def check_even(ctx: RunContext[Any], number: int) -> None:
    if number % 2:
        raise ModelRetry("an even number, please")


@theirs.tool_plain(args_validator=check_even)
def half(number: int) -> int:
    """Halve a number."""
    return number // 2


async def test_their_tools_are_served_over_mcp() -> None:
    async with connected(ToolBox(await from_pydantic_ai(theirs, deps="ada"))) as provider:
        specification = provider.tools.get("multiply").specification
        assert (specification.description, specification.parameters["required"]) == ("Multiply two numbers.", ["a"])
        result = await provider.call("multiply", a=4)
        assert (result.structured_content, result.is_error) == ({"product": 8, "for": "ada"}, False)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("multiply", {"a": "x"}, "invalid arguments for 'multiply': a: should be a valid integer"),
        ("again", {}, "try again"),
        ("broken", {}, "no more"),
        ("later", {}, "'later' needs a run of an agent, which can defer its call"),
        ("half", {"number": 3}, "an even number, please"),
        ("remove", {"path": "a"}, "this tool needs to ask something, and its caller cannot be asked"),
    ],
)
async def test_their_failures_are_failed_results(name: str, arguments: dict[str, Any], words: str) -> None:
    result = await ToolBox(await from_pydantic_ai(theirs)).call(name, arguments)
    assert result.is_error
    assert result.text.startswith(words)


async def test_their_files_are_content() -> None:
    tools = ToolBox(await from_pydantic_ai(theirs))
    assert (await tools.call("picture")).content == (
        Text("Here."),
        Text("See"),
        Text("this:"),
        Image(PIXEL),
        ResourceLink("https://example.com/a.pdf", "a", mime_type="application/pdf"),
    )
    assert (await tools.call("files")).content == (
        Audio(b"RIFF"),
        File("file:///a.pdf", PDF, "application/pdf"),
    )


@pytest.mark.parametrize(
    ("action", "text"), [("accept", "a is gone"), ("decline", "the call of 'remove' was not approved")]
)
async def test_a_tool_that_requires_approval_asks_its_caller(action: Any, text: str) -> None:
    async def answer(question: Elicitation | UrlElicitation, context: InvocationContext) -> ElicitationAnswer:
        assert question.message == "Allow the call of 'remove' with {'path': 'a'}?"
        return ElicitationAnswer(action, {} if action == "accept" else None)

    tools = ToolBox(await from_pydantic_ai(theirs))
    async with connected(tools, handlers=ClientHandlers(elicitation=answer)) as provider:
        assert (await provider.call("remove", path="a")).text == text


async def test_a_single_tool_of_theirs_is_a_tool_of_a_service() -> None:
    def triple(number: int) -> int:
        """Triple a number."""
        return number * 3

    class Assistant(Protocol):
        async def chat(self, message: str) -> str: ...

    chat_model = ScriptedChatModel([ToolExecutionRequest("triple", {"number": 2}), "It is 6."])
    tools = await from_pydantic_ai(PydanticAiTool(triple))
    assert await ai_service(Assistant, chat_model=chat_model, tools=tools).chat("3 * 2?") == "It is 6."
