"""The card of a server, and the catalogue of its host: public documents without tools."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from bridge import DefinitionError, Server, http_app, mount
from bridge.server import ServerCard
from bridge.server.auth import ApiKey, ApiKeys, Auth
from tests.server.http_server import serving
from tests.server.tools import ADD

SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
CATALOG = "/.well-known/ai-catalog.json"


def served(**options: Any) -> Server:
    return Server([ADD], name="my notes", version="1.2.3", title="Notes", **options)


@pytest.mark.parametrize("http", ["h11", "direct"])
def test_a_card_says_where_to_connect_and_nothing_of_tools(http: str) -> None:
    with serving(http_app(served()), http=http) as origin, httpx.Client() as client:
        answer = client.get(f"{origin}/mcp/server-card", headers={"origin": "https://any.example"})
        catalog = client.get(origin + CATALOG)
    assert answer.json() == {
        "$schema": SCHEMA,
        "name": "local/my-notes",
        "version": "1.2.3",
        "description": "Notes",
        "title": "Notes",
        "remotes": [
            {"type": "streamable-http", "url": f"{origin}/mcp", "supportedProtocolVersions": VERSIONS},
            {"type": "sse", "url": f"{origin}/sse", "supportedProtocolVersions": VERSIONS[:-1]},
        ],
    }
    assert answer.headers["content-type"] == "application/mcp-server-card+json"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-expose-headers"] == "ETag"
    assert answer.headers["cache-control"] == "public, max-age=3600"
    assert catalog.headers["content-type"] == "application/ai-catalog+json"
    assert catalog.json() == {
        "specVersion": "1.0",
        "entries": [
            {
                "identifier": "urn:air:local:mcp:my-notes",
                "type": "application/mcp-server-card+json",
                "url": f"{origin}/mcp/server-card",
            }
        ],
    }


def test_a_known_card_is_not_sent_again_and_a_preflight_request_is_answered() -> None:
    with serving(http_app(served(), sse=False)) as origin, httpx.Client() as client:
        url = f"{origin}/mcp/server-card"
        tag = client.get(url).headers["etag"]
        same = client.get(url, headers={"if-none-match": f'"other", W/{tag}'})
        other = client.get(url, headers={"if-none-match": '"other"'})
        asked = {"origin": "https://any.example", "access-control-request-method": "GET"}
        preflight = client.options(url, headers=asked | {"access-control-request-headers": "if-none-match"})
        posted = client.post(url)
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert other.status_code == 200
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-headers"] == "Content-Type, If-None-Match"
    assert posted.status_code == 405


def test_a_card_needs_no_key_and_says_that_the_endpoint_does() -> None:
    auth = Auth(ApiKeys(ApiKey("ada", "a-key-that-is-long-enough-for-a-test")))
    with serving(http_app(served(), auth=auth)) as origin, httpx.Client() as client:
        card = client.get(f"{origin}/mcp/server-card").json()
        assert client.get(f"{origin}/mcp").status_code == 401
        assert client.get(f"{origin}/mcp/server-card", headers={"host": "evil.example"}).status_code == 421
    (header,) = card["remotes"][0]["headers"]
    assert (header["name"], header["value"], header["isSecret"]) == ("Authorization", "Bearer {api_key}", True)


def test_a_card_has_what_its_author_says_and_its_name_is_that_of_the_host() -> None:
    card = ServerCard(
        description="Keep notes",
        website_url="https://example.com",
        repository={"url": "https://github.com/x/y", "source": "github"},
        icons=({"src": "https://example.com/a.png"},),
    )
    app = http_app(served(card=card), allowed_hosts=["tools.example.com"])
    with serving(app) as origin, httpx.Client() as client:
        found = client.get(f"{origin}/mcp/server-card", headers={"host": "tools.example.com"}).json()
    assert found["name"] == "com.example.tools/my-notes"
    assert found["remotes"][0]["url"] == "http://tools.example.com/mcp"
    assert (found["description"], found["websiteUrl"]) == ("Keep notes", "https://example.com")
    assert found["repository"] == {"url": "https://github.com/x/y", "source": "github"}
    assert found["icons"] == [{"src": "https://example.com/a.png"}]


def test_a_server_without_a_card_has_neither() -> None:
    with serving(http_app(served(card=False))) as origin, httpx.Client() as client:
        assert [client.get(origin + path).status_code for path in ("/mcp/server-card", CATALOG)] == [404, 404]


def test_a_mounted_server_has_its_card_below_its_path() -> None:
    parent = Starlette()
    mount(parent, "/tools", served())
    with serving(parent) as origin, httpx.Client() as client:
        card = client.get(f"{origin}/tools/server-card").json()
    assert [each["url"] for each in card["remotes"]] == [f"{origin}/tools", f"{origin}/tools/sse"]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"name": "notes"}, "a reversed domain, a slash and a name"),
        ({"description": "x" * 101}, "1 to 100 characters"),
        ({"description": 1}, "must be text"),
        ({"repository": "x"}, "a mapping with url and source"),
        ({"icons": ("x",)}, "list of icons"),
    ],
)
def test_a_malformed_card_is_refused(values: Any, problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        ServerCard(**values)


def test_something_else_than_a_card_is_refused() -> None:
    with pytest.raises(DefinitionError, match="card is a ServerCard, True or False: not 'x'"):
        http_app(served(card="x"))
