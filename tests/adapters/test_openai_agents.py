from __future__ import annotations

import asyncio
from base64 import b64encode
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from agents import (
    Agent,
    FunctionTool,
    OpenAIChatCompletionsModel,
    RunConfig,
    RunContextWrapper,
    Runner,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    function_tool,
    tool_input_guardrail,
)
from agents.tool_guardrails import ToolGuardrailFunctionOutput
from openai import AsyncOpenAI

from bridge import ClientHandlers, DefinitionError, Image, ResourceLink, Text, ToolBox, tool
from bridge.adapters import from_openai_agents, openai_agents_server, openai_agents_tools
from bridge.service import unless_read_only
from bridge.testing import connected
from bridge.tools import ElicitationAnswer
from bridge.tools.content import File
from tests.adapters.tools import Waiting, add, box, count, delete, who_am_i
from tests.docs.chat_api import ChatApi
from tests.models.provider import running_provider
from tests.models.requests import PDF, PDF_BASE64, PIXEL, PIXEL_BASE64

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agents.result import RunResult

    from bridge import InvocationContext
    from bridge.tools.questions import Elicitation, UrlElicitation
    from tests.models.provider import Provider

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]

IMAGE_URL = f"data:image/png;base64,{PIXEL_BASE64}"
QUIET = RunConfig(tracing_disabled=True)


class Desk:
    """An agent whose model is a server with given replies."""

    def __init__(self, provider: Provider, client: AsyncOpenAI) -> None:
        self.provider = provider
        self.api = ChatApi(provider)
        self._model = OpenAIChatCompletionsModel(model="test", openai_client=client)

    def agent(self, **parts: Any) -> Agent[Any]:
        return Agent(name="Desk", model=self._model, **parts)

    async def run(self, *replies: Any, context: Any = None, **parts: Any) -> RunResult:
        self.api.will_reply(*replies, "Done.")
        return await Runner.run(self.agent(**parts), "Go.", context=context, run_config=QUIET)

    @property
    def offered(self) -> list[list[Any]]:
        """Return the definitions in each request."""
        return [[each["function"] for each in request.body.get("tools", ())] for request in self.provider.requests]


@asynccontextmanager
async def running_desk() -> AsyncIterator[Desk]:
    with running_provider() as provider:
        async with AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="secret", max_retries=0) as client:
            yield Desk(provider, client)


def outputs(run: RunResult) -> list[Any]:
    return [item.output for item in run.new_items if item.type == "tool_call_output_item"]


# --- ours as theirs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["tools", "server"])
async def test_an_agent_offers_the_tools_with_their_schemas(way: str) -> None:
    async with running_desk() as desk:
        await desk.run(**parts(way, box()))
    assert [each["name"] for each in desk.offered[0]] == ["add", "chart", "attach", "delete", "who_am_i", "count"]
    definition = desk.offered[0][0]
    assert (definition["description"], definition["strict"]) == ("Add two numbers.", False)
    assert definition["parameters"] == box().get("add").specification.parameters


def parts(way: str, source: object, **options: Any) -> dict[str, Any]:
    """Return the part of an agent that has the tools."""
    if way == "tools":
        return {"tools": openai_agents_tools(source, **options)}
    return {"mcp_servers": [openai_agents_server(source, **options)]}


async def test_an_output_is_what_the_model_reads_and_the_custom_data_all_of_it() -> None:
    async with running_desk() as desk:
        run = await desk.run({"add": {"a": 1, "b": 2}, "count": {}}, tools=openai_agents_tools(box()))
    first, second = (item for item in run.new_items if item.type == "tool_call_output_item")
    assert (first.output, second.output, second.custom_data) == ('{"total":3}', "counted", None)
    assert first.custom_data == {
        "content": [{"type": "text", "text": '{"total":3}'}],
        "structuredContent": {"total": 3},
        "isError": False,
    }


async def test_images_and_documents_are_outputs() -> None:
    async with running_desk() as desk:
        run = await desk.run({"chart": {"city": "Oslo"}, "attach": {}}, tools=openai_agents_tools(box()))
    document = ToolOutputFileContent(file_data=f"data:application/pdf;base64,{PDF_BASE64}", filename="report.pdf")
    assert outputs(run) == [
        [ToolOutputText(text="A chart of Oslo."), ToolOutputImage(image_url=IMAGE_URL)],
        [
            document,
            ToolOutputText(text="[audio/wav: 4 bytes, not shown]"),
            ToolOutputText(text="file:///a.txt:\none"),
        ],
    ]


