"""Open streams: answers that go on until somebody ends them, and what ends them when the server shuts down."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from anyio import Event, create_task_group

from bridge.server.auth.identity import ending_with_credential

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from bridge.server.http.sessions import Session


class Streams:
    """The streams of one app that no request of the client will end.

    Args:
        end_with_credentials: Whether each is also ended when the credential that opened it holds no more.
    """

    def __init__(self, *, end_with_credentials: bool = False) -> None:
        self._end_with_credentials = end_with_credentials
        self._open: set[Event] = set()

    async def run(
        self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, session: Session | None = None
    ) -> None:
        """Answer by ``app``, until it is done or the streams are ended.

        An app whose stream is ended hears that its client has gone, because that is an end which every app is prepared
        for; the client sees the stream closed in order.

        Args:
            app: What answers.
            scope: The request.
            receive: Gives its body, and its end.
            send: Takes the answer.
            session: The session that is this stream, and ends with it; None where there is none.
        """
        ended, is_unfinished = Event(), False
        if session is not None:
            session.end = ended.set

        async def watch(message: Message) -> None:
            nonlocal is_unfinished
            is_unfinished = message["type"] == "http.response.start" or message.get("more_body", False)
            await send(message)

        self._open.add(ended)
        try:
            with ending_with_credential(ended.set) if self._end_with_credentials else nullcontext():
                await app(scope, lambda: _received(receive, ended), watch)
        finally:
            self._open.discard(ended)
        if is_unfinished:  # sse-starlette ends its streams itself, in the middle, when it sees uvicorn take a signal
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def end(self) -> None:
        """End all that are open."""
        for stream in tuple(self._open):
            stream.set()

    def __len__(self) -> int:
        return len(self._open)


async def _received(receive: Receive, ended: Event) -> Message:
    message: Message = {"type": "http.disconnect"}
    async with create_task_group() as group:

        async def stop() -> None:
            await ended.wait()
            group.cancel_scope.cancel()

        group.start_soon(stop)
        message = await receive()
        group.cancel_scope.cancel()
    return message
