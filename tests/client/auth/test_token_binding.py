from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import httpx2
import pytest

from bridge import OAuthLogin
from bridge.client import IdentityAssertion
from bridge.client.auth.dpop import Nonces, ProofKey
from bridge.client.auth.errors import SignInError
from bridge.client.auth.login import Login
from bridge.client.auth.sign_in import SignIn
from bridge.client.auth.store import LoginStore, log_out, login_key
from bridge.client.auth.token_binding import TokenBinding
from bridge.errors import ServerAuthError
from tests.client.auth.conftest import DEADLINE_SECONDS, age, browse, log_in, program_with_key, stored_login, sum_by

if TYPE_CHECKING:
    from bridge.client.auth.grants import Grant
    from tests.client.auth.authority import Authority
    from tests.client.auth.proofs import Judge
    from tests.client.auth.resource import Resource

pytestmark = pytest.mark.anyio


async def bound_key(authority: Authority, resource: Resource) -> ProofKey | None:
    """Return the stored key, after a check that the token is bound to it."""
    login = await stored_login(resource.url)
    claims = authority.claims(login.access_token or "", resource.url) or {}
    thumbprint = login.proof_key.thumbprint if login.proof_key is not None else None
    assert claims.get("cnf") == (None if thumbprint is None else {"jkt": thumbprint})
    return login.proof_key


# --- when ------------------------------------------------------------------------------------------------------------


async def test_tokens_are_bound_where_the_authority_offers_it_and_the_server_takes_them(
    authority: Authority, resource: Resource, judge: Judge
) -> None:
    await log_in(resource.url)
    assert await bound_key(authority, resource) is not None
    assert LoginStore().path(login_key(resource.url)).stat().st_mode & 0o777 == 0o600


async def test_a_server_that_says_nothing_of_proofs_gets_tokens_that_are_not_bound(
    authority: Authority, resource: Resource, authority_judge: Judge
) -> None:
    await log_in(resource.url)
    assert await bound_key(authority, resource) is None
    assert await sum_by(resource.url) == 3
    assert (authority_judge.proofs, authority_judge.faults) == ([], [])


async def test_metadata_of_the_server_may_say_that_it_takes_them(
    authority: Authority, resource: Resource, authority_judge: Judge
) -> None:
    resource.says = {"dpop_signing_alg_values_supported": ["RS256", "ES256"]}
    await log_in(resource.url)
    assert await bound_key(authority, resource) is not None


async def test_a_server_that_takes_no_others_has_them_bound_by_an_authority_that_does_not_say_it_can(
    authority: Authority, resource: Resource, judge: Judge
) -> None:
    authority.says = {}
    resource.says = {"dpop_bound_access_tokens_required": True}
    await log_in(resource.url)
    assert await bound_key(authority, resource) is not None


@pytest.mark.parametrize("listed", [[], ["RS256", "PS256"]])
async def test_proofs_that_we_cannot_sign_are_not_made(
    authority: Authority, resource: Resource, judge: Judge, listed: list[str]
) -> None:
    authority.says = {"dpop_signing_alg_values_supported": listed}
    await log_in(resource.url)
    assert await bound_key(authority, resource) is None
    resource.says = {"dpop_bound_access_tokens_required": True}
    with pytest.raises(SignInError, match=r"(?s)to a key \(DPoP\).*only 'ES256' is supported"):
        await log_in(resource.url)
    assert len(authority.scopes) == 1, "nobody is asked for what cannot be had"


async def test_an_authority_that_offers_it_and_does_not_do_it_is_as_good_as_any(
    authority: Authority, resource: Resource, authority_judge: Judge
) -> None:
    resource.says = {"dpop_signing_alg_values_supported": ["ES256"]}
    authority.judge = None
    await log_in(resource.url)
    assert await bound_key(authority, resource) is None
    assert await sum_by(resource.url) == 3


async def test_a_token_that_is_not_bound_is_not_taken_for_a_server_that_takes_no_such(
    authority: Authority, resource: Resource
) -> None:
    resource.says = {"dpop_bound_access_tokens_required": True}
    with pytest.raises(SignInError, match="issued a token that is not bound to a key"):
        await log_in(resource.url)
    assert await LoginStore().load(login_key(resource.url)) is None


# --- who needs no person ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["program", "workload"])
async def test_tokens_of_programs_are_bound_too(
    authority: Authority, resource: Resource, judge: Judge, kind: str
) -> None:
    async def assertion(issuer: str, resource: str) -> str:
        return f"assertion for {issuer} and {resource}"

    grants: dict[str, Grant] = {
        "program": program_with_key(authority),
        "workload": IdentityAssertion(client_id="workload", issuer=authority.origin, assertion=assertion),
    }
    assert authority.judge is not None
    authority.judge.nonce = "wanted"
    assert await sum_by(resource.url, grants[kind]) == 3
    assert (authority.judge.faults, judge.faults, len(authority.judge.proofs)) == (["nonce"], [], 1)
    assert {sent["authorization"].split()[0] for sent in resource.requests} == {"DPoP"}


