from __future__ import annotations

import signal
import sys
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client, MCPError
from mcp.client.sse import sse_client
from mcp_types import ElicitResult

from tests.cli.draining import DEADLINE_SECONDS, ROUTES, ended, heard, holding, port_of, refused, served
from tests.cli.test_serve_http import HEADERS, OPENING
from tests.server.http_server import call, events, modern, modern_headers, open_session, request

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's"),
]

LISTEN = modern(request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, request_id="news"))
LIST = modern(request("tools/list"))


@pytest.mark.parametrize("route", ROUTES)
async def test_a_call_that_runs_is_answered_before_the_server_ends(route: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with served() as server, holding(server, route) as held:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(held.call)
                running = await held.hearing.running()
                server.process.send_signal(signal.SIGTERM)
                await refused(server)
                await running.send(b"done")
            assert await ended(server) == 0
        assert held.endings == [("result", "done")]
        assert "draining; running calls: 1" in server.log
        assert "Traceback" not in server.log


@pytest.mark.parametrize(
    "numbers", [(signal.SIGHUP,), (signal.SIGTERM, signal.SIGHUP)], ids=["a terminal", "a service manager"]
)
async def test_a_hangup_drains_the_server_too(numbers: tuple[signal.Signals, ...]) -> None:
    route = next(iter(ROUTES))
    with anyio.fail_after(DEADLINE_SECONDS):
        async with served() as server, holding(server, route) as held:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(held.call)
                running = await held.hearing.running()
                for number in numbers:
                    server.process.send_signal(number)
                    await refused(server)
                await running.send(b"done")
            assert await ended(server) == 0
        assert held.endings == [("result", "done")]


@pytest.mark.parametrize("route", ROUTES)
async def test_a_call_that_outlasts_the_drain_is_answered_by_an_error(route: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with served("--drain-timeout", "0.2") as server, holding(server, route) as held:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(held.call)
                await held.hearing.running()
                server.process.send_signal(signal.SIGTERM)
            assert await ended(server) == 0
        ((kind, words),) = held.endings
        assert kind == "error"
        assert "its outcome is unknown" in words
        assert "cancelled 1 call that still ran after 0.2 seconds of draining" in server.log
        assert "Traceback" not in server.log


@pytest.mark.parametrize("path", ["mcp", "sse"])
async def test_what_a_call_asks_its_client_is_answered_while_the_server_drains(path: str) -> None:
    """The answer is sent in another request, possibly over a new connection."""
    with anyio.fail_after(DEADLINE_SECONDS):
        async with served() as server:

            async def answered(context: Any, params: Any) -> ElicitResult:
                server.process.send_signal(signal.SIGTERM)
                async with httpx.AsyncClient(base_url=server.origin) as probe:
                    while (await probe.get("/readyz")).status_code == 200:
                        pass
                return ElicitResult(action="accept", content={"name": "Ada"})

            url = f"{server.origin}/{path}"
            transport = sse_client(url) if path == "sse" else url
            async with Client(transport, mode="legacy", elicitation_callback=answered) as client:
                await client.list_tools()  # otherwise the call requests the list after its result
                assert (await client.call_tool("ask", {})).content[0].text == "Hello Ada"  # type: ignore[union-attr]  # it is a text
            assert await ended(server) == 0


async def test_who_does_not_answer_what_is_asked_holds_the_end_up_no_longer_than_the_drain() -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with served("--drain-timeout", "0.2") as server:

            async def silent(context: Any, params: Any) -> ElicitResult:
                server.process.send_signal(signal.SIGTERM)
                await anyio.sleep_forever()
                raise AssertionError

            url = f"{server.origin}/mcp"
            async with Client(url, mode="legacy", elicitation_callback=silent) as client:
                with pytest.raises(MCPError, match="its outcome is unknown"):
                    await client.call_tool("ask", {})
            assert await ended(server) == 0


async def test_new_calls_are_served_during_the_delay_by_connections_that_close() -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with (
            served("--drain-delay", "29", "--drain-timeout", "0.5") as server,
            httpx.AsyncClient(base_url=server.origin) as client,
        ):
            before = await client.get("/readyz")
            assert (before.status_code, before.json()) == (200, {"ready": True, "missing": []})
            assert "connection" not in before.headers
            server.process.send_signal(signal.SIGTERM)
            while (ready := await client.get("/readyz")).status_code == 200:
                pass
            assert (ready.status_code, ready.json()["missing"]) == (503, ["it is draining"])
            assert (await client.get("/healthz")).status_code == 200
            for message, headers in ((LIST, modern_headers(LIST)), (OPENING, HEADERS)):
                answer = await client.post("/mcp", json=message, headers=headers)
                assert (answer.status_code, answer.headers["connection"]) == (200, "close")
            server.process.send_signal(signal.SIGTERM)
            assert await ended(server) == 128 + signal.SIGTERM
        assert "received a second signal; exiting at once" in server.log


async def test_a_second_signal_ends_it_at_once_though_a_call_runs() -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with served() as server, heard() as hearing, httpx.AsyncClient(base_url=server.origin) as client:

            async def call_in_vain() -> None:
                message = modern(call("hold", {"port": hearing.port}))
                with pytest.raises(httpx.TransportError):
                    await client.post("/mcp", json=message, headers=modern_headers(message), timeout=None)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call_in_vain)
                await hearing.running()
                server.process.send_signal(signal.SIGTERM)
                await refused(server)
                server.process.send_signal(signal.SIGINT)
                assert await ended(server) == 128 + signal.SIGINT


async def test_streams_without_answers_end_at_once_a_subscription_with_its_result() -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with served() as server, holding(server, "modern") as held, anyio.create_task_group() as tasks:
            tasks.start_soon(held.call)
            running = await held.hearing.running()  # which keeps the server from ending
            with httpx.Client(base_url=server.origin) as opening:
                headers = open_session(opening, "/mcp")
            async with (
                httpx.AsyncClient(base_url=server.origin, timeout=None) as client,
                client.stream("POST", "/mcp", json=LISTEN, headers=modern_headers(LISTEN)) as listen,
                client.stream("GET", "/mcp", headers=headers) as get,
                client.stream("GET", "/sse") as sse,
            ):
                server.process.send_signal(signal.SIGTERM)
                lines = [[line async for line in stream.aiter_lines()] for stream in (listen, get, sse)]
            acknowledged, result = events(iter(lines[0]))
            assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
            assert (result["id"], "result" in result) == ("news", True)
            assert list(events(iter(lines[1]))) == []
            assert lines[2][0] == "event: endpoint"
            assert server.process.poll() is None
            await running.send(b"done")
            assert await ended(server) == 0
            assert "Traceback" not in server.log


async def test_a_request_on_its_way_is_answered_and_idle_connections_are_closed() -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with served() as server, await anyio.connect_tcp("127.0.0.1", port_of(server)) as idle:
            await idle.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await idle.receive()).startswith(b"HTTP/1.1 200")
            server.process.send_signal(signal.SIGTERM)
            rest = b"".join([chunk async for chunk in idle])
            assert rest in {b"", b'{"status": "ok"}'}
            assert await ended(server) == 0


async def test_a_thread_that_never_returns_does_not_hold_up_the_end() -> None:
    answers = []
    with anyio.fail_after(DEADLINE_SECONDS):
        async with (
            served("--drain-timeout", "0.1") as server,
            heard() as hearing,
            httpx.AsyncClient(base_url=server.origin, timeout=None) as client,
        ):

            async def call_stick() -> None:
                message = modern(call("stick", {"port": hearing.port}))
                answers.append((await client.post("/mcp", json=message, headers=modern_headers(message))).json())

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call_stick)
                await hearing.running()
                server.process.send_signal(signal.SIGTERM)
                assert await ended(server) == 0
    assert "its outcome is unknown" in answers[0]["error"]["message"]


@pytest.mark.parametrize("times", [("--drain-delay", "5"), ("--drain-timeout", "30"), ("--drain-timeout", "-1")])
async def test_a_drain_that_takes_too_long_is_wrong_usage(times: tuple[str, ...]) -> None:
    words = (sys.executable, "-m", "bridge", "serve", "tests/cli/draining.py", "--transport", "http", *times)
    done = await anyio.run_process(words, check=False)
    assert done.returncode == 2
    assert times[0].encode() in done.stderr
