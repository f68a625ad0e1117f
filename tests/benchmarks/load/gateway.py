"""A gateway beside FastMCP's proxy and PyPI's mcp-proxy: added latency of a call, and the cost of many servers.

Peers are installed into a cache folder; a peer that cannot be installed is left out.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager
from itertools import cycle, repeat
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.benchmarks.http_server import HttpServer, bearing, serving
from tests.benchmarks.lab.servers import StartedServer, started
from tests.benchmarks.load.crowd import Crowd
from tests.benchmarks.load.latency import CONNECTIONS, requests
from tests.benchmarks.load.memory import Usage, family, mib, resident_kib, usage
from tests.benchmarks.load.pace import Pace
from tests.benchmarks.load.section import Section, percentiles
from tests.benchmarks.load.sessions import open_sessions
from tests.benchmarks.messages import Era, call, line, message_in, request, says_three
from tests.benchmarks.processes import LONG_SECONDS, MANY_TOOLS, PEER, ROOT, TOOLS, running
from tests.benchmarks.stdio_server import serving as serving_over_stdio
from tests.benchmarks.table import duration
from tests.interop.packages import FASTMCP_VERSION, MCP_PROXY_VERSION, SUPERGATEWAY_VERSION, npm_package, python_with
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tests.benchmarks.load.crowd import Answer

    _Serve = Callable[[Mapping[str, Any]], AbstractContextManager[HttpServer]]

SERVER_COUNTS = (1, 12, 100)
"""Numbers of servers behind one gateway."""

_BRIDGE, _FASTMCP, _MCP_PROXY, _SUPERGATEWAY = "bridge", "FastMCP's proxy", "mcp-proxy", "supergateway"
_PACES = (100, 1000)
"""Calls a second."""
_KEPT_CALLS = 1000
_SPARE = 1.2
"""Factor by which a gateway's maximum must exceed a pace; closer to it, the length of the queue would be measured."""
_WARM_SECONDS = 0.5
_MANY = 10**9
_KEY = "a-key-of-the-caller-with-enough-characters"
_MOST_LIST_SECONDS = 10.0
"""Maximum seconds to list tools; a peer that would take longer is not measured with ten times as many servers."""


SESSION_COUNTS = (1, 8, 32, 256)
_ADDED, _SERVERS, _SESSIONS = "added by a gateway", "servers behind one gateway", "sessions through a gateway"
HEADINGS = (_ADDED, _SERVERS, _SESSIONS)
"""Headings of the first columns of the tables."""
_REQUESTS = 8192
"""Different requests of a measurement: a request that is late must end before its ID is used again."""
_MOST_CHILDREN = 32
"""Maximum processes of a gateway that starts one for each session."""
_MOST_CALL_SECONDS = 1.0
"""Maximum median of a call; a gateway that takes longer is not tried with more sessions."""


class _Latency(NamedTuple):
    p50: float
    p99: float


def measure(seconds: float) -> list[Section]:
    """Call through gateways, each in front of one server over HTTP, and of one child over stdio.

    Args:
        seconds: Duration of each measurement.
    """
    section = Section(
        "What a gateway adds to the p50 and p99 of a call; the first row of each is the call itself",
        *("one at a time", f"{CONNECTIONS} never idle", "calls a second", *(f"{pace:,} a second" for pace in _PACES)),
        first=_ADDED,
    )
    known = gateways()
    with serving(TOOLS, limit_seconds=LONG_SECONDS) as server:
        direct, rate = _latencies(section, server, Era.MODERN, seconds)
        section.add("over HTTP, 2026-07-28", *_cells(direct, rate))
        behind: dict[str, Any] = {"url": f"http://127.0.0.1:{server.port}/mcp"}
        for name, serve in known.items():
            if name == _MCP_PROXY:  # it takes no URL
                continue
            with serve({"server": behind}) as gateway:
                section.add(name, *_cells(*_latencies(section, gateway, Era.MODERN, seconds), direct))
    alone = _over_stdio(seconds)
    section.add("over stdio, handshake", ", ".join(map(duration, alone)))
    direct = [alone] * len(direct)
    behind = {"command": sys.executable, "args": ["-m", "bridge", "serve", TOOLS], "cwd": str(ROOT)}
    for name, serve in known.items():
        with serve({"server": behind}) as gateway:
            gateway.open_session()
            section.add(name, *_cells(*_latencies(section, gateway, Era.HANDSHAKE, seconds), direct))
    return [section]


