from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig  # noqa: TC002 - read by LangChain
from langchain_core.tools import InjectedToolArg, StructuredTool, ToolException
from langchain_core.tools import tool as langchain_tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from bridge import (
    DefinitionError,
    ExecutionPolicy,
    Image,
    InvocationContext,
    ReturnBehavior,
    ServerConfig,
    Text,
    Tool,
    ToolBox,
    ToolSpecification,
    ai_service,
    connect,
    tool,
)
from bridge.adapters import from_langchain, langchain_middleware, langchain_tools
from bridge.client import MemoryTransport
from bridge.server.server import Server
from bridge.service import unless_read_only
from bridge.testing import ScriptedChatModel, connected
from bridge.tools.content import File
from bridge.tools.tool import ToolExecutionRequest
from tests.adapters.tools import Waiting, add, box, count, delete, who_am_i
from tests.models.requests import PDF, PDF_BASE64, PIXEL, PIXEL_BASE64

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]


class Model(FakeMessagesListChatModel):
    """A model with given replies, which records the definitions that it receives."""

    offered: list[Any] = []  # noqa: RUF012 - copied by pydantic

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        self.offered.extend(map(convert_to_openai_tool, tools))
        return self


def calling(name: str, **arguments: Any) -> Any:
    return {"type": "tool_call", "name": name, "args": arguments, "id": f"call_{name}"}


def model(*calls: Any) -> Model:
    return Model(responses=[AIMessage("", tool_calls=list(calls)), AIMessage("Done.")])


async def results(tools: Sequence[Any], *calls: Any, **configurable: Any) -> dict[str, ToolMessage]:
    """The results of an agent's calls by the tool's name."""
    agent: Any = create_agent(model(*calls), tools=tools)
    end = await agent.ainvoke({"messages": [("user", "Go.")]}, {"configurable": configurable})
    return {each.name or "": each for each in end["messages"] if isinstance(each, ToolMessage)}


# --- ours as theirs --------------------------------------------------------------------------------------------------


async def test_an_agent_offers_the_tools_with_their_schemas() -> None:
    offering = model()
    agent: Any = create_agent(offering, tools=langchain_tools(box()))
    await agent.ainvoke({"messages": [("user", "Go.")]})
    definitions = {each["function"]["name"]: each["function"] for each in offering.offered}
    assert list(definitions) == ["add", "chart", "attach", "delete", "who_am_i", "count"]
    assert definitions["add"] == {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "b": {"type": "integer", "description": "The second number", "default": 1},
            },
            "required": ["a"],
            "additionalProperties": False,
        },
    }


async def test_a_result_is_what_the_model_reads_and_the_artifact_is_all_of_it() -> None:
    message = (await results(langchain_tools(add), calling("add", a=1, b=2)))["add"]
    assert (message.content, message.status) == ('{"total":3}', "success")
    assert message.artifact == {
        "content": [{"type": "text", "text": '{"total":3}'}],
        "structuredContent": {"total": 3},
        "isError": False,
    }


async def test_a_text_has_no_artifact() -> None:
    message = (await results(langchain_tools(count), calling("count")))["count"]
    assert (message.content, message.artifact) == ("counted", None)


async def test_images_and_files_are_standard_blocks_and_audio_is_described() -> None:
    messages = await results(langchain_tools(box()), calling("chart", city="Oslo"), calling("attach"))
    assert messages["chart"].content == [
        {"type": "text", "text": "A chart of Oslo."},
        {"type": "image", "base64": PIXEL_BASE64, "mime_type": "image/png"},
    ]
    assert messages["attach"].content == [
        {"type": "file", "base64": PDF_BASE64, "mime_type": "application/pdf", "extras": {"filename": "report.pdf"}},
        {"type": "text", "text": "[audio/wav: 4 bytes, not shown]"},
        {"type": "text", "text": "file:///a.txt:\none"},
    ]
    assert [block["type"] for block in messages["attach"].artifact["content"]] == ["resource", "audio", "resource"]


async def test_failures_are_messages_with_the_status_error() -> None:
    messages = await results(langchain_tools(box()), calling("delete", path="a.txt"), calling("add", a="x"))
    assert {name: (each.content, each.status) for name, each in messages.items()} == {
        "delete": ("a.txt is locked; close it first", "error"),
        "add": ("invalid arguments for 'add': a: should be a valid integer, got \"x\"", "error"),
    }


async def test_a_tool_reads_the_configuration() -> None:
    message = (await results(langchain_tools(who_am_i), calling("who_am_i"), thread_id="t1", user="ada"))["who_am_i"]
    assert message.content == "{'user': 'ada'} in t1"


