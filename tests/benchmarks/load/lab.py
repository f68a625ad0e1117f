"""The lab: tools that use an HTTP API and a Redis, and one that computes, called by 50 users without a pause.

The shape is that of TM Dev Lab's benchmark of MCP servers: https://www.tmdevlab.com/mcp-server-performance-benchmark-v2.html
Each user searches, reads a cart, orders it and compares two texts, in turn. wrk, a load generator in C, sends the
calls. With one process, the server has a core of its own; wrk, the API and Redis have the other.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.benchmarks.lab import servers
from tests.benchmarks.lab.api import COLOURS, MATERIALS
from tests.benchmarks.lab.servers import BRIDGE, LIMIT, TOOLBOX, TYPESCRIPT, USERS, served, shop
from tests.benchmarks.load.crowd import Crowd
from tests.benchmarks.load.memory import Usage, family, mib, usage
from tests.benchmarks.load.section import Section
from tests.benchmarks.load.sessions import open_sessions
from tests.benchmarks.messages import Era, request
from tests.benchmarks.table import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.benchmarks.lab.servers import Shop, StartedServer

COLUMNS = ("calls/s", "p50", "p95", "p99", "processor", "beyond tools", "memory", "errors")
WORKERS = (1, 2)
_ALONE = f"{USERS} users, search and cart alone"


def _heading(era: Era, workers: int) -> str:
    return f"{USERS} users, {era.value}, {workers} process{'es' if workers > 1 else ''}"


HEADINGS = (*(_heading(era, workers) for workers in WORKERS for era in Era), _ALONE)
"""Headings of the first columns of the tables."""
_FIRST_ID = 1000
_ROUNDS = 10
"""Requests of each user and tool, before they repeat."""
_WARM_SECONDS = 1
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_TEXTS = ("a cordless lamp of oak, with a shade", "cordless oak lamps with shades, in two")

_SCRIPT = """
local turn, threads = 0, {{}}
local raw = {{{texts}}}
function setup(thread) table.insert(threads, thread) end
function init() errors = 0 end
function request() turn = turn % #raw + 1 return raw[turn] end
function response(status, headers, body)
  if status ~= 200 or body:find('"isError":true', 1, true) or body:find('"error":', 1, true) then
    errors = errors + 1
  end
end
function done(summary, latency)
  local failed = summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
  for _, thread in ipairs(threads) do failed = failed + thread:get("errors") end
  io.write(string.format('RESULT {{"requests": %d, "seconds": %f, "p50": %f, "p95": %f, "p99": %f, "errors": %d}}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e6, latency:percentile(95) / 1e6,
    latency:percentile(99) / 1e6, failed))
