"""A function, even with a context, starts as soon as its request is read; in all else it is like one in ASGI."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextvars import Context, ContextVar
from typing import Annotated, Any

import anyio
import httpx
import pytest
from pydantic import AfterValidator

from bridge.errors import ToolError
from bridge.hosting.http.connection import Connection
from bridge.server import http_app
from bridge.server.eager_tasks import EagerTasks
from bridge.tools.context import InvocationContext  # noqa: TC001 - read when the tools are made
from bridge.tools.function import tool
from bridge.tools.schema.parameters import ToolMemoryId
from bridge.tools.toolbox import ToolBox
from tests.cli.bounding import answers, connected
from tests.server import http_server
from tests.server.http_mutations import Sessions, handshake, modern
from tests.server.http_server import call, open_session, whole_client

DEADLINE_SECONDS = 60
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
mark: ContextVar[str] = ContextVar("mark", default="none")


@tool
async def outcome(moment: str, kind: str = "value") -> int:
    """End at a given point, in one way."""
    found = mark.get()
    mark.set("set")
    with anyio.fail_after(DEADLINE_SECONDS):
        if moment != "at once":
            await asyncio.sleep(0)
            async with asyncio.timeout(DEADLINE_SECONDS):
                await anyio.lowlevel.checkpoint()
    match kind:
        case "refusal":
            raise ToolError(f"refused {moment}")
        case "crash":
            raise ValueError("a secret")
        case "exit":
            raise SystemExit(1)
        case "cancelled":
            raise asyncio.CancelledError
        case "mismatch":
            return "a text"  # type: ignore[return-value]  # on purpose
        case _:
            return len(found)


@tool
async def outcome_in_context(context: InvocationContext, moment: str, kind: str = "value") -> int:
    """End like the other, and send messages that nobody requested."""
    await context.progress(1, 2, "half")
    return await outcome(moment, kind)


@tool
async def facts(context: InvocationContext, memory: Annotated[str | None, ToolMemoryId]) -> dict[str, Any]:
    """Return the values of the context."""
    return {
        "memory": [memory, context.memory_id],
        "caller": context.caller,
        "accept": context.headers["Accept"],
        "capabilities": dict(context.client_capabilities),
        "meta": dict(context.meta),
        "account": context.account,
        "wants_logs": context.wants_logs,
        "has_peer": context.peer is not None,
    }


@tool
async def memory(memory: Annotated[str | None, ToolMemoryId]) -> str:
    """Return the memory id."""
    return str(memory)


def _crash(value: int) -> int:
    if value == 1:
        raise RuntimeError("a validator is broken")
    if value > 1:
        raise SystemExit(value)
    return value


@tool
async def checked(value: Annotated[int, AfterValidator(_crash)]) -> int:
    """Take a value that a function validates."""
    return value


@tool
async def one() -> int:
    """Return 1."""
    return 1


CALLS: list[dict[str, Any]] = [
    {"moment": "at once", "kind": 5},
    *(
        {"moment": moment, "kind": kind}
        for moment in ("at once", "later")
        for kind in ("value", "refusal", "crash", "exit", "cancelled", "mismatch", "value")
    ),
]


class Incomparable:
    """A value like an array: its comparison has no truth value."""

    __hash__ = None  # type: ignore[assignment]  # as of arrays

    def __eq__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise ValueError("the truth value is ambiguous")


unit: ContextVar[Any] = ContextVar("unit", default=None)


@tool
async def remember(value: str, *, waits: bool = False) -> str:
    """Set a context variable; return the type of its value before."""
    found = type(unit.get()).__name__
    unit.set(Incomparable() if value == "array" else {"float": 1.0, "int": 1}[value])
    if waits:
        await asyncio.sleep(0)
    return found


@tool
async def remember_in_context(context: InvocationContext, value: str, *, waits: bool = False) -> str:
    """Set it like the other."""
    assert context.account
    return await remember(value, waits=waits)


@tool(timeout_seconds=DEADLINE_SECONDS)
async def remember_in_time(value: str, *, waits: bool = False) -> str:
    """Set it like the others, within a time limit."""
    return await remember(value, waits=waits)


@pytest.mark.parametrize("era", ["modern", "handshake"])
@pytest.mark.parametrize("name", ["remember", "remember_in_context", "remember_in_time"])
def test_values_of_context_variables_are_not_compared_and_reach_no_other_call(
    name: str, era: str, steps: list[str]
) -> None:
    app, context, numbered = http_app(ToolBox(remember, remember_in_context, remember_in_time)), Context(), Context()
    context.run(unit.set, Incomparable())
    numbered.run(unit.set, True)  # equal to the others, and no other
    expected = []
    for inherited in (Context(), context, numbered):
        with http_server.serving(app, http="direct", context=inherited) as origin:
            with httpx.Client() as client:
                session = open_session(client, origin + "/mcp")["mcp-session-id"]
            expected.append(type(inherited.get(unit)).__name__)
            with connected(httpx.URL(origin).port or 0) as connection:
                for value in ("array", "float", "int", "array"):
                    for waits in (False, False, False, True):  # a spare task needs a turn of the loop
                        message = call(name, {"value": value, "waits": waits})
                        in_session = handshake(Sessions(session, "", ""), message)
                        draft = in_session if era == "handshake" else modern("tools/call", **message["params"])
                        connection.sendall(draft.raw)
                        ((head, body),) = answers(connection, 1)
                        assert head.startswith(b"HTTP/1.1 200 "), body
                        assert body["result"]["content"][0]["text"] == expected[-1]
                connection.shutdown(socket.SHUT_WR)
                assert connection.recv(65_536) == b"", "each request has one response"
    assert expected == ["NoneType", "Incomparable", "bool"]
    assert len(steps) > len(expected)


def test_a_response_is_written_once_even_if_what_follows_it_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    raw = modern("tools/call", name="one").raw
    with http_server.serving(http_app(ToolBox(one)), http="direct") as origin:
        port = httpx.URL(origin).port or 0
        with connected(port) as connection:
            for _ in range(2):  # a spare task needs a turn of the loop
                connection.sendall(raw)
                answers(connection, 1)
        monkeypatch.setattr(Connection, "complete", fail)
        with connected(port, raw) as connection:
            ((head, body),) = answers(connection, 1)
            assert (head.split()[1], body["result"]["content"][0]["text"]) == (b"200", "1")
            assert connection.recv(65_536) == b""
    assert "a bug" in caplog.text


class Held:
    """A function that waits until it is released or cancelled."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Semaphore(0), threading.Event()
        self.outcomes: list[str] = []
        self.contexts: list[InvocationContext] = []
        self._release: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def tool(self) -> Any:
        @tool
        async def hold() -> str:
            """Wait."""
            released = asyncio.Event()
            self._release.append((asyncio.get_running_loop(), released))
            self.begun.release()
            try:
                await released.wait()
            except asyncio.CancelledError:
                self.outcomes.append("cancelled")
                raise
            finally:
                self.ended.set()
            return "released"

        return hold

    def tool_with_context(self) -> Any:
        hold = self.tool()

        @tool(name="hold")
        async def hold_in_context(context: InvocationContext) -> str:
            """Wait, and check whether the context is cancelled."""
            try:
                return str(await hold())
            finally:
                self.contexts.append(context)

        return hold_in_context

    def let_go(self) -> None:
        for loop, released in self._release:
            loop.call_soon_threadsafe(released.set)


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Functions that were started at once."""
    found: list[str] = []
    step = EagerTasks.step

    def noted(self: EagerTasks, work: Any) -> Any:
        found.append(work.__name__)
        return step(self, work)

    monkeypatch.setattr(EagerTasks, "step", noted)
    return found


@pytest.mark.parametrize("era", ["modern", "handshake"])
@pytest.mark.parametrize("name", ["outcome", "outcome_in_context"])
def test_every_outcome_is_that_of_a_function_that_asgi_starts(name: str, era: str, steps: list[str]) -> None:
    found: list[list[Any]] = []
    for http in ("direct", "httptools"):
        with http_server.serving(http_app(ToolBox(outcome, outcome_in_context, checked)), http=http) as origin:
            with httpx.Client() as client:
                session = open_session(client, origin + "/mcp")["mcp-session-id"]
            bodies = []
            with connected(httpx.URL(origin).port or 0) as connection:
                checks = [call("checked", {"value": value}) for value in (0, 1, 2)]
                for message in [*(call(name, arguments) for arguments in CALLS), *checks]:
                    in_session = handshake(Sessions(session, "", ""), message)
                    draft = in_session if era == "handshake" else modern("tools/call", **message["params"])
                    connection.sendall(draft.raw)
                    ((head, body),) = answers(connection, 1)
                    bodies.append((head.split()[1], body["result"] if "result" in body else body["error"]))
        found.append(bodies)
    assert found[0] == found[1]
    assert steps.count(name) > len(CALLS) // 2


@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_started_function_gets_the_context_that_it_gets_in_asgi(era: str, steps: list[str]) -> None:
    found = []
    for http in ("direct", "httptools"):
        with (
            http_server.serving(http_app(ToolBox(one, facts, memory)), http=http) as origin,
            whole_client() as client,
        ):
            session = open_session(client, origin + "/mcp", {"roots": {}})
            calls = [call("one"), call("facts", _meta={"traceparent": TRACE}), call("memory")]
            texts = []
            for message in calls:
                sent = http_server.modern(message, {"sampling": {}}) if era == "modern" else message
                headers = http_server.modern_headers(sent) if era == "modern" else session
                response = client.post(origin + "/mcp", json=sent, headers=headers)
                texts.append(http_server.answer(response)["result"]["content"][0]["text"])
        given = json.loads(texts[1])
        own = session["mcp-session-id"] if era == "handshake" else None
        assert (given.pop("memory"), texts[2]) == ([own, own], str(own))
        found.append(given)
    assert found[0] == found[1]
    assert found[0]["capabilities"] == ({"sampling": {}} if era == "modern" else {"roots": {}})
    assert found[0]["meta"] == {"traceparent": TRACE}
    assert found[0]["account"]
    assert steps.count("facts") == steps.count("memory") == 1
