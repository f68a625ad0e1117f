from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from bridge.server import http_app
from bridge.server.http.probes import HealthState, PageRouter, Probes, StatusPage
from bridge.tools.toolbox import ToolBox
from tests.server.auth.guarded import ADA, bearer
from tests.server.http_server import modern, modern_headers, request
from tests.server.tools import ADD

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio
ADAS = bearer(ADA)
LIST = modern(request("tools/list"))
READY = {"ready": True, "missing": []}


def client_of(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


def server(state: str, *, required: bool = True) -> dict[str, Any]:
    return {"name": "db", "state": state, "required": required}


async def greet(scope: Any, receive: Any, send: Any) -> None:
    """App whose responses have a ``Connection`` header."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"Connection", b"keep-alive")]})
    await send({"type": "http.response.body", "body": b"hello"})


def test_probes_are_answered_before_host_and_body_are_looked_at(serving: Callable[..., str]) -> None:
    probes = Probes(http_app(ToolBox(ADD)))
    probes.state = probes._app.state  # type: ignore[attr-defined]  # where the server of the tests finds it
    origin = serving(probes)
    with httpx.Client(base_url=origin, headers={"host": "10.1.2.3:8000"}) as client:
        assert (client.get("/healthz").status_code, client.get("/healthz").json()) == (200, {"status": "ok"})
        assert (client.get("/readyz").status_code, client.get("/readyz").json()) == (200, READY)
        assert client.head("/readyz").content == b""
        refused = client.post("/readyz", json=LIST)
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
        assert client.post("/mcp", json=LIST, headers=modern_headers(LIST)).status_code == 421
        assert client.get("/status").status_code == 421
    with httpx.Client(base_url=origin) as client:
        assert client.post("/mcp", json=LIST, headers=modern_headers(LIST)).status_code == 200
        assert client.get("/healthz").headers["cache-control"] == "no-store"


async def test_readiness_names_what_is_missing() -> None:
    servers = [server("ready"), {**server("failed", required=False), "name": "other"}]
    operations = HealthState(servers=lambda: servers)
    async with client_of(Probes(greet, operations)) as client:
        before = await client.get("/readyz")
        assert (before.status_code, before.json()) == (503, {"ready": False, "missing": ["it has not started yet"]})
        operations.app_started()
        assert (await client.get("/readyz")).json() == READY
        servers[0] = server("degraded")
        lost = await client.get("/readyz")
        assert (lost.status_code, lost.json()["missing"]) == (503, ["the required server 'db' is degraded"])
        servers[0] = server("ready")
        operations.drain()
        assert (await client.get("/readyz")).json() == {"ready": False, "missing": ["it is draining"]}
        assert (await client.get("/healthz")).status_code == 200


async def test_the_status_is_all_of_it() -> None:
    operations = HealthState(servers=lambda: [server("failed")])
    operations.open()
    async with client_of(PageRouter({"/status": StatusPage(operations.status)})) as client:
        assert (await client.get("/status")).json() == {
            "ready": False,
            "missing": ["the required server 'db' is failed"],
            "servers": [server("failed")],
        }
        nowhere = await client.get("/mcp")
        assert (nowhere.status_code, nowhere.json()) == (404, {"error": "here are /status"})


async def test_requests_wait_for_the_start_and_probes_do_not() -> None:
    operations, answers = HealthState(is_held=True), []
    async with client_of(Probes(greet, operations)) as client, anyio.create_task_group() as tasks:

        async def ask() -> None:
            answers.append((await client.get("/mcp")).text)

        operations.app_started()
        tasks.start_soon(ask)
        assert (await client.get("/readyz")).json()["missing"] == ["it has not started yet"]
        assert (await client.get("/healthz")).status_code == 200
        assert answers == []
        operations.open()
    assert answers == ["hello"]


async def test_requests_are_told_where_nothing_will_start() -> None:
    operations = HealthState(is_held=True)
    operations.fail()
    async with client_of(Probes(greet, operations)) as client:
        assert (await client.get("/mcp")).status_code == 503


async def test_while_draining_each_answer_closes_its_connection() -> None:
    operations = HealthState()
    operations.open()
    async with client_of(Probes(greet, operations)) as client:
        assert (await client.get("/mcp")).headers["connection"] == "keep-alive"
        operations.drain()
        assert (await client.get("/mcp")).headers.get_list("connection") == ["close"]


@pytest.mark.parametrize("is_asked", [True, False])
async def test_an_app_that_ends_without_being_asked_to_has_failed(is_asked: bool) -> None:
    operations, said, failures = HealthState(), [{"type": "lifespan.startup"}], list[bool]()
    operations.on_failure = lambda: failures.append(operations.has_failed)

    async def hear() -> Any:
        return said.pop()

    async def live(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await greet(scope, receive, send)
            return
        await receive()
        await send({"type": "lifespan.startup.complete"})
        if is_asked:
            said.append({"type": "lifespan.shutdown"})
            await receive()
        raise RuntimeError("a mistake")

    async def ignore(_: Any) -> None:
        pass

    probes = Probes(live, operations)
    with pytest.raises(RuntimeError, match="a mistake"):
        await probes({"type": "lifespan"}, hear, ignore)
    missing = [] if is_asked else ["it has failed; see its log"]
    assert (operations.missing(), operations.is_steady, failures) == (missing, is_asked, [] if is_asked else [True])
    async with client_of(probes) as client:
        assert (await client.get("/readyz")).status_code == (200 if is_asked else 503)
