"""``bridge status``: show the status of servers, also as JSON for ``/status`` of a gateway."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import click

from bridge.cli.completion import complete_targets
from bridge.cli.options import ServerOptions, group_values, server_options, with_headers
from bridge.cli.reporting import FAILED, error_line, logging_option
from bridge.cli.targets.target import TargetCommand, only_remote_target
from bridge.cli.terminal import coloured, table, write_json, write_report
from bridge.client.connection.processes import memory_bytes
from bridge.hosting.process import redirect_stdout, run_interruptible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.cli.targets.target import RemoteTarget
    from bridge.client.tool_catalog import ServerStatus

_END_SECONDS = 2.0
"""Seconds in which a server that did not answer in time is ended."""
_COLUMNS = ("SERVER", "STATE", "TRANSPORT", "PROTOCOL", "VERSION", "TOOLS", "LAST ERROR")


@click.command(cls=TargetCommand, short_help="Show the status of a TARGET's servers.")
@click.argument("target", required=False, shell_complete=complete_targets)
@click.option("--json", "as_json", is_flag=True, help="Write an array of objects.")
@server_options("Timeout of each step of a server, such as to start or to answer, in seconds.")
@logging_option("error")
@click.pass_context
def command(ctx: click.Context, /, target: str | None, as_json: bool, **settings: Any) -> int:
    """Connect to all servers of a TARGET, and show the status of each.

    The exit code is 1 if a required server, or the only one, is not ready.
    """
    options = group_values(ServerOptions, settings)
    chosen = only_remote_target(ctx, target, "whose status could be shown")
    [chosen] = with_headers(ctx, [chosen], options.headers)
    with redirect_stdout():
        rows = _rows(chosen, options)
    if as_json:
        write_json(rows)
    else:
        write_report(table([_COLUMNS, *map(_as_row, rows)]), style=_styled)
    return FAILED if any(row["required"] and row["state"] != "ready" for row in rows) else 0


def _rows(target: RemoteTarget, options: ServerOptions) -> list[dict[str, Any]]:
    from bridge.cli.targets.servers import SETTLE_SECONDS, servers_for_command, settle  # noqa: PLC0415 - after usage errors
    from bridge.client.provider import McpToolProvider  # noqa: PLC0415

    servers = servers_for_command(target, options)

    async def look() -> Sequence[ServerStatus]:
        provider = McpToolProvider([replace(server, required=False) for server in servers])
        try:
            await provider.open(wait=False)
            await settle(provider, SETTLE_SECONDS if options.timeout is None else options.timeout + _END_SECONDS)
            return provider.status()
        finally:
            with anyio.CancelScope(shield=True):  # each connection bounds its own shutdown
                await provider.aclose()

    statuses = zip(servers, run_interruptible(look), strict=True)
    return [status_as_json(status) | {"required": server.required} for server, status in statuses]


def _styled(line: str) -> str:
    """Colour the state of a server, which is the first word after its name."""
    from bridge.client.connection.status import ConnectionState  # noqa: PLC0415 - after usage errors

    found = re.match(rf"(\S.*?  +)({'|'.join(state.value for state in ConnectionState)})(?=  )", line)
    return line if found is None else f"{found[1]}{coloured(found[2])}{line[found.end() :]}"


def _as_row(row: dict[str, Any]) -> tuple[str, ...]:
    server = row["server"] or {}
    return (
        row["name"] + (" (required)" if row["required"] else ""),
        row["state"],
        row["transport"] or "-",
        f"{row['era']} {row['protocolVersion']}" if row["era"] else "-",
        server.get("version") or "-",
        str(len(row["tools"])) if row["state"] in {"ready", "idle"} else "-",
        row["lastError"] or "; ".join(f"left out: {each}" for each in row["skipped"]),
    )


def status_as_json(status: ServerStatus) -> dict[str, Any]:
    """Status of one server as JSON. It also counts as failed if it is connected but its tools cannot be listed."""
    connection, info = status.connection, status.connection.server_info
    problem = status.problem or connection.last_error
    is_unlisted = connection.state.value == "ready" and problem is not None
    return {
        "name": status.name,
        "state": "failed" if is_unlisted else connection.state.value,
        "required": status.required,
        "transport": connection.transport,
        "address": connection.address,
        "era": connection.era,
        "protocolVersion": connection.protocol_version,
        "server": None if info is None else {"name": info.name, "version": info.version, "title": info.title},
        "tools": list(status.tools),
        "skipped": list(status.skipped),
        "lastError": None if problem is None else error_line(problem),
        "reconnects": max(0, connection.connects - 1),
        "restarts": connection.restarts,
        "failures": connection.failures,
        "retrySeconds": connection.retry_seconds,
        "pid": connection.pid,
        "callerConnections": status.caller_connections,
        "memoryBytes": None if connection.pid is None else memory_bytes(connection.pid),
    }
