"""The pages on which callers of a gateway sign in, give credentials, see them and disconnect."""

from __future__ import annotations

from http.cookies import SimpleCookie
from typing import TYPE_CHECKING

import anyio
import httpx
import pytest

from bridge.gateway.credentials.store import CredentialKey
from bridge.server import Server
from bridge.server.auth import ApiKey, ApiKeys
from bridge.server.features import Features
from bridge.server.http.app import http_app
from bridge.tools.toolbox import ToolBox
from tests.gateway.credentials.connected import ADA, BOB, Connected, Visitor, connected
from tests.gateway.credentials.test_questions_for_credentials import again, asked_url, modern_call
from tests.server.tools import GREET

if TYPE_CHECKING:
    from pathlib import Path

KEYS = [b"a key that two replicas share, with enough bytes"]


def link(gateway: Connected, server: str = "notes", key: str = ADA) -> str:
    """Return the link of a caller for a server."""
    with gateway.program(key) as program:
        return asked_url(modern_call(program, f"{server}_show"))


def at_consent(gateway: Connected, server: str = "notes", key: str = ADA) -> Visitor:
    """Return a browser of the caller on the page that says what is asked for."""
    browser = gateway.visitor()
    browser.open(link(gateway, server, key))
    browser.sign_in(key)
    return browser


def sent(gateway: Connected, server: str = "notes", key: str = ADA) -> str:
    """Return the result of a call, or the word ``asked``."""
    with gateway.program(key) as program:
        result = modern_call(program, f"{server}_show")["result"]
    return "asked" if result["resultType"] == "input_required" else str(result["content"][0]["text"])


def give(browser: Visitor, secret: str = "sesame") -> httpx.Response:
    """Give a key on the page that asks for it."""
    action = next(form["action"] for form in browser.forms() if "/link/" in form["action"])
    return browser.send(action, secret=secret)


def test_the_first_page_asks_who_opens_it_and_tells_nothing(gateway: Connected) -> None:
    browser = gateway.visitor()
    page = browser.open(link(gateway))
    assert page.status_code == 200
    assert "The key with which your program calls this gateway" in page.text
    assert "notes" not in page.text.replace(browser.page.url.path, "")


def test_the_second_page_says_which_server_asks_for_what(gateway: Connected) -> None:
    text = at_consent(gateway).page.text
    for fact in ("notes (https://notes.example.com)", "ada", "X-Key", "sent to this server alone"):
        assert fact in text
    text = at_consent(gateway, "drive").page.text
    for fact in ("drive (https://drive.example.com)", "https://login.example.com", "read", "/connect/callback"):
        assert fact in text


def test_a_key_is_kept_for_its_caller_alone(gateway: Connected) -> None:
    page = give(at_consent(gateway))
    assert "notes is connected" in page.text
    assert sent(gateway) == "ada has sesame"
    assert sent(gateway, key=BOB) == "asked"


def test_an_unusable_key_can_be_given_again_by_the_same_link(gateway: Connected) -> None:
    browser = at_consent(gateway)
    refused = give(browser, "sésame")
    assert refused.status_code == 400
    assert "a key is visible ASCII" in refused.text
    assert "sésame" not in refused.text
    assert "is connected" in give(browser).text


def test_a_login_leads_to_the_authorization_server_and_back(gateway: Connected) -> None:
    browser = at_consent(gateway, "drive")
    browser.send("/link/" + browser.page.url.path.rpartition("/")[2])
    (started,) = gateway.drive.started
    assert browser.leads_to.startswith("https://login.example.com/authorize?")
    assert started["key"] == CredentialKey("key", "ada", "drive")
    assert started["redirect_uri"] == f"{gateway.origin}/connect/callback/drive"
    done = browser.open(f"/connect/callback/drive?state={started['state']}&code=7&iss=https://login.example.com")
    assert "drive is connected" in done.text
    assert sent(gateway, "drive") == "ada has token for 7"


