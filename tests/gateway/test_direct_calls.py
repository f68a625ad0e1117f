"""Calls that a gateway passes on without a task: what is usual is answered so, and all else as it is with a task."""

from __future__ import annotations

import asyncio
import gc
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest
from anyio.lowlevel import checkpoint

from bridge.client.connection import direct_calls, requests
from bridge.client.connection.direct_calls import DirectCall
from bridge.client.connection.session import Session
from bridge.client.provider import McpToolProvider
from bridge.client.remote_tool import RemoteExecutor, remote_tool
from bridge.client.uris import UriNames
from bridge.gateway.proxy import ProxyExecutor
from bridge.gateway.suspended_calls import SuspendedCalls
from bridge.gateway.tasks import GatewayTasks
from bridge.hosting.serve import http_protocol
from bridge.server import Server, http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.eager_tasks import EagerTasks
from bridge.server.limits import Limits, Rate
from bridge.telemetry.current import enabled
from bridge.telemetry.observer import Observer
from bridge.tools import Spill
from bridge.tools.execution import ExecutionPolicy
from bridge.tools.toolbox import ToolBox
from tests.client.raw_http import DONE, MODERN, Request, event, http, json_of, opened, progress, raw_server, stream
from tests.client.raw_http import response as response_to
from tests.client.upstreams import upstream_of
from tests.gateway.test_calls import DEADLINE_SECONDS, served
from tests.server.http_server import HEADERS, answer, call, initialize, modern, modern_headers, notification
from tests.telemetry.measured import Measured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bridge.client import Connection
    from tests.client.raw_http import RawServer

pytestmark = pytest.mark.anyio

LISTED = {"name": "add", "inputSchema": {"type": "object"}}
Answer = list[bytes | None]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Between:
    """A gateway between a caller and a server whose responses a test specifies."""

    def __init__(self, app: Any, connection: Connection, server: RawServer, client: httpx.AsyncClient) -> None:
        self.app, self.connection, self.server, self._client = app, connection, server, client

    @property
    def session(self) -> Session:
        supervisor = self.connection._supervisor
        assert supervisor is not None
        assert supervisor.session is not None
        return supervisor.session

    async def call(self, meta: dict[str, Any] | None = None, **arguments: Any) -> tuple[int, Any]:
        """Call the tool; return the status and the message, without its ID."""
        message = modern(call("add", arguments, **({"_meta": meta} if meta else {})))
        answer = await self._client.post("/mcp", json=message, headers=modern_headers(message))
        kind = answer.headers["content-type"]
        text = answer.text if kind == "application/json" else answer.text.rpartition("data: ")[2]
        return answer.status_code, json.loads(text)

    async def call_in_session(self, **arguments: Any) -> Any:
        """Call the tool in a session of the handshake era; return the message."""
        opened = await self._client.post("/mcp", json=initialize(), headers=HEADERS)
        headers = HEADERS | {"mcp-session-id": opened.headers["mcp-session-id"]}
        await self._client.post("/mcp", json=notification("notifications/initialized"), headers=headers)
        return answer(await self._client.post("/mcp", json=call("add", arguments), headers=headers))

    async def until_called(self, count: int = 1) -> None:
        """Wait until the server has received some calls."""
        while len(self.server.calls) < count:
            await checkpoint()


@asynccontextmanager
async def between(
    answer: Callable[[Request], Answer],
    *,
    forwards_headers: bool = False,
    auth: Auth | None = None,
    options: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
    uris: UriNames | None = None,
    **settings: Any,
) -> AsyncIterator[Between]:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with (
            raw_server(MODERN, answer) as server,
            opened(server.config(**settings)) as connection,
        ):
            tool = remote_tool(LISTED, connection, validates_results=False, uris=uris)
            assert isinstance(tool.executor, RemoteExecutor)
            tasks = GatewayTasks(McpToolProvider())
            proxy = ProxyExecutor(tool.executor, upstream_of(connection), SuspendedCalls(), tasks, forwards_headers)
            served_tools = ToolBox([replace(tool, executor=proxy)])
            app = http_app(Server(served_tools, name="bridge", **(options or {})), auth=auth)
            async with (
                served(app, http_protocol(app.pre_asgi_handler(lambda: True))) as origin,
                httpx.AsyncClient(base_url=origin, timeout=None, headers=headers) as client,
            ):
                gateway = Between(app, connection, server, client)
                await gateway.call(first=True)  # opens the connection that further calls use
                server.requests.clear()
                yield gateway


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[DirectCall]:
    """The calls that were sent without a task."""
    found: list[DirectCall] = []
    send = Session.send_directly

    def recording(self: Session, call: DirectCall) -> bool:
        is_sent = send(self, call)
        found.extend([call] * (is_sent and b'"first"' not in call.request.text))
        return is_sent

    monkeypatch.setattr(Session, "send_directly", recording)
    return found


