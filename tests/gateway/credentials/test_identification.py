"""Callers with tokens of an issuer sign in to the connect pages at that issuer, as the same subject."""

from __future__ import annotations

import base64
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from bridge.gateway.credentials.identification import SignInClient
from bridge.server.auth import ApiKey, ApiKeys, Auth, JwtVerifier
from tests.gateway.credentials import provider as providers
from tests.gateway.credentials.connected import ADA, Connected, Visitor, connected
from tests.gateway.credentials.provider import CLIENT_ID, IdentityProvider
from tests.gateway.credentials.test_connect_pages import give, link, sent

if TYPE_CHECKING:
    from collections.abc import Iterator

RESOURCE = "https://gateway.example.com/mcp"
CLIENT = SignInClient(client_id=CLIENT_ID, scopes=("profile",))


@contextmanager
def gateway_of(provider: IdentityProvider, **options: Any) -> Iterator[Connected]:
    """Serve a gateway to callers with tokens of the provider; its pages are reached on this machine."""
    verifiers = [JwtVerifier(provider.origin, RESOURCE), *options.pop("verifiers", ())]
    auth = Auth(*verifiers, resource_url=RESOURCE, required_scopes=options.pop("required_scopes", ()))
    chosen: dict[str, Any] = {"sign_in_client": CLIENT, "public_url": "http://127.0.0.1"} | options
    with connected(auth=auth, **chosen) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def shared_provider() -> Iterator[IdentityProvider]:
    with providers.running() as provider:
        yield provider


@pytest.fixture
def provider(shared_provider: IdentityProvider) -> Iterator[IdentityProvider]:
    yield shared_provider
    shared_provider.person = "ada"
    for record in (shared_provider.says, shared_provider.responds):
        record.clear()
    for requests in (shared_provider.asked, shared_provider.spent):
        requests.clear()


@pytest.fixture(scope="module")
def shared_gateway(shared_provider: IdentityProvider) -> Iterator[Connected]:
    with gateway_of(shared_provider) as gateway:
        yield gateway


def at_sign_in(gateway: Connected, provider: IdentityProvider, caller: str = "ada", server: str = "notes") -> Visitor:
    """Return a browser that has opened a link of a caller."""
    browser = gateway.visitor()
    url = link(gateway, server, provider.token(caller, RESOURCE))
    browser.open(httpx.URL(url).path)
    return browser


def log_in(browser: Visitor) -> httpx.Response:
    """Log in at the issuer, which sends the browser back; returns the page of the gateway."""
    browser.send("/sign-in/0")
    answer = httpx.get(browser.leads_to)
    back = httpx.URL(answer.headers["location"])
    assert back.path == "/connect/signed-in"
    return browser.open(back.raw_path.decode())


def test_a_caller_logs_in_at_its_issuer_and_connects(gateway: Connected, provider: IdentityProvider) -> None:
    browser = at_sign_in(gateway, provider)
    assert f"Log in at {provider.origin}" in browser.page.text
    assert "The key with which" not in browser.page.text
    page = log_in(browser)
    assert "Signed in as ada" in page.text
    assert "is connected" in give(browser).text
    assert sent(gateway, key=provider.token("ada", RESOURCE)) == "ada has sesame"
    assert sent(gateway, key=provider.token("bob", RESOURCE)) == "asked"


def test_the_issuer_is_asked_for_a_token_of_this_gateway_with_pkce(
    gateway: Connected, provider: IdentityProvider
) -> None:
    log_in(at_sign_in(gateway, provider))
    (asked,), (spent,) = provider.asked, provider.spent
    assert asked["client_id"] == CLIENT_ID
    assert asked["resource"] == spent["resource"] == RESOURCE
    assert asked["scope"] == "profile"
    assert asked["code_challenge_method"] == "S256"
    assert spent["code_verifier"] not in asked.values()


def test_another_subject_of_the_issuer_may_not_use_the_link(gateway: Connected, provider: IdentityProvider) -> None:
    browser = at_sign_in(gateway, provider)
    provider.person = "bob"
    refused = log_in(browser)
    assert refused.status_code == 403
    assert "made for another caller" in refused.text


def test_a_caller_of_a_key_with_the_name_of_the_subject_may_not_use_the_link(provider: IdentityProvider) -> None:
    """The issuer is compared as well as the subject; a token whose bearer has a key's name is refused anyway."""
    keys = ApiKeys(ApiKey("ada-key", ADA))
    with gateway_of(provider, verifiers=[keys]) as gateway:
        browser = at_sign_in(gateway, provider)
        refused = browser.send("/sign-in", key=ADA)
        assert refused.status_code == 403
        assert "made for another caller" in refused.text


@pytest.mark.parametrize("issuer", ["https://evil.example.com", None, ""])
def test_a_response_of_another_issuer_is_refused(
    gateway: Connected, provider: IdentityProvider, issuer: str | None
) -> None:
    browser = at_sign_in(gateway, provider)
    provider.responds["iss"] = issuer
    assert log_in(browser).status_code == 400
    assert provider.spent == []
    assert "Sign in to the gateway" in browser.open("/connect").text


