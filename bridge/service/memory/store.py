"""Store protocol for conversations, and the in-memory store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from bridge.errors import DefinitionError
from bridge.service.messages import SystemMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.service.messages import ChatMessage

DEFAULT_MEMORY_ID = "default"
"""Memory id of a program with a single conversation; the same as in LangChain4j."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessages:
    """A page of messages of a conversation, oldest first."""

    messages: Sequence[ChatMessage]
    """The messages without system messages."""
    before: int | None = None
    """Position of the page's start, to read older messages; None if there are none."""
    system: SystemMessage | None = None
    """Newest system message of the conversation."""


class ChatMemoryStore(Protocol):
    """Stores conversations. Implement these three methods for a custom store.

    The stores of this package raise `bridge.errors.MemoryStoreError` if a conversation cannot be read or written.
    """

    async def read(self, memory_id: Any, *, limit: int, before: int | None = None) -> StoredMessages:
        """Return the newest messages of a conversation.

        Args:
            memory_id: Id of the conversation; an unknown one is empty.
            limit: Maximum number of messages, not counting system messages.
            before: `StoredMessages.before` of the previous page, to read older messages.
        """
        ...

    async def append(self, memory_id: Any, messages: Sequence[ChatMessage]) -> None:
        """Append messages in order and atomically."""
        ...

    async def delete(self, memory_id: Any) -> None:
        """Delete a conversation."""
        ...


class InMemoryStore:
    """Stores conversations in memory."""

    def __init__(self) -> None:
        self._messages: dict[str, list[ChatMessage]] = {}
        self._system: dict[str, SystemMessage] = {}

    async def read(self, memory_id: Any, *, limit: int, before: int | None = None) -> StoredMessages:
        """See `ChatMemoryStore.read`."""
        key = memory_key(memory_id)
        messages = self._messages.get(key, [])
        end = len(messages) if before is None else before
        start = max(0, end - limit)
        return StoredMessages(messages=messages[start:end], before=start or None, system=self._system.get(key))

    async def append(self, memory_id: Any, messages: Sequence[ChatMessage]) -> None:
        """See `ChatMemoryStore.append`."""
        key = memory_key(memory_id)
        for message in messages:
            if isinstance(message, SystemMessage):
                self._system[key] = message
        self._messages.setdefault(key, []).extend(
            message for message in messages if not isinstance(message, SystemMessage)
        )

    async def delete(self, memory_id: Any) -> None:
        """See `ChatMemoryStore.delete`."""
        self._messages.pop(memory_key(memory_id), None)
        self._system.pop(memory_key(memory_id), None)


def memory_key(memory_id: Any) -> str:
    """Convert a memory id to a unique string.

    Raises:
        DefinitionError: The id cannot be serialized as JSON.
    """
    if isinstance(memory_id, str):
        return json.dumps(memory_id)
    try:
        return json.dumps(memory_id, sort_keys=True, default=_identified)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"the memory id {memory_id!r} cannot be written as JSON; use text or a number") from error


def _identified(memory_id: Any) -> list[str]:
    """Identify other types, such as UUID, by type and text; reject the default repr, which only shows an address."""
    text = str(memory_id)
    if text == object.__repr__(memory_id):
        raise TypeError(f"{text} is only identified by its address")
    return [type(memory_id).__qualname__, text]
