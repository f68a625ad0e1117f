"""Run blocking botocore calls of one request in a thread.

botocore has no public way to abort a request before its response starts. A cancelled caller returns immediately; the
daemon thread ends when the response starts or the client's timeout expires, and does not retry.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio
from anyio import lowlevel

from bridge.portal import call_soon

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.types import Json

_T = TypeVar("_T")
_BEFORE_SEND = "before-send.bedrock-runtime"
_BEFORE_PARSE = "before-parse.bedrock-runtime.ConverseStream"


class RequestAbandonedError(Exception):
    """The request was cancelled; raised in the worker thread only."""


class BlockingRequest:
    """Worker thread for the blocking calls of one request, used as a context manager."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._body: Any = None
        self._is_over = False
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def __enter__(self) -> Self:
        # anyio's worker threads would delay the exit of the process.
        Thread(target=self._work, name="bridge bedrock", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.put(None)
        self._close_stream()

    async def run(self, function: Callable[[], _T]) -> _T:
        """Run a blocking function in the thread; on cancellation this returns immediately."""
        token, is_done, future = lowlevel.current_token(), anyio.Event(), Future[_T]()

        def job() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - raised in run()
                future.set_exception(error)
            with suppress(RuntimeError):  # the event loop has ended
                call_soon(token, is_done.set)

        context = copy_context()
        context.run(_line.set, self)
        self._jobs.put(partial(context.run, job))
        await is_done.wait()
        return future.result()

    def keep(self, body: Any) -> None:
        """Store a streamed response's body; it is closed immediately if the request was cancelled."""
        with self._lock:
            self._body = body
            if not self._is_over:
                return
        self._close_stream()

    def refuse_if_over(self) -> None:
        """Prevent botocore's retries after a cancellation, with a `RequestAbandonedError`."""
        if self._is_over:
            raise RequestAbandonedError

    def _work(self) -> None:
        for job in iter(self._jobs.get, None):
            job()

    def _close_stream(self) -> None:
        """Close the provider's stream, which ends a blocking read."""
        with self._lock:
            self._is_over = True
            body, self._body = self._body, None
        if body is None:
            return
        with suppress(OSError, RuntimeError, ValueError):  # already closed
            body.shutdown()
        with suppress(OSError):
            body.close()


_line: ContextVar[BlockingRequest | None] = ContextVar("bridge.models.bedrock.model.line", default=None)
"""The request that the current context belongs to."""


def watch(client: Any) -> None:
    """Register botocore event handlers that connect a client's calls to their `BlockingRequest`."""
    client.meta.events.register(_BEFORE_SEND, _before_send, unique_id=_BEFORE_SEND)
    client.meta.events.register(_BEFORE_PARSE, _before_parse, unique_id=_BEFORE_PARSE)


def _before_send(**_: Any) -> None:
    request = _line.get()
    if request is not None:
        request.refuse_if_over()


def _before_parse(response_dict: Json, **_: Any) -> None:
    request = _line.get()
    if request is not None and hasattr(response_dict["body"], "shutdown"):  # the body of an error is bytes
        request.keep(response_dict["body"])
