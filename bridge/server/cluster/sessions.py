"""Sessions of the handshake era that any replica can serve.

    a POST, in `Endpoint` ─┬─ is_ready ──────────────────────────> answered at once
                           ├─ initialize ──> store_opened          its record is in Redis before the response is sent
                           ├─ unknown id ──> prepare               restored from its record
                           ╰─ for another replica ──> forward      a client's response, or a cancellation

A session that was opened on another replica is restored on its first request here; several replicas may serve it at
once. The state of a session that its client has changed is stored, and told to the replicas that serve it, before the
client is answered.
"""

from __future__ import annotations

import json
import math
import re
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import anyio

from bridge.protocol.messages import ProtocolError
from bridge.protocol.versions import INTERNAL_ERROR, LIMIT_EXCEEDED
from bridge.server.cluster.event_store import RedisEvents
from bridge.server.cluster.replica import target_replica
from bridge.server.cluster.session_records import (
    LiveSession,
    SessionRecord,
    SessionRecords,
    log_level_message,
    owner_digest,
    watched_message,
)
from bridge.server.cluster.session_state import ClusterStates
from bridge.server.http.event_store import EventBytes
from bridge.server.http.responses import Response, error_response
from bridge.server.http.sessions import HttpSession
from bridge.server.limits.accounts import caller_key
from bridge.server.limits.memory import kept_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from anyio.abc import TaskGroup

    from bridge.protocol.session import Session
    from bridge.server.cluster.replica import Replica
    from bridge.server.core import ServerCore
    from bridge.server.http.requests import Request
    from bridge.server.http.sessions import Sessions
    from bridge.types import Json

_ID = re.compile("[0-9a-f]{32}")
_STATUS = 503
_RETRY_SECONDS = 1
_RENEWALS = 4  # within the idle time
_FULL = "too many open sessions; try again later"
_UNKNOWN = "this session cannot be looked up now; try again"
_UNREACHABLE = "the other replicas cannot be reached now; try again"
_LOST = "the replica that waits for this message cannot be reached now; try again"


