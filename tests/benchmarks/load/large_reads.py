"""Large contents through a gateway, beside FastMCP's proxy: time of a read, and memory of the gateway."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx

from tests.benchmarks.http_server import serving
from tests.benchmarks.load.gateway import gateways
from tests.benchmarks.load.memory import mib, peak_kib, resident_kib
from tests.benchmarks.load.section import Section
from tests.benchmarks.processes import LONG_SECONDS, ROOT
from tests.benchmarks.table import duration
from tests.gateway import big
from tests.server.http_server import HEADERS, open_session, request

if TYPE_CHECKING:
    from tests.benchmarks.http_server import HttpServer

_SERVER = str(Path(big.__file__))
_MIB = 1024 * 1024
_OF_OTHERS = "mcp-proxy"
"""It passes tools alone."""


class _Read(NamedTuple):
    seconds: float
    first_seconds: float
    read_bytes: int


def measure(reads: int) -> Section:
    """Read a blob of 20 MiB from a server, and through gateways to it.

    Args:
        reads: Number of reads of each, of which the fastest counts.
    """
    section = Section(
        f"A read of {big.BYTES // _MIB} MiB, in a session", "fastest", "first byte", "throughput", "gateway's peak"
    )
    with serving(_SERVER, limit_seconds=LONG_SECONDS) as server:
        _add(section, "from the server", server, reads, is_gateway=False)
        over_http: dict[str, Any] = {"url": f"http://127.0.0.1:{server.port}/mcp"}
        over_stdio = {"command": sys.executable, "args": ["-m", "bridge", "serve", _SERVER], "cwd": str(ROOT)}
        for name, serve in gateways().items():
            for way, behind in (("HTTP", over_http), ("stdio", over_stdio)):
                if name != _OF_OTHERS:
                    with serve({"big": behind}) as gateway:
                        _add(section, f"through {name}, a server over {way}", gateway, reads)
    return section


def _add(section: Section, name: str, server: HttpServer, reads: int, *, is_gateway: bool = True) -> None:
    with httpx.Client(timeout=LONG_SECONDS) as client:
        url = f"http://127.0.0.1:{server.port}/mcp"
        headers = open_session(client, url)
        client.post(url, json=request("resources/list"), headers=headers).raise_for_status()
        before = resident_kib(server.process)
        fastest = min(_read(client, url, headers) for _ in range(reads))
    if fastest.read_bytes < big.BYTES:
        section.fail(f"{name}: a read has {fastest.read_bytes} bytes")
    peak = mib(peak_kib(server.process) - before) if is_gateway else ""
    rate = f"{fastest.read_bytes / _MIB / fastest.seconds:,.0f} MiB/s"
    section.add(name, duration(fastest.seconds), duration(fastest.first_seconds), rate, peak)


def _read(client: httpx.Client, url: str, headers: dict[str, str]) -> _Read:
    start, first, read_bytes = perf_counter(), 0.0, 0
    message = request("resources/read", {"uri": "big://blob"}, 7)
    with client.stream("POST", url, json=message, headers=HEADERS | headers) as response:
        for part in response.iter_raw():
            first = first or perf_counter() - start
            read_bytes += len(part)
    return _Read(perf_counter() - start, first, read_bytes)
