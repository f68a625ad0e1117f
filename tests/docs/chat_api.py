"""A chat model for the documentation: an HTTP server that speaks OpenAI's API and gives scripted replies."""

from __future__ import annotations

import json
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.models import openai_wire
from tests.models.provider import Answer, Provider, running_provider

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.models.provider import Received


class ChatApi:
    """The replies still to come. A text is an answer; an object calls the tools that are its keys."""

    def __init__(self, provider: Provider) -> None:
        self._replies: list[str | dict[str, Any]] = []
        self._ids = count(1)
        self.url = f"{provider.url}/v1"
        provider.answer_to = self._answer

    def will_reply(self, *replies: str | dict[str, Any]) -> None:
        """Add replies."""
        self._replies.extend(replies)

    @property
    def remaining(self) -> list[str | dict[str, Any]]:
        """The replies that nothing has asked for."""
        return self._replies

    def _answer(self, request: Received) -> Answer:
        assert self._replies, f"the page has no reply for {json.dumps(request.body)[:500]}"
        reply = self._replies.pop(0)
        return self._streamed(reply) if request.body.get("stream") else self._whole(reply)

    def _whole(self, reply: str | dict[str, Any]) -> Answer:
        if isinstance(reply, str):
            return openai_wire.completion({"content": reply})
        calls = [
            {"id": self._call_id(), "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for name, arguments in reply.items()
        ]
        return openai_wire.completion({"tool_calls": calls}, reason="tool_calls")

    def _streamed(self, reply: str | dict[str, Any]) -> Answer:
        if isinstance(reply, str):
            words = [openai_wire.chunk({"content": word}) for word in reply.replace(" ", " \0").split("\0")]
            return openai_wire.streamed(*words, openai_wire.chunk(reason="stop"), openai_wire.FINAL)
        calls = [
            openai_wire.chunk(openai_wire.call(index, json.dumps(arguments), name, self._call_id()))
            for index, (name, arguments) in enumerate(reply.items())
        ]
        return openai_wire.streamed(*calls, openai_wire.chunk(reason="tool_calls"), openai_wire.FINAL)

    def _call_id(self) -> str:
        return f"call_{next(self._ids)}"


@contextmanager
def running_chat_api() -> Iterator[ChatApi]:
    """Serve the API while the context lasts."""
    with running_provider() as provider:
        yield ChatApi(provider)
