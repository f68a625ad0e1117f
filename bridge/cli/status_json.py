"""How a server is, as JSON: what ``bridge status --json`` writes and ``/status`` of a gateway answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.cli.reporting import one_line

if TYPE_CHECKING:
    from bridge.client.tool_catalog import ServerStatus


def status_as_json(status: ServerStatus) -> dict[str, Any]:
    """One server at one moment. It counts as failed, too, where it can be reached and not be listed."""
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
        "lastError": None if problem is None else one_line(problem),
        "reconnects": max(0, connection.connects - 1),
    }
