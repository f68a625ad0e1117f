"""A registry's ``server.json``, and server cards, as entries of ``mcp.json``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from bridge import HttpTransport, StdioTransport, load_config
from bridge.client.config.loading import parse_config
from bridge.client.config.server_json import entry_of, is_server_json
from bridge.errors import ConfigError, WireError

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
NAME = "io.github.ada/weather"


def described(**members: Any) -> dict[str, Any]:
    return {"$schema": SCHEMA, "name": NAME, "description": "Weather", "version": "1.0.2", **members}


def package(kind: str, identifier: str, **members: Any) -> dict[str, Any]:
    return {
        "registryType": kind,
        "identifier": identifier,
        "version": "1.0.2",
        "transport": {"type": "stdio"},
    } | members


@pytest.mark.parametrize(
    ("given", "command"),
    [
        (package("pypi", "weather-mcp"), ["uvx", "weather-mcp==1.0.2"]),
        (package("npm", "@ada/weather"), ["npx", "-y", "@ada/weather@1.0.2"]),
        (package("nuget", "Ada.Weather"), ["dnx", "Ada.Weather@1.0.2", "--yes"]),
        (package("oci", "ghcr.io/ada/weather"), ["docker", "run", "-i", "--rm", "ghcr.io/ada/weather:1.0.2"]),
        (
            package("oci", "ghcr.io:443/ada/weather:2@sha256:ab", version=None),
            ["docker", "run", "-i", "--rm", "ghcr.io:443/ada/weather:2@sha256:ab"],
        ),
    ],
)
def test_a_package_is_started_in_exactly_its_version(given: dict[str, Any], command: list[str]) -> None:
    name, entry = entry_of(described(packages=[package("mcpb", "https://x/y.mcpb"), given]))
    assert name == "weather"
    assert [entry["command"], *entry["args"]] == command


def test_what_users_have_to_give_is_a_variable() -> None:
    given = package(
        "pypi",
        "weather-mcp",
        runtimeArguments=[{"type": "named", "name": "--python", "value": "3.12"}],
        packageArguments=[
            {"type": "positional", "value": "serve"},
            {"type": "named", "name": "--key", "value": "{key}", "variables": {"key": {"isSecret": True}}},
            {"type": "named", "name": "--units", "default": "metric"},
            {"type": "named", "name": "--verbose"},
            {"type": "positional", "valueHint": "city", "isRequired": True},
            {"type": "positional", "valueHint": "optional"},
        ],
        environmentVariables=[
            {"name": "API_KEY", "isSecret": True, "isRequired": True, "default": "no secret is written"},
            {"name": "MODE", "default": "fast"},
            {"name": "LITERAL", "value": "${HOME}"},
            {"name": "OPTIONAL"},
        ],
    )
    _, entry = entry_of(described(packages=[given]))
    assert entry == {
        "command": "uvx",
        "args": [
            *("--python", "3.12", "weather-mcp==1.0.2", "serve", "--key", "${KEY}"),
            *("--units", "${UNITS:-metric}", "--verbose", "${CITY}"),
        ],
        "env": {"API_KEY": "${API_KEY}", "MODE": "${MODE:-fast}", "LITERAL": "$${HOME}"},
    }


def test_a_url_comes_before_packages() -> None:
    remotes = [
        {"type": "sse", "url": "https://example.com/sse"},
        {
            "type": "streamable-http",
            "url": "https://{tenant}.example.com/mcp",
            "variables": {"tenant": {"isRequired": True}},
            "headers": [{"name": "X-Key", "isRequired": True}, {"name": "X-Trace"}],
        },
    ]
    _, entry = entry_of(described(remotes=remotes, packages=[package("pypi", "x")]))
    assert entry == {
        "type": "http",
        "url": "https://${BRIDGE_SERVER_IO_GITHUB_ADA__WEATHER__TENANT}.example.com/mcp",
        "headers": {"X-Key": "${BRIDGE_SERVER_IO_GITHUB_ADA__WEATHER__X_KEY}"},
    }


def remote(url: str, **variables: Any) -> dict[str, Any]:
    return {"type": "streamable-http", "url": url, "variables": variables}


def test_no_two_owners_have_a_variable_in_common() -> None:
    owners = ["api.example.com", "api-example.com", "api.example.com:8443", "http://api.example.com", "API.example.com"]
    needed = {"key": {"isRequired": True}}
    urls = [
        entry_of(described(name=name, remotes=[remote("https://x/{key}", **needed)]), host=host)[1]["url"]
        for host in (*owners, None)
        for name in ("api.example.com/notes", "api-example.com/notes", "API.example.com/notes")
    ]
    assert urls[0] == "https://x/${BRIDGE_CARD_API_EXAMPLE_COM__NOTES__KEY}"
    assert urls[-3] == "https://x/${BRIDGE_SERVER_API_EXAMPLE_COM__NOTES__KEY}"
    assert urls[0] == urls[1] == urls[2], "the name is the host's own"
    assert len(set(urls)) == len(owners) + 3


@pytest.mark.parametrize(
    "text", ["{d}{HOME}", "{d}{rest}", "{dollar_brace}HOME}", "${HOME}", "$${HOME}", "{d}{d}{HOME}"]
)
def test_no_text_of_a_description_becomes_a_reference(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "secret")
    fixed = {"d": {"value": "$"}, "rest": {"value": "{HOME}"}, "dollar_brace": {"default": "${"}}
    given = package(
        "oci",
        "x${HOME}",
        packageArguments=[{"type": "named", "name": "--${HOME}", "value": text, "variables": fixed}],
        environmentVariables=[{"name": "A${HOME}", "value": text, "variables": fixed}],
    )
    headers = [{"name": "X", "value": text, "variables": fixed}]
    for document in (
        described(packages=[given]),
        described(remotes=[remote(f"https://x/{text}", **fixed) | {"headers": headers}]),
    ):
        (server,) = parse_config({"mcpServers": dict([entry_of(document)])}).servers.values()
        assert isinstance(server.transport, HttpTransport | StdioTransport)
        assert "secret" not in str(asdict(server.transport))


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "is not an object"),
        (described(name="weather"), "a reversed domain, a slash and a name"),
        (described(), "has neither a URL nor a package"),
        (described(packages=[package("mcpb", "x")]), "its packages: mcpb"),
        (described(packages=[package("pypi", "x", version="1 --extra x")]), "one exact version"),
        (described(packages=[package("pypi", "--extra=x")]), "one exact version"),
        (described(packages=[package("pypi", "x", version=None)]), "cannot be pinned"),
        (described(remotes=[{"type": "streamable-http", "url": "file:///etc"}]), "begins with https://"),
        (described(remotes=[remote("{base}/mcp", base={"default": "http://evil.example"})]), "begins with https://"),
        (described(remotes=[remote("http{s}://x", s={"default": "s"})]), "begins with https://"),
        (described(remotes={}), "has neither a URL"),
        (described(remotes="x"), "'remotes' is a list"),
    ],
)
def test_a_description_that_cannot_be_used_is_refused(document: Any, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        entry_of(document)


def test_server_json_and_cards_are_configurations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "server.json"
    card = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
    remotes = [remote("https://example.com/{id}", id={"isRequired": True})]
    path.write_text(json.dumps(described(**{"$schema": card, "remotes": remotes})))
    with pytest.raises(ConfigError, match="BRIDGE_SERVER_IO_GITHUB_ADA__WEATHER__ID"):
        load_config(path)
    monkeypatch.setenv("BRIDGE_SERVER_IO_GITHUB_ADA__WEATHER__ID", "7")
    transport = load_config(path).servers["weather"].transport
    assert isinstance(transport, HttpTransport)
    assert transport.url == "https://example.com/7"
    path.write_text(json.dumps(described(packages=[package("pypi", "weather-mcp")])))
    assert isinstance(load_config(path).servers["weather"].transport, StdioTransport)
    path.write_text(json.dumps(described()))
    with pytest.raises(ConfigError, match="neither a URL nor a package"):
        load_config(path)


def test_a_description_is_not_edited_to_give_a_variable(tmp_path: Path) -> None:
    given = package("pypi", "weather-mcp", environmentVariables=[{"name": "WEATHER_KEY", "isRequired": True}])
    path = tmp_path / "server.json"
    path.write_text(json.dumps(described(packages=[given])), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"the variable 'WEATHER_KEY' is not set: set it in the environment$"):
        load_config(path, environ={})


def test_other_documents_are_no_descriptions() -> None:
    others: tuple[Any, ...] = ({"mcpServers": {}}, {"$schema": "https://example.com/server.schema.json"}, [], None)
    for document in others:
        assert not is_server_json(document)
