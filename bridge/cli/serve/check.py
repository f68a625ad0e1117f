"""``bridge serve --check``: report if what the options and targets name can be served, without serving it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.cli.reporting import FAILED
from bridge.hosting.process import print_message
from bridge.text import with_count

if TYPE_CHECKING:
    import click

    from bridge.cli.targets.serving import Serving
    from bridge.server.server import Server


def report_check(ctx: click.Context, serving: Serving, server: Server) -> None:
    """Print the problems of the configuration, and exit with 1 if there is one.

    Options and targets are known to be valid: errors in them were raised before.
    """
    for problem in serving.problems:
        print_message(problem, "error")
    if serving.problems:
        ctx.exit(FAILED)
    counts = [
        with_count(len(serving.servers()), "server"),
        with_count(len(serving.profiles), "profile"),
        with_count(len(server.tools), "local tool"),
    ]
    print_message(f"{server.name} can be served: {', '.join(counts)}")
