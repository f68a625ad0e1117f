"""The link of one replica to the others, through Redis.

Each replica has a name of its own for as long as it runs, a key that it renews every second, and two channels of
publish and subscribe: one that all hear, and one that it alone hears. Messages are told once, and lost where nobody
hears them; what must not be lost is kept under a key.

That a replica has ended is said where two signs agree, as a call is given up by it: one that is busy misses its beat,
and is still connected; one that has just lost its connection still beats.
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

from bridge.redis import connection_errors, is_outage, response_errors
from bridge.text import truncate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from bridge.redis import Redis

    Hear = Callable[[Mapping[str, Any]], Awaitable[None]]

_logger = logging.getLogger("bridge.server")

BEAT_SECONDS = 1.0
"""How often a replica says that it is alive."""
ALIVE_SECONDS = 3
"""How long after that it has missed no beat."""
GONE_SECONDS = 30
"""How long after its last beat it counts as ended though Redis has not noticed that it is connected no more."""
SOON_SECONDS = 0.5
"""How long a client waits, at most, for Redis to be told what it need not be told."""
_ACKNOWLEDGED_SECONDS = 2.0
_HEARD_SECONDS = 1.0
_FIRST_HEARING_SECONDS = 5.0
_SETTLING_SECONDS = 3 * BEAT_SECONDS
_BEGINNING_SECONDS = 1.5 * BEAT_SECONDS
_SHOWN_CHARS = 100
"""How much of a message the log has at most."""
_REFUSAL_LOG_SECONDS = 60.0
"""Least time between two lines of the log about commands that Redis refused."""


class LateError(TimeoutError):
    """Redis did not answer soon.

    Args:
        is_again: What was asked before did not come either. Otherwise it may be this process that was busy.
    """

    def __init__(self, *, is_again: bool) -> None:
        super().__init__(f"it did not answer within {SOON_SECONDS:g} seconds")
        self.is_again = is_again


class Replica:
    """This replica, among the others.

    Args:
        redis: Their Redis.
        prefix: What the keys of the server begin with.
    """

    def __init__(self, redis: Redis, prefix: str) -> None:
        self.redis = redis
        self.replica = uuid4().hex[:12]
        """The name of this replica."""
        self.is_up = True
        """Whether Redis answered lately."""
        self.failures = connection_errors()
        """What is raised where Redis does not answer."""
        self.refusals = response_errors()
        """What of these is raised where it answers that it will not."""
        self.on_return: list[Callable[[], Awaitable[None]]] = []
        """What is done when Redis, and what the others told, can be heard again."""
        self.on_use: list[Callable[[], Awaitable[None]]] = []
        """What is done when Redis is used again, after that."""
        self._prefix = prefix
        self._began_at = math.inf
        self._late_at = math.inf
        """Since when Redis has answered nothing that was asked `soon`."""
        self._returned_at = -math.inf
        self._may_have_forgotten = False
        self._refusals = 0
        self._refusal_logged_at = -math.inf
        self._hears = anyio.Event()
        self._hearers: dict[str, Hear] = {"acknowledged": self._acknowledged}
        self._awaited: dict[str, tuple[int, anyio.Event]] = {}

    def key(self, *parts: str) -> str:
        """A key of this server."""
        return ":".join((self._prefix, *parts))

    def hear(self, kind: str, hearer: Hear) -> None:
        """Have messages of a kind, which other replicas tell, heard."""
        self._hearers[kind] = hearer

    @property
    def is_settled(self) -> bool:
        """Whether what is missing in Redis is nowhere: not where it may have come back empty, to be filled again."""
        return self.is_up and monotonic() - self._returned_at > _SETTLING_SECONDS

    @property
    def is_sure(self) -> bool:
        """Whether it is settled for good: this replica may have begun just when Redis came back empty."""
        return self.is_settled and monotonic() - self._began_at > _BEGINNING_SECONDS

    @contextmanager
    def soon(self) -> Iterator[None]:
        """The time in which Redis is asked while a client waits that can do without.

        Raises:
            TimeoutError: One of the failures: it did not answer lately, or does not answer soon.
        """
        if not self.is_up:
            raise TimeoutError("it did not answer lately")
        begun_at = monotonic()
        with anyio.move_on_after(SOON_SECONDS) as waiting:
            yield
        if waiting.cancelled_caught:
            is_again = begun_at >= self._late_at
            self._late_at = min(self._late_at, monotonic())
            raise LateError(is_again=is_again)
        self._late_at = math.inf

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The time during which this replica is alive and hears the others."""
        self._began_at = monotonic()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._beat)
            tasks.start_soon(self._listen)
            # What is asked here from the first moment on is answered somewhere, and told here.
            with anyio.move_on_after(_FIRST_HEARING_SECONDS):
                await self._hears.wait()
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                with anyio.move_on_after(1, shield=True):
                    with suppress(*self.failures):
                        await self.redis.delete(self.key("alive", self.replica))
                    await self.redis.aclose()

    async def has_ended(self, replica: str) -> bool:
        """Whether a replica has ended, as far as that is sure.

        Raises:
            RedisError: Redis does not answer.
        """
        if replica == self.replica or not self.is_settled:
            return False
        async with self.redis.pipeline(transaction=False) as pipeline:
            pipeline.pttl(self.key("alive", replica))
            pipeline.pubsub_numsub(self.key("to", replica))
            left_milliseconds, ((_, hearers),) = await pipeline.execute()
        if left_milliseconds < 0:
            return self.is_sure
        silent_seconds = GONE_SECONDS - left_milliseconds / 1000
        return silent_seconds > ALIVE_SECONDS and not hearers

    async def tell(self, message: Mapping[str, Any], *, to: str = "all") -> int:
        """Tell one other replica, or all; returns how many heard it, this one included.

        Raises:
            RedisError: Redis does not answer.
        """
        return int(await self.redis.publish(self.key("to", to), json.dumps({**message, "from": self.replica})))

    async def tell_surely(self, message: Mapping[str, Any]) -> None:
        """Tell all others, and wait until each has done what it does; not for one that hangs.

        Raises:
            RedisError: Redis does not answer.
        """
        token, done = uuid4().hex, anyio.Event()
        self._awaited[token] = (0, done)
        try:
            others = await self.tell({**message, "token": token}) - 1
            acknowledged, _ = self._awaited[token]
            self._awaited[token] = (acknowledged - others, done)
            if acknowledged < others:
                with anyio.move_on_after(_ACKNOWLEDGED_SECONDS):
                    await done.wait()
        finally:
            del self._awaited[token]

    def failed(self, error: Exception) -> None:
        """Note that a command failed: Redis is out of use, or it refused this command alone; logged once.

        Args:
            error: One of the `connection_errors`.
        """
        if is_outage(error):
            self._lost(error)
            return
        self._refusals += 1
        if monotonic() - self._refusal_logged_at >= _REFUSAL_LOG_SECONDS:
            told = "Redis refused a command (%s), and %d since this was logged last; it is used on"
            _logger.error(told, error, self._refusals)
            self._refusal_logged_at, self._refusals = monotonic(), 0

    def _lost(self, error: Exception) -> None:
        # One that was slow for once has forgotten nothing.
        self._may_have_forgotten = self._may_have_forgotten or not isinstance(error, TimeoutError)
        if self.is_up and not (isinstance(error, LateError) and not error.is_again):
            self.is_up = False
            _logger.error(
                "Redis cannot be used (%s): sessions that are open here go on, those of other replicas are answered "
                "503 until it is back, and each replica counts rates by itself",
                error,
            )

    async def _beat(self) -> None:
        while True:
            failed = self._lost  # also by a refusal: other replicas take this one for ended
            try:
                await self.redis.set(self.key("alive", self.replica), "1", ex=GONE_SECONDS)
                failed = self.failed
                if not self.is_up:
                    # Connections of before would fail, one after another.
                    await self.redis.connection_pool.disconnect(inuse_connections=False)
                    await self._catch_up()
                    self.is_up = True
                    if self._may_have_forgotten:
                        self._may_have_forgotten = False
                        self._returned_at = monotonic()
                    _logger.warning("Redis is back")
                    for each in self.on_use:
                        await each()
            except self.failures as error:
                failed(error)
            await anyio.sleep(BEAT_SECONDS)

    async def _listen(self) -> None:
        while True:
            try:
                await self._listen_once()
            except self.failures as error:
                self.failed(error)
            except Exception:
                _logger.exception("what came by the channels of the replicas could not be read")
            await anyio.sleep(BEAT_SECONDS)

    async def _listen_once(self) -> None:
        async with self.redis.pubsub() as heard:
            await heard.subscribe(self.key("to", "all"), self.key("to", self.replica))
            confirmed = 0
            while True:
                message = await heard.get_message(timeout=_HEARD_SECONDS)
                if message is not None and message["type"] == "message":
                    await self._heard(message["data"])
                elif message is not None:
                    confirmed += 1
                    if confirmed == len(heard.channels):
                        await self._catch_up()
                        self._hears.set()

    async def _catch_up(self) -> None:
        for each in self.on_return:
            await each()

    async def _heard(self, text: str) -> None:
        # Whoever may use the Redis may publish anything, and so may replicas of another version.
        try:
            await self._follow(json.loads(text))
        except self.failures:
            raise
        except Exception:
            _logger.exception(
                "what came by a channel of the replicas is no message of theirs (%d characters)", len(text)
            )

    async def _follow(self, message: Mapping[str, Any]) -> None:
        if message["from"] == self.replica:
            return
        try:
            await self._hearers[message["kind"]](message)
        except self.failures:
            raise
        except Exception:
            # What it says of a session may be all that lets somebody into it.
            kind = truncate(repr(message["kind"]), _SHOWN_CHARS)
            _logger.exception("what another replica told could not be followed; it was of the kind %s", kind)
        if "token" in message and message["kind"] != "acknowledged":
            await self.tell({"kind": "acknowledged", "token": message["token"]}, to=message["from"])

    async def _acknowledged(self, message: Mapping[str, Any]) -> None:
        if message["token"] in self._awaited:
            count, done = self._awaited[message["token"]]
            self._awaited[message["token"]] = (count + 1, done)
            if count + 1 == 0:
                done.set()
