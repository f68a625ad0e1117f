"""Servers that others wrote, installed from their registries into a cache folder; without them, tests are skipped.

The folder is ``BRIDGE_INTEROP_CACHE``, by default ``~/.cache/bridge-interop``.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NPM_VERSION = "2026.8.31"
EXT_APPS_VERSION = "2.0.4"
FASTMCP_VERSION = "4.1.2"
TYPESCRIPT_CLIENT_VERSION = "2.4.0"
INSPECTOR_VERSION = "2.12.0"
PYDANTIC_AI_VERSION = "2.68.0"
MCP_PROXY_VERSION = "0.13.0"
INSTALL_SECONDS = 300
CACHE = Path(os.environ.get("BRIDGE_INTEROP_CACHE", "~/.cache/bridge-interop")).expanduser()


def npm_server(name: str) -> tuple[str, str]:
    """The command of one of npm's reference servers, such as ``everything``; skips the test where it cannot be had."""
    package = npm_package(f"@modelcontextprotocol/server-{name}", NPM_VERSION)
    return str(shutil.which("node")), str(package / "dist" / "index.js")


def npm_package(package: str, version: str) -> Path:
    """The folder of a package of npm; skips the test where it cannot be had."""
    npm = shutil.which("npm")
    if shutil.which("node") is None or npm is None:
        pytest.skip(f"{package} runs on Node.js and comes from npm, which are not here")

    def install(folder: Path) -> None:
        quiet = ("--no-audit", "--no-fund", "--silent")
        _run(npm, "install", "--prefix", str(folder), *quiet, f"{package}@{version}")

    installed = _installed(f"npm-{package.rpartition('/')[2].removeprefix('server-')}-{version}", install)
    return installed / "node_modules" / package


def fastmcp_python() -> str:
    """A Python that has FastMCP; skips the test where that cannot be had."""
    return python_with("fastmcp", FASTMCP_VERSION)


def pydantic_ai_python() -> str:
    """A Python that has pydantic-ai with its MCP client; skips the test where that cannot be had."""
    return python_with("pydantic-ai-slim[mcp]", PYDANTIC_AI_VERSION)


def fastmcp_tasks_python() -> str:
    """A Python that has FastMCP with its tasks; skips the test where that cannot be had."""
    return python_with("fastmcp[tasks]", FASTMCP_VERSION)


def python_with(package: str, version: str) -> str:
    """A Python that has a package; skips the test where that cannot be had."""

    def install(folder: Path) -> None:
        _run(sys.executable, "-m", "venv", str(folder))
        _run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", f"{package}=={version}")

    return str(_installed(f"{package}-{version}", install, moves=False) / "bin" / "python")


def _installed(name: str, install: Callable[[Path], None], *, moves: bool = True) -> Path:
    """A folder of the cache, made where it is missing; several processes may want it at once.

    Args:
        name: The folder's name.
        install: Fills a folder.
        moves: What is installed works wherever it is moved to. Otherwise each process makes its own, if none is there.
    """
    folder, done = CACHE / name, CACHE / f"{name}.done"
    if done.exists():
        return Path(done.read_text())
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=CACHE))
        install(made)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"{name} cannot be installed: {error}")
    if moves:
        with suppress(OSError):  # somebody else was quicker
            made.rename(folder)
        made = folder
    done.write_text(str(made))
    return made


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode:
        raise subprocess.SubprocessError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-500:]}")


def free_port() -> int:
    """A port for a server that cannot say which one it was given."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running(*command: str, says: str, **environment: str) -> Iterator[None]:
    """Run a server until it says that it listens, on standard error, and while the context lasts."""
    with subprocess.Popen(
        command, env=os.environ | environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stderr is not None
        try:
            heard = []
            while says not in (line := process.stderr.readline()):
                heard.append(line)
                assert line, f"the server did not start: {heard}"
            yield
        finally:
            process.terminate()
            process.stderr.read()
