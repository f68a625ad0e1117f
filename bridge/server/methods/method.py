"""A protocol method: its plan for the fast path, its handler for the SDK's server, its target in telemetry.

    message ─> FastPath ─> PlainRequest ─> Method.plan ─┬─> bytes          the result
                                                        ├─> the request    to be run: `Method.run`
                                                        ╰─> None           not plain: the SDK's server
    message ─> SdkServer ─> HandlerRequest ─> Method.handle ─> result

A call goes through functions of similar names, from the transport to the function of the tool:

| function                         | is called                                                                       |
|----------------------------------|---------------------------------------------------------------------------------|
| `PreAsgiHandler.begin`           | by the HTTP server, without ASGI; runs the guards, then `FastHttp.begin`        |
| `FastHttp.begin`                 | also in ASGI; plans the request, and returns a response or a `PendingCall`      |
| `PendingCall.start`              | by the HTTP server, in the same turn of the event loop; calls `start_plain`     |
| `PendingCall.run`                | in a task, if the call was not started, or has started and waits                |
| `PendingCall.pass_on`            | by the HTTP server, for a tool of another server; calls `Method.pass_on`        |
| `Method.start_plain`             | for plain tools, resources and prompts: runs the first step of the function     |
|                                  | (`PlainCalls`)                                                                  |
| `Method.call_plain`              | for those without a context: runs the function, or the rest of it               |
| `FunctionExecutor.start`         | by `start_plain`; returns the coroutine of the function                         |
| `FunctionExecutor.execute_plain` | by `call_plain`, if the function was not started                                |
| `Method.run`                     | for all other requests that wait, with a context (`ServerCore.call`), also for  |
|                                  | the rest of a started function with a context                                   |

`Method.start_plain`, `call_plain` and `run` are called by the method's `Responder`, which writes the response. Over
stdio nothing is started: a task calls the responder's `call_plain` or `run`.

Modules of methods import the SDK inside functions only, so that a server over stdio can answer before it is imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

from pydantic_core import to_json

from bridge.protocol.messages import result_message
from bridge.protocol.versions import LOG_LEVEL_KEY, MODERN_VERSIONS
from bridge.server.auth.access import EVERYTHING
from bridge.server.fast_channel import FastChannel
from bridge.telemetry.conventions import TRACE_KEYS
from bridge.tools.questions import InputRequired

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from contextlib import AbstractContextManager

    from mcp.server import ServerRequestContext
    from mcp_types import RequestParams

    from bridge.protocol.messages import MessageId, ProtocolError
    from bridge.server.auth.access import Access
    from bridge.server.contents_stream import ResponseBody
    from bridge.server.core import ServerCore
    from bridge.server.methods.passing import BegunCall
    from bridge.server.tool_list import ListedTool
    from bridge.telemetry.operations import ServerOperation
    from bridge.tools.context import InvocationContext
    from bridge.tools.tool import Tool
    from bridge.types import Json, Step

Era = Literal["opening", "handshake", "modern"]
"""``opening`` is the first request of the handshake era, ``handshake`` the rest of it, ``modern`` is 2026-07-28."""
ERAS: frozenset[Era] = frozenset({"handshake", "modern"})
"""Both eras, without the opening."""

Written = TypeVar("Written")
"""A written result: bytes, or JSON for the SDK's server."""

_NOTHING: Json = {}


