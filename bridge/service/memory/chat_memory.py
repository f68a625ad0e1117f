"""Conversation memory: `ChatMemory`, windows and token estimates (LangChain4j's ChatMemory).

    memory = ChatMemory("conversations.db", window=message_window(50))
    memory.of("customer-17")        # another conversation in the same store

Stores append complete turns. Therefore the cost of a turn does not grow with the conversation, concurrent processes do
not overwrite each other, and a tool call is never stored without its results. Concurrent turns of one conversation do
not see each other; they are stored in the order in which they end.

A window limits the messages sent to the model, like LangChain4j's MessageWindowChatMemory and TokenWindowChatMemory.
The oldest messages are dropped first, a message with tool calls together with their results. The system message is
kept, and the rest begins with a user message if possible, as most providers require. The current turn is never
shortened.

Exact token counts need the provider's tokenizer. The default is an estimate; any callable can replace it:

    import tiktoken
    window = token_window(8_000, by_encoding(tiktoken.get_encoding("o200k_base").encode))
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sized
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from bridge.errors import DefinitionError
from bridge.redis import is_redis_url
from bridge.service.memory.store import DEFAULT_MEMORY_ID, InMemoryStore, memory_key
from bridge.service.messages import AiMessage, SystemMessage, ToolExecutionResultMessage, UserMessage
from bridge.text import estimated_tokens
from bridge.tools.checks import require_callable, require_count, require_methods, require_type
from bridge.tools.content import File, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.service.memory.store import ChatMemoryStore
    from bridge.service.messages import ChatMessage
    from bridge.tools.content import Content

TokenEstimator = Callable[["ChatMessage"], int]
"""Returns the number of tokens of a message."""
_MESSAGE_TOKENS = 4
"""Tokens of a message's frame in a provider's format."""
_MEDIA_TOKENS = 1_000
"""Tokens that most providers count for an image or audio clip of common size."""

_MAX_PAGE_MESSAGES = 200

_TOKENS_PER_MESSAGE = 100
"""Assumed average, used to choose the page size; a wrong value costs an additional read."""
MAX_PROVIDED_MEMORIES = 10_000
"""Maximum cached memories of a ``memory_provider``."""


def estimate_tokens(message: ChatMessage) -> int:
    """Estimate the tokens of a message: one per four ASCII characters, one per other character."""
    return _counted(message, estimated_tokens)


def by_encoding(encode: Callable[[str], Sized]) -> TokenEstimator:
    """Create an estimator that uses a tokenizer.

    Args:
        encode: Converts text into tokens, such as the method ``encode`` of a tiktoken encoding.
    """

    def estimate(message: ChatMessage) -> int:
        return _counted(message, lambda text: len(encode(text)))

    return estimate


def _counted(message: ChatMessage, count: Callable[[str], int]) -> int:
    if isinstance(message, SystemMessage):
        return _MESSAGE_TOKENS + count(message.text)
    if not isinstance(message, AiMessage):
        return _MESSAGE_TOKENS + sum(_counted_block(block, count) for block in message.content)
    tokens = _MESSAGE_TOKENS + count(message.text or "") + count(message.thinking or "")
    for request in message.tool_execution_requests:
        arguments = request.arguments if isinstance(request.arguments, str) else json.dumps(request.arguments)
        tokens += _MESSAGE_TOKENS + count(request.name) + count(arguments)
    return tokens


def _counted_block(block: Content, count: Callable[[str], int]) -> int:
    if isinstance(block, Text):
        return count(block.text)
    if isinstance(block, File) and isinstance(block.content, str):
        return count(block.content)
    return _MEDIA_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A limit on the total weight of messages; see `message_window` and `token_window`."""

    limit: int
    weigh: Callable[[ChatMessage], int]
    page_messages: int
    """Number of messages to read from a store at once."""

    def weight(self, messages: Sequence[ChatMessage]) -> int:
        """Return the total weight of messages."""
        return len(messages) if self.weigh is _one else sum(map(self.weigh, messages))


def message_window(max_messages: int) -> Window:
    """Create a window of the newest messages.

    Args:
        max_messages: Maximum number of messages, including the system message.

    Raises:
        DefinitionError: The maximum is less than 1.
    """
    require_count(max_messages, "max_messages")
    return Window(limit=max_messages, weigh=_one, page_messages=min(max_messages, _MAX_PAGE_MESSAGES))


