from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from openai import AsyncOpenAI

from bridge.errors import ChatModelError
from bridge.models.openai.model import OpenAiChatModel, OpenAiDialect
from bridge.models.profiles.profile import GEMINI
from bridge.service.chat_model import (
    FinishReason,
    ResponseFormat,
    TokenUsage,
    ToolChoice,
    ToolChoiceMode,
)
from bridge.service.messages import AiMessage, message_from_json, message_to_json
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import ToolExecutionRequest
from tests.models.openai_wire import chunk, completion, streamed
from tests.models.requests import ADD, OPEN, SEARCH, asking, events_of, final

if TYPE_CHECKING:
    from tests.models.provider import Provider

Maker = Callable[..., OpenAiChatModel]

pytestmark = pytest.mark.anyio
ADD_ON_THE_WIRE = {
    "type": "function",
    "function": {"name": "add", "description": "Add two numbers.", "parameters": dict(ADD.parameters)},
}


async def test_a_request_says_all_that_it_has_to_and_no_more(provider: Provider, openai: Maker) -> None:
    provider.will_answer(completion({"content": "Hi"}))
    await openai().chat(asking("Hello"))
    assert provider.body == {"model": "test-model", "messages": [{"role": "user", "content": "Hello"}]}
    assert provider.requests[0].path == "/v1/chat/completions"
    assert provider.requests[0].headers["authorization"] == "Bearer secret"


async def test_every_parameter_of_a_request_is_sent(provider: Provider, openai: Maker) -> None:
    provider.will_answer(completion({"content": "Hi"}))
    request = asking(
        "Hello",
        tool_specifications=(ADD,),
        tool_choice=ToolChoice.of("add"),
        model_name="other-model",
        temperature=0.0,
        top_p=0.5,
        max_output_tokens=100,
        stop_sequences=("END",),
        extra={"seed": 7, "vendor": {"x": 1}},
    )
    await openai().chat(request)
    assert provider.body == {
        "model": "other-model",
        "messages": [{"role": "user", "content": "Hello"}],
        "tools": [ADD_ON_THE_WIRE],
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "temperature": 0.0,
        "top_p": 0.5,
        "max_tokens": 100,
        "stop": ["END"],
        "seed": 7,
        "vendor": {"x": 1},
    }


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (ToolChoice(), None),
        (ToolChoice(ToolChoiceMode.REQUIRED), "required"),
        (ToolChoice(ToolChoiceMode.NONE), "none"),
        (ToolChoice.of("files.search"), {"type": "function", "function": {"name": "files_search"}}),
    ],
)
async def test_each_tool_choice_is_said_in_the_provider_s_words(
    provider: Provider, openai: Maker, choice: ToolChoice, sent: Any
) -> None:
    provider.will_answer(completion({"content": "Hi"}))
    await openai().chat(asking("Hello", tool_specifications=(ADD, SEARCH), tool_choice=choice))
    assert provider.body.get("tool_choice") == sent


async def test_a_tool_choice_is_not_sent_where_no_tools_are(provider: Provider, openai: Maker) -> None:
    provider.will_answer(completion({"content": "Hi"}))
    await openai().chat(asking("Hello", tool_choice=ToolChoice(ToolChoiceMode.REQUIRED)))
    assert provider.body.keys() == {"model", "messages"}


async def test_several_tool_calls_come_back_under_the_tools_own_names(provider: Provider, openai: Maker) -> None:
    calls = [
        {"id": "x", "type": "function", "function": {"name": "files_search", "arguments": '{"text":"a"}'}},
        {"id": "y", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}},
    ]
    provider.will_answer(completion({"content": "I look.", "tool_calls": calls}, "tool_calls"))
    response = await openai().chat(asking("Hello", tool_specifications=(ADD, SEARCH)))
    assert response.message == AiMessage(
        "I look.",
        (
            ToolExecutionRequest("files.search", '{"text":"a"}', "x"),
            ToolExecutionRequest("add", '{"a":1,"b":2}', "y"),
        ),
    )
    assert response.finish_reason is FinishReason.TOOL_EXECUTION
    assert response.token_usage == TokenUsage(20, 5, 16)
    assert response.model_name == "test-model-0801"
    assert response.id == "chatcmpl-1"
    assert response.raw.choices[0].finish_reason == "tool_calls"


async def test_calls_without_ids_get_ids_that_differ_within_a_conversation_and_stay_the_same(
    provider: Provider,
    openai: Maker,
) -> None:
    calls = [{"type": "function", "function": {"name": "add", "arguments": "{}"}}] * 2
    provider.will_answer(*[completion({"tool_calls": calls}, "stop")] * 3)
    chat = openai().chat
    first = await chat(asking("Hello", tool_specifications=(ADD,)))
    again = await chat(asking("Hello", tool_specifications=(ADD,)))
    later = await chat(asking("Hello", first.message, tool_specifications=(ADD,)))
    assert first.message == again.message
    assert first.finish_reason is FinishReason.TOOL_EXECUTION
    requests = [*first.message.tool_execution_requests, *later.message.tool_execution_requests]
    assert len({request.id for request in requests}) == 4


