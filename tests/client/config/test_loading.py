"""Configurations are read into values."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

import bridge.client
from bridge.client import (
    HttpTransport,
    ServerConfig,
    ServersConfig,
    StdioTransport,
    load_config,
    parse_config,
)

if TYPE_CHECKING:
    from pathlib import Path


def one(entry: dict[str, Any], **options: Any) -> ServerConfig:
    return parse_config({"mcpServers": {"it": entry}}, environ={}, **options).servers["it"]


def transport(entry: dict[str, Any], **options: Any) -> Any:
    return one(entry, **options).transport


class TestWhatFastMcpLeavesOut:
    """The four gaps of FastMCP's configuration."""

    @pytest.mark.parametrize("path", ["/mcp", "/sse", "/", ""])
    def test_type_sse_is_honoured_whatever_the_path(self, path: str) -> None:
        server = one({"type": "sse", "url": f"https://example.com{path}"})
        assert server.transport == HttpTransport(f"https://example.com{path}", kind="sse")
        assert server.protocol == "legacy"

    def test_a_variable_is_expanded_and_not_left_literal(self) -> None:
        config = parse_config(
            {
                "mcpServers": {
                    "child": {"command": "${RUN}", "args": ["${RUN}"], "env": {"TOKEN": "${RUN}"}},
                    "remote": {"url": "https://${RUN}/mcp", "headers": {"Authorization": "Bearer ${RUN}"}},
                }
            },
            environ={"RUN": "value"},
        )
        assert [server.transport for server in config.servers.values()] == [
            StdioTransport("value", args=("value",), env={"TOKEN": "value"}),
            HttpTransport("https://value/mcp", headers={"Authorization": "Bearer value"}),
        ]

    def test_a_file_of_vs_code_is_not_read_as_zero_servers(self, tmp_path: Path) -> None:
        folder = tmp_path / ".vscode"
        folder.mkdir()
        (folder / "mcp.json").write_text(
            """{
              // asked for once
              "inputs": [{"type": "promptString", "id": "key", "description": "The key", "password": true},],
              "servers": {
                "search": {"type": "http", "url": "https://example.com/mcp", "headers": {"X-Key": "${input:key}"}},
                "local": {"type": "stdio", "command": "python", "args": ["${workspaceFolder}/server.py"],},
              },
            }"""
        )
        config = load_config(folder / "mcp.json", environ={}, inputs={"key": "k"})
        assert {name: server.transport for name, server in config.servers.items()} == {
            "search": HttpTransport("https://example.com/mcp", headers={"X-Key": "k"}, kind="http"),
            "local": StdioTransport("python", args=(f"{tmp_path}/server.py",)),
        }
        assert config.warnings == ()

    def test_timeout_is_not_ignored(self) -> None:
        assert one({"command": "x", "timeout": 90}).timeout_seconds == 90


def test_every_key_of_a_child_reaches_the_value(tmp_path: Path) -> None:
    (tmp_path / "its.env").write_text("# variables\nA=from the file\nB='from ${A}'\nexport C=3\nBARE\n")
    assert one(
        {
            "type": "stdio",
            "command": "uvx",
            "args": ["server", 8080],
            "env": {"A": "from env", "D": 1, "E": True},
            "envFile": "its.env",
            "cwd": "sub",
            "inheritEnv": ["PROXY"],
            "timeout": 10,
            "maxCallSeconds": 100,
            "connectTimeoutSeconds": 20,
            "connectWaitSeconds": 2.5,
            "required": True,
            "trusted": True,
            "prefix": "its_",
            "include": ["read_*"],
            "exclude": ["read_all"],
            "includeResources": ["notes://*"],
            "exclude_resources": ["notes://secret"],
            "includePrompts": ["plan*"],
            "excludePrompts": ["plan_all"],
            "alwaysVisible": ["read_*"],
            "extensions": {"com.example/colours": {"palette": 16}},
            "protocol": "2026-07-28",
        },
        workspace_folder=tmp_path,
    ) == ServerConfig(
        name="it",
        transport=StdioTransport(
            "uvx",
            args=("server", "8080"),
            env={"A": "from env", "B": "from ${A}", "C": "3", "D": "1", "E": "true"},
            cwd=str(tmp_path / "sub"),
            inherit_env=("PROXY",),
        ),
        timeout_seconds=10,
        max_call_seconds=100,
        connect_timeout_seconds=20,
        connect_wait_seconds=2.5,
        required=True,
        trusted=True,
        prefix="its_",
        include=("read_*",),
        exclude=("read_all",),
        include_resources=("notes://*",),
        exclude_resources=("notes://secret",),
        include_prompts=("plan*",),
        exclude_prompts=("plan_all",),
        always_visible=("read_*",),
        extensions={"com.example/colours": {"palette": 16}},
        protocol="2026-07-28",
    )


