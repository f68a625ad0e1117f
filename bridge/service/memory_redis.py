"""Conversations in Redis: a list for each, and beside it the newest system message.

Every append is one transaction of the server, so that turns of several replicas stand one after another, each whole. It
is never repeated: a connection that breaks after the server has carried it out would otherwise write the turn twice.
Needs the extra ``redis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from anyio import to_thread

from bridge.errors import MemoryStoreError
from bridge.redis import blocking_redis_at, connection_errors, unreachable
from bridge.service.memory import StoredMessages, key_of
from bridge.service.messages import SystemMessage
from bridge.service.stored_message import message_from_text, message_to_text, system_message_from_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bridge.service.messages import ChatMessage

_T = TypeVar("_T")


class RedisStore:
    """Keeps conversations in a Redis server.

    Args:
        url: The server, such as ``redis://localhost:6379/0``; with TLS ``rediss://``.
        prefix: What the keys begin with.
        expire_seconds: How long after its last turn a conversation is forgotten; None for never.

    Raises:
        MissingExtraError: The package ``redis`` is not installed.
        ValueError: The URL is not one of Redis.
    """

    def __init__(self, url: str, *, prefix: str = "bridge:memory", expire_seconds: int | None = None) -> None:
        self._url = url
        self._prefix = prefix
        self._expire_seconds = expire_seconds
        self._redis = blocking_redis_at(url)
        self._failures = connection_errors()

    async def read(self, memory_id: Any, *, limit: int, before: int | None = None) -> StoredMessages:
        """See `bridge.service.memory.ChatMemoryStore.read`.

        Raises:
            MemoryStoreError: Redis does not answer, or refuses; so do the others.
        """
        return await self._run(self._read, key_of(memory_id), limit, before)

    async def append(self, memory_id: Any, messages: Sequence[ChatMessage]) -> None:
        """See `bridge.service.memory.ChatMemoryStore.append`."""
        await self._run(self._append, key_of(memory_id), messages)

    async def delete(self, memory_id: Any) -> None:
        """See `bridge.service.memory.ChatMemoryStore.delete`."""
        await self._run(self._redis.delete, *self._keys(key_of(memory_id)))

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    async def _run(self, command: Callable[..., _T], *arguments: Any) -> _T:
        try:
            return await to_thread.run_sync(command, *arguments)
        except self._failures as error:
            raise MemoryStoreError(str(unreachable(self._url, error))) from error

    def _keys(self, key: str) -> tuple[str, str]:
        """The list and the system message of a conversation; the braces keep them on one node of a cluster."""
        return f"{self._prefix}:{{{key}}}:messages", f"{self._prefix}:{{{key}}}:system"

    def _read(self, key: str, limit: int, before: int | None) -> StoredMessages:
        said_key, system_key = self._keys(key)
        with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.get(system_key)
            if before is None:
                pipeline.llen(said_key)
                pipeline.lrange(said_key, -limit, -1)
                system, length, texts = pipeline.execute()
                start = length - len(texts)
            else:
                start = max(0, before - limit)
                pipeline.llen(said_key)
                pipeline.lrange(said_key, start, before - 1)
                system, length, texts = pipeline.execute()
                if length < before:  # forgotten meanwhile: what is there now was said after what has been read
                    start, texts = 0, []
        return StoredMessages(
            messages=[message_from_text(text) for text in texts],
            before=start or None,
            system=None if system is None else system_message_from_text(system),
        )

    def _append(self, key: str, messages: Sequence[ChatMessage]) -> None:
        said_key, system_key = self._keys(key)
        system = [message_to_text(message) for message in messages if isinstance(message, SystemMessage)]
        said = [message_to_text(message) for message in messages if not isinstance(message, SystemMessage)]
        with self._redis.pipeline(transaction=True) as pipeline:
            if said:
                pipeline.rpush(said_key, *said)
            if system:
                pipeline.set(system_key, system[-1])
            if self._expire_seconds is not None:
                pipeline.expire(said_key, self._expire_seconds)
                pipeline.expire(system_key, self._expire_seconds)
            pipeline.execute()
