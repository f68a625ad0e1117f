"""Connection to the servers of a target, for their definitions, failures and differences from pins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.client.auth.store import LoginStore, login_key
from bridge.client.config.document import Diagnostics
from bridge.client.config.formats import normalize_entry, read_root
from bridge.client.config.hosts import read_document
from bridge.client.connection.list_methods import LIST_METHODS
from bridge.client.provider import McpToolProvider
from bridge.doctor.subject import (
    Definition,
    Item,
    Server,
    event_definition,
    feature_definition,
    skill_definition,
    tool_definition,
)
from bridge.errors import ServerError, WireError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from bridge.client.config.formats import NormalizedEntry
    from bridge.client.config.servers import ServerConfig
    from bridge.client.pins import Drift
    from bridge.client.tool_catalog import ServerStatus


async def connect(
    servers: Sequence[ServerConfig], source: str, entries: Mapping[str, NormalizedEntry]
) -> tuple[list[Server], list[Definition]]:
    """Connect to servers, and list their tools, resources and prompts, also those that differ from pins.

    Args:
        servers: The servers; a failure of one does not affect the others.
        source: The target, for findings.
        entries: Entries of the servers in a configuration, by name.
    """
    unpinned = [replace(server, required=False, pins=None) for server in servers]
    async with McpToolProvider(unpinned) as provider:
        statuses = {status.name: status for status in provider.status()}
        definitions = [
            tool_definition(
                tool.specification,
                source,
                own_name=provider.origins[tool.name].tool,
                server=provider.origins[tool.name].server,
            )
            for tool in provider.tools
        ]
        features = (*await provider.resources.list(), *await provider.prompts.list())
        skills = await provider.skills.list() if provider.skills.are_offered else ()
        files = {skill.uri for skill in skills}
        definitions += [
            feature_definition(item, source) for item in features if getattr(item, "uri", None) not in files
        ]
        definitions += [skill_definition(skill, source) for skill in skills]
        events = await provider.events.list() if provider.events.are_offered else ()
        definitions += [event_definition(each, source) for each in events]
        found = [
            Server(
                item=Item(kind="server", name=server.name, source=source),
                config=server,
                entry=entry.values if (entry := entries.get(server.name)) is not None else {},
                written={} if entry is None else {**entry.translated, **entry.written},
                problem=_problem(statuses[server.name]),
                skipped=statuses[server.name].skipped,
                drift=await _drift(server, provider),
                unpinned=_unpinned(server, definitions),
                has_login=await _has_login(server),
            )
            for server in servers
        ]
    return found, definitions


def entries_of(path: Path) -> dict[str, NormalizedEntry]:
    """Entries of the servers in a valid configuration, before references are expanded."""
    diagnostics = Diagnostics()
    root = read_root(read_document(path.read_text(encoding="utf-8-sig"), str(path)), diagnostics)
    return {
        name: normalize_entry(name, entry, diagnostics)
        for name, entry in root.servers.items()
        if isinstance(entry, dict)
    }


def _problem(status: ServerStatus) -> ServerError | None:
    return status.problem or (None if status.is_listed else status.connection.last_error)


async def _drift(server: ServerConfig, provider: McpToolProvider) -> tuple[Drift, ...] | None:
    """Differences from the pins, which are those of the items as the server lists them."""
    if server.pins is None:
        return None
    connection = provider.connections[server.name]
    try:
        lists = [(method, (await connection.list_items(method)).items) for method in LIST_METHODS]
    except ServerError:
        return ()  # its status says why
    return tuple(drift for method, items in lists for drift in server.pins.drift(method, items))


def _unpinned(server: ServerConfig, definitions: Iterable[Definition]) -> tuple[str, ...]:
    """Kinds of what a server has beside tools and its pins do not cover."""
    if server.pins is None:
        return ()
    uncovered = {
        method.noun.rpartition(" ")[0] or method.noun for method in LIST_METHODS if not server.pins.covers(method)
    }
    kinds = {each.item.kind for each in definitions if each.server == server.name}
    return tuple(f"{kind}s" for kind in ("resource", "prompt", "skill") if kind in kinds and kind in uncovered)


async def _has_login(server: ServerConfig) -> bool:
    login = server.transport.login
    if login is None:
        return False
    try:
        return await LoginStore().load(login_key(login.url, login.grant.client_id)) is not None
    except (OSError, WireError):
        return False
