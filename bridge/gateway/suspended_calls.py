"""Holding: calls of servers that wait for an answer while the request that began them has ended with the question.

    begun ──> attended ──> result
               │    ↑
             asks   ╰─────────── retry
               ├──> the caller answers in place (handshake era)
               ╰──> waiting ──── time to live ──> cancelled and forgotten

A server of the handshake era asks while its tool runs, and a caller of the modern era answers only in its next request:
between the two the call is held here. It is never run again in order to ask.
"""

from __future__ import annotations

from contextlib import contextmanager
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

import anyio

from bridge.errors import ToolError
from bridge.portal import start_detached
from bridge.server.limits.shares import Shares
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from bridge.tools.context import LogLevel
    from bridge.tools.questions import Answer, Question
    from bridge.types import Json

HELD_SECONDS = 300.0
"""How long a call waits for its caller's answer."""

MAX_HELD_CALLS = 100
"""How many calls may wait at once, of which a caller has its share: each keeps a server busy."""
_RETRY_SECONDS = 10


class PendingQuestions:
    """Questions of a call that wait for an answer.

    Args:
        questions: The questions, each under a key of its own within the call.
    """

    def __init__(self, questions: Mapping[str, Question]) -> None:
        self.questions = questions
        self.answers: Mapping[str, Answer] | None = None
        self.refusal: str | None = None
        self.settled = anyio.Event()
        self._asking: anyio.CancelScope | None = None

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Put them to a caller in this block, which ends at once when they are withdrawn."""
        with anyio.CancelScope() as self._asking:
            yield
        self._asking = None

    def withdraw(self) -> None:
        """Nobody waits for the answers any more."""
        self.settled.set()
        if self._asking is not None:
            self._asking.cancel()

    def answer(self, answers: Mapping[str, Answer]) -> None:
        """Let the call go on."""
        self.answers = answers
        self.settled.set()

    def refuse(self, reason: str) -> None:
        """Let the call go on without an answer."""
        self.refusal = reason
        self.settled.set()


class SuspendedCall:
    """One call of a server, which can outlive the request that began it.

    Args:
        call: Makes the call, with the context that it gets.
        caller: The context of the request that begins it.

    Attributes:
        id: What names it in a state.
        attendant: The context of the request that waits for it just now; None while none does.
        account: Whose call it is, as `InvocationContext.account` says it.
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
            meta=caller.meta,
            channel=_Relay(self),
            invocation_id=caller.invocation_id,
            account=caller.account,
        )
        self.account = caller.account
        self._scope = anyio.CancelScope()
        self._asked: list[PendingQuestions] = []
        self._count = 0
        self._result: Json | None = None
        self._error: Exception | None = None
        self._has_ended = False
        self._news = anyio.Event()
        self._collected = anyio.Event()

    async def run(self) -> None:
        """Make the call, and keep what comes of it until somebody has it, or nobody wants it any more."""
        with self._scope:
            try:
                self._result = await self._call(self._context)
            except Exception as error:  # noqa: BLE001 - raised again where the result is collected
                self._error = error
            self._end()
            await self._collected.wait()
        self._end()

    async def next_question(self) -> PendingQuestions | None:
        """What waits for an answer, the oldest first; None once the call has ended."""
        while True:
            for asked in self._asked:  # which may be of another call of the same caller's, and outlive this one
                if not asked.settled.is_set():
                    return asked
            if self._has_ended:
                return None
            await self._news.wait()

    def collect(self) -> Json:
        """What came of the call.

        Raises:
            Exception: What it raised.
            ToolError: It was cancelled.
        """
        self._collected.set()
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise ToolError("the call was cancelled: whether it ran is unknown")
        return self._result

    def cancel(self) -> None:
        """End the call, at its server too."""
        self._scope.cancel()

    def expire_in(self, seconds: float) -> None:
        """Have the call cancelled after so long; infinite for never."""
        self._scope.deadline = anyio.current_time() + seconds

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        """Put questions of the server, and wait.

        Raises:
            ToolError: They are refused.
        """
        if self._collected.is_set():
            raise ToolError("the call has ended, and its caller cannot be asked any more")
        keys = {}
        for key in questions:
            self._count += 1
            keys[key] = f"question-{self._count}"  # a server may use a key again, and means another question then
        asked = PendingQuestions({keys[key]: question for key, question in questions.items()})
        self._asked.append(asked)
        self._tell()
        try:
            await asked.settled.wait()
        finally:
            self._asked.remove(asked)
            asked.withdraw()
        if asked.answers is None:
            raise ToolError(asked.refusal or "it was not answered")
        return {key: asked.answers[keys[key]] for key in questions}

    @property
    def is_over(self) -> bool:
        """Whether nothing will come of it any more."""
        return self._has_ended and self._result is None and self._error is None

    def _end(self) -> None:
        self._has_ended = True
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()


