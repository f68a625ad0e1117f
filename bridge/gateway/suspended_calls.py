"""Calls of servers that wait for an answer between two requests of their caller.

    started ──> attended ──> result
                 │    ↑
               asks   ╰─────────── retry
                 ├──> the caller answers during the call (before 2026-07-28)
                 ╰──> suspended ── time to live ──> cancelled

A server of a protocol version before 2026-07-28 asks while its tool runs; a caller of version 2026-07-28 answers only
with its next request. In between the call is suspended here, so that the tool does not run again.
"""

from __future__ import annotations

from contextlib import contextmanager
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

import anyio

from bridge.errors import ToolError
from bridge.portal import start_detached
from bridge.server.limits.shares import Shares
from bridge.tools.channel import Channel
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from bridge.tools.channel import ContentsStream, LogLevel
    from bridge.tools.questions import Answer, Question
    from bridge.types import Json

HELD_SECONDS = 300.0
"""Default maximum wait for a caller's answer, in seconds."""
MAX_HELD_CALLS = 100
"""Default maximum of suspended calls, shared among callers; each occupies its server."""
_RETRY_SECONDS = 10


class TooManySuspendedError(ToolError):
    """Too many calls are suspended, in total or for one caller.

    Attributes:
        retry_after_seconds: When there may be room.
    """

    def __init__(self, max_calls: int) -> None:
        super().__init__(
            "too many calls are waiting for answers: a caller may use the places that are left of "
            f"{max_calls}; answer one, or try again in {_RETRY_SECONDS} seconds"
        )
        self.retry_after_seconds = _RETRY_SECONDS


