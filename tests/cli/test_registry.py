"""``bridge search``, ``add`` and ``publish``, against a registry on this machine."""

from __future__ import annotations

import json
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from bridge.client.config.server_json import entry_of, server_json_of
from bridge.errors import WireError
from tests.processes import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Run

OFFICIAL = "io.modelcontextprotocol.registry/official"


def registered(name: str, status: str = "active", **members: Any) -> dict[str, Any]:
    package: dict[str, Any] = {
        "registryType": "pypi",
        "identifier": "weather-mcp",
        "version": "1.0.2",
        "transport": {"type": "stdio"},
    }
    package["environmentVariables"] = [{"name": "WEATHER_KEY", "isSecret": True, "isRequired": True}]
    server = {"name": name, "description": f"Of {name}", "version": "1.0.2", "packages": [package], **members}
    return {"server": server, "_meta": {OFFICIAL: {"status": status, "isLatest": True}}}


class Registry(BaseHTTPRequestHandler):
    """A registry with the API v0.1, whose pages have one server."""

    servers: ClassVar[list[dict[str, Any]]] = []
    is_lying: ClassVar[bool] = False
    """True to answer every request for one server with the first."""

    def do_GET(self) -> None:
        """Answer a request for a page, or for one server."""
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        names = [each["server"]["name"] for each in self.servers]
        if parts.path == "/v0.1/servers" and query.get("version") == "latest":
            matching = [each for each in self.servers if query["search"] in each["server"]["name"]]
            start = int(query.get("cursor", 0))
            following = {"nextCursor": str(start + 1)} if start + 1 < len(matching) else {}
            self.answer({"servers": matching[start : start + 1], "metadata": {"count": 1, **following}})
        elif parts.path.startswith("/v0.1/servers/") and parts.path.endswith(("/versions/latest", "/versions/1.0.2")):
            name = unquote(parts.path.split("/")[3])
            self.answer(
                self.servers[0] if self.is_lying else self.servers[names.index(name)] if name in names else None
            )
        else:
            self.answer(None)

    def answer(self, body: Any) -> None:
        """Send JSON."""
        self.send_response(404 if body is None else 200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    """A registry with three servers."""
    Registry.is_lying = False
    Registry.servers = [
        registered("io.github.ada/weather"),
        registered("io.github.ada/weather-old", "deprecated"),
        registered("io.github.ada/weather-gone", "deleted"),
    ]
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_search_reads_all_pages_and_leaves_out_what_is_deleted(run: Run, registry: str) -> None:
    found = run("search", "weather", "--registry", registry)
    assert found.stdout == (
        "io.github.ada/weather 1.0.2\n  Of io.github.ada/weather\n"
        "io.github.ada/weather-old 1.0.2 (deprecated)\n  Of io.github.ada/weather-old\n"
    )
    limited = run("search", "weather", "--limit", "1", "--json", env={"BRIDGE_REGISTRY": f"{registry}/v0.1/"})
    assert [each["name"] for each in json.loads(limited.stdout)] == ["io.github.ada/weather"]
    nothing = run("search", "nothing", "--registry", registry)
    assert (nothing.returncode, nothing.stdout) == (1, "")


def test_a_server_is_added_pinned_and_its_secret_is_a_variable(run: Run, registry: str, directory: Path) -> None:
    config = directory / "mcp.json"
    config.write_text('{\n  // kept\n  "mcpServers": {"other": {"command": "x"}}\n}\n')
    shown = run("add", "io.github.ada/weather", "--registry", registry, "--dry-run")
    assert "// kept" in config.read_text()
    assert "weather-mcp" not in config.read_text()
    added = run("add", "io.github.ada/weather", "--registry", registry, "--version", "1.0.2", "--as", "sky")
    entry = {"command": "uvx", "args": ["weather-mcp==1.0.2"], "env": {"WEATHER_KEY": "${WEATHER_KEY}"}}
    assert json.loads(shown.stdout) == {"mcpServers": {"weather": entry}}
    assert json.loads(added.stdout) == {"mcpServers": {"sky": entry}}
    assert "set WEATHER_KEY in the environment" in added.stderr
    assert "// kept" in config.read_text()
    assert '"sky"' in config.read_text()
    assert '"other"' in config.read_text()


@pytest.mark.parametrize("name", ["io.github.ada/none", "io.github.ada/weather-gone"])
def test_a_server_that_does_not_exist_is_not_added(name: str, run: Run, registry: str, directory: Path) -> None:
    refused = run("add", name, "--registry", registry)
    assert refused.returncode == 1
    assert "bridge search finds servers" in refused.stderr
    assert not (directory / "mcp.json").exists()


def test_a_registry_that_answers_for_another_server_is_refused(run: Run, registry: str) -> None:
    Registry.is_lying = True
    refused = run("add", "io.github.eve/weather", "--registry", registry)
    assert refused.returncode == 1
    assert "answered with 'io.github.ada/weather' instead of 'io.github.eve/weather'" in refused.stderr


def test_a_registry_that_cannot_be_reached_or_is_none_is_named(run: Run, registry: str) -> None:
    for url in ("http://127.0.0.1:9", f"{registry}/other"):
        refused = run("search", "weather", "--registry", url)
        assert refused.returncode == 1
        assert url in refused.stderr
    missing = run("search", "weather")
    assert missing.returncode == 2
    assert "--registry" in missing.stderr


@pytest.mark.parametrize("metadata", [[], "x", {OFFICIAL: "x"}, {OFFICIAL: []}, {OFFICIAL: 7}])
def test_a_malformed_answer_of_a_registry_is_named(metadata: Any, run: Run, registry: str) -> None:
    Registry.servers = [registered("io.github.ada/weather") | {"_meta": metadata}]
    refused = run("search", "weather", "--registry", registry)
    if metadata in ([], {OFFICIAL: []}):  # nothing is said of its status
        assert refused.stdout.startswith("io.github.ada/weather 1.0.2\n")
    else:
        assert (refused.returncode, "is not an object" in refused.stderr) == (1, True)


def test_the_description_of_a_project_is_one_that_can_be_added(run: Run, directory: Path) -> None:
    written = run(
        *("publish", "io.github.ada/bridge", "--project", str(ROOT / "pyproject.toml"), "--output", "server.json"),
        *("--secret", "KEY", "--argument", "serve"),
    )
    assert written.returncode == 0, written.stderr
    document = json.loads((directory / "server.json").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (document["version"], len(document["description"]) <= 100) == (project["version"], True)
    assert entry_of(document) == (
        "bridge",
        {"command": "uvx", "args": [f"{project['name']}=={project['version']}", "serve"], "env": {"KEY": "${KEY}"}},
    )
    assert run("publish", "bridge", "--project", str(ROOT / "pyproject.toml")).returncode == 1
    assert run("publish", "io.github.ada/x", "--project", "none.toml").returncode == 1


def test_the_url_of_a_server_is_described_in_place_of_its_package() -> None:
    project = {"name": "x", "version": "1", "description": "y" * 200, "urls": {"Homepage": "https://example.com"}}
    document = server_json_of("com.example/x", project, url="https://example.com/mcp", secrets=["X-Key"])
    assert document["remotes"] == [
        {
            "type": "streamable-http",
            "url": "https://example.com/mcp",
            "headers": [{"name": "X-Key", "isRequired": True, "isSecret": True}],
        }
    ]
    assert (len(document["description"]), document["websiteUrl"]) == (100, "https://example.com")
    with pytest.raises(WireError, match="has no 'version'"):
        server_json_of("com.example/x", {"name": "x"})
