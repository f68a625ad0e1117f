"""CORS: preflight requests before authentication, and headers of every response."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from bridge.server import http_app
from bridge.server.auth import ApiKey, ApiKeys, JwtVerifier
from bridge.server.auth.auth import Auth
from tests.server import http_server as http
from tests.server.auth.guarded import ADA, bearer, toolbox

if TYPE_CHECKING:
    from collections.abc import Iterator

APP = "https://app.example.com"
KINDS = ["direct", "httptools", "h11"]
CALL = http.modern(http.call("add", {"a": 1, "b": 2}))
KEYS = ApiKeys(ApiKey("ada", ADA))
ASKING = {
    "origin": APP,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,mcp-method,mcp-name,mcp-param-city,mcp-session-id",
}


@contextmanager
def served(http_kind: str = "direct", auth: Any = KEYS, **options: Any) -> Iterator[str]:
    origins = {"allowed_origins": [APP, "https://*.example.org:*"]} | options
    with http.serving(http_app(toolbox(), auth=auth, **origins), http=http_kind) as origin:
        yield origin


def call(origin: str, headers: dict[str, str], path: str = "/mcp") -> httpx.Response:
    return httpx.post(origin + path, json=CALL, headers=http.modern_headers(CALL) | headers, timeout=20)


def told(answer: httpx.Response) -> dict[str, str]:
    """Return the CORS headers of a response."""
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


def shown(page: str) -> dict[str, str]:
    """Headers that a browser needs to show a response to a page."""
    exposed = "Mcp-Session-Id, WWW-Authenticate, Retry-After"
    return {"access-control-allow-origin": page, "access-control-expose-headers": exposed}


@pytest.mark.parametrize("http_kind", KINDS)
@pytest.mark.parametrize("auth", [None, KEYS])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/sse", "/messages/"])
def test_a_browser_that_asks_for_a_page_of_an_allowed_origin_is_told_yes_without_a_credential(
    http_kind: str, auth: Any, path: str
) -> None:
    with served(http_kind, auth) as origin:
        answer = httpx.options(origin + path, headers=ASKING)
        assert answer.status_code == 200
        assert told(answer) == {
            "access-control-allow-origin": APP,
            "access-control-allow-methods": "GET, POST, DELETE",
            "access-control-allow-headers": ASKING["access-control-request-headers"],
            "access-control-max-age": "600",
        }
        assert "Origin" in answer.headers["vary"]


@pytest.mark.parametrize("http_kind", KINDS)
@pytest.mark.parametrize("page", [APP, "https://a.example.org:8443"])
def test_a_page_of_an_allowed_origin_may_see_every_answer(http_kind: str, page: str) -> None:
    with served(http_kind) as origin:
        for _ in range(2):  # the second time the credential is recognised
            answer = call(origin, bearer(ADA) | {"origin": page})
            assert answer.json()["result"]["structuredContent"] == {"result": 3}
            assert told(answer) == shown(page)
            assert answer.headers["vary"] == "Origin"
        assert told(call(origin, bearer(ADA) | {"origin": page}, "/unheard-of")) == shown(page)


@pytest.mark.parametrize("http_kind", KINDS)
def test_a_page_sees_how_to_log_in(http_kind: str) -> None:
    auth = Auth(
        JwtVerifier("https://login.example.net", "https://tools.example.net"), resource_url="https://tools.example.net"
    )
    with served(http_kind, auth) as origin:
        for credential in ({}, bearer("a-bad-one")):
            refused = call(origin, credential | {"origin": APP})
            assert refused.status_code == 401
            assert "resource_metadata=" in refused.headers["www-authenticate"]
            assert told(refused) == shown(APP)
        metadata = httpx.get(f"{origin}/.well-known/oauth-protected-resource", headers={"origin": APP})
        assert metadata.json()["authorization_servers"] == ["https://login.example.net"]
        assert told(metadata)["access-control-allow-origin"] == APP


def test_a_page_has_a_session_and_its_stream() -> None:
    with served() as origin, httpx.Client(timeout=20, headers=bearer(ADA) | {"origin": APP}) as client:
        opened = client.post(f"{origin}/mcp", json=http.initialize(), headers=http.HEADERS)
        assert told(opened) == shown(APP)
        headers = http.open_session(client, f"{origin}/mcp")
        with client.stream("GET", f"{origin}/mcp", headers=headers) as stream:
            assert (stream.status_code, told(stream)) == (200, shown(APP))
        with client.stream("GET", f"{origin}/sse") as stream:
            assert (stream.status_code, told(stream)) == (200, shown(APP))


@pytest.mark.parametrize("http_kind", KINDS)
@pytest.mark.parametrize("page", ["https://evil.example.com", "https://app.example.com.evil.net", "null"])
def test_any_other_origin_is_refused_as_ever(http_kind: str, page: str) -> None:
    with served(http_kind) as origin:
        for answer in (
            call(origin, bearer(ADA) | {"origin": page}),
            httpx.options(f"{origin}/mcp", headers=ASKING | {"origin": page}),
        ):
            assert (answer.status_code, told(answer)) == (403, {})


@pytest.mark.parametrize("http_kind", KINDS)
def test_without_an_allowed_origin_nothing_is_told(http_kind: str) -> None:
    local = {"origin": "http://localhost:3000"}
    with served(http_kind) as origin, served(http_kind, allowed_origins=[]) as closed:
        for each in (origin, closed):
            assert told(call(each, bearer(ADA))) == {}
            assert told(call(each, bearer(ADA) | local)) == {}
            asked = httpx.options(f"{each}/mcp", headers=ASKING | local)
            assert (asked.status_code, told(asked)) == (401, {})
        assert httpx.options(f"{closed}/mcp", headers=ASKING).status_code == 403
    with served(http_kind, allowed_origins=["*"]) as anybodys:
        assert told(call(anybodys, bearer(ADA) | local)) == shown("http://localhost:3000")


def test_what_is_no_question_of_a_browser_needs_a_credential() -> None:
    with served() as origin:
        answer = httpx.options(f"{origin}/mcp", headers={"origin": APP})
        assert (answer.status_code, told(answer)) == (401, shown(APP))
        wrong = httpx.options(f"{origin}/mcp", headers=ASKING | {"access-control-request-method": "PUT"})
        assert wrong.status_code == 400
