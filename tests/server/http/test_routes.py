from __future__ import annotations

from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response

from bridge.errors import DefinitionError
from bridge.hosting.admin_pages import admin_pages
from bridge.server import Server, http_app, mount
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.http.host_origin import AllowedHosts
from bridge.server.http.probes import HealthState
from bridge.server.http.routes import RouteGuard
from bridge.server.limits import Limits, Rate
from bridge.tools.lifespan import lifespan
from tests.server.http_server import answer, call, open_session
from tests.server.tools import ADD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

ADA = ApiKey("ada", "key-of-ada-ada-ada")
DEADLINE_SECONDS = 60
ORIGIN = "https://page.example"


@pytest.fixture
def server() -> Server:
    server = Server(ADD, name="notes")

    @server.route("/webhook", methods=["POST", "PUT"])
    async def webhook(request: Request) -> Response:
        return JSONResponse({"length": len(await request.body())})

    @server.route("/open/{number:int}", auth=False)
    def opened(request: Request) -> Response:
        return PlainTextResponse(f"{request.path_params['number']} {request.url_for('who')}")

    @server.route("/who", name="who")
    async def who(request: Request) -> Response:
        return PlainTextResponse(getattr(request.scope.get("user"), "display_name", "nobody"))

    assert webhook.__name__ == "webhook", "the decorator returns the function"
    return server


@pytest.fixture
def client() -> Any:
    with httpx.Client(timeout=DEADLINE_SECONDS) as client:
        yield client


def test_routes_are_served_beside_the_protocol(
    serving: Callable[..., str], server: Server, client: httpx.Client
) -> None:
    origin = serving(http_app(server))
    assert client.post(origin + "/webhook", content=b"12345").json() == {"length": 5}
    assert client.get(origin + "/webhook").status_code == 405
    assert client.get(origin + "/open/7").text == f"7 {origin}/who"
    assert client.head(origin + "/open/7").status_code == 200
    assert client.get(origin + "/open/x").status_code == 404
    url = origin + "/mcp"
    reply = client.post(url, json=call("add", {"a": 1, "b": 2}), headers=open_session(client, url))
    assert answer(reply)["result"]["content"] == [{"type": "text", "text": "3"}]


