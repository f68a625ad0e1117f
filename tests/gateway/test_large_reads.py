"""Large contents through a gateway: whole, over every transport and in both eras, and at most once in memory."""

from __future__ import annotations

import json
import sys
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest

from bridge.client import Connection, HttpTransport, ServerConfig
from bridge.errors import ServerRefusedError
from tests import forks, processes
from tests.client.conftest import forked
from tests.gateway import big
from tests.gateway.conftest import write_config
from tests.interop.counterpart import MODERN, Route
from tests.server.http_server import modern, modern_headers, request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.client.transports.transport import Transport

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

DEADLINE_SECONDS = 120
SERVER = str(Path(big.__file__))
READS = 12
READERS = 4
TEXT_KIB = big.BYTES * 4 // 3 // 1024
MAX_STREAM_KIB = 6 * 1024
"""Maximum memory for contents that pass while they are received: their buffers on both sides."""
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process's memory is read from /proc")
CALLERS = [Route(transport, mode) for transport in ("stdio", "http") for mode in (MODERN, "legacy")]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with processes.serving("-m", "bridge", "serve", "--transport", "http", "--port", "0", SERVER) as server:
        yield server.origin


@pytest.fixture(scope="module", params=[MODERN, "legacy"], ids=lambda era: f"from-{era}")
def config(request: pytest.FixtureRequest, server: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A configuration with the server over HTTP and over stdio."""
    over_stdio = forks.entry("-m", "bridge", "serve", SERVER, cwd=str(processes.ROOT))
    over_http = {"type": "http", "url": f"{server}/mcp"}
    servers: dict[str, Any] = {"web": over_http, "pipe": over_stdio}
    path = tmp_path_factory.mktemp("config") / "mcp.json"
    return write_config(path, **{name: {**each, "protocol": request.param} for name, each in servers.items()})


@pytest.fixture(scope="module")
def gateway(config: str) -> Iterator[processes.ServerProcess]:
    with processes.serving("-m", "bridge", "serve", "--transport", "http", "--port", "0", config) as gateway:
        yield gateway


def caller(route: Route, gateway: processes.ServerProcess, config: str, *options: str) -> ServerConfig:
    """A gateway, by a route of its callers."""
    transport: Transport = HttpTransport(f"{gateway.origin}/mcp")
    if route.transport == "stdio":
        transport = forked("-m", "bridge", "serve", *options, config)
    mode: Any = route.mode
    return ServerConfig(name="gateway", transport=transport, protocol=mode, timeout_seconds=DEADLINE_SECONDS)


@pytest.mark.parametrize("route", CALLERS, ids=lambda route: f"to-{route}")
async def test_large_contents_arrive_whole(route: Route, gateway: processes.ServerProcess, config: str) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Connection(caller(route, gateway, config)) as connection:
            for name in ("web", "pipe"):
                uri = f"{name}+big://blob"
                (blob,) = (await connection.request("resources/read", {"uri": uri}))["contents"]
                assert blob.keys() == {"uri", "mimeType", "blob"}
                assert (blob["uri"], b64decode(blob["blob"])) == (uri, big.blob())
                uri = f"{name}+big://{name}/text"
                (text,) = (await connection.request("resources/read", {"uri": uri}))["contents"]
                assert (text["uri"], text["text"]) == (uri, big.text(name))


def kib(pid: int, field: str) -> int:
    """A figure of the memory of a process."""
    return int(Path(f"/proc/{pid}/status").read_text().partition(f"{field}:")[2].split()[0])


@ON_LINUX
@pytest.mark.parametrize("can_be_asked", [False, True])
@pytest.mark.parametrize(("name", "max_kib"), [("web", READERS * MAX_STREAM_KIB), ("pipe", READERS * 3 * TEXT_KIB)])
def test_contents_from_http_are_not_held_and_those_from_stdio_once(
    name: str, max_kib: int, config: str, *, can_be_asked: bool
) -> None:
    capabilities: dict[str, Any] = {"elicitation": {}} if can_be_asked else {}
    message = modern(request("resources/read", {"uri": f"{name}+big://blob"}), capabilities)
    with (
        processes.serving("-m", "bridge", "serve", "--transport", "http", "--port", "0", config) as gateway,
        httpx.Client(timeout=DEADLINE_SECONDS) as client,
        ThreadPoolExecutor(READERS) as readers,
    ):

        def read(_: int) -> int:
            response = client.post(f"{gateway.origin}/mcp", json=message, headers=modern_headers(message))
            return len(response.content)

        before = kib(gateway.process.pid, "VmRSS")
        assert min(readers.map(read, range(READS))) > big.BYTES
        assert kib(gateway.process.pid, "VmHWM") - before < max_kib


@ON_LINUX
@pytest.mark.parametrize(("name", "copies"), [("web", 2), ("pipe", 3)])
async def test_contents_for_a_caller_over_stdio_are_held_once(name: str, copies: int, config: str) -> None:
    message = modern(request("resources/read", {"uri": f"{name}+big://blob"}))
    command = [sys.executable, "-m", "bridge", "serve", config]
    with anyio.fail_after(DEADLINE_SECONDS):
        async with await anyio.open_process(command, cwd=processes.ROOT, stderr=DEVNULL) as gateway:
            assert gateway.stdin is not None
            assert gateway.stdout is not None

            async def ask(message: Any) -> int:
                assert gateway.stdin is not None
                assert gateway.stdout is not None
                await gateway.stdin.send(json.dumps(message).encode() + b"\n")
                length, part = 0, b""
                while not part.endswith(b"\n"):
                    part = await gateway.stdout.receive()
                    length += len(part)
                return length

            await ask(modern(request("resources/read", {"uri": f"{name}+big://{name}/text"})))
            before = kib(gateway.pid, "VmRSS")
            for _ in range(READS // READERS):
                assert await ask(message) > big.BYTES
            assert kib(gateway.pid, "VmHWM") - before < copies * TEXT_KIB
            await gateway.stdin.aclose()


async def test_a_result_over_the_limit_of_a_gateway_is_an_error_that_names_it(
    gateway: processes.ServerProcess, config: str
) -> None:
    limited = caller(Route("stdio", MODERN), gateway, config, "--max-result-bytes", "1000000")
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Connection(limited) as connection:
            for name in ("web", "pipe"):
                with pytest.raises(ServerRefusedError, match="bytes, and may have 1000000: ask for less"):
                    await connection.request("resources/read", {"uri": f"{name}+big://blob"})
