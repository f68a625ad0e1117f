"""Tool calling for models without tool support, through the prompt and a response format.

    model = PromptedToolsChatModel(OpenAiChatModel("gemma3", base_url="http://localhost:8080/v1"))

The model replies with ``{"action": {"tool": NAME, "arguments": {…}}}`` or ``{"action": {"reply": …}}``, one call at a
time. Small models need a server that enforces the schema, such as llama.cpp, vLLM or Ollama.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from bridge.errors import ArgumentsError
from bridge.models.conversation import arguments_as_object
from bridge.models.encoding import json_text
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
    provider_of,
)
from bridge.service.messages import AiMessage, SystemMessage, ToolExecutionResultMessage, UserMessage
from bridge.text import utf8_text
from bridge.tools.arguments.reader import parse_arguments
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
    """Chat model that adds tools to a model without them.

    Args:
        model: The model. Replies are streamed if it supports that and no tools are offered.
        strict: Request strict mode from the provider; local servers enforce the schema in any case.
    """

    def __init__(self, model: ChatModel, *, strict: bool = False) -> None:
        self._model = model
        self._strict = strict
        self.provider = provider_of(model)
        self.model_name: str | None = getattr(model, "model_name", None)

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """See `bridge.service.chat_model.ChatModel.chat`."""
        tools = _offered(request)
        plain = _without_tools(request)
        if not tools:
            return await self._model.chat(plain)
        schema = _schema(tools, request)
        prompted = replace(
            plain,
            messages=_with_prompt(plain.messages, tools, can_reply=request.tool_choice.mode not in _FORCING),
            response_format=ResponseFormat(schema, _ACTION, self._strict),
        )
        return _understood(await self._model.chat(prompted), request)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """See `bridge.service.chat_model.StreamingChatModel.stream`; with tools, the reply is not split."""
        stream = getattr(self._model, "stream", None)
        if stream is not None and not _offered(request):
            async with aclosing(stream(_without_tools(request))) as events:
                async for event in events:
                    yield event
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
    """Copy the request without tools; calls and results become text."""
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
    """Schema of the reply; only a call if no text reply is allowed."""
    definitions: Json = {}
    variants = []
    for number, tool in enumerate(tools):
        arguments = {"type": "object", **_rooted(tool.parameters, f"tool_{number}", definitions)}
        variants.append(_object({"tool": {"type": "string", "enum": [tool.name]}, "arguments": arguments}))
    if request.tool_choice.mode not in _FORCING:
        reply: Json = {"type": "string"}
        if request.response_format is not None:
            reply = _rooted(request.response_format.schema, "reply", definitions)
        variants.append(_object({"reply": reply}))
    root = variants[0] if len(variants) == 1 else _object({_ACTION: {"anyOf": variants}})
    return {**root, "$defs": definitions} if definitions else root


def _object(properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _rooted(schema: Mapping[str, Any], prefix: str, definitions: Json) -> Json:
    """Embed a schema in a larger one, with its definitions under a prefix."""
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
    """Add the tools to the first system message."""
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
    """Convert calls to the text that the model would have written, and results to user messages."""
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
            texts = [message.text] if message.text else []
            yield replace(message, text="\n".join([*texts, *calls]), tool_execution_requests=())
        else:
            yield message
    if results:
        yield UserMessage(tuple(results))


def _understood(response: ChatResponse, request: ChatRequest) -> ChatResponse:
    """Parse the reply's text to a call or a text; unchanged if it is neither."""
    text = response.message.text or ""
    is_whole = True
    try:
        reply_object = parse_arguments("the reply", text)
    except ArgumentsError:
        if response.finish_reason not in BROKEN_OFF or not isinstance(reply_object := _beginning_of(text), dict):
            return response
        is_whole = False
    action = reply_object.get(_ACTION)
    reply_object = action if isinstance(action, dict) else reply_object
    name, arguments = reply_object.get("tool"), reply_object.get("arguments", {})
    if isinstance(name, str) and isinstance(arguments, dict):
        earlier = (m.tool_execution_requests for m in request.messages if isinstance(m, AiMessage))
        call = ToolExecutionRequest(name, arguments if is_whole else text, f"call_{sum(map(len, earlier))}")
        message = replace(response.message, text=None, tool_execution_requests=(call,))
        reason = FinishReason.TOOL_EXECUTION if is_whole else response.finish_reason
        return replace(response, message=message, finish_reason=reason)
    if "reply" in reply_object:
        reply = reply_object["reply"]
        message = replace(response.message, text=reply if isinstance(reply, str) else json_text(reply))
        return replace(response, message=message)
    return response


def _beginning_of(text: str) -> Any:
    """Parse the beginning of a JSON text; None if it is not JSON."""
    try:
        return from_json(utf8_text(text).encode(), allow_partial="trailing-strings")
    except ValueError:
        return None
