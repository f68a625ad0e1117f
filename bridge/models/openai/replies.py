"""Conversion of replies of OpenAI's chat completions API, complete or streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.errors import ChatModelError
from bridge.models.conversation import CallAssembler, generated_id
from bridge.models.openai.messages import KEPT_OF_A_CALL, PROVIDER
from bridge.models.provider_schemas import restored_text
from bridge.service.chat_model import (
    BROKEN_OFF,
    ChatResponse,
    CompleteResponse,
    FinishReason,
    PartialResponse,
    PartialThinking,
    TokenUsage,
)
from bridge.service.messages import AiMessage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from openai.types import CompletionUsage
    from openai.types.chat import (
        ChatCompletion,
        ChatCompletionChunk,
        ChatCompletionMessage,
        ChatCompletionMessageToolCallUnion,
    )
    from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall

    from bridge.models.profiles.rewriting import RewrittenSchema
    from bridge.models.provider_schemas import ProviderTools
    from bridge.service.chat_model import ChatEvent
    from bridge.tools.tool import ToolExecutionRequest
    from bridge.types import Json

_FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_EXECUTION,
    "function_call": FinishReason.TOOL_EXECUTION,
    "content_filter": FinishReason.CONTENT_FILTER,
}
_THINKING_FIELDS = ("reasoning_content", "reasoning")
"""Fields for thinking of compatible servers; OpenAI's API has none."""


class ReplyReader:
    """Converts one reply.

    Args:
        offers: The tools of the request.
        turn: Index of the reply in the conversation, for generated call IDs.
        response_format: The requested reply schema.
    """

    def __init__(self, offers: ProviderTools, turn: int, response_format: RewrittenSchema | None) -> None:
        self._offers = offers
        self._turn = turn
        self._response_format = response_format

    def read(self, completion: ChatCompletion) -> ChatResponse:
        """Convert a complete reply."""
        if not completion.choices:
            raise ChatModelError("the reply has no choices", provider=PROVIDER)
        choice = completion.choices[0]
        message = choice.message
        field, thinking = _thinking_in(message)
        calls = tuple(self._requests(completion.id, message))
        more = {call.id: _more_of(call) for call in message.tool_calls or ()}
        return self.response(
            text=message.content,
            refusal=message.refusal,
            thinking=thinking,
            thinking_field=field,
            calls=calls,
            more=more,
            reason=choice.finish_reason,
            usage=completion.usage,
            model_name=completion.model,
            response_id=completion.id,
            raw=completion,
        )

    def call_id(self, given: str | None, response_id: str | None, index: int) -> str:
        """ID of a call; generated deterministically if missing."""
        return given or generated_id(response_id, self._turn, index)

    def response(
        self,
        *,
        text: str | None,
        refusal: str | None,
        thinking: str | None,
        thinking_field: str | None,
        calls: tuple[ToolExecutionRequest, ...],
        more: Mapping[str, Json],
        reason: str | None,
        usage: CompletionUsage | None,
        model_name: str | None,
        response_id: str | None,
        raw: Any,
    ) -> ChatResponse:
        """Build a response from its parts."""
        attributes: Json = {}
        if more := {call_id: extra for call_id, extra in more.items() if extra}:
            attributes["calls"] = more
        if thinking is not None and thinking_field is not None:
            attributes["thinking_field"] = thinking_field
        if refusal:
            attributes["refusal"] = text = refusal
        elif text is not None:
            text = restored_text(text, self._response_format)
        finish = _finish_reason(reason)
        if refusal:
            finish = FinishReason.CONTENT_FILTER
        elif calls and finish is FinishReason.STOP:  # some servers return this with tool calls
            finish = FinishReason.TOOL_EXECUTION
        return ChatResponse(
            message=AiMessage(text or None, calls, thinking, {PROVIDER: attributes} if attributes else {}),
            token_usage=_usage(usage),
            finish_reason=finish,
            model_name=model_name,
            id=response_id,
            raw=raw,
        )

    def _requests(self, response_id: str, message: ChatCompletionMessage) -> Iterator[ToolExecutionRequest]:
        for index, call in enumerate(message.tool_calls or ()):
            function = getattr(call, "function", None)
            if function is None:  # an unknown kind of tool call
                continue
            arguments: Any = function.arguments  # some servers return an object
            if not isinstance(arguments, str | dict):
                arguments = ""
            yield self._offers.request(function.name, arguments, self.call_id(call.id, response_id, index))


