"""Wrappers of chat models: listeners (LangChain4j's ChatModelListener), and other models that answer if one fails.

    class Costs(ChatModelListener):
        def on_response(self, response, call):
            print(response.token_usage.total_tokens)

    model = observed(OpenAiChatModel("gpt-5.1"), Costs())
    model = with_fallback(OpenAiChatModel("gpt-5.1"), AnthropicChatModel("claude-sonnet-4-5"))

All other attributes of the first model stay available.
"""

from __future__ import annotations

import inspect
import logging
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio

from bridge.errors import ChatModelError, DefinitionError
from bridge.service.chat_model import CompleteResponse
from bridge.text import short_repr
from bridge.tools.checks import require_callable, require_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from bridge.service.chat_model import ChatEvent, ChatModel, ChatRequest, ChatResponse, StreamingChatModel

M = TypeVar("M", bound="ChatModel | StreamingChatModel")
_T = TypeVar("_T")
_logger = logging.getLogger("bridge.models")

_ERROR_LISTENERS_SECONDS = 5.0
"""Time limit for listeners to handle a cancelled request, in seconds."""
_REFUSED = frozenset({400, 413, 422})
"""Statuses of requests that another model would refuse as well."""


class _Wrapper:
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


class _ObservedModel(_Wrapper):
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


def is_worth_another_model(error: ChatModelError) -> bool:
    """Return True unless the provider refused the request itself (status 400, 413 or 422)."""
    return error.status not in _REFUSED


def with_fallback(
    model: M,
    *others: ChatModel | StreamingChatModel,
    when: Callable[[ChatModelError], bool] = is_worth_another_model,
    timeout_seconds: float | None = None,
) -> M:
    """Return a model that sends a failed request to the next of several models.

    A stream that fails after its first event is not repeated. A `ChatRequest.model_name` applies to the first model
    alone. If all models fail, the last error is raised; the others are logged.

    Args:
        model: The first model: a chat model, a streaming one, or both.
        others: The next models, in this order.
        when: Returns True for errors after which the next model is tried.
        timeout_seconds: Maximum wait for a model's response, or for the first event of its stream, before the next one
            is tried; None leaves it to each model. Does not apply to the last model.

    Returns:
        A model that can chat, and stream, if all models can.

    Raises:
        DefinitionError: There is no other model, or the models have neither ``chat`` nor ``stream`` in common.
    """
    models = (model, *others)
    if not others:
        raise DefinitionError("with_fallback needs at least two models")
    for each in models:
        if isinstance(each, type) or not (hasattr(each, "chat") or hasattr(each, "stream")):
            raise DefinitionError(f"{short_repr(each)} is not a chat model; it needs chat or stream")
    require_callable(when, 1, "when", "the error")
    require_seconds(timeout_seconds, "timeout_seconds")
    if not any(all(hasattr(each, method) for each in models) for method in ("chat", "stream")):
        raise DefinitionError(f"some of the models {short_repr(models)} cannot stream, others cannot do anything else")
    return cast("M", _ModelWithFallback(models, when, timeout_seconds))


class _ModelWithFallback(_Wrapper):
    def __init__(
        self, models: tuple[Any, ...], when: Callable[[ChatModelError], bool], timeout_seconds: float | None
    ) -> None:
        super().__init__(*models)
        self._when = when
        self._timeout_seconds = timeout_seconds

    def __repr__(self) -> str:
        return f"with_fallback({', '.join(map(repr, self._models))})"

    async def aclose(self) -> None:
        """Close all models."""
        for model in self._models:
            if hasattr(model, "aclose"):
                await model.aclose()

    async def _chat(self, request: ChatRequest) -> ChatResponse:
        for model in self._models[:-1]:
            try:
                response: ChatResponse = await self._within_limit(model.chat(request), model)
            except ChatModelError as error:
                request = self._next_request(error, model, request)
            else:
                return response
        last: ChatResponse = await self._models[-1].chat(request)
        return last

    async def _stream(self, request: ChatRequest) -> AsyncGenerator[ChatEvent, None]:
        for model in self._models[:-1]:
            async with aclosing(model.stream(request)) as events:
                try:
                    first = await self._within_limit(anext(events, None), model)
                except ChatModelError as error:
                    request = self._next_request(error, model, request)
                    continue
                if first is not None:
                    yield first
                async for event in events:
                    yield event
                return
        async with aclosing(self._models[-1].stream(request)) as events:
            async for event in events:
                yield event

    async def _within_limit(self, response: Awaitable[_T], model: object) -> _T:
        if self._timeout_seconds is None:
            return await response
        with anyio.move_on_after(self._timeout_seconds):
            return await response
        raise ChatModelError(
            f"no response for {self._timeout_seconds:g} seconds", provider=type(model).__name__, retryable=True
        )

    def _next_request(self, error: ChatModelError, model: object, request: ChatRequest) -> ChatRequest:
        if not self._when(error):
            raise error
        _logger.warning("%r failed, and the next model is tried: %s", model, error)
        return replace(request, model_name=None)
