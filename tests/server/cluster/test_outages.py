"""Sessions while Redis is unavailable, and after it has lost its data."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx
import pytest

from bridge.server import http_app
from bridge.server.server import Server
from tests.processes import serving as process_serving
from tests.redis_server import redis_server
from tests.server.cluster.speaking import DEADLINE_SECONDS, Talk, call, logged, message_in, text_of
from tests.server.cluster.tools import TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.redis_server import RedisServer
    from tests.server.cluster.speaking import Replicas

SERVED = "tests/server/cluster/tools.py:TOOLS"
LOOKS = 10
"""Number of polls, two a second, for a call's result: for longer than Redis may take to be filled again."""
HUNG_SECONDS = 4
"""Seconds less than a command takes if Redis does not answer."""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis for this test alone, which can be stopped."""
    with redis_server(tmp_path) as server:
        yield server


@contextmanager
def held(talk: Talk, url: str) -> Iterator[tuple[str, socket.socket]]:
    """A call whose client has lost its stream: its last event, and the message that ends the call."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_SECONDS)
        with talk.streamed(url, id=5, **call("hold", token="t", port=listener.getsockname()[1])) as events:
            begun = next(events)
            running, _ = listener.accept()
        with running:
            running.settimeout(DEADLINE_SECONDS)
            assert running.recv(100) == b"running"
            yield begun.id, running


@contextmanager
def resumed(talk: Talk, url: str, event_id: str) -> Iterator[Iterator[str]]:
    """Resume a stream; yield its lines, keep-alive comments included."""
    headers = talk.headers | {"last-event-id": event_id}
    with httpx.stream("GET", url, headers=headers, timeout=DEADLINE_SECONDS) as response:
        assert response.status_code == 200
        yield (line for line in response.iter_lines() if line)


def last_message(lines: Iterator[str]) -> dict[str, Any]:
    *_, last = (line for line in lines if line.startswith("data: "))
    message: dict[str, Any] = json.loads(last.removeprefix("data: "))
    return message


def wait_until_known(talk: Talk, url: str) -> None:
    while talk.sum(url, 1, 2).status_code == 503:
        pass


def test_an_answer_is_not_taken_while_the_replica_that_waits_for_it_may_not_hear(
    redis: RedisServer, replicas: Replicas
) -> None:
    talk = Talk(replicas.one)
    assert talk.sum(replicas.other, 1, 2).status_code == 200
    with talk.streamed(replicas.one, id=1, **call("greet")) as events:
        question = next(event.message for event in events if event.message)
        redis.end()
        redis.start()
        answer = {"action": "accept", "content": {"name": "Ada"}}
        while (taken := talk.post(replicas.other, id=question["id"], result=answer)).status_code == 503:
            assert taken.headers["retry-after"] == "1"
        assert taken.status_code == 202
        assert text_of(next(events).message) == "Hello Ada"


def test_a_call_of_which_redis_has_forgotten_all_is_followed_to_its_answer(
    redis: RedisServer, replicas: Replicas
) -> None:
    talk = Talk(replicas.one)
    with held(talk, replicas.one) as (begun, running):
        redis.end()
        redis.start()
        wait_until_known(talk, replicas.other)
        with resumed(talk, replicas.other, begun) as lines:
            assert set(islice(lines, LOOKS)) == {": ping"}
            running.sendall(b"done")
            assert text_of(last_message(lines)) == "done"


def test_an_answer_that_was_given_while_redis_was_gone_is_kept_when_it_is_back(
    redis: RedisServer, replicas: Replicas
) -> None:
    talk = Talk(replicas.one)
    with held(talk, replicas.one) as (begun, running):
        redis.end()
        running.sendall(b"done")
        assert running.recv(100) == b""  # the tool has ended
        assert talk.post(replicas.one, method="ping", id="p").status_code == 200
        redis.start()
        wait_until_known(talk, replicas.other)
        with resumed(talk, replicas.other, begun) as lines:
            assert text_of(last_message(lines)) == "done"


@pytest.mark.skipif(sys.platform == "win32", reason="a process is stopped")
def test_a_replica_that_is_busy_for_a_while_has_not_ended(redis: RedisServer, serving: Callable[..., str]) -> None:
    name = f"busy-{uuid4().hex}"
    words = ("-m", "bridge", "serve", SERVED, "--name", name, "--transport", "http", "--port", "0")
    other = f"{serving(http_app(Server(TOOLS, name=name), redis_url=redis.url))}/mcp"
    with process_serving(*words, environment={"BRIDGE_REDIS_URL": redis.url}) as busy:
        talk = Talk(f"{busy.origin}/mcp")
        with held(talk, f"{busy.origin}/mcp") as (begun, running):
            os.kill(busy.process.pid, signal.SIGSTOP)
            try:
                with resumed(talk, other, begun) as lines:
                    assert not any("its outcome is unknown" in line for line in islice(lines, 3 + LOOKS))
                    os.kill(busy.process.pid, signal.SIGCONT)
                    running.sendall(b"done")
                    assert text_of(last_message(lines)) == "done"
            finally:
                os.kill(busy.process.pid, signal.SIGCONT)


@pytest.mark.skipif(sys.platform == "win32", reason="a process is stopped")
def test_what_is_here_does_not_wait_for_a_redis_that_hangs(redis: RedisServer, replicas: Replicas) -> None:
    talk = Talk(replicas.one)
    slow = {"jsonrpc": "2.0", "id": 1, **call("slow_sum", token="t", a=1, b=2)}
    opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": talk.params}
    level = {"jsonrpc": "2.0", "id": 2, "method": "logging/setLevel", "params": {"level": "error"}}
    assert logged(talk, replicas.other) == ["a detail", "a failure"]
    with redis.hanging():
        for body in (slow, level, opening, slow):
            headers = talk.headers if body is not opening else {"accept": talk.headers["accept"]}
            with httpx.stream("POST", replicas.one, json=body, headers=headers, timeout=HUNG_SECONDS) as response:
                assert response.status_code == 200
                response.read()
                message = message_in(response)
                assert "result" in message
        elsewhere = httpx.post(replicas.other, json=slow, headers=talk.headers, timeout=HUNG_SECONDS)
        assert elsewhere.status_code == 200
    wait_until_known(talk, replicas.other)
    while logged(talk, replicas.other) != ["a failure"]:  # it notices that Redis is back
        pass
