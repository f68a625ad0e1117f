"""Store of callers' credentials in Redis, for the replicas of a gateway. Requires the extra ``redis``.

Redis has to be persistent (appendonly), or callers connect again after it restarts.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from hashlib import sha256
from time import time
from typing import TYPE_CHECKING, Any

from bridge.gateway.credentials.errors import CredentialStoreError
from bridge.gateway.credentials.store import CredentialKey, CredentialRecord
from bridge.redis import connection_errors, redacted_url, redis_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bridge.gateway.credentials.sealing import CredentialSeal
    from bridge.gateway.credentials.store import Credential
    from bridge.redis import Redis
    from bridge.types import Json

_REPLACE_EXISTING = """
    if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
    return 1
"""
_REPLACE_SAME = """
    if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then redis.call('HSET', KEYS[1], ARGV[1], ARGV[3]) end
"""
_DELETE_OWN = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class RedisCredentialStore:
    """Keeps callers' credentials in Redis; a `bridge.gateway.credentials.store.CredentialStore`.

    Args:
        url: URL of the Redis.
        seal: Encrypts the credentials.
        name: Name of the gateway, which its replicas share.

    Raises:
        MissingExtraError: The package ``redis`` is not installed.
        ValueError: The URL is not a Redis URL.
    """

    def __init__(self, url: str, seal: CredentialSeal, name: str = "bridge") -> None:
        self._url = url
        self._seal = seal
        self._prefix = f"bridge:credentials:{name}"
        self._redis: Redis | None = None

    async def open(self) -> None:
        """Connect, and encrypt the credentials of older keys with the latest one."""
        if self._redis is not None:
            return
        self._redis = redis_at(self._url, "the store of credentials")
        async with self._commands() as redis:
            async for field, text in redis.hscan_iter(self._prefix):
                row = json.loads(text)
                if (again := self._seal.rotated(row["sealed"], _key(field))) is not None:
                    replaced = json.dumps(row | {"sealed": again})
                    await redis.eval(_REPLACE_SAME, 1, self._prefix, field, text, replaced)

    async def close(self) -> None:
        """Disconnect; it may be opened again."""
        redis, self._redis = self._redis, None
        if redis is not None:
            await redis.aclose()

    async def get(self, key: CredentialKey) -> Credential | None:
        """Return a credential; see `CredentialStore.get`."""
        async with self._commands() as redis:
            text = await redis.hget(self._prefix, _field(key))
        return None if text is None else self._seal.credential(json.loads(text)["sealed"], key)

    async def put(self, key: CredentialKey, credential: Credential) -> None:
        """Add or replace a credential; see `CredentialStore.put`."""
        async with self._commands() as redis:
            await redis.hset(self._prefix, _field(key), self._row(key, credential))

    async def update(self, key: CredentialKey, credential: Credential) -> bool:
        """Replace a credential; see `CredentialStore.update`."""
        async with self._commands() as redis:
            row = self._row(key, credential)
            return bool(await redis.eval(_REPLACE_EXISTING, 1, self._prefix, _field(key), row))

    async def delete(self, key: CredentialKey) -> bool:
        """Delete a credential; see `CredentialStore.delete`."""
        async with self._commands() as redis:
            return bool(await redis.hdel(self._prefix, _field(key)))

    async def list(
        self, *, issuer: str | None = None, subject: str | None = None, server: str | None = None
    ) -> Sequence[CredentialRecord]:
        """Return descriptions; see `CredentialStore.list`."""
        found = []
        async with self._commands() as redis:
            async for field, text in redis.hscan_iter(self._prefix):
                key, row = _key(field), json.loads(text)
                if key.subject and key == CredentialKey(
                    issuer or key.issuer, subject or key.subject, server or key.server
                ):
                    found.append(CredentialRecord(key, row["kind"], *row["times"]))
        return sorted(found, key=lambda record: (record.key.issuer, record.key.subject, record.key.server))

    async def acquire(self, key: CredentialKey, holder: str, seconds: float) -> bool:
        """Take the right to renew a credential; see `CredentialStore.acquire`."""
        async with self._commands() as redis:
            return bool(await redis.set(self._renewal(key), holder, nx=True, px=int(seconds * 1000)))

    async def release(self, key: CredentialKey, holder: str) -> None:
        """Give the right to renew back; see `CredentialStore.release`."""
        async with self._commands() as redis:
            await redis.eval(_DELETE_OWN, 1, self._renewal(key), holder)

    async def put_once(self, name: str, value: Json, seconds: float) -> None:
        """Keep a value; see `CredentialStore.put_once`."""
        async with self._commands() as redis:
            await redis.set(self._once(name), self._seal.of_value(value, name), px=int(seconds * 1000))

    async def find_once(self, name: str) -> Json | None:
        """Return a value; see `CredentialStore.find_once`."""
        async with self._commands() as redis:
            sealed = await redis.get(self._once(name))
        return None if sealed is None else self._seal.value(sealed, name)

    async def take_once(self, name: str) -> Json | None:
        """Remove and return a value; see `CredentialStore.take_once`."""
        async with self._commands() as redis:
            sealed = await redis.getdel(self._once(name))
        return None if sealed is None else self._seal.value(sealed, name)

    @asynccontextmanager
    async def _commands(self) -> AsyncIterator[Any]:
        if self._redis is None:
            raise CredentialStoreError("the store of credentials in Redis is not open")
        try:
            yield self._redis
        except connection_errors() as error:
            message = f"the credentials in the Redis at {redacted_url(self._url)} cannot be used: {error}"
            raise CredentialStoreError(message) from error

    def _row(self, key: CredentialKey, credential: Credential) -> str:
        times = (credential.made_at, time(), credential.expires_at)
        sealed = self._seal.of_credential(credential, key)
        return json.dumps({"kind": credential.kind, "times": times, "sealed": sealed})

    def _renewal(self, key: CredentialKey) -> str:
        return f"{self._prefix}:renewal:{sha256(_field(key).encode()).hexdigest()}"

    def _once(self, name: str) -> str:
        return f"{self._prefix}:once:{sha256(name.encode()).hexdigest()}"


def _field(key: CredentialKey) -> str:
    return json.dumps([key.issuer, key.subject, key.server])


def _key(field: str) -> CredentialKey:
    return CredentialKey(*json.loads(field))
