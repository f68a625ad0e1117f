"""The script of an example, played by a server that speaks OpenAI's chat completions API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
from jsonschema import Draft202012Validator
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from pydantic import ConfigDict, TypeAdapter, with_config

from bridge import ChatRequest, ToolExecutionRequest, ToolSpecification, UserMessage
from bridge.models.scripted import ScriptedChatModel
from bridge.service.messages import AiMessage, SystemMessage, ToolExecutionResultMessage
from bridge.tools.content import Text
from tests.models.openai_wire import call, chunk, completion, streamed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bridge.models.scripted import Script
    from bridge.service.messages import ChatMessage
    from tests.models.provider import Answer, Received

_PIECE_CHARS = 7


def playing(script: Script) -> Callable[[Received], Answer]:
    """Server that answers valid requests by a script."""
    model = ScriptedChatModel(script)

    def answer(received: Received) -> Answer:
        body = received.body
        assert received.path == "/v1/chat/completions"
        assert received.headers["authorization"] == "Bearer secret"
        assert_valid(body)
        response = anyio.run(model.chat, request_of(body))
        return _streamed(response.message) if body.get("stream") else _whole(response.message)

    return answer


def assert_valid(body: Any) -> None:
    """Check a request against the SDK's own types, and its schemas."""
    kind = CompletionCreateParamsStreaming if body.get("stream") else CompletionCreateParamsNonStreaming
    known = TypeAdapter(with_config(ConfigDict(extra="forbid"))(kind))
    json.loads(known.dump_json(known.validate_python(body)))  # iterables are validated when they are serialised
    schemas = [tool["function"]["parameters"] for tool in body.get("tools", ())]
    if "response_format" in body:
        schemas.append(body["response_format"]["json_schema"]["schema"])
    for schema in schemas:
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
    _assert_calls_are_answered(body["messages"])


def request_of(body: Any) -> ChatRequest:
    """Return the request as a script reads it."""
    tools = [each["function"] for each in body.get("tools", ())]
    return ChatRequest(
        messages=tuple(_messages(body["messages"])),
        tool_specifications=tuple(
            ToolSpecification(name=each["name"], description=each.get("description"), parameters=each["parameters"])
            for each in tools
        ),
    )


def _assert_calls_are_answered(messages: list[Any]) -> None:
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting
            waiting += [each["id"] for each in message.get("tool_calls") or ()]
    assert not waiting


def _messages(messages: list[Any]) -> Iterator[ChatMessage]:
    names: dict[str, str] = {}
    for message in messages:
        content = message["content"]
        match message["role"]:
            case "system":
                yield SystemMessage(content)
            case "user":
                yield UserMessage.of(content)
            case "assistant":
                requests = [
                    ToolExecutionRequest(each["function"]["name"], each["function"]["arguments"], each["id"])
                    for each in message.get("tool_calls", ())
                ]
                names |= {str(request.id): request.name for request in requests}
                yield AiMessage(content, tuple(requests))
            case "tool":
                call_id = message["tool_call_id"]
                is_error = content.startswith("Error: ")
                yield ToolExecutionResultMessage(call_id, names[call_id], (Text(content),), is_error)


def _whole(message: AiMessage) -> Answer:
    calls = [
        {"id": request.id, "type": "function", "function": {"name": request.name, "arguments": _text(request)}}
        for request in message.tool_execution_requests
    ]
    return completion({"content": message.text} | ({"tool_calls": calls} if calls else {}), _reason(message))


def _streamed(message: AiMessage) -> Answer:
    chunks = [chunk({"content": piece}) for piece in _pieces(message.text or "")]
    for index, request in enumerate(message.tool_execution_requests):
        chunks.append(chunk(call(index, "", request.name, request.id)))
        chunks += [chunk(call(index, piece)) for piece in _pieces(_text(request))]
    return streamed(*chunks, chunk(reason=_reason(message)))


def _reason(message: AiMessage) -> str:
    return "tool_calls" if message.has_tool_execution_requests else "stop"


def _text(request: ToolExecutionRequest) -> str:
    return request.arguments if isinstance(request.arguments, str) else json.dumps(dict(request.arguments))


def _pieces(text: str) -> list[str]:
    return [text[start : start + _PIECE_CHARS] for start in range(0, len(text), _PIECE_CHARS)]
