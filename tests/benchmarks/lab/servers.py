"""Servers of the lab, each a process of its own beside the API of the shop and a Redis.

Packages of others are installed into the cache of `tests.interop.packages`; without them a server is left out.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Timer
from typing import IO, TYPE_CHECKING

from tests.benchmarks.http_server import HttpServer
from tests.benchmarks.processes import ROOT
from tests.interop.packages import (
    TOOLBOX_VERSION,
    TYPESCRIPT_SERVER_PACKAGES,
    lab_python,
    npm_packages,
    python_with,
)
from tests.ports import free_port
from tests.redis_server import redis_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

BRIDGE, OFFICIAL, FASTMCP = "bridge", "official SDK 2.3", "FastMCP 4.2"
TYPESCRIPT, TOOLBOX, LIMIT = "TypeScript SDK 2.4", "MCP Toolbox (Go)", "bare protocol"
USERS = 50
_START_SECONDS = 60.0
_LIMIT_SECONDS = 300.0
_MODULE = "tests.benchmarks.lab"

_TOOLBOX = """
kind: source
name: api
type: http
baseUrl: {api}
allowPrivateNetworks: true
---
kind: source
name: store
type: redis
address: ["{redis}"]
---
kind: tool
name: search
type: http
source: api
method: GET
path: /products
description: Search the products of the shop.
queryParams:
  - {{name: q, type: string, description: Words.}}
  - {{name: limit, type: integer, description: Number of products., default: 10}}
---
kind: tool
name: cart
type: redis
source: store
description: Return the cart of a user and the latest orders.
commands:
  - [HGETALL, $cart]
  - [LRANGE, $orders, "0", "9"]
parameters:
  - {{name: cart, type: string, description: Key of the cart.}}
  - {{name: orders, type: string, description: Key of the orders.}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """The API and the Redis that the tools use."""

    api: str
    """URL of the API."""
    redis: str
    """URL of the Redis."""

    def environment(self) -> Mapping[str, str]:
        """Return the environment variables of a server."""
        return {"SHOP_API": self.api, "SHOP_REDIS": self.redis}


class StartedServer(HttpServer):
    """A running server, whose port was chosen before.

    Args:
        process: Its process, which may have worker processes.
        port: The port.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port
        self._session_id = None


def _bridge(port: int, workers: int, sessions: bool, _folder: Path, _shop: Shop) -> list[str]:
    words = ["-m", "bridge", "serve", f"{_MODULE}.bridge_tools:SHOP", "--transport", "http", "--port", str(port)]
    return [lab_python(), *words, "--workers", str(workers), "--log-level", "error"]


def _python(peer: str) -> Callable[[int, int, bool, Path, Shop], list[str]]:
    def command(port: int, workers: int, sessions: bool, _folder: Path, _shop: Shop) -> list[str]:
        options = ["sessions"] if sessions else []
        return [lab_python(), "-m", f"{_MODULE}.peer_servers", peer, str(port), str(workers), *options]

    return command


def _typescript(port: int, workers: int, sessions: bool, _folder: Path, _shop: Shop) -> list[str]:
    packages = npm_packages("npm-lab", *TYPESCRIPT_SERVER_PACKAGES)
    script = Path(__file__).with_name("typescript_server.mjs")
    options = ["sessions"] if sessions else []
    return [str(shutil.which("node")), str(script), str(packages), str(port), str(workers), *options]


def _toolbox(port: int, _workers: int, _sessions: bool, folder: Path, shop: Shop) -> list[str]:
    python = Path(python_with("toolbox-server", TOOLBOX_VERSION))
    (program,) = python.parents[1].glob("lib/python*/site-packages/toolbox_server/bin/toolbox")
    file = folder / "tools.yaml"
    address = shop.redis.removeprefix("redis://").removesuffix("/0")
    file.write_text(_TOOLBOX.format(api=shop.api, redis=address), encoding="utf-8")
    options = ["--disable-reload", "--disable-version-check", "--log-level", "ERROR"]
    return [str(program), "--config", str(file), "--port", str(port), *options]


SERVERS: dict[str, Callable[[int, int, bool, Path, Shop], list[str]]] = {
    BRIDGE: _bridge,
    OFFICIAL: _python("official"),
    FASTMCP: _python("fastmcp"),
    TYPESCRIPT: _typescript,
    TOOLBOX: _toolbox,
    LIMIT: _python("limit"),
}
"""Functions that return the command of each server."""


@contextmanager
def shop() -> Iterator[Shop]:
    """Run the API and a Redis, on the last core, with a cart for each user."""
    with TemporaryDirectory() as folder, redis_server(Path(folder)) as redis:
        port = free_port()
        command = [sys.executable, "-m", f"{_MODULE}.api", str(port)]
        with started(command, port, {}):
            from redis import Redis  # noqa: PLC0415 - optional dependency

            with Redis.from_url(redis.url) as client:
                for user in range(USERS):
                    items = {str(user * 1000 + item): item % 3 + 1 for item in range(5)}
                    client.hset(f"cart:user-{user}", mapping=items)
            yield Shop(api=f"http://127.0.0.1:{port}", redis=redis.url)


@contextmanager
def served(name: str, used: Shop, *, workers: int, sessions: bool) -> Iterator[StartedServer]:
    """Run a server.

    Args:
        name: Its name.
        used: The shop.
        workers: Number of its processes; of MCP Toolbox, a program in Go, it is ignored.
        sessions: True if clients of the handshake era have sessions.
    """
    port = free_port()
    with TemporaryDirectory() as folder:
        command = SERVERS[name](port, workers, sessions, Path(folder), used)
        with started(command, port, used.environment()) as process:
            yield StartedServer(process, port)


@contextmanager
def started(command: list[str], port: int, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the context ends, with its workers; it begins when the server listens."""
    variables = {**os.environ, **environment}
    with (
        TemporaryFile() as log,
        subprocess.Popen(command, cwd=ROOT, env=variables, stdout=log, stderr=log, start_new_session=True) as process,
    ):
        watchdog = Timer(_LIMIT_SECONDS, _kill, [process])
        watchdog.start()
        try:
            _wait(process, port, log)
            yield process
        finally:
            watchdog.cancel()
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and its workers."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def _wait(process: subprocess.Popen[bytes], port: int, log: IO[bytes]) -> None:
    """Wait until a server listens."""
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            log.seek(0)
            raise AssertionError(f"{process.args!r} has ended: {log.read().decode(errors='replace')}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError(f"{process.args!r} did not listen within {_START_SECONDS:g} seconds")
