from __future__ import annotations

from typing import Any

import pytest

from bridge import DefinitionError
from bridge.openapi.base_url import base_url_of, operation_url
from tests.openapi.documents import document, parsed


def base(servers: Any, *, given: str | None = None, fetched_from: str | None = None) -> str:
    return base_url_of(parsed(document(servers=servers)), given=given, fetched_from=fetched_from)


def server(url: str, **variables: Any) -> list[dict[str, Any]]:
    return [{"url": url, "variables": {name: {"default": value} for name, value in variables.items()}}]


@pytest.mark.parametrize(
    ("servers", "options", "url"),
    [
        (server("https://api.example.com/v1/"), {}, "https://api.example.com/v1"),
        (server("https://{region}.example.com/{v}", region="eu", v=2), {}, "https://eu.example.com/2"),
        (server("/v1"), {"fetched_from": "https://example.com/docs/openapi.json"}, "https://example.com/v1"),
        (None, {"fetched_from": "https://example.com/openapi.json"}, "https://example.com"),
        (server("https://other.example"), {"given": "http://localhost:8080/api"}, "http://localhost:8080/api"),
    ],
)
def test_the_base_url_is_configured_or_the_first_server(servers: Any, options: Any, url: str) -> None:
    assert base(servers, **options) == url


@pytest.mark.parametrize(
    ("servers", "options", "message"),
    [
        (server("/v1"), {}, "names no server with a host, but '/v1'"),
        (server("https://{region}.example.com"), {}, "a variable without a default"),
        (server("https://api.example.com@{host}", host="evil.example/"), {}, "must not have credentials"),
        (server("https://api.example.com/{path}", path="../../admin"), {}, "must not have the segments"),
        (server("https://api.example.com/?a=b"), {}, "must not have credentials, a query"),
        (server("https://api.example.com/#a"), {}, "must not have credentials, a query or a fragment"),
        (server("ftp://example.com"), {}, "names no server with a host"),
        (server("file:///etc/passwd"), {}, "names no server with a host"),
        (server("http://[::1"), {}, "is not a valid URL"),
        ([5], {}, "'servers' has no URL"),
        (
            server("https://evil.example"),
            {"fetched_from": "https://example.com/o.json"},
            "on another host",
        ),
        (
            server("http://example.com"),
            {"fetched_from": "https://example.com/o.json"},
            "on another host",
        ),
        (server("//evil.example/x"), {"fetched_from": "https://example.com/o.json"}, "on another host"),
        (None, {"given": "example.com"}, "is not an http:// or https:// URL"),
        (None, {"given": "https://user:secret@example.com"}, "must not have credentials"),
    ],
)
def test_other_servers_are_refused_with_the_reason(servers: Any, options: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as caught:
        base(servers, **options)
    assert "secret" not in str(caught.value)


def test_an_operation_may_have_a_server_of_its_own_on_the_same_host_only() -> None:
    def url(own: str, *, is_given: bool = False) -> str:
        api = parsed(document({"servers": [{"url": own}]}))
        return operation_url(api, api.operations[0], "https://example.com/v1", is_given=is_given)

    assert url("https://example.com/v2") == "https://example.com/v2"
    assert url("uploads") == "https://example.com/v1/uploads"
    assert url("https://evil.example", is_given=True) == "https://example.com/v1"
    for evil in ("https://evil.example", "http://example.com", "https://example.com:444", "//evil.example"):
        with pytest.raises(DefinitionError, match="a server of its own on another host"):
            url(evil)


def test_an_operation_with_several_servers_uses_the_one_on_the_same_host() -> None:
    own = [{"url": "https://b.example.com"}, {"url": "https://example.com/v2"}, {"url": "v3"}]
    api = parsed(document({"servers": own}))
    assert operation_url(api, api.operations[0], "https://example.com", is_given=False) == "https://example.com/v2"
