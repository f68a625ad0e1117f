"""Entries that are installed again keep the settings of their user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bridge.cli.install.config_files import editor_of, set_entry
from bridge.cli.targets.client_entries import merged
from bridge.cli.targets.target import ConfigTarget, parse_target

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("name", "section", "text", "kept"),
    [
        (
            "config.toml",
            "mcp_servers",
            (
                '[mcp_servers.tools]\ncommand = "y"\nenabled = false\ntool_timeout_sec = nan\n\n'
                '[mcp_servers.tools.tools.add]\napproval_mode = "ask"\n\n# of the screen\n[tui]\na = 1\n'
            ),
            ["enabled = false", "tool_timeout_sec = nan", 'approval_mode = "ask"', "# of the screen"],
        ),
        (
            "config.yaml",
            "extensions",
            "extensions:\n  tools:\n    command: y\n    enabled: false # off\n    timeout: 5\n",
            ["    enabled: false # off", "    timeout: 5"],
        ),
        (
            "settings.json",
            "context_servers",
            (
                '{\n  "context_servers": {\n    "tools": {\n      "command": "y",\n      "enabled": false, // off\n'
                '      "settings": {"a": 1}\n    }\n  }\n}\n'
            ),
            ['      "enabled": false, // off', '      "settings": {"a": 1},'],
        ),
    ],
)
def test_settings_of_an_entry_are_kept_when_it_is_installed_again(
    tmp_path: Path, name: str, section: str, text: str, kept: list[str]
) -> None:
    path = tmp_path / name
    path.write_text(text)
    entry = {"command": "x", "args": ["a"], "enabled": True}
    assert set_entry(path, section, "tools", entry, path.suffix, keeps_settings=True)[0]
    lines = path.read_text().splitlines()
    assert all(line in lines for line in kept)
    present = editor_of(path.suffix).member_of(path.read_text(), section, "tools", name)
    assert (present["command"], present["args"], present["enabled"]) == ("x", ["a"], False)


def test_of_a_url_nothing_that_starts_a_program_is_kept_and_the_reverse() -> None:
    program = {"command": "x", "args": [], "cwd": "/", "timeout": 5}
    remote = {"url": "u", "headers": {"A": "b"}, "timeout": 5}
    assert merged({"url": "v"}, program) == {"timeout": 5, "url": "v"}
    assert merged({"url": "v"}, remote) == remote | {"url": "v"}
    assert merged({"command": "y", "args": []}, remote) == {"timeout": 5, "command": "y", "args": []}
    assert merged({"command": "y", "args": []}, program) == program | {"command": "y"}


def test_a_name_that_codex_refuses_is_refused_and_a_check_is_of_the_file_written(run: Run, directory: Path) -> None:
    refused = run("install", "http://h/mcp", "--client", "codex", "--config", "c.TOML", "--name", "My Server", "--yes")
    assert refused.returncode == 2
    assert "Codex takes no server named 'My Server': give --name" in refused.stderr
    done = run("install", "http://h/mcp", "--client", "codex", "--config", "c.TOML", "--name", "mine", "--yes")
    assert done.stderr.splitlines()[-1] == "restart Codex to use it; bridge doctor c.TOML checks it"
    assert parse_target(str(directory / "c.TOML")) == ConfigTarget(directory / "c.TOML")


def test_a_folder_in_the_place_of_a_configuration_is_said_to_be_one(run: Run, tmp_path: Path) -> None:
    (tmp_path / "home" / ".codex" / "config.toml").mkdir(parents=True)
    done = run("doctor", "--client", "codex")
    assert "is not a regular file" in done.stdout
    assert "there is no such file" not in done.stdout
