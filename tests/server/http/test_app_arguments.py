"""Arguments, starts and transports of an application."""
# ruff: noqa: F811 - parameters are the imported fixtures

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from bridge.server import Server, http_app
from bridge.server.limits import Limits
from bridge.tools.execution import ExecutionPolicy
from bridge.tools.toolbox import ToolBox
from tests.server.http.test_app import Caller, client, era, must_still_serve, url  # noqa: F401 - fixtures
from tests.server.http_server import (
    HEADERS,
    call,
    initialize,
    modern,
    modern_headers,
    open_session,
)
from tests.server.tools import ADD

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx


def test_an_app_can_be_started_again(era: str) -> None:
    app = http_app(ToolBox(ADD), host="testserver")
    for _ in range(2):
        with TestClient(app) as client:
            must_still_serve(Caller(client, "/mcp", era))  # type: ignore[arg-type]  # an httpx client by another name


def test_an_app_that_was_not_started_says_so(caplog: pytest.LogCaptureFixture) -> None:
    client = TestClient(http_app(ToolBox(ADD), host="testserver"))
    for _ in range(2):
        refusal = client.post("/mcp", json=initialize(), headers=HEADERS)
        assert refusal.status_code == 503
    (remedy,) = [record.message for record in caplog.records if "without its lifespan" in record.message]
    assert "bridge.server.mount(parent, path, tools)" in remedy


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"sse": False, "streamable": False}, "no transport is enabled"),
        ({"path": "mcp"}, "a path begins with a slash"),
        ({"path": "/sse"}, "the path '/sse' is used by SSE"),
        ({"path": "/messages/"}, "the path '/messages/' is used by SSE"),
        ({"path": "/{x}"}, "has no parameters"),
        ({"max_request_bytes": 0}, "max_request_bytes must be at least 1"),
        ({"allowed_hosts": ["http://x"]}, "an allowed host is a name"),
        ({"allowed_origins": ["x"]}, "an allowed origin has a scheme"),
        ({"page_size": 0}, "page_size must be at least 1"),
        ({"session_idle_seconds": 0}, "session_idle_seconds must be positive"),
        ({"path": "/x", "streamable": False}, "is that of streamable HTTP, which is not served"),
    ],
)
def test_an_app_that_cannot_be_meant_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        http_app(ToolBox(ADD), **options)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"name": "other"}, "give name to the Server"),
        ({"version": "1"}, "give version to the Server"),
        ({"instructions": "Add.", "page_size": -5}, "give instructions and page_size to the Server"),
        ({"policy": ExecutionPolicy()}, "give policy to the Server"),
        ({"limits": Limits()}, "give limits to the Server"),
    ],
)
def test_arguments_that_a_server_has_are_refused_beside_it(options: dict[str, Any], complaint: str) -> None:
    server = Server(ADD, name="own")
    http_app(server)
    with pytest.raises(ValueError, match=complaint):
        http_app(server, **options)


@pytest.mark.parametrize(("sse", "streamable"), [(True, False), (False, True)])
def test_either_transport_can_be_left_out(
    client: httpx.Client, serving: Callable[..., str], sse: bool, streamable: bool
) -> None:
    origin = serving(http_app(ToolBox(ADD), sse=sse, streamable=streamable))
    assert (client.post(f"{origin}/mcp", json=initialize(), headers=HEADERS).status_code == 200) is streamable
    with client.stream("GET", f"{origin}/sse") as stream:
        assert (stream.status_code == 200) is sse


@pytest.mark.parametrize("http", ["h11", "direct"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_json_in_another_encoding_is_refused_alike_in_both_eras(
    client: httpx.Client, serving: Callable[..., str], encoding: str, http: str
) -> None:
    url = serving(http_app(ToolBox(ADD)), http=http) + "/mcp"
    adding, session = call("add", {"a": 1, "b": 2}), open_session(client, url)
    tried = ((adding, session), (initialize(), HEADERS), (modern(adding), modern_headers(modern(adding))))
    answers = [client.post(url, content=json.dumps(text).encode(encoding), headers=each) for text, each in tried]
    assert [(each.status_code, each.json()["error"]["code"]) for each in answers] == [(400, -32700)] * 3
