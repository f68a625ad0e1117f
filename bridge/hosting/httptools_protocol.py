"""httptools protocol with the pre-ASGI fast path.

The direct protocol: uvicorn's own for httptools, which asks first whether a request can be answered without ASGI.

A request that came whole is offered to `bridge.server.http.guards.PreAsgiHandler` before uvicorn makes its task, its
events and its messages. What that does not take goes on as if nobody had looked.

uvicorn's protocol for httptools, which ignores offers to upgrade a connection and refuses CONNECT.

httptools stops behind the head of such a request. uvicorn then takes the request for one without a body, and the body
for the next request.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from bridge.server.http.responses import CONTENT_TYPE, PlainResponse

if TYPE_CHECKING:
    import asyncio
    from array import array

    from starlette.types import Scope

    from bridge.hosting.protocols import CoalescingTransport
    from bridge.server.http.guards import PreAsgiHandler
    from bridge.server.http.responses import PendingCall

_KEPT_HEADS = 64

_FAILED = PlainResponse(
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"the server\'s log says why"}}', 500
)

Header = tuple[bytes, bytes]


class PlainHttpToolsProtocol(HttpToolsProtocol):
    """One connection, which never becomes one of another protocol (RFC 9110, section 7.8)."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.parser = PlainParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as in uvicorn

    def on_headers_complete(self) -> None:
        """Begin a request, unless its head is parsed again without the offer.

        Raises:
            HttpParserError: The method is CONNECT (RFC 9110, section 9.3.6), which is answered with 400.
        """
        if not self.parser.should_upgrade():
            super().on_headers_complete()
        elif self.parser.get_method() == b"CONNECT":
            raise httptools.HttpParserError("CONNECT is not supported")

    def on_message_complete(self) -> None:
        """End a request that was begun."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def head_without_upgrade(self) -> bytes:
        """The head of the request that was parsed last, without the offer."""
        first = b"%b %b HTTP/%b\r\n" % (
            self.parser.get_method(),
            self.url,
            self.parser.get_http_version().encode("ascii"),
        )
        headers = [b"%b: %b\r\n" % header for header in self.scope["headers"] if header[0] != b"upgrade"]
        return b"%b%b\r\n" % (first, b"".join(headers))


class PlainParser(httptools.HttpRequestParser):
    """A parser that parses the head of a request that offers an upgrade twice, the second time without the offer.

    Args:
        protocol: Receives what was parsed.
    """

    def __init__(self, protocol: PlainHttpToolsProtocol) -> None:
        super().__init__(protocol)
        self._protocol = protocol

    def feed_data(self, data: bytes | bytearray | memoryview | array[int]) -> None:
        """As in httptools, but without HttpParserUpgrade."""
        while True:
            try:
                super().feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                super().feed_data(self._protocol.head_without_upgrade())
                data = memoryview(data)[upgrade.args[0] :]
            else:
                return


def httptools_protocol(direct: PreAsgiHandler | None) -> type[PlainHttpToolsProtocol]:
    """The protocol that asks, for `with_coalesced_writes`; the plain one where there is nothing to be asked.

    Args:
        direct: What is asked.
    """
    return (
        PlainHttpToolsProtocol
        if direct is None
        else type("DirectProtocol", (FastHttptoolsProtocol,), {"direct": direct})
    )


class FastHttptoolsProtocol(PlainHttpToolsProtocol):
    """One connection."""

    direct: PreAsgiHandler
    _body: bytes | None = None
    """What has come of the body of a request that is to be offered; None while uvicorn reads one."""

    def data_received(self, data: bytes) -> None:
        """Read on. What has not come whole by the end is uvicorn's to wait for."""
        super().data_received(data)
        if self._body is not None:
            self._hand_over(is_whole=False)

    def on_headers_complete(self) -> None:
        """Let uvicorn begin, or wait for the body, which mostly is there already.

        Raises:
            HttpParserInvalidURLError: The target has no path; the parser answers with 400.
        """
        if not self._may_be_direct():
            super().on_headers_complete()
            return
        url = httptools.parse_url(self.url)
        if url.path is None:
            raise httptools.HttpParserInvalidURLError(f"no path in {self.url!r}")
        self.scope["path"] = self.root_path + url.path.decode("ascii")
        self.scope["query_string"] = url.query or b""
        self._body = b""

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if self._body is None:
            super().on_body(body)
        else:
            self._body = self._body + body if self._body else body

    def on_message_complete(self) -> None:
        """Answer, or let uvicorn."""
        if self._body is None:
            super().on_message_complete()
            return
        begun = self._begun(self._body)
        if begun is None:
            self._hand_over(is_whole=True)
            return
        self._body = None
        if isinstance(begun, PlainResponse):
            self._write(begun, keeps_alive=True)
        else:
            self._start(begun)

    def _may_be_direct(self) -> bool:
        """Whether it is a POST that nothing is to be known of but headers and body, and whose turn it is."""
        return (
            self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.parser.should_upgrade()
            and not self.expect_100_continue
            and not self.config.access_log
            and getattr(self.cycle, "response_complete", True)  # there is no cycle before the first request
            and not self.flow.write_paused
        )

    def _begun(self, body: bytes) -> PlainResponse | PendingCall | None:
        try:
            return self.direct.begin(cast("Scope", self.scope), body)
        except Exception:  # noqa: BLE001 - what fails here fails again on uvicorn's way, where it is logged
            return None

    def _hand_over(self, *, is_whole: bool) -> None:
        """Let uvicorn hear now what it would have heard before."""
        body, self._body = self._body, None
        self.expect_100_continue = False  # the head says so (`_may_be_direct`), whatever a trailer says
        super().on_headers_complete()
        if body:
            super().on_body(body)
        if is_whole:
            super().on_message_complete()

    def _start(self, work: PendingCall) -> None:
        running = _Running(work)
        self.cycle = running  # type: ignore[assignment]  # as far as uvicorn looks at it
        running.task = self.loop.create_task(self._run(running))
        self.tasks.add(running.task)

    async def _run(self, running: _Running) -> None:
        try:
            answer = await running.work.run()
        except BaseException:  # as in uvicorn: logged, and answered
            if not running.disconnected:
                self.logger.exception("a request could not be answered")
            answer, running.keep_alive = _FAILED, False
        if self.flow.write_paused:
            await self.flow.drain()
        running.response_complete = True
        self.tasks.discard(running.task)
        if not running.disconnected:
            self._write(answer, keeps_alive=running.keep_alive)

    def _write(self, answer: PlainResponse, *, keeps_alive: bool) -> None:
        head = _head(answer.status, tuple(self.server_state.default_headers))
        if answer.session_id is not None:
            head += b"mcp-session-id: %b\r\n" % answer.session_id.encode()
        if not keeps_alive:
            head += b"connection: close\r\n"
        transport = cast("CoalescingTransport", self.transport)
        transport.write_whole(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(answer.body), answer.body))
        if not keeps_alive:
            transport.close()
        self.on_response_complete()


class _Running:
    """A call that runs: what uvicorn asks of a request that is being answered."""

    __slots__ = ("disconnected", "keep_alive", "response_complete", "task", "work")

    def __init__(self, work: PendingCall) -> None:
        self.work = work
        self.task: asyncio.Task[None]
        self.keep_alive = True
        self.response_complete = False
        self.disconnected = False

    @property
    def message_event(self) -> _Running:
        """What is set when something happens: this very thing; kept, it would have to be found by the collector."""
        return self

    def set(self) -> None:
        """Something happened: when nothing else can, the client has gone."""
        if self.disconnected and not self.response_complete and self.work.ends_with_client:
            # A task that has not begun would end without anything of it having run, what it counts back included.
            self.task.get_loop().call_soon(self.task.cancel)


@lru_cache(_KEPT_HEADS)
def _head(status: int, default: tuple[Header, ...]) -> bytes:
    """The lines that many answers have; those by default change every second."""
    return STATUS_LINE[status] + b"".join(b"%b: %b\r\n" % header for header in (*default, CONTENT_TYPE))
