"""A known head is not parsed again, and everything else of its request is checked as always."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from bridge.hosting import httptools_protocol
from bridge.hosting.connection_limits import ConnectionLimits
from bridge.hosting.serve import http_protocol
from bridge.server import http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth
from bridge.server.limits import Limits, Rate
from tests.cli.bounding import CALL, add, answer, answers, connected, served
from tests.server import http_server
from tests.server.http_mutations import modern

if TYPE_CHECKING:
    from collections.abc import Callable

BEGINNING = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
BOUNDS = ConnectionLimits()


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
    feed = httptools_protocol.PlainParser.feed_data

    def noted(self: Any, data: bytes) -> None:
        found.append(len(data))
        feed(self, data)

    monkeypatch.setattr(httptools_protocol.PlainParser, "feed_data", noted)
    return found


def results(found: list[tuple[bytes, Any]]) -> list[Any]:
    return [body["result"]["structuredContent"]["result"] for _, body in found]


def test_a_head_is_parsed_once_and_each_body_counts(parsed: list[int]) -> None:
    with served("direct", BOUNDS) as port, connected(port) as connection:
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


@pytest.mark.parametrize("cut", [20, CALL.index(b"\r\n\r\n") + 4, len(CALL) - 3])
def test_a_request_that_comes_in_pieces_is_read_whole(cut: int) -> None:
    with served("direct", BOUNDS) as port, connected(port) as connection:
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
    for protocol in ("direct", "httptools"):
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
    assert found[0] == found[1]


def test_a_rate_and_a_credential_are_checked_each_time() -> None:
    keys = ApiKeys(ApiKey("someone", "k" * 40))
    auth = Auth(keys)
    limits = Limits(rate=Rate(4, 600))
    app = http_app([add], auth=auth, limits=limits)
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


class FakeLoop:
    """Time and timers of an event loop."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        self.timers.append((self.now + delay, callback))
        return asyncio.TimerHandle(self.now + delay, callback, (), asyncio.get_event_loop())

    def run_until(self, now: float) -> None:
        while due := [timer for timer in self.timers if timer[0] <= now]:
            self.timers.remove(due[0])
            self.now = due[0][0]
            due[0][1]()
        self.now = now


class FakeTransport(asyncio.Transport):
    """A connection whose client reads everything."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.anyio
async def test_a_connection_is_closed_when_it_was_idle_since_its_last_request() -> None:
    app = http_app([add])
    config = uvicorn.Config(
        app, http=http_protocol(app.pre_asgi_handler(lambda: True)), log_config=None, access_log=False
    )
    config.load()
    loop, transport = FakeLoop(), FakeTransport()
    protocol: Any = config.http_protocol_class
    connection = protocol(config=config, server_state=ServerState(), app_state={}, _loop=loop)
    listing = modern("tools/list").raw
    async with app.router.lifespan_context(app):
        connection.connection_made(transport)
        for seconds in (0, 4, 8, 12):
            loop.run_until(100 + seconds)
            connection.data_received(listing)
        assert len(transport.written) == 4
        loop.run_until(100 + 12 + 4.5)
        assert not transport.is_closed
        loop.run_until(100 + 12 + config.timeout_keep_alive)
        assert transport.is_closed
