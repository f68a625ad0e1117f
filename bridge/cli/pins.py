"""Pins: the options by which a command holds servers to a lock file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


def pins_options(function: Any) -> Any:
    """Add ``--pins`` and ``--pin-mode`` to a command."""
    mode = click.option(
        "--pin-mode",
        type=click.Choice(["refuse", "flag"]),
        default="refuse",
        envvar="BRIDGE_PIN_MODE",
        show_envvar=True,
        show_default=True,
        help="Leave out tools that are not as they were pinned, or take them with a warning.",
    )
    pins = click.option(
        "--pins",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="BRIDGE_PINS",
        show_envvar=True,
        help="A lock file of bridge pin, to which the tools of servers are held.",
    )
    return pins(mode(function))
