"""Middleware of a gateway: around what servers behind it answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest

from bridge import File, McpToolProvider, Middleware, ServerConfig, prompt, resource, tool
from bridge.client import MemoryTransport
from bridge.gateway import Gateway
from bridge.server import Features, Server
from bridge.tools.calls import ToolExecutionResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge import InvocationContext

pytestmark = pytest.mark.anyio

LARGE = "x" * 3_000_000


@tool
async def add(a: int, b: int) -> int:
    return a + b


@resource("notes://all")
async def notes() -> str:
    return LARGE


@prompt
async def review(topic: str) -> str:
    return f"Review {topic}"


class Reading(Middleware):
    """Reads results, and passes them on or answers others."""

    def __init__(self, *, changes: bool) -> None:
        self.changes = changes
        self.seen: list[object] = []

    async def call_tool(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        result = await call_next(request, context)
        self.seen.append(result.structured_content)
        return ToolExecutionResult(result.content, {"result": 7}) if self.changes else result

    async def read_resource(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        result = await call_next(request, context)
        (block,) = result.content
        self.seen.append(len(block.content))
        return ToolExecutionResult((File(request.uri, "short", "text/plain"),)) if self.changes else result

    async def get_prompt(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        result = await call_next(request, context)
        self.seen.append(result.value[0].content.text)
        return result


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_middleware_sees_and_changes_results_of_other_servers(
    protocol: Literal["legacy", "2026-07-28"], changes: bool
) -> None:
    reading = Reading(changes=changes)
    there = Server(Features.of(add, notes, review), name="there")
    async with Gateway([ServerConfig(name="there", transport=MemoryTransport(there), required=True)]) as gateway:
        server = Server(gateway.features, name="gateway", middleware=[reading])
        config = ServerConfig(name="gateway", transport=MemoryTransport(server), required=True, protocol=protocol)
        async with McpToolProvider(config) as provider:
            result = await provider.call("add", {"a": 2, "b": 3})
            assert result.structured_content == {"result": 7 if changes else 5}
            (read,) = await provider.resources.read("notes://all")
            assert read.content == ("short" if changes else LARGE)
            assert (await provider.prompts.render("review", {"topic": "tea"}))[0].content.text == "Review tea"  # type: ignore[union-attr]
    assert reading.seen == [{"result": 5}, len(LARGE), "Review tea"]