def test_a_login_that_the_caller_refuses_connects_nothing(gateway: Connected) -> None:
    browser = at_consent(gateway, "drive")
    browser.send("/link/" + browser.page.url.path.rpartition("/")[2])
    state = gateway.drive.started[0]["state"]
    page = browser.open(f"/connect/callback/drive?state={state}&error=access_denied&iss=https://login.example.com")
    assert page.status_code == 400
    assert "access_denied" in page.text
    assert sent(gateway, "drive") == "asked"
    browser.send(next(form["action"] for form in browser.forms() if "/link/" in form["action"]))
    assert browser.leads_to  # the same link may be tried again


def test_a_request_that_is_repeated_during_the_login_gets_the_same_link(gateway: Connected) -> None:
    browser = at_consent(gateway, "drive")
    browser.send("/link/" + browser.page.url.path.rpartition("/")[2])
    assert httpx.URL(link(gateway, "drive")).path in str(browser.page.url)


def test_of_two_logins_by_one_link_the_first_to_end_connects(gateway: Connected) -> None:
    browser = at_consent(gateway, "drive")
    path = browser.page.url.path
    browser.send(path)
    browser.open(path)
    browser.send(path)
    first, second = (each["state"] for each in gateway.drive.started)
    end = "/connect/callback/drive?state={}&code={}&iss=https://login.example.com"
    assert "is connected" in browser.open(end.format(second, 2)).text
    assert browser.open(end.format(first, 1)).status_code == 404
    assert sent(gateway, "drive") == "ada has token for 2"


def test_an_authorization_server_that_is_down_leaves_the_link_usable(gateway: Connected) -> None:
    browser = at_consent(gateway, "drive")
    gateway.drive.problem = "its authorization server cannot be reached"
    refused = browser.send("/link/" + browser.page.url.path.rpartition("/")[2])
    assert refused.status_code == 400
    assert "cannot be reached" in refused.text
    gateway.drive.problem = None
    browser.send("/link/" + browser.page.url.path.rpartition("/")[2])
    assert browser.leads_to


def test_a_link_can_be_used_once(gateway: Connected) -> None:
    browser, other = at_consent(gateway), gateway.visitor()
    other.open(f"{browser.page.url}")
    other.sign_in()
    assert "is connected" in give(browser).text
    assert give(other, "second").status_code == 404
    assert sent(gateway) == "ada has sesame"
    assert browser.open(str(other.page.url)).status_code == 404


def test_opening_a_link_does_not_use_it(gateway: Connected) -> None:
    url = link(gateway)
    for _ in range(3):
        gateway.visitor().open(url)  # as a program that previews links does
    browser = gateway.visitor()
    browser.open(url)
    browser.sign_in()
    assert "is connected" in give(browser).text


def test_a_caller_sees_and_disconnects_what_it_has_connected(gateway: Connected) -> None:
    give(at_consent(gateway))
    browser = gateway.visitor()
    browser.open("/connect")
    page = browser.sign_in()
    assert "notes: a key or token, since 20" in page.text
    assert "sesame" not in page.text
    assert "Nothing is connected" in browser.send("/disconnect").text
    assert sent(gateway) == "asked"


def test_a_caller_cannot_disconnect_another(gateway: Connected) -> None:
    give(at_consent(gateway))
    bob = gateway.visitor()
    bob.open("/connect")
    assert "Nothing is connected" in bob.sign_in(BOB).text
    (form,) = bob.forms()
    answer = bob.client.post(
        "/connect/servers/notes/disconnect", data=form["fields"], headers={"origin": gateway.origin}
    )
    assert answer.status_code == 303
    assert sent(gateway) == "ada has sesame"


def test_a_caller_who_signs_out_has_to_sign_in_again(gateway: Connected) -> None:
    browser = gateway.visitor()
    browser.open("/connect")
    browser.sign_in()
    assert "Sign in to the gateway" in browser.send("/sign-out").text
    assert "Sign in to the gateway" in browser.open("/connect").text


