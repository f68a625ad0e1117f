from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from bridge.errors import ChatModelError
from bridge.models.anthropic.model import AnthropicChatModel
from bridge.service.chat_model import FinishReason, ResponseFormat, TokenUsage, ToolChoice, ToolChoiceMode
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
from tests.models.anthropic_wire import reply, text, use
from tests.models.requests import ADD, OPEN, SEARCH, asking

if TYPE_CHECKING:
    from pathlib import Path

    from tests.models.provider import Provider

pytestmark = pytest.mark.anyio
Maker = Callable[..., AnthropicChatModel]

HELLO = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
ADD_ON_THE_WIRE = {"name": "add", "description": "Add two numbers.", "input_schema": dict(ADD.parameters)}
PLACE = {"type": "object", "properties": {"city": {"type": "string", "minLength": 1}}, "required": ["city"]}


async def test_a_request_says_all_that_it_has_to_and_no_more(provider: Provider, anthropic: Maker) -> None:
    provider.will_answer(reply(text("Hi")))
    await anthropic().chat(asking("Hello"))
    assert provider.body == {"model": "test-model", "max_tokens": 8192, "messages": HELLO}
    assert provider.requests[0].path == "/v1/messages"
    assert provider.requests[0].headers["authorization"] == "Bearer secret"


async def test_every_parameter_of_a_request_is_sent(provider: Provider, anthropic: Maker) -> None:
    provider.will_answer(reply(text("Hi")))
    request = asking(
        SystemMessage("Be brief."),
        "Hello",
        tool_specifications=(ADD,),
        tool_choice=ToolChoice.of("add"),
        model_name="other-model",
        temperature=0.0,
        top_p=0.5,
        max_output_tokens=100,
        stop_sequences=("END",),
        extra={"thinking": {"type": "adaptive"}, "cache_control": {"type": "ephemeral"}, "new": 1},
    )
    await anthropic().chat(request)
    assert provider.body == {
        "model": "other-model",
        "max_tokens": 100,
        "system": "Be brief.",
        "messages": HELLO,
        "tools": [ADD_ON_THE_WIRE],
        "tool_choice": {"type": "tool", "name": "add"},
        "temperature": 0.0,
        "top_p": 0.5,
        "stop_sequences": ["END"],
        "thinking": {"type": "adaptive"},
        "cache_control": {"type": "ephemeral"},
        "new": 1,
    }


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (ToolChoice(), None),
        (ToolChoice(ToolChoiceMode.REQUIRED), {"type": "any"}),
        (ToolChoice(ToolChoiceMode.NONE), {"type": "none"}),
        (ToolChoice.of("files.search"), {"type": "tool", "name": "files_search"}),
    ],
)
async def test_each_tool_choice_is_said_in_the_provider_s_words(
    provider: Provider, anthropic: Maker, choice: ToolChoice, sent: Any
) -> None:
    provider.will_answer(reply(text("Hi")))
    await anthropic().chat(asking("Hello", tool_specifications=(ADD, SEARCH), tool_choice=choice))
    assert provider.body.get("tool_choice") == sent


async def test_tools_that_are_offered_no_more_are_named_and_not_to_be_called(
    provider: Provider, anthropic: Maker
) -> None:
    provider.will_answer(reply(text("Hi")))
    call = AiMessage(None, (ToolExecutionRequest("files.search", {}, "x"),))
    await anthropic().chat(asking("Hello", call, ToolExecutionResultMessage("x", "files.search", (Text("3"),))))
    assert provider.body["tools"] == [{"name": "files_search", "input_schema": {"type": "object"}}]
    assert provider.body["tool_choice"] == {"type": "none"}


async def test_several_tool_calls_come_back_under_the_tools_own_names(provider: Provider, anthropic: Maker) -> None:
    blocks = (text("I look."), use("x", "files_search", {"text": "größe"}), use("y", "add", {"a": 1}))
    provider.will_answer(reply(*blocks, reason="tool_use"))
    response = await anthropic().chat(asking("Hello", tool_specifications=(ADD, SEARCH)))
    assert response.message == AiMessage(
        "I look.",
        (
            ToolExecutionRequest("files.search", {"text": "größe"}, "x"),
            ToolExecutionRequest("add", {"a": 1}, "y"),
        ),
    )
    assert response.finish_reason is FinishReason.TOOL_EXECUTION
    assert response.token_usage == TokenUsage(30, 5, 16)
    assert (response.model_name, response.id) == ("test-model-0801", "msg_1")
    assert response.raw.stop_reason == "tool_use"


async def test_names_of_parameters_that_the_api_refuses_come_back_as_they_were(
    provider: Provider, anthropic: Maker
) -> None:
    tool = ToolSpecification(name="q", parameters={"type": "object", "properties": {"$filter": {"type": "string"}}})
    provider.will_answer(reply(use("x", "q", {"_filter": "a"}), reason="tool_use"))
    response = await anthropic().chat(asking("Hello", tool_specifications=(tool,)))
    assert provider.body["tools"] == [
        {"name": "q", "input_schema": {"type": "object", "properties": {"_filter": {"type": "string"}}}}
    ]
    assert response.message.tool_execution_requests == (ToolExecutionRequest("q", {"$filter": "a"}, "x"),)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
        ("refusal", FinishReason.CONTENT_FILTER),
        ("pause_turn", FinishReason.OTHER),
        ("something_new", FinishReason.OTHER),
    ],
)
async def test_why_the_model_stopped_is_told(
    provider: Provider, anthropic: Maker, said: str, meant: FinishReason
) -> None:
    provider.will_answer(reply(text("Hi"), reason=said))
    assert (await anthropic().chat(asking("Hello"))).finish_reason is meant


