from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from bridge.models.prompted import PromptedToolsChatModel
from bridge.models.scripted import ScriptedChatModel
from bridge.service.chat_model import (
    ChatRequest,
    ChatResponse,
    CompleteToolCall,
    FinishReason,
    PartialResponse,
    PartialThinking,
    ResponseFormat,
    ToolChoice,
    ToolChoiceMode,
)
from bridge.service.messages import AiMessage, SystemMessage, ToolExecutionResultMessage, UserMessage
from bridge.tools.content import Image, Text
from bridge.tools.specification import ToolSpecification
from bridge.tools.tool import ToolExecutionRequest
from tests.models.openai_wire import completion
from tests.models.requests import ADD, PIXEL, SEARCH, asking, events_of, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.models.openai.model import OpenAiChatModel
    from tests.models.provider import Provider

pytestmark = pytest.mark.anyio

TREE = ToolSpecification(
    name="plant",
    parameters={
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/Node"}},
        "required": ["tree"],
        "$defs": {"Node": {"type": "object", "properties": {"left": {"$ref": "#/$defs/Node"}}}},
    },
)


async def told(*replies: Any, request: ChatRequest) -> tuple[ChatRequest, AiMessage]:
    """The instructions that the model received, and the parsed reply."""
    model = ScriptedChatModel(replies)
    response = await PromptedToolsChatModel(model).chat(request)
    return model.requests[0], response.message


async def test_tools_are_told_in_words_and_a_call_comes_back_as_a_request() -> None:
    request = asking("12 plus 30?", tool_specifications=(ADD, SEARCH), temperature=0.0)
    sent, message = await told('{"action": {"tool": "add", "arguments": {"a": 12, "b": 30}}}', request=request)
    assert message == AiMessage(tool_execution_requests=(ToolExecutionRequest("add", {"a": 12, "b": 30}, "call_0"),))
    assert (sent.tool_specifications, sent.tool_choice, sent.temperature) == ((), ToolChoice(), 0.0)
    prompt, question = sent.messages
    assert question == UserMessage.of("12 plus 30?")
    assert isinstance(prompt, SystemMessage)
    first, how, then, *tools = prompt.text.split("\n")
    assert (first, then) == ("You can call tools.", "The tools are:")
    call = '{"action": {"tool": NAME, "arguments": {…}}}'
    assert (
        how == f'Answer with one JSON object alone: {call} to call a tool, or {{"action": {{"reply": …}}}} to answer.'
    )
    assert tools == [
        f"- add: Add two numbers. Arguments: {json.dumps(ADD.parameters, separators=(',', ':'))}",
        f"- files.search: Search. Arguments: {json.dumps(SEARCH.parameters, separators=(',', ':'))}",
    ]


async def test_a_reply_is_held_to_one_of_the_calls_or_an_answer() -> None:
    sent, message = await told('{"action": {"reply": "Hi"}}', request=asking("Hello", tool_specifications=(ADD, TREE)))
    assert message == AiMessage("Hi")
    assert sent.response_format is not None
    assert (sent.response_format.name, sent.response_format.strict) == ("action", False)
    schema = sent.response_format.schema
    accepts = Draft202012Validator(schema).is_valid
    assert accepts({"action": {"reply": "Hi"}})
    assert accepts({"action": {"tool": "add", "arguments": {"a": 1, "b": 2}}})
    assert accepts({"action": {"tool": "plant", "arguments": {"tree": {"left": {"left": {}}}}}})
    assert not accepts({"action": {"tool": "add", "arguments": {"a": 1}}})
    assert not accepts({"action": {"tool": "plant", "arguments": {"tree": {"left": 5}}}})
    assert not accepts({"action": {"tool": "other", "arguments": {}}})
    assert not accepts({"tool": "add", "arguments": {"a": 1, "b": 2}})


@pytest.mark.parametrize("choice", [ToolChoice.of("add"), ToolChoice(ToolChoiceMode.REQUIRED)])
async def test_where_only_one_call_can_be_said_it_is_all_there_is(choice: ToolChoice) -> None:
    tools = (ADD, SEARCH) if choice.tool_name else (ADD,)
    request = asking("Hello", tool_specifications=tools, tool_choice=choice)
    sent, message = await told('{"tool": "add", "arguments": {"a": 1, "b": 2}}', request=request)
    assert message.tool_execution_requests == (ToolExecutionRequest("add", {"a": 1, "b": 2}, "call_0"),)
    assert sent.response_format is not None
    assert sent.response_format.schema == {
        "type": "object",
        "properties": {"tool": {"type": "string", "enum": ["add"]}, "arguments": dict(ADD.parameters)},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }
    assert isinstance(sent.messages[0], SystemMessage)
    assert "to answer" not in sent.messages[0].text


async def test_earlier_calls_and_results_are_told_in_words_with_their_pictures() -> None:
    call = ToolExecutionRequest("chart", '{"x": 1}', None)
    conversation = asking(
        SystemMessage("Be brief."),
        "Hello",
        AiMessage("I look.", (call, ToolExecutionRequest("add", {"a": 1}))),
        ToolExecutionResultMessage(None, "chart", (Text("A chart."), Image(PIXEL))),
        ToolExecutionResultMessage(None, "add", (Text("b is missing"),), is_error=True),
        tool_specifications=(ADD,),
    )
    sent, message = await told('{"action": {"tool": "add", "arguments": {}}}', request=conversation)
    assert message.tool_execution_requests[0].id == "call_2"
    system, question, said, results = sent.messages
    assert isinstance(system, SystemMessage)
    assert system.text.startswith("Be brief.\n\nYou can call tools.")
    assert question == UserMessage.of("Hello")
    assert said == AiMessage(
        'I look.\n{"action":{"tool":"chart","arguments":{"x":1}}}\n{"action":{"tool":"add","arguments":{"a":1}}}'
    )
    assert results == UserMessage(
        (
            Text("The tool chart gave:"),
            Text("A chart."),
            Image(PIXEL),
            Text("The tool add failed:"),
            Text("b is missing"),
        )
    )