def token_window(max_tokens: int, estimate: TokenEstimator = estimate_tokens) -> Window:
    """Create a window of the newest messages up to a number of tokens.

    Args:
        max_tokens: Maximum number of tokens, including the system message.
        estimate: Returns the number of tokens of a message.

    Raises:
        DefinitionError: The maximum is less than 1, or the estimate is not a function of a message.
    """
    require_count(max_tokens, "max_tokens")
    require_callable(estimate, 1, "estimate", "the message")
    page = min(max(max_tokens // _TOKENS_PER_MESSAGE, 10), _MAX_PAGE_MESSAGES)
    return Window(limit=max_tokens, weigh=estimate, page_messages=page)


class WindowView:
    """Messages of one conversation that are sent to the model during a turn.

    Args:
        window: Limit; None for no limit.
        system: System message, sent first.
        history: Messages before this turn, oldest first.
    """

    __slots__ = ("_history", "_set_aside", "_start", "_system", "_turn", "_weight", "_window")

    def __init__(
        self, window: Window | None, system: SystemMessage | None, history: Sequence[ChatMessage] = ()
    ) -> None:
        self._window = window
        self._system = () if system is None else (system,)
        self._history = history
        self._start = 0
        """Index of the first message of the history within the window."""
        self._turn: list[ChatMessage] = []
        self._set_aside: set[int] = set()
        """Indexes of messages of the turn that are not stored."""
        self._weight = 0 if window is None else window.weight(self._system) + window.weight(history)
        self._fit(cut=True)

    def add(self, *messages: ChatMessage) -> None:
        """Add messages to the current turn; older messages may be dropped."""
        is_first = not self._turn
        self._turn += messages
        if self._window is not None:
            self._weight += self._window.weight(messages)
            self._fit(cut=is_first)

    @property
    def system_text(self) -> str | None:
        """Text of the system message; None without one."""
        return self._system[0].text if self._system else None

    def retract(self) -> None:
        """Remove the last message of the current turn."""
        message = self._turn.pop()
        if self._window is not None:
            self._weight -= self._window.weight((message,))

    def correct(self, correction: UserMessage, *, wrong: bool = True) -> None:
        """Request another answer; neither the correction nor the wrong answer belongs to the stored turn.

        Args:
            correction: Message to the model.
            wrong: True if the last message is the wrong answer.
        """
        if wrong:
            self._set_aside.add(len(self._turn) - 1)
        self._set_aside.add(len(self._turn))
        self.add(correction)

    @property
    def turn(self) -> tuple[ChatMessage, ...]:
        """Messages of the current turn, without corrections and wrong answers."""
        return tuple(message for index, message in enumerate(self._turn) if index not in self._set_aside)

    def messages(self) -> tuple[ChatMessage, ...]:
        """Return the messages for the model."""
        return (*self._system, *self._history[self._start :], *self._turn)

    def _fit(self, *, cut: bool) -> None:
        if self._window is None:
            return
        while self._start < len(self._history) and self._weight > self._window.limit:
            self._drop()
            cut = True
        while cut and self._starts_without_context():
            self._drop()

    def _starts_without_context(self) -> bool:
        """Return True if the history begins with a message that needs an earlier user message or tool call."""
        if self._start == len(self._history):
            return False
        first = self._history[self._start]
        if isinstance(first, UserMessage):
            return False
        return (
            bool(self._turn)
            or isinstance(first, ToolExecutionResultMessage)
            or any(isinstance(self._history[i], UserMessage) for i in range(self._start, len(self._history)))
        )

    def _drop(self) -> None:
        """Drop the oldest message, together with the results of its tool calls."""
        assert self._window is not None
        history, end = self._history, self._start + 1
        while end < len(history) and isinstance(history[end], ToolExecutionResultMessage):
            end += 1
        self._weight -= self._window.weight(history[self._start : end])
        self._start = end


def _one(_: ChatMessage) -> int:
    return 1


_DEFAULT_WINDOW = message_window(100)


class ChatMemory:
    """One conversation: its store, and the window sent to the model.

    Args:
        store: A store; the path of an SQLite file; or a Redis URL (``redis://``, ``rediss://`` or ``unix://``), which
            several replicas can share. Defaults to a store in memory.
        window: Limit of the messages sent to the model; the store keeps all messages.
        memory_id: Id of the conversation: text, a number, or another value that JSON can identify.

    Raises:
        DefinitionError: The store, the window or the memory id has another type.
        MissingExtraError: The store is a Redis URL and the package ``redis`` is not installed.
        ValueError: The URL is invalid.
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
        if store is not None:
            require_methods(store, "store", "read", "append", "delete", taken="a ChatMemoryStore, a path or a URL")
        require_type(window, Window, "window", "message_window(…) or token_window(…)")
        memory_key(memory_id)
        self.store: ChatMemoryStore = InMemoryStore() if store is None else store
        self.window = window
        self.memory_id = memory_id

    def of(self, memory_id: Any) -> ChatMemory:
        """Return another conversation in the same store.

        Raises:
            DefinitionError: The id cannot be serialized as JSON.
        """
        memory_key(memory_id)
        other = copy(self)
        other.memory_id = memory_id
        return other

    async def messages(self) -> tuple[ChatMessage, ...]:
        """Return the messages for the model: the system message if there is one, and the newest messages."""
        return (await self.view(None)).messages()

    async def view(self, system: SystemMessage | None) -> WindowView:
        """Return the messages for the model during a new turn."""
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
        """Append messages atomically. Append a message with tool calls together with their results."""
        await self.store.append(self.memory_id, messages)

    async def clear(self) -> None:
        """Delete the conversation."""
        await self.store.delete(self.memory_id)


ChatMemoryProvider = Callable[[Any], ChatMemory]
"""Returns the memory for a memory id (LangChain4j's ChatMemoryProvider)."""


class ProvidedMemories:
    """Cache of the memories returned by a provider, so that an in-process memory survives between calls.

    Args:
        provider: Returns the memory for a memory id.
        max_memories: Maximum cached memories; the least recently used is evicted.
    """

    def __init__(self, provider: ChatMemoryProvider, max_memories: int = MAX_PROVIDED_MEMORIES) -> None:
        self._provider = require_callable(provider, 1, "memory_provider", "the memory id")
        self._max_memories = max_memories
        self._memories: OrderedDict[str, ChatMemory] = OrderedDict()
        self._lock = Lock()

    def of(self, memory_id: Any) -> ChatMemory:
        """Return the memory of a conversation; a provider that returns another type is refused."""
        key = memory_key(memory_id)
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
            raise DefinitionError(f"memory_provider must return a ChatMemory, not {memory!r} (memory id {memory_id!r})")
        return memory


def _opened(store: str | Path) -> ChatMemoryStore:
    if isinstance(store, str) and is_redis_url(store):
        from bridge.service.memory.persistent_stores import RedisStore  # noqa: PLC0415 - only needed for Redis

        return RedisStore(store)
    from bridge.service.memory.persistent_stores import SqliteStore  # noqa: PLC0415 - only needed for SQLite

    return SqliteStore(store)