async def test_failures_are_outputs() -> None:
    async with running_desk() as desk:
        run = await desk.run({"delete": {"path": "a"}}, {"add": {"a": "x"}}, tools=openai_agents_tools(box()))
    assert outputs(run) == [
        "Error: a is locked; close it first",
        "Error: invalid arguments for 'add': a: should be a valid integer, got \"x\"",
    ]


async def test_the_outputs_of_a_server() -> None:
    async with running_desk() as desk:
        replies = {"add": {"a": 1}, "chart": {"city": "Oslo"}, "delete": {"path": "a"}}
        run = await desk.run(replies, mcp_servers=[openai_agents_server(box())])
    assert outputs(run) == [
        {"type": "text", "text": '{"total":2}'},
        [{"type": "text", "text": "A chart of Oslo."}, {"type": "image", "image_url": IMAGE_URL}],
        {"type": "text", "text": "a is locked; close it first"},
    ]


async def test_a_strict_tool_is_strict_and_gets_no_nulls() -> None:
    @tool(strict=True)
    def greet(name: str, greeting: str = "Hello") -> str:
        """Greet."""
        return f"{greeting}, {name}"

    async with running_desk() as desk:
        run = await desk.run({"greet": {"name": "Ada", "greeting": None}}, tools=openai_agents_tools(greet))
    assert desk.offered[0][0]["strict"] is True
    assert desk.offered[0][0]["parameters"]["required"] == ["name", "greeting"]
    assert outputs(run) == ["Hello, Ada"]


@pytest.mark.parametrize("way", ["tools", "server"])
async def test_a_tool_reads_the_context_of_its_run(way: str) -> None:
    async with running_desk() as desk:
        run = await desk.run({"who_am_i": {}}, context="ada", **parts(way, who_am_i))
    assert "{'context': 'ada'} in None" in str(outputs(run))


@pytest.mark.parametrize("way", ["tools", "server"])
async def test_calls_wait_for_approval(way: str) -> None:
    async with running_desk() as desk:
        desk.api.will_reply({"add": {"a": 1}, "delete": {"path": "a"}}, "Done.")
        agent = desk.agent(**parts(way, [add, delete], approval=unless_read_only))
        run = await Runner.run(agent, "Go.", run_config=QUIET)
        (interruption,) = run.interruptions
        assert interruption.tool_name == "delete"
        state = run.to_state()
        state.approve(interruption)
        run = await Runner.run(agent, state, run_config=QUIET)
    assert run.final_output == "Done."
    assert "a is locked; close it first" in str(outputs(run))


@pytest.mark.parametrize("way", ["tools", "server"])
async def test_a_cancelled_run_cancels_its_tools(way: str) -> None:
    waiting = Waiting()
    async with running_desk() as desk:
        running = asyncio.create_task(desk.run({"wait": {}}, **parts(way, waiting)))
        await waiting.started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await waiting.cancelled.wait()


async def test_each_request_has_the_tools_that_a_server_has_then() -> None:
    served = ToolBox(add)
    async with connected(served) as provider, running_desk() as desk:

        @tool
        async def learn() -> None:
            """Learn to count."""
            served.add(count)
            await provider.refresh()

        await desk.run({"learn": {}}, tools=openai_agents_tools(learn), mcp_servers=[openai_agents_server(provider)])
    assert [[each["name"] for each in request] for request in desk.offered] == [
        ["add", "learn"],
        ["add", "count", "learn"],
    ]


async def test_a_server_has_no_prompts() -> None:
    server = openai_agents_server(add, name="desk")
    assert (server.name, (await server.list_prompts()).prompts) == ("desk", [])
    with pytest.raises(NotImplementedError, match="there is no prompt 'x': 'desk' has tools alone"):
        await server.get_prompt("x")


# --- theirs as ours --------------------------------------------------------------------------------------------------


@function_tool
def multiply(ctx: RunContextWrapper[str], a: int, b: int) -> str:
    """Multiply two numbers."""
    return f"{a * b} for {ctx.context}"