class ClusterSessions:
    """The sessions that this replica serves."""

    def __init__(self, core: ServerCore, sessions: Sessions, replica: Replica, idle_seconds: float | None) -> None:
        self._resources, self._kept = core.resources, core.kept
        self._sessions = sessions
        self._replica = replica
        self._records = SessionRecords(replica, idle_seconds)
        self._event_bytes = EventBytes()
        self._alive: dict[str, LiveSession] = {}
        self._restoring: dict[str, anyio.Event] = {}
        self._dropping: dict[str, anyio.Event] = {}
        self._tasks: TaskGroup | None = None
        core.on_session_change = self._share_change
        core.session_states = ClusterStates(replica, self._records.seconds, lambda session: session.id in self._alive)
        sessions.on_forget = self._forgotten
        replica.on_message("log_level", self._receive_change)
        replica.on_message("watched", self._receive_change)
        replica.on_message("post", self._receive_post)
        replica.on_message("ended", self._receive_end)
        replica.on_return.append(partial(self._renew, -math.inf))
        replica.on_answer.append(self._store_unstored)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Context in which sessions are served."""
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._keep_renewing)
            try:
                yield
            finally:
                self._tasks.cancel_scope.cancel()
                self._dropping.clear()

    def is_ready(self, session_id: str | None, message: Json) -> bool:
        """Return True if a message concerns no other replica, so that it can be answered without waiting for Redis.

        Args:
            session_id: ``Mcp-Session-Id``; None without it.
            message: The message.
        """
        if session_id is None:
            return message.get("method") != "initialize" or "id" not in message
        return self._sessions.find(session_id) is not None and target_replica(message) in {None, self._replica.id}

    # --- opening and restoring ----------------------------------------------------------------------------------------

    def share(self, session: HttpSession) -> None:
        """Let replicas share a session that has just been negotiated; see `store_opened`."""
        self._add(
            session,
            SessionRecord(
                id=session.id,
                owner=owner_digest(session.user, session.id),
                version=session.version,
                params=session.params,
            ),
            is_stored=False,
        )

    def _add(self, session: HttpSession, record: SessionRecord, *, is_stored: bool) -> LiveSession:
        events = RedisEvents(self._replica, session.id, self._records.seconds, self._event_bytes)
        session.events, session.id_prefix = events, self._replica.id_prefix
        alive = self._alive[session.id] = LiveSession(session, events, record, is_stored)
        return alive

    async def store_opened(self, session: HttpSession) -> None:
        """Store the record of a session, before the response to its ``initialize`` is sent."""
        for each in tuple(self._dropping.values()):  # among them those that were evicted in its favour
            await each.wait()
        if (alive := self._alive.get(session.id)) is not None:
            await self._store(alive)

    async def prepare(self, request: Request, session_id: str) -> Response | None:
        """Restore the session of a request if it was opened elsewhere; return the refusal if that is impossible now."""
        if self._sessions.find(session_id) is not None:
            return None
        problem: str | None = _UNKNOWN
        with self._replica.noting_failures():
            problem = await self._restore(session_id, request)
        return (
            None if problem is None else _unavailable(problem, LIMIT_EXCEEDED if problem == _FULL else INTERNAL_ERROR)
        )

    async def _restore(self, session_id: str, request: Request) -> str | None:
        """Restore a session of this caller that was opened elsewhere; return the reason if that is impossible now."""
        if await self._find(session_id) is not None or _ID.fullmatch(session_id) is None:
            return None
        if not self._replica.is_up:
            return _UNKNOWN
        done = self._restoring[session_id] = anyio.Event()
        try:
            record = await self._records.find(session_id)
            if record is None and not self._replica.is_settled:
                return _UNKNOWN
            user = request.scope.get("user")
            if record is None or record.owner != owner_digest(user, session_id):
                return None
            session = HttpSession(session_id, user, caller_key(request.scope))
            session.restore(dict(record.params), record.version)
            session.is_initialized = True
            session.kept = kept_bytes(json.dumps(record.params, ensure_ascii=False).encode(errors="surrogatepass"))
            if not self._sessions.make_room(session.owner, session.kept):
                return _FULL
            alive = self._add(session, record, is_stored=True)
            self._sessions.open(session)
            self._set_log_level(alive)
            self._watch(session, record.watched)
            return None
        finally:
            del self._restoring[session_id]
            done.set()

    async def _find(self, session_id: str) -> LiveSession | None:
        """Return a session of this replica, after waiting for it to be restored, or for its record to be dropped."""
        while (other := self._restoring.get(session_id) or self._dropping.get(session_id)) is not None:
            await other.wait()
        return self._alive.get(session_id)

    # --- changes of a session's state ---------------------------------------------------------------------------------

    async def _share_change(self, session: Session, change: Json) -> None:
        """Store a change of a session in its record, and send it to the replicas that serve the session."""
        alive = self._alive.get(session.id or "")
        if alive is None:  # of SSE, or ended
            return
        message = {**change, "session": session.id}
        alive.record = alive.record.after(message)
        await self._store(alive)
        if alive.is_stored:
            with self._replica.noting_failures():
                await self._replica.publish_and_wait(message)

    async def _receive_change(self, message: Mapping[str, Any]) -> None:
        alive = await self._find(message["session"])
        if alive is None:
            return
        before, alive.record = alive.record, alive.record.after(message)
        if message["kind"] == "log_level":
            self._set_log_level(alive)
            return
        self._watch(alive.session, message["added"], message["removed"])
        if alive.record != before:
            await self._store(alive)  # both replicas may have stored a change at once, each without the other's

    def _set_log_level(self, alive: LiveSession) -> None:
        if alive.record.log_level is not None:  # else its client has set none
            alive.session.log_level = alive.record.log_level

    def _watch(self, session: HttpSession, added: Iterable[str], removed: Iterable[str] = ()) -> None:
        """Let a session watch further resources, without waiting for other servers, and others no longer."""
        if self._resources is not None and (new := self._resources.change_watched(session, added, removed)):
            self._running_tasks.start_soon(self._resources.begin_watching, session, new)

    async def _store(self, alive: LiveSession) -> None:
        alive.is_stored = False
        with self._replica.noting_failures(), self._replica.bounded_wait():
            await self._save(alive)  # else it is stored when Redis is available again

    async def _save(self, alive: LiveSession) -> None:
        record = alive.record
        await self._records.save(record)
        alive.is_stored = alive.record is record

    async def _store_unstored(self) -> None:
        for alive in tuple(self._alive.values()):
            if not alive.is_stored:
                await self._save(alive)
                record = alive.record
                if record.log_level is not None:
                    await self._replica.publish(log_level_message(record.id, record.log_level))
                if record.watched:
                    await self._replica.publish(watched_message(record.id, record.watched))
            await alive.events.store_unstored()

    # --- messages for other replicas ----------------------------------------------------------------------------------

    async def forward(self, session: HttpSession, message: Json) -> Response | None:
        """Send a client's message to the replica that waits for it; return None if it is for this one, too."""
        to = target_replica(message)
        if to is None or to == self._replica.id:
            return None
        post = {"kind": "post", "session": session.id, "body": json.dumps(message)}
        is_lost = True
        with self._replica.noting_failures(), self._replica.bounded_wait():
            is_lost = not await self._replica.publish(post, to=to) and not await self._replica.has_ended(to)
        if to == "all":
            return None
        session.use()
        # A replica that has ended waits for nothing.
        return _unavailable(_LOST) if is_lost else Response(b"", 202)

    async def _receive_post(self, message: Mapping[str, Any]) -> None:
        session = self._sessions.find(message["session"])
        if session is None:
            return
        posted = json.loads(message["body"])
        if "method" not in posted:
            session.answered(posted)
        elif posted["method"] == "notifications/cancelled":
            session.cancel((posted.get("params") or {}).get("requestId"))

    # --- the end ------------------------------------------------------------------------------------------------------

    async def end_everywhere(self, session: HttpSession) -> Response | None:
        """End a session on the other replicas, and delete what is stored of it; return the refusal if that failed."""
        try:
            with self._replica.bounded_wait():
                await self._records.end(session.id)
                if (alive := self._alive.get(session.id)) is not None:
                    await alive.events.drop_all()
            await self._replica.publish_and_wait({"kind": "ended", "session": session.id})
            if self._kept is not None:
                await self._kept.end_session(session.id)
        except self._replica.failures as error:
            self._replica.failed(error)
            return _unavailable(_UNREACHABLE)
        return None

    async def _receive_end(self, message: Mapping[str, Any]) -> None:
        if (alive := await self._find(message["session"])) is not None:
            self._sessions.forget(alive.session)

    def _forgotten(self, session: HttpSession, is_over: bool) -> None:
        """Give up a session on this replica, and drop its record and events if it is over."""
        alive = self._alive.pop(session.id, None)
        if alive is None:
            return
        if is_over:
            self._dropping[session.id] = anyio.Event()
            self._running_tasks.start_soon(self._drop, alive)
        else:
            alive.events.close()

    async def _drop(self, alive: LiveSession) -> None:
        """Delete the record and the events of a session; another replica that serves it stores the record again."""
        try:
            with self._replica.noting_failures(), self._replica.bounded_wait():
                await self._records.drop(alive.record.id)
                await alive.events.drop_all()
        finally:
            alive.events.close()
            self._dropping.pop(alive.record.id).set()

    # --- renewal ------------------------------------------------------------------------------------------------------

    @property
    def _running_tasks(self) -> TaskGroup:
        assert self._tasks is not None, "sessions are served only while the app runs"
        return self._tasks

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
        used = [
            alive.record
            for alive in self._alive.values()
            if alive.session.requests or alive.session.unused_since >= since
        ]
        for session_id in await self._records.renew(used):
            self._sessions.forget(session_id)


def _unavailable(message: str, code: int = INTERNAL_ERROR) -> Response:
    error = ProtocolError(code, message, {"retryAfterSeconds": _RETRY_SECONDS})
    return error_response(error, _STATUS, headers=((b"retry-after", b"%d" % _RETRY_SECONDS),))
