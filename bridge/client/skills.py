"""Skills of remote servers, verified against their digests, and bound to their server and content by pins (SEP-2640).

What a skill asks for, such as ``allowed-tools``, is never granted.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from bridge.client.connection.list_methods import SKILLS, Listed
from bridge.client.listed_items import all_entries, logged_unless_only, made_items, require_server
from bridge.client.selection import not_as_pinned
from bridge.errors import DefinitionError, ServerRefusedError, WireError
from bridge.protocol.versions import INVALID_PARAMS, METHOD_NOT_FOUND
from bridge.skills.source import Skills, only_file
from bridge.tools.context import InvocationContext
from bridge.wire.resources import contents_from_wire
from bridge.wire.skills import skill_from_wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.client.resources import RemoteServers
    from bridge.client.upstream import Upstream
    from bridge.client.uris import UriNames
    from bridge.skills.skill import Skill
    from bridge.tools.content import File

MAX_SKILLS = 10_000
"""Maximum skills of a server, over all pages."""
_logger = logging.getLogger("bridge.client")


class RemoteSkills(Skills):
    """The skills of a provider's servers, listed whenever they are asked for.

    With several servers a URI begins with its server's name: ``docs+skill://refunds/SKILL.md``. `Skill.server` is the
    server's name in the configuration.
    """

    def __init__(self, servers: RemoteServers, uris: UriNames) -> None:
        self._servers = servers
        self._uris = uris

    @property
    def are_offered(self) -> bool:
        """True if a connected server announces skills."""
        return any(map(_announces, self._servers.upstreams.values()))

    async def list(self, context: InvocationContext | None = None, *, server: str | None = None) -> tuple[Skill, ...]:
        """Return the skills of all servers that can be reached, or of one.

        Skills that are malformed, or differ from their pins, are left out and logged.

        Args:
            context: Context of the request; None for none.
            server: Name of a server; None for all.

        Raises:
            DefinitionError: There is no such server, or the provider is not open.
            ServerError: The server cannot be reached, or its skills cannot be listed; of several, this is logged.
        """
        self._servers.require_open()
        upstreams = require_server(self._servers.upstreams, server)
        found: list[Skill] = []
        for each in [upstreams[server]] if server is not None else filter(_announces, upstreams.values()):
            with logged_unless_only(each.name, upstreams, server, "skills"):
                found += await self._listed(each, context or InvocationContext())
        return tuple(found)

    async def get(self, uri: str, context: InvocationContext | None = None) -> Skill | None:
        """Return a skill by its local URI, also one that its server does not list; see `Skills.get`.

        Raises:
            DefinitionError: The provider is not open.
            PinMismatchError: It differs from its pin.
            ServerError: Its server cannot be asked, or returned a malformed skill.
        """
        self._servers.require_open()
        remote = self._uris.remote(uri)
        server = None if remote is None else self._servers.upstreams.get(remote.server)
        if remote is None or server is None or not _announces(server) or not server.config.admits_resource(remote.uri):
            return None
        try:
            wire = await server.request("skills/get", {"uri": remote.uri}, context or InvocationContext())
        except ServerRefusedError as error:
            if error.code in {INVALID_PARAMS, METHOD_NOT_FOUND}:
                return None
            raise
        entry = wire["skill"]
        if entry.get("uri") != remote.uri:
            return None
        if (pins := server.config.pins) is not None:
            refused = pins.admitted(server.name, SKILLS, Listed([entry])).refused
            if (reason := refused.get(remote.uri)) is not None:
                raise not_as_pinned(server.name, f"loading {remote.uri!r}", reason)
        try:
            return self._local(server, entry)
        except (WireError, DefinitionError) as error:
            _logger.warning("server %r: left out the skill %r: %s", server.name, remote.uri, error)
            return None

    async def _listed(self, server: Upstream, context: InvocationContext) -> Iterable[Skill]:
        entries = await all_entries(server, SKILLS, context, max_entries=MAX_SKILLS)
        admitted = [each for each in entries if server.config.admits_resource(each["uri"])]
        listed, pins = Listed(admitted), server.config.pins
        if pins is not None:
            listed = pins.admitted(server.name, SKILLS, listed)
        skills, _ = await made_items(server.name, partial(self._local, server), lambda each: each.uri, (SKILLS, listed))
        return skills

    def _local(self, server: Upstream, entry: Mapping[str, object]) -> Skill:
        return skill_from_wire(entry, server.name).at(partial(self._uris.local, server.name))

    async def _fetch(self, skill: Skill, uri: str, context: InvocationContext) -> File:
        """Read a file from the server of its skill, and from no other."""
        server = self._servers.upstreams.get(skill.server or "")
        if server is None:
            raise DefinitionError(f"the server {skill.server!r} of the skill {skill.uri!r} is not configured any more")
        remote = self._uris.of_server(server.name, uri)
        wire = await server.request("resources/read", {"uri": remote}, context)
        return only_file(contents_from_wire(wire), uri)


def _announces(server: Upstream) -> bool:
    info = server.connection.server_info
    return info is not None and SKILLS.extension in (info.capabilities.get("extensions") or {})
