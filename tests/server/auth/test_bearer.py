from __future__ import annotations

import logging
import socket
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from mcp.server.auth.provider import AccessToken

from bridge.server import http_app
from bridge.server.auth import ApiKey, ApiKeys, Auth, JwtVerifier
from tests.server import http_server as http
from tests.server.auth.guarded import ADA, BOB, Modern, bearer, talking, toolbox
from tests.server.auth.issuer import AUDIENCE, Issuer, unsigned

if TYPE_CHECKING:
    from collections.abc import Callable

LIST = http.modern(http.request("tools/list"))
KEYS = (ApiKey("alice", ADA), ApiKey("bob", BOB))


def post(origin: str, headers: Any = (), path: str = "/mcp") -> httpx.Response:
    """Request the list, with further headers."""
    given = [*http.modern_headers(LIST).items(), *(headers.items() if isinstance(headers, dict) else headers)]
    return httpx.post(origin + path, json=LIST, headers=given, timeout=20)


@pytest.fixture
def origin(serving: Callable[..., str], issuer: Issuer) -> str:
    auth = Auth(ApiKeys(*KEYS), JwtVerifier(issuer.url, AUDIENCE), resource_url=AUDIENCE, required_scopes=["tools"])
    return serving(http_app(toolbox(), auth=auth))


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/messages/?session_id=x", "/status", "/unheard-of"])
def test_without_a_credential_nothing_is_reached(origin: str, path: str) -> None:
    answer = post(origin, path=path)
    assert answer.status_code == 401
    challenge = answer.headers["www-authenticate"]
    assert challenge.startswith("Bearer ")
    assert "error=" not in challenge
    assert 'scope="tools"' in challenge
    assert 'resource_metadata="https://tools.example.org/.well-known/oauth-protected-resource/mcp"' in challenge
    assert httpx.get(origin + path).status_code == 401


def test_a_key_and_a_token_let_their_bearers_in(origin: str, issuer: Issuer) -> None:
    for token in (ADA, BOB, issuer.token(scope="tools"), issuer.token(scp=["tools"])):
        for spelling in (f"Bearer {token}", f"bearer {token}", f"BEARER   {token}"):
            assert post(origin, {"authorization": spelling}).status_code == 200


def test_a_token_lets_its_bearer_in_though_the_issuers_clock_is_a_little_off(origin: str, issuer: Issuer) -> None:
    now = int(time.time())
    for claim, seconds in (("exp", -5), ("nbf", 20), ("iat", 20)):
        changes: dict[str, Any] = {"scope": "tools", claim: now + seconds}
        assert post(origin, bearer(issuer.token(**changes))).status_code == 200


BAD: dict[str, Callable[[Issuer], str]] = {
    "an unknown key": lambda _: "somebody",
    "none": lambda issuer: unsigned(issuer.claims(scope="tools")),
    "a wrong algorithm": lambda issuer: unsigned(issuer.claims(scope="tools"), "HS256", "c2ln"),
    "a wrong audience": lambda issuer: issuer.token(scope="tools", aud="https://other.example.org"),
    "a wrong issuer": lambda issuer: issuer.token(scope="tools", iss="https://other.example.org"),
    "expired": lambda issuer: issuer.token(scope="tools", exp=int(time.time()) - 3600),
    "not yet valid": lambda issuer: issuer.token(scope="tools", nbf=int(time.time()) + 3600),
    "an unknown signing key": lambda issuer: issuer.token(scope="tools", headers={"kid": "unheard-of"}),
    "a huge token": lambda issuer: issuer.token(scope="tools", more="x" * 20_000),
    "huge, and no token": lambda _: "x" * 20_000,
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("path", ["/mcp", "/messages/?session_id=" + "0" * 32])
def test_a_bad_credential_is_refused_with_401(origin: str, issuer: Issuer, kind: str, path: str) -> None:
    answer = post(origin, bearer(BAD[kind](issuer)), path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith('Bearer error="invalid_token", error_description="')
    assert answer.json()["error"] == "invalid_token"


def test_a_scope_that_everyone_needs_is_403_with_its_name(origin: str, issuer: Issuer) -> None:
    answer = post(origin, bearer(issuer.token(scope="others")))
    assert answer.status_code == 403
    challenge = answer.headers["www-authenticate"]
    assert 'error="insufficient_scope"' in challenge
    assert 'scope="tools"' in challenge
    assert "resource_metadata=" in challenge


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"", 401),
        (b"Basic YTpi", 401),
        (ADA.encode(), 401),
        (b"Bearer", 400),
        (b"Bearer" + ADA.encode(), 400),
        (b"Bearer a b", 400),
        (b"Bearer a,b c", 400),
        (b"Bearer \xe9", 400),
        (b"Bearer a\tb", 400),
    ],
)
def test_a_header_that_is_no_bearers_is_refused(origin: str, header: bytes, status: int) -> None:
    assert post(origin, [("authorization", header)]).status_code == status


def test_two_authorization_headers_are_refused_whichever_of_them_is_good(origin: str) -> None:
    assert post(origin, bearer(ADA)).status_code == 200
    for values in ((ADA, ADA), (ADA, "x"), ("x", ADA)):
        assert post(origin, [("authorization", f"Bearer {value}") for value in values]).status_code == 400


@pytest.mark.parametrize("name", ["access_token", "api_key"])
def test_a_credential_in_the_address_lets_nobody_in(origin: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert post(origin, path=f"/mcp?{name}={ADA}").status_code == 401
    assert post(origin, bearer(ADA), f"/mcp?x=1&{name}={ADA}").status_code == 400
    assert post(origin, bearer(ADA), "/mcp?x=1").status_code == 200
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("bridge")]
    assert len(ours) == 2
    assert not [message for message in ours if ADA in message]


