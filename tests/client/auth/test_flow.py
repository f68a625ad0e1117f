from __future__ import annotations

import re
from typing import TYPE_CHECKING

import httpx2
import pytest
from pydantic import AnyHttpUrl

from bridge import OAuthLogin
from bridge.client import IdentityAssertion
from bridge.client.auth.challenge import Challenge
from bridge.client.auth.dpop import Nonces
from bridge.client.auth.errors import SignInError
from bridge.client.auth.flow import Renewal, authorize, refresh, request_grant
from bridge.client.auth.login import Login
from bridge.client.auth.loopback import RedirectListener
from bridge.client.auth.sign_in import SignIn
from bridge.client.auth.store import log_out
from tests.client.auth.conftest import browse, log_in, stored_login

if TYPE_CHECKING:
    from tests.client.auth.authority import Authority
    from tests.client.auth.resource import Resource

pytestmark = pytest.mark.anyio
OIDC_METADATA = {
    "jwks_uri": "https://keys.example/keys",
    "subject_types_supported": ["public"],
    "id_token_signing_alg_values_supported": ["ES256"],
}


def renewal(url: str, http: httpx2.AsyncClient) -> Renewal:
    return Renewal(url=url, request=httpx2.Request("POST", url), http=http, nonces=Nonces())


# --- PKCE ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["oauth-authorization-server", "openid-configuration"])
@pytest.mark.parametrize("methods", [None, [], ["plain"]])
async def test_an_authorization_server_that_does_not_declare_pkce_is_refused_before_anything_is_sent(
    authority: Authority, resource: Resource, kind: str, methods: list[str] | None
) -> None:
    authority.metadata_path = f"/.well-known/{kind}"
    authority.says = {**OIDC_METADATA, "code_challenge_methods_supported": methods}
    with pytest.raises(SignInError, match=rf"'{re.escape(authority.origin)}/?' does not declare support for PKCE"):
        await log_in(resource.url)
    assert (authority.registered, authority.scopes, authority.grants) == ({}, [], [])


async def test_an_authorization_server_that_does_not_declare_pkce_any_more_is_refused_a_known_client(
    authority: Authority, resource: Resource
) -> None:
    await log_in(resource.url)
    authority.says = {"code_challenge_methods_supported": None}
    with pytest.raises(SignInError, match="PKCE"):
        await log_in(resource.url)
    assert (len(authority.scopes), authority.grants) == (1, ["authorization_code"])


async def test_openid_metadata_that_declares_pkce_will_do(authority: Authority, resource: Resource) -> None:
    authority.metadata_path = "/.well-known/openid-configuration"
    authority.says = OIDC_METADATA
    await log_in(resource.url)
    assert authority.grants == ["authorization_code"]


# --- where a login leads ---------------------------------------------------------------------------------------------

SERVER = "https://mcp.example.com/mcp"
RESOURCE_METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
ISSUER = "https://login.example.com"
AUTHORITY_METADATA = f"{ISSUER}/.well-known/oauth-authorization-server"
NOTHING, ANYBODY = Challenge(), OAuthLogin()
KNOWN = OAuthLogin(client_id="by-hand", client_secret="secret-of-by-hand", issuer=ISSUER)


class Web:
    """Public hosts with given responses, and a record of their requests."""

    def __init__(self, answers: dict[str, httpx2.Response]) -> None:
        self.asked: list[str] = []
        self._answers = answers
        self.http = httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(str(request.url))
        return self._answers.get(str(request.url), httpx2.Response(404))

    async def log_in(self, challenge: Challenge = NOTHING, grant: OAuthLogin = ANYBODY) -> None:
        async with self.http as http:
            loopback = RedirectListener("http://127.0.0.1:9/callback", (), browse)
            await authorize(renewal(SERVER, http), Login(server_url=SERVER), grant, challenge, loopback)


def guarded_by(authority: str) -> httpx2.Response:
    return httpx2.Response(200, json={"resource": SERVER, "authorization_servers": [authority]})


@pytest.mark.parametrize("url", ["https://169.254.169.254/latest", "http://10.0.0.1/", "http://127.0.0.1:9200/"])
async def test_a_server_cannot_have_its_metadata_read_in_a_private_network(url: str) -> None:
    web = Web({})
    with pytest.raises(SignInError, match="its login uses"):
        await web.log_in(Challenge(metadata_url=url))
    assert web.asked == []


@pytest.mark.parametrize("authority", ["https://169.254.169.254", "http://10.0.0.1", "http://login.example.com"])
async def test_a_server_cannot_name_an_authorization_server_in_a_private_network_or_without_encryption(
    authority: str,
) -> None:
    web = Web({RESOURCE_METADATA: guarded_by(authority)})
    with pytest.raises(SignInError, match="its login uses"):
        await web.log_in()
    assert web.asked == [RESOURCE_METADATA]


async def test_a_redirect_of_metadata_is_not_followed_to_another_host() -> None:
    elsewhere = "https://elsewhere.example.com/metadata"
    redirect = httpx2.Response(302, headers={"location": elsewhere})
    web = Web({RESOURCE_METADATA: redirect, elsewhere: guarded_by("https://login.example.com")})
    with pytest.raises(SignInError, match="it names no authorization server"):
        await web.log_in()
    assert RESOURCE_METADATA in web.asked
    assert {httpx2.URL(url).host for url in web.asked} == {"mcp.example.com"}