async def test_what_gemini_signs_a_call_with_goes_back_with_it(provider: Provider, openai: Maker) -> None:
    signature = {"extra_content": {"google": {"thought_signature": "s=="}}}
    call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": "{}"}, "other": 1}
    provider.will_answer(
        completion({"tool_calls": [call | signature]}, "tool_calls"),
        streamed(chunk({"tool_calls": [{"index": 0, **call, **signature}]}), chunk(reason="tool_calls")),
        *[completion({"content": "Hi"})] * 2,
    )
    request = asking("Hello", tool_specifications=(ADD,))
    whole = (await openai().chat(request)).message
    pieces = final(await events_of(openai(), request)).message
    assert whole == pieces
    assert message_from_json(message_to_json(whole)) == whole
    await openai().chat(asking("Hello", whole))
    (sent,) = provider.requests[2].body["messages"][1]["tool_calls"]
    assert sent == {"id": "x", "type": "function", "function": {"name": "add", "arguments": "{}"}} | signature


async def test_arguments_that_came_as_an_object_are_taken(provider: Provider, openai: Maker) -> None:
    call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    provider.will_answer(completion({"tool_calls": [call]}, "tool_calls"))
    response = await openai().chat(asking("Hello", tool_specifications=(ADD,)))
    assert response.message.tool_execution_requests == (ToolExecutionRequest("add", {"a": 1}, "x"),)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("stop", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("content_filter", FinishReason.CONTENT_FILTER),
        ("something_new", FinishReason.OTHER),
    ],
)
async def test_why_the_model_stopped_is_told(provider: Provider, openai: Maker, said: str, meant: FinishReason) -> None:
    provider.will_answer(completion({"content": "Hi"}, said))
    assert (await openai().chat(asking("Hello"))).finish_reason is meant


async def test_a_refusal_is_the_text_and_goes_back_as_a_refusal(provider: Provider, openai: Maker) -> None:
    provider.will_answer(completion({"refusal": "I will not."}), completion({"content": "Hi"}))
    chat = openai().chat
    response = await chat(asking("Hello"))
    assert response.message == AiMessage("I will not.", attributes={"openai": {"refusal": "I will not."}})
    assert response.finish_reason is FinishReason.CONTENT_FILTER
    await chat(asking("Hello", response.message, "Why?"))
    assert provider.requests[1].body["messages"][1] == {
        "role": "assistant",
        "content": None,
        "refusal": "I will not.",
    }


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_thinking_is_told_and_goes_back_only_where_it_is_wanted(
    provider: Provider, openai: Maker, field: str
) -> None:
    provider.will_answer(completion({"content": "Hi", field: "Hm."}), *[completion({"content": "Hi"})] * 2)
    response = await openai().chat(asking("Hello"))
    assert response.message.thinking == "Hm."
    await openai().chat(asking(response.message, "Why?"))
    await openai(dialect=OpenAiDialect(send_thinking=True)).chat(asking(response.message, "Why?"))
    assert provider.requests[1].body["messages"][0] == {"role": "assistant", "content": "Hi"}
    assert provider.requests[2].body["messages"][0] == {"role": "assistant", "content": "Hi", field: "Hm."}


async def test_a_strict_tool_is_held_to_its_schema_and_its_nulls_are_taken_back(
    provider: Provider, openai: Maker
) -> None:
    strict = ToolSpecification(name="search", parameters=SEARCH.parameters, strict=True)
    arguments = '{"text":"größe","limit":null}'
    call = {"id": "x", "type": "function", "function": {"name": "search", "arguments": arguments}}
    provider.will_answer(completion({"tool_calls": [call]}, "tool_calls"))
    response = await openai().chat(asking("Hello", tool_specifications=(strict,)))
    assert provider.body["tools"][0]["function"] == {
        "name": "search",
        "parameters": {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "(default: 10)"},
            },
            "required": ["text", "limit"],
            "additionalProperties": False,
        },
        "strict": True,
    }
    assert response.message.tool_execution_requests[0].arguments == {"text": "größe"}


