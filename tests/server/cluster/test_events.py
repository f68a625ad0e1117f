from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from bridge import InvocationContext, ToolBox, tool
from bridge.redis import blocking_redis_at
from bridge.server import http_app
from bridge.server.http import event_store as events_module
from bridge.server.http import session_requests
from bridge.server.server import Server
from tests.processes import serving as process_serving
from tests.server.cluster.speaking import Talk, call, closed_by, message_in, report, text_of
from tests.server.cluster.tools import TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.processes import ServerProcess
    from tests.redis_server import RedisServer
    from tests.server.cluster.speaking import Event, Replicas

DEADLINE_SECONDS = 30
LONGER_THAN_THE_END = 6
"""Number of keep-alive comments of a stream in the time after which an idle server would have ended."""
SERVED = "tests/server/cluster/tools.py:TOOLS"


def listening() -> socket.socket:
    made = socket.create_server(("127.0.0.1", 0))
    made.settimeout(DEADLINE_SECONDS)
    return made


@contextmanager
def holding(redis: RedisServer) -> Iterator[tuple[ServerProcess, Talk, Event, socket.socket]]:
    """A replica with a call whose client has left its stream; an answer ends the call."""
    words = ("-m", "bridge", "serve", SERVED, "--name", "shared", "--transport", "http", "--port", "0")
    with process_serving(*words, environment={"BRIDGE_REDIS_URL": redis.url}) as replica, listening() as listener:
        url = f"{replica.origin}/mcp"
        talk = Talk(url)
        with talk.streamed(url, id=5, **call("hold", token="t", port=listener.getsockname()[1])) as events:
            begun = next(events)
            running, _ = listener.accept()
        with running:
            yield replica, talk, begun, running


@pytest.mark.parametrize("where", ["one", "other"])
def test_a_call_that_still_runs_is_followed_to_its_answer_from_any_replica(replicas: Replicas, where: str) -> None:
    talk = Talk(replicas.one)
    with listening() as listener:
        request = call("hold", token="t", port=listener.getsockname()[1])
        with talk.streamed(replicas.one, id=5, **request) as events:
            begun = next(events)
            running, _ = listener.accept()
        assert begun.message is None  # now the client has lost its stream
        with running, talk.resumed(getattr(replicas, where), begun.id) as resumed:
            progress = next(resumed)
            assert progress.message is not None
            assert progress.message["method"] == "notifications/progress"
            running.sendall(b"done")
            (answer,) = resumed
            assert answer.message is not None
            assert (answer.message["id"], text_of(answer.message)) == (5, "done")
        with talk.resumed(replicas.other, progress.id) as again:
            assert [event.message for event in again] == [answer.message]
        with talk.resumed(replicas.other, "0-0/5") as whole:
            assert [event.message for event in whole] == [progress.message, answer.message]
        with talk.resumed(replicas.other, answer.id) as over:
            assert list(over) == []


def test_a_tool_closes_the_streams_of_its_call_on_every_replica(replicas: Replicas) -> None:
    talk = Talk(replicas.one)
    with listening() as listener:
        request = call("steered", token="t", port=listener.getsockname()[1])
        with talk.streamed(replicas.one, id=5, **request) as stream, ExitStack() as stack:
            running = stack.enter_context(closed_by(listener))
            *_, begun = stream
            for number, url in enumerate((replicas.other, replicas.one), start=2):
                resumed = stack.enter_context(talk.resumed(url, begun.id))
                running.sendall(b"report")
                begun = report(number, resumed)
                running.sendall(b"close")
                assert list(resumed) == []
                assert running.recv(100) == b"closed"
            running.sendall(b"done")
            with talk.resumed(replicas.other, begun.id) as last:
                (answer,) = last
                assert text_of(answer.message) == "done"


def test_a_proxy_is_told_of_a_resumed_stream_what_it_is_told_of_others(replicas: Replicas) -> None:
    talk, told = Talk(replicas.one), []
    for more in ({}, {"last-event-id": "0-0/5"}):
        with httpx.stream("GET", replicas.one, headers=talk.headers | more, timeout=DEADLINE_SECONDS) as stream:
            told.append((stream.headers["cache-control"], stream.headers["x-accel-buffering"]))
    assert told == [("no-cache, no-transform", "no")] * 2


