"""One HTTP/1.1 connection of a server: answers MCP itself, and runs the ASGI app for everything else.

    bytes ─┬──────────────────────── known head ─╮
           ╰─> parser ─> requests, one at a time ┴─> handler ─┬─> whole response, or a call
                                                              ╰─> ASGI app ─> `Reply`

A POST or DELETE is offered to the handler (`bridge.hosting.http.calls`) if it has arrived completely when its turn
comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, cast

from bridge.hosting.http import read_timer
from bridge.hosting.http.asgi_request import AsgiRequest
from bridge.hosting.http.known_heads import KnownHeads
from bridge.hosting.http.limits import MAX_HEADERS
from bridge.hosting.http.parser import Malformed, RequestHead
from bridge.hosting.http.read_timer import ReadTimer
from bridge.hosting.http.refusals import is_probe
from bridge.hosting.http.reply import Reply, ResponseHeads
from bridge.hosting.scopes import log_access, logs_access, scope_of_connection, scope_of_request
from bridge.server.http.requests import Head

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import uvicorn
    from starlette.types import Scope
    from uvicorn.server import ServerState

    from bridge.hosting.http.limits import ConnectionLimits, ConnectionShares
    from bridge.hosting.http.parser import Event, HttpParser
    from bridge.hosting.http.refusals import Refusals
    from bridge.hosting.http.reply import Header
    from bridge.hosting.http.unread_responses import UnreadResponses

_logger = logging.getLogger("uvicorn.error")

_MAX_BUFFERED_BYTES = 64 * 1024
"""Bytes of a body above which reading pauses until the app receives them."""
_ANSWERED = frozenset({"POST", "DELETE"})
"""HTTP methods of the requests that the handler may answer."""
_LONG_BYTES = 256 * 1024


class Connection(asyncio.Protocol):
    """A connection; uvicorn makes it, as its custom protocol class.

    `bridge.hosting.serve.http_protocol` makes a class of it for each server.

    Args:
        config: Configuration of the server.
        server_state: State of the server, which contains its connections and tasks.
        app_state: State of the app's lifespan.
        _loop: The event loop; None for the running one.
    """

    answers: Callable[[Connection, Head, bytes], bool] | None
    """Answers a request, or starts its call; returns False if the app has to; None if the app answers all."""
    limits: ClassVar[ConnectionLimits]
    parser: ClassVar[type[HttpParser]]
    refusals: ClassVar[Refusals]
    shares: ClassVar[ConnectionShares]
    unread: ClassVar[UnreadResponses]

    transport: asyncio.Transport
    client: tuple[str, int | None] | None
    """Address of the client."""
    is_write_paused = False
    """True while the client does not read."""
    _scope: dict[str, Any]
    """Members of the scopes of all requests."""
    _is_refused = False
    """True for a connection over the limit."""
    _is_read_paused = _is_starting = _is_shutting_down = False
    _reply: Reply | None = None
    """Response to the current request."""
    _arriving: AsgiRequest | None = None
    """The request whose body has not arrived completely."""
    _unfinished_bytes = 0
    """Bytes since the last event of the parser; at least what the parser has buffered."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.loop = _loop or asyncio.get_running_loop()
        self.app_state = app_state
        self._config, self._server_state = config, server_state
        self._answers = self.answers
        self._parser, self._known = self.parser(), KnownHeads()
        self._timer = ReadTimer(self.loop, self.limits, config.timeout_keep_alive, self._late)
        self.heads, self.logs_access = ResponseHeads(server_state), logs_access(config)
        self._queue: deque[AsgiRequest | bytes] = deque()
        """Requests that wait for their turn, or the last response of a connection that was refused."""
        self.writable = asyncio.Event()
        """Set once the client has read enough, or is gone."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request; over the limit, only for one that is refused."""
        self.transport = cast("asyncio.Transport", transport)
        self._scope = scope_of_connection(self._config, transport)
        self.client = self._scope["client"]
        self._is_refused = not self.shares.add(self)
        if not self._is_refused:
            self._server_state.connections.add(cast("Any", self))
        self._timer.expect(read_timer.REFUSED if self._is_refused else read_timer.FIRST_BYTE)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's words
        """Forget the requests, and tell the one who answers the current one."""
        self._server_state.connections.discard(cast("Any", self))
        self.shares.discard(self)
        self.unread.closed(self)
        self._timer.stop()
        self._parser.close()
        self._queue.clear()
        self._arriving = None
        self.is_write_paused = False
        self.writable.set()
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.client_gone()

    def shutdown(self) -> None:
        """Close the connection once the requests that have arrived are answered; called by uvicorn."""
        self._is_shutting_down = True
        if self.is_idle:
            self.transport.close()

    @property
    def is_idle(self) -> bool:
        """True if no request waits for its response."""
        return self._reply is None and not self._queue

    @property
    def waits_for_client(self) -> bool:
        """True if no complete request waits for its response."""
        return self.is_idle or (not self._queue and self._arriving is not None and not self._has_begun)

    @property
    def _has_begun(self) -> bool:
        """True unless a response to the current request has to begin."""
        return self._reply is None or self._reply.has_begun

    @property
    def is_stream(self) -> bool:
        """True for a stream that belongs to no call, which its client can reopen."""
        scope = {} if self._reply is None else self._reply.scope
        return scope.get("method") == "GET" or (b"mcp-method", b"subscriptions/listen") in scope.get("headers", ())

    def data_received(self, data: bytes) -> None:
        """Answer a request whose head is known, or parse what has arrived."""
        known = self._known.last
        if known is None or not data.startswith(known.raw):
            known = self._known.find(data)
        if (
            known is None
            or len(data) != known.request_bytes
            or self._reply is not None
            or self._queue
            or self.is_write_paused
            or not self._parser.is_between_requests
            or self._answers is None
            or not self._answers(self, known.head, data[len(known.raw) :])
        ):
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        if self._is_refused and not is_probe(data):
            self._refuse(self.refusals.too_many)
            return
        self._unfinished_bytes += len(data)
        was_between_requests = self._parser.is_between_requests
        events = self._parser.feed(data)
        answered = self._handle(events)
        if answered is not None and was_between_requests:
            self._known.add(data, answered)
        if events:
            self._unfinished_bytes = 0
        elif self._unfinished_bytes > self.limits.max_header_bytes:
            self._refuse(self.refusals.too_long)
        if self.transport.is_closing():
            return
        self._start_requests()
        if self._queue or (self._arriving is not None and self._arriving.buffered_bytes > _MAX_BUFFERED_BYTES):
            self._pause_reading()
        self._await_rest(has_event=bool(events))
        if self._is_refused:
            self.shutdown()  # after the response

    def _handle(self, events: Sequence[Event]) -> Head | None:
        """Answer complete requests; return the head of the last of them if the handler has answered it."""
        answered = None
        for event in events:
            if type(event) is bytes:
                if self._arriving is not None:
                    self._arriving.feed(event)
            elif event is None:
                if self._arriving is not None:
                    self._arriving.complete()
                    self._arriving = None
                    answered = self._start_requests()
            elif isinstance(event, RequestHead):
                self._begin_request(event)
            elif isinstance(event, Malformed):
                self._refuse(self.refusals.malformed)
            if self.transport.is_closing():
                return None
        return answered

    def _begin_request(self, head: RequestHead) -> None:
        is_long = self._unfinished_bytes > self.limits.max_header_bytes or len(head.headers) > MAX_HEADERS
        if is_long and self.limits.are_exceeded_by(head.target, head.headers):
            self._refuse(self.refusals.too_long)
            return
        try:
            scope = scope_of_request(head, self._scope, self.app_state)
        except ValueError:
            self._refuse(self.refusals.malformed)
            return
        self._arriving = AsgiRequest(scope, keeps_alive=head.keeps_alive)
        self._queue.append(self._arriving)

    def _start_requests(self) -> Head | None:
        """Answer requests in their order, one at a time; return the head of the last if the handler has answered it."""
        answered: Head | None = None
        if not self._is_starting:
            self._is_starting = True
            try:
                while self._queue and self._reply is None and not (self.is_write_paused or self.transport.is_closing()):
                    answered = self._start(self._queue.popleft())
            finally:
                self._is_starting = False
        return answered

    def _start(self, request: AsgiRequest | bytes) -> Head | None:
        if isinstance(request, bytes):
            self._refuse(request)
            return None
        scope = request.scope
        if request.is_complete and request.keeps_alive and scope["method"] in _ANSWERED:
            head = Head(scope)
            if self._answers is not None and self._answers(self, head, request.body):
                return head
        self.run_asgi(request, self.new_reply(scope, keeps_alive=request.keeps_alive))
        return None

    def run_asgi(self, request: AsgiRequest, reply: Reply) -> None:
        """Have the app answer a request."""
        self.add_task(self.loop.create_task(request.run(self._config.loaded_app, reply)))

    def add_task(self, task: asyncio.Task[None]) -> None:
        """Add a task for which the server waits when it shuts down."""
        self._server_state.tasks.add(task)
        task.add_done_callback(self._server_state.tasks.discard)

    def _refuse(self, response: bytes) -> None:
        """Send a last response in its turn, unless the request has got one."""
        request, self._arriving = self._arriving, None
        if self._queue and self._queue[-1] is request:
            self._queue.pop()
            request = None
        if self._queue or (self._reply is not None and request is None):
            self._queue.append(response)
            return
        if request is None or not self._has_begun:
            self.send(response)
            if response is self.refusals.malformed:
                _logger.warning("Invalid HTTP request received.")
        self.transport.close()

    def new_reply(self, scope: Scope, *, keeps_alive: bool = True) -> Reply:
        """Make the response to the current request, which is sent later."""
        self._timer.expect(read_timer.NOTHING)
        self._reply = reply = Reply(self, scope, keeps_alive=keeps_alive)
        return reply

    def respond(
        self, scope: Scope, status: int, headers: Sequence[Header], body: bytes, *, keeps_alive: bool = True
    ) -> None:
        """Send a whole response; the same headers again save time."""
        head = self.heads.head(status, headers)
        if self.logs_access:
            log_access(scope, status)
        if not keeps_alive or self._is_shutting_down:
            keeps_alive = keeps_alive and not self.is_ending
            head += b"" if keeps_alive else b"connection: close\r\n"
        if len(body) < _LONG_BYTES:
            self.send(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))
        else:  # a copy would take longer than another system call
            self.send(b"%bcontent-length: %d\r\n\r\n" % (head, len(body)))
            self.send(body)
        self.complete(keeps_alive=keeps_alive)

    @property
    def is_ending(self) -> bool:
        """True if the connection is closed behind the current response."""
        return self._is_shutting_down and not self._queue

    def complete(self, *, keeps_alive: bool) -> None:
        """Await the next request after a response."""
        self._server_state.total_requests += 1
        self._reply = None
        if not keeps_alive:
            self.transport.close()
            return
        if self._arriving is None and not self._queue and self._parser.is_between_requests:
            self._timer.expect(read_timer.NEXT)
        else:
            self._await_rest(has_event=True)
            self._start_soon()
        if self._is_read_paused:
            self.resume_reading()

    def send(self, data: bytes) -> None:
        """Write data, unless the connection is closed."""
        if not self.transport.is_closing():  # uvloop raises after a disconnect
            self.transport.write(data)

    def pause_writing(self) -> None:
        """Make responses wait; called by the transport."""
        self.is_write_paused = True
        self.writable.clear()
        self.unread.paused(self)

    def resume_writing(self) -> None:
        """Continue; called by the transport."""
        self.unread.resumed(self)
        self.is_write_paused = False
        self.writable.set()
        self._start_soon()

    def _start_soon(self) -> None:
        """Start the next request outside of any task, as eager tasks want it."""
        if self._queue and not self._is_starting:
            self.loop.call_soon(self._start_requests)

    def _pause_reading(self) -> None:
        if not self._is_read_paused:
            self._is_read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on, if reading is paused."""
        if self._is_read_paused and not self.transport.is_closing():
            self._is_read_paused = False
            self.transport.resume_reading()
            if self._arriving is not None:
                self._timer.expect(read_timer.BODY)

    def _await_rest(self, *, has_event: bool) -> None:
        """Begin to wait for what the client has to send next."""
        timer = self._timer
        if self._arriving is not None:
            timer.expect(read_timer.NOTHING if self._is_read_paused else read_timer.BODY)
        elif self._reply is not None or self._queue:
            timer.expect(read_timer.NOTHING)
        elif has_event and self._parser.is_between_requests:
            timer.expect(read_timer.NEXT)
        elif timer.awaited != read_timer.HEAD:
            timer.expect(read_timer.HEAD)

    def _late(self) -> None:
        """Close the connection of a client that is late; it is told so, unless it knows or its response has begun."""
        if (self._arriving is not None and not self._has_begun) or self._timer.awaited == read_timer.HEAD:
            self.send(self.refusals.too_late)
        self.transport.close()
