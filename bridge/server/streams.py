"""Open streams: answers that go on until somebody ends them, and what ends them when the server shuts down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import CancelScope

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Streams:
    """The streams of one app that no request of the client will end."""

    def __init__(self) -> None:
        self._open: set[CancelScope] = set()

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by ``app``, until it is done or the streams are ended; a stream that is cut off is closed in order."""
        is_unfinished = False

        async def watch(message: Message) -> None:
            nonlocal is_unfinished
            is_unfinished = message["type"] == "http.response.start" or message.get("more_body", False)
            await send(message)

        with CancelScope() as until_ended:
            self._open.add(until_ended)
            try:
                await app(scope, receive, watch)
            finally:
                self._open.discard(until_ended)
        if until_ended.cancelled_caught and is_unfinished:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def end(self) -> None:
        """End all that are open."""
        for stream in tuple(self._open):
            stream.cancel()

    def __len__(self) -> int:
        return len(self._open)
