"""A request under way on the server: where it comes from, its code, and where its messages go.

    transport ─> Dispatch ─> ServedExchange ─> Method ─> the function ─> result
        ╰<──────────── Outlet <── progress · log message · question ──╯

`bridge.server.dispatch` makes it, and its transport runs it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from bridge.protocol.exchange import Exchange
from bridge.protocol.messages import result_message
from bridge.protocol.rounds import FIRST_ROUND
from bridge.tools.spill.usage import UNLIMITED
from bridge.types import REQUEST_ID_META_KEY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from bridge.protocol.messages import MessageId
    from bridge.protocol.rounds import Round
    from bridge.protocol.session import Session
    from bridge.server.auth.access import Access
    from bridge.server.forwarded import ForwardedCall
    from bridge.server.lists.tools import ListedTool
    from bridge.server.results.contents_stream import ResponseContents
    from bridge.server.running_calls import RunningCalls
    from bridge.telemetry.operations import ServerOperation
    from bridge.tools.caller import Caller
    from bridge.tools.context import InvocationContext
    from bridge.tools.session import SessionState
    from bridge.tools.tool import Tool
    from bridge.types import Json, Step

_NOTHING: Json = {}


class Origin(Protocol):
    """The source of a request: its transport, client and caller."""

    @property
    def transport(self) -> str:
        """``stdio``, ``http`` or ``sse``."""
        ...

    @property
    def account(self) -> str:
        """Account of the caller, as `bridge.server.limits.accounts.caller_key`; empty if there can be only one."""
        ...

    @property
    def access(self) -> Access:
        """Permissions of the caller."""
        ...

    @property
    def caller(self) -> Caller | None:
        """The authenticated caller; None without authentication."""
        ...

    @property
    def texts(self) -> Mapping[str, str]:
        """HTTP headers with lower-case names; empty for other transports."""
        ...

    @property
    def headers(self) -> Mapping[bytes, bytes] | None:
        """The same as received, of a repeated header the last one; None for other transports."""
        ...

    @property
    def in_context(self) -> Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]] | None:
        """Runs a coroutine with the context variables of the request; None if it has none of its own."""
        ...


class Outlet(Protocol):
    """The receiver of the messages of an exchange before its answer."""

    async def send(self, message: bytes, *, is_notification: bool = True) -> None:
        """Send a message, and wait while the client does not read. Dropped if the client has gone for good."""
        ...

    async def close_stream(self) -> None:
        """Close the stream, if the client can resume it."""
        ...

    def stream_contents(self, contents: ResponseContents) -> None:
        """Let the result be sent in parts, if the transport can."""
        ...


class Answering(Protocol):
    """Answers the exchanges of one method."""

    def start(self, exchange: ServedExchange, step: Step) -> bytes | None:
        """Run the first step of the function; return the answer if it has ended, else `run` continues it."""
        ...

    def send_at_once(self, exchange: ServedExchange, receive: Callable[[bytes | None], None]) -> ForwardedCall | None:
        """Send a call of another server's tool; ``receive`` gets the answer, or None if `run` has to continue it."""
        ...

    async def run(self, exchange: ServedExchange) -> tuple[bytes, int]:
        """Run an exchange, or the rest of it; return the answer and its JSON-RPC error code, 0 for a result."""
        ...

    def session_state(self, exchange: ServedExchange) -> SessionState | None:
        """Return the state of the session of an exchange; None if its client has none."""
        ...


class NoOutlet:
    """Outlet of an exchange whose client receives nothing but answers."""

    async def send(self, message: bytes, *, is_notification: bool = True) -> None:
        """Drop a message."""

    async def close_stream(self) -> None:
        """Do nothing."""

    def stream_contents(self, contents: ResponseContents) -> None:
        """Do nothing: the result is sent whole."""


