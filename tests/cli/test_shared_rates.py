"""One rate for all workers and replicas of ``bridge serve``."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.redis_server import redis_server
from tests.server import http_server as http

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Start

CALLS = 40
INTERVAL_SECONDS = 100
TOOLS = '''
import os

from bridge import tool


@tool
def pid() -> int:
    """Say which process answers."""
    return os.getpid()
'''
SERVE = ("serve", "tools.py", "--name", "shared", "--transport", "http", "--port", "0", "--rate", f"{CALLS}/4000")
MOST_CONNECTIONS = 30


@pytest.fixture(autouse=True)
def tools(directory: Path) -> None:
    (directory / "tools.py").write_text(TOOLS, encoding="utf-8")


class Caller:
    """Calls over open connections, one for each process."""

    def __init__(self) -> None:
        self.let_in = 0
        self.processes: dict[int, tuple[httpx.Client, str]] = {}
        self._opened = ExitStack()

    @contextmanager
    def calling(self) -> Iterator[None]:
        with self._opened:
            yield

    def connect(self, url: str) -> None:
        """Open a connection to the process that accepts it."""
        client = self._opened.enter_context(httpx.Client(timeout=30))
        answer = self._send(client, url)
        self.processes[int(http.answer(answer)["result"]["content"][0]["text"])] = (client, url)

    def wait_seconds(self, process: int) -> int:
        """Call one process until it refuses; returns the seconds after which to try again."""
        while (answer := self._send(*self.processes[process])).status_code == 200:
            pass
        assert answer.status_code == 429
        return int(answer.headers["retry-after"])

    def _send(self, client: httpx.Client, url: str) -> httpx.Response:
        message = http.modern(http.call("pid"))
        answer = client.post(url, json=message, headers=http.modern_headers(message))
        self.let_in += answer.status_code == 200
        return answer


def assert_one_rate(caller: Caller) -> None:
    """Assert that each process refuses calls over the common rate."""
    assert len(caller.processes) == 2
    waits = [0, 0]
    for _ in range(20):
        waits = [caller.wait_seconds(process) for process in caller.processes]
        owed = (caller.let_in - CALLS + 1) * INTERVAL_SECONDS
        if all(owed - INTERVAL_SECONDS < wait <= owed for wait in waits):
            break
    else:
        raise AssertionError(f"{caller.let_in} were let in, and the processes say {waits}")
    assert CALLS <= caller.let_in <= 2 * CALLS  # each may accept as many before it receives the count of the other


@pytest.mark.skipif(sys.platform == "win32", reason="sockets are handed down on POSIX")
def test_workers_have_one_rate_with_a_redis(start: Start, tmp_path: Path) -> None:
    caller = Caller()
    with redis_server(tmp_path) as redis, start(*SERVE, "--workers", "2", "--redis-url", redis.url) as process:
        url = process.url()
        with caller.calling():
            for _ in range(MOST_CONNECTIONS):
                caller.connect(url)
                if len(caller.processes) == 2:
                    break
            assert_one_rate(caller)


def test_replicas_have_one_rate_with_a_redis(start: Start, tmp_path: Path) -> None:
    caller = Caller()
    with redis_server(tmp_path) as redis, ExitStack() as stack:
        environment = {"BRIDGE_REDIS_URL": redis.url}
        replicas = [stack.enter_context(start(*SERVE, env=environment)) for _ in range(2)]
        stack.enter_context(caller.calling())
        for replica in replicas:
            caller.connect(replica.url())
        assert_one_rate(caller)