def test_routes_are_mounted_with_the_server(serving: Callable[..., str], server: Server, client: httpx.Client) -> None:
    app = Starlette()
    mount(app, "/tools", server, auth=Auth(ApiKeys(ADA)))
    origin = serving(app)
    assert client.get(origin + "/tools/open/7").text == f"7 {origin}/tools/who"
    assert client.get(origin + "/open/7").status_code == 404
    assert client.get(origin + "/tools/who").status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/who", {}, 401),
        ("GET", "/who", {"Authorization": "Bearer wrong"}, 401),
        ("GET", "/who", {"Authorization": "Bearer key-of-ada-ada-ada"}, 200),
        ("GET", "/who", {"Authorization": "Bearer key-for-add-add-add"}, 403),
        ("GET", "/open/1", {}, 200),
        ("POST", "/open/1", {}, 401),  # the route has no POST
        ("POST", "/mcp", {}, 401),
        ("GET", "/sse", {}, 401),
        ("GET", "/nowhere", {}, 401),
        ("GET", "/open/1/../../who", {}, 401),
        ("GET", "/open/%2e%2e/who", {}, 401),
    ],
)
def test_a_route_needs_the_credential_unless_it_is_open(
    serving: Callable[..., str], server: Server, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    keys = ApiKeys(ADA, ApiKey("adder", "key-for-add-add-add", tools=("add",)))
    origin = serving(http_app(server, auth=Auth(keys)))
    host, port = origin.removeprefix("http://").split(":")
    with closing(httpx.Client(base_url=f"http://{host}:{port}", timeout=DEADLINE_SECONDS)) as client:
        request = client.build_request(method, "/", headers=headers)
        request.url = request.url.copy_with(raw_path=path.encode())
        reply = client.send(request)
    assert reply.status_code == status
    if status == 200 and path == "/who":
        assert reply.text == "ada"


def test_an_open_route_that_matches_everything_opens_nothing_of_the_protocol(
    serving: Callable[..., str], client: httpx.Client
) -> None:
    server = Server(ADD, name="notes")

    @server.route("/{rest:path}", methods=["GET", "POST", "DELETE"], auth=False)
    async def everything(request: Request) -> Response:
        return PlainTextResponse("mine")

    origin = serving(http_app(server, auth=Auth(ApiKeys(ADA))))
    assert client.get(origin + "/else").text == "mine"
    for method, path in (
        ("POST", "/mcp"),
        ("DELETE", "/mcp/"),
        ("GET", "/mcp"),
        ("GET", "/sse"),
        ("POST", "/messages/"),
    ):
        assert client.request(method, origin + path).status_code == 401


@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("chunked", [True, False])
def test_the_body_of_a_route_is_limited(
    serving: Callable[..., str], server: Server, client: httpx.Client, method: str, chunked: bool
) -> None:
    url = serving(http_app(server, max_request_bytes=100)) + "/webhook"

    def send(body: bytes, **headers: str) -> httpx.Response:
        return client.request(method, url, content=iter([body]) if chunked else body, headers=headers)

    assert send(b"x" * 100).json() == {"length": 100}
    assert send(b"x" * 101).status_code == 413


def test_a_body_that_is_not_json_may_have_many_commas(
    serving: Callable[..., str], server: Server, client: httpx.Client
) -> None:
    url = serving(http_app(server)) + "/webhook"
    body = b"[" * 2_000_000
    assert client.post(url, content=body, headers={"content-type": "text/csv"}).json() == {"length": 2_000_000}
    assert client.post(url, content=body, headers={"content-type": "application/json"}).status_code == 413


def test_host_and_origin_are_checked_and_pages_of_allowed_origins_may_use_the_methods(
    serving: Callable[..., str], server: Server, client: httpx.Client
) -> None:
    url = serving(http_app(server, allowed_origins=[ORIGIN])) + "/webhook"
    assert client.post(url, headers={"host": "evil.example"}).status_code == 421
    assert client.post(url, headers={"origin": "https://evil.example"}).status_code == 403
    preflight = {"origin": ORIGIN, "access-control-request-method": "PUT"}
    assert "PUT" in client.options(url, headers=preflight).headers["access-control-allow-methods"]
    assert client.put(url, headers={"origin": ORIGIN}).headers["access-control-allow-origin"] == ORIGIN


def test_requests_of_routes_count_in_the_rate_of_their_caller(
    serving: Callable[..., str], server: Server, client: httpx.Client
) -> None:
    limited = Server(ADD, name="notes", limits=Limits(rate=Rate(2, 1000)))
    limited.routes.extend(server.routes)
    origin = serving(http_app(limited))
    assert [client.get(origin + "/open/1").status_code for _ in range(3)] == [200, 200, 429]


@pytest.mark.anyio
async def test_a_get_of_a_route_is_no_stream(serving: Callable[..., str]) -> None:
    server, arrived, released = Server(ADD, name="notes", limits=Limits(max_streams=1)), Event(), Event()

    @server.route("/wait")
    def wait(_: Request) -> Response:
        arrived.set()
        assert released.wait(DEADLINE_SECONDS)
        return PlainTextResponse("waited")

    @server.route("/release")
    async def release(_: Request) -> Response:
        released.set()
        return PlainTextResponse("released")

    origin = serving(http_app(server))
    async with httpx.AsyncClient(timeout=DEADLINE_SECONDS) as client, anyio.create_task_group() as tasks:
        waiting: list[int] = []

        async def get() -> None:
            waiting.append((await client.get(origin + "/wait")).status_code)

        tasks.start_soon(get)
        assert await anyio.to_thread.run_sync(arrived.wait, DEADLINE_SECONDS)
        try:
            assert (await client.get(origin + "/release")).status_code == 200
        finally:
            released.set()
    assert waiting == [200]


def test_the_lifespan_of_a_route_is_open(serving: Callable[..., str], client: httpx.Client) -> None:
    namespace: dict[str, Any] = {"Response": PlainTextResponse}

    async def pool() -> AsyncIterator[str]:
        yield "pool"

    namespace["pool"] = lifespan(pool)
    exec("async def show(request): return Response(pool.value)", namespace)
    server = Server(ADD, name="notes")
    server.route("/pool")(namespace["show"])
    assert client.get(serving(http_app(server)) + "/pool").text == "pool"


def test_a_function_that_fails_is_answered_without_its_text(
    serving: Callable[..., str], client: httpx.Client, errors: Callable[[], list[str]]
) -> None:
    server = Server(ADD, name="notes")

    @server.route("/fails")
    async def fails(request: Request) -> Response:
        raise RuntimeError("secret")

    reply = client.get(serving(http_app(server)) + "/fails")
    assert (reply.status_code, reply.text) == (500, "Internal Server Error")


async def nothing(request: Request) -> Response:
    return Response()


def test_a_path_without_a_slash_is_refused() -> None:
    with pytest.raises(DefinitionError, match="begins with a slash: not 'webhook'"):
        Server(ADD, name="notes").route("webhook")


def test_a_route_after_the_app_is_refused() -> None:
    server = Server(ADD, name="notes")
    http_app(server)
    with pytest.raises(DefinitionError, match="the route '/late' comes too late"):
        server.route("/late")


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/sse", "/messages/"])
def test_a_path_of_the_protocol_is_refused(path: str) -> None:
    server = Server(ADD, name="notes")
    server.route(path)(nothing)
    with pytest.raises(ValueError, match="is a path of the protocol; choose another"):
        http_app(server)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/status", "/metrics"])
def test_a_path_of_an_operational_page_is_refused(path: str) -> None:
    server = Server(ADD, name="notes")
    server.route(path)(nothing)
    with pytest.raises(ValueError, match=f"the path '{path}' is an operational page of the server"):
        admin_pages(
            http_app(server),
            HealthState(),
            path="/mcp",
            admin_host="127.0.0.1",
            hosts=AllowedHosts("127.0.0.1"),
            admin_port=None,
            is_open=True,
            metrics=None,
            auth=None,
            sockets=[],
        )


def test_messages_of_a_server_with_routes_are_answered_before_asgi(server: Server) -> None:
    handler = http_app(server).pre_asgi_handler(lambda: True)
    assert handler is not None
    assert [guard for guard in handler._guards if isinstance(guard, RouteGuard) and guard.is_of_head]
