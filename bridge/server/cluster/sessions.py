"""Sessions of the handshake era that any replica can answer for, in the place of the SDK's session manager.

Each session that is alive here has the SDK's own transport, dispatcher and connection, as the manager would have made
them. One that was opened elsewhere is revived from its record when a request of it comes; several replicas may have the
same session alive at once. What then comes to one and is for another is told to that one.
"""

from __future__ import annotations

import logging
import math
import re
import sys
from contextlib import asynccontextmanager
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio
from mcp.server.connection import Connection
from mcp.server.runner import serve_connection
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp_types import InitializeRequestParams
from pydantic_core import from_json, to_json
from starlette.datastructures import Headers
from starlette.responses import Response

from bridge.server.cluster.event_store import EventBytes, ReplicaDispatcher, SessionEvents
from bridge.server.cluster.routing import (
    requested_position,
    resume_stream,
    target_replica,
    without_last_event_id,
)
from bridge.server.cluster.session_records import (
    ClusterLogLevels,
    LiveSession,
    SessionRecord,
    SessionRecords,
    owner_digest,
)
from bridge.server.http.requests import read_body, replay_body
from bridge.server.http.responses import send_error
from bridge.server.http.session import InitializeResponse, Session, kept_bytes, same_credential
from bridge.server.limits.accounts import caller_key
from bridge.server.protocol import INTERNAL_ERROR, LIMIT_EXCEEDED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from anyio.abc import TaskGroup, TaskStatus
    from starlette.types import Message, Receive, Scope, Send

    from bridge.server.cluster.replica import Replica
    from bridge.server.http.sessions import Sessions
    from bridge.server.sdk_server import SdkServer
    from bridge.types import Json

_logger = logging.getLogger("bridge.server")

