"""A client of the handshake era that sends each message to a chosen replica."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

VERSION = "2025-11-25"
DEADLINE_SECONDS = 30
_ACCEPT = {"accept": "application/json, text/event-stream"}


@dataclass(frozen=True)
class Replicas:
    """Addresses of two replicas."""

    one: str
    other: str


@dataclass(frozen=True)
class Event:
    """A server-sent event."""

    id: str
    message: dict[str, Any] | None


class Talk:
    """One session.

    Args:
        url: URL that opens it.
        headers: Additional headers of all its requests.
    """

    def __init__(self, url: str, **headers: str) -> None:
        self.headers = {**_ACCEPT, **headers}
        self.params = {
            "protocolVersion": VERSION,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "talk", "version": "1"},
        }
        opened = self.post(url, method="initialize", id=0, params=self.params)
        assert opened.status_code == 200, opened.text
        self.id = opened.headers["mcp-session-id"]
        self.headers |= {"mcp-session-id": self.id, "mcp-protocol-version": VERSION}

    def post(self, url: str, **message: Any) -> httpx.Response:
        """Send a message."""
        json = {"jsonrpc": "2.0", **message}
        return httpx.post(url, json=json, headers=self.headers, timeout=DEADLINE_SECONDS)

    def sum(self, url: str, a: int, b: int, **headers: str) -> httpx.Response:
        """Call a tool without progress."""
        body = {"jsonrpc": "2.0", "id": 7, **call("add", a=a, b=b)}
        return httpx.post(url, json=body, headers=self.headers | headers, timeout=DEADLINE_SECONDS)

    @contextmanager
    def streamed(self, url: str, **message: Any) -> Iterator[Iterator[Event]]:
        """Send a request, and read its stream."""
        body = {"jsonrpc": "2.0", **message}
        with httpx.stream("POST", url, json=body, headers=self.headers, timeout=DEADLINE_SECONDS) as response:
            assert response.status_code == 200
            yield events(response)

    @contextmanager
    def resumed(self, url: str, last_event_id: str) -> Iterator[Iterator[Event]]:
        """Resume a stream."""
        headers = self.headers | {"last-event-id": last_event_id}
        with httpx.stream("GET", url, headers=headers, timeout=DEADLINE_SECONDS) as response:
            assert response.status_code == 200
            yield events(response)

    def end(self, url: str) -> int:
        """End the session; return the status of the response."""
        return httpx.delete(url, headers=self.headers, timeout=DEADLINE_SECONDS).status_code


def call(name: str, *, token: str | None = None, **arguments: Any) -> dict[str, Any]:
    """Return a call without its envelope; one that asks for progress is answered by a stream."""
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return {"method": "tools/call", "params": {"name": name, "arguments": arguments, **meta}}


@contextmanager
def closed_by(listener: socket.socket) -> Iterator[socket.socket]:
    """Return a call of the tool `steered` that has closed its stream."""
    running, _ = listener.accept()
    with running:
        running.settimeout(DEADLINE_SECONDS)
        running.sendall(b"close")
        assert running.recv(100) == b"closed"
        yield running


def report(number: int, stream: Iterator[Event]) -> Event:
    """Return the report of `steered` with a number; earlier ones may be left to the resumed stream."""
    return next(
        event for event in stream if event.message is not None and event.message["params"]["progress"] == number
    )


def events(response: httpx.Response) -> Iterator[Event]:
    """Return the events of a response."""
    number = ""
    for line in response.iter_lines():
        if line.startswith("id: "):
            number = line.removeprefix("id: ")
        elif line.startswith("data: ") or line == "data:":
            text = line.removeprefix("data:").strip()
            yield Event(number, json.loads(text) if text else None)


def messages_in(response: httpx.Response) -> list[dict[str, Any]]:
    """Return the messages of a response, which may be a stream."""
    if response.headers["content-type"] == "application/json":
        return [response.json()]
    return [event.message for event in events(response) if event.message is not None]


def message_in(response: httpx.Response) -> dict[str, Any]:
    """Return the last message of a response."""
    return messages_in(response)[-1]


def logged(talk: Talk, url: str) -> list[str]:
    """Return the log messages of a tool that logs at two levels."""
    *messages, answer = messages_in(talk.post(url, id="s", **call("speak")))
    assert text_of(answer) == "said"
    return [message["params"]["data"] for message in messages]


def text_of(message: dict[str, Any] | None) -> str:
    """Return the text of a result."""
    assert message is not None
    text: str = message["result"]["content"][0]["text"]
    return text
