"""The page is for the user who has its address, in a browser on this machine, and for nobody else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from bridge.inspector.access import AccessTokens
from tests.inspector.conftest import inspecting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx

    from tests.inspector.conftest import OpenPage

pytestmark = pytest.mark.anyio

PATHS = ("/", "/events", "/requests/1", "/static/js/main.js", "/messages/1")


@pytest.fixture
async def page() -> AsyncIterator[OpenPage]:
    """The page of no servers, which a client has opened."""
    async with inspecting() as page:
        yield page


@pytest.fixture
def client(page: OpenPage) -> httpx.AsyncClient:
    """Return that client."""
    return page.client


@pytest.fixture
def tokens(page: OpenPage) -> AccessTokens:
    """The tokens of the page."""
    return page.tokens


async def test_the_token_opens_the_page_and_leaves_the_address(client: httpx.AsyncClient, tokens: AccessTokens) -> None:
    client.cookies.clear()
    token = tokens.unused()
    opened = await client.get("/", params={"token": token})
    assert (opened.status_code, opened.headers["location"]) == (303, f"{tokens.path}/")
    cookie = opened.headers["set-cookie"]
    assert cookie.startswith(f"bridge-inspect-{client.base_url.port}={tokens.cookie_secret};")
    assert {"HttpOnly", "SameSite=strict", f"Path={tokens.path}/"} <= set(re.split(r"; *", cookie))
    for _ in range(2):
        page = await client.get("/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert token not in page.text
        assert tokens.cookie_secret not in page.text


async def test_a_token_opens_the_page_once(client: httpx.AsyncClient, tokens: AccessTokens) -> None:
    token = tokens.unused()
    assert (await client.get("/", params={"token": token})).status_code == 303
    again = await client.get("/", params={"token": token})
    assert (again.status_code, again.headers["location"]) == (303, f"{tokens.path}/")  # this browser has the page
    assert "set-cookie" not in again.headers
    client.cookies.clear()
    for _ in range(2):
        refused = await client.get("/", params={"token": token})
        assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)
        assert "open the new one that `bridge inspect` has just printed" in refused.text
    assert (await client.get("/")).status_code == 403
    assert (await client.get("/", params={"token": tokens.unused()})).status_code == 303


async def test_a_used_token_reports_the_valid_one_and_a_wrong_one_reports_nothing() -> None:
    reported: list[str] = []
    tokens = AccessTokens(reported.append)
    first = tokens.unused()
    assert not tokens.is_used(first)
    assert tokens.redeem(first)
    assert not tokens.redeem(first)
    assert not tokens.redeem("wrong")
    assert not tokens.is_used("wrong")
    assert reported == []
    assert tokens.is_used(first)
    assert tokens.is_used(first)
    assert reported == [tokens.unused()] * 2
    assert first not in reported


async def test_a_browser_that_comes_from_a_local_file_signs_in(client: httpx.AsyncClient, tokens: AccessTokens) -> None:
    client.cookies.clear()
    headers = {"sec-fetch-site": "cross-site"}
    assert (await client.get("/", params={"token": "wrong"}, headers=headers)).status_code == 403
    opened = await client.get("/", params={"token": tokens.unused()}, headers=headers)
    assert (opened.status_code, 'content="0;url=./"' in opened.text) == (200, True)
    assert (await client.get("/", headers=headers)).status_code == 403
    assert (await client.get("/", headers={"sec-fetch-site": "same-origin"})).status_code == 200


@pytest.mark.parametrize("foreign", ['a[b]={"c":1}', 'a="b', "é=1", "a b", "=", "a,b=c d"])
async def test_malformed_cookies_of_other_servers_are_skipped(
    client: httpx.AsyncClient, tokens: AccessTokens, foreign: str
) -> None:
    own = f"bridge-inspect-{client.base_url.port}={tokens.cookie_secret}"
    client.cookies.clear()
    for cookie in (f"{foreign}; {own}", f"{own}; {foreign}"):
        assert (await client.get("/", headers={b"cookie": cookie.encode()})).status_code == 200


async def test_a_cookie_of_the_same_name_that_another_server_has_set_does_not_lock_the_page(
    client: httpx.AsyncClient, tokens: AccessTokens
) -> None:
    name = f"bridge-inspect-{client.base_url.port}"
    client.cookies.clear()
    for cookie in (f"{name}={tokens.cookie_secret}; {name}=foreign", f"{name}=foreign; {name}={tokens.cookie_secret}"):
        assert (await client.get("/", headers={"cookie": cookie})).status_code == 200
    assert (await client.get("/", headers={"cookie": f"{name}=foreign; {name}=other"})).status_code == 403


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_is_served_without_the_token(client: httpx.AsyncClient, path: str) -> None:
    client.cookies.clear()
    refused = await client.get(path)
    assert (refused.status_code, "bridge inspect" in refused.text) == (403, True)
    client.cookies.set(f"bridge-inspect-{client.base_url.port}", "another", domain="127.0.0.1")
    assert (await client.get(path)).status_code == 403


async def test_the_cookie_is_of_no_use_without_the_random_path(page: OpenPage) -> None:
    cookie = {"cookie": f"bridge-inspect-{page.client.base_url.port}={page.tokens.cookie_secret}"}
    assert len(page.tokens.path) > 40
    assert page.tokens.path != AccessTokens(lambda token: None).path
    for path in (*PATHS, f"{page.tokens.path}x/", page.tokens.path, "/frames/1/0"):
        assert (await page.client.get(page.at(path), headers=cookie)).status_code == 403
    posted = await page.client.post(page.at("/requests/clear"), json={}, headers=cookie)
    assert posted.status_code == 403
    token = {"token": page.tokens.unused()}
    assert (await page.client.get(page.at("/"), params=token)).status_code == 403
    assert page.tokens.unused() == token["token"]


async def test_a_wrong_token_opens_nothing(client: httpx.AsyncClient, tokens: AccessTokens) -> None:
    client.cookies.clear()
    for wrong in (f"{tokens.unused()}ü", tokens.cookie_secret, ""):
        refused = await client.get("/", params={"token": wrong})
        assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
async def test_a_name_that_resolves_to_this_machine_is_refused(client: httpx.AsyncClient, host: str) -> None:
    assert (await client.get("/", headers={"host": host})).status_code == 421


async def test_localhost_is_this_machine(client: httpx.AsyncClient) -> None:
    assert (await client.get("/", headers={"host": f"localhost:{client.base_url.port}"})).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:1", "null", "https://127.0.0.1"])
async def test_pages_of_other_origins_are_refused_even_of_this_machine(client: httpx.AsyncClient, origin: str) -> None:
    refused = await client.post("/messages/clear", json={}, headers={"origin": origin})
    assert refused.status_code == 403


async def test_the_page_itself_is_admitted(client: httpx.AsyncClient) -> None:
    own = str(client.base_url.copy_with(path="/")).rstrip("/")
    headers = {"origin": own, "sec-fetch-site": "same-origin"}
    assert (await client.post("/messages/clear", json={}, headers=headers)).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_requests_of_other_sites_are_refused(client: httpx.AsyncClient, site: str) -> None:
    assert (await client.get("/events", headers={"sec-fetch-site": site})).status_code == 403


async def test_a_form_of_another_page_cannot_post(client: httpx.AsyncClient) -> None:
    sent = await client.post("/messages/clear", content="{}", headers={"content-type": "text/plain"})
    assert sent.status_code == 415


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON"])
async def test_json_may_name_its_charset(client: httpx.AsyncClient, kind: str) -> None:
    sent = await client.post("/messages/clear", content="{}", headers={"content-type": kind})
    assert sent.status_code == 200


@pytest.mark.parametrize("path", [*PATHS[:1], *PATHS[2:], "/none"])
async def test_every_response_has_the_policy_of_the_page(client: httpx.AsyncClient, path: str) -> None:
    headers = (await client.get(path)).headers
    policy = dict(each.strip().split(" ", 1) for each in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
