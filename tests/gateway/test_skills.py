"""Skills of several servers, and local ones, through a gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bridge import McpToolProvider, Server, ServerConfig, ToolBox
from bridge.client import MemoryTransport
from bridge.server import Features
from bridge.skills import skills_in
from tests.gateway.between import between, server_config
from tests.server.tools import ADD
from tests.skills.written import write_skill

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio
SKILLS = "io.modelcontextprotocol/skills"


@pytest.mark.parametrize("server_era", ["2026-07-28", "legacy"])
@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_skills_of_servers_are_one_list_under_rewritten_uris(era: str, server_era: Any, tmp_path: Path) -> None:
    for name in ("one", "two", "own"):
        write_skill(tmp_path / name, "refunds", {"a.md": f"of {name}"})

    def served(name: str) -> ServerConfig:
        server = Server(skills_in(tmp_path / name), name=name)
        return ServerConfig(name=name, transport=MemoryTransport(server), protocol=server_era)

    local = Features(tools=ToolBox(), skills=skills_in(tmp_path / "own"))
    async with between(served("one"), served("two"), era=era, local=local) as (gateway, connection):
        assert connection.server_info is not None
        assert SKILLS in connection.server_info.capabilities["extensions"]
        config = ServerConfig(name="gateway", transport=MemoryTransport(Server(gateway.features, name="gateway")))
        async with McpToolProvider([config]) as provider:
            own, one, two = await provider.skills.list()
            assert [each.uri for each in (own, one, two)] == [
                "skill://refunds/SKILL.md",
                "one+skill://refunds/SKILL.md",
                "two+skill://refunds/SKILL.md",
            ]
            for skill, name in ((own, "own"), (one, "one"), (two, "two")):
                assert (await provider.skills.read(skill)).mime_type == "text/markdown"
                assert (await provider.skills.read(skill, f"{skill.root}/a.md")).content == f"of {name}"
                assert await provider.skills.get(skill.uri) == skill
            assert await provider.skills.get("one+skill://none/SKILL.md") is None
        children = await connection.request("resources/directory/read", {"uri": "two+skill://refunds"})
        assert [each["uri"] for each in children["resources"]] == [
            "two+skill://refunds/SKILL.md",
            "two+skill://refunds/a.md",
        ]


async def test_a_gateway_to_servers_without_skills_announces_none() -> None:
    async with between(server_config(ADD)) as (_, connection):
        assert connection.server_info is not None
        assert SKILLS not in connection.server_info.capabilities.get("extensions", {})
