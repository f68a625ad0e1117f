"""The Redis that replicas share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from bridge.errors import BridgeError, MissingExtraError

if TYPE_CHECKING:
    from redis.asyncio import Redis as AsyncRedis

    Redis: TypeAlias = AsyncRedis


class RedisUnreachableError(BridgeError):
    """Redis does not answer."""


_TIMEOUT_SECONDS = 5.0
_HEALTH_CHECK_SECONDS = 30


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
        from redis.backoff import NoBackoff  # noqa: PLC0415 - as above
    except ImportError as error:
        raise MissingExtraError("--redis-url", "redis", "redis") from error
    settings: dict[str, Any] = {
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": _TIMEOUT_SECONDS,
        "socket_connect_timeout": _TIMEOUT_SECONDS,
        "health_check_interval": _HEALTH_CHECK_SECONDS,
        "decode_responses": True,
    }
    return Redis.from_url(url, **settings)


def failures() -> tuple[type[Exception], ...]:
    """What is raised where Redis does not answer."""
    from redis.exceptions import RedisError  # noqa: PLC0415 - an extra, which is there by now

    return (RedisError, OSError)


def place_of(url: str) -> str:
    """Where a URL leads, without what it may say in secret."""
    parts = urlsplit(url)
    return f"{parts.hostname or parts.path}{f':{parts.port}' if parts.port else ''}"


async def reach(url: str) -> None:
    """See that Redis answers.

    Raises:
        MissingExtraError: As for `redis_at`.
        RedisUnreachableError: It does not; the message says where and why, and no secret.
    """
    try:
        redis = redis_at(url)
    except ValueError as error:
        raise RedisUnreachableError(f"the URL of Redis cannot be used: {error}") from None
    try:
        await redis.ping()
    except failures() as error:
        raise RedisUnreachableError(f"Redis at {place_of(url)} cannot be used: {error}") from None
    finally:
        await redis.aclose()
