"""Large contents through a gateway: whole, over every transport and in both eras, and within limits of memory."""

from __future__ import annotations

import sys
from base64 import b64decode
from pathlib import Path
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
from tests.server.http_server import modern, modern_headers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.client import Transport

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

DEADLINE_SECONDS = 120
SERVER = str(Path(big.__file__))
READS = 10
MAX_COPIES = 9
"""Maximum times that a gateway has what it passes on in memory: received, parsed and written, with their buffers."""
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


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process's memory is read from /proc")
@pytest.mark.parametrize("can_be_asked", [False, True])
@pytest.mark.parametrize("name", ["web", "pipe"])
def test_a_gateway_has_few_copies_of_what_it_passes_on(name: str, config: str, *, can_be_asked: bool) -> None:
    capabilities: dict[str, Any] = {"elicitation": {}} if can_be_asked else {}
    params = {"uri": f"{name}+big://blob"}
    message = modern({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params}, capabilities)
    with (
        processes.serving("-m", "bridge", "serve", "--transport", "http", "--port", "0", config) as gateway,
        httpx.Client(timeout=DEADLINE_SECONDS) as client,
    ):
        status = Path(f"/proc/{gateway.process.pid}/status")

        def kib(field: str) -> int:
            return int(status.read_text().partition(f"{field}:")[2].split()[0])

        before = kib("VmRSS")
        for _ in range(READS):
            response = client.post(f"{gateway.origin}/mcp", json=message, headers=modern_headers(message))
            assert len(response.content) > big.BYTES
        assert kib("VmHWM") - before < MAX_COPIES * big.BYTES * 4 // 3 // 1024


async def test_a_result_over_the_limit_of_a_gateway_is_an_error_that_names_it(
    gateway: processes.ServerProcess, config: str
) -> None:
    limited = caller(Route("stdio", MODERN), gateway, config, "--max-result-bytes", "1000000")
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Connection(limited) as connection:
            for name in ("web", "pipe"):
                with pytest.raises(ServerRefusedError, match="bytes, and may have 1000000: ask for less"):
                    await connection.request("resources/read", {"uri": f"{name}+big://blob"})