def test_what_is_not_said_has_its_default() -> None:
    assert one({"url": "http://localhost:1/mcp", "headers": {"X-Count": 5}}) == ServerConfig(
        name="it",
        transport=HttpTransport("http://localhost:1/mcp", headers={"X-Count": "5"}, kind=None),
        timeout_seconds=60,
        max_call_seconds=600,
        connect_timeout_seconds=30,
        connect_wait_seconds=5,
    )
    assert transport({"command": "x"}) == StdioTransport("x", inherit_env="minimal", cwd=None)


def test_the_cap_of_a_call_is_never_below_its_timeout() -> None:
    assert one({"command": "x", "timeout": 900}).max_call_seconds == 900


def test_null_says_nothing() -> None:
    assert transport({"command": "x", "url": None, "args": None, "env": None}) == StdioTransport("x")


def test_a_variable_that_is_null_is_left_out_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A=1\nB=2\n")
    entry = {"command": "x", "envFile": ".env", "env": {"A": None}}
    config = parse_config({"it": entry}, environ={}, workspace_folder=tmp_path)
    assert config.servers["it"].transport == StdioTransport("x", env={"B": "2"})
    assert config.warnings == ("server 'it', 'env.A': null removes the variable",)


@pytest.mark.parametrize("off", [{"disabled": True}, {"enabled": False}])
def test_a_disabled_server_is_named_and_nothing_else_of_it_is_read(off: dict[str, bool]) -> None:
    config = parse_config(
        {"mcpServers": {"off": {"command": "${MISSING}", "url": 5, "odd": 1, **off}, "on": {"command": "x"}}},
        environ={},
    )
    assert config == ServersConfig(
        servers={"on": ServerConfig(name="on", transport=StdioTransport("x"))}, disabled=("off",)
    )


@pytest.mark.parametrize("on", [{"disabled": False}, {"enabled": True}, {"enabled": True, "disabled": False}])
def test_an_enabled_server_is_read(on: dict[str, bool]) -> None:
    assert transport({"command": "x", **on}) == StdioTransport("x")


def test_the_configuration_may_be_read_from_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(b'\xef\xbb\xbf{"a": {"command": "x"}}')
    assert load_config(str(file)).source == str(file)


def test_the_environment_of_this_process_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FROM_THIS_PROCESS", "program")
    file = tmp_path / "mcp.json"
    file.write_text('{"a": {"command": "${FROM_THIS_PROCESS}"}}')
    assert load_config(file).servers["a"].transport == StdioTransport("program")


@pytest.mark.parametrize("host", [".vscode", ".cursor"])
def test_the_workspace_folder_is_around_the_folder_of_the_host(host: str, tmp_path: Path) -> None:
    file = tmp_path / host / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"a": {"command": "x", "cwd": "sub"}}')
    assert load_config(file, environ={}).servers["a"].transport == StdioTransport("x", cwd=str(tmp_path / "sub"))


