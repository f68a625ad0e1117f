from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE_SECONDS = 60

NOT_FOR_STDIO = {
    "cachetools", "circuitbreaker", "cryptography", "docstring_parser", "dotenv", "fastapi", "h11", "httpcore",
    "httptools", "httpx", "httpx2", "jsonschema", "jwt", "mcp", "mcp_types", "opentelemetry", "redis", "rich",
    "sse_starlette", "starlette", "tenacity", "trio", "uvicorn", "uvloop", "watchfiles",
    "ctypes", "html", "http", "multiprocessing", "sqlite3", "unittest", "xml",
    "bridge.adapters", "bridge.client", "bridge.gateway", "bridge.inspector", "bridge.models", "bridge.openapi",
    "bridge.service",
}  # fmt: skip
"""Heavy packages, some of the standard library and some of ours, that a start over stdio does not need."""

NOT_FOR_AN_IMPORT = NOT_FOR_STDIO | {
    "annotated_types", "anyio", "click", "pydantic", "pydantic_core",
    "asyncio", "dataclasses", "email", "inspect", "json", "logging", "ssl",
}  # fmt: skip
"""Packages that the public names do not need either."""

TOOLS = """
import atexit, sys
from bridge import tool

@tool
def add(a: int, b: int) -> int:
    return a + b

@atexit.register
def report() -> None:
    print("loaded:", *sys.modules, file=sys.stderr)
"""

CLIENT = {"name": "test", "version": "1"}
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
OPENING: list[dict[str, Any]] = [
    {
        "jsonrpc": "2.0",
        "id": "open",
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT},
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]
CALL = {"name": "add", "arguments": {"a": 1, "b": 2}}


def request(method: str, params: dict[str, Any], *, modern: bool) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": method, "method": method, "params": params | ({"_meta": META} if modern else {})}


def packages(modules: str) -> set[str]:
    """Names of packages, and of ours with their first part."""
    return {".".join(module.split(".")[: 2 if module.startswith("bridge.") else 1]) for module in modules.split()}


def loaded_by_serving(directory: Path, *messages: dict[str, Any]) -> set[str]:
    """Serve a tool over stdio, send messages, and return the packages that were loaded until the process ended."""
    (directory / "tools.py").write_text(TOOLS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "bridge", "serve", "tools.py"],
        cwd=directory,
        input="".join(json.dumps(message) + "\n" for message in messages),
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert answers.keys() == {message["id"] for message in messages if "id" in message}
    assert all("result" in answer for answer in answers.values()), answers
    _, found, modules = done.stderr.rpartition("loaded:")
    assert found, done.stderr
    return packages(modules)


def test_an_import_loads_nothing_that_it_does_not_use() -> None:
    program = "import bridge, sys; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=True
    )
    assert packages(run.stdout) & NOT_FOR_AN_IMPORT == set()


def test_a_start_over_stdio_loads_nothing_that_it_does_not_use(tmp_path: Path) -> None:
    assert loaded_by_serving(tmp_path) & NOT_FOR_STDIO == set()


@pytest.mark.parametrize("method", ["tools/list", "tools/call"])
def test_nor_do_the_first_answers_of_the_handshake_era(tmp_path: Path, method: str) -> None:
    asked = request(method, CALL if method == "tools/call" else {}, modern=False)
    assert loaded_by_serving(tmp_path, *OPENING, asked) & NOT_FOR_STDIO == set()


@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call"])
def test_nor_do_the_first_answers_of_the_modern_era(tmp_path: Path, method: str) -> None:
    asked = request(method, CALL if method == "tools/call" else {}, modern=True)
    assert loaded_by_serving(tmp_path, asked) & NOT_FOR_STDIO == set()


def test_nor_do_others(tmp_path: Path) -> None:
    level = request("logging/setLevel", {"level": "info"}, modern=False)
    assert loaded_by_serving(tmp_path, *OPENING, level) & NOT_FOR_STDIO == set()
