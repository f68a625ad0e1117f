"""Lock files that a configuration names: for all its servers, or for one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bridge.client import load_config, parse_config
from bridge.client.connection.list_methods import TOOLS
from bridge.client.pins import ServerPins, pins_of, write_pins
from bridge.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

ADD = {"name": "add", "inputSchema": {"type": "object"}}
PINS = pins_of({TOOLS: [ADD]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two lock files."""
    write_pins(tmp_path / "all.json", {"a": PINS})
    write_pins(tmp_path / "own.json", {"b": PINS})
    return tmp_path


def read(folder: Path, document: dict[str, Any], **options: Any) -> Any:
    return parse_config(document, workspace_folder=folder, **options)


def test_the_root_names_a_lock_file_for_servers_that_name_none(folder: Path) -> None:
    servers = {"a": {"command": "x"}, "b": {"command": "x", "pins": "own.json"}, "c": {"command": "x"}}
    config = read(folder, {"mcpServers": servers, "pins": "all.json"})
    held = {name: (server.pins, server.lock) for name, server in config.servers.items()}
    everything, own = str(folder / "all.json"), str(folder / "own.json")
    assert held == {"a": (PINS, everything), "b": (PINS, own), "c": (ServerPins.nothing(), everything)}
    assert config.warnings == ()


def test_without_a_lock_file_a_server_is_held_to_nothing(folder: Path) -> None:
    (server,) = read(folder, {"mcpServers": {"a": {"command": "x", "pins": None}}}).servers.values()
    assert (server.pins, server.lock) == (None, None)


@pytest.mark.parametrize(
    ("root", "entry", "mode"),
    [({}, {}, "refuse"), ({"pinMode": "flag"}, {}, "flag"), ({"pinMode": "flag"}, {"pin_mode": "refuse"}, "refuse")],
)
def test_what_becomes_of_other_tools_is_said_by_the_server_or_else_by_the_root(
    folder: Path, root: dict[str, str], entry: dict[str, str], mode: str
) -> None:
    document = {"servers": {"a": {"command": "x", **entry}}, "pins": "${LOCKS}/all.json", **root}
    (server,) = read(folder, document, environ={"LOCKS": str(folder)}).servers.values()
    assert server.pins is not None
    assert (server.pins.mode, server.pins.items) == (mode, PINS.items)


def test_a_lock_file_stands_beside_its_configuration_or_in_the_workspace(folder: Path) -> None:
    (folder / ".vscode").mkdir()
    for path in (folder / "mcp.json", folder / ".vscode" / "mcp.json"):
        path.write_text(json.dumps({"servers": {"a": {"command": "x", "pins": "all.json"}}}))
        assert load_config(path).servers["a"].pins == PINS


@pytest.mark.parametrize(
    ("root", "entry", "problem"),
    [
        ({"pins": 5}, {}, "^configuration: 'pins': must be the path of a lock file, not a number"),
        ({"pinMode": "warn"}, {}, "^configuration: 'pinMode': must be 'refuse' or 'flag'"),
        ({"pins": "no.json"}, {}, "^configuration: 'pins': 'no.json' cannot be read: No such file or directory"),
        ({}, {"pins": "no.json"}, "server 'a', 'pins': 'no.json' cannot be read"),
        ({}, {"pins": "${NO}.json"}, "server 'a', 'pins': .*NO"),
        ({}, {"pins": "bad.json"}, "server 'a', 'pins': 'bad.json' is not a lock file of `bridge pin`"),
        ({}, {"pins": "own.json", "pinMode": "warn"}, "server 'a', 'pinMode': must be 'refuse' or 'flag'"),
    ],
)
def test_what_cannot_be_held_to_is_told(
    folder: Path, root: dict[str, Any], entry: dict[str, Any], problem: str
) -> None:
    (folder / "bad.json").write_text("{}")
    servers = {"a": {"command": "x", **entry}} | ({"b": {"command": "y"}} if root else {})
    with pytest.raises(ConfigError, match=problem) as caught:
        read(folder, {"mcpServers": servers, **root}, environ={})
    assert len(caught.value.problems) == 1


def test_a_mode_without_a_lock_file_has_no_use(folder: Path) -> None:
    (warning,) = read(folder, {"mcpServers": {"a": {"command": "x", "pinMode": "flag"}}}).warnings
    assert "'pinMode': has no effect without 'pins'" in warning


def test_whoever_writes_lock_files_only_wants_to_know_which(folder: Path) -> None:
    (server,) = read(
        folder, {"mcpServers": {"a": {"command": "x", "pins": "no.json"}}}, reads_pins=False
    ).servers.values()
    assert (server.pins, server.lock) == (None, str(folder / "no.json"))
