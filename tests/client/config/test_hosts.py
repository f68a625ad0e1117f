"""Configurations of hosts that have formats or keys of their own."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

import pytest

from bridge.client import HttpTransport, StdioTransport, load_config
from bridge.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.client import ServersConfig

CODEX = """
model = "gpt-5.1"
[mcp_servers.local]
command = "x"
args = ["a"]
env = {A = "b"}
env_vars = ["C"]
startup_timeout_sec = 5
tool_timeout_sec = 7.5
enabled_tools = ["add"]
[mcp_servers.remote]
url = "https://h/mcp"
bearer_token_env_var = "TOKEN"
http_headers = {X = "y"}
env_http_headers = {Z = "TOKEN"}
[mcp_servers.off]
command = "x"
enabled = false
[profiles.mine]
model = "o"
"""
GOOSE = """
GOOSE_MODEL: gpt-5.1
extensions:
  developer: {bundled: true, enabled: true, name: developer, timeout: 300, type: builtin}
  local: {enabled: true, type: stdio, name: local, description: '', cmd: x, args: [a], envs: {A: b}, timeout: 7.5,
    env_keys: [], available_tools: [add], bundled: null}
  remote: {enabled: true, type: streamable_http, name: remote, uri: https://h/mcp, headers: {X: y}}
  'off': {enabled: false, type: stdio, name: 'off', cmd: x, args: []}
"""
CONTINUE = """
name: mine
mcpServers:
  - {name: local, command: x, args: [a], env: {A: b}}
  - {name: remote, type: streamable-http, url: https://h/mcp}
"""
ZED = """{
  "theme": "One", // mine
  "context_servers": {
    "local": {"source": "custom", "command": "x", "args": ["a"], "env": {"A": "b"}},
    "old": {"source": "custom", "command": {"path": "x", "args": ["a"], "env": {"A": "b"}}, "settings": {}},
    "remote": {"url": "https://h/mcp", "headers": {"X": "y"}},
    "of-an-extension": {"settings": {}},
  },
}"""
LOCAL = StdioTransport("x", args=("a",), env={"A": "b"})


def read(folder: Path, name: str, text: str) -> ServersConfig:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load_config(path, environ={"TOKEN": "t"})


def test_codex(tmp_path: Path) -> None:
    config = read(tmp_path, "config.toml", CODEX)
    assert (list(config.servers), config.disabled, config.warnings) == (["local", "remote"], ("off",), ())
    local, remote = config.servers["local"], config.servers["remote"]
    assert (local.transport, local.timeout_seconds, local.connect_timeout_seconds) == (LOCAL, 7.5, 5)
    assert local.include == ("add",)
    assert isinstance(remote.transport, HttpTransport)
    assert remote.transport.headers == {"X": "y", "Authorization": "Bearer t", "Z": "t"}


def test_goose(tmp_path: Path) -> None:
    config = read(tmp_path, "config.yaml", GOOSE)
    assert (list(config.servers), config.disabled, config.warnings) == (["local", "remote"], ("off",), ())
    local, remote = config.servers["local"], config.servers["remote"]
    assert (local.transport, local.timeout_seconds, local.include) == (LOCAL, 7.5, ("add",))
    assert isinstance(remote.transport, HttpTransport)
    assert (remote.transport.url, remote.transport.headers) == ("https://h/mcp", {"X": "y"})


def test_continue(tmp_path: Path) -> None:
    config = read(tmp_path, "config.yaml", CONTINUE)
    assert config.servers["local"].transport == LOCAL
    assert isinstance(config.servers["remote"].transport, HttpTransport)


def test_zed(tmp_path: Path) -> None:
    config = read(tmp_path, "settings.json", ZED)
    assert (list(config.servers), config.warnings) == (["local", "old", "remote"], ())
    assert config.servers["local"].transport == config.servers["old"].transport == LOCAL
    assert isinstance(config.servers["remote"].transport, HttpTransport)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("config.toml", "a = [", "config.toml: not TOML: "),
        ("config.yaml", "a: [", "config.yaml: is not YAML: "),
        ("config.toml", "[mcp_servers.a]\ncomand = 'x'\n", "did you mean 'command' by 'comand'"),
    ],
)
def test_mistakes_are_reported_as_in_json(tmp_path: Path, name: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read(tmp_path, name, text)


def test_a_configuration_without_servers_is_none_of_servers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert read(tmp_path, "config.toml", 'model = "x"\n').servers == {}
    assert "it contains no servers" in caplog.text


def test_yaml_without_its_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'mcp-toolbridge\[clients\]'"):
        read(tmp_path, "config.yaml", GOOSE)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("config.toml", "[mcp_servers]\nbad = 3\ngood = {command = 'x'}\n", "must be an object with a 'command'"),
        (
            "config.toml",
            "[mcp_servers]\ngood.command = 'x'\nbad = {url = 'http://h', http_headers = 3}\n",
            "'http_headers'",
        ),
        (
            "c.toml",
            "[mcp_servers]\ngood.command='x'\nbad = {url = 'u:', env_http_headers = ['a']}\n",
            "'env_http_headers'",
        ),
        ("config.yaml", "extensions: {bad: {type: [stdio], cmd: x}, good: {type: stdio, cmd: x}}\n", "'type'"),
        ("config.yaml", "mcpServers: [{uses: a/b}, {name: bad, command: 3}, {name: good, command: x}]\n", "'command'"),
    ],
)
def test_an_odd_entry_is_named_and_the_others_are_served(tmp_path: Path, name: str, text: str, problem: str) -> None:
    config = read(tmp_path, name, text)
    assert sorted(config.servers) == ["bad", "good"]
    assert problem in str(config.servers["bad"].transport.problems[0])
    assert not config.servers["good"].transport.problems


def test_problems_name_the_keys_of_the_host(tmp_path: Path) -> None:
    """Codex and Goose have other names for what `mcp.json` has."""

    def problems(name: str, text: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            read(tmp_path, name, text)
        return sorted(f"{problem.key}: {problem.message}" for problem in caught.value.problems)

    codex = """
        [mcp_servers.a]
        command = "x"
        tool_timeout_sec = "soon"
        startup_timeout_sec = -1
        [mcp_servers.b]
        url = "https://h"
        bearer_token_env_var = "UNSET"
        http_headers = {X = "${UNSET}"}
        env_http_headers = {Z = "UNSET"}
        [mcp_servers.c]
        startup_timeout_sec = 5
    """
    assert problems("config.toml", codex) == [
        "None: has neither 'command' (a program to start) nor 'url' (a server to connect to)",
        "bearer_token_env_var: the variable 'UNSET' is not set: set it in the environment",
        "env_http_headers.Z: the variable 'UNSET' is not set: set it in the environment",
        "http_headers.X: the variable 'UNSET' is not set: set it, or write ${UNSET:-default}",
        "startup_timeout_sec: must be greater than 0",
        "tool_timeout_sec: must be a number",
    ]
    goose = """
        extensions:
          a: {type: stdio}
          b: {type: stdio, cmd: 3, uri: x}
          c: {type: stdio, cmd: x, envs: {A: "${UNSET}"}}
          d: {type: sse, cmd: x}
          e: {type: stdio, cmd: x, available_tools: add}
    """
    assert problems("config.yaml", goose) == [
        "None: has neither 'cmd' (a program to start) nor 'uri' (a server to connect to)",
        'available_tools: must be a list, such as ["one", "two"]',
        "cmd: must be text",
        "envs.A: the variable 'UNSET' is not set: set it, or write ${UNSET:-default}",
        "type: is 'sse', which needs a 'uri', not a 'cmd'",
    ]
    assert problems("settings.json", '{"context_servers": {"a": {"command": {"path": "", "args": ["${UNSET}"]}}}}') == [
        "command.args[0]: the variable 'UNSET' is not set: set it, or write ${UNSET:-default}",
        "command.path: is empty: give the program to start, or a 'url'",
    ]


def test_misspelled_keys_are_compared_with_those_of_the_host(tmp_path: Path) -> None:
    codex = "[mcp_servers.a]\ncommand = 'x'\nstartup_timeout_secs = 5\n"
    assert "did you mean 'startup_timeout_sec'?" in read(tmp_path, "config.toml", codex).warnings[0]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("config.toml", "mcp_servers = 3\n", "'mcp_servers': must be an object of servers by name, not a number"),
        ("config.yaml", "extensions: [a]\n", "'extensions': must be an object of servers by name, not a list"),
        ("settings.json", '{"context_servers": 3}', "'context_servers': must be an object of servers"),
    ],
)
def test_servers_that_are_no_object_are_named_by_the_key_of_the_host(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        read(tmp_path, name, text)


def test_a_repeated_name_of_a_list_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two servers have this name"):
        read(tmp_path, "config.yaml", "mcpServers: [{name: a, command: x}, {name: a, command: y}]\n")


def test_a_toml_file_of_another_program_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a configuration: it has no \\[mcp_servers\\]"):
        read(tmp_path, "pyproject.toml", "[project]\nname = 'x'\n")
