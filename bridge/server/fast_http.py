"""The fast path over HTTP: which requests to streamable HTTP it may answer, by their headers, and how.

A request is answered here only where all that the SDK would check of its headers is plainly in order; each check stands
beside the clause that demands it. Host, Origin and the length of the body are the edge's, for both paths alike.
Clauses: MCP 2025-11-25 and 2026-07-28, "Transports", Streamable HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from bridge.server.auth.identity import access_of_request, caller_of_request
from bridge.server.fast_path import failure
from bridge.server.hang_up import HungUpError, until_hang_up
from bridge.server.protocol import HTTP_STATUS, MODERN_VERSIONS, REQUEST_CANCELLED
from bridge.server.telemetry_fast_path import fast_path_of
from bridge.tools.context import InvocationContext

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from starlette.types import Receive, Scope, Send

    from bridge.server.fast_path import FastPath, PlainCall
    from bridge.server.publisher import Publisher
    from bridge.server.sessions import Session, Sessions
    from bridge.tools.json_reading import Json

_CONTENT_TYPE = (b"content-type", b"application/json")
_KEPT_HEADER_VALUES = 256
_MODERN_VERSIONS = frozenset(version.encode() for version in MODERN_VERSIONS)


class FastHttp:
    """Answers plain requests to one endpoint, on asyncio.

    Args:
        publisher: What is served.
        sessions: The sessions of the handshake era.
        paths: Where the endpoint is, within its app.
    """

    def __init__(self, publisher: Publisher, sessions: Sessions, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)
        self._sessions = sessions
        self._running = publisher.running
        self._plans = fast_path_of(publisher, "http")

    async def answered(
        self, scope: Scope, headers: Mapping[bytes, bytes], body: bytes, receive: Receive, send: Send
    ) -> bool:
        """Answer a POST if it is plain, and say whether it was.

        Args:
            scope: The request.
            headers: Its headers. None stands twice: of a routing header that would be an error.
            body: Its body, whole.
            receive: What tells that the client has gone.
            send: Where the answer goes.
        """
        path: str = scope["path"]
        if path.removeprefix(scope.get("root_path", "")) not in self._paths or not _is_plain(
            headers.get(b"accept", b""), headers.get(b"content-type", b"")
        ):
            return False
        version = headers.get(b"mcp-protocol-version")
        if version in _MODERN_VERSIONS:
            message = _request_in(body)
            if message is None or not _routes(headers, message):
                return False
            plans = self._plans.limited_to(access_of_request())
            plan = plans.modern(message)
            if plan is None:
                return False
            if isinstance(plan, bytes):
                await _send(send, plan)
            else:
                await self._call(plans, plan, headers, receive, send)
            return True
        session = self._session_of(scope, headers, version)
        return session is not None and await self._answered_in(session, headers, body, send)

    async def _answered_in(self, session: Session, headers: Mapping[bytes, bytes], body: bytes, send: Send) -> bool:
        message = _request_in(body)
        plans = self._plans.limited_to(access_of_request())
        plan = (
            None
            if message is None or str(message["id"]) in session.running
            else plans.handshake(message, session.version or "")
        )
        if plan is None:
            return False
        with session:
            answer = plan if isinstance(plan, bytes) else await self._call_in(session, plans, plan, headers)
            await _send(send, answer, session=session)
        return True

    async def _call(
        self, plans: FastPath, call: PlainCall, headers: Mapping[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """Run a call of the modern era, where closing the request cancels it (Cancellation, HTTP)."""
        context = self._context(headers, call.capabilities, session_id=None)
        try:
            answer, code = await until_hang_up(plans.run(call, context), receive, self._running)
        except HungUpError:
            return
        await _send(send, answer, HTTP_STATUS.get(code, 200))

    async def _call_in(
        self, session: Session, plans: FastPath, call: PlainCall, headers: Mapping[bytes, bytes]
    ) -> bytes:
        """Run a call of the handshake era, which goes on when its request is dropped, until somebody cancels it."""
        context = self._context(headers, session.capabilities, session_id=session.id)
        task = asyncio.current_task()
        assert task is not None
        is_cancelled = False

        def cancel() -> None:
            nonlocal is_cancelled
            is_cancelled = True
            task.cancel()

        running = str(call.id)
        session.running[running] = cancel
        self._running.enter(task)
        try:
            answer, _ = await plans.run(call, context)
        except asyncio.CancelledError:
            if not is_cancelled or task.cancelling() > 1:
                raise
        finally:
            session.running.pop(running, None)
            self._running.leave(task)
        if not is_cancelled:
            return answer
        task.uncancel()
        return failure(call.id, {"code": REQUEST_CANCELLED, "message": "Request cancelled"})

    def _session_of(self, scope: Scope, headers: Mapping[bytes, bytes], version: bytes | None) -> Session | None:
        """The session of a request: only for the credential that opened it, and in the version agreed on."""
        session_id = headers.get(b"mcp-session-id")
        if session_id is None:
            return None
        session = self._sessions.find(session_id.decode("latin-1"))
        if session is None or session.version is None or not same_credential(scope, session):
            return None
        return session if version is None or version == session.version.encode() else None

    def _context(
        self, headers: Mapping[bytes, bytes], capabilities: Mapping[str, Any], *, session_id: str | None
    ) -> InvocationContext:
        caller = caller_of_request()
        return InvocationContext(
            memory_id=session_id if caller is None else caller.name,
            caller=caller,
            headers=_DecodedHeaders(headers),
            client_capabilities=capabilities,
        )


class _DecodedHeaders(Mapping[str, str]):
    """Headers as text, decoded where somebody looks; few tools do. As everywhere, the case of a name does not count."""

    __slots__ = ("_raw",)

    def __init__(self, raw: Mapping[bytes, bytes]) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> str:
        return self._raw[name.lower().encode("latin-1")].decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._raw)

    def __len__(self) -> int:
        return len(self._raw)


def same_credential(scope: Scope, session: Session) -> bool:
    """Whether a request carries the credential that opened a session, as the SDK compares them."""
    user = scope.get("user")
    if user is session.user or user is None or session.user is None:
        return user is session.user
    from mcp.server.auth.middleware.bearer_auth import (  # noqa: PLC0415 - needed only where there are credentials
        AuthenticatedUser,
        authorization_context,
    )

    contexts = [
        authorization_context(each) if isinstance(each, AuthenticatedUser) else None for each in (user, session.user)
    ]
    return contexts[0] == contexts[1]


def _request_in(body: bytes) -> Json | None:
    """The one JSON-RPC request in a body (JSON-RPC 2.0, section 4); None where it is anything else."""
    try:
        message = from_json(body)
    except ValueError:
        return None
    if (
        type(message) is dict
        and message.get("jsonrpc") == "2.0"
        and type(message.get("id")) in {int, str}
        and type(message.get("method")) is str
        and ("params" not in message or type(message["params"]) is dict)
    ):
        return message
    return None


def _routes(headers: Mapping[bytes, bytes], message: Json) -> bool:
    """Whether the routing headers say what the body says (2026-07-28, "Standard Request Headers")."""
    params = message.get("params")
    if params is None or headers.get(b"mcp-method") != message["method"].encode():
        return False
    if message["method"] == "tools/call":
        name = params.get("name")
        if type(name) is not str or headers.get(b"mcp-name") != name.encode():
            return False
    return True


@lru_cache(_KEPT_HEADER_VALUES)
def _is_plain(accept: bytes, content_type: bytes) -> bool:
    """Whether a client sends JSON and accepts both kinds of answer (Sending Messages to the Server, 2)."""
    kinds = {kind.split(b";")[0].strip().lower() for kind in accept.split(b",")}
    accepts_both = {b"application/json", b"text/event-stream"} <= kinds or b"*/*" in kinds
    # In the handshake era the SDK wants it in lower case.
    return accepts_both and content_type.split(b";")[0].strip() == b"application/json"


async def _send(send: Send, body: bytes, status: int = 200, session: Session | None = None) -> None:
    headers = [_CONTENT_TYPE, (b"content-length", b"%d" % len(body))]
    if session is not None:
        headers.append((b"mcp-session-id", session.id.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
