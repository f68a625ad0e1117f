"""Window: how much of a conversation a model is shown.

LangChain4j's MessageWindowChatMemory and TokenWindowChatMemory. What is oldest goes first, in units: a message with
tool calls goes with all their results. The system message always stays, and stays first. What is left begins with a
user's message, as most providers want it. The turn that is running is never cut: a model that lost the question in the
middle of its work could not finish it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from bridge.errors import DefinitionError
from bridge.service.messages import SystemMessage, ToolExecutionResultMessage, UserMessage
from bridge.service.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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

    __slots__ = ("_history", "_system", "_turn", "_units", "_weight", "_window")

    def __init__(
        self, window: Window | None, system: SystemMessage | None, history: Sequence[ChatMessage] = ()
    ) -> None:
        self._window = window
        self._system = () if system is None else (system,)
        self._turn: list[ChatMessage] = []
        self._units = deque(_units(history))
        self._weight = 0 if window is None else sum(map(window.weigh, chain(self._system, history)))
        self._history: tuple[ChatMessage, ...] = ()
        self._fit(cut=True)

    def add(self, *messages: ChatMessage) -> None:
        """Add messages to the running turn; what was said before it may have to go."""
        begins = not self._turn
        self._turn += messages
        if self._window is not None:
            self._weight += sum(map(self._window.weigh, messages))
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
        return (*self._system, *self._history, *self._turn)

    def _fit(self, *, cut: bool = False) -> None:
        units, window = self._units, self._window
        if window is not None:
            while units and self._weight > window.limit:
                self._drop()
                cut = True
        if cut:
            while units and not _is_users(units[0]) and (self._turn or any(map(_is_users, units))):
                self._drop()
            if units and isinstance(units[0][0], ToolExecutionResultMessage):
                self._drop()
            self._history = tuple(chain.from_iterable(units))

    def _drop(self) -> None:
        unit = self._units.popleft()
        if self._window is not None:
            self._weight -= sum(map(self._window.weigh, unit))


def _units(messages: Iterable[ChatMessage]) -> list[list[ChatMessage]]:
    """Messages that come and go together: a message of the model with the results of its tool calls."""
    units: list[list[ChatMessage]] = []
    for message in messages:
        if isinstance(message, ToolExecutionResultMessage) and units:
            units[-1].append(message)
        else:
            units.append([message])
    return units


def _is_users(unit: list[ChatMessage]) -> bool:
    return isinstance(unit[0], UserMessage)


def _one(_: ChatMessage) -> int:
    return 1


def _positive(limit: int) -> int:
    if limit < 1:
        raise DefinitionError(f"a window must admit at least 1, not {limit!r}")
    return limit
