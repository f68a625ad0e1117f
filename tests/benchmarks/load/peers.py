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
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.http_server import HttpServer, serving
from tests.benchmarks.load.gateway import gateways
from tests.benchmarks.load.latency import CONNECTIONS
from tests.benchmarks.load.section import Section
from tests.benchmarks.messages import Era, call, says_three
from tests.benchmarks.processes import LONG_SECONDS, PEER, TOOLS, running
from tests.interop.packages import fastmcp_python

if TYPE_CHECKING:
    from collections.abc import Mapping

OURS = "bridge"
_IDS = 200
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
            servers = {OURS: stack.enter_context(serving(TOOLS, limit_seconds=LONG_SECONDS))}
            for name, (python, word) in peers.items():
                if era is Era.HANDSHAKE and name == "bare route":
                    continue
                command = (PEER, word, "http", *(["sessions"] if era is Era.HANDSHAKE else []))
                process = stack.enter_context(
                    running(*command, python=python, limit_seconds=LONG_SECONDS, stderr=subprocess.PIPE)
                )
                servers[name] = HttpServer(process)
            if era is Era.HANDSHAKE:
                for server in servers.values():
                    server.open_session()
            asked = {name: (server, "add") for name, server in servers.items()}
            if era is Era.MODERN:
                asked["bridge, a tool with a context"] = servers[OURS], "add_in_context"
                asked["bridge, progress that nobody asked for"] = servers[OURS], "add_and_report"
            _compare(section, era, asked, seconds, rounds)
    with ExitStack() as stack:
        server = stack.enter_context(serving(TOOLS, limit_seconds=LONG_SECONDS))
        asked = {"bridge, behind the gateways": (server, "add")}
        for name, serve in gateways().items():
            if name != "mcp-proxy":  # it takes no URL
                behind = {"server": {"url": f"http://127.0.0.1:{server.port}/mcp"}}
                asked[f"through {name}"] = stack.enter_context(serve(behind)), "add"
        _compare(section, Era.MODERN, asked, seconds, rounds)
    return [section]


def _compare(
    section: Section, era: Era, asked: Mapping[str, tuple[HttpServer, str]], seconds: float, rounds: int
) -> None:
    rates: dict[str, list[float]] = {name: [] for name in asked}
    with TemporaryDirectory() as folder:
        scripts = {name: _script(Path(folder, f"{i}.lua"), era, *each) for i, (name, each) in enumerate(asked.items())}
        for _ in range(rounds):
            for name, (server, _tool) in asked.items():
                rates[name].append(_rate(server, scripts[name], seconds))
    first = next(iter(rates.values()))
    for name, its in rates.items():
        ratio = median(own / ours for own, ours in zip(its, first, strict=True))
        section.add(f"{era.value}, {name}", f"{median(its):,.0f}", f"{ratio:.3g}")


def _script(path: Path, era: Era, server: HttpServer, tool: str) -> str:
    """Return requests for wrk with different IDs: no two open requests of a session may have the same."""
    raw = [server.post(call(era, tool, number), era) for number in range(1, _IDS + 1)]
    with server.connect() as connection:
        assert says_three(answer := connection.answer(raw[0])), answer
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
    peers = {"official SDK": (sys.executable, "official")}
    try:
        peers["FastMCP"] = (fastmcp_python(), "fastmcp")
    except pytest.skip.Exception as reason:
        sys.stderr.write(f"without FastMCP: {reason}\n")
    return peers | {"bare route": (sys.executable, "route")}
