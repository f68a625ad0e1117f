"""``bridge login``: log in to servers with a browser."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from bridge.cli.completion import complete_targets
from bridge.cli.options import timeout_option
from bridge.cli.reporting import CommandError, logging_option
from bridge.cli.targets.target import only_remote_target
from bridge.hosting.process import print_message, redirect_stdout, run_interruptible
from bridge.text import with_count

if TYPE_CHECKING:
    from bridge.client.config.servers import ServerConfig


@click.command(short_help="Log in to the server of a TARGET.")
@click.argument("target", shell_complete=complete_targets)
@click.option(
    "--scope", "scopes", multiple=True, help="A scope to request; by default those that the server names. Repeatable."
)
@click.option("--no-browser", is_flag=True, help="Show the URL without opening a browser.")
@timeout_option("Timeout of the login, in seconds.", default=300.0, show_default=True)
@logging_option("warning")
@click.pass_context
def command(ctx: click.Context, target: str, scopes: tuple[str, ...], no_browser: bool, timeout: float) -> None:
    """Log in to the server of a TARGET: a URL, mcp.json#server, or an mcp.json in which one server has a login.

    The browser redirects to a local port when the login is done. The login is stored for all commands and programs of
    this user, and refreshed as long as the server allows; bridge logout deletes it. On a remote machine, --no-browser
    shows the URL, and the port of the redirect has to be forwarded.
    """
    server = server_to_log_in_to(ctx, target)

    with redirect_stdout():
        tools = run_interruptible(_logged_in, server, scopes, not no_browser, timeout)
    print_message(f"logged in to {server.name!r}, which has {with_count(tools, 'tool')}")


def server_to_log_in_to(ctx: click.Context, text: str) -> ServerConfig:
    """Find the one server of a target that supports a login."""
    target = only_remote_target(ctx, text, "to log in to")
    from bridge.cli.targets.servers import servers_of  # noqa: PLC0415 - after usage errors

    servers = servers_of(target)
    logins = [(server, login) for server in servers if (login := server.transport.login) is not None]
    able = [server for server, _ in logins]
    if len(able) != 1 and len(marked := [server for server, login in logins if login.is_configured]) == 1:
        able = marked
    if len(able) == 1:
        return able[0]
    if not able:
        raise click.UsageError("there is no login: it is not a server over HTTP, or it has credentials already", ctx)
    names = ", ".join(repr(server.name) for server in able)
    raise click.UsageError(f"there are several servers: add # and one of {names}", ctx)


async def _logged_in(server: ServerConfig, scopes: tuple[str, ...], opens_browser: bool, seconds: float) -> int:
    """Log in; returns the number of the server's tools."""
    import anyio  # noqa: PLC0415 - after usage errors

    from bridge.client.auth.errors import SignInError  # noqa: PLC0415
    from bridge.client.auth.sign_in import SignIn  # noqa: PLC0415
    from bridge.client.connection.connection import Connection  # noqa: PLC0415

    login = server.transport.login
    assert login is not None

    async def show(url: str) -> None:
        host = urlsplit(url).hostname
        if host != urlsplit(login.url).hostname:
            print_message(f"the login page of server {server.name!r} is on another host: {host}")
        print_message(f"log in here: {url}")
        if opens_browser:
            await _open(url)

    signing = SignIn(login.url, replace(login.grant, scopes=scopes or login.grant.scopes), show_page=show)
    try:
        with anyio.fail_after(seconds):
            await signing.log_in(dict(login.headers))
    except SignInError as error:
        raise CommandError(f"server {server.name!r}: {error}") from error
    except TimeoutError:
        raise CommandError(f"server {server.name!r}: nobody logged in within {with_count(seconds, 'second')}") from None
    async with Connection(server) as connection:
        return len((await connection.list_tools()).tools)


async def _open(url: str) -> None:
    import webbrowser  # noqa: PLC0415 - only when it is used

    import anyio.to_thread  # noqa: PLC0415

    if not await anyio.to_thread.run_sync(webbrowser.open, url):
        print_message("(no browser could be opened: open the URL yourself)")
