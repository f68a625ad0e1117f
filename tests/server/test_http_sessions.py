"""Sessions of the handshake era over real HTTP: the end of calls and sessions, credentials, and ids in use."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import httpx
import pytest
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend
from mcp.server.auth.provider import AccessToken
from starlette.middleware.authentication import AuthenticationMiddleware

from bridge.server import http_app
from bridge.server.http.sessions import HttpSession
from bridge.tools.function import tool
from bridge.tools.schema.parameters import ToolMemoryId
from bridge.tools.toolbox import ToolBox
from tests.server.http_mutations import Sessions, handshake
from tests.server.http_mutations import modern as modern_draft
from tests.server.http_server import HEADERS, answer, call, initialize, notification, open_session, request
from tests.server.tools import Holding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.applications import Starlette

DEADLINE_SECONDS = 60
IDLE_SECONDS = 1.0
ABANDONED = 20
NOT_FOUND = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "Session not found"}}
CANCELLED = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32800, "message": "Request cancelled"}}


@tool
async def whose(memory: Annotated[Any, ToolMemoryId]) -> str:
    """Return the caller."""
    return f"{memory}"


@tool
async def tasks() -> int:
    """Return the number of tasks of the server's event loop."""
    return len(asyncio.all_tasks())


@pytest.fixture
def holding() -> Holding:
    return Holding()


@pytest.fixture
def app(holding: Holding) -> Starlette:
    return http_app(ToolBox(holding.tool, whose))


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=DEADLINE_SECONDS) as client:
        yield client


HTTP = pytest.mark.parametrize("http", ["h11", "direct"])
"""In ASGI, and before ASGI."""


@HTTP
def test_a_call_is_ended_by_the_notification_that_cancels_it(
    serving: Callable[..., str], app: Starlette, holding: Holding, client: httpx.Client, http: str
) -> None:
    url = serving(app, http=http) + "/mcp"
    headers = open_session(client, url)
    with ThreadPoolExecutor() as threads:
        held = threads.submit(client.post, url, json=call("hold"), headers=headers)
        assert holding.started.wait(DEADLINE_SECONDS)
        cancelled = notification("notifications/cancelled", {"requestId": 1})
        client.post(url, json=cancelled, headers=headers).raise_for_status()
        response = held.result(DEADLINE_SECONDS)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert answer(response) == CANCELLED
    assert holding.cancelled.is_set()
    assert answer(client.post(url, json=request("ping"), headers=headers))["result"] == {}


@HTTP
def test_the_calls_of_a_session_end_with_its_delete_and_then_nobody_knows_it(
    serving: Callable[..., str], app: Starlette, holding: Holding, client: httpx.Client, http: str
) -> None:
    url = serving(app, http=http) + "/mcp"
    headers, other = open_session(client, url), open_session(client, url)
    with ThreadPoolExecutor() as threads:
        held = threads.submit(client.post, url, json=call("hold"), headers=headers)
        assert holding.started.wait(DEADLINE_SECONDS)
        assert client.delete(url, headers=headers).status_code == 200
        assert answer(held.result(DEADLINE_SECONDS)) == CANCELLED
    assert holding.cancelled.is_set()
    response = client.post(url, json=request("ping"), headers=headers)
    assert (response.status_code, response.json()) == (404, NOT_FOUND)
    assert answer(client.post(url, json=request("ping"), headers=other))["result"] == {}


@HTTP
def test_a_client_of_the_handshake_era_that_goes_does_not_end_its_call(
    serving: Callable[..., str], app: Starlette, holding: Holding, client: httpx.Client, http: str
) -> None:
    origin = serving(app, http=http)
    session = open_session(client, origin + "/mcp")["mcp-session-id"]
    with socket.create_connection(("127.0.0.1", httpx.URL(origin).port or 0), DEADLINE_SECONDS) as connection:
        connection.sendall(handshake(Sessions(session, "", ""), call("hold")).raw)
        assert holding.started.wait(DEADLINE_SECONDS)
    holding.let_go()
    assert holding.finished.wait(DEADLINE_SECONDS)
    assert not holding.cancelled.is_set()


