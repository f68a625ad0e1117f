"""Targets that are found by the catalogue of a host, or by a card."""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from bridge import Server, http_app
from tests.server.http_server import serving
from tests.server.tools import ADD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Run

DOCUMENTS: dict[str, Any] = {}


class Documents(BaseHTTPRequestHandler):
    """A host that has documents alone."""

    def do_GET(self) -> None:
        """Send a document."""
        body = DOCUMENTS.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(b"" if body is None else json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def host() -> Iterator[str]:
    """A host with documents."""
    DOCUMENTS.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Documents) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_the_url_of_a_host_or_of_a_card_finds_the_endpoint(run: Run) -> None:
    with serving(http_app(Server([ADD], name="notes"), path="/hidden/endpoint")) as origin:
        for url in (
            origin,
            f"{origin}/",
            f"{origin}/.well-known/ai-catalog.json",
            f"{origin}/hidden/endpoint/server-card",
        ):
            assert run("list", url).stdout.startswith("add")
        assert run("call", origin, "add", "a=1", "b=2").stdout == "3\n"


def test_a_catalogue_may_describe_servers_of_other_hosts_and_inline(run: Run, host: str) -> None:
    with serving(http_app(Server([ADD], name="one"))) as one, serving(http_app(Server([ADD], name="two"))) as two:
        card = {"$schema": "x", "name": "com.example/two", "version": "1", "description": "x"}
        remotes = [{"type": "streamable-http", "url": f"{two}/mcp"}]
        kind = "application/mcp-server-card+json"
        DOCUMENTS["/.well-known/ai-catalog.json"] = {
            "specVersion": "1.0",
            "entries": [
                {"identifier": "a", "type": kind, "url": f"{one}/mcp/server-card"},
                {"identifier": "b", "type": kind, "data": {**card, "remotes": remotes}},
                {"identifier": "c", "type": "application/other+json", "url": f"{host}/other"},
            ],
        }
        listed = run("list", host).stdout
    assert "one_add" in listed
    assert "two_add" in listed


def test_a_malformed_card_is_named(run: Run, host: str) -> None:
    DOCUMENTS["/mcp/server-card"] = {"name": "nothing"}
    refused = run("list", f"{host}/mcp/server-card")
    assert refused.returncode == 2
    assert "a reversed domain, a slash and a name" in refused.stderr


def test_a_card_starts_no_program_and_gets_no_secret_of_the_environment(run: Run, host: str) -> None:
    with serving(http_app(Server([ADD], name="good"))) as good:
        package = {"registryType": "pypi", "identifier": "evil", "version": "1", "transport": {"type": "stdio"}}
        of_any: dict[str, Any] = {
            "type": "streamable-http",
            "url": f"{host}/{{secret_key}}",
            "headers": [{"name": "X", "value": "{k}"}],
        }
        of_any["headers"][0]["variables"] = {"k": {"isSecret": True}}
        of_any["variables"] = {"secret_key": {"isRequired": True}}
        kind = "application/mcp-server-card+json"
        cards: list[dict[str, Any]] = [
            {"name": "com.example/program", "packages": [package]},
            {"name": "com.example/good", "remotes": [{"type": "streamable-http", "url": f"{good}/mcp"}]},
        ]
        DOCUMENTS["/.well-known/ai-catalog.json"] = {"entries": [{"type": kind, "data": each} for each in cards]}
        listed = run("list", host)
        assert listed.stdout.startswith("add")
        assert "the card of 'com.example/program' has no URL of a server" in listed.stderr
        DOCUMENTS["/server-card"] = cards[0]
        assert "has no URL of a server" in run("list", f"{host}/server-card").stderr
        DOCUMENTS["/server-card"] = {"name": "com.example/x", "remotes": [of_any]}
        secrets = dict.fromkeys(("SECRET_KEY", "K", "BRIDGE_INPUT_X_SECRET_KEY", "BRIDGE_INPUT_X_K"), "secret")
        refused = run("list", f"{host}/server-card", env=secrets)
        assert refused.returncode == 1
        prefix = "BRIDGE_CARD_HTTP_127_0_0_1_"
        assert re.search(rf"{prefix}\d+__X__SECRET_KEY__[0-9a-f]{{8}}\b", refused.stderr)
        assert re.search(rf"{prefix}\d+__X__K__[0-9a-f]{{8}}\b", refused.stderr)
        assert refused.stderr.count("is not set: set it in the environment") == 2, refused.stderr


def test_a_server_is_served_without_a_card(run: Run) -> None:
    assert "--no-card" in run("serve", "--help").stdout
