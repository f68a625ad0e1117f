"""The formats and key aliases of other hosts are read as one format."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.client import HttpTransport, ServersConfig, StdioTransport, parse_config
from bridge.errors import ConfigError

SERVERS = {"a": {"command": "x"}, "b": {"url": "https://h/mcp"}}


@pytest.mark.parametrize(
    "document",
    [
        {"mcpServers": SERVERS},
        {"servers": SERVERS},
        {"servers": SERVERS, "inputs": []},
        {"mcpServers": SERVERS, "$schema": "https://example.com/schema.json"},
        SERVERS,
        {**SERVERS, "$schema": "x", "inputs": [{"id": "k"}]},
        {"mcpServers": {"a": SERVERS["a"]}, "servers": {"b": SERVERS["b"]}},
    ],
)
def test_every_shape_says_the_same(document: dict[str, Any]) -> None:
    config = parse_config(document, environ={})
    assert {name: server.transport for name, server in config.servers.items()} == {
        "a": StdioTransport("x"),
        "b": HttpTransport("https://h/mcp"),
    }
    assert config.warnings == ()


@pytest.mark.parametrize("name", ["servers", "mcpServers", "inputs"])
def test_a_bare_map_may_have_a_server_of_that_name(name: str) -> None:
    assert list(parse_config({name: {"command": "x"}}, environ={}).servers) == [name]


def test_servers_keep_the_order_of_the_file() -> None:
    assert list(parse_config({name: {"command": "x"} for name in "cab"}, environ={}).servers) == ["c", "a", "b"]


def test_when_the_servers_name_stands_first_is_said_for_all_servers() -> None:
    config = parse_config({"mcpServers": SERVERS, "prefix": "never"}, environ={})
    assert {server.prefixing for server in config.servers.values()} == {"never"}
    assert (config.warnings, parse_config(SERVERS, environ={}).servers["a"].prefixing) == ((), None)
    with pytest.raises(ConfigError, match="'prefix': must be 'always', 'on_collision' or 'never'"):
        parse_config({"mcpServers": SERVERS, "prefix": "a_"}, environ={})


def test_the_listing_of_tools_is_that_of_the_configuration() -> None:
    config = parse_config({"mcpServers": SERVERS, "tools": "search"}, environ={})
    assert {server.tool_listing for server in config.servers.values()} == {"search"}
    assert (config.warnings, parse_config(SERVERS, environ={}).servers["a"].tool_listing) == ((), None)
    with pytest.raises(ConfigError, match="'tools': must be 'all', 'search', 'auto' or 'code'"):
        parse_config({"mcpServers": SERVERS, "tools": ["read"]}, environ={})


def test_a_mode_in_the_place_of_a_text_earns_a_warning() -> None:
    config = parse_config({"mcpServers": {"a": {"command": "x", "prefix": "always"}}}, environ={})
    (warning,) = config.warnings
    assert warning.startswith("server 'a', 'prefix': prepends the text 'always' to the names of its tools; ")


def test_what_else_a_host_keeps_in_its_file_earns_one_warning() -> None:
    others = {f"setting{number}": number for number in range(7)}
    config = parse_config({"mcpServers": SERVERS, **others}, environ={})
    assert config.warnings == (
        "'setting0', 'setting1', 'setting2', 'setting3', 'setting4' and 2 more: not a server setting, ignored",
    )


@pytest.mark.parametrize("key", ["type", "transport", "transportType", "transport_type"])
@pytest.mark.parametrize(
    ("spelling", "kind"),
    [
        ("http", "http"),
        ("HTTP", "http"),
        ("streamable-http", "http"),
        ("streamable_http", "http"),
        ("streamableHttp", "http"),
        ("streamableHTTP", "http"),
        ("sse", "sse"),
        ("SSE", "sse"),
        ("http+sse", "sse"),
    ],
)
def test_a_remote_transport_is_known_however_it_is_spelled(key: str, spelling: str, kind: Any) -> None:
    config = parse_config({"a": {"url": "https://h", key: spelling}}, environ={})
    assert config.servers["a"].transport == HttpTransport("https://h", kind=kind)
    assert config.warnings == ()


@pytest.mark.parametrize("spelling", ["stdio", "STDIO", "local"])
def test_a_child_is_known_however_it_is_spelled(spelling: str) -> None:
    config = parse_config({"a": {"command": "x", "type": spelling}}, environ={})
    assert config.servers["a"].transport == StdioTransport("x")


@pytest.mark.parametrize("key", ["url", "serverUrl", "server_url"])
def test_a_url_is_known_by_its_other_names(key: str) -> None:
    assert parse_config({"a": {key: "https://h"}}, environ={}).servers["a"].transport == HttpTransport("https://h")


def test_tools_to_take_and_to_leave_are_known_by_their_other_names() -> None:
    server = parse_config({"a": {"command": "x", "enabledTools": ["r*"], "disabledTools": ["rm"]}}).servers["a"]
    assert (server.include, server.exclude) == (("r*",), ("rm",))
    resources = {"enabledResources": ["r*"], "disabledResources": ["rm"]}
    prompts = {"enabledPrompts": ["p*"], "disabledPrompts": ["pm"]}
    server = parse_config({"a": {"command": "x", **resources, **prompts}}).servers["a"]
    assert (server.include_resources, server.exclude_resources) == (("r*",), ("rm",))
    assert (server.include_prompts, server.exclude_prompts) == (("p*",), ("pm",))
    server = parse_config({"a": {"command": "x", "includeTools": ["r*"], "excludeTools": ["rm"]}}).servers["a"]
    assert (server.include, server.exclude) == (("r*",), ("rm",))


def test_our_own_keys_may_be_written_in_snake_case() -> None:
    spoken = parse_config({"a": {"command": "x", "connect_wait_seconds": 1, "inherit_env": "all", "env_file": None}})
    assert spoken == parse_config({"a": {"command": "x", "connectWaitSeconds": 1, "inheritEnv": "all"}})


def test_two_spellings_of_one_key_may_say_the_same() -> None:
    config = parse_config({"a": {"url": "https://h", "type": "streamable-http", "transport": "http"}}, environ={})
    assert config.servers["a"].transport == HttpTransport("https://h", kind="http")


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("comand", "; did you mean 'command'?"),
        ("Headers", "; did you mean 'headers'?"),
        ("disabledtools", "; did you mean 'disabledTools'?"),
        ("connectTimeout", "; did you mean 'connectTimeoutSeconds'?"),
        ("autoApprove", ""),
    ],
)
def test_an_unknown_key_earns_a_warning_and_never_an_error(key: str, hint: str) -> None:
    config = parse_config({"a": {"command": "x", key: {"any": ["thing"]}}}, environ={})
    assert config.warnings == (f"server 'a', {key!r}: unknown, ignored{hint}",)
    assert isinstance(config, ServersConfig)
    assert config.servers["a"].transport == StdioTransport("x")


def test_geminis_url_of_streamable_http_is_one() -> None:
    config = parse_config({"mcpServers": {"a": {"httpUrl": "https://h"}}}, environ={})
    assert (config.servers["a"].transport, config.warnings) == (HttpTransport("https://h", kind="http"), ())
