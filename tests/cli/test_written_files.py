"""Files and folders that commands write can be changed by their user alone, also with an open umask."""

from __future__ import annotations

import json
import os
import stat
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="files have no mode there")


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize(
    "command",
    [
        ("new", "made/project"),
        ("pin", "mcp.json"),
        ("bundle", "tools.py", "--output", "tools.mcpb"),
        ("install", "tools.py", "--client", "cursor", "--env", "TOKEN=secret"),
        ("install", "tools.py", "--client", "vscode"),
        ("--install-completion", "bash"),
        ("--install-completion", "zsh"),
        ("--install-completion", "fish"),
    ],
    ids=" ".join,
)
def test_others_cannot_change_what_a_command_writes(
    run: Run, directory: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (directory / "tools.py").write_text("from bridge import tool\n\n@tool\ndef f() -> None:\n    pass\n")
    served = {"command": sys.executable, "args": ["-m", "bridge", "serve", str(directory / "tools.py")]}
    (directory / "mcp.json").write_text(json.dumps({"mcpServers": {"served": served}}))
    before = {*tmp_path.rglob("*")}
    done = run(*command, env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert done.returncode == 0, done.stderr
    written = {path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts} - before  # that is Python's
    assert written
    assert [path for path in written if stat.S_IMODE(path.stat().st_mode) & 0o022] == []
