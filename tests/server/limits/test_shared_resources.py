"""Memory and threads that all callers share, over HTTP."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.from_thread
import anyio.to_thread
import httpx
import pytest

from bridge.server import http_app
from bridge.server.http import requests
from bridge.server.server import Server
from bridge.tools.function import tool
from bridge.tools.threads import DEFAULT_THREADS, set_thread_limit
from bridge.tools.toolbox import ToolBox
from tests.server import http_server as http
from tests.server.auth.guarded import ADA, BOB, Modern, Sse, talking
from tests.server.limits.test_over_http import ARGUMENTS, BOTH_WAYS, DEADLINE_SECONDS, KEYS, add, told

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize("kind", ["modern", "handshake", "sse"])
@BOTH_WAYS
@pytest.mark.parametrize("value", ["x" * 1500, [[]] * 8], ids=["long", "of many values"])
def test_requests_of_one_caller_that_take_memory_leave_some_to_others(
    value: str | list[list[int]], kind: str, monkeypatch: pytest.MonkeyPatch, http_kind: str
) -> None:
    monkeypatch.setattr(requests, "MAX_BODY_BYTES_OF_ALL", 16_000)
    monkeypatch.setattr(requests, "UNCOUNTED_BODY_BYTES", 1000)
    go_on, news, answers = threading.Event(), threading.Semaphore(0), list[httpx.Response]()

    @tool
    async def hold(value: str | list[list[int]]) -> str:
        """Wait."""
        news.release()
        while not go_on.is_set():
            await anyio.to_thread.run_sync(go_on.wait, 0.01)
        return f"held {len(value)}"

    def send(peer: Modern, number: int) -> None:
        answers.append(peer.send(http.call("hold", {"value": value}) | {"id": number}))
        news.release()

    app = http_app(ToolBox(add, hold), auth=KEYS, max_request_bytes=2000)
    with (
        http.serving(app, http=http_kind) as origin,
        talking(kind, origin, ADA) as ada,
        talking(kind, origin, BOB) as bob,
        anyio.from_thread.start_blocking_portal() as portal,
    ):
        try:
            for number in range(10, 18):
                if isinstance(ada, Sse):
                    if not (answer := ada.send(http.call("hold", {"value": value}) | {"id": number})).is_success:
                        answers.append(answer)
                        news.release()
                else:
                    portal.start_task_soon(anyio.to_thread.run_sync, send, ada, number)
                assert news.acquire(timeout=DEADLINE_SECONDS)
                if answers:
                    break
            error = http.answer(answers[0])["error"]
            assert (error["code"], error["data"]) == (-32005, {"limit": "--max-request-bytes", "retryAfterSeconds": 1})
            assert told(bob.ask(http.call("add", ARGUMENTS) | {"id": 30})) == "3"
        finally:
            go_on.set()
        assert told(bob.ask(http.call("hold", {"value": value}) | {"id": 31})) == f"held {len(value)}"
    assert len(answers) < 8


@pytest.mark.skipif(sys.platform != "linux", reason="only there every address of 127.0.0.0/8 is this machine's")
@BOTH_WAYS
def test_while_all_threads_are_busy_addresses_take_turns(http_kind: str) -> None:
    go_on, started, ran = threading.Event(), threading.Semaphore(0), list[str]()

    @tool
    def hold(name: str) -> str:
        """Wait in a thread."""
        started.release()
        assert go_on.wait(DEADLINE_SECONDS)
        ran.append(name)
        return name

    def client_at(address: str) -> httpx.Client:
        return httpx.Client(timeout=20, transport=httpx.HTTPTransport(local_address=address))

    server = Server(ToolBox(hold), name="threads")

    @contextmanager
    def one_thread() -> Iterator[None]:
        set_thread_limit(1)
        try:
            yield
        finally:
            set_thread_limit(DEFAULT_THREADS)

    with (
        one_thread(),
        http.serving(http_app(server), http=http_kind) as origin,
        client_at("127.0.0.1") as here,
        client_at("127.0.0.2") as there,
        ThreadPoolExecutor(8) as threads,
    ):
        one, other = Modern(here, origin, {}), Modern(there, origin, {})
        calls = []
        for number, (peer, name) in enumerate([*[(one, f"one {each}") for each in range(4)], (other, "other")], 11):
            calls.append(threads.submit(peer.send, http.call("hold", {"name": name}) | {"id": number}))
            while len(server.running) < len(calls):  # it waits for a thread, after those before it
                assert not calls[-1].done()
        assert started.acquire(timeout=DEADLINE_SECONDS)
        go_on.set()
        assert [call.result(DEADLINE_SECONDS).status_code for call in calls] == [200] * 5
    assert ran == ["one 0", "one 1", "other", "one 2", "one 3"]
