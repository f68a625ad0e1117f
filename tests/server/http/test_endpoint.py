"""The endpoint of streamable HTTP, on both event loops."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from bridge.portal import runs_on_asyncio
from bridge.protocol.messages import CallRefused, ProtocolError
from tests.server.http_endpoint import MODERN_CALL, SESSION_CALL, Exchange, ServedEndpoint, without
from tests.server.http_server import call, modern, request
from tests.server.tools import Waiting, made, silent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.tools.context import InvocationContext

ADDING = call("add", {"a": 40, "b": 2})
RESULT = {"content": [{"type": "text", "text": "42"}], "isError": False}
CANCELLED = {"code": -32800, "message": "Request cancelled"}

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend


async def _add(arguments: Mapping[str, Any], _: InvocationContext) -> int:
    total: int = arguments["a"] + arguments["b"]
    return total


async def _refuse(*_: object) -> None:
    raise CallRefused(ProtocolError(-32021, "sampling is missing"))


async def _crash(*_: object) -> None:
    raise CallRefused(ProtocolError(-32603, "broken"))


class Endpoint(ServedEndpoint):
    """An endpoint with tools that add, refuse, crash and wait."""

    def __init__(self) -> None:
        self.waiting = Waiting("wait")
        self.seen: list[InvocationContext] = []
        waiting = replace(self.waiting.tool, interactive=False)
        tools = (silent("add", _add), silent("refuse", _refuse), silent("crash", _crash))
        super().__init__(*tools, waiting, memory_id_of=self._remember)

    def _remember(self, context: InvocationContext) -> Any:
        self.seen.append(context)
        return context.memory_id


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
async def test_a_call_of_the_modern_era_is_answered(headers: dict[str, str], path: str, scope: dict[str, Any]) -> None:
    exchange = await Exchange(headers, modern(ADDING), path, scope).run(Endpoint())
    status, more, body = exchange.answer
    assert (status, more, body["result"]["content"]) == (200, {}, RESULT["content"])


@pytest.mark.parametrize("headers", [SESSION_CALL, without(SESSION_CALL, "mcp-protocol-version")])
async def test_a_call_in_a_session_is_answered_in_its_name(headers: dict[str, str]) -> None:
    endpoint = Endpoint()
    exchange = await Exchange(headers, ADDING).run(endpoint)
    assert exchange.answer == (200, {"mcp-session-id": "s1"}, {"jsonrpc": "2.0", "id": 1, "result": RESULT})
    assert (endpoint.session.requests, endpoint.session.running) == (0, {})


@pytest.mark.parametrize("method", ["tools/list", "server/discover"])
async def test_other_requests_of_the_modern_era_are_answered(method: str) -> None:
    headers = without(MODERN_CALL, "mcp-name") | {"mcp-method": method}
    exchange = await Exchange(headers, modern(request(method))).run(Endpoint())
    assert exchange.answer[2]["result"]["resultType"] == "complete"


HEADS: dict[str, tuple[dict[str, str], Any, int, int]] = {
    "no accept": (without(MODERN_CALL, "accept"), modern(ADDING), 406, -32600),
    "only JSON": (MODERN_CALL | {"accept": "application/json"}, modern(ADDING), 406, -32600),
    "only a stream": (MODERN_CALL | {"accept": "text/event-stream"}, modern(ADDING), 406, -32600),
    "kinds by wildcard": (MODERN_CALL | {"accept": "application/*, text/*"}, modern(ADDING), 200, 0),
    "no content type": (without(MODERN_CALL, "content-type"), modern(ADDING), 415, -32600),
    "another content type": (MODERN_CALL | {"content-type": "text/plain"}, modern(ADDING), 415, -32600),
    "a content type in capitals": (MODERN_CALL | {"content-type": "Application/JSON"}, modern(ADDING), 200, 0),
    "no method": (without(MODERN_CALL, "mcp-method"), modern(ADDING), 400, -32020),
    "another method": (MODERN_CALL | {"mcp-method": "tools/list"}, modern(ADDING), 400, -32020),
    "no name": (without(MODERN_CALL, "mcp-name"), modern(ADDING), 400, -32020),
    "another name": (MODERN_CALL | {"mcp-name": "wait"}, modern(ADDING), 400, -32020),
    "a name that is encoded": (MODERN_CALL | {"mcp-name": "=?base64?YWRk?="}, modern(ADDING), 200, 0),
    "a name that is no text": (MODERN_CALL, modern(request("tools/call", {"name": 5})), 400, -32020),
    "an unknown version": (MODERN_CALL | {"mcp-protocol-version": "2099-01-01"}, modern(ADDING), 400, -32020),
    "no parameters": (MODERN_CALL, {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}, 400, -32602),
    "no envelope": (MODERN_CALL, ADDING, 400, -32602),
    "a result of the modern era": (MODERN_CALL, {"jsonrpc": "2.0", "id": 1, "result": {}}, 400, -32600),
    "no session": (without(SESSION_CALL, "mcp-session-id"), ADDING, 400, -32600),
    "an unknown session": (SESSION_CALL | {"mcp-session-id": "s2"}, ADDING, 404, -32600),
    "a session of odd bytes": (SESSION_CALL | {"mcp-session-id": "\xff"}, ADDING, 404, -32600),
    "a version that the session does not have": (SESSION_CALL | {"mcp-protocol-version": "2025-06-18"}, ADDING, 200, 0),
    "a batch": (SESSION_CALL, [ADDING], 400, -32600),
    "no version of JSON-RPC": (SESSION_CALL, {"id": 1, "method": "ping"}, 400, -32600),
    "an id that is true": (SESSION_CALL, ADDING | {"id": True}, 400, -32600),
    "an id that is null": (SESSION_CALL, ADDING | {"id": None}, 400, -32600),
    "a method that is a number": (SESSION_CALL, ADDING | {"method": 5}, 400, -32600),
    "no JSON": (SESSION_CALL, b"{", 400, -32700),
    "a lone surrogate": (SESSION_CALL, b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', 200, 0),
    "a byte order mark": (SESSION_CALL, b"\xef\xbb\xbf" + json.dumps(ADDING).encode(), 400, -32700),
    "UTF-16": (SESSION_CALL, json.dumps(ADDING).encode("utf-16"), 400, -32700),
    "a great depth": (SESSION_CALL, b'{"x":' * 300 + b"1" + b"}" * 300, 400, -32600),
}


@pytest.mark.parametrize(("headers", "message", "status", "code"), HEADS.values(), ids=HEADS)
async def test_the_head_and_the_text_of_a_request_are_checked(
    headers: dict[str, str], message: Any, status: int, code: int
) -> None:
    found, _, body = (await Exchange(headers, message).run(Endpoint())).answer
    assert (found, body.get("error", {"code": 0})["code"]) == (status, code)


@pytest.mark.parametrize(
    "message", [{"jsonrpc": "2.0", "method": "notifications/initialized"}, {"jsonrpc": "2.0", "id": 1, "result": {}}]
)
async def test_what_needs_no_answer_is_accepted(message: Any) -> None:
    start, body = (await Exchange(SESSION_CALL, message).run(Endpoint())).sent
    assert (start["status"], body["body"]) == (202, b"")


async def test_a_session_is_for_the_credential_that_opened_it() -> None:
    endpoint = Endpoint()
    assert (await Exchange(SESSION_CALL, ADDING, scope={"user": object()}).run(endpoint)).answer[0] == 404
    endpoint.session.user = object()
    assert (await Exchange(SESSION_CALL, ADDING).run(endpoint)).answer[0] == 404


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


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (call("add", {"a": 40, "b": 2}), 0),
        (call("crash"), -32603),
        (call("nothing"), -32602),
        (request("sing"), -32601),
    ],
)
async def test_without_sessions_clients_of_the_handshake_era_are_answered_with_the_status_200(
    message: dict[str, Any], code: int
) -> None:
    endpoint = ServedEndpoint(silent("add", _add), silent("crash", _crash), stateless=True)
    status, headers, body = (await Exchange(SESSION_CALL, message).run(endpoint)).answer
    assert (status, headers, body.get("error", {"code": 0})["code"]) == (200, {}, code)


async def test_without_sessions_there_is_nothing_to_get_or_delete() -> None:
    endpoint = ServedEndpoint(silent("add", _add), stateless=True)
    for method in ("GET", "DELETE"):
        status, headers, _ = (await Exchange(SESSION_CALL, b"", scope={"method": method}).run(endpoint)).answer
        assert (status, headers) == (405, {"allow": "POST"})


# --- ends ------------------------------------------------------------------------------------------------------------


async def test_a_client_of_the_handshake_era_that_disconnects_cancels_nothing() -> None:
    endpoint = Endpoint()
    exchange = Exchange(SESSION_CALL, call("wait"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, endpoint)
        await endpoint.waiting.started.wait()
        assert (endpoint.session.requests, list(endpoint.session.running)) == (1, ["1"])
        exchange.gone.set()
        await anyio.wait_all_tasks_blocked()
        endpoint.waiting.released.set()
        await endpoint.waiting.finished.wait()
    assert (exchange.is_over, exchange.sent) == (True, [])
    assert (endpoint.session.requests, endpoint.session.running) == (0, {})


async def test_a_call_that_its_session_cancels_is_answered_so_and_its_task_lives_on() -> None:
    endpoint = Endpoint()
    exchange = Exchange(SESSION_CALL, call("wait"))

    async def run() -> None:
        await exchange.run(endpoint)
        await checkpoint()  # which would raise if the task were still being cancelled

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await endpoint.waiting.started.wait()
        endpoint.session.cancel(1)
        endpoint.session.cancel("1")
    assert exchange.answer == (200, {"mcp-session-id": "s1"}, {"jsonrpc": "2.0", "id": 1, "error": CANCELLED})
    assert endpoint.waiting.cancelled.is_set()
    assert (endpoint.session.requests, endpoint.session.running, len(endpoint.running)) == (0, {}, 0)


async def test_the_end_of_a_session_cancels_its_calls() -> None:
    endpoint = Endpoint()
    exchange = Exchange(SESSION_CALL, call("wait"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, endpoint)
        await endpoint.waiting.started.wait()
        endpoint.sessions.forget("s1")
    assert exchange.answer[2]["error"] == CANCELLED


async def test_a_call_that_swallows_its_cancellation_is_answered_as_cancelled() -> None:
    endpoint, cancellations = Endpoint(), list[int]()

    async def swallow(*_: object) -> str:
        endpoint.session.cancel(1)
        with pytest.raises(anyio.get_cancelled_exc_class()):
            await checkpoint()
        return "done all the same"

    async def run() -> None:
        await exchange.run(endpoint)
        await checkpoint()
        if (task := asyncio.current_task() if runs_on_asyncio() else None) is not None:
            cancellations.append(task.cancelling())

    endpoint.toolbox.add(silent("swallow", swallow))
    exchange = Exchange(SESSION_CALL, call("swallow"))
    await run()
    assert exchange.answer[2]["error"] == CANCELLED
    assert cancellations in ([0], [])


async def test_a_request_task_that_is_cancelled_answers_nothing() -> None:
    endpoint = Endpoint()
    exchange = Exchange(SESSION_CALL, call("wait"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(exchange.run, endpoint)
        await endpoint.waiting.started.wait()
        tasks.cancel_scope.cancel()
    assert endpoint.waiting.cancelled.is_set()
    assert (exchange.is_over, exchange.sent) == (False, [])
    assert (endpoint.session.requests, endpoint.session.running) == (0, {})


async def test_an_id_that_runs_already_is_refused_the_others_are_not() -> None:
    endpoint = Endpoint()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Exchange(SESSION_CALL, call("wait")).run, endpoint)
        await endpoint.waiting.started.wait()
        for id_, status in ((1, 400), ("1", 400), (2, 200)):
            found, _, body = (await Exchange(SESSION_CALL, ADDING | {"id": id_}).run(endpoint)).answer
            assert (found, body["id"]) == (status, id_)
        endpoint.waiting.released.set()


async def test_of_two_requests_of_one_id_at_once_one_is_refused() -> None:
    endpoint = Endpoint()
    exchanges = [Exchange(SESSION_CALL, call("wait")) for _ in range(2)]
    async with anyio.create_task_group() as tasks:
        for each in exchanges:
            tasks.start_soon(each.run, endpoint)
        await endpoint.waiting.started.wait()
        await anyio.wait_all_tasks_blocked()
        endpoint.waiting.released.set()
    assert sorted(each.answer[0] for each in exchanges) == [200, 400]


async def test_calls_that_run_when_the_server_ends_are_answered_so() -> None:
    endpoint = Endpoint()
    exchanges = [
        Exchange(SESSION_CALL, call("wait")),
        Exchange(MODERN_CALL | {"mcp-name": "wait"}, modern(call("wait"))),
    ]
    async with anyio.create_task_group() as tasks:
        for each in exchanges:
            tasks.start_soon(each.run, endpoint)
        await anyio.wait_all_tasks_blocked()
        assert endpoint.running.end() == 2
    for each in exchanges:
        status, _, body = each.answer
        assert (status, body["error"]["code"]) == (200, -32603)
        assert "the server ended while" in body["error"]["message"]


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
