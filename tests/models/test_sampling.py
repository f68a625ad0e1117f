from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bridge import (
    AiMessage,
    ChatModelError,
    ChatRequest,
    ChatResponse,
    ClientHandlers,
    Image,
    InvocationContext,
    SystemMessage,
    Text,
    ToolError,
    ToolExecutionRequest,
    ToolSpecification,
    UserMessage,
    tool,
)
from bridge.models import sampling_with
from bridge.service import FinishReason, ToolChoice, ToolExecutionResultMessage
from bridge.testing import ScriptedChatModel, connected
from bridge.tools import JsonObjectSchema, Sampling, SamplingAnswer, SamplingMessage, ToolUse, ToolUseResult

if TYPE_CHECKING:
    from typing import Literal

pytestmark = pytest.mark.anyio

QUESTION = (SamplingMessage("user", (Text("Which city?"),)),)


@tool
async def guess(context: InvocationContext) -> str:
    answer = await context.sample(QUESTION, max_tokens=9, system_prompt="Be brief.", key="city")
    (text,) = answer.content
    assert isinstance(text, Text)
    return f"{text.text} says {answer.model}, {answer.stop_reason}"


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_a_model_answers_the_sampling_of_a_server(protocol: Literal["legacy", "2026-07-28"]) -> None:
    model = ScriptedChatModel(["Lisbon"])
    handlers = ClientHandlers(sampling=sampling_with(model, max_output_tokens=5))
    async with connected(guess, handlers=handlers, protocol=protocol) as provider:
        assert (await provider.call("guess")).text == "Lisbon says scripted, endTurn"
    assert model.requests == [
        ChatRequest(messages=(SystemMessage("Be brief."), UserMessage.of("Which city?")), max_output_tokens=5)
    ]


async def test_a_model_that_fails_refuses_without_its_reason() -> None:
    handlers = ClientHandlers(sampling=sampling_with(ScriptedChatModel([ChatModelError("key sk-1", provider="x")])))
    async with connected(guess, handlers=handlers) as provider:
        result = await provider.call("guess")
    assert result.is_error
    assert "sk-1" not in result.text


async def test_tools_of_a_question_and_their_results_reach_the_model_and_its_calls_come_back() -> None:
    look = ToolSpecification(name="look", parameters=JsonObjectSchema().string("at").build())
    wanted = ToolExecutionRequest("look", '{"at": "home"}')
    model = ScriptedChatModel([AiMessage("Let me look.", (wanted,))])
    picture = Image(b"\x89PNG")
    question = Sampling(
        (
            SamplingMessage("user", (Text("Where?"), picture)),
            SamplingMessage("assistant", (Text("Here."), ToolUse("1", "look", {"at": "sea"}))),
            SamplingMessage("user", (Text("And?"), ToolUseResult("1", (Text("wet"),), is_error=True))),
        ),
        max_tokens=100,
        temperature=0.5,
        stop_sequences=["."],
        tools=[look],
        tool_choice="required",
        model_preferences={"hints": [{"name": "other"}]},
        metadata={"user": "mallory"},
    )
    answer = await sampling_with(model)(question, InvocationContext())
    assert model.requests == [
        ChatRequest(
            messages=(
                UserMessage.of("Where?", picture),
                AiMessage("Here.", (ToolExecutionRequest("look", {"at": "sea"}, "1"),)),
                ToolExecutionResultMessage("1", "look", (Text("wet"),), is_error=True),
                UserMessage.of("And?"),
            ),
            tool_specifications=(look,),
            tool_choice=ToolChoice.REQUIRED,
            temperature=0.5,
            max_output_tokens=100,
            stop_sequences=(".",),
        )
    ]
    text, use = answer.content
    assert isinstance(use, ToolUse)
    assert use.id
    assert answer == SamplingAnswer(
        (Text("Let me look."), ToolUse(use.id, "look", {"at": "home"})), "scripted", stop_reason="toolUse"
    )
    assert text == Text("Let me look.")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (SamplingMessage("assistant", (Image(b""),)), "may contain text and tool uses alone"),
        (SamplingMessage("user", (ToolUse("1", "look", {}),)), "of the user may not contain tool uses"),
        (SamplingMessage("user", (ToolUseResult("7", ()),)), "the tool result '7' belongs to no tool use before it"),
    ],
)
async def test_a_conversation_that_no_model_takes_is_refused(message: SamplingMessage, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        await sampling_with(ScriptedChatModel(["unused"]))(Sampling((message,), max_tokens=1), InvocationContext())


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (ChatResponse(message=AiMessage("Cut"), finish_reason=FinishReason.LENGTH), "maxTokens"),
        (ChatResponse(message=AiMessage(None), finish_reason=FinishReason.OTHER), None),
    ],
)
async def test_an_answer_says_why_it_ends(reply: ChatResponse, reason: str | None) -> None:
    answer = await sampling_with(ScriptedChatModel([reply]))(Sampling(QUESTION, 9), InvocationContext())
    assert (answer.stop_reason, answer.content) == (reason, (Text(reply.message.text or ""),))


async def test_arguments_of_a_call_that_are_no_json_make_the_answer_unusable() -> None:
    model = ScriptedChatModel([ToolExecutionRequest("look", "{at")])
    with pytest.raises(ToolError, match="the model's reply is unusable: "):
        await sampling_with(model)(Sampling(QUESTION, 9), InvocationContext())
