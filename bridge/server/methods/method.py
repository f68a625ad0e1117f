"""A protocol method: its plan for the fast path, its handler for the SDK's server, its target in telemetry.

    message ─> FastPath ─> PlainRequest ─> Method.plan ─┬─> bytes          the result
                                                        ├─> the request    to be awaited: `Method.run`
                                                        ╰─> None           not plain: the SDK's server
    message ─> SdkServer ─> HandlerRequest ─> Method.handle ─> result

A file of methods imports the SDK inside functions only: a server over stdio plans its first answers without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

from bridge.server.protocol import MODERN_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from contextlib import AbstractContextManager

    from mcp.server import ServerRequestContext
    from mcp_types import RequestParams

    from bridge.server.auth.access import Access
    from bridge.server.core import ServerCore
    from bridge.server.protocol import MessageId
    from bridge.tools.context import InvocationContext
    from bridge.types import Json

Era = Literal["opening", "handshake", "modern"]
"""``opening`` is the first request of the handshake era, ``handshake`` the rest of it, ``modern`` is 2026-07-28."""

ERAS: frozenset[Era] = frozenset({"handshake", "modern"})
"""Both eras, without the opening."""

_Written = TypeVar("_Written")


@dataclass(slots=True)
class PlainRequest:
    """A request whose envelope holds nothing that the fast path does not know.

    It is never changed. It is not frozen, because making a frozen one takes twice as long.
    """

    responder: Responder
    """Writes the response."""
    id: MessageId
    params: Json
    """Its parameters; empty where it has none."""
    modern: bool
    """True for a client of the 2026-07-28 revision."""
    version: str
    """The revision that is spoken; empty where it is not known."""
    capabilities: Mapping[str, Any]
    """What the client declared with the request; empty in the handshake era."""
    access: Access
    """What the caller may do."""
    write: Callable[[Json], bytes]
    """Writes a result as the era has it; it may change the result."""

    def run(self, context: InvocationContext) -> Coroutine[Any, Any, tuple[bytes, int]]:
        """Run the request, if its plan was the request itself; raises nothing but a cancellation.

        Returns:
            The response, and its JSON-RPC error code, 0 for a result.
        """
        return self.responder.run(self, context)


class Responder(Protocol):
    """A method on the fast path, which writes whole responses."""

    def plan(self, request: PlainRequest) -> bytes | PlainRequest | None:
        """Return the response, the request itself where it has to be run, or None for the SDK."""
        ...

    async def run(self, request: PlainRequest, context: InvocationContext) -> tuple[bytes, int]:
        """Run a request; returns the response and its JSON-RPC error code, 0 for a result."""
        ...


class HandlerRequest(Protocol):
    """A request to the SDK's server, as handlers get it."""

    @property
    def sdk(self) -> ServerRequestContext[Any, Any]:
        """The SDK's context of the request."""
        ...

    @property
    def modern(self) -> bool:
        """True for a client of the 2026-07-28 revision."""
        ...

    @property
    def access(self) -> Access:
        """What the caller may do."""
        ...

    def running(self) -> AbstractContextManager[InvocationContext]:
        """A block in which the request runs code of an author; gives the context of that."""
        ...


@dataclass(frozen=True, slots=True)
class Target:
    """The thing that a request is for, such as the tool of a call."""

    requested: str | None
    """Its name as the client wrote it; None where that is no text."""
    name: str | None
    """The name of the thing; None where there is no such thing."""
    upstream: str | None
    """The upstream server that has it; None for a thing of this process."""


def session_id(request: ServerRequestContext[Any, Any]) -> str | None:
    """The id of the session of an HTTP request, over streamable HTTP or SSE; None elsewhere.

    In the handshake era the transport has found that session. The modern era has no sessions: an id that a client
    sends there could be anyone's.
    """
    if request.request is None or request.protocol_version in MODERN_VERSIONS:
        return None
    session: str | None = request.request.headers.get("mcp-session-id")
    return session or request.request.query_params.get("session_id")


class Method:
    """One method of the protocol, for one server. Subclasses override what they have.

    Args:
        core: The server.
    """

    name: ClassVar[str]
    """The method's name, such as ``tools/list``."""
    planned_in: ClassVar[frozenset[Era]] = frozenset()
    """Eras in which it has a plan; in others the SDK answers."""
    target_param: ClassVar[str | None] = None
    """The parameter that names the target, which HTTP repeats in the header ``Mcp-Name``; None for no target."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core

    def plan(self, request: PlainRequest) -> bytes | PlainRequest | None:  # noqa: ARG002 - for subclasses
        """Plan the answer to a plain request, without waiting for anything.

        Returns:
            The result as JSON; the request itself where `run` has to be awaited; None where the SDK is to answer.

        Raises:
            ProtocolError: The answer is an error.
        """
        return None

    def run(
        self, request: PlainRequest, context: InvocationContext, write: Callable[[Json], _Written]
    ) -> Awaitable[_Written]:
        """Run a plain request whose plan was the request itself.

        Args:
            request: The request.
            context: The context of the code that is run.
            write: Writes the result, once.

        Raises:
            ProtocolError: The answer is an error.
            InputRequired: The code asks its client something, although the plan took it for plain.
        """
        raise NotImplementedError(f"{self.name!r} plans requests that it cannot run")

    def params_type(self) -> type[RequestParams] | None:
        """The SDK's type of the parameters that `handle` takes; None where the SDK answers the method itself."""
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
            InputRequired: The client is to be asked first.
        """
        raise NotImplementedError(f"{self.name!r} has a type of parameters and no handler")

    def close(self) -> None:
        """End requests that would last until their client leaves."""

    def target(self, params: Mapping[str, Any]) -> Target | None:  # noqa: ARG002 - for subclasses
        """The target of a request in telemetry: each request with one has a record of its own; None for no target.

        Args:
            params: The parameters of the request, which may be malformed.
        """
        return None
