from __future__ import annotations

import socketserver
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.load import pace as module
from tests.benchmarks.load.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Iterator

A_SECOND = 1000.0
ANSWER = "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}"
LAST_ANSWER = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}"
DEADLINE_SECONDS = 60


class Server(socketserver.ThreadingTCPServer):
    """Send each line back; ``close`` announces the end, ``gone`` closes the connection, ``hold`` waits for ``free``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.connections = 0
        self.freed = Event()


class Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        self.server.connections += 1
        for line in self.rfile:
            text = line.decode().strip()
            if text == "gone":
                return
            if text == "free":
                self.server.freed.set()
            if text == "hold" and not self.server.freed.wait(DEADLINE_SECONDS):
                return
            answer = LAST_ANSWER if text == "close" else ANSWER
            self.wfile.write(answer.format(len(text), text).encode())


@contextmanager
def served() -> Iterator[Server]:
    with Server() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.freed.set()
            server.shutdown()
            thread.join()


def bodies(server: Server, *texts: str, kept_calls: int = 100) -> list[str]:
    """Return the response of each call, in the order of the calls."""
    with Pace(server.server_address[1], A_SECOND, kept_calls) as pace:
        outcomes = sorted(pace.ask(f"{text}\n".encode() for text in texts), key=lambda outcome: outcome.number)
    assert [outcome.due_seconds for outcome in outcomes] == [number / A_SECOND for number in range(len(texts))]
    assert all(0 <= outcome.late_seconds <= outcome.seconds for outcome in outcomes)
    return [outcome.text.partition(b"\r\n\r\n")[2].decode() for outcome in outcomes]


def test_every_call_gets_its_own_answer() -> None:
    texts = [str(number) for number in range(50)]
    with served() as server:
        assert bodies(server, *texts) == texts
        assert server.connections <= len(texts)


def test_a_call_begins_though_those_before_it_are_not_answered() -> None:
    with served() as server:
        assert bodies(server, "hold", "hold", "free") == ["hold", "hold", "free"]


def test_a_call_whose_connection_is_closed_is_answered_by_nothing_and_the_others_go_on() -> None:
    with served() as server:
        assert bodies(server, "first", "gone", "last") == ["first", "", "last"]


@pytest.mark.parametrize(("text", "kept_calls"), [("close", 100), ("stay", 1)])
def test_a_connection_ends_with_the_answer_that_says_so_or_after_its_calls(text: str, kept_calls: int) -> None:
    with served() as server:
        assert bodies(server, *[text] * 5, kept_calls=kept_calls) == [text] * 5
        assert server.connections == 5


def test_a_call_that_is_never_answered_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.1)
    with served() as server:
        assert bodies(server, "hold", "hold") == ["", ""]


def test_more_calls_than_there_may_be_connections_wait_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_CONNECTIONS", 2)
    texts = [str(number) for number in range(20)]
    with served() as server:
        assert bodies(server, *texts) == texts
        assert server.connections <= 2
