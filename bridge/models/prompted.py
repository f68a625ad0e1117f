"""Tools for models that know none: offered in words, and called through a JSON Schema to which the reply is held.

    model = PromptedToolsChatModel(OpenAiChatModel("gemma3", base_url="http://localhost:8080/v1"))

The model answers with ``{"action": {"tool": NAME, "arguments": {…}}}`` or ``{"action": {"reply": …}}``, one call at a
time. Tiny models need a server that holds the reply to the schema, such as llama.cpp, vLLM or Ollama.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from bridge.errors import ArgumentsError
from bridge.models.conversation import arguments_as_object
from bridge.models.encoding import json_text, utf8_text
from bridge.models.profiles.normalization import normalized, reference_in, rewritten
from bridge.service.chat_model import (
    BROKEN_OFF,
    ChatResponse,
    CompleteResponse,
    CompleteToolCall,
    FinishReason,
    PartialResponse,
    PartialThinking,
    ResponseFormat,
    ToolChoice,
    ToolChoiceMode,
)
from bridge.service.messages import AiMessage, SystemMessage, ToolExecutionResultMessage, UserMessage
from bridge.tools.arguments import parse_arguments
from bridge.tools.content import Text
from bridge.tools.tool import ToolExecutionRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

    from bridge.service.chat_model import ChatEvent, ChatModel, ChatRequest
    from bridge.service.messages import ChatMessage
    from bridge.tools.content import Content
    from bridge.tools.specification import ToolSpecification
    from bridge.types import Json

_ACTION = "action"
_FORCING = frozenset({ToolChoiceMode.REQUIRED, ToolChoiceMode.NAMED})


class PromptedToolsChatModel:
    """A chat model with tools, made of one without.

    Args:
        model: The model. It streams what it says if it can, where no tools are offered.
        strict: Ask the provider to hold the model to the schema strictly; local servers hold it in any case.
    """

    def __init__(self, model: ChatModel, *, strict: bool = False) -> None:
        self._model = model
        self._strict = strict

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """See `bridge.service.chat_model.ChatModel.chat`."""
        tools = _offered(request)
        told = _without_tools(request)
        if not tools:
            return await self._model.chat(told)
        schema = _schema(tools, request)
        prompted = replace(
            told,
            messages=_with_prompt(told.messages, tools, can_reply=request.tool_choice.mode not in _FORCING),
            response_format=ResponseFormat(schema, _ACTION, self._strict),
        )
        return _understood(await self._model.chat(prompted), request)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """See `bridge.service.chat_model.StreamingChatModel.stream`; with tools, the reply comes in one piece."""
        stream = getattr(self._model, "stream", None)
        if stream is not None and not _offered(request):
            events = stream(_without_tools(request))
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()
            return
        response = await self.chat(request)
        message = response.message
        if message.thinking:
            yield PartialThinking(message.thinking)
        if message.text:
            yield PartialResponse(message.text)
        for index, call in enumerate(message.tool_execution_requests):
            if index != response.doubtful_call:
                yield CompleteToolCall(index, call)
        yield CompleteResponse(response)


def _without_tools(request: ChatRequest) -> ChatRequest:
    """The request as a model takes it that knows of no tools."""
    messages = tuple(_in_words(request.messages))
    return replace(request, messages=messages, tool_specifications=(), tool_choice=ToolChoice())


def _offered(request: ChatRequest) -> tuple[ToolSpecification, ...]:
    choice = request.tool_choice
    if choice.mode is ToolChoiceMode.NONE:
        return ()
    if choice.mode is ToolChoiceMode.NAMED:
        return tuple(each for each in request.tool_specifications if each.name == choice.tool_name)
    return request.tool_specifications


def _schema(tools: Sequence[ToolSpecification], request: ChatRequest) -> Json:
    """The schema of what the model may answer; a call alone where there is nothing else to say."""
    definitions: Json = {}
    variants = [_call_schema(tool, f"tool_{number}", definitions) for number, tool in enumerate(tools)]
    if request.tool_choice.mode not in _FORCING:
        reply: Json = {"type": "string"}
        if request.response_format is not None:
            reply = _rooted(request.response_format.schema, "reply", definitions)
        variants.append(_object({"reply": reply}))
    root = variants[0] if len(variants) == 1 else _object({_ACTION: {"anyOf": variants}})
    return {**root, "$defs": definitions} if definitions else root


def _call_schema(tool: ToolSpecification, prefix: str, definitions: Json) -> Json:
    arguments = {"type": "object", **_rooted(tool.parameters, prefix, definitions)}
    return _object({"tool": {"type": "string", "enum": [tool.name]}, "arguments": arguments})


def _object(properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _rooted(schema: Mapping[str, Any], prefix: str, definitions: Json) -> Json:
    """A schema as a part of a larger one, to whose definitions its own are added under a prefix."""
    normal = normalized(schema)

    def moved(node: Json) -> Json:
        name = reference_in(node)
        return node if name is None else {**node, "$ref": f"#/$defs/{prefix}.{name}"}

    for name, definition in normal.definitions.items():
        definitions[f"{prefix}.{name}"] = rewritten(definition, moved)
    return rewritten(normal.root, moved)


def _with_prompt(
    messages: Sequence[ChatMessage], tools: Sequence[ToolSpecification], *, can_reply: bool
) -> tuple[ChatMessage, ...]:
    """The messages with the tools told in the first system message."""
    call = '{"tool": NAME, "arguments": {…}}'
    one = len(tools) == 1 and not can_reply
    how = f"Answer with one JSON object alone: {call if one else f'{{{json_text(_ACTION)}: {call}}}'} to call a tool"
    how += f', or {{"{_ACTION}": {{"reply": …}}}} to answer.' if can_reply else "."
    lines = [f"- {tool.name}: {tool.description or ''} Arguments: {json_text(tool.parameters)}" for tool in tools]
    prompt = "\n".join(["You can call tools.", how, "The tools are:", *lines])
    if messages and isinstance(messages[0], SystemMessage):
        return SystemMessage(f"{messages[0].text}\n\n{prompt}"), *messages[1:]
    return SystemMessage(prompt), *messages


def _in_words(messages: Sequence[ChatMessage]) -> Iterator[ChatMessage]:
    """The messages with calls as the model would have written them, and their results as the user's words."""
    results: list[Content] = []
    for message in messages:
        if isinstance(message, ToolExecutionResultMessage):
            outcome = "failed:" if message.is_error else "gave:"
            results += [Text(f"The tool {message.tool_name} {outcome}"), *message.content]
            continue
        if results:
            yield UserMessage(tuple(results))
            results = []
        if isinstance(message, AiMessage) and message.has_tool_execution_requests:
            calls = [
                json_text({_ACTION: {"tool": call.name, "arguments": arguments_as_object(call)}})
                for call in message.tool_execution_requests
            ]
            said = [message.text] if message.text else []
            yield replace(message, text="\n".join([*said, *calls]), tool_execution_requests=())
        else:
            yield message
    if results:
        yield UserMessage(tuple(results))