class PendingQuestions:
    """Questions of a call without an answer."""

    def __init__(self, questions: Mapping[str, Question]) -> None:
        self.questions = questions
        self.outcome: Mapping[str, Answer] | ToolError = ToolError("the question was not answered")
        self.settled = anyio.Event()
        self._asking: anyio.CancelScope | None = None

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Ask a caller in this block, which is cancelled if the questions are withdrawn."""
        with anyio.CancelScope() as self._asking:
            yield
        self._asking = None

    def withdraw(self) -> None:
        """Withdraw the questions; their answers are no longer needed."""
        self.settled.set()
        if self._asking is not None:
            self._asking.cancel()

    def settle(self, outcome: Mapping[str, Answer] | ToolError) -> None:
        """Continue the call with the answers, or with a refusal."""
        self.outcome = outcome
        self.settled.set()


class SuspendedCall:
    """A call of a server that can outlive the request that started it.

    Args:
        call: Makes the call with the given context.
        caller: Context of the request that starts it.

    Attributes:
        id: Identifier of the call in a state.
        attendant: Context of the request that currently waits for the call; None if there is none.
        account: Name under which the call counts towards limits; see `InvocationContext.account`.
    """

    def __init__(self, call: Callable[[InvocationContext], Awaitable[Json]], caller: InvocationContext) -> None:
        self.id = token_urlsafe(18)
        self.attendant: InvocationContext | None = caller
        self._call = call
        self._context = InvocationContext(
            memory_id=caller.memory_id,
            parameters=caller.parameters,
            caller=caller.caller,
            headers=caller.headers,
            client_capabilities=caller.client_capabilities,
            protocol_version=caller.protocol_version,
            meta=caller.meta,
            request_id=caller.request_id,
            channel=_Relay(self),
            invocation_id=caller.invocation_id,
            account=caller.account,
        )
        self.account = caller.account
        self._scope = anyio.CancelScope()
        self._pending: list[PendingQuestions] = []
        self._count = 0
        self._outcome: Json | Exception | None = None
        self._has_ended = False
        self._changed = anyio.Event()
        self._collected = anyio.Event()

    async def run(self) -> None:
        """Run the call, and keep its result until it is collected or the call is cancelled."""
        with self._scope:
            try:
                self._outcome = await self._call(self._context)
            except Exception as error:  # noqa: BLE001 - raised by collect()
                self._outcome = error
            self._end()
            await self._collected.wait()
        self._end()

    async def next_question(self) -> PendingQuestions | None:
        """Return the oldest unanswered questions; None once the call has ended."""
        while True:
            for pending in self._pending:  # may belong to another call of the same caller, and outlive this one
                if not pending.settled.is_set():
                    return pending
            if self._has_ended:
                return None
            await self._changed.wait()

    def collect(self) -> Json:
        """Return the result of the call.

        Raises:
            Exception: Raised by the call.
            ToolError: The call was cancelled.
        """
        self._collected.set()
        outcome = self._outcome
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None:
            raise ToolError("the call was cancelled: it is unknown whether it ran")
        self._outcome = {}  # a large result would stay until garbage is collected
        return outcome

    def cancel(self) -> None:
        """Cancel the call, also on its server."""
        self._scope.cancel()

    def expire_in(self, seconds: float) -> None:
        """Cancel the call after this time; infinite for never."""
        self._scope.deadline = anyio.current_time() + seconds

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        """Ask the server's questions and wait for the answers.

        Raises:
            ToolError: The questions were refused.
        """
        if self._collected.is_set():
            raise ToolError("the call has ended, and its caller can no longer be asked")
        keys = {}
        for key in questions:
            self._count += 1
            keys[key] = f"question-{self._count}"  # unique even if the server reuses a key
        pending = PendingQuestions({keys[key]: question for key, question in questions.items()})
        self._pending.append(pending)
        self._notify()
        try:
            await pending.settled.wait()
        finally:
            self._pending.remove(pending)
            pending.withdraw()
        if isinstance(pending.outcome, ToolError):
            raise pending.outcome
        return {key: pending.outcome[keys[key]] for key in questions}

    @property
    def is_over(self) -> bool:
        """True if the call has ended without a result or error."""
        return self._has_ended and self._outcome is None

    def _end(self) -> None:
        self._has_ended = True
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class _Relay(Channel):
    """Channel of a suspended call to the request that currently waits for it, if any."""

    def __init__(self, call: SuspendedCall) -> None:
        self._call = call

    @property
    def peer(self) -> object | None:
        return None if self._call.attendant is None else self._call.attendant.peer

    @property
    def wants_logs(self) -> bool:
        return self._call.attendant is not None and self._call.attendant.wants_logs

    @property
    def contents_stream(self) -> ContentsStream | None:
        return None if self._call.attendant is None else self._call.attendant.contents_stream

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self._call.attendant is not None:
            await self._call.attendant.progress(progress, total, message)

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        if self._call.attendant is not None:
            await self._call.attendant.log(level, data, logger)

    async def notify(self, method: str, params: Json) -> None:
        if self._call.attendant is not None:
            await self._call.attendant.notify(method, params)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        return await self._call.ask(questions)

    async def close_stream(self) -> None:
        if self._call.attendant is not None:
            await self._call.attendant.close_stream()


class SuspendedCalls:
    """The suspended calls of one process, each for a limited time, and of a limited number."""

    def __init__(self, *, held_seconds: float = HELD_SECONDS, max_held_calls: int = MAX_HELD_CALLS) -> None:
        self._process = token_urlsafe(9)
        self._held_seconds = held_seconds
        self._limit = Shares(max_held_calls)
        self._running: set[SuspendedCall] = set()
        self._waiting: dict[str, SuspendedCall] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, call: Callable[[InvocationContext], Awaitable[Json]], caller: InvocationContext) -> SuspendedCall:
        """Start a call on behalf of a caller."""
        suspended = SuspendedCall(call, caller)
        self._running.add(suspended)

        async def run() -> None:
            try:
                await suspended.run()
            finally:
                self._running.discard(suspended)
                self._remove(suspended.id)

        start_detached(run, "suspended call")
        return suspended

    def keep(self, held: SuspendedCall, *, beyond_limit: bool = False) -> Json:
        """Suspend a call until its caller's next request; return the state that identifies it.

        ``beyond_limit`` is True if the call was suspended before and keeps its place.

        Raises:
            TooManySuspendedError: Too many calls are suspended, in total or for this caller.
        """
        if not (beyond_limit or self._limit.has_room(held.account)):
            raise TooManySuspendedError(self._limit.places)
        self._limit.take(held.account)
        held.attendant = None
        held.expire_in(self._held_seconds)
        self._waiting[held.id] = held
        return {"held": held.id, "process": self._process}

    def resume(self, state: Mapping[str, Any], caller: InvocationContext) -> SuspendedCall:
        """Return the call that a state of `keep` identifies, on behalf of its caller.

        Raises:
            ToolError: The call started in another process, or waited too long. Its outcome is unknown.
        """
        held = self._remove(str(state.get("held")))
        if held is None or held.is_over:
            reason = (
                "waited too long, or was cancelled" if state.get("process") == self._process else "started elsewhere"
            )
            raise ToolError(
                f"the call that waited for this answer no longer exists: it {reason}. It is unknown whether it ran; "
                "it was not run again"
            )
        held.expire_in(float("inf"))
        held.attendant = caller
        return held

    def _remove(self, held_id: str) -> SuspendedCall | None:
        held = self._waiting.pop(held_id, None)
        if held is not None:
            self._limit.give_back(held.account)
        return held

    def cancel_all(self) -> None:
        """Cancel all calls."""
        for held in tuple(self._running):
            held.cancel()
