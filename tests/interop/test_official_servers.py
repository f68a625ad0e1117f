"""A server written with the official SDK, a process of its own, through a provider: both eras, every transport."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from bridge import (
    ClientHandlers,
    HttpTransport,
    InvocationContext,
    McpToolProvider,
    ServerConfig,
    StdioTransport,
    ToolAnnotations,
)
from bridge.client import ToolsChange
from bridge.tools import Elicitation, ElicitationAnswer, UrlElicitation
from bridge.tools.channel import Channel
from tests.client.http_client import sent_by
from tests.interop.counterpart import MODERN
from tests.interop.packages import running
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio

SERVER = str(Path(__file__).with_name("official_server.py"))
DEADLINE_SECONDS = 60
NAMES = ["add", "mirror", "fail", "count", "order", "grow"]
ROUTES = [f"{kind} {pin}" for kind in ("stdio", "http", "http-by-client") for pin in ("auto", "legacy", MODERN)]
ROUTES += ["sse auto", "guessed auto"]


async def fill_in(question: Elicitation | UrlElicitation, context: InvocationContext) -> ElicitationAnswer:
    assert isinstance(question, Elicitation)
    assert question.message == "What would you like?"
    assert list(question.schema["properties"]) == ["dish"]
    return ElicitationAnswer("accept", {"dish": f"soup for {context.memory_id}"})


@pytest.fixture(scope="module", params=ROUTES)
async def official(request: pytest.FixtureRequest) -> AsyncIterator[McpToolProvider]:
    """The server over one of its transports, in one of its eras."""
    kind, pin = request.param.split()
    if kind == "stdio":
        async with provided(StdioTransport(sys.executable, args=(SERVER, "stdio")), pin) as provider:
            yield provider
        return
    port = free_port()
    mode, path = ("streamable-http", "mcp") if kind.startswith("http") else ("sse", "sse")
    with running(sys.executable, SERVER, mode, str(port), says="Uvicorn running on"):
        known: Any = None if kind == "guessed" else kind.removesuffix("-by-client")
        transport = HttpTransport(f"http://127.0.0.1:{port}/{path}", kind=known)
        async with provided(transport, pin, by_client=kind == "http-by-client") as provider:
            yield provider


def provided(transport: Any, pin: Any, *, by_client: bool = False) -> McpToolProvider:
    config = ServerConfig(name="official", transport=transport, required=True, protocol=pin)
    return McpToolProvider(
        sent_by(config, own=False) if by_client else config, handlers=ClientHandlers(elicitation=fill_in)
    )


async def test_the_era_is_the_newest_that_the_route_allows(
    official: McpToolProvider, request: pytest.FixtureRequest
) -> None:
    (status,) = official.status()
    kind, pin = request.node.callspec.params["official"].split()
    is_modern = kind not in {"sse", "guessed"} and pin != "legacy"
    assert (status.connection.era, status.connection.protocol_version) == (
        ("modern", MODERN) if is_modern else ("handshake", "2025-11-25")
    )
    info = status.connection.server_info
    assert info is not None
    assert (info.version, info.instructions) == ("1.2.3", "Be kind.")


async def test_tools_are_listed_with_all_that_is_said_of_them(official: McpToolProvider) -> None:
    assert [tool.name for tool in official.tools][: len(NAMES)] == NAMES
    add = official.tools.get("add").specification
    assert (add.title, add.description) == ("Add", "Add two numbers.")
    assert add.annotations == ToolAnnotations(read_only=True)
    assert add.metadata == {"example.org/team": "x"}
    assert add.output_schema is not None


async def test_results_are_text_and_structured_content(official: McpToolProvider) -> None:
    total = await official.call("add", {"a": 1, "b": 2})
    assert (total.text, total.structured_content) == ("3", {"result": 3})
    mirrored = await official.call("mirror", {"point": {"x": 1, "y": -2}})
    assert mirrored.structured_content == {"x": -1, "y": 2}


async def test_what_fails_is_a_result_that_says_so(official: McpToolProvider) -> None:
    failed, wrong, unknown = [
        await official.call(name, arguments) for name, arguments in (("fail", {}), ("add", {"a": "x"}), ("no", {}))
    ]
    assert (failed.is_error, "on purpose" in failed.text) == (True, True)
    assert (wrong.is_error, "valid integer" in wrong.text) == (True, True)
    assert unknown.is_error


async def test_its_progress_reaches_the_context(official: McpToolProvider) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    class Hearing(Channel):
        async def progress(self, progress: float, total: float | None, message: str | None) -> None:
            heard.append((progress, total, message))

    with anyio.fail_after(DEADLINE_SECONDS):
        result = await official.call("count", context=InvocationContext(channel=Hearing()))
    assert (result.text, heard) == ("counted", [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")])


async def test_its_questions_reach_the_handler_in_either_era(official: McpToolProvider) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        result = await official.call("order", context=InvocationContext(memory_id="Ada"))
    assert (result.is_error, result.text) == (False, "soup for Ada it is")


async def test_a_tool_that_comes_later_is_here_and_can_be_called(official: McpToolProvider) -> None:
    changes: list[ToolsChange] = []
    changed = anyio.Event()

    def hear(change: ToolsChange) -> None:
        changes.append(change)
        changed.set()

    stop = official.on_change(hear)
    with anyio.fail_after(DEADLINE_SECONDS):
        assert (await official.call("grow")).text == "grown"
        await changed.wait()
        assert (await official.call("late")).text == "here"
    stop()
    assert changes == [ToolsChange(added=("late",))]
