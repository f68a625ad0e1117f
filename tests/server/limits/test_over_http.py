"""Limits over HTTP, in every era and transport, with and without keys, before ASGI and in ASGI."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.to_thread
import httpx
import pytest
from pydantic_core import to_json

from bridge.server import http_app
from bridge.server.auth import ApiKey, ApiKeys
from bridge.server.limits import Limits, Rate, guard
from bridge.server.server import Server
from bridge.tools.context import InvocationContext  # noqa: TC001 - read when the tools are made
from bridge.tools.function import tool
from bridge.tools.toolbox import ToolBox
from tests.server import http_server as http
from tests.server.auth.guarded import ADA, BOB, Handshake, Modern, Sse, bearer, talking

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_SECONDS = 60
ARGUMENTS = {"a": 1, "b": 2}
KEYS = ApiKeys(ApiKey("ada", ADA), ApiKey("bob", BOB))


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def name_of(context: InvocationContext) -> str:
    """Return the caller, after a progress report."""
    return "" if context.caller is None else context.caller.name


@tool
async def many(count: int) -> str:
    """Return much text."""
    return "x" * count


class Held:
    """A tool that runs until it is released."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.started = threading.Semaphore(0)
        self.runs = 0

    def tool(self) -> Any:
        @tool
        async def hold() -> str:
            """Wait."""
            self.runs += 1
            self.started.release()
            while not self.go_on.is_set():
                await anyio.to_thread.run_sync(self.go_on.wait, 0.01)
            return "done"

        return hold


@contextmanager
def served(limits: Limits, *more: Any, http_kind: str = "direct", **options: Any) -> Iterator[str]:
    app = http_app(Server(ToolBox(add, name_of, many, *more), name="bridge", limits=limits), auth=KEYS, **options)
    with http.serving(app, http=http_kind) as origin:
        yield origin


@pytest.fixture(autouse=True)
def _refusals_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "HOLD_SECONDS", 0)


def told(answer: dict[str, Any]) -> str:
    text: str = answer["result"]["content"][0]["text"]
    return text


BOTH_WAYS = pytest.mark.parametrize("http_kind", ["direct", "httptools"])
"""Calls are started before ASGI, and in ASGI."""


@pytest.mark.parametrize("http_kind", ["direct", "httptools", "h11"])
@pytest.mark.parametrize("name", ["add", "name_of"])
def test_over_its_rate_a_caller_is_answered_429_and_another_is_not(http_kind: str, name: str) -> None:
    limits = Limits(rate=Rate(3, 600))
    arguments = ARGUMENTS if name == "add" else {}
    with (
        served(limits, http_kind=http_kind) as origin,
        talking("modern", origin, ADA) as ada,
        talking("modern", origin, BOB) as bob,
    ):
        answers = [ada.send(http.call(name, arguments)) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200] * 3 + [429] * 2
        refused = answers[-1]
        assert 1 <= int(refused.headers["retry-after"]) <= 200
        error = refused.json()["error"]
        assert error["data"] == {"limit": "--rate", "retryAfterSeconds": int(refused.headers["retry-after"])}
        assert error["message"].startswith("too many requests: a caller has 3 in 600 s; try again in ")
        assert [bob.send(http.call(name, arguments)).status_code for _ in range(3)] == [200] * 3


def test_without_keys_a_caller_is_its_address() -> None:
    app = http_app(Server(ToolBox(add), name="bridge", limits=Limits(rate=Rate(2, 600))))
    with http.serving(app, http="direct") as origin, ExitStack() as stack:
        codes = []
        for address in ("127.0.0.1", "127.0.0.2"):
            transport = httpx.HTTPTransport(local_address=address)
            client = stack.enter_context(httpx.Client(timeout=DEADLINE_SECONDS, transport=transport))
            peer = Modern(client, origin, {})
            codes.append([peer.send(http.call("add", ARGUMENTS)).status_code for _ in range(3)])
    assert codes == [[200, 200, 429]] * 2


