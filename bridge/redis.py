"""The Redis at a URL, and how everything here connects to it. Needs the extra ``redis``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from bridge.errors import BridgeError, MissingExtraError

if TYPE_CHECKING:
    from redis import Redis as SyncRedis
    from redis.asyncio import Redis as AsyncRedis

    Redis: TypeAlias = AsyncRedis
    BlockingRedis: TypeAlias = SyncRedis

_SCHEMES = ("redis://", "rediss://", "unix://")
_TIMEOUT_SECONDS = 5.0
_BLOCKING_TIMEOUT_SECONDS = 30.0
_HEALTH_CHECK_SECONDS = 30
_UNFIT = ("BUSY ", "MISCONF ", "NOREPLICAS ")
"""Beginnings of answers to any command while Redis is in a state in which it takes none."""


class RedisUnreachableError(BridgeError):
    """Redis does not answer, or its URL cannot be used."""


def is_redis_url(text: str) -> bool:
    """Whether a text is the URL of a Redis, and no path: ``redis://``, ``rediss://`` (TLS) or ``unix://``."""
    return text.startswith(_SCHEMES)


def redis_at(url: str) -> Redis:
    """A client of the Redis at a URL, for asyncio; nothing is connected yet.

    A command that fails is not repeated: it may have been carried out.

    Raises:
        MissingExtraError: The package ``redis`` is not installed.
        ValueError: The URL is not one of Redis.
    """
    try:
        from redis.asyncio import Redis  # noqa: PLC0415 - an extra
        from redis.asyncio.retry import Retry  # noqa: PLC0415 - as above
    except ImportError as error:
        raise MissingExtraError("--redis-url", "redis", "redis") from error
    return Redis.from_url(url, decode_responses=True, **_settings(Retry, _TIMEOUT_SECONDS))


def blocking_redis_at(url: str) -> BlockingRedis:
    """The same for threads, with answers as bytes, and more time for them: whole conversations are read.

    Raises:
        MissingExtraError: The package ``redis`` is not installed.
        ValueError: The URL is not one of Redis.
    """
    try:
        from redis import Redis  # noqa: PLC0415 - an extra
        from redis.retry import Retry  # noqa: PLC0415 - as above
    except ImportError as error:
        raise MissingExtraError("a Redis", "redis", "redis") from error
    return Redis.from_url(url, **_settings(Retry, _BLOCKING_TIMEOUT_SECONDS))


def _settings(retry: Any, timeout_seconds: float) -> dict[str, Any]:
    from redis.backoff import NoBackoff  # noqa: PLC0415 - an extra, which is there by now

    return {
        "retry": retry(NoBackoff(), 0),
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "health_check_interval": _HEALTH_CHECK_SECONDS,
    }


def connection_errors() -> tuple[type[Exception], ...]:
    """What is raised where Redis does not answer."""
    from redis.exceptions import RedisError  # noqa: PLC0415 - as above

    return (RedisError, OSError)


def response_errors() -> type[Exception]:
    """What is raised where Redis answers that it will not: one of the failures."""
    from redis.exceptions import ResponseError  # noqa: PLC0415 - as above

    return ResponseError


def is_outage(error: Exception) -> bool:
    """Whether a failure says that Redis cannot be used now, and not only that it refused one command.

    Args:
        error: One of the `connection_errors`.
    """
    from redis.exceptions import ClusterDownError, OutOfMemoryError, ReadOnlyError, ResponseError  # noqa: PLC0415 - as above

    if not isinstance(error, ResponseError):
        return True
    return isinstance(error, ClusterDownError | OutOfMemoryError | ReadOnlyError) or str(error).startswith(_UNFIT)


def redacted_url(url: str) -> str:
    """Where a URL leads, without what it may say in secret."""
    parts = urlsplit(url)
    return f"{parts.hostname or parts.path}{f':{parts.port}' if parts.port else ''}"


def unreachable(url: str, error: Exception) -> RedisUnreachableError:
    """A failure of the Redis at a URL as an error that says where and why, and no secret."""
    return RedisUnreachableError(f"Redis at {redacted_url(url)} cannot be used: {error}")


async def check_reachable(url: str) -> None:
    """See that Redis answers.

    Raises:
        MissingExtraError: As for `redis_at`.
        RedisUnreachableError: It does not, or the URL is not one of Redis; the message says where and why, and no
            secret.
    """
    try:
        redis = redis_at(url)
    except ValueError as error:
        raise RedisUnreachableError(f"the URL of Redis cannot be used: {error}") from None
    try:
        await redis.ping()
    except connection_errors() as error:
        raise unreachable(url, error) from None
    finally:
        await redis.aclose()
