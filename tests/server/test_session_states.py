from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

import httpx
import pytest

from bridge import Caller, DefinitionError, InvocationContext, McpToolProvider, StdioTransport, ToolBox, execute, tool
from bridge.client.config.servers import ServerConfig
from bridge.client.transports.http import HttpTransport
from bridge.server import http_app, session_states
from bridge.server.http import sessions as sessions_module
from bridge.testing import TokenSigner, connected
from bridge.tools.calls import ToolExecutionRequest
from bridge.tools.session import MAX_STATE_BYTES, MAX_STATE_KEYS, MemoryState
from tests.server import state_tools
from tests.server.http_server import answer, call, modern, modern_headers, open_session
from tests.server.state_tools import TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio

Protocol = Literal["legacy", "2026-07-28"]
PROTOCOLS: list[Protocol] = ["legacy", "2026-07-28"]
NO_SESSION = "this call has no session"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_connection_has_state_of_its_own(protocol: Protocol) -> None:
    async with connected(*TOOLS, protocol=protocol) as one, connected(*TOOLS, protocol=protocol) as other:
        first, second = [(await one.call("count")).structured_content for _ in range(2)]
        assert (first["count"], second["count"]) == (1, 2)
        assert first["session"] == second["session"]
        elsewhere = (await other.call("count")).structured_content
        assert (elsewhere["count"], elsewhere["session"] == first["session"]) == (1, False)
        assert (await one.call("count_in_thread")).text == "3"
        assert (await one.call("forget")).text == "none"
        assert (await one.call("count_in_thread")).text == "1"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_process_over_stdio_has_one_session(protocol: Protocol) -> None:
    transport = StdioTransport(sys.executable, args=("-m", "bridge", "serve", state_tools.__file__))
    config = ServerConfig(name="tools", transport=transport, required=True, protocol=protocol)
    async with McpToolProvider(config) as provider:
        assert [(await provider.call("count_in_thread")).text for _ in range(3)] == ["1", "2", "3"]


async def test_a_task_goes_on_with_the_state_of_its_request() -> None:
    async with connected(*TOOLS, protocol="2026-07-28", caller=Caller("ada")) as provider:
        assert (await provider.call("count_in_thread")).text == "1"
        assert (await provider.call("count_as_task")).text == "2"
        assert (await provider.call("count_in_thread")).text == "3"


def test_sessions_over_http_have_state_of_their_own_until_they_end(serving: Callable[..., str]) -> None:
    url = serving(http_app(TOOLS)) + "/mcp"
    with httpx.Client() as client:
        one, other = (open_session(client, url) for _ in range(2))

        def count(headers: dict[str, str]) -> dict[str, Any]:
            found: dict[str, Any] = answer(client.post(url, json=call("count"), headers=headers))["result"]
            return dict(found["structuredContent"])

        assert [count(headers)["count"] for headers in (one, one, other, one)] == [1, 2, 1, 3]
        assert count(one)["session"] == one["mcp-session-id"]
        client.delete(url, headers=one)
        assert count(open_session(client, url))["count"] == 1


def modern_count(client: httpx.Client, url: str, token: str | None = None, name: str = "count") -> dict[str, Any]:
    message = modern(call(name))
    headers = modern_headers(message) | ({} if token is None else {"authorization": f"Bearer {token}"})
    result: dict[str, Any] = answer(client.post(url, json=message, headers=headers))["result"]
    return result


def test_in_the_modern_era_an_authenticated_caller_has_state(serving: Callable[..., str]) -> None:
    signer = TokenSigner()
    url = serving(http_app(TOOLS, auth=signer.verifier)) + "/mcp"
    ada, again, bob = (signer.token(name) for name in ("ada", "ada", "bob"))
    with httpx.Client() as client:
        found = [modern_count(client, url, token)["structuredContent"] for token in (ada, bob, again, ada)]
    assert [each["count"] for each in found] == [1, 1, 2, 3]
    assert [each["session"] for each in found[:2]] == ["caller:ada", "caller:bob"]


@pytest.mark.parametrize("stateless", [True, False])
def test_a_caller_without_a_session_is_told_so(serving: Callable[..., str], stateless: bool) -> None:
    url = serving(http_app(TOOLS, stateless=stateless, sse=not stateless)) + "/mcp"
    with httpx.Client() as client:
        result = modern_count(client, url)
    assert result["isError"]
    assert NO_SESSION in result["content"][0]["text"]


