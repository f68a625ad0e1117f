"""Questions of servers reach the gateway's caller unchanged, and answers reach the server."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp.server import Server as McpServer
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    TextContent,
    Tool,
)

from bridge.client import CallOptions, ClientHandlers, Connection, McpToolProvider, MemoryTransport, ServerConfig
from bridge.gateway import Gateway
from bridge.server import Server
from bridge.tools.content import Image, Text
from bridge.tools.execution import execute
from bridge.tools.questions import (
    Elicitation,
    ElicitationAnswer,
    Root,
    Roots,
    Sampling,
    SamplingAnswer,
    SamplingMessage,
    ToolUse,
    ToolUseResult,
    UrlElicitation,
)
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import ToolExecutionRequest
from bridge.tools.toolbox import ToolBox
from tests.client.foreign import ForeignServer
from tests.gateway.between import DEADLINE_SECONDS, STATE_KEYS, server_config, text_of
from tests.server.tools import made

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from mcp.server.context import ServerRequestContext

    from bridge.tools.context import InvocationContext
    from bridge.tools.questions import Answer, Question

pytestmark = pytest.mark.anyio

MODERN = "2026-07-28"
ERAS = pytest.mark.parametrize("caller_era", [MODERN, "legacy"])
SERVER_ERAS = pytest.mark.parametrize("server_era", [MODERN, "legacy"])

FORM = {
    "type": "object",
    "properties": {"colour": {"type": "string", "enum": ["red", "blue"], "enumNames": ["Red", "Blue"]}},
    "required": ["colour"],
}
LOOK_UP = ToolSpecification(
    name="look_up",
    title="Look up",
    description="Look something up.",
    parameters={"type": "object", "properties": {"word": {"type": "string", "x-own": 1}}},
    metadata={"example.org/team": "x"},
)
CONVERSATION = [
    SamplingMessage("user", (Text("What is this?"), Image(b"\x89PNG")), {"example.org/turn": 1}),
    SamplingMessage("assistant", (ToolUse("1", "look_up", {"word": "png"}, {"example.org/cache": True}),)),
    SamplingMessage("user", (ToolUseResult("1", (Text("a picture"),), {"kind": "picture"}, is_error=True),)),
]
SAMPLING = Sampling(
    CONVERSATION,
    100,
    "Be brief.",
    0.5,
    ("END", "STOP"),
    {"hints": [{"name": "small"}], "costPriority": 0.5, "speedPriority": 1.0},
    {"provider": {"seed": 7}},
    "thisServer",
    (LOOK_UP,),
    "required",
    {"example.org/why": "because"},
)
ANSWER_OF_MODEL = SamplingAnswer(
    (Text("Let me see."), ToolUse("2", "look_up", {"word": "file"})),
    "a model",
    "assistant",
    "toolUse",
    {"example.org/tokens": 5},
)
ASKED: dict[str, tuple[Question, Answer]] = {
    "form": (
        Elicitation("Which one?", FORM, {"example.org/why": "because"}),
        ElicitationAnswer("accept", {"colour": "red"}, {"example.org/by": "Ada"}),
    ),
    "url": (
        UrlElicitation("Pay", "https://example.org/pay?a=1", "id-1", {"example.org/why": "because"}),
        ElicitationAnswer("accept"),
    ),
    "sampling": (SAMPLING, ANSWER_OF_MODEL),
    "roots": (Roots({"example.org/why": "because"}), (Root("file:///a", "a", {"example.org/open": True}),)),
}


class Asker:
    """A tool that asks, and records the answer."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.answers: list[Answer] = []
        self.meta: list[Mapping[str, Any]] = []

    def tool(self) -> Any:
        async def body(arguments: Mapping[str, Any], context: InvocationContext) -> str:
            self.meta.append(context.meta)
            self.answers.append((await context.ask({"it": self.question}))["it"])
            return "done"

        return made("ask", body)


class Answerer(ClientHandlers):
    """A caller that records its questions, and answers as a test specifies."""

    def __init__(self, answer: Answer, *features: Any) -> None:
        async def unused(*_: object) -> Any:
            raise AssertionError

        super().__init__(elicitation=unused, sampling=unused, sampling_features=features, roots=unused)
        object.__setattr__(self, "notes", [])
        object.__setattr__(self, "reply", answer)

    notes: list[Question]
    reply: Answer

    async def answer(self, question: Question, context: InvocationContext) -> Answer:
        self.notes.append(question)
        return self.reply


@asynccontextmanager
async def asking(
    server: ServerConfig, caller_era: Any, handlers: ClientHandlers | None = None
) -> AsyncIterator[Connection]:
    """Connect a caller of a gateway to a server."""
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Gateway([server]) as gateway:
            published = Server(gateway.tools, name="gateway", state_keys=STATE_KEYS)
            config = ServerConfig(name="gateway", transport=MemoryTransport(published), protocol=caller_era)
            async with Connection(config, handlers=handlers) as connection:
                yield connection


def plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return value
    return replace(value, meta={}, **({"elicitation_id": ""} if isinstance(value, UrlElicitation) else {}))