async def test_an_assertion_that_went_without_the_nonce_is_made_anew(
    authority: Authority, resource: Resource, judge: Judge, authority_judge: Judge
) -> None:
    """Each is valid for one use."""
    authority_judge.nonce = "wanted"
    async with httpx2.AsyncClient(auth=SignIn(resource.url, program_with_key(authority))) as http:
        assert (await http.post(resource.url)).status_code != 401
    assert (authority_judge.faults, authority.grants) == (["nonce"], ["client_credentials"])


# --- renewing --------------------------------------------------------------------------------------------------------


async def test_a_refreshed_token_is_bound_to_the_same_key(
    authority: Authority, resource: Resource, judge: Judge
) -> None:
    await log_in(resource.url)
    key = await bound_key(authority, resource)
    for _ in range(2):
        await age(resource.url)
        assert await sum_by(resource.url) == 3
    assert await bound_key(authority, resource) == key
    assert authority.grants == ["authorization_code", "refresh_token", "refresh_token"]


async def test_who_logs_in_again_keeps_the_key(authority: Authority, resource: Resource, judge: Judge) -> None:
    await log_in(resource.url)
    key = await bound_key(authority, resource)
    await log_in(resource.url)
    assert await bound_key(authority, resource) == key


async def test_a_refresh_that_would_give_an_unbound_token_is_refused(
    authority: Authority, resource: Resource, judge: Judge, caplog: pytest.LogCaptureFixture
) -> None:
    await log_in(resource.url)
    await age(resource.url)
    authority.judge = None
    with pytest.raises(ServerAuthError, match="has expired, or was revoked"):
        await sum_by(resource.url)
    assert "has ended: its authorization server issued a token that is not bound to a key" in caplog.text
    assert set(resource.tokens) == {""}, "neither token is used without a proof"
    login = await stored_login(resource.url)
    assert (login.tokens, login.proof_key is None) == (None, False)


async def test_a_login_that_was_bound_stays_so_until_it_is_forgotten(
    authority: Authority, resource: Resource, judge: Judge
) -> None:
    await log_in(resource.url)
    authority.judge, resource.judge, authority.says = None, None, {}
    with pytest.raises(SignInError, match="reset with: bridge logout"):
        await log_in(resource.url)
    assert await log_out(resource.url, OAuthLogin())
    await log_in(resource.url)
    assert await bound_key(authority, resource) is None
    assert await sum_by(resource.url) == 3


async def test_a_server_that_takes_no_bound_tokens_any_more_is_told_apart(
    authority: Authority, resource: Resource, judge: Judge
) -> None:
    await log_in(resource.url)
    resource.judge = None
    with pytest.raises(ServerAuthError, match=r"which its challenge does not mention.*run bridge logout first"):
        await sum_by(resource.url)


async def test_a_refused_proof_costs_no_login(authority: Authority, resource: Resource, judge: Judge) -> None:
    await log_in(resource.url)
    await age(resource.url)
    assert authority.judge is not None
    authority.judge.refuses = True
    with pytest.raises(ServerAuthError, match=r"its authorization server refuses the proof.*invalid_dpop_proof"):
        await sum_by(resource.url)
    authority.judge.refuses = False
    assert await sum_by(resource.url) == 3
    assert authority.grants == ["authorization_code", "refresh_token"]


# --- nonces ----------------------------------------------------------------------------------------------------------


async def test_an_authority_is_asked_again_with_the_nonce_that_it_wants(
    authority: Authority, resource: Resource, judge: Judge, authority_judge: Judge
) -> None:
    authority_judge.nonce, authority_judge.nonces = "first", ["second"]
    signing = SignIn(resource.url, OAuthLogin(), show_page=browse)
    with anyio.fail_after(DEADLINE_SECONDS):
        await signing.log_in()
        await signing.log_in()
    assert authority_judge.faults == ["nonce"]
    assert [proof["nonce"] for proof in authority_judge.proofs] == ["first", "second"]
    assert authority.grants == ["authorization_code", "authorization_code"]


async def test_an_authority_that_wants_one_nonce_after_another_is_given_up() -> None:
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.headers["DPoP"])
        return httpx2.Response(400, json={"error": "use_dpop_nonce"}, headers={"DPoP-Nonce": str(len(asked))})

    binding = TokenBinding(Login(server_url="https://mcp.example.com", proof_key=ProofKey.generated()), Nonces())
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        request = http.build_request("POST", "https://login.example.com/token", data={"grant_type": "refresh_token"})
        with pytest.raises(SignInError, match="its authorization server rejects the nonce"):
            await binding.send(request, http)
    assert len(asked) == 2


@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded; charset=utf-8", "Application/X-WWW-Form-Urlencoded"]
)
async def test_a_request_for_tokens_is_proved_however_its_content_type_is_written(kind: str) -> None:
    proved = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        proved.append("DPoP" in request.headers)
        return httpx2.Response(200, json={"access_token": "t", "token_type": "DPoP"})

    binding = TokenBinding(Login(server_url="https://mcp.example.com", proof_key=ProofKey.generated()), Nonces())
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        request = http.build_request(
            "POST",
            "https://login.example.com/token",
            content=b"grant_type=refresh_token",
            headers={"Content-Type": kind},
        )
        response = await binding.send(request, http)
    assert (proved, response.json()["token_type"]) == ([True], "Bearer")