@pytest.mark.parametrize("kind", ["handshake", "sse"])
def test_messages_in_sessions_are_counted_the_opening_ones_among_them(kind: str) -> None:
    with served(Limits(rate=Rate(6, 600))) as origin, talking(kind, origin, ADA) as ada:
        opening = 3 if kind == "sse" else 2
        codes = [ada.send(http.call("add", ARGUMENTS)).status_code for _ in range(6 - opening + 1)]
        assert codes[:-1] == [202 if kind == "sse" else 200] * (6 - opening)
        assert codes[-1] == 429


def test_of_a_request_over_a_limit_the_body_is_not_read() -> None:
    with served(Limits(rate=Rate(1, 600))) as origin, talking("modern", origin, ADA) as ada:
        ada.send(http.call("add", ARGUMENTS))
        headers = http.HEADERS | bearer(ADA)
        answer = ada.client.post(f"{origin}/mcp", content=b"this is not JSON", headers=headers)
        assert answer.status_code == 429


@pytest.mark.parametrize("kind", ["modern", "handshake", "sse"])
@BOTH_WAYS
def test_over_the_rate_of_a_tool_a_call_fails_and_says_when_to_try_again(kind: str, http_kind: str) -> None:
    limits = Limits(tool_rates={"a*": Rate(2, 600)})
    with (
        served(limits, http_kind=http_kind) as origin,
        talking(kind, origin, ADA) as ada,
        talking(kind, origin, BOB) as bob,
    ):
        answers = [ada.ask(http.call("add", ARGUMENTS)) for _ in range(3)]
        assert [answer["result"]["isError"] for answer in answers] == [False, False, True]
        assert told(answers[-1]) == "'add' was called too often: a caller has 2 in 600 s; try again in 300 seconds"
        assert answers[-1]["result"]["_meta"]["io.github.mcp-toolbridge/retryAfterSeconds"] == 300
        assert told(ada.ask(http.call("name_of"))) == "ada"
        assert told(bob.ask(http.call("add", ARGUMENTS))) == "3"


@pytest.mark.parametrize("kind", ["modern", "handshake", "sse"])
def test_calls_at_once_are_limited_for_each_caller(kind: str) -> None:
    held = Held()
    with (
        served(Limits(concurrency=2), held.tool()) as origin,
        talking(kind, origin, ADA) as ada,
        talking(kind, origin, BOB) as bob,
        anyio.from_thread.start_blocking_portal() as portal,
    ):
        try:
            calls = [portal.start_task_soon(anyio.to_thread.run_sync, _sending(ada, number)) for number in (11, 12)]
            for _ in calls:
                assert held.started.acquire(timeout=DEADLINE_SECONDS)
            refused = ada.send(http.call("add", ARGUMENTS) | {"id": 13})
            if kind == "modern":
                assert refused.status_code == 429
                assert refused.headers["retry-after"] == "1"
            elif kind == "handshake":
                assert (
                    told(http.answer(refused))
                    == "too many calls at once: a caller has 2 at once; try again in 1 second"
                )
            assert told(bob.ask(http.call("add", ARGUMENTS))) == "3"
        finally:
            held.go_on.set()
        assert [call.result(DEADLINE_SECONDS).is_success for call in calls] == [True, True]
        if isinstance(ada, Sse):
            answers = [next(http.events(ada.lines)) for _ in range(3)]
            assert [each["id"] for each in answers if each["result"]["isError"]] == [13]
        assert told(ada.ask(http.call("add", ARGUMENTS) | {"id": 14})) == "3"
    assert held.runs == 2


