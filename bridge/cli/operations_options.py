"""Options of ``bridge serve`` for those who operate it: where it tells of itself, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass

import click

from bridge.cli.numbers import Number, WholeNumber
from bridge.cli.options import grouped, option

MAX_DRAIN_SECONDS = 30.0
"""Whoever runs containers kills them this long after SIGTERM unless told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsOptions:
    """Where a server tells of itself, and how it ends."""

    admin_port: int | None
    admin_host: str
    drain_delay: float
    drain_timeout: float

    def check(self, ctx: click.Context) -> None:
        """See that the options fit one another.

        Raises:
            click.UsageError: They do not.
        """
        if self.drain_delay + self.drain_timeout >= MAX_DRAIN_SECONDS:
            raise click.UsageError(
                f"--drain-delay {self.drain_delay:g} and --drain-timeout {self.drain_timeout:g} together must stay "
                f"under {MAX_DRAIN_SECONDS:g} seconds, after which containers are killed",
                ctx,
            )


operations_options = grouped(
    option(
        "--admin-port",
        type=WholeNumber(0, 65535),
        metavar="PORT",
        help="Over HTTP: serve /healthz, /readyz, /status and /metrics at this port, and not beside the tools.",
    ),
    option("--admin-host", default="127.0.0.1", show_default=True, help="Where to listen for the admin port."),
    option(
        "--drain-delay",
        type=Number(0),
        metavar="SECONDS",
        default=0.0,
        show_default=True,
        help="Over HTTP: for how many seconds new calls are still served after SIGTERM, while /readyz says 503.",
    ),
    option(
        "--drain-timeout",
        type=Number(0),
        metavar="SECONDS",
        default=25.0,
        show_default=True,
        help="Over HTTP: how many seconds calls may go on after that.",
    ),
)
"""The options of `OperationsOptions`."""