@SERVER_ERAS
@ERAS
@pytest.mark.parametrize("kind", ASKED)
async def test_a_question_and_its_answer_pass_whole(kind: str, server_era: str, caller_era: str) -> None:
    question, answer = ASKED[kind]
    asker, handlers = Asker(question), Answerer(answer, "tools", "context")
    async with asking(server_config(asker.tool(), era=server_era), caller_era, handlers) as connection:
        assert text_of(await connection.call_tool("ask", {})) == "done"
    (asked,), (answered,) = handlers.notes, asker.answers
    # In 2026-07-28 a question and its answer have no `_meta`, and a page to visit has no ID.
    if MODERN in {server_era, caller_era}:
        asked, question = plain(asked), plain(question)
        answered, answer = plain(answered), plain(answer)
    assert asked == question
    assert answered == answer


class Unchecked(McpServer[Any]):
    """The official SDK's server, which checks no answer, with a tool that asks for a colour and returns the answer."""

    def __init__(self) -> None:
        super().__init__("unchecked", on_list_tools=self._list, on_call_tool=self._ask)

    async def _list(self, context: ServerRequestContext[Any], params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="ask", input_schema={"type": "object"})])

    async def _ask(
        self, context: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        question = ElicitRequest(params=ElicitRequestFormParams(message="Which one?", requested_schema=FORM))
        answer: Any
        if context.protocol_version == MODERN:
            if params.input_responses is None:
                return InputRequiredResult(input_requests={"it": question}, request_state="s")
            answer = params.input_responses["it"]
        else:
            answer = await context.session.send_request(question, ElicitResult)
        return CallToolResult(content=[TextContent(type="text", text=f"{answer.action} {answer.content}")])


@SERVER_ERAS
@ERAS
@pytest.mark.parametrize("corrected", [None, "blue"])
async def test_an_answer_that_does_not_fit_is_asked_again_and_does_not_reach_the_server(
    server_era: Any, caller_era: str, corrected: str | None
) -> None:
    asked: list[str] = []

    async def choose(question: Any, context: InvocationContext) -> ElicitationAnswer:
        asked.append(question.message)
        return ElicitationAnswer("accept", {"colour": "green" if len(asked) == 1 else corrected or ["red"]})

    server = ServerConfig(name="unchecked", transport=MemoryTransport(Unchecked()), protocol=server_era)
    async with asking(server, caller_era, ClientHandlers(elicitation=choose)) as connection:
        found = text_of(await connection.call_tool("ask", {}))
    assert found == ("decline None" if corrected is None else "accept {'colour': 'blue'}")
    assert asked == ["Which one?", 'Which one?\n(colour: expected one of the choices, not "green")']


async def test_a_page_that_a_modern_server_names_without_an_id_has_one_for_an_older_caller() -> None:
    asker, handlers = Asker(UrlElicitation("Pay", "https://example.org/pay")), Answerer(ElicitationAnswer("decline"))
    async with asking(server_config(asker.tool(), era=MODERN), "legacy", handlers) as connection:
        await connection.call_tool("ask", {})
    (asked,) = handlers.notes
    assert isinstance(asked, UrlElicitation)
    assert asked.elicitation_id
    assert asker.answers == [ElicitationAnswer("decline")]


@SERVER_ERAS
async def test_a_caller_whose_model_has_no_tools_is_asked_for_none(server_era: str) -> None:
    asker, handlers = Asker(SAMPLING), Answerer(ANSWER_OF_MODEL)
    async with asking(server_config(asker.tool(), era=server_era), "legacy", handlers) as connection:
        result = await connection.call_tool("ask", {})
    assert (result["isError"], handlers.notes, asker.answers) == (True, [], [])
    told = "sampling.tools" if server_era == MODERN else "the client behind this gateway cannot be asked that"
    assert told in text_of(result)


# --- what goes with a call -------------------------------------------------------------------------------------------

TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "vendor=1",
    "baggage": "user=ada",
    "example.org/unknown": {"deep": [None, 1]},
}


@SERVER_ERAS
@ERAS
async def test_what_a_caller_says_in_meta_reaches_the_server(server_era: str, caller_era: str) -> None:
    asker = Asker(Elicitation("Which one?", FORM))
    handlers = Answerer(ElicitationAnswer("decline"))
    async with asking(server_config(asker.tool(), era=server_era), caller_era, handlers) as connection:
        protocols = {"io.modelcontextprotocol/made-up": 1}
        await connection.call_tool("ask", {}, options=CallOptions(meta={**TRACE, **protocols}))
    assert asker.meta
    assert all(meta == TRACE for meta in asker.meta), "in every round of a call"


async def test_a_provider_passes_it_on_too_and_what_is_supplied_stands_over_it() -> None:
    def supplier(server: str, context: InvocationContext) -> Mapping[str, str]:
        return {"baggage": f"for {server}"}

    for given, told in ((None, "user=ada"), (supplier, "for foreign")):
        async with McpToolProvider(ForeignServer("f").config(), meta_supplier=given) as provider:

            async def body(
                arguments: Mapping[str, Any], context: InvocationContext, provider: McpToolProvider = provider
            ) -> str:
                result = await execute(provider.tools, ToolExecutionRequest("f", {}), context)
                return result.text

            published = Server(ToolBox(made("outer", body)), name="outer")
            async with Connection(ServerConfig(name="outer", transport=MemoryTransport(published))) as outer:
                said = {"traceparent": TRACE["traceparent"], "baggage": "user=ada"}
                result = await outer.call_tool("outer", {}, options=CallOptions(meta=said))
        assert f'"baggage": "{told}"' in text_of(result)
        assert f'"traceparent": "{TRACE["traceparent"]}"' in text_of(result)
