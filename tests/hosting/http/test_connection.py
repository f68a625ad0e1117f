"""Complete requests are answered without ASGI; all others go through ASGI unchanged."""

from __future__ import annotations

import asyncio
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest
from starlette.middleware.gzip import GZipMiddleware

from bridge.hosting.http.connection import Connection
from bridge.hosting.serve import http_protocol
from bridge.server import http_app
from bridge.server.auth import ApiKey, ApiKeys
from bridge.server.dispatch import Responder
from bridge.server.http.guards import PreAsgiHandler
from bridge.server.http.probes import HealthState
from bridge.server.running_calls import RunningCalls
from bridge.tools.function import tool
from bridge.tools.toolbox import ToolBox
from tests.cli.bounding import answers
from tests.server import http_server
from tests.server.http_mutations import Sessions, handshake, modern
from tests.server.http_server import call, open_session, request
from tests.server.tools import Holding, silent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bridge.server.http.app import BridgeApp
    from bridge.tools.context import InvocationContext

DEADLINE_SECONDS = 60


async def _add(arguments: Mapping[str, Any], _: InvocationContext) -> Any:
    return arguments["a"] + arguments["b"]


@tool
async def plain(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def cancelling() -> None:
    """Cancel the own task, and wait."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def _look_around(*_: object) -> str:
    """Check that a tool runs in a task with timeouts, and that the async library is known."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        await anyio.lowlevel.checkpoint()
    task = asyncio.current_task()
    assert task is not None
    return f"{task in asyncio.all_tasks()} {anyio.get_current_task().id == id(task)}"


@pytest.fixture
def holding() -> Holding:
    return Holding()


@pytest.fixture
def app(holding: Holding) -> BridgeApp:
    held = replace(holding.tool, interactive=False)
    return http_app(ToolBox(silent("add", _add), silent("look", _look_around), held, plain, cancelling))


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Status lines of the direct responses."""
    found: list[str] = []
    respond = Connection.respond

    def noted(self: Any, scope: Any, status: int, *rest: Any, **options: Any) -> None:
        found.append(str(status))
        respond(self, scope, status, *rest, **options)

    monkeypatch.setattr(Connection, "respond", noted)
    return found


@pytest.fixture
def port(app: BridgeApp) -> Iterator[int]:
    with http_server.serving(app, http="direct") as origin:
        yield httpx.URL(origin).port or 0


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), DEADLINE_SECONDS)


def adding(a: int) -> bytes:
    return modern("tools/call", name="add", arguments={"a": a, "b": 1}).raw


HELD = modern("tools/call", name="hold", arguments={}).raw


def text_of(body: Any) -> str:
    text: str = body["result"]["content"][0]["text"]
    return text


def test_a_call_that_came_whole_is_answered_directly_and_as_http_wants(port: int, ways: list[str]) -> None:
    with connected(port) as connection:
        connection.sendall(adding(1))
        ((head, body),) = answers(connection, 1)
        assert (text_of(body), ways) == ("2", ["200"])
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        names = {line.partition(b":")[0] for line in head.splitlines()[1:]}
        assert names == {b"date", b"server", b"content-type", b"content-length"}


def test_a_request_whose_body_comes_later_is_answered_by_the_app(port: int, ways: list[str]) -> None:
    raw = adding(2)
    cut = raw.index(b"\r\n\r\n") + 4
    for parts in ((raw[:cut], raw[cut:]), (raw[: cut + 9], raw[cut + 9 :]), (raw[:20], raw[20:-1], raw[-1:])):
        with connected(port) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for part in parts[:-1]:
                connection.sendall(part)
                settled(port)
            connection.sendall(parts[-1])
            ((_, body),) = answers(connection, 1)
            assert text_of(body) == "3"
    assert ways == ["200"] * 4, "only what `settled` asks came whole"


def settled(port: int) -> None:
    """Wait until the server has read what was sent before: it responds on another connection."""
    with connected(port) as connection:
        connection.sendall(adding(0))
        answers(connection, 1)


def test_requests_in_a_row_are_answered_in_their_order(port: int, holding: Holding, ways: list[str]) -> None:
    with connected(port) as connection:
        connection.sendall(HELD + adding(2) + adding(3))
        assert holding.started.wait(DEADLINE_SECONDS)
        holding.let_go()
        assert [text_of(body) for _, body in answers(connection, 3)] == ["released", "3", "4"]
        assert ways == ["200"] * 3


def test_a_tool_has_a_task_of_its_own(port: int) -> None:
    with connected(port) as connection:
        connection.sendall(modern("tools/call", name="look", arguments={}).raw)
        ((_, body),) = answers(connection, 1)
        assert text_of(body) == "True True"


def test_a_call_in_a_session_is_answered_in_its_name_and_goes_on_when_its_client_goes(
    port: int, holding: Holding, ways: list[str]
) -> None:
    with httpx.Client() as client:
        session = open_session(client, f"http://127.0.0.1:{port}/mcp")["mcp-session-id"]
    ways.clear()  # a message of httpx arrives whole, or in two parts
    known = Sessions(session, "", "")
    with connected(port) as connection:
        connection.sendall(handshake(known, request("ping")).raw)
        ((head, body),) = answers(connection, 1)
        assert body == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert f"mcp-session-id: {session}".encode() in head.splitlines()
        connection.sendall(handshake(known, call("hold")).raw)
        assert holding.started.wait(DEADLINE_SECONDS)
    settled(port)
    holding.let_go()
    assert holding.finished.wait(DEADLINE_SECONDS)
    assert ways == ["200", "200"]


def test_requests_of_one_id_that_came_in_the_same_moment_are_all_answered(app: BridgeApp, ways: list[str]) -> None:
    """Clients that share a session may use the same IDs; none of their calls waits for another."""
    with http_server.serving(app, http="direct") as origin, ExitStack() as stack:
        port = httpx.URL(origin).port or 0
        with httpx.Client() as client:
            session = open_session(client, origin + "/mcp")["mcp-session-id"]
        ways.clear()
        raw = handshake(Sessions(session, "", ""), call("add", {"a": 1, "b": 1})).raw
        many = [stack.enter_context(connected(port)) for _ in range(16)]
        for _ in range(20):
            for connection in many:
                connection.sendall(raw)
            assert {text_of(body) for each in many for _, body in answers(each, 1)} == {"2"}
    assert ways == ["200"] * 320


def test_a_server_that_ends_answers_what_runs_and_closes(app: BridgeApp, holding: Holding) -> None:
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        port = httpx.URL(stack.enter_context(http_server.serving(app, http="direct"))).port or 0
        with connected(port) as idle, connected(port) as connection:
            idle.sendall(adding(1))
            answers(idle, 1)
            connection.sendall(HELD)
            assert holding.started.wait(DEADLINE_SECONDS)
            ended = threads.submit(stack.close)
            assert idle.recv(1) == b""
            holding.let_go()
            ((head, body),) = answers(connection, 1)
            assert (text_of(body), b"connection: close" in head.splitlines()) == ("released", True)
            assert connection.recv(1) == b""
        ended.result(DEADLINE_SECONDS)


def test_what_goes_wrong_is_said_where_all_is_said(
    app: BridgeApp, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(PreAsgiHandler, "begin", fail)
    with http_server.serving(app, http="direct") as origin, connected(httpx.URL(origin).port or 0) as connection:
        connection.sendall(adding(5))
        ((_, body),) = answers(connection, 1)
    assert (text_of(body), ways) == ("6", [])


@pytest.mark.parametrize("broken", [(Responder, "run"), (RunningCalls, "has_room")])
def test_a_call_that_fails_unexpectedly_is_logged_and_answered_with_its_id(
    port: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: tuple[type, str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(*broken, fail)
    found, name = [], "add" if broken[1] == "run" else "plain"
    with connected(port) as connection:
        for _ in range(2):  # of which only the second can be started at once
            connection.sendall(modern("tools/call", name=name, arguments={"a": 1, "b": 1}).raw)
            ((head, body),) = answers(connection, 1)
            found.append((head.split()[1], body))
    for status, response in found:
        assert (status, response.pop("id"), response["error"].pop("code")) == (b"200", 1, -32603)
        assert re.fullmatch(r"the request .* failed; the server's log says why", response["error"]["message"])
    assert len([record for record in caplog.records if record.exc_info]) == 2


def test_a_tool_that_cancels_its_own_task_is_answered_with_an_error(port: int) -> None:
    with connected(port) as connection:
        for _ in range(3):
            connection.sendall(modern("tools/call", name="cancelling", arguments={}).raw)
            ((head, body),) = answers(connection, 1)
            assert (head.split()[1], body["id"], body["error"]["code"]) == (b"200", 1, -32603)
            connection.sendall(modern("tools/call", name="plain", arguments={"a": 1, "b": 1}).raw)
            assert text_of(answers(connection, 1)[0][1]) == "2"


def test_an_app_with_other_middleware_has_no_direct_way(app: BridgeApp) -> None:
    assert app.pre_asgi_handler(lambda: True) is not None
    app.add_middleware(GZipMiddleware)
    assert app.pre_asgi_handler(lambda: True) is None


def test_where_callers_have_to_be_known_only_a_recognised_one_is_answered_directly(ways: list[str]) -> None:
    app = http_app(ToolBox(silent("add", _add)), auth=ApiKeys(ApiKey("someone", "k" * 40)))
    with http_server.serving(app, http="direct") as origin, connected(httpx.URL(origin).port or 0) as connection:
        for key, status, found in (("m" * 40, 401, 0), ("k" * 40, 200, 0), ("k" * 40, 200, 1), ("l" * 40, 401, 1)):
            draft = modern("tools/call", name="add", arguments={"a": 1, "b": 1})
            draft.headers.append(("Authorization", f"Bearer {key}".encode()))
            connection.sendall(draft.raw)
            ((head, _),) = answers(connection, 1)
            assert (head.split()[1], len(ways)) == (b"%d" % status, found)


def test_while_a_server_starts_or_ends_nothing_is_answered_directly(app: BridgeApp, ways: list[str]) -> None:
    operations = HealthState()
    direct = app.pre_asgi_handler(lambda: operations.is_steady)
    with http_server.serving(app, http=http_protocol(direct)) as origin, connected(httpx.URL(origin).port or 0) as it:
        for change, found in ((lambda: None, []), (operations.open, ["200"]), (operations.drain, ["200"])):
            change()
            it.sendall(adding(1))
            answers(it, 1)
            assert ways == found


@pytest.mark.parametrize("target", [b"http://a", b"/\xc3\xa9", b"/mcp\xff"])
@pytest.mark.parametrize("is_split", [False, True])
def test_a_target_that_cannot_be_read_is_answered_400_and_logs_no_traceback(
    port: int, target: bytes, caplog: pytest.LogCaptureFixture, *, is_split: bool
) -> None:
    raw = adding(1).replace(b"/mcp", target, 1)
    cut = raw.index(b"\r\n\r\n") + 6 if is_split else len(raw)
    with connected(port) as connection:
        connection.sendall(raw[:cut])
        settled(port)
        connection.sendall(raw[cut:])
        assert connection.recv(65_536).startswith(b"HTTP/1.1 400 ")
    settled(port)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