def test_a_login_that_another_browser_finishes_signs_nobody_in(gateway: Connected, provider: IdentityProvider) -> None:
    """Login CSRF: a victim who gets the attacker's code would give its keys to the attacker's identity."""
    attacker = at_sign_in(gateway, provider)
    attacker.send("/sign-in/0")
    back = httpx.URL(httpx.get(attacker.leads_to).headers["location"]).raw_path.decode()
    victim = gateway.visitor()
    victim.open("/connect")
    assert victim.open(back).status_code == 400
    assert "Sign in to the gateway" in victim.open("/connect").text
    assert provider.spent == []


def test_a_response_is_valid_once(gateway: Connected, provider: IdentityProvider) -> None:
    browser = at_sign_in(gateway, provider)
    browser.send("/sign-in/0")
    back = httpx.URL(httpx.get(browser.leads_to).headers["location"]).raw_path.decode()
    assert "Signed in as ada" in browser.open(back).text
    assert browser.open(back).status_code == 400


def test_a_refused_login_signs_nobody_in(gateway: Connected, provider: IdentityProvider) -> None:
    browser = at_sign_in(gateway, provider)
    provider.responds |= {"code": None, "error": "access_denied"}
    refused = log_in(browser)
    assert refused.status_code == 403
    assert "The login was refused" in refused.text


def test_a_code_that_the_issuer_does_not_know_signs_nobody_in(gateway: Connected, provider: IdentityProvider) -> None:
    browser = at_sign_in(gateway, provider)
    provider.responds["code"] = "forged"
    assert "did not issue a token" in log_in(browser).text
    assert "Sign in to the gateway" in browser.open("/connect").text


def test_a_caller_without_a_required_scope_may_not_connect(provider: IdentityProvider) -> None:
    with gateway_of(provider, required_scopes=["tools:use"]) as gateway:
        browser = gateway.visitor()
        browser.open("/connect")
        refused = log_in(browser)
    assert refused.status_code == 403
    assert "tools:use" in refused.text
    assert provider.asked[0]["scope"] == "profile tools:use"


def test_a_secret_of_the_client_is_sent_in_the_header(provider: IdentityProvider) -> None:
    client = SignInClient(client_id=CLIENT_ID, client_secret="s&cret:1")
    with gateway_of(provider, sign_in_client=client) as gateway:
        browser = gateway.visitor()
        browser.open("/connect")
        log_in(browser)
    (spent,), expected = provider.spent, base64.b64encode(b"gateway:s%26cret%3A1").decode()
    assert spent["authorization"] == f"Basic {expected}"
    assert "client_secret" not in spent


def test_a_gateway_that_is_no_client_of_the_issuer_says_how_to_become_one(provider: IdentityProvider) -> None:
    with gateway_of(provider, sign_in_client=None) as gateway:
        browser = gateway.visitor()
        browser.open("/connect")
        refused = browser.send("/sign-in/0")
    assert refused.status_code == 501
    assert "--connect-client-id" in refused.text


def test_a_gateway_without_a_client_uses_its_metadata_document(provider: IdentityProvider) -> None:
    provider.says["client_id_metadata_document_supported"] = True
    url = "https://gateway.example.com"
    with gateway_of(provider, sign_in_client=None, public_url=url) as gateway:
        browser = gateway.visitor()
        cookies = browser.open("/connect").headers["set-cookie"].partition(";")[0]
        (form,) = browser.forms()
        headers = {"origin": gateway.origin, "cookie": cookies}
        page = browser.client.post(form["action"], data=form["fields"], headers=headers)
    assert "client_id=https%3A%2F%2Fgateway.example.com%2Fconnect%2Fclient.json" in page.text


@pytest.mark.parametrize("endpoint", ["http://evil.example.com/authorize", "javascript:alert(1)", 7, None])
def test_an_unsafe_login_page_of_an_issuer_is_not_shown(provider: IdentityProvider, endpoint: object) -> None:
    provider.says["authorization_endpoint"] = endpoint
    with gateway_of(provider) as gateway:
        browser = gateway.visitor()
        browser.open("/connect")
        assert browser.send("/sign-in/0").status_code == 502


def test_an_issuer_that_is_down_is_an_error_page(provider: IdentityProvider) -> None:
    provider.says["issuer"] = "https://evil.example.com"
    with gateway_of(provider) as gateway:
        browser = gateway.visitor()
        browser.open("/connect")
        assert browser.send("/sign-in/0").status_code == 503


def test_logins_that_are_started_are_limited_by_address(provider: IdentityProvider) -> None:
    with gateway_of(provider) as gateway:
        browser = gateway.visitor()
        browser.open("/connect")
        (form,) = browser.forms()
        headers = {"origin": gateway.origin}
        started = (browser.client.post(form["action"], data=form["fields"], headers=headers) for _ in range(300))
        assert any(answer.status_code == 429 for answer in started)
