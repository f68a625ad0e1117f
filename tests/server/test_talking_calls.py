"""Calls that report, log, ask, are cancelled, or outlive their client: each runs once, and is answered once."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import httpx
import pytest
from anyio.lowlevel import checkpoint, current_token
from mcp import Client
from mcp_types import ElicitResult

from bridge.hosting.http import calls
from bridge.server import http_app
from bridge.server.eager_tasks import EagerTasks
from bridge.server.exchange import ServedExchange
from bridge.server.http import asgi_calls
from bridge.server.limits import Limits, Rate
from bridge.server.server import Server
from bridge.tools.context import InvocationContext  # noqa: TC001 - read when the tools are made
from bridge.tools.function import tool
from bridge.tools.toolbox import ToolBox
from tests.server.http_server import (
    HEADERS,
    answer,
    call,
    events,
    initialize,
    modern,
    modern_headers,
    notification,
    open_session,
    request,
    whole_client,
)
from tests.server.tools import ADD, NAME_FORM, made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mcp.client import ClientRequestContext
    from mcp_types import ElicitRequestParams

    from bridge.server.http.app import BridgeApp

DEADLINE_SECONDS = 60
ASKED = {"_meta": {"progressToken": "p"}}


class Talker:
    """A tool that reports, and waits until it is released or cancelled; it counts its runs.

    Args:
        is_function: True for a function, whose first step runs before its call has a task.
    """

    def __init__(self, *, is_function: bool) -> None:
        self.runs = 0
        self.reported = threading.Event()
        self.cancelled = threading.Event()
        self.contexts: list[InvocationContext] = []
        self._let_go: Callable[[], object] | None = None
        self.tool = self._function() if is_function else made("talk", self._talk)

    def _function(self) -> Any:
        @tool
        async def talk(context: InvocationContext, question: bool = False) -> str:
            """Report progress, and wait."""
            return await self._talk({"question": True} if question else {}, context)

        return talk

    async def _talk(self, arguments: Mapping[str, Any], context: InvocationContext) -> str:
        self.runs += 1
        self.contexts.append(context)
        released, loop = anyio.Event(), current_token()
        self._let_go = lambda: anyio.from_thread.run_sync(released.set, token=loop)
        await context.progress(1, 2, "half")
        self.reported.set()
        try:
            await released.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        if "question" in arguments:
            return (await context.elicit("Who are you?", NAME_FORM, key="name")).action
        return "released"

    def let_go(self) -> None:
        assert self._let_go is not None
        self._let_go()


@pytest.fixture(params=["function", "executor"])
def talker(request: pytest.FixtureRequest) -> Talker:
    return Talker(is_function=request.param == "function")


def serve_warm(app: BridgeApp, serving: Callable[..., str], http: str = "direct") -> str:
    """Serve an app that has answered a call: from then on it starts functions at once."""
    origin, message = serving(app, http=http), modern(call("add", {"a": 1, "b": 2}))
    with whole_client() as client:
        client.post(origin + "/mcp", json=message, headers=modern_headers(message)).raise_for_status()
    return origin


@pytest.fixture(params=["direct", "httptools", "direct with limits"])
def origin(request: pytest.FixtureRequest, talker: Talker, serving: Callable[..., str]) -> str:
    http, _, limited = request.param.partition(" ")
    limits = Limits(rate=Rate(100, 1), concurrency=10) if limited else None
    return serve_warm(http_app(Server(ToolBox(talker.tool, ADD), name="bridge", limits=limits)), serving, http)


@pytest.fixture(autouse=True)
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Functions that were started before they had a task."""
    found: list[str] = []
    step = EagerTasks.step

    def noted(self: EagerTasks, work: Any) -> Any:
        found.append(work.__name__)
        return step(self, work)

    monkeypatch.setattr(EagerTasks, "step", noted)
    return found


def lines_of(response: httpx.Response) -> Iterator[dict[str, Any]]:
    return events(response.iter_lines())


def test_progress_that_is_asked_for_comes_before_the_result_and_the_call_runs_once(
    origin: str, talker: Talker, steps: list[str], request: pytest.FixtureRequest
) -> None:
    message = modern(call("talk", **ASKED))
    with (
        whole_client() as client,
        client.stream("POST", origin + "/mcp", json=message, headers=modern_headers(message)) as response,
    ):
        said = lines_of(response)
        assert next(said)["params"] == {"progressToken": "p", "progress": 1, "total": 2, "message": "half"}
        talker.let_go()
        assert next(said)["result"]["content"] == [{"type": "text", "text": "released"}]
    assert talker.runs == 1
    assert ("talk" in steps) == (request.node.callspec.id == "direct-function")