def test_nobody_reads_the_events_of_another_session(replicas: Replicas) -> None:
    talk, stranger = Talk(replicas.one), Talk(replicas.one)
    with talk.streamed(replicas.one, id=5, **call("slow_sum", token="t", a=1, b=2)) as events:
        begun, *_, answer = events
    assert text_of(answer.message) == "3"
    with stranger.resumed(replicas.other, begun.id) as resumed:
        (told,) = resumed
        assert told.message is not None
        assert "its outcome is unknown" in told.message["error"]["message"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_a_call_that_is_followed_elsewhere_ends_before_its_replica_does(
    redis: RedisServer, serving: Callable[..., str]
) -> None:
    other = f"{serving(http_app(Server(TOOLS, name='shared'), redis_url=redis.url))}/mcp"
    with holding(redis) as (ending, talk, begun, running):
        headers = talk.headers | {"last-event-id": begun.id}
        with httpx.stream("GET", other, headers=headers, timeout=DEADLINE_SECONDS) as resumed:
            ending.process.send_signal(signal.SIGTERM)
            lines = resumed.iter_lines()
            for _ in range(LONGER_THAN_THE_END):
                while not next(lines).startswith(":"):
                    pass
            running.sendall(b"done")
            assert "done" in [line for line in lines if line.startswith("data:")][-1]
        assert ending.process.wait(DEADLINE_SECONDS) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="a process is killed")
def test_what_ran_on_a_replica_that_died_ends_as_unknown(redis: RedisServer, serving: Callable[..., str]) -> None:
    other = f"{serving(http_app(Server(TOOLS, name='shared'), redis_url=redis.url))}/mcp"
    with holding(redis) as (dying, talk, begun, _):
        os.kill(dying.process.pid, signal.SIGKILL)
        dying.process.wait()
        with talk.resumed(other, begun.id) as resumed:
            told = [event.message for event in resumed][-1]
        assert told is not None
        assert told["id"] == 5
        assert "the replica that ran this call has ended: its outcome is unknown" in told["error"]["message"]
        assert text_of(message_in(talk.sum(other, 1, 2))) == "3"


@tool
async def chatter(context: InvocationContext) -> str:
    """Report many messages."""
    for number in range(20):
        await context.progress(number, 20, "x" * 500)
    return "done"


@pytest.fixture
def kept(redis: RedisServer) -> Iterator[Callable[[str], dict[str, int]]]:
    """Return the number of events that Redis keeps of each stream of a server."""
    client: Any = blocking_redis_at(redis.url)

    def count(name: str) -> dict[str, int]:
        prefix = f"bridge:{{{name}}}:events:".encode()
        return {key.rpartition(b":")[2].decode(): client.xlen(key) for key in client.scan_iter(prefix + b"*")}

    yield count
    client.close()


def test_what_redis_keeps_of_a_session_is_bounded_in_bytes_and_ends_with_it(
    redis: RedisServer,
    serving: Callable[..., str],
    kept: Callable[[str], dict[str, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events_module, "MAX_NOTIFICATION_BYTES", 3000)
    monkeypatch.setattr(events_module, "MAX_SESSION_BYTES", 10_000)
    url = f"{serving(http_app(Server(ToolBox(chatter), name='bytes'), redis_url=redis.url))}/mcp"
    talk = Talk(url)
    for number in range(1, 11):
        with talk.streamed(url, id=number, **call("chatter", token="t")) as events:
            first, *_, last = events
            assert text_of(last.message) == "done"
    found = kept("bytes")
    assert "10" in found
    assert len(found) <= 3
    assert all(3 <= count <= 8 for count in found.values()), "some reports, and the answer"
    with talk.resumed(url, first.id) as events:
        *_, last = events
        assert text_of(last.message) == "done"
    assert talk.end(url) == 200
    assert kept("bytes") == {}


def test_of_all_sessions_the_one_that_has_most_keeps_less(
    redis: RedisServer,
    serving: Callable[..., str],
    kept: Callable[[str], dict[str, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events_module, "MAX_BYTES", 60_000)
    url = f"{serving(http_app(Server(ToolBox(chatter), name='all'), redis_url=redis.url))}/mcp"
    greedy, modest = Talk(url), Talk(url)
    for talk, numbers in ((modest, ["m"]), (greedy, [str(number) for number in range(8)])):
        for number in numbers:
            with talk.streamed(url, id=number, **call("chatter", token="t")) as events:
                assert text_of(list(events)[-1].message) == "done"
    found = kept("all")
    assert {"m", "7"} <= found.keys()
    assert len(found) <= 4


def test_streams_of_one_session_that_are_read_on_are_bounded(
    redis: RedisServer, serving: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_requests, "MAX_STREAMS", 1)
    url = f"{serving(http_app(Server(TOOLS, name='read-on'), redis_url=redis.url))}/mcp"
    talk = Talk(url)
    with listening() as listener:
        with talk.streamed(url, id=5, **call("hold", token="t", port=listener.getsockname()[1])) as events:
            begun = next(events)
            running, _ = listener.accept()
        with running, talk.resumed(url, begun.id) as resumed:
            assert next(resumed).message is not None
            refused = httpx.get(url, headers=talk.headers | {"last-event-id": begun.id}, timeout=DEADLINE_SECONDS)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert refused.json()["error"]["code"] == -32005
            assert running.recv(100) == b"running"
            running.sendall(b"told")
            assert text_of(list(resumed)[-1].message) == "told"
