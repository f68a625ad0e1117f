"""SSE, by raw requests and by the official client."""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp_types import ElicitResult, TextContent

from bridge.server import http_app
from bridge.server.auth import ApiKey, ApiKeys
from bridge.server.eager_tasks import EagerTasks
from bridge.tools.function import tool
from bridge.tools.toolbox import ToolBox
from tests.server import http_server
from tests.server.auth.guarded import ADA, BOB, Sse, bearer, talking
from tests.server.http.test_app import BROKEN
from tests.server.http_server import HEADERS, call, events, initialize, modern, notification, request, whole_client
from tests.server.tools import ADD, GREET, Holding, made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mcp.client import ClientRequestContext
    from mcp_types import ElicitRequestParams

    from bridge.tools.context import InvocationContext

DEADLINE_SECONDS = 60


@pytest.fixture(scope="module", params=["direct", "h11"])
def http(request: pytest.FixtureRequest) -> str:
    """Messages are received before ASGI, and in ASGI."""
    kind: str = request.param
    return kind


@pytest.fixture(scope="module")
def origin(http: str) -> Iterator[str]:
    with http_server.serving(http_app(ToolBox(ADD, GREET)), http=http) as origin:
        yield origin


@pytest.fixture
def serving(serving: Callable[..., str], http: str) -> Callable[..., str]:
    return partial(serving, http=http)


class Session:
    """A session over SSE: a stream, and an endpoint to post to."""

    def __init__(self, client: httpx.Client, origin: str, lines: Iterator[str]) -> None:
        self._client = client
        assert next(lines) == "event: endpoint"
        self.path = next(lines).removeprefix("data: ")
        self._url = origin + self.path
        self.messages = events(lines)

    def post(self, content: bytes, headers: dict[str, str] = HEADERS) -> httpx.Response:
        return self._client.post(self._url, content=content, headers=headers)

    def send(self, message: dict[str, Any]) -> None:
        assert self.post(json.dumps(message).encode()).status_code == 202

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self.send(message)
        return next(self.messages)

    def open(self) -> None:
        self.ask(initialize())
        self.send(notification("notifications/initialized"))


@contextmanager
def session(origin: str) -> Iterator[Session]:
    with whole_client() as client, client.stream("GET", f"{origin}/sse") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        yield Session(client, origin, stream.iter_lines())


def test_a_session_is_opened_and_used(origin: str) -> None:
    with session(origin) as opened:
        opened.open()
        result = opened.ask(call("add", {"a": 1, "b": 2}))["result"]
        assert result["content"] == [{"type": "text", "text": "3"}]


def test_what_is_no_message_is_refused_and_the_session_goes_on(origin: str, errors: Callable[[], list[str]]) -> None:
    with session(origin) as opened:
        opened.open()
        for body, code in BROKEN.values():
            refusal = opened.post(body)
            assert refusal.status_code == 400
            assert refusal.json()["error"]["code"] == code
        assert opened.post(b"{}", HEADERS | {"content-type": "text/plain"}).status_code == 415
        assert opened.ask(call("add", {"a": 1, "b": 2}))["result"]["isError"] is False
    assert errors() == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/messages/", 400),
        ("POST", "/messages/?session_id=x", 400),
        ("POST", "/messages/?session_id=" + "0" * 32, 404),
        ("POST", "/messages?session_id=" + "0" * 32, 404),
        ("GET", "/messages/?session_id=" + "0" * 32, 405),
        ("POST", "/sse", 405),
        ("DELETE", "/sse", 405),
    ],
)
def test_a_request_at_the_wrong_door_is_refused(
    origin: str, method: str, path: str, status: int, errors: Callable[[], list[str]]
) -> None:
    body = json.dumps(initialize()) if method == "POST" else None
    assert httpx.request(method, origin + path, content=body, headers=HEADERS).status_code == status
    assert errors() == []


def test_every_message_is_checked_by_the_guards(serving: Callable[..., str]) -> None:
    app = http_app(ToolBox(ADD), auth=ApiKeys(ApiKey("ada", ADA), ApiKey("bob", BOB)))
    with talking("sse", serving(app), ADA) as ada:
        assert isinstance(ada, Sse)
        message, headers = call("add", {"a": 1, "b": 2}), HEADERS | ada.credential
        wrong = [
            {"authorization": ""},
            bearer("nobody"),
            bearer(BOB),
            {"host": "evil.example"},
            {"origin": "https://evil.example"},
            {"content-type": "text/plain"},
        ]
        found = [ada.client.post(ada.messages_url, json=message, headers=headers | each).status_code for each in wrong]
        assert found == [401, 401, 404, 421, 403, 415]
        assert ada.ask(message)["result"]["isError"] is False


