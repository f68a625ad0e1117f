"""Session records and log levels in Redis.

Records: what replicas have to know of a session to answer for it, wherever it was opened.

A session that is alive in this replica.

The log levels of sessions that any replica may answer for: said to one of them, and kept by all.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context

from bridge.tools.context import LOG_LEVELS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from mcp.server.connection import Connection
    from mcp.server.streamable_http import StreamableHTTPServerTransport

    from bridge.server.cluster.event_store import SessionEvents
    from bridge.server.cluster.replica import Replica
    from bridge.server.methods.logging import LogLevels
    from bridge.tools.context import LogLevel

DEFAULT_KEPT_SECONDS = 24 * 60 * 60
"""How long a session is kept that never goes unused."""

SAVE = """
if redis.call("EXISTS", KEYS[2]) == 0 then
    redis.call("SET", KEYS[1], ARGV[1], "EX", ARGV[2])
end
"""
"""Keeps a record unless its session was ended, be it at the same moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """One session, after its ``initialize`` was answered."""

    id: str
    """What the client sends in ``Mcp-Session-Id``."""
    owner: str
    """Whose it is, as `owner_digest` says it."""
    version: str
    """The revision of the protocol that was agreed on."""
    params: Mapping[str, Any]
    """The parameters of ``initialize``."""
    log_level: LogLevel | None = None
    """From which severity on the client wants log messages, once it has said so."""


_CONTENT = {field.name for field in fields(SessionRecord)} - {"id"}


class SessionRecords:
    """The records of all sessions.

    Args:
        link: The way to Redis.
        idle_seconds: How long a session may go unused.
    """

    def __init__(self, link: Replica, idle_seconds: float | None) -> None:
        self._link = link
        self._save = link.redis.register_script(SAVE)
        self._seconds = max(1, round(idle_seconds or DEFAULT_KEPT_SECONDS))

    @property
    def seconds(self) -> int:
        """How long a record is kept that nobody renews."""
        return self._seconds

    async def save(self, record: SessionRecord) -> None:
        """Keep a record, unless its session was ended.

        Raises:
            RedisError: Redis does not answer.
        """
        content: dict[str, Any] = {"owner": record.owner, "version": record.version, "params": dict(record.params)}
        if record.log_level is not None:
            content["log_level"] = record.log_level
        await self._save(keys=[self._key(record.id), self._ended(record.id)], args=[json.dumps(content), self._seconds])

    async def find(self, session_id: str) -> SessionRecord | None:
        """The record of a session that was not ended; whoever asks is about to use it, so it is renewed.

        Raises:
            RedisError: Redis does not answer.
        """
        async with self._link.redis.pipeline(transaction=False) as pipeline:
            pipeline.get(self._key(session_id))
            pipeline.expire(self._key(session_id), self._seconds)
            text, _ = await pipeline.execute()
        if text is None:
            return None
        # Replicas of a later version, while they take the place of this one, may know more of a session.
        content = {name: value for name, value in json.loads(text).items() if name in _CONTENT}
        return SessionRecord(id=session_id, **content)

    async def end(self, session_id: str) -> None:
        """Let a session be no more, whoever still has it.

        Raises:
            RedisError: Redis does not answer.
        """
        async with self._link.redis.pipeline(transaction=True) as pipeline:
            pipeline.set(self._ended(session_id), "1", ex=self._seconds)
            pipeline.delete(self._key(session_id))
            await pipeline.execute()

    async def drop(self, session_id: str) -> None:
        """Keep a record no longer.

        Raises:
            RedisError: Redis does not answer.
        """
        await self._link.redis.delete(self._key(session_id))

    async def renew(self, records: Iterable[SessionRecord]) -> list[str]:
        """Keep the records of sessions that are used, anew where they are lost; gives those that were ended elsewhere.

        Raises:
            RedisError: Redis does not answer.
        """
        ended = []
        for record in records:
            async with self._link.redis.pipeline(transaction=False) as pipeline:
                pipeline.exists(self._ended(record.id))
                pipeline.expire(self._key(record.id), self._seconds)
                is_ended, is_kept = await pipeline.execute()
            if is_ended:
                ended.append(record.id)
            elif not is_kept:
                await self.save(record)
        return ended

    def _key(self, session_id: str) -> str:
        return self._link.key("session", session_id)

    def _ended(self, session_id: str) -> str:
        return self._link.key("ended", session_id)


def owner_digest(user: object, session_id: str) -> str:
    """Whose session it is, where a request carries a user: a digest of what the SDK compares, and of no secret."""
    if not isinstance(user, AuthenticatedUser):
        return ""
    principal = json.dumps([session_id, authorization_context(user)], sort_keys=True)
    return hashlib.sha256(principal.encode()).hexdigest()


@dataclass(eq=False, slots=True)
class LiveSession:
    """What there is of it here."""

    transport: StreamableHTTPServerTransport
    events: SessionEvents
    record: SessionRecord | None = None
    """None until ``initialize`` was answered."""
    is_kept: bool = True
    """Whether Redis has what the record says."""
    connection: Connection | None = None
    """None until it is served."""


class ClusterLogLevels:
    """Keeps the level of a session in its record, and tells it to the replicas in which the session is alive.

    Args:
        levels: Those of the server that is served here.
        link: The way to the other replicas.
        keep: Keeps the record of a session that is alive here.
        find: Gives a session that is alive here, when it is not just being revived.
    """

    def __init__(
        self,
        levels: LogLevels,
        link: Replica,
        keep: Callable[[LiveSession], Awaitable[None]],
        find: Callable[[str], Awaitable[LiveSession | None]],
    ) -> None:
        self._levels = levels
        self._keep = keep
        self._link = link
        self._find = find
        levels.on_change = self._said
        link.hear("log_level", self._heard)

    def revive(self, alive: LiveSession) -> None:
        """Let a session that comes to life here have the level that its client said elsewhere."""
        level = None if alive.record is None else alive.record.log_level
        if level is not None and alive.connection is not None and alive.connection.client_params is not None:
            self._levels.keep(alive.connection.client_params, level)

    async def tell(self, alive: LiveSession) -> None:
        """Tell other replicas the level of a session, of which they may know an earlier one.

        Raises:
            RedisError: Redis does not answer.
        """
        if alive.record is not None and alive.record.log_level is not None:
            await self._link.tell(_message(alive.record.id, alive.record.log_level))

    async def _said(self, session_id: str, level: LogLevel) -> None:
        alive = await self._find(session_id)
        if alive is None or alive.record is None:
            return
        alive.record = replace(alive.record, log_level=level)
        await self._keep(alive)
        if alive.is_kept:
            try:
                await self._link.tell_surely(_message(session_id, level))
            except self._link.failures as error:
                self._link.failed(error)

    async def _heard(self, message: Mapping[str, Any]) -> None:
        alive = await self._find(message["session"])
        if alive is not None and alive.record is not None and message["level"] in LOG_LEVELS:
            alive.record = replace(alive.record, log_level=message["level"])
            self.revive(alive)


def _message(session_id: str, level: LogLevel) -> dict[str, str]:
    return {"kind": "log_level", "session": session_id, "level": level}
