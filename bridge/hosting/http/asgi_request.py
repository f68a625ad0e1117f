"""A request that an ASGI app answers: its body as it arrives, and its response through a `Reply`."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Scope

    from bridge.hosting.http.reply import Reply

_logger = logging.getLogger("uvicorn.error")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Name of a header (RFC 9110 section 5.1)."""
_VALUE = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
"""Value of a header (RFC 9110 section 5.5)."""


class AsgiRequest:
    """A request, and the ASGI interface to it.

    Args:
        scope: Its ASGI scope.
        keeps_alive: True if further requests may follow.
    """

    is_complete = False
    """True once the whole request has arrived."""
    is_end_received = False
    """True once the app has received the end of the body."""
    buffered_bytes = 0
    """Bytes of the body that have arrived and the app has not received."""
    _reply: Reply
    _news: asyncio.Event | None = None

    def __init__(self, scope: Scope, *, keeps_alive: bool = True) -> None:
        self.scope = scope
        self.keeps_alive = keeps_alive
        self._has_received = False
        self._parts: list[bytes] = []

    def feed(self, part: bytes) -> None:
        """Add a part of the body."""
        self._parts.append(part)
        self.buffered_bytes += len(part)
        self._wake()

    def complete(self) -> None:
        """Note that the request is complete."""
        self.is_complete = True
        self._wake()

    @property
    def body(self) -> bytes:
        """The body, as far as it has arrived and was not received."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    async def run(self, app: ASGIApp, reply: Reply) -> None:
        """Have the app answer the request; a response that it does not complete is an error."""
        self._reply = reply
        reply.on_close = self._wake
        try:
            await app(self.scope, self.receive, self.send)
        except BaseException:  # also if the app has cancelled the task
            _logger.exception("Exception in ASGI application\n")
            self._fail()
        else:
            if reply.is_open:
                moment = "completing" if reply.has_begun else "starting"
                _logger.error("ASGI callable returned without %s response.", moment)
                self._fail()
        finally:
            reply.on_close = None

    def _fail(self) -> None:
        if self._reply.has_begun:
            self._reply.close()
        else:
            body = b"Internal Server Error"
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
            self._reply.begin(500, [*headers, (b"connection", b"close")])
            self._reply.end(body)

    async def receive(self) -> Message:
        """Receive a part of the body, or the end of the connection or of the response."""
        reply = self._reply
        if not self._has_received:
            self._has_received = True
            if not (self._parts or self.is_complete or reply.has_begun) and self._expects_continue():
                reply.send_continue()
        reply.resume_reading()
        while reply.is_open and not self._parts and (self.is_end_received or not self.is_complete):
            if self._news is None:
                self._news = asyncio.Event()
            self._news.clear()
            await self._news.wait()
        if not reply.is_open:
            return {"type": "http.disconnect"}
        body, self._parts, self.buffered_bytes = self.body, [], 0
        self.is_end_received = self.is_complete
        return {"type": "http.request", "body": body, "more_body": not self.is_complete}

    async def send(self, message: Message) -> None:
        """Send the beginning or a part of the response; dropped after the client has gone.

        Raises:
            RuntimeError: Another message is due, a header is not valid, or the body does not have its length.
        """
        reply, kind = self._reply, message["type"]
        if reply.is_complete:
            raise RuntimeError(f"the app sent {kind!r} after its response")
        if not reply.is_open:
            return
        if not reply.has_begun:
            if kind != "http.response.start":
                raise RuntimeError(f"the app sent {kind!r} before 'http.response.start'")
            reply.begin(message["status"], _checked(message.get("headers", ())))
            return
        if kind != "http.response.body":
            raise RuntimeError(f"the app sent {kind!r} instead of 'http.response.body'")
        if message.get("more_body", False):
            await reply.write(message.get("body", b""))
        else:
            reply.end(message.get("body", b""))
            self._wake()

    def _expects_continue(self) -> bool:
        """True if the client waits for the status 100 before it sends the body (RFC 9110 section 10.1.1)."""
        headers = self.scope["headers"]
        return any(name == b"expect" and value.lower() == b"100-continue" for name, value in headers)

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()


def _checked(headers: object) -> list[tuple[bytes, bytes]]:
    """Check headers, which might otherwise end the head (RFC 9112 section 11.1).

    Raises:
        RuntimeError: A header is not valid.
    """
    found: list[tuple[bytes, bytes]] = [(bytes(name), bytes(value)) for name, value in headers]  # type: ignore[attr-defined]
    for name, value in found:
        if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            raise RuntimeError(f"the header {name!r} is not valid")
    return found
