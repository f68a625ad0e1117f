"""Lists of tools by caller: nobody sees the tools of another caller, and all with the same list share it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import ToolBox, tool
from bridge.client import parse_config
from bridge.gateway import Gateway
from bridge.gateway.credentials.store import Credential, CredentialKey
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.http.app import http_app
from bridge.server.server import Server
from tests.gateway.credentials.seeing import ADA, BOB, Seeing, context_of, seeing
from tests.server.http_server import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bridge import Caller

pytestmark = pytest.mark.anyio

ADAS, BOBS = CredentialKey.of(ADA, "notes"), CredentialKey.of(BOB, "notes")


@tool
def read() -> str:
    """Read."""
    return "read"


@tool
def erase() -> str:
    """Erase."""
    return "erased"


@pytest.fixture
def server() -> Iterator[Seeing]:
    """A server that lists nothing without a credential, and a tool more for Ada."""
    auth = Auth(
        ApiKeys(
            ApiKey("ada", "of-ada-with-enough-characters"),
            ApiKey("bob", "of-bob-with-enough-characters", tools=("read",)),
        )
    )
    with serving(http_app(Server(ToolBox(read, erase), name="notes"), auth=auth)) as origin:
        yield Seeing(url=f"{origin}/mcp")


@asynccontextmanager
async def opened(server: Seeing, **settings: Any) -> AsyncIterator[Gateway]:
    entry = {"url": server.url, "auth": {"type": "secret", "per": "caller"}, **settings}
    with anyio.fail_after(60):
        async with Gateway(parse_config({"mcpServers": {"notes": entry}}).servers.values()) as gateway:
            yield gateway


async def give(gateway: Gateway, key: CredentialKey) -> None:
    assert gateway.broker is not None
    secret = f"of-{key.subject}-with-enough-characters"
    await gateway.broker.save(key, Credential(kind="secret", secret=secret))


async def listed(gateway: Gateway, caller: Caller | None) -> list[str]:
    caller_features = gateway.features.caller_features
    assert caller_features is not None
    return [tool.name for tool in (await caller_features.load(context_of(caller))).tools if tool.listed]


async def test_each_caller_sees_its_own_list_once_it_is_connected(server: Seeing) -> None:
    async with opened(server, required=True) as gateway:
        assert [tool.name for tool in gateway.tools] == []
        assert await listed(gateway, ADA) == ["notes_connect"]
        await give(gateway, ADAS)
        assert await listed(gateway, ADA) == ["read", "erase"]
        assert await listed(gateway, BOB) == ["notes_connect"]
        await give(gateway, BOBS)
        assert await listed(gateway, BOB) == ["read"]
        assert await listed(gateway, None) == []
        assert gateway.broker is not None
        await gateway.broker.forget(ADAS)
        assert await listed(gateway, ADA) == ["notes_connect"]


async def test_callers_with_the_same_list_share_one(server: Seeing) -> None:
    async with opened(server) as gateway:
        other = CredentialKey("key", "eve", "notes")
        assert gateway.broker is not None
        secret = "of-ada-with-enough-characters"
        await give(gateway, ADAS)
        await gateway.broker.save(other, Credential(kind="secret", secret=secret))
        caller_features = gateway.features.caller_features
        assert caller_features is not None
        ada = await caller_features.load(context_of(ADA))
        eve = await caller_features.load(context_of(type(ADA)("eve", issuer="key", subject="eve")))
        assert ada is eve
        assert caller_features.of(ADA, current=True) is ada


async def test_lists_per_caller_by_the_configuration_though_the_server_lists_to_all() -> None:
    with seeing() as server:
        async with opened(server, listPer="caller") as gateway:
            assert [tool.name for tool in gateway.tools] == []
            await give(gateway, ADAS)
            assert await listed(gateway, ADA) == ["whoami"]
        async with opened(server) as gateway:
            assert [tool.name for tool in gateway.tools] == ["whoami"]
