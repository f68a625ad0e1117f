"""Pins: the options by which a command holds servers to a lock file."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.cli.options import grouped, option

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
