"""The published schema matches what is read."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from bridge.client import HttpTransport, ServerConfig, config_json_schema, parse_config
from bridge.client.config.document import EXTENSION_RULE
from bridge.client.config.schema import KEYS
from bridge.client.pins import write_pins
from bridge.errors import DefinitionError

if TYPE_CHECKING:
    from pathlib import Path

VALIDATOR = Draft202012Validator(config_json_schema())

EVERYTHING: dict[str, Any] = {
    "$schema": "mcp.schema.json",
    "mcpServers": {
        "child": {
            "type": "stdio",
            "command": "x",
            "args": ["a", 1],
            "env": {"A": "a", "B": 1, "C": True},
            "cwd": ".",
            "inheritEnv": ["A"],
            "disabled": False,
            "timeout": 1,
            "maxCallSeconds": 2,
            "connectTimeoutSeconds": 3,
            "connectWaitSeconds": 4,
            "start": "lazy",
            "idleSeconds": 60,
            "maxMemoryMib": 512,
            "maxCpus": 0.5,
            "maxCpuSeconds": 600,
            "processPer": "caller",
            "required": True,
            "trusted": True,
            "prefix": "x_",
            "include": ["a*"],
            "exclude": ["b"],
            "includeResources": ["notes://*"],
            "excludeResources": ["notes://secret"],
            "includePrompts": ["plan*"],
            "excludePrompts": ["plan_all"],
            "alwaysVisible": ["a*"],
            "extensions": {"com.example/colours": {"palette": 16}},
            "protocol": "legacy",
            "pins": "child.lock.json",
            "pinMode": "flag",
            "unjudgedResults": "refuse",
            "spillChars": 10_000,
        },
        "remote": {
            "type": "http",
            "url": "https://h",
            "headers": {"A": "${input:key}"},
            "auth": {"clientId": "me", "scopes": "a b", "redirectUri": "http://localhost:8765/callback"},
            "inheritEnv": "all",
            "listPer": "caller",
        },
        "file": {"command": "x", "envFile": "${MISSING}", "disabled": True},
    },
    "inputs": [{"id": "key", "type": "promptString", "description": "The key", "default": "d", "password": True}],
    "pins": "mcp.lock.json",
    "pinMode": "refuse",
    "prefix": "on_collision",
    "tools": "search",
}


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(config_json_schema())


def test_the_packaged_file_is_the_schema() -> None:
    packaged = files("bridge.client").joinpath("mcp.schema.json").read_text(encoding="utf-8")
    assert packaged == json.dumps(config_json_schema(), indent=2, ensure_ascii=False) + "\n"


def test_every_key_is_in_the_schema_with_a_description() -> None:
    properties = config_json_schema()["$defs"]["ServerEntry"]["properties"]
    assert tuple(properties) == KEYS
    assert all(schema["description"] for schema in properties.values())


def test_a_configuration_that_uses_everything_is_valid_and_is_read(tmp_path: Path) -> None:
    for lock in ("child.lock.json", "mcp.lock.json"):
        write_pins(tmp_path / lock, {})
    assert set(KEYS) == {key for entry in EVERYTHING["mcpServers"].values() for key in entry}
    VALIDATOR.validate(EVERYTHING)
    config = parse_config(EVERYTHING, environ={}, workspace_folder=tmp_path)
    assert (set(config.servers), config.disabled) == ({"child", "remote"}, ("file",))


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"command": "x", "url": "https://h"},
        {"command": 1},
        {"command": "x", "args": "a"},
        {"command": "x", "args": [None]},
        {"command": "x", "timeout": 0},
        {"command": "x", "timeout": "1"},
        {"command": "x", "prefix": "a b"},
        {"command": "x", "inheritEnv": "some"},
        {"command": "x", "type": "ws"},
        {"command": "x", "protocol": "2025-06-18"},
        {"url": "https://h", "headers": []},
        {"command": "x", "comand": "y"},
        {"command": "x", "pins": True},
        {"command": "x", "pins": "a", "pinMode": "warn"},
    ],
)
def test_what_is_wrong_is_underlined(entry: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid({"mcpServers": {"a": entry}})


@pytest.mark.parametrize(
    "extensions",
    [
        ["com.example/colours"],
        {"com.example/colours": None},
        {"com.example/colours": [1]},
        {"colours": {}},
        {"/colours": {}},
        {"com.example/": {}},
        {"com.éxample/colours": {}},
        {"io.modelcontextprotocol/tasks": {}},
    ],
)
def test_extensions_are_objects_by_identifiers_and_tasks_are_built_in(extensions: Any) -> None:
    entry = {"url": "http://localhost:1/mcp"}
    (problem,) = (
        parse_config({"usable": entry, "it": entry | {"extensions": extensions}}).servers["it"].transport.problems
    )
    assert (problem.key, problem.message) == ("extensions", EXTENSION_RULE)
    is_built_in = "io.modelcontextprotocol/tasks" in extensions
    assert VALIDATOR.is_valid({"mcpServers": {"it": entry | {"extensions": extensions}}}) is is_built_in


@pytest.mark.parametrize("identifier", ["colours", "io.modelcontextprotocol/tasks"])
def test_a_program_cannot_configure_such_an_extension_either(identifier: str) -> None:
    with pytest.raises(DefinitionError, match=f"server 'it', extension '{identifier}'"):
        ServerConfig(name="it", transport=HttpTransport("http://localhost:1/mcp"), extensions={identifier: {}})
