"""A server written with FastMCP, through a provider."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import ClientHandlers, HttpTransport, InvocationContext, McpToolProvider, ServerConfig, StdioTransport
from bridge.tools import Elicitation, ElicitationAnswer, UrlElicitation
from bridge.tools.channel import Channel
from tests.interop.packages import fastmcp_python, running
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

SERVER = str(Path(__file__).with_name("fastmcp_server.py"))
DEADLINE_SECONDS = 60


async def fill_in(question: Elicitation | UrlElicitation, context: InvocationContext) -> ElicitationAnswer:
    assert isinstance(question, Elicitation)
    (field,) = question.schema["properties"]
    return ElicitationAnswer("accept", {field: "soup"})


@pytest.fixture(scope="module", params=["stdio auto", "stdio legacy", "http auto", "http legacy", "sse legacy"])
async def fast(request: pytest.FixtureRequest) -> AsyncIterator[McpToolProvider]:
    """The server over one of its transports, in one of its eras."""
    python, (kind, pin) = fastmcp_python(), request.param.split()
    if kind == "stdio":
        async with provided(StdioTransport(python, args=(SERVER, "stdio")), pin) as provider:
            yield provider
        return
    port = free_port()
    with running(python, SERVER, kind, str(port), says="Uvicorn running on"):
        url = f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}"
        async with provided(HttpTransport(url, kind=kind), pin) as provider:
            yield provider


def provided(transport: Any, pin: Any) -> McpToolProvider:
    config = ServerConfig(name="fast", transport=transport, required=True, protocol=pin)
    return McpToolProvider(config, handlers=ClientHandlers(elicitation=fill_in))


async def test_tools_are_listed_and_called(fast: McpToolProvider) -> None:
    assert [tool.name for tool in fast.tools] == ["add", "mirror", "fail", "count", "order"]
    total = await fast.call("add", {"a": 1, "b": 2})
    assert (total.text, total.structured_content) == ("3", {"result": 3})
    mirrored = await fast.call("mirror", {"point": {"x": 1, "y": -2}})
    assert mirrored.structured_content == {"x": -1, "y": 2}


async def test_what_fails_is_a_result_that_says_so(fast: McpToolProvider) -> None:
    failed, wrong = await fast.call("fail"), await fast.call("add", {"a": "x"})
    assert (failed.is_error, failed.text) == (True, "on purpose")
    assert wrong.is_error


async def test_its_progress_reaches_the_context(fast: McpToolProvider) -> None:
    heard: list[float] = []

    class Hearing(Channel):
        async def progress(self, progress: float, total: float | None, message: str | None) -> None:
            heard.append(progress)

    with anyio.fail_after(DEADLINE_SECONDS):
        result = await fast.call("count", context=InvocationContext(channel=Hearing()))
    assert (result.text, heard) == ("counted", [1, 2, 3])


async def test_its_questions_reach_the_handler_where_it_can_ask(fast: McpToolProvider) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        result = await fast.call("order")
    if fast.connections["fast"].era == "handshake":
        assert result.text == "accept: soup"
    else:
        assert (result.is_error, "unavailable on 2026-07-28" in result.text) == (True, True)