def test_what_is_said_after_the_end_reaches_nobody(origin: str, talker: Talker) -> None:
    message = modern(call("talk"))
    with whole_client() as client, anyio.from_thread.start_blocking_portal() as portal:
        answered = portal.start_task_soon(
            anyio.to_thread.run_sync,
            lambda: client.post(origin + "/mcp", json=message, headers=modern_headers(message)),
        )
        assert talker.reported.wait(DEADLINE_SECONDS)
        talker.let_go()
        response = answered.result(DEADLINE_SECONDS)
        assert response.headers["content-type"] == "application/json"
        portal.call(talker.contexts[0].progress, 2)
        portal.call(talker.contexts[0].log, "info", "late")


def test_a_modern_client_that_goes_cancels_the_call_that_talks(origin: str, talker: Talker) -> None:
    message = modern(call("talk", **ASKED))
    with (
        whole_client() as client,
        client.stream("POST", origin + "/mcp", json=message, headers=modern_headers(message)) as response,
    ):
        next(lines_of(response))
    assert talker.cancelled.wait(DEADLINE_SECONDS)
    assert talker.runs == 1


def test_in_a_session_a_call_that_talks_outlives_its_request_until_it_is_cancelled(origin: str, talker: Talker) -> None:
    with whole_client() as client:
        headers = open_session(client, origin + "/mcp")
        message = call("talk", **ASKED)
        with client.stream("POST", origin + "/mcp", json=message, headers=headers) as response:
            next(lines_of(response))
        assert client.post(origin + "/mcp", json=call("talk") | {"id": 1}, headers=headers).status_code == 400
        assert not talker.cancelled.is_set()
        client.post(origin + "/mcp", json=notification("notifications/cancelled", {"requestId": 1}), headers=headers)
        assert talker.cancelled.wait(DEADLINE_SECONDS)
    assert talker.runs == 1


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_question_is_asked_and_answered_in_both_eras(origin: str, talker: Talker, mode: Any) -> None:
    async def elicit(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "Ada"})

    def let_go_as_often() -> None:
        for _ in range(2 if mode == "auto" else 1):
            assert talker.reported.wait(DEADLINE_SECONDS)
            talker.reported.clear()
            talker.let_go()

    async with (
        Client(origin + "/mcp", mode=mode, elicitation_callback=elicit) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(anyio.to_thread.run_sync, let_go_as_often)
        with anyio.fail_after(DEADLINE_SECONDS):
            result = await client.call_tool("talk", {"question": True})
    assert [block.model_dump()["text"] for block in result.content] == ["accept"]
    assert talker.runs == (2 if mode == "auto" else 1), "in the modern era the answer comes with a second round"


def test_a_drain_ends_a_call_that_talks(talker: Talker, serving: Callable[..., str]) -> None:
    app = http_app(ToolBox(talker.tool, ADD))
    origin, message = serve_warm(app, serving), modern(call("talk", **ASKED))
    with (
        whole_client() as client,
        client.stream("POST", origin + "/mcp", json=message, headers=modern_headers(message)) as response,
    ):
        said = lines_of(response)
        next(said)
        client.get(origin)  # by its answer, the call has its task
        contexts, running = talker.contexts, app.drain._running
        assert len(contexts) == len(running) == 1
        task = next(iter(running._tasks))
        assert isinstance(task, asyncio.Task)
        task.get_loop().call_soon_threadsafe(running.end)
        assert "the server ended" in next(said)["error"]["message"]


def test_a_session_that_ends_while_a_call_talks_leaves_no_call_behind(origin: str, talker: Talker) -> None:
    with whole_client() as client:
        headers = open_session(client, origin + "/mcp")
        with client.stream("POST", origin + "/mcp", json=call("talk", **ASKED), headers=headers) as response:
            said = lines_of(response)
            assert next(said)["method"] == "notifications/progress"
            client.delete(origin + "/mcp", headers=headers).raise_for_status()
            assert [each["error"]["code"] for each in said] == [-32800]
        assert client.post(origin + "/mcp", json=call("talk", **ASKED), headers=headers).status_code == 404
    assert talker.cancelled.wait(DEADLINE_SECONDS)
    assert talker.runs == 1


def test_a_call_keeps_its_id_until_it_is_cancelled_and_answered(origin: str, talker: Talker) -> None:
    cancelled = notification("notifications/cancelled", {"requestId": 1})
    with whole_client() as client, ThreadPoolExecutor() as threads:
        headers = open_session(client, origin + "/mcp")
        first = threads.submit(client.post, origin + "/mcp", json=call("talk", **ASKED), headers=headers)
        assert talker.reported.wait(DEADLINE_SECONDS)
        for another in call("talk"), call("talk", **ASKED) | {"id": "1"}:
            refused = client.post(origin + "/mcp", json=another, headers=headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32600)
            assert "still runs" in refused.json()["error"]["message"]
        for _ in range(2):
            client.post(origin + "/mcp", json=cancelled, headers=headers).raise_for_status()
        assert answer(first.result(DEADLINE_SECONDS))["error"]["code"] == -32800
        assert answer(client.post(origin + "/mcp", json=request("ping"), headers=headers))["result"] == {}
    assert (talker.runs, talker.cancelled.is_set()) == (1, True)


@pytest.mark.anyio
async def test_a_call_that_talks_ends_with_the_app(talker: Talker) -> None:
    app = http_app(ToolBox(talker.tool))
    transport = httpx.ASGITransport(app)
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=DEADLINE_SECONDS) as client,
        anyio.create_task_group() as requests,
    ):
        async with app.router.lifespan_context(app):
            opened = await client.post("/mcp", json=initialize(), headers=HEADERS)
            headers = HEADERS | {"mcp-session-id": opened.headers["mcp-session-id"]}
            await client.post("/mcp", json=notification("notifications/initialized"), headers=headers)
            requests.start_soon(partial(client.post, "/mcp", json=call("talk", **ASKED), headers=headers))
            with anyio.fail_after(DEADLINE_SECONDS):
                while not talker.reported.is_set():
                    await checkpoint()
            assert len(app.drain) == 1
        with anyio.fail_after(DEADLINE_SECONDS):
            while len(app.drain):
                await checkpoint()
    assert (talker.runs, talker.cancelled.is_set()) == (1, True)


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have calls silent for too long at once; requested before a server whose first call starts the timer of all."""
    for each in asgi_calls, calls:
        monkeypatch.setattr(each, "SILENT_SECONDS", 0.01)


@pytest.mark.usefixtures("short_silence")
def test_a_call_that_tells_nothing_for_long_becomes_a_stream(origin: str, talker: Talker) -> None:
    """So no proxy closes its connection."""
    with whole_client() as client:
        headers = open_session(client, origin + "/mcp")
        with client.stream("POST", origin + "/mcp", json=call("talk"), headers=headers) as response:
            assert response.headers["content-type"] == "text/event-stream"
            assert talker.reported.wait(DEADLINE_SECONDS)
            talker.let_go()
            (end,) = lines_of(response)
        assert end["result"]["content"] == [{"type": "text", "text": "released"}]
    assert talker.runs == 1


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_an_ended_call_is_freed_without_the_garbage_collector(serving: Callable[..., str], era: str) -> None:
    async def wait(arguments: Mapping[str, Any], context: InvocationContext) -> str:
        await checkpoint()
        return "waited"

    def exchanges() -> int:
        return sum(type(each) is ServedExchange for each in gc.get_objects())

    origin = serving(http_app(ToolBox(made("wait", wait))), http="direct")
    with whole_client() as client:
        is_modern = era == "modern"
        message = modern(call("wait")) if is_modern else call("wait")
        headers = modern_headers(message) if is_modern else open_session(client, origin + "/mcp")
        gc.collect()
        gc.disable()
        try:
            before = exchanges()
            for _ in range(2):  # the first has ended when the second is answered
                client.post(origin + "/mcp", json=message, headers=headers).raise_for_status()
            assert exchanges() <= before + 1
        finally:
            gc.enable()


def test_a_session_is_the_same_client_for_all_of_its_calls(serving: Callable[..., str]) -> None:
    peers: list[object] = []

    async def keep_peer(arguments: Mapping[str, Any], context: InvocationContext) -> str:
        peers.append(context.peer)
        return "kept"

    origin = serving(http_app(ToolBox(made("keep", keep_peer))), http="direct")
    with whole_client() as client:
        headers = open_session(client, origin + "/mcp")
        for meta in {}, {"com.example/unusual": 1}:
            client.post(origin + "/mcp", json=call("keep", _meta=meta), headers=headers).raise_for_status()
    assert len(peers) == 2
    assert peers[0] is peers[1] is not None