async def test_where_no_tool_may_be_called_none_is_told() -> None:
    request = asking(
        "Hello",
        ToolExecutionResultMessage("x", "add", (Text("3"),)),
        tool_specifications=(ADD,),
        tool_choice=ToolChoice(ToolChoiceMode.NONE),
    )
    sent, message = await told("Plain words", request=request)
    assert message == AiMessage("Plain words")
    assert sent == asking("Hello", UserMessage((Text("The tool add gave:"), Text("3"))))


async def test_a_structured_answer_is_held_to_its_own_schema_too() -> None:
    schema = {
        "$ref": "#/$defs/Place",
        "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
    request = asking("Where?", tool_specifications=(ADD,), response_format=ResponseFormat(schema))
    sent, message = await told('{"action": {"reply": {"city": "Köln"}}}', request=request)
    assert message == AiMessage('{"city":"Köln"}')
    assert sent.response_format is not None
    accepts = Draft202012Validator(sent.response_format.schema).is_valid
    assert accepts({"action": {"reply": {"city": "Köln"}}})
    assert not accepts({"action": {"reply": {"city": 5}}})


@pytest.mark.parametrize(
    ("reply", "understood"),
    [
        ("Plain words", "Plain words"),
        ("[1]", "[1]"),
        ("", None),
        ('{"other": 1}', '{"other": 1}'),
        ('{"action": {"tool": 5}}', '{"action": {"tool": 5}}'),
        ('```json\n{"action": {"reply": "Hi"}}\n```', "Hi"),
        ('{"action": {"reply": [1]}}', "[1]"),
    ],
)
async def test_a_reply_that_is_no_call_is_text(reply: str, understood: str | None) -> None:
    model = PromptedToolsChatModel(ScriptedChatModel([reply]))
    response = await model.chat(asking("Hello", tool_specifications=(ADD,)))
    assert (response.message.text or None) == understood
    assert response.message.tool_execution_requests == ()
    assert response.finish_reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("reply", "text", "calls"),
    [
        ('{"action": {"reply": "It is 3, and', "It is 3, and", ()),
        ('{"action": {"tool": "add", "arguments": {"a": 1', None, ("add",)),
        ('{"action": {"tool": "add"', None, ("add",)),
        ('{"action": {"to', '{"action": {"to', ()),
        ("Plain wor", "Plain wor", ()),
    ],
)
async def test_a_reply_that_broke_off_is_what_there_is_of_it_and_a_call_in_it_is_doubtful(
    reply: str, text: str | None, calls: tuple[str, ...]
) -> None:
    broken = ChatResponse(message=AiMessage(reply), finish_reason=FinishReason.LENGTH)
    model = PromptedToolsChatModel(ScriptedChatModel([broken, broken]))
    request = asking("1 + 2?", tool_specifications=(ADD,))
    response = await model.chat(request)
    assert response.message.text == text
    assert tuple(call.name for call in response.message.tool_execution_requests) == calls
    assert response.finish_reason is FinishReason.LENGTH
    assert response.doubtful_call == (0 if calls else None)
    assert not any(isinstance(event, CompleteToolCall) for event in await events_of(model, request))


async def test_a_stream_with_tools_gives_what_was_understood_in_one_piece() -> None:
    call = '{"action": {"tool": "add", "arguments": {"a": 1}}}'
    model = PromptedToolsChatModel(
        ScriptedChatModel([AiMessage(call, thinking="Hm."), '{"action": {"reply": "one two"}}'])
    )
    request = asking("Hello", tool_specifications=(ADD,))
    events = await events_of(model, request)
    expected = ToolExecutionRequest("add", {"a": 1}, "call_0")
    assert events[:-1] == [PartialThinking("Hm."), CompleteToolCall(0, expected)]
    assert final(events).finish_reason is FinishReason.TOOL_EXECUTION
    assert (await events_of(model, request))[:-1] == [PartialResponse("one two")]


async def test_a_stream_without_tools_is_the_model_s_own() -> None:
    events = await events_of(PromptedToolsChatModel(ScriptedChatModel(["one two"])), asking("Hello"))
    assert events[:-1] == [PartialResponse("one"), PartialResponse(" two")]


async def test_a_model_that_does_not_stream_is_asked_at_once() -> None:
    class Plain:
        chat = ScriptedChatModel(["one two"]).chat

    events = await events_of(PromptedToolsChatModel(Plain()), asking("Hello"))
    assert events[:-1] == [PartialResponse("one two")]


async def test_over_an_openai_compatible_server_the_schema_is_the_response_format(
    provider: Provider, openai: Callable[..., OpenAiChatModel]
) -> None:
    provider.will_answer(completion({"content": '{"action": {"tool": "add", "arguments": {"a": 12, "b": 30}}}'}))
    request = asking("12 plus 30?", tool_specifications=(ADD,))
    response = await PromptedToolsChatModel(openai()).chat(request)
    assert response.message.tool_execution_requests == (ToolExecutionRequest("add", {"a": 12, "b": 30}, "call_0"),)
    assert "tools" not in provider.body
    sent = provider.body["response_format"]["json_schema"]
    assert (sent["name"], sent["strict"]) == ("action", False)
    assert [each["required"] for each in sent["schema"]["properties"]["action"]["anyOf"]] == [
        ["tool", "arguments"],
        ["reply"],
    ]
