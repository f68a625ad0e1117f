"""Versions of tools, resources and prompts within middleware, of the server itself or of a mounted one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bridge import InvocationContext, Middleware, Server, prompt, resource, tool
from bridge.middleware import CachingMiddleware
from bridge.server import Features, http_app
from bridge.tools.tool import ToolExecutionRequest
from tests.server.http_server import answer, modern, modern_headers, open_session, request, whole_client
from tests.server.middleware.surrounded import LOG, Json

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio
VERSION = "io.github.mcp-toolbridge/version"


@pytest.fixture(autouse=True)
def _empty() -> None:
    LOG.clear()


@tool
async def plus(a: int, b: int) -> int:
    LOG.append("plus")
    return a + b


@tool(name="greet", version="1")
async def greet_1() -> str:
    return "one"


@tool(name="greet", version="2")
async def greet_2() -> str:
    return "two"


@resource("hello://{name}", version="1")
async def hello_1(name: str) -> str:
    return f"one {name}"


@resource("hello://{name}", name="hello", version="2")
async def hello_2(name: str) -> str:
    return f"two {name}"


@resource("page://all", version="1")
async def page_1() -> str:
    return "one"


@resource("page://all", name="page", version="2")
async def page_2() -> str:
    return "two"


@prompt(name="ask", version="1")
async def ask_1() -> str:
    return "one"


@prompt(name="ask", version="2")
async def ask_2() -> str:
    return "two"


VERSIONED = (greet_1, greet_2, hello_1, hello_2, page_1, page_2, ask_1, ask_2)


class Passing(Middleware):
    """Surrounds everything, and gives what it gets."""

    async def on_request(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        LOG.append("passed")
        return await call_next(request, context)


@pytest.mark.parametrize("where", ["outer", "mounted", "cached"])
def test_each_version_is_used_within_middleware(serving: Callable[..., str], where: str) -> None:
    middleware: list[Middleware] = [Passing()]
    if where == "cached":
        middleware = [*middleware, CachingMiddleware(ttl_seconds=60, tools=["greet", "x_greet"])]
    if where == "outer":
        server = Server(name="outer", middleware=middleware)
        server.mount(VERSIONED, prefix="x")
    else:
        server = Server(name="outer")
        server.mount(Server(VERSIONED, name="inner", middleware=middleware), prefix="x")
    url = serving(http_app(server)) + "/mcp"
    requests: list[tuple[str, Json]] = [
        ("tools/call", {"name": "x_greet"}),
        ("resources/read", {"uri": "x+hello://you"}),
        ("resources/read", {"uri": "x+page://all"}),
        ("prompts/get", {"name": "x_ask"}),
    ]
    with whole_client() as client:
        session = open_session(client, url)
        for method, params in requests:
            for version, text in ((None, "two"), ("1", "one"), ("2", "two"), ("3", "has no version '3'")):
                meta = {} if version is None else {"_meta": {VERSION: version}}
                LOG.clear()
                message = modern(request(method, params | meta))
                for reply in (
                    answer(client.post(url, json=request(method, params | meta), headers=session)),
                    answer(client.post(url, json=message, headers=modern_headers(message))),
                ):
                    assert text in str(reply), (method, version)
                assert len(LOG) == (0 if version == "3" else 2)


class Other(Middleware):
    async def call_tool(self, request: Any, context: InvocationContext, call_next: Callable[..., Any]) -> Any:
        return await call_next(ToolExecutionRequest("plus", {"a": 1, "b": 1}), context)


def test_another_tool_than_the_one_in_an_older_version_is_itself(serving: Callable[..., str]) -> None:
    url = serving(http_app(Server(Features.of(greet_1, greet_2, plus), name="bridge", middleware=[Other()]))) + "/mcp"
    with whole_client() as client:
        message = modern(request("tools/call", {"name": "greet", "_meta": {VERSION: "1"}}))
        reply = answer(client.post(url, json=message, headers=modern_headers(message)))
        assert reply["result"]["content"][0]["text"] == "2"
