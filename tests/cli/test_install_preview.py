"""Warnings of `bridge install` before it writes: comments that go, and packages that are missing."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from bridge.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


@pytest.mark.skipif(sys.platform != "linux", reason="Linux's locations")
@pytest.mark.parametrize(
    ("client", "place", "text"),
    [
        ("cursor", ".cursor/mcp.json", '{"mcpServers": {"calculator": {"command": "x", "args": [1 // # old\n]}}}'),
        ("codex", ".codex/config.toml", '[mcp_servers.calculator]\ncommand = "x"\nargs = [1 # old\n]\n'),
        ("goose", ".config/goose/config.yaml", "extensions:\n  calculator:\n    cmd: x\n    args:\n    - 1 # old\n"),
        ("goose", ".config/goose/config.yaml", "extensions:\n  calculator: { # old\n  }\n"),
    ],
)
def test_comments_that_will_go_are_named_before_anything_is_written(
    run: Run, tmp_path: Path, client: str, place: str, text: str
) -> None:
    path = tmp_path / "home" / place
    path.parent.mkdir(parents=True)
    path.write_text(text)
    shown = run("install", "calculator.py", "--client", client, "--dry-run")
    assert re.search("1 comment inside the values that change will go: '(?:// )?# old'", shown.stderr), shown.stderr
    assert path.read_text() == text
    assert run("install", "calculator.py", "--client", client, "--yes").returncode == 0
    again = run("install", "calculator.py", "--client", client, "--dry-run")
    assert "comment inside" not in again.stderr
    assert "# old" not in path.read_text()


@pytest.mark.parametrize(("package", "client"), [("tomlkit", "codex"), ("yaml", "goose")])
def test_without_the_package_of_a_format_the_preview_names_the_extra_and_the_file(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], package: str, client: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setenv("CODEX_HOME", str(directory))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(directory))
    monkeypatch.setattr(
        sys, "argv", ["bridge", "install", str(directory / "calculator.py"), "--client", client, "--dry-run"]
    )
    assert main() == 1
    assert re.search(
        rf"{directory}.*/config\.\w+ .*needs .*: pip install 'mcp-toolbridge\[clients\]'", capsys.readouterr().err
    )
