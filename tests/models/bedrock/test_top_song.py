"""The example of the Bedrock user guide, "Call a tool with the Converse API", step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from bridge.errors import ToolError
from bridge.models.bedrock.model import BedrockChatModel
from bridge.service.chat_model import ChatRequest, FinishReason, ToolChoice, ToolChoiceMode
from bridge.service.messages import AiMessage, ToolExecutionResultMessage, UserMessage
from bridge.tools.context import InvocationContext
from bridge.tools.execution import execute
from bridge.tools.function import tool, tools_from
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import ToolExecutionRequest
from bridge.tools.toolbox import ToolBox
from tests.models.bedrock_wire import reply

if TYPE_CHECKING:
    from tests.models.provider import Provider

pytestmark = pytest.mark.anyio
Maker = Callable[..., BedrockChatModel]

USED_ID = "tooluse_hbTgdi0CSLq_hM4P8csZJA"
ANSWERED_ID = "tooluse_kZJMlvQmRJ6eAyJE5GIl7Q"
QUESTION = "What is the most popular song on WZPZ?"
ANSWER = "The most popular song on WZPZ is Elemental Hotel by 8 Storey Hike."
CALL_SIGN = (
    "The call sign for the radio station for which you want the most popular song. "
    "Example calls signs are WZPZ and WKRP."
)
TOOL_CONFIG = {
    "tools": [
        {
            "toolSpec": {
                "name": "top_song",
                "description": "Get the most popular song played on a radio station.",
                "inputSchema": {
                    "json": {
                        "type": "object",
                        "properties": {"sign": {"type": "string", "description": CALL_SIGN}},
                        "required": ["sign"],
                    }
                },
            }
        }
    ]
}
MESSAGES = [{"role": "user", "content": [{"text": QUESTION}]}]
TOOL_USE = {"toolUse": {"toolUseId": USED_ID, "name": "top_song", "input": {"sign": "WZPZ"}}}
TOP_SONG = ToolSpecification(
    name="top_song",
    description="Get the most popular song played on a radio station.",
    parameters={
        "type": "object",
        "properties": {"sign": {"type": "string", "description": CALL_SIGN}},
        "required": ["sign"],
    },
)


@tool
def top_song(sign: str) -> dict[str, str]:
    """Get the most popular song played on a radio station.

    Args:
        sign: The call sign for the radio station for which you want the most popular song. Example calls signs are
            WZPZ and WKRP.
    """
    if sign != "WZPZ":
        raise ToolError(f"Station {sign} not found.")
    return {"song": "Elemental Hotel", "artist": "8 Storey Hike"}


async def test_step_1_the_message_and_the_tool_definition_are_sent(provider: Provider, bedrock: Maker) -> None:
    provider.will_answer(reply(TOOL_USE, reason="tool_use"))
    await bedrock().chat(ChatRequest(messages=(UserMessage.of(QUESTION),), tool_specifications=(TOP_SONG,)))
    assert provider.body == {"messages": MESSAGES, "toolConfig": TOOL_CONFIG}


async def test_step_1_the_definition_is_the_same_for_a_decorated_function(provider: Provider, bedrock: Maker) -> None:
    provider.will_answer(reply(TOOL_USE, reason="tool_use"))
    specifications = tuple(each.specification for each in tools_from(top_song))
    await bedrock().chat(ChatRequest(messages=(UserMessage.of(QUESTION),), tool_specifications=specifications))
    (sent,) = provider.body["toolConfig"]["tools"]
    schema = sent["toolSpec"]["inputSchema"]["json"]
    assert sent["toolSpec"]["description"] == "Get the most popular song played on a radio station."
    assert " ".join(schema["properties"]["sign"]["description"].split()) == CALL_SIGN
    assert (schema["properties"]["sign"]["type"], schema["required"]) == ("string", ["sign"])


@pytest.mark.parametrize(
    ("choice", "sent"),
    [(ToolChoice.of("top_song"), {"tool": {"name": "top_song"}}), (ToolChoice(ToolChoiceMode.REQUIRED), {"any": {}})],
)
async def test_step_1_the_use_of_a_tool_can_be_forced(
    provider: Provider, bedrock: Maker, choice: ToolChoice, sent: object
) -> None:
    provider.will_answer(reply(TOOL_USE, reason="tool_use"))
    messages = (UserMessage.of(QUESTION),)
    await bedrock().chat(ChatRequest(messages=messages, tool_specifications=(TOP_SONG,), tool_choice=choice))
    assert provider.body["toolConfig"] == {**TOOL_CONFIG, "toolChoice": sent}


async def test_step_2_the_tool_request_is_read(provider: Provider, bedrock: Maker) -> None:
    provider.will_answer(reply(TOOL_USE, reason="tool_use"))
    request = ChatRequest(messages=(UserMessage.of(QUESTION),), tool_specifications=(TOP_SONG,))
    response = await bedrock().chat(request)
    assert response.finish_reason is FinishReason.TOOL_EXECUTION
    call = ToolExecutionRequest("top_song", {"sign": "WZPZ"}, USED_ID)
    assert response.message == AiMessage(tool_execution_requests=(call,))


@pytest.mark.parametrize(
    ("sign", "result"),
    [
        ("WZPZ", {"content": [{"json": {"song": "Elemental Hotel", "artist": "8 Storey Hike"}}]}),
        ("WZPA", {"content": [{"text": "Station WZPA not found."}], "status": "error"}),
    ],
)
async def test_step_3_the_result_or_the_error_is_told(
    provider: Provider, bedrock: Maker, sign: str, result: dict[str, object]
) -> None:
    provider.will_answer(reply({"text": ANSWER}))
    call = ToolExecutionRequest("top_song", {"sign": sign}, ANSWERED_ID)
    executed = await execute(ToolBox(tools_from(top_song)), call, InvocationContext())
    messages = (
        UserMessage.of(QUESTION),
        AiMessage(tool_execution_requests=(call,)),
        ToolExecutionResultMessage.of(call, executed),
    )
    await bedrock().chat(ChatRequest(messages=messages, tool_specifications=(TOP_SONG,)))
    assert provider.body["messages"][2] == {
        "role": "user",
        "content": [{"toolResult": {"toolUseId": ANSWERED_ID, **result}}],
    }


async def test_step_4_the_answer_is_read(provider: Provider, bedrock: Maker) -> None:
    provider.will_answer(reply(TOOL_USE, reason="tool_use"), reply({"text": ANSWER}, reason="end_turn"))
    adapter, box, context = bedrock(), ToolBox(tools_from(top_song)), InvocationContext()
    question = UserMessage.of(QUESTION)
    asked = await adapter.chat(ChatRequest(messages=(question,), tool_specifications=(TOP_SONG,)))
    (call,) = asked.message.tool_execution_requests
    result = ToolExecutionResultMessage.of(call, await execute(box, call, context))
    response = await adapter.chat(
        ChatRequest(messages=(question, asked.message, result), tool_specifications=(TOP_SONG,))
    )
    assert response.message == AiMessage(ANSWER)
    assert response.finish_reason is FinishReason.STOP
    assert provider.requests[1].body == {
        "messages": [
            *MESSAGES,
            {"role": "assistant", "content": [TOOL_USE]},
            {
                "role": "user",
                "content": [
                    {
                        "toolResult": {
                            "toolUseId": USED_ID,
                            "content": [{"json": {"song": "Elemental Hotel", "artist": "8 Storey Hike"}}],
                        }
                    }
                ],
            },
        ],
        "toolConfig": TOOL_CONFIG,
    }