class PlainRequest:
    """A request whose envelope is plain.

    Args:
        responder: Writes the response.
        message_id: Id of the request.
        params: Its parameters; empty if it has none.
        modern: True for version 2026-07-28.
        version: Protocol version; empty if unknown.
        capabilities: Capabilities in the request; empty in the handshake era.
        access: Permissions of the caller.
        write: Writes a result in the form of the era; may change the result.
        ending: The members that ``write`` adds, as JSON behind those of a result; `Method.plan` may add further ones.
    """

    # Attributes of the class, since each one of an instance takes time in every request.
    client: str | None = None
    """Name of the client program in the handshake era, for telemetry; None if it is unknown."""
    tool: Tool | None = None
    """The tool that runs a plain request, or that of its resource or prompt; set by `Method.plan`."""
    arguments: Mapping[str, Any] = _NOTHING
    """The arguments of its tool, not yet validated; set by `Method.plan`."""
    takes_context = False
    """True if it needs `context`; set by `Method.plan`."""
    context: InvocationContext | None = None
    """Its context; set before its call is started."""
    passing: ListedTool | None = None
    """The tool of another server to which it may be passed on at once; set by `Method.plan`."""
    begun: BegunCall | None = None
    """Its call, if it was passed on, and a task has to continue it."""
    started: Awaitable[Any] | None = None
    """The rest of its call, if that was started; set by `Method.start_plain`."""
    is_sampled: bool | None = None
    """The result of `Tracing.begins`, if telemetry has called it; set by `Responder.plan`."""
    operation: ServerOperation | None = None
    """Its observation, if the call was started; set by `Responder.start_plain`."""
    found: Any = None
    """The target that `Method.plan` has found, for `Method.run`."""
    may_talk = False
    """True if the code that is run may have something for its client before its result; set by `Method.plan`."""
    channel: FastChannel | None = None
    """The channel of a request that may talk, and is run; see `open_channel`."""
    stream: Callable[[PlainRequest, ResponseBody], None] | None = None
    """Lets a request with a channel send its result in parts; None if it has to be whole; set by `Method.plan`."""

    @property
    def has_begun(self) -> bool:
        """True once the response has begun, which is sent in parts."""
        stream = None if self.channel is None else self.channel.contents_stream
        return stream is not None and stream.has_begun

    def __init__(
        self,
        responder: Responder,
        message_id: MessageId,
        params: Json,
        modern: bool,
        version: str,
        capabilities: Mapping[str, Any],
        access: Access,
        write: Callable[[Json], bytes],
        ending: bytes = b"",
    ) -> None:
        self.responder = responder
        self.id = message_id
        self.params = params
        self.modern = modern
        self.version = version
        self.capabilities = capabilities
        self.access = access
        self.write = write
        self.ending = ending

    def open_channel(self, context: InvocationContext, peer: object = None) -> FastChannel:
        """Let a request that may talk do so; before it is run.

        Args:
            context: The context of the code that is run, which gets the channel, and the rest of ``_meta``.
            peer: Identifies the client across its calls; None if it is unknown.
        """
        meta = self.params.get("_meta") or _NOTHING
        channel = FastChannel(
            wants_progress="progressToken" in meta,
            # In the handshake era only the SDK's server knows which log messages a client wants.
            wants_logs=not self.modern or meta.get(LOG_LEVEL_KEY) is not None,
            peer=peer,
        )
        context.connect(channel)
        if not TRACE_KEYS.isdisjoint(meta):
            context.meta = {key: value for key, value in meta.items() if key in TRACE_KEYS}
        self.channel = channel
        return channel

    def written(self, result: Json) -> bytes | Json:
        """Write a result, or leave it to the SDK's server if that answers the request."""
        if self.channel is not None and self.channel.is_handed_over:
            to_json(result)  # the SDK would notice too late that it cannot be written
            return result
        return self.write(result)

    def response(self, written: bytes | Json) -> bytes:
        """Return the response with a result of `written`, or the rest of one that has begun.

        It is empty if the SDK's server answers, which gets the result.
        """
        if isinstance(written, bytes):
            return written + b"}" if self.channel is not None and self.has_begun else result_message(self.id, written)
        assert self.channel is not None
        self.channel.settle(written)
        return b""

    def is_passed_on(self, error: ProtocolError | InputRequired) -> bool:
        """Pass an error to the SDK's server if that answers the request; returns whether it does."""
        channel = self.channel
        if channel is None:
            return False
        if isinstance(error, InputRequired):  # the SDK's server asks the client
            channel.hand_over()
        if channel.is_handed_over:
            channel.settle(error)
        return channel.is_handed_over

    def run(self, context: InvocationContext) -> Coroutine[Any, Any, tuple[bytes, int]]:
        """Run the request, if its plan was the request itself. Raises nothing but cancellation.

        Returns:
            The response, and its JSON-RPC error code, 0 for a result. The response is empty if the request was handed
                over to the SDK's server.
        """
        return self.responder.run(self, context)


class Responder(Protocol):
    """Responder of a method on the fast path, which writes complete responses."""

    def plan(self, request: PlainRequest) -> bytes | PlainRequest | None:
        """Return the response, the request itself if it has to be run, or None for the SDK."""
        ...

    async def run(self, request: PlainRequest, context: InvocationContext) -> tuple[bytes, int]:
        """Run a request; return the response and its JSON-RPC error code, 0 for a result."""
        ...

    async def call_plain(self, request: PlainRequest, account: str) -> tuple[bytes, int]:
        """Run a request with a `tool` that takes no context, like `run`; ``account`` is that of the context."""
        ...

    def pass_on(self, request: PlainRequest, receive: Callable[[bytes | None], None]) -> BegunCall | None:
        """Pass a request on, as `Method.pass_on`; the response is received instead of the result."""
        ...

    @property
    def start_plain(self) -> Callable[[PlainRequest, Step], bytes | None]:
        """As `Method.start_plain`."""
        ...


