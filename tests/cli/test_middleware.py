"""Middleware that a file names, in the servers that commands start."""

from __future__ import annotations

import signal
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.server.http_server import call, modern, modern_headers, request

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run, Start

NOTES = """
from bridge import Middleware, ToolError, tool

class Doubling(Middleware):
    async def call_tool(self, request, context, call_next):
        return await call_next(type(request)(request.name, {"a": 2 * request.argument("a")}), context)

    def list_tools(self, request, context, call_next):
        return [each for each in call_next(request, context) if each.name != "hidden"]

@tool
def same(a: int) -> int:
    return a

@tool
def hidden() -> None:
    pass

middleware = [Doubling()]
"""
MORE = """
from bridge import tool
from bridge import middleware

@tool
def other(a: int) -> int:
    return a
"""


@pytest.fixture(autouse=True)
def _files(directory: Path) -> None:
    (directory / "notes.py").write_text(dedent(NOTES), encoding="utf-8")
    (directory / "more.py").write_text(dedent(MORE), encoding="utf-8")
    (directory / "mcp.json").write_text('{"mcpServers": {}}', encoding="utf-8")


@pytest.mark.parametrize("more", [[], ["mcp.json"]])
def test_it_surrounds_everything_that_a_server_serves(start: Start, more: list[str]) -> None:
    with start("serve", "notes.py", "more.py", *more, "--transport", "http", "--port", "0") as process:
        url = process.url()

        def asked(message: dict[str, Any]) -> Any:
            return httpx.post(url, json=message, headers=modern_headers(message)).json()["result"]

        for name in ("same", "other"):
            assert asked(modern(call(name, {"a": 4})))["content"][0]["text"] == "8"
        assert [each["name"] for each in asked(modern(request("tools/list")))["tools"]] == ["same", "other"]
        assert process.end(signal.SIGTERM) == 0


def test_what_is_no_middleware_is_said(run: Run, directory: Path) -> None:
    text = NOTES.replace("[Doubling()]", "[Doubling(), Doubling]")
    (directory / "notes.py").write_text(dedent(text), encoding="utf-8")
    done = run("serve", "notes.py", "--transport", "http", "--port", "0")
    assert done.returncode == 2
    assert "Doubling is a class; give an object: middleware=[Doubling(…)]" in done.stderr
