"""Line: one request to Bedrock, and the thread that waits for its answer, since botocore blocks.

Nothing public of botocore ends a request that waits for its answer to begin. Whoever leaves then is let go at once; the
thread stays until the answer begins or the client's time is up, sends nothing again, and keeps no process from ending.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio
from anyio import from_thread, lowlevel

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from bridge.types import Json

_T = TypeVar("_T")

_BEFORE_SEND = "before-send.bedrock-runtime"
_BEFORE_PARSE = "before-parse.bedrock-runtime.ConverseStream"


class RequestAbandonedError(Exception):
    """Nobody waits for the answer any more; heard by nobody."""


@dataclass(slots=True)
class _Job:
    function: Callable[[], Any]
    context: Context
    token: lowlevel.EventLoopToken
    is_done: anyio.Event = field(default_factory=anyio.Event)
    value: Any = None
    error: BaseException | None = None


class BlockingRequest:
    """One request: what is done for it in a thread of its own, until the block is left, by whatever way."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._body: Any = None
        self._is_over = False
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()

    def __enter__(self) -> Self:
        # The threads of anyio would keep the process from ending.
        Thread(target=self._work, name="bridge bedrock", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.put(None)
        self._hang_up()

    async def run(self, function: Callable[[], _T]) -> _T:
        """Run what blocks. A cancelled caller leaves at once."""
        job = _Job(function, copy_context(), lowlevel.current_token())
        job.context.run(_line.set, self)
        self._jobs.put(job)
        await job.is_done.wait()
        if job.error is not None:
            raise job.error
        value: _T = job.value
        return value

    def keep(self, body: Any) -> None:
        """A streamed response has begun; it ends at once where nobody waits any more."""
        with self._lock:
            self._body = body
            if not self._is_over:
                return
        self._hang_up()

    def refuse_if_over(self) -> None:
        """Send nothing for nobody: botocore tries again what failed.

        Raises:
            RequestAbandonedError: Nobody waits any more.
        """
        if self._is_over:
            raise RequestAbandonedError

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.value = job.context.run(job.function)
            except BaseException as error:  # noqa: BLE001 - raised to whoever waits
                job.error = error
            with suppress(RuntimeError):  # the event loop has ended
                from_thread.run_sync(job.is_done.set, token=job.token)

    def _hang_up(self) -> None:
        """End the provider's stream, waking the thread that may still read from it."""
        with self._lock:
            self._is_over = True
            body, self._body = self._body, None
        if body is None:
            return
        with suppress(OSError, RuntimeError, ValueError):  # it has ended by itself
            body.shutdown()
        with suppress(OSError):
            body.close()


_line: ContextVar[BlockingRequest | None] = ContextVar("bridge.models.bedrock.line", default=None)
"""Whose request the call in this context is."""


def watch(client: Any) -> None:
    """Let the lines of a client know what happens to their requests, by botocore's events."""
    client.meta.events.register(_BEFORE_SEND, _before_send, unique_id=_BEFORE_SEND)
    client.meta.events.register(_BEFORE_PARSE, _before_parse, unique_id=_BEFORE_PARSE)


def _before_send(**_: Any) -> None:
    line = _line.get()
    if line is not None:
        line.refuse_if_over()


def _before_parse(response_dict: Json, **_: Any) -> None:
    line = _line.get()
    if line is not None and hasattr(response_dict["body"], "shutdown"):  # an error's body is bytes
        line.keep(response_dict["body"])
