from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from bridge.protocol.messages import CallRefused, ProtocolError
from bridge.server.http.fast import FastHttp
from bridge.server.http.requests import Head, Request
from bridge.server.http.sessions import Session, Sessions
from bridge.server.publisher import Publisher
from bridge.tools.toolbox import ToolBox
from tests.server.http_server import MODERN, call, modern, request
from tests.server.tools import Waiting, made, silent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Message, Scope

    from bridge.tools.context import InvocationContext

DEADLINE_SECONDS = 10
HANDSHAKE = "2025-11-25"
BOTH = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
MODERN_CALL = BOTH | {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "add"}
SESSION_CALL = BOTH | {"mcp-protocol-version": HANDSHAKE, "mcp-session-id": "s1"}
ADDING = call("add", {"a": 40, "b": 2})
RESULT = {"content": [{"type": "text", "text": "42"}], "isError": False}

pytestmark = pytest.mark.anyio


async def _add(arguments: Mapping[str, Any], _: InvocationContext) -> int:
    total: int = arguments["a"] + arguments["b"]
    return total


async def _refuse(*_: object) -> None:
    raise CallRefused(ProtocolError(-32021, "sampling is missing"))


async def _crash(*_: object) -> None:
    raise CallRefused(ProtocolError(-32603, "broken"))


@dataclass
class Endpoint:
    """The fast path of one endpoint, with one open session."""

    waiting: Waiting = field(default_factory=lambda: Waiting("wait"))
    seen: list[InvocationContext] = field(default_factory=list)

    def __post_init__(self) -> None:
        tools = (silent("add", _add), silent("refuse", _refuse), silent("crash", _crash))
        waiting = replace(self.waiting.tool, interactive=False)
        self.toolbox = ToolBox(*tools, waiting)
        publisher = Publisher(self.toolbox, name="tests", memory_id_of=self._remember)
        self.session = Session("s1", None, {"roots": {}})
        self.session.version = HANDSHAKE
        sessions = Sessions()
        sessions.open(self.session)
        self.fast = FastHttp(publisher, sessions, ("/mcp", "/mcp/"))

    def _remember(self, context: InvocationContext) -> Any:
        self.seen.append(context)
        return context.memory_id


@dataclass
class Exchange:
    """One request, and its response."""

    headers: Mapping[str, str]
    message: Any
    path: str = "/mcp"
    scope: dict[str, Any] = field(default_factory=dict)
    sent: list[Message] = field(default_factory=list)
    was_answered: bool | None = None

    def __post_init__(self) -> None:
        self.gone = anyio.Event()
        self.was_listened_to = False

    async def run(self, endpoint: Endpoint) -> Exchange:
        headers = [(name.encode(), value.encode("latin-1")) for name, value in self.headers.items()]
        body = self.message if isinstance(self.message, bytes) else json.dumps(self.message).encode()
        line: Scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": self.path}
        scope: Scope = {**line, "headers": headers, **self.scope}
        request = Request(Head(scope), body)
        request.receive, request.send = self._receive, self._send
        with anyio.fail_after(DEADLINE_SECONDS):
            self.was_answered = await endpoint.fast.answered(request)
        return self

    async def _receive(self) -> Message:
        self.was_listened_to = True
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def answer(self) -> tuple[int, dict[str, str], Any]:
        """Status, headers and body."""
        start, body = self.sent
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        assert int(headers.pop("content-length")) == len(body["body"])
        assert headers.pop("content-type") == "application/json"
        return start["status"], headers, json.loads(body["body"])


def without(headers: Mapping[str, str], name: str) -> dict[str, str]:
    return {each: value for each, value in headers.items() if each != name}


