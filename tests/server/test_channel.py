from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp_types import (
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    ListRootsResult,
    LoggingMessageNotificationParams,
    Root,
    TextContent,
)

from bridge.errors import ToolError
from bridge.server.channel import missing_capability
from bridge.server.publisher import Publisher
from bridge.tools.content import Text
from bridge.tools.function import tool
from bridge.tools.questions import Elicitation, Roots, Sampling, SamplingMessage, UrlElicitation
from bridge.tools.toolbox import ToolBox
from tests.server.tools import GREET, NAME_FORM, made

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.client import ClientRequestContext
    from mcp_types import CallToolResult, CreateMessageRequestParams, ElicitRequestParams

    from bridge.tools.context import InvocationContext
    from bridge.tools.questions import Question

MODES = ["legacy", "auto"]
DEADLINE_SECONDS = 10

pytestmark = pytest.mark.anyio


@dataclass
class Person:
    """Answers the requests to a client, and records them."""

    asked: list[str] = field(default_factory=list)
    action: Any = "accept"

    async def elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.message)
        if isinstance(params, ElicitRequestFormParams) and self.action == "accept":
            return ElicitResult(action="accept", content={"name": f"Ada {len(self.asked)}"})
        return ElicitResult(action=self.action)

    async def sample(self, context: ClientRequestContext, params: CreateMessageRequestParams) -> CreateMessageResult:
        self.asked.append(f"sample {params.max_tokens}")
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text="42"), model="deep")

    async def roots(self, context: ClientRequestContext) -> ListRootsResult:
        self.asked.append("roots")
        return ListRootsResult(roots=[Root(uri="file:///tmp", name="scratch")])  # type: ignore[arg-type]  # pydantic reads text as a URL

    def client(self, *tools: object, mode: Any, **options: Any) -> Client:
        return Client(
            Publisher(ToolBox(*tools), name="tests").server,
            mode=mode,
            elicitation_callback=self.elicit,
            sampling_callback=self.sample,
            list_roots_callback=self.roots,
            **options,
        )


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