@pytest.mark.parametrize("status", [404, 500])
@pytest.mark.parametrize("grant", [KNOWN, ANYBODY])
async def test_a_server_is_told_nothing_while_its_authorization_server_is_away(status: int, grant: OAuthLogin) -> None:
    web = Web({RESOURCE_METADATA: guarded_by(ISSUER), AUTHORITY_METADATA: httpx2.Response(status)})
    with pytest.raises(SignInError, match=rf"'{re.escape(ISSUER)}' provides no metadata") as caught:
        await web.log_in(grant=grant)
    assert not caught.value.is_permanent
    assert {httpx2.URL(url).path.split("/")[1] for url in web.asked} == {".well-known"}


@pytest.mark.parametrize("other", ["https://evil.example.com", None])
async def test_a_client_of_one_issuer_is_nobodys_at_another(other: str | None) -> None:
    says = {"issuer": other, "authorization_endpoint": f"{other}/authorize", "token_endpoint": f"{other}/token"}
    answers = {f"{other}/.well-known/oauth-authorization-server": httpx2.Response(200, json=says)}
    web = Web(answers | ({RESOURCE_METADATA: guarded_by(other)} if other is not None else {}))
    named = re.escape(other or "https://mcp.example.com")
    with pytest.raises(
        SignInError, match=rf"its login uses '{named}', not the configured issuer '{re.escape(ISSUER)}'"
    ):
        await web.log_in(grant=KNOWN)
    assert {httpx2.URL(url).path.split("/")[1] for url in web.asked} == {".well-known"}


async def test_the_issuer_that_is_named_is_logged_in_at_whichever_of_several_it_is(
    authority: Authority, resource: Resource
) -> None:
    resource.says = {"authorization_servers": ["https://login.example.com", authority.origin]}
    await SignIn(resource.url, OAuthLogin(issuer=authority.origin), show_page=browse).log_in()
    assert authority.grants == ["authorization_code"]


async def test_nothing_is_told_of_an_answer_of_another_issuer(authority: Authority, resource: Resource) -> None:
    async def answer(page: str) -> None:
        asked = httpx2.URL(page).params
        said = {"state": asked["state"], "error": "call 555", "iss": "https://evil.example"}
        async with httpx2.AsyncClient() as browser:
            await browser.get(asked["redirect_uri"], params=said)

    with pytest.raises(SignInError, match="not from the expected authorization server"):
        await SignIn(resource.url, OAuthLogin(), show_page=answer).log_in()
    assert authority.grants == []


async def test_an_authorization_endpoint_keeps_the_query_that_it_has(authority: Authority, resource: Resource) -> None:
    pages = []

    async def see(page: str) -> None:
        pages.append(httpx2.URL(page).params)
        await browse(page)

    authority.says = {"authorization_endpoint": f"{authority.origin}/authorize?policy=sign-in"}
    await SignIn(resource.url, OAuthLogin(), show_page=see).log_in()
    assert (pages[0]["policy"], pages[0]["response_type"]) == ("sign-in", "code")


@pytest.mark.parametrize("endpoint", ["registration_endpoint", "authorization_endpoint", "token_endpoint"])
async def test_an_authorization_server_that_leads_where_nothing_is_encrypted_is_told_nothing(
    authority: Authority, resource: Resource, endpoint: str
) -> None:
    authority.says = {endpoint: "http://login.example.com/here"}
    with pytest.raises(SignInError, match=r"'http://login\.example\.com/here', which is not encrypted"):
        await log_in(resource.url)
    assert (authority.registered, authority.scopes, authority.grants) == ({}, [], [])


async def test_a_known_client_is_not_taken_to_a_page_without_encryption(
    authority: Authority, resource: Resource
) -> None:
    await log_in(resource.url)
    authority.says = {"authorization_endpoint": "http://login.example.com/here"}
    with pytest.raises(SignInError, match="not encrypted"):
        await log_in(resource.url)


async def test_a_kept_login_is_not_renewed_where_nothing_is_encrypted(authority: Authority, resource: Resource) -> None:
    await log_in(resource.url)
    login = await stored_login(resource.url)
    assert login.metadata is not None
    metadata = login.metadata.model_copy(update={"token_endpoint": AnyHttpUrl("http://login.example.com/token")})
    kept = login.model_copy(update={"metadata": metadata})
    web = Web({})
    async with web.http as http:
        with pytest.raises(SignInError, match="not encrypted"):
            await refresh(renewal(resource.url, http), kept, OAuthLogin())
    assert web.asked == []


async def test_an_assertion_is_not_shown_where_nothing_is_encrypted(authority: Authority, resource: Resource) -> None:
    async def assertion(issuer: str, resource: str) -> str:
        raise AssertionError((issuer, resource))

    authority.says = {"token_endpoint": "http://login.example.com/token"}
    grant = IdentityAssertion(client_id="workload", issuer=authority.origin, assertion=assertion)
    async with httpx2.AsyncClient() as http:
        with pytest.raises(SignInError, match="not encrypted"):
            await request_grant(renewal(resource.url, http), Login(server_url=resource.url), grant, Challenge())


async def test_tokens_are_not_revoked_where_nothing_is_encrypted_and_are_forgotten(
    authority: Authority, resource: Resource, caplog: pytest.LogCaptureFixture
) -> None:
    authority.says = {"revocation_endpoint": "http://login.example.com/revoke"}
    await log_in(resource.url)
    assert await log_out(resource.url, OAuthLogin())
    assert "'http://login.example.com/revoke', which is not encrypted" in caplog.text


async def test_metadata_that_is_too_long_is_not_read_to_its_end(authority: Authority, resource: Resource) -> None:
    authority.says = {"service_documentation": "https://example.com/" + "x" * 2**21}
    with pytest.raises(SignInError, match="its answer is longer than 1 MiB"):
        await log_in(resource.url)
    assert authority.grants == []
