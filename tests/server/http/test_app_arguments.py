"""Arguments, starts and transports of an application."""
# ruff: noqa: F811 - parameters are the imported fixtures

from __future__ import annotations

import json
from inspect import signature
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from bridge.errors import DefinitionError
from bridge.server import HttpOptions, MountOptions, Server, ServerOptions, http_app, mount
from bridge.server.core import ServerCore
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
        ({"allowed_hosts": ["http://x"]}, "an allowed host is a name"),
        ({"allowed_origins": ["x"]}, "an allowed origin has a scheme"),
        ({"path": "/x", "streamable": False}, "is that of streamable HTTP, which is not served"),
    ],
)
def test_an_app_that_cannot_be_meant_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        http_app(ToolBox(ADD), **options)


@pytest.mark.parametrize(
    ("options", "error", "complaint"),
    [
        ({"name": ""}, DefinitionError, "name is empty"),
        ({"name": 3}, DefinitionError, "name is a text: not 3"),
        ({"version": None}, DefinitionError, "version is a text: not None"),
        ({"page_size": -5}, ValueError, "page_size must be at least 1, not -5"),
        ({"max_calls": 1.5}, DefinitionError, "max_calls is a whole number, or None: not 1.5"),
        ({"policy": 3}, DefinitionError, "policy is of the type ExecutionPolicy: not 3"),
        ({"limits": {}}, DefinitionError, "limits is of the type Limits: not {}"),
        ({"tasks": True}, DefinitionError, "tasks is of the type TaskOptions: not True"),
        ({"tool_search": "auto"}, DefinitionError, "tool_search is of the type ServerToolSearch: not 'auto'"),
        ({"memory_id_of": "x"}, DefinitionError, "memory_id_of is a function of the context, or None: not 'x'"),
        ({"state_keys": [b"short"]}, ValueError, r"state_keys\[0\] has 5 bytes, and needs 32"),
    ],
)
def test_each_option_of_a_server_is_checked_where_it_is_given(
    options: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        Server(ADD, **{"name": "own"} | options)


def test_the_options_that_are_passed_on_are_those_of_the_functions_that_take_them() -> None:
    http = {name: each for name, each in signature(http_app).parameters.items() if name != "tools"}
    assert {name: each.annotation for name, each in http.items()} == annotations_of(HttpOptions)
    own = signature(ServerCore).parameters
    assert {name: own[name].annotation for name in own if name != "features"} == annotations_of(ServerOptions)
    assert HttpOptions.__optional_keys__ - MountOptions.__optional_keys__ == {"path"}


def annotations_of(options: Any) -> dict[str, str]:
    return {name: each.__forward_arg__ for name, each in options.__annotations__.items()}


@pytest.mark.parametrize("option", ["name", "limits", "page_size", "lifespan"])
def test_what_describes_a_server_is_refused_where_it_is_mounted(option: str) -> None:
    options: Any = {option: None}
    with pytest.raises(TypeError, match=rf"mount\(\) takes no {option}: give it to the Server"):
        mount(Starlette(), "/tools", Server(ADD, name="own"), **options)
    with pytest.raises(TypeError, match=option):
        http_app(ToolBox(ADD), **options)


def test_an_option_that_does_not_exist_is_refused() -> None:
    options: Any = {"max_session": 3}
    with pytest.raises(TypeError, match="max_session"):
        mount(Starlette(), "/tools", ADD, **options)


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