class StreamReader:
    """Converts one streamed reply to events."""

    def __init__(self, reader: ReplyReader, offers: ProviderTools) -> None:
        self._reader = reader
        self._calls = CallAssembler(offers, parsed=False)
        self._indexes: dict[int | None, tuple[int, str | None]] = {}
        self._latest: int | None = None
        self._chunks: list[ChatCompletionChunk] = []
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._thinking: list[str] = []
        self._thinking_field: str | None = None
        self._more: dict[str, Json] = {}
        self._reason: str | None = None
        self._usage: CompletionUsage | None = None

    def read(self, chunk: ChatCompletionChunk) -> Iterator[ChatEvent]:
        """Convert one chunk."""
        self._chunks.append(chunk)
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices[:1]:
            if choice.delta is not None:
                yield from self._delta(choice.delta)
            self._reason = choice.finish_reason or self._reason

    def finished(self) -> Iterator[ChatEvent]:
        """Yield the final events.

        Raises:
            ChatModelError: The stream ended before the reply was complete.
        """
        if self._reason is None:
            raise ChatModelError("the stream ended before the reply was complete", provider=PROVIDER, retryable=True)
        yield from self._calls.complete_all(broken_off=_finish_reason(self._reason) in BROKEN_OFF)
        first = self._chunks[0]
        yield CompleteResponse(
            self._reader.response(
                text="".join(self._text) or None,
                refusal="".join(self._refusal) or None,
                thinking="".join(self._thinking) or None,
                thinking_field=self._thinking_field,
                calls=self._calls.requests,
                more=self._more,
                reason=self._reason,
                usage=self._usage,
                model_name=first.model,
                response_id=first.id,
                raw=tuple(self._chunks),
            )
        )

    def _delta(self, delta: ChoiceDelta) -> Iterator[ChatEvent]:
        field, thinking = _thinking_in(delta)
        if thinking:
            self._thinking_field = field
            self._thinking.append(thinking)
            yield PartialThinking(thinking)
        for pieces, piece in ((self._text, delta.content), (self._refusal, delta.refusal)):
            if piece:
                pieces.append(piece)
                yield PartialResponse(piece)
        for call in delta.tool_calls or ():
            yield from self._call(call)

    def _call(self, delta: ChoiceDeltaToolCall) -> Iterator[ChatEvent]:
        """Handle a piece of a call; pieces are joined by index, and a new ID with the same index starts a new call."""
        function = delta.function
        key: int | None = getattr(delta, "index", None)  # some servers omit it
        known = self._indexes.get(key)
        if known is None or (delta.id and known[1] and delta.id != known[1]):
            if self._latest is not None:
                yield from self._calls.complete_if_closed(self._latest)
            call_id = self._reader.call_id(delta.id, self._chunks[0].id, len(self._calls))
            known = self._indexes[key] = (self._calls.begin(call_id), delta.id)
            self._latest = known[0]
        if delta.id and (more := _more_of(delta)):
            self._more[delta.id] = more
        if function is not None and (function.arguments or function.name):
            yield self._calls.add(known[0], function.arguments or "", function.name)


def _thinking_in(message: ChatCompletionMessage | ChoiceDelta) -> tuple[str | None, str | None]:
    """The field of the model's thinking, and its text."""
    more: Mapping[str, Any] = message.model_extra or {}
    found = ((field, more.get(field)) for field in _THINKING_FIELDS)
    return next(((field, text) for field, text in found if isinstance(text, str) and text), (None, None))


def _more_of(call: ChatCompletionMessageToolCallUnion | ChoiceDeltaToolCall) -> Json:
    """Fields of a call that must be sent back, such as Gemini's thought signature."""
    more: Mapping[str, Any] = call.model_extra or {}
    return {KEPT_OF_A_CALL: more[KEPT_OF_A_CALL]} if KEPT_OF_A_CALL in more else {}


def _finish_reason(reason: str | None) -> FinishReason:
    return _FINISH_REASONS.get(reason or "", FinishReason.OTHER)


def _usage(usage: CompletionUsage | None) -> TokenUsage:
    if usage is None:
        return TokenUsage()
    details = getattr(usage, "prompt_tokens_details", None)
    cached = None if details is None else details.cached_tokens
    return TokenUsage(usage.prompt_tokens, usage.completion_tokens, cached)
