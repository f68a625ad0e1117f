"""Redis clients, and classification of their errors. Requires the extra ``redis``."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from bridge.errors import BridgeError, MissingExtraError

if TYPE_CHECKING:
    from redis import Redis as SyncRedis

    from bridge.redis_connections import SharedRedis

    Redis: TypeAlias = SharedRedis
    BlockingRedis: TypeAlias = SyncRedis

_SCHEMES = ("redis://", "rediss://", "unix://")
_TIMEOUT_SECONDS = 5.0
_BLOCKING_TIMEOUT_SECONDS = 30.0
_HEALTH_CHECK_SECONDS = 30
_UNFIT = re.compile(r"(.* caused error: \(.)?(BUSY|MISCONF|NOREPLICAS) ", re.DOTALL)
"""Error replies to any command, perhaps in a pipeline, while Redis cannot serve commands."""


class RedisUnreachableError(BridgeError):
    """Redis is unreachable, its URL is invalid, or it is a node of a cluster."""


def is_redis_url(text: str) -> bool:
    """Return True for a Redis URL: ``redis://``, ``rediss://`` (TLS) or ``unix://``."""
    return text.startswith(_SCHEMES)


def redis_at(url: str, feature: str = "--redis-url", extra: str = "redis") -> Redis:
    """Create an asyncio client for a URL, without connecting.

    All clients of a URL in an event loop share their connections. Failed commands are not retried, since they may have
    been executed.

    Args:
        url: The URL.
        feature: Needs the package, in the error.
        extra: Extra of this package that installs it, in the error.

    Raises:
        MissingExtraError: The package ``redis`` is not installed.
        ValueError: The URL is not a Redis URL.
    """
    options = _options("redis.asyncio", feature, _TIMEOUT_SECONDS, extra)
    from bridge.redis_connections import SharedRedis  # noqa: PLC0415 - optional dependency

    return SharedRedis(url, decode_responses=True, **options)


def blocking_redis_at(url: str) -> BlockingRedis:
    """Create a blocking client that returns bytes, with a longer timeout since whole conversations are read.

    Raises:
        MissingExtraError: The package ``redis`` is not installed.
        ValueError: The URL is not a Redis URL.
    """
    options = _options("redis", "a Redis", _BLOCKING_TIMEOUT_SECONDS)
    from redis import Redis as SyncRedis  # noqa: PLC0415 - optional dependency

    return SyncRedis.from_url(url, **options)


def _options(module: str, feature: str, timeout_seconds: float, extra: str = "redis") -> dict[str, Any]:
    try:
        import_module("redis")  # which may be missing although a part of it was imported
        from redis.backoff import NoBackoff  # noqa: PLC0415 - optional dependency

        retry = import_module(f"{module}.retry").Retry(NoBackoff(), 0)
    except ImportError as error:
        raise MissingExtraError(feature, "redis", extra) from error
    return {
        "retry": retry,
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "health_check_interval": _HEALTH_CHECK_SECONDS,
    }


def connection_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of redis-py for failed commands and connections."""
    from redis.exceptions import RedisError  # noqa: PLC0415 - optional dependency

    return (RedisError, OSError)


def response_errors() -> type[Exception]:
    """Return the exception of redis-py for error replies."""
    from redis.exceptions import ResponseError  # noqa: PLC0415 - optional dependency

    return ResponseError


def is_outage(error: Exception) -> bool:
    """Return True if Redis is unavailable, False if it only rejected a command, by one of the `connection_errors`."""
    from redis.exceptions import ClusterDownError, OutOfMemoryError, ReadOnlyError, ResponseError  # noqa: PLC0415 - optional

    if not isinstance(error, ResponseError):
        return True
    return (
        isinstance(error, ClusterDownError | OutOfMemoryError | ReadOnlyError) or _UNFIT.match(str(error)) is not None
    )


def redacted_url(url: str) -> str:
    """Return the host and port of a URL, without credentials."""
    parts = urlsplit(url)
    return f"{parts.hostname or parts.path}{f':{parts.port}' if parts.port else ''}"


def unreachable(url: str, error: Exception) -> RedisUnreachableError:
    """Create an error with the redacted URL and the reason."""
    return RedisUnreachableError(f"Redis at {redacted_url(url)} cannot be used: {error}")


async def refuse_cluster(redis: Redis) -> None:
    """Refuse a Redis or Valkey in cluster mode, if it answers.

    Raises:
        RedisUnreachableError: It is a node of a cluster.
    """
    try:
        found = await redis.info("cluster")
    except connection_errors():  # unavailable now, or the user may not ask
        return
    if found.get("cluster_enabled"):
        raise RedisUnreachableError(
            f"Redis at {redacted_url(redis.url)} is in cluster mode, whose nodes send clients from one to another. All "
            "data of a server belongs together, so that one node would have it all: use a Redis or Valkey without "
            "cluster mode, at an address that follows failovers"
        )


async def check_reachable(url: str) -> None:
    """Check that Redis responds to PING, and is no node of a cluster.

    Raises:
        MissingExtraError: The package ``redis`` is not installed.
        RedisUnreachableError: Redis does not respond, is a node of a cluster, or the URL is invalid; the message
            contains no credentials.
    """
    try:
        redis = redis_at(url)
    except ValueError as error:
        raise RedisUnreachableError(f"invalid Redis URL: {error}") from None
    try:
        await redis.ping()
        await refuse_cluster(redis)
    except connection_errors() as error:
        raise unreachable(url, error) from None
    finally:
        await redis.aclose()