async def test_entries_of_the_graph_are_no_invocation_parameters() -> None:
    contexts: list[InvocationContext] = []

    @tool
    async def see(context: InvocationContext) -> None:
        contexts.append(context)

    await results(langchain_tools(see), calling("see"))
    assert [name for name in contexts[0].parameters if name.startswith("__")] == []


async def test_progress_is_a_custom_event() -> None:
    agent: Any = create_agent(model(calling("count")), tools=langchain_tools(count))
    events = [event async for event in agent.astream_events({"messages": [("user", "Go.")]}, version="v2")]
    assert [(each["name"], each["data"]) for each in events if each["event"] == "on_custom_event"] == [
        ("tool_progress", {"tool": "count", "progress": 1, "total": 2, "message": "half"}),
        ("tool_progress", {"tool": "count", "progress": 2, "total": 2, "message": None}),
    ]


async def test_calls_wait_for_the_approval_of_langchain() -> None:
    tools = langchain_tools([add, delete])
    needed: dict[str, Any] = {each.name: True for each in tools if unless_read_only(each.bridge_tool)}
    assert needed == {"delete": True}
    agent: Any = create_agent(
        model(calling("add", a=1), calling("delete", path="a.txt")),
        tools=tools,
        middleware=[HumanInTheLoopMiddleware(interrupt_on=needed)],
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    (interrupt,) = (await agent.ainvoke({"messages": [("user", "Go.")]}, config))["__interrupt__"]
    assert [request["name"] for request in interrupt.value["action_requests"]] == ["delete"]
    end = await agent.ainvoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    assert "a.txt is locked; close it first" in [message.content for message in end["messages"]]


async def test_a_cancelled_agent_cancels_its_tools() -> None:
    waiting = Waiting()
    agent: Any = create_agent(model(calling("wait")), tools=langchain_tools(waiting))
    running = asyncio.create_task(agent.ainvoke({"messages": [("user", "Go.")]}))
    await waiting.started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await waiting.cancelled.wait()


async def test_a_result_that_is_the_answer_ends_the_run() -> None:
    @tool(return_behavior=ReturnBehavior.IMMEDIATE)
    def answer() -> str:
        """Answer."""
        return "42"

    agent: Any = create_agent(model(calling("answer")), tools=langchain_tools(answer))
    end = await agent.ainvoke({"messages": [("user", "Go.")]})
    assert end["messages"][-1].content == "42"


async def test_parameters_may_have_any_name() -> None:
    names = ("self", "config", "run_manager", "callbacks", "args")
    parameters = {"type": "object", "properties": {name: {"type": "integer"} for name in names}}
    echo = Tool(ToolSpecification(name="echo", parameters=parameters), lambda request, context: request.arguments)
    given = {name: number for number, name in enumerate(names)}
    assert json.loads(await langchain_tools(echo)[0].ainvoke(given)) == given


async def test_the_policy_applies_and_exceptions_propagate() -> None:
    @tool
    def broken() -> str:
        """Fail."""
        raise LookupError("no")

    (made,) = langchain_tools(broken, policy=ExecutionPolicy(propagate=True))
    with pytest.raises(LookupError):
        await made.ainvoke({})


async def test_the_tools_of_a_provider_are_the_current_ones() -> None:
    served = ToolBox(add)
    async with connected(served) as provider:
        (made,) = langchain_tools(provider)
        assert await made.ainvoke({"a": 1}) == '{"total":2}'
        served.remove("add")
        await provider.refresh()
        assert langchain_tools(provider.tools.transformed(list)) == []
        assert await made.ainvoke({"a": 1}) == "there is no tool named 'add'"


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_each_request_of_an_agent_has_the_tools_that_a_provider_has_then(is_blocking: bool) -> None:
    served = ToolBox()

    @tool
    def learn() -> str:
        """Learn to add."""
        served.add(add)
        return "learned"

    @tool
    def subtract(a: int, b: int) -> int:
        """Subtract."""
        return a - b

    served.add(learn)
    scripted = Model(
        responses=[
            AIMessage("", tool_calls=[calling("learn")]),
            AIMessage("", tool_calls=[calling("add", a=1), calling("subtract", a=3, b=1), calling("divide")]),
            AIMessage("Done."),
        ]
    )
    middleware = langchain_middleware(served)
    agent: Any = create_agent(scripted, tools=langchain_tools(subtract), middleware=[middleware])
    question = {"messages": [("user", "Go.")]}
    end = await (asyncio.to_thread(agent.invoke, question) if is_blocking else agent.ainvoke(question))
    offered = [each["function"]["name"] for each in scripted.offered]
    assert offered == ["subtract", "learn", *["subtract", "learn", "add"] * 2]
    found = {each.name: (each.content, each.status) for each in end["messages"] if isinstance(each, ToolMessage)}
    assert found["learn"] == ("learned", "success")
    assert found["add"] == ('{"total":2}', "success")
    assert found["subtract"] == ("2", "success")
    assert found["divide"][1] == "error"


async def test_synchronous_calls_run_with_progress() -> None:
    class Handler(BaseCallbackHandler):
        seen: ClassVar[list[Any]] = []

        def on_custom_event(self, name: str, data: Any, **_: Any) -> None:
            self.seen.append((name, data["progress"]))

    (made,) = langchain_tools(count)
    assert await asyncio.to_thread(made.invoke, {}, {"callbacks": [Handler()]}) == "counted"
    assert Handler.seen == [("tool_progress", 1), ("tool_progress", 2)]


async def test_synchronous_calls_reach_the_servers_of_connect() -> None:
    def call() -> Any:
        transport = MemoryTransport(Server(ToolBox(add), name="one"))
        with connect(ServerConfig(name="one", transport=transport)) as servers:
            return [made.invoke({"a": 1, "b": 2}) for made in langchain_tools(servers)]

    assert await asyncio.to_thread(call) == ['{"total":3}']


# --- theirs as ours --------------------------------------------------------------------------------------------------


@langchain_tool
def multiply(a: int, b: int, secret: Annotated[str, InjectedToolArg] = "") -> int:
    """Multiply two numbers."""
    return a * b


@langchain_tool(response_format="content_and_artifact")
def draw(city: str) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Draw a city."""
    return [
        {"type": "text", "text": city},
        {"type": "image", "base64": PIXEL_BASE64, "mime_type": "image/png"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL_BASE64}"}},
        {"type": "file", "base64": PDF_BASE64, "mime_type": "application/pdf", "extras": {"filename": "a.pdf"}},
    ], {"width": 1}


@langchain_tool
def refuse() -> str:
    """Refuse."""
    raise ToolException("not today")


async def test_their_tools_are_served_over_mcp() -> None:
    async with connected(ToolBox(from_langchain(multiply, refuse))) as provider:
        specification = provider.tools.get("multiply").specification
        assert (specification.description, specification.parameters["required"]) == (
            "Multiply two numbers.",
            ["a", "b"],
        )
        assert "secret" not in specification.parameters["properties"]
        assert (await provider.call("multiply", a=2, b=3)).text == "6"
        wrong = await provider.call("multiply", a="x", b=3)
        assert wrong.is_error
        assert wrong.text.startswith("invalid arguments for 'multiply': a: should be a valid integer")
        refused = await provider.call("refuse")
        assert (refused.is_error, refused.text) == (True, "not today")


async def test_their_content_and_artifact_are_kept() -> None:
    result = await ToolBox(from_langchain(draw)).call("draw", city="Oslo")
    assert result.content == (
        Text("Oslo"),
        Image(PIXEL),
        Image(PIXEL),
        File("file:///a.pdf", PDF, "application/pdf"),
    )
    assert result.attributes == {"artifact": {"width": 1}}


async def test_their_tools_read_the_invocation_as_configuration() -> None:
    @langchain_tool
    async def whose(config: RunnableConfig) -> str:
        """Say whose."""
        return str({key: config["configurable"][key] for key in ("user", "thread_id")})

    context = InvocationContext(memory_id="t1", parameters={"user": "ada"})
    result = await ToolBox(from_langchain(whose)).call("whose", context=context)
    assert result.text == "{'user': 'ada', 'thread_id': 't1'}"


async def test_their_tools_are_tools_of_a_service() -> None:
    chat_model = ScriptedChatModel([ToolExecutionRequest("multiply", {"a": 2, "b": 3}), "It is 6."])

    class Assistant(Protocol):
        async def chat(self, message: str) -> str: ...

    assistant = ai_service(Assistant, chat_model=chat_model, tools=from_langchain(multiply))
    assert await assistant.chat("2 * 3?") == "It is 6."


async def test_a_direct_result_is_immediate() -> None:
    direct = StructuredTool.from_function(func=lambda: "42", name="answer", description="Answer.", return_direct=True)
    (made,) = from_langchain(direct)
    assert made.return_behavior is ReturnBehavior.IMMEDIATE


async def test_a_command_of_a_graph_is_an_error() -> None:
    commanding = StructuredTool.from_function(func=lambda: Command(goto="end"), name="go", description="Go.")
    result = await ToolBox(from_langchain(commanding)).call("go")
    assert (result.is_error, result.text) == (True, "'go' returned a Command, which only a graph can use")


async def test_other_objects_are_refused() -> None:
    with pytest.raises(DefinitionError, match="is not a tool of LangChain; make one with its decorator @tool"):
        from_langchain(len)  # type: ignore[arg-type]  # what the test is about