@pytest.mark.parametrize("mode", MODES)
class TestInBothEras:
    async def test_a_form_is_asked_and_answered(self, mode: Any) -> None:
        person = Person()
        async with person.client(GREET, mode=mode) as client:
            assert text(await client.call_tool("greet", {})) == "Hello Ada 1"
        assert person.asked == ["Who are you?"]

    @pytest.mark.parametrize("action", ["decline", "cancel"])
    async def test_a_person_may_refuse(self, mode: Any, action: str) -> None:
        async with Person(action=action).client(GREET, mode=mode) as client:
            assert text(await client.call_tool("greet", {})) == action

    async def test_every_kind_can_be_asked_at_once(self, mode: Any) -> None:
        person = Person()

        async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
            answers = await context.ask(
                {
                    "form": Elicitation("form?", NAME_FORM),
                    "url": UrlElicitation("visit?", "https://example.com", "e1"),
                    "model": Sampling([SamplingMessage("user", (Text("6 * 7"),))], 9),
                    "folders": Roots(),
                }
            )
            return [type(answer).__name__ for answer in answers.values()]

        async with person.client(made("all", body), mode=mode) as client:
            found = text(await client.call_tool("all", {}))
        assert found == "['ElicitationAnswer', 'ElicitationAnswer', 'SamplingAnswer', 'tuple']"
        assert sorted(person.asked) == ["form?", "roots", "sample 9", "visit?"]

    async def test_no_question_is_asked_twice(self, mode: Any) -> None:
        person, rounds = Person(), []

        async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
            rounds.append(context.round)
            first = await context.elicit("one?", NAME_FORM)
            second = await context.elicit("two?", NAME_FORM)
            again = (await context.ask({"question-1": Elicitation("one?", NAME_FORM)}))["question-1"]
            assert again == first
            return first.content, second.content

        async with person.client(made("two", body), mode=mode) as client:
            assert text(await client.call_tool("two", {})) == "({'name': 'Ada 1'}, {'name': 'Ada 2'})"
        assert person.asked == ["one?", "two?"]
        assert rounds == ([0] if mode == "legacy" else [0, 1, 2])

    async def test_a_function_that_catches_every_exception_still_asks(self, mode: Any) -> None:
        async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
            try:
                return (await context.elicit("name?", NAME_FORM)).content
            except Exception as error:  # noqa: BLE001 - what the test is about
                return f"caught {error!r}"

        async with Person().client(made("greedy", body), mode=mode) as client:
            assert text(await client.call_tool("greedy", {})) == "{'name': 'Ada 1'}"

    async def test_tasks_of_a_function_may_ask(self, mode: Any) -> None:
        person = Person()

        async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
            answers: dict[str, Any] = {}

            async def ask(key: str) -> None:
                answers[key] = (await context.elicit(f"{key}?", NAME_FORM, key=key)).content

            async with anyio.create_task_group() as group:
                group.start_soon(ask, "a")
                group.start_soon(ask, "b")
            return sorted(answers)

        async with person.client(made("tasks", body), mode=mode) as client:
            assert text(await client.call_tool("tasks", {})) == "['a', 'b']"
        assert sorted(person.asked) == ["a?", "b?"]

    async def test_a_function_in_a_thread_may_ask(self, mode: Any) -> None:
        @tool
        def thread(context: InvocationContext) -> str:
            assert threading.current_thread() is not threading.main_thread()
            return str(context.blocking.elicit("name?", NAME_FORM).content)

        async with Person().client(thread, mode=mode) as client:
            assert text(await client.call_tool("thread", {})) == "{'name': 'Ada 1'}"

    async def test_progress_grows_and_goes_to_who_asked_for_it(self, mode: Any) -> None:
        reports: list[Any] = []

        async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
            for progress in (1, 1, float("nan"), 0.5, 2, float("inf")):
                await context.progress(progress, float("inf") if progress == 2 else 3, "on")
            return "done"

        async def note(progress: float, total: float | None, message: str | None) -> None:
            reports.append((progress, total, message))

        async with Person().client(made("work", body), mode=mode) as client:
            await client.call_tool("work", {})
            await client.call_tool("work", {}, progress_callback=note)
        assert reports == [(1, 3, "on"), (2, None, "on")]

    async def test_nothing_is_said_after_the_call_has_ended(self, mode: Any) -> None:
        said: list[Any] = []
        contexts: list[InvocationContext] = []

        async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
            contexts.append(context)
            await context.log("info", "during")
            return "done"

        async def note(progress: float, total: float | None, message: str | None) -> None:
            said.append(progress)

        async def log(params: LoggingMessageNotificationParams) -> None:
            said.append(params.data)

        async with Person().client(made("work", body), mode=mode, logging_callback=log, log_level="debug") as client:
            await client.call_tool("work", {}, progress_callback=note)
            await contexts[0].progress(1)
            await contexts[0].log("info", "after")
            await client.call_tool("work", {})
        assert said == ["during", "during"]

    async def test_a_log_message_says_what_who_and_how_severe(self, mode: Any) -> None:
        said: list[Any] = []

        async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
            await context.log("notice", {"a": [1]}, "part")
            return "done"

        async def log(params: LoggingMessageNotificationParams) -> None:
            said.append((params.level, params.data, params.logger))

        async with Person().client(made("work", body), mode=mode, logging_callback=log, log_level="info") as client:
            await client.call_tool("work", {})
        assert said == [("notice", {"a": [1]}, "part")]


async def leveled(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
    for level in ("debug", "info", "warning", "error"):
        await context.log(level, level)
    return "done"


async def test_a_session_of_the_handshake_era_gets_all_messages_until_it_sets_a_level() -> None:
    said: list[Any] = []

    async def log(params: LoggingMessageNotificationParams) -> None:
        said.append(params.data)

    publisher = Publisher(ToolBox(made("work", leveled)), name="tests")
    async with (
        Client(publisher.server, mode="legacy", logging_callback=log) as client,
        Client(publisher.server, mode="legacy", logging_callback=log) as other,
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

    server = Publisher(ToolBox(made("work", leveled)), name="tests").server
    async with Client(server, logging_callback=log, log_level="error") as client:
        await client.call_tool("work", {})
    async with Client(server, logging_callback=log) as client:
        await client.call_tool("work", {})
    assert said == ["error"]


async def test_a_client_of_the_handshake_era_that_cannot_be_asked_is_a_tool_error() -> None:
    async with Client(Publisher(ToolBox(GREET), name="tests").server, mode="legacy") as client:
        result = await client.call_tool("greet", {})
    assert result.is_error
    assert text(result) == "this call needs a client with the capability elicitation.form"


async def test_a_client_of_the_handshake_era_that_fails_to_answer_is_a_tool_error() -> None:
    async def refuse(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        raise MCPError(-1, "not today")

    server = Publisher(ToolBox(GREET), name="tests").server
    async with Client(server, mode="legacy", elicitation_callback=refuse) as client:
        result = await client.call_tool("greet", {})
    assert result.is_error
    assert text(result) == "the client did not answer 'elicitation/create': not today"


async def test_a_client_of_the_modern_era_that_cannot_be_asked_is_told_what_it_lacks() -> None:
    async with Client(Publisher(ToolBox(GREET), name="tests").server) as client:
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
