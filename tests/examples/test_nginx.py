from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from anyio.abc import SocketStream

CONFIGURATION = Path("examples/deploy/nginx.conf")
DEADLINE_SECONDS = 60
CALLS = 6

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed"),
]


@contextmanager
def nginx(folder: Path, ports: dict[int, int]) -> Iterator[None]:
    """The example with other ports, and with one process, which alone decides which servers are down."""
    text = CONFIGURATION.read_text(encoding="utf-8").replace("worker_processes auto;", "worker_processes 1;")
    text = re.sub(r"127\.0\.0\.1:(\d+)", lambda found: f"127.0.0.1:{ports[int(found[1])]}", text)
    file = folder / "nginx.conf"
    file.write_text(text, encoding="utf-8")
    settings = f"daemon off; pid {folder / 'pid'};"
    with subprocess.Popen(["nginx", "-e", "stderr", "-c", str(file), "-g", settings]) as process:
        try:
            yield
        finally:
            process.terminate()


async def _answer(stream: SocketStream) -> None:
    async with stream:
        async for _ in stream:
            await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")


@asynccontextmanager
async def replica(port: int) -> AsyncIterator[None]:
    """Return the name of the server that answers at a port."""
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, _answer)
        yield
        tasks.cancel_scope.cancel()


async def _opened(client: httpx.AsyncClient) -> None:
    while True:
        try:
            await client.get("/")
        except httpx.ConnectError:
            await anyio.lowlevel.checkpoint()
        else:
            return


async def test_no_call_is_lost_where_replicas_are_started_again_quickly_one_after_another(tmp_path: Path) -> None:
    near, far = free_port(), [free_port() for _ in range(3)]
    ports = {8000: near} | dict(zip((8001, 8002, 8003), far, strict=True))
    with anyio.fail_after(DEADLINE_SECONDS), nginx(tmp_path, ports):
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{near}", timeout=DEADLINE_SECONDS) as client:
            for away in (None, *far):
                async with AsyncExitStack() as replicas:
                    for port in far:
                        if port != away:
                            await replicas.enter_async_context(replica(port))
                    await _opened(client)
                    for _ in range(CALLS):
                        assert (await client.post("/mcp")).status_code == 200