async def test_a_tool_that_cannot_be_strict_is_sent_as_it_is_with_one_warning(
    provider: Provider, openai: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    provider.will_answer(*[completion({"content": "Hi"})] * 2)
    adapter = openai(dialect=OpenAiDialect(strict_tools=True))
    with caplog.at_level(logging.WARNING, "bridge.models"):
        for _ in range(2):
            await adapter.chat(asking("Hello", tool_specifications=(ADD, OPEN)))
    tools = provider.requests[1].body["tools"]
    assert tools[0]["function"]["strict"] is True
    assert tools[1]["function"] == {
        "name": "open",
        "description": "Takes anything.",
        "parameters": dict(OPEN.parameters),
    }
    assert caplog.messages == [
        (
            "the schema of the tool 'open' is not fully supported by OpenAI; "
            "lost: strictness: it has a schema without a type"
        )
    ]


async def test_metadata_is_sent_where_the_adapter_is_told_which(provider: Provider, openai: Maker) -> None:
    provider.will_answer(*[completion({"content": "Hi"})] * 2)
    tool = ToolSpecification(
        name="add", description="Add two numbers.", parameters=ADD.parameters, metadata={"a": 1, "b": 2}
    )
    request = asking("Hello", tool_specifications=(tool,))
    await openai().chat(request)
    await openai(dialect=OpenAiDialect(tool_metadata_keys=("b", "c"))).chat(request)
    assert provider.requests[0].body["tools"] == [ADD_ON_THE_WIRE]
    assert provider.requests[1].body["tools"] == [{"b": 2, **ADD_ON_THE_WIRE}]


async def test_a_response_format_is_strict_where_it_can_be(provider: Provider, openai: Maker) -> None:
    provider.will_answer(completion({"content": '{"city":"Köln","zip":null}'}), completion({"content": "{}"}))
    schema = {"type": "object", "properties": {"city": {"type": "string"}, "zip": {"type": "string"}}}
    response = await openai().chat(
        asking("Where?", response_format=ResponseFormat({**schema, "required": ["city"]}, "A place!"))
    )
    assert provider.body["response_format"] == {
        "type": "json_schema",
        "json_schema": {
            "name": "A_place_",
            "schema": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "zip": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
                "required": ["city", "zip"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    }
    assert response.message.text == '{"city":"Köln"}'
    free = {"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}}
    await openai().chat(asking("Which?", response_format=ResponseFormat(free)))
    sent = provider.requests[1].body["response_format"]["json_schema"]
    assert sent == {"name": "response", "schema": free, "strict": False}


async def test_a_profile_of_another_provider_is_followed(provider: Provider, openai: Maker) -> None:
    provider.will_answer(completion({"content": "Hi"}))
    adapter = openai(dialect=OpenAiDialect(profile=GEMINI))
    await adapter.chat(asking("Hello", tool_specifications=(SEARCH,)))
    properties = provider.body["tools"][0]["function"]["parameters"]["properties"]
    assert properties["limit"] == {"type": "integer", "description": "(default: 10)"}


async def test_openai_itself_is_told_the_limit_by_its_new_name_and_short_ids(provider: Provider) -> None:
    provider.will_answer(completion({"content": "Hi"}))
    call = AiMessage(tool_execution_requests=(ToolExecutionRequest("add", {}, "chatcmpl-tool-" + "f" * 32),))
    async with AsyncOpenAI(base_url="https://api.openai.com/v1", api_key="secret", max_retries=0) as client:
        adapter = OpenAiChatModel("test-model", client=client)
        client.base_url = f"{provider.url}/v1"
        await adapter.chat(asking(call, max_output_tokens=5))
    assert provider.body["max_completion_tokens"] == 5
    assert len(provider.body["messages"][0]["tool_calls"][0]["id"]) == 40


async def test_a_server_of_its_own_needs_no_key(provider: Provider) -> None:
    provider.will_answer(completion({"content": "Hi"}))
    adapter = OpenAiChatModel("test-model", base_url=f"{provider.url}/v1", max_retries=0)
    assert (await adapter.chat(asking("Hello"))).message.text == "Hi"
    await adapter.aclose()


def test_without_a_key_openai_cannot_be_asked() -> None:
    with pytest.raises(ChatModelError, match="openai: there is no API key; set OPENAI_API_KEY, or pass api_key="):
        OpenAiChatModel("gpt-5.6")


@pytest.mark.parametrize("more", [{"choices": []}, {"choices": None}, {"choices": [{}]}, {"choices": 5}])
async def test_a_reply_of_another_shape_is_an_error(provider: Provider, openai: Maker, more: dict[str, Any]) -> None:
    provider.will_answer(completion({}, **more))
    with pytest.raises(ChatModelError, match="openai: the reply"):
        await openai().chat(asking("Hello"))


async def test_a_call_of_a_kind_that_was_not_offered_is_let_pass(provider: Provider, openai: Maker) -> None:
    call = {"id": "x", "type": "custom", "custom": {"name": "sql", "input": "select"}}
    provider.will_answer(completion({"content": "Hi", "tool_calls": [call]}))
    assert (await openai().chat(asking("Hello"))).message == AiMessage("Hi")
