"""uvicorn's protocol for httptools with the pre-ASGI fast path.

A complete request is offered to `bridge.server.http.guards.PreAsgiHandler` before uvicorn creates its task; requests
that it does not handle continue in uvicorn unchanged.

Upgrades are ignored and CONNECT is refused: httptools stops after the head of such a request, and uvicorn would then
treat its body as the next request.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from bridge.hosting.chunked_body import ChunkedBody, response_head
from bridge.hosting.eager_tasks import EagerTasks
from bridge.server.fast_path import internal_error_message
from bridge.server.http.requests import REQUEST, Head
from bridge.server.http.responses import PlainResponse

if TYPE_CHECKING:
    from array import array

    from starlette.types import Scope

    from bridge.hosting.chunked_body import Header
    from bridge.hosting.protocols import CoalescingTransport
    from bridge.server.http.guards import PreAsgiHandler
    from bridge.server.http.pending_calls import PendingCall

_OK = 200
_LONG_BYTES = 256 * 1024


class PlainHttpToolsProtocol(HttpToolsProtocol):
    """Connection that ignores upgrades (RFC 9110 section 7.8)."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.parser = PlainParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as in uvicorn

    def on_headers_complete(self) -> None:
        """Start a request, unless its head is parsed again without the upgrade.

        Raises:
            HttpParserError: The method is CONNECT (RFC 9110 section 9.3.6), which is answered with 400.
        """
        if not self.parser.should_upgrade():
            super().on_headers_complete()
        elif self.parser.get_method() == b"CONNECT":
            raise httptools.HttpParserError("CONNECT is not supported")

    def on_message_complete(self) -> None:
        """Complete a started request."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def head_without_upgrade(self) -> bytes:
        """Head of the last parsed request, without the upgrade header."""
        first = b"%b %b HTTP/%b\r\n" % (
            self.parser.get_method(),
            self.url,
            self.parser.get_http_version().encode("ascii"),
        )
        headers = [b"%b: %b\r\n" % header for header in self.scope["headers"] if header[0] != b"upgrade"]
        return b"%b%b\r\n" % (first, b"".join(headers))


class PlainParser(httptools.HttpRequestParser):
    """Parser that parses the head of an upgrade request again, without the upgrade header."""

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
    """Create the protocol class for `with_coalesced_writes`.

    Args:
        direct: Pre-ASGI handler; None for no fast path.
    """
    return (
        PlainHttpToolsProtocol
        if direct is None
        else type("DirectProtocol", (FastHttptoolsProtocol,), {"direct": direct})
    )


class FastHttptoolsProtocol(PlainHttpToolsProtocol):
    """Connection with the fast path."""

    direct: PreAsgiHandler
    eager_tasks: EagerTasks | None = None
    """Runs the calls of all connections."""
    is_between_requests = True
    """True if the parser has no part of a request."""
    answered: Head | None = None
    """Head of the last request that the fast path has answered."""
    _body: bytes | None = None
    """Body of a request for the fast path, as far as received; None while uvicorn reads a request."""
    _idle_since = 0.0
    """Time of the last response."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        if self.eager_tasks is None:
            type(self).eager_tasks = EagerTasks(self.loop)
        # Attributes of the instance are found faster than those of the class.
        self._eager, self._begin = cast("EagerTasks", self.eager_tasks), self.direct.begin
        self._default_headers: list[Header] | None = None
        """Headers of all responses from which `_ok_head` was made."""
        self._ok_head = b""
        """Beginning of a successful response."""

    def data_received(self, data: bytes) -> None:
        """Parse data; incomplete requests continue in uvicorn."""
        super().data_received(data)
        if self._body is not None:
            body, self._body = self._body, None
            self._hand_over(body, is_whole=False)

    def on_message_begin(self) -> None:
        """Note that the parser has a part of a request."""
        self.is_between_requests = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start the request in uvicorn, or buffer its body, which is usually complete.

        Raises:
            HttpParserInvalidURLError: The target has no path; the parser responds with 400.
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
        """Buffer a part of the body."""
        if self._body is None:
            super().on_body(body)
        else:
            self._body = self._body + body if self._body else body

    def on_message_complete(self) -> None:
        """Handle the request in the fast path, or in uvicorn."""
        self.is_between_requests = True
        if self._body is None:
            super().on_message_complete()
            return
        head, body, self._body = Head(cast("Scope", self.scope)), self._body, None
        if self.answers(head, body):
            self.answered = head
        else:
            self._hand_over(body, is_whole=True)

    def on_response_complete(self) -> None:
        """Await the next request; the timer of an idle connection that runs already is not made anew."""
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None or self.pipeline or self.flow.read_paused:
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection if it was idle for long enough; else look again."""
        left_seconds = float(self.timeout_keep_alive)
        if getattr(self.cycle, "response_complete", True):
            left_seconds += self._idle_since - self.loop.time()
        if left_seconds <= 0 or self.transport.is_closing():
            super().timeout_keep_alive_handler()
        else:
            self.timeout_keep_alive_task = self.loop.call_later(left_seconds, self.timeout_keep_alive_handler)

    def _may_be_direct(self) -> bool:
        """True for a keep-alive POST without special headers, with no earlier response pending."""
        return (
            self.parser.get_method() == b"POST"
            and self.parser.get_http_version() == "1.1"
            and self.parser.should_keep_alive()
            and not self.parser.should_upgrade()
            and not self.expect_100_continue
            and not self.config.access_log
            and getattr(self.cycle, "response_complete", True)  # None before the first request
            and not self.flow.write_paused
        )

    def answers(self, head: Head, body: bytes) -> bool:
        """Answer a request, or start its call; return False if uvicorn has to, or still answers another."""
        cycle: Any = self.cycle  # None before the first request
        if not (cycle is None or cycle.response_complete) or self.flow.write_paused or self.transport.is_closing():
            return False
        try:
            begun = self._begin(head, body)
        except Exception:  # noqa: BLE001 - the error occurs again in uvicorn, which logs it
            return False
        if isinstance(begun, PlainResponse):
            self._write(begun, keeps_alive=True)
        elif begun is not None:
            self._start(begun)
        return begun is not None

    def _hand_over(self, body: bytes, *, is_whole: bool) -> None:
        """Replay the request to uvicorn."""
        self.expect_100_continue = False  # checked in _may_be_direct; a trailer must not change it
        super().on_headers_complete()
        if body:
            super().on_body(body)
        if is_whole:
            super().on_message_complete()

    def _start(self, work: PendingCall) -> None:
        eager, request = self._eager, work.request
        caller = None if request.user is None else request.account
        if eager.is_ready(caller):
            try:
                answer = work.start(eager.step)
            except Exception as error:  # noqa: BLE001 - logged and answered
                answer = _failed(work, error)
            if answer is not None:
                self._write(answer, keeps_alive=True)
                return
        running = _Running(work)
        self.cycle = running  # type: ignore[assignment]  # as far as uvicorn looks at it
        if not work.pass_on(partial(self._passed, running)):
            self._run_in_task(running, caller)

    def _passed(self, running: _Running, answer: PlainResponse | None) -> None:
        """Write the response to a call that was passed on, or continue the call in a task."""
        if answer is None:
            self._run_in_task(running, None)
        else:
            running.response_complete = True
            if not running.disconnected:
                self._write(answer, keeps_alive=running.keep_alive)

    def _run_in_task(self, running: _Running, caller: str | None) -> None:
        request = running.work.request
        if running.work.may_talk:
            transport = cast("CoalescingTransport", self.transport)
            request.hand_over = partial(self._continue_in_asgi, running)
            body = ChunkedBody(transport, self.flow, self.server_state.default_headers, running.begin)
            request.response_body = running.body = body
        task = self._eager.run(self._run(running), caller)
        if task is not None:
            running.task = task
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _run(self, running: _Running) -> None:
        try:
            answer = await running.work.run()
        except BaseException as error:  # noqa: BLE001 - as in uvicorn: logged and answered
            if running.disconnected or running.is_handed_over:
                return
            answer = _failed(running.work, error)  # a tool may also have cancelled its task
        finally:
            body, running.body = running.body, None  # it refers to this call
        if answer is None or running.is_handed_over:
            return
        if self.flow.write_paused:
            await self.flow.drain()
        running.response_complete = True
        if running.disconnected:
            return
        if body is not None and running.response_started:
            body.end(answer, keeps_alive=running.keep_alive)
            self.on_response_complete()
        else:
            self._write(answer, keeps_alive=running.keep_alive)

    def _continue_in_asgi(self, running: _Running) -> None:
        """Answer a request in ASGI, while its call continues."""
        request = running.work.request
        path = request.scope["path"].encode()
        scope: Any = {**request.scope, "method": "POST", "raw_path": path, "state": self.app_state.copy()}
        request.scope, scope[REQUEST] = scope, request
        running.is_handed_over = True
        cycle = RequestResponseCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=running.keep_alive,
            on_response=self.on_response_complete,
        )
        cycle.more_body = False
        if running.disconnected:
            cycle.disconnected = True
            cycle.message_event.set()
        if cast("object", self.cycle) is running:  # otherwise the next request is pipelined
            self.cycle = cycle
        self._start_asgi_task(cycle, self.app)

    def _write(self, answer: PlainResponse, *, keeps_alive: bool) -> None:
        default = self.server_state.default_headers  # another list every second
        if answer.status != _OK:
            head = response_head(answer.status, default)
        elif default is self._default_headers:
            head = self._ok_head
        else:
            self._default_headers, self._ok_head = default, (head := response_head(answer.status, default))
        if answer.session_id is not None:
            head += b"mcp-session-id: %b\r\n" % answer.session_id.encode()
        if not keeps_alive:
            head += b"connection: close\r\n"
        transport: CoalescingTransport = self.transport  # type: ignore[assignment]  # of `with_coalesced_writes`
        if len(answer.body) < _LONG_BYTES:
            transport.write_whole(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(answer.body), answer.body))
        else:  # a copy would take longer than another system call
            transport.write_whole(b"%bcontent-length: %d\r\n\r\n" % (head, len(answer.body)))
            transport.write_whole(answer.body)
        if not keeps_alive:
            transport.close()
        self.on_response_complete()


class _Running:
    """A running call; implements the attributes of uvicorn's request cycle that uvicorn reads."""

    __slots__ = (
        "body",
        "disconnected",
        "is_handed_over",
        "keep_alive",
        "more_body",
        "response_complete",
        "response_started",
        "task",
        "work",
    )

    def __init__(self, work: PendingCall) -> None:
        self.work = work
        self.task: asyncio.Task[None] | None = None
        """Its task; None while it is passed on without one."""
        self.keep_alive = True
        self.more_body = False
        self.response_started = False
        """True once a response that is sent in parts has begun: nothing else may be written before its end."""
        self.response_complete = False
        self.disconnected = False
        self.is_handed_over = False
        self.body: ChunkedBody | None = None
        """Body of the response, if it may be sent in parts."""

    @property
    def message_event(self) -> _Running:
        """Event that uvicorn sets; the object itself, to avoid a reference cycle."""
        return self

    def begin(self) -> None:
        """Note that the response has begun."""
        self.response_started = True
        self.set()

    def set(self) -> None:
        """Cancel the call after a disconnect, if it ends with its client, or its response has begun."""
        if not self.disconnected or self.response_complete or self.is_handed_over:
            return
        if self.work.ends_with_client or self.response_started:
            if self.task is None:
                self.work.cancel()
            else:  # a task cancelled before its first step would not run its cleanup
                self.task.get_loop().call_soon(self.task.cancel)


def _failed(work: PendingCall, error: BaseException) -> PlainResponse:
    """Log an unexpected error, and return the response."""
    return PlainResponse(internal_error_message(work.request.message, error))