@pytest.mark.parametrize(
    ("headers", "path", "scope"),
    [
        (MODERN_CALL, "/mcp", {}),
        (MODERN_CALL, "/mcp/", {}),
        (MODERN_CALL, "/tools/mcp", {"root_path": "/tools"}),
        (MODERN_CALL | {"accept": "*/*"}, "/mcp", {}),
        (MODERN_CALL | {"accept": "text/event-stream;q=0.5 , Application/JSON"}, "/mcp", {}),
        (MODERN_CALL | {"content-type": "application/json; charset=utf-8"}, "/mcp", {}),
        (MODERN_CALL | {"mcp-session-id": "unheard of"}, "/mcp", {}),
        (MODERN_CALL | {"mcp-param-a": "41"}, "/mcp", {}),
    ],
    ids=[
        "plain",
        "slash",
        "mounted",
        "any",
        "weighted",
        "charset",
        "a session, which is gone",
        "a header nobody asked for",
    ],
)
async def test_a_plain_call_of_the_modern_era_is_answered(
    headers: dict[str, str], path: str, scope: dict[str, Any]
) -> None:
    exchange = await Exchange(headers, modern(ADDING), path, scope).run(Endpoint())
    assert exchange.was_answered
    assert not exchange.was_listened_to
    status, more, body = exchange.answer
    assert (status, more, body["result"]["content"]) == (200, {}, RESULT["content"])


@pytest.mark.parametrize("headers", [SESSION_CALL, without(SESSION_CALL, "mcp-protocol-version")])
async def test_a_plain_call_in_a_session_is_answered_in_its_name(headers: dict[str, str]) -> None:
    endpoint = Endpoint()
    exchange = await Exchange(headers, ADDING).run(endpoint)
    assert exchange.answer == (200, {"mcp-session-id": "s1"}, {"jsonrpc": "2.0", "id": 1, "result": RESULT})
    assert (endpoint.session.requests, endpoint.session.running) == (0, {})


@pytest.mark.parametrize("method", ["tools/list", "server/discover"])
async def test_other_plain_requests_of_the_modern_era_are_answered(method: str) -> None:
    headers = without(MODERN_CALL, "mcp-name") | {"mcp-method": method}
    exchange = await Exchange(headers, modern(request(method))).run(Endpoint())
    assert exchange.answer[2]["result"]["resultType"] == "complete"


HANDED_OVER: dict[str, tuple[dict[str, str], Any]] = {
    "another path": (MODERN_CALL | {"path": "/sse"}, modern(ADDING)),
    "no accept": (without(MODERN_CALL, "accept"), modern(ADDING)),
    "only JSON": (MODERN_CALL | {"accept": "application/json"}, modern(ADDING)),
    "only a stream": (MODERN_CALL | {"accept": "text/event-stream"}, modern(ADDING)),
    "kinds by wildcard": (MODERN_CALL | {"accept": "application/*, text/*"}, modern(ADDING)),
    "no content type": (without(MODERN_CALL, "content-type"), modern(ADDING)),
    "another content type": (MODERN_CALL | {"content-type": "text/plain"}, modern(ADDING)),
    "a content type in capitals": (MODERN_CALL | {"content-type": "Application/JSON"}, modern(ADDING)),
    "no method": (without(MODERN_CALL, "mcp-method"), modern(ADDING)),
    "another method": (MODERN_CALL | {"mcp-method": "tools/list"}, modern(ADDING)),
    "no name": (without(MODERN_CALL, "mcp-name"), modern(ADDING)),
    "another name": (MODERN_CALL | {"mcp-name": "wait"}, modern(ADDING)),
    "a name that is encoded": (MODERN_CALL | {"mcp-name": "=?base64?YWRk?="}, modern(ADDING)),
    "a name that is no text": (MODERN_CALL, modern(request("tools/call", {"name": 5}))),
    "an unknown version": (MODERN_CALL | {"mcp-protocol-version": "2099-01-01"}, modern(ADDING)),
    "no parameters": (MODERN_CALL, {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}),
    "no envelope": (MODERN_CALL, ADDING),
    "no session": (without(SESSION_CALL, "mcp-session-id"), ADDING),
    "an unknown session": (SESSION_CALL | {"mcp-session-id": "s2"}, ADDING),
    "a session of odd bytes": (SESSION_CALL | {"mcp-session-id": "\xff"}, ADDING),
    "a version that the session does not have": (SESSION_CALL | {"mcp-protocol-version": "2025-06-18"}, ADDING),
    "a notification": (SESSION_CALL, {"jsonrpc": "2.0", "method": "notifications/initialized"}),
    "a result": (SESSION_CALL, {"jsonrpc": "2.0", "id": 1, "result": {}}),
    "a batch": (SESSION_CALL, [ADDING]),
    "no version of JSON-RPC": (SESSION_CALL, {"id": 1, "method": "ping"}),
    "an id that is true": (SESSION_CALL, ADDING | {"id": True}),
    "an id that is null": (SESSION_CALL, ADDING | {"id": None}),
    "a method that is a number": (SESSION_CALL, ADDING | {"method": 5}),
    "parameters that are null": (SESSION_CALL, ADDING | {"params": None}),
    "no JSON": (SESSION_CALL, b"{"),
    "a lone surrogate": (SESSION_CALL, b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}'),
    "a byte order mark": (SESSION_CALL, b"\xef\xbb\xbf" + json.dumps(ADDING).encode()),
    "UTF-16": (SESSION_CALL, json.dumps(ADDING).encode("utf-16")),
    "a great depth": (SESSION_CALL, b'{"x":' * 300 + b"1" + b"}" * 300),
}


