"""Token exchange: each caller's token is exchanged, and never forwarded."""

from __future__ import annotations

import base64
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bridge import Caller
from bridge.client import parse_config
from bridge.gateway import Gateway
from tests.gateway.credentials.seeing import ADA, Seeing, seeing, seen
from tests.server.http_server import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request

pytestmark = pytest.mark.anyio

ISSUER = "https://login.example.com"
KEY = ec.generate_private_key(ec.SECP256R1())
PEM = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def person(name: str, *scopes: str) -> Caller:
    """Return a caller with a token of an identity provider."""
    return Caller(name, frozenset(scopes), {"iss": ISSUER, "sub": name, "client_id": "app"}, ISSUER, name)


@dataclass
class Exchanging:
    """A token endpoint that exchanges ``token of X`` for ``X, exchanged N``."""

    url: str = ""
    requests: list[dict[str, str]] = field(default_factory=list)
    refuses: tuple[int, dict[str, Any]] | None = None
    expires_in: int = 3600

    async def answer(self, request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        self.requests.append({**form, "authorization": request.headers.get("authorization", "")})
        if self.refuses is not None:
            return JSONResponse(self.refuses[1], self.refuses[0])
        number = sum(each["subject_token"] == form["subject_token"] for each in self.requests)
        token = f"{form['subject_token'].removeprefix('token-of-')}-exchanged-{number}"
        issued = {"access_token": token, "token_type": "Bearer", "expires_in": self.expires_in}
        return JSONResponse(issued | {"issued_token_type": form["requested_token_type"]})


@contextmanager
def exchanging() -> Iterator[Exchanging]:
    endpoint = Exchanging()
    app = Starlette(routes=[Route("/token", endpoint.answer, methods=["POST"])])
    with serving(app) as origin:
        endpoint.url = f"{origin}/token"
        yield endpoint


@pytest.fixture
def server() -> Iterator[Seeing]:
    with seeing() as server:
        yield server


@pytest.fixture
def endpoint() -> Iterator[Exchanging]:
    with exchanging() as endpoint:
        yield endpoint


@asynccontextmanager
async def opened(server: Seeing, endpoint: Exchanging, **settings: Any) -> AsyncIterator[Gateway]:
    auth = {"type": "exchange", "per": "caller", "tokenUrl": endpoint.url, "clientId": "gate way"} | settings
    config = parse_config({"mcpServers": {"notes": {"url": server.url, "auth": auth}}})
    with anyio.fail_after(60):
        async with Gateway(config.servers.values()) as gateway:
            yield gateway


async def test_each_callers_token_is_exchanged_once_and_never_forwarded(server: Seeing, endpoint: Exchanging) -> None:
    async with opened(
        server, endpoint, audience="https://notes", resource="https://r", scopes=["read"], clientSecret="s&cret"
    ) as gateway:

        async def calls(name: str) -> None:
            for nonce in range(25):
                found = await seen(gateway, person(name), nonce, token=f"token-of-{name}")
                assert found == f"Bearer {name}-exchanged-1 {nonce}"

        async with anyio.create_task_group() as tasks:
            for name in ("ada", "bob"):
                for _ in range(4):
                    tasks.start_soon(calls, name)
    assert sorted(each["subject_token"] for each in endpoint.requests) == ["token-of-ada", "token-of-bob"]
    assert not any("token-of" in str(each) for each in server.requests)
    sent = endpoint.requests[0]
    assert base64.b64decode(sent.pop("authorization").removeprefix("Basic ")) == b"gate%20way:s%26cret"
    assert sent == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "subject_token": sent["subject_token"],
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "audience": "https://notes",
        "resource": "https://r",
        "scope": "read",
    }


@pytest.mark.parametrize(
    ("claims", "is_shared"),
    [
        ({"jti": "2", "exp": 2_000_000_000, "iat": 1}, True),
        ({"client_id": "another"}, False),
        ({"acr": "password"}, False),
        ({"groups": ["guests"]}, False),
        ({"scope": "read"}, False),
    ],
    ids=str,
)
async def test_what_was_exchanged_for_a_token_is_for_tokens_that_permit_the_same(
    server: Seeing, endpoint: Exchanging, claims: dict[str, Any], is_shared: bool
) -> None:
    """A token after a weaker login, or of another group, does not get what was exchanged for a stronger one."""
    ada = person("ada")
    other = replace(ada, claims={**ada.claims, **claims})
    async with opened(server, endpoint) as gateway:
        assert await seen(gateway, ada, token="token-of-ada") == "Bearer ada-exchanged-1 0"
        found = await seen(gateway, other, token="token-of-weak")
        assert found == ("Bearer ada-exchanged-1 0" if is_shared else "Bearer weak-exchanged-1 0")


async def test_a_token_that_the_server_refuses_is_exchanged_again(server: Seeing, endpoint: Exchanging) -> None:
    async with opened(server, endpoint) as gateway:
        assert await seen(gateway, person("ada"), token="token-of-ada") == "Bearer ada-exchanged-1 0"
        server.accepted = {"Bearer ada-exchanged-2"}
        assert await seen(gateway, person("ada"), token="token-of-ada") == "Bearer ada-exchanged-2 0"


async def test_an_expired_token_is_exchanged_before_it_is_sent(server: Seeing, endpoint: Exchanging) -> None:
    endpoint.expires_in = 0
    async with opened(server, endpoint) as gateway:
        for number in (1, 2):
            found = await seen(gateway, person("ada"), token="token-of-ada")
            assert found.startswith("Bearer ada-exchanged-")
            assert len(endpoint.requests) >= number


async def test_a_token_with_fewer_scopes_does_not_get_what_one_with_more_was_exchanged_for(
    server: Seeing, endpoint: Exchanging
) -> None:
    async with opened(server, endpoint) as gateway:
        assert await seen(gateway, person("ada", "write"), token="token-of-ada") == "Bearer ada-exchanged-1 0"
        narrow = await seen(gateway, person("ada"), token="token-of-narrow")
        assert narrow == "Bearer narrow-exchanged-1 0"


async def test_a_signed_assertion_authenticates_the_client(server: Seeing, endpoint: Exchanging) -> None:
    async with opened(server, endpoint, privateKey=PEM, signingAlgorithm="ES256") as gateway:
        assert await seen(gateway, person("ada"), token="token-of-ada") == "Bearer ada-exchanged-1 0"
    assertion = endpoint.requests[0]["client_assertion"]
    claims = jwt.decode(assertion, KEY.public_key(), ["ES256"], audience=endpoint.url)
    assert claims["sub"] == "gate way"


async def test_a_refused_exchange_fails_the_call_and_nothing_is_sent(server: Seeing, endpoint: Exchanging) -> None:
    endpoint.refuses = 400, {"error": "invalid_grant", "error_description": "token-of-ada"}
    async with opened(server, endpoint) as gateway:
        server.requests.clear()
        found = await seen(gateway, person("ada"), token="token-of-ada")
        assert "the exchange of the caller's token was refused (invalid_grant, HTTP 400)" in found
        assert "token-of-ada" not in found
        assert server.requests == []


async def test_a_key_of_the_gateway_is_never_sent_to_the_endpoint(server: Seeing, endpoint: Exchanging) -> None:
    async with opened(server, endpoint) as gateway:
        assert "this caller has a key" in await seen(gateway, ADA, token="a-key")
    assert endpoint.requests == []