def measure_servers(seconds: float, counts: Sequence[int] = SERVER_COUNTS) -> list[Section]:
    """Serve many servers behind one gateway: one process with one tool, to which the gateway has many connections.

    Args:
        seconds: Duration of each measurement.
        counts: Numbers of servers; each is at most twelve times the one before.
    """
    columns = ("until all are listed", "a list", "a call: p50", "p99", "memory", "of each server")
    section = Section("Servers behind one gateway", *columns, first=_SERVERS)
    known = gateways()
    known.pop(_MCP_PROXY, None)  # each server has a URL of its own
    with serving(MANY_TOOLS, limit_seconds=LONG_SECONDS) as server:
        url = f"http://127.0.0.1:{server.port}/mcp"
        for name, serve in known.items():
            first_memory = 0
            for count in counts:
                begun = perf_counter()
                with serve({f"s{number}": {"url": url} for number in range(count)}) as gateway:
                    first = _first_list(gateway, count) - begun
                    listed, called = _lists_and_calls(section, gateway, count, seconds)
                    figures = map(duration, [first, listed, *called])
                    memory = resident_kib(gateway.process)
                    first_memory = memory if count == counts[0] else first_memory
                    each = "" if count == counts[0] else f"{(memory - first_memory) / (count - counts[0]):,.0f} KiB"
                    section.add(f"{name}, {count:,}", *figures, mib(memory), each)
                if 10 * listed > _MOST_LIST_SECONDS:
                    break
    return [section]


def measure_sessions(seconds: float, counts: Sequence[int] = SESSION_COUNTS) -> list[Section]:
    """Call in several sessions at once, each without a pause: directly, and through gateways.

    Args:
        seconds: Duration of each measurement.
        counts: Numbers of sessions.
    """
    columns = (f"{count}: calls/s, p50, p99" for count in counts)
    section = Section("Sessions at once", *columns, "memory of a session", first=_SESSIONS)
    with serving(TOOLS, limit_seconds=LONG_SECONDS) as server:
        section.add("directly", *_in_sessions(section, server, counts, seconds))
        behind: dict[str, Any] = {"server": {"url": f"http://127.0.0.1:{server.port}/mcp"}}
        with passing(behind) as gateway:
            section.add("bridge", *_in_sessions(section, gateway, counts, seconds))
        with _loaded(behind) as gateway:
            section.add("bridge, loaded", *_in_sessions(section, gateway, counts, seconds, _KEY))
        child = {"server": {"command": sys.executable, "args": ["-m", "bridge", "serve", TOOLS], "cwd": str(ROOT)}}
        peers = {name: serve for name, serve in gateways().items() if name != _BRIDGE}
        for name, serve in {**peers, **_supergateway()}.items():
            with serve(behind if name == _FASTMCP else child) as gateway:
                most = _MOST_CHILDREN if name == _SUPERGATEWAY else counts[-1]
                section.add(name, *_in_sessions(section, gateway, counts, seconds, most=most))
    return [section]


def _in_sessions(
    section: Section,
    server: HttpServer,
    counts: Sequence[int],
    seconds: float,
    key: str | None = None,
    *,
    most: int | None = None,
) -> list[str]:
    """Return a cell for each number of sessions, and the memory of one.

    Args:
        section: Gets what is wrong.
        server: The server.
        counts: Numbers of sessions.
        seconds: Duration of each measurement.
        key: Key of the caller; None without one.
        most: Maximum sessions of a peer, whose failures are cells; None for ours.
    """
    cells: list[str] = []
    before, opened = _family_kib(server), 0
    for count in counts:
        if most is not None and count > most:
            break
        try:
            answers, took = _called_in_sessions(server, count, seconds, key)
        except (AssertionError, OSError):
            if most is None:
                raise
            cells.append("no answers")
            break
        opened += count
        latency = _checked(section, answers)
        cells.append(f"{len(answers) / took:,.0f}, {duration(latency.p50)}, {duration(latency.p99)}")
        if latency.p50 > _MOST_CALL_SECONDS:
            break
    each = (_family_kib(server) - before) / max(1, opened)
    return [*cells, *[""] * (len(counts) - len(cells)), f"{each:,.0f} KiB"]