def _understood(response: ChatResponse, request: ChatRequest) -> ChatResponse:
    """The response with the call or the reply that its text is; as it is where it is neither."""
    text = response.message.text or ""
    is_whole = True
    try:
        said = parse_arguments("the reply", text)
    except ArgumentsError:
        if response.finish_reason not in BROKEN_OFF or not isinstance(said := _beginning_of(text), dict):
            return response
        is_whole = False
    action = said.get(_ACTION)
    said = action if isinstance(action, dict) else said
    name, arguments = said.get("tool"), said.get("arguments", {})
    if isinstance(name, str) and isinstance(arguments, dict):
        earlier = (m.tool_execution_requests for m in request.messages if isinstance(m, AiMessage))
        call = ToolExecutionRequest(name, arguments if is_whole else text, f"call_{sum(map(len, earlier))}")
        message = replace(response.message, text=None, tool_execution_requests=(call,))
        reason = FinishReason.TOOL_EXECUTION if is_whole else response.finish_reason
        return replace(response, message=message, finish_reason=reason)
    if "reply" in said:
        reply = said["reply"]
        message = replace(response.message, text=reply if isinstance(reply, str) else json_text(reply))
        return replace(response, message=message)
    return response


def _beginning_of(text: str) -> Any:
    """What the beginning of a JSON text says; None where it is none."""
    try:
        return from_json(utf8_text(text).encode(), allow_partial="trailing-strings")
    except ValueError:
        return None
