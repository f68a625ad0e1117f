"""``bridge pin``: write a lock file of what servers list now: tools, resources, prompts, skills and events."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from bridge.cli.completion import complete_targets
from bridge.cli.install.config_files import only_writer, regular_file
from bridge.cli.options import timeout_option
from bridge.cli.reporting import FAILED, CommandError, logging_option
from bridge.cli.targets.target import ConfigTarget, TargetCommand, only_remote_target
from bridge.cli.terminal import write_report
from bridge.errors import ServerError
from bridge.hosting.process import print_message, redirect_stdout, run_interruptible
from bridge.text import with_count

if TYPE_CHECKING:
    from bridge.cli.targets.target import RemoteTarget
    from bridge.client.config.servers import ServerConfig
    from bridge.client.connection.list_methods import ListMethod
    from bridge.types import Json

    _Lists: TypeAlias = dict[ListMethod, list[Json]]


@click.command(cls=TargetCommand, short_help="Write a lock file of what a TARGET's servers offer.")
@click.argument("target", required=False, shell_complete=complete_targets)
@click.option("--lock", type=click.Path(dir_okay=False, path_type=Path), help="The lock file.")
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing; show what differs from its pin, and exit with code 1 if anything does.",
)
@timeout_option("Timeout of each step of a server, such as to start or to answer, in seconds.")
@logging_option("warning")
@click.pass_context
def command(ctx: click.Context, target: str | None, lock: Path | None, check: bool, timeout: float | None) -> int:
    """Write a lock file of every tool, resource, prompt, skill and event of a TARGET's servers.

    By default it is the file that the configuration names as "pins", or else mcp.lock.json next to mcp.json. With
    --pins, or named in the configuration, it prevents the use of what has changed. With mcp.json#server, only
    the pins of that server are updated.
    """
    chosen = only_remote_target(ctx, target, "to pin")
    with redirect_stdout():
        servers, lists = _listed(chosen, timeout)
    outcomes = [0]
    for path, its_servers in _by_lock(chosen, servers, lock).items():
        of_the_file = {server.name: lists[server.name] for server in its_servers}
        outcomes.append(_checked(path, of_the_file) if check else _written(path, chosen, of_the_file))
    return max(outcomes)


def _by_lock(target: RemoteTarget, servers: list[ServerConfig], lock: Path | None) -> dict[Path, list[ServerConfig]]:
    """Group the servers by lock file."""
    from bridge.cli.targets.servers import default_lock  # noqa: PLC0415 - after usage errors

    default = default_lock(target)
    found: dict[Path, list[ServerConfig]] = {}
    for server in servers:
        path = lock or (default if server.lock is None else Path(server.lock))
        found.setdefault(path, []).append(server)
    return found


def _listed(target: RemoteTarget, timeout_seconds: float | None) -> tuple[list[ServerConfig], dict[str, _Lists]]:
    """List everything of all servers, by server name."""
    import anyio  # noqa: PLC0415 - after usage errors

    from bridge.cli.targets.servers import servers_of, with_timeout  # noqa: PLC0415
    from bridge.client.connection.connection import Connection  # noqa: PLC0415
    from bridge.client.connection.list_methods import LIST_METHODS  # noqa: PLC0415

    servers = [with_timeout(server, timeout_seconds) for server in servers_of(target, reads_pins=False)]
    found: dict[str, _Lists] = {}
    errors: list[ServerError] = []

    async def list_one(server: ServerConfig) -> None:
        lists: _Lists = {}
        try:
            async with Connection(server) as connection:
                for method in LIST_METHODS:
                    listed = await connection.list_items(method)
                    lists[method] = listed.items
                    for problem in listed.malformed:
                        print_message(f"server {server.name!r}: left out: {problem}")
        except ServerError as error:
            errors.append(error)
        found[server.name] = lists

    async def list_all() -> None:
        async with anyio.create_task_group() as tasks:
            for server in servers:
                tasks.start_soon(list_one, server)

    run_interruptible(list_all)
    if errors:
        raise errors[0]  # an incomplete lock file would lose pins
    return servers, found


def _checked(path: Path, servers: dict[str, _Lists]) -> int:
    from bridge.client.pins import ServerPins, load_pins  # noqa: PLC0415

    pins = load_pins(path)
    found = 0
    for server, lists in servers.items():
        its_pins = pins.get(server, ServerPins.nothing())
        for method, items in lists.items():
            for drift in its_pins.drift(method, items):
                write_report(f"server {server!r}: {drift}")
                found += 1
            if items and not its_pins.covers(method):
                print_message(f"server {server!r}: its {method.noun}s are not pinned yet; bridge pin adds them")
    print_message(f"{with_count(found, 'difference')} from {path}" if found else f"everything is as in {path}")
    return FAILED if found else 0


def _written(path: Path, target: RemoteTarget, servers: dict[str, _Lists]) -> int:
    from bridge.client.connection.list_methods import LIST_METHODS, TOOLS  # noqa: PLC0415
    from bridge.client.pins import load_pins, pins_of, write_pins  # noqa: PLC0415

    pins = {server: pins_of(lists) for server, lists in servers.items()}
    with only_writer(path):
        try:
            if isinstance(target, ConfigTarget) and target.server is not None and regular_file(path).exists():
                pins = load_pins(path) | pins
            write_pins(path, pins)
        except OSError as error:
            raise CommandError(f"cannot write {path}: {error.strerror or error}") from error
    counts = {method: sum(len(each.items.get(method.member, ())) for each in pins.values()) for method in LIST_METHODS}
    written = [with_count(count, method.noun) for method, count in counts.items() if count or method is TOOLS]
    print_message(f"wrote {', '.join(written)} of {with_count(len(pins), 'server')} to {path}")
    return 0