@function_tool
def picture() -> list[ToolOutputImage | ToolOutputFileContent | ToolOutputText]:
    """Return a picture."""
    return [
        ToolOutputText(text="Here."),
        ToolOutputImage(image_url=IMAGE_URL),
        ToolOutputImage(image_url="https://example.com/a.png"),
        ToolOutputImage(file_id="file-1"),
        ToolOutputFileContent(file_data=b64encode(PDF).decode(), filename="a.pdf"),
        ToolOutputFileContent(file_data=f"data:application/pdf;base64,{PDF_BASE64}"),
        ToolOutputFileContent(file_url="https://example.com/a.pdf"),
    ]


@function_tool
def typed() -> dict[str, Any]:
    """Return JSON that looks like an output."""
    return {"type": "image", "size": 1}


@function_tool(needs_approval=True)
def remove(path: str) -> str:
    """Remove a file."""
    return f"{path} is gone"


async def is_root(_: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
    return bool(arguments["path"] == "/")


@function_tool(needs_approval=is_root, failure_error_function=None)
def wipe(path: str) -> str:
    """Wipe a folder."""
    raise LookupError(f"{path} is empty")


async def test_their_tools_are_served_over_mcp() -> None:
    async with connected(ToolBox(from_openai_agents(multiply, context="ada"))) as provider:
        specification = provider.tools.get("multiply").specification
        assert (specification.description, specification.parameters["required"]) == (
            "Multiply two numbers.",
            ["a", "b"],
        )
        assert (await provider.call("multiply", a=4, b=2)).text == "8 for ada"


async def test_their_outputs_are_content() -> None:
    result = await ToolBox(from_openai_agents(picture)).call("picture")
    assert result.content == (
        Text("Here."),
        Image(PIXEL),
        ResourceLink("https://example.com/a.png", "image"),
        Text('{"type":"image","file_id":"file-1"}'),
        File("file:///a.pdf", PDF),
        File("file:///file", PDF, "application/pdf"),
        ResourceLink("https://example.com/a.pdf", "file"),
    )
    assert (await ToolBox(from_openai_agents(typed)).call("typed")).structured_content == {"type": "image", "size": 1}


@pytest.mark.parametrize(
    ("action", "text"), [("accept", "a is gone"), ("decline", "the call of 'remove' was not approved")]
)
async def test_a_tool_that_needs_approval_asks_its_caller(action: Any, text: str) -> None:
    async def answer(question: Elicitation | UrlElicitation, context: InvocationContext) -> ElicitationAnswer:
        assert question.message == "Allow the call of 'remove' with {'path': 'a'}?"
        return ElicitationAnswer(action, {} if action == "accept" else None)

    tools = ToolBox(from_openai_agents(remove))
    async with connected(tools, handlers=ClientHandlers(elicitation=answer)) as provider:
        assert (await provider.call("remove", path="a")).text == text


async def test_their_exceptions_are_failed_results_and_approval_may_depend_on_arguments() -> None:
    tools = ToolBox(from_openai_agents(wipe))
    failed, refused = await tools.call("wipe", path="a"), await tools.call("wipe", path="/")
    assert (failed.is_error, failed.text) == (True, "a is empty")
    invalid = await tools.call("wipe", path=1)
    assert (invalid.is_error, invalid.text) == (True, "Invalid JSON input for tool wipe")
    assert refused.text == "this tool needs to ask something, and its caller cannot be asked"


async def test_their_arguments_are_judged_by_them() -> None:
    async def invoke(_: Any, arguments: str) -> str:
        return arguments

    echo = FunctionTool(
        "echo", "", {"type": "object", "properties": {}}, invoke, strict_json_schema=False, timeout_seconds=5
    )
    (made,) = from_openai_agents(echo)
    assert (made.policy.timeout_seconds, made.specification.strict) == (5, None)
    assert (await ToolBox(made).call("echo", {"a": ["ü"]})).text == '{"a":["ü"]}'


async def test_tools_with_guardrails_and_other_objects_are_refused() -> None:
    @tool_input_guardrail
    def check(_: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.allow()

    guarded = function_tool(lambda: "", name_override="guarded", tool_input_guardrails=[check])
    with pytest.raises(DefinitionError, match="'guarded' has guardrails, which only a run applies"):
        from_openai_agents(guarded)
    with pytest.raises(DefinitionError, match="is not a function tool of the Agents SDK"):
        from_openai_agents(len)  # type: ignore[arg-type]  # what the test is about
