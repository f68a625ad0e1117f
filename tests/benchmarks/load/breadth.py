"""Breadth: many tools, sessions, subscribers and callers, and large results, each beside a tenth of them.

Memory of each, and the time of a call, should not depend on how many there are.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tests.benchmarks.http_server import bearing, serving
from tests.benchmarks.load.breadth_tools import LARGE_BYTES, URI
from tests.benchmarks.load.crowd import Crowd
from tests.benchmarks.load.memory import mib, peak_kib, resident_kib
from tests.benchmarks.load.section import Section
from tests.benchmarks.load.sessions import open_sessions
from tests.benchmarks.messages import Era, call, message_in, request, says_three
from tests.benchmarks.processes import LIMIT_SECONDS, LONG_SECONDS, MANY_TOOLS
from tests.benchmarks.table import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.benchmarks.http_server import HttpServer

HEADING = "how many"
_TOOLS = str(Path(__file__).with_name("breadth_tools.py"))
_CALLS = 500
_PART_BYTES = 1024 * 1024
_NOTIFIED_SECONDS = 60.0
_QUERY = "which tool adds two numbers"


def measure(tools: int, sessions: int, subscribers: int, callers: int, results: int) -> list[Section]:
    """Measure each number, and a tenth of it.

    Args:
        tools: Number of tools.
        sessions: Number of open sessions that nobody uses.
        subscribers: Number of clients that watch one resource.
        callers: Number of callers, each with a key.
        results: Number of large results, one after the other.
    """
    section = Section("Breadth", "memory", "memory each", "time each", "a call meanwhile: p50", first=HEADING)
    for of, most in ((_tools, tools), (_sessions, sessions), (_subscribers, subscribers), (_callers, callers)):
        for count in (max(1, most // 10), most):
            of(section, count)
    _results(section, results)
    return [section]


def _tools(section: Section, count: int) -> None:
    with serving(MANY_TOOLS, limit_seconds=LONG_SECONDS) as empty:
        bare = resident_kib(empty.process)
    with serving(MANY_TOOLS, tools=count, limit_seconds=LONG_SECONDS) as server:
        listing = server.post(request(Era.MODERN, "tools/list"), Era.MODERN)
        answers = _asked(server, [listing] * 5)
        found = len(message_in(answers[-1][1])["result"]["tools"])
        if found != count:
            section.fail(f"{found} of {count} tools are listed")
        more = resident_kib(server.process) - bare
        listed, called = median([seconds for seconds, _ in answers[1:]]), _call(section, server, f"add_{count - 1}")
        section.add(
            f"{count:,} tools, listed", mib(more), _each(more, count), duration(listed / count), duration(called)
        )
    with serving(MANY_TOOLS, "--tools", "search", tools=count, limit_seconds=LONG_SECONDS) as server:
        message = request(Era.MODERN, "tools/call", name="search_tools", arguments={"query": _QUERY})
        searched = [seconds for seconds, _ in _asked(server, [server.post(message, Era.MODERN)] * 20)]
        more = resident_kib(server.process) - bare
        section.add(
            f"{count:,} tools, searched",
            mib(more),
            _each(more, count),
            f"{duration(median(searched))} a search",
        )


def _sessions(section: Section, count: int) -> None:
    with serving(_TOOLS, "--max-sessions", str(2 * count), limit_seconds=LONG_SECONDS) as server:
        _call(section, server)
        before, began = resident_kib(server.process), perf_counter()
        open_sessions(server, count)
        seconds, more = perf_counter() - began, resident_kib(server.process) - before
        cells = (mib(more), _each(more, count), duration(seconds / count), duration(_call(section, server)))
        section.add(f"{count:,} idle sessions of 2025-11-25", *cells)


def _subscribers(section: Section, count: int) -> None:
    with ExitStack() as stack:
        keys, options = stack.enter_context(_keys(count))
        server = stack.enter_context(serving(_TOOLS, *options, limit_seconds=LONG_SECONDS))
        _call(section, server, key=keys[0])
        before = resident_kib(server.process)
        wanted = {"resourceSubscriptions": [URI]}
        listen = server.post(request(Era.MODERN, "subscriptions/listen", notifications=wanted), Era.MODERN)
        selector = stack.enter_context(DefaultSelector())
        for key in keys:  # one caller alone may have half of all subscriptions
            subscriber = stack.enter_context(closing(socket.create_connection(("127.0.0.1", server.port))))
            subscriber.sendall(bearing(key, listen))
            selector.register(subscriber, EVENT_READ)
        _read_until(selector, count, b"notifications/subscriptions/acknowledged")
        more = resident_kib(server.process) - before
        called = _call(section, server, key=keys[0])
        began = perf_counter()
        change = request(Era.MODERN, "tools/call", name="change", arguments={})
        _asked(server, [bearing(keys[0], server.post(change, Era.MODERN))])
        _read_until(selector, count, b"notifications/resources/updated")
        seconds = perf_counter() - began
        cells = (mib(more), _each(more, count), f"{duration(seconds / count)} to notify", duration(called))
        section.add(f"{count:,} subscribers of one resource", *cells)


def _read_until(selector: DefaultSelector, count: int, text: bytes) -> None:
    """Read from all sockets until each has received a text."""
    received: dict[Any, bytes] = {}
    missing = count
    while missing:
        ready = selector.select(_NOTIFIED_SECONDS)
        assert ready, f"{missing} of {count} subscribers did not get {text.decode()}"
        for key, _ in ready:
            before = received.get(key.fileobj, b"")
            after = before + key.fileobj.recv(65_536)  # type: ignore[union-attr]  # a socket
            assert len(after) > len(before), "the server closed a subscription"
            received[key.fileobj] = after
            missing -= text in after and text not in before


def _callers(section: Section, count: int) -> None:
    with (
        _keys(count) as (keys, options),
        serving(_TOOLS, *options, "--rate", "1000/1", "--concurrency", "8", limit_seconds=LONG_SECONDS) as server,
    ):
        _call(section, server, key=keys[0])
        before = resident_kib(server.process)
        plain = server.post(call(Era.MODERN, "add"), Era.MODERN)
        each = [bearing(key, plain) for key in keys]
        first = _asked(server, each)
        later = _asked(server, each)
        _check(section, [text for _, text in first + later])
        more = resident_kib(server.process) - before
        took = median([seconds for seconds, _ in first])
        again = median([seconds for seconds, _ in later])
        cells = (mib(more), _each(more, count), f"{duration(took)} the first call", duration(again))
        section.add(f"{count:,} callers with keys and limits", *cells)


@contextmanager
def _keys(count: int) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Write a file of keys; yields the keys and the options of the server."""
    with TemporaryDirectory() as folder:
        keys, file = [f"key-of-the-caller-with-the-number-{number:06}" for number in range(count)], Path(folder, "keys")
        file.write_text("".join(f"caller-{number} {key}\n" for number, key in enumerate(keys)), encoding="utf-8")
        file.chmod(0o600)
        yield keys, ("--api-keys", str(file))


