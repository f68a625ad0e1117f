"""The resources and the prompt of servers/files.py."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import File, Text, ToolError
from bridge.client import McpToolProvider, MemoryTransport, ServerConfig
from bridge.errors import ResourceNotFoundError, ServerRefusedError
from bridge.server import Features, Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.servers.conftest import Load, Loaded, Serve

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 60


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("what nobody may read")
    root = tmp_path / "root"
    (root / "notes").mkdir(parents=True)
    (root / "notes" / "50 %.md").write_text("half", encoding="utf-8")
    (root / "p.png").write_bytes(b"\x89\xff\x00")
    (root / ".hidden").write_text("hidden")
    return root


@pytest.fixture
def files(load: Load, root: Path) -> Loaded:
    return load("files", FILES_ROOT=root)


@pytest.fixture
async def provider(files: Loaded) -> AsyncIterator[McpToolProvider]:
    server = Server(Features.of(files.module.files, files.module.summarize), name="files")
    config = ServerConfig(name="files", transport=MemoryTransport(server))
    with anyio.fail_after(DEADLINE_SECONDS):
        async with McpToolProvider(config, features=["resources", "prompts"]) as provider:
            yield provider
    server.changes.close()


async def test_files_are_listed_completed_and_read(provider: McpToolProvider) -> None:
    listed = [(each.uri, each.name, each.mime_type) for each in provider.resources.resources]
    assert listed == [
        ("file:///notes/50%20%25.md", "notes/50 %.md", "text/markdown"),
        ("file:///p.png", "p.png", "image/png"),
    ]
    (text,) = await provider.resources.read("file:///notes/50%20%25.md")
    assert text == File("file:///notes/50%20%25.md", "half", "text/markdown")
    (binary,) = await provider.resources.read("file:///p.png")
    assert (binary.content, binary.mime_type) == (b"\x89\xff\x00", "image/png")
    completed = await provider.resources.complete("file:///{+path}", "path", "notes/50%20")
    assert completed.values == ("notes/50%20%25.md",)
    assert (await provider.resources.read("file:///.hidden"))[0].content == "hidden", "as with the tools"


@pytest.mark.parametrize(
    "uri",
    [
        "file:////etc/passwd",
        "file:///../secret",
        "file:///%2e%2e/secret",
        "file:///link/secret",
        "file:///soft",
        "file:///hard",
    ],
)
async def test_nothing_outside_is_read_listed_or_watched(
    provider: McpToolProvider, root: Path, files: Loaded, uri: str
) -> None:
    (root / "link").symlink_to(root.parent)
    (root / "soft").symlink_to(root.parent / "secret")
    os.link(root.parent / "secret", root / "hard")
    with pytest.raises((ServerRefusedError, ResourceNotFoundError)) as caught:
        await provider.resources.read(uri)
    assert "nobody may read" not in str(caught.value)
    files.module.files.poll()
    assert not {"file:///link/secret", "file:///soft"} & {each.uri for each in files.module.files.resources}
    assert files.module._version(uri) is None


async def test_what_does_not_exist_is_not_found_and_what_is_too_large_is_said(
    provider: McpToolProvider, root: Path
) -> None:
    with pytest.raises(ResourceNotFoundError):
        await provider.resources.read("file:///nothing")
    (root / "large.txt").write_bytes(b"a" * 1_048_577)
    with pytest.raises(ServerRefusedError, match="is larger than 1048576 bytes; read_file reads it page by page"):
        await provider.resources.read("file:///large.txt")


async def test_who_watches_a_file_is_notified_and_the_list_follows(
    provider: McpToolProvider, files: Loaded, root: Path
) -> None:
    updates, receive = anyio.create_memory_object_stream[str](10)
    with updates, receive:
        uri = "file:///notes/50%20%25.md"
        await provider.resources.watch(uri, updates.send_nowait)
        await anyio.to_thread.run_sync(files.module.files.poll)
        (root / "notes" / "50 %.md").write_text("more than half")
        (root / "p.png").write_bytes(b"not watched")
        await anyio.to_thread.run_sync(files.module.files.poll)
        assert await receive.receive() == uri
        assert (await provider.resources.read(uri))[0].content == "more than half"
        changed = anyio.Event()
        provider.resources.on_change(changed.set)
        (root / "new.txt").write_text("new")
        (root / "p.png").unlink()
        await anyio.to_thread.run_sync(files.module.files.poll)
        await changed.wait()
        assert [each.uri for each in provider.resources.resources] == ["file:///new.txt", uri]


async def test_the_prompt_attaches_the_file(provider: McpToolProvider) -> None:
    attached, task = await provider.prompts.render("summarize", {"path": "notes/50 %.md"})
    assert attached.content == File("file:///notes/50%20%25.md", "half", "text/markdown")
    assert isinstance(task.content, Text)
    assert (await provider.prompts.complete("summarize", "path", "notes/50 ")).values == ("notes/50 %.md",)
    with pytest.raises(ServerRefusedError, match="there is no file 'nothing'"):
        await provider.prompts.render("summarize", {"path": "nothing"})


async def test_a_real_client_watches_a_file(serve: Serve, root: Path) -> None:
    told, receive = anyio.create_memory_object_stream[Any](10)
    with anyio.fail_after(DEADLINE_SECONDS), told, receive:
        async with serve("files", FILES_ROOT=root, FILES_POLL_SECONDS=1) as client:
            listed = (await client.list_resources()).resources
            assert [str(each.uri) for each in listed] == ["file:///notes/50%20%25.md", "file:///p.png"]
            async with client.listen(resource_subscriptions=["file:///p.png"]) as events:
                (root / "p.png").write_text("text now")
                async for _event in events:
                    break
            (read,) = (await client.read_resource("file:///p.png")).contents
            assert read.mime_type == "image/png"


def test_a_file_that_cannot_be_named_is_not_listed(load: Load, root: Path) -> None:
    (root / os.fsdecode(b"\xff")).write_text("bytes")
    module = load("files", FILES_ROOT=root).module
    assert [each.name for each in module.files.resources] == ["notes/50 %.md", "p.png"]
    with pytest.raises(ToolError):
        module.file("\udcff")
