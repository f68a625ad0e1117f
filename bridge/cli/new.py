"""``bridge new``: write a small project with a tool, its test and a configuration."""

from __future__ import annotations

import json
import os
import re
from importlib.metadata import version
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from bridge.cli.reporting import CommandError
from bridge.cli.terminal import write_data
from bridge.hosting.process import print_message
from bridge.private_files import make_folder, write_readable

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z0-9])?")

_TOOLS = '''\
"""Tools of NAME."""

from bridge import ToolError, tool


@tool(annotations={"readOnlyHint": True})
def count_words(text: str, *, unique: bool = False) -> int:
    """Count the words of a text.

    Args:
        text: The text; words are separated by blanks.
        unique: Count each word once.
    """
    words = text.lower().split()
    if not words:
        raise ToolError("the text has no words: send at least one")
    return len(set(words) if unique else words)
'''
_TEST = '''\
"""Tests of the functions, and of the tools as a client calls them."""

import pytest
from tools import count_words

from bridge.testing import connected


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_words_are_counted() -> None:
    assert count_words("to be or not to be") == 6
    assert count_words("to be or not to be", unique=True) == 4


@pytest.mark.anyio
async def test_a_client_gets_the_number_or_a_reason() -> None:
    async with connected(count_words) as provider:
        counted = await provider.call("count_words", text="Hello world")
        assert counted.structured_content == {"result": 2}

        refused = await provider.call("count_words", text=" ")
        assert (refused.is_error, refused.text) == (True, "the text has no words: send at least one")
'''
_PYPROJECT = """\
[project]
name = "NAME"
version = "0.0.1"
description = "Tools for assistants that speak MCP."
requires-python = ">=3.11"
dependencies = ["mcp-toolbridge>=VERSION"]

[dependency-groups]
test = ["pytest>=9"]

[tool.uv]
package = false
"""
_SERVE = ["serve", "${workspaceFolder}/tools.py"]


@click.command(short_help="Write a small project.")
@click.argument("directory", metavar="NAME")
@click.pass_context
def command(ctx: click.Context, directory: str) -> None:
    """Write a project with a tool, its test and a configuration to a new directory.

    NAME is the directory; its last part names the project. An existing directory must be empty. The paths of the files
    are written to standard output.
    """
    path = Path(os.path.normpath(directory))  # "a/../b" does not create "a"
    name = path.absolute().name if directory else ""
    if not _NAME.fullmatch(name):
        message = f"{name!r} cannot name a project: use ASCII letters, digits, '-' and '_', beginning with a letter"
        raise click.UsageError(message, ctx)
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        raise CommandError(f"{str(path)!r} exists already, and is not an empty directory; choose another name")
    make_folder(path)
    for file, text in _files(name).items():
        try:
            write_readable(path / file, text.encode(), must_be_new=True)
        except OSError as error:  # that of a full disk names no file
            raise CommandError(f"cannot write {path / file}: {error.strerror or error}") from error
        write_data(str(path / file))
    print_message(f"test it: cd {quote(str(path))} && python -m pytest")
    print_message("then try it in the browser: bridge inspect tools.py")
    print_message("or in an assistant: bridge install tools.py --client claude-desktop")


def _files(name: str) -> Mapping[str, str]:
    """Text of each file."""
    servers = {"mcpServers": {name: {"command": "mcp-toolbridge", "args": _SERVE}}}
    return {
        "tools.py": _TOOLS.replace("NAME", name),
        "test_tools.py": _TEST,
        "mcp.json": json.dumps(servers, indent=2) + "\n",
        "pyproject.toml": _PYPROJECT.replace("NAME", name).replace("VERSION", version("mcp-toolbridge")),
    }
