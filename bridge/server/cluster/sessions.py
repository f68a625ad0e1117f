"""Sessions of the handshake era that any replica can serve, in place of the SDK's session manager.

Each session has the SDK's transport, dispatcher and connection, as the manager would create them. A session that was
opened on another replica is restored from its record on its first request here; several replicas may serve it at once.
A message that is for another replica is published to that replica.
"""

from __future__ import annotations

import logging
import math
import re
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio
from mcp.server.connection import Connection
from mcp.server.runner import serve_connection
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp_types import InitializeRequestParams
from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.responses import Response

from bridge.protocol.messages import client_name
from bridge.protocol.versions import INTERNAL_ERROR, LIMIT_EXCEEDED
from bridge.server.cluster.event_store import RedisEvents
from bridge.server.cluster.replica import ReplicaDispatcher, target_replica
from bridge.server.cluster.session_records import (
    LiveSession,
    SessionRecord,
    SessionRecords,
    log_level_message,
    owner_digest,
    watched_message,
)
from bridge.server.http.event_store import RETRY_MILLISECONDS, EventBytes, position_of
from bridge.server.http.responses import send_error
from bridge.server.http.session import kept_bytes, request_in_session, without_header
from bridge.server.http.sessions import Session, same_credential
from bridge.server.limits.accounts import caller_key
from bridge.wire.tasks import without_tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from anyio.abc import TaskGroup, TaskStatus
    from starlette.types import Receive, Scope, Send

    from bridge.server.cluster.replica import Replica
    from bridge.server.http.sessions import Sessions
    from bridge.server.publisher import Publisher
    from bridge.types import Json

_logger = logging.getLogger("bridge.server")

_ID = re.compile("[0-9a-f]{32}")
_RETRY_SECONDS = 1
_RENEWALS = 4  # within the idle time
_FULL = "too many open sessions; try again later"
_UNKNOWN = "this session cannot be looked up now; try again"
_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


