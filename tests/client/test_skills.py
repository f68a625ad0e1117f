"""Skills of servers, imported: verified, and bound to server and content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import McpToolProvider, Server, ServerConfig, ToolBox
from bridge.client import MemoryTransport
from bridge.client.connection.list_methods import SKILLS
from bridge.client.pins import pins_of
from bridge.errors import PinMismatchError
from bridge.server import Features
from bridge.skills import Skill, SkillFile, SkillMismatchError, Skills, skills_in
from bridge.skills.skill import digest_of
from tests.skills.written import instructions, write_skill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bridge import InvocationContext

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]
ERAS = pytest.mark.parametrize("era", ["2026-07-28", "legacy"])


@pytest.fixture
async def deadline() -> AsyncIterator[None]:
    """Fail each test at a deadline."""
    with anyio.fail_after(30):
        yield


def config(source: object, name: str = "docs", **settings: Any) -> ServerConfig:
    return ServerConfig(name=name, transport=MemoryTransport(Server(source, name=name)), **settings)


class Lying(Skills):
    """Skills whose entries differ from the files that are read."""

    def __init__(self, folder: Path, **entry: Any) -> None:
        self._true = skills_in(folder)
        self._entry = entry
        self.box = self._true.box

    async def list(self, context: InvocationContext | None = None) -> tuple[Skill, ...]:
        (true,) = await self._true.list(context)
        members = {"uri": true.uri, "frontmatter": true.frontmatter, "files": true.files} | self._entry
        return (Skill(**members),)


@ERAS
async def test_skills_of_several_servers_have_uris_of_their_own_and_keep_their_origin(era: Any, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_skill(tmp_path / name, "refunds", {"a.md": f"of {name}"})
    configs = [config(skills_in(tmp_path / name), name, protocol=era) for name in ("one", "two")]
    async with McpToolProvider(configs) as provider:
        one, two = await provider.skills.list()
        assert (one.uri, one.server) == ("one+skill://refunds/SKILL.md", "one")
        assert (two.uri, two.server) == ("two+skill://refunds/SKILL.md", "two")
        assert (await provider.skills.read(two, "two+skill://refunds/a.md")).content == "of two"
        with pytest.raises(SkillMismatchError, match="has no file"):  # a skill reads nothing of another server
            await provider.skills.read(two, "one+skill://refunds/a.md")
        assert await provider.skills.get("one+skill://refunds/SKILL.md") == one
        assert await provider.skills.get("one+skill://none/SKILL.md") is None
        assert await provider.skills.get("file:///etc/passwd") is None
        assert await provider.skills.list(server="two") == (two,)


async def test_a_provider_without_skills_asks_nobody(tmp_path: Path) -> None:
    async with McpToolProvider([config(Features(tools=ToolBox()))]) as provider:
        assert not provider.skills.are_offered
        assert await provider.skills.list() == ()


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"files": (SkillFile("skill://refunds/SKILL.md", digest_of(b"x"), 1),)}, "bytes, not 1"),
        (
            {"files": (SkillFile("skill://refunds/SKILL.md", digest_of(b"x"), len(instructions("refunds"))),)},
            "another digest",
        ),
        ({"frontmatter": {"name": "refunds", "description": "Harmless"}}, "the frontmatter of"),
        ({"frontmatter": {"name": "refunds", "description": "Harmless"}, "files": None}, "the frontmatter of"),
    ],
)
async def test_a_file_that_is_not_what_the_entry_says_is_refused(entry: Any, problem: str, tmp_path: Path) -> None:
    write_skill(tmp_path, "refunds")
    async with McpToolProvider([config(Lying(tmp_path, **entry))]) as provider:
        (skill,) = await provider.skills.list()
        with pytest.raises(SkillMismatchError, match=problem):
            await provider.skills.read(skill)


async def test_a_generated_skill_is_read_without_verification_of_its_content(tmp_path: Path) -> None:
    write_skill(tmp_path, "refunds", {"a.md": "A"})
    async with McpToolProvider([config(Lying(tmp_path, files=None))]) as provider:
        (skill,) = await provider.skills.list()
        assert skill.files is None
        assert (await provider.skills.read(skill, "skill://refunds/a.md")).content == "A"


async def test_pins_bind_a_skill_to_its_server_and_its_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write_skill(tmp_path, "refunds", {"a.md": "A"})
    served = Features(tools=ToolBox(), skills=skills_in(tmp_path, rescan_seconds=0))
    async with McpToolProvider([config(served)]) as provider:
        connection = provider.connections["docs"]
        pins = pins_of({SKILLS: (await connection.list_items(SKILLS)).items})
    async with McpToolProvider([config(served, pins=pins)]) as provider:
        (skill,) = await provider.skills.list()
        assert (await provider.skills.read(skill, "skill://refunds/a.md")).content == "A"
        (folder / "b.md").write_text("a file that nobody has reviewed")
        assert await provider.skills.list() == ()
        assert "has changed: resources" in caplog.text
        with pytest.raises(PinMismatchError, match="has changed: resources"):
            await provider.skills.get("skill://refunds/SKILL.md")
        (folder / "b.md").unlink()
        assert await provider.skills.list() == (skill,)


async def test_malformed_and_excluded_skills_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_skill(tmp_path, "refunds")
    write_skill(tmp_path, "returns")
    excluding = config(skills_in(tmp_path), exclude_resources=("*refunds*",))
    async with McpToolProvider([excluding]) as provider:
        assert [skill.name for skill in await provider.skills.list()] == ["returns"]
        assert await provider.skills.get("skill://refunds/SKILL.md") is None
