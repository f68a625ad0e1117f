"""Session records in Redis, by which any replica can serve a session."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from bridge.server.auth.identity import principal_of
from bridge.server.cluster.session_state import state_key
from bridge.types import LOG_LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bridge.server.cluster.event_store import RedisEvents
    from bridge.server.cluster.replica import Replica
    from bridge.server.http.sessions import HttpSession
    from bridge.types import Json, LogLevel

DEFAULT_KEPT_SECONDS = 24 * 60 * 60
"""Seconds until the record of a session without idle timeout expires."""

SAVE = """
if redis.call("EXISTS", KEYS[2]) == 0 then
    redis.call("SET", KEYS[1], ARGV[1], "EX", ARGV[2])
end
"""
"""Script that stores a record unless its session was ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """One session, after its ``initialize`` was answered."""

    id: str
    """Value of ``Mcp-Session-Id``."""
    owner: str
    """Digest of the caller that opened it; see `owner_digest`."""
    version: str
    """Negotiated protocol version."""
    params: Mapping[str, Any]
    """The parameters of ``initialize``."""
    log_level: LogLevel | None = None
    """Minimum severity of log messages for the client; None if it has set none."""
    watched: list[str] = field(default_factory=list)
    """URIs of the resources that the client watches, sorted."""

    def after(self, message: Mapping[str, Any]) -> SessionRecord:
        """Return the record after a change of the session, as a message of `log_level_message` or `watched_message`."""
        if message["kind"] == "watched":
            watched = set(self.watched) - set(message["removed"]) | set(message["added"])
            return replace(self, watched=sorted(watched))
        return replace(self, log_level=message["level"]) if message["level"] in LOG_LEVELS else self


_CONTENT = {each.name for each in fields(SessionRecord)} - {"id"}


class SessionRecords:
    """The records of all sessions. Methods raise RedisError if Redis does not answer."""

    def __init__(self, replica: Replica, idle_seconds: float | None) -> None:
        self._replica = replica
        self._save = replica.redis.register_script(SAVE)
        self.seconds = max(1, round(idle_seconds or DEFAULT_KEPT_SECONDS))
        """Seconds until a record expires unless renewed."""

    async def save(self, record: SessionRecord) -> None:
        """Store a record, unless its session was ended."""
        content = {name: getattr(record, name) for name in _CONTENT}
        await self._save(keys=[self._key(record.id), self._ended(record.id)], args=[json.dumps(content), self.seconds])

    async def find(self, session_id: str) -> SessionRecord | None:
        """Return the record of a session, and renew it; None if the session does not exist, or was ended."""
        async with self._replica.redis.pipeline(transaction=False) as pipeline:
            pipeline.get(self._key(session_id))
            pipeline.expire(self._key(session_id), self.seconds)
            text, _ = await pipeline.execute()
        if text is None:
            return None
        # During an update, replicas of a later version may store further fields.
        content = {name: value for name, value in json.loads(text).items() if name in _CONTENT}
        return SessionRecord(id=session_id, **content)

    async def end(self, session_id: str) -> None:
        """Delete the record of a session, and mark it as ended for all replicas."""
        async with self._replica.redis.pipeline(transaction=True) as pipeline:
            pipeline.set(self._ended(session_id), "1", ex=self.seconds)
            pipeline.delete(self._key(session_id), state_key(self._replica, session_id))
            await pipeline.execute()

    async def drop(self, session_id: str) -> None:
        """Delete a record."""
        await self._replica.redis.delete(self._key(session_id), state_key(self._replica, session_id))

    async def renew(self, records: Iterable[SessionRecord]) -> list[str]:
        """Renew the records of used sessions, and store lost ones again; return the ids of sessions ended elsewhere."""
        ended = []
        for record in records:
            async with self._replica.redis.pipeline(transaction=False) as pipeline:
                pipeline.exists(self._ended(record.id))
                pipeline.expire(self._key(record.id), self.seconds)
                pipeline.expire(state_key(self._replica, record.id), self.seconds)
                is_ended, is_kept, _ = await pipeline.execute()
            if is_ended:
                ended.append(record.id)
            elif not is_kept:
                await self.save(record)
        return ended

    def _key(self, session_id: str) -> str:
        return self._replica.key("session", session_id)

    def _ended(self, session_id: str) -> str:
        return self._replica.key("ended", session_id)


def log_level_message(session_id: str, level: LogLevel) -> Json:
    """Return the message to other replicas about the log level of a session."""
    return {"kind": "log_level", "session": session_id, "level": level}


def watched_message(session_id: str, added: Sequence[str], removed: Sequence[str] = ()) -> Json:
    """Return the message to other replicas about resources that a session watches, or no longer."""
    return {"kind": "watched", "session": session_id, "added": added, "removed": removed}


def owner_digest(user: object, session_id: str) -> str:
    """Return a digest of whose token a user has; empty for a user without a token."""
    if (principal := principal_of(user)) is None:
        return ""
    client, issuer, subject = principal
    identity = {"client_id": client, "issuer": issuer, "subject": subject}
    return hashlib.sha256(json.dumps([session_id, identity], sort_keys=True).encode()).hexdigest()


@dataclass(eq=False, slots=True)
class LiveSession:
    """A session that this replica serves."""

    session: HttpSession
    events: RedisEvents
    record: SessionRecord
    is_stored: bool
    """True if Redis has the record."""