class ServedExchange(Exchange):
    """A request that a server answers.

    Args:
        message_id: Id of the request.
        method: Its method.
        params: Its parameters; empty if it has none.
        version: Protocol version; empty if unknown.
        modern: True for the modern era.
        capabilities: Capabilities of the client.
        session: The client's session in the handshake era; None without one.
        origin: Where it comes from.
        running: The running calls, among which its questions count.
        write: Writes a result in the form of the era; may change the result.
        ending: The members that ``write`` adds, as JSON behind those of a result; `Method.plan` may add further ones.
    """

    # As in the base class, attributes of the class save time.
    responder: Answering
    """Answers it; set by `Dispatch`."""
    round: Round = FIRST_ROUND
    """Answers to questions of earlier rounds; set by `Method.plan`."""
    tool: Tool | None = None
    """The tool whose function can be started without `Calls.call`, or that of its resource or prompt; set by
    `Method.plan`."""
    arguments: Mapping[str, Any] = _NOTHING
    """The arguments of its tool, not yet validated; set by `Method.plan`."""
    is_resolved = False
    """True if its parameters are those of the tool that a call of ``call_tool`` named; see
    `bridge.server.lists.search`."""
    is_of_script = False
    """True for a call by a script, which needs its result whole; see `bridge.server.code`."""
    takes_context = True
    """False if its code needs no context; set by `Method.plan`."""
    max_chars = UNLIMITED
    """Characters up to which the result of its tool is sent as it is; set by `Method.plan`."""
    count: Callable[[int], None] | None = None
    """Counts the characters of the result; None for no counting; set by `Method.plan`."""
    direct: ListedTool | None = None
    """The tool of another server to which it may be sent at once; set by `Method.plan`."""
    sent: ForwardedCall | None = None
    """Its call, if it was sent at once, and a task has to continue it."""
    started: Awaitable[Any] | None = None
    """The rest of its function, if that was started; set by `Method.start`."""
    older: Tool | None = None
    """The tool that the request names by its version, if it is not the newest; set by `Method.plan`."""
    found: Any = None
    """The target that `Method.plan` has found, for `Method.run`."""
    contents: Callable[[ServedExchange], ResponseContents] | None = None
    """Makes the stream of its result in parts; None if the result has to be whole; set by `Method.plan`."""
    operation: ServerOperation | None = None
    """Its observation, if it was begun."""
    request_id: str | None = None
    """The id that this process has made, by which records name it; None if it is not recorded."""
    is_sampled: bool | None = None
    """The result of `Tracing.begins`, if telemetry has called it."""
    context: InvocationContext | None = None
    """Its context, once it is made by `bridge.server.channel.context_of`."""
    connection: Session | None = None
    """The session object of its connection, over stdio in the modern era; otherwise None."""
    outlet: Outlet | None = None
    """The receiver of its messages; set by its transport, or made by `open_outlet`."""
    open_outlet: Callable[[], Outlet] = NoOutlet
    """Makes the outlet, when its first message is sent; set by its transport."""
    stream: ResponseContents | None = None
    """Its result in parts; None if the result is whole."""

    def __init__(
        self,
        message_id: MessageId,
        method: str,
        params: Json,
        version: str,
        modern: bool,
        capabilities: Mapping[str, Any],
        session: Session | None,
        origin: Origin,
        running: RunningCalls,
        write: Callable[[Json], bytes],
        ending: bytes = b"",
    ) -> None:
        self.id = message_id
        self.method = method
        self.params = params
        self.version = version
        self.modern = modern
        self.capabilities = capabilities
        self.session = session
        self.origin = origin
        self.access = origin.access
        self.running = running
        self.write = write
        self.ending = ending

    def identify(self, request_id: str) -> None:
        """Give the request an id of this process, which its client gets with the result, and other servers get."""
        self.request_id = request_id
        member = b'"%b":"%b"}' % (REQUEST_ID_META_KEY.encode(), request_id.encode())
        # In the modern era, ``_meta`` is the last of the members.
        self.ending = self.ending[:-1] + b"," + member if self.modern else self.ending + b',"_meta":{' + member
        write = self.write

        def write_identified(result: Json) -> bytes:
            result["_meta"] = {**(result.get("_meta") or {}), REQUEST_ID_META_KEY: request_id}
            return write(result)

        self.write = write_identified
        self.identify_context()

    def identify_context(self) -> None:
        """Give the context the id of the request, if both are made."""
        context, request_id = self.context, self.request_id
        if context is not None and request_id is not None:
            context.request_id = request_id
            context.meta = {**context.meta, REQUEST_ID_META_KEY: request_id}

    def opened_outlet(self) -> Outlet:
        """Return where its messages go."""
        if self.outlet is None:
            self.outlet = self.open_outlet()
        return self.outlet

    async def send(self, message: bytes, *, is_notification: bool = True) -> None:
        """Send a message of this exchange before its answer."""
        if not self.is_over:
            await self.opened_outlet().send(message, is_notification=is_notification)

    @property
    def has_begun(self) -> bool:
        """True once its result is being sent in parts."""
        return self.stream is not None and self.stream.has_begun

    def response(self, result: bytes) -> bytes:
        """Return the response with a result, or the rest of one that is sent in parts."""
        return result + b"}" if self.has_begun else result_message(self.id, result)

    def end(self) -> None:
        """Send nothing more, and drop reference cycles, which would stay until garbage is collected."""
        self.is_over = True
        if self.stream is not None:
            self.stream.end()
        self.context = self.outlet = None
        self.open_outlet = NoOutlet


class LocalOrigin:
    """Origin of requests of the one client of a process."""

    transport = "stdio"
    account = ""
    texts: Mapping[str, str] = MappingProxyType({})
    headers = in_context = None

    def __init__(self, access: Access, caller: Caller | None = None) -> None:
        self.access = access
        self.caller = caller