def _called_in_sessions(server: HttpServer, count: int, seconds: float, key: str | None) -> tuple[list[Answer], float]:
    """Call in new sessions, each over a connection of its own; return the answers and the seconds that they took."""
    ids = open_sessions(server, count, key)
    # No two open requests of a session have the same ID.
    calls = [(each, call(Era.HANDSHAKE, "add", number)) for number in range(1, _REQUESTS // count + 1) for each in ids]
    raw = [server.post(message, Era.HANDSHAKE, each) for each, message in calls]
    asked = [each if key is None else bearing(key, each) for each in raw]
    with Crowd(server.port, count) as crowd:
        began = perf_counter()
        answers = list(crowd.ask(_lasting(cycle(asked), seconds)))
        return answers, perf_counter() - began


def _family_kib(server: HttpServer) -> int:
    """Return the memory of a server and its children."""
    return sum((usage(each) for each in family(server.process.pid)), Usage()).proportional_kib


@contextmanager
def _loaded(servers: Mapping[str, Any]) -> Iterator[HttpServer]:
    """Serve by bridge with what a deployment switches on."""
    with _file(servers) as file, TemporaryDirectory() as folder:
        keys = Path(folder, "keys")
        keys.write_text(f"caller {_KEY}\n", encoding="utf-8")
        keys.chmod(0o600)
        options = ("--api-keys", str(keys), "--metrics", "--audit-log", str(Path(folder, "audit")))
        limits = ("--rate", "1000000/1", "--concurrency", "1000")
        with serving(file, *options, *limits, limit_seconds=LONG_SECONDS) as gateway:
            yield gateway


def _supergateway() -> dict[str, _Serve]:
    """Return the function that serves a child by supergateway of npm, unless it cannot be installed."""
    try:
        package = npm_package("supergateway", SUPERGATEWAY_VERSION)
    except pytest.skip.Exception as reason:
        sys.stderr.write(f"without supergateway: {reason}\n")
        return {}

    @contextmanager
    def serve(servers: Mapping[str, Any]) -> Iterator[HttpServer]:
        port = free_port()
        (server,) = servers.values()
        child = shlex.join([server["command"], *server["args"]])
        options = ["--stdio", child, "--outputTransport", "streamableHttp", "--stateful", "--logLevel", "none"]
        command = [str(shutil.which("node")), str(package / "dist" / "index.js"), *options, "--port", str(port)]
        with started(command, port, {}) as process:
            yield StartedServer(process, port)

    return {_SUPERGATEWAY: serve}


def _first_list(gateway: HttpServer, count: int) -> float:
    """Wait until the tools of all servers are listed; returns the seconds."""
    listing = gateway.post(request(Era.MODERN, "tools/list"), Era.MODERN)
    with Crowd(gateway.port, 1) as crowd:
        while True:
            (answer,) = crowd.ask([listing])
            if len(message_in(answer.text)["result"]["tools"]) == count:
                return perf_counter()


def _lists_and_calls(section: Section, gateway: HttpServer, count: int, seconds: float) -> tuple[float, _Latency]:
    """Measure the time of a list, and the latency of a call to each server in turn."""
    names = ["add_0"] if count == 1 else [f"s{number}_add_0" for number in range(count)]
    listing = gateway.post(request(Era.MODERN, "tools/list"), Era.MODERN)
    calls = [gateway.post(call(Era.MODERN, name), Era.MODERN) for name in names]
    with Crowd(gateway.port, 1) as crowd:
        listed = median([answer.seconds for answer in crowd.ask(_lasting(repeat(listing), seconds))])
        return listed, _checked(section, crowd.ask(_lasting(cycle(calls), seconds)))


# --- latency ---------------------------------------------------------------------------------------------------------


def _latencies(section: Section, server: HttpServer, era: Era, seconds: float) -> tuple[list[_Latency | None], float]:
    """Measure the latency of single calls, of calls without a pause, and at each pace that the server can keep."""
    endless = requests(server, era, _MANY)
    with Crowd(server.port, 1) as crowd:
        _checked(section, crowd.ask(_lasting(endless, _WARM_SECONDS)))
        alone = _checked(section, crowd.ask(_lasting(endless, seconds)))
    with Crowd(server.port, CONNECTIONS) as crowd:
        began = perf_counter()
        answers = list(crowd.ask(_lasting(endless, seconds)))
        rate = len(answers) / (perf_counter() - began)
        latencies: list[_Latency | None] = [alone, _checked(section, answers)]
    for pace in _PACES:
        if rate < _SPARE * pace:
            latencies.append(None)
            continue
        with Pace(server.port, pace, _KEPT_CALLS) as steady:
            latencies.append(_checked(section, steady.ask(requests(server, era, max(1, int(pace * seconds))))))
    return latencies, rate


def _lasting(texts: Iterable[bytes], seconds: float) -> Iterator[bytes]:
    """Yield the first text, then others until the time is over."""
    end = perf_counter() + seconds
    for text in texts:
        yield text
        if perf_counter() > end:
            return


def _over_stdio(seconds: float) -> _Latency:
    """Measure the latency of single calls to a child."""
    took = []
    with serving_over_stdio(TOOLS) as child:
        child.open(Era.HANDSHAKE)
        for text in _lasting(repeat(line(call(Era.HANDSHAKE, "add"))), seconds):
            began = perf_counter()
            assert says_three(child.answer(text))
            took.append(perf_counter() - began)
    p50, _, p99 = percentiles(took)
    return _Latency(p50, p99)


def _checked(section: Section, answers: Iterable[Any]) -> _Latency:
    known = list(answers)
    if wrong := [each.text for each in known if not says_three(each.text)]:
        section.fail(f"{len(wrong)} of {len(known)} calls were answered like {wrong[0]!r}")
    p50, _, p99 = percentiles([each.seconds for each in known])
    return _Latency(p50, p99)


def _cells(
    latencies: Sequence[_Latency | None], rate: float, direct: Sequence[_Latency | None] | None = None
) -> list[str]:
    """Return the cells of a row: the difference from the direct call, if that is given."""
    cells: list[str] = []
    for latency, bare in zip(latencies, direct or [None] * len(latencies), strict=True):
        if latency is None:
            cells.append("")
        elif bare is None:
            cells.append(", ".join(map(duration, latency)))
        else:
            added = [own - its for own, its in zip(latency, bare, strict=True)]
            cells.append(", ".join(f"{'-' if each < 0 else '+'}{duration(abs(each))}" for each in added))
    return [*cells[:2], f"{rate:,.0f}", *cells[2:]]


# --- gateways --------------------------------------------------------------------------------------------------------


def gateways() -> dict[str, _Serve]:
    """Return the functions that serve a configuration, by gateway, without peers that cannot be installed."""
    known: dict[str, _Serve] = {_BRIDGE: passing}
    for name, package, version in (
        (_FASTMCP, "fastmcp", FASTMCP_VERSION),
        (_MCP_PROXY, "mcp-proxy", MCP_PROXY_VERSION),
    ):
        try:
            known[name] = _peer(python_with(package, version), f"{package.removesuffix('-proxy')}-proxy")
        except pytest.skip.Exception as reason:
            sys.stderr.write(f"without {name}: {reason}\n")
    return known


@contextmanager
def passing(servers: Mapping[str, Any]) -> Iterator[HttpServer]:
    """Serve the servers of a configuration by FastMCP's proxy or mcp-proxy."""
    with _file(servers) as file, serving(file, limit_seconds=LONG_SECONDS) as gateway:
        yield gateway


def _peer(python: str, word: str) -> _Serve:
    @contextmanager
    def serve(servers: Mapping[str, Any]) -> Iterator[HttpServer]:
        with (
            _file(servers) as file,
            running(
                PEER, word, "http", file, python=python, limit_seconds=LONG_SECONDS, stderr=subprocess.PIPE
            ) as process,
        ):
            yield HttpServer(process)

    return serve


@contextmanager
def _file(servers: Mapping[str, Any]) -> Iterator[str]:
    with TemporaryDirectory() as folder:
        file = Path(folder, "mcp.json")
        file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
        yield str(file)
