"""A real model answers, streams, keeps to a schema, and uses tools.

A tiny base model says little, and always the same: it takes the most probable token each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pytest

from bridge import (
    ChatMemory,
    ChatRequest,
    OpenAiChatModel,
    Result,
    ToolSearch,
    UserMessage,
    ai_service,
    tool,
    tools_from,
    with_fallback,
)
from bridge.models.prompted import PromptedToolsChatModel
from bridge.service import (
    ChatRequestParameters,
    InputGuardrailRequest,
    OutputGuardrailRequest,
    Retry,
    Rewrite,
    ToolChoice,
)
from bridge.service.chat_model import CompleteResponse, FinishReason, PartialResponse
from bridge.service.loop import InvocationLimits
from bridge.testing import connected

if TYPE_CHECKING:
    from bridge.service.chat_model import ChatEvent
    from bridge.tools import ToolExecution

pytestmark = [pytest.mark.anyio, pytest.mark.llm]

CAPITAL = ChatRequest(
    messages=(UserMessage.of("What is the capital of France?"),),
    temperature=0,
    max_output_tokens=20,
    stop_sequences=("\n",),
)
DETERMINED = ChatRequestParameters(temperature=0, max_output_tokens=100)
EXAMPLES = """\
Question: 3 plus 4
Answer: {"action": {"tool": "add", "arguments": {"a": 3, "b": 4}}}

Question: The tool add gave:
7
Answer: {"action": {"reply": "The answer is 7."}}

Question: What is the weather in Rome?
Answer: {"action": {"tool": "weather", "arguments": {"city": "Rome"}}}

Question: The tool weather gave:
cloudy
Answer: {"action": {"reply": "The weather is cloudy."}}"""


SEARCHES = """\
Question: 3 plus 4
Answer: {"action": {"tool": "search_tools", "arguments": {"query": "add numbers"}}}

Question: The tool search_tools gave:
[{"name": "add", "description": "Add two numbers."}]
Answer: {"action": {"tool": "add", "arguments": {"a": 3, "b": 4}}}

Question: The tool add gave:
7
Answer: {"action": {"reply": "The answer is 7."}}"""


@dataclass(frozen=True)
class Numbers:
    a: int
    b: int


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def weather(city: str) -> str:
    """Return the weather of a city."""
    return "sunny" if city == "Paris" else f"unknown in {city}"


class Assistant(Protocol):
    async def numbers(self, text: str) -> Numbers: ...

    async def answer(self, question: str) -> Result[str]: ...


def shown(execution: ToolExecution) -> tuple[str, object, str]:
    return execution.request.name, execution.request.arguments, execution.result.text


async def test_it_answers(model: OpenAiChatModel) -> None:
    response = await model.chat(CAPITAL)
    assert "Paris" in (response.message.text or "")
    assert (response.finish_reason, response.model_name) == (FinishReason.STOP, "gemma")
    assert response.token_usage.input_tokens
    assert response.token_usage.output_tokens


async def test_it_stops_at_the_limit_of_tokens(model: OpenAiChatModel) -> None:
    request = ChatRequest(messages=(UserMessage.of("Count to a hundred."),), temperature=0, max_output_tokens=5)
    response = await model.chat(request)
    assert response.finish_reason is FinishReason.LENGTH
    assert response.token_usage.output_tokens == 5


async def test_it_says_the_same_piece_by_piece(model: OpenAiChatModel) -> None:
    whole = await model.chat(CAPITAL)
    events: list[ChatEvent] = [event async for event in model.stream(CAPITAL)]
    pieces = [event.text for event in events if isinstance(event, PartialResponse)]
    last = events[-1]
    assert isinstance(last, CompleteResponse)
    assert last.response.message.text == "".join(pieces) == whole.message.text
    assert last.response.finish_reason is FinishReason.STOP
    assert last.response.token_usage.output_tokens == whole.token_usage.output_tokens


async def test_its_stream_can_be_left_and_it_answers_the_next(model: OpenAiChatModel) -> None:
    stream = model.stream(ChatRequest(messages=CAPITAL.messages, temperature=0, max_output_tokens=2000))
    assert isinstance(await anext(stream), PartialResponse)
    await stream.aclose()
    assert "Paris" in ((await model.chat(CAPITAL)).message.text or "")


async def test_it_is_held_to_a_schema(model: OpenAiChatModel) -> None:
    assistant = ai_service(Assistant, chat_model=model, parameters=DETERMINED)
    assert await assistant.numbers("12 plus 30") == Numbers(12, 30)


async def test_it_uses_local_and_imported_tools(model: OpenAiChatModel) -> None:
    async with connected(weather) as imported:
        assistant = ai_service(
            Assistant,
            chat_model=PromptedToolsChatModel(model),
            tools=[add],
            tool_providers=[imported],
            system_message=lambda _: EXAMPLES,
            limits=InvocationLimits(max_tool_round_trips=3),
            parameters=DETERMINED,
        )
        sum_ = await assistant.answer("12 plus 30")
        sunshine = await assistant.answer("What is the weather in Paris?")
    assert [shown(execution) for execution in sum_.tool_executions] == [("add", {"a": 12, "b": 30}, "42")]
    assert "42" in sum_.content
    assert [shown(execution) for execution in sunshine.tool_executions] == [("weather", {"city": "Paris"}, "sunny")]
    assert "sunny" in sunshine.content


async def test_a_tool_that_is_asked_for_by_name_is_called(model: OpenAiChatModel) -> None:
    specifications = tuple(each.specification for each in tools_from([add, weather]))
    response = await PromptedToolsChatModel(model).chat(
        ChatRequest(
            messages=(UserMessage.of("12 plus 30"),),
            tool_specifications=specifications,
            tool_choice=ToolChoice.of("add"),
            temperature=0,
            max_output_tokens=100,
        )
    )
    (call,) = response.message.tool_execution_requests
    assert call.name == "add"
    assert isinstance(call.arguments, dict)
    assert call.arguments.keys() == {"a", "b"}


async def test_a_conversation_uses_guardrails_a_search_and_a_fallback(model: OpenAiChatModel) -> None:
    judged: list[str] = []

    def in_digits(request: InputGuardrailRequest) -> Rewrite:
        return Rewrite(request.text.replace("twelve", "12"))

    def with_the_sum(request: OutputGuardrailRequest) -> Retry | Rewrite:
        judged.append(request.text)
        return Rewrite(f"{request.text} (checked)") if request.tool_executions else Retry("no tool was called")

    unreachable = OpenAiChatModel("gemma", base_url="http://127.0.0.1:1/v1", api_key="none", max_retries=0)
    memory = ChatMemory()
    assistant = ai_service(
        Assistant,
        chat_model=PromptedToolsChatModel(with_fallback(unreachable, model)),
        tools=[add, weather],
        tool_search=ToolSearch(max_results=1),
        memory=memory,
        system_message=lambda _: SEARCHES,
        limits=InvocationLimits(max_tool_round_trips=4),
        parameters=DETERMINED,
        input_guardrails=in_digits,
        output_guardrails=with_the_sum,
    )
    result = await assistant.answer("twelve plus 30")
    await unreachable.aclose()
    found, sum_ = map(shown, result.tool_executions)
    assert found[0] == "search_tools"
    assert sum_ == ("add", {"a": 12, "b": 30}, "42")
    assert "42" in judged[-1]
    assert result.content == f"{judged[-1]} (checked)"
    messages = await memory.messages()
    assert (messages[0].text, messages[-1].text) == ("12 plus 30", result.content)
