"""Calls: the tool calls of a streamed reply, put together from their pieces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.models.sendable import json_object
from bridge.service.chat_model import CompleteToolCall, PartialToolCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.models.provider_schemas import Offers
    from bridge.tools.tool import ToolExecutionRequest


@dataclass(slots=True)
class _Call:
    name: str
    call_id: str
    pieces: list[str] = field(default_factory=list)
    request: ToolExecutionRequest | None = None


class CallAssembler:
    """Puts the calls of one reply together.

    Args:
        offers: The tools, for the way back to their own names and schemas.
        parsed: Arguments become objects where they can, for a provider that gives objects when it does not stream.
    """

    def __init__(self, offers: Offers, *, parsed: bool) -> None:
        self._offers = offers
        self._parsed = parsed
        self._calls: list[_Call] = []

    def __len__(self) -> int:
        return len(self._calls)

    def begin(self, call_id: str, name: str = "") -> int:
        """A call begins; gives its index."""
        self._calls.append(_Call(name, call_id))
        return len(self._calls) - 1

    def add(self, index: int, piece: str, name: str | None = None) -> PartialToolCall:
        """A piece of a call's arguments; the name may come only now."""
        call = self._calls[index]
        call.name = call.name or name or ""
        call.pieces.append(piece)
        return PartialToolCall(index, call.call_id, self._offers.originals.get(call.name, call.name), piece)

    def complete(self, index: int) -> Iterator[CompleteToolCall]:
        """A call is whole, if it was not before."""
        call = self._calls[index]
        if call.request is None:
            text = "".join(call.pieces)
            parsed = (json_object(text) if text.strip() else {}) if self._parsed else None
            call.request = self._offers.request(call.name, text if parsed is None else parsed, call.call_id)
            yield CompleteToolCall(index, call.request)

    def complete_if_closed(self, index: int) -> Iterator[CompleteToolCall]:
        """A call is whole if its arguments are a JSON object: nothing can follow that."""
        if json_object("".join(self._calls[index].pieces)) is not None:
            yield from self.complete(index)

    def complete_all(self, *, broken_off: bool) -> Iterator[CompleteToolCall]:
        """Nothing follows any more.

        Args:
            broken_off: The reply lacks its end: its last call is not called whole, unless it is closed.
        """
        for index in range(len(self._calls)):
            if broken_off and index == len(self._calls) - 1:
                yield from self.complete_if_closed(index)
                list(self.complete(index))
            else:
                yield from self.complete(index)

    @property
    def requests(self) -> tuple[ToolExecutionRequest, ...]:
        """The calls that are whole."""
        return tuple(call.request for call in self._calls if call.request is not None)