async def test_state_over_sse_is_of_the_stream(serving: Callable[..., str]) -> None:
    url = serving(http_app(TOOLS)) + "/sse"
    config = ServerConfig(name="tools", transport=HttpTransport(url, kind="sse"), required=True)
    for _ in range(2):
        async with McpToolProvider(config) as provider:
            assert [(await provider.call("count_in_thread")).text for _ in range(2)] == ["1", "2"]


@pytest.mark.parametrize(
    ("keys", "length", "is_kept"),
    [
        (MAX_STATE_KEYS, 1, True),
        (MAX_STATE_KEYS + 1, 1, False),
        (1, MAX_STATE_BYTES - 10, True),
        (1, MAX_STATE_BYTES, False),
    ],
)
async def test_a_session_has_so_many_keys_and_bytes(keys: int, length: int, is_kept: bool) -> None:
    async with connected(*TOOLS) as provider:
        result = await provider.call("fill", {"keys": keys, "length": length})
        assert result.is_error is not is_kept
        if not is_kept:
            assert result.text.startswith("a session keeps at most 128 values, of 65536 bytes together")
        assert (await provider.call("fill", {"keys": min(keys, 100), "length": 1})).text == "filled"


def test_state_counts_in_the_memory_of_all_sessions(
    serving: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_module, "MAX_KEPT_BYTES_OF_ALL", 30_000)
    url = serving(http_app(TOOLS)) + "/mcp"
    with httpx.Client() as client:

        def fill(headers: dict[str, str]) -> str:
            reply = client.post(url, json=call("fill", {"keys": 1, "length": 12_000}), headers=headers)
            return str(answer(reply)["result"]["content"][0]["text"])

        one, two = open_session(client, url), open_session(client, url)
        assert [fill(one), fill(one)] == ["filled", "filled"]
        assert "keeps no more data" in fill(two) or "keeps no more data" in fill(open_session(client, url))
        client.delete(url, headers=one)
        assert fill(two) == "filled"


async def test_values_are_copies_in_json() -> None:
    values: dict[str, bytes] = {}
    state = MemoryState("x", lambda: values)
    cart = ["tea"]
    await state.set("cart", cart)
    cart.append("milk")
    (await state.get("cart")).append("bread")
    assert await state.get("cart") == ["tea"]
    with pytest.raises(TypeError, match="the value of 'cart' in a session cannot be written as JSON"):
        await state.set("cart", object())
    with pytest.raises(TypeError, match="a key of a session is text, not 5"):
        await state.set(5, "x")  # type: ignore[arg-type]
    assert await state.get("cart") == ["tea"]


async def test_the_longest_unused_callers_lose_their_state(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(session_states, "monotonic", lambda: now)
    monkeypatch.setattr(session_states, "MAX_CALLERS", 3)
    monkeypatch.setattr(session_states, "MAX_BYTES_OF_CALLERS", 100)
    states = session_states.SessionStates(lambda: 60.0)
    for number, name in enumerate("abc"):
        now = number * 10.0
        await states.of_caller(name).set("k", name)
    assert await states.of_caller("a").get("k") == "a"
    await states.of_caller("d").set("k", "d")
    assert [await states.of_caller(name).get("k") for name in "ad"] == ["a", "d"]
    await states.of_caller("e").set("k", "e" * 90)
    assert await states.of_caller("a").get("k") is None
    assert await states.of_caller("e").get("k") == "e" * 90
    now += 60
    assert await states.of_caller("e").get("k") is None
    assert states._bytes == 0


async def test_without_a_server_the_state_is_that_of_the_invocation() -> None:
    box, context = ToolBox(TOOLS), InvocationContext()
    request = ToolExecutionRequest("count_in_thread", {})
    assert (await execute(box, request, context)).text == "1"
    assert (await execute(box, request, context.fork())).text == "2"
    assert (await execute(box, request, InvocationContext())).text == "1"
    assert context.session_id is None


@tool
def forgetful(context: InvocationContext) -> str:
    """Forget to block."""
    try:
        return str(context.session)
    except DefinitionError as error:
        return str(error)


async def test_a_worker_thread_needs_the_blocking_form() -> None:
    result = await execute(ToolBox(forgetful), ToolExecutionRequest("forgetful", {}), InvocationContext())
    assert result.text.endswith("call context.blocking.session.get(…) there, or make the function an async def")
