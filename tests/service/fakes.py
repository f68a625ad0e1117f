"""A scripted model, and the smallest of services."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from bridge.service.ai_service import ai_service
from bridge.service.chat_model import (
    ChatResponse,
    CompleteResponse,
    CompleteToolCall,
    FinishReason,
    PartialResponse,
    PartialThinking,
    PartialToolCall,
    TokenUsage,
)
from bridge.service.messages import AiMessage
from bridge.tools.tool import ToolExecutionRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from bridge.service.chat_model import ChatEvent, ChatRequest
    from bridge.service.events import Result
    from bridge.service.token_stream import TokenStream

    Reply = str | AiMessage | ChatResponse | Exception | Callable[[ChatRequest], Awaitable[AiMessage]]

DEADLINE_SECONDS = 60
"""Maximum seconds of a test; then it has hung."""


class FakeModel:
    """Model with given replies, whole or streamed, which records its requests."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)
        self.requests: list[ChatRequest] = []
        self.open_streams = 0

    async def chat(self, request: ChatRequest) -> ChatResponse:
        return await self._next(request)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        self.open_streams += 1
        try:
            response = await self._next(request)
            if response.message.thinking:
                yield PartialThinking(response.message.thinking)
            for word in (response.message.text or "").split(" "):
                yield PartialResponse(word)
            for index, wanted in enumerate(response.message.tool_execution_requests):
                assert isinstance(wanted.arguments, str)
                yield PartialToolCall(index, wanted.id, wanted.name, wanted.arguments)
                if index != response.doubtful_call:
                    yield CompleteToolCall(index, wanted)
            yield CompleteResponse(response)
        finally:
            self.open_streams -= 1

    async def _next(self, request: ChatRequest) -> ChatResponse:
        self.requests.append(request)
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, ChatResponse):
            return reply
        if isinstance(reply, str | AiMessage):
            return response_of(reply)
        return response_of(await reply(request))


def response_of(reply: str | AiMessage) -> ChatResponse:
    message = AiMessage(reply) if isinstance(reply, str) else reply
    wants = message.has_tool_execution_requests
    return ChatResponse(
        message=message,
        token_usage=TokenUsage(10, 2),
        finish_reason=FinishReason.TOOL_EXECUTION if wants else FinishReason.STOP,
    )


def call(name: str, id_: str | None = None, **arguments: Any) -> ToolExecutionRequest:
    """Return a call as a model writes it."""
    return ToolExecutionRequest(name, json.dumps(arguments), id_)


def calls(*requests: ToolExecutionRequest) -> AiMessage:
    """Return a reply that requests tools."""
    return AiMessage(None, requests)


class Assistant(Protocol):
    """Answer, whole or streamed."""

    async def chat(self, message: str) -> Result[str]: ...

    def stream(self, message: str) -> TokenStream: ...


def assistant(*replies: Reply, **options: Any) -> Assistant:
    """Return a service on a model with these replies."""
    return ai_service(Assistant, chat_model=FakeModel(*replies), **options)


async def ask(service: Assistant, way: str, message: str = "Hello") -> Result[str]:
    """Ask, and return the answer of either way."""
    if way == "whole":
        return await service.chat(message)
    stream = service.stream(message)
    async for _ in stream:
        pass
    return stream.result
