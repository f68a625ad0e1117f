"""ChatMemoryStore protocol, in-memory store, memory keys."""

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
"""The conversation of those who have only one (LangChain4j's id of the same name)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessages:
    """Some of the messages of a conversation, oldest first."""

    messages: Sequence[ChatMessage]
    """Without system messages."""
    before: int | None = None
    """Where those end that were said before; None where these are the oldest."""
    system: SystemMessage | None = None
    """The newest system message of the whole conversation."""


class ChatMemoryStore(Protocol):
    """Keeps conversations; a store of one's own implements these three.

    Where a conversation cannot be read or written, the stores of this package raise `bridge.MemoryStoreError`.
    """

    async def read(self, memory_id: Any, *, limit: int, before: int | None = None) -> StoredMessages:
        """The newest messages of a conversation.

        Args:
            memory_id: Which conversation; one that nobody has written is empty.
            limit: How many messages at most, system messages not counted.
            before: What `StoredMessages.before` said, for those that were said before.
        """
        ...

    async def append(self, memory_id: Any, messages: Sequence[ChatMessage]) -> None:
        """Add messages to a conversation: all of them one after another, or, where that fails, none."""
        ...

    async def delete(self, memory_id: Any) -> None:
        """Forget a conversation."""
        ...


class InMemoryStore:
    """Keeps conversations as long as the process runs."""

    def __init__(self) -> None:
        self._said: dict[str, list[ChatMessage]] = {}
        self._system: dict[str, SystemMessage] = {}

    async def read(self, memory_id: Any, *, limit: int, before: int | None = None) -> StoredMessages:
        """See `ChatMemoryStore.read`."""
        key = memory_key(memory_id)
        said = self._said.get(key, [])
        end = len(said) if before is None else before
        start = max(0, end - limit)
        return StoredMessages(messages=said[start:end], before=start or None, system=self._system.get(key))

    async def append(self, memory_id: Any, messages: Sequence[ChatMessage]) -> None:
        """See `ChatMemoryStore.append`."""
        key = memory_key(memory_id)
        for message in messages:
            if isinstance(message, SystemMessage):
                self._system[key] = message
        self._said.setdefault(key, []).extend(each for each in messages if not isinstance(each, SystemMessage))

    async def delete(self, memory_id: Any) -> None:
        """See `ChatMemoryStore.delete`."""
        self._said.pop(memory_key(memory_id), None)
        self._system.pop(memory_key(memory_id), None)


def memory_key(memory_id: Any) -> str:
    """A memory id as text: the same for the same id, and for no other.

    Raises:
        DefinitionError: The id has no JSON.
    """
    try:
        return json.dumps(memory_id, sort_keys=True, default=_written)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"the memory id {memory_id!r} cannot be written as JSON; use text or a number") from error


def _written(memory_id: Any) -> list[str]:
    """Ids of other types, such as UUID, by type and text; those that only show where they lie identify nothing."""
    text = str(memory_id)
    if text == object.__repr__(memory_id):
        raise TypeError(f"{text} is where it lies in memory")
    return [type(memory_id).__qualname__, text]
