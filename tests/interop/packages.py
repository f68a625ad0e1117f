"""Servers of other projects, installed from their registries into a cache folder; without them, tests are skipped.

The folder is ``BRIDGE_INTEROP_CACHE``, by default ``~/.cache/bridge-interop``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
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
COMPARED_FASTMCP_VERSION = "4.2.1"
COMPARED_SDK_VERSION = "2.3.0"
MCPB_VERSION = "2.1.2"
LANGCHAIN_VERSION = "1.4.7"
LAB_PACKAGES = ("aiohttp==3.14.5", "redis[hiredis]==8.1.0", "uvloop==0.23.0", "httptools==0.9.0")
TYPESCRIPT_SERVER_PACKAGES = (
    "@modelcontextprotocol/server@2.4.0",
    "@modelcontextprotocol/node@2.1.2",
    "undici@7.16.0",
    "ioredis@6.0.0",
)
TOOLBOX_VERSION = "1.15.0"
SUPERGATEWAY_VERSION = "4.0.0"
MCP_PROXY_VERSION = "0.13.0"
INSTALL_SECONDS = 300
CACHE = Path(os.environ.get("BRIDGE_INTEROP_CACHE", "~/.cache/bridge-interop")).expanduser()


def npm_server(name: str) -> tuple[str, str]:
    """Return the command of a reference server of npm, such as ``everything``; skip the test if it is unavailable."""
    package = npm_package(f"@modelcontextprotocol/server-{name}", NPM_VERSION)
    return str(shutil.which("node")), str(package / "dist" / "index.js")


def npm_package(package: str, version: str) -> Path:
    """Return the folder of an npm package; skip the test if it is unavailable."""
    name = f"npm-{package.rpartition('/')[2].removeprefix('server-')}-{version}"
    return npm_packages(name, f"{package}@{version}") / "node_modules" / package


def npm_packages(name: str, *packages: str) -> Path:
    """Return a folder with npm packages in its ``node_modules``; skip the test if they are unavailable.

    Args:
        name: Name of the folder in the cache, different for different versions.
        packages: As ``NAME@VERSION``.
    """
    npm = shutil.which("npm")
    if shutil.which("node") is None or npm is None:
        pytest.skip(f"{packages[0]} runs on Node.js and comes from npm, which are not here")

    def install(folder: Path) -> None:
        quiet = ("--no-audit", "--no-fund", "--silent")
        _run(npm, "install", "--prefix", str(folder), *quiet, *packages)

    return _installed(name, install)


def fastmcp_python() -> str:
    """Return a Python that has FastMCP; skip the test if it is unavailable."""
    return python_with("fastmcp", FASTMCP_VERSION)


def pydantic_ai_python() -> str:
    """Return a Python that has pydantic-ai with its MCP client; skip the test if it is unavailable."""
    return python_with("pydantic-ai-slim[mcp]", PYDANTIC_AI_VERSION)


def compared_python() -> str:
    """Return a Python that has the libraries of the README's comparison; skip the test if they are unavailable.

    FastMCP's code is in ``fastmcp-slim``, whose newest version may need certificates that are on no index yet: it
    replaces the one that an older FastMCP has installed with its dependencies.
    """

    def install(folder: Path) -> None:
        _install_compared(folder, f"langchain=={LANGCHAIN_VERSION}")
        python = str(folder / "bin" / "python")
        _run(python, "-m", "pip", "install", "--quiet", f"pydantic-ai-slim[mcp]=={PYDANTIC_AI_VERSION}")

    versions = (COMPARED_FASTMCP_VERSION, COMPARED_SDK_VERSION, PYDANTIC_AI_VERSION, LANGCHAIN_VERSION)
    return str(_installed("-".join(["compared", *versions]), install, moves=False) / "bin" / "python")


def _install_compared(folder: Path, *others: str) -> None:
    python = str(folder / "bin" / "python")
    _run(sys.executable, "-m", "venv", str(folder))
    packages = (f"fastmcp=={FASTMCP_VERSION}", f"mcp=={COMPARED_SDK_VERSION}", *others)
    _run(python, "-m", "pip", "install", "--quiet", *packages)
    _run(python, "-m", "pip", "install", "--quiet", "--no-deps", f"fastmcp-slim=={COMPARED_FASTMCP_VERSION}")


def lab_python() -> str:
    """Return a Python that has every server of the lab, and what their tools use; skip the test if unavailable.

    It has what this project depends on, and runs its code from the folder of the repository.
    """
    with (Path(__file__).parents[2] / "pyproject.toml").open("rb") as file:
        ours = tomllib.load(file)["project"]["dependencies"]

    def install(folder: Path) -> None:
        _install_compared(folder, *LAB_PACKAGES, *(each for each in ours if not each.startswith("mcp>")))

    versions = [package.rpartition("==")[2] for package in LAB_PACKAGES]
    return str(_installed("-".join(["lab", COMPARED_FASTMCP_VERSION, *versions]), install, moves=False) / "bin/python")


def fastmcp_tasks_python() -> str:
    """Return a Python that has FastMCP with its tasks; skip the test if it is unavailable."""
    return python_with("fastmcp[tasks]", FASTMCP_VERSION)


def python_with(package: str, version: str) -> str:
    """Return a Python that has a package; skip the test if it is unavailable."""

    def install(folder: Path) -> None:
        _run(sys.executable, "-m", "venv", str(folder))
        _run(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", f"{package}=={version}")

    return str(_installed(f"{package}-{version}", install, moves=False) / "bin" / "python")


def _installed(name: str, install: Callable[[Path], None], *, moves: bool = True) -> Path:
    """Return a folder of the cache, created if it is missing; several processes may create it at once.

    Args:
        name: The folder's name.
        install: Fills a folder.
        moves: True if the content works after the folder is renamed. Otherwise each process creates its own, if there
            is none.
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
        with suppress(OSError):  # another process was faster
            made.rename(folder)
        made = folder
    done.write_text(str(made))
    return made


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode:
        raise subprocess.SubprocessError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-500:]}")


@contextmanager
def running(*command: str, says: str, **environment: str) -> Iterator[None]:
    """Run a server, until it reports on standard error that it listens, and then until the context ends."""
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
