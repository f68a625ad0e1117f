"""ChatMemory, windows, token estimates.

Memory: what was said in a conversation, kept for its next turn (LangChain4j's ChatMemory and ChatMemoryStore).

A store only ever appends, and appends a whole turn at once: so the cost of a turn does not grow with the conversation,
two processes that write one conversation lose nothing, and no tool call is ever there without its results.

Two turns that run at the same time do not see one another, wherever they run; they are kept in the order in which they
ended.

    memory = ChatMemory("conversations.db", window=message_window(50))
    memory.of("customer-17")        # the same store and window, another conversation

Tokens: how long a message is for a model, as far as that can be told without asking the model.

Exact counts belong to a provider's own tokeniser, and its vocabulary is not part of any wheel: it is downloaded. So an
estimator is any callable, and the default needs nothing:

    import tiktoken
    window = token_window(8_000, by_encoding(tiktoken.get_encoding("o200k_base").encode))

Window: how much of a conversation a model is shown.

LangChain4j's MessageWindowChatMemory and TokenWindowChatMemory. What is oldest goes first, in units: a message with
tool calls goes with all their results. The system message always stays, and stays first. What is left begins with a
user's message, as most providers want it. The turn that is running is never cut: a model that lost the question in the
middle of its work could not finish it.
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
from bridge.service.memory_store import DEFAULT_MEMORY_ID, InMemoryStore, memory_key
from bridge.service.messages import AiMessage, SystemMessage, ToolExecutionResultMessage, UserMessage
from bridge.tools.content import File, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.service.memory_store import ChatMemoryStore
    from bridge.service.messages import ChatMessage
    from bridge.tools.content import Content

TokenEstimator = Callable[["ChatMessage"], int]
"""Says how many tokens a message is."""

CHARS_PER_TOKEN = 4
"""What OpenAI and Anthropic give as the average of English; of denser scripts a token holds fewer."""

_MESSAGE_TOKENS = 4
"""What surrounds a message in a provider's own format."""

_MEDIA_TOKENS = 1_000
"""What an image or a sound of common size is counted as by most providers."""

_MAX_PAGE_MESSAGES = 200

_TOKENS_PER_MESSAGE = 100
"""For how many messages to read at once; a wrong guess costs a read."""

MAX_PROVIDED_MEMORIES = 10_000
"""How many memories of a ``memory_provider`` a service keeps."""


def estimate_tokens(message: ChatMessage) -> int:
    """The length of a message by its characters: one token for four ASCII characters, one for any other character."""
    return _counted(message, _tokens_by_characters)


def by_encoding(encode: Callable[[str], Sized]) -> TokenEstimator:
    """An estimator that counts with a tokeniser.

    Args:
        encode: Turns text into tokens, such as the method ``encode`` of an encoding of tiktoken.
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


def _tokens_by_characters(text: str) -> int:
    if text.isascii():
        return -(-len(text) // CHARS_PER_TOKEN)
    wide = sum(not character.isascii() for character in text)
    return wide - (wide - len(text)) // CHARS_PER_TOKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How much is shown: messages, each of some weight, up to a limit; see `message_window` and `token_window`."""

    limit: int
    weigh: Callable[[ChatMessage], int]
    page_messages: int
    """How many messages to read from a store at a time."""

    def weight(self, messages: Sequence[ChatMessage]) -> int:
        """What messages weigh together."""
        return len(messages) if self.weigh is _one else sum(map(self.weigh, messages))


def message_window(max_messages: int) -> Window:
    """A window of the newest messages.

    Args:
        max_messages: How many, the system message included.

    Raises:
        DefinitionError: The number is less than 1.
    """
    return Window(limit=_positive(max_messages), weigh=_one, page_messages=min(max_messages, _MAX_PAGE_MESSAGES))


def token_window(max_tokens: int, estimate: TokenEstimator = estimate_tokens) -> Window:
    """A window of the newest messages that are short enough together.

    Args:
        max_tokens: How many tokens, those of the system message included.
        estimate: Says how many tokens a message is.

    Raises:
        DefinitionError: The number is less than 1.
    """
    page = min(max(_positive(max_tokens) // _TOKENS_PER_MESSAGE, 10), _MAX_PAGE_MESSAGES)
    return Window(limit=max_tokens, weigh=estimate, page_messages=page)


class WindowView:
    """What a model is shown of one conversation, while a turn is running.

    Args:
        window: How much is shown; None for all.
        system: What stands first.
        history: What was said before this turn, oldest first.
    """

    __slots__ = ("_history", "_start", "_system", "_turn", "_weight", "_window")

    def __init__(
        self, window: Window | None, system: SystemMessage | None, history: Sequence[ChatMessage] = ()
    ) -> None:
        self._window = window
        self._system = () if system is None else (system,)
        self._history = history
        self._start = 0
        """Where in the history begins what is shown."""
        self._turn: list[ChatMessage] = []
        self._weight = 0 if window is None else window.weight(self._system) + window.weight(history)
        self._fit(cut=True)

    def add(self, *messages: ChatMessage) -> None:
        """Add messages to the running turn; what was said before it may have to go."""
        begins = not self._turn
        self._turn += messages
        if self._window is not None:
            self._weight += self._window.weight(messages)
            self._fit(cut=begins)

    @property
    def system_text(self) -> str | None:
        """What the system message says; None without one."""
        return self._system[0].text if self._system else None

    @property
    def turn(self) -> tuple[ChatMessage, ...]:
        """The running turn."""
        return tuple(self._turn)

    def messages(self) -> tuple[ChatMessage, ...]:
        """What the model is shown."""
        return (*self._system, *self._history[self._start :], *self._turn)

    def _fit(self, *, cut: bool) -> None:
        if self._window is None:
            return
        while self._start < len(self._history) and self._weight > self._window.limit:
            self._drop()
            cut = True
        while cut and self._begins_amiss():
            self._drop()

    def _begins_amiss(self) -> bool:
        """Whether what is left of the history begins with what only a user's message or a tool call explains."""
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
        """Drop the oldest message, and with a message of the model the results of its tool calls."""
        assert self._window is not None
        history, end = self._history, self._start + 1
        while end < len(history) and isinstance(history[end], ToolExecutionResultMessage):
            end += 1
        self._weight -= self._window.weight(history[self._start : end])
        self._start = end


def _one(_: ChatMessage) -> int:
    return 1


def _positive(limit: int) -> int:
    if limit < 1:
        raise DefinitionError(f"a window must admit at least 1, not {limit!r}")
    return limit


_DEFAULT_WINDOW = message_window(100)


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
            raise DefinitionError(f"the memory_provider gave {memory!r} for {memory_id!r}; it returns a ChatMemory")
        return memory


def _opened(store: str | Path) -> ChatMemoryStore:
    if isinstance(store, str) and is_redis_url(store):
        from bridge.service.persistent_stores import RedisStore  # noqa: PLC0415 - for those who keep conversations there

        return RedisStore(store)
    from bridge.service.persistent_stores import SqliteStore  # noqa: PLC0415 - for those who keep conversations

    return SqliteStore(store)