@pytest.mark.parametrize(("headers", "message"), HANDED_OVER.values(), ids=HANDED_OVER)
async def test_what_is_not_plain_by_its_headers_or_its_text_is_handed_over(
    headers: dict[str, str], message: Any
) -> None:
    exchange = await Exchange(without(headers, "path"), message, headers.get("path", "/mcp")).run(Endpoint())
    assert not exchange.was_answered
    assert exchange.sent == []


async def test_a_session_whose_version_is_not_known_is_the_sdks() -> None:
    endpoint = Endpoint()
    endpoint.session.version = None
    assert not (await Exchange(without(SESSION_CALL, "mcp-protocol-version"), ADDING).run(endpoint)).was_answered


async def test_a_session_is_for_the_credential_that_opened_it() -> None:
    endpoint = Endpoint()
    assert not (await Exchange(SESSION_CALL, ADDING, scope={"user": object()}).run(endpoint)).was_answered
    endpoint.session.user = object()
    assert not (await Exchange(SESSION_CALL, ADDING).run(endpoint)).was_answered


@pytest.mark.parametrize(("name", "status", "code"), [("refuse", 400, -32021), ("crash", 200, -32603)])
async def test_an_error_has_a_status_in_the_modern_era_only(name: str, status: int, code: int) -> None:
    message = call(name)
    exchange = await Exchange(MODERN_CALL | {"mcp-name": name}, modern(message)).run(Endpoint())
    assert (exchange.answer[0], exchange.answer[2]["error"]["code"]) == (status, code)
    exchange = await Exchange(SESSION_CALL, message).run(Endpoint())
    assert (exchange.answer[0], exchange.answer[2]["error"]["code"]) == (200, code)


async def test_a_call_knows_its_headers_its_session_and_what_the_client_can_do() -> None:
    endpoint = Endpoint()
    await Exchange(SESSION_CALL | {"x-place": "\xe9"}, ADDING).run(endpoint)
    await Exchange(MODERN_CALL, modern(ADDING, {"sampling": {}})).run(endpoint)
    in_session, alone = endpoint.seen
    assert (in_session.memory_id, in_session.client_capabilities) == ("s1", {"roots": {}})
    assert in_session.headers["X-Place"] == "\xe9"
    assert dict(in_session.headers) == SESSION_CALL | {"x-place": "\xe9"}
    assert "x-other" not in in_session.headers
    assert (alone.memory_id, alone.client_capabilities, len(alone.headers)) == (None, {"sampling": {}}, 5)


# --- ends ------------------------------------------------------------------------------------------------------------


async def test_a_client_of_the_modern_era_that_hangs_up_cancels_its_call_and_hears_nothing() -> None:
    endpoint = Endpoint()
    exchange = Exchange(MODERN_CALL | {"mcp-name": "wait"}, modern(call("wait")))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, endpoint)
        await endpoint.waiting.started.wait()
        exchange.gone.set()
    assert endpoint.waiting.cancelled.is_set()
    assert (exchange.was_answered, exchange.sent) == (True, [])


