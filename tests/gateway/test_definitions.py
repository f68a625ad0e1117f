"""Definitions of servers that a gateway passes on: schemas without a type, members that it does not know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from bridge.gateway import Gateway
from bridge.prompts.prompt import Prompt
from bridge.server import http_app
from bridge.wire.prompts import prompt_from_wire, prompt_to_wire
from tests.client.conftest import DEADLINE_SECONDS
from tests.client.pages import listing
from tests.client.scripted import scripted_config
from tests.gateway.between import caller
from tests.server.http_server import answer, modern, modern_headers, open_session, request, serving

if TYPE_CHECKING:
    from bridge.client import ServerConfig

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
BARE: dict[str, Any] = {"name": "bare", "inputSchema": {"$schema": "http://json-schema.org/draft-07/schema#"}}
TYPED = {"type": "object", "properties": {"x": {}}}
FURTHER: dict[str, Any] = {
    "name": "further",
    "inputSchema": TYPED,
    "annotations": {"readOnlyHint": True, "x/audience": ["user"], "riskHint": 3},
    "execution": {"taskSupport": "optional"},
    "x-own": {"a": [1, None]},
}
ONLY_TASKS: dict[str, Any] = {"name": "only", "inputSchema": TYPED, "execution": {"taskSupport": "required"}}


async def listed(config: ServerConfig, era: str, kind: str = "tools") -> list[Any]:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Gateway([config]) as gateway, caller(gateway, era=era) as connection:
            listed: list[Any] = (await connection.request(f"{kind}/list", {}))[kind]
            return listed


def listed_over_http(url: str, era: str) -> Any:
    message = request("tools/list", {}, 2)
    with httpx.Client() as client:
        if era == "legacy":
            headers = open_session(client, url)
        else:
            message = modern(message)
            headers = modern_headers(message)
        return answer(client.post(url, json=message, headers=headers))["result"]["tools"]


@ERAS
@pytest.mark.parametrize("server_era", ["legacy", "2026-07-28"])
async def test_a_schema_without_a_type_is_that_of_an_object(server_era: str, era: str) -> None:
    tools = [BARE, {**BARE, "name": "out", "outputSchema": {"properties": {}}}, {**BARE, "inputSchema": {"type": None}}]
    tools[2]["name"] = "none"
    with listing(tools, "http", server_era) as config:
        first, second, third = await listed(config, era)
    assert first == {"name": "bare", "inputSchema": {**BARE["inputSchema"], "type": "object"}}
    assert second["inputSchema"] == first["inputSchema"]
    assert second["outputSchema"] == {"properties": {}} | ({"type": "object"} if era == "legacy" else {})
    assert third == {"name": "none", "inputSchema": {"type": "object"}}


@ERAS
async def test_a_schema_with_several_types_is_that_of_an_object_if_one_of_them_is(era: str) -> None:
    kinds: list[list[str]] = [["object", "null"], ["object"], ["string", "null"]]
    tools = [{"name": "".join(kind), "inputSchema": {**TYPED, "type": kind}} for kind in kinds]
    with listing(tools, "http", "legacy") as config:
        found = await listed(config, era)
    assert found == [{"name": name, "inputSchema": TYPED} for name in ("objectnull", "object")]


async def test_a_tool_with_a_schema_without_a_type_can_be_called() -> None:
    config = scripted_config([BARE], {"bare": {"content": [{"type": "text", "text": "here"}]}}, protocol="legacy")
    async with Gateway([config]) as gateway, caller(gateway, era="legacy") as connection:
        assert (await connection.call_tool("bare", {"any": 1}))["content"][0]["text"] == "here"


@ERAS
async def test_members_that_a_gateway_does_not_know_pass_unchanged(era: str) -> None:
    with listing([FURTHER], "http", "legacy") as config:
        async with Gateway([config]) as gateway:
            with serving(http_app(gateway.features)) as origin:
                assert listed_over_http(f"{origin}/mcp", era) == [FURTHER]


def test_members_of_a_prompts_argument_pass_unchanged() -> None:
    wire = {"name": "p", "arguments": [{"name": "a", "required": True, "default": "b", "x-own": [1]}]}

    async def render(_request: Any, _context: Any) -> Any:
        raise AssertionError

    renderer: Any = render
    assert prompt_to_wire(Prompt(**prompt_from_wire(wire), renderer=renderer)) == wire


async def test_a_tool_that_needs_tasks_of_an_earlier_version_is_left_out_and_named() -> None:
    with listing([ONLY_TASKS, FURTHER], "http", "legacy") as config:
        async with Gateway([config]) as gateway:
            assert [tool.name for tool in gateway.tools] == ["further"]
            (status,) = gateway.status()
    assert status.skipped == (
        "the tool 'only' can only be called as a task of version 2025-11-25, which this client does not support",
    )