@pytest.mark.parametrize("parser", ["h11", "httptools", "direct"])
def test_a_client_of_the_modern_era_that_goes_ends_its_call(
    serving: Callable[..., str],
    app: Starlette,
    holding: Holding,
    client: httpx.Client,
    errors: Callable[[], list[str]],
    parser: str,
) -> None:
    origin = serving(app, http=parser)
    with socket.create_connection(("127.0.0.1", httpx.URL(origin).port or 0), DEADLINE_SECONDS) as connection:
        connection.sendall(modern_draft("tools/call", name="hold", arguments={}).raw)
        assert holding.started.wait(DEADLINE_SECONDS)
    assert holding.cancelled.wait(DEADLINE_SECONDS)
    headers = open_session(client, origin + "/mcp")
    assert answer(client.post(origin + "/mcp", json=request("ping"), headers=headers))["result"] == {}
    assert errors() == []


def test_a_session_may_agree_anew(serving: Callable[..., str], app: Starlette, client: httpx.Client) -> None:
    url = serving(app) + "/mcp"
    headers = open_session(client, url)
    assert answer(client.post(url, json=request("ping"), headers=headers))["result"] == {}
    again = initialize()
    again["params"]["protocolVersion"] = "2025-06-18"
    agreed = client.post(url, json=again, headers=headers)
    assert answer(agreed)["result"]["protocolVersion"] == "2025-06-18"
    assert agreed.headers["mcp-session-id"] == headers["mcp-session-id"]
    response = client.post(url, json=request("ping"), headers=headers | {"mcp-protocol-version": "2025-06-18"})
    assert answer(response)["result"] == {}


# --- idleness --------------------------------------------------------------------------------------------------------


class Ends:
    """Records the sessions that end."""

    def __init__(self) -> None:
        self._ended = set[str]()
        self._heard = threading.Condition()

    def add(self, session_id: str) -> None:
        with self._heard:
            self._ended.add(session_id)
            self._heard.notify_all()

    def __contains__(self, headers: dict[str, str]) -> bool:
        return headers["mcp-session-id"] in self._ended

    def wait_for(self, headers: dict[str, str]) -> None:
        with self._heard:
            assert self._heard.wait_for(lambda: headers in self, DEADLINE_SECONDS)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Ends:
    ends, close = Ends(), HttpSession.close

    def noted(session: HttpSession) -> None:
        close(session)
        ends.add(session.id)

    monkeypatch.setattr(HttpSession, "close", noted)
    return ends


def test_a_session_ends_when_nothing_of_it_is_under_way_for_its_time(
    serving: Callable[..., str], holding: Holding, client: httpx.Client, ends: Ends
) -> None:
    url = serving(http_app(ToolBox(holding.tool), session_idle_seconds=IDLE_SECONDS)) + "/mcp"
    with ThreadPoolExecutor() as threads:
        calling, listening = open_session(client, url), open_session(client, url)
        held = threads.submit(client.post, url, json=call("hold"), headers=calling)
        with client.stream("GET", url, headers=listening) as news:
            assert news.status_code == 200
            assert holding.started.wait(DEADLINE_SECONDS)
            unused = open_session(client, url)
            ends.wait_for(unused)
            assert calling not in ends
            assert listening not in ends
            assert answer(client.post(url, json=request("ping"), headers=listening))["result"] == {}
            holding.let_go()
            assert answer(held.result(DEADLINE_SECONDS))["result"]["content"][0]["text"] == "released"
    for headers in (calling, listening):
        ends.wait_for(headers)
    for headers in (unused, calling, listening):
        response = client.post(url, json=request("ping"), headers=headers)
        assert (response.status_code, response.json()) == (404, NOT_FOUND)


@HTTP
def test_a_call_keeps_its_session_in_use_when_nobody_waits_for_its_answer(
    serving: Callable[..., str], holding: Holding, client: httpx.Client, ends: Ends, http: str
) -> None:
    origin = serving(http_app(ToolBox(holding.tool), session_idle_seconds=IDLE_SECONDS), http=http)
    headers = open_session(client, origin + "/mcp")
    raw = handshake(Sessions(headers["mcp-session-id"], "", ""), call("hold")).raw
    with socket.create_connection(("127.0.0.1", httpx.URL(origin).port or 0), DEADLINE_SECONDS) as connection:
        connection.sendall(raw)
        assert holding.started.wait(DEADLINE_SECONDS)
    ends.wait_for(open_session(client, origin + "/mcp"))  # an unused one, which was opened later
    assert headers not in ends
    holding.let_go()
    assert holding.finished.wait(DEADLINE_SECONDS)
    assert not holding.cancelled.is_set()
    ends.wait_for(headers)