def test_the_workspace_folder_can_be_said(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{"a": {"command": "${workspaceFolder}/x"}}')
    assert load_config(file, workspace_folder="/elsewhere").servers["a"].transport == StdioTransport("/elsewhere/x")


def test_a_configuration_read_again_shows_which_servers_changed() -> None:
    before = parse_config(
        {"a": {"command": "x"}, "b": {"url": "https://h", "headers": {"K": "${K}"}}}, environ={"K": "1"}
    )
    again = parse_config({"a": {"command": "x"}, "b": {"url": "https://h", "headers": {"K": "1"}}}, environ={})
    after = parse_config(
        {"a": {"command": "x"}, "b": {"url": "https://h", "headers": {"K": "${K}"}}}, environ={"K": "2"}
    )
    assert before == again
    assert [name for name, server in after.servers.items() if server != before.servers[name]] == ["b"]


@pytest.mark.parametrize("key", ["timeout", "maxCallSeconds", "connectTimeoutSeconds", "connectWaitSeconds"])
def test_more_than_a_thousand_seconds_earn_a_warning_about_milliseconds(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "bridge.client"):
        config = parse_config({"a": {"command": "x", key: 30000}}, environ={}, source="mcp.json")
    sentence = f"server 'a', {key!r}: 30000 is in seconds here; if milliseconds were meant, write 30"
    assert config.warnings == (sentence,)
    assert caplog.messages == [f"mcp.json: {sentence}"]


def test_a_thousand_seconds_earn_no_warning() -> None:
    assert parse_config({"a": {"command": "x", "timeout": 1000}}, environ={}).warnings == ()


def test_keys_of_the_other_transport_earn_a_warning() -> None:
    config = parse_config(
        {"a": {"command": "x", "headers": {}}, "b": {"url": "https://h", "args": [], "env_file": "x"}}, environ={}
    )
    assert config.warnings == (
        "server 'a', 'headers': has no effect with 'command', ignored",
        "server 'b', 'args': has no effect with 'url', ignored",
        "server 'b', 'env_file': has no effect with 'url', ignored",
    )


@pytest.mark.parametrize("document", [{}, {"mcpServers": {}}, {"servers": {}, "inputs": []}])
def test_a_configuration_without_servers_is_one_and_earns_a_warning(document: Any) -> None:
    assert parse_config(document) == ServersConfig(warnings=("it contains no servers",))


@pytest.mark.parametrize(
    ("include", "exclude", "admitted"),
    [
        (None, (), ["read", "read_all", "write"]),
        (("read*",), (), ["read", "read_all"]),
        (("read*",), ("read_all",), ["read"]),
        (None, ("w?ite",), ["read", "read_all"]),
        ((), (), []),
    ],
)
def test_include_and_exclude_choose_tools(
    include: tuple[str, ...] | None, exclude: tuple[str, ...], admitted: list[str]
) -> None:
    server = ServerConfig(name="a", transport=StdioTransport("x"), include=include, exclude=exclude)
    assert [name for name in ("read", "read_all", "write") if server.admits(name)] == admitted


def test_every_public_name_can_be_loaded() -> None:
    assert all(hasattr(bridge.client, name) for name in bridge.client.__all__)
    assert set(bridge.client.__all__) <= set(dir(bridge.client))


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'bridge\.client' has no attribute 'nothing'"):
        _ = getattr(bridge.client, "nothing")  # noqa: B009 - a type checker would refuse the plain form


def test_the_configuration_is_plain_json(tmp_path: Path) -> None:
    file = tmp_path / "claude_desktop_config.json"
    file.write_text(json.dumps({"mcpServers": {"a": {"command": "x"}}}))
    assert load_config(file) == ServersConfig(
        servers={"a": ServerConfig(name="a", transport=StdioTransport("x"))}, source=str(file)
    )


def test_a_program_that_is_only_beside_the_configuration_earns_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.sh").touch()
    document = {"a": {"command": "./run.sh"}}
    message = "is in the configuration's folder, not in the working directory: write ${workspaceFolder}/…"
    config = parse_config(document, environ={}, workspace_folder=tmp_path)
    assert config.warnings == (f"server 'a', 'command': {message}",)
    entered = parse_config({"a": {"command": "./run.sh", "cwd": "."}}, environ={}, workspace_folder=tmp_path)
    monkeypatch.chdir(tmp_path)
    found = parse_config(document, environ={}, workspace_folder=tmp_path)
    assert (entered.warnings, found.warnings) == ((), ())