async def test_a_client_of_the_handshake_era_that_hangs_up_is_not_heard() -> None:
    endpoint = Endpoint()
    exchange = Exchange(SESSION_CALL, call("wait"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, endpoint)
        await endpoint.waiting.started.wait()
        assert (endpoint.session.requests, list(endpoint.session.running)) == (1, ["1"])
        exchange.gone.set()
        await checkpoint()
        endpoint.waiting.released.set()
    assert not exchange.was_listened_to
    assert exchange.answer[2]["result"]["content"] == [{"type": "text", "text": "released"}]
    assert (endpoint.session.requests, endpoint.session.running) == (0, {})


async def test_a_call_that_its_session_cancels_is_answered_so_and_its_task_lives_on() -> None:
    endpoint = Endpoint()
    exchange = Exchange(SESSION_CALL, call("wait"))
    cancellations: list[int] = []

    async def run() -> None:
        await exchange.run(endpoint)
        task = asyncio.current_task()
        assert task is not None
        cancellations.append(task.cancelling())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await endpoint.waiting.started.wait()
        endpoint.session.cancel(1)
    error = {"code": -32800, "message": "Request cancelled"}
    assert exchange.answer == (200, {"mcp-session-id": "s1"}, {"jsonrpc": "2.0", "id": 1, "error": error})
    assert endpoint.waiting.cancelled.is_set()
    assert cancellations == [0]
    assert (endpoint.session.requests, endpoint.session.running) == (0, {})


async def test_a_call_that_swallows_its_cancellation_is_answered_as_cancelled() -> None:
    endpoint = Endpoint()

    async def swallow(*_: object) -> str:
        endpoint.session.cancel(1)
        with pytest.raises(asyncio.CancelledError):
            await checkpoint()
        return "done all the same"

    endpoint.toolbox.add(silent("swallow", swallow))
    exchange = await Exchange(SESSION_CALL, call("swallow")).run(endpoint)
    assert exchange.answer[2]["error"]["code"] == -32800
    await checkpoint()


async def test_a_request_task_that_is_cancelled_answers_nothing() -> None:
    endpoint = Endpoint()
    exchange = Exchange(SESSION_CALL, call("wait"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, endpoint)
        await endpoint.waiting.started.wait()
        tasks.cancel_scope.cancel()
    assert endpoint.waiting.cancelled.is_set()
    assert (exchange.was_answered, exchange.sent) == (None, [])
    assert (endpoint.session.requests, endpoint.session.running) == (0, {})


async def test_an_id_that_runs_already_is_handed_over_the_others_are_not() -> None:
    endpoint = Endpoint()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Exchange(SESSION_CALL, call("wait")).run, endpoint)
        await endpoint.waiting.started.wait()
        for id_, is_fast in ((1, False), ("1", False), (2, True)):
            assert (await Exchange(SESSION_CALL, ADDING | {"id": id_}).run(endpoint)).was_answered is is_fast
        endpoint.waiting.released.set()


@pytest.mark.parametrize("is_modern", [True, False])
async def test_a_request_that_cannot_be_planned_by_a_mistake_of_this_side_is_an_internal_error(
    is_modern: bool, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint, metadata = Endpoint(), dict[str, Any]()
    endpoint.toolbox.add(made("changed", _add, metadata={"k": metadata}))
    metadata["later"] = object()
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = without(MODERN_CALL, "mcp-name") | {"mcp-method": "tools/list"}
    exchange = Exchange(headers, modern(listing)) if is_modern else Exchange(SESSION_CALL, listing)
    status, _, body = (await exchange.run(endpoint)).answer
    told = {"code": -32603, "message": "the request 'tools/list' failed; the server's log says why"}
    assert (status, body) == (200, {"jsonrpc": "2.0", "id": 1, "error": told})
    assert "Unable to serialize unknown type" in caplog.text
