from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import (
    Caller,
    DefinitionError,
    InvocationContext,
    Middleware,
    ResourceBox,
    ToolBox,
    ToolError,
    prompt,
    resource,
    tool,
)
from bridge.middleware import CachingMiddleware
from bridge.middleware.caching import _size_of
from bridge.testing import connected

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio

ASKED: list[str] = []


@pytest.fixture(autouse=True)
def _empty() -> None:
    ASKED.clear()


@tool
async def price(item: str) -> int:
    ASKED.append(item)
    return len(ASKED)


@tool
async def buy(item: str) -> int:
    ASKED.append(f"buy {item}")
    return len(ASKED)


@tool
async def fail() -> str:
    ASKED.append("fail")
    raise ToolError("no")


@resource("notes://{day}")
async def notes(day: str) -> str:
    ASKED.append(day)
    return f"{day} {len(ASKED)}"


@prompt
async def review(topic: str) -> str:
    ASKED.append(topic)
    return f"{topic} {len(ASKED)}"


class Counting(Middleware):
    """Counts lists."""

    async def list_tools(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        ASKED.append("list")
        return await call_next(request, context)


@pytest.mark.parametrize("protocol", ["legacy", "2026-07-28"])
async def test_reads_prompts_lists_and_named_tools_are_cached(protocol: Any) -> None:
    caching = CachingMiddleware(ttl_seconds=3600, tools=["price", "fail"])
    sources = (price, buy, fail, notes, review)
    async with connected(*sources, protocol=protocol, middleware=[caching, Counting()]) as provider:
        await provider.refresh()
        assert ASKED == ["list"]
        ASKED.clear()
        for _ in range(2):
            assert (await provider.call("price", {"item": "tea"})).text == "1"
            assert (await provider.resources.read("notes://monday"))[0].content == "monday 2"
            assert (await provider.prompts.render("review", {"topic": "milk"}))[0].content.text == "milk 3"  # type: ignore[union-attr]
        assert (await provider.call("price", {"item": "milk"})).text == "4"
        assert [(await provider.call("buy", {"item": "tea"})).text for _ in range(2)] == ["5", "6"]
        assert [(await provider.call("fail")).text for _ in range(2)] == ["no", "no"]
        assert ASKED[6:] == ["fail", "fail"]


async def test_callers_share_only_what_is_public() -> None:
    caching = CachingMiddleware(ttl_seconds=3600, public=lambda request: "public" in getattr(request, "uri", ""))

    async def read(name: str, uri: str) -> object:
        async with connected(notes, caller=Caller(name), protocol="2026-07-28", middleware=[caching]) as provider:
            return (await provider.resources.read(uri))[0].content

    assert [await read(name, "notes://monday") for name in ("ada", "bob", "ada")] == [
        "monday 1",
        "monday 2",
        "monday 1",
    ]
    assert [await read(name, "notes://public") for name in ("ada", "bob")] == ["public 3", "public 3"]


async def test_what_has_changed_is_read_and_listed_again() -> None:
    tools, resources = ToolBox(price), ResourceBox(notes)
    caching = CachingMiddleware(ttl_seconds=3600)
    async with connected(tools, resources, middleware=[caching, Counting()]) as provider:
        assert [(await provider.resources.read("notes://a"))[0].content for _ in range(2)] == ["a 2", "a 2"]
        resources.updated("notes://a")
        assert (await provider.resources.read("notes://a"))[0].content == "a 3"
        tools.add(buy)
        with anyio.fail_after(20):
            while "buy" not in provider.tools:
                await anyio.lowlevel.checkpoint()


async def test_results_are_bounded_in_number_and_size() -> None:
    caching = CachingMiddleware(ttl_seconds=3600, max_entries=2, max_bytes=100_000)
    async with connected(notes, middleware=[caching]) as provider:
        for day in ("a", "b", "c"):
            await provider.resources.read(f"notes://{day}")
        await provider.resources.read("notes://c")
        assert ASKED == ["a", "b", "c"]
        await provider.resources.read("notes://a")
        assert ASKED == ["a", "b", "c", "a"]
    assert _size_of((1, 2, 3)) == 4096

    @resource("notes://large")
    async def large() -> str:
        ASKED.append("large")
        return "x" * 200_000

    ASKED.clear()
    async with connected(large, middleware=[caching]) as provider:
        for _ in range(2):
            await provider.resources.read("notes://large")
    assert ASKED == ["large", "large"]


async def test_equal_requests_at_the_same_time_share_one_run() -> None:
    go = anyio.Event()

    @resource("notes://slow")
    async def slow() -> str:
        ASKED.append("slow")
        await go.wait()
        return "done"

    texts: list[object] = []
    async with connected(slow, middleware=[CachingMiddleware(ttl_seconds=3600)]) as provider:

        async def read() -> None:
            texts.append((await provider.resources.read("notes://slow"))[0].content)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(read)
                while not ASKED:
                    await anyio.lowlevel.checkpoint()
                await anyio.wait_all_tasks_blocked()
                go.set()
    assert (texts, ASKED) == (["done"] * 3, ["slow"])


@pytest.mark.parametrize(
    "settings", [{"ttl_seconds": 0}, {"max_bytes": 0}, {"max_entries": 0}, {"tools": None}, {"public": "x"}]
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_wrong_settings_are_refused(settings: Any) -> None:
    with pytest.raises(DefinitionError):
        CachingMiddleware(**{"ttl_seconds": 1, **settings})
