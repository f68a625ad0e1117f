"""State of sessions in Redis, where all replicas find it."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bridge.errors import ToolError
from bridge.server.session_states import SessionStates, caller_id
from bridge.tools.session import MAX_STATE_BYTES, MAX_STATE_KEYS, SessionState, state_is_full

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import Any

    from bridge.protocol.session import Session
    from bridge.server.cluster.replica import Replica

WRITE = """
local others = 0
local is_new = redis.call("HEXISTS", KEYS[1], ARGV[1]) == 0
local content = redis.call("HGETALL", KEYS[1])
for place = 1, #content, 2 do
    if content[place] ~= ARGV[1] then
        others = others + #content[place] + #content[place + 1]
    end
end
if is_new and #content / 2 >= tonumber(ARGV[4]) or others + #ARGV[1] + #ARGV[2] > tonumber(ARGV[5]) then
    return 0
end
redis.call("HSET", KEYS[1], ARGV[1], ARGV[2])
redis.call("EXPIRE", KEYS[1], ARGV[3])
return 1
"""
"""Script that stores a value unless there are too many values or bytes."""


class ClusterStates(SessionStates):
    """State of all sessions of the replicas of one server.

    Args:
        replica: The connection to Redis.
        seconds: Seconds until the state of an unused session expires.
        is_shared: True for a session that replicas share; those of SSE are of one replica.
    """

    are_shared = True

    def __init__(self, replica: Replica, seconds: int, is_shared: Callable[[Session], bool]) -> None:
        super().__init__(lambda: seconds)
        self._replica = replica
        self._seconds = seconds
        self._is_shared = is_shared
        self._write = replica.redis.register_script(WRITE)

    def of_session(self, session: Session) -> SessionState:
        """Return the state of a session, or of the client of a connection."""
        if session.id is None or not self._is_shared(session):
            return super().of_session(session)
        return RedisState(session.id, state_key(self._replica, session.id), self._replica, self._seconds, self._write)

    def of_caller(self, name: str) -> SessionState:
        """Return the state of an authenticated caller."""
        digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
        key = self._replica.key("caller_state", digest)
        return RedisState(caller_id(name), key, self._replica, self._seconds, self._write)


def state_key(replica: Replica, session_id: str) -> str:
    """Return the key in Redis of the state of a session."""
    return replica.key("state", session_id)


class RedisState(SessionState):
    """Values in a hash of Redis, which expires when it is unused."""

    def __init__(
        self, session_id: str, key: str, replica: Replica, seconds: int, write: Callable[..., Awaitable[Any]]
    ) -> None:
        super().__init__(session_id)
        self._key = key
        self._replica = replica
        self._seconds = seconds
        self._write_script = write

    async def _read(self, key: str) -> bytes | None:
        with self._reaching():
            async with self._replica.redis.pipeline(transaction=False) as pipeline:
                pipeline.hget(self._key, key)
                pipeline.expire(self._key, self._seconds)
                text, _ = await pipeline.execute()
        return text.encode() if isinstance(text, str) else text

    async def _write(self, key: str, text: bytes) -> None:
        with self._reaching():
            arguments = [key, text, self._seconds, MAX_STATE_KEYS, MAX_STATE_BYTES]
            is_written = await self._write_script(keys=[self._key], args=arguments)
        if not is_written:
            raise state_is_full()

    async def _remove(self, key: str) -> None:
        with self._reaching():
            await self._replica.redis.hdel(self._key, key)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            with self._replica.bounded_wait():
                yield
        except self._replica.failures as error:
            self._replica.failed(error)
            raise ToolError("the state of the session cannot be reached now; try again") from error
