"""Options of ``bridge serve`` for several processes that are one server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bridge.cli.numbers import WholeNumber
from bridge.cli.options import grouped, option, texts_option

if TYPE_CHECKING:
    from collections.abc import Sequence


MIN_KEY_BYTES = 32
"""How long a secret that seals must be at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingOptions:
    """How several processes are one server."""

    state_keys: tuple[str, ...]
    workers: int
    redis_url: str | None

    @property
    def are_sessions_lost(self) -> bool:
        """Whether a request may come to a process that does not know its session, and cannot look it up."""
        return self.workers > 1 and self.redis_url is None

    def what_is_lost(self) -> str:
        """What clients of the handshake era have to do without."""
        if self.redis_url is not None:
            return f"{self.workers} workers: SSE is off, which keeps each session in one process"
        return (
            f"{self.workers} workers: clients of the handshake era are served without sessions, "
            "so that tools cannot ask them and changes are not announced to them, and SSE is off"
        )

    @property
    def seals_alone(self) -> bool:
        """Whether other replicas that there may be cannot open what clients carry between the rounds of a call."""
        return self.redis_url is not None and self.workers == 1 and not self.state_keys

    def check(self, ctx: click.Context, *, reload: bool, transport: str) -> None:
        """See that several workers fit the other options.

        Raises:
            click.UsageError: They do not.
        """
        if self.workers == 1:
            return
        if reload:
            raise click.UsageError("--reload and --workers do not go together: leave one out", ctx)
        if transport == "sse":
            raise click.UsageError("--transport sse keeps each session in one process: leave --workers out", ctx)

    def reach_redis(self) -> None:
        """See that Redis answers, where there is to be one.

        Raises:
            MissingExtraError: The package ``redis`` is not installed.
            RedisUnreachableError: It does not.
        """
        if self.redis_url is not None:
            import asyncio  # noqa: PLC0415 - for those who have one

            from bridge.redis import check_reachable  # noqa: PLC0415 - as above

            asyncio.run(check_reachable(self.redis_url))

    def secrets(self, ctx: click.Context) -> Sequence[bytes] | None:
        """The secrets that seal what clients carry; None for one of this process.

        Raises:
            click.UsageError: One is too short.
        """
        keys = [key.encode() for key in self.state_keys]
        for number, key in enumerate(keys, 1):
            if len(key) < MIN_KEY_BYTES:
                raise click.UsageError(
                    f"key {number} of --state-keys has {len(key)} bytes, and must have at least {MIN_KEY_BYTES}: "
                    "make one by `openssl rand -hex 32`",
                    ctx,
                )
        return keys or None


scaling_options = grouped(
    option(
        "--redis-url",
        metavar="URL",
        help="A Redis by which servers of one --name are one server, such as redis://localhost:6379/0: the sessions of "
        "earlier protocol revisions go on with any of them, and rates are counted for all together. Better set in the "
        "environment.",
    ),
    option(
        "--workers",
        type=WholeNumber(1),
        metavar="PROCESSES",
        default=1,
        show_default=True,
        help="Over HTTP: how many processes serve together at the port; one that ends is started again.",
    ),
    texts_option(
        "--state-keys",
        metavar="KEY[,KEY…]",
        help="Secrets that seal what clients carry between the rounds of a call: the first seals, all open. "
        "The same for all replicas; better set in the environment. Repeatable.",
    ),
)
