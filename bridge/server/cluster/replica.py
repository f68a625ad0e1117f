"""Replica: heartbeat and messages of one replica, through Redis.

Each replica has a unique id, a key that it renews every second, and two channels: one for all replicas, and its own.
Messages are published once, and are lost if no replica is subscribed; data that must not be lost is stored under a key.

A replica counts as ended only if its heartbeat has stopped and its channel has no subscriber, because its calls are
given up then. A busy replica misses heartbeats but stays subscribed; one that lost its connection still has a recent
key.

Ids of requests to clients name the replica that waits for the response, which may reach any replica.
"""

from __future__ import annotations

import json
import logging
import math
from contextlib import asynccontextmanager, contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio

from bridge.redis import connection_errors, is_outage, refuse_cluster, response_errors
from bridge.text import clip

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from bridge.redis import Redis
    from bridge.types import Json

    Handler = Callable[[Mapping[str, Any]], Awaitable[None]]

_logger = logging.getLogger("bridge.server")

HEARTBEAT_SECONDS = 1.0
"""Seconds between heartbeats of a replica."""
ALIVE_SECONDS = 3
"""Seconds after its last heartbeat for which a replica counts as alive."""
GONE_SECONDS = 30
"""Seconds after its last heartbeat at which a replica counts as ended, even if its channel has a subscriber."""
MAX_WAIT_SECONDS = 0.5
"""Maximum seconds for which a client waits for an optional command of Redis."""
_ACKNOWLEDGED_SECONDS = 2.0
_SUBSCRIBE_SECONDS = 5.0
_SETTLING_SECONDS = 3 * HEARTBEAT_SECONDS
_STARTING_SECONDS = 1.5 * HEARTBEAT_SECONDS
_LOGGED_CHARS = 100
"""Maximum characters of a message in the log."""
_REFUSAL_LOG_SECONDS = 60.0
"""Minimum seconds between two log lines about commands that Redis refused."""
_CONSEQUENCE = (
    "sessions of this replica continue, those of other replicas are answered 503 until it is available again, and each "
    "replica counts rates alone"
)
_SEPARATOR = "/"
"""Separates the replica from the number in the id of a request to a client."""


class LateError(TimeoutError):
    """Redis did not answer within `MAX_WAIT_SECONDS`.

    Args:
        is_again: True if the command before was late, too. Otherwise this process may have been busy.
    """

    def __init__(self, *, is_again: bool) -> None:
        super().__init__(f"it did not answer within {MAX_WAIT_SECONDS:g} seconds")
        self.is_again = is_again


