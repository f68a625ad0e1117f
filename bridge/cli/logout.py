"""``bridge logout``: delete and revoke the login to a server."""

from __future__ import annotations

import click

from bridge.cli.completion import complete_targets
from bridge.cli.login import server_to_log_in_to
from bridge.cli.reporting import logging_option
from bridge.hosting.process import print_message, run_interruptible


@click.command(short_help="Delete the login to the server of a TARGET.")
@click.argument("target", shell_complete=complete_targets)
@logging_option("warning")
@click.pass_context
def command(ctx: click.Context, target: str) -> None:
    """Delete the login to the server of a TARGET, which is as for bridge login.

    Its tokens are revoked if the authorization server supports that (RFC 7009), and deleted in any case.
    """
    server = server_to_log_in_to(ctx, target)

    from bridge.client.auth.store import log_out  # noqa: PLC0415

    login = server.transport.login
    assert login is not None
    was_logged_in = run_interruptible(log_out, login.url, login.grant)
    print_message(f"logged out of {server.name!r}" if was_logged_in else f"there was no login to {server.name!r}")