async def test_thinking_goes_back_as_it_came_signature_and_place_included(provider: Provider, anthropic: Maker) -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "sig=="}
    redacted = {"type": "redacted_thinking", "data": "opaque=="}
    again = {"type": "thinking", "thinking": " So.", "signature": "sig2=="}
    blocks = [thought, redacted, text("I add."), use("x", "add", {"a": 1}), again, use("y", "add", {"a": 2})]
    provider.will_answer(reply(*blocks, reason="tool_use"), reply(text("Done.")))
    adapter = anthropic()
    first = await adapter.chat(asking("Hello", tool_specifications=(ADD,)))
    assert first.message.thinking == "Hm. So."
    assert message_from_json(message_to_json(first.message)) == first.message
    results = [ToolExecutionResultMessage(name, "add", (Text(name),)) for name in ("x", "y")]
    await adapter.chat(asking("Hello", first.message, *results, tool_specifications=(ADD,)))
    assert provider.requests[1].body["messages"][1] == {"role": "assistant", "content": blocks}
    assert provider.requests[1].body["messages"][2] == {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": name, "content": name} for name in ("x", "y")],
    }


async def test_strict_tools_are_held_to_their_schemas_as_many_as_the_api_takes(
    provider: Provider, anthropic: Maker
) -> None:
    provider.will_answer(reply(text("Hi")))
    tools = [ToolSpecification(name=f"t{n}", parameters=ADD.parameters, strict=True) for n in range(21)]
    await anthropic().chat(asking("Hello", tool_specifications=(*tools, OPEN)))
    sent = provider.body["tools"]
    assert [tool.get("strict") for tool in sent] == [True] * 20 + [None] * 2
    assert sent[0]["input_schema"] == {**ADD.parameters, "additionalProperties": False}


async def test_cache_control_is_sent_where_the_adapter_is_told_of_it(provider: Provider, anthropic: Maker) -> None:
    provider.will_answer(*[reply(text("Hi"))] * 2)
    metadata = {"cache_control": {"type": "ephemeral"}, "other": 1}
    tool = ToolSpecification(name="add", description="Add two numbers.", parameters=ADD.parameters, metadata=metadata)
    request = asking("Hello", tool_specifications=(tool,))
    await anthropic().chat(request)
    await anthropic(tool_metadata_keys=("cache_control",)).chat(request)
    assert provider.requests[0].body["tools"] == [ADD_ON_THE_WIRE]
    assert provider.requests[1].body["tools"] == [{"cache_control": {"type": "ephemeral"}, **ADD_ON_THE_WIRE}]


async def test_a_response_format_is_the_output_format(provider: Provider, anthropic: Maker) -> None:
    provider.will_answer(reply(text('{"city":"Köln"}')))
    request = asking("Where?", response_format=ResponseFormat(PLACE), extra={"output_config": {"effort": "low"}})
    response = await anthropic().chat(request)
    assert provider.body["output_config"] == {
        "effort": "low",
        "format": {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "(minLength: 1)"}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    assert response.message.text == '{"city":"Köln"}'


@pytest.mark.parametrize(
    "response_format",
    [ResponseFormat(PLACE, strict=False), ResponseFormat({"type": "object", "additionalProperties": True})],
)
async def test_a_format_to_which_the_model_cannot_be_held_is_told_in_words(
    provider: Provider, anthropic: Maker, response_format: ResponseFormat
) -> None:
    provider.will_answer(reply(text("{}")))
    await anthropic().chat(asking(SystemMessage("Be brief."), "Where?", response_format=response_format))
    assert "output_config" not in provider.body
    system = provider.body["system"]
    assert system.startswith("Be brief.\n\nAnswer with JSON alone")
    assert '"type":"object"' in system


async def test_a_long_reply_needs_no_stream(provider: Provider, anthropic: Maker) -> None:
    provider.will_answer(reply(text("Hi")))
    adapter = anthropic(timeout_seconds=600)
    assert (await adapter.chat(asking("Hello", max_output_tokens=500_000))).message.text == "Hi"


def test_without_a_key_anthropic_cannot_be_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ChatModelError, match="anthropic: there is no API key; set ANTHROPIC_API_KEY, or pass api_key="):
        AnthropicChatModel("claude-sonnet-5-5")


@pytest.mark.parametrize(
    "more", [{"content": None}, {"usage": None}, {"content": [{"type": "tool_use"}]}, {"content": [5]}]
)
async def test_a_reply_of_another_shape_is_an_error(provider: Provider, anthropic: Maker, more: dict[str, Any]) -> None:
    provider.will_answer(reply(**more))
    with pytest.raises(ChatModelError, match="anthropic: the reply has an unexpected form"):
        await anthropic().chat(asking("Hello"))
