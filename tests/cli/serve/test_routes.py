from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run, Start

NOTES = """
from bridge import Server, tool
from starlette.responses import PlainTextResponse

@tool
def add(a: int, b: int) -> int:
    return a + b

@tool
def length(text: str) -> int:
    return len(text)

inner, notes = Server(length, name="inner"), Server(add, name="notes")
notes.mount(inner)

@notes.route("/hello")
async def hello(request):
    return PlainTextResponse("hello")

@inner.route("/inner")
async def of_inner(request):
    return PlainTextResponse("inner")
"""


def test_routes_of_a_server_and_those_that_it_mounts_are_served_over_http(start: Start, directory: Path) -> None:
    (directory / "notes.py").write_text(NOTES, encoding="utf-8")
    with start("serve", "notes.py", "--transport", "http", "--port", "0") as process:
        origin = process.url().removesuffix("/mcp")
        assert [httpx.get(f"{origin}/{path}").text for path in ("hello", "inner")] == ["hello", "inner"]


def test_the_start_over_stdio_says_that_routes_are_not_served(run: Run, directory: Path) -> None:
    (directory / "notes.py").write_text(NOTES, encoding="utf-8")
    done = run("serve", "notes.py:notes")
    assert "routes are served over HTTP alone, and not over stdio: /hello" in done.stderr
