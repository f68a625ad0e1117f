"""Listeners of chat models (LangChain4j's ChatModelListener).

class Costs(ChatModelListener):
    def on_response(self, response, call):
        print(response.token_usage.total_tokens)

model = observed(OpenAiChatModel("gpt-5.1"), Costs())
"""

from __future__ import annotations

import inspect
import logging
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio

from bridge.errors import DefinitionError
from bridge.service.chat_model import CompleteResponse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable

    from bridge.service.chat_model import ChatEvent, ChatModel, ChatRequest, ChatResponse, StreamingChatModel

M = TypeVar("M", bound="ChatModel | StreamingChatModel")
_logger = logging.getLogger("bridge.models")

_ERROR_LISTENERS_SECONDS = 5.0
"""Time limit for listeners to handle a cancelled request, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatModelCall:
    """One request to a model, as its listeners receive it."""

    request: ChatRequest
    model: object
    """The model that is called, without its listeners."""
    attributes: dict[str, Any] = field(default_factory=dict)
    """Data of the listeners for the rest of this call; empty at first, shared by all listeners."""


class ChatModelListener:
    """Receives the requests, responses and errors of a model. Override methods as needed, synchronous or asynchronous.

    Requests may run concurrently; the call identifies them. An exception raised here is logged.
    """

    def on_request(self, call: ChatModelCall) -> Awaitable[None] | None:
        """Called before a request is sent."""

    def on_response(self, response: ChatResponse, call: ChatModelCall) -> Awaitable[None] | None:
        """Called with a complete response, streamed or not."""

    def on_error(self, error: BaseException, call: ChatModelCall) -> Awaitable[None] | None:
        """Called if there is no response: the model failed, the request was cancelled, or the stream was left."""


def observed(model: M, *listeners: ChatModelListener) -> M:
    """Return the model with listeners; all its other attributes stay available.

    Args:
        model: A chat model, a streaming one, or both.
        listeners: Receive each request and its end, in this order.

    Raises:
        DefinitionError: The object is not a model.
    """
    if not (hasattr(model, "chat") or hasattr(model, "stream")):
        raise DefinitionError(f"{model!r} is not a chat model; it has neither chat nor stream")
    return cast("M", _ObservedModel(model, listeners))


class ModelWrapper:
    """Model that sends its requests to other models.

    Has ``chat`` and ``stream``, which subclasses define as ``_chat`` and ``_stream``, if all models have them, and all
    other attributes of the first model.
    """

    def __init__(self, *models: Any) -> None:
        self._models = models
        for method in ("chat", "stream"):
            if all(hasattr(model, method) for model in models):
                setattr(self, method, getattr(self, f"_{method}"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in {"chat", "stream"}:
            raise AttributeError(name)
        return getattr(self._models[0], name)


class _ObservedModel(ModelWrapper):
    """Notifies listeners of requests to a model."""

    def __init__(self, model: Any, listeners: tuple[ChatModelListener, ...]) -> None:
        super().__init__(model)
        self._model = model
        self._listeners = listeners

    def __repr__(self) -> str:
        return repr(self._model)

    async def _chat(self, request: ChatRequest) -> ChatResponse:
        call = ChatModelCall(request=request, model=self._model)
        await self._notify("on_request", call)
        try:
            response: ChatResponse = await self._model.chat(request)
        except BaseException as error:
            await self._notify_error(error, call)
            raise
        await self._notify("on_response", response, call)
        return response

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        call = ChatModelCall(request=request, model=self._model)
        await self._notify("on_request", call)
        is_complete = False
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    if isinstance(event, CompleteResponse):
                        is_complete = True
                        await self._notify("on_response", event.response, call)
                    yield event
        except BaseException as error:
            if not is_complete:
                await self._notify_error(error, call)
            raise

    async def _notify_error(self, error: BaseException, call: ChatModelCall) -> None:
        with anyio.move_on_after(_ERROR_LISTENERS_SECONDS, shield=True):
            await self._notify("on_error", error, call)

    async def _notify(self, method: str, *arguments: object) -> None:
        for listener in self._listeners:
            try:
                answer = getattr(listener, method)(*arguments)
                if inspect.isawaitable(answer):
                    await answer
            except Exception:
                _logger.exception("%s of the listener %r failed", method, listener)