def test_an_opening_that_failed_leaves_no_session_and_one_that_nobody_heard_of_ends(
    serving: Callable[..., str], client: httpx.Client, ends: Ends
) -> None:
    url = serving(http_app(ToolBox(whose), session_idle_seconds=IDLE_SECONDS / 10)) + "/mcp"
    wrong = client.post(url, json=request("initialize", {"protocolVersion": "2025-11-25"}), headers=HEADERS)
    assert "error" in answer(wrong)
    assert "mcp-session-id" not in wrong.headers
    with client.stream("POST", url, json=initialize(), headers=HEADERS) as unheard:
        session = {"mcp-session-id": unheard.headers["mcp-session-id"]}
    ends.wait_for(session)


@HTTP
def test_abandoned_sessions_have_no_tasks(serving: Callable[..., str], client: httpx.Client, http: str) -> None:
    url = serving(http_app(ToolBox(tasks)), http=http) + "/mcp"

    def running(headers: dict[str, str]) -> int:
        return int(answer(client.post(url, json=call("tasks"), headers=headers))["result"]["content"][0]["text"])

    used = open_session(client, url)
    before = running(used)
    for _ in range(ABANDONED):
        running(open_session(client, url))
    assert running(used) < before + ABANDONED / 2  # connections and the first step of a call have some


# --- credentials -----------------------------------------------------------------------------------------------------


class Verifier:
    """Verifier that accepts each token as the name of its caller."""

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="tests", scopes=[], subject=token) if token else None


@pytest.mark.parametrize("way", ["of a program's middleware", "h11", "direct"])
def test_a_session_is_found_by_the_credential_that_opened_it_alone(
    serving: Callable[..., str], client: httpx.Client, way: str
) -> None:
    is_ours = way in {"h11", "direct"}
    app = http_app(ToolBox(whose), auth=Verifier() if is_ours else None)
    if not is_ours:
        app.add_middleware(AuthenticationMiddleware, backend=BearerAuthBackend(Verifier()))
    url = serving(app, http=way if is_ours else "h11") + "/mcp"
    alice, bob = ({"authorization": f"Bearer {name}"} for name in ("alice", "bob"))
    client.headers.update(alice)
    headers = open_session(client, url)

    def ask(credential: dict[str, str]) -> httpx.Response:
        client.headers.pop("authorization", None)
        return client.post(url, json=call("whose"), headers=headers | credential)

    expected = "alice" if is_ours else headers["mcp-session-id"]
    assert answer(ask(alice))["result"]["content"] == [{"type": "text", "text": expected}]
    response = ask(bob)
    assert (response.status_code, response.json()) == (404, NOT_FOUND)
    assert ask({}).status_code == (401 if is_ours else 404)
    cancel = notification("notifications/cancelled", {"requestId": 1})
    assert client.post(url, json=cancel, headers=headers | bob).status_code == 404
    assert client.delete(url, headers=headers | bob).status_code == 404
    assert ask(alice).status_code == 200
    assert client.delete(url, headers=headers | alice).status_code == 200
    assert ask(alice).status_code == 404


@HTTP
def test_each_of_five_calls_of_one_id_is_answered_or_refused(
    serving: Callable[..., str], client: httpx.Client, http: str
) -> None:
    started, go_on = threading.Semaphore(0), threading.Event()

    @tool
    async def wait(number: int) -> int:
        """Wait."""
        started.release()
        while not go_on.is_set():
            await anyio.to_thread.run_sync(go_on.wait, 0.01)
        return number

    url = serving(http_app(ToolBox(wait)), http=http) + "/mcp"
    headers = open_session(client, url)
    with ThreadPoolExecutor() as threads:
        calls, refused = [], 0
        for number in range(5):
            calls.append(threads.submit(client.post, url, json=call("wait", {"number": number}), headers=headers))
            while not started.acquire(timeout=0.01):
                if calls[-1].done():
                    refused += 1
                    break
        go_on.set()
        answers = [each.result(DEADLINE_SECONDS) for each in calls]
    results = [answer(each)["result"]["content"][0]["text"] for each in answers if each.status_code == 200]
    assert results == [str(number) for number in range(5 - refused)]
    refusals = [each.json()["error"] for each in answers if each.status_code == 400]
    assert len(refusals) == refused == 4
    assert all("a request of this session with the id 1 still runs" in each["message"] for each in refusals)
    again = client.post(url, json=call("wait", {"number": 7}), headers=headers)
    assert answer(again)["result"]["content"][0]["text"] == "7"


def test_an_id_that_is_a_book_is_refused(serving: Callable[..., str], app: Starlette, client: httpx.Client) -> None:
    url = serving(app) + "/mcp"
    body = request("logging/setLevel", {"level": "debug"}, request_id="x" * 1025)
    refused = client.post(url, json=body, headers=open_session(client, url))
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32600)
