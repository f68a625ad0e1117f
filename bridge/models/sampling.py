"""Sampling: a chat model answers the completions that servers request from their client.

    handlers = ClientHandlers(sampling=sampling_with(model), sampling_features=["tools"])
    with connect("mcp.json", handlers=handlers) as servers: ...

Source: MCP, Client Features, Sampling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from bridge.errors import ArgumentsError, ToolError
from bridge.service.chat_model import ChatRequest, FinishReason, ToolChoice, ToolChoiceMode
from bridge.service.messages import AiMessage, SystemMessage, ToolExecutionResultMessage, UserMessage
from bridge.tools.arguments.reader import parse_arguments
from bridge.tools.checks import require_count
from bridge.tools.content import Text, text_of
from bridge.tools.questions import SamplingAnswer, ToolUse, ToolUseResult
from bridge.tools.tool import ToolExecutionRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from bridge.service.chat_model import ChatModel, ChatResponse
    from bridge.service.messages import ChatMessage
    from bridge.tools.content import Content
    from bridge.tools.context import InvocationContext
    from bridge.tools.questions import Sampling, SamplingMessage

_STOP_REASONS = {
    FinishReason.STOP: "endTurn",
    FinishReason.LENGTH: "maxTokens",
    FinishReason.TOOL_EXECUTION: "toolUse",
    FinishReason.CONTENT_FILTER: "contentFilter",
}


def sampling_with(
    model: ChatModel, *, max_output_tokens: int | None = None
) -> Callable[[Sampling, InvocationContext], Awaitable[SamplingAnswer]]:
    """Create a handler of sampling requests for `bridge.ClientHandlers`.

    Each server can then use the model at your cost. MCP recommends that a person can review requests: wrap the handler,
    and raise `ToolError` to refuse one. The server's preferences for a model and its metadata are ignored. Tools need
    ``sampling_features=["tools"]``.

    Args:
        model: The model that answers.
        max_output_tokens: Maximum tokens of an answer, whatever the server requests; None for no limit of its own.

    Raises:
        DefinitionError: ``max_output_tokens`` is not a positive number.
    """
    require_count(max_output_tokens, "max_output_tokens", optional=True)

    async def answer(question: Sampling, context: InvocationContext) -> SamplingAnswer:  # noqa: ARG001 - the handler's
        tokens = question.max_tokens if max_output_tokens is None else min(question.max_tokens, max_output_tokens)
        system = () if question.system_prompt is None else (SystemMessage(question.system_prompt),)
        request = ChatRequest(
            messages=(*system, *_messages(question)),
            tool_specifications=tuple(question.tools),
            tool_choice=ToolChoice(ToolChoiceMode(question.tool_choice or "auto")),
            temperature=question.temperature,
            max_output_tokens=tokens,
            stop_sequences=tuple(question.stop_sequences),
        )
        response = await model.chat(request)
        name = response.model_name or getattr(model, "model_name", None) or type(model).__name__
        return SamplingAnswer(tuple(_parts(response)), name, stop_reason=_STOP_REASONS.get(response.finish_reason))

    return answer


def _messages(question: Sampling) -> Iterator[ChatMessage]:
    tool_names: dict[str, str] = {}
    for message in question.messages:
        if message.role == "assistant":
            ai_message = _ai_message(message)
            tool_names |= {request.id or "": request.name for request in ai_message.tool_execution_requests}
            yield ai_message
        else:
            yield from _user_messages(message, tool_names)


def _ai_message(message: SamplingMessage) -> AiMessage:
    texts = tuple(part for part in message.content if isinstance(part, Text))
    uses = [part for part in message.content if isinstance(part, ToolUse)]
    if len(texts) + len(uses) < len(message.content):
        raise ToolError("messages of the assistant may contain text and tool uses alone")
    requests = tuple(ToolExecutionRequest(use.name, use.arguments, use.id) for use in uses)
    return AiMessage(text_of(texts) if texts else None, requests)


def _user_messages(message: SamplingMessage, tool_names: Mapping[str, str]) -> Iterator[ChatMessage]:
    """Yield the results of tools, which must follow their calls, before the other content."""
    others: list[Content] = []
    for part in message.content:
        if isinstance(part, ToolUseResult):
            if part.id not in tool_names:
                raise ToolError(f"the tool result {part.id!r} belongs to no tool use before it")
            yield ToolExecutionResultMessage(part.id, tool_names[part.id], part.content, part.is_error)
        elif isinstance(part, ToolUse):
            raise ToolError("messages of the user may not contain tool uses")
        else:
            others.append(part)
    if others:
        yield UserMessage(tuple(others))


def _parts(response: ChatResponse) -> Iterator[Text | ToolUse]:
    message = response.message
    if message.text or not message.tool_execution_requests:
        yield Text(message.text or "")
    for request in message.tool_execution_requests:
        arguments = request.arguments
        try:
            values = parse_arguments(request.name, arguments) if isinstance(arguments, str) else arguments
        except ArgumentsError as error:
            raise ToolError(f"the model's reply is unusable: {error}") from error
        yield ToolUse(request.id or uuid4().hex, request.name, values)