@pytest.mark.parametrize("kind", ["modern", "handshake", "sse"])
@BOTH_WAYS
def test_calls_that_wait_are_limited_for_all_callers_together_and_who_has_many_leaves_some_to_others(
    kind: str, http_kind: str
) -> None:
    held = Held()
    server = Server(ToolBox(add, held.tool()), name="limited", max_calls=4)
    with (
        http.serving(http_app(server, auth=KEYS), http=http_kind) as origin,
        talking("modern", origin, ADA) as ada,
        talking("handshake", origin, ADA) as ada_too,
        talking(kind, origin, ADA) as ada_again,
        talking(kind, origin, BOB) as bob,
        anyio.from_thread.start_blocking_portal() as portal,
    ):
        try:
            calls = [portal.start_task_soon(anyio.to_thread.run_sync, _sending(each, 11)) for each in (ada, ada_too)]
            for _ in calls:
                assert held.started.acquire(timeout=DEADLINE_SECONDS)
            refused = ada_again.ask(http.call("hold"))["error"]
            assert refused["message"].startswith("too many calls: the server has 4 at once for all callers;")
            assert (refused["code"], refused["data"]) == (-32005, {"limit": "--max-calls", "retryAfterSeconds": 1})
            assert ada_again.ask(http.call("nothing") | {"id": 2})["error"]["code"] == -32602
            assert told(bob.ask(http.call("add", ARGUMENTS))) == "3"
        finally:
            held.go_on.set()
        assert [call.result(DEADLINE_SECONDS).is_success for call in calls] == [True, True]
        assert told(ada_again.ask(http.call("add", ARGUMENTS) | {"id": 3})) == "3"
    assert held.runs == 2


@pytest.mark.skipif(sys.platform != "linux", reason="only there every address of 127.0.0.0/8 is this machine's")
@BOTH_WAYS
def test_without_keys_who_calls_from_one_address_leaves_calls_to_other_addresses(http_kind: str) -> None:
    held = Held()
    server = Server(ToolBox(add, held.tool()), name="limited", max_calls=4)

    def client_at(address: str) -> httpx.Client:
        return httpx.Client(timeout=20, transport=httpx.HTTPTransport(local_address=address))

    with (
        http.serving(http_app(server), http=http_kind) as origin,
        client_at("127.0.0.1") as here,
        client_at("127.0.0.2") as there,
        anyio.from_thread.start_blocking_portal() as portal,
    ):
        one, other = Modern(here, origin, {}), Modern(there, origin, {})
        try:
            calls = [portal.start_task_soon(anyio.to_thread.run_sync, _sending(one, number)) for number in (11, 12)]
            for _ in calls:
                assert held.started.acquire(timeout=DEADLINE_SECONDS)
            refused = one.ask(http.call("add", ARGUMENTS))["error"]
            assert (refused["code"], refused["data"]) == (-32005, {"limit": "--max-calls", "retryAfterSeconds": 1})
            assert told(other.ask(http.call("add", ARGUMENTS))) == "3"
        finally:
            held.go_on.set()
        assert [call.result(DEADLINE_SECONDS).is_success for call in calls] == [True, True]


def _sending(peer: Modern, number: int) -> Any:
    return lambda: peer.send(http.call("hold") | {"id": number})


def test_who_hangs_up_does_not_get_around_the_calls_at_once() -> None:
    held = Held()
    with (
        served(Limits(concurrency=1), held.tool(), http_kind="httptools") as origin,
        httpx.Client(timeout=20) as client,
    ):
        ada = Handshake(client, origin, bearer(ADA))
        try:
            with http.posted(ada.url, http.call("hold"), ada.headers | ada.credential):
                assert held.started.acquire(timeout=DEADLINE_SECONDS)
            answer = ada.ask(http.call("hold") | {"id": 2})
            assert told(answer).startswith("too many calls at once")
        finally:
            held.go_on.set()
    assert held.runs == 1


