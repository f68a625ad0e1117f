"""Scripted chat model for tests and offline work: replies come from a list or a function.

model = ScriptedChatModel([ToolExecutionRequest("add", {"a": 1, "b": 2}), "The sum is 3."])
model = ScriptedChatModel(lambda request: f"You said {request.messages[-1].text!r}")
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

import anyio.lowlevel

from bridge.errors import ChatModelError, DefinitionError
from bridge.models.conversation import arguments_as_text
from bridge.service.chat_model import (
    ChatRequest,
    ChatResponse,
    CompleteResponse,
    CompleteToolCall,
    FinishReason,
    PartialResponse,
    PartialThinking,
    PartialToolCall,
)
from bridge.service.messages import AiMessage
from bridge.tools.tool import ToolExecutionRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from bridge.service.chat_model import ChatEvent

PROVIDER = "scripted"
"""Model name in responses."""
Reply = str | ToolExecutionRequest | Sequence[ToolExecutionRequest] | AiMessage | ChatResponse | Exception
"""A reply: text, tool calls, a message, a response, or an exception to raise."""
Script = Iterable[Reply] | Callable[[ChatRequest], Reply | Awaitable[Reply]]
"""Source of replies: a sequence, or a function of the request."""

_WORD = re.compile(r"\s*\S+\s*$|\s*\S+|\s+$")
_ARGUMENT_PIECE_CHARS = 8


class ScriptedChatModel:
    """Chat model with scripted replies, complete or streamed (LangChain4j's ChatModelMock).

    Args:
        script: The replies in order, or a function, which may be async, that returns the reply to a request.

    Attributes:
        requests: All requests so far, in order.

    Raises:
        DefinitionError: The script is a string instead of a list.
    """

    provider: ClassVar = PROVIDER
    """Name of the provider."""

    def __init__(self, script: Script) -> None:
        if isinstance(script, str):
            raise DefinitionError(
                f"a script must be a list of replies or a function, not {script!r}; write [{script!r}]"
            )
        self.requests: list[ChatRequest] = []
        self._make = script if callable(script) else _in_order(iter(script))

    def __repr__(self) -> str:
        return f"<ScriptedChatModel: a script, no model; {len(self.requests)} requests so far>"

    async def chat(self, request: ChatRequest) -> ChatResponse:
        """See `bridge.service.chat_model.ChatModel.chat`.

        Raises:
            ChatModelError: The script has ended.
            Exception: An exception in the script.
        """
        self.requests.append(request)
        made = self._make(request)
        reply = await made if inspect.isawaitable(made) else made
        if isinstance(reply, Exception):
            raise reply
        return _response(reply)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        """See `bridge.service.chat_model.StreamingChatModel.stream`; the reply is split into words."""
        response = await self.chat(request)
        for event in _pieces(response):
            await anyio.lowlevel.checkpoint()
            yield event
        yield CompleteResponse(response)


def _in_order(replies: Iterator[Reply]) -> Callable[[ChatRequest], Reply]:
    given = 0

    def following(_: ChatRequest) -> Reply:
        nonlocal given
        for reply in replies:
            given += 1
            return reply
        raise ChatModelError(f"the script has only {given} replies, but the model was called again", provider=PROVIDER)

    return following


def _response(reply: Reply) -> ChatResponse:
    if isinstance(reply, ChatResponse):
        return reply
    if isinstance(reply, str):
        reply = AiMessage(reply)
    elif isinstance(reply, ToolExecutionRequest):
        reply = AiMessage(tool_execution_requests=(reply,))
    elif not isinstance(reply, AiMessage):
        reply = AiMessage(tool_execution_requests=tuple(cast("Sequence[ToolExecutionRequest]", reply)))
    reason = FinishReason.TOOL_EXECUTION if reply.has_tool_execution_requests else FinishReason.STOP
    return ChatResponse(message=reply, finish_reason=reason, model_name=PROVIDER)


def _pieces(response: ChatResponse) -> Iterator[ChatEvent]:
    message = response.message
    yield from (PartialThinking(word) for word in _WORD.findall(message.thinking or ""))
    yield from (PartialResponse(word) for word in _WORD.findall(message.text or ""))
    for index, request in enumerate(message.tool_execution_requests):
        text = arguments_as_text(request)
        for start in range(0, len(text), _ARGUMENT_PIECE_CHARS):
            yield PartialToolCall(index, request.id, request.name, text[start : start + _ARGUMENT_PIECE_CHARS])
        if index != response.doubtful_call:
            yield CompleteToolCall(index, request)
