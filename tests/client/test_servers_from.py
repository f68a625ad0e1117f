from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from bridge import ConfigError, DefinitionError
from bridge.client import Connection, HttpTransport, ServerConfig, ServersConfig, StdioTransport
from bridge.client.connection_pool import servers_from

if TYPE_CHECKING:
    from pathlib import Path

ONE = ServerConfig(name="one", transport=StdioTransport("one"))
TWO = ServerConfig(name="two", transport=HttpTransport("https://example.org/mcp"))
URL = "https://example.org/mcp"
FILE = {"mcpServers": {"one": {"command": "one"}, "two": {"url": URL}, "off": {"command": "x", "disabled": True}}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(FILE))
    return path


def test_servers_are_meant_in_many_ways(file: Path) -> None:
    connection = Connection(TWO)
    assert servers_from(ONE) == [ONE]
    assert servers_from(connection) == [connection]
    assert servers_from([ONE, connection]) == [ONE, connection]
    assert servers_from(ServersConfig(servers={"one": ONE})) == [ONE]
    assert servers_from({"mcpServers": {"one": {"command": "one"}}}) == [ONE]
    assert servers_from(()) == []
    for path in (file, str(file)):
        assert [server.name for server in servers_from(path)] == ["one", "two"]


def test_a_url_is_a_server_named_after_its_host() -> None:
    transport = HttpTransport("https://example.org:8443/mcp?key=1")
    assert servers_from(transport.url) == [ServerConfig(name="example.org", transport=transport)]


def test_one_server_of_a_file_is_meant_after_a_hash(file: Path) -> None:
    assert [server.name for server in servers_from(f"{file}#two")] == ["two"]
    with pytest.raises(ConfigError, match=r"'three' is not one of its servers \('one', 'two'\)"):
        servers_from(f"{file}#three")
    with pytest.raises(ConfigError, match="'off' is disabled"):
        servers_from(f"{file}#off")


def test_a_file_may_have_a_hash_in_its_name(file: Path) -> None:
    named = file.rename(file.with_name("mcp#1.json"))
    assert [server.name for server in servers_from(str(named))] == ["one", "two"]
    assert [server.name for server in servers_from(f"{named}#one")] == ["one"]


def test_a_python_file_is_a_server_of_its_tools_in_a_process_of_this_python(tmp_path: Path) -> None:
    file = tmp_path / "sums.py"
    file.touch()
    transport = StdioTransport(sys.executable, args=("-m", "bridge", "serve", str(file)))
    assert servers_from(file) == servers_from(str(file)) == [ServerConfig(name="sums", transport=transport)]
    with pytest.raises(ConfigError, match=r"other\.py: there is no such file"):
        servers_from(tmp_path / "other.py")


@pytest.mark.parametrize("wrong", [5, None, ["mcp.json"], [5]])
def test_what_says_no_servers_is_refused(wrong: Any) -> None:
    with pytest.raises(DefinitionError):
        servers_from(wrong)


def test_a_transport_without_a_server_says_how_to_name_it() -> None:
    transport: Any = StdioTransport("tools")
    with pytest.raises(DefinitionError, match=r"no name: ServerConfig\(name=…, transport=StdioTransport\(…\)\)"):
        servers_from(transport)


def test_a_file_that_is_not_there_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        servers_from(tmp_path / "mcp.json")
