"""Approval: somebody says yes or no before a tool runs, at once or later.

    async def ask_the_clerk(request, tool, context) -> Decision:
        ...

    service = ai_service(Desk, chat_model=model, tools=[Bookings()], approval=ApprovalPolicy(approve=ask_the_clerk))

What is approved is a call: one tool with these arguments. Should a handler of errors correct the call afterwards, the
corrected one is refused, since nobody has approved it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from bridge.errors import ArgumentsError, ToolError
from bridge.tools.arguments import parse_arguments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool, ToolExecutionRequest, ToolExecutionResult, ToolExecutor

_DENIED = "the call was not approved"


class Verdict(Enum):
    """Whether a call may run."""

    YES = "yes"
    NO = "no"
    LATER = "later"
    """Whoever decides has not decided yet: the invocation is suspended."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about a call: ``Decision.yes()``, ``.no("not before noon")`` or ``.later()``."""

    verdict: Verdict
    words: str = _DENIED
    """What the model reads instead of a result, where the answer is no."""

    @classmethod
    def yes(cls) -> Decision:
        """The call may run."""
        return cls(Verdict.YES)

    @classmethod
    def no(cls, words: str = _DENIED) -> Decision:
        """The call may not run; the model reads the words and goes on."""
        return cls(Verdict.NO, words)

    @classmethod
    def later(cls) -> Decision:
        """The invocation is suspended until somebody has decided."""
        return cls(Verdict.LATER)


Approver = Callable[
    ["ToolExecutionRequest", "Tool", "InvocationContext"], "Decision | bool | Awaitable[Decision | bool]"
]
"""Decides about a call; gets the request with its arguments as a mapping, the tool and the context."""


def unless_read_only(tool: Tool) -> bool:
    """True for a tool whose calls need approval: it is not read-only by annotations that may be relied on.

    The annotations of a remote tool count only where its server is marked as trusted.
    """
    return tool.trusted_annotations.read_only is not True


def for_tools(*names: str) -> Callable[[Tool], bool]:
    """Approval is needed for the tools of these names."""
    return lambda tool: tool.name in names


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalPolicy:
    """Which calls need approval, and who gives it."""

    approve: Approver
    applies: Callable[[Tool], bool] = unless_read_only
    """Says of a tool whether its calls need approval."""

    async def decide(self, request: ToolExecutionRequest, tool: Tool, context: InvocationContext) -> Decision | None:
        """What is decided about a call; None where it needs no approval, or cannot run anyway."""
        if not self.applies(tool) or (parsed := with_mapping(request)) is None:
            return None
        answer = self.approve(parsed, tool, context)
        decision = await answer if inspect.isawaitable(answer) else answer
        if isinstance(decision, bool):
            return Decision.yes() if decision else Decision.no()
        return decision

    def guarded(self, tool: Tool) -> Tool:
        """The tool, running no call but an approved one."""
        return replace(tool, executor=_Gate(tool.executor)) if self.applies(tool) else tool


_approved: ContextVar[ToolExecutionRequest | None] = ContextVar("approved", default=None)


@contextmanager
def approved(request: ToolExecutionRequest) -> Iterator[None]:
    """Let one call pass."""
    token = _approved.set(with_mapping(request))
    try:
        yield
    finally:
        _approved.reset(token)


class _Gate:
    """Runs an approved call."""

    __slots__ = ("_executor",)

    def __init__(self, executor: ToolExecutor) -> None:
        self._executor = executor

    async def execute(self, request: ToolExecutionRequest, context: InvocationContext) -> ToolExecutionResult:
        known = _approved.get()
        if known is None or (known.name, known.arguments) != (request.name, request.arguments):
            raise ToolError(f"this call of {request.name!r} was not approved; call the tool again")
        return await self._executor.execute(request, context)


def with_mapping(request: ToolExecutionRequest) -> ToolExecutionRequest | None:
    """The request with its arguments as a mapping; None where they cannot be read."""
    if not isinstance(request.arguments, str):
        return request
    try:
        return replace(request, arguments=parse_arguments(request.name, request.arguments))
    except ArgumentsError:
        return None