class Replica:
    """This replica, and its connection to the others. Methods raise RedisError if Redis does not answer.

    Args:
        redis: The connection.
        prefix: Prefix of all keys and channels.
        consequence: Effect of an outage, for the log.
    """

    def __init__(self, redis: Redis, prefix: str, consequence: str = _CONSEQUENCE) -> None:
        self.redis = redis
        self._consequence = consequence
        self.id = uuid4().hex[:12]
        """Unique id of this replica."""
        self.is_up = True
        """True if Redis answered the last command."""
        self.failures = connection_errors()
        """Exceptions of commands that fail."""
        self.refusals = response_errors()
        """Those of `failures` by which Redis refuses a command."""
        self.on_return: list[Callable[[], Awaitable[None]]] = []
        """Called when Redis is available, or the channels are subscribed, again."""
        self.on_use: list[Callable[[], Awaitable[None]]] = []
        """Called after that, once Redis is in use again."""
        self.on_answer: list[Callable[[], Awaitable[None]]] = []
        """Called once Redis answers after any command that it did not answer, even one that was no outage."""
        self.id_prefix = f"{self.id}{_SEPARATOR}"
        """Beginning of the ids of this replica's requests to clients."""
        self._prefix = prefix
        self._began_at = math.inf
        self._late_at = math.inf
        """Time since which no command in `bounded_wait` was answered."""
        self._returned_at = -math.inf
        self._may_have_forgotten = False
        self._has_unanswered = False
        """True if a command was not answered since `on_answer` was called."""
        self._refusals = 0
        self._refusal_logged_at = -math.inf
        self._subscribed = anyio.Event()
        self._handlers: dict[str, Handler] = {"acknowledged": self._acknowledged}
        self._awaited: dict[str, tuple[int, anyio.Event]] = {}

    def key(self, *parts: str) -> str:
        """Return a key of this server."""
        return ":".join((self._prefix, *parts))

    def on_message(self, kind: str, handler: Handler) -> None:
        """Set the handler of a kind of messages from other replicas."""
        self._handlers[kind] = handler

    @property
    def is_settled(self) -> bool:
        """False while Redis may have lost its data, and replicas have not stored theirs again."""
        return self.is_up and monotonic() - self._returned_at > _SETTLING_SECONDS

    @property
    def is_sure(self) -> bool:
        """True if `is_settled`, and this replica has run long enough to have seen a loss of data."""
        return self.is_settled and monotonic() - self._began_at > _STARTING_SECONDS

    @contextmanager
    def bounded_wait(self) -> Iterator[None]:
        """Context for an optional command while a client waits.

        Raises:
            TimeoutError: One of `failures`: Redis is unavailable, or does not answer within `MAX_WAIT_SECONDS`.
        """
        if not self.is_up:
            raise TimeoutError("it did not answer the last command")
        begun_at = monotonic()
        with anyio.move_on_after(MAX_WAIT_SECONDS) as waiting:
            yield
        if waiting.cancelled_caught:
            is_again = begun_at >= self._late_at
            self._late_at = min(self._late_at, monotonic())
            raise LateError(is_again=is_again)
        self._late_at = math.inf

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Context in which this replica sends heartbeats and receives messages.

        Raises:
            RedisUnreachableError: Redis is a node of a cluster.
        """
        with anyio.move_on_after(MAX_WAIT_SECONDS):
            await refuse_cluster(self.redis)
        self._began_at = monotonic()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_heartbeats)
            tasks.start_soon(self._listen)
            # A client's answer to a request of this replica may reach another one: subscribe before serving.
            with anyio.move_on_after(_SUBSCRIBE_SECONDS):
                await self._subscribed.wait()
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                with anyio.move_on_after(1, shield=True):
                    with suppress(*self.failures):
                        await self.redis.delete(self.key("alive", self.id))
                    await self.redis.aclose()

    async def has_ended(self, replica: str) -> bool:
        """True if a replica has certainly ended."""
        if replica == self.id or not self.is_settled:
            return False
        async with self.redis.pipeline(transaction=False) as pipeline:
            pipeline.pttl(self.key("alive", replica))
            pipeline.pubsub_numsub(self.key("to", replica))
            left_milliseconds, ((_, subscribers),) = await pipeline.execute()
        if left_milliseconds < 0:
            return self.is_sure
        silent_seconds = GONE_SECONDS - left_milliseconds / 1000
        return silent_seconds > ALIVE_SECONDS and not subscribers

    async def publish(self, message: Mapping[str, Any], *, to: str = "all") -> int:
        """Send a message to one replica, or to all; return the number of receivers, this one included."""
        return int(await self.redis.publish(self.key("to", to), json.dumps({**message, "from": self.id})))

    async def publish_and_wait(self, message: Mapping[str, Any]) -> None:
        """Send a message to all replicas, and wait for a bounded time until they have handled it."""
        token, done = uuid4().hex, anyio.Event()
        self._awaited[token] = (0, done)
        try:
            others = await self.publish({**message, "token": token}) - 1
            acknowledged, _ = self._awaited[token]
            self._awaited[token] = (acknowledged - others, done)
            if acknowledged < others:
                with anyio.move_on_after(_ACKNOWLEDGED_SECONDS):
                    await done.wait()
        finally:
            del self._awaited[token]

    @contextmanager
    def noting_failures(self) -> Iterator[None]:
        """Context for commands whose failure is noted by `failed`, and otherwise ignored."""
        try:
            yield
        except self.failures as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Note that a command failed, and log it once: Redis is unavailable, or refused this command."""
        if is_outage(error):
            self._lost(error)
            return
        self._refusals += 1
        if monotonic() - self._refusal_logged_at >= _REFUSAL_LOG_SECONDS:
            text = "Redis refused a command (%s), and %d since this was logged last; it stays in use"
            _logger.error(text, error, self._refusals)
            self._refusal_logged_at, self._refusals = monotonic(), 0

    def _lost(self, error: Exception) -> None:
        self._has_unanswered = True
        # A timeout does not mean a loss of data.
        self._may_have_forgotten = self._may_have_forgotten or not isinstance(error, TimeoutError)
        if self.is_up and not (isinstance(error, LateError) and not error.is_again):
            self.is_up = False
            _logger.error("Redis is unavailable (%s): %s", str(error) or type(error).__name__, self._consequence)

    async def _send_heartbeats(self) -> None:
        while True:
            failed = self._lost  # a refused heartbeat is an outage, too: other replicas would take this one for ended
            try:
                await self.redis.set(self.key("alive", self.id), "1", ex=GONE_SECONDS)
                failed = self.failed
                if not self.is_up:
                    await self._catch_up()
                    self.is_up = True
                    if self._may_have_forgotten:
                        self._may_have_forgotten = False
                        self._returned_at = monotonic()
                    _logger.warning("Redis is available again")
                    for each in self.on_use:
                        await each()
                if self._has_unanswered:
                    self._has_unanswered = False
                    for each in self.on_answer:
                        await each()
            except self.failures as error:
                failed(error)
            await anyio.sleep(HEARTBEAT_SECONDS)

    async def _listen(self) -> None:
        async with self.redis.channels.subscribed(self.key("to", "all"), self.key("to", self.id)) as received:
            while True:
                message = await received.get()
                try:
                    if isinstance(message, Exception):
                        self.failed(message)
                    elif message is None:
                        await self._catch_up()
                        self._subscribed.set()
                    else:
                        await self._receive(message)
                except self.failures as error:
                    self.failed(error)
                    await anyio.sleep(HEARTBEAT_SECONDS)
                    received.put_nowait(None)  # what failed is made up for
                except Exception:
                    _logger.exception("a message of the replicas could not be handled")

    async def _catch_up(self) -> None:
        for each in self.on_return:
            await each()

    async def _receive(self, text: bytes) -> None:
        # Other users of the Redis, and replicas of another version, may publish anything.
        try:
            await self._handle(json.loads(text))
        except self.failures:
            raise
        except Exception:
            _logger.exception("received an invalid message (%d bytes) over a channel of the replicas", len(text))

    async def _handle(self, message: Mapping[str, Any]) -> None:
        if message["from"] == self.id:
            return
        try:
            await self._handlers[message["kind"]](message)
        except self.failures:
            raise
        except Exception:
            # The message may contain a session's id, which is a secret: log its kind only.
            kind = clip(repr(message["kind"]), _LOGGED_CHARS)
            _logger.exception("a message of the kind %s from another replica could not be handled", kind)
        if "token" in message and message["kind"] != "acknowledged":
            await self.publish({"kind": "acknowledged", "token": message["token"]}, to=message["from"])

    async def _acknowledged(self, message: Mapping[str, Any]) -> None:
        if message["token"] in self._awaited:
            count, done = self._awaited[message["token"]]
            self._awaited[message["token"]] = (count + 1, done)
            if count + 1 == 0:
                done.set()


def target_replica(message: Json) -> str | None:
    """Return the replica that a client's message is for: ``all`` for a cancellation, None for the receiving one."""
    if "method" in message:
        return "all" if message["method"] == "notifications/cancelled" else None
    request_id = message.get("id")  # of a request to the client
    if not isinstance(request_id, str) or _SEPARATOR not in request_id:
        return None
    return request_id.partition(_SEPARATOR)[0]
