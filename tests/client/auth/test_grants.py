from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bridge import ClientCredentials, HttpTransport, OAuthLogin, ServerConfig
from bridge.client import Connection, FileAssertion, IdentityAssertion
from bridge.client.auth.assertions import exchange_assertion
from bridge.client.auth.errors import SignInError
from bridge.client.auth.sign_in import SignIn
from bridge.errors import ServerAuthError
from tests.client.auth.authority import CLIENT_SECRET
from tests.client.auth.conftest import DEADLINE_SECONDS, browse, log_in, program_with_key, sum_by

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.client.auth.grants import Grant
    from tests.client.auth.authority import Authority
    from tests.client.auth.resource import Resource

pytestmark = pytest.mark.anyio


async def nothing_said(issuer: str, url: str) -> str:
    raise AssertionError((issuer, url))


async def test_a_program_shows_its_secret_and_leaves_nothing_on_disk(
    authority: Authority, resource: Resource, state_folder: Path
) -> None:
    grant = ClientCredentials(client_id="program", client_secret=CLIENT_SECRET, issuer=authority.origin)
    assert await sum_by(resource.url, grant) == 3
    assert authority.grants == ["client_credentials"]
    assert not await anyio.Path(state_folder).exists()


async def test_a_program_signs_with_its_key(authority: Authority, resource: Resource) -> None:
    assert await sum_by(resource.url, program_with_key(authority)) == 3
    assert authority.grants == ["client_credentials"]


@pytest.mark.parametrize(
    ("key_bits", "algorithm", "message"),
    [
        (1024, "RS256", "1024 bits long, which is below the minimum"),
        (2048, "ES256", "does not fit 'ES256'"),
        (2048, "RS1", "does not fit 'RS1'"),
    ],
)
async def test_a_program_signs_with_no_key_that_is_too_short_or_of_another_kind(
    authority: Authority, resource: Resource, key_bits: int, algorithm: str, message: str
) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=key_bits)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    grant = ClientCredentials(
        client_id="program", private_key=pem, signing_algorithm=algorithm, issuer=authority.origin
    )
    with pytest.raises(ServerAuthError, match=message):
        await sum_by(resource.url, grant)
    assert authority.grants == []


async def test_a_program_gets_another_token_when_one_is_revoked(authority: Authority, resource: Resource) -> None:
    grant = ClientCredentials(client_id="program", client_secret=CLIENT_SECRET, issuer=authority.origin)
    config = ServerConfig(name="guarded", transport=HttpTransport(resource.url, auth=grant))
    with anyio.fail_after(DEADLINE_SECONDS):
        async with Connection(config) as connection:
            authority.revoked.add(resource.tokens[-1])
            await connection.call_tool("add", {"a": 1, "b": 2})
            assert connection.status().connects == 1
    assert authority.grants == ["client_credentials", "client_credentials"]


async def test_a_secret_is_shown_to_nobody_but_the_issuer_that_knows_it(
    authority: Authority, resource: Resource
) -> None:
    grant = ClientCredentials(client_id="program", client_secret=CLIENT_SECRET, issuer="https://login.example")
    with pytest.raises(ServerAuthError, match="issuer"):
        await sum_by(resource.url, grant)
    assert authority.grants == []


async def test_no_error_no_repr_and_no_log_shows_a_secret(
    authority: Authority, resource: Resource, caplog: pytest.LogCaptureFixture
) -> None:
    authority.refuses = f"invalid_client {CLIENT_SECRET}"
    grant = ClientCredentials(client_id="program", client_secret=CLIENT_SECRET, issuer=authority.origin)
    transport = HttpTransport(resource.url, auth=grant)
    with pytest.raises(ServerAuthError, match="the login failed") as caught, caplog.at_level(logging.INFO):
        await sum_by(resource.url, grant)
    shown = (
        str(caught.value),
        repr(transport),
        repr(SignIn(resource.url, grant)),
        transport.scrub(CLIENT_SECRET),
        caplog.text,
    )
    assert [text for text in shown if CLIENT_SECRET in text] == []


@pytest.mark.parametrize(
    "grant",
    [
        OAuthLogin(client_id="me", client_secret=CLIENT_SECRET),
        ClientCredentials(client_id="me", issuer="https://login.example", private_key=CLIENT_SECRET),
        IdentityAssertion(
            client_id="me", issuer="https://login.example", client_secret=CLIENT_SECRET, assertion=nothing_said
        ),
    ],
)
def test_no_grant_shows_what_is_secret_in_it(grant: Grant) -> None:
    assert CLIENT_SECRET not in repr(grant)
    assert "nothing_said" not in repr(grant)
    assert grant.secrets == (CLIENT_SECRET,)


# --- assertions ------------------------------------------------------------------------------------------------------