def test_a_call_starts_in_the_turn_of_its_message(
    serving: Callable[..., str], http: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, step = list[str](), EagerTasks.step

    def noted(self: EagerTasks, work: Any) -> Any:
        steps.append(work.__name__)
        return step(self, work)

    monkeypatch.setattr(EagerTasks, "step", noted)

    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    with session(serving(http_app(ToolBox(add)))) as opened:
        opened.open()
        for number in (1, 2, 3):
            assert opened.ask(call("add", {"a": 1, "b": number}))["result"]["structuredContent"] == {
                "result": 1 + number
            }
    assert ("add" in steps) is (http == "direct")


def test_the_handshake_era_is_pinned(origin: str) -> None:
    with session(origin) as opened:
        refusal = opened.ask(modern(request("server/discover")))
        assert refusal["error"]["code"] == -32601
        assert opened.ask(initialize())["result"]["protocolVersion"] == "2025-11-25"


def test_the_end_of_the_stream_cancels_the_calls_of_its_session(
    serving: Callable[..., str], errors: Callable[[], list[str]]
) -> None:
    holding = Holding()
    with session(serving(http_app(ToolBox(holding.tool)))) as opened:
        opened.open()
        opened.send(call("hold"))
        assert holding.started.wait(DEADLINE_SECONDS)
    assert holding.cancelled.wait(DEADLINE_SECONDS)
    assert errors() == []


def test_a_notification_cancels_a_call(serving: Callable[..., str]) -> None:
    holding = Holding()
    with session(serving(http_app(ToolBox(holding.tool)))) as opened:
        opened.open()
        opened.send(call("hold"))
        assert holding.started.wait(DEADLINE_SECONDS)
        opened.send(notification("notifications/cancelled", {"requestId": 1}))
        assert holding.cancelled.wait(DEADLINE_SECONDS)
        assert opened.ask(request("ping", request_id=2)) == {"jsonrpc": "2.0", "id": 2, "result": {}}


def test_a_tool_sees_its_session(serving: Callable[..., str]) -> None:
    async def look(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
        return context.memory_id

    with session(serving(http_app(ToolBox(made("look", look))))) as opened:
        opened.open()
        said = opened.ask(call("look"))["result"]["content"][0]["text"]
        assert opened.path == f"/messages/?session_id={said}"


def test_a_session_is_not_another_because_a_header_says_so(serving: Callable[..., str]) -> None:
    async def look(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
        return context.memory_id

    with session(serving(http_app(ToolBox(made("look", look))))) as opened:
        opened.open()
        opened.post(json.dumps(call("look")).encode(), HEADERS | {"mcp-session-id": "another"})
        said = next(opened.messages)["result"]["content"][0]["text"]
        assert opened.path == f"/messages/?session_id={said}"


def test_a_tool_that_says_what_is_no_json_fails_alone(serving: Callable[..., str]) -> None:
    async def talk(arguments: Mapping[str, Any], context: InvocationContext) -> Any:
        match arguments["way"]:
            case "log":
                await context.log("info", {"file": "\udcff"})
            case "progress":
                await context.progress(1, None, "\udcff")
            case _:
                await context.elicit("\udcff", {"type": "object", "properties": {}})

    with session(serving(http_app(ToolBox(made("talk", talk), ADD)))) as opened:
        opened.ask(initialize({"elicitation": {}}))
        opened.send(notification("notifications/initialized"))
        for way in ("log", "progress", "ask"):
            assert opened.ask(call("talk", {"way": way}))["result"]["isError"] is True
        assert opened.ask(call("add", {"a": 1, "b": 2}))["result"]["isError"] is False


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_lists_calls_and_answers(origin: str, mode: Any) -> None:
    async def elicit(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "Ada"})

    async with Client(sse_client(f"{origin}/sse"), mode=mode, elicitation_callback=elicit) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add", "greet"]
        (block,) = (await client.call_tool("greet", {})).content
        assert isinstance(block, TextContent)
        assert block.text == "Hello Ada"