MAX_STREAMS = 64
"""Maximum number of streams of a session that are read on at once: each waits in a connection to Redis."""
_ID = re.compile("[0-9a-f]{32}")
_RETRY_SECONDS = 1
_RENEWALS = 4  # of a session in use, within its idle time
_FULL = "too many open sessions; try again later"
_UNKNOWN = "what is known of this session cannot be looked up now; try again"
_INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class ClusterSessions:
    """The sessions that are alive in this replica.

    Args:
        server: What is served.
        sessions: Where they are entered, so that the fast path and the timer of unused ones know them.
        link: The way to the other replicas.
        idle_seconds: How long a session may go unused, by anybody.
    """

    def __init__(self, server: SdkServer, sessions: Sessions, link: Replica, idle_seconds: float | None) -> None:
        self._server = server
        self._sessions = sessions
        self._link = link
        self._records = SessionRecords(link, idle_seconds)
        self._event_bytes = EventBytes()
        self._alive: dict[str, LiveSession] = {}
        self._reviving: dict[str, anyio.Event] = {}
        self._tasks: TaskGroup | None = None
        self._levels = ClusterLogLevels(server.log_levels, link, self._keep, self._found)
        link.hear("post", self._heard_post)
        link.hear("ended", self._heard_end)
        link.on_return.append(self._renew_all)
        link.on_use.append(self._keep_unkept)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The time during which sessions are alive."""
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._keep_renewing)
            try:
                yield
            finally:
                self._tasks.cancel_scope.cancel()
                self._alive.clear()

    async def prepare(self, scope: Scope, send: Send) -> bool:
        """Revive the session of a request if it lives elsewhere; whether the request can go on, or is answered."""
        session_id = Headers(scope=scope).get("mcp-session-id")
        if session_id is None or self._sessions.find(session_id) is not None:
            return True
        try:
            refusal = await self._revived(session_id, scope)
        except self._link.failures as error:
            self._link.failed(error)
            refusal = _UNKNOWN
        if refusal is not None:
            await _unavailable(send, refusal, LIMIT_EXCEEDED if refusal == _FULL else INTERNAL_ERROR)
        return refusal is None

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a session, or one that opens a session, as the SDK's manager does."""
        session_id = Headers(scope=scope).get("mcp-session-id")
        if session_id is None:
            await self._open(scope, receive, send)
            return
        session, alive = self._sessions.find(session_id), self._alive.get(session_id)
        if session is None or alive is None or not same_credential(scope, session):
            await send_error(send, HTTPStatus.NOT_FOUND, "Session not found")
        elif scope["method"] == "DELETE":
            await self._end_everywhere(session_id, scope, send)
        elif scope["method"] == "GET" and (place := requested_position(scope)) is not None:
            if session.streams > MAX_STREAMS:
                told = (
                    f"too many open streams: a session has {MAX_STREAMS}; close one, or try again in {_RETRY_SECONDS} s"
                )
                await send_error(send, 429, told, LIMIT_EXCEEDED, retry_after_seconds=_RETRY_SECONDS)
                return
            await resume_stream(alive.events, place, session_id, self._link)(scope, receive, send)
        else:
            await alive.transport.handle_request(without_last_event_id(scope), receive, send)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that may open a session; what others need to answer for it is kept before the client knows.

        Args:
            scope: The request.
            receive: Its body.
            send: Where the answer goes.
        """
        body = await read_body(receive, sys.maxsize)  # it has been read before, within the limit
        session_id = uuid4().hex
        alive = await self._started(session_id, None)
        opened = Session(session_id, scope.get("user"), {})
        is_established = False

        async def pass_on(message: Message) -> None:
            nonlocal is_established
            is_established = is_established or message.get("status", HTTPStatus.BAD_REQUEST) < HTTPStatus.BAD_REQUEST
            if opened.version is not None and alive.record is None:
                owner = owner_digest(opened.user, session_id)
                params = from_json(body)["params"]
                alive.record = SessionRecord(id=session_id, owner=owner, version=opened.version, params=params)
                await self._keep(alive)
            await send(message)

        try:
            reply = InitializeResponse(pass_on, lambda _: opened)
            await alive.transport.handle_request(scope, replay_body(body, receive), reply)
        finally:
            if not is_established:
                await self._end(session_id, alive)

    async def _keep(self, alive: LiveSession) -> None:
        alive.is_kept = False
        try:
            with self._link.soon():
                await self._save(alive)
        except self._link.failures as error:
            self._link.failed(error)  # it is saved when Redis is back

    async def _save(self, alive: LiveSession) -> None:
        if (record := alive.record) is not None:
            await self._records.save(record)
            alive.is_kept = alive.record is record

    async def _keep_unkept(self) -> None:
        for alive in tuple(self._alive.values()):
            if not alive.is_kept:
                await self._save(alive)
                await self._levels.tell(alive)
            await alive.events.keep_unkept()

    async def passed_on(self, session: Session, message: Json, body: bytes, send: Send) -> bool:
        """Tell other replicas what a client says and they wait for; whether the client has its answer by that.

        Args:
            session: The client's.
            message: What it says.
            body: The same, as it came.
            send: Where the answer goes.
        """
        to = target_replica(message)
        if to is None or to == self._link.replica:
            return False
        try:
            with self._link.soon():
                heard = await self._link.tell({"kind": "post", "session": session.id, "body": body.decode()}, to=to)
                is_lost = not heard and not await self._link.has_ended(to)
        except self._link.failures as error:
            self._link.failed(error)
            is_lost = True
        if to == "all":
            return False
        if is_lost:
            await _unavailable(send, "the replica that waits for this cannot be told now; try again")
        else:  # where that replica has ended, nobody waits any more
            await send({"type": "http.response.start", "status": HTTPStatus.ACCEPTED, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        return True

    async def _heard_post(self, message: Mapping[str, Any]) -> None:
        alive = self._alive.get(message["session"])
        if alive is None:
            return
        body = message["body"].encode()
        said = from_json(body)
        session = self._sessions.find(message["session"])
        if session is not None and said.get("method") == "notifications/cancelled":
            session.cancel((said.get("params") or {}).get("requestId"))
        await self._post(alive, message["session"], body)

    async def _heard_end(self, message: Mapping[str, Any]) -> None:
        await self.end_here(message["session"])

    async def _post(self, alive: LiveSession, session_id: str, body: bytes) -> None:
        """Give a session's transport a message as if its client had sent it here."""
        headers = [
            (b"content-type", b"application/json"),
            (b"accept", b"application/json, text/event-stream"),
            (b"mcp-session-id", session_id.encode()),
        ]
        scope: Scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def drop(_: Message) -> None:
            pass

        await alive.transport.handle_request(scope, receive, drop)

    async def _revived(self, session_id: str, scope: Scope) -> str | None:
        """Have a session alive here that was opened elsewhere, if it is this caller's; gives what prevents that."""
        if await self._found(session_id) is not None or _ID.fullmatch(session_id) is None:
            return None
        if not self._link.is_up:
            return _UNKNOWN
        user = scope.get("user")
        done = self._reviving[session_id] = anyio.Event()
        try:
            record = await self._records.find(session_id)
            if record is None and not self._link.is_settled:
                return _UNKNOWN
            if record is None or record.owner != owner_digest(user, session_id):
                return None
            kept, owner = kept_bytes(to_json(record.params)), caller_key(scope)
            giving_way = self._sessions.make_room(owner, kept)
            if giving_way is None:
                return _FULL
            for each in giving_way:
                self._sessions.end(each)
            alive = await self._started(session_id, record)
            session = Session(session_id, user, record.params.get("capabilities") or {}, owner)
            session.kept = kept
            session.version = record.version
            self._sessions.open(session)
            await self._post(alive, session_id, to_json(_INITIALIZED))
            return None
        finally:
            del self._reviving[session_id]
            done.set()

    async def _found(self, session_id: str) -> LiveSession | None:
        """A session that is alive here, or comes to life."""
        while (other := self._reviving.get(session_id)) is not None:
            await other.wait()
        return self._alive.get(session_id)

    async def _started(self, session_id: str, record: SessionRecord | None) -> LiveSession:
        events = SessionEvents(self._link, session_id, self._records.seconds, self._event_bytes)
        transport = StreamableHTTPServerTransport(mcp_session_id=session_id, event_store=events)
        alive = self._alive[session_id] = LiveSession(transport, events, record)
        assert self._tasks is not None, "sessions are alive only while the app runs"
        await self._tasks.start(self._live, session_id, alive)
        return alive

    async def _live(
        self, session_id: str, alive: LiveSession, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        async with alive.transport.connect() as (read_stream, write_stream):
            dispatcher = ReplicaDispatcher(
                self._link.replica, read_stream, write_stream, inline_methods=frozenset({"initialize"})
            )
            record = alive.record
            connection = Connection.for_loop(
                dispatcher,
                session_id=session_id,
                protocol_version_hint=None if record is None else record.version,
            )
            if record is not None:
                connection.client_params = InitializeRequestParams.model_validate(record.params, by_name=False)
            alive.connection = connection
            self._levels.revive(alive)
            task_status.started()
            try:
                await serve_connection(self._server, dispatcher, connection=connection, lifespan_state={})
            except Exception:
                _logger.exception("the session %s failed", session_id)
            finally:
                with anyio.CancelScope(shield=True):
                    await self._end(session_id, alive)

    async def end_here(self, session_id: str) -> None:
        """End what there is of a session here; elsewhere it goes on."""
        alive = self._alive.get(session_id)
        if alive is not None:
            await self._end(session_id, alive)

    async def drop(self, session_id: str) -> None:
        """End what there is of a session here, and keep its record no longer; where it is alive, it is kept again."""
        try:
            with self._link.soon():
                await self._records.drop(session_id)
                if (alive := self._alive.get(session_id)) is not None:
                    await alive.events.drop_all()
        except self._link.failures as error:
            self._link.failed(error)
        await self.end_here(session_id)

    async def _end(self, session_id: str, alive: LiveSession) -> None:
        if self._alive.get(session_id) is alive:  # it may have been revived meanwhile
            self._sessions.forget(session_id)
            del self._alive[session_id]
            alive.events.close()
        if not alive.transport.is_terminated:
            await alive.transport.terminate()

    async def _end_everywhere(self, session_id: str, scope: Scope, send: Send) -> None:
        try:
            with self._link.soon():
                await self._records.end(session_id)
                if (alive := self._alive.get(session_id)) is not None:
                    await alive.events.drop_all()
            await self._link.tell_surely({"kind": "ended", "session": session_id})
        except self._link.failures as error:
            self._link.failed(error)
            await _unavailable(send, "the other replicas cannot be told now; try again")
            return
        await self.end_here(session_id)
        await Response(status_code=HTTPStatus.OK)(scope, _nothing, send)

    async def _keep_renewing(self) -> None:
        renewed_at = monotonic()
        while True:
            await anyio.sleep(self._records.seconds / _RENEWALS)
            before, renewed_at = renewed_at, monotonic()
            try:
                await self._renew(before)
            except self._link.failures as error:
                self._link.failed(error)

    async def _renew_all(self) -> None:
        await self._renew(-math.inf)

    async def _renew(self, since: float) -> None:
        """Renew what was used since some time; end what was ended elsewhere meanwhile."""
        used = []
        for session_id, alive in self._alive.items():
            session = self._sessions.find(session_id)
            if session is not None and alive.record is not None and (session.requests or session.unused_since >= since):
                used.append(alive.record)
        for session_id in await self._records.renew(used):
            await self.end_here(session_id)


async def _unavailable(send: Send, message: str, code: int = INTERNAL_ERROR) -> None:
    await send_error(send, HTTPStatus.SERVICE_UNAVAILABLE, message, code, retry_after_seconds=_RETRY_SECONDS)


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}