def usual(request: Request) -> Answer:
    return [json_of(request.call_id, {**DONE, "structuredContent": request.message["params"]["arguments"]})]


async def test_a_usual_call_needs_no_task(direct: list[DirectCall], monkeypatch: pytest.MonkeyPatch) -> None:
    async with between(usual) as gateway:
        monkeypatch.setattr(EagerTasks, "run", None)
        status, message = await gateway.call(a=1)
        assert (status, message["result"]["structuredContent"]) == (200, {"a": 1})
        assert len(direct) == 1
        assert not gateway.session.has_calls
        assert len(gateway.app.drain) == 0


async def test_calls_at_once_get_their_own_results(direct: list[DirectCall]) -> None:
    async with between(usual) as gateway:
        for _ in range(2):
            answers = await asyncio.gather(*[gateway.call(number=number) for number in range(20)])
            numbers = [message["result"]["structuredContent"]["number"] for _, message in answers]
            assert numbers == list(range(20))
        assert len(direct) >= 20


UNUSUAL: dict[str, Callable[[Request], Answer]] = {
    "an error": lambda r: [
        http(200, json.dumps({"jsonrpc": "2.0", "id": r.call_id, "error": {"code": -32602, "message": "no"}}).encode(),
             Content_Type="application/json")
    ],
    "a failed tool": lambda r: [json_of(r.call_id, {**DONE, "isError": True})],
    "events": lambda r: stream(event(response_to(r.call_id, DONE))),
    "progress": lambda r: stream(event(progress(r.token, 1.0)), event(response_to(r.call_id, DONE))),
    "events without end": lambda r: [*stream(event(progress(r.token, 1.0)))[:-1], None],
    "status 500": lambda _: [http(500, b"broken", Content_Type="text/plain")],
    "status 202": lambda _: [http(202, b"{}", Content_Type="application/json")],
    "an invalid result": lambda r: [json_of(r.call_id, {"content": 7, "resultType": "complete"})],
    "no JSON": lambda _: [http(200, b"{", Content_Type="application/json")],
    "a lost connection": lambda _: [None],
    "half a response": lambda _: [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", None],
    "no HTTP": lambda _: [b"hello\r\n\r\n"],
    "a question": lambda r: [
        json_of(r.call_id, {"resultType": "input_required", "requestState": "s", "inputRequests": {
            "q": {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {
                "type": "object", "properties": {}}}}}})
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSUAL)
async def test_what_is_unusual_is_answered_as_with_a_task(
    name: str, direct: list[DirectCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: Request) -> Answer:
        return usual(request) if "first" in request.message["params"]["arguments"] else UNUSUAL[name](request)

    outcomes = []
    for is_direct in (True, False):
        async with between(answer) as gateway:
            if not is_direct:
                monkeypatch.setattr(gateway.connection, "send_call", None)
            direct.clear()
            outcome = await gateway.call()
            assert len(direct) == is_direct
            sent = [request.message["params"]["arguments"] for request in gateway.server.calls]
            assert not gateway.session.has_calls
            assert len(gateway.app.drain) == 0
            outcomes.append((outcome, sent))
    assert outcomes[0] == outcomes[1]


async def test_a_result_that_cannot_be_passed_on_ends_its_call(direct: list[DirectCall]) -> None:
    def answer(request: Request) -> Answer:
        is_first = "first" in request.message["params"]["arguments"]
        result = {"content": None, "resultType": "complete"}
        return usual(request) if is_first else [json_of(request.call_id, result)]

    uris = UriNames()
    uris.assign({"raw": "always"}, {})
    async with between(answer, uris=uris) as gateway:
        _, message = await gateway.call()
        assert message["result"]["isError"]
        assert len(direct) == 1
        assert len(gateway.app.drain) == 0


HELD: Answer = []


def held(request: Request) -> Answer:
    return usual(request) if "first" in request.message["params"]["arguments"] else HELD


async def test_a_caller_that_hangs_up_cancels_its_call(direct: list[DirectCall]) -> None:
    async with between(held) as gateway:
        calling = asyncio.create_task(gateway.call())
        await gateway.until_called()
        open_connections = gateway.server.open
        assert (len(direct), len(gateway.session.direct_calls), len(gateway.app.drain)) == (1, 1, 1)
        calling.cancel()
        while gateway.server.open == open_connections or len(gateway.app.drain):
            await checkpoint()
        assert not gateway.session.has_calls
        assert gateway.session.cancelled_calls is not None
        assert len(gateway.session.cancelled_calls._calls) == 1


async def test_a_drain_ends_a_call(direct: list[DirectCall]) -> None:
    async with between(held) as gateway:
        calling = asyncio.create_task(gateway.call())
        await gateway.until_called()
        assert gateway.app.drain._running.end() == 1
        _, message = await calling
        assert "the server ended while 'add' ran" in message["error"]["message"]
        assert len(direct) == 1


async def test_a_server_that_is_removed_leaves_the_outcome_unknown(direct: list[DirectCall]) -> None:
    async with between(held) as gateway:
        calling = asyncio.create_task(gateway.call())
        await gateway.until_called()
        await gateway.connection.aclose()
        _, message = await calling
        assert "the outcome is unknown" in message["result"]["content"][0]["text"]
        assert len(direct) == 1


async def test_a_task_waits_for_a_slow_server(direct: list[DirectCall], monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the limit of time, and gets what the server says."""
    for module in (direct_calls, requests):
        monkeypatch.setattr(module, "TAKEN_SECONDS", 0.01)
    async with between(held, timeout_seconds=1) as gateway:
        calling = asyncio.create_task(gateway.call())
        while not gateway.session.calls:
            await checkpoint()
        assert not gateway.session.direct_calls
        _, message = await calling
        assert "no answer within 1 second " in message["result"]["content"][0]["text"]
        assert len(direct) == 1


TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
LOGS = {"io.modelcontextprotocol/logLevel": "info"}


@pytest.mark.parametrize("meta", [TRACE, LOGS])
async def test_a_caller_that_says_more_gets_a_task(meta: dict[str, str], direct: list[DirectCall]) -> None:
    async with between(usual) as gateway:
        direct.clear()
        status, _ = await gateway.call(meta)
        assert (status, direct) == (200, [])


@pytest.mark.parametrize("settings", [{"timeout_seconds": 1.0}, {"max_call_seconds": 1.0}, {"forwards_headers": True}])
async def test_a_server_with_short_limits_or_headers_of_the_caller_gets_a_task(
    settings: dict[str, Any], direct: list[DirectCall]
) -> None:
    async with between(usual, **settings) as gateway:
        status, _ = await gateway.call()
        assert (status, direct) == (200, [])


KEY = "a-key-of-tests-that-is-long-enough"


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"auth": Auth(ApiKeys(ApiKey(name="ada", key=KEY))), "headers": {"authorization": f"Bearer {KEY}"}}, {}),
        ({}, {"limits": Limits(rate=Rate(100, 60))}),
        ({}, {"limits": Limits(max_result_bytes=1000)}),
        ({}, {"policy": ExecutionPolicy(after=(lambda *_: None,))}),
    ],
    ids=["a credential", "a rate", "a limit of results", "a callback"],
)
async def test_a_gateway_with_credentials_limits_or_callbacks_uses_a_task(
    settings: dict[str, Any], options: dict[str, Any], direct: list[DirectCall]
) -> None:
    async with between(usual, options=options, **settings) as gateway:
        status, message = await gateway.call(a=1)
        assert (status, message["result"]["structuredContent"], direct) == (200, {"a": 1}, [])


async def test_a_gateway_counts_the_bytes_that_it_passes_on(direct: list[DirectCall]) -> None:
    async with between(usual, options={"limits": Limits(byte_rate=Rate(250, 10**6))}) as gateway:
        # The gateway has been called once, with a result of more than 125 bytes.
        assert [(await gateway.call(a=1))[0] for _ in range(2)] == [200, 429]
    assert direct == []


def long_text(request: Request) -> Answer:
    text = "x" * request.message["params"]["arguments"].get("count", 0)
    return [json_of(request.call_id, {**DONE, "content": [{"type": "text", "text": text}]})]


async def test_a_large_result_is_kept_aside_and_others_need_no_task(
    direct: list[DirectCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"policy": ExecutionPolicy(spill=Spill(chars=1000))}
    async with between(long_text, options=options) as gateway:
        _, message = await gateway.call(count=2000)
        assert [block["type"] for block in message["result"]["content"]] == ["text", "resource_link"]
        assert len(direct) == len(gateway.server.calls) == 1  # sent at once, and continued
        monkeypatch.setattr(EagerTasks, "run", None)
        _, message = await gateway.call(count=500)
        assert message["result"]["content"] == [{"type": "text", "text": "x" * 500}]


async def test_a_gateway_that_observes_uses_a_task(direct: list[DirectCall]) -> None:
    with enabled(Observer(Measured().instruments)):
        async with between(usual) as gateway:
            status, message = await gateway.call(a=1)
        assert (status, message["result"]["structuredContent"], direct) == (200, {"a": 1}, [])


async def test_a_caller_of_the_handshake_era_gets_a_task(direct: list[DirectCall]) -> None:
    async with between(usual) as gateway:
        message = await gateway.call_in_session(a=1)
        assert (message["result"]["structuredContent"], direct) == ({"a": 1}, [])


async def test_nothing_is_left_for_the_garbage_collector(direct: list[DirectCall]) -> None:
    async with between(usual) as gateway:
        await gateway.call()
        direct.clear()
        gc.collect()
        gc.disable()
        try:
            await gateway.call()
            direct.clear()
            left = [each for each in gc.get_objects() if isinstance(each, DirectCall)]
            assert left == []
        finally:
            gc.enable()
