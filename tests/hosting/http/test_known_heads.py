"""A known head is not parsed again, and everything else of its request is checked as always."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from bridge.hosting.http.h11_parser import H11Parser
from bridge.hosting.http.httptools_parser import HttptoolsParser
from bridge.hosting.http.limits import ConnectionLimits
from bridge.server import http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.limits import Limits, Rate
from bridge.server.server import Server
from tests.cli.bounding import CALL, add, answer, answers, connected, served
from tests.hosting.connections import FakeLoop
from tests.hosting.connections import connected as made
from tests.server import http_server
from tests.server.http_mutations import modern

if TYPE_CHECKING:
    from collections.abc import Callable

BEGINNING = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
BOUNDS = ConnectionLimits()
PARSERS = pytest.mark.parametrize("protocol", ["direct", "h11"])


def adding(a: int, *, key: str | None = None, **headers: str) -> bytes:
    draft = modern("tools/call", name="add", arguments={"a": a, "b": 0})
    draft.headers += [(name.replace("_", "-"), value.encode()) for name, value in headers.items()]
    if key is not None:
        draft.headers.append(("Authorization", f"Bearer {key}".encode()))
    return draft.raw


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the data that was parsed."""
    found: list[int] = []
    for parser in (HttptoolsParser, H11Parser):

        def noted(self: Any, data: bytes, feed: Any = parser.feed) -> Any:
            found.append(len(data))
            return feed(self, data)

        monkeypatch.setattr(parser, "feed", noted)
    return found


def results(found: list[tuple[bytes, Any]]) -> list[Any]:
    return [body["result"]["structuredContent"]["result"] for _, body in found]


@PARSERS
def test_a_head_is_parsed_once_and_each_body_counts(protocol: str, parsed: list[int]) -> None:
    with served(protocol, BOUNDS) as port, connected(port) as connection:
        for a in range(10, 30):
            connection.sendall(adding(a))
            assert results(answers(connection, 1)) == [a]
    assert parsed == [len(adding(10))]


def test_another_head_another_length_and_another_connection_are_parsed(parsed: list[int]) -> None:
    sent = [adding(1), adding(10), adding(1, x="1"), adding(1).replace(b"\r\n\r\n", b"\r\nContent-Length: 1\r\n\r\n")]
    with served("direct", BOUNDS) as port:
        for _ in range(2):
            with connected(port) as connection:
                for raw in sent[:3]:
                    connection.sendall(raw)
                    answers(connection, 1)
                connection.sendall(sent[3])
                assert connection.recv(65_536).startswith(b"HTTP/1.1 400 ")
    assert len(parsed) == 2 * len(sent)


def test_a_connection_keeps_only_some_heads(parsed: list[int]) -> None:
    with served("direct", BOUNDS) as port, connected(port) as connection:
        for number in [*range(9), 8, 0]:
            connection.sendall(adding(number, x=f"{number}"))
            assert results(answers(connection, 1)) == [number]
        connection.sendall(adding(1, x="y" * 2048))
        connection.sendall(adding(1, x="y" * 2048))
        assert results(answers(connection, 2)) == [1, 1]
    assert len(parsed) >= 9 + 1 + 2 - 1


@PARSERS
@pytest.mark.parametrize("cut", [20, CALL.index(b"\r\n\r\n") + 4, len(CALL) - 3])
def test_a_request_that_comes_in_pieces_is_read_whole(protocol: str, cut: int) -> None:
    with served(protocol, BOUNDS) as port, connected(port) as connection:
        for parts in ((CALL,), (CALL[:cut], CALL[cut:]), (CALL,), (CALL + CALL[:cut], CALL[cut:])):
            for part in parts:
                connection.sendall(part)
                with connected(port) as other:  # the server has read it once it has responded elsewhere
                    answer(other, CALL)
            assert results(answers(connection, len(b"".join(parts)) // len(CALL))) == [3] * (
                len(b"".join(parts)) // len(CALL)
            )


@pytest.mark.parametrize(
    "beginning",
    [
        BEGINNING + b"X-Hidden: ",
        BEGINNING + b"Content-Length: %d\r\n\r\n" % len(CALL),
        BEGINNING + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(CALL),
    ],
    ids=["a header", "a body", "a chunk"],
)  # fmt: skip
def test_a_known_head_inside_of_another_request_is_no_request(beginning: bytes) -> None:
    """Otherwise a proxy in front of the server would see other requests than the server."""
    found = []
    for protocol in ("direct", "httptools", "h11"):
        with served(protocol, BOUNDS) as port, connected(port) as connection:
            connection.sendall(CALL)
            answers(connection, 1)
            connection.sendall(beginning)
            with connected(port) as other:
                answer(other, CALL)
            connection.sendall(CALL)
            if b"chunked" in beginning:
                connection.sendall(b"\r\n0\r\n\r\n")
            connection.shutdown(1)
            status = connection.recv(65_536).partition(b"\r\n")[0]
            assert not status.startswith(b"HTTP/1.1 200 ")
            found.append(status)
    assert found[0] == found[1] == found[2]


def test_a_rate_and_a_credential_are_checked_each_time() -> None:
    keys = ApiKeys(ApiKey("someone", "k" * 40))
    auth = Auth(keys)
    limits = Limits(rate=Rate(4, 600))
    app = http_app(Server([add], name="bridge", limits=limits), auth=auth)
    with http_server.serving(app, http="direct") as origin, connected(int(origin.rpartition(":")[2])) as connection:
        for status in (b"200", b"200", b"200", b"200", b"429", b"429"):
            connection.sendall(adding(1, key="k" * 40))
            ((head, _),) = answers(connection, 1)
            assert head.split()[1] == status


class ReplacedKeys(ApiKeys):
    """Keys that a test replaces while they are in use."""

    changed: Callable[[], None]

    async def keep_current(self, changed: Callable[[], None]) -> None:
        """Keep the function that announces a change."""
        self.changed = changed
        await asyncio.Event().wait()


def test_a_revoked_key_is_refused_at_once_on_a_connection_that_knows_its_head() -> None:
    keys = ReplacedKeys(ApiKey("someone", "k" * 40))
    app = http_app([add], auth=Auth(keys))
    with http_server.serving(app, http="direct") as origin, connected(int(origin.rpartition(":")[2])) as connection:
        for named, status in (("k" * 40, b"200"), ("o" * 40, b"401"), ("k" * 40, b"200")):
            keys.replace(ApiKey("someone", named))
            keys.changed()
            for _ in range(3):
                connection.sendall(adding(1, key="k" * 40))
                ((head, _),) = answers(connection, 1)
                assert head.split()[1] == status


@pytest.mark.anyio
async def test_a_connection_is_closed_when_it_was_idle_since_its_last_request() -> None:
    app = http_app([add])
    loop, listing = FakeLoop(), modern("tools/list").raw
    async with app.router.lifespan_context(app):
        connection, transport = made(app, handler=app.pre_asgi_handler(lambda: True), loop=loop, timeout_keep_alive=5)
        for seconds in (0, 4, 8, 12):
            loop.run_until(seconds)
            connection.data_received(listing)
        assert len(transport.written) == 4
        loop.run_until(12 + 4.5)
        assert not transport.is_closed
        loop.run_until(12 + 5)
        assert transport.is_closed