class ClusterSessions:
    """The sessions that this replica serves."""

    def __init__(self, publisher: Publisher, sessions: Sessions, replica: Replica, idle_seconds: float | None) -> None:
        self._server = publisher.server
        self._sessions = sessions
        self._replica = replica
        self._records = SessionRecords(replica, idle_seconds)
        self._event_bytes = EventBytes()
        self._alive: dict[str, LiveSession] = {}
        self._restoring: dict[str, anyio.Event] = {}
        self._tasks: TaskGroup | None = None
        self._levels, self._resources = self._server.log_levels, publisher.resources
        self._levels.on_change = lambda session, level: self._share(log_level_message(session, level))
        if self._resources is not None:
            self._resources.on_watch = self._watched
        replica.on_message("log_level", self._receive_change)
        replica.on_message("watched", self._receive_change)
        replica.on_message("post", self._receive_post)
        replica.on_message("ended", lambda message: self.end_here(message["session"]))
        replica.on_return.append(partial(self._renew, -math.inf))
        replica.on_use.append(self._store_unstored)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Context in which sessions are served."""
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._keep_renewing)
            try:
                yield
            finally:
                self._tasks.cancel_scope.cancel()
                self._alive.clear()

    async def prepare(self, scope: Scope, send: Send) -> bool:
        """Restore the session of a request if it was opened elsewhere; return False if the request was refused."""
        session_id = Headers(scope=scope).get("mcp-session-id")
        if session_id is None or self._sessions.find(session_id) is not None:
            return True
        refusal: str | None = _UNKNOWN
        with self._replica.noting_failures():
            refusal = await self._restore(session_id, scope)
        if refusal is not None:
            await _unavailable(send, refusal, LIMIT_EXCEEDED if refusal == _FULL else INTERNAL_ERROR)
        return refusal is None

    async def handle_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a session, or one that opens a session."""
        headers = Headers(scope=scope)
        session_id, event = headers.get("mcp-session-id"), headers.get("last-event-id", "")
        if session_id is None:
            await self._open(scope, receive, send)
            return
        session, alive = self._sessions.find(session_id), self._alive.get(session_id)
        if session is None or alive is None or not same_credential(scope, session):
            await send_error(send, HTTPStatus.NOT_FOUND, "Session not found")
        elif scope["method"] == "DELETE":
            await self._end_everywhere(session_id, scope, receive, send)
        elif scope["method"] == "GET" and (position := position_of(event)) is not None:
            await alive.events.resume(position)(scope, receive, send)
        else:
            # The events of streams that belong to no call are not stored.
            await alive.transport.handle_request(without_header(scope, b"last-event-id"), receive, send)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that may open a session."""
        session_id = uuid4().hex
        alive = await self._start(session_id, None)
        try:
            await alive.transport.handle_request(scope, receive, send)
        finally:
            if self._sessions.find(session_id) is None:  # it was refused
                await self._end(session_id, alive)

    async def opened(self, session: Session, params: Mapping[str, Any]) -> None:
        """Store the record of a session, before the response to its ``initialize`` is sent."""
        alive = self._alive.get(session.id)
        if alive is not None and session.version is not None:
            session.attach(alive.events)
            owner = owner_digest(session.user, session.id)
            alive.record = SessionRecord(id=session.id, owner=owner, version=session.version, params=params)
            await self._store(alive)

    async def _store(self, alive: LiveSession) -> None:
        alive.is_stored = False
        with self._replica.noting_failures(), self._replica.bounded_wait():
            await self._save(alive)  # else it is stored when Redis is available again

    async def _save(self, alive: LiveSession) -> None:
        if (record := alive.record) is not None:
            await self._records.save(record)
            alive.is_stored = alive.record is record

    async def _store_unstored(self) -> None:
        for alive in tuple(self._alive.values()):
            if not alive.is_stored:
                await self._save(alive)
                if (record := alive.record) is not None:
                    if record.log_level is not None:
                        await self._replica.publish(log_level_message(record.id, record.log_level))
                    if record.watched:
                        await self._replica.publish(watched_message(record.id, record.watched))
            await alive.events.store_unstored()

    async def forward(self, session: Session, message: Json, body: bytes, send: Send) -> bool:
        """Send a client's message to the replica that waits for it; return True if the client was answered."""
        to = target_replica(message)
        if to is None or to == self._replica.id:
            return False
        cancelled = message["params"].get("requestId") if to == "all" else None
        post = {"kind": "post", "session": session.id, "body": body.decode(), "cancelled": cancelled}
        is_lost = True
        with self._replica.noting_failures(), self._replica.bounded_wait():
            is_lost = not await self._replica.publish(post, to=to) and not await self._replica.has_ended(to)
        if to == "all":
            return False
        if is_lost:
            await _unavailable(send, "the replica that waits for this message cannot be reached now; try again")
        else:  # also if that replica has ended, since nothing waits for the message then
            await send({"type": "http.response.start", "status": HTTPStatus.ACCEPTED, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        return True

    async def _receive_post(self, message: Mapping[str, Any]) -> None:
        alive = self._alive.get(message["session"])
        if alive is None:
            return
        if (session := self._sessions.find(message["session"])) is not None:
            session.cancel(message.get("cancelled"))
        await request_in_session(alive.transport.handle_request, "POST", message["session"], message["body"].encode())

    async def _restore(self, session_id: str, scope: Scope) -> str | None:
        """Restore a session of this caller that was opened elsewhere; return the reason if that is impossible now."""
        if await self._find(session_id) is not None or _ID.fullmatch(session_id) is None:
            return None
        if not self._replica.is_up:
            return _UNKNOWN
        user = scope.get("user")
        done = self._restoring[session_id] = anyio.Event()
        try:
            record = await self._records.find(session_id)
            if record is None and not self._replica.is_settled:
                return _UNKNOWN
            if record is None or record.owner != owner_digest(user, session_id):
                return None
            kept, owner = kept_bytes(to_json(record.params)), caller_key(scope)
            evicted = self._sessions.make_room(owner, kept)
            if evicted is None:
                return _FULL
            for each in evicted:
                self._sessions.end(each)
            alive = await self._start(session_id, record)
            session = Session(session_id, user, without_tasks(record.params.get("capabilities")), owner)
            session.client, session.kept = client_name(record.params), kept
            session.version = record.version
            session.attach(alive.events)
            self._sessions.open(session)
            await request_in_session(alive.transport.handle_request, "POST", session_id, _INITIALIZED)
            return None
        finally:
            del self._restoring[session_id]
            done.set()

    async def _find(self, session_id: str) -> LiveSession | None:
        """Return a session of this replica, after waiting for it to be restored."""
        while (other := self._restoring.get(session_id)) is not None:
            await other.wait()
        return self._alive.get(session_id)

    async def _start(self, session_id: str, record: SessionRecord | None) -> LiveSession:
        events = RedisEvents(self._replica, session_id, self._records.seconds, self._event_bytes)
        transport = StreamableHTTPServerTransport(
            mcp_session_id=session_id, event_store=events, retry_interval=RETRY_MILLISECONDS
        )
        alive = self._alive[session_id] = LiveSession(transport, events, record)
        assert self._tasks is not None, "sessions are served only while the app runs"
        await self._tasks.start(self._serve, session_id, alive)
        return alive

    async def _serve(
        self, session_id: str, alive: LiveSession, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        async with alive.transport.connect() as (read_stream, write_stream):
            dispatcher = ReplicaDispatcher(
                self._replica.id, read_stream, write_stream, inline_methods=frozenset({"initialize"})
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
            self._restore_state(alive)
            task_status.started()
            try:
                await serve_connection(self._server, dispatcher, connection=connection, lifespan_state={})
            except Exception:
                _logger.exception("the session %s failed", session_id)
            finally:
                with anyio.CancelScope(shield=True):
                    await self._end(session_id, alive)

    async def _watched(self, session_id: str, uri: str, is_watched: bool) -> None:
        await self._share(watched_message(session_id, *(([uri], []) if is_watched else ([], [uri]))))

    async def _share(self, message: Json) -> None:
        """Store a change of a session in its record, and send it to the replicas that serve the session."""
        alive = await self._find(message["session"])
        if alive is None or alive.record is None:
            return
        alive.record = alive.record.after(message)
        await self._store(alive)
        if alive.is_stored:
            with self._replica.noting_failures():
                await self._replica.publish_and_wait(message)

    async def _receive_change(self, message: Mapping[str, Any]) -> None:
        alive = await self._find(message["session"])
        if alive is None or alive.record is None:
            return
        before, alive.record = alive.record, alive.record.after(message)
        self._restore_state(alive)
        if alive.record != before and message["kind"] == "watched":
            await self._store(alive)  # both replicas may have stored a change at once, each without the other's

    def _restore_state(self, alive: LiveSession) -> None:
        """Apply the record of a session to what this replica knows of its client."""
        client = None if alive.connection is None else alive.connection.client_params
        if alive.record is None or client is None:
            return
        if alive.record.log_level is not None:
            self._levels.keep(client, alive.record.log_level)
        if self._resources is not None:
            watched = self._resources.watched_by(client)  # the one that its notifications go by
            watched.clear()
            watched.update(alive.record.watched)

    async def end_here(self, session_id: str) -> None:
        """End a session on this replica only."""
        alive = self._alive.get(session_id)
        if alive is not None:
            await self._end(session_id, alive)

    async def drop(self, session_id: str) -> None:
        """End a session on this replica, and delete its record; another replica that serves it stores it again."""
        with self._replica.noting_failures(), self._replica.bounded_wait():
            await self._records.drop(session_id)
            if (alive := self._alive.get(session_id)) is not None:
                await alive.events.drop_all()
        await self.end_here(session_id)

    async def _end(self, session_id: str, alive: LiveSession) -> None:
        if self._alive.get(session_id) is alive:  # else it was restored meanwhile
            self._sessions.forget(session_id)
            del self._alive[session_id]
            alive.events.close()
        if not alive.transport.is_terminated:
            await alive.transport.terminate()

    async def _end_everywhere(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._replica.bounded_wait():
                await self._records.end(session_id)
                if (alive := self._alive.get(session_id)) is not None:
                    await alive.events.drop_all()
            await self._replica.publish_and_wait({"kind": "ended", "session": session_id})
        except self._replica.failures as error:
            self._replica.failed(error)
            await _unavailable(send, "the other replicas cannot be reached now; try again")
            return
        await self.end_here(session_id)
        await Response(status_code=HTTPStatus.OK)(scope, receive, send)

    async def _keep_renewing(self) -> None:
        renewed_at = monotonic()
        while True:
            await anyio.sleep(self._records.seconds / _RENEWALS)
            before, renewed_at = renewed_at, monotonic()
            with self._replica.noting_failures():
                await self._renew(before)
                for alive in tuple(self._alive.values()):
                    await alive.events.drop_expired()

    async def _renew(self, since: float) -> None:
        """Renew the records of sessions used since a time; end those that were ended elsewhere."""
        used = []
        for session_id, alive in self._alive.items():
            session = self._sessions.find(session_id)
            if session is not None and alive.record is not None and (session.requests or session.unused_since >= since):
                used.append(alive.record)
        for session_id in await self._records.renew(used):
            await self.end_here(session_id)


async def _unavailable(send: Send, message: str, code: int = INTERNAL_ERROR) -> None:
    await send_error(send, HTTPStatus.SERVICE_UNAVAILABLE, message, code, retry_after_seconds=_RETRY_SECONDS)
