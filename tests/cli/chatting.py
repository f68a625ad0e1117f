"""A conversation of ``bridge chat``: a server that speaks OpenAI's chat completions API, and a person at a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
from collections import deque
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from tests import forks

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_SECONDS = 60


def text(*pieces: str) -> list[dict[str, Any]]:
    return [{"content": piece} for piece in pieces]


def call(name: str, arguments: str) -> list[dict[str, Any]]:
    function = {"name": name, "arguments": arguments}
    return [{"tool_calls": [{"index": 0, "id": "call-1", "type": "function", "function": function}]}]


class Provider:
    """Streams the replies that it was given, and keeps the requests."""

    def __init__(self, *replies: list[dict[str, Any]] | None) -> None:
        self.replies = deque(replies)
        """None says nothing until the client hangs up."""
        self.requests: list[dict[str, Any]] = []
        self.stalls = Event()
        self.hung_up = Event()

    def stream(self, deltas: list[dict[str, Any]]) -> bytes:
        reason = "tool_calls" if "tool_calls" in deltas[-1] else "stop"
        chunks: list[tuple[dict[str, Any], str | None]] = [*((delta, None) for delta in deltas), ({}, reason)]
        common = {"id": "chat-1", "object": "chat.completion.chunk", "created": 0, "model": "test"}
        lines = [
            json.dumps(common | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
            for delta, finish in chunks
        ]
        return "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()


@contextmanager
def serving(provider: Provider) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            provider.requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            reply = provider.replies.popleft()
            if reply is None:
                provider.stalls.set()
                self.connection.recv(1)
                provider.hung_up.set()
                self.close_connection = True
                return
            body = provider.stream(reply)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Terminal:
    """A person at a terminal in which ``bridge`` runs."""

    def __init__(self, *arguments: str) -> None:
        self.seen = ""
        self._fd, theirs = pty.openpty()
        environment = os.environ | {"OPENAI_API_KEY": "test"}
        self._process = forks.popen(
            ["-m", "bridge", *arguments], cwd=Path.cwd(), env=environment, streams=(theirs,) * 3
        )
        os.close(theirs)

    def until(self, text: str) -> None:
        """Read until a text stands there, and forget what was before."""
        while text not in self.seen:
            ready, _, _ = select.select([self._fd], [], [], DEADLINE_SECONDS)
            assert ready, f"{text!r} did not come after {self.seen!r}"
            self.seen += os.read(self._fd, 4096).decode()
        self.seen = self.seen.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def ended(self) -> int:
        try:
            return self._process.wait(DEADLINE_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._fd)
