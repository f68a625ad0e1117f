"""The app in a server on trio answers all that it answers on asyncio, in both eras; see also `tests.interop`."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import httpx
import pytest
import trio

from bridge import InvocationContext, ToolBox, ToolError, tool
from bridge.errors import DefinitionError
from bridge.server import http_app
from bridge.server.auth import ApiKey, ApiKeys
from bridge.server.limits import Limits
from bridge.server.server import Server
from bridge.service.ai_service import ai_service
from bridge.service.memory.chat_memory import ChatMemory
from bridge.testing import ScriptedChatModel
from tests.server import http_server, hypercorn_server
from tests.server.cluster.speaking import Talk, text_of
from tests.server.http_server import answer, call, events, modern, modern_headers, open_session, request

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_SECONDS = 60
ERAS = pytest.mark.parametrize("era", ["modern", "handshake"])


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def add_in_thread(context: InvocationContext, a: int, b: int) -> int:
    """Add, and report."""
    context.blocking.progress(1, 2, "half")
    return a + b


@tool
async def refuse() -> int:
    """Refuse."""
    raise ToolError("refused")


@tool
async def large(size: int) -> str:
    """Return a text."""
    return "x" * size


@tool
async def leaves(context: InvocationContext) -> str:
    """Close the stream, and answer."""
    await context.close_stream()
    return "answered"


class Waiting:
    """A tool that waits until it is cancelled."""

    def __init__(self) -> None:
        self.begun, self.cancelled = threading.Semaphore(0), threading.Event()

    def tool(self) -> Any:
        @tool
        async def wait() -> None:
            """Wait."""
            self.begun.release()
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                self.cancelled.set()
                raise

        return wait


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=DEADLINE_SECONDS) as client:
        yield client


def sent(client: httpx.Client, origin: str, message: dict[str, Any], era: str, **headers: str) -> httpx.Response:
    """Send a request, in a session of its own or in the modern era."""
    if era == "modern":
        message = modern(message)
        return client.post(f"{origin}/mcp", json=message, headers=modern_headers(message) | headers)
    return client.post(f"{origin}/mcp", json=message, headers=open_session(client, f"{origin}/mcp") | headers)


@ERAS
def test_calls_are_answered(client: httpx.Client, era: str) -> None:
    app = http_app(ToolBox(add, add_in_thread, refuse, large))
    with hypercorn_server.serving(app) as origin:
        numbers = {"a": 1, "b": 2}
        added, in_thread, refused, text, listed = [
            answer(sent(client, origin, message, era))["result"]
            for message in (
                call("add", numbers),
                call("add_in_thread", numbers, _meta={"progressToken": "t"}),
                call("refuse"),
                call("large", {"size": 2_000_000}),
                request("tools/list"),
            )
        ]
    assert added["structuredContent"] == in_thread["structuredContent"] == {"result": 3}
    assert (refused["isError"], refused["content"][0]["text"]) == (True, "refused")
    assert len(text["content"][0]["text"]) == 2_000_000
    assert [each["name"] for each in listed["tools"]] == ["add", "add_in_thread", "refuse", "large"]


def test_a_call_of_the_modern_era_is_cancelled_when_its_client_disconnects() -> None:
    waiting = Waiting()
    message = modern(call("wait"))
    with hypercorn_server.serving(http_app(waiting.tool())) as origin:
        with http_server.posted(f"{origin}/mcp", message, modern_headers(message)):
            assert waiting.begun.acquire(timeout=DEADLINE_SECONDS)
        assert waiting.cancelled.wait(DEADLINE_SECONDS)


def test_a_call_in_a_session_goes_on_until_it_is_cancelled(client: httpx.Client) -> None:
    waiting = Waiting()
    with hypercorn_server.serving(http_app(waiting.tool())) as origin:
        url = f"{origin}/mcp"
        headers = open_session(client, url)
        with http_server.posted(url, call("wait") | {"id": 7}, headers):
            assert waiting.begun.acquire(timeout=DEADLINE_SECONDS)
        refused = client.post(url, json=request("ping", request_id=7), headers=headers)
        assert "still runs" in refused.json()["error"]["message"]
        assert not waiting.cancelled.is_set()
        cancelling = http_server.notification("notifications/cancelled", {"requestId": 7})
        client.post(url, json=cancelling, headers=headers).raise_for_status()
        assert waiting.cancelled.wait(DEADLINE_SECONDS)
        assert client.delete(url, headers=headers).status_code == 200
        assert client.post(url, json=request("ping"), headers=headers).status_code == 404


def test_a_closed_stream_is_resumed() -> None:
    with hypercorn_server.serving(http_app(leaves)) as origin:
        url = f"{origin}/mcp"
        talk = Talk(url)
        with talk.streamed(url, **call("leaves")) as stream:
            first, *_ = stream
        with talk.resumed(url, first.id) as resumed:
            (last,) = resumed
    assert text_of(last.message) == "answered"


def test_changes_are_announced_and_streams_end_with_the_server(client: httpx.Client) -> None:
    listen = modern(request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    box = ToolBox(add)
    with ExitStack() as open_streams:
        with hypercorn_server.serving(http_app(box)) as origin:
            url = f"{origin}/mcp"
            headers = open_session(client, url)
            stream = open_streams.enter_context(client.stream("GET", url, headers=headers))
            subscription = client.stream("POST", url, json=listen, headers=modern_headers(listen))
            said = events(open_streams.enter_context(subscription).iter_lines())
            told = events(stream.iter_lines())
            assert next(said)["method"] == "notifications/subscriptions/acknowledged"
            box.add(refuse)
            assert next(said)["method"] == next(told)["method"] == "notifications/tools/list_changed"
        assert [each["id"] for each in said] == [listen["id"]]
        assert list(told) == []


@ERAS
def test_running_calls_count_and_are_cancelled_by_a_drain(client: httpx.Client, era: str) -> None:
    waiting, answers = Waiting(), list[Any]()
    app = http_app(Server(ToolBox(add, waiting.tool()), name="bridge", limits=Limits(concurrency=1)))
    with hypercorn_server.serving(app) as origin, httpx.Client(timeout=DEADLINE_SECONDS) as other:
        calling = threading.Thread(target=lambda: answers.append(answer(sent(other, origin, call("wait"), era))))
        calling.start()
        assert waiting.begun.acquire(timeout=DEADLINE_SECONDS)
        refused = answer(sent(client, origin, call("add", {"a": 1, "b": 2}), era))
        assert "at once" in json.dumps(refused)
        hypercorn_server.run(app.state.drain, 0)
        calling.join(DEADLINE_SECONDS)
        closed = answer(sent(client, origin, call("add", {"a": 1, "b": 2}), era))
    assert waiting.cancelled.is_set()
    assert "the server ended while" in answers[0]["error"]["message"]
    assert "the server ends" in closed["error"]["message"]


def test_the_caller_of_a_key_is_known(client: httpx.Client) -> None:
    @tool
    async def who(context: InvocationContext) -> str:
        """Return the caller."""
        assert context.caller is not None
        return context.caller.name

    app = http_app(who, auth=ApiKeys(ApiKey("one", "1" * 40)))
    message = modern(call("who"))
    with hypercorn_server.serving(app) as origin:
        refused = client.post(f"{origin}/mcp", json=message, headers=modern_headers(message))
        found = answer(sent(client, origin, call("who"), "modern", authorization=f"Bearer {'1' * 40}"))
    assert refused.status_code == 401
    assert found["result"]["content"][0]["text"] == "one"


class Diary(Protocol):
    """A service with a conversation for each caller."""

    @tool
    async def note(self, text: str) -> str: ...


def said_to(model: ScriptedChatModel) -> list[list[str]]:
    return [[message.text or "" for message in request.messages] for request in model.requests]


@pytest.mark.parametrize("server", [http_server, hypercorn_server], ids=["asyncio", "trio"])
def test_callers_have_conversations_of_their_own(client: httpx.Client, server: Any) -> None:
    keys = {name: name * 20 for name in ("ada", "bob")}
    model = ScriptedChatModel(list("1234"))
    diary = ai_service(Diary, chat_model=model, memory=ChatMemory())
    app = http_app(diary, auth=ApiKeys(*(ApiKey(name, key) for name, key in keys.items())))
    with server.serving(app) as origin:
        for name, era, text in (
            ("ada", "modern", "I am Ada"),
            ("bob", "modern", "I am Bob"),
            ("ada", "handshake", "Who am I?"),
            ("bob", "handshake", "And I?"),
        ):
            message, headers = call("note", {"text": text}), {"authorization": f"Bearer {keys[name]}"}
            if era == "handshake":
                client.headers.update(headers)
            assert "result" in answer(sent(client, origin, message, era, **headers))
    assert said_to(model) == [
        ["I am Ada"],
        ["I am Bob"],
        ["I am Ada", "1", "Who am I?"],
        ["I am Bob", "2", "And I?"],
    ]


@pytest.mark.parametrize("server", [http_server, hypercorn_server], ids=["asyncio", "trio"])
def test_without_callers_sessions_have_conversations_of_their_own(client: httpx.Client, server: Any) -> None:
    model = ScriptedChatModel(list("12345"))
    app = http_app(ai_service(Diary, chat_model=model, memory=ChatMemory()))
    with server.serving(app) as origin:
        url = f"{origin}/mcp"
        ada, bob = open_session(client, url), open_session(client, url)
        for session, text in ((ada, "I am Ada"), (bob, "I am Bob"), (ada, "Who am I?")):
            assert "result" in answer(client.post(url, json=call("note", {"text": text}), headers=session))
        for _ in range(2):
            assert "result" in answer(sent(client, origin, call("note", {"text": "Nobody"}), "modern"))
    assert said_to(model) == [["I am Ada"], ["I am Bob"], ["I am Ada", "1", "Who am I?"], ["Nobody"], ["Nobody"]]


def test_replicas_need_asyncio() -> None:
    app = http_app(add, redis_url="redis://127.0.0.1:1/0")

    async def start() -> None:
        async with app.router.lifespan_context(app):
            raise AssertionError("it was started")

    with pytest.raises(DefinitionError, match="needs a server on asyncio"):
        trio.run(start)
