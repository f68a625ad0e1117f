"""Store of large results in Redis, for the replicas of a server. Needs the extra ``redis``."""

from __future__ import annotations

import json
from time import time
from typing import TYPE_CHECKING, Any

from bridge.redis import connection_errors, redacted_url, redis_at
from bridge.tools.spill.store import KeptResult, ResultStoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from bridge.tools.spill.store import Bounds

_REMOVE = """
local function remove(id)
    local length = redis.call('HGET', prefix .. 'lengths', id)
    if length then redis.call('DECRBY', prefix .. 'total', length) end
    redis.call('HDEL', prefix .. 'lengths', id)
    redis.call('ZREM', prefix .. 'all', id)
    redis.call('DEL', prefix .. 'result:' .. id)
end
"""

_ADD = f"""
local prefix, owner, session = KEYS[1], KEYS[2], KEYS[3]
local id, result, length, now = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local ttl, max_bytes, max_caller_bytes = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
{_REMOVE}
for _, each in ipairs(redis.call('ZRANGEBYSCORE', prefix .. 'all', '-inf', now)) do remove(each) end
redis.call('SET', prefix .. 'result:' .. id, result, 'PX', math.ceil(ttl * 1000))
redis.call('ZADD', prefix .. 'all', now + ttl, id)
redis.call('HSET', prefix .. 'lengths', id, length)
local total = redis.call('INCRBY', prefix .. 'total', length)
for _, group in ipairs({{owner, session}}) do
    redis.call('ZREMRANGEBYSCORE', group, '-inf', now)
    redis.call('ZADD', group, now + ttl, id)
    redis.call('PEXPIRE', group, math.ceil(ttl * 1000))
end
local ids = redis.call('ZREVRANGE', owner, 0, -1)
local of_owner = 0
for _, each in ipairs(ids) do
    of_owner = of_owner + tonumber(redis.call('HGET', prefix .. 'lengths', each) or 0)
    if of_owner > max_caller_bytes then remove(each) redis.call('ZREM', owner, each) end
end
while tonumber(redis.call('GET', prefix .. 'total')) > max_bytes do
    local oldest = redis.call('ZRANGE', prefix .. 'all', 0, 0)[1]
    if not oldest then break end
    remove(oldest)
end
for _, each in ipairs({{'all', 'lengths', 'total'}}) do
    redis.call('PEXPIRE', prefix .. each, math.ceil(ttl * 1000))
end
"""

_FORGET = f"""
local prefix, group = KEYS[1], KEYS[2]
{_REMOVE}
for _, id in ipairs(redis.call('ZRANGE', group, 0, -1)) do remove(id) end
redis.call('DEL', group)
"""


class RedisResultStore:
    """Keeps results in Redis.

    Args:
        url: URL of the Redis.
        server: Name of the server, which its replicas share.

    Raises:
        MissingExtraError: The package ``redis`` is not installed.
        ValueError: The URL is not a Redis URL.
    """

    is_shared = True

    def __init__(self, url: str, server: str) -> None:
        self._redis = redis_at(url)
        self._place = redacted_url(url)
        self._prefix = f"bridge:{{{server}}}:results:"  # the braces put all keys on one node of a Redis Cluster
        self._failures = connection_errors()

    async def add(self, result_id: str, kept: KeptResult, bounds: Bounds) -> None:
        """Keep a result; see `bridge.tools.spill.store.ResultStore.add`."""
        result = json.dumps([kept.owner, kept.session, kept.tool, kept.content], ensure_ascii=False)
        owner = self._group("owner", kept.owner)
        keys = (self._prefix, owner, self._group("session", kept.session) if kept.session else owner)
        limits = (bounds.ttl_seconds, bounds.max_bytes, bounds.max_caller_bytes)
        values = (result_id, result, len(kept.content.encode()), time(), *limits)
        await self._done(self._redis.eval(_ADD, len(keys), *keys, *map(str, values)))

    async def find(self, result_id: str) -> KeptResult | None:
        """Return a result; see `bridge.tools.spill.store.ResultStore.find`."""
        found = await self._done(self._redis.get(f"{self._prefix}result:{result_id}"))
        if found is None:
            return None
        owner, session, tool, content = json.loads(found)
        return KeptResult(owner=owner, session=session, tool=tool, content=content)

    async def forget(self, *, owner: str | None = None, session: str | None = None) -> None:
        """Delete results; see `bridge.tools.spill.store.ResultStore.forget`."""
        group = self._group("session", session or "") if owner is None else self._group("owner", owner)
        await self._done(self._redis.eval(_FORGET, 2, self._prefix, group))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    def _group(self, kind: str, key: str) -> str:
        return f"{self._prefix}{kind}:{key}"

    async def _done(self, command: Awaitable[Any]) -> Any:
        try:
            return await command
        except self._failures as error:
            raise ResultStoreError(f"large results cannot be kept in Redis at {self._place}: {error}") from error
