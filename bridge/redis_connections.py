"""Connections of this process to a Redis: one for commands, and one for channels, for all its clients of one URL.

Commands that are given while others are under way wait, and are sent together. Requires the extra ``redis``.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import ReadOnlyError, RedisError, ResponseError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from redis.asyncio.client import PubSub

    Received = asyncio.Queue[bytes | Exception | None]
    """Messages of channels; an exception when the connection is lost, and None when the channels are subscribed, or
    messages may have been missed."""

_BATCH_COMMANDS = 100
_RECEIVE_SECONDS = 1.0
_RECONNECT_SECONDS = 1.0
_MAX_RECEIVED = 10_000


class SharedRedis(Redis):
    """Client whose commands and pipelines use the connection that all clients of its URL in an event loop share.

    Commands that block on Redis would block the others.

    Args:
        url: The URL.
        options: Options of the connections.
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(connection_pool=_pool(url, options))
        self.url = url
        """The URL, with its credentials."""
        self._options = options

    @property
    def channels(self) -> Channels:
        """The channels of this Redis."""
        return self._connections.channels

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command, and return its answer."""
        return await self._connections.submit(args, options)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        """Return an empty pipeline; without a transaction, its commands may be sent with those of others."""
        connections = self._connections
        if transaction:
            return connections.redis.pipeline(transaction, shard_hint)
        return _SharedPipeline(connections, shard_hint)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        """Close the connections, if no other client uses them; a further command opens them again."""
        await super().aclose(close_connection_pool)
        shared = _in_loops.get(asyncio.get_running_loop(), {})
        if (connections := shared.get(self.url)) is not None:
            connections.clients.discard(self)
            if not connections.clients:
                del shared[self.url]
                await connections.close()

    @property
    def _connections(self) -> _Connections:
        shared = _in_loops.setdefault(asyncio.get_running_loop(), {})
        if (connections := shared.get(self.url)) is None:
            connections = shared[self.url] = _Connections(self.url, self._options)
        connections.clients.add(self)
        return connections


_in_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Connections]] = WeakKeyDictionary()


class _Connections:
    """The two connections to one URL, in one event loop."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self.redis: Redis = Redis(connection_pool=_pool(url, options))
        # Anybody may publish anything, also bytes that are no text.
        self.channels = Channels(Redis(connection_pool=_pool(url, {**options, "decode_responses": False})))
        self.clients: set[SharedRedis] = set()
        """The clients that use them."""
        self._waiting: list[tuple[tuple[Any, ...], Mapping[str, Any], asyncio.Future[Any]]] = []
        self._sending: asyncio.Task[None] | None = None

    def submit(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._waiting.append((args, options, answer))
        if self._sending is None or self._sending.done():
            self._sending = loop.create_task(self._send())
        return answer

    async def _send(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_BATCH_COMMANDS], self._waiting[_BATCH_COMMANDS:]
            batch = [each for each in batch if not each[2].done()]
            try:
                answers = await self._answers(batch)
            except BaseException as error:
                for _, _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
                if not isinstance(error, Exception):
                    raise
                continue
            for (_, _, answer), found in zip(batch, answers, strict=True):
                if answer.done():
                    continue
                if isinstance(found, Exception):
                    answer.set_exception(_without_command(found))
                else:
                    answer.set_result(found)
            if any(isinstance(found, ReadOnlyError) for found in answers):  # the URL may lead to another primary now
                await self.disconnect()

    async def _answers(self, batch: list[Any]) -> list[Any]:
        if len(batch) == 1:
            ((args, options, _),) = batch
            try:
                return [await self.redis.execute_command(*args, **options)]  # type: ignore[no-untyped-call] # redis-py's
            except ResponseError as error:
                return [error]
        async with self.redis.pipeline(transaction=False) as pipeline:
            for args, options, _ in batch:
                pipeline.execute_command(*args, **options)
            return await pipeline.execute(raise_on_error=False)

    async def disconnect(self) -> None:
        await self.redis.connection_pool.disconnect()
        await self.channels.disconnect()

    async def close(self) -> None:
        await self.channels.close()
        await self.redis.connection_pool.disconnect()


class _SharedPipeline(Pipeline):
    """Pipeline whose commands are sent like single ones, at once."""

    def __init__(self, connections: _Connections, shard_hint: str | None) -> None:
        redis = connections.redis
        super().__init__(redis.connection_pool, redis.response_callbacks, False, shard_hint)
        self._connections = connections

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        commands, self.command_stack = self.command_stack, []
        answers = [self._connections.submit(args, options) for args, options in commands]
        found = await asyncio.gather(*answers, return_exceptions=True)
        failed = [each for each in found if isinstance(each, BaseException)]
        if failed and raise_on_error:
            raise failed[0]
        return found


_LOST = (RedisError, OSError, TypeError)
"""Errors of a request over a lost connection; the last one is that of asyncio in Python 3.13.0 for a closed socket."""


class Channels:
    """Channels of Redis over one connection, which is opened with the first subscription and restored when it is lost.

    Args:
        redis: Client with a connection of its own.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._received: dict[str, dict[Received, None]] = {}
        self._unconfirmed: dict[Received, set[str]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._pubsub: PubSub | None = None

    @asynccontextmanager
    async def subscribed(self, *names: str) -> AsyncIterator[Received]:
        """Context in which messages of channels are received.

        It begins at once; None is received as soon as Redis has subscribed all of the channels.
        """
        received: Received = asyncio.Queue()
        self._unconfirmed[received] = set(names)
        for name in names:
            self._received.setdefault(name, {})[received] = None
        try:
            if self._reading is None:
                self._reading = asyncio.get_running_loop().create_task(self._keep_reading())
            elif self._pubsub is not None:
                with suppress(*_LOST):  # the reader finds it, too
                    await self._pubsub.subscribe(*names)
            yield received
        finally:
            await self._leave(received, names)

    async def _leave(self, received: Received, names: tuple[str, ...]) -> None:
        del self._unconfirmed[received]
        unused = []
        for name in names:
            del self._received[name][received]
            if not self._received[name]:
                del self._received[name]
                unused.append(name)
        if unused and self._pubsub is not None:
            with suppress(*_LOST):
                await self._pubsub.unsubscribe(*unused)

    async def close(self) -> None:
        """Close the connection, which a further subscription opens again."""
        (reading, self._reading), (pubsub, self._pubsub) = (self._reading, None), (self._pubsub, None)
        if reading is not None:
            if pubsub is not None:
                # redis-py may lose the cancellation.
                await pubsub.aclose()  # type: ignore[no-untyped-call] # redis-py's
            reading.cancel()
            await asyncio.wait([reading])
        await self._redis.connection_pool.disconnect()

    async def disconnect(self) -> None:
        """Break the connection, which is then restored."""
        await self._redis.connection_pool.disconnect()

    async def _keep_reading(self) -> None:
        reading = asyncio.current_task()
        while self._reading is reading and self._received:
            try:
                async with self._redis.pubsub() as pubsub:
                    await self._subscribe_all(pubsub)
                    while self._reading is reading:
                        if (message := await pubsub.get_message(timeout=_RECEIVE_SECONDS)) is not None:
                            self._take(message)
            except (RedisError, OSError) as error:
                for received in self._unconfirmed:
                    self._give(received, error)
            finally:
                self._pubsub = None
            await asyncio.sleep(_RECONNECT_SECONDS)
        if self._reading is reading:
            self._reading = None

    async def _subscribe_all(self, pubsub: PubSub) -> None:
        for name, each in self._received.items():
            for received in each:
                self._unconfirmed[received].add(name)
        subscribed: set[str] = set()
        while missing := self._received.keys() - subscribed:  # others may come while Redis is connected
            await pubsub.subscribe(*missing)
            subscribed |= missing
        self._pubsub = pubsub

    def _take(self, message: Mapping[str, Any]) -> None:
        name = message["channel"].decode()
        for received in tuple(self._received.get(name, ())):
            if message["type"] == "message":
                self._give(received, message["data"])
            elif message["type"] == "subscribe" and name in self._unconfirmed[received]:
                self._unconfirmed[received].remove(name)
                if not self._unconfirmed[received]:
                    self._give(received, None)

    def _give(self, received: Received, item: bytes | Exception | None) -> None:
        if received.qsize() >= _MAX_RECEIVED:  # its reader has to look what it has missed
            while not received.empty():
                received.get_nowait()
            item = None
        received.put_nowait(item)


def _without_command(error: Exception) -> Exception:
    """Return an error reply without its command, which redis-py puts before it, and which may be secret."""
    _, is_annotated, reply = str(error).partition(" of pipeline caused error: ")
    if is_annotated:
        error.args = (reply.strip("()'\","), *error.args[1:])
    return error


def _pool(url: str, options: Mapping[str, Any]) -> BlockingConnectionPool:
    return BlockingConnectionPool.from_url(url, max_connections=1, timeout=options["socket_timeout"], **options)