def _results(section: Section, count: int) -> None:
    with serving(_TOOLS, limit_seconds=LONG_SECONDS) as server:
        large = server.post(request(Era.MODERN, "tools/call", name="large", arguments={}), Era.MODERN)
        _call(section, server)
        before = resident_kib(server.process)
        for number in (1, count):
            took = [_download(server, large) for _ in range(number)]
            peak, left = peak_kib(server.process) - before, resident_kib(server.process) - before
            cells = (
                f"{mib(left)}, {mib(peak)} at its peak",
                "",
                duration(median(took)),
                duration(_call(section, server)),
            )
            section.add(f"{number} results of {LARGE_BYTES // 1024**2} MiB, one after the other", *cells)


def _download(server: HttpServer, sent: bytes) -> float:
    """Return the seconds until a large response was received."""
    with socket.create_connection(("127.0.0.1", server.port), LIMIT_SECONDS) as connection:
        began, buffer, received = perf_counter(), bytearray(_PART_BYTES), 0
        connection.sendall(sent.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1))
        while part := connection.recv_into(buffer):
            received += part
        assert received > LARGE_BYTES, f"the response has {received} bytes"
        return perf_counter() - began


def _call(section: Section, server: HttpServer, tool: str = "add", key: str = "") -> float:
    """Return the median time of a call, by the caller with a key if one is given."""
    asked = server.post(call(Era.MODERN, tool), Era.MODERN)
    answers = _asked(server, [bearing(key, asked) if key else asked] * _CALLS)
    _check(section, [text for _, text in answers])
    return median([seconds for seconds, _ in answers])


def _asked(server: HttpServer, requests: Sequence[bytes]) -> list[tuple[float, bytes]]:
    """Send requests one after the other; return the time and text of each response."""
    with Crowd(server.port, 1) as crowd:
        return [(answer.seconds, answer.text) for answer in crowd.ask(requests)]


def _check(section: Section, texts: Iterable[bytes]) -> None:
    if wrong := [text for text in texts if not says_three(text)]:
        section.fail(f"{len(wrong)} calls were answered like {wrong[0][-300:]!r}")


def _each(kib: int, count: int) -> str:
    return f"{kib / count:.1f} KiB"