def test_a_wrong_key_is_refused_and_guesses_are_limited(gateway: Connected) -> None:
    browser = gateway.visitor()
    browser.open("/connect")
    refused = browser.sign_in("a-key-that-nobody-has")
    assert refused.status_code == 401
    assert "This key is unknown" in refused.text
    form, headers = browser.forms()[0], {"origin": gateway.origin}
    guess = {**form["fields"], "key": "another-key-that-nobody-has"}
    answers = (browser.client.post(form["action"], data=guess, headers=headers) for _ in range(300))
    assert any(answer.status_code == 429 for answer in answers)
    assert browser.sign_in().status_code == 200  # the right key is never delayed


def test_a_link_survives_a_restart_and_is_valid_at_all_replicas(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    with connected(file=file, keys=KEYS) as first, connected(file=file, keys=KEYS) as second:
        with first.program() as program:
            asked = modern_call(program)
            browser = second.visitor()
            browser.open(f"{second.origin}{httpx.URL(asked_url(asked)).path}")
            browser.sign_in()
            assert "is connected" in give(browser).text
            done = modern_call(program, **again(asked))
        assert done["result"]["content"][0]["text"] == "ada has sesame"
        before = link(first, "drive")
    with connected(file=file, keys=KEYS) as later:
        browser = later.visitor()
        browser.open(f"{later.origin}{httpx.URL(before).path}")
        browser.sign_in()
        assert "Continue to the login" in browser.page.text


def test_a_cookie_is_for_this_gateway_and_no_script(gateway: Connected) -> None:
    cookie = SimpleCookie(gateway.visitor().open("/connect").headers["set-cookie"])
    ((name, morsel),) = cookie.items()
    assert name == f"bridge-connect-{httpx.URL(gateway.origin).port}"
    assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "lax", "/connect")


def test_a_cookie_of_a_gateway_on_https_is_bound_to_its_host() -> None:
    with connected(public_url="https://gateway.example.com") as gateway:
        cookie = SimpleCookie(gateway.visitor().open("/connect").headers["set-cookie"])
    morsel = cookie["__Host-bridge-connect"]
    assert (morsel["secure"], morsel["httponly"], morsel["path"], morsel["domain"]) == (True, True, "/", "")


def test_the_client_id_metadata_document_names_the_redirects() -> None:
    with connected(public_url="https://gateway.example.com") as gateway:
        browser = gateway.visitor()
        of_server = browser.open("/connect/client/drive.json").json()
        of_issuers = browser.open("/connect/client.json").json()
        assert [browser.open(f"/connect/client/{name}.json").status_code for name in ("notes", "none")] == [404, 404]
    url = "https://gateway.example.com/connect"
    assert of_server["client_id"] == f"{url}/client/drive.json"
    assert of_server["redirect_uris"] == [f"{url}/callback/drive"]
    assert of_issuers["client_id"] == f"{url}/client.json"
    assert of_issuers["redirect_uris"] == [f"{url}/signed-in"]


def test_a_form_that_a_proxy_passes_on_under_another_host_is_accepted() -> None:
    with connected(
        public_url="https://gateway.example.com", allowed_origins=["https://gateway.example.com"]
    ) as gateway:
        browser = gateway.visitor()
        cookie = browser.open("/connect").headers["set-cookie"].partition(";")[0]
        (form,) = browser.forms()
        headers = {"origin": "https://gateway.example.com", "cookie": cookie}
        answer = browser.client.post(form["action"], data={**form["fields"], "key": ADA}, headers=headers)
    assert answer.status_code == 303


def test_an_endpoint_below_the_pages_is_refused(gateway: Connected) -> None:
    server = Server(Features(tools=ToolBox(GREET), pages=gateway.connecting.pages), name="gateway")
    with pytest.raises(ValueError, match="one of the pages at /connect"):
        http_app(server, path="/connect/mcp", auth=ApiKeys(ApiKey("ada", ADA)))


def test_a_store_that_cannot_be_used_is_an_error_page() -> None:
    with connected() as gateway:
        browser = gateway.visitor()
        browser.open("/connect")
        browser.sign_in()
        anyio.run(gateway.store.close)
        assert browser.open("/connect").status_code == 503
