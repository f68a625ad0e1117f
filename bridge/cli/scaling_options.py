"""Options of ``bridge serve`` for several processes that are one server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bridge.cli.options import grouped, texts_option

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_KEY_BYTES = 32
"""How long a secret that seals must be at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingOptions:
    """How several processes are one server."""

    state_keys: tuple[str, ...]

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
    texts_option(
        "--state-keys",
        metavar="KEY[,KEY…]",
        help="Secrets that seal what clients carry between the rounds of a call: the first seals, all open. "
        "The same for all replicas; better set in the environment. Repeatable.",
    ),
)