def test_who_hangs_up_while_a_call_runs_is_not_counted_any_more() -> None:
    held = Held()
    with served(Limits(concurrency=1), held.tool()) as origin, httpx.Client(timeout=20) as client:
        ada = Modern(client, origin, bearer(ADA))
        ada.ask(http.call("add", ARGUMENTS))  # the credential is known from here on
        try:
            message = http.modern(http.call("hold"))
            with http.posted(ada.url, message, http.modern_headers(message) | ada.credential):
                assert held.started.acquire(timeout=DEADLINE_SECONDS)
            with anyio.from_thread.start_blocking_portal() as portal:
                portal.call(_until_it_is_let_in, ada)
        finally:
            held.go_on.set()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_request_is_not_counted_any_more_when_its_client_gets_the_response() -> None:
    app = http_app(Server(ToolBox(add), name="bridge", limits=Limits(concurrency=1)))
    message = http.modern(http.call("add", ARGUMENTS))
    statuses: list[int] = []

    async def ask(app: Any) -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            response = await client.post("/mcp", json=message, headers=http.modern_headers(message))
            statuses.append(response.status_code)

    async def asked_again(scope: Any, receive: Any, send: Any) -> None:
        async def sent(part: Any) -> None:
            if part["type"] == "http.response.body" and not part.get("more_body"):
                await ask(app)  # the next request, while this one's function has not returned
            await send(part)

        await app(scope, receive, sent)

    async with app.router.lifespan_context(app):
        await ask(asked_again)
    assert statuses == [200, 200]


async def _until_it_is_let_in(peer: Modern) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        while peer.send(http.call("add", ARGUMENTS)).status_code == 429:
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("kind", ["modern", "handshake", "sse"])
@BOTH_WAYS
def test_a_result_over_its_limit_is_an_error_that_says_how_long_it_was(kind: str, http_kind: str) -> None:
    with served(Limits(max_result_bytes=400), http_kind=http_kind) as origin, talking(kind, origin, ADA) as ada:
        empty = {"content": [{"type": "text", "text": ""}], "isError": False}
        shell = len(to_json(empty | ({"resultType": "complete"} if kind == "modern" else {})))
        assert told(ada.ask(http.call("many", {"count": 400 - shell}))) == "x" * (400 - shell)
        answer = ada.ask(http.call("many", {"count": 401 - shell}))
        assert answer["result"]["isError"] is True
        assert told(answer) == "the result of 'many' has 401 bytes, and may have 400: ask for less"


@pytest.mark.parametrize("kind", ["modern", "handshake", "sse"])
@BOTH_WAYS
def test_the_result_of_a_tool_has_the_smallest_of_its_limits(kind: str, http_kind: str) -> None:
    limits = Limits(max_result_bytes=10_000, tool_result_bytes={"many": 500, "m*": 400, "add": 10})
    with served(limits, http_kind=http_kind) as origin, talking(kind, origin, ADA) as ada:
        assert told(ada.ask(http.call("many", {"count": 100}))) == "x" * 100
        assert told(ada.ask(http.call("many", {"count": 450}))).endswith("and may have 400: ask for less")
        assert told(ada.ask(http.call("add", ARGUMENTS))).endswith("and may have 10: ask for less")
        assert told(ada.ask(http.call("name_of", {}))) == "ada"


def test_streams_of_one_caller_are_limited() -> None:
    with (
        served(Limits(max_streams=1)) as origin,
        talking("sse", origin, ADA) as ada,
        talking("sse", origin, BOB),
    ):
        refused = ada.client.get(f"{origin}/sse", headers=bearer(ADA))
        assert refused.status_code == 429
        assert refused.json()["error"]["data"]["limit"] == "--max-streams"


def test_a_flood_of_one_caller_costs_another_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(Limits(rate=Rate(50, 600), concurrency=4)) as origin, talking("modern", origin, BOB) as bob:
        codes: list[int] = []
        is_over = threading.Event()

        def flood() -> None:
            with talking("modern", origin, ADA) as ada:
                while not is_over.is_set():
                    codes.append(ada.send(http.call("add", ARGUMENTS)).status_code)

        threads = [threading.Thread(target=flood) for _ in range(8)]
        for thread in threads:
            thread.start()
        try:
            honest = [told(bob.ask(http.call("add", ARGUMENTS))) for _ in range(50)]
        finally:
            is_over.set()
            for thread in threads:
                thread.join(DEADLINE_SECONDS)
        assert honest == ["3"] * 50
        assert codes.count(200) <= 50
        assert set(codes) <= {200, 429}
