"""A conversation of ``bridge chat``: a server that speaks OpenAI's chat completions API."""

from __future__ import annotations

import json
from collections import deque
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


def text(*pieces: str) -> list[dict[str, Any]]:
    return [{"content": piece} for piece in pieces]


def call(name: str, arguments: str) -> list[dict[str, Any]]:
    function = {"name": name, "arguments": arguments}
    return [{"tool_calls": [{"index": 0, "id": "call-1", "type": "function", "function": function}]}]


class Provider:
    """Streams the given replies, and records the requests."""

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

    def whole(self, deltas: list[dict[str, Any]]) -> bytes:
        message = {"role": "assistant", "content": "".join(delta["content"] for delta in deltas)}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return json.dumps(
            {"id": "chat-1", "object": "chat.completion", "created": 0, "model": "test", "choices": choices}
        ).encode()


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
            is_streamed = provider.requests[-1].get("stream")
            body = provider.stream(reply) if is_streamed else provider.whole(reply)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream" if is_streamed else "application/json")
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
