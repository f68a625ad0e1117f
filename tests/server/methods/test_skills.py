"""Skills over the wire, in both eras."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import Server, ServerConfig, filtered
from bridge.client import Connection, MemoryTransport
from bridge.errors import ServerRefusedError
from bridge.server import Features, namespaced
from bridge.server.auth.access import Access
from bridge.server.dispatch import Dispatch
from bridge.server.exchange import LocalOrigin, ServedExchange
from bridge.skills import skills_in
from bridge.skills.skill import digest_of
from tests.server.http_server import modern, request
from tests.server.tools import ADD
from tests.skills.written import instructions, write_skill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]
ERAS = pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
SKILLS = "io.modelcontextprotocol/skills"


@pytest.fixture
async def deadline() -> AsyncIterator[None]:
    """Fail each test at a deadline."""
    with anyio.fail_after(30):
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_skill(tmp_path, "refunds", {"examples/email.md": "Dear", "logo.png": b"\x89\xff"})
    write_skill(tmp_path, "returns")
    return tmp_path


def connection_to(server: Server, era: Any) -> Connection:
    return Connection(ServerConfig(name="skills", transport=MemoryTransport(server), protocol=era))


async def refusal(connection: Connection, method: str, **params: Any) -> tuple[int, str]:
    with pytest.raises(ServerRefusedError) as refused:
        await connection.request(method, params)
    return refused.value.code, refused.value.message


@ERAS
async def test_skills_are_listed_got_and_read(era: str, folder: Path) -> None:
    async with connection_to(Server(skills_in(folder), name="skills"), era) as connection:
        assert connection.server_info is not None
        capabilities = connection.server_info.capabilities
        assert capabilities["extensions"] == {SKILLS: {"directoryRead": True}}
        assert "resources" in capabilities
        listed = await connection.request("skills/list")
        assert [each["uri"] for each in listed["skills"]] == ["skill://refunds/SKILL.md", "skill://returns/SKILL.md"]
        assert listed["skills"][0]["frontmatter"] == {"name": "refunds", "description": "Do it well"}
        assert listed["skills"][0]["resources"][1] == {
            "uri": "skill://refunds/examples/email.md",
            "digest": digest_of(b"Dear"),
            "size": 4,
        }
        got = await connection.request("skills/get", {"uri": "skill://refunds/SKILL.md"})
        assert got["skill"] == listed["skills"][0]
        for result in (listed, got):
            assert {"ttlMs", "cacheScope", "resultType"} <= result.keys() if era != "legacy" else "ttlMs" not in result
        read = await connection.request("resources/read", {"uri": "skill://refunds/SKILL.md"})
        assert read["contents"][0]["text"] == instructions("refunds")
        image = await connection.request("resources/read", {"uri": "skill://refunds/logo.png"})
        assert image["contents"][0] == {"uri": "skill://refunds/logo.png", "mimeType": "image/png", "blob": "if8="}
        children = await connection.request("resources/directory/read", {"uri": "skill://refunds"})
        assert [each["name"] for each in children["resources"]] == ["SKILL.md", "examples", "logo.png"]


@ERAS
async def test_what_does_not_exist_is_refused(era: str, folder: Path) -> None:
    async with connection_to(Server(skills_in(folder), name="skills"), era) as connection:
        for uri in ("skill://other/SKILL.md", "skill://refunds/logo.png", "skill://refunds"):
            assert await refusal(connection, "skills/get", uri=uri) == (-32602, f"there is no skill {uri!r}")
        for uri in ("skill://refunds/SKILL.md", "skill://refunds/none", "skill://"):
            assert (await refusal(connection, "resources/directory/read", uri=uri))[0] == -32602
        for method in ("skills/get", "resources/directory/read"):
            assert await refusal(connection, method) == (
                -32602,
                "Invalid request parameters: 'uri' must be text",
            )
        code, _ = await refusal(connection, "resources/read", uri="skill://refunds/../returns/SKILL.md")
        assert code == (-32002 if era == "legacy" else -32602)


@ERAS
async def test_a_server_without_skills_has_none_of_the_methods(era: str) -> None:
    async with connection_to(Server([ADD], name="none"), era) as connection:
        assert connection.server_info is not None
        assert "extensions" not in connection.server_info.capabilities
        for method in ("skills/list", "skills/get", "resources/directory/read"):
            assert await refusal(connection, method, uri="skill://x/SKILL.md") == (-32601, "Method not found")


async def test_a_list_has_pages(folder: Path) -> None:
    async with connection_to(Server(skills_in(folder), name="skills", page_size=1), "2026-07-28") as connection:
        first = await connection.request("skills/list")
        second = await connection.request("skills/list", {"cursor": first["nextCursor"]})
        assert [each["frontmatter"]["name"] for page in (first, second) for each in page["skills"]] == [
            "refunds",
            "returns",
        ]
        assert "nextCursor" not in second
        assert (await refusal(connection, "skills/list", cursor="x"))[0] == -32602


async def test_a_caller_sees_the_skills_of_its_names(folder: Path) -> None:
    server = Server(skills_in(folder), name="skills")
    dispatch = Dispatch(server)

    async def answered(method: str, **params: str) -> bytes:
        exchange = dispatch.modern(modern(request(method, params)), LocalOrigin(Access(tools=("returns",))))
        assert isinstance(exchange, ServedExchange)
        return (await exchange.responder.run(exchange))[0]

    listed = await answered("skills/list")
    assert b"skill://returns/SKILL.md" in listed
    assert b"skill://refunds" not in listed
    assert b'"code":-32602' in await answered("skills/get", uri="skill://refunds/SKILL.md")
    assert b'"code":-32602' in await answered("resources/directory/read", uri="skill://refunds")


async def test_mounted_and_filtered_skills(folder: Path) -> None:
    async with AsyncExitStack() as stack:
        inner = Server(skills_in(folder), name="inner")
        mounted = Server([ADD], name="outer")
        mounted.mount(inner, prefix="shop")
        connection = await stack.enter_async_context(connection_to(mounted, "2026-07-28"))
        listed = await connection.request("skills/list")
        uris = [each["uri"] for each in listed["skills"]]
        assert uris == ["shop+skill://refunds/SKILL.md", "shop+skill://returns/SKILL.md"]
        read = await connection.request("resources/read", {"uri": "shop+skill://refunds/examples/email.md"})
        assert read["contents"][0]["text"] == "Dear"
        assert (await refusal(connection, "resources/read", uri="skill://refunds/SKILL.md"))[0] == -32602
        some = Features.of(filtered(namespaced(inner, "x"), lambda item: "refunds" not in item.name), [ADD])
        connection = await stack.enter_async_context(connection_to(Server(some, name="some"), "2026-07-28"))
        assert [each["uri"] for each in (await connection.request("skills/list"))["skills"]] == [
            "x+skill://returns/SKILL.md"
        ]
