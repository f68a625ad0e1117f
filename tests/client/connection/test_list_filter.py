"""Lists of tools with invalid entries: the other tools are kept, and the entries reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bridge.client import McpToolProvider
from tests.client.conftest import opened
from tests.client.pages import listing
from tests.client.scripted import listed, scripted_config

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.client import ServerConfig

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("deadline")]

MALFORMED: list[Any] = [
    {"name": "none"},
    {"name": "list", "inputSchema": {"type": "array"}},
    {"name": "titled", "title": 5, "inputSchema": {"type": "object"}},
    {"inputSchema": {"type": "object"}},
    None,
]
SENTENCES = (
    "the tool 'none' is malformed: inputSchema: Field required",
    "the tool 'list' is malformed: inputSchema.type: Input should be 'object'",
    "the tool 'titled' is malformed: title: Input should be a valid string",
    "the tool {'inputSchema': {'type': 'object'}} is malformed: name: Field required",
    "the tool None is malformed: Input should be a valid dictionary",
)
TOOLS = [listed("a"), *MALFORMED, listed("b", **{"x-own": [1, None]})]


@pytest.fixture(params=["stdio legacy", "http legacy", "http 2026-07-28", "sse legacy"])
def config(request: pytest.FixtureRequest) -> Iterator[ServerConfig]:
    """A server with such a list, by each transport."""
    kind, protocol = request.param.split()
    if kind == "stdio":
        yield scripted_config(TOOLS, protocol=protocol)
    else:
        with listing(TOOLS, kind, protocol) as config:
            yield config


async def test_what_is_no_tool_costs_none_of_the_others(config: ServerConfig) -> None:
    async with opened(config) as connection:
        for _ in range(2):
            tools, _, malformed, _ = await connection.list_tools()
            assert tools == [listed("a"), listed("b", **{"x-own": [1, None]})]
            assert malformed == SENTENCES


async def test_all_pages_are_listed_whatever_is_on_them() -> None:
    tools = [listed("a"), *MALFORMED, listed("b"), {"name": "none"}, listed("c")]
    async with opened(scripted_config(tools, page_size=2, protocol="legacy")) as connection:
        found, _, malformed, _ = await connection.list_tools()
    assert [tool["name"] for tool in found] == ["a", "b", "c"]
    assert malformed == (*SENTENCES, SENTENCES[0])


async def test_a_provider_tells_server_tool_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    async with McpToolProvider(scripted_config([*TOOLS, listed("a")])) as provider:
        (status,) = provider.status()
        assert (await provider.call("b")).is_error is False
    assert (status.tools, status.problem) == (("a", "b"), None)
    assert status.skipped == (*SENTENCES, "the tool 'a' is listed twice")
    assert f"server 'child': left out: {SENTENCES[0]}" in caplog.text
