from __future__ import annotations

import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio import to_thread
from mcp import Client
from mcp_types import (
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequestFormParams,
    ElicitResult,
    ListRootsResult,
    LoggingMessageNotificationParams,
    Root,
    TextContent,
    ToolUseContent,
)

from bridge.server.server import Server
from bridge.tools.content import Text
from bridge.tools.function import tool
from bridge.tools.questions import Elicitation, Roots, Sampling, SamplingMessage, UrlElicitation
from bridge.tools.toolbox import ToolBox
from tests.server.memory import memory
from tests.server.tools import GREET, NAME_FORM, made

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.client import ClientRequestContext
    from mcp_types import CallToolResult, CreateMessageRequestParams, ElicitRequestParams

    from bridge.tools.context import InvocationContext

MODES = ["legacy", "auto"]
DEADLINE_SECONDS = 60

SURE_FORM = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
WRONG_THEN_RIGHT: list[list[Any]] = [
    [{"sure": "false"}, {"sure": False}],
    [{}, {"sure": False}],
    [None, {"sure": False}],
    [{"sure": "false"}, {"sure": "true"}],
    [{"sure": 1}, None],
]

pytestmark = pytest.mark.anyio


@dataclass
class Sure:
    """A form with a box to tick."""

    sure: bool


class Size(Enum):
    """Choices."""

    SMALL = "small"
    LARGE = "large"


@dataclass
class Order:
    """A form with a choice."""

    size: Size
    count: int = 1


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
            memory(Server(ToolBox(*tools), name="tests")),
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

    async def test_the_answer_has_the_type_that_was_asked_for(self, mode: Any) -> None:
        async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
            order = (await context.elicit("Order?", Order)).data
            size = (await context.elicit("Size?", Size)).data
            sizes = (await context.elicit("Sizes?", list[Size])).data
            name = (await context.elicit("Name?", str)).data
            thread = await to_thread.run_sync(lambda: context.blocking.elicit("Sure?", bool).data)
            return order, size, sizes, name, thread

        async def fill_in(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            contents: dict[str, Any] = {
                "Order?": {"size": "small", "count": 2},
                "Size?": {"value": "large"},
                "Sizes?": {"value": ["small", "large"]},
                "Name?": {"value": "Ada"},
                "Sure?": {"value": True},
            }
            return ElicitResult(action="accept", content=contents[params.message])

        server = Server(ToolBox(made("order", body)), name="tests")
        async with Client(memory(server), mode=mode, elicitation_callback=fill_in) as client:
            found = text(await client.call_tool("order", {}))
        assert found == str((Order(Size.SMALL, 2), Size.LARGE, [Size.SMALL, Size.LARGE], "Ada", True))

    @pytest.mark.parametrize("form", [Sure, SURE_FORM])
    @pytest.mark.parametrize("contents", WRONG_THEN_RIGHT, ids=repr)
    async def test_a_form_that_does_not_fit_is_asked_again_once(self, mode: Any, form: Any, contents: Any) -> None:
        asked: list[str] = []

        async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
            answer = await context.elicit("Sure?", form)
            assert answer == (await context.ask({"question-1": Elicitation("Sure?", SURE_FORM)}))["question-1"]
            return answer.action, answer.content, answer.data

        async def fill_in(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            asked.append(params.message)
            return ElicitResult(action="accept", content=contents[len(asked) - 1])

        server = Server(ToolBox(made("sure", body)), name="tests")
        async with Client(memory(server), mode=mode, elicitation_callback=fill_in) as client:
            found = text(await client.call_tool("sure", {}))
        if contents[-1] == {"sure": False}:
            assert found == str(("accept", {"sure": False}, Sure(False) if form is Sure else {"sure": False}))
        else:
            assert found == str(("decline", None, None))
        assert [each.splitlines()[0] for each in asked] == ["Sure?", "Sure?"]
        assert asked[1].startswith("Sure?\n(sure: ")

    async def test_a_refusal_has_no_content(self, mode: Any) -> None:
        async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
            answer = await context.elicit("Sure?", Sure)
            return answer.action, answer.content, answer.data

        async def fill_in(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            return ElicitResult(action="decline", content={"sure": True})

        server = Server(ToolBox(made("sure", body)), name="tests")
        async with Client(memory(server), mode=mode, elicitation_callback=fill_in) as client:
            assert text(await client.call_tool("sure", {})) == str(("decline", None, None))

    @pytest.mark.parametrize(
        ("key", "question", "problem"),
        [
            ("a", Elicitation(5, {}), "message of Elicitation must be text, not 5"),  # type: ignore[arg-type]
            ("a", Elicitation("\ud800", {}), "the question 'a' cannot be written as JSON"),
            ("a", Elicitation("Sure?", {}, {"kind": object()}), "the question 'a' cannot be written as JSON"),
            ("a", UrlElicitation("Go", 5), "url of UrlElicitation must be text, not 5"),  # type: ignore[arg-type]
            ("a", Sampling(["Hi"], 5), "must be a SamplingMessage, not 'Hi'"),  # type: ignore[list-item]
            ("a", Sampling([SamplingMessage("user", "Hi")], 5), "must be a list, not 'Hi'"),  # type: ignore[arg-type]
            ("a", Sampling([SamplingMessage("user", ("Hi",))], 5), "such as Text, not ('Hi',)"),  # type: ignore[arg-type]
            ("a", Sampling([SamplingMessage("bot", ())], 5), "must be 'user' or 'assistant'"),  # type: ignore[arg-type]
            ("a", "Sure?", "'Sure?' is not a question"),
            (5, Elicitation("Sure?", {}), "the key of a question must be text, not 5"),
        ],
    )
    async def test_a_question_that_cannot_be_sent_fails_in_its_tool(
        self, mode: Any, key: Any, question: Any, problem: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        @tool
        async def ask(context: InvocationContext) -> str:
            await context.ask({key: question})
            return "asked"

        async with Person().client(ask, mode=mode) as client:
            result = await client.call_tool("ask", {})
        assert result.is_error
        assert problem in caplog.text

    @pytest.mark.parametrize("form", [list[str], {"name": "str"}, {"type": "object", "properties": {"a": 1}}])
    @pytest.mark.parametrize("way", ["elicit", "ask"])
    async def test_a_form_that_cannot_be_sent_is_an_error_with_the_remedy(self, mode: Any, way: str, form: Any) -> None:
        async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
            await (context.elicit("?", form) if way == "elicit" else context.ask({"a": Elicitation("?", form)}))

        async with Person().client(made("ask", body), mode=mode) as client:
            result = await client.call_tool("ask", {})
        assert result.is_error
        assert "a form" in text(result)
        assert "a dataclass" in text(result) or "a field is text" in text(result)

    async def test_a_model_may_only_request_tools_that_it_was_offered(self, mode: Any) -> None:
        async def body(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
            await context.sample([SamplingMessage("user", (Text("6 * 7"),))], max_tokens=9)

        async def sample(
            context: ClientRequestContext, params: CreateMessageRequestParams
        ) -> CreateMessageResultWithTools:
            wanted = ToolUseContent(type="tool_use", id="1", name="rm", input={})
            return CreateMessageResultWithTools(role="assistant", content=wanted, model="deep")

        server = Server(ToolBox(made("ask", body)), name="tests")
        async with Client(memory(server), mode=mode, sampling_callback=sample) as client:
            result = await client.call_tool("ask", {})
        assert (result.is_error, "'rm', which was not offered" in text(result)) == (True, True)

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
