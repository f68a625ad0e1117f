from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI
from mcp import Client
from mcp.client.sse import sse_client
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from bridge.errors import DefinitionError
from bridge.server import Server, http_app, mount
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.tools.toolbox import ToolBox
from tests.server.auth.guarded import ADA
from tests.server.http_server import HEADERS, answer, call, initialize, open_session
from tests.server.tools import ADD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

PARENTS: list[Callable[..., Starlette]] = [Starlette, FastAPI]


async def home(request: Any) -> PlainTextResponse:
    return PlainTextResponse("home")


@pytest.mark.parametrize("parent", PARENTS)
@pytest.mark.parametrize("path", ["/tools", "/tools/", "/deep/er"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_mounted_tools_are_served_at_the_path_with_a_slash_and_without(
    serving: Callable[..., str], parent: Callable[..., Starlette], path: str, slash: str
) -> None:
    app = parent(routes=[Route("/", home)])
    mount(app, path, ToolBox(ADD))
    origin = serving(app)
    with httpx.Client() as client:
        url = origin + path.rstrip("/") + slash
        reply = client.post(url, json=call("add", {"a": 1, "b": 2}), headers=open_session(client, url))
        assert answer(reply)["result"]["content"] == [{"type": "text", "text": "3"}]
        assert client.get(origin + "/").text == "home"


def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("tools", [double, [double], (each for each in [double])])
def test_what_a_toolbox_takes_can_be_served(serving: Callable[..., str], tools: object) -> None:
    app = Starlette()
    mount(app, "/tools", Server(tools, name="bridge", version="7"))
    url = serving(app) + "/tools"
    with httpx.Client() as client:
        opened = answer(client.post(url, json=initialize(), headers=HEADERS))
        assert opened["result"]["serverInfo"]["version"] == "7"
        reply = client.post(url, json=call("double", {"number": 2}), headers=open_session(client, url))
        assert answer(reply)["result"]["structuredContent"] == {"result": 4}


@pytest.mark.parametrize(
    ("served", "title"),
    [
        (Server(double, name="numbers", instructions="Sums."), {}),
        (
            Server(double, name="numbers", title="N", version="2", instructions="Sums."),
            {"title": "N", "version": "2"},
        ),
    ],
)
def test_clients_are_told_what_the_server_is(
    serving: Callable[..., str], served: Server, title: dict[str, str]
) -> None:
    app = Starlette()
    mount(app, "/tools", served)
    reply = httpx.post(serving(app) + "/tools", json=initialize(), headers=HEADERS)
    told = answer(reply)["result"]
    assert (told["serverInfo"], told["instructions"]) == ({"name": "numbers", "version": ""} | title, "Sums.")


def test_what_holds_no_tools_cannot_be_served() -> None:
    with pytest.raises(DefinitionError, match=r"there are no tools, resources or prompts in \[\]"):
        http_app([])
    with pytest.raises(DefinitionError, match="there are no tools, resources or prompts in 5"):
        mount(Starlette(), "/tools", 5)


@pytest.mark.parametrize("auth", ["secret", ["secret"], 5])
def test_what_verifies_no_credential_is_refused_and_not_told(auth: Any) -> None:
    with pytest.raises(DefinitionError, match=r"auth=Auth\(ApiKeys\(ApiKey") as refused:
        http_app(ToolBox(ADD), auth=auth)
    assert "secret" not in str(refused.value)


@pytest.mark.anyio
async def test_mounted_tools_are_served_over_sse_below_the_path(serving: Callable[..., str]) -> None:
    app = Starlette()
    mount(app, "/tools", ToolBox(ADD))
    origin = serving(app)
    async with Client(sse_client(f"{origin}/tools/sse"), mode="legacy") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add"]


def test_tools_start_and_stop_with_the_app_that_they_are_in(serving: Callable[..., str]) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, str]]:
        seen.append("start")
        yield {"key": "value"}
        seen.append("stop")

    async def state(request: Any) -> PlainTextResponse:
        return PlainTextResponse(request.state.key)

    app = Starlette(routes=[Route("/state", state)], lifespan=lifespan)
    mount(app, "/a", Server(ToolBox(ADD), name="first"))
    mount(app, "/b", Server(ToolBox(ADD), name="second"))
    origin = serving(app)
    for path, name in (("/a", "first"), ("/b", "second")):
        reply = httpx.post(origin + path, json=initialize(), headers=HEADERS)
        assert answer(reply)["result"]["serverInfo"]["name"] == name
    assert httpx.get(f"{origin}/state").text == "value"
    assert seen == ["start"]


def test_the_names_of_the_server_are_checked_inside_another_app_too(serving: Callable[..., str]) -> None:
    app = Starlette()
    mount(app, "/tools", ToolBox(ADD), allowed_hosts=["tools.example"])
    origin = serving(app)
    for host, status in (("evil.example", 421), ("tools.example", 200)):
        reply = httpx.post(f"{origin}/tools", json=initialize(), headers=HEADERS | {"host": host})
        assert reply.status_code == status


@pytest.mark.parametrize("path", ["tools", "", "/", "/{x}"])
def test_a_path_that_cannot_be_mounted_is_refused(path: str) -> None:
    with pytest.raises(DefinitionError, match="the path begins with a slash"):
        mount(Starlette(), path, ToolBox(ADD))


@pytest.mark.parametrize(
    ("taken", "kind"),
    [
        (Mount("/", app=Starlette()), "mount ''"),
        (Mount("/tools", app=Starlette()), "mount '/tools'"),
        (Route("/tools", home, methods=["POST"]), "route '/tools'"),
        (Route("/{anything}", home, methods=["GET"]), "route '/{anything}'"),
    ],
)
def test_a_path_that_is_taken_is_refused(taken: Any, kind: str) -> None:
    with pytest.raises(DefinitionError, match=f"the {kind} of the app comes before".replace("{", r"\{")):
        mount(Starlette(routes=[taken]), "/tools", ToolBox(ADD))


def test_an_app_of_another_kind_is_refused() -> None:
    with pytest.raises(DefinitionError, match="in a Starlette or FastAPI app, not in"):
        mount(object(), "/tools", ToolBox(ADD))  # type: ignore[arg-type]  # what the test is about


def test_an_app_that_was_mounted_by_hand_says_how_it_is_done(
    serving: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    origin = serving(Starlette(routes=[Mount("/tools", app=http_app(ToolBox(ADD)))]))
    for _ in range(2):
        assert httpx.post(f"{origin}/tools/mcp", json=initialize(), headers=HEADERS).status_code == 503
    assert len([record for record in caplog.records if "bridge.server.mount(" in record.message]) == 1


@pytest.mark.parametrize("path", ["", "/tools"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_tools_are_not_mounted_where_their_own_metadata_is(path: str, slash: str) -> None:
    well_known = "/.well-known/oauth-protected-resource"
    auth = Auth(
        ApiKeys(ApiKey("ada", ADA)),
        resource_url="https://tools.example.org/tools",
        authorization_servers=["https://login.example.org"],
    )
    app = Starlette(routes=[Route("/", home)])
    with pytest.raises(DefinitionError, match="the metadata of the issuers of their tokens"):
        mount(app, well_known + path + slash, ToolBox(ADD), auth=auth)
    assert [getattr(route, "path", "") for route in app.routes] == ["/"]
    mount(app, well_known + path, ToolBox(ADD), auth=ApiKeys(ApiKey("ada", ADA)))
    mount(app, "/tools", ToolBox(ADD), auth=auth)