def an_employee(authority: Authority, id_token: str = "id token") -> IdentityAssertion:
    async def give() -> str:
        return id_token

    source = exchange_assertion(f"{authority.origin}/exchange", client_id="me", id_token=give, client_secret="mine")
    return IdentityAssertion(
        client_id="program",
        client_secret=CLIENT_SECRET,
        client_authentication="client_secret_post",
        issuer=authority.origin,
        assertion=source,
    )


async def test_an_identity_provider_vouches_for_an_employee(authority: Authority, resource: Resource) -> None:
    assert await sum_by(resource.url, an_employee(authority)) == 3
    assert authority.grants == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]


async def test_a_platform_vouches_for_a_workload(authority: Authority, resource: Resource) -> None:
    async def assertion(issuer: str, url: str) -> str:
        return f"assertion for {issuer} and {url}"

    grant = IdentityAssertion(client_id="workload", issuer=authority.origin, assertion=assertion)
    assert await sum_by(resource.url, grant) == 3


async def test_a_platforms_assertion_is_read_from_its_file_for_each_token(
    authority: Authority, resource: Resource, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    grant = IdentityAssertion(client_id="workload", issuer=authority.origin, assertion=FileAssertion(str(file)))
    assert grant == replace(grant, assertion=FileAssertion(str(file))), "connections of one grant share its tokens"
    with pytest.raises(ServerAuthError, match="cannot read the assertion in"):
        await sum_by(resource.url, grant)
    for text, problem in (("", "does not contain a token"), ("a\x00b", "does not contain"), ("ü", "not ASCII")):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ServerAuthError, match=problem):
            await sum_by(resource.url, grant)
    file.write_text(f"assertion for {authority.origin} and {resource.url}\n", encoding="utf-8")
    assert await sum_by(resource.url, grant) == 3


async def test_an_identity_provider_that_refuses_is_told(authority: Authority, resource: Resource) -> None:
    with pytest.raises(ServerAuthError, match=r"the identity provider refused to issue an assertion \(HTTP 400\)"):
        await sum_by(resource.url, an_employee(authority, "another token"))


async def test_what_is_no_assertion_is_shown_to_nobody(authority: Authority, resource: Resource) -> None:
    authority.issues_assertions = False
    with pytest.raises(ServerAuthError, match="instead of an identity assertion"):
        await sum_by(resource.url, an_employee(authority))
    assert authority.grants == []


async def test_an_authorization_server_that_does_not_exist_is_told(authority: Authority, resource: Resource) -> None:
    async def assertion(issuer: str, url: str) -> str:
        raise AssertionError("nobody is to be asked")

    grant = IdentityAssertion(client_id="workload", issuer=f"{authority.origin}/nothing", assertion=assertion)
    with pytest.raises(ServerAuthError, match="No authorization server metadata"):
        await sum_by(resource.url, grant)


# --- people ----------------------------------------------------------------------------------------------------------


async def test_a_client_that_was_registered_by_hand_is_used_and_shows_its_secret_as_it_is_taken(
    authority: Authority, resource: Resource
) -> None:
    authority.registered["by-hand"] = {"redirect_uris": ["http://127.0.0.1:0/callback"]}
    seen: list[str] = []

    async def look(url: str) -> None:
        asked = httpx2.URL(url).params
        authority.registered["by-hand"]["redirect_uris"] = [asked["redirect_uri"]]
        seen.append(asked["client_id"])
        await browse(url)

    grant = OAuthLogin(client_id="by-hand", client_secret="secret-of-by-hand", issuer=authority.origin)
    await SignIn(resource.url, grant, show_page=look).log_in()
    assert await sum_by(resource.url, grant) == 3
    assert (seen, list(authority.registered)) == (["by-hand"], ["by-hand"])


async def test_a_person_who_says_no_is_not_logged_in(authority: Authority, resource: Resource) -> None:
    authority.denies = True
    with pytest.raises(SignInError, match=r"the login was refused \(access_denied: the person said no\)"):
        await SignIn(resource.url, OAuthLogin(), show_page=browse).log_in()
    assert authority.grants == []


async def test_connections_that_sign_in_alike_share_what_they_sign_with(state_folder: Path) -> None:
    one = HttpTransport("https://h/mcp").sign_in()
    assert HttpTransport("https://h/mcp", headers={"x-user": "a"}).sign_in() is one
    assert HttpTransport("https://h/other").sign_in() is not one
    assert HttpTransport("https://h/mcp", auth=OAuthLogin(client_id="me")).sign_in() is not one
    assert HttpTransport("https://h/mcp", headers={"Authorization": "Bearer mine"}).sign_in() is None


async def test_a_lifetime_that_is_no_time_fails_the_login(authority: Authority, resource: Resource) -> None:
    authority.expires_in = 10**400
    with pytest.raises(SignInError, match="the login failed: int too large"):
        await log_in(resource.url)
