from __future__ import annotations

import socketserver
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.load.crowd import Crowd

if TYPE_CHECKING:
    from collections.abc import Iterator

WITH_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
EMPTY = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"


class Echo(socketserver.BaseRequestHandler):
    """Send each line back as a response, byte by byte; close the connection at an empty one."""

    def handle(self) -> None:
        for line in self.request.makefile("rb"):
            answer = bytes.fromhex(line.decode())
            if not answer:
                return
            for byte in answer:
                self.request.sendall(bytes([byte]))


@contextmanager
def echo() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def asking_for(answer: bytes) -> bytes:
    return answer.hex().encode() + b"\n"


def test_every_request_gets_its_answer_whole_however_many_clients_there_are() -> None:
    wanted = [WITH_LENGTH, CHUNKED, EMPTY] * 5
    with echo() as port, Crowd(port, 4) as crowd:
        answers = list(crowd.ask(map(asking_for, wanted)))
        assert sorted(answer.text for answer in answers) == sorted(wanted)
        assert all(answer.seconds > 0 for answer in answers)
        assert [answer.text for answer in crowd.ask([asking_for(CHUNKED)])] == [CHUNKED]


def test_a_client_that_is_left_is_an_empty_answer_and_the_others_go_on() -> None:
    with echo() as port, Crowd(port, 2) as crowd:
        answers = [answer.text for answer in crowd.ask(map(asking_for, [b"", *[WITH_LENGTH] * 5]))]
    assert sorted(answers) == [b"", *[WITH_LENGTH] * 5]


def test_requests_that_no_client_is_left_for_are_not_passed_over() -> None:
    with echo() as port, Crowd(port, 1) as crowd, pytest.raises(AssertionError, match="closed every connection"):
        list(crowd.ask(map(asking_for, [b"", WITH_LENGTH])))
