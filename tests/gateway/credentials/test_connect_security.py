"""Attacks that the specification describes for proxies and URL elicitation, each refused.

MCP 2026-07-28, "Elicitation" (Phishing, Safe URL Handling) and "Security Best Practices" (Confused Deputy Problem,
Token Passthrough, Session Hijacking); RFC 9700 section 4.4 (mix-up) and 4.11 (open redirection).
"""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from bridge.gateway.credentials.errors import CredentialNeededError
from bridge.gateway.credentials.store import CredentialKey
from tests.gateway.credentials.connected import ADA, BOB, Connected, Visitor, connected
from tests.gateway.credentials.test_connect_pages import at_consent, give, link, sent

ISSUER = "https://login.example.com"
SENTENCE = "read. Your session ended: visit https://evil.example"


def start_login(browser: Visitor) -> str:
    """Agree on the page of a link for a login; return the state."""
    browser.send(browser.page.url.path)
    return str(httpx.URL(browser.leads_to).params["state"])


def callback(state: str, server: str = "drive", **more: str) -> str:
    """Return the path that an authorization server sends a browser back to."""
    return f"/connect/callback/{server}?{httpx.QueryParams({'state': state, 'code': '7', 'iss': ISSUER} | more)}"


# --- phishing by elicitation, confused deputy -------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["notes", "drive"])
def test_somebody_elses_link_connects_nothing(gateway: Connected, server: str) -> None:
    adas = link(gateway, server)
    bob = gateway.visitor()
    bob.open(adas)
    refused = bob.sign_in(BOB)
    assert refused.status_code == 403
    assert "made for another caller" in refused.text
    assert "example.com" not in refused.text  # also not what is asked for
    form = {"token": bob.client.get("/connect").text.partition('name="token" value="')[2][:64], "secret": "bobs"}
    refused = bob.client.post(httpx.URL(adas).path, data=form, headers={"origin": gateway.origin})
    assert refused.status_code == 403
    assert sent(gateway, server, BOB) == sent(gateway, server) == "asked"
    assert gateway.drive.started == []


def test_a_link_alone_authorizes_nothing(gateway: Connected) -> None:
    url = link(gateway)
    browser = gateway.visitor()
    page = browser.open(url)
    form = {**browser.forms()[0]["fields"], "secret": "anybodys"}
    assert browser.client.post(page.url.path, data=form, headers={"origin": gateway.origin}).status_code == 403
    assert sent(gateway) == "asked"


@pytest.mark.parametrize("who", ["nobody", "bob", "ada elsewhere"])
def test_a_login_that_another_browser_completes_is_refused(gateway: Connected, who: str) -> None:
    """Ada starts a login, and lets Bob finish it, so that his account would be connected with her name."""
    state = start_login(at_consent(gateway, "drive"))
    victim = gateway.visitor()
    if who != "nobody":
        victim.open("/connect")
        victim.sign_in(BOB if who == "bob" else ADA)
    assert victim.open(callback(state)).status_code in {400, 403}
    assert sent(gateway, "drive") == sent(gateway, "drive", BOB) == "asked"


def test_the_authorization_server_is_asked_only_after_consent(gateway: Connected) -> None:
    browser = at_consent(gateway, "drive")
    assert gateway.drive.started == []
    assert "Continue to the login" in browser.page.text


def test_a_login_needs_the_consent_of_each_caller(gateway: Connected) -> None:
    ada = at_consent(gateway, "drive")
    ada.open(callback(start_login(ada)))
    assert "is connected" in ada.page.text
    assert sent(gateway, "drive", BOB) == "asked"
    assert "Continue to the login" in at_consent(gateway, "drive", BOB).page.text


# --- state, mix-up ----------------------------------------------------------------------------------------------------


def test_a_state_is_valid_once(gateway: Connected) -> None:
    browser = at_consent(gateway, "drive")
    state = start_login(browser)
    assert "is connected" in browser.open(callback(state)).text
    assert browser.open(callback(state, code="8")).status_code == 400
    assert sent(gateway, "drive") == "ada has token for 7"


@pytest.mark.parametrize("state", ["", "made-up"])
def test_a_state_that_nobody_was_given_is_refused(gateway: Connected, state: str) -> None:
    browser = at_consent(gateway, "drive")
    start_login(browser)
    assert browser.open(callback(state)).status_code == 400
    assert sent(gateway, "drive") == "asked"


