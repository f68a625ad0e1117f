"""A person connects servers in Chromium, and pages of other sites cannot do it in the person's name."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from bridge.server.auth import Auth, JwtVerifier
from tests.gateway.credentials import provider as providers
from tests.gateway.credentials.connected import ADA, BOB, Connected, connected
from tests.gateway.credentials.test_connect_pages import link, sent
from tests.gateway.credentials.test_identification import CLIENT, RESOURCE
from tests.server import http_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page
    from starlette.requests import Request

    from tests.gateway.credentials.provider import IdentityProvider


@pytest.fixture(scope="module")
def shared_provider() -> Iterator[IdentityProvider]:
    """An authorization server on another site: for browsers, localhost is another one than 127.0.0.1."""
    with providers.running() as provider:
        provider.origin = provider.origin.replace("127.0.0.1", "localhost")
        yield provider


@pytest.fixture
def provider(shared_provider: IdentityProvider) -> IdentityProvider:
    shared_provider.person = "ada"
    return shared_provider


def sign_in(page: Page, key: str) -> None:
    """Give a key on the page that asks for it."""
    page.get_by_label("The key with which your program calls this gateway").fill(key)
    page.get_by_role("button", name="Sign in").click()


@contextmanager
def other_site(html: str) -> Iterator[str]:
    """Serve a page on another site; yields its URL."""

    async def show(_: Request) -> HTMLResponse:
        return HTMLResponse(html)

    with http_server.serving(Starlette(routes=[Route("/", show)])) as origin:
        yield origin.replace("127.0.0.1", "localhost")


def test_a_person_gives_a_key_and_takes_it_back(page: Page, gateway: Connected, complaints: list[str]) -> None:
    page.goto(link(gateway))
    sign_in(page, ADA)
    assert page.get_by_role("heading", name="Connect notes").is_visible()
    page.get_by_label("Your key or token for notes").fill("sesame")
    page.get_by_role("button", name="Connect").click()
    page.get_by_text("notes is connected").wait_for()
    assert sent(gateway) == "ada has sesame"
    page.get_by_role("button", name="Disconnect notes").click()
    page.get_by_text("Nothing is connected").wait_for()
    assert sent(gateway) == "asked"
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in to the gateway").wait_for()
    assert complaints == []  # the policy allows the style, and there is nothing else to allow


def test_the_style_of_the_page_is_applied(page: Page, gateway: Connected) -> None:
    page.goto(f"{gateway.origin}/connect")
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).fontSize") == "22.4px"


def test_a_person_logs_in_at_the_authorization_server_of_another_site(
    page: Page, gateway: Connected, provider: IdentityProvider, complaints: list[str]
) -> None:
    gateway.drive.origin = provider.origin
    page.goto(link(gateway, "drive"))
    sign_in(page, ADA)
    page.get_by_text(provider.origin).wait_for()
    page.get_by_role("button", name="Continue to the login").click()
    page.get_by_text("drive is connected").wait_for()
    assert sent(gateway, "drive").startswith("ada has token for ")
    assert "code=" not in page.url
    assert complaints == []


def test_a_person_signs_in_at_the_issuer_of_another_site(
    page: Page, provider: IdentityProvider, complaints: list[str]
) -> None:
    auth = Auth(JwtVerifier(provider.origin, RESOURCE), resource_url=RESOURCE)
    with connected(auth=auth, sign_in_client=CLIENT) as gateway:
        gateway.connecting.address.url = gateway.origin  # known only now
        page.goto(link(gateway, key=provider.token("ada", RESOURCE)))
        page.get_by_role("button", name=f"Log in at {provider.origin}").click()
        page.get_by_role("heading", name="Connect notes").wait_for()
        page.get_by_text("Signed in as ada").wait_for()
    assert complaints == []


def test_somebody_elses_link_is_refused(page: Page, gateway: Connected) -> None:
    page.goto(link(gateway))
    sign_in(page, BOB)
    page.get_by_text("made for another caller").wait_for()
    assert page.get_by_role("button").count() == 0


@pytest.mark.parametrize("signed_in", [False, True])
def test_a_form_of_another_site_is_refused(page: Page, gateway: Connected, signed_in: bool) -> None:
    url = httpx.URL(link(gateway))
    page.goto(str(url))
    if signed_in:
        sign_in(page, ADA)
        page.get_by_role("heading", name="Connect notes").wait_for()
    action = str(url) if signed_in else f"{gateway.origin}/connect/sign-in"
    form = f"""<form method="post" action="{action}"><input name="secret" value="evil"><input name="key" value="{BOB}">
        </form><script>document.forms[0].submit()</script>"""
    with other_site(form) as evil, page.expect_response(action) as answered:
        page.goto(evil)
    assert answered.value.status == 403
    assert sent(gateway) == "asked"
    page.goto(f"{gateway.origin}/connect")
    expected = "Your connected servers" if signed_in else "Sign in to the gateway"
    assert page.get_by_role("heading", name=expected).is_visible()


def test_a_page_is_not_shown_in_a_frame(page: Page, gateway: Connected, complaints: list[str]) -> None:
    with other_site(f'<iframe src="{gateway.origin}/connect"></iframe>') as evil:
        page.goto(evil)
        frame = page.frames[1]
        assert frame.get_by_role("heading", name="Sign in to the gateway").count() == 0
    assert any("frame-ancestors" in each or "X-Frame-Options" in each for each in complaints)