class _Relay:
    """The channel of a held call: to whoever attends it; nowhere while nobody does."""

    def __init__(self, held: SuspendedCall) -> None:
        self._held = held

    @property
    def peer(self) -> object | None:
        return None if self._held.attendant is None else self._held.attendant.peer

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self._held.attendant is not None:
            await self._held.attendant.progress(progress, total, message)

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        if self._held.attendant is not None:
            await self._held.attendant.log(level, data, logger)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        return await self._held.ask(questions)


class SuspendedCalls:
    """The held calls of one process.

    Args:
        held_seconds: How long a call waits for its caller.
        max_held_calls: How many may wait at once.
    """

    def __init__(self, *, held_seconds: float = HELD_SECONDS, max_held_calls: int = MAX_HELD_CALLS) -> None:
        self._process = token_urlsafe(9)
        self._held_seconds = held_seconds
        self._places = Shares(max_held_calls)
        self._running: set[SuspendedCall] = set()
        self._waiting: dict[str, SuspendedCall] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, call: Callable[[InvocationContext], Awaitable[Json]], caller: InvocationContext) -> SuspendedCall:
        """Begin a call, attended by its caller.

        Args:
            call: Makes the call.
            caller: The context of the request.
        """
        held = SuspendedCall(call, caller)
        self._running.add(held)

        async def run() -> None:
            try:
                await held.run()
            finally:
                self._running.discard(held)
                self._leave(held.id)

        start_detached(run, "held call")
        return held

    def keep(self, held: SuspendedCall, *, beyond_limit: bool = False) -> Json:
        """Let a call wait for its caller's next request; returns the state that names it.

        Args:
            held: The call.
            beyond_limit: It waited already, and has a place.

        Raises:
            ToolError: Too many wait, of all callers or of this one.
        """
        if not (beyond_limit or self._places.has_room(held.account)):
            raise ToolError(
                "too many calls wait for answers already: a caller has as many as places are left of "
                f"{self._places.places}; answer one, or try again in {_RETRY_SECONDS} seconds"
            )
        self._places.take(held.account)
        held.attendant = None
        held.expire_in(self._held_seconds)
        self._waiting[held.id] = held
        return {"held": held.id, "process": self._process}

    def resume(self, state: Mapping[str, Any], caller: InvocationContext) -> SuspendedCall:
        """The call that a state names, attended by its caller again.

        Args:
            state: What `keep` gave.
            caller: The context of the request that goes on with it.

        Raises:
            ToolError: It is not here: it began in another process, or waited too long. Its outcome is unknown.
        """
        held = self._leave(str(state.get("held")))
        if held is None or held.is_over:
            why = "waited too long, or was cancelled" if state.get("process") == self._process else "began elsewhere"
            raise ToolError(
                f"the call that waited for this answer is not here any more: it {why}. Whether it ran is unknown; "
                "it was not run again"
            )
        held.expire_in(float("inf"))
        held.attendant = caller
        return held

    def _leave(self, held_id: str) -> SuspendedCall | None:
        held = self._waiting.pop(held_id, None)
        if held is not None:
            self._places.give_back(held.account)
        return held

    def cancel_all(self) -> None:
        """End every call."""
        for held in tuple(self._running):
            held.cancel()