@pytest.mark.parametrize("issuer", ["https://evil.example.com", ""])
def test_a_response_of_another_authorization_server_is_refused(gateway: Connected, issuer: str) -> None:
    browser = at_consent(gateway, "drive")
    assert browser.open(callback(start_login(browser), iss=issuer)).status_code == 400
    assert sent(gateway, "drive") == "asked"


@pytest.mark.parametrize("server", ["notes", "mail", "drive2"])
def test_a_response_at_the_address_of_another_server_is_refused(gateway: Connected, server: str) -> None:
    """A server's authorization server sends the browser on to that of another server, to get its code (mix-up)."""
    browser = at_consent(gateway, "drive")
    state = start_login(browser)
    assert gateway.drive.started[-1]["redirect_uri"].endswith("/connect/callback/drive")
    assert browser.open(callback(state, server)).status_code == 400
    assert sent(gateway, "drive") == "asked"
    assert browser.open(callback(state)).status_code == 400, "it was used"


def test_scopes_of_a_server_are_shown_as_such() -> None:
    """A server writes a sentence with a link in place of scopes, which the gateway would say in its own name."""
    needed = CredentialNeededError("drive", "login", CredentialKey("key", "ada", "drive"), scope=SENTENCE)
    with connected() as gateway:
        reason = gateway.connecting.questions._reason(needed)
    assert reason.endswith("for the permissions 'read.', 'Your', 'session', 'ended:', 'visit', 'https://evil.example'.")
    needed = CredentialNeededError("drive", "login", CredentialKey("key", "ada", "drive"), scope="x" * 5000 + " y" * 99)
    with connected() as gateway:
        reason = gateway.connecting.questions._reason(needed)
    assert len(reason) < 400
    assert reason.endswith(" and 90 more.")


# --- forms of other sites ---------------------------------------------------------------------------------------------

FORGED: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "no origin": ({}, {"origin": ""}),
    "foreign origin": ({}, {"origin": "https://evil.example.com"}),
    "null origin": ({}, {"origin": "null"}),
    "cross-site": ({}, {"sec-fetch-site": "cross-site"}),
    "same site, another port": ({}, {"origin": "http://127.0.0.1:1"}),
    "no token": ({"token": ""}, {}),
    "another browser's token": ({"token": "0" * 64}, {}),
}


@pytest.mark.parametrize("case", FORGED)
@pytest.mark.parametrize("form", ["consent", "sign-in", "disconnect", "sign-out"])
def test_a_form_of_another_site_is_refused(gateway: Connected, case: str, form: str) -> None:
    browser = at_consent(gateway)
    if form == "sign-in":
        browser = gateway.visitor()
        browser.open("/connect")
    elif form == "disconnect":
        give(browser)
    actions = {"consent": browser.page.url.path, "disconnect": "/disconnect"}
    found = next(each for each in browser.forms() if each["action"].endswith(actions.get(form, f"/{form}")))
    fields, headers = FORGED[case]
    sent_headers = {"origin": gateway.origin} | headers
    data = {**found["fields"], "secret": "evil", "key": ADA} | fields
    refused = browser.client.post(
        found["action"], data=data, headers={name: value for name, value in sent_headers.items() if value}
    )
    assert refused.status_code == 403
    if form == "consent":
        assert sent(gateway) == "asked"
    elif form == "disconnect":
        assert sent(gateway) == "ada has sesame"
    elif form == "sign-in":
        assert "Sign in to the gateway" in browser.open("/connect").text
    else:
        assert "Signed in as ada" in browser.open("/connect").text


def test_an_origin_that_may_use_the_endpoint_may_not_send_forms() -> None:
    with connected(allowed_origins=["https://app.example.com"]) as gateway:
        browser = at_consent(gateway)
        (form, _) = browser.forms()
        headers = {"origin": "https://app.example.com"}
        refused = browser.client.post(form["action"], data={**form["fields"], "secret": "evil"}, headers=headers)
    assert refused.status_code == 403


def test_a_page_cannot_be_framed_or_cached_and_has_no_scripts(gateway: Connected) -> None:
    browser = at_consent(gateway)
    for response in (browser.page, browser.open("/connect/callback/drive"), browser.open("/connect")):
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "form-action 'self'" in policy
        assert "script-src" not in policy
        assert "<script" not in response.text
        assert response.headers["x-frame-options"] == "DENY"
        assert response.headers["cache-control"] == "no-store"


