"""Calls a second of one core, beside peers: wrk, a load generator in C, uses the other core.

All servers run at once and are measured in turn, round after round. Peers are installed into a cache folder; a peer
that cannot be installed is left out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.benchmarks.http_server import serving
from tests.benchmarks.load.gateway import gateways
from tests.benchmarks.load.latency import CONNECTIONS
from tests.benchmarks.load.section import Section
from tests.benchmarks.messages import KINDS, Era, request
from tests.benchmarks.peers import FASTMCP, LIMIT, OFFICIAL, OURS, ROUTE, served_over_http
from tests.benchmarks.processes import FEATURES, LONG_SECONDS, TOOLS
from tests.interop.packages import fastmcp_python

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.benchmarks.http_server import HttpServer

_IDS = 200
_FIRST_ID = 1000
"""The IDs have the same length, as those of a client that has sent some requests."""
_RATE = re.compile(r"Requests/sec:\s+([\d.]+)")


def measure(seconds: float, rounds: int) -> list[Section]:
    """Measure the maximum rate of each server.

    Args:
        seconds: Duration of one server's round.
        rounds: Number of rounds.
    """
    section = Section(f"Calls a second of one core, {CONNECTIONS} connections", "calls a second", "of bridge")
    if shutil.which("wrk") is None:
        section.fail("wrk is not here: install the package of that name")
        return [section]
    peers = _peers()
    for era in Era:
        with ExitStack() as stack:
            servers = served_over_http(stack, TOOLS, peers, era)
            asked = {name: (server, _add("add")) for name, server in servers.items()}
            if era is Era.MODERN:
                asked["bridge, a tool with a context"] = servers[OURS], _add("add_in_context")
                asked["bridge, progress that nobody asked for"] = servers[OURS], _add("add_and_report")
            _compare(section, era, era.value, asked, seconds, rounds)
    with ExitStack() as stack:
        server = stack.enter_context(serving(TOOLS, limit_seconds=LONG_SECONDS))
        asked = {"bridge, behind the gateways": (server, _add("add"))}
        for name, serve in gateways().items():
            if name != "mcp-proxy":  # it takes no URL
                behind = {"server": {"url": f"http://127.0.0.1:{server.port}/mcp"}}
                asked[f"through {name}"] = stack.enter_context(serve(behind)), _add("add")
        _compare(section, Era.MODERN, Era.MODERN.value, asked, seconds, rounds)
    return [section]


def measure_features(seconds: float, rounds: int) -> list[Section]:
    """Measure the maximum rates of reads and prompts beside those of calls; the arguments are those of `measure`."""
    section = Section(f"Requests a second of one core, {CONNECTIONS} connections", "requests a second", "of bridge")
    if shutil.which("wrk") is None:
        section.fail("wrk is not here: install the package of that name")
        return [section]
    peers = {name: peer for name, peer in _peers().items() if name != ROUTE} | {LIMIT: (sys.executable, "limit")}
    with ExitStack() as stack:
        servers = served_over_http(stack, FEATURES, peers, Era.MODERN)
        for kind, (method, params, wanted) in KINDS.items():
            asked = {name: (server, _Asked(method, params, wanted)) for name, server in servers.items()}
            _compare(section, Era.MODERN, kind, asked, seconds, rounds)
    return [section]


class _Asked(NamedTuple):
    """A request that is repeated."""

    method: str
    params: Mapping[str, Any]
    wanted: bytes
    """A text that the response must contain."""


def _add(tool: str) -> _Asked:
    method, params, wanted = KINDS["a call"]
    return _Asked(method, params | {"name": tool}, wanted)


def _compare(
    section: Section,
    era: Era,
    what: str,
    asked: Mapping[str, tuple[HttpServer, _Asked]],
    seconds: float,
    rounds: int,
) -> None:
    rates: dict[str, list[float]] = {name: [] for name in asked}
    with TemporaryDirectory() as folder:
        scripts = {name: _script(Path(folder, f"{i}.lua"), era, *each) for i, (name, each) in enumerate(asked.items())}
        for _ in range(rounds):
            for name, (server, _) in asked.items():
                rates[name].append(_rate(server, scripts[name], seconds))
    first = next(iter(rates.values()))
    for name, its in rates.items():
        ratio = median(own / ours for own, ours in zip(its, first, strict=True))
        section.add(f"{what}, {name}", f"{median(its):,.0f}", f"{ratio:.3g}")


def _script(path: Path, era: Era, server: HttpServer, asked: _Asked) -> str:
    """Return requests for wrk with different IDs: no two open requests of a session may have the same."""
    ids = range(_FIRST_ID, _FIRST_ID + _IDS)
    raw = [server.post(request(era, asked.method, number, **asked.params), era) for number in ids]
    with server.connect() as connection:
        assert asked.wanted in (answer := connection.answer(raw[0])), answer
    texts = ", ".join('"' + "".join(f"\\{byte:03}" for byte in each) + '"' for each in raw)
    script = f"local turn, raw = 0, {{{texts}}}\nrequest = function() turn = turn % {_IDS} + 1 return raw[turn] end\n"
    path.write_text(script, encoding="ascii")
    _pin(server.process, 0)
    return str(path)


def _rate(server: HttpServer, script: str, seconds: float) -> float:
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s", "-s", script]
    command.append(f"http://127.0.0.1:{server.port}/mcp")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as wrk:
        _pin(wrk, -1)
        told, _ = wrk.communicate()
    found = _RATE.search(told)
    assert found is not None, told
    assert "Non-2xx" not in told, told
    return float(found[1])


def _pin(process: subprocess.Popen[bytes] | subprocess.Popen[str], place: int) -> None:
    """Pin a process to one core: the first for servers, the last for the load."""
    if sys.platform == "linux":
        os.sched_setaffinity(process.pid, {sorted(os.sched_getaffinity(0))[place]})


def _peers() -> dict[str, tuple[str, str]]:
    """Return the Python and the argument of `peer_server.py` for each peer that can be installed."""
    peers = {OFFICIAL: (sys.executable, "official")}
    try:
        peers[FASTMCP] = (fastmcp_python(), "fastmcp")
    except pytest.skip.Exception as reason:
        sys.stderr.write(f"without FastMCP: {reason}\n")
    return peers | {ROUTE: (sys.executable, "route")}