class HandlerRequest(Protocol):
    """A request to a handler of the SDK's server."""

    @property
    def sdk(self) -> ServerRequestContext[Any, Any]:
        """The SDK's context of the request."""
        ...

    @property
    def modern(self) -> bool:
        """True for version 2026-07-28."""
        ...

    @property
    def access(self) -> Access:
        """Permissions of the caller."""
        ...

    def running(self) -> AbstractContextManager[InvocationContext]:
        """Return a context manager in which the request runs a tool, and which yields the tool's context."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a request, such as the tool of a call."""

    requested: str | None
    """Name in the request; None if it is not text."""
    name: str | None
    """Name of the target; None if there is no such target."""
    upstream: str | None
    """Upstream server of the target; None for a target in this process."""


def session_id(request: ServerRequestContext[Any, Any]) -> str | None:
    """Return the id of an HTTP request's session; None over stdio, and in the modern era, which has no sessions."""
    if request.request is None or request.protocol_version in MODERN_VERSIONS:
        return None
    session: str | None = request.request.headers.get("mcp-session-id")
    return session or request.request.query_params.get("session_id")


class Method:
    """Base class of a protocol method, for one server."""

    name: ClassVar[str]
    """Name of the method, such as ``tools/list``."""
    planned_in: ClassVar[frozenset[Era]] = frozenset()
    """Eras in which it has a plan; in others the SDK answers."""
    noun: ClassVar[str] = "tool"
    """The target in words, which its records have as well: ``tool``, ``resource`` or ``prompt``."""
    target_param: ClassVar[str | None] = None
    """Parameter that names the target, which HTTP repeats in the header ``Mcp-Name``; None for no target."""
    header_param: ClassVar[str | None] = None
    """Parameter that HTTP repeats in ``Mcp-Name`` although it names no target; None for none."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core

    def plan(self, request: PlainRequest) -> bytes | PlainRequest | None:  # noqa: ARG002 - for subclasses
        """Plan the response to a plain request, without waiting.

        Returns:
            The result as JSON; the request itself if `run` has to be awaited; None if the SDK has to answer.

        Raises:
            ProtocolError: The answer is an error.
        """
        return None

    def run(
        self, request: PlainRequest, context: InvocationContext, write: Callable[[Json], Written]
    ) -> Awaitable[Written]:
        """Run a plain request whose plan was the request itself.

        Raises:
            ProtocolError: The answer is an error.
            InputRequired: The tool asks its client a question, although it is not interactive.
        """
        raise NotImplementedError(f"{self.name!r} plans requests that it cannot run")

    def call_plain(self, request: PlainRequest, account: str) -> Awaitable[bytes]:
        """Run a plain request whose plan was the request with a tool, like `run`; return the result."""
        raise NotImplementedError(f"{self.name!r} plans no calls of tools")

    def start_plain(self, request: PlainRequest, step: Step) -> bytes | None:
        """Start a plain request with a tool, and return the response if the call has ended.

        Otherwise `call_plain` continues it, or `run` if the tool takes a context.

        Args:
            request: The request.
            step: Runs the first step of a coroutine; returns the rest, or raises StopIteration with its value.
        """
        raise NotImplementedError(f"{self.name!r} plans no calls of tools")

    def pass_on(self, request: PlainRequest, receive: Callable[[bytes | None], None]) -> BegunCall | None:
        """Send the call of another server's tool at once.

        Args:
            request: A request with `PlainRequest.passing`.
            receive: Called once, with the result, or with None if `run` has to continue the call.

        Returns:
            The call; None, before anything is sent, if `run` has to send it.
        """
        raise NotImplementedError(f"{self.name!r} plans no calls of tools")

    def params_type(self) -> type[RequestParams] | None:
        """Return the SDK's type of the parameters of `handle`; None if the SDK answers the method."""
        return None

    async def handle(self, request: HandlerRequest, params: Any) -> Any:
        """Answer a request to the SDK's server.

        Args:
            request: The request.
            params: Its parameters, of `params_type`.

        Returns:
            The result: MCP's JSON, or a model of the SDK.

        Raises:
            ProtocolError: The answer is an error.
            InputRequired: The tool asks its client a question.
        """
        raise NotImplementedError(f"{self.name!r} has a type of parameters and no handler")

    def close(self) -> None:
        """End requests that last until their client disconnects."""

    def target(self, params: Mapping[str, Any], access: Access = EVERYTHING) -> Target | None:  # noqa: ARG002 - subclasses
        """Return the target of a request; None for no target.

        Args:
            params: The parameters of the request, which may be malformed.
            access: Permissions of the caller; a target outside of them has no name.
        """
        return None