end
"""


class _Outcome(NamedTuple):
    """Figures of one server."""

    requests: int
    seconds: float
    p50: float
    p95: float
    p99: float
    errors: int
    cpu_seconds: float
    """Processor time of a request in all processes of the server."""
    memory_kib: int


def measure(seconds: float) -> list[Section]:
    """Measure all servers in both eras with one process and with two, and two of the tools beside a server in Go.

    Args:
        seconds: Duration of each measurement.
    """
    if shutil.which("wrk") is None:
        section = Section("The lab", *COLUMNS)
        section.fail("wrk is not here: install the package of that name")
        return [section]
    sections = []
    with shop() as used:
        everyone = [name for name in servers.SERVERS if name != TOOLBOX]
        for workers in WORKERS:
            for era in Era:
                title = "Search, cart, checkout and a computation"
                section = Section(title, *COLUMNS, first=_heading(era, workers))
                known = everyone if era is Era.MODERN else [name for name in everyone if name != LIMIT]
                _compare(section, used, known, era, workers, seconds)
                sections.append(section)
        section = Section("Two of them, 2026-07-28, 1 process", *COLUMNS, first=_ALONE)
        _compare(section, used, [BRIDGE, TYPESCRIPT, TOOLBOX, LIMIT], Era.MODERN, 1, seconds, tools=("search", "cart"))
        sections.append(section)
    return sections


def _compare(
    section: Section,
    used: Shop,
    names: Sequence[str],
    era: Era,
    workers: int,
    seconds: float,
    tools: Sequence[str] = ("search", "cart", "checkout", "distance"),
) -> None:
    outcomes = {}
    for name in names:
        try:
            outcomes[name] = _outcome(name, used, era, workers, seconds, tools)
        except pytest.skip.Exception as reason:
            sys.stderr.write(f"without {name}: {reason}\n")
    limit = outcomes[LIMIT].cpu_seconds if LIMIT in outcomes else None
    for name, outcome in outcomes.items():
        beyond = "" if limit is None or name in (LIMIT, TYPESCRIPT, TOOLBOX) else duration(outcome.cpu_seconds - limit)
        section.add(
            name,
            f"{outcome.requests / outcome.seconds:,.0f}",
            *map(duration, (outcome.p50, outcome.p95, outcome.p99, outcome.cpu_seconds)),
            beyond,
            mib(outcome.memory_kib),
            f"{outcome.errors:,}",
        )
        if outcome.errors:
            section.fail(f"{name}: {outcome.errors:,} of {outcome.requests:,} requests failed")


def _outcome(name: str, used: Shop, era: Era, workers: int, seconds: float, tools: Sequence[str]) -> _Outcome:
    sessions = era is Era.HANDSHAKE and workers == 1
    with (
        served(name, used, workers=workers, sessions=sessions) as server,
        TemporaryDirectory() as folder,
        _pinned(server, alone=workers == 1),
    ):
        ids = open_sessions(server, USERS) if sessions else [None]
        raw = _requests(name, server, era, ids, tools)
        with Crowd(server.port, 1) as crowd:
            for answer in crowd.ask(raw[: len(tools)]):
                assert b'"result":' in answer.text, (name, answer)
                assert b'"isError":true' not in answer.text, (name, answer)
        script = Path(folder, "requests.lua")
        _wrk(server, script, raw, _WARM_SECONDS)
        before = _cpu_seconds(server)
        told = _wrk(server, script, raw, seconds)
        cpu = (_cpu_seconds(server) - before) / max(1, told["requests"])
        return _Outcome(**told, cpu_seconds=cpu, memory_kib=_memory(server).proportional_kib)


@contextmanager
def _pinned(server: StartedServer, *, alone: bool) -> Iterator[None]:
    """Give a server a core of its own, and all others the last one, which they inherited; two processes need both."""
    if sys.platform != "linux":
        yield
        return
    cores = sorted(os.sched_getaffinity(0))
    for process_id in family(server.process.pid):
        for thread in Path(f"/proc/{process_id}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {cores[0]} if alone else set(cores))
    if alone:
        os.sched_setaffinity(0, {cores[-1]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, set(cores))


def _requests(
    name: str, server: StartedServer, era: Era, sessions: Sequence[str | None], tools: Sequence[str]
) -> list[bytes]:
    """Return requests of all users in turn, each tool after the other, with IDs that differ."""
    raw: list[bytes] = []
    for turn in range(_ROUNDS):
        for user in range(USERS):
            for tool in tools:
                arguments = _arguments(name, tool, user, turn)
                message = request(era, "tools/call", _FIRST_ID + len(raw), name=tool, arguments=arguments)
                raw.append(server.post(message, era, sessions[user % len(sessions)]))
    return raw


def _arguments(name: str, tool: str, user: int, turn: int) -> dict[str, Any]:
    if tool == "search":
        words = f"{COLOURS[turn % len(COLOURS)]} {MATERIALS[user % len(MATERIALS)]}"
        return {"q" if name == TOOLBOX else "query": words, "limit": 10}
    if tool == "distance":
        return {"one": _TEXTS[0], "other": _TEXTS[1]}
    if name == TOOLBOX:
        return {"cart": f"cart:user-{user}", "orders": f"orders:user-{user}"}
    return {"user": f"user-{user}"}


def _wrk(server: StartedServer, script: Path, raw: Sequence[bytes], seconds: float) -> dict[str, Any]:
    texts = ", ".join('"' + "".join(f"\\{byte:03}" for byte in each) + '"' for each in raw)
    script.write_text(_SCRIPT.format(texts=texts), encoding="ascii")
    command = ["wrk", "-t1", f"-c{USERS}", f"-d{max(1, round(seconds))}s", "--timeout", "30s", "-s", str(script)]
    command.append(f"http://127.0.0.1:{server.port}/mcp")
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [line for line in run.stdout.splitlines() if line.startswith("RESULT ")]
    assert found, run.stdout + run.stderr
    told: dict[str, Any] = json.loads(found[0].removeprefix("RESULT "))
    return told


def _cpu_seconds(server: StartedServer) -> float:
    ticks = 0
    for process_id in family(server.process.pid):
        fields = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_A_SECOND


def _memory(server: StartedServer) -> Usage:
    return sum(map(usage, family(server.process.pid)), Usage())
