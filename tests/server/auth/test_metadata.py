from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from starlette.applications import Starlette

from bridge.server import http_app, mount
from bridge.server.auth import ApiKey, ApiKeys, Auth, JwtVerifier
from bridge.server.auth.bearer import BearerAuthGuard
from bridge.server.auth.credentials import CredentialCache
from bridge.server.auth.guards import WELL_KNOWN_PATH
from bridge.server.http.guards import GuardMiddleware
from bridge.server.server import Server
from tests.server.auth.guarded import ADA, bearer, toolbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Message, Receive, Scope, Send

ISSUER = "https://login.example.org"


def auth(resource_url: str = "https://tools.example.org/mcp") -> Auth:
    return Auth(
        JwtVerifier(ISSUER, resource_url, jwks_url="http://127.0.0.1:9/keys"),
        ApiKeys(ApiKey("ada", ADA)),
        resource_url=resource_url,
        required_scopes=["tools"],
        tool_scopes={"delete_*": ["write"]},
    )


@pytest.mark.parametrize("path", ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"])
def test_everybody_learns_which_issuers_give_tokens(serving: Callable[..., str], path: str) -> None:
    origin = serving(http_app(Server(toolbox(), name="tests"), auth=auth()))
    answer = httpx.get(origin + path)
    assert answer.status_code == 200
    found = answer.json()
    assert found["resource"] == "https://tools.example.org/mcp"
    assert found["authorization_servers"] == [ISSUER]
    assert found["resource_name"] == "tests"
    assert found["scopes_supported"] == ["tools", "write"]
    assert found["bearer_methods_supported"] == ["header"]
    assert httpx.head(origin + path).status_code == 200
    assert httpx.post(origin + path).status_code == 401
    assert httpx.post(origin + path, headers=bearer(ADA)).status_code == 405
    assert httpx.get(origin + path + "/more").status_code == 401


def test_the_challenge_points_to_it(serving: Callable[..., str]) -> None:
    origin = serving(http_app(toolbox(), auth=auth()))
    challenge = httpx.get(origin + "/mcp").headers["www-authenticate"]
    assert 'resource_metadata="https://tools.example.org/.well-known/oauth-protected-resource/mcp"' in challenge


def test_where_only_keys_count_there_is_nothing_to_learn(serving: Callable[..., str]) -> None:
    origin = serving(http_app(toolbox(), auth=ApiKeys(ApiKey("ada", ADA))))
    assert httpx.get(origin + "/.well-known/oauth-protected-resource").status_code == 401
    assert "resource_metadata" not in httpx.get(origin + "/mcp").headers["www-authenticate"]


def test_tools_that_are_mounted_are_described_by_the_app_that_they_are_mounted_in(serving: Callable[..., str]) -> None:
    parent = Starlette()
    mount(parent, "/tools", toolbox(), auth=auth("https://example.org/tools"))
    origin = serving(parent)
    found = httpx.get(origin + "/.well-known/oauth-protected-resource/tools")
    assert found.json()["resource"] == "https://example.org/tools"
    assert httpx.get(origin + "/tools").status_code == 401
    assert httpx.get(origin + "/tools", headers=bearer(ADA)).status_code != 401


@pytest.mark.parametrize(
    ("resource_url", "path"),
    [
        ("https://tools.example.org", ""),
        ("https://tools.example.org/", ""),
        ("https://tools.example.org/mcp/", "/mcp/"),
        ("https://tools.example.org/a%20b", "/a%20b"),
        ("https://tools.example.org:8443/mcp?tenant=x", "/mcp?tenant=x"),
    ],
)
def test_a_resource_is_told_as_it_was_given_where_the_challenge_points(
    serving: Callable[..., str], resource_url: str, path: str
) -> None:
    origin = serving(http_app(toolbox(), auth=auth(resource_url)))
    expected = f"{WELL_KNOWN_PATH}{path}"
    assert f'{expected}"' in httpx.get(origin + "/mcp").headers["www-authenticate"]
    assert httpx.get(origin + expected).json()["resource"] == resource_url


@pytest.mark.parametrize("path", [WELL_KNOWN_PATH, f"{WELL_KNOWN_PATH}/", f"{WELL_KNOWN_PATH}/mcp"])
def test_tools_are_not_served_where_everybody_may_read(path: str) -> None:
    with pytest.raises(ValueError, match="is used by the metadata of the issuers of tokens"):
        http_app(toolbox(), path=path, auth=auth())


@pytest.mark.anyio
async def test_where_everybody_may_read_nobody_may_do_anything_else() -> None:
    reached = []

    async def behind(scope: Scope, _receive: Receive, _send: Send) -> None:
        reached.append(scope["method"])

    async def receive() -> Message:
        raise AssertionError("a body was read")

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    guard = auth()
    credential = BearerAuthGuard(guard, CredentialCache(guard), metadata_url=None, open_paths=["/open"])
    gate = GuardMiddleware(behind, guards=[credential])
    for method in ("GET", "HEAD", "OPTIONS", "POST", "DELETE", "PUT"):
        scope: Scope = {
            "type": "http",
            "method": method,
            "path": "/open",
            "query_string": b"",
            "headers": [],
        }
        await gate(scope, receive, send)
    assert reached == ["GET", "HEAD", "OPTIONS"]
    assert [each["status"] for each in sent if "status" in each] == [401, 401, 401]
