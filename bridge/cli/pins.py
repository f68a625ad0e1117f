"""Pins: the options by which a command holds servers to a lock file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli.options import grouped, option, typed_options
from bridge.cli.targets import split_targets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.cli.targets import Target

pins_options = grouped(
    option(
        "--pins",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A lock file of bridge pin, to which the tools of servers are held.",
    ),
    option(
        "--pin-mode",
        type=click.Choice(["refuse", "flag"]),
        default="refuse",
        show_default=True,
        help="Leave out tools that are not as they were pinned, or take them with a warning.",
    ),
)


def check_pins(ctx: click.Context, targets: Sequence[Target]) -> None:
    """Refuse a lock file on the command line that holds nobody; one of the environment may be meant for others.

    Raises:
        click.UsageError: None of the targets is a server.
    """
    if not split_targets(targets)[1] and any(each.name == "pins" for each in typed_options(ctx)):
        raise click.UsageError("--pins holds servers to what they offered: the tools of a Python target are yours", ctx)
