from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from mcp.server.auth.provider import AccessToken

from bridge.errors import DefinitionError
from bridge.server.auth import (
    ApiKey,
    ApiKeys,
    Auth,
    Introspection,
    IssuerUnavailableError,
    JwtVerifier,
    TokenRefusedError,
)
from bridge.server.auth.access import EVERYTHING
from tests.server.auth.issuer import AUDIENCE, CLIENT

if TYPE_CHECKING:
    from tests.server.auth.issuer import Issuer

pytestmark = pytest.mark.anyio

SECRET = "0123456789abcdef"


class Foreign:
    """A verifier of a program."""

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="guest", scopes=["read"]) if token == "guest" else None


async def test_whoever_knows_the_credential_says_whose_it_is(issuer: Issuer) -> None:
    auth = Auth(ApiKeys(ApiKey("ci", SECRET)), JwtVerifier(issuer.url, AUDIENCE), Foreign())
    names = []
    for token in (SECRET, issuer.token(), "guest"):
        found = await auth.verify_token(token)
        assert found is not None
        names.append(found.subject or found.client_id)
    assert names == ["ci", "ada", "guest"]
    assert await auth.verify_token("nobody") is None


async def test_the_first_reason_is_told_where_nobody_knows_a_credential(issuer: Issuer) -> None:
    auth = Auth(JwtVerifier(issuer.url, AUDIENCE), Foreign())
    with pytest.raises(TokenRefusedError, match="another audience"):
        await auth.verify_token(issuer.token(aud="else"))


async def test_an_issuer_that_is_not_there_keeps_nobody_else_out(issuer: Issuer) -> None:
    issuer.is_down = True
    introspection = Introspection(f"{issuer.url}/introspect", *CLIENT, audience=AUDIENCE)
    for verifier in (JwtVerifier(issuer.url, AUDIENCE), introspection):
        auth = Auth(verifier, ApiKeys(ApiKey("ci", SECRET)))
        assert await auth.verify_token(SECRET) is not None
        with pytest.raises(IssuerUnavailableError):
            await auth.verify_token(issuer.token())


async def test_no_issuer_makes_a_caller_of_a_keys_name(issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    auth = Auth(ApiKeys(ApiKey("ada", SECRET)), JwtVerifier(issuer.url, AUDIENCE))
    with pytest.raises(TokenRefusedError, match="has the name of another caller"):
        await auth.verify_token(issuer.token())
    assert "its bearer 'ada' has the name of a key" in caplog.text
    assert await auth.verify_token(issuer.token(sub="bob")) is not None


async def test_a_key_without_scopes_has_all_that_the_server_knows() -> None:
    keys = ApiKeys(ApiKey("all", SECRET), ApiKey("some", SECRET + "1", scopes=frozenset({"read"})))
    auth = Auth(keys, required_scopes=["read"], tool_scopes={"delete": ["write"]})
    found = [await auth.verify_token(token) for token in (SECRET, SECRET + "1")]
    assert [token and token.scopes for token in found] == [["read", "write"], ["read"]]


async def test_access_is_told_apart_by_what_matters_alone() -> None:
    keys = ApiKeys(ApiKey("all", SECRET), ApiKey("some", SECRET + "1", tools=("add",)))
    auth = Auth(keys, Foreign())
    everything, some, guest = [await auth.verify_token(token) for token in (SECRET, SECRET + "1", "guest")]
    assert everything is not None
    assert some is not None
    assert guest is not None
    assert auth.access_of(everything) is EVERYTHING
    assert auth.access_of(guest) is EVERYTHING
    assert auth.access_of(some).tools == ("add",)
    scoped = Auth(Foreign(), tool_scopes={"delete": ["write"]})
    assert scoped.access_of(guest).scopes == frozenset()


def test_nobody_could_come_in_without_a_verifier() -> None:
    with pytest.raises(DefinitionError, match="Auth needs at least one verifier"):
        Auth()


def test_nothing_that_is_shown_holds_a_key() -> None:
    assert repr(Auth(ApiKeys(ApiKey("ci", SECRET)))) == "Auth(ApiKeys(ci))"
