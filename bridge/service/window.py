"""Window: how much of a conversation a model is shown.

LangChain4j's MessageWindowChatMemory and TokenWindowChatMemory. What is oldest goes first, in units: a message with
tool calls goes with all their results. The system message always stays, and stays first. What is left begins with a
user's message, as most providers want it. The turn that is running is never cut: a model that lost the question in the
middle of its work could not finish it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.errors import DefinitionError
from bridge.service.messages import SystemMessage, ToolExecutionResultMessage, UserMessage
from bridge.service.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.service.messages import ChatMessage
    from bridge.service.tokens import TokenEstimator

_MAX_PAGE_MESSAGES = 200
_TOKENS_PER_MESSAGE = 100
"""For how many messages to read at once; a wrong guess costs a read."""


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