def test_a_refusal_comes_before_the_body(origin: str) -> None:
    host, _, port = origin.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 401 ")


def test_an_issuer_that_is_not_there_is_503_and_no_key_waits_for_it(origin: str, issuer: Issuer) -> None:
    assert post(origin, bearer(issuer.token(scope="tools"))).status_code == 200
    issuer.is_down = True
    answer = post(origin, bearer(issuer.token(scope="tools", headers={"kid": "never-seen"})))
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert "www-authenticate" not in answer.headers
    assert answer.json()["error"] == "temporarily_unavailable"
    assert issuer.url not in answer.text
    assert post(origin, bearer(ADA)).status_code == 200
    # The fetched keys are kept.
    assert post(origin, bearer(issuer.token(scope="tools", sub="eve"))).status_code == 200


@pytest.mark.parametrize("kind", ["modern", "handshake", "sse"])
@pytest.mark.parametrize("way", ["direct", "h11"])
def test_a_tool_knows_who_calls(serving: Callable[..., str], issuer: Issuer, kind: str, way: str) -> None:
    auth = Auth(ApiKeys(*KEYS), JwtVerifier(issuer.url, AUDIENCE), tool_scopes={"delete_*": ["write"]})
    origin = serving(http_app(toolbox(), auth=auth), http=way)
    callers = {
        ADA: {"name": "alice", "scopes": ["write"], "iss": None, "memory": "alice"},
        issuer.token(sub="eve", scope="read"): {"name": "eve", "scopes": ["read"], "iss": issuer.url, "memory": "eve"},
    }
    for token, expected in callers.items():
        with talking(kind, origin, token) as peer:
            for _ in range(2):
                answer = peer.ask(http.call("whoami"))["result"]["structuredContent"]
                assert answer == expected


@pytest.mark.parametrize("kind", ["handshake", "sse"])
def test_a_session_is_the_credentials_that_opened_it(serving: Callable[..., str], issuer: Issuer, kind: str) -> None:
    origin = serving(http_app(toolbox(), auth=Auth(ApiKeys(*KEYS), JwtVerifier(issuer.url, AUDIENCE))))
    calling = http.call("add", {"a": 1, "b": 2})
    with talking(kind, origin, ADA) as peer:
        for other in (BOB, issuer.token(sub="eve")):
            stranger = _as_another(peer, other)
            assert stranger.send(calling).status_code == 404
            assert stranger.send(http.request("tools/list")).status_code == 404
        assert peer.ask(calling)["result"]["structuredContent"] == {"result": 3}


def _as_another(peer: Modern, token: str) -> Modern:
    """The same session, with another credential."""
    stranger = object.__new__(type(peer))
    stranger.__dict__.update(peer.__dict__, credential=bearer(token))
    return stranger


def test_another_token_of_the_same_bearer_keeps_the_session(serving: Callable[..., str], issuer: Issuer) -> None:
    origin = serving(http_app(toolbox(), auth=JwtVerifier(issuer.url, AUDIENCE)))
    with talking("handshake", origin, issuer.token()) as peer:
        renewed = _as_another(peer, issuer.token(exp=int(time.time()) + 1234))
        assert renewed.ask(http.call("add", {"a": 1, "b": 2}))["result"]["structuredContent"] == {"result": 3}


def test_a_verifier_of_somebody_else_is_asked_every_time(serving: Callable[..., str]) -> None:
    asked: list[str] = []

    class Counting:
        async def verify_token(self, token: str) -> AccessToken | None:
            asked.append(token)
            return AccessToken(token=token, client_id="guest", scopes=[]) if len(asked) < 3 else None

    origin = serving(http_app(toolbox(), auth=Counting()))
    assert [post(origin, bearer("t")).status_code for _ in range(3)] == [200, 200, 401]


def test_a_good_token_is_not_looked_at_again_but_forgotten_when_it_expires(
    serving: Callable[..., str], issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[str] = []
    original = JwtVerifier.verify_token

    async def counting(self: JwtVerifier, token: str) -> Any:
        verified.append(token)
        return await original(self, token)

    monkeypatch.setattr(JwtVerifier, "verify_token", counting)
    clock = [0.0]
    monkeypatch.setattr("bridge.server.auth.credentials.monotonic", lambda: clock[0])
    monkeypatch.setattr("bridge.server.auth.bearer.monotonic", lambda: clock[0])
    origin = serving(http_app(toolbox(), auth=JwtVerifier(issuer.url, AUDIENCE)))
    token = issuer.token()
    for _ in range(3):
        assert post(origin, bearer(token)).status_code == 200
    assert len(verified) == 1
    clock[0] += 61
    assert post(origin, bearer(token)).status_code == 200
    assert len(verified) == 2


def test_nothing_that_is_logged_holds_a_credential(
    origin: str, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = [ADA, "an-unknown-key", issuer.token(scope="others"), issuer.token(aud="x")]
    for token in tokens:
        post(origin, bearer(token))
    for token in tokens:
        assert token not in caplog.text


def test_a_flood_of_bad_credentials_is_one_line_of_the_log(origin: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for number in range(20):
        assert post(origin, bearer(f"guess-{number}")).status_code == 401
    refusals = [record for record in caplog.records if record.getMessage().startswith("refused a request from")]
    assert 1 <= len(refusals) <= 3, "a few where the machine is so slow that ten seconds pass"
