"""A server whose large results are kept aside, and requests for what is kept."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from bridge import ExecutionPolicy, tool
from bridge.server import Server, http_app
from bridge.tools import Spill
from tests.server import http_server as http
from tests.server.auth.guarded import Handshake, Modern, bearer

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 1_000
KINDS = pytest.mark.parametrize("kind", [Modern, Handshake], ids=["modern", "handshake"])


def lines(count: int) -> str:
    """Return text of some lines."""
    return "\n".join(f"line {number} of the log" for number in range(count))


@tool(run_in_thread=False)
def now(count: int) -> str:
    """End in its first step."""
    return lines(count)


@tool
async def undeclared(count: int) -> Any:
    """Return an object without an output schema."""
    return {"rows": [{"id": number} for number in range(count)]}


@contextmanager
def served(
    *functions: Any, kind: type[Modern] = Modern, protocol: str = "h11", app: dict[str, Any] | None = None, **spill: Any
) -> Iterator[tuple[Server, Any]]:
    """Serve tools with a limit; yields the server, and a function that makes clients."""
    policy = ExecutionPolicy(spill=Spill(**{"chars": LIMIT, "preview_chars": 300, **spill}))
    server = Server(functions or (now, undeclared), name="tests", policy=policy)
    with http.serving(http_app(server, **app or {}), http=protocol) as origin, http.whole_client() as client:

        def make(token: str = "") -> Modern:
            return kind(client, origin, bearer(token) if token else {})

        yield server, make


def result(peer: Modern, name: str, **arguments: Any) -> dict[str, Any]:
    answer = peer.ask(http.call(name, arguments))
    assert "result" in answer, answer
    found: dict[str, Any] = answer["result"]
    return found


def links(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [block for block in result["content"] if block["type"] == "resource_link"]


def text_of(result: dict[str, Any]) -> str:
    found: str = result["content"][0]["text"]
    return found


def read(peer: Modern, uri: str) -> dict[str, Any]:
    return peer.ask(http.request("resources/read", {"uri": uri}))


def contents(peer: Modern, uri: str) -> dict[str, Any]:
    (found,) = read(peer, uri)["result"]["contents"]
    return dict(found)


def read_text(peer: Modern, uri: str, **arguments: Any) -> str:
    return text_of(result(peer, "read_result", uri=uri, **arguments))
