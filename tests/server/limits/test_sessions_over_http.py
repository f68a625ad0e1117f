"""The maximum number of sessions, and the eviction of idle ones."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from bridge.errors import DefinitionError
from bridge.server import http_app
from bridge.server.auth import ApiKey, ApiKeys
from bridge.server.http import sessions
from bridge.tools.function import tool
from bridge.tools.toolbox import ToolBox
from tests.server import http_server as http
from tests.server import hypercorn_server
from tests.server.auth.guarded import ADA, BOB, Handshake, Sse, bearer, talking, toolbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

KEYS = ApiKeys(ApiKey("ada", ADA), ApiKey("bob", BOB))
ADD = http.call("add", {"a": 1, "b": 2})


@contextmanager
def callers(max_sessions: int) -> Iterator[tuple[httpx.Client, Callable[[str], Handshake]]]:
    app = http_app(toolbox(), auth=KEYS, max_sessions=max_sessions)
    with http.serving(app, http="direct") as origin, httpx.Client(timeout=20, base_url=origin) as client:
        yield client, lambda key: Handshake(client, origin, bearer(key))


def test_over_the_limit_a_session_is_refused_with_when_to_try_again() -> None:
    with callers(2) as (client, opened):
        held = [opened(ADA), opened(ADA)]
        refused = client.post("/mcp", json=http.initialize(), headers=http.HEADERS | bearer(ADA))
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "10"
        assert refused.json()["error"]["code"] == -32005
        assert refused.json()["error"]["data"] == {"limit": "--max-sessions", "retryAfterSeconds": 10}
        assert [each.send(ADD).status_code for each in held] == [200, 200]


def test_a_caller_who_takes_all_sessions_gives_way_to_another() -> None:
    with callers(3) as (_, opened):
        first, *others = [opened(ADA) for _ in range(3)]
        for each in others:
            each.send(ADD)
        bob = opened(BOB)
        assert bob.send(ADD).status_code == 200
        assert first.send(ADD).status_code == 404
        assert [each.send(ADD).status_code for each in others] == [200, 200]


def test_what_opens_no_session_takes_no_place() -> None:
    with callers(1) as (client, opened):
        for body in (http.request("tools/list"), http.notification("notifications/initialized")):
            assert client.post("/mcp", json=body, headers=http.HEADERS | bearer(ADA)).status_code == 400
        assert opened(ADA).send(ADD).status_code == 200


def test_a_session_that_was_ended_leaves_its_place() -> None:
    with callers(1) as (client, opened):
        ada = opened(ADA)
        client.delete("/mcp", headers=ada.headers | bearer(ADA)).raise_for_status()
        assert opened(ADA).send(ADD).status_code == 200


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(DefinitionError, match="max_sessions must be a whole number of at least 1, not 0"):
        http_app(toolbox(), max_sessions=0)


MANY: dict[str, Any] = {"experimental": {"x": {str(number): {} for number in range(10_000)}}}


@pytest.mark.parametrize("message", [http.initialize(MANY), http.notification("notifications/initialized", MANY)])
def test_what_a_session_keeps_of_its_client_is_bounded(message: dict[str, Any]) -> None:
    with callers(2) as (client, opened):
        ada = opened(ADA)
        opening = [http.HEADERS | bearer(ADA)] if message["method"] == "initialize" else []
        for headers in (*opening, ada.headers | bearer(ADA)):
            refused = client.post("/mcp", json=message, headers=headers)
            assert refused.status_code == 413
            assert "'capabilities' and 'clientInfo'" in refused.json()["error"]["message"]
        assert ada.send(ADD).status_code == 200


def test_over_sse_what_a_session_keeps_of_its_client_is_bounded() -> None:
    app = http_app(toolbox(), auth=KEYS)
    with http.serving(app) as origin, talking("sse", origin, ADA) as ada:
        assert ada.send(http.initialize(MANY)).status_code == 413
        assert ada.ask(ADD | {"id": 2})["result"]["content"][0]["text"] == "3"


def test_sessions_over_sse_count_and_give_way_to_another_caller() -> None:
    app = http_app(toolbox(), auth=KEYS, max_sessions=2)
    with http.serving(app) as origin, talking("sse", origin, ADA) as first, talking("sse", origin, ADA) as second:
        for path, headers in (("/sse", {}), ("/mcp", http.HEADERS)):
            method, body = ("GET", None) if path == "/sse" else ("POST", http.initialize())
            refused = httpx.request(method, origin + path, json=body, headers={**headers, **bearer(ADA)}, timeout=20)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
            assert refused.json()["error"]["code"] == -32005
        with talking("sse", origin, BOB) as bob:
            assert bob.ask(ADD | {"id": 2})["result"]["content"][0]["text"] == "3"
            assert isinstance(first, Sse)
            assert list(first.lines) == [""], "its stream was closed in order"
            assert second.ask(ADD | {"id": 3})["result"]["content"][0]["text"] == "3"


@pytest.mark.parametrize("serving", [http.serving, hypercorn_server.serving], ids=["asyncio", "trio"])
def test_a_session_over_sse_whose_stream_nobody_reads_is_ended(
    monkeypatch: pytest.MonkeyPatch, serving: Callable[[Any], AbstractContextManager[str]]
) -> None:
    monkeypatch.setattr(sessions, "MAX_UNREAD_BYTES", 20_000_000)
    made = 0

    @tool
    async def many() -> str:
        """Return much text."""
        nonlocal made
        made += 1
        return "x" * 1_000_000

    with serving(http_app(ToolBox(many))) as origin, httpx.Client(timeout=20) as client:
        host, port = origin.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as unread:
            unread.sendall(b"GET /sse HTTP/1.1\r\nhost: %b\r\n\r\n" % host.encode())
            head = b""
            while not head.endswith(b"\n\n") or b"session_id=" not in head:
                head += unread.recv(1)
            path = head.partition(b"data: ")[2].split()[0].decode()
            opening = [http.initialize(), http.notification("notifications/initialized")]
            for each in opening:
                client.post(origin + path, json=each, headers=http.HEADERS).raise_for_status()
            number = 1
            while client.post(origin + path, json=http.call("many") | {"id": number}, headers=http.HEADERS).is_success:
                number += 1
                if number == 150:  # the stream ends once the server has sent what waits; its messages are dropped
                    assert serving is hypercorn_server.serving
                    break
            assert made < 100, "the results of a session that nobody reads pile up"
        with talking("sse", origin, ADA) as other:
            assert other.ask(http.call("many") | {"id": 2})["result"]["isError"] is False
