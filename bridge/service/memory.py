"""Memory: what was said in a conversation, kept for its next turn (LangChain4j's ChatMemory and ChatMemoryStore).

A store only ever appends, and appends a whole turn at once: so the cost of a turn does not grow with the conversation,
two processes that write one conversation lose nothing, and no tool call is ever there without its results.

Two turns that run at the same time do not see one another, wherever they run; they are kept in the order in which they
ended.

    memory = ChatMemory("conversations.db", window=message_window(50))
    memory.of("customer-17")        # the same store and window, another conversation
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from bridge.errors import DefinitionError
from bridge.redis import is_redis_url
from bridge.service.messages import SystemMessage
from bridge.service.window import WindowView, message_window

if TYPE_CHECKING:
    from bridge.service.messages import ChatMessage
    from bridge.service.window import Window

DEFAULT_MEMORY_ID = "default"
"""The conversation of those who have only one (LangChain4j's id of the same name)."""

MAX_PROVIDED_MEMORIES = 10_000
"""How many memories of a ``memory_provider`` a service keeps."""

_DEFAULT_WINDOW = message_window(100)


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
        key = key_of(memory_id)
        said = self._said.get(key, [])
        end = len(said) if before is None else before
        start = max(0, end - limit)
        return StoredMessages(messages=said[start:end], before=start or None, system=self._system.get(key))

    async def append(self, memory_id: Any, messages: Sequence[ChatMessage]) -> None:
        """See `ChatMemoryStore.append`."""
        key = key_of(memory_id)
        for message in messages:
            if isinstance(message, SystemMessage):
                self._system[key] = message
        self._said.setdefault(key, []).extend(each for each in messages if not isinstance(each, SystemMessage))

    async def delete(self, memory_id: Any) -> None:
        """See `ChatMemoryStore.delete`."""
        self._said.pop(key_of(memory_id), None)
        self._system.pop(key_of(memory_id), None)


class ChatMemory:
    """One conversation: where it is kept, and how much of it a model is shown.

    Args:
        store: A store; or the path of a file for one in SQLite; or the URL of a Redis (``redis://``, ``rediss://`` or
            ``unix://``), which several replicas can share; in memory by default.
        window: How much a model is shown; what it is not shown stays in the store.
        memory_id: Which conversation: text, a number, or anything whose JSON identifies it.

    Raises:
        MissingExtraError: It is to be a Redis, and the package ``redis`` is not installed.
        ValueError: The URL cannot be used.
    """

    def __init__(
        self,
        store: ChatMemoryStore | str | Path | None = None,
        *,
        window: Window = _DEFAULT_WINDOW,
        memory_id: Any = DEFAULT_MEMORY_ID,
    ) -> None:
        if isinstance(store, str | Path):
            store = _opened(store)
        self.store: ChatMemoryStore = InMemoryStore() if store is None else store
        self.window = window
        self.memory_id = memory_id

    def of(self, memory_id: Any) -> ChatMemory:
        """Another conversation in the same store."""
        other = copy(self)
        other.memory_id = memory_id
        return other

    async def messages(self) -> tuple[ChatMessage, ...]:
        """What a model is shown: the system message, where there is one, and the newest messages."""
        return (await self.view(None)).messages()

    async def view(self, system: SystemMessage | None) -> WindowView:
        """What a model is shown while a turn is running.

        Args:
            system: Instead of the system message that is kept.
        """
        newest: list[ChatMessage] = []
        weight, before = 0, None
        while True:
            page = await self.store.read(self.memory_id, limit=self.window.page_messages, before=before)
            newest[:0] = page.messages
            weight += self.window.weight(page.messages)
            before = page.before
            if before is None or weight >= self.window.limit:
                return WindowView(self.window, system or page.system, newest)

    async def add(self, *messages: ChatMessage) -> None:
        """Add messages, all at once. A message with tool calls belongs together with their results."""
        await self.store.append(self.memory_id, messages)

    async def clear(self) -> None:
        """Forget the conversation."""
        await self.store.delete(self.memory_id)


ChatMemoryProvider = Callable[[Any], ChatMemory]
"""Gives the memory of a conversation by its memory id (LangChain4j's ChatMemoryProvider)."""


class ProvidedMemories:
    """The memories that a provider has given: it is asked once for each id, so a memory in the process lasts.

    Args:
        provider: Gives the memory of a conversation.
        max_memories: How many are kept; the one that was not used for the longest time is dropped.
    """

    def __init__(self, provider: ChatMemoryProvider, max_memories: int = MAX_PROVIDED_MEMORIES) -> None:
        self._provider = provider
        self._max_memories = max_memories
        self._memories: OrderedDict[str, ChatMemory] = OrderedDict()
        self._lock = Lock()

    def of(self, memory_id: Any) -> ChatMemory:
        """The memory of a conversation.

        Raises:
            DefinitionError: The provider gave something else, or the id cannot be written as JSON.
        """
        key = key_of(memory_id)
        with self._lock:
            memory = self._memories.get(key)
            if memory is None:
                memory = self._memories[key] = self._provided(memory_id)
                if len(self._memories) > self._max_memories:
                    self._memories.popitem(last=False)
            else:
                self._memories.move_to_end(key)
            return memory

    def _provided(self, memory_id: Any) -> ChatMemory:
        memory: Any = self._provider(memory_id)
        if not isinstance(memory, ChatMemory):
            raise DefinitionError(f"the memory_provider gave {memory!r} for {memory_id!r}; it returns a ChatMemory")
        return memory


def _opened(store: str | Path) -> ChatMemoryStore:
    if isinstance(store, str) and is_redis_url(store):
        from bridge.service.memory_redis import RedisStore  # noqa: PLC0415 - for those who keep conversations there

        return RedisStore(store)
    from bridge.service.persistent_stores import SqliteStore  # noqa: PLC0415 - for those who keep conversations

    return SqliteStore(store)


def key_of(memory_id: Any) -> str:
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
