"""Deployment options of ``bridge serve``: several processes, admin port, drain."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli.options import Number, WholeNumber, count_setting, setting, texts_setting
from bridge.text import with_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.server.auth import Auth

_REDIS_SCHEMES = ("redis://", "rediss://", "unix://")
_MIN_KEY_BYTES = 32
_ADMINISTRATION = "Administration"
MAX_DRAIN_SECONDS = 30.0
"""Usual seconds between SIGTERM and SIGKILL in container platforms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingOptions:
    """Options for several processes of one server."""

    redis_url: str | None = setting(
        metavar="URL",
        help="URL of a Redis that replicas with the same --name share, such as redis://localhost:6379/0: each replica "
        "continues sessions of older protocol versions, rates are counted together, and tasks are run and answered by "
        "any of them. Better set in the environment.",
    )
    workers: int = count_setting(
        "PROCESSES", "Over HTTP: number of processes that serve the port; one that ends is restarted.", default=1
    )
    state_keys: tuple[str, ...] = texts_setting(
        metavar="KEY[,KEY…]",
        help="Secrets that encrypt the state that clients carry between the rounds of a call, and the credentials of "
        "callers: the first encrypts, all decrypt. Use the same for all replicas; better set in the environment. "
        "Repeatable.",
    )

    @property
    def are_sessions_lost(self) -> bool:
        """True if a request may reach a process that cannot look up its session."""
        return self.workers > 1 and self.redis_url is None

    @property
    def has_replicas(self) -> bool:
        """True if requests of one client may reach several processes."""
        return self.workers > 1 or self.redis_url is not None

    def missing_features(self) -> str:
        """Return a message about features that do not work with several workers."""
        if self.redis_url is not None:
            return f"{self.workers} workers: SSE is off, because it needs a single process"
        return (
            f"{self.workers} workers: SSE and tasks are off, and clients of the handshake era are served without "
            "sessions: tools cannot ask them, and changes are not announced to them "
            "(--redis-url enables sessions and tasks)"
        )

    def number_of_processes(self, of_worker: int) -> str:
        """Return a message about the servers that each of several workers starts as processes."""
        return (
            f"{self.workers} workers: each starts the {with_count(of_worker, 'server')} over stdio for itself, "
            f'so up to {self.workers * of_worker} processes run; "start": "lazy" starts those that calls need'
        )

    @property
    def has_private_state_key(self) -> bool:
        """True if other replicas cannot decrypt the state that clients carry between the rounds of a call."""
        return self.redis_url is not None and self.workers == 1 and not self.state_keys

    def check(self, ctx: click.Context, *, transport: str) -> None:
        """Check the URL of Redis, and that the options allow several workers."""
        if self.redis_url is not None and not self.redis_url.startswith(_REDIS_SCHEMES):
            raise click.UsageError(
                f"--redis-url begins with {', '.join(_REDIS_SCHEMES[:-1])} or {_REDIS_SCHEMES[-1]}", ctx
            )
        if self.workers == 1:
            return
        if transport == "sse":
            raise click.UsageError("--transport sse needs a single process: leave --workers out", ctx)

    def reach_redis(self) -> None:
        """Check that Redis responds, if it is configured.

        Raises:
            MissingExtraError: The package ``redis`` is not installed.
            RedisUnreachableError: Redis does not respond.
        """
        if self.redis_url is not None:
            import asyncio  # noqa: PLC0415 - only with Redis

            from bridge.redis import check_reachable  # noqa: PLC0415 - as above

            asyncio.run(check_reachable(self.redis_url))

    def secrets(self, ctx: click.Context) -> Sequence[bytes] | None:
        """Keys that encrypt client-held state; None to generate one for this process."""
        keys = [key.encode() for key in self.state_keys]
        for number, key in enumerate(keys, 1):
            if len(key) < _MIN_KEY_BYTES:
                raise click.UsageError(
                    f"key {number} of --state-keys has {len(key)} bytes, and must have at least {_MIN_KEY_BYTES}: "
                    "create one by `openssl rand -hex 32`",
                    ctx,
                )
        return keys or None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsOptions:
    """Options of admin pages and shutdown."""

    admin_port: int | None = setting(
        type=WholeNumber(0, 65535),
        metavar="PORT",
        help="Over HTTP: serve /healthz, /readyz, /status and /metrics at this port instead of the tools' port.",
    )
    admin_host: str = setting(default="127.0.0.1", help="Host to bind the admin port to.")
    admin_key: tuple[str, ...] = texts_setting(
        metavar="KEY[,KEY…]",
        help="With --admin-port: a key of operators for the page /admin/ and for bridge top, which show what runs, and "
        "for actions; better set in the environment. Repeatable.",
        repr=False,
        heading=_ADMINISTRATION,
    )
    admin_keys: Path | None = setting(
        type=click.Path(dir_okay=False, path_type=Path),
        help="With --admin-port: a file of such keys, one a line: NAME KEY. The names are in the audit log.",
        heading=_ADMINISTRATION,
    )
    drain_delay: float = setting(
        type=Number(0),
        metavar="SECONDS",
        default=0.0,
        help="Over HTTP: seconds for which new calls are accepted after SIGTERM, while /readyz answers 503.",
    )
    drain_timeout: float = setting(
        type=Number(0),
        metavar="SECONDS",
        default=25.0,
        help="Over HTTP: seconds for which running calls may continue after that.",
    )

    def admin_auth(self, ctx: click.Context) -> Auth | None:
        """Return the authentication of operators; None without keys for them.

        Raises:
            KeyFileError: The file of keys is invalid.
        """
        if not self.admin_key and self.admin_keys is None:
            return None
        from bridge.server.auth import ApiKey, ApiKeys, Auth, KeyFile  # noqa: PLC0415 - only with the administration
        from bridge.server.auth.keys import MIN_KEY_CHARS  # noqa: PLC0415

        keys = [ApiKey(f"admin-{number}", key) for number, key in enumerate(self.admin_key, start=1)]
        if any(key.is_short for key in keys):
            raise click.UsageError(
                f"an --admin-key is shorter than {MIN_KEY_CHARS} characters and can be guessed: "
                "create one by openssl rand -hex 32",
                ctx,
            )
        # The file is first, since its keys have names, also one that is in the environment for bridge top.
        return Auth(
            *([] if self.admin_keys is None else [KeyFile(self.admin_keys)]), *([ApiKeys(*keys)] if keys else [])
        )

    def check(self, ctx: click.Context) -> None:
        """Check that the options are consistent."""
        if (self.admin_key or self.admin_keys is not None) and self.admin_port is None:
            raise click.UsageError("keys of operators need --admin-port, at which the administration is served", ctx)
        if self.drain_delay + self.drain_timeout >= MAX_DRAIN_SECONDS:
            raise click.UsageError(
                f"--drain-delay {self.drain_delay:g} and --drain-timeout {self.drain_timeout:g} together must stay "
                f"under {MAX_DRAIN_SECONDS:g} seconds, after which containers are killed",
                ctx,
            )
