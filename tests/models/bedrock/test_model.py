"""The adapter for Bedrock against a local endpoint; botocore validates every request before it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.stub import Stubber

from bridge.errors import ChatModelError
from bridge.models.bedrock.model import BedrockChatModel
from bridge.service.chat_model import FinishReason, ResponseFormat, TokenUsage, ToolChoice
from bridge.service.messages import (
    AiMessage,
    SystemMessage,
    ToolExecutionResultMessage,
    message_from_json,
    message_to_json,
)
from bridge.tools.content import Text
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import ToolExecutionRequest
from tests.models.bedrock_wire import reply
from tests.models.requests import ADD, CONVERSATION, OPEN, SEARCH, asking

if TYPE_CHECKING:
    from tests.models.provider import Provider

pytestmark = pytest.mark.anyio
Maker = Callable[..., BedrockChatModel]

HELLO = [{"role": "user", "content": [{"text": "Hello"}]}]
HI = {"text": "Hi"}
ADD_ON_THE_WIRE = {
    "toolSpec": {"name": "add", "description": "Add two numbers.", "inputSchema": {"json": dict(ADD.parameters)}}
}


async def test_a_request_says_all_that_it_has_to_and_no_more(provider: Provider, bedrock: Maker) -> None:
    provider.will_answer(reply(HI))
    await bedrock(own_client=True).chat(asking("Hello"))
    assert provider.body == {"messages": HELLO}
    assert provider.requests[0].path == "/model/test.model-v1%3A0/converse"


async def test_every_parameter_of_a_request_is_sent(provider: Provider, bedrock: Maker) -> None:
    provider.will_answer(reply(HI))
    request = asking(
        SystemMessage("Be brief."),
        "Hello",
        tool_specifications=(ADD,),
        tool_choice=ToolChoice.of("add"),
        model_name="other.model",
        temperature=0.0,
        top_p=0.5,
        max_output_tokens=100,
        stop_sequences=("END",),
        extra={"additionalModelRequestFields": {"top_k": 5}, "performanceConfig": {"latency": "optimized"}},
    )
    await bedrock().chat(request)
    assert provider.requests[0].path == "/model/other.model/converse"
    assert provider.body == {
        "messages": HELLO,
        "system": [{"text": "Be brief."}],
        "toolConfig": {"tools": [ADD_ON_THE_WIRE], "toolChoice": {"tool": {"name": "add"}}},
        "inferenceConfig": {"maxTokens": 100, "temperature": 0.0, "topP": 0.5, "stopSequences": ["END"]},
        "additionalModelRequestFields": {"top_k": 5},
        "performanceConfig": {"latency": "optimized"},
    }


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (ToolChoice.AUTO, None),
        (ToolChoice.REQUIRED, {"any": {}}),
        (ToolChoice.of("files.search"), {"tool": {"name": "files_search"}}),
    ],
)
async def test_each_tool_choice_is_said_in_the_provider_s_words(
    provider: Provider, bedrock: Maker, choice: ToolChoice, sent: Any
) -> None:
    provider.will_answer(reply(HI))
    await bedrock().chat(asking("Hello", tool_specifications=(ADD, SEARCH), tool_choice=choice))
    assert provider.body["toolConfig"].get("toolChoice") == sent


async def test_where_no_tool_may_be_called_none_is_offered_and_the_earlier_calls_are_told_in_words(
    provider: Provider, bedrock: Maker
) -> None:
    provider.will_answer(*[reply(HI)] * 2)
    call = AiMessage("I add.", (ToolExecutionRequest("files.search", {"a": 1}, "x"),))
    results = (
        ToolExecutionResultMessage("x", "files.search", (Text("3"),)),
        ToolExecutionResultMessage("x", "files.search", (Text("no"),), is_error=True),
    )
    asked = asking("Hello", call, *results, tool_specifications=(SEARCH,), tool_choice=ToolChoice.NONE)
    await bedrock().chat(asked)
    await bedrock().chat(asking("Hello", call, *results))
    for request in provider.requests:
        assert request.body == {
            "messages": [
                *HELLO,
                {"role": "assistant", "content": [{"text": "I add."}, {"text": '[called files_search with {"a":1}]'}]},
                {
                    "role": "user",
                    "content": [
                        {"text": text} for text in ("[files_search gave:]", "3", "[files_search failed:]", "no")
                    ],
                },
            ]
        }


async def test_several_tool_calls_come_back_under_the_tools_own_names(provider: Provider, bedrock: Maker) -> None:
    provider.will_answer(
        reply(
            {"text": "I look."},
            {"toolUse": {"toolUseId": "x", "name": "files_search", "input": {"text": "größe"}}},
            {"toolUse": {"toolUseId": "y", "name": "add", "input": {"a": 1}}},
            reason="tool_use",
        )
    )
    response = await bedrock().chat(asking("Hello", tool_specifications=(ADD, SEARCH)))
    assert response.message == AiMessage(
        "I look.",
        (
            ToolExecutionRequest("files.search", {"text": "größe"}, "x"),
            ToolExecutionRequest("add", {"a": 1}, "y"),
        ),
    )
    assert response.finish_reason is FinishReason.TOOL_EXECUTION
    assert response.token_usage == TokenUsage(30, 5, 16)
    assert (response.model_name, response.id) == ("test.model-v1:0", "req-1")
    assert response.raw["stopReason"] == "tool_use"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
        ("guardrail_intervened", FinishReason.CONTENT_FILTER),
        ("content_filtered", FinishReason.CONTENT_FILTER),
        ("malformed_tool_use", FinishReason.OTHER),
    ],
)
async def test_why_the_model_stopped_is_told(
    provider: Provider, bedrock: Maker, said: str, meant: FinishReason
) -> None:
    provider.will_answer(reply(HI, reason=said))
    assert (await bedrock().chat(asking("Hello"))).finish_reason is meant


async def test_reasoning_goes_back_as_it_came_signature_and_place_included(provider: Provider, bedrock: Maker) -> None:
    blocks: list[dict[str, Any]] = [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "sig=="}}},
        {"reasoningContent": {"redactedContent": "b3BhcXVl"}},
        {"text": "I add."},
        {"toolUse": {"toolUseId": "x", "name": "add", "input": {"a": 1}}},
    ]
    provider.will_answer(reply(*blocks, reason="tool_use"), reply(HI))
    adapter = bedrock()
    first = await adapter.chat(asking("Hello", tool_specifications=(ADD,)))
    assert first.message.thinking == "Hm."
    assert message_from_json(message_to_json(first.message)) == first.message
    result = ToolExecutionResultMessage("x", "add", (Text("3"),))
    await adapter.chat(asking("Hello", first.message, result, tool_specifications=(ADD,)))
    assert provider.requests[1].body["messages"][1] == {"role": "assistant", "content": blocks}


async def test_strict_tools_and_cache_points_are_sent(provider: Provider, bedrock: Maker) -> None:
    provider.will_answer(*[reply(HI)] * 2)
    point = {"type": "default"}
    tool = ToolSpecification(name="add", parameters=ADD.parameters, strict=True, metadata={"cachePoint": point})
    request = asking("Hello", tool_specifications=(tool, OPEN))
    await bedrock().chat(request)
    await bedrock(cache_tools=True).chat(request)
    add = {
        "toolSpec": {
            "name": "add",
            "inputSchema": {"json": {**ADD.parameters, "additionalProperties": False}},
            "strict": True,
        }
    }
    other = {
        "toolSpec": {
            "name": "open",
            "description": "Takes anything.",
            "inputSchema": {"json": {"type": "object", "properties": {"x": {}}}},
        }
    }
    assert provider.requests[0].body["toolConfig"] == {"tools": [add, other]}
    assert provider.requests[1].body["toolConfig"] == {"tools": [add, {"cachePoint": point}, other]}


async def test_a_response_format_is_the_text_format(provider: Provider, bedrock: Maker) -> None:
    provider.will_answer(*[reply(HI)] * 2)
    place = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    await bedrock().chat(asking("Where?", response_format=ResponseFormat(place, "place")))
    await bedrock().chat(asking("Where?", response_format=ResponseFormat(place, strict=False)))
    schema = (
        '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}'
    )
    assert provider.requests[0].body["outputConfig"] == {
        "textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": schema, "name": "place"}}}
    }
    assert "outputConfig" not in provider.requests[1].body
    assert provider.requests[1].body["system"][0]["text"].startswith("Answer with JSON alone")


async def test_botocore_finds_nothing_to_complain_about_in_a_whole_conversation() -> None:
    client = boto3.client("bedrock-runtime", region_name="eu-central-1")
    with Stubber(client) as stub:
        message = {"role": "assistant", "content": [HI]}
        usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
        stub.add_response(
            "converse",
            {"output": {"message": message}, "stopReason": "end_turn", "usage": usage, "metrics": {"latencyMs": 1}},
        )
        adapter = BedrockChatModel("test.model", client=client)
        response = await adapter.chat(asking(*CONVERSATION, tool_specifications=(ADD, SEARCH, OPEN)))
    assert response.message == AiMessage("Hi")
    await adapter.aclose()


async def test_a_request_that_botocore_refuses_is_never_sent(provider: Provider, bedrock: Maker) -> None:
    with pytest.raises(ChatModelError, match="bedrock: Parameter validation failed") as caught:
        await bedrock().chat(asking("Hello", extra={"unknown": 1}))
    assert not caught.value.retryable
    assert provider.requests == []


@pytest.mark.parametrize("content", [[{"toolUse": {"name": "add"}}], [{"reasoningContent": {"reasoningText": {}}}]])
async def test_a_reply_of_another_shape_is_an_error(provider: Provider, bedrock: Maker, content: Any) -> None:
    provider.will_answer(reply(*content))
    with pytest.raises(ChatModelError, match="bedrock: the reply has an unexpected form"):
        await bedrock().chat(asking("Hello"))


def test_without_a_region_bedrock_cannot_be_asked_and_the_error_says_what_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(
        ChatModelError, match=r"bedrock: You must specify a region\.; pass region_name=, or set "
    ) as error:
        BedrockChatModel("test.model")
    monkeypatch.setenv(str(error.value).rpartition(" ")[2], "eu-central-1")
    BedrockChatModel("test.model")


@pytest.mark.anyio
async def test_without_credentials_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    model = BedrockChatModel("test", region_name="eu-central-1")
    with pytest.raises(ChatModelError, match="set AWS_ACCESS_KEY_ID") as caught:
        await model.chat(asking("Hello"))
    assert not caught.value.retryable
    await model.aclose()
