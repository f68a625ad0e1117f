"""Streamable HTTP, by raw requests to a real server: responses and log lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import httpx
import pytest

from bridge.server import Server, http_app
from bridge.tools.function import tool
from bridge.tools.toolbox import ToolBox
from tests.server import http_server
from tests.server.http_server import (
    HEADERS,
    answer,
    call,
    initialize,
    modern,
    modern_headers,
    notification,
    open_session,
    posted,
    received,
    request,
)
from tests.server.tools import ADD, GREET, Holding, made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE_SECONDS = 60
HTTP = pytest.mark.parametrize("http", ["h11", "direct"])
DEEP = b'{"a":' * 10_000  # with its ends, Python 3.14 parses it

BROKEN = {
    "binary": (b"\x00\xff\xfe garbage", -32700),
    "empty": (b"", -32700),
    "cut off": (b'{"jsonrpc":"2.0","id":1,"method":"pi', -32700),
    "invalid UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700),
    "deep": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + DEEP, -32700),
    "a number of 5000 digits": (b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}', -32700),
    "a batch": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
    "text": (b'"ping"', -32600),
    "an id that is true": (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
    "an id that is null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
    "an id that is a fraction": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
    "no version": (b'{"id":1,"method":"ping"}', -32600),
    "another version": (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
    "a method that is a number": (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600),
    "parameters in a list": (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32600),
}

MALFORMED: dict[str, dict[str, Any]] = {
    "a name that is a number": {"name": 5},
    "no name": {"arguments": {}},
    "arguments in a list": {"name": "add", "arguments": [1]},
    "an unknown tool": {"name": "subtract"},
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with http_server.serving(http_app(ToolBox(ADD, GREET))) as origin:
        yield origin + "/mcp"


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=DEADLINE_SECONDS) as client:
        yield client


@pytest.fixture(params=["handshake", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Caller:
    """Sends requests in one era."""

    def __init__(self, client: httpx.Client, url: str, era: str) -> None:
        self._client, self._url, self.is_modern = client, url, era == "modern"
        self.headers = HEADERS if self.is_modern else open_session(client, url)

    def post(self, message: dict[str, Any]) -> httpx.Response:
        if self.is_modern:
            message = modern(message)
            return self._client.post(self._url, json=message, headers=modern_headers(message))
        return self._client.post(self._url, json=message, headers=self.headers)

    def post_body(self, body: bytes) -> httpx.Response:
        routing = {"mcp-protocol-version": "2026-07-28", "mcp-method": "ping"} if self.is_modern else {}
        headers = self.headers | routing
        return self._client.post(self._url, content=body, headers=headers)


@pytest.fixture
def caller(client: httpx.Client, url: str, era: str) -> Caller:
    return Caller(client, url, era)


def must_still_serve(caller: Caller) -> None:
    assert answer(caller.post(call("add", {"a": 2, "b": 3})))["result"]["content"] == [{"type": "text", "text": "5"}]


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
def test_both_forms_of_the_path_answer_without_a_redirect(
    client: httpx.Client, serving: Callable[..., str], path: str, era: str
) -> None:
    must_still_serve(Caller(client, serving(http_app(ToolBox(ADD))) + path, era))


@pytest.mark.parametrize("path", ["/", "/api/tools/"])
def test_the_path_can_be_another(client: httpx.Client, serving: Callable[..., str], path: str, era: str) -> None:
    must_still_serve(Caller(client, serving(http_app(ToolBox(ADD), path=path)) + path, era))


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_message_is_refused_as_such(caller: Caller, case: str, errors: Callable[[], list[str]]) -> None:
    body, code = BROKEN[case]
    refusal = caller.post_body(body)
    assert refusal.status_code == 400
    assert refusal.json()["id"] is None
    assert refusal.json()["error"]["code"] == code
    must_still_serve(caller)
    assert errors() == []


@pytest.mark.parametrize("case", MALFORMED)
def test_parameters_that_are_wrong_are_refused(caller: Caller, case: str, errors: Callable[[], list[str]]) -> None:
    params = MALFORMED[case]
    message = request("tools/call", params)
    refusal = caller.post(message | {"params": params})
    if caller.is_modern:
        assert refusal.status_code == 400
    # A name that a header cannot repeat is a mismatch before it is anything else.
    assert answer(refusal)["error"]["code"] == (-32020 if caller.is_modern and params.get("name") == 5 else -32602)
    must_still_serve(caller)
    assert errors() == []


def test_an_unknown_method_is_not_found(caller: Caller) -> None:
    refusal = caller.post(request("tools/sing"))
    assert refusal.status_code == (404 if caller.is_modern else 200)
    assert answer(refusal)["error"]["code"] == -32601


def test_a_request_without_parameters_is_answered(client: httpx.Client, url: str) -> None:
    headers = open_session(client, url)
    listed = answer(client.post(url, json={"jsonrpc": "2.0", "id": "a", "method": "tools/list"}, headers=headers))
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["add", "greet"]


@pytest.mark.parametrize("kind", ["text/plain", "application/jsonx", ""])
def test_a_body_that_does_not_say_it_is_json_is_refused(client: httpx.Client, url: str, kind: str) -> None:
    assert client.post(url, json=initialize(), headers=HEADERS | {"content-type": kind}).status_code == 415


@pytest.mark.parametrize("kind", ["Application/JSON", "application/JSON; charset=utf-8"])
def test_upper_case_says_json_too(client: httpx.Client, url: str, kind: str) -> None:
    assert "result" in answer(client.post(url, json=initialize(), headers=HEADERS | {"content-type": kind}))


def test_a_client_must_take_what_the_server_sends(client: httpx.Client, url: str) -> None:
    assert client.post(url, json=initialize(), headers=HEADERS | {"accept": "text/html"}).status_code == 406


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS"])
def test_a_method_that_the_protocol_does_not_use_is_refused(client: httpx.Client, url: str, method: str) -> None:
    headers = open_session(client, url)
    assert client.request(method, url, headers=headers).status_code == 405


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_the_modern_era_has_no_sessions(client: httpx.Client, url: str, method: str) -> None:
    headers = {"mcp-protocol-version": "2026-07-28", "accept": "text/event-stream"}
    assert client.request(method, url, headers=headers).status_code == 405


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_session_that_is_not_there_is_not_found(client: httpx.Client, url: str, method: str) -> None:
    headers = HEADERS | {"mcp-session-id": "nobody"}
    body = json.dumps(request("ping")) if method == "POST" else None
    assert client.request(method, url, content=body, headers=headers).status_code == 404


def test_a_session_that_was_deleted_is_not_found(client: httpx.Client, url: str) -> None:
    headers = open_session(client, url)
    assert client.delete(url, headers=headers).status_code == 200
    assert client.post(url, json=request("ping"), headers=headers).status_code == 404


def test_a_body_over_the_limit_is_refused(client: httpx.Client, serving: Callable[..., str]) -> None:
    url = serving(http_app(ToolBox(ADD), max_request_bytes=1000)) + "/mcp"
    message = json.dumps(initialize()).encode()
    fits, over = message.ljust(1000), message.ljust(1001)
    assert client.post(url, content=fits, headers=HEADERS).status_code == 200
    assert client.post(url, content=over, headers=HEADERS).status_code == 413
    for body, status in ((fits, 200), (over, 413)):
        chunks = (body[start : start + 100] for start in range(0, len(body), 100))
        assert client.post(url, content=chunks, headers=HEADERS).status_code == status


@HTTP
@pytest.mark.parametrize("era", ["modern", "handshake", "sse"])
def test_a_message_of_too_many_values_is_refused_before_it_is_parsed(
    client: httpx.Client, serving: Callable[..., str], era: str, http: str
) -> None:
    origin = serving(http_app(ToolBox(ADD)), http=http)
    message = call("add", arguments={"a": [{}] * 35_000, "b": 1})
    message, headers = (modern(message), modern_headers(message)) if era == "modern" else (message, HEADERS)
    path = "/messages/?session_id=" + "0" * 32 if era == "sse" else "/mcp"
    reply = client.post(origin + path, content=json.dumps(message), headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, -32600)
    assert "objects and arrays, of 35,000 at most; send fewer at once, or raise --max-request-bytes" in reply.text


def echoes(numbers: list[float], items: list[dict[str, int]], text: str) -> tuple[int, int, int]:
    """Return the number of values."""
    return len(numbers), len(items), len(text)


@HTTP
def test_a_value_that_can_be_read_once_is_written_once(
    client: httpx.Client, serving: Callable[..., str], http: str, era: str
) -> None:
    @tool
    async def numbers() -> object:
        return iter([1, 2])

    @tool
    async def broken() -> object:
        return iter([1, object()])

    caller = Caller(client, serving(http_app([numbers, broken]), http=http) + "/mcp", era)
    assert answer(caller.post(call("numbers")))["result"]["content"][0]["text"] == "[1,2]"
    assert answer(caller.post(call("broken")))["result"]["isError"] is True


@HTTP
def test_large_honest_arguments_are_served(client: httpx.Client, serving: Callable[..., str], http: str) -> None:
    url = serving(http_app([echoes]), http=http) + "/mcp"
    for numbers, items, text in ((100_000, 0, 3_000_000), (0, 20_000, 0), (50_000, 15_000, 0)):
        arguments = {"numbers": [0.5] * numbers, "items": [{"a": 1, "b": 2}] * items, "text": ('{"[, ' * text)[:text]}
        message = modern(call("echoes", arguments=arguments))
        content = json.dumps(message, separators=(",", ":"))
        reply = client.post(url, content=content, headers=modern_headers(message), timeout=60)
        assert json.loads(answer(reply)["result"]["content"][0]["text"]) == [numbers, items, text]


def test_a_malformed_answer_to_a_question_is_refused(client: httpx.Client, url: str) -> None:
    def post(**more: Any) -> httpx.Response:
        message = modern(call("greet", **more), {"elicitation": {}})
        return client.post(url, json=message, headers=modern_headers(message))

    asked = answer(post())["result"]
    assert asked["resultType"] == "input_required"
    assert list(asked["inputRequests"]) == ["name"]
    state = asked["requestState"]
    wrongs: list[Any] = [{"action": "perhaps"}, {"roots": []}, 7]
    for wrong in wrongs:
        refusal = post(requestState=state, inputResponses={"name": wrong})
        assert refusal.status_code == 400
        assert refusal.json()["error"]["code"] == -32602
    accepted = {"action": "accept", "content": {"name": "Ada"}}
    given = answer(post(requestState=state, inputResponses={"name": accepted}))["result"]
    assert given["content"] == [{"type": "text", "text": "Hello Ada"}]
    # A client may answer questions before they are asked; one asked under another key is asked again.
    assert "content" in answer(post(inputResponses={"name": accepted}))["result"]
    assert answer(post(requestState=state, inputResponses={"other": accepted}))["result"]["inputRequests"]
    assert post(requestState=state + "x", inputResponses={"name": accepted}).json()["error"]["code"] == -32602


def test_what_a_client_carries_is_opened_by_every_process_with_the_same_keys(
    client: httpx.Client, serving: Callable[..., str]
) -> None:
    def url(*keys: bytes) -> str:
        server = Server(ToolBox(GREET), name="tests", state_keys=keys)
        return serving(http_app(server)) + "/mcp"

    first, second, stranger = url(b"k" * 32), url(b"n" * 32, b"k" * 32), url(b"s" * 32)

    def post(url: str, **more: Any) -> httpx.Response:
        message = modern(call("greet", **more), {"elicitation": {}})
        return client.post(url, json=message, headers=modern_headers(message))

    state = answer(post(first))["result"]["requestState"]
    carried = {"requestState": state, "inputResponses": {"name": {"action": "decline"}}}
    assert answer(post(second, **carried))["result"]["content"] == [{"type": "text", "text": "decline"}]
    assert post(stranger, **carried).status_code == 400


@pytest.mark.anyio
async def test_closing_a_request_of_the_modern_era_cancels_its_call(
    serving: Callable[..., str], errors: Callable[[], list[str]]
) -> None:
    holding = Holding()
    url = serving(http_app(ToolBox(holding.tool))) + "/mcp"
    message = modern(call("hold"))
    async with httpx.AsyncClient(timeout=None) as client, anyio.create_task_group() as group:
        group.start_soon(lambda: client.post(url, json=message, headers=modern_headers(message)))
        assert await anyio.to_thread.run_sync(holding.started.wait, DEADLINE_SECONDS)
        group.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(holding.cancelled.wait, DEADLINE_SECONDS)
    assert errors() == []


@HTTP
def test_a_dropped_connection_of_the_handshake_era_cancels_nothing(
    client: httpx.Client, serving: Callable[..., str], errors: Callable[[], list[str]], http: str
) -> None:
    holding = Holding()
    url = serving(http_app(ToolBox(holding.tool)), http=http) + "/mcp"
    headers = open_session(client, url)
    with posted(url, call("hold"), headers):
        assert holding.started.wait(DEADLINE_SECONDS)
    # The server has noticed the end of one connection when it has answered on the next.
    client.post(url, json=request("ping", request_id=2), headers=headers).raise_for_status()
    holding.let_go()
    assert holding.finished.wait(DEADLINE_SECONDS)
    assert not holding.cancelled.is_set()
    assert errors() == []


@HTTP
@pytest.mark.parametrize("ending", ["notification", "DELETE"])
def test_a_notification_and_the_end_of_its_session_cancel_a_call_of_the_handshake_era(
    client: httpx.Client, serving: Callable[..., str], ending: str, http: str
) -> None:
    holding = Holding()
    url = serving(http_app(ToolBox(holding.tool)), http=http) + "/mcp"
    headers = open_session(client, url)
    with posted(url, call("hold"), headers) as connection:
        assert holding.started.wait(DEADLINE_SECONDS)
        if ending == "DELETE":
            client.delete(url, headers=headers).raise_for_status()
        else:
            client.post(url, json=notification("notifications/cancelled", {"requestId": 1}), headers=headers)
        assert holding.cancelled.wait(DEADLINE_SECONDS)
        end = received(connection)
    assert (end["id"], end["error"]) == (1, {"code": -32800, "message": "Request cancelled"})


def test_a_tool_sees_the_headers_and_the_session(client: httpx.Client, serving: Callable[..., str]) -> None:
    async def look(arguments: Any, context: Any) -> Any:
        return f"{context.headers['x-tenant']} {context.headers.get('X-Tenant')} {context.memory_id}"

    url = serving(http_app(ToolBox(made("look", look)))) + "/mcp"
    headers = open_session(client, url) | {"X-Tenant": "blue"}
    said = answer(client.post(url, json=call("look"), headers=headers))["result"]["content"][0]["text"]
    assert said == f"blue blue {headers['mcp-session-id']}"
    message = modern(call("look"))
    said = answer(client.post(url, json=message, headers=headers | modern_headers(message) | {"X-Tenant": "red"}))
    # The modern era has no sessions: a session header is ignored.
    assert said["result"]["content"][0]["text"] == "red red None"