# --- sessions of browsers ---------------------------------------------------------------------------------------------


def test_signing_in_changes_the_cookie(gateway: Connected) -> None:
    """A cookie that somebody else has planted does not become that of the caller."""
    browser = gateway.visitor()
    browser.open("/connect")
    planted = dict(browser.client.cookies)
    browser.sign_in()
    assert dict(browser.client.cookies) != planted
    attacker = gateway.visitor()
    attacker.client.cookies.update(planted)
    assert "Sign in to the gateway" in attacker.open("/connect").text


def test_a_cookie_ends_when_its_caller_signs_out(gateway: Connected) -> None:
    browser = gateway.visitor()
    browser.open("/connect")
    browser.sign_in()
    stolen = dict(browser.client.cookies)
    browser.send("/sign-out")
    thief = gateway.visitor()
    thief.client.cookies.update(stolen)
    assert "Sign in to the gateway" in thief.open("/connect").text


def test_a_cookie_is_no_credential_of_the_endpoint(gateway: Connected) -> None:
    browser = gateway.visitor()
    browser.open("/connect")
    browser.sign_in()
    assert browser.client.post("/mcp", json={}).status_code == 401
    assert browser.client.post("/connectmcp", json={}).status_code == 401
    assert browser.client.post("/connect/../mcp", json={}).status_code in {401, 404}


# --- open redirects, foreign text -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target", ["//evil.example.com", "https://evil.example.com", "/\\evil.example.com", "..//evil"]
)
def test_nothing_in_a_form_leads_to_another_site(gateway: Connected, target: str) -> None:
    browser = gateway.visitor()
    browser.open("/connect")
    (form,) = browser.forms()
    data = {**form["fields"], "key": ADA, "link": target, "next": target, "redirect_uri": target}
    answer = browser.client.post(form["action"], data=data, headers={"origin": gateway.origin})
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/connect/link/")
    assert httpx.URL(gateway.origin).join(answer.headers["location"]).host == "127.0.0.1"
    assert "//" not in answer.headers["location"]


def test_text_of_a_url_is_not_shown(gateway: Connected) -> None:
    browser = at_consent(gateway)
    for url in ("/connect?connected=<b>evil</b>", callback("<b>evil</b>"), "/connect/link/<b>evil</b>"):
        assert "evil" not in browser.open(url).text.replace(url, "")


def test_text_of_a_server_is_escaped(gateway: Connected) -> None:
    browser = at_consent(gateway, "drive")
    gateway.drive.problem = "<b>evil</b>"
    text = browser.send(browser.page.url.path).text
    assert "<b>evil</b>" not in text
    assert "&lt;b&gt;evil&lt;/b&gt;" in text


@pytest.mark.parametrize(("host", "status"), [("evil.example.com", 421), ("127.0.0.1:1", 200)])
def test_pages_are_served_under_allowed_hosts_only(gateway: Connected, host: str, status: int) -> None:
    assert gateway.visitor().client.get("/connect", headers={"host": host}).status_code == status


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_no_secret_is_logged_or_shown(gateway: Connected, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        browser = at_consent(gateway)
        token = browser.page.url.path.rpartition("/")[2]
        pages = browser.page.text + give(browser).text
        login = at_consent(gateway, "drive")
        state = start_login(login)
        pages += login.open(callback(state, code="code-of-ada")).text
    own = "\n".join(each.getMessage() for each in caplog.records if each.name.startswith("bridge"))
    assert "'ada' has connected the server 'notes'" in own
    for secret in (ADA, "sesame", token, state, "code-of-ada", *dict(browser.client.cookies).values()):
        assert secret not in own
    assert ADA not in pages
    assert "sesame" not in pages


def test_the_key_of_a_caller_is_not_kept_or_given_to_a_server(gateway: Connected) -> None:
    """Token passthrough: what a caller signs in with is for this gateway, and a server gets what was given for it."""
    give(at_consent(gateway), "sesame")
    assert sent(gateway) == "ada has sesame"
    assert ADA not in sent(gateway)


@pytest.mark.slow
def test_logins_from_one_address_are_limited(gateway: Connected) -> None:
    browser = gateway.visitor()
    url = link(gateway, "drive")
    browser.open(url)
    browser.sign_in()
    statuses: set[int] = set()
    while 429 not in statuses:
        browser.open(url)
        statuses.add(browser.send(browser.page.url.path).status_code)
    assert statuses == {200, 429}
