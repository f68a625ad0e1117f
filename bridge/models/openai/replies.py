"""Conversion of replies of OpenAI's chat completions API, complete or streamed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from bridge.errors import ChatModelError
from bridge.models.conversation import generated_id
from bridge.models.openai.messages import KEPT_OF_A_CALL, PROVIDER
from bridge.models.replies import ReplyReader
from bridge.service.chat_model import FinishReason, PartialResponse, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    from bridge.models.provider_schemas import ProviderRequest
    from bridge.service.chat_model import ChatEvent, ChatResponse
    from bridge.types import Json

_THINKING_FIELDS = ("reasoning_content", "reasoning")
"""Fields for thinking of compatible servers; OpenAI's API has none."""


class OpenAiReply(ReplyReader):
    """Converts one reply; a complete one is read as a stream of one chunk."""

    provider = PROVIDER
    parses_arguments = False
    finish_reasons: ClassVar = {
        "stop": FinishReason.STOP,
        "length": FinishReason.LENGTH,
        "tool_calls": FinishReason.TOOL_EXECUTION,
        "function_call": FinishReason.TOOL_EXECUTION,
        "content_filter": FinishReason.CONTENT_FILTER,
    }

    def __init__(self, request: ProviderRequest) -> None:
        super().__init__(request)
        self._given_ids: dict[int | None, str | None] = {}
        self._latest: int | None = None
        self._refusal: list[str] = []
        self._thinking_field = ""
        self._kept: dict[str, Json] = {}
        """Fields of calls that must be sent back, such as Gemini's thought signature, by call ID."""

    def read_complete(self, reply: ChatCompletion) -> None:
        """Read a complete reply."""
        completion: Json = reply.to_dict(warnings=False)
        if not completion.get("choices"):
            raise ChatModelError("the reply has no choices", provider=PROVIDER)
        choice = completion["choices"][0]
        calls = [call for call in choice["message"].get("tool_calls") or () if call.get("function")]
        delta = {**choice["message"], "tool_calls": [{**call, "index": index} for index, call in enumerate(calls)]}
        list(self._chunk({**completion, "choices": [{**choice, "delta": delta}]}))
        self.end(choice.get("finish_reason"))

    def read_event(self, event: ChatCompletionChunk) -> Iterator[ChatEvent]:
        """Read one chunk."""
        return self._chunk(event.to_dict(warnings=False))

    def attributes(self) -> Json:
        """Parts of the reply that must be sent back in their own fields."""
        thinking = {"thinking_field": self._thinking_field} if self._thinking_field else {}
        refusal = {"refusal": "".join(self._refusal)} if self._refusal else {}
        return ({"calls": self._kept} if self._kept else {}) | thinking | refusal

    def response(self, raw: Any) -> ChatResponse:
        """Build the response; some servers return the reason ``stop`` with a refusal or tool calls."""
        if self._refusal:
            self.text, self.finish_reason = self._refusal, FinishReason.CONTENT_FILTER
        elif len(self.calls) and self.finish_reason is FinishReason.STOP:
            self.finish_reason = FinishReason.TOOL_EXECUTION
        return super().response(raw)

    def _chunk(self, chunk: Json) -> Iterator[ChatEvent]:
        self.id, self.model_name = self.id or chunk.get("id"), self.model_name or chunk.get("model")
        if usage := chunk.get("usage"):
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
            self.usage = TokenUsage(usage.get("prompt_tokens"), usage.get("completion_tokens"), cached)
        for choice in chunk["choices"][:1]:
            yield from self._delta(choice.get("delta") or {})
            if choice.get("finish_reason"):
                self.end(choice["finish_reason"])

    def _delta(self, delta: Json) -> Iterator[ChatEvent]:
        for field in _THINKING_FIELDS:
            if isinstance(thinking := delta.get(field), str) and thinking:
                self._thinking_field = field
                yield from self.add_thinking(thinking)
                break
        for pieces, piece in ((self.text, delta.get("content")), (self._refusal, delta.get("refusal"))):
            if piece:
                pieces.append(piece)
                yield PartialResponse(piece)
        for call in delta.get("tool_calls") or ():
            yield from self._call(call)

    def _call(self, delta: Json) -> Iterator[ChatEvent]:
        """Read a piece of a call; pieces are joined by index, and a new ID with the same index starts a new call."""
        key, call_id = delta.get("index"), delta.get("id")  # some servers omit them
        function = delta.get("function") or {}
        name, arguments = function.get("name"), function.get("arguments")
        known_id = self._given_ids.get(key)
        if key not in self.calls or (call_id and known_id and call_id != known_id):
            if len(self.calls):
                yield from self.calls.complete_if_closed(self._latest)
            turn = len(self.request.chat.messages)
            made_id = call_id or generated_id(self.id, turn, len(self.calls))
            # some servers return an object
            self.calls.begin(key, made_id, arguments=arguments if isinstance(arguments, dict) else None)
            self._given_ids[key], self._latest = call_id, key
        if call_id and KEPT_OF_A_CALL in delta:
            self._kept[call_id] = {KEPT_OF_A_CALL: delta[KEPT_OF_A_CALL]}
        if name or arguments:
            yield self.calls.add(key, arguments if isinstance(arguments, str) else "", name)
