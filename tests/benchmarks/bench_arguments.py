"""Hostile arguments: how long they block the event loop, and what memory they take

Whole requests, over HTTP with and without the SDK, and over stdio. Each schema gets values that hypothesis finds, as
many as a server lets in within four mebibytes. The time is the most processor time between two turns of another task,
so that what else runs on the machine does not count; the memory is the peak of the process beside the request. A
process for each, so that none helps another.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import sys
import threading
from contextlib import asynccontextmanager
from datetime import date  # noqa: TC003 - read when the tools are made
from pathlib import Path
from time import process_time, sleep
from typing import TYPE_CHECKING, Any, Literal

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from bridge import ToolBox, tool
from bridge.protocol.messages import value_bounds
from bridge.server.http.app import http_app
from bridge.server.server import Server
from bridge.server.stdio.process import ProtocolStreams
from bridge.server.stdio.server import StdioServer
from tests.benchmarks.table import Row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.benchmarks.table import Table

MAX_BYTES = 4 * 1024 * 1024
SHAPES = 16
SMALL = b'{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"%b","arguments":{},"_meta":%b}}'
NAMES = '"name"'
"""Placeholder for an object with many names."""
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
}
PAGE_BYTES = 4096
PAUSE_SECONDS = 0.001


class Model(BaseModel):
    """A model with a required field."""

    a: int


class Default(BaseModel):
    """A model without a required field."""

    a: int = 0


class Closed(BaseModel, extra="forbid"):
    """A model with all names that the values have."""

    a: int = 0


class Node(BaseModel):
    """A recursive model."""

    children: list[Node] = []
    a: int = 0


@tool
async def models(v: list[Model]) -> None: ...
@tool
async def defaults(v: list[Default]) -> None: ...
@tool
async def unions(v: list[int | Model | list[int] | bool | date | dict[str, int]]) -> None: ...
@tool
async def dates(v: list[date]) -> None: ...
@tool
async def nodes(v: list[Node]) -> None: ...
@tool
async def literals(v: list[Literal[0, 1, "x"]]) -> None: ...
@tool
async def numbers(v: list[float]) -> None: ...
@tool
async def closed(v: Closed | list[Closed]) -> None: ...
@tool
async def anything(v: Any) -> None: ...
@tool
async def texts(v: str) -> None: ...


TOOLS = ToolBox(models, defaults, unions, dates, nodes, literals, numbers, closed, anything, texts)

VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 1.5, "", "1", "x", "NaN", "2026-08-01", "86400", 10**309]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "children", ""]), inner),
    max_leaves=4,
)


def shapes(count: int) -> list[str]:
    """Return the JSON of that many different values, the same in each run."""
    found: dict[str, None] = {"{}": None, '{"a":1}': None, NAMES: None, "1": None, '"1"': None, "1" * 308: None}

    @settings(
        derandomize=True, database=None, phases=[Phase.generate], max_examples=50 * count,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(VALUES)
    def find(value: object) -> None:
        found[json.dumps(value, separators=(",", ":"))] = None

    find()
    return list(found)[:count]


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES


def flood(name: str, shape: str) -> bytes:
    """Return a request with as many values as are accepted."""

    def request_of(count: int) -> bytes:
        if shape == NAMES:
            values = "{" + ",".join(f'"{i:x}":1' for i in range(count)) + "}"
        else:
            values = "[" + ",".join([shape] * count) + "]"
        params = f'{{"name":"{name}","arguments":{{"v":{values}}},"_meta":{json.dumps(META)}}}'
        return f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode()

    bounds, few, many = value_bounds(MAX_BYTES), 0, MAX_BYTES // 2
    while few + 1 < many:
        middle = (few + many) // 2
        # Beyond four mebibytes there is no need to write all of them.
        is_long = middle * (len(shape) + 1) > MAX_BYTES
        body = b"" if is_long else request_of(middle)
        few, many = (few, middle) if is_long or len(body) > MAX_BYTES or bounds.excess(body) else (middle, many)
    return request_of(few)


@asynccontextmanager
async def server(way: str) -> AsyncIterator[Callable[[bytes, str], Awaitable[None]]]:
    """Return a function that a server with the tools answers requests by."""
    if way == "stdio":
        (read_input, write_input), (read_output, write_output) = os.pipe(), os.pipe()
        stdio = StdioServer(Server(TOOLS, name="tools"), ProtocolStreams(input_fd=read_input, output_fd=write_output))
        serving = asyncio.ensure_future(stdio.serve())

        async def over_stdio(body: bytes, _name: str) -> None:
            writing = asyncio.to_thread(os.write, write_input, body + b"\n")
            reading = asyncio.to_thread(os.read, read_output, 65_536)
            await asyncio.gather(writing, reading)

        yield over_stdio
        stdio.stop()
        await serving
        return
    app = http_app(TOOLS)
    async with app.router.lifespan_context(app), httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as client:

        async def over_http(body: bytes, name: str) -> None:
            headers = {**HEADERS, "mcp-name": name}
            (await client.post("http://127.0.0.1/mcp", content=body, headers=headers)).raise_for_status()

        yield over_http


async def measured(way: str, name: str, body: bytes) -> tuple[float, int]:
    """Return the longest processor time between two turns of another task, and the peak of memory."""
    async with server(way) as answered:
        await answered(SMALL % (name.encode(), json.dumps(META).encode()), name)
        gc.collect()
        gc.freeze()  # as ``bridge serve`` does
        before, peak, block, is_over = resident_bytes(), 0, 0.0, False

        def look() -> None:
            nonlocal peak
            while not is_over:
                peak = max(peak, resident_bytes())
                sleep(PAUSE_SECONDS)

        async def wait() -> None:
            nonlocal block
            while not is_over:
                began = process_time()
                await asyncio.sleep(PAUSE_SECONDS)
                block = max(block, process_time() - began)

        looking, waiting = threading.Thread(target=look), asyncio.ensure_future(wait())
        looking.start()
        await asyncio.sleep(PAUSE_SECONDS)
        await answered(body, name)
        is_over = True
        await waiting
        looking.join()
    return block, peak - before


def run(case: tuple[str, str, bytes]) -> tuple[float, int]:
    """Run `measured` in a process of its own."""
    return asyncio.run(measured(*case))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("way", ["http", "stdio"])
@pytest.mark.parametrize("name", [each.name for each in TOOLS])
def bench_hostile_arguments(table: Table, heading: str, request: pytest.FixtureRequest, name: str, way: str) -> None:
    is_quick = request.config.getoption("benchmark_disable")
    if is_quick and name != "models":
        return
    cases = [(way, name, flood(name, shape)) for shape in shapes(1 if is_quick else SHAPES)]
    context = multiprocessing.get_context("forkserver")  # its processes have no memory that others have freed
    context.set_forkserver_preload([__name__])
    with context.Pool(1, maxtasksperchild=1) as processes:
        found = processes.map(run, cases, chunksize=1)
    if not is_quick:
        block, memory = (max(each) for each in zip(*found, strict=True))
        row = f"{way}, {name}: {memory / 2**20:.0f} MiB of memory at most, and the longest block"
        table.add(Row(group=heading, name=row, best_seconds=block, median_seconds=block))
