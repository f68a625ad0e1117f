"""Middleware of a provider: around what its servers are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import (
    McpToolProvider,
    Middleware,
    ServerConfig,
    ToolExecutionRequest,
    ToolExecutionResult,
    prompt,
    resource,
    tool,
)
from bridge.client import MemoryTransport
from bridge.errors import ResourceNotFoundError
from bridge.middleware import CachingMiddleware, GetPromptRequest, ReadResourceRequest, method_of, target_of
from bridge.server import Features, Server
from bridge.tools.task import TaskPolicy

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge import InvocationContext

pytestmark = pytest.mark.anyio

ASKED: list[str] = []


@pytest.fixture(autouse=True)
def _empty() -> None:
    ASKED.clear()


@tool
async def add(a: int, b: int) -> int:
    ASKED.append("add")
    return a + b


@tool(task=TaskPolicy(required=True))
async def later() -> str:
    return "done"


@resource("notes://{day}", completions={"day": ["monday", "tuesday"]})
async def day_of(day: str) -> str:
    ASKED.append(day)
    return f"notes of {day}"


@prompt(completions={"topic": ["tea", "milk"]})
async def review(topic: str) -> str:
    ASKED.append(topic)
    return f"Review {topic}"


class Changing(Middleware):
    """Records requests, and asks for others."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None]] = []

    async def on_request(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        self.seen.append((method_of(request), target_of(request)))
        return await call_next(request, context)

    async def call_tool(
        self, request: ToolExecutionRequest, context: InvocationContext, call_next: Callable[..., Any]
    ) -> ToolExecutionResult:
        changed = {**request.arguments_by_name(), "b": 40} if request.name == "add" else request.arguments
        result: ToolExecutionResult = await call_next(ToolExecutionRequest(request.name, changed), context)
        return result

    async def read_resource(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        uri = request.uri.replace("monday", "tuesday")
        return await call_next(ReadResourceRequest(uri), context)

    async def get_prompt(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        return await call_next(GetPromptRequest(request.name, {"topic": "bread"}), context)


def provider_of(*middleware: Middleware) -> McpToolProvider:
    server = Server(Features.of(add, later, day_of, review), name="there")
    config = ServerConfig(name="there", transport=MemoryTransport(server), required=True)
    return McpToolProvider(config, middleware=middleware)


async def test_it_surrounds_calls_reads_prompts_and_completions() -> None:
    changing = Changing()
    async with provider_of(changing) as provider:
        assert (await provider.call("add", {"a": 2, "b": 3})).text == "42"
        assert (await provider.resources.read("notes://monday"))[0].content == "notes of tuesday"
        assert (await provider.prompts.render("review", {"topic": "tea"}))[0].content.text == "Review bread"  # type: ignore[union-attr]
        assert (await provider.prompts.complete("review", "topic", "t")).values == ("tea",)
        assert (await provider.resources.complete("notes://{day}", "day", "m")).values == ("monday",)
        with pytest.raises(ResourceNotFoundError):
            await provider.resources.read("none://x")
    assert changing.seen[:5] == [
        ("tools/call", "add"),
        ("resources/read", "notes://monday"),
        ("prompts/get", "review"),
        ("completion/complete", "review"),
        ("completion/complete", "notes://{day}"),
    ]


async def test_answers_of_servers_are_cached() -> None:
    caching = CachingMiddleware(ttl_seconds=3600, tools=["add"])
    async with provider_of(caching) as provider:
        await provider.prompts.list()
        for _ in range(2):
            assert (await provider.call("add", {"a": 2, "b": 3})).text == "5"
            assert (await provider.resources.read("notes://monday"))[0].content == "notes of monday"
            assert len(await provider.prompts.render("review", {"topic": "tea"})) == 1
        assert ASKED == ["add", "monday", "tea"]
        caching.clear()
        await provider.call("add", {"a": 2, "b": 3})
        assert ASKED[3:] == ["add"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_it_surrounds_the_start_of_a_task() -> None:
    changing = Changing()
    with anyio.fail_after(20):
        async with provider_of(changing) as provider:
            task = await provider.start("later")
            assert (await task.result()).text == "done"
    assert changing.seen == [("tools/call", "later")]
