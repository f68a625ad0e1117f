"""Channel of a call on the fast path, which passes the request to the SDK's server when the call needs its client.

    call ─┬─> bytes                                   no message to the client
          ╰─> FastChannel ─> the SDK's server ─> …    progress, a log message or a question

A call runs on the fast path until it first sends something to its client. Then the SDK's server takes over the request,
with its streams, questions and cancellation. Its handler does not run the tool again, but gives the running call a
channel, and waits for its result. This module does not import the SDK.
"""

from __future__ import annotations

import asyncio
from math import isfinite
from typing import TYPE_CHECKING, Any

from anyio import CancelScope
from pydantic_core import to_json

from bridge.errors import ToolError
from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import REQUEST_CANCELLED
from bridge.tools.channel import LOG_LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.server.contents_stream import ResponseContents
    from bridge.tools.channel import Channel, LogLevel
    from bridge.tools.questions import Answer, InputRequired, Question
    from bridge.types import Json


class FastChannel:
    """Channel of one call; on asyncio.

    Args:
        wants_progress: True if the client sent a token for progress.
        wants_logs: True if the client may want log messages.
        peer: Identifies the client across its calls; None if it is unknown.
    """

    __slots__ = (
        "_hand_over",
        "_is_closed",
        "_outcome",
        "_progress",
        "_remote",
        "_task",
        "_wants_progress",
        "contents_stream",
        "is_handed_over",
        "peer",
        "wants_logs",
    )

    def __init__(
        self,
        *,
        wants_progress: bool,
        wants_logs: bool,
        peer: object = None,
    ) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._hand_over: Callable[[], None] | None = None
        self._wants_progress = wants_progress
        self.wants_logs = wants_logs
        """True if the client may want log messages."""
        self.peer = peer
        """Identifies the client across its calls; None if it is unknown."""
        self.contents_stream: ResponseContents | None = None
        """Way of large contents to the client; None if they are sent whole."""
        self.is_handed_over = False
        """True once the SDK's server has the request."""
        self._is_closed = False
        self._progress = float("-inf")
        self._remote: asyncio.Future[Channel]
        self._outcome: asyncio.Future[Json | ProtocolError | InputRequired]

    # --- in the call -------------------------------------------------------------------------------------------------

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send progress, if the client asked for it; values that do not increase are dropped (the protocol's rule)."""
        if not self._is_closed and isfinite(progress) and progress > self._progress:
            self._progress = progress
            if message is not None:
                to_json(message)  # raises for a lone surrogate, even if nothing is sent
            if self._wants_progress:
                await (await self._given()).progress(progress, total, message)

    async def log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        """Send a log message, if the client wants log messages."""
        LOG_LEVELS.index(level)  # raises for an unknown level, even if nothing is sent
        if self.wants_logs and not self._is_closed:
            await (await self._given()).log(level, data, logger)

    async def ask(self, questions: Mapping[str, Question]) -> Mapping[str, Answer]:
        """Ask the client; in the modern era the SDK's server answers with the questions, and the call ends here.

        Raises:
            InputRequired: The answers come with the next round.
            ToolError: The call has ended, or the client cannot be asked.
        """
        if self._is_closed:
            raise ToolError("the call has ended, and its client cannot be asked any more")
        return await (await self._given()).ask(questions)

    async def close_stream(self) -> None:
        """Close the stream of the call, which the SDK's server opens first."""
        if not self._is_closed and (close := getattr(await self._given(), "close_stream", None)) is not None:
            await close()

    async def _given(self) -> Channel:
        """Return the channel of the SDK's handler, once it has the request."""
        self.hand_over()
        return await asyncio.shield(self._remote)  # a subtask of the tool that is cancelled cancels no other

    def hand_over(self) -> None:
        """Pass the request to the SDK's server, once; as soon as the call is attached to a task."""
        if not (self.is_handed_over or self._is_closed):
            self.is_handed_over = True
            loop = asyncio.get_running_loop()
            self._remote, self._outcome = loop.create_future(), loop.create_future()
            if self._hand_over is not None:
                self._hand_over()

    # --- in the task of the call ---------------------------------------------------------------------------------

    def attach(self, task: asyncio.Task[Any], hand_over: Callable[[], None]) -> None:
        """Set the task that runs a call which may wait from now on; it may have talked before.

        Args:
            task: The task.
            hand_over: Passes the request to the SDK's server, whose handler calls `outcome`.
        """
        self._task, self._hand_over = task, hand_over
        if self.is_handed_over:
            hand_over()

    def settle(self, outcome: Json | ProtocolError | InputRequired) -> None:
        """Pass the result of the call, or its error, to the SDK's handler."""
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    def close_unused(self) -> bool:
        """Close the channel, unless the SDK's server has the request, or the call has ended; returns whether it did."""
        if self.is_handed_over or self._is_closed:
            return False
        self.close()
        return True

    def end(self) -> None:
        """Close the channel at the end of its call."""
        self.close()
        if self.contents_stream is not None:
            self.contents_stream.end()

    def close(self) -> None:
        """Drop further messages, because the call has ended."""
        self._is_closed = True
        self._hand_over = None  # it refers to the call, which refers to this channel
        if self.is_handed_over:
            self._outcome.cancel()  # without effect once it is settled
        else:  # else the task, and with it a large response, would stay until garbage is collected
            self._task = None

    # --- in the SDK's handler ----------------------------------------------------------------------------------------

    async def outcome(self, remote: Channel) -> Json:
        """Give the call the SDK's channel, and wait for its result; a cancellation also cancels the call.

        Raises:
            ProtocolError: The call failed.
            InputRequired: The call asks its client a question.
        """
        if not self._remote.done():
            self._remote.set_result(remote)
        try:
            await asyncio.wait([self._outcome])
        except asyncio.CancelledError:
            assert self._task is not None, "it was attached"
            self._task.cancel()
            with CancelScope(shield=True):
                await asyncio.wait([self._task])
            raise
        if self._outcome.cancelled():
            raise ProtocolError(REQUEST_CANCELLED, "Request cancelled")
        outcome = self._outcome.result()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def abandon(self) -> None:
        """Cancel the call if the SDK has answered its request without waiting for it."""
        if not self._remote.done():
            assert self._task is not None, "it was attached"
            self._remote.cancel()
            self._task.cancel()
